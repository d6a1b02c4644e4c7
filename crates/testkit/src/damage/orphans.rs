//! Damage to the list of orphans and to the orphan file.

use uext4_ondisk::num::index;
use uext4_ondisk::{Ino, orphan};

use super::target::put32;
use super::{Kind, Known, Target};

fn orphan_file<'a>(t: &Target<'a>) -> Option<&'a Known> {
    t.clean
        .known(Ino(t.clean.superblock.s_orphan_file_inum.get()))
}

/// Changes a block of the orphan file. Its sum is made right only if its end was left alone.
fn block(t: &mut Target<'_>, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let known = orphan_file(t)?;
    let mapped = t.one_of(&known.blocks)?;
    let seed = t.seed_of(known);
    let bytes = t.block(mapped.pblk);
    change(bytes);
    let end = bytes.len() - orphan::ORPHAN_TAIL_LEN;
    let is_whole = super::target::get32(bytes, end) == orphan::EXT4_ORPHAN_BLOCK_MAGIC;
    if seed.is_some() && is_whole {
        orphan::update_tail(bytes, mapped.pblk, seed);
    }
    Some(())
}

fn last_orphan(t: &mut Target<'_>, ino: u32) -> Option<()> {
    t.superblock(|sb| sb.s_last_orphan = ino.into())
}

const PENDING: &str = "with -n e2fsck does not walk the list, which the next mount completes";

pub(super) const KINDS: &[Kind] = &[
    Kind::new("orphan-list-outside", "", |t| last_orphan(t, 0x7FFF_FFFF)).unseen(PENDING),
    Kind::new("orphan-list-reserved", "", |t| last_orphan(t, 7)).unseen(PENDING),
    Kind::new("orphan-list-unused", "", |t| {
        let ino = t.geometry().inodes_count - 1;
        last_orphan(t, ino)
    })
    .unseen(PENDING),
    Kind::new("orphan-list-of-a-file", "", |t| {
        let known = t.with_blocks()?;
        t.hurt.inodes.insert(known.ino);
        last_orphan(t, known.ino.0)
    })
    .unseen(PENDING),
    Kind::new("orphan-list-loop", "", |t| {
        let (a, b) = (t.with_blocks()?.ino, t.with_blocks()?.ino);
        t.inode(a, |raw| raw.i_dtime = b.0.into())?;
        t.inode(b, |raw| raw.i_dtime = a.0.into())?;
        last_orphan(t, a.0)
    }),
    Kind::new("orphan-list-next-outside", "", |t| {
        let ino = t.with_blocks()?.ino;
        t.inode(ino, |raw| {
            raw.i_links_count = 0.into();
            raw.i_dtime = 0x7FFF_0000.into();
        })?;
        last_orphan(t, ino.0)
    }),
    Kind::new("orphan-list-of-the-root", "", |t| last_orphan(t, 2)).unseen(PENDING),
    Kind::new("orphan-file-magic", "orphan_file", |t| {
        block(t, |bytes| {
            let end = bytes.len();
            put32(bytes, end - 8, 7);
        })
    }),
    Kind::new("orphan-file-checksum", "orphan_file,metadata_csum", |t| {
        block(t, |_| ())?;
        let mapped = *orphan_file(t)?.blocks.first()?;
        *t.block(mapped.pblk).last_mut()? ^= 0x55;
        Some(())
    }),
    Kind::new("orphan-file-entry-outside", "orphan_file", |t| {
        block(t, |bytes| put32(bytes, 8, 0x7FFF_FFFF))
    }),
    Kind::new("orphan-file-entry-of-a-file", "orphan_file", |t| {
        let ino = t.with_blocks()?.ino;
        t.hurt.inodes.insert(ino);
        block(t, |bytes| put32(bytes, 8, ino.0))
    }),
    Kind::new("orphan-file-entry-announced", "orphan_file", |t| {
        let ino = t.with_blocks()?.ino;
        t.hurt.inodes.insert(ino);
        block(t, |bytes| put32(bytes, 8, ino.0))?;
        t.superblock(|sb| {
            sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() | 0x1_0000).into();
        })
    })
    .unseen(PENDING),
    Kind::new("orphan-file-block-zeroed", "orphan_file", |t| {
        block(t, |bytes| bytes.fill(0))
    }),
    Kind::new("orphan-file-block-random-bytes", "orphan_file", |t| {
        let mut random = t.random.clone();
        block(t, |bytes| bytes.fill_with(|| random.next_u64() as u8))
    }),
    Kind::new("orphan-file-announced-though-empty", "orphan_file", |t| {
        t.superblock(|sb| {
            sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() | 0x1_0000).into();
        })
    })
    .unseen(PENDING),
    Kind::new("orphan-file-inode-zeroed", "orphan_file", |t| {
        let ino = orphan_file(t)?.ino;
        t.inode_bytes(ino, |bytes| bytes.fill(0))
    }),
    Kind::new("orphan-file-inode-size", "orphan_file", |t| {
        let ino = orphan_file(t)?.ino;
        t.inode(ino, |raw| raw.i_size_lo = 100.into())
    }),
    Kind::new("orphan-file-inode-type", "orphan_file", |t| {
        let ino = orphan_file(t)?.ino;
        t.inode(ino, |raw| raw.i_mode = 0o040_600.into())
    }),
    Kind::new("orphan-file-number-outside", "orphan_file", |t| {
        t.superblock(|sb| sb.s_orphan_file_inum = 0x7FFF_FFFF.into())
    }),
    Kind::new("orphan-file-number-of-a-file", "orphan_file", |t| {
        let ino = t.with_blocks()?.ino;
        t.superblock(|sb| sb.s_orphan_file_inum = ino.0.into())
    }),
    Kind::new("orphan-file-hole", "orphan_file,extent", |t| {
        let known = orphan_file(t)?;
        let node = *known.nodes.first()?;
        t.node(known, node, |bytes| {
            let len = super::target::get16(bytes, 12 + 4);
            super::target::put16(bytes, 12 + 4, len - 1);
        })
    }),
    Kind::new("orphan-file-without-the-feature", "^orphan_file", |t| {
        t.superblock(|sb| {
            sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() | 0x1_0000).into();
        })
    }),
    Kind::new("inode-bitmap-of-an-orphan", "", |t| {
        let known = t.with_blocks()?;
        let (group, bit) = t.geometry().inode_group(known.ino)?;
        last_orphan(t, known.ino.0)?;
        t.inode(known.ino, |raw| raw.i_links_count = 0.into())?;
        let bit = index(bit);
        t.bitmap(group, super::Bitmap::Inodes, |bytes| {
            bytes[bit / 8] &= !(1 << (bit % 8))
        })
    }),
];
