//! The groups of a file system of which only the root directory is known.
//!
//! The inode bitmap of group 0 says how many inodes a group has: mke2fs sets the bits behind the
//! last one. Where the descriptors are left, the distance of two inode tables in a flexible group
//! says it, for the bitmap says less where the last inodes are in use; else they name that bitmap.
//! Where no descriptor is left, the bitmap lies before the inode table, at a distance that is the
//! number of groups in a flexible group, and what it says must be true of the inodes in the table.
//! Where there are checksums, those of bitmaps show how much of them is in use.
//!
//! ```text
//!  first group of a flexible group of F groups
//!  ┌──────┬───────────────┬───────────────┬──────────┬──────────┬──
//!  │ head │ block bitmaps │ inode bitmaps │ table 0  │ table 1  │ …
//!  └──────┴──── F ────────┴──── F ────────┴──────────┴──────────┴──
//! ```
//! F is 1 without `flex_bg`, and no more than there are groups. The head, with superblock and
//! descriptors, is there in groups that have a backup.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};
use uext4_ondisk::group_desc::{
    DESC_SIZE_32, DESC_SIZE_64, DescChecksum, GroupDesc, bitmap_checksum, desc_checksum,
};
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::journal::JournalHeader;
use uext4_ondisk::num::{hi32, index, len64, lo32};
use uext4_ondisk::superblock::{CHECKSUM_TYPE_CRC32C, EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{BlockSize, GroupNr, Ino, Pblk, has_sparse_backup};

use super::root::{Root, first_block};
use crate::superblock::fit::read_block;

/// Most blocks of a group: their count has 16 bits, and is a multiple of 8.
const BLOCKS_PER_GROUP_MAX: u32 = 65_528;
/// Log2 of the largest flexible group that is tried.
const FLEX_BITS_MAX: u8 = 10;
/// Most inodes with which a bitmap is compared.
const COMPARED_MAX: u32 = 4096;
/// Most groups whose descriptors are made: 64 MiB of them.
const GROUPS_MAX: u64 = 1 << 20;
/// Bytes for each of which mke2fs makes an inode: up to 512 MiB, and beyond.
const RATIOS: [u64; 2] = [4096, 16384];
/// A last group with fewer blocks than its tables and these is not made.
const LAST_GROUP_MIN: u64 = 52;

/// What is known of the groups.
pub enum Groups {
    /// Their descriptors are in place.
    Described,
    /// They have these descriptors by the usual layout.
    Made(Vec<GroupDesc>),
}

/// The size of descriptors, where any are left in place.
#[derive(Clone, Copy)]
struct Described {
    size: usize,
    first: GroupDesc,
    /// Of the second group; not one that was checked.
    second: GroupDesc,
}

/// What follows from the inode bitmap of group 0.
#[derive(Clone, Copy)]
struct Inodes {
    per_group: u32,
    /// Log2 of the groups in a flexible group, by the place of the bitmap.
    flex_bits: u8,
    /// Inodes that the bitmap says something else of than the table.
    wrong: u32,
}

/// The superblock for a root directory and the seed of its checksums, and the descriptors. `None`
/// where the device is too short.
pub fn of(
    device: &dyn BlockDevice,
    root: &Root,
    seed: Option<CsumSeed>,
) -> Option<(SuperBlock, Groups)> {
    let size = root.block_size;
    let first = u32::from(size == BlockSize::MIN);
    let blocks = device.len() >> size.log2();
    let described = described(device, root, first, seed);
    let summed = described.and_then(|described| summed_blocks(device, root, described, seed?));
    let per_group = summed.unwrap_or(size.bytes() * 8).min(BLOCKS_PER_GROUP_MAX);
    let in_groups = blocks.checked_sub(first.into())?;
    let mut groups = in_groups.div_ceil(per_group.into()).clamp(1, GROUPS_MAX);
    if let Some(described) = described {
        groups = count(device, root, described, first, groups);
    }
    let inodes = inodes(device, root, described, seed, groups).unwrap_or_else(|| Inodes {
        per_group: usual_inodes(root, blocks, groups),
        flex_bits: 4,
        wrong: 0,
    });
    let table = (u64::from(inodes.per_group) * u64::from(root.inode_size)) >> size.log2();
    let in_groups = in_groups.min(groups * u64::from(per_group));
    let mut blocks_count = u64::from(first) + in_groups;
    let last = in_groups - (groups - 1) * u64::from(per_group);
    if groups > 1 && last < table + LAST_GROUP_MIN {
        groups -= 1;
        blocks_count -= last;
    }
    let groups = u32::try_from(groups).ok()?;
    let mut superblock = SuperBlock::zeroed();
    superblock.s_magic = EXT4_SUPER_MAGIC.into();
    superblock.s_rev_level = 1.into();
    superblock.s_log_block_size = (size.log2() - BlockSize::MIN.log2()).into();
    superblock.s_log_cluster_size = superblock.s_log_block_size;
    superblock.s_first_data_block = first.into();
    superblock.s_blocks_per_group = per_group.into();
    superblock.s_clusters_per_group = per_group.into();
    superblock.s_inodes_per_group = inodes.per_group.into();
    superblock.s_inodes_count = groups.checked_mul(inodes.per_group)?.into();
    superblock.s_blocks_count_lo = lo32(blocks_count).into();
    superblock.s_blocks_count_hi = hi32(blocks_count).into();
    superblock.s_first_ino = Ino::GOOD_OLD_FIRST.0.into();
    superblock.s_inode_size = root.inode_size.into();
    superblock.s_log_groups_per_flex = inodes.flex_bits;
    superblock.s_def_hash_version = 1;
    let desc_size = match described {
        Some(described) => described.size,
        None if hi32(blocks_count) != 0 => DESC_SIZE_64,
        None => DESC_SIZE_32,
    };
    if desc_size == DESC_SIZE_64 {
        superblock.s_desc_size = (DESC_SIZE_64 as u16).into();
    }
    if let Some(seed) = seed {
        superblock.s_checksum_type = CHECKSUM_TYPE_CRC32C;
        superblock.s_checksum_seed = seed.0.into();
    }
    let has_journal = has_journal(device, root);
    if has_journal {
        superblock.s_journal_inum = Ino::JOURNAL.0.into();
    }
    let wide = desc_size == DESC_SIZE_64;
    superblock.set_features(features(device, root, seed, has_journal, wide));
    let groups = match described {
        Some(_) => Groups::Described,
        None => Groups::Made(layout(device, root, inodes, per_group, groups)),
    };
    Some((superblock, groups))
}

fn features(
    device: &dyn BlockDevice,
    root: &Root,
    seed: Option<CsumSeed>,
    has_journal: bool,
    wide: bool,
) -> Features {
    let mut compat = Compat::EXT_ATTR | Compat::DIR_INDEX | Compat::SPARSE_SUPER2;
    compat.set(Compat::HAS_JOURNAL, has_journal);
    let mut incompat = Incompat::FLEX_BG;
    incompat.set(Incompat::FILETYPE, root.has_file_types());
    incompat.set(Incompat::EXTENTS, has_extents(device, root));
    incompat.set(Incompat::BIT64, wide);
    incompat.set(Incompat::CSUM_SEED, seed.is_some());
    let mut ro_compat = RoCompat::LARGE_FILE | RoCompat::HUGE_FILE | RoCompat::DIR_NLINK;
    ro_compat.set(RoCompat::EXTRA_ISIZE, root.inode_size > 128);
    ro_compat.set(RoCompat::METADATA_CSUM, seed.is_some());
    Features {
        compat,
        incompat,
        ro_compat,
    }
}

/// The descriptors behind the superblock, if the first one names the root's inode table.
fn described(
    device: &dyn BlockDevice,
    root: &Root,
    first: u32,
    seed: Option<CsumSeed>,
) -> Option<Described> {
    let bytes = read_block(device, root.block_size, Pblk(u64::from(first) + 1))?;
    let at = |size: usize| {
        let bytes = &bytes[..size];
        let desc = GroupDesc::parse(bytes);
        let summed = seed.map(|seed| {
            desc_checksum(bytes, GroupNr(0), DescChecksum::Crc32c(seed)) == desc.checksum
        });
        (desc.inode_table == root.table && desc.inode_bitmap.0 != 0).then_some((desc, summed))
    };
    let (first, summed) = at(DESC_SIZE_32)?;
    let narrow = Described {
        size: DESC_SIZE_32,
        first,
        second: GroupDesc::parse(&bytes[DESC_SIZE_32..DESC_SIZE_32 * 2]),
    };
    // In a wide descriptor the upper half begins with the upper halves of three numbers: zeroes.
    // A narrow one is followed by the next, or, behind the last, by zeroes alone.
    let upper = &bytes[DESC_SIZE_32..DESC_SIZE_64];
    let next = &bytes[DESC_SIZE_64..DESC_SIZE_64 * 2];
    let is_wide = upper[..12].iter().all(|&byte| byte == 0)
        && (upper[12..].iter().any(|&byte| byte != 0) || next.iter().any(|&byte| byte != 0));
    let wide = at(DESC_SIZE_64).map(|(first, summed)| {
        let size = DESC_SIZE_64;
        let second = GroupDesc::parse(&bytes[size..size * 2]);
        let wide = Described {
            size,
            first,
            second,
        };
        (wide, summed)
    });
    match (summed, wide) {
        (Some(true), _) => Some(narrow),
        (_, Some((wide, Some(true)))) => Some(wide),
        (_, Some((wide, _))) if is_wide => Some(wide),
        _ => Some(narrow),
    }
}

/// How many groups have descriptors, at most `most`: the file system may be shorter than the
/// device.
fn count(
    device: &dyn BlockDevice,
    root: &Root,
    described: Described,
    first: u32,
    most: u64,
) -> u64 {
    let mut found = 0;
    for block in (u64::from(first) + 1..).map(Pblk) {
        let Some(bytes) = read_block(device, root.block_size, block) else {
            break;
        };
        for bytes in bytes.chunks_exact(described.size) {
            if found >= most || GroupDesc::parse(bytes).inode_table.0 == 0 {
                return found.max(1);
            }
            found += 1;
        }
    }
    found.max(1)
}

/// What the inode bitmap of group 0 says, where there is one that agrees with the table.
fn inodes(
    device: &dyn BlockDevice,
    root: &Root,
    described: Option<Described>,
    seed: Option<CsumSeed>,
    groups: u64,
) -> Option<Inodes> {
    // The last group may not be one.
    let is_all = |distance: u64| distance == groups || distance + 1 == groups;
    let flex_bits = |distance: u64| match distance.is_power_of_two() || is_all(distance) {
        true => distance.next_power_of_two().trailing_zeros() as u8,
        false => 0,
    };
    if let Some(described) = described {
        let bitmap = described.first.inode_bitmap;
        let distance = root.table.0.saturating_sub(bitmap.0);
        let flex_bits = flex_bits(distance.min(1 << FLEX_BITS_MAX));
        let per_group = inodes_between(root, described, groups)
            .or_else(|| summed_inodes(device, root, described, seed?));
        let certain = per_group.map(|per_group| Inodes {
            per_group,
            flex_bits,
            wrong: 0,
        });
        return certain.or_else(|| judge(device, root, bitmap, flex_bits));
    }
    let powers = (0..=FLEX_BITS_MAX).map(|bits| 1 << bits);
    let distances = powers.chain([groups, groups - 1]);
    let candidates = distances
        .filter(|&distance| {
            (1..=1 << FLEX_BITS_MAX).contains(&distance) && (distance <= groups || groups == 1)
        })
        .filter_map(|distance| {
            let bitmap = root.table.0.checked_sub(distance)?;
            judge(device, root, Pblk(bitmap), flex_bits(distance))
        });
    candidates.min_by_key(|inodes| inodes.wrong)
}

/// How many inodes a group has by the distance of the first two inode tables. `None` unless they
/// belong to one flexible group: there the bitmaps follow each other, and so do the tables.
fn inodes_between(root: &Root, described: Described, groups: u64) -> Option<u32> {
    let (first, second) = (described.first, described.second);
    let follows = |one: Pblk, next: Pblk| one.0.checked_add(1) == Some(next.0);
    let is_flexible = groups > 1
        && follows(first.block_bitmap, second.block_bitmap)
        && follows(first.inode_bitmap, second.inode_bitmap);
    let blocks = second.inode_table.0.checked_sub(first.inode_table.0)?;
    let bytes = blocks.checked_mul(root.block_size.bytes().into())?;
    let per_group = u32::try_from(bytes / u64::from(root.inode_size)).ok()?;
    let most = root.block_size.bytes().saturating_mul(8);
    let can_be = is_flexible && per_group > 0 && per_group <= most && per_group.is_multiple_of(8);
    can_be.then_some(per_group)
}

/// How many inodes a group has by the checksum of the inode bitmap of group 0.
fn summed_inodes(
    device: &dyn BlockDevice,
    root: &Root,
    described: Described,
    seed: CsumSeed,
) -> Option<u32> {
    let Described { size, first, .. } = described;
    let bits = read_block(device, root.block_size, first.inode_bitmap)?;
    let unit = (root.block_size.bytes() / u32::from(root.inode_size)).max(8);
    covered(&bits, unit, seed, |sum, free| {
        bitmap_checksum(sum, &[], size) == first.inode_bitmap_csum && free == first.free_inodes
    })
}

/// How many blocks a group has by the checksum of the block bitmap of group 0.
fn summed_blocks(
    device: &dyn BlockDevice,
    root: &Root,
    described: Described,
    seed: CsumSeed,
) -> Option<u32> {
    let Described { size, first, .. } = described;
    let bits = read_block(device, root.block_size, first.block_bitmap)?;
    covered(&bits, 8, seed, |sum, free| {
        bitmap_checksum(sum, &[], size) == first.block_bitmap_csum && free == first.free_clusters
    })
}

/// How many bits of a bitmap, in units, have the right checksum and as many zeroes as is right.
/// `None` if there is more than one answer, as half a checksum may give.
fn covered(
    bits: &[u8],
    unit: u32,
    seed: CsumSeed,
    is_right: impl Fn(CsumSeed, u32) -> bool,
) -> Option<u32> {
    let (mut sum, mut free) = (seed, 0);
    let units = (1..).zip(bits.chunks_exact(index(unit / 8)));
    let mut right = units.filter(|(_, bytes)| {
        sum = CsumSeed(sum.over(bytes));
        free += bytes.iter().map(|byte| byte.count_zeros()).sum::<u32>();
        is_right(sum, free)
    });
    let (units, _) = right.next()?;
    right.next().is_none().then_some(units * unit)
}

/// Reads a block as the inode bitmap of group 0.
fn judge(device: &dyn BlockDevice, root: &Root, bitmap: Pblk, flex_bits: u8) -> Option<Inodes> {
    let bits = read_block(device, root.block_size, bitmap)?;
    let per_block = root.block_size.bytes() / u32::from(root.inode_size);
    let per_group = inodes_in(&bits, per_block.max(8))?;
    let compared = per_group.min(COMPARED_MAX);
    let mut table = vec![0; index(compared) * usize::from(root.inode_size)];
    let at = root.block_size.byte_offset(root.table)?;
    device.read_at(at, &mut table).ok()?;
    let (mut used, mut wrong) = (0, 0);
    let inodes = (1..)
        .map(Ino)
        .zip(table.chunks_exact(root.inode_size.into()));
    for (ino, inode) in inodes.skip(index(Ino::GOOD_OLD_FIRST.0) - 1) {
        let links = RawInode::parse(inode, ino).map_or(0, |raw| raw.i_links_count.get());
        let is_set = is_set(&bits, ino.0 - 1);
        used += u32::from(is_set);
        wrong += u32::from(is_set != (links != 0));
    }
    // The bitmap may be somewhat older than the table, if the power went.
    let is_right = wrong <= 2 + used / 8;
    is_right.then_some(Inodes {
        per_group,
        flex_bits,
        wrong,
    })
}

/// How many inodes a group has by its inode bitmap, a multiple of `unit`: all bits behind them are
/// set. `None` if it cannot be the bitmap of group 0, or is full.
pub fn inodes_in(bits: &[u8], unit: u32) -> Option<u32> {
    if !(0..Ino::GOOD_OLD_FIRST.0 - 1).all(|bit| is_set(bits, bit)) {
        return None;
    }
    let end = bits.iter().rposition(|&byte| byte != 0xFF)?;
    let free = u32::try_from(end * 8 + 8).ok()?;
    let free = free - bits[end].leading_ones();
    let per_group = free.next_multiple_of(unit);
    (u64::from(per_group) <= len64(bits.len()) * 8).then_some(per_group)
}

fn is_set(bits: &[u8], bit: u32) -> bool {
    let byte = bits.get(index(bit / 8));
    byte.is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
}

/// How many inodes mke2fs gives a group without options: at most one for each block.
fn usual_inodes(root: &Root, blocks: u64, groups: u64) -> u32 {
    let len = blocks << root.block_size.log2();
    let ratio = RATIOS[usize::from(len >= 512 << 20)].max(root.block_size.bytes().into());
    let unit = (root.block_size.bytes() / u32::from(root.inode_size)).max(8);
    let most = root.block_size.bytes() * 8;
    let per_group = (len / ratio).div_ceil(groups).min(most.into());
    lo32(per_group).max(unit).next_multiple_of(unit).min(most)
}

/// Whether an inode near the start of the table has an extent tree.
fn has_extents(device: &dyn BlockDevice, root: &Root) -> bool {
    let numbers = Ino::ROOT.0..=root.block_size.bytes() / u32::from(root.inode_size);
    numbers.map(Ino).any(|ino| {
        let inode = root.inode(device, ino);
        let inode = inode.and_then(|bytes| RawInode::parse(&bytes, ino).ok());
        inode.is_some_and(|inode| {
            let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
            let is_used = FileType::from_mode(inode.i_mode.get()).is_some();
            is_used && flags.contains(InodeFlags::EXTENTS)
        })
    })
}

/// Whether inode 8 leads to a journal.
fn has_journal(device: &dyn BlockDevice, root: &Root) -> bool {
    let inode = root.inode(device, Ino::JOURNAL);
    let inode = inode.and_then(|bytes| RawInode::parse(&bytes, Ino::JOURNAL).ok());
    let is_file = |inode: &RawInode| {
        FileType::from_mode(inode.i_mode.get()) == Some(FileType::Regular)
            && inode.i_links_count.get() != 0
    };
    let first = inode
        .filter(is_file)
        .and_then(|inode| first_block(device, root.block_size, &inode))
        .and_then(|block| read_block(device, root.block_size, block));
    first.is_some_and(|bytes| JournalHeader::parse(&bytes).is_some())
}

/// The descriptors of the usual layout.
fn layout(
    device: &dyn BlockDevice,
    root: &Root,
    inodes: Inodes,
    per_group: u32,
    groups: u32,
) -> Vec<GroupDesc> {
    let size = root.block_size;
    let groups = u64::from(groups);
    let flex = 1_u64 << inodes.flex_bits;
    let table = (u64::from(inodes.per_group) * u64::from(root.inode_size)) >> size.log2();
    let first = u64::from(size == BlockSize::MIN);
    // A group that is alone in its flexible group leaves room for the bitmaps of all others.
    let places = |from: u64| match flex.min(groups - from) {
        1 => flex,
        count => count,
    };
    let head = (root.table.0).saturating_sub(places(0) * 2 + first);
    let mut made = Vec::new();
    let (mut start, mut table_at) = (0, 0);
    for group in 0..groups {
        let at = group % flex;
        // The bitmaps of this flexible group.
        let count = places(group - at);
        if at == 0 {
            let begin = first + group * u64::from(per_group);
            let is_bitmap = |skip: u64| {
                let bits = read_block(device, size, Pblk(begin + skip + count));
                bits.is_some_and(|bits| is_padded(&bits, inodes.per_group))
            };
            start = match (is_bitmap(0), is_bitmap(head)) {
                (true, false) if group != 0 => begin,
                (false, false) if !has_sparse_backup(group) => begin,
                _ => begin + head,
            };
            table_at = start + count * 2;
        }
        // No table lies across a copy of the superblock and its descriptors.
        let last = (table_at + table).saturating_sub(first + 1) / u64::from(per_group);
        let free = first + last * u64::from(per_group) + head;
        if has_sparse_backup(last) && table_at < free {
            table_at = free;
        }
        made.push(GroupDesc {
            block_bitmap: Pblk(start + at),
            inode_bitmap: Pblk(start + count + at),
            inode_table: Pblk(table_at),
            ..GroupDesc::default()
        });
        table_at += table;
    }
    made
}

/// Whether a block can be an inode bitmap: the bits behind the inodes are set, and there are some.
fn is_padded(bits: &[u8], inodes: u32) -> bool {
    let padding = bits.get(index(inodes / 8)..).unwrap_or_default();
    !padding.is_empty() && padding.iter().all(|&byte| byte == 0xFF)
}
