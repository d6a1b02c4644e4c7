//! Adds names to hashed directories: splits leaves by hash, splits full nodes, and deepens the
//! tree.
//!
//! ```text
//! room in the leaf       one record goes in
//! full leaf              its names and the new one, in hash order, become two leaves
//!   full node above      its upper half becomes a node of its own, and so on upwards
//!   full root            its entries become a node below it
//! ```
//! A leaf is split between two different hashes if possible; otherwise bit 0 of the new leaf's
//! hash marks that it continues the one before. Blocks are allocated before anything is changed,
//! so that a lack of space leaves everything unchanged. Removing names (`dir::change`) is not
//! done here, as it changes only a leaf.

use uext4_buffer_cache::Buffer;
use uext4_ondisk::dir_block::{self, DOTS_LEN, DirFormat, NewEntry, Record, Spot};
use uext4_ondisk::dir_entry::rec_len_for;
use uext4_ondisk::htree::{
    DxNode, DxShape, IndexEntry, RootHead, entries_offset, fill_node, fill_root, insert_entry,
    put_root, truncate_entries,
};
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::{Damage, Ino, Lblk, Pblk};

use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::dir::grow::{Grown, grow};
use crate::dir::htree::{self, Frame, Walk, hash_of};
use crate::dir::{format, owner};
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;

/// Adds a name to a directory that has an htree.
///
/// Fails with [`Error::Exists`]; [`Error::DirectoryFull`] and [`Error::NoSpace`] with nothing
/// changed; damage, device errors.
pub(crate) fn add(handle: &Handle<'_>, dir: &mut Inode, new: &NewEntry<'_>) -> Result<()> {
    let sbi = handle.sbi();
    let (mut walk, hash) = Walk::to_name(sbi, dir, new.name)?;
    let (lblk, leaf) = walk.leaf(sbi, dir)?;
    let room = format(sbi).room();
    let spot = dir_block::scan(&leaf.data(), leaf.block(), room, new.name)?;
    if spot == Spot::Exists || walk.goes_on(hash) && htree::lookup(sbi, dir, new.name)?.is_some() {
        return Err(Error::Exists);
    }
    match spot {
        Spot::Space(offset) => {
            handle.change(&leaf, owner(dir, lblk), |bytes| {
                dir_block::insert(bytes, offset, new);
            });
            Ok(())
        }
        _ => split_leaf(handle, dir, &walk, lblk, &leaf, new),
    }
}

/// A name that is to be stored in one of two leaves.
struct Item<'a> {
    hash: u32,
    entry: NewEntry<'a>,
}

/// The names in a block of a directory.
#[derive(Clone, Copy)]
struct Names<'a> {
    /// The contents of the block.
    bytes: &'a [u8],
    /// Its location on the device.
    block: Pblk,
    /// The offset in bytes of the first record to use.
    from: usize,
}

/// Returns the names of a block and the new one, after those of equal hash, in the order of their
/// hashes.
fn sorted<'a>(
    sbi: &Sbi,
    hash_code: u8,
    names: Names<'a>,
    new: &NewEntry<'a>,
) -> Result<Vec<Item<'a>>> {
    let mut items = Vec::with_capacity(names.bytes.len() / 24);
    let mut failed = None;
    let room = format(sbi).room();
    let records = dir_block::walk(names.bytes, names.block, room, |record: Record<'a>| {
        if record.ino.0 != 0 && record.offset >= names.from {
            match hash_of(sbi, hash_code, record.name) {
                Ok(hash) => items.push(Item {
                    hash: hash.hash,
                    entry: record.entry(),
                }),
                Err(error) => failed = Some(error),
            }
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    records?;
    if let Some(error) = failed {
        return Err(error);
    }
    items.push(Item {
        hash: hash_of(sbi, hash_code, new.name)?.hash,
        entry: *new,
    });
    items.sort_by_key(|item| item.hash);
    Ok(items)
}

/// Chooses where to split the names of one leaf: among the positions where both parts fit into a
/// leaf, between two hashes rather than within one, and then as close to the middle as possible.
fn cut(items: &[Item<'_>], room: usize) -> Option<usize> {
    let len = |item: &Item<'_>| rec_len_for(item.entry.name.len());
    let total: usize = items.iter().map(len).sum();
    let mut before = 0;
    let mut best = None;
    for (i, pair) in items.windows(2).enumerate() {
        before += len(&pair[0]);
        if before > room || total - before > room {
            continue;
        }
        let cost = (pair[0].hash == pair[1].hash, total.abs_diff(2 * before));
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, i + 1));
        }
    }
    best.map(|(_, at)| at)
}

/// The hash that the second of two leaves begins with.
fn second_hash(items: &[Item<'_>], cut: usize) -> u32 {
    let hash = items[cut].hash;
    hash | u32::from(items[cut - 1].hash == hash)
}

fn entries<'a, 'b>(items: &'b [Item<'a>]) -> impl Iterator<Item = NewEntry<'a>> + use<'a, 'b> {
    items.iter().map(|item| item.entry)
}

/// Error for more names than fit into two leaves: impossible, as the names of one leaf and one
/// more do fit.
fn cannot_split(dir: &Inode) -> Error {
    let why = "a block cannot be split";
    Error::Corrupt(Damage::Directory { ino: dir.ino, why })
}

fn split_leaf(
    handle: &Handle<'_>,
    dir: &mut Inode,
    walk: &Walk,
    lblk: Lblk,
    leaf: &Buffer,
    new: &NewEntry<'_>,
) -> Result<()> {
    let sbi = handle.sbi();
    let format = format(sbi);
    let data = leaf.data();
    let names = Names {
        bytes: &data,
        block: leaf.block(),
        from: 0,
    };
    let items = sorted(sbi, walk.info.hash_version, names, new)?;
    let at = cut(&items, format.room()).ok_or_else(|| cannot_split(dir))?;
    let frames: Vec<Frame> = walk.frames().cloned().collect();
    let full = frames
        .iter()
        .rev()
        .take_while(|f| f.count >= f.limit)
        .count();
    let deeper = full == frames.len();
    if deeper && walk.info.indirect_levels >= format.levels_max() {
        let why = "its index is as deep as it may be; larger blocks (`-b 4096`), or the feature \
                   large_dir, allow more names";
        return Err(Error::DirectoryFull { ino: dir.ino, why });
    }
    // A full root needs a block, as any other full node does.
    let mut grown = grow(handle, dir, 1 + full)?;
    let mut tree = Tree {
        handle,
        dir,
        format,
        head: RootHead {
            hash_version: walk.info.hash_version,
            indirect_levels: walk.info.indirect_levels,
        },
        frames,
    };
    let changed = (|| {
        let (second, block) = grown.next().ok_or_else(|| cannot_split(dir))?;
        let (low, high) = items.split_at(at);
        handle.change(&handle.fresh(block), owner(dir, second), |bytes| {
            format.fill(bytes, entries(high));
        });
        handle.change(leaf, owner(dir, lblk), |bytes| {
            format.fill(bytes, entries(low));
        });
        if deeper {
            tree.deepen(&mut grown)?;
        }
        let entry = IndexEntry {
            hash: second_hash(&items, at),
            block: second,
        };
        tree.insert(entry, &mut grown)
    })();
    handle.failed(changed)
}

/// A tree whose nodes change; the leaf below the last frame was split.
struct Tree<'a> {
    handle: &'a Handle<'a>,
    dir: &'a Inode,
    format: DirFormat,
    head: RootHead,
    frames: Vec<Frame>,
}

impl Tree<'_> {
    /// The entries of a node, starting with number `from`.
    fn entries(&self, frame: &Frame, from: usize) -> Result<Vec<IndexEntry>> {
        let data = frame.buffer.data();
        let offset = entries_offset(frame.lblk);
        let summed = self.handle.sbi().geometry().csum_seed.is_some();
        let node = DxNode::head(&data, DxShape { offset, summed }, frame.lblk)?;
        let all = from..node.entries.len();
        Ok(all.map(|i| node.entry(i)).collect())
    }

    /// Creates a node with `entries` in a new block.
    fn new_node(&self, entries: &[IndexEntry], grown: &mut Grown) -> Result<(Lblk, Buffer)> {
        let (lblk, block) = grown.next().ok_or_else(|| cannot_split(self.dir))?;
        let buffer = self.handle.fresh(block);
        self.handle.change(&buffer, owner(self.dir, lblk), |bytes| {
            fill_node(bytes, self.format, entries);
        });
        Ok((lblk, buffer))
    }

    /// Moves the entries of the root into a node below it.
    fn deepen(&mut self, grown: &mut Grown) -> Result<()> {
        let Some(root) = self.frames.first() else {
            return Ok(());
        };
        let all = self.entries(root, 0)?;
        let (lblk, buffer) = self.new_node(&all, grown)?;
        self.head.indirect_levels += 1;
        let (format, head) = (self.format, self.head);
        let only = IndexEntry {
            hash: 0,
            block: lblk,
        };
        let root = &mut self.frames[0];
        self.handle
            .change(&root.buffer, owner(self.dir, root.lblk), |bytes| {
                put_root(bytes, format, head, &[only]);
            });
        let mut node = root.clone();
        (node.lblk, node.buffer) = (lblk, buffer);
        // A node has space for more entries than a root, as its header is shorter.
        node.limit = usize::MAX;
        (root.taken, root.count) = (0, 1);
        self.frames.insert(1, node);
        Ok(())
    }

    /// Inserts an entry after the one selected in the last frame, and splits full nodes.
    fn insert(&mut self, mut entry: IndexEntry, grown: &mut Grown) -> Result<()> {
        while let Some(frame) = self.frames.pop() {
            if frame.count < frame.limit {
                self.insert_at(&frame.buffer, frame.lblk, frame.taken + 1, entry);
                return Ok(());
            }
            let half = frame.count / 2;
            let upper = self.entries(&frame, half)?;
            let hash = upper.first().map_or(0, |first| first.hash);
            let (lblk, buffer) = self.new_node(&upper, grown)?;
            self.handle
                .change(&frame.buffer, owner(self.dir, frame.lblk), |bytes| {
                    truncate_entries(bytes, entries_offset(frame.lblk), half);
                });
            match frame.taken.checked_sub(half) {
                Some(taken) => self.insert_at(&buffer, lblk, taken + 1, entry),
                None => self.insert_at(&frame.buffer, frame.lblk, frame.taken + 1, entry),
            }
            entry = IndexEntry { hash, block: lblk };
        }
        Err(cannot_split(self.dir))
    }

    fn insert_at(&self, node: &Buffer, lblk: Lblk, at: usize, entry: IndexEntry) {
        self.handle.change(node, owner(self.dir, lblk), |bytes| {
            insert_entry(bytes, entries_offset(lblk), at, entry);
        });
    }
}

/// Converts a directory of one block that has no space for `new` to a tree: block 0 becomes its
/// root, and all names move to two leaves.
pub(crate) fn make(
    handle: &Handle<'_>,
    dir: &mut Inode,
    first: &Buffer,
    new: &NewEntry<'_>,
) -> Result<()> {
    let sbi = handle.sbi();
    let data = first.data();
    let (dot, parent) = dots(sbi, dir, &data, first.block())?;
    let code = sbi.superblock().s_def_hash_version;
    let code = htree::hash_version(sbi, code)?.to_disk();
    let names = Names {
        bytes: &data,
        block: first.block(),
        from: DOTS_LEN,
    };
    let items = sorted(sbi, code, names, new)?;
    let format = format(sbi);
    let at = cut(&items, format.room()).ok_or_else(|| cannot_split(dir))?;
    let mut grown = grow(handle, dir, 2)?;
    dir.flags |= InodeFlags::INDEX;
    let (low, high) = items.split_at(at);
    let mut children = [0, second_hash(&items, at)].map(|hash| IndexEntry {
        hash,
        block: Lblk(0),
    });
    for (child, items) in children.iter_mut().zip([low, high]) {
        let Some((lblk, block)) = grown.next() else {
            return handle.failed(Err(cannot_split(dir)));
        };
        child.block = lblk;
        handle.change(&handle.fresh(block), owner(dir, lblk), |bytes| {
            format.fill(bytes, entries(items));
        });
    }
    let head = RootHead {
        hash_version: code,
        indirect_levels: 0,
    };
    handle.change(first, owner(dir, Lblk(0)), |bytes| {
        fill_root(bytes, format, format.dots(dot, parent), head, &children);
    });
    Ok(())
}

/// The inodes of "." and ".." in block 0.
fn dots(sbi: &Sbi, dir: &Inode, bytes: &[u8], at: Pblk) -> Result<(Ino, Ino)> {
    let find = |name: &[u8]| dir_block::find(bytes, at, format(sbi).room(), name);
    match (find(b".")?, find(b"..")?) {
        (Some(dot), Some(dotdot)) if dot.offset == 0 && dotdot.offset == rec_len_for(1) => {
            Ok((dot.ino, dotdot.ino))
        }
        _ => Err(Error::Corrupt(Damage::Directory {
            ino: dir.ino,
            why: "does not begin with \".\" and \"..\"",
        })),
    }
}
