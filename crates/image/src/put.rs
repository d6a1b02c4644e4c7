//! Files and directories of this machine put into a file system that is in use: [`Tree`]s carried
//! out through the journaled engine.
//!
//! What is put is listed first, as for a new image, then made name by name. An entry that cannot
//! be had or made is reported, and the rest goes on; errors of the file system itself (no space,
//! damage, the device) end it. Directories that are there stay as they are and get more names.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use uext4::format::VISIBLE_FLAGS;
use uext4::xattr::SetMode;
use uext4::{Creation, Ino, Invalid, NewInode, OpenInode, SetAttributes, SetTime, Volume};
use uext4_ondisk::inode::FileType;

use crate::build::{new_inode, total};
use crate::error::{Error, path_buf};
use crate::need::ranges;
use crate::progress::{Counter, Phase, Progress};
use crate::source::{
    Contents, Context, Input, Listing, Source, SourceOptions, Store, Warnings, list, list_one,
};
use crate::sparse::Holes;
use crate::tree::EntryId;

/// Bytes copied at once.
const PIECE: usize = 1 << 20;

/// How to put.
#[derive(Clone, Debug, Default)]
pub struct PutOptions {
    /// How to read the source.
    pub source: SourceOptions,
    /// Files that are there are replaced, each in one step; else they stay and are reported.
    pub overwrite: bool,
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
    fs: &Volume,
    source: &Path,
    into: &OpenInode,
    name: Option<&[u8]>,
    options: &PutOptions,
    progress: &dyn Progress,
    reported: &mut dyn FnMut(&Error),
) -> Result<PutReport, Error> {
    let counter = Counter::begin(progress, Phase::Listing, None);
    let context = Context {
        options: &options.source,
        spool_dir: Path::new("."),
        leave_out: options.leave_out,
        counter: &counter,
        holes: Holes::OfSource,
    };
    let own_name = match source.as_os_str().as_bytes().ends_with(b"/") {
        true => None,
        false => source.file_name(),
    };
    let (listing, top) = match (name, own_name) {
        (Some(name), Some(own)) => {
            let dir = source.parent().filter(|dir| !dir.as_os_str().is_empty());
            let dir = dir.unwrap_or(Path::new("."));
            (list_one(dir, own, &context)?, Top::Child(name))
        }
        (Some(name), None) => (list(directory(source), &context, None)?, Top::Root(name)),
        (None, _) => (list(directory(source), &context, None)?, Top::Contents),
    };
    let counter = Counter::begin(progress, Phase::Writing, Some(total(&listing.tree)));
    let mut filler = Filler {
        fs,
        listing: &listing,
        top,
        options,
        counter: &counter,
        reported,
        inos: vec![None; listing.tree.nodes_len()],
        dirs: Vec::new(),
        ranges: Vec::new(),
        piece: Vec::new(),
        entries: 0,
    };
    filler.run(into)?;
    let entries = filler.entries;
    counter.report();
    Ok(PutReport {
        entries,
        warnings: listing.warnings,
    })
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

/// A directory on the way.
struct Dir {
    entry: EntryId,
    /// `None` if it could not be made: nothing below it can be.
    inode: Option<OpenInode>,
    /// It is new: it gets its attributes when all below it is there.
    made: bool,
}

/// Carries out a tree.
struct Filler<'a> {
    fs: &'a Volume,
    listing: &'a Listing,
    top: Top<'a>,
    options: &'a PutOptions,
    counter: &'a Counter<'a>,
    reported: &'a mut dyn FnMut(&Error),
    /// Inodes of the nodes that have been made.
    inos: Vec<Option<Ino>>,
    dirs: Vec<Dir>,
    ranges: Vec<Range<u64>>,
    piece: Vec<u8>,
    entries: u64,
}

impl<'a> Filler<'a> {
    fn run(&mut self, into: &OpenInode) -> Result<(), Error> {
        let listing = self.listing;
        let tree = &listing.tree;
        let mut contents = Contents::new(listing);
        for entry in tree.entries() {
            if entry == EntryId::ROOT {
                match self.top {
                    Top::Root(name) => self.entry(entry, into, name, &mut contents)?,
                    _ => self.dirs.push(Dir {
                        entry,
                        inode: Some(into.clone()),
                        made: false,
                    }),
                }
                continue;
            }
            let parent = tree.parent(entry);
            while self.dirs.last().is_some_and(|dir| dir.entry != parent) {
                self.leave()?;
            }
            let name = match self.top {
                Top::Child(name) if parent == EntryId::ROOT => name,
                _ => tree.name(entry),
            };
            match self.dirs.last().and_then(|dir| dir.inode.clone()) {
                Some(dir) => self.entry(entry, &dir, name, &mut contents)?,
                None => self.enter(entry, None, false),
            }
        }
        while !self.dirs.is_empty() {
            self.leave()?;
        }
        Ok(())
    }

    fn enter(&mut self, entry: EntryId, inode: Option<OpenInode>, made: bool) {
        if self.listing.tree.node_of(entry).file_type() == FileType::Directory {
            self.dirs.push(Dir { entry, inode, made });
        }
    }

    /// All below a directory is there.
    fn leave(&mut self) -> Result<(), Error> {
        if let Some(dir) = self.dirs.pop()
            && let (Some(inode), true) = (&dir.inode, dir.made)
        {
            self.attributes(dir.entry, inode)?;
        }
        Ok(())
    }

    /// Makes one name, and reports it if that cannot be.
    fn entry(
        &mut self,
        entry: EntryId,
        dir: &OpenInode,
        name: &[u8],
        contents: &mut Contents<'a>,
    ) -> Result<(), Error> {
        self.counter.entry();
        let is_dir = self.listing.tree.node_of(entry).file_type() == FileType::Directory;
        let made = match self.options.whole && !is_dir {
            true => self.whole(entry, dir, name, contents),
            false => match self.make(entry, dir, Some(name), contents) {
                Err(Error::Entry {
                    source: uext4::Error::Exists,
                    ..
                }) => self.instead(entry, dir, name, contents),
                made => made.map(|inode| (inode, true)),
            },
        };
        match made {
            Ok((inode, made)) => {
                self.entries += u64::from(made);
                self.enter(entry, Some(inode), made);
            }
            Err(error) if is_of_one_entry(&error) => {
                (self.reported)(&error);
                self.enter(entry, None, false);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The name is there: a directory is used, a file may be replaced.
    fn instead(
        &mut self,
        entry: EntryId,
        dir: &OpenInode,
        name: &[u8],
        contents: &mut Contents<'a>,
    ) -> Result<(OpenInode, bool), Error> {
        let node = self.listing.tree.node_of(entry);
        let existing = dir.lookup(name).map_err(|e| self.failed(entry, e))?;
        let is_dir = existing.inode().file_type == FileType::Directory;
        if is_dir && node.file_type() == FileType::Directory {
            return Ok((existing, false));
        }
        if is_dir || node.file_type() == FileType::Directory || !self.options.overwrite {
            return Err(self.failed(entry, uext4::Error::Exists));
        }
        match self.inos[self.listing.tree.node_id(entry).index()] {
            Some(ino) if ino == existing.ino() => Ok((existing, false)),
            _ => self.whole(entry, dir, name, contents),
        }
    }

    /// Makes a file without a name, then gives it one, which another file may have.
    fn whole(
        &mut self,
        entry: EntryId,
        dir: &OpenInode,
        name: &[u8],
        contents: &mut Contents<'a>,
    ) -> Result<(OpenInode, bool), Error> {
        let made = self.make(entry, dir, None, contents)?;
        if let Err(error) = give_name(&made, dir, name, self.options.attributes) {
            // It goes away without a name; links to it would lead nowhere.
            self.inos[self.listing.tree.node_id(entry).index()] = None;
            return Err(self.failed(entry, error));
        }
        Ok((made, true))
    }

    /// Makes what an entry stands for in a directory; without a name an orphan, which goes away
    /// with an interruption.
    fn make(
        &mut self,
        entry: EntryId,
        dir: &OpenInode,
        name: Option<&[u8]>,
        contents: &mut Contents<'a>,
    ) -> Result<OpenInode, Error> {
        let tree = &self.listing.tree;
        let node = tree.node_of(entry);
        let index = tree.node_id(entry).index();
        if let Some(ino) = self.inos[index] {
            let inode = self.fs.open_inode(ino);
            let linked = inode.and_then(|inode| {
                name.map_or(Ok(()), |name| inode.link(dir, name))?;
                Ok(inode)
            });
            return linked.map_err(|e| self.failed(entry, e));
        }
        let (uid, gid) = node.owner();
        let how = Creation {
            mode: node.mode(),
            umask: 0,
            uid,
            gid,
        };
        let made = match name {
            Some(name) => dir.create(name, new_inode(tree, entry), &how),
            None => dir.create_unnamed(new_inode(tree, entry), &how),
        };
        let made = made.map_err(|e| self.failed(entry, e))?;
        if node.file_type() == FileType::Regular
            && let Err(error) = self.write(entry, &made, contents)
        {
            // What went wrong first counts.
            _ = name.map(|name| dir.unlink(name));
            return Err(error);
        }
        if node.file_type() != FileType::Directory {
            self.attributes(entry, &made)?;
            self.inos[index] = Some(made.ino());
        }
        Ok(made)
    }

    fn write(
        &mut self,
        entry: EntryId,
        file: &OpenInode,
        contents: &mut Contents<'a>,
    ) -> Result<(), Error> {
        let node = self.listing.tree.node_of(entry);
        if node.size() == 0 {
            return Ok(());
        }
        let mut content = contents.open(entry)?;
        self.ranges.clear();
        ranges(self.listing.tree.data(node), node.size(), &mut self.ranges);
        self.piece.resize(PIECE, 0);
        for range in &self.ranges {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(PIECE as u64) as usize;
                let piece = &mut self.piece[..len];
                if let Err(error) = content.read_exact_at(at, piece) {
                    let path = path_buf(&self.listing.tree.path(entry));
                    return Err(content.take_error().unwrap_or(Error::Source {
                        path,
                        op: "read",
                        source: error,
                    }));
                }
                write_all(file, at, piece).map_err(|e| self.failed(entry, e))?;
                self.counter.bytes(len as u64);
                at += len as u64;
            }
        }
        if self.ranges.last().is_none_or(|last| last.end < node.size()) {
            let size = SetAttributes {
                size: Some(node.size()),
                ..SetAttributes::default()
            };
            let set = file.set_attributes(&size);
            set.map_err(|e| self.failed(entry, e))?;
        }
        Ok(())
    }

    /// Gives a new inode what the source has, and nothing the directory gave it beyond that.
    fn attributes(&mut self, entry: EntryId, inode: &OpenInode) -> Result<(), Error> {
        let tree = &self.listing.tree;
        let node = tree.node_of(entry);
        let (uid, gid) = node.owner();
        let [atime, mtime, _] = node.times();
        for xattr in inode.xattrs().map_err(|e| self.failed(entry, e))? {
            if xattr.name.starts_with(b"system.posix_acl_") {
                let removed = inode.set_xattr(&xattr.name, None, SetMode::Any);
                removed.map_err(|e| self.failed(entry, e))?;
            }
        }
        let attributes = SetAttributes {
            // A link has no mode of its own.
            mode: (node.file_type() != FileType::Symlink).then(|| node.mode()),
            uid: Some(uid),
            gid: Some(gid),
            atime: Some(SetTime::To(atime)),
            mtime: Some(SetTime::To(mtime)),
            ..SetAttributes::default()
        };
        let set = inode.set_attributes(&attributes);
        set.map_err(|e| self.failed(entry, e))?;
        if self.options.no_xattrs {
            return Ok(());
        }
        for (name, value) in tree.xattrs(node) {
            match inode.set_xattr(name, Some(value), SetMode::Any) {
                Ok(()) => {}
                Err(error) => {
                    let error = self.failed(entry, error);
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

/// What happens if the name exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// What is there stays, and the new file is refused.
    Refuse,
    /// The new file takes its place; a directory stays.
    Replace,
}

/// Puts what `content` gives until its end into a file: whole, or not at all. It gets the name
/// when all of it is durable.
///
/// # Errors
/// [`Error::Source`] for the content, [`Error::Entry`] for the file system:
/// [`uext4::Error::Exists`] unless what is there may be replaced.
pub fn put_stream(
    content: &mut dyn std::io::Read,
    into: &OpenInode,
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
        Ok(old) if existing == Existing::Refuse || old.inode().file_type == FileType::Directory => {
            return Err(failed(uext4::Error::Exists));
        }
        Ok(_) | Err(uext4::Error::NotFound) => {}
        Err(error) => return Err(failed(error)),
    }
    let file = into.create_unnamed(NewInode::File, how).map_err(failed)?;
    let len = copy_stream(content, &file, failed)?;
    give_name(&file, into, name, attributes).map_err(failed)?;
    Ok(len)
}

fn copy_stream(
    content: &mut dyn std::io::Read,
    file: &OpenInode,
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
        write_all(file, at, &piece[..len]).map_err(&failed)?;
        at += len as u64;
    }
}

/// Gives a file, with all its data in place, a name, which another that has it loses.
fn give_name(
    file: &OpenInode,
    dir: &OpenInode,
    name: &[u8],
    attributes: Attributes,
) -> uext4::Result<()> {
    if attributes == Attributes::OfReplaced {
        make_like(file, &dir.lookup(name)?)?;
    }
    if file.inode().file_type == FileType::Regular {
        file.fdatasync()?;
    }
    match file.link_over(dir, name) {
        Err(uext4::Error::NotFound) => file.link(dir, name),
        replaced => replaced,
    }
}

/// Gives a file the attributes of another, and none besides these. Times stay.
fn make_like(file: &OpenInode, old: &OpenInode) -> uext4::Result<()> {
    let inode = old.inode();
    if [inode.file_type, file.inode().file_type] != [FileType::Regular; 2] {
        return Err(Invalid::NotRegularFile.into());
    }
    let xattrs = old.xattrs()?;
    for xattr in file.xattrs()? {
        if xattrs.iter().all(|kept| kept.name != xattr.name) {
            file.set_xattr(&xattr.name, None, SetMode::Any)?;
        }
    }
    file.set_attributes(&SetAttributes {
        mode: Some(inode.mode & 0o7777),
        uid: Some(inode.uid),
        gid: Some(inode.gid),
        projid: (inode.projid != file.inode().projid).then_some(inode.projid),
        ..SetAttributes::default()
    })?;
    for xattr in &xattrs {
        file.set_xattr(&xattr.name, Some(&xattr.value), SetMode::Any)?;
    }
    // The last: some of them keep all others from being changed.
    file.set_attributes(&SetAttributes {
        flags: Some(inode.flags.intersection(VISIBLE_FLAGS)),
        ..SetAttributes::default()
    })
}

fn write_all(file: &OpenInode, mut at: u64, mut data: &[u8]) -> uext4::Result<()> {
    while !data.is_empty() {
        let taken = file.write_at(at, data)?;
        at += taken as u64;
        data = data.get(taken..).unwrap_or_default();
    }
    Ok(())
}

/// Whether others may still be put.
fn is_of_one_entry(error: &Error) -> bool {
    use uext4::Error as Engine;
    match error {
        Error::Source { .. } | Error::Changed { .. } => true,
        Error::Entry { source, .. } => matches!(
            source,
            Engine::Exists
                | Engine::NameTooLong
                | Engine::TooManyLinks
                | Engine::FileTooBig
                | Engine::XattrsTooBig { .. }
                | Engine::AttributeName { .. }
                | Engine::AttributeValue { .. }
                | Engine::NotPermitted { .. }
                | Engine::Unsupported { .. }
                | Engine::Invalid { .. }
        ),
        _ => false,
    }
}
