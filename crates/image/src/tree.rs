//! The plan of an image: every entry with its attributes, and where its contents are to be read.
//!
//! Entries are stored in the order they came in and never move, in memory either: a parent always
//! stands before its children, so carrying the plan out is one walk over a list. An entry names a
//! node; hard links are entries that name the same one. Costs about 36 bytes an entry and 72 a
//! node, in addition to the names; putting one in or finding one is one hash lookup a path
//! component.
//!
//! Inserting follows tar's rules: missing directories appear by themselves, a directory that
//! comes again gets new attributes, anything else that comes again replaces what was there, and a
//! path that leads through a symbolic link follows it – inside the tree, never out of it.
//!
//! A tree may be made of several sources, one after the other: [`Tree::begin_source`]. Each entry
//! has the number of the source that put it in last, so that a source can hide what the ones below
//! it have brought ([`Tree::hide`]), and each file has the number of the store its contents are in.
//! Entries that were hidden keep their place, and their path, but are in no listing any more.

mod chunked;
mod insert;
mod layer;
mod node;
mod split;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use uext4_ondisk::inode::Timestamp;

use crate::xattrs::XattrSets;
pub use crate::xattrs::{Xattr, XattrSet};
use chunked::Chunked;
pub use node::{Attributes, DataRange, FileData, NewNode, Node};
use node::{Kind, PackedTime};
pub use split::LINKS_MAX;

/// Most symbolic links followed on the way to one entry.
const SYMLINKS_MAX: u32 = 40;
/// Longest target of a symbolic link, in bytes; small blocks allow less.
pub const SYMLINK_MAX: usize = 4095;
/// Most pieces of sparse files in one tree: what keeps its memory bounded.
pub const RANGES_MAX: usize = 2 << 20;
/// Most directories that no entry of the source stands for, only paths of others lead through: a
/// short path in a compressed archive can stand for thousands of them.
pub const IMPLIED_MAX: u32 = 1 << 20;
/// "No entry", in the chains of children.
const NONE: u32 = u32::MAX;
/// In the place of a source's number: the entry is in the tree no longer.
const HIDDEN: u16 = u16::MAX;
/// Most sources of one tree, the first included.
pub const SOURCES_MAX: u16 = 10_000;

/// Number of an entry of a [`Tree`], in the order they came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(u32);

impl EntryId {
    /// The root directory, which every tree has and which has no name.
    pub const ROOT: EntryId = EntryId(0);

    /// From its index, which is that of an entry.
    pub(crate) fn from_index(index: u32) -> Self {
        Self(index)
    }

    /// As an index, for tables next to the tree.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a node of a [`Tree`]: what entries share when they are hard links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// As an index, for tables next to the tree.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
#[derive(Clone, Copy, Debug)]
struct Entry {
    parent: u32,
    node: u32,
    /// The next child of the same parent.
    next: u32,
    name_at: u32,
    /// Of its parent and name, so that the index grows without looking at names.
    hash: NameHash,
    name_len: u8,
    /// The source that put it in last, or [`HIDDEN`].
    source: u16,
}

const _: () = assert!(size_of::<Entry>() <= 24);

/// A hash of a parent and a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NameHash(u32);

impl NameHash {
    /// For the index, which looks at the highest and the lowest bits.
    fn spread(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

/// The plan. See the head of this file.
#[derive(Debug)]
pub struct Tree {
    entries: Chunked<Entry>,
    nodes: Chunked<Node>,
    /// Names and targets, end to end.
    names: Vec<u8>,
    ranges: Vec<DataRange>,
    xattrs: XattrSets,
    /// All entries but the root, by parent and name.
    index: HashTable<u32>,
    /// Random, so that no archive can have names that meet in the index.
    secrets: RapidSecrets,
    /// Directories made because a path leads through them.
    implied: u32,
    /// What [`Tree::clamp_times`] was last asked for.
    time_max: PackedTime,
    /// Entries that are not hidden.
    live: usize,
    /// The source that is being put in.
    source: u16,
    layer: layer::State,
    /// Of nodes that a later source has given another name: an entry of their own source.
    origins: HashMap<u32, EntryId>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// A tree of nothing but a root directory, owned by root, mode 0755.
    pub fn new() -> Self {
        let mut root = Self::implied_directory();
        root.links = 1;
        let entry = Entry {
            parent: 0,
            node: 0,
            next: NONE,
            name_at: 0,
            hash: NameHash::default(),
            name_len: 0,
            source: 0,
        };
        Self {
            entries: Chunked::of(entry),
            nodes: Chunked::of(root),
            names: Vec::new(),
            ranges: Vec::new(),
            xattrs: XattrSets::default(),
            index: HashTable::new(),
            secrets: RapidSecrets::seed(RandomState::new().hash_one(())),
            implied: 0,
            time_max: PackedTime(u64::MAX),
            live: 1,
            source: 0,
            layer: layer::State::default(),
            origins: HashMap::new(),
        }
    }

    /// Number of entries, the root included.
    pub fn len(&self) -> usize {
        self.live
    }

    /// True if there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.live == 1
    }

    /// One more than the largest [`EntryId::index`], for tables next to the tree.
    pub fn entries_len(&self) -> usize {
        self.entries.len()
    }

    /// One more than the largest [`NodeId::index`].
    pub fn nodes_len(&self) -> usize {
        self.nodes.len()
    }

    /// The entry `name` of the directory `parent`.
    pub fn child(&self, parent: EntryId, name: &[u8]) -> Option<EntryId> {
        self.hashed_child(parent, name, self.hash(parent, name))
    }

    fn hash(&self, parent: EntryId, name: &[u8]) -> NameHash {
        let parent = u64::from(parent.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = rapidhash_v3_seeded(name, &self.secrets) ^ parent;
        NameHash((hash ^ hash >> 32) as u32)
    }

    fn hashed_child(&self, parent: EntryId, name: &[u8], hash: NameHash) -> Option<EntryId> {
        let same = |&i: &u32| {
            let e = &self.entries[i as usize];
            e.hash == hash && e.parent == parent.0 && name_in(&self.names, e) == name
        };
        self.index.find(hash.spread(), same).map(|&i| EntryId(i))
    }

    /// All entries in the order they came in, the root first, parents before children.
    pub fn entries(&self) -> impl Iterator<Item = EntryId> {
        let live = |&(_, entry): &(u32, &Entry)| entry.source != HIDDEN;
        (0..)
            .zip(self.entries.iter())
            .filter(live)
            .map(|(i, _)| EntryId(i))
    }

    /// True if the entry is in the tree no longer.
    pub fn is_hidden(&self, entry: EntryId) -> bool {
        self.entries[entry.index()].source == HIDDEN
    }

    /// The entries of a directory in the order they came in; none for what is not a directory.
    pub fn children(&self, dir: EntryId) -> impl Iterator<Item = EntryId> {
        let mut next = match self.node_of(dir).kind {
            Kind::Directory { first, .. } => first,
            _ => NONE,
        };
        let all = std::iter::from_fn(move || {
            let id = (next != NONE).then_some(EntryId(next))?;
            next = self.entries[id.index()].next;
            Some(id)
        });
        all.filter(|&id| !self.is_hidden(id))
    }

    /// The directory an entry is in; the root is in itself.
    pub fn parent(&self, entry: EntryId) -> EntryId {
        EntryId(self.entries[entry.index()].parent)
    }

    /// The name of an entry; empty for the root.
    pub fn name(&self, entry: EntryId) -> &[u8] {
        name_in(&self.names, &self.entries[entry.index()])
    }

    /// Which node an entry names.
    pub fn node_id(&self, entry: EntryId) -> NodeId {
        NodeId(self.entries[entry.index()].node)
    }

    /// A node by its number.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    /// The node an entry names.
    pub fn node_of(&self, entry: EntryId) -> &Node {
        self.node(self.node_id(entry))
    }

    /// The path of an entry, relative to the root; "." for the root.
    pub fn path(&self, entry: EntryId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = entry;
        while at != EntryId::ROOT {
            names.push(self.name(at));
            at = self.parent(at);
        }
        if names.is_empty() {
            names.push(b".");
        }
        names.reverse();
        names.join(&b'/')
    }

    fn path_below(&self, parent: EntryId, name: &[u8]) -> Vec<u8> {
        match parent {
            EntryId::ROOT => name.to_vec(),
            _ => [&self.path(parent), &b"/"[..], name].concat(),
        }
    }

    /// The target of a symbolic link; empty for all else.
    pub fn target(&self, node: &Node) -> &[u8] {
        match node.kind {
            Kind::Symlink { at, len } => &self.names[at as usize..][..usize::from(len)],
            _ => &[],
        }
    }

    /// The extended attributes of a node, sorted by name.
    pub fn xattrs(&self, node: &Node) -> &[Xattr] {
        self.xattrs.get(node.xattrs)
    }

    /// Number of different sets of extended attributes.
    pub fn xattr_sets_len(&self) -> usize {
        self.xattrs.len()
    }

    /// Where the contents of a file are; nothing for all else.
    pub fn data(&self, node: &Node) -> FileData<'_> {
        match node.kind {
            Kind::Whole { at, .. } => FileData::Whole { at },
            Kind::Sparse { first, count, .. } => {
                FileData::Sparse(&self.ranges[first as usize..][..count as usize])
            }
            _ => FileData::Sparse(&[]),
        }
    }

    /// Pieces of sparse files that the tree has room for, used or not any more; at most
    /// [`RANGES_MAX`].
    pub fn ranges_len(&self) -> usize {
        self.ranges.len()
    }

    /// Says where the contents of a file are from now on: each piece, or all of it, from the next
    /// of these offsets on.
    pub fn set_place(&mut self, node: NodeId, place: &[u64]) {
        match &mut self.nodes[node.index()].kind {
            Kind::Whole { at, .. } => *at = place.first().copied().unwrap_or(*at),
            Kind::Sparse { first, count, .. } => {
                let pieces = &mut self.ranges[*first as usize..][..*count as usize];
                for (piece, &at) in pieces.iter_mut().zip(place) {
                    piece.at = at;
                }
            }
            _ => {}
        }
    }

    /// The newest `mtime` of what the source itself has; `None` if it has nothing.
    pub fn newest_mtime(&self) -> Option<Timestamp> {
        let live = self.nodes.iter().filter(|n| n.links > 0 && !n.implied);
        live.map(|n| n.times[1]).max().map(PackedTime::get)
    }

    /// The entry has no time of its own: it gets the one of [`Tree::set_implied_times`].
    pub fn set_undated(&mut self, entry: EntryId) {
        let node = self.entries[entry.index()].node;
        self.nodes[node as usize].implied = true;
    }

    /// Gives the entries that no source dates this time.
    pub fn set_implied_times(&mut self, time: Timestamp) {
        for node in self.nodes.iter_mut().filter(|n| n.implied) {
            node.times = [PackedTime::new(time); 3];
        }
    }

    /// Sets the times that a copy of a source would not share to the time of modification: those
    /// of the last change and of the last access.
    pub fn forget_own_times(&mut self, of: impl Fn(u16) -> bool) {
        for node in self.nodes.iter_mut().filter(|node| of(node.source)) {
            let [_, mtime, _] = node.times;
            node.times = [mtime; 3];
        }
    }

    /// Sets the times of the last change to those of modification.
    pub fn forget_change_times(&mut self, of: impl Fn(u16) -> bool) {
        for node in self.nodes.iter_mut().filter(|node| of(node.source)) {
            let [atime, mtime, _] = node.times;
            node.times = [atime, mtime, mtime];
        }
    }

    /// Makes no time later than `time`.
    pub fn clamp_times(&mut self, time: Timestamp) {
        self.time_max = PackedTime::new(time);
        for node in self.nodes.iter_mut() {
            node.times = node.times.map(|t| t.min(self.time_max));
        }
    }

    /// True if a file whose last change was at `mtime` is not what was put in as `node`.
    pub(crate) fn was_modified(&self, node: &Node, mtime: Timestamp) -> bool {
        PackedTime::new(mtime).min(self.time_max) != node.times[1]
    }
}

fn name_in<'a>(names: &'a [u8], entry: &Entry) -> &'a [u8] {
    &names[entry.name_at as usize..][..usize::from(entry.name_len)]
}
