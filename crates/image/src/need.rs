//! What a tree takes under a layout: counted by the same code that will pack it.

use std::collections::HashMap;
use std::ops::Range;

use uext4::bulk::{FileFootprint, Footprint, InlineSpace, OwnerIds, PlacedRun};
use uext4_mkfs::Layout;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::FileType;

use crate::error::{Error, path_buf};
use crate::place::Placed;
use crate::size::Need;
use crate::tree::{EntryId, FileData, Tree, Xattr, XattrSet};

/// Most inodes that share a block of extended attributes.
const SHARED_MAX: u64 = uext4_ondisk::xattr::XATTR_REFCOUNT_MAX as u64;

/// Counts a tree, once for each shape of layout.
pub struct Counted<'a> {
    tree: &'a Tree,
    keep_xattrs: bool,
    /// Contents that have their blocks already.
    placed: Option<&'a Placed>,
    /// The calculator that the directories were counted with, and the blocks of each in the order
    /// of the tree. Of all there is to count they take the longest, and do not depend on size.
    directories: Option<(Footprint, Vec<u32>)>,
    /// The last count, which holds for every layout that differs in size alone.
    last: Option<Need>,
    /// What each source takes of the last count, without blocks of attributes that are shared.
    by_source: Vec<Need>,
}

impl<'a> Counted<'a> {
    /// Counts a tree with its extended attributes.
    pub fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            keep_xattrs: true,
            placed: None,
            directories: None,
            last: None,
            by_source: Vec::new(),
        }
    }

    /// The first source that, with all below it, takes more than `have` of what `of` looks at in
    /// the last count; `None` if what they share makes the difference.
    pub fn first_over(&self, have: u64, of: impl Fn(&Need) -> u64) -> Option<usize> {
        let mut taken = 0u64;
        self.by_source.iter().position(|need| {
            taken = taken.saturating_add(of(need));
            taken > have
        })
    }

    /// The same without the blocks of contents that have theirs already.
    pub fn without_placed(self, placed: Option<&'a Placed>) -> Self {
        Self { placed, ..self }
    }

    /// The same without its extended attributes.
    pub fn without_xattrs(self) -> Self {
        Self {
            keep_xattrs: false,
            ..self
        }
    }

    /// What the tree takes.
    ///
    /// # Errors
    /// What cannot be at all, such as files that are too big, with the path.
    pub fn under(&mut self, layout: &Layout) -> Result<Need, Error> {
        let footprint = Footprint::new(&layout.superblock).map_err(|source| Error::Entry {
            path: path_buf(b"."),
            source,
        })?;
        let need = self.count(footprint)?;
        Ok(Need {
            // The quota files that mkfs made are laid again.
            blocks: need.blocks.saturating_sub(layout.quota_blocks()),
            slack: slack(layout),
            ..need
        })
    }

    fn count(&mut self, footprint: Footprint) -> Result<Need, Error> {
        let tree = self.tree;
        if let (Some((last, _)), Some(need)) = (&self.directories, self.last)
            && last.has_same_counts(&footprint)
        {
            return Ok(need);
        }
        self.by_source.clear();
        let known = self.directories.take();
        let known = known.filter(|(last, _)| last.has_same_directories(&footprint));
        let mut count = Count {
            tree,
            footprint,
            placed: self.placed,
            need: Need::default(),
            ranges: Vec::new(),
            runs: Vec::new(),
            sets: HashMap::new(),
            users: HashMap::new(),
            known: known.map(|(_, blocks)| blocks.into_iter()),
            directories: Vec::new(),
        };
        let mut seen = vec![false; tree.nodes_len()];
        for entry in tree.entries() {
            let seen = &mut seen[tree.node_id(entry).index()];
            if std::mem::replace(seen, true) {
                continue;
            }
            let before = count.need;
            let counted = count.node(entry, self.keep_xattrs);
            counted.map_err(|source| Error::Entry {
                path: path_buf(&tree.path(entry)),
                source,
            })?;
            let source = usize::from(tree.node_of(entry).source());
            if self.by_source.len() <= source {
                self.by_source.resize(source + 1, Need::default());
            }
            let taken = &mut self.by_source[source];
            taken.blocks += count.need.blocks - before.blocks;
            taken.inodes += count.need.inodes - before.inodes;
        }
        count.shared_blocks();
        let mut need = count.need;
        need.blocks = need
            .blocks
            .saturating_add(quota_blocks(tree, &count.footprint)?);
        self.directories = Some((count.footprint, count.directories));
        // The root has an inode already, and gives back the block it was made with.
        need.inodes -= 1;
        need.blocks = need.blocks.saturating_sub(1);
        if lost_and_found(tree).is_some() {
            need.inodes -= 1;
        }
        self.last = Some(need);
        Ok(need)
    }
}

/// Blocks of the quota files; 0 without the feature.
fn quota_blocks(tree: &Tree, footprint: &Footprint) -> Result<u64, Error> {
    if !footprint.has_quotas() {
        return Ok(0);
    }
    let files = footprint.quota_files(&owner_ids(tree));
    let files = files.map_err(|source| Error::Entry {
        path: path_buf(b"."),
        source,
    })?;
    Ok(files.data.saturating_add(files.tree))
}

/// Who owns what the image will have.
fn owner_ids(tree: &Tree) -> OwnerIds {
    let mut ids = OwnerIds::default();
    let mut last = None;
    for entry in tree.entries() {
        let (uid, gid) = tree.node_of(entry).owner();
        if last.replace((uid, gid)) != Some((uid, gid)) {
            ids.users.insert(uid);
            ids.groups.insert(gid);
        }
    }
    if lost_and_found(tree).is_none() {
        ids.users.insert(0);
        ids.groups.insert(0);
    }
    ids.projects.insert(0);
    ids
}

/// Blocks that extent trees may take beyond what is counted. The count has each file broken once
/// more than its size makes necessary. Blocks are given out in one stream, so that each run of
/// free blocks ends but once, and the file it ends in may have been broken before.
fn slack(layout: &Layout) -> u64 {
    if !layout
        .geometry
        .features
        .incompat
        .contains(Incompat::EXTENTS)
    {
        return 0;
    }
    let (mut runs, mut at) = (0, u64::from(layout.geometry.first_data_block));
    for used in layout.used_runs() {
        runs += u64::from(used.start > at);
        at = used.start + used.len;
    }
    runs + u64::from(at < layout.geometry.blocks_count)
}

/// The entry for a directory that mkfs makes.
pub fn lost_and_found(tree: &Tree) -> Option<EntryId> {
    tree.child(EntryId::ROOT, b"lost+found")
}

struct Count<'a> {
    tree: &'a Tree,
    footprint: Footprint,
    placed: Option<&'a Placed>,
    need: Need,
    ranges: Vec<Range<u64>>,
    runs: Vec<PlacedRun>,
    /// Of sets seen before, by what they are and on what: the block they share.
    sets: HashMap<(XattrSet, FileType), Option<u64>>,
    /// Users of each block of attributes.
    users: HashMap<u64, u64>,
    /// Blocks of the directories to come, if they were counted before.
    known: Option<std::vec::IntoIter<u32>>,
    /// Blocks of the directories until now.
    directories: Vec<u32>,
}

impl Count<'_> {
    fn node(&mut self, entry: EntryId, keep_xattrs: bool) -> uext4::Result<()> {
        let tree = self.tree;
        let node = tree.node_of(entry);
        self.need.inodes += 1;
        let xattrs = match keep_xattrs {
            true => tree.xattrs(node),
            false => &[],
        };
        let FileFootprint { data, tree: meta } = match node.file_type() {
            FileType::Regular if self.placed.is_some_and(|placed| placed.holds(node)) => {
                self.runs.clear();
                if let Some(placed) = self.placed {
                    placed.runs(tree, node, &mut self.runs);
                }
                FileFootprint {
                    data: 0,
                    tree: self.footprint.placed(node.size(), &self.runs)?,
                }
            }
            FileType::Regular => {
                self.ranges.clear();
                ranges(tree.data(node), node.size(), &mut self.ranges);
                let inline = self.footprint.inline(FileType::Regular, xattrs)?;
                self.footprint.file(node.size(), &self.ranges, inline)?
            }
            FileType::Directory => {
                let blocks = self.directory_blocks(entry, xattrs)?;
                self.directories.push(blocks);
                self.footprint.directory(blocks)?
            }
            FileType::Symlink => FileFootprint {
                data: self.footprint.symlink(tree.target(node).len()),
                tree: 0,
            },
            _ => FileFootprint::default(),
        };
        self.need.blocks = self.need.blocks.saturating_add(data).saturating_add(meta);
        match xattrs.is_empty() {
            true => Ok(()),
            false => self.xattrs(node.xattr_set(), node.file_type(), xattrs),
        }
    }

    fn directory_blocks(&mut self, entry: EntryId, xattrs: &[Xattr]) -> uext4::Result<u32> {
        if let Some(blocks) = self.known.as_mut().and_then(Iterator::next) {
            return Ok(blocks);
        }
        let tree = self.tree;
        let mut names: Vec<&[u8]> = tree.children(entry).map(|e| tree.name(e)).collect();
        let lost_and_found = lost_and_found(tree);
        if entry == EntryId::ROOT && lost_and_found.is_none() {
            names.push(b"lost+found");
        }
        // Directories that mkfs makes have blocks already.
        let is_there = entry == EntryId::ROOT || lost_and_found == Some(entry);
        let inline = match is_there {
            true => InlineSpace::default(),
            false => self.footprint.inline(FileType::Directory, xattrs)?,
        };
        self.footprint.directory_blocks(&names, inline)
    }

    fn xattrs(
        &mut self,
        set: XattrSet,
        file_type: FileType,
        xattrs: &[Xattr],
    ) -> uext4::Result<()> {
        let known = self.sets.get(&(set, file_type)).copied();
        let block = match known {
            Some(block) => block,
            None => {
                let footprint = self.footprint.xattrs(file_type, xattrs)?;
                // Equal sets share the inodes of their values too.
                self.need.inodes += u64::from(footprint.inodes);
                self.need.blocks += footprint.value_blocks;
                self.sets.insert((set, file_type), footprint.block);
                footprint.block
            }
        };
        if let Some(block) = block {
            *self.users.entry(block).or_default() += 1;
        }
        Ok(())
    }

    fn shared_blocks(&mut self) {
        let blocks = self.users.values().map(|users| users.div_ceil(SHARED_MAX));
        self.need.blocks += blocks.sum::<u64>();
    }
}

/// The ranges of a file that hold data.
pub fn ranges(data: FileData<'_>, size: u64, ranges: &mut Vec<Range<u64>>) {
    match data {
        FileData::Whole { .. } if size == 0 => {}
        FileData::Whole { .. } => ranges.push(0..size),
        FileData::Sparse(pieces) => {
            ranges.extend(pieces.iter().map(|p| p.offset..p.offset + p.len));
        }
    }
}
