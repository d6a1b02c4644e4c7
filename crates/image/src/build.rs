//! From a source to an image.

mod listed;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uext4::NewInode;
use uext4::bulk::{Creator, CreatorOptions, FileContent, PlacedRun, Summary};
use uext4_blockdev::BlockDevice;
use uext4_mkfs::Layout;
use uext4_ondisk::Ino;
use uext4_ondisk::inode::{FileType, InodeFlags, Timestamp};

use crate::begun::{self, Begun, Listed};
use crate::error::{Error, FinishError, path_buf};
use crate::finish::{Finish, FinishOptions, HashTree};
use crate::gpt;
use crate::identity;
use crate::need::{Counted, lost_and_found, ranges};
use crate::options::BuildOptions;
use crate::output::{Draft, Output};
use crate::place::Placed;
use crate::progress::{Amount, Counter, Phase, Progress, Timing};
use crate::size::{self, Size};
use crate::source::{Content, Contents, Input, Listing, Source, Store, Warnings};
use crate::tree::{EntryId, FileData, Node, Tree};
use crate::verity::RootHash;
pub(crate) use listed::warn_of_times;
use listed::{first_files, refuse_container_image};

/// What was built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Entries of the source, its root not counted.
    pub entries: u64,
    /// Bytes of contents, without holes.
    pub content_bytes: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks and inodes, in all and free.
    pub summary: Summary,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// The root hash, if there is a hash tree.
    pub root_hash: Option<RootHash>,
    /// What opening the hash tree takes, if there is one.
    pub hash_tree: Option<HashTree>,
    /// What of the source is not in the image, or not as it was.
    pub warnings: Warnings,
    /// How long each phase took.
    pub elapsed: Vec<(Phase, Duration)>,
}

/// Makes an image of `source` at `output`; see [`Builder`](crate::Builder), which takes several.
///
/// # Errors
/// Whatever is wrong with the source, the wishes or the output; see [`Error`].
pub fn build(
    source: &Source,
    output: &Path,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Report, Error> {
    let inputs = vec![Input::Source(source.clone())];
    run(inputs, Output::look_at(output)?, options, progress)
}

/// The source, if there is no other one.
fn only(inputs: &[Input]) -> Option<Source> {
    match inputs {
        [Input::Source(source)] => Some(source.clone()),
        _ => None,
    }
}

fn is_directory(input: &Input) -> bool {
    matches!(input, Input::Source(Source::Directory(_)))
}

/// Makes an image of sources, each above those before it.
pub(crate) fn run(
    inputs: Vec<Input>,
    output: Output,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Report, Error> {
    let mut timing = Timing::new(progress);
    let output = in_place(output, options)?;
    let (start, sector_size) = (output.start_in_disk(), output.sector_size());
    // A part of a disk is counted from its own beginning.
    let offset = start.map_or(options.mkfs.extended.offset, |_| 0);
    let finish_for = |uuid| options.finish.plan(uuid, offset, sector_size);
    // No place and no length follows from the UUID, which is not known yet.
    let finish = finish_for([0; 16])?;
    let options = &of_file_system(options, &finish);
    let counter = timing.begin(Phase::Listing, None);
    let alone = only(&inputs);
    let are_directories: Vec<bool> = inputs.iter().map(is_directory).collect();
    let device_len = output.device_len().map(|len| finish.fs_max(len));
    let holes = begun::holes(options, device_len)?;
    let (mut listing, draft) =
        Begun::new(output, options)?.list(inputs, &options.source, holes, &counter)?;
    counter.report();
    refuse_container_image(alone, &listing.tree)?;
    forget_times(&mut listing.tree, &are_directories, options);
    timing.begin(Phase::Sizing, None);
    let planned = plan_fitting(&mut listing, options, draft, device_len)?;
    let layout = planned.layout;
    let finish = finish_for(layout.superblock.s_uuid)?;
    let places = finish.layout(layout.len_bytes());
    timing.begin(Phase::Formatting, None);
    let (draft, placed) = planned.listed.cut(places.len)?;
    finish.prepare(&places, &*draft.device())?;
    let device = finish.fs_device(&places, draft.device())?;
    if let Some(placed) = &placed {
        placed.discard_unused(&*device)?;
    }
    uext4_mkfs::format(&layout, &*device)?;
    let total = total(&listing.tree);
    let counter = timing.begin(Phase::Writing, Some(total));
    let first = first_files(&listing.tree, &options.order, &mut listing.warnings);
    let inode_size = layout.geometry.inode_size;
    warn_of_times(&listing.tree, inode_size, &mut listing.warnings);
    let mut creator = open_creator(device)?;
    let keep_xattrs = !options.mkfs.extended.no_copy_xattrs;
    let filler = Filler {
        placed: placed.as_ref(),
        time: planned.time,
        keep_xattrs,
        ..Filler::new(&mut creator, &listing, &counter, first)
    };
    filler.run()?;
    counter.report();
    let warnings = only_warnings(listing);
    let (summary, root_hash) = complete(creator, &finish, &places, draft, &mut timing)?;
    Ok(Report {
        entries: total.entries - 1,
        content_bytes: total.bytes,
        image_bytes: places.len,
        block_size: layout.geometry.block_size.bytes(),
        summary,
        uuid: layout.superblock.s_uuid,
        root_hash,
        hash_tree: root_hash
            .and_then(|hash| finish.hash_tree(&places, hash))
            .map(|tree| tree.moved_by(start.unwrap_or(0))),
        warnings,
        elapsed: timing.end(),
    })
}

/// The output, as a part of its disk if there is a disk already and the file system does not begin
/// with it.
fn in_place(output: Output, options: &BuildOptions) -> Result<Output, Error> {
    let len = match options.size {
        Size::Exact(len) => Some(len),
        _ => None,
    };
    let output = output.beginning_at(options.mkfs.extended.offset)?;
    let output = output.bounded_by(len)?;
    match output.start_in_disk() {
        Some(offset) if options.finish.gpt.is_some() => Err(FinishError::Offset { offset }.into()),
        _ => Ok(output),
    }
}

/// Frees all else: laying out directories takes memory, and needs none of it.
fn only_warnings(listing: Listing) -> Warnings {
    listing.warnings
}

/// Completes the file system and what is around it, and gives the image its name.
fn complete(
    creator: Creator,
    finish: &Finish,
    places: &gpt::Layout,
    draft: Draft,
    timing: &mut Timing<'_>,
) -> Result<(Summary, Option<RootHash>), Error> {
    let hashes = places.verity.is_some();
    timing.begin(
        match hashes {
            true => Phase::Hashing,
            false => Phase::Syncing,
        },
        None,
    );
    let summary = creator.finish().map_err(at_root)?;
    let root_hash = finish.write(places, &draft.device())?;
    if hashes {
        timing.begin(Phase::Syncing, None);
    }
    draft.finish()?;
    Ok((summary, root_hash))
}

/// A layout, and the image that gets it.
struct Planned {
    layout: Layout,
    time: Timestamp,
    listed: Listed,
}

/// As [`plan`], for sources whose contents may have been placed already. Where the layout has its
/// own blocks there, as with groups made smaller for very many inodes, they are read again.
fn plan_fitting(
    listing: &mut Listing,
    options: &BuildOptions,
    listed: Listed,
    device_len: Option<u64>,
) -> Result<Planned, Error> {
    let listed = match options.source.split_links && listing.split_links() {
        // Contents that are in their places have one owner.
        true => listed.take_back(listing),
        false => listed,
    };
    let placed = listed.placed();
    if let Some(Err(error)) = placed.map(Placed::check_fit) {
        // With what belongs to the contents, the numbers are exact.
        plan(listing, options, None, None)?;
        return Err(error);
    }
    let (planned, listed) = match plan(listing, options, placed, device_len) {
        Err(Error::Mkfs(uext4_mkfs::Error::Occupied { .. })) => {
            let planned = plan(listing, options, None, None);
            (planned, listed.take_back(listing))
        }
        planned => (planned, listed),
    };
    let (layout, time) = planned.map_err(|error| listed.said_of_disk(error))?;
    Ok(Planned {
        layout,
        time,
        listed,
    })
}

/// The options of the file system alone: where it begins, and what it has of the size of the
/// image.
fn of_file_system(options: &BuildOptions, finish: &Finish) -> BuildOptions {
    let mut options = options.clone();
    options.mkfs.extended.offset = finish.fs_start();
    if let Size::Exact(len) = options.size
        && options.finish != FinishOptions::default()
    {
        options.size = Size::Exact(finish.fs_max(len));
    }
    options
}

/// Times that a copy of a directory would not share are not stored, unless they are wished.
fn forget_times(tree: &mut Tree, are_directories: &[bool], options: &BuildOptions) {
    let is_directory = |source: u16| are_directories.get(usize::from(source)) == Some(&true);
    match options.preserve_atime {
        true => tree.forget_change_times(is_directory),
        false => tree.forget_own_times(is_directory),
    }
}

/// Settles times, identity and size.
fn plan(
    listing: &mut Listing,
    options: &BuildOptions,
    placed: Option<&Placed>,
    device_len: Option<u64>,
) -> Result<(Layout, Timestamp), Error> {
    let (tree, stores) = (&mut listing.tree, &listing.stores);
    let newest = tree.newest_mtime().map_or(0, |t| t.sec);
    let time = Timestamp {
        sec: options.time.unwrap_or(newest),
        nsec: 0,
    };
    tree.set_implied_times(time);
    if options.clamp_times {
        tree.clamp_times(time);
    }
    let identity = identity::derive(tree, listing.holes.unit());
    let mut mkfs = options.mkfs.clone();
    mkfs.uuid = options.uuid.unwrap_or(identity.uuid);
    mkfs.hash_seed = options.hash_seed.unwrap_or(identity.hash_seed);
    mkfs.time = u32::try_from(time.sec.max(0)).unwrap_or(u32::MAX);
    mkfs.reserved_percent = options.reserved_percent.unwrap_or(match options.size {
        Size::Min | Size::Free(_) => 0.0,
        Size::Exact(_) | Size::Auto => 5.0,
    });
    if let Some(placed) = placed {
        mkfs.occupied = placed.used().to_vec();
        // The file is new, and has nothing but these.
        mkfs.assume_zeroed = true;
    }
    let mut counted = Counted::new(tree).without_placed(placed);
    if mkfs.extended.no_copy_xattrs {
        counted = counted.without_xattrs();
    }
    let mut block_len = 0;
    let layout = size::choose(&mkfs, options.size, device_len, &mut |layout| {
        block_len = u64::from(layout.geometry.block_size.bytes());
        counted.under(layout)
    });
    let layout = layout.map_err(|error| name_source(error, &counted, block_len, stores))?;
    Ok((layout, time))
}

/// Says which of several sources it is that does not fit.
fn name_source(error: Error, counted: &Counted<'_>, block_len: u64, stores: &[Store]) -> Error {
    match error {
        Error::DoesNotFit {
            what, need, have, ..
        } if stores.len() > 1 => {
            let over = counted.first_over(have, |need| match what {
                "inodes" => need.inodes,
                _ => need.blocks.saturating_mul(block_len),
            });
            let source = over.and_then(|source| stores.get(source));
            Error::DoesNotFit {
                what,
                need,
                have,
                brought: source.map(|source| source.path().to_path_buf()),
            }
        }
        other => other,
    }
}

pub(crate) fn total(tree: &Tree) -> Amount {
    let mut total = Amount::default();
    let mut seen = vec![false; tree.nodes_len()];
    for entry in tree.entries() {
        total.entries += 1;
        let node = tree.node_of(entry);
        let seen = &mut seen[tree.node_id(entry).index()];
        if !std::mem::replace(seen, true) {
            total.bytes += data_bytes(tree, node);
        }
    }
    total
}

/// Bytes of contents without holes.
fn data_bytes(tree: &Tree, node: &Node) -> u64 {
    match tree.data(node) {
        FileData::Whole { .. } => node.size(),
        FileData::Sparse(pieces) => pieces.iter().map(|p| p.len).sum(),
    }
}

fn open_creator(device: Arc<dyn BlockDevice>) -> Result<Creator, Error> {
    Creator::open(device, &CreatorOptions::default()).map_err(at_root)
}

fn at_root(source: uext4::Error) -> Error {
    let path = path_buf(b"image");
    Error::Entry { path, source }
}

/// No inode has this number.
const NOT_MADE: Ino = Ino(0);

/// Carries out the plan.
struct Filler<'a> {
    creator: &'a mut Creator,
    listing: &'a Listing,
    placed: Option<&'a Placed>,
    counter: &'a Counter<'a>,
    /// When everything was created.
    time: Timestamp,
    keep_xattrs: bool,
    /// Inodes of the nodes, [`NOT_MADE`] until they are created.
    inos: Vec<Ino>,
    ranges: Vec<Range<u64>>,
    runs: Vec<PlacedRun>,
    /// Files whose contents come first.
    first: Vec<EntryId>,
    /// All files with contents, if some come first.
    unwritten: Vec<EntryId>,
    /// Nodes that have their contents, if some come first.
    written: Vec<bool>,
}

impl<'a> Filler<'a> {
    /// Nothing is made yet.
    fn new(
        creator: &'a mut Creator,
        listing: &'a Listing,
        counter: &'a Counter<'a>,
        first: Vec<EntryId>,
    ) -> Self {
        let nodes = listing.tree.nodes_len();
        Self {
            creator,
            listing,
            placed: None,
            counter,
            time: Timestamp::default(),
            keep_xattrs: true,
            inos: vec![NOT_MADE; nodes],
            ranges: Vec::new(),
            runs: Vec::new(),
            first,
            unwritten: Vec::new(),
            written: vec![false; nodes],
        }
    }
}

impl Filler<'_> {
    fn run(mut self) -> Result<(), Error> {
        let listing = self.listing;
        let mut contents = Contents::new(listing);
        for entry in listing.tree.entries() {
            if let Some(ino) = self.entry(entry)? {
                match self.first.is_empty() {
                    true => self.write(entry, ino, &mut contents)?,
                    false => self.unwritten.push(entry),
                }
            }
            self.counter.entry();
            self.counter.check()?;
        }
        let files = std::mem::take(&mut self.first).into_iter();
        for entry in files.chain(std::mem::take(&mut self.unwritten)) {
            let node = listing.tree.node_id(entry).index();
            // Taken, so that a file that stands in the order twice is written once.
            let ino = self.inos[node];
            if !std::mem::replace(&mut self.written[node], true) && ino != NOT_MADE {
                self.write(entry, ino, &mut contents)?;
                self.counter.check()?;
            }
        }
        Ok(())
    }

    /// Makes an entry; returns the inode of a file whose contents are still to be written.
    fn entry(&mut self, entry: EntryId) -> Result<Option<Ino>, Error> {
        let tree = &self.listing.tree;
        let node = tree.node_of(entry);
        let index = tree.node_id(entry).index();
        if entry == EntryId::ROOT {
            return self.existing(entry, Ino::ROOT).map(|()| None);
        }
        // OK to index: one of each node. A parent stands before what is in it.
        let parent = self.inos[tree.node_id(tree.parent(entry)).index()];
        let name = tree.name(entry);
        let ino = self.inos[index];
        if ino != NOT_MADE {
            let linked = self.creator.link(parent, name, ino);
            return linked.map(|()| None).map_err(|e| self.failed(entry, e));
        }
        if lost_and_found(tree) == Some(entry)
            && let Some(ino) = self
                .creator
                .lookup(parent, name)
                .map_err(|e| self.failed(entry, e))?
        {
            if node.file_type() == FileType::Directory {
                return self.existing(entry, ino).map(|()| None);
            }
            return Err(Error::Path {
                path: path_buf(name),
                why: "can only be a directory: every file system has one of this name",
            });
        }
        let attributes = self.attributes(entry);
        let kind = new_inode(tree, entry);
        let created = self.creator.create(parent, name, kind, &attributes);
        let ino = created.map_err(|e| self.failed(entry, e))?;
        self.inos[index] = ino;
        let has_contents = node.file_type() == FileType::Regular && node.size() > 0;
        Ok(has_contents.then_some(ino))
    }

    /// Gives its attributes to a directory that mkfs has made.
    fn existing(&mut self, entry: EntryId, ino: Ino) -> Result<(), Error> {
        let attributes = self.attributes(entry);
        self.inos[self.listing.tree.node_id(entry).index()] = ino;
        let set = self.creator.set_attributes(ino, &attributes);
        set.map_err(|e| self.failed(entry, e))
    }

    fn write(
        &mut self,
        entry: EntryId,
        ino: Ino,
        contents: &mut Contents<'_>,
    ) -> Result<(), Error> {
        let tree = &self.listing.tree;
        let node = tree.node_of(entry);
        if let Some(placed) = self.placed.filter(|placed| placed.holds(node)) {
            self.runs.clear();
            placed.runs(tree, node, &mut self.runs);
            self.counter.bytes(data_bytes(tree, node));
            let done = self.creator.place_file(ino, node.size(), &self.runs);
            return done.map_err(|e| self.failed(entry, e));
        }
        self.ranges.clear();
        ranges(tree.data(node), node.size(), &mut self.ranges);
        let mut reader = Reader {
            content: contents.open(entry)?,
            counter: self.counter,
        };
        let written = self
            .creator
            .write_file(ino, node.size(), &self.ranges, &mut reader);
        written.map_err(|e| match reader.content.take_error() {
            Some(reported) => reported,
            None => self.failed(entry, e),
        })
    }

    fn attributes(&self, entry: EntryId) -> uext4::bulk::Attributes {
        let tree = &self.listing.tree;
        let node = tree.node_of(entry);
        let (uid, gid) = node.owner();
        let [atime, mtime, ctime] = node.times();
        uext4::bulk::Attributes {
            mode: node.mode(),
            uid,
            gid,
            atime,
            mtime,
            ctime,
            crtime: self.time,
            xattrs: match self.keep_xattrs {
                true => tree.xattrs(node).to_vec(),
                false => Vec::new(),
            },
            flags: InodeFlags::empty(),
            projid: 0,
        }
    }

    fn failed(&self, entry: EntryId, source: uext4::Error) -> Error {
        let path = path_buf(&self.listing.tree.path(entry));
        Error::Entry { path, source }
    }
}

/// What makes a node.
pub(crate) fn new_inode(tree: &Tree, entry: EntryId) -> NewInode<'_> {
    let node = tree.node_of(entry);
    let device = node.device().unwrap_or_default();
    match node.file_type() {
        FileType::Regular => NewInode::File,
        FileType::Directory => NewInode::Directory,
        FileType::Symlink => NewInode::Symlink(tree.target(node)),
        FileType::CharDevice => NewInode::CharDevice(device),
        FileType::BlockDevice => NewInode::BlockDevice(device),
        FileType::Fifo => NewInode::Fifo,
        FileType::Socket => NewInode::Socket,
    }
}

/// Contents on their way into the image, counted.
struct Reader<'a> {
    content: Content<'a>,
    counter: &'a Counter<'a>,
}

impl FileContent for Reader<'_> {
    fn read_exact_at(&mut self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.counter.bytes(buf.len() as u64);
        self.content.read_exact_at(offset, buf)
    }
}
