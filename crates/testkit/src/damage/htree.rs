//! Damage to the indexes of directories.

use uext4_ondisk::Lblk;
use uext4_ondisk::htree::{DX_ENTRY_LEN, DX_NODE_ENTRIES_OFFSET, DX_ROOT_ENTRIES_OFFSET};

use super::target::{get16, get32, put16, put32};
use super::{Kind, Known, Mapped, Target};

const ROOT: usize = DX_ROOT_ENTRIES_OFFSET;
const NODE: usize = DX_NODE_ENTRIES_OFFSET;

/// Changes the root of an index.
fn root(t: &mut Target<'_>, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let known = t.indexed()?;
    let mapped = *known.blocks.first()?;
    t.dir_block(known, mapped, change)
}

/// Changes an inner node of an index that has some.
fn node(t: &mut Target<'_>, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let known = t.inode_where(|k| !k.index_nodes.is_empty())?;
    let lblk = t.one_of(&known.index_nodes)?;
    let mapped = find(known, lblk)?;
    t.dir_block(known, mapped, change)
}

fn find(known: &Known, lblk: Lblk) -> Option<Mapped> {
    known
        .blocks
        .iter()
        .find(|mapped| mapped.lblk == lblk)
        .copied()
}

/// Swaps the hashes of two entries, behind the first.
fn swap_hashes(bytes: &mut [u8], offset: usize) {
    let (a, b) = (offset + DX_ENTRY_LEN, offset + 2 * DX_ENTRY_LEN);
    let (x, y) = (get32(bytes, a), get32(bytes, b));
    put32(bytes, a, y);
    put32(bytes, b, x);
}

pub(super) const KINDS: &[Kind] = &[
    Kind::new("index-root-reserved", "dir_index", |t| {
        root(t, |bytes| put32(bytes, 24, 5))
    })
    .unseen("the field is not used"),
    Kind::new("index-root-hash-version", "dir_index", |t| {
        root(t, |bytes| bytes[28] = 99)
    }),
    Kind::new("index-root-another-hash", "dir_index", |t| {
        root(t, |bytes| bytes[28] ^= 3)
    }),
    Kind::new("index-root-head-length", "dir_index", |t| {
        root(t, |bytes| bytes[29] = 9)
    }),
    Kind::new("index-root-levels", "dir_index", |t| {
        root(t, |bytes| bytes[30] = 7)
    }),
    Kind::new("index-root-one-level-more", "dir_index", |t| {
        root(t, |bytes| bytes[30] += 1)
    }),
    Kind::new("index-root-flags", "dir_index", |t| {
        root(t, |bytes| bytes[31] = 1)
    }),
    Kind::new("index-root-limit", "dir_index", |t| {
        root(t, |bytes| {
            let limit = get16(bytes, ROOT);
            put16(bytes, ROOT, limit + 1);
        })
    }),
    Kind::new("index-root-limit-zero", "dir_index", |t| {
        root(t, |bytes| put16(bytes, ROOT, 0))
    }),
    Kind::new("index-root-count-zero", "dir_index", |t| {
        root(t, |bytes| put16(bytes, ROOT + 2, 0))
    }),
    Kind::new("index-root-count-past-the-limit", "dir_index", |t| {
        root(t, |bytes| {
            let limit = get16(bytes, ROOT);
            put16(bytes, ROOT + 2, limit + 1);
        })
    }),
    Kind::new("index-root-count-less", "dir_index", |t| {
        root(t, |bytes| {
            let count = get16(bytes, ROOT + 2);
            put16(bytes, ROOT + 2, count - 1);
        })
    }),
    Kind::new("index-root-hashes-descend", "dir_index", |t| {
        let known =
            t.inode_where(|k| k.has(uext4_ondisk::inode::InodeFlags::INDEX) && k.blocks.len() > 4)?;
        let mapped = *known.blocks.first()?;
        let count = get16(t.clean.block(mapped.pblk), ROOT + 2);
        (count > 2).then_some(())?;
        t.dir_block(known, mapped, |bytes| swap_hashes(bytes, ROOT))
    }),
    Kind::new("index-root-hash-moved", "dir_index", |t| {
        root(t, |bytes| {
            let hash = get32(bytes, ROOT + DX_ENTRY_LEN);
            put32(bytes, ROOT + DX_ENTRY_LEN, hash + 0x0010_0000);
        })
    }),
    Kind::new("index-root-child-outside", "dir_index", |t| {
        root(t, |bytes| put32(bytes, ROOT + 4, 0x0FFF_FFFF))
    }),
    Kind::new("index-root-child-is-the-root", "dir_index", |t| {
        root(t, |bytes| put32(bytes, ROOT + 4, 0))
    }),
    Kind::new("index-root-child-twice", "dir_index", |t| {
        root(t, |bytes| {
            let child = get32(bytes, ROOT + 4);
            put32(bytes, ROOT + DX_ENTRY_LEN + 4, child);
        })
    }),
    Kind::new("index-root-zeroed-behind-the-dots", "dir_index", |t| {
        root(t, |bytes| bytes[24..].fill(0))
    }),
    Kind::new("index-root-checksum", "dir_index,metadata_csum", |t| {
        let known = t.indexed()?;
        let mapped = *known.blocks.first()?;
        t.dir_block(known, mapped, |_| ())?;
        *t.block(mapped.pblk).last_mut()? ^= 0x55;
        Some(())
    }),
    Kind::new("index-leaf-hash-outside-its-range", "dir_index", |t| {
        let known = t.indexed()?;
        let leaf = t.records(known)?;
        let record = leaf.records.first()?;
        t.dir_block(known, leaf.mapped, |bytes| bytes[record.at + 8] ^= 0x03)
    })
    .unseen("the changed name may belong to the same leaf"),
    Kind::new("index-leaves-swapped", "dir_index", |t| {
        let known = t.indexed()?;
        let (a, b) = (t.records(known)?.mapped, t.records(known)?.mapped);
        let (x, y) = (t.clean.block(a.pblk), t.clean.block(b.pblk));
        t.dir_block(known, a, |bytes| bytes.copy_from_slice(y))?;
        t.dir_block(known, b, |bytes| bytes.copy_from_slice(x))
    }),
    Kind::new("index-node-limit", "dir_index", |t| {
        node(t, |bytes| put16(bytes, NODE, 3))
    }),
    Kind::new("index-node-count-zero", "dir_index", |t| {
        node(t, |bytes| put16(bytes, NODE + 2, 0))
    }),
    Kind::new("index-node-count-past-the-limit", "dir_index", |t| {
        node(t, |bytes| put16(bytes, NODE + 2, 0xFFFF))
    }),
    Kind::new("index-node-hashes-descend", "dir_index", |t| {
        node(t, |bytes| swap_hashes(bytes, NODE))
    }),
    Kind::new("index-node-child-outside", "dir_index", |t| {
        node(t, |bytes| put32(bytes, NODE + 4, 0x0FFF_FFF0))
    }),
    Kind::new("index-node-record", "dir_index", |t| {
        node(t, |bytes| put16(bytes, 4, 12))
    }),
    Kind::new("index-node-with-an-inode", "dir_index", |t| {
        node(t, |bytes| put32(bytes, 0, 12))
    }),
    Kind::new("index-node-zeroed", "dir_index", |t| {
        node(t, |bytes| bytes.fill(0))
    }),
    Kind::new("index-node-checksum", "dir_index,metadata_csum", |t| {
        let known = t.inode_where(|k| !k.index_nodes.is_empty())?;
        let mapped = find(known, known.index_nodes[0])?;
        t.dir_block(known, mapped, |_| ())?;
        *t.block(mapped.pblk).last_mut()? ^= 0x55;
        Some(())
    }),
];
