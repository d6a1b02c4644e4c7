//! What inodes own, as the inode and the quota files count it.

use uext4_ondisk::Geometry;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{InodeFlags, RawInode};
use uext4_ondisk::mapping::MapState;
use uext4_ondisk::num::{hi32, join16, join32, lo16, lo32};
use uext4_ondisk::quota::{
    QUOTA_BLOCK_LEN, QUOTA_ENTRIES_PER_LEAF, QUOTA_TREE_DEPTH, QUOTA_TREE_ROOT, QuotaHeader,
    QuotaKind, QuotaLeafHeader, RawQuotaEntry, parse_tree_block, tree_slot,
};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Ino, Lblk, Pblk};
use zerocopy::{FromBytes, IntoBytes};

use crate::batch::Batch;
use crate::{Error, Result};

/// Sectors of a block, as a shift; 0 where `i_blocks` counts blocks.
fn unit_bits(geometry: &Geometry, raw: &RawInode) -> u32 {
    let is_huge = geometry.features.ro_compat.contains(RoCompat::HUGE_FILE)
        && InodeFlags::from_bits_retain(raw.i_flags.get()).contains(InodeFlags::HUGE_FILE);
    match is_huge {
        true => 0,
        false => geometry.block_size.log2() - 9,
    }
}

fn counted(geometry: &Geometry, raw: &RawInode) -> u64 {
    match geometry.features.ro_compat.contains(RoCompat::HUGE_FILE) {
        true => join32(raw.i_blocks_lo, raw.i_blocks_high),
        false => raw.i_blocks_lo.get().into(),
    }
}

/// Blocks that an inode owns, at most those of the file system.
pub fn blocks_of(geometry: &Geometry, raw: &RawInode) -> u64 {
    let blocks = counted(geometry, raw) >> unit_bits(geometry, raw);
    blocks.min(geometry.blocks_count)
}

/// Counts further clusters, or fewer, as the inode's, and as those of its owners where quotas are
/// kept.
///
/// # Errors
/// Those of reading the quota files, which must not move in the same transaction.
pub fn charge_clusters(
    batch: &mut Batch<'_>,
    ino: Ino,
    raw: &mut RawInode,
    clusters: i64,
) -> Result<()> {
    if clusters == 0 {
        return Ok(());
    }
    add_clusters(batch.geometry(), raw, clusters);
    let superblock = batch.superblock;
    let is_own = ino.0 == superblock.s_orphan_file_inum.get() || files(&superblock).contains(&ino);
    let is_counted = ino == Ino::ROOT || ino.0 >= batch.geometry().first_ino && !is_own;
    if !batch
        .geometry()
        .features
        .ro_compat
        .contains(RoCompat::QUOTA)
        || !is_counted
    {
        return Ok(());
    }
    let bytes = (clusters << batch.geometry().cluster_bits) << batch.geometry().block_size.log2();
    for (file, kind, id) in [
        (
            superblock.s_usr_quota_inum,
            QuotaKind::User,
            join16(raw.i_uid, raw.i_uid_high),
        ),
        (
            superblock.s_grp_quota_inum,
            QuotaKind::Group,
            join16(raw.i_gid, raw.i_gid_high),
        ),
        (
            superblock.s_prj_quota_inum,
            QuotaKind::Project,
            raw.i_projid.get(),
        ),
    ] {
        let file = Ino(file.get());
        if file != Ino(0) {
            charge(batch, file, kind, id, bytes)?;
        }
    }
    Ok(())
}

/// Files of quotas.
pub fn files(superblock: &SuperBlock) -> Vec<Ino> {
    let files = [
        superblock.s_usr_quota_inum,
        superblock.s_grp_quota_inum,
        superblock.s_prj_quota_inum,
    ];
    let files = files.map(|file| Ino(file.get()));
    files.into_iter().filter(|&file| file != Ino(0)).collect()
}

/// Adds to the space in use that one quota file has for an id.
fn charge(batch: &mut Batch<'_>, file: Ino, kind: QuotaKind, id: u32, bytes: i64) -> Result<()> {
    let header = quota_block(batch, file, 0)?;
    let blocks = QuotaHeader::parse(&header.bytes, kind)?.dqi_blocks.get();
    let mut number = QUOTA_TREE_ROOT;
    for level in 0..QUOTA_TREE_DEPTH {
        let table = quota_block(batch, file, number)?;
        let numbers = parse_tree_block(&table.bytes, blocks)?;
        number = numbers
            .get(tree_slot(id, level))
            .map_or(0, |number| number.get());
        if number == 0 {
            let what = "the quota files do not count the owner of a file";
            return Err(Error::Unsound { what });
        }
    }
    let leaf = quota_block(batch, file, number)?;
    let slots = leaf.bytes[size_of::<QuotaLeafHeader>()..].chunks_exact(size_of::<RawQuotaEntry>());
    for (slot, raw) in (0..QUOTA_ENTRIES_PER_LEAF).zip(slots) {
        let Ok(mut entry) = RawQuotaEntry::read_from_bytes(raw) else {
            continue;
        };
        if entry.dqb_id.get() == id && raw.iter().any(|&byte| byte != 0) {
            let space = entry.dqb_curspace.get().saturating_add_signed(bytes);
            entry.dqb_curspace = space.into();
            let at = size_of::<QuotaLeafHeader>() + slot * size_of::<RawQuotaEntry>();
            let block = batch.edit(leaf.block)?;
            block[leaf.offset + at..][..size_of::<RawQuotaEntry>()]
                .copy_from_slice(entry.as_bytes());
            return Ok(());
        }
    }
    let what = "the quota files do not count the owner of a file";
    Err(Error::Unsound { what })
}

/// A block of a quota file, in the block of the file system that holds it.
struct QuotaBlock {
    block: Pblk,
    offset: usize,
    bytes: Vec<u8>,
}

fn quota_block(batch: &Batch<'_>, file: Ino, number: u32) -> Result<QuotaBlock> {
    let image = &batch.state.image;
    let inode = image.inode(file)?;
    let size = batch.geometry().block_size;
    let at = u64::from(number) * QUOTA_BLOCK_LEN as u64;
    let lblk = u32::try_from(at >> size.log2()).unwrap_or(u32::MAX);
    let run = image.map(&inode, Lblk(lblk), 1)?;
    if run.state != MapState::Written {
        let what = "a quota file has a hole";
        return Err(Error::Unsound { what });
    }
    let offset = at as usize & (size.len() - 1);
    let whole = batch.block(run.pblk)?;
    Ok(QuotaBlock {
        block: run.pblk,
        offset,
        bytes: whole[offset..offset + QUOTA_BLOCK_LEN].to_vec(),
    })
}

/// Counts further clusters, or fewer, as those of an inode that no quota counts.
pub fn add_clusters(geometry: &Geometry, raw: &mut RawInode, clusters: i64) {
    let blocks = clusters << geometry.cluster_bits;
    let delta = blocks << unit_bits(geometry, raw);
    let now = counted(geometry, raw).saturating_add_signed(delta);
    raw.i_blocks_lo = lo32(now).into();
    if geometry.features.ro_compat.contains(RoCompat::HUGE_FILE) {
        raw.i_blocks_high = lo16(hi32(now)).into();
    }
}
