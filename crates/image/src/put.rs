//! Files and directories of this machine put into a file system that is in use: [`Tree`]s carried
//! out through the journaled engine.
//!
//! What is put is listed first, as for a new image, then made name by name. An entry that cannot
//! be had or made is reported, and the rest goes on; errors of the file system itself (no space,
//! damage, the device) end it. Directories that are there stay as they are and get more names.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use uext4::{Creation, NewInode};
use uext4_ondisk::inode::FileType;
use uext4_remote::entry::{self, Entry};
pub use uext4_remote::put_mode::Existing;
use uext4_remote::put_mode::PutMode;
use uext4_remote::putter::{Contents as PutContents, Outcome, Place, Putter};
use uext4_remote::wire::{Extent, Known};
use uext4_remote::{Node, Tree};

use crate::build::{new_inode, total, warn_of_times};
use crate::error::{Error, path_buf};
use crate::need::ranges;
use crate::progress::{Counter, Phase, Progress};
use crate::source::{
    Content, Contents, Context, Input, Listing, Source, SourceOptions, Store, Warnings, list,
    list_one,
};
use crate::sparse::Holes;
use crate::tree::{DataRange, EntryId, FileData};

/// Bytes copied at once.
const PIECE: usize = 1 << 20;

/// How to put.
#[derive(Clone, Debug, Default)]
pub struct PutOptions {
    /// How to read the source.
    pub source: SourceOptions,
    /// What happens to files that are there.
    pub existing: Existing,
    /// A file gets its name, or takes that of another file, when all of it is durable.
    pub whole: bool,
    /// What a file has that is put `whole`.
    pub attributes: Attributes,
    /// Extended attributes are left out.
    pub no_xattrs: bool,
    /// Device and inode of a file to leave out: the image itself.
    pub leave_out: Option<(u64, u64)>,
}

/// Where the attributes of a file come from that takes the place of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attributes {
    /// From its source.
    #[default]
    OfSource,
    /// From the regular file that it replaces: owner, mode, extended attributes, ACL, project and
    /// flags. Its times are those of the source.
    OfReplaced,
}

/// What was put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutReport {
    /// Names that were made.
    pub entries: u64,
    /// What was left out without being asked to.
    pub warnings: Warnings,
}

/// Puts `source` into the directory `into` under the name `name`; with `None` all that is in
/// `source`, which is a directory then. A symbolic link is put itself, unless a slash follows it.
/// `reported` is shown what could not be put.
///
/// # Errors
/// [`Error::Source`] if the source cannot be listed, [`Error::Entry`] for errors of the file
/// system.
pub fn put(
    fs: &Tree,
    source: &Path,
    into: &Node,
    name: Option<&[u8]>,
    options: &PutOptions,
    progress: &dyn Progress,
    reported: &mut dyn FnMut(&Error),
) -> Result<PutReport, Error> {
    let counter = Counter::begin(progress, Phase::Listing, None);
    let context = context(options, Path::new("."), &counter);
    let own_name = match source.as_os_str().as_bytes().ends_with(b"/") {
        true => None,
        false => source.file_name(),
    };
    let (mut listing, top) = match (name, own_name) {
        (Some(name), Some(own)) => {
            let dir = source.parent().filter(|dir| !dir.as_os_str().is_empty());
            let dir = dir.unwrap_or(Path::new("."));
            (list_one(dir, own, &context)?, Top::Child(name))
        }
        (Some(name), None) => (list(directory(source), &context, None)?, Top::Root(name)),
        (None, _) => (list(directory(source), &context, None)?, Top::Contents),
    };
    if options.source.split_links {
        listing.split_links();
    }
    fill(fs, &listing, top, into, options, progress, reported)
}

/// Puts what an archive has into the directory `into`, as tar would extract it as root with
/// `--numeric-owner`: what is there is replaced, but for directories. What comes through a pipe
/// waits in `spool_dir`.
///
/// # Errors
/// As [`put`].
pub fn untar(
    fs: &Tree,
    archive: &Source,
    spool_dir: &Path,
    into: &Node,
    options: &PutOptions,
    progress: &dyn Progress,
    reported: &mut dyn FnMut(&Error),
) -> Result<PutReport, Error> {
    let counter = Counter::begin(progress, Phase::Listing, None);
    let context = context(options, spool_dir, &counter);
    let mut listing = list(vec![Input::Source(archive.clone())], &context, None)?;
    if options.source.split_links {
        listing.split_links();
    }
    fill(
        fs,
        &listing,
        Top::Contents,
        into,
        options,
        progress,
        reported,
    )
}

fn context<'a>(
    options: &'a PutOptions,
    spool_dir: &'a Path,
    counter: &'a Counter<'a>,
) -> Context<'a> {
    Context {
        options: &options.source,
        spool_dir,
        leave_out: options.leave_out,
        counter,
        holes: Holes::OfSource,
    }
}

fn fill(
    fs: &Tree,
    listing: &Listing,
    top: Top<'_>,
    into: &Node,
    options: &PutOptions,
    progress: &dyn Progress,
    reported: &mut dyn FnMut(&Error),
) -> Result<PutReport, Error> {
    let counter = Counter::begin(progress, Phase::Writing, Some(total(&listing.tree)));
    let mode = PutMode {
        existing: options.existing,
        whole: options.whole,
        like: options.attributes == Attributes::OfReplaced,
    };
    let mut filler = Filler {
        listing,
        top,
        options,
        counter: &counter,
        reported,
        putter: Putter::new(fs, into, mode).map_err(at_all)?,
        nodes: vec![Progressed::No; listing.tree.nodes_len()],
        dirs: Vec::new(),
        unread: Vec::new(),
        ranges: Vec::new(),
        extents: Vec::new(),
        entries: 0,
    };
    filler.run()?;
    let entries = filler.entries;
    counter.report();
    let mut warnings = listing.warnings.clone();
    if let Tree::Local(fs) = fs {
        warn_of_times(&listing.tree, fs.geometry().inode_size, &mut warnings);
    }
    Ok(PutReport { entries, warnings })
}

fn directory(path: &Path) -> Vec<Input> {
    vec![Input::Source(Source::Directory(path.to_path_buf()))]
}

/// Where the tree goes.
#[derive(Clone, Copy)]
enum Top<'a> {
    /// The tree's root has one child, which gets this name.
    Child(&'a [u8]),
    /// The tree's root gets this name.
    Root(&'a [u8]),
    /// The tree's root is there.
    Contents,
}

/// Carries out a tree.
struct Filler<'a> {
    listing: &'a Listing,
    top: Top<'a>,
    options: &'a PutOptions,
    counter: &'a Counter<'a>,
    reported: &'a mut dyn FnMut(&Error),
    putter: Putter,
    /// What of the nodes has been made.
    nodes: Vec<Progressed>,
    /// The directories on the way, from below the one that everything is put into.
    dirs: Vec<EntryId>,
    /// What went wrong with reading contents, by their entries.
    unread: Vec<(EntryId, Error)>,
    ranges: Vec<Range<u64>>,
    extents: Vec<Extent>,
    entries: u64,
}

/// How far a node has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progressed {
    No,
    /// It is being made.
    Begun,
    Made(Known),
}

impl<'a> Filler<'a> {
    fn run(&mut self) -> Result<(), Error> {
        let listing = self.listing;
        let tree = &listing.tree;
        let mut contents = Contents::new(listing);
        for entry in tree.entries() {
            if entry == EntryId::ROOT {
                if let Top::Root(name) = self.top {
                    self.entry(entry, name, &mut contents)?;
                }
                continue;
            }
            let parent = tree.parent(entry);
            while self.dirs.last().is_some_and(|dir| *dir != parent) {
                self.leave()?;
            }
            let name = match self.top {
                Top::Child(name) if parent == EntryId::ROOT => name,
                _ => tree.name(entry),
            };
            self.entry(entry, name, &mut contents)?;
        }
        while !self.dirs.is_empty() {
            self.leave()?;
        }
        self.putter.settle().map_err(at_all)?;
        self.outcomes()
    }

    /// All below a directory is there.
    fn leave(&mut self) -> Result<(), Error> {
        if let Some(dir) = self.dirs.pop() {
            let xattrs = self.xattrs(dir);
            let entry = self.describe(dir, &xattrs, &[]);
            let left = self.putter.leave(dir.index() as u64, &entry);
            left.map_err(at_all)?;
        }
        self.outcomes()
    }

    /// Makes one name.
    fn entry(
        &mut self,
        entry: EntryId,
        name: &[u8],
        contents: &mut Contents<'a>,
    ) -> Result<(), Error> {
        self.counter.entry();
        let tree = &self.listing.tree;
        let node = tree.node_of(entry);
        let (index, tag) = (tree.node_id(entry).index(), entry.index() as u64);
        let is_dir = node.file_type() == FileType::Directory;
        if self.nodes[index] == Progressed::Begun && !is_dir {
            self.putter.settle().map_err(at_all)?;
            self.outcomes()?;
        }
        match self.nodes[index] {
            Progressed::Made(known) => self.putter.link(tag, name, known).map_err(at_all)?,
            _ => {
                self.nodes[index] = Progressed::Begun;
                self.make(entry, name, contents)?;
            }
        }
        if is_dir {
            self.dirs.push(entry);
        }
        self.outcomes()
    }

    /// Makes what an entry stands for.
    fn make(
        &mut self,
        entry: EntryId,
        name: &[u8],
        contents: &mut Contents<'a>,
    ) -> Result<(), Error> {
        let tree = &self.listing.tree;
        let node = tree.node_of(entry);
        let has_content = node.file_type() == FileType::Regular && node.size() > 0;
        let content = match has_content.then(|| contents.open(entry)).transpose() {
            Ok(content) => content,
            Err(error) if is_of_one_entry(&error) => {
                (self.reported)(&error);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut data = std::mem::take(&mut self.ranges);
        let mut extents = std::mem::take(&mut self.extents);
        data.clear();
        extents.clear();
        if has_content {
            ranges(tree.data(node), node.size(), &mut data);
            extents_of(tree.data(node), node.size(), &mut extents);
        }
        let file = content.as_ref().and_then(Content::descriptor);
        let counter = self.counter;
        let mut read = |at: u64, buf: &mut [u8]| {
            counter.bytes(buf.len() as u64);
            match &content {
                Some(content) => content.read_exact_at(at, buf),
                None => Ok(()),
            }
        };
        if file.is_some() && self.putter.is_remote() {
            counter.bytes(extents.iter().map(|extent| extent.len).sum());
        }
        let xattrs = self.xattrs(entry);
        let described = self.describe(entry, &xattrs, &data);
        let passed = PutContents {
            read: &mut read,
            file: file.map(|file| Place {
                file,
                is_shared: content.as_ref().is_some_and(Content::is_shared),
                extents: &extents,
            }),
        };
        let put = self
            .putter
            .put(entry.index() as u64, name, &described, passed);
        if let Some(error) = content.as_ref().and_then(Content::take_error) {
            self.unread.push((entry, error));
        }
        self.ranges = data;
        self.extents = extents;
        put.map_err(at_all)
    }

    fn describe<'e>(
        &self,
        entry: EntryId,
        xattrs: &'e [(&'e [u8], &'e [u8])],
        data: &'e [Range<u64>],
    ) -> Entry<'e>
    where
        'a: 'e,
    {
        let tree = &self.listing.tree;
        let node = tree.node_of(entry);
        let (uid, gid) = node.owner();
        let [atime, mtime, _] = node.times();
        Entry {
            kind: new_inode(tree, entry),
            mode: node.mode(),
            uid,
            gid,
            atime,
            mtime,
            size: match node.file_type() {
                FileType::Regular => node.size(),
                _ => 0,
            },
            data,
            xattrs,
        }
    }

    fn xattrs(&self, entry: EntryId) -> Vec<(&'a [u8], &'a [u8])> {
        let tree = &self.listing.tree;
        match self.options.no_xattrs {
            true => Vec::new(),
            false => {
                let all = tree.xattrs(tree.node_of(entry)).iter();
                all.map(|(name, value)| (&**name, &**value)).collect()
            }
        }
    }

    /// Looks at what has become of names.
    fn outcomes(&mut self) -> Result<(), Error> {
        let outcomes: Vec<Outcome> = self.putter.outcomes().collect();
        for Outcome { tag, result } in outcomes {
            // OK to cast: the number of an entry.
            let entry = EntryId::from_index(tag as u32);
            match result {
                Ok(done) => {
                    self.entries += u64::from(done.is_new);
                    let index = self.listing.tree.node_id(entry).index();
                    self.nodes[index] = Progressed::Made(done.inode);
                    for error in done.missing {
                        let error = self.failed(entry, error);
                        (self.reported)(&error);
                    }
                }
                Err(source) => {
                    let index = self.listing.tree.node_id(entry).index();
                    if self.nodes[index] == Progressed::Begun {
                        self.nodes[index] = Progressed::No;
                    }
                    let unread = self.unread.iter().position(|(unread, _)| *unread == entry);
                    let error = match unread {
                        Some(at) => self.unread.swap_remove(at).1,
                        None => self.failed(entry, source),
                    };
                    if !is_of_one_entry(&error) {
                        return Err(error);
                    }
                    (self.reported)(&error);
                }
            }
        }
        Ok(())
    }

    fn failed(&self, entry: EntryId, source: uext4::Error) -> Error {
        let mut path = path_buf(&self.listing.tree.path(entry));
        if let (Top::Contents | Top::Root(_), [Store::Directory { path: top, .. }]) =
            (self.top, self.listing.stores.as_slice())
        {
            path = top.join(path);
        }
        Error::Entry { path, source }
    }
}

/// An error of the whole, as where the connection is lost.
fn at_all(source: uext4::Error) -> Error {
    Error::Entry {
        path: path_buf(b"/"),
        source,
    }
}

/// Where the data of a file lie in what contains them.
fn extents_of(data: FileData<'_>, size: u64, extents: &mut Vec<Extent>) {
    match data {
        FileData::Whole { at } => extents.push(Extent {
            offset: 0,
            len: size,
            at,
        }),
        FileData::Sparse(pieces) => {
            extents.extend(pieces.iter().map(|&DataRange { offset, len, at }| Extent {
                offset,
                len,
                at,
            }));
        }
    }
}

/// Puts what `content` gives until its end into a file: whole, or not at all. It gets the name
/// when all of it is durable.
///
/// # Errors
/// [`Error::Source`] for the content, [`Error::Entry`] for the file system:
/// [`uext4::Error::Exists`] unless what is there may be replaced.
pub fn put_stream(
    content: &mut dyn std::io::Read,
    into: &Node,
    name: &[u8],
    how: &Creation,
    existing: Existing,
    attributes: Attributes,
) -> Result<u64, Error> {
    let failed = |source| Error::Entry {
        path: path_buf(name),
        source,
    };
    match into.lookup(name) {
        Ok(old) => {
            let is_dir = old.view().map_err(failed)?.file_type() == FileType::Directory;
            if existing == Existing::Refuse || is_dir {
                return Err(failed(uext4::Error::Exists));
            }
        }
        Err(uext4::Error::NotFound) => {}
        Err(error) => return Err(failed(error)),
    }
    let like = attributes == Attributes::OfReplaced;
    let file = match like {
        true => into
            .lookup(name)
            .and_then(|old| into.create_unnamed_like(&old)),
        false => into.create_unnamed(NewInode::File, how),
    };
    let file = file.map_err(failed)?;
    let len = copy_stream(content, &file, failed)?;
    file.give_name(into, name, like).map_err(failed)?;
    Ok(len)
}

fn copy_stream(
    content: &mut dyn std::io::Read,
    file: &Node,
    failed: impl Fn(uext4::Error) -> Error,
) -> Result<u64, Error> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let len = match content.read(&mut piece) {
            Ok(0) => return Ok(at),
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(source) => {
                let path = path_buf(b"-");
                let op = "read";
                return Err(Error::Source { path, op, source });
            }
        };
        let mut data = &piece[..len];
        while !data.is_empty() {
            let taken = file.write_at(at, data).map_err(&failed)?;
            data = data.get(taken..).unwrap_or_default();
            at += taken as u64;
        }
    }
}

/// Whether others may still be put.
fn is_of_one_entry(error: &Error) -> bool {
    match error {
        Error::Source { .. } | Error::Changed { .. } => true,
        Error::Entry { source, .. } => entry::is_of_one_entry(source),
        _ => false,
    }
}
