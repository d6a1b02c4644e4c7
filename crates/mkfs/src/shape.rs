//! How many groups, inodes and descriptor blocks: the superblock before anything is allocated.

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};
use uext4_ondisk::group_desc::{DESC_SIZE_32, DESC_SIZE_64};
use uext4_ondisk::inode::{FULL_EXTRA_ISIZE, GOOD_OLD_INODE_SIZE};
use uext4_ondisk::superblock::{
    CHECKSUM_TYPE_CRC32C, EXT4_SUPER_MAGIC, FLAGS_SIGNED_HASH, STATE_VALID, SuperBlock,
};
use uext4_ondisk::{BlockSize, Ino, has_sparse_backup};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::extended::size_in_blocks;
use crate::options::Options;
use crate::resolve::Parameters;
use crate::{Error, journal};

/// `s_default_mount_opts`: user_xattr and acl.
const DEFAULT_MOUNT_OPTS: u32 = 0x000C;
/// `s_def_hash_version`: half MD4.
const HASH_HALF_MD4: u8 = 1;
/// `s_flags`: experimental code may mount this.
const FLAGS_TEST_FILESYS: u32 = 0x4;
/// `s_encrypt_algos`: AES-256-XTS for contents, AES-256-CTS for names.
const ENCRYPT_ALGORITHMS: [u8; 4] = [1, 4, 0, 0];
/// `s_encoding`: UTF-8 as of Unicode 12.1.
const ENCODING_UTF8_12_1: u16 = 1;
/// `s_rev_level`: features and inode sizes exist.
const DYNAMIC_REV: u32 = 1;
/// Free blocks that the last group must have beyond its metadata, or it is dropped.
pub(crate) const LAST_GROUP_MIN_FREE: u64 = 50;
/// Most groups, because memory is taken for each: 512 TiB with 4 KiB blocks.
const MAX_GROUPS: u32 = 1 << 22;
/// Smallest group, in blocks.
const MIN_GROUP_LEN: u32 = 256;
/// The descriptor table has room to grow this many times.
const GROWTH: u64 = 1024;

/// The counts that depend on one another.
#[derive(Clone, Copy, Debug)]
struct Counts {
    blocks: u64,
    blocks_per_group: u32,
    groups: u32,
    inodes_per_group: u32,
    itable_blocks: u32,
    gdt_blocks: u32,
    reserved_gdt: u32,
    features: Features,
}

/// The superblock of an empty file system, free counts and checksum still to come.
pub(crate) fn superblock(params: &Parameters, options: &Options) -> Result<SuperBlock, Error> {
    let (counts, reserved) = settle(params, options)?;
    let mut sb = fixed_fields(params, options, counts.features);
    sb.s_inodes_count = (counts.groups * counts.inodes_per_group).into();
    sb.s_blocks_count_lo = (counts.blocks as u32).into();
    sb.s_blocks_count_hi = ((counts.blocks >> 32) as u32).into();
    sb.s_r_blocks_count_lo = (reserved as u32).into();
    sb.s_r_blocks_count_hi = ((reserved >> 32) as u32).into();
    sb.s_blocks_per_group = counts.blocks_per_group.into();
    sb.s_clusters_per_group = (counts.blocks_per_group >> params.cluster_bits).into();
    sb.s_inodes_per_group = counts.inodes_per_group.into();
    sb.s_reserved_gdt_blocks = (counts.reserved_gdt as u16).into();
    if counts.features.compat.contains(Compat::SPARSE_SUPER2) {
        sb.s_backup_bgs = backup_groups(options, counts.groups);
    }
    Ok(sb)
}

/// Finds counts that hold together, and the blocks reserved for root.
///
/// Where the last group is dropped, its share of the reserved blocks goes too. Where a group
/// would have more inodes than a bitmap block has bits, groups are made smaller, which brings
/// back the dropped blocks but not the share; not with clusters. Part of a cluster at the end is
/// dropped first, but not its share.
fn settle(params: &Parameters, options: &Options) -> Result<(Counts, u64), Error> {
    let wished = (options.reserved_percent * params.blocks as f64 / 100.0) as u64;
    let mut reserved = wished;
    let whole = params.blocks >> params.cluster_bits << params.cluster_bits;
    let mut blocks = whole;
    let mut blocks_per_group = params.blocks_per_group;
    loop {
        let Some(counts) = count(params, options, blocks, blocks_per_group)? else {
            blocks = whole;
            blocks_per_group = blocks_per_group
                .checked_sub(8)
                .filter(|&n| n >= MIN_GROUP_LEN && params.cluster_bits == 0)
                .ok_or(too_many_inodes(params, blocks))?;
            continue;
        };
        match short_last_group(params, options, &counts)? {
            // More than half is taken for damage.
            None => return Ok((small_goes_without(counts), reserved.min(blocks / 2))),
            Some(without) => {
                blocks = without;
                reserved = (wished as f64 / params.blocks as f64 * blocks as f64) as u64;
            }
        }
    }
}

/// Where few blocks are left there is no journal, whatever was asked for.
fn small_goes_without(mut counts: Counts) -> Counts {
    if journal::default_blocks(counts.blocks).is_none() {
        let compat = &mut counts.features.compat;
        compat.remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE);
    }
    counts
}

fn first_data_block(params: &Parameters) -> u64 {
    u64::from(params.block_size == BlockSize::MIN && params.cluster_bits == 0)
}

fn descs_per_block(params: &Parameters) -> u32 {
    params.block_size.bytes() / desc_size(params.features) as u32
}

fn desc_size(features: Features) -> usize {
    if features.incompat.contains(Incompat::BIT64) {
        DESC_SIZE_64
    } else {
        DESC_SIZE_32
    }
}

/// The counts for this many blocks in groups of this size; `None` if a group would have more inodes
/// than a bitmap block has bits.
fn count(
    params: &Parameters,
    options: &Options,
    blocks: u64,
    blocks_per_group: u32,
) -> Result<Option<Counts>, Error> {
    let in_groups = blocks
        .checked_sub(first_data_block(params))
        .filter(|&n| n > 0)
        .ok_or(Error::TooSmall {
            blocks,
            block_size: params.block_size.bytes(),
            what: "a superblock",
        })?;
    let groups = in_groups.div_ceil(blocks_per_group.into());
    let groups = u32::try_from(groups)
        .ok()
        .filter(|&groups| groups <= MAX_GROUPS)
        .ok_or(Error::TooLarge {
            blocks,
            block_size: params.block_size.bytes(),
            why: "more than 4194304 groups",
        })?;
    let Some(inodes_per_group) = inodes_per_group(params, groups, blocks)? else {
        return Ok(None);
    };
    let itable_bytes = u64::from(inodes_per_group) * u64::from(params.inode_size);
    let mut counts = Counts {
        blocks,
        blocks_per_group,
        groups,
        inodes_per_group,
        itable_blocks: params.block_size.blocks_for(itable_bytes) as u32,
        gdt_blocks: groups.div_ceil(descs_per_block(params)),
        reserved_gdt: 0,
        features: params.features,
    };
    reserve_gdt(params, options, &mut counts)?;
    Ok(Some(counts))
}

fn too_many_inodes(params: &Parameters, blocks: u64) -> Error {
    Error::TooManyInodes {
        inodes: params.inodes,
        inode_size: params.inode_size,
        blocks,
    }
}

/// Inodes of a group: rounded up to fill their blocks, then down to whole bytes of the bitmap.
/// `None` if the bitmap block has too few bits.
fn inodes_per_group(params: &Parameters, groups: u32, blocks: u64) -> Result<Option<u32>, Error> {
    let per_block = params.block_size.bytes() / u32::from(params.inode_size);
    // The reserved ones, lost+found, and one to use.
    let wished = params.inodes.max(u64::from(Ino::GOOD_OLD_FIRST.0) + 1);
    let per_group = wished.div_ceil(groups.into());
    if per_group > u64::from(8 * params.block_size.bytes()) {
        return Ok(None);
    }
    // The descriptor counts free inodes in 16 bits.
    let most = (1 << 16) - per_block;
    let per_group = (per_group as u32).min(most);
    let filled = per_group.div_ceil(per_block) * per_block;
    let mut whole = (filled & !7).max(8);
    // Where rounding down would leave no room for the reserved inodes, round up.
    if groups == 1 && whole < Ino::GOOD_OLD_FIRST.0 {
        whole += 8;
    }
    while u64::from(whole) * u64::from(groups) > u64::from(u32::MAX) {
        whole = whole
            .checked_sub(per_block.max(8))
            .ok_or(too_many_inodes(params, blocks))?;
    }
    Ok(Some(whole))
}

/// Decides on `resize_inode` and `meta_bg`, and how many descriptor blocks to reserve.
fn reserve_gdt(params: &Parameters, options: &Options, counts: &mut Counts) -> Result<(), Error> {
    let most = params.block_size.bytes() / 4;
    let asked = match options.extended.resize {
        Some(size) => reserve_for(params, options, size_in_blocks(size, params.block_size))?,
        None => 0,
    };
    if asked > 0 {
        let feature = "resize_inode";
        if counts.features.incompat.contains(Incompat::META_BG) {
            let why = "asked for by -E resize, but excluded by meta_bg";
            return Err(Error::Feature { feature, why });
        }
        if !counts.features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            let why = "asked for by -E resize, but needs sparse_super";
            return Err(Error::Feature { feature, why });
        }
        counts.features.compat |= Compat::RESIZE_INODE;
        counts.reserved_gdt = asked.min(most);
    } else if counts.features.compat.contains(Compat::RESIZE_INODE) {
        let target = counts.blocks.saturating_mul(GROWTH).min(u32::MAX.into());
        let in_groups = target.saturating_sub(first_data_block(params));
        let groups = in_groups.div_ceil(counts.blocks_per_group.into()) as u32;
        let gdt = groups.div_ceil(descs_per_block(params));
        counts.reserved_gdt = gdt.saturating_sub(counts.gdt_blocks).min(most);
    }
    let old_style = !counts.features.incompat.contains(Incompat::META_BG);
    if old_style && counts.gdt_blocks + counts.reserved_gdt > counts.blocks_per_group / 4 * 3 {
        // Copies of so many descriptors would leave too little of the groups that hold them.
        counts.features.incompat |= Incompat::META_BG;
        counts.features.compat.remove(Compat::RESIZE_INODE);
        counts.reserved_gdt = 0;
    }
    Ok(())
}

/// Descriptor blocks more than now that `target` blocks need; 0 where the last one has room enough.
fn reserve_for(params: &Parameters, options: &Options, target: u64) -> Result<u32, Error> {
    if target <= params.blocks || target > u64::from(u32::MAX) {
        return Err(Error::Option {
            flag: "-E resize",
            value: format!("{target} blocks"),
            why: "not more than the file system has, or not below 2^32",
        });
    }
    let whole_bitmap = 8 * params.block_size.bytes();
    let per_group = options.blocks_per_group.unwrap_or(whole_bitmap);
    let gdt = |blocks: u64| {
        // OK to divide: a size of groups that was said was checked.
        let groups = blocks.div_ceil(per_group.into());
        groups.div_ceil(descs_per_block(params).into())
    };
    // Both are below 2^32.
    Ok((gdt(target) - gdt(params.blocks)) as u32)
}

/// If the last group cannot hold its metadata and a little more: the blocks without it.
fn short_last_group(
    params: &Parameters,
    options: &Options,
    counts: &Counts,
) -> Result<Option<u64>, Error> {
    let own = 2 + u64::from(counts.itable_blocks);
    let descriptors = u64::from(counts.gdt_blocks + counts.reserved_gdt);
    let meta_bg = counts.features.incompat.contains(Incompat::META_BG);
    let first = own + 1 + if meta_bg { 1 } else { descriptors };
    if first > u64::from(counts.blocks_per_group) {
        return Err(too_many_inodes(params, counts.blocks));
    }
    let last_group = counts.groups - 1;
    let start =
        first_data_block(params) + u64::from(last_group) * u64::from(counts.blocks_per_group);
    let left = counts.blocks - start;
    if last_group == 0 {
        if left < first {
            return Err(Error::TooSmall {
                blocks: counts.blocks,
                block_size: params.block_size.bytes(),
                what: "the metadata of one group",
            });
        }
        return Ok(None);
    }
    // All descriptors count, even where `meta_bg` spreads them.
    let copies = if has_super(counts, options, last_group) {
        1 + descriptors
    } else {
        0
    };
    let short =
        left < u64::from(counts.blocks_per_group) && left < own + copies + LAST_GROUP_MIN_FREE;
    Ok(short.then_some(start))
}

/// As [`uext4_ondisk::Geometry::has_super`], before there is a geometry.
fn has_super(counts: &Counts, options: &Options, group: u32) -> bool {
    if counts.features.compat.contains(Compat::SPARSE_SUPER2) {
        return group == 0 || backup_groups(options, counts.groups).contains(&group.into());
    }
    !counts.features.ro_compat.contains(RoCompat::SPARSE_SUPER) || has_sparse_backup(group.into())
}

/// `s_backup_bgs`: the second group and the last.
fn backup_groups(options: &Options, groups: u32) -> [U32; 2] {
    let last = groups - 1;
    let backups = match options.extended.num_backup_sb {
        _ if last == 0 => [0, 0],
        0 => [0, 0],
        1 => [0, 1],
        _ if last == 1 => [0, 1],
        _ => [1, last],
    };
    backups.map(U32::new)
}

/// Everything that does not depend on the counts.
fn fixed_fields(params: &Parameters, options: &Options, features: Features) -> SuperBlock {
    let mut sb = SuperBlock::zeroed();
    sb.set_features(features);
    sb.s_magic = EXT4_SUPER_MAGIC.into();
    if !options.is_revision_0 {
        sb.s_rev_level = DYNAMIC_REV.into();
        sb.s_default_mount_opts = DEFAULT_MOUNT_OPTS.into();
    }
    // mke2fs stores them in the first revision, too, although that has other fixed values.
    sb.s_first_ino = Ino::GOOD_OLD_FIRST.0.into();
    sb.s_inode_size = params.inode_size.into();
    sb.s_state = STATE_VALID.into();
    sb.s_errors = (options.errors as u16).into();
    sb.s_max_mnt_count = u16::MAX.into();
    sb.s_first_data_block = (first_data_block(params) as u32).into();
    sb.s_log_block_size = (params.block_size.log2() - BlockSize::MIN.log2()).into();
    sb.s_log_cluster_size = sb.s_log_block_size + U32::new(params.cluster_bits.into());
    if usize::from(params.inode_size) > GOOD_OLD_INODE_SIZE {
        sb.s_min_extra_isize = FULL_EXTRA_ISIZE.into();
        sb.s_want_extra_isize = FULL_EXTRA_ISIZE.into();
    }
    if features.incompat.contains(Incompat::BIT64) {
        sb.s_desc_size = (DESC_SIZE_64 as u16).into();
    }
    let time = U32::new(options.time);
    sb.s_mkfs_time = time;
    sb.s_lastcheck = time;
    sb.s_wtime = time;
    sb.s_uuid = options.uuid;
    sb.s_volume_name = options.label;
    sb.s_last_mounted = options.last_mounted;
    // OK to unwrap: 16 bytes are four words.
    sb.s_hash_seed = <[U32; 4]>::read_from_bytes(&options.hash_seed).unwrap();
    sb.s_def_hash_version = HASH_HALF_MD4;
    let test_fs = if options.extended.test_fs {
        FLAGS_TEST_FILESYS
    } else {
        0
    };
    sb.s_flags = (FLAGS_SIGNED_HASH | test_fs).into();
    sb.s_mmp_interval = options.extended.mmp_update_interval.into();
    sb.s_raid_stride = (options.extended.stride as u16).into();
    sb.s_raid_stripe_width = options.extended.stripe_width.into();
    sb.s_log_groups_per_flex = params.log_groups_per_flex;
    if features.metadata_csum() {
        sb.s_checksum_type = CHECKSUM_TYPE_CRC32C;
    }
    if features.incompat.contains(Incompat::ENCRYPT) {
        sb.s_encrypt_algos = ENCRYPT_ALGORITHMS;
    }
    if features.incompat.contains(Incompat::CASEFOLD) {
        sb.s_encoding = ENCODING_UTF8_12_1.into();
        sb.s_encoding_flags = u16::from(options.extended.strict_encoding).into();
    }
    if features.incompat.contains(Incompat::CSUM_SEED) {
        sb.s_checksum_seed = CsumSeed::from_uuid(&options.uuid).0.into();
    }
    sb
}
