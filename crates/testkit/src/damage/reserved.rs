//! Damage to the inodes that have no name, to the root, and to what the superblock names: the
//! resize inode, `lost+found`, the block of the multiple mount protection.

use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::mmp::{EXT4_MMP_SEQ_FSCK, MmpBlock};
use uext4_ondisk::{Ino, Pblk};
use zerocopy::FromBytes;

use super::target::{get32, put32};
use super::{Kind, Target};

/// Changes the block of the multiple mount protection.
fn mmp(t: &mut Target<'_>, change: fn(&mut MmpBlock)) -> Option<()> {
    let place = Pblk(t.clean.superblock.s_mmp_block.get());
    let seed = t.seed();
    let (mmp, _) = MmpBlock::mut_from_prefix(t.block(place)).ok()?;
    change(mmp);
    if let Some(seed) = seed {
        mmp.mmp_checksum = mmp.checksum(seed).into();
    }
    Some(())
}

/// The doubly indirect block of the resize inode.
fn resize_block(t: &Target<'_>) -> Option<Pblk> {
    let raw = t.clean.known(Ino::RESIZE)?.raw;
    let block = get32(&raw.i_block, 13 * 4);
    (block != 0).then_some(Pblk(block.into()))
}

fn lost_and_found(t: &Target<'_>) -> Option<Ino> {
    let root = t.clean.known(Ino::ROOT)?;
    let blocks = root.blocks.iter();
    let mut records = blocks.flat_map(|&mapped| t.records_of(mapped));
    Some(records.find(|record| record.name == b"lost+found")?.ino)
}

pub(super) const KINDS: &[Kind] = &[
    Kind::new("root-mode-zero", "", |t| {
        t.inode(Ino::ROOT, |raw| raw.i_mode = 0.into())
    }),
    Kind::new("root-becomes-file", "", |t| {
        t.inode(Ino::ROOT, |raw| raw.i_mode = 0o100_755.into())
    }),
    Kind::new("root-zeroed", "", |t| {
        t.inode_bytes(Ino::ROOT, |bytes| bytes.fill(0))
    }),
    Kind::new("root-deleted", "", |t| {
        t.inode(Ino::ROOT, |raw| {
            raw.i_links_count = 0.into();
            raw.i_dtime = 0x6000_0000.into();
        })
    }),
    Kind::new("root-deletion-time", "", |t| {
        t.inode(Ino::ROOT, |raw| raw.i_dtime = 0x6000_0000.into())
    }),
    Kind::new("root-without-blocks", "^inline_data", |t| {
        t.inode(Ino::ROOT, |raw| raw.i_block.fill(0))
    }),
    Kind::new("root-links", "", |t| {
        t.inode(Ino::ROOT, |raw| raw.i_links_count = 77.into())
    }),
    Kind::new("root-encrypted", "^encrypt", |t| {
        t.inode(Ino::ROOT, |raw| {
            raw.i_flags = (raw.i_flags.get() | InodeFlags::ENCRYPT.bits()).into();
        })
    }),
    Kind::new("lost-and-found-becomes-file", "", |t| {
        let ino = lost_and_found(t)?;
        t.inode(ino, |raw| raw.i_mode = 0o100_700.into())
    }),
    Kind::new("lost-and-found-zeroed", "", |t| {
        let ino = lost_and_found(t)?;
        t.inode_bytes(ino, |bytes| bytes.fill(0))
    }),
    Kind::new("bad-blocks-inode-random-bytes", "", |t| {
        let mut random = t.random.clone();
        t.inode_bytes(Ino::BAD_BLOCKS, |bytes| {
            bytes[..128].fill_with(|| random.next_u64() as u8);
        })
    }),
    Kind::new("bad-blocks-inode-mode", "", |t| {
        t.inode(Ino::BAD_BLOCKS, |raw| raw.i_mode = 0o100_600.into())
    }),
    Kind::new("bad-blocks-inode-extents-flag", "^extent", |t| {
        t.inode(Ino::BAD_BLOCKS, |raw| raw.i_flags = 0x8_0000.into())
    }),
    Kind::new("bad-blocks-in-metadata", "", |t| {
        let table = t.clean.groups[0].inode_table.0 as u32;
        t.inode(Ino::BAD_BLOCKS, |raw| put32(&mut raw.i_block, 0, table))
    })
    .unseen("e2fsck takes a table for unreadable, and says no more with -n"),
    Kind::new("bad-blocks-outside", "", |t| {
        t.inode(Ino::BAD_BLOCKS, |raw| {
            put32(&mut raw.i_block, 0, 0xFFFF_FFFF)
        })
    }),
    Kind::new("bad-blocks-in-a-file", "", |t| {
        let known = t.with_blocks()?;
        t.hurt.inodes.insert(known.ino);
        let block = known.blocks[0].pblk.0 as u32;
        t.inode(Ino::BAD_BLOCKS, |raw| put32(&mut raw.i_block, 0, block))
    }),
    Kind::new("reserved-inode-with-a-mode", "", |t| {
        t.inode(Ino(5), |raw| {
            raw.i_mode = 0o040_755.into();
            raw.i_links_count = 1.into();
        })
    }),
    Kind::new("reserved-inode-random-bytes", "", |t| {
        let mut random = t.random.clone();
        t.inode_bytes(Ino(6), |bytes| bytes.fill_with(|| random.next_u64() as u8))
    }),
    Kind::new("resize-inode-zeroed", "resize_inode", |t| {
        t.inode_bytes(Ino::RESIZE, |bytes| bytes.fill(0))
    }),
    Kind::new("resize-inode-mode", "resize_inode", |t| {
        t.inode(Ino::RESIZE, |raw| raw.i_mode = 0o040_755.into())
    }),
    Kind::new("resize-inode-size", "resize_inode", |t| {
        t.inode(Ino::RESIZE, |raw| raw.i_size_lo = 12.into())
    })
    .unseen("e2fsck leaves the size of this inode alone"),
    Kind::new("resize-inode-size-high", "resize_inode", |t| {
        t.inode(Ino::RESIZE, |raw| raw.i_size_high = 0x0010_0000.into())
    }),
    Kind::new("resize-inode-links", "resize_inode", |t| {
        t.inode(Ino::RESIZE, |raw| raw.i_links_count = 0.into())
    }),
    Kind::new("resize-inode-direct-block", "resize_inode", |t| {
        let free = t.free_block()?.0 as u32;
        t.inode(Ino::RESIZE, |raw| put32(&mut raw.i_block, 0, free))
    }),
    Kind::new("resize-inode-without-its-block", "resize_inode", |t| {
        resize_block(t)?;
        t.inode(Ino::RESIZE, |raw| raw.i_block.fill(0))
    }),
    Kind::new("resize-inode-block-outside", "resize_inode", |t| {
        resize_block(t)?;
        t.inode(Ino::RESIZE, |raw| {
            put32(&mut raw.i_block, 13 * 4, 0xFFFF_0000)
        })
    }),
    Kind::new("resize-inode-block-zeroed", "resize_inode", |t| {
        let block = resize_block(t)?;
        t.block(block).fill(0);
        Some(())
    }),
    Kind::new("resize-inode-block-number", "resize_inode", |t| {
        let block = resize_block(t)?;
        let bytes = t.block(block);
        let at = (0..bytes.len())
            .step_by(4)
            .find(|&at| get32(bytes, at) != 0)?;
        let number = get32(bytes, at) + 1;
        put32(bytes, at, number);
        Some(())
    }),
    Kind::new("resize-inode-without-the-feature", "^resize_inode", |t| {
        t.inode(Ino::RESIZE, |raw| {
            raw.i_mode = 0o100_600.into();
            raw.i_links_count = 1.into();
            raw.i_size_lo = 4096.into();
        })
    })
    .unseen("a resize inode without blocks, as the kernel leaves it when it is used up"),
    Kind::new("mmp-magic", "mmp", |t| {
        mmp(t, |mmp| mmp.mmp_magic = 1.into())
    }),
    Kind::new("mmp-checksum", "mmp,metadata_csum", |t| {
        let place = Pblk(t.clean.superblock.s_mmp_block.get());
        t.block(place)[1020] ^= 0x55;
        Some(())
    }),
    Kind::new("mmp-under-examination", "mmp", |t| {
        mmp(t, |mmp| mmp.mmp_seq = EXT4_MMP_SEQ_FSCK.into())
    })
    .hopeless("another e2fsck may be at work"),
    Kind::new("mmp-block-zero", "mmp", |t| {
        t.superblock(|sb| sb.s_mmp_block = 0.into())
    }),
    Kind::new("mmp-block-outside", "mmp", |t| {
        t.superblock(|sb| sb.s_mmp_block = 0x7FFF_FFFF.into())
    }),
    Kind::new("mmp-block-in-the-descriptors", "mmp", |t| {
        t.superblock(|sb| sb.s_mmp_block = 1.into())
    }),
];
