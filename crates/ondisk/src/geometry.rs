//! The shape of one file system, validated once, so that later code cannot divide by zero or
//! index a group that does not exist.
//!
//! ```text
//! block 0 │ group 0: super, descriptors, reserved │ bitmaps, tables (flex groups pack them) │ data
//!         │ group g: backups in some groups       │ …
//! ```
//! With 1 KiB blocks the first group starts at block 1 (`s_first_data_block`), unless `bigalloc`.

use std::iter;
use std::num::NonZeroU32;

use crate::checksum::CsumSeed;
use crate::damage::Damage;
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::group_desc::{DESC_SIZE_32, DESC_SIZE_64, DescChecksum};
use crate::inode::GOOD_OLD_INODE_SIZE;
use crate::num::{len16, lo32};
use crate::superblock::{FIRST_INO_UNTIL_REPLAY, SuperBlock};
use crate::units::{BlockSize, GroupNr, Ino, Pblk};

/// True if a group has the superblock or a copy of it under `sparse_super`: 0, 1, and the powers of
/// 3, 5 and 7.
///
/// ```
/// let groups = (0..100).filter(|&group| uext4_ondisk::has_sparse_backup(group));
/// assert_eq!(groups.collect::<Vec<_>>(), [0, 1, 3, 5, 7, 9, 25, 27, 49, 81]);
/// assert!(!uext4_ondisk::has_sparse_backup(u64::MAX));
/// ```
pub fn has_sparse_backup(group: u64) -> bool {
    let is_power = |base: u64| {
        let mut powers = iter::successors(Some(base), |power| power.checked_mul(base));
        powers.find(|&power| power >= group) == Some(group)
    };
    group < 2 || [3, 5, 7].into_iter().any(is_power)
}

/// The validated shape of a file system. Every field is within the bounds its name implies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size.
    pub block_size: BlockSize,
    /// log2 of blocks per cluster; 0 without `bigalloc`.
    pub cluster_bits: u8,
    /// Blocks of the file system, at least one group's worth of metadata.
    pub blocks_count: u64,
    /// First block of group 0: 1 with 1 KiB blocks, else 0.
    pub first_data_block: u32,
    /// Blocks of every group but the last: at most 8 × block size × cluster ratio.
    pub blocks_per_group: NonZeroU32,
    /// Clusters of every group but the last: at most 8 × block size.
    pub clusters_per_group: NonZeroU32,
    /// Inodes of every group: at most 8 × block size.
    pub inodes_per_group: NonZeroU32,
    /// Inodes of the file system: groups × inodes per group.
    pub inodes_count: u32,
    /// Groups.
    pub groups_count: NonZeroU32,
    /// Bytes of a descriptor: 32, or 64 up to 1,024 (a power of two).
    pub desc_size: u16,
    /// Bytes of an inode: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// First inode that is free for files.
    pub first_ino: u32,
    /// Descriptor blocks reserved for growing, after every copy of the descriptors.
    pub reserved_gdt_blocks: u16,
    /// log2 of groups per flex group; 0 without `flex_bg`.
    pub log_groups_per_flex: u8,
    /// First descriptor block that lies in its meta group (`meta_bg`).
    pub first_meta_bg: u32,
    /// Groups with backups under `sparse_super2`; 0 means none.
    pub backup_bgs: [u32; 2],
    /// The feature words.
    pub features: Features,
    /// Seed of all metadata checksums; `None` without `metadata_csum`.
    pub csum_seed: Option<CsumSeed>,
    /// How descriptors are summed.
    pub desc_checksum: DescChecksum,
}

/// Largest flex group the kernel accepts, as log2 of groups.
const MAX_LOG_GROUPS_PER_FLEX: u8 = 31;

impl Geometry {
    /// Validates the superblock's shape. Features are not judged here; the device's length neither.
    ///
    /// # Errors
    /// [`Damage::SuperblockField`] naming the first field that cannot be.
    pub fn new(sb: &SuperBlock) -> Result<Self, Damage> {
        let features = sb.features();
        let block_size = sb
            .s_log_block_size
            .get()
            .checked_add(BlockSize::MIN.log2())
            .and_then(BlockSize::from_log2)
            .ok_or_else(|| {
                bad(
                    "s_log_block_size",
                    sb.s_log_block_size.get(),
                    "block sizes are 1 KiB to 64 KiB",
                )
            })?;
        let cluster_bits = cluster_bits(sb, block_size)?;
        let (clusters_per_group, blocks_per_group, inodes_per_group) =
            group_shape(sb, block_size, cluster_bits)?;
        let (blocks_count, groups_count) =
            count_groups(sb, block_size, cluster_bits, blocks_per_group)?;
        let inodes_count = groups_count.get().checked_mul(inodes_per_group.get());
        if inodes_count != Some(sb.s_inodes_count.get()) {
            return Err(bad(
                "s_inodes_count",
                sb.s_inodes_count.get(),
                "not groups × inodes per group",
            ));
        }
        let (inode_size, first_ino) = inode_shape(sb, block_size)?;
        let geometry = Self {
            block_size,
            cluster_bits,
            blocks_count,
            first_data_block: sb.s_first_data_block.get(),
            blocks_per_group,
            clusters_per_group,
            inodes_per_group,
            inodes_count: sb.s_inodes_count.get(),
            groups_count,
            desc_size: desc_size(sb)?,
            inode_size,
            first_ino,
            reserved_gdt_blocks: sb.s_reserved_gdt_blocks.get(),
            log_groups_per_flex: flex_bits(sb)?,
            first_meta_bg: sb.s_first_meta_bg.get(),
            backup_bgs: sb.s_backup_bgs.map(|g| g.get()),
            features,
            csum_seed: sb.csum_seed(),
            desc_checksum: desc_checksum(sb),
        };
        geometry.check_tables()
    }

    /// The descriptor tables and inode tables must fit their groups.
    fn check_tables(self) -> Result<Self, Damage> {
        if u32::from(self.reserved_gdt_blocks) > self.block_size.bytes() / 4 {
            return Err(bad(
                "s_reserved_gdt_blocks",
                self.reserved_gdt_blocks,
                "more than an indirect block holds",
            ));
        }
        if self.features.incompat.contains(Incompat::META_BG)
            && self.first_meta_bg > self.gdt_blocks()
        {
            return Err(bad(
                "s_first_meta_bg",
                self.first_meta_bg,
                "past the last descriptor block",
            ));
        }
        let tables_end = self.gdt_block(self.gdt_blocks().saturating_sub(1)).0;
        if tables_end >= self.blocks_count {
            return Err(bad(
                "s_blocks_count",
                self.blocks_count,
                "too few to hold the group descriptors",
            ));
        }
        if self.itable_blocks() >= self.blocks_per_group.get() {
            return Err(bad(
                "s_inodes_per_group",
                self.inodes_per_group.get(),
                "the inode table does not fit its group",
            ));
        }
        Ok(self)
    }
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "the shape is validated: no divisor is 0, a group has less than 2^32 blocks, and a \
              group's number 32 bits; so 64 bits hold the block of any group, whether it exists"
)]
impl Geometry {
    /// Bytes the file system spans; fits 64 bits.
    pub fn len_bytes(&self) -> u64 {
        self.blocks_count << self.block_size.log2()
    }

    /// Blocks of one inode table.
    pub fn itable_blocks(&self) -> u32 {
        let bytes = u64::from(self.inodes_per_group.get()) * u64::from(self.inode_size);
        lo32(self.block_size.blocks_for(bytes))
    }

    /// Descriptors in a block.
    pub fn descs_per_block(&self) -> u32 {
        self.block_size.bytes() / u32::from(self.desc_size)
    }

    /// Blocks that all descriptors take.
    pub fn gdt_blocks(&self) -> u32 {
        self.groups_count.get().div_ceil(self.descs_per_block())
    }

    /// Group that block lies in and its offset there; `None` before the first group or past the
    /// end.
    pub fn group_of(&self, block: Pblk) -> Option<(GroupNr, u32)> {
        if block.0 >= self.blocks_count {
            return None;
        }
        let from_first = block.0.checked_sub(u64::from(self.first_data_block))?;
        let per_group = u64::from(self.blocks_per_group.get());
        Some((
            GroupNr(lo32(from_first / per_group)),
            lo32(from_first % per_group),
        ))
    }

    /// First block of a group.
    pub fn group_start(&self, group: GroupNr) -> Pblk {
        Pblk(
            u64::from(self.first_data_block)
                + u64::from(group.0) * u64::from(self.blocks_per_group.get()),
        )
    }

    /// Blocks of a group: all alike but the last; 0 past it.
    pub fn blocks_in_group(&self, group: GroupNr) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_start(group).0);
        lo32(left.min(self.blocks_per_group.get().into()))
    }

    /// True if blocks `start` to `start + len` lie within the file system, past its boot block.
    pub fn contains(&self, start: Pblk, len: u64) -> bool {
        start.0 >= u64::from(self.first_data_block)
            && start
                .0
                .checked_add(len)
                .is_some_and(|end| end <= self.blocks_count)
    }

    /// True if blocks `start` to `start + len` lie within a group.
    pub fn is_in_group(&self, group: GroupNr, start: Pblk, len: u64) -> bool {
        let first = self.group_start(group).0;
        let end = first.saturating_add(self.blocks_in_group(group).into());
        start.0 >= first && start.0.checked_add(len).is_some_and(|at| at <= end)
    }

    /// True if a bitmap or the inode table of a group may be at these blocks: anywhere behind the
    /// first block with `flex_bg`, and else in the group itself.
    pub fn may_place(&self, group: GroupNr, start: Pblk, len: u64) -> bool {
        let is_inside = match self.features.incompat.contains(Incompat::FLEX_BG) {
            true => self.contains(start, len),
            false => self.is_in_group(group, start, len),
        };
        is_inside && start.0 > u64::from(self.first_data_block)
    }

    /// Group and index (from 0) of an inode; `None` for 0 and past the last.
    pub fn inode_group(&self, ino: Ino) -> Option<(GroupNr, u32)> {
        let index = ino
            .0
            .checked_sub(1)
            .filter(|_| ino.0 <= self.inodes_count)?;
        Some((
            GroupNr(index / self.inodes_per_group.get()),
            index % self.inodes_per_group.get(),
        ))
    }

    /// True if the group holds a copy of the superblock (and of the descriptors without `meta_bg`).
    pub fn has_super(&self, group: GroupNr) -> bool {
        let g = group.0;
        if g == 0 {
            return true;
        }
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            return self.backup_bgs.contains(&g);
        }
        !self.features.ro_compat.contains(RoCompat::SPARSE_SUPER) || has_sparse_backup(g.into())
    }

    /// Block of the primary superblock: 1 with 1 KiB blocks, also where group 0 starts at block 0.
    pub fn superblock_block(&self) -> Pblk {
        Pblk(u64::from(self.block_size == BlockSize::MIN))
    }

    /// Block that holds descriptor block `index` (from 0, below [`Self::gdt_blocks`]) in the
    /// primary copy.
    pub fn gdt_block(&self, index: u32) -> Pblk {
        if !self.in_meta_bg(index) {
            return Pblk(self.superblock_block().0 + 1 + u64::from(index));
        }
        let first = GroupNr(index.saturating_mul(self.descs_per_block()));
        let start = match first {
            GroupNr(0) => self.superblock_block(),
            _ => self.group_start(first),
        };
        Pblk(start.0 + u64::from(self.has_super(first)))
    }

    /// Blocks that hold the backups of descriptor block `index`, ascending.
    pub fn gdt_backups(&self, index: u32) -> impl Iterator<Item = Pblk> + use<'_> {
        let meta = self.in_meta_bg(index);
        // Groups of meta groups hold no other descriptors than their own.
        let with_super = self
            .backup_groups()
            .take_while(move |_| !meta)
            .filter(|group| !self.in_meta_bg(group.0 / self.descs_per_block()));
        // The second and the last group of the meta group.
        let per_block = u64::from(self.descs_per_block());
        let first = u64::from(index) * per_block;
        let last = first + per_block - 1;
        let in_meta = [(first + 1, true), (last, last > first + 1)]
            .into_iter()
            .filter(move |&(group, other)| meta && other && group > first && group <= last)
            .filter(|&(group, _)| group < u64::from(self.groups_count.get()))
            .map(|(group, _)| GroupNr(lo32(group)));
        with_super
            .map(move |group| Pblk(self.group_start(group).0 + 1 + u64::from(index)))
            .chain(
                in_meta.map(|group| {
                    Pblk(self.group_start(group).0 + u64::from(self.has_super(group)))
                }),
            )
    }

    /// Groups that hold a backup of the superblock, ascending.
    pub fn backup_groups(&self) -> impl Iterator<Item = GroupNr> + use<'_> {
        iter::successors(self.backup_after(0), |&group| self.backup_after(group)).map(GroupNr)
    }

    /// The first group past `group` that holds a backup.
    fn backup_after(&self, group: u32) -> Option<u32> {
        let next = if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            let later = self.backup_bgs.into_iter().filter(|&g| g > group);
            later.min()?.into()
        } else if group == 0 || !self.features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            u64::from(group) + 1
        } else {
            let next_power = |base: u64| {
                let mut power = base;
                while power <= u64::from(group) {
                    power *= base;
                }
                power
            };
            next_power(3).min(next_power(5)).min(next_power(7))
        };
        u32::try_from(next)
            .ok()
            .filter(|&g| g < self.groups_count.get())
    }

    /// True if descriptor block `index` lies in its meta group.
    fn in_meta_bg(&self, index: u32) -> bool {
        self.features.incompat.contains(Incompat::META_BG) && index >= self.first_meta_bg
    }

    /// Blocks at the start of a group taken by superblock, descriptors and reserved descriptors,
    /// and in group 0 by the boot block where it has one of its own there (`bigalloc`, 1 KiB
    /// blocks).
    pub fn group_base_blocks(&self, group: GroupNr) -> u32 {
        let boot = match group {
            GroupNr(0) => lo32(self.superblock_block().0) - self.first_data_block,
            _ => 0,
        };
        self.super_and_gdt_blocks(group).saturating_add(boot)
    }

    fn super_and_gdt_blocks(&self, group: GroupNr) -> u32 {
        let superblock = u32::from(self.has_super(group));
        let per_block = self.descs_per_block();
        if self.in_meta_bg(group.0 / per_block) {
            // Its meta group's first, second and last group hold the one descriptor block.
            let place = group.0 % per_block;
            return superblock + u32::from(place == 0 || place == 1 || place == per_block - 1);
        }
        if superblock == 0 {
            return 0;
        }
        let old = if self.features.incompat.contains(Incompat::META_BG) {
            self.first_meta_bg
        } else {
            self.gdt_blocks()
        };
        old.saturating_add(1 + u32::from(self.reserved_gdt_blocks))
    }
}

fn bad(field: &'static str, value: impl Into<u64>, why: &'static str) -> Damage {
    let value = value.into();
    Damage::SuperblockField { field, value, why }
}

fn cluster_bits(sb: &SuperBlock, block_size: BlockSize) -> Result<u8, Damage> {
    if !sb.features().ro_compat.contains(RoCompat::BIGALLOC) {
        return Ok(0);
    }
    let log = sb.s_log_cluster_size.get();
    let bits = log.checked_sub(sb.s_log_block_size.get());
    // The kernel's limit is a cluster of 2^30 bytes.
    bits.filter(|&b| b.saturating_add(block_size.log2()) <= 30)
        .and_then(|b| u8::try_from(b).ok())
        .ok_or(bad(
            "s_log_cluster_size",
            log,
            "smaller than a block, or larger than 1 GiB",
        ))
}

/// Clusters, blocks and inodes per group.
fn group_shape(
    sb: &SuperBlock,
    block_size: BlockSize,
    cluster_bits: u8,
) -> Result<(NonZeroU32, NonZeroU32, NonZeroU32), Damage> {
    let bits_per_bitmap = 8 * u64::from(block_size.bytes());
    let in_group = |field, value: u32, max: u64| {
        NonZeroU32::new(value)
            .filter(|v| u64::from(v.get()) <= max)
            .ok_or_else(|| bad(field, value, "zero, or more than a bitmap block can hold"))
    };
    let clusters = if cluster_bits == 0 {
        sb.s_blocks_per_group
    } else {
        sb.s_clusters_per_group
    };
    let clusters_per_group = in_group("s_clusters_per_group", clusters.get(), bits_per_bitmap)?;
    let blocks_per_group = in_group(
        "s_blocks_per_group",
        sb.s_blocks_per_group.get(),
        bits_per_bitmap << cluster_bits,
    )?;
    if u64::from(blocks_per_group.get()) != u64::from(clusters_per_group.get()) << cluster_bits {
        return Err(bad(
            "s_blocks_per_group",
            blocks_per_group.get(),
            "not clusters per group × cluster ratio",
        ));
    }
    let inodes_per_group = in_group(
        "s_inodes_per_group",
        sb.s_inodes_per_group.get(),
        bits_per_bitmap,
    )?;
    Ok((clusters_per_group, blocks_per_group, inodes_per_group))
}

fn count_groups(
    sb: &SuperBlock,
    block_size: BlockSize,
    cluster_bits: u8,
    blocks_per_group: NonZeroU32,
) -> Result<(u64, NonZeroU32), Damage> {
    let first = sb.s_first_data_block.get();
    if first != u32::from(block_size == BlockSize::MIN && cluster_bits == 0) {
        return Err(bad(
            "s_first_data_block",
            first,
            "must be 1 with 1 KiB blocks (clusters of one block), else 0",
        ));
    }
    let blocks = sb.blocks_count();
    if blocks > u64::MAX >> 16 {
        return Err(bad("s_blocks_count", blocks, "more than 48 bits"));
    }
    let in_groups = blocks
        .checked_sub(u64::from(first))
        .filter(|&n| n > 0)
        .ok_or_else(|| bad("s_blocks_count", blocks, "no blocks"))?;
    let groups = u32::try_from(in_groups.div_ceil(u64::from(blocks_per_group.get())))
        .ok()
        .and_then(NonZeroU32::new);
    Ok((
        blocks,
        groups.ok_or_else(|| bad("s_blocks_count", blocks, "more than 2^32 groups"))?,
    ))
}

fn inode_shape(sb: &SuperBlock, block_size: BlockSize) -> Result<(u16, u32), Damage> {
    if sb.s_rev_level.get() == 0 {
        return Ok((len16(GOOD_OLD_INODE_SIZE), Ino::GOOD_OLD_FIRST.0));
    }
    let size = sb.s_inode_size.get();
    let ok = size.is_power_of_two()
        && usize::from(size) >= GOOD_OLD_INODE_SIZE
        && usize::from(size) <= block_size.len();
    if !ok {
        return Err(bad(
            "s_inode_size",
            size,
            "not a power of two from 128 to the block size",
        ));
    }
    let needs_replay = sb.features().incompat.contains(Incompat::RECOVER);
    let first = match sb.s_first_ino.get() {
        FIRST_INO_UNTIL_REPLAY if needs_replay => Ino::GOOD_OLD_FIRST.0,
        first => first,
    };
    if first < Ino::GOOD_OLD_FIRST.0 || first > sb.s_inodes_count.get() {
        return Err(bad(
            "s_first_ino",
            first,
            "below 11, or past the last inode",
        ));
    }
    Ok((size, first))
}

fn desc_size(sb: &SuperBlock) -> Result<u16, Damage> {
    if !sb.features().incompat.contains(Incompat::BIT64) {
        return Ok(len16(DESC_SIZE_32));
    }
    let size = sb.s_desc_size.get();
    if size.is_power_of_two() && usize::from(size) >= DESC_SIZE_64 && size <= 1024 {
        Ok(size)
    } else {
        Err(bad(
            "s_desc_size",
            size,
            "not a power of two from 64 to 1024",
        ))
    }
}

fn flex_bits(sb: &SuperBlock) -> Result<u8, Damage> {
    let bits = sb.s_log_groups_per_flex;
    if !sb.features().incompat.contains(Incompat::FLEX_BG) {
        Ok(0)
    } else if bits > MAX_LOG_GROUPS_PER_FLEX {
        Err(bad("s_log_groups_per_flex", bits, "more than 31"))
    } else {
        Ok(bits)
    }
}

fn desc_checksum(sb: &SuperBlock) -> DescChecksum {
    match sb.csum_seed() {
        Some(seed) => DescChecksum::Crc32c(seed),
        None if sb.features().ro_compat.contains(RoCompat::GDT_CSUM) => {
            DescChecksum::Crc16(sb.s_uuid)
        }
        None => DescChecksum::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups_of_8192(groups: u32, blocks: u32) -> SuperBlock {
        let mut sb = SuperBlock::zeroed();
        sb.s_first_data_block = 1.into();
        sb.s_blocks_per_group = 8192.into();
        sb.s_inodes_per_group = 16.into();
        sb.s_inodes_count = (groups * 16).into();
        sb.s_blocks_count_lo = blocks.into();
        sb.s_rev_level = 1.into();
        sb.s_first_ino = 11.into();
        sb.s_inode_size = 128.into();
        sb
    }

    #[test]
    fn without_flex_bg_a_group_holds_its_own_bitmaps() {
        let mut sb = groups_of_8192(3, 2 * 8192 + 101);
        let may = |sb: &SuperBlock, group, start, len| {
            Geometry::new(sb)
                .unwrap()
                .may_place(GroupNr(group), Pblk(start), len)
        };
        assert!(may(&sb, 0, 2, 8191) && !may(&sb, 0, 1, 1) && !may(&sb, 0, 2, 8192));
        assert!(may(&sb, 1, 8193, 1) && !may(&sb, 1, 8192, 1) && !may(&sb, 0, 8193, 1));
        assert!(may(&sb, 2, 16_400, 85) && !may(&sb, 2, 16_400, 86) && !may(&sb, 2, u64::MAX, 2));
        sb.s_feature_incompat = Incompat::FLEX_BG.bits().into();
        assert!(may(&sb, 0, 8193, 1) && may(&sb, 2, 2, 1) && !may(&sb, 2, 1, 1));
    }

    #[test]
    fn meta_groups_hold_no_copies_of_the_table_before_them() {
        let mut sb = groups_of_8192(100, 100 * 8192);
        let mut features = sb.features();
        features.incompat.insert(Incompat::META_BG);
        sb.set_features(features);
        sb.s_first_meta_bg = 1.into();
        let geometry = Geometry::new(&sb).unwrap();
        // Each block has the descriptors of 32 groups, and without `sparse_super` each group a
        // backup.
        let groups = |index| {
            let backups = geometry.gdt_backups(index);
            backups
                .map(|block| geometry.group_of(block).unwrap().0.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(groups(0), (1..32).collect::<Vec<_>>());
        assert_eq!(groups(1), [33, 63]);
        assert_eq!(groups(3), [97]);
    }
}
