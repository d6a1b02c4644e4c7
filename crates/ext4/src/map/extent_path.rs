//! The way from the root of an extent tree to one leaf, and changes of that leaf that may split,
//! grow and empty the nodes along it.
//!
//! Nodes stay full where a file grows: what is added at the end of a full node goes into a new one
//! alone, and the same at its front; elsewhere a node is halved. Nodes that become empty are freed;
//! neighbours are not joined. The key of a child is always its first entry's logical block.

use std::ops::Range;

use uext4_buffer_cache::Buffer;
use uext4_ondisk::extent::{
    EXT4_MAX_EXTENT_DEPTH, Extent, ExtentNode, NodeEntry, RawExtent, empty_extent_root, entries,
    entries_mut, entry_lblk, index_entry, leaf_entry, max_entries, put_entries, set_entry_lblk,
    splice_entries,
};
use uext4_ondisk::{Damage, Lblk, Pblk};

use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::owner::{Kind, Owner};
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::map::extents::{bread_node, check_within, out_of_order};
use crate::map::file_blocks::{credits_anywhere, free_map_block, take_map_blocks};

/// Fewest entries that a node must have room for to be split; the root's room.
const ROOM_MIN: usize = 4;
/// Most entries put into a leaf at once.
pub(crate) const NEW_MAX: usize = 6;

/// One node of the way.
#[derive(Debug)]
struct Level {
    /// None for the root, which lies in the inode.
    buffer: Option<Buffer>,
    /// Entries it has.
    count: usize,
    /// Entries it has room for.
    max: usize,
    /// Which of them the way goes on to; 0 for the leaf.
    index: usize,
}

/// A way to a leaf. Good until the tree is changed.
#[derive(Debug)]
pub(crate) struct Path {
    /// The root first, the leaf last; never empty.
    levels: Vec<Level>,
    /// First logical block that the leaf may get.
    from: u64,
    /// First one past what it may get.
    until: u64,
}

/// Most credits that changing one leaf needs, but for the data it leads to: on each level the
/// node and one new or freed next to it.
pub(crate) fn credits_of_change(sbi: &Sbi, inode: &Inode) -> u32 {
    let depth = match ExtentNode::of_verified(&inode.i_block) {
        Some(ExtentNode::Index { depth, .. }) => u32::from(depth.min(EXT4_MAX_EXTENT_DEPTH)),
        _ => 0,
    };
    2 * (depth + 1) + credits_anywhere(sbi, depth + 1)
}

fn with_node<R>(inode: &Inode, buffer: Option<&Buffer>, f: impl FnOnce(&[u8]) -> R) -> R {
    match buffer {
        None => f(&inode.i_block),
        Some(buffer) => f(&buffer.data()),
    }
}

fn view(node: &[u8]) -> Result<ExtentNode<'_>> {
    let view = ExtentNode::of_verified(node);
    Ok(view.ok_or_else(|| Damage::truncated("extent node", 0, node.len()))?)
}

/// Entries that a validated node has room for, if these are enough to change it.
fn room(node: &[u8], at: Option<Pblk>) -> Result<usize> {
    let header = uext4_ondisk::extent::header(node)
        .ok_or_else(|| Damage::truncated("extent node", 0, node.len()))?;
    let max = usize::from(header.eh_max.get());
    if max >= ROOM_MIN {
        return Ok(max);
    }
    Err(Error::Corrupt(Damage::ExtentHeader {
        block: at,
        why: "too little room",
        magic: header.eh_magic.get(),
        entries: header.eh_entries.get(),
        max: header.eh_max.get(),
        depth: header.eh_depth.get(),
    }))
}

/// What one node of the way says about the next.
enum Step {
    Leaf,
    Child { block: Pblk, depth: u16 },
}

/// What is known of the part of the file below a node.
#[derive(Clone, Copy)]
struct Bounds {
    /// What the parent says that it begins with.
    key: u32,
    from: u64,
    until: u64,
}

/// Finds the entry to follow in a node.
fn step(
    node: &[u8],
    at: Option<Pblk>,
    lblk: Lblk,
    bounds: &mut Bounds,
) -> Result<(usize, usize, Step)> {
    match view(node)? {
        ExtentNode::Leaf(leaf) => {
            check_within(leaf, at, bounds.key, bounds.until)?;
            Ok((leaf.len(), 0, Step::Leaf))
        }
        ExtentNode::Index { depth, entries } => {
            let after = entries.partition_point(|e| e.lblk() <= lblk);
            // What lies before the first child may be added to it.
            let index = after.saturating_sub(1);
            let Some(entry) = entries.get(index) else {
                return Err(out_of_order(at, 0, lblk));
            };
            if entry.lblk().0 < bounds.key {
                return Err(out_of_order(at, index, entry.lblk()));
            }
            if let Some(next) = entries.get(index + 1) {
                bounds.until = bounds.until.min(next.lblk().0.into());
            }
            bounds.key = entry.lblk().0;
            if after > 0 {
                bounds.from = bounds.key.into();
            }
            let (block, depth) = (entry.leaf(), depth.saturating_sub(1));
            Ok((entries.len(), index, Step::Child { block, depth }))
        }
    }
}

impl Path {
    /// The way to the leaf that has `lblk`, or would get it.
    pub(crate) fn find(sbi: &Sbi, inode: &Inode, lblk: Lblk) -> Result<Self> {
        ExtentNode::parse(&inode.i_block, None, None)?;
        let mut levels = Vec::with_capacity(usize::from(EXT4_MAX_EXTENT_DEPTH) + 2);
        let mut bounds = Bounds {
            key: 0,
            from: 0,
            until: 1 << 32,
        };
        let mut buffer: Option<Buffer> = None;
        loop {
            let at = buffer.as_ref().map(Buffer::block);
            let (max, (count, index, step)) = with_node(inode, buffer.as_ref(), |node| {
                Ok::<_, Error>((room(node, at)?, step(node, at, lblk, &mut bounds)?))
            })?;
            levels.push(Level {
                buffer,
                count,
                max,
                index,
            });
            match step {
                Step::Leaf => {
                    let Bounds { from, until, .. } = bounds;
                    return Ok(Self {
                        levels,
                        from,
                        until,
                    });
                }
                Step::Child { block, depth } => {
                    buffer = Some(bread_node(sbi, inode, block, depth)?);
                }
            }
        }
    }

    /// First logical block that the leaf may get.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// First one past what it may get.
    pub(crate) fn until(&self) -> u64 {
        self.until
    }

    /// Whether the leaf is the root itself.
    pub(crate) fn is_root(&self) -> bool {
        self.levels.len() == 1
    }

    /// Looks at the leaf's extents.
    pub(crate) fn leaf<R>(&self, inode: &Inode, f: impl FnOnce(&[RawExtent]) -> R) -> Result<R> {
        let buffer = self.levels.last().and_then(|leaf| leaf.buffer.as_ref());
        with_node(inode, buffer, |node| match view(node)? {
            ExtentNode::Leaf(extents) => Ok(f(extents)),
            // Cannot be: `find` ends at a leaf.
            ExtentNode::Index { .. } => Ok(f(&[])),
        })
    }

    /// Puts `new` (at most [`NEW_MAX`], in order, within what the leaf may get) in the place of
    /// the extents with the indices `replaced`. New nodes are taken near `goal`. The way is not
    /// good any more.
    ///
    /// Fails with [`Error::NoSpace`] and [`Error::FileTooBig`] if nothing was changed; damage,
    /// device errors.
    pub(crate) fn replace(
        mut self,
        handle: &Handle<'_>,
        inode: &mut Inode,
        replaced: Range<usize>,
        new: &[Extent],
        goal: Pblk,
    ) -> Result<()> {
        let needed = self.new_nodes(new.len().saturating_sub(replaced.len()))?;
        let spare = take_map_blocks(handle, inode, goal, needed)?;
        let mut raw = [NodeEntry::default(); NEW_MAX];
        for (to, extent) in raw.iter_mut().zip(new) {
            *to = leaf_entry(*extent);
        }
        let raw = raw.get(..new.len()).unwrap_or(&raw);
        self.splice(handle, inode, replaced, raw, spare)
    }

    /// Moves the extents at the indices `moved` to logical blocks `by` further. Their order
    /// must stay as it is, and no block may be out of range.
    pub(crate) fn shift(
        &self,
        handle: &Handle<'_>,
        inode: &mut Inode,
        moved: Range<usize>,
        by: i64,
    ) {
        let leaf = self.levels.len() - 1;
        let first = moved.start;
        self.change(handle, inode, leaf, |node, entries_count| {
            let entries = entries_mut(node, entries_count).iter_mut();
            for entry in entries.skip(first).take(moved.len()) {
                let lblk = i64::from(entry_lblk(entry).0).saturating_add(by);
                // OK to truncate: who calls has made sure of the range.
                set_entry_lblk(entry, Lblk(lblk as u32));
            }
        });
        if first == 0 {
            self.set_keys(handle, inode, leaf);
        }
    }

    /// Nodes that must be made when `more` extents are added to the leaf.
    fn new_nodes(&self, more: usize) -> Result<usize> {
        let mut more = more;
        let mut nodes = 0;
        for level in self.levels.iter().rev() {
            if level.count + more <= level.max {
                return Ok(nodes);
            }
            (nodes, more) = (nodes + 1, 1);
        }
        if self.levels.len() > usize::from(EXT4_MAX_EXTENT_DEPTH) {
            return Err(Error::FileTooBig);
        }
        Ok(nodes)
    }

    fn depth(&self, level: usize) -> u16 {
        // OK to truncate: there are at most six levels.
        (self.levels.len() - 1 - level) as u16
    }

    fn owner(&self, inode: &Inode, level: usize) -> Owner {
        Owner::new(Kind::Extent, self.depth(level), inode.ino, inode.generation)
    }

    /// Changes a node; `f` is also informed of how many entries it has.
    fn change<R>(
        &self,
        handle: &Handle<'_>,
        inode: &mut Inode,
        level: usize,
        f: impl FnOnce(&mut [u8], usize) -> R,
    ) -> R {
        let node = &self.levels[level];
        match &node.buffer {
            None => f(&mut inode.i_block, node.count),
            Some(buffer) => {
                let owner = self.owner(inode, level);
                handle.change(buffer, owner, |bytes| f(bytes, node.count))
            }
        }
    }

    /// Replaces entries of the leaf, and then of its ancestors as far as that has consequences.
    fn splice(
        &mut self,
        handle: &Handle<'_>,
        inode: &mut Inode,
        mut replaced: Range<usize>,
        new: &[NodeEntry],
        mut spare: Vec<Pblk>,
    ) -> Result<()> {
        let mut level = self.levels.len() - 1;
        let mut pointer = [NodeEntry::default()];
        let mut new = new;
        loop {
            let node = &self.levels[level];
            let after = (node.count + new.len()).saturating_sub(replaced.len());
            if after > node.max {
                let block = spare.pop().ok_or(Error::FileTooBig)?;
                if level == 0 {
                    self.grow(handle, inode, block);
                    level = 1;
                    continue;
                }
                let key = self.split(handle, inode, level, replaced, new, block);
                pointer[0] = index_entry(key, block);
                (level, new) = (level - 1, &pointer);
                let behind = self.levels[level].index + 1;
                replaced = behind..behind;
                continue;
            }
            if after == 0 && level > 0 {
                if let Some(buffer) = &node.buffer {
                    free_map_block(handle, inode, buffer.block())?;
                }
                (level, new) = (level - 1, &[]);
                let index = self.levels[level].index;
                replaced = index..index + 1;
                continue;
            }
            if after == 0 {
                inode.i_block = empty_extent_root();
                return Ok(());
            }
            let is_first = replaced.start == 0;
            self.change(handle, inode, level, |node, count| {
                splice_entries(node, count, replaced, new);
            });
            self.levels[level].count = after;
            if is_first {
                self.set_keys(handle, inode, level);
            }
            return Ok(());
        }
    }

    /// Makes the key of a node what its first entry says, and those of its ancestors.
    fn set_keys(&self, handle: &Handle<'_>, inode: &mut Inode, level: usize) {
        let first = |inode: &Inode, level: usize, index: usize| {
            let buffer = self.levels[level].buffer.as_ref();
            with_node(inode, buffer, |node| {
                entries(node, index + 1).get(index).map(entry_lblk)
            })
        };
        let Some(key) = first(inode, level, 0) else {
            return;
        };
        for parent in (0..level).rev() {
            let index = self.levels[parent].index;
            if first(inode, parent, index) == Some(key) {
                return;
            }
            self.change(handle, inode, parent, |node, count| {
                if let Some(entry) = entries_mut(node, count).get_mut(index) {
                    set_entry_lblk(entry, key);
                }
            });
            if index > 0 {
                return;
            }
        }
    }

    /// Writes a new node for `level` of the way to `block`.
    fn put_new(
        &self,
        handle: &Handle<'_>,
        inode: &Inode,
        level: usize,
        block: Pblk,
        entries: &[NodeEntry],
    ) -> Buffer {
        let max = max_entries(handle.sbi().block_len());
        let buffer = handle.fresh(block);
        handle.change(&buffer, self.owner(inode, level), |bytes| {
            put_entries(bytes, max, self.depth(level), entries);
        });
        buffer
    }

    /// Moves what the root has into `block`, below a root that is one deeper.
    fn grow(&mut self, handle: &Handle<'_>, inode: &mut Inode, block: Pblk) {
        let (count, max) = (self.levels[0].count, self.levels[0].max);
        let root = inode.i_block;
        let all = entries(&root, count);
        let buffer = self.put_new(handle, inode, 0, block, all);
        let depth = self.depth(0) + 1;
        let key = all.first().map_or(Lblk(0), entry_lblk);
        // OK to truncate: it came from sixteen bits.
        put_entries(
            &mut inode.i_block,
            max as u16,
            depth,
            &[index_entry(key, block)],
        );
        let index = std::mem::take(&mut self.levels[0].index);
        self.levels[0].count = 1;
        let below = Level {
            buffer: Some(buffer),
            count,
            max: max_entries(handle.sbi().block_len()).into(),
            index,
        };
        self.levels.insert(1, below);
    }

    /// Replaces entries of a node that has no room for that: what comes last goes into `block`.
    /// Gives the key of that.
    fn split(
        &self,
        handle: &Handle<'_>,
        inode: &mut Inode,
        level: usize,
        replaced: Range<usize>,
        new: &[NodeEntry],
        block: Pblk,
    ) -> Lblk {
        let node = &self.levels[level];
        let mut all = with_node(inode, node.buffer.as_ref(), |bytes| {
            entries(bytes, node.count).to_vec()
        });
        let is_end = replaced.end >= all.len();
        let end = replaced.end.min(all.len());
        all.splice(replaced.start.min(end)..end, new.iter().copied());
        let half = if is_end {
            node.max
        } else if replaced.start == 0 {
            all.len().saturating_sub(node.max).max(1)
        } else {
            all.len() / 2
        };
        let (left, right) = all.split_at(half.min(all.len()));
        let (max, depth) = (node.max as u16, self.depth(level));
        self.change(handle, inode, level, |bytes, _| {
            put_entries(bytes, max, depth, left);
        });
        self.put_new(handle, inode, level, block, right);
        if replaced.start == 0 {
            self.set_keys(handle, inode, level);
        }
        right.first().map_or(Lblk(0), entry_lblk)
    }
}

/// Takes levels out of the tree as long as the root has one child whose entries it has room for.
pub(crate) fn shrink(handle: &Handle<'_>, inode: &mut Inode) -> Result<()> {
    loop {
        let (child, depth) = match view(&inode.i_block)? {
            ExtentNode::Index {
                depth,
                entries: [only],
            } => (only.leaf(), depth.saturating_sub(1)),
            _ => return Ok(()),
        };
        let buffer = bread_node(handle.sbi(), inode, child, depth)?;
        let data = buffer.data();
        let (count, max) = match view(&data)? {
            ExtentNode::Leaf(extents) => (extents.len(), room(&inode.i_block, None)?),
            ExtentNode::Index { entries, .. } => (entries.len(), room(&inode.i_block, None)?),
        };
        if count == 0 || count > max {
            return Ok(());
        }
        put_entries(&mut inode.i_block, max as u16, depth, entries(&data, count));
        free_map_block(handle, inode, child)?;
    }
}
