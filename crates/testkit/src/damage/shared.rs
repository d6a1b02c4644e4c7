//! Blocks that two owners claim.

use uext4_ondisk::extent::{Extent, RawExtent, entries_mut, leaf_entry};
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Ino, Pblk};
use zerocopy::FromBytes;

use super::target::{get16, put32};
use super::{Kind, Known, Target};

/// Lets the first block of a file's map be this one. Of an extent only its place changes.
fn first_block(t: &mut Target<'_>, known: &Known, place: Pblk) -> Option<()> {
    if !known.has(InodeFlags::EXTENTS) {
        return t.inode(known.ino, |raw| put32(&mut raw.i_block, 0, place.0 as u32));
    }
    let node = *known
        .nodes
        .iter()
        .find(|node| node.depth == 0 && node.entries > 0)?;
    t.node(known, node, |bytes| {
        let entry = &mut entries_mut(bytes, usize::MAX)[0];
        // OK to unwrap: an entry has the length of an extent.
        let extent = RawExtent::ref_from_bytes(entry).unwrap().get();
        *entry = leaf_entry(Extent {
            pblk: place,
            ..extent
        });
    })
}

/// Another file than `known`, with blocks, of this type.
fn other<'a>(t: &mut Target<'a>, known: &Known, file_type: FileType) -> Option<&'a Known> {
    let ino = known.ino;
    let is_meant = |k: &Known| k.ino != ino && k.is(file_type) && !k.blocks.is_empty();
    let first = t.geometry().first_ino;
    t.inode_where(|k| k.ino.0 > first && is_meant(k))
}

/// `known` claims the first block of `owner`, and more if its extent is longer.
fn claim(t: &mut Target<'_>, known: &Known, owner: &Known) -> Option<()> {
    let place = owner.blocks.first()?.pblk;
    let claimed = place.0..place.0 + 0x8000;
    let owners = t.clean.inodes.iter().filter(|k| {
        let blocks = k.blocks.iter().map(|mapped| mapped.pblk);
        let nodes = k.nodes.iter().filter_map(|node| node.block);
        let mut all = blocks.chain(nodes).chain(k.xattr_block());
        all.any(|block| claimed.contains(&block.0))
    });
    let owners: Vec<Ino> = owners.map(|k| k.ino).collect();
    t.hurt.inodes.extend(owners);
    first_block(t, known, place)
}

fn claim_of(t: &mut Target<'_>, by: FileType, of: FileType) -> Option<()> {
    let first = t.geometry().first_ino;
    let is_meant = |k: &Known| k.is(by) && !k.blocks.is_empty();
    let known = t.inode_where(|k| k.ino.0 > first && is_meant(k))?;
    let owner = other(t, known, of)?;
    claim(t, known, owner)
}

/// Whether the root of a file's map lies in its inode, and maps.
fn maps(known: &Known) -> bool {
    known.is(FileType::Regular) && !known.blocks.is_empty()
}

pub(super) const KINDS: &[Kind] = &[
    Kind::new("shared-by-files", "", |t| {
        claim_of(t, FileType::Regular, FileType::Regular)
    }),
    Kind::new("shared-by-directories", "", |t| {
        claim_of(t, FileType::Directory, FileType::Directory)
    }),
    Kind::new("shared-file-in-a-directory", "", |t| {
        claim_of(t, FileType::Regular, FileType::Directory)
    }),
    Kind::new("shared-directory-in-a-file", "", |t| {
        claim_of(t, FileType::Directory, FileType::Regular)
    }),
    Kind::new("shared-with-a-link", "", |t| {
        claim_of(t, FileType::Regular, FileType::Symlink)
    }),
    Kind::new("shared-whole-map", "", |t| {
        let known = t.with_blocks()?;
        let owner = other(t, known, FileType::Regular)?;
        t.hurt.inodes.insert(owner.ino);
        t.inode(known.ino, |raw| {
            raw.i_block = owner.raw.i_block;
            raw.i_flags = owner.raw.i_flags;
            raw.i_size_lo = owner.raw.i_size_lo;
            raw.i_blocks_lo = owner.raw.i_blocks_lo;
        })
    }),
    Kind::new("shared-whole-inode", "", |t| {
        let known = t.with_blocks()?;
        let owner = other(t, known, FileType::Regular)?;
        t.hurt.inodes.insert(owner.ino);
        let bytes = t.clean.bytes[t.clean.inode_place(owner.ino)].to_vec();
        t.inode_bytes(known.ino, |inode| inode.copy_from_slice(&bytes))
    }),
    Kind::new("shared-by-three", "", |t| {
        let owner = t.with_blocks()?;
        for _ in 0..2 {
            let known = other(t, owner, FileType::Regular)?;
            claim(t, known, owner)?;
        }
        Some(())
    }),
    Kind::new("shared-within-a-file", "", |t| {
        let first = t.geometry().first_ino;
        let is_long = |node: &super::Node| node.depth == 0 && node.entries > 1;
        let known = t.inode_where(|k| {
            k.ino.0 > first && k.has(InodeFlags::EXTENTS) && k.nodes.iter().any(is_long)
        })?;
        let node = *known.nodes.iter().find(|node| is_long(node))?;
        t.node(known, node, |bytes| {
            let len = get16(bytes, 12 + 4).min(get16(bytes, 24 + 4));
            let entries = entries_mut(bytes, usize::MAX);
            let (a, b) = entries.split_at_mut(1);
            b[0][6..].copy_from_slice(&a[0][6..]);
            super::target::put16(&mut b[0], 4, len);
        })
    }),
    Kind::new("shared-with-the-superblock", "", |t| {
        let known = t.with_blocks()?;
        let place = t.geometry().superblock_block();
        first_block(t, known, place)
    }),
    Kind::new("shared-with-the-descriptors", "", |t| {
        let known = t.with_blocks()?;
        let place = t.geometry().gdt_block(0);
        first_block(t, known, place)
    }),
    Kind::new("shared-with-a-block-bitmap", "", |t| {
        let known = t.with_blocks()?;
        let place = t.clean.groups[0].block_bitmap;
        first_block(t, known, place)
    }),
    Kind::new("shared-with-an-inode-bitmap", "", |t| {
        let known = t.with_blocks()?;
        let place = t.clean.groups[0].inode_bitmap;
        first_block(t, known, place)
    }),
    Kind::new("shared-directory-in-a-table", "", |t| {
        let known = t.directory()?;
        let place = t.clean.groups[0].inode_table;
        first_block(t, known, place)
    }),
    Kind::new("shared-with-the-journal", "has_journal", |t| {
        let journal = t.clean.known(Ino::JOURNAL)?;
        let place = journal.blocks.get(journal.blocks.len() / 2)?.pblk;
        let known = t.with_blocks()?;
        first_block(t, known, place)
    }),
    Kind::new("shared-with-the-head-of-the-journal", "has_journal", |t| {
        let place = t.clean.known(Ino::JOURNAL)?.blocks.first()?.pblk;
        let known = t.directory()?;
        first_block(t, known, place)
    }),
    Kind::new("shared-with-a-node", "", |t| {
        let has_one = |k: &Known| maps(k) && k.nodes.iter().any(|node| node.block.is_some());
        let owner = t.inode_where(has_one)?;
        let place = owner.nodes.iter().find_map(|node| node.block)?;
        let known = other(t, owner, FileType::Regular)?;
        t.hurt.inodes.insert(owner.ino);
        first_block(t, known, place)
    }),
    Kind::new("shared-with-attributes", "", |t| {
        let owner = t.inode_where(|k| k.xattr_block().is_some())?;
        let place = owner.xattr_block()?;
        let known = other(t, owner, FileType::Regular)?;
        let sharers = t
            .clean
            .inodes
            .iter()
            .filter(|k| k.xattr_block() == Some(place));
        t.hurt.inodes.extend(sharers.map(|k| k.ino));
        first_block(t, known, place)
    }),
    Kind::new("shared-attributes-in-content", "", |t| {
        let owner = t.with_blocks()?;
        let known = other(t, owner, FileType::Regular)?;
        t.hurt.inodes.insert(owner.ino);
        let place = owner.blocks[0].pblk.0 as u32;
        t.inode(known.ino, |raw| raw.i_file_acl_lo = place.into())
    }),
    Kind::new("shared-attributes-without-a-reference", "", |t| {
        let owner = t.inode_where(|k| k.xattr_block().is_some())?;
        let place = owner.xattr_block()?.0 as u32;
        let known = other(t, owner, FileType::Regular)?;
        (known.xattr_block().is_none()).then_some(())?;
        let sharers = t.clean.inodes.iter();
        let sharers = sharers.filter(|k| k.xattr_block() == Some(Pblk(place.into())));
        t.hurt.inodes.extend(sharers.map(|k| k.ino));
        let sectors = t.geometry().block_size.bytes() << t.geometry().cluster_bits >> 9;
        t.inode(known.ino, |raw| {
            raw.i_file_acl_lo = place.into();
            raw.i_blocks_lo = (raw.i_blocks_lo.get() + sectors).into();
        })
    }),
    Kind::new("shared-bad-blocks", "", |t| {
        let owner = t.directory()?;
        t.hurt.inodes.insert(owner.ino);
        let place = owner.blocks[0].pblk.0 as u32;
        t.inode(Ino::BAD_BLOCKS, |raw| put32(&mut raw.i_block, 0, place))
    }),
];
