//! Damage to quota files.

use uext4_ondisk::Ino;
use uext4_ondisk::quota::{QUOTA_BLOCK_LEN, QUOTA_TREE_DEPTH, QUOTA_TREE_ROOT, tree_slot};

use super::target::{get32, put32};
use super::{Kind, Known, Target};

/// One of the quota files.
fn file<'a>(t: &mut Target<'a>) -> Option<&'a Known> {
    let sb = &t.clean.superblock;
    let all = [
        sb.s_usr_quota_inum,
        sb.s_grp_quota_inum,
        sb.s_prj_quota_inum,
    ];
    let present: Vec<_> = all.into_iter().filter(|ino| ino.get() != 0).collect();
    let ino = t.one_of(&present)?;
    t.clean.known(Ino(ino.get()))
}

/// Where a block of a quota file is in the image.
fn place(t: &Target<'_>, known: &Known, number: u32) -> Option<usize> {
    let byte = number as usize * QUOTA_BLOCK_LEN;
    let size = t.geometry().block_size.len();
    let mapped = known
        .blocks
        .iter()
        .find(|m| m.lblk.0 as usize == byte / size)?;
    Some(t.clean.place(mapped.pblk) + byte % size)
}

/// Changes the head of a quota file.
fn head(t: &mut Target<'_>, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let known = file(t)?;
    let at = place(t, known, 0)?;
    change(&mut t.bytes[at..at + QUOTA_BLOCK_LEN]);
    Some(())
}

/// Changes a block of the tree on the way to the entry of id 0: `level` 0 is its root, 4 the leaf.
fn block(t: &mut Target<'_>, level: u32, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let known = file(t)?;
    let mut number = QUOTA_TREE_ROOT;
    for above in 0..level {
        let at = place(t, known, number)?;
        number = get32(&t.clean.bytes, at + 4 * tree_slot(0, above));
    }
    let at = place(t, known, number)?;
    change(&mut t.bytes[at..at + QUOTA_BLOCK_LEN]);
    Some(())
}

const LEAF: u32 = QUOTA_TREE_DEPTH;
/// Where the fields of the first entry of a leaf are.
const ID: usize = 16;
const INODES: usize = ID + 24;
const SPACE: usize = ID + 48;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("quota-magic", "quota", |t| {
        head(t, |bytes| put32(bytes, 0, 7))
    })
    .unseen("e2fsck compares no usage with a file of another kind"),
    Kind::new("quota-version", "quota", |t| {
        head(t, |bytes| put32(bytes, 4, 9))
    }),
    Kind::new("quota-blocks", "quota", |t| {
        head(t, |bytes| put32(bytes, 20, 0x7FFF_FFFF))
    }),
    Kind::new("quota-free-block", "quota", |t| {
        head(t, |bytes| put32(bytes, 24, 0x0FFF_FFFF))
    })
    .unseen("e2fsck looks for a free block only when it writes"),
    Kind::new("quota-head-zeroed", "quota", |t| {
        head(t, |bytes| bytes.fill(0))
    }),
    Kind::new("quota-usage-of-space", "quota", |t| {
        block(t, LEAF, |bytes| {
            let space = get32(bytes, SPACE);
            put32(bytes, SPACE, space + 4096);
        })
    }),
    Kind::new("quota-usage-of-inodes", "quota", |t| {
        block(t, LEAF, |bytes| {
            let inodes = get32(bytes, INODES);
            put32(bytes, INODES, inodes + 2);
        })
    }),
    Kind::new("quota-id", "quota", |t| {
        block(t, LEAF, |bytes| put32(bytes, ID, 4711))
    }),
    Kind::new("quota-leaf-zeroed", "quota", |t| {
        block(t, LEAF, |bytes| bytes.fill(0))
    }),
    Kind::new("quota-leaf-entries", "quota", |t| {
        block(t, LEAF, |bytes| bytes[8] = 0xFF)
    })
    .unseen("the number of entries is for those who write"),
    Kind::new("quota-tree-outside", "quota", |t| {
        block(t, 0, |bytes| put32(bytes, 0, 0x0FFF_FFFF))
    }),
    Kind::new("quota-tree-loop", "quota", |t| {
        block(t, 1, |bytes| put32(bytes, 0, QUOTA_TREE_ROOT))
    }),
    Kind::new("quota-tree-zeroed", "quota", |t| {
        block(t, 0, |bytes| bytes.fill(0))
    }),
    Kind::new("quota-tree-random-bytes", "quota", |t| {
        let mut random = t.random.clone();
        block(t, 2, |bytes| bytes.fill_with(|| random.next_u64() as u8))
    }),
    Kind::new("quota-inode-zeroed", "quota", |t| {
        let ino = file(t)?.ino;
        t.inode_bytes(ino, |bytes| bytes.fill(0))
    }),
    Kind::new("quota-inode-size", "quota", |t| {
        let ino = file(t)?.ino;
        t.inode(ino, |raw| raw.i_size_lo = 100.into())
    }),
    Kind::new("quota-inode-type", "quota", |t| {
        let ino = file(t)?.ino;
        t.inode(ino, |raw| raw.i_mode = 0o040_600.into())
    }),
    Kind::new("quota-inode-number", "quota", |t| {
        let other = t.with_blocks()?.ino.0;
        t.superblock(|sb| sb.s_usr_quota_inum = other.into())
    }),
    Kind::new("quota-inode-number-zero", "quota", |t| {
        t.superblock(|sb| sb.s_grp_quota_inum = 0.into())
    }),
    Kind::new("quota-inode-number-outside", "quota", |t| {
        t.superblock(|sb| sb.s_usr_quota_inum = 0x7FFF_FFFF.into())
    }),
    Kind::new("quota-inode-number-twice", "quota", |t| {
        t.superblock(|sb| sb.s_grp_quota_inum = sb.s_usr_quota_inum)
    }),
    Kind::new("quota-inode-number-of-a-project", "project,quota", |t| {
        let other = t.with_blocks()?.ino.0;
        t.superblock(|sb| sb.s_prj_quota_inum = other.into())
    }),
    Kind::new("quota-without-the-feature", "^quota", |t| {
        t.superblock(|sb| sb.s_usr_quota_inum = 3.into())
    })
    .unseen("without the feature the field says the place of no hidden file"),
    Kind::new("project-id-wrong", "project,quota", |t| {
        let known = t.with_blocks()?;
        t.inode(known.ino, |raw| raw.i_projid = 99.into())
    }),
    Kind::new("owner-wrong", "quota", |t| {
        let known = t.with_blocks()?;
        t.inode(known.ino, |raw| raw.i_uid = 4242.into())
    }),
];
