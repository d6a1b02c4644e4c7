//! What a tree takes under a layout: counted by the same code that will pack it.

use std::collections::HashMap;
use std::ops::Range;

use uext4::bulk::{FileFootprint, Footprint, PlacedRun};
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
    last: Option<(Shape, Need)>,
}

/// Everything of a layout that the count depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    block_len: u32,
    inode_size: u16,
    blocks_per_group: u32,
    features: uext4_ondisk::features::Features,
}

impl<'a> Counted<'a> {
    /// Counts a tree with its extended attributes.
    pub fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            keep_xattrs: true,
            placed: None,
            last: None,
        }
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
        let geometry = &layout.geometry;
        let shape = Shape {
            block_len: geometry.block_size.bytes(),
            inode_size: geometry.inode_size,
            blocks_per_group: geometry.blocks_per_group.get(),
            features: geometry.features,
        };
        let need = match self.last {
            Some((last, need)) if last == shape => need,
            _ => self.count(layout)?,
        };
        self.last = Some((shape, need));
        Ok(Need {
            slack: slack(layout),
            ..need
        })
    }

    fn count(&self, layout: &Layout) -> Result<Need, Error> {
        let tree = self.tree;
        let footprint = Footprint::new(&layout.superblock).map_err(|source| Error::Entry {
            path: path_buf(b"."),
            source,
        })?;
        let mut count = Count {
            tree,
            footprint,
            placed: self.placed,
            need: Need::default(),
            ranges: Vec::new(),
            runs: Vec::new(),
            sets: HashMap::new(),
            users: HashMap::new(),
        };
        let mut seen = vec![false; tree.nodes_len()];
        for entry in tree.entries() {
            let seen = &mut seen[tree.node_id(entry).index()];
            if std::mem::replace(seen, true) {
                continue;
            }
            let counted = count.node(entry, self.keep_xattrs);
            counted.map_err(|source| Error::Entry {
                path: path_buf(&tree.path(entry)),
                source,
            })?;
        }
        count.shared_blocks();
        let mut need = count.need;
        // The root has an inode already, and gives back the block it was made with.
        need.inodes -= 1;
        need.blocks = need.blocks.saturating_sub(1);
        if lost_and_found(tree).is_some() {
            need.inodes -= 1;
        }
        Ok(need)
    }
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
}

impl Count<'_> {
    fn node(&mut self, entry: EntryId, keep_xattrs: bool) -> uext4::Result<()> {
        let tree = self.tree;
        let node = tree.node_of(entry);
        self.need.inodes += 1;
        let FileFootprint { data, tree: meta } = match node.file_type() {
            FileType::Regular if self.placed.is_some_and(|placed| placed.holds(node)) => {
                self.runs.clear();
                if let Some(placed) = self.placed {
                    placed.runs(tree, node, &mut self.runs);
                }
                FileFootprint {
                    data: 0,
                    tree: self.footprint.placed(&self.runs)?,
                }
            }
            FileType::Regular => {
                self.ranges.clear();
                ranges(tree.data(node), node.size(), &mut self.ranges);
                self.footprint.file(node.size(), &self.ranges)?
            }
            FileType::Directory => {
                let mut names: Vec<&[u8]> = tree.children(entry).map(|e| tree.name(e)).collect();
                if entry == EntryId::ROOT && lost_and_found(tree).is_none() {
                    names.push(b"lost+found");
                }
                self.footprint.directory(&names)?
            }
            FileType::Symlink => FileFootprint {
                data: self.footprint.symlink(tree.target(node).len()),
                tree: 0,
            },
            _ => FileFootprint::default(),
        };
        self.need.blocks = self.need.blocks.saturating_add(data).saturating_add(meta);
        let xattrs = tree.xattrs(node);
        match xattrs.is_empty() || !keep_xattrs {
            true => Ok(()),
            false => self.xattrs(node.xattr_set(), node.file_type(), xattrs),
        }
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
