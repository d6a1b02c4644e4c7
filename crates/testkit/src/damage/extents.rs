//! Damage to extent trees.

use uext4_ondisk::extent::{
    EXTENT_ENTRY_LEN, Extent, RawExtent, entries_mut, index_entry, leaf_entry, tail_offset,
};
use uext4_ondisk::{Lblk, Pblk};
use zerocopy::FromBytes;

use super::target::{get16, put16, put32};
use super::{Kind, Known, Node, Target};

/// A node of a file that this is true for.
fn node_where<'a>(
    t: &mut Target<'a>,
    is_meant: impl Fn(&Node) -> bool,
) -> Option<(&'a Known, Node)> {
    let first = t.geometry().first_ino;
    let has_one = |k: &Known| {
        let is_ours = k.ino.0 > first && k.has(uext4_ondisk::inode::InodeFlags::EXTENTS);
        is_ours && k.nodes.iter().any(&is_meant)
    };
    let known = t.inode_where(has_one)?;
    let nodes: Vec<_> = known
        .nodes
        .iter()
        .filter(|n| is_meant(n))
        .copied()
        .collect();
    Some((known, t.one_of(&nodes)?))
}

fn any(node: &Node) -> bool {
    node.entries > 0
}

fn is_leaf(node: &Node) -> bool {
    node.depth == 0 && node.entries > 0
}

fn is_long_leaf(node: &Node) -> bool {
    node.depth == 0 && node.entries > 1
}

fn is_inner(node: &Node) -> bool {
    node.depth > 0
}

fn is_long_inner(node: &Node) -> bool {
    node.depth > 0 && node.entries > 1
}

fn in_a_block(node: &Node) -> bool {
    node.block.is_some() && node.entries > 0
}

/// Changes a node that this is true for.
fn change(
    t: &mut Target<'_>,
    is_meant: fn(&Node) -> bool,
    change: impl FnOnce(&mut [u8]),
) -> Option<()> {
    let (known, node) = node_where(t, is_meant)?;
    t.node(known, node, change)
}

/// Changes one of the extents of a leaf.
fn extent(
    t: &mut Target<'_>,
    is_meant: fn(&Node) -> bool,
    change: impl FnOnce(&mut Extent),
) -> Option<()> {
    let (known, node) = node_where(t, is_meant)?;
    let nr = t.random.index(usize::from(node.entries));
    t.node(known, node, |bytes| {
        let entry = &mut entries_mut(bytes, usize::MAX)[nr];
        // OK to unwrap: an entry has the length of an extent.
        let mut extent = RawExtent::ref_from_bytes(entry).unwrap().get();
        change(&mut extent);
        *entry = leaf_entry(extent);
    })
}

/// Changes the child of an inner node: which, and what it leads to.
fn child(t: &mut Target<'_>, place: impl Fn(&Target<'_>, &Known, Pblk) -> Pblk) -> Option<()> {
    let (known, node) = node_where(t, is_inner)?;
    let nr = t.random.index(usize::from(node.entries));
    let below = known.nodes.iter().filter(|n| n.depth + 1 == node.depth);
    let old = below.filter_map(|n| n.block).next()?;
    let new = place(t, known, old);
    t.node(known, node, |bytes| {
        let entry = &mut entries_mut(bytes, usize::MAX)[nr];
        *entry = index_entry(uext4_ondisk::extent::entry_lblk(entry), new);
    })
}

/// Swaps the first two entries.
fn swap(bytes: &mut [u8]) {
    entries_mut(bytes, usize::MAX).swap(0, 1);
}

/// Takes the physical place of an extent for itself.
fn at(t: &mut Target<'_>, place: Pblk) -> Option<()> {
    extent(t, is_leaf, |extent| extent.pblk = place)
}

pub(super) const KINDS: &[Kind] = &[
    Kind::new("extent-node-zeroed", "extent", |t| {
        change(t, in_a_block, |bytes| bytes.fill(0))
    }),
    Kind::new("extent-node-random-bytes", "extent", |t| {
        let mut random = t.random.clone();
        change(t, in_a_block, |bytes| {
            bytes.fill_with(|| random.next_u64() as u8)
        })
    }),
    Kind::new("extent-root-zeroed", "extent", |t| {
        change(
            t,
            |node| node.block.is_none() && any(node),
            |bytes| bytes.fill(0),
        )
    }),
    Kind::new("extent-magic", "extent", |t| {
        change(t, any, |bytes| put16(bytes, 0, 0xF30B))
    }),
    Kind::new("extent-entries-none", "extent", |t| {
        change(t, is_inner, |bytes| put16(bytes, 2, 0))
    }),
    Kind::new("extent-entries-none-in-a-leaf", "extent", |t| {
        change(t, is_leaf, |bytes| put16(bytes, 2, 0))
    }),
    Kind::new("extent-entries-too-many", "extent", |t| {
        change(t, any, |bytes| {
            let max = get16(bytes, 4);
            put16(bytes, 2, max + 1);
        })
    }),
    Kind::new("extent-entries-fewer", "extent", |t| {
        change(t, is_long_leaf, |bytes| {
            let entries = get16(bytes, 2);
            put16(bytes, 2, entries - 1);
        })
    }),
    Kind::new("extent-room-zero", "extent", |t| {
        change(t, any, |bytes| put16(bytes, 4, 0))
    }),
    Kind::new("extent-room-too-much", "extent", |t| {
        change(t, any, |bytes| put16(bytes, 4, 0xFFFF))
    }),
    Kind::new("extent-room-less", "extent", |t| {
        let is_meant = |node: &Node| node.block.is_none() && node.entries > 0 && node.entries < 4;
        change(t, is_meant, |bytes| put16(bytes, 4, 3))
    })
    .unseen("the entries fit the room there is said to be, and none is needed"),
    Kind::new("extent-depth-huge", "extent", |t| {
        change(t, any, |bytes| put16(bytes, 6, 9))
    }),
    Kind::new("extent-depth-of-a-leaf", "extent", |t| {
        change(t, is_leaf, |bytes| put16(bytes, 6, 1))
    }),
    Kind::new("extent-depth-of-an-inner-node", "extent", |t| {
        change(t, is_inner, |bytes| {
            let depth = get16(bytes, 6);
            put16(bytes, 6, depth + 1);
        })
    }),
    Kind::new("extent-depth-zero-of-an-inner-node", "extent", |t| {
        change(t, is_inner, |bytes| put16(bytes, 6, 0))
    }),
    Kind::new("extent-checksum", "extent,metadata_csum", |t| {
        let (known, node) = node_where(t, in_a_block)?;
        t.node(known, node, |_| ())?;
        let bytes = t.block(node.block?);
        let at = tail_offset(bytes)?;
        bytes[at] ^= 0x55;
        Some(())
    }),
    Kind::new("extent-order", "extent", |t| change(t, is_long_leaf, swap)),
    Kind::new("extent-order-of-an-inner-node", "extent", |t| {
        change(t, is_long_inner, swap)
    }),
    Kind::new("extent-overlap", "extent", |t| {
        let (known, node) = node_where(t, is_long_leaf)?;
        t.node(known, node, |bytes| {
            let entries = entries_mut(bytes, usize::MAX);
            let lblk = uext4_ondisk::extent::entry_lblk(&entries[0]);
            uext4_ondisk::extent::set_entry_lblk(&mut entries[1], lblk);
        })
    }),
    Kind::new("extent-length-overlap", "extent", |t| {
        let (known, node) = node_where(t, is_long_leaf)?;
        t.node(known, node, |bytes| {
            put16(bytes, EXTENT_ENTRY_LEN + 4, 0x7000)
        })
    }),
    Kind::new("extent-twice", "extent", |t| {
        let (known, node) = node_where(t, is_long_leaf)?;
        t.node(known, node, |bytes| {
            let entries = entries_mut(bytes, usize::MAX);
            entries[1] = entries[0];
        })
    }),
    Kind::new("extent-length-zero", "extent", |t| {
        extent(t, is_leaf, |extent| {
            extent.len = 0;
            extent.unwritten = false;
        })
    }),
    Kind::new("extent-length-past-the-device", "extent", |t| {
        extent(t, is_leaf, |extent| extent.len = 0x7FFF)
    }),
    Kind::new("extent-outside", "extent", |t| {
        let outside = Pblk(t.geometry().blocks_count + 3);
        at(t, outside)
    }),
    Kind::new("extent-far-outside", "extent", |t| {
        at(t, Pblk(0xFFFF_FFFF_FFF0))
    }),
    Kind::new("extent-at-block-zero", "extent", |t| at(t, Pblk(0))),
    Kind::new("extent-in-the-superblock", "extent", |t| {
        let place = t.geometry().superblock_block();
        at(t, place)
    }),
    Kind::new("extent-in-the-descriptors", "extent", |t| {
        let place = t.geometry().gdt_block(0);
        at(t, place)
    }),
    Kind::new("extent-in-a-bitmap", "extent", |t| {
        let place = t.clean.groups[0].block_bitmap;
        at(t, place)
    }),
    Kind::new("extent-in-an-inode-table", "extent", |t| {
        let place = t.clean.groups[0].inode_table;
        at(t, place)
    }),
    Kind::new("extent-in-free-space", "extent", |t| {
        let place = t.free_block()?;
        at(t, place)
    }),
    Kind::new("extent-logical-end", "extent", |t| {
        extent(t, is_leaf, |extent| {
            extent.lblk = Lblk(0xFFFF_FFFE);
            extent.len = 9;
        })
    }),
    Kind::new("extent-logical-later", "extent", |t| {
        let (known, node) = node_where(t, is_leaf)?;
        let last = usize::from(node.entries) - 1;
        t.node(known, node, |bytes| {
            let entry = &mut entries_mut(bytes, usize::MAX)[last];
            let lblk = uext4_ondisk::extent::entry_lblk(entry);
            uext4_ondisk::extent::set_entry_lblk(entry, Lblk(lblk.0 + 1_000_000));
        })
    }),
    Kind::new("extent-unwritten", "extent", |t| {
        extent(t, is_leaf, |extent| extent.unwritten = !extent.unwritten)
    })
    .unseen("an extent may be either"),
    Kind::new("extent-unwritten-in-a-directory", "extent", |t| {
        let known = t.directory()?;
        let node = *known.nodes.iter().find(|node| node.depth == 0)?;
        t.node(known, node, |bytes| {
            let len = get16(bytes, EXTENT_ENTRY_LEN + 4);
            put16(bytes, EXTENT_ENTRY_LEN + 4, len | 0x8000);
        })
    }),
    Kind::new("extent-child-outside", "extent", |t| {
        child(t, |t, _, _| Pblk(t.geometry().blocks_count + 7))
    }),
    Kind::new("extent-child-zero", "extent", |t| {
        child(t, |_, _, _| Pblk(0))
    }),
    Kind::new("extent-child-in-an-inode-table", "extent", |t| {
        child(t, |t, _, _| t.clean.groups[0].inode_table)
    }),
    Kind::new("extent-child-in-the-content", "extent", |t| {
        child(t, |_, known, old| {
            known.blocks.first().map_or(old, |mapped| mapped.pblk)
        })
    }),
    Kind::new("extent-child-is-its-parent", "extent", |t| {
        let (known, node) = node_where(t, |node| node.depth > 0 && node.block.is_some())?;
        let itself = node.block?;
        t.node(known, node, |bytes| {
            let entry = &mut entries_mut(bytes, usize::MAX)[0];
            *entry = index_entry(uext4_ondisk::extent::entry_lblk(entry), itself);
        })
    }),
    Kind::new("extent-children-the-same", "extent", |t| {
        let (known, node) = node_where(t, is_long_inner)?;
        t.node(known, node, |bytes| {
            let entries = entries_mut(bytes, usize::MAX);
            let lblk = uext4_ondisk::extent::entry_lblk(&entries[1]);
            entries[1] = entries[0];
            uext4_ondisk::extent::set_entry_lblk(&mut entries[1], lblk);
        })
    }),
    Kind::new("extent-child-start", "extent", |t| {
        let (known, node) = node_where(t, is_long_inner)?;
        t.node(known, node, |bytes| {
            let entry = &mut entries_mut(bytes, usize::MAX)[1];
            let lblk = uext4_ondisk::extent::entry_lblk(entry);
            uext4_ondisk::extent::set_entry_lblk(entry, Lblk(lblk.0 + 1));
        })
    }),
    Kind::new("extent-child-start-earlier", "extent", |t| {
        let (known, node) = node_where(t, is_long_inner)?;
        t.node(known, node, |bytes| {
            let entry = &mut entries_mut(bytes, usize::MAX)[1];
            let lblk = uext4_ondisk::extent::entry_lblk(entry);
            uext4_ondisk::extent::set_entry_lblk(entry, Lblk(lblk.0 - 1));
        })
    }),
    Kind::new("extent-child-high", "extent", |t| {
        let (known, node) = node_where(t, is_inner)?;
        t.node(known, node, |bytes| {
            put16(bytes, EXTENT_ENTRY_LEN + 8, 0x1234)
        })
    }),
    Kind::new("extent-generation", "extent", |t| {
        change(t, any, |bytes| put32(bytes, 8, 0x1234_5678))
    })
    .unseen("the field is not used"),
];
