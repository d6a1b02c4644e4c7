//! Reading what is left of a file system whose superblock is lost or whose device ends too early.
//!
//! ```text
//! primary superblock torn       its first sector is right, the second is the backup's
//! primary superblock unusable   a backup stands in for it
//!                               in both cases, if the journal that these lead to holds a
//!                               copy of the primary, that copy is newer and replaces it
//! device shorter than claimed   what is there is read, the rest is an error that names its block
//! ```
//! For writing only the torn superblock and the copy in the journal are taken: a backup alone
//! does not say how the file system was left. Left out: descriptors that are damaged alone.

mod scan;

use std::sync::Arc;

use uext4_blockdev::{BlockDevice, CutDevice};
use uext4_ondisk::features::{Compat, Incompat, RoCompat};
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Damage, Geometry, Pblk};
use zerocopy::{FromBytes, IntoBytes};

use crate::base::error::{Error, Result};
pub use scan::{FoundFs, Scan, first_at, scan};

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Groups that hold backups with `sparse_super`, the first few.
const BACKUP_GROUPS: [u32; 9] = [1, 3, 5, 7, 9, 25, 27, 49, 81];

/// What had to be done to read a file system that cannot be mounted as it lies there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rescue {
    /// The device ends before the file system does.
    pub cut_off: Option<CutOff>,
    /// The primary superblock cannot be used.
    pub superblock: Option<LostSuperblock>,
    /// The journal lies beyond the end of the device and was not replayed.
    pub journal_is_missing: bool,
    /// A repair, or a change by `tune`, was cut off on the device.
    pub cut_repair: Option<CutRepair>,
}

/// What became of a repair that was cut off while it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutRepair {
    /// Its log changes so many blocks: opened for reading, the file system is shown as the finished
    /// repair leaves it; opened for writing, the repair was finished first.
    Finished(u64),
    /// Its log is damaged: shown is what the repair left when it was cut off. Only for reading.
    LogDamaged,
}

/// How much of a file system is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutOff {
    /// Bytes the file system spans.
    pub need: u64,
    /// Bytes of the device.
    pub have: u64,
}

/// Why the primary superblock cannot be used, and which copy stands in for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSuperblock {
    /// What is wrong with the primary.
    pub why: String,
    /// The copy in use.
    pub copy: SuperblockCopy,
}

/// Where a copy of the superblock was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockCopy {
    /// The backup that begins in this block.
    Backup(Pblk),
    /// The first sector of the primary, which says how the file system was left, with the rest of
    /// the backup that begins in this block.
    FirstSector(Pblk),
    /// The journal, from which a replay would write it.
    Journal,
}

impl Rescue {
    /// Whether a backup of the superblock is in use: its counts and its state are old.
    pub(crate) fn uses_backup(&self) -> bool {
        let copy = self.superblock.as_ref().map(|lost| lost.copy);
        matches!(copy, Some(SuperblockCopy::Backup(_)))
    }
}

/// A superblock that can be used.
pub(crate) struct Usable {
    pub(crate) superblock: SuperBlock,
    /// Its block.
    pub(crate) at: Pblk,
    pub(crate) rescue: Rescue,
}

impl Usable {
    /// The superblock that was asked for, as it was `read`; a backup if that cannot be used and
    /// `may_search`.
    pub(crate) fn find(
        device: &dyn BlockDevice,
        read: Result<(SuperBlock, Pblk)>,
        may_search: bool,
    ) -> Result<Self> {
        let error = match read {
            Ok((superblock, at)) => match Geometry::new(&superblock) {
                // What cannot be read anyway is refused by its features.
                Err(damage) if superblock.features().unreadable().is_empty() => damage.into(),
                _ => {
                    let rescue = Rescue::default();
                    return Ok(Self {
                        superblock,
                        at,
                        rescue,
                    });
                }
            },
            Err(error) => error,
        };
        if !may_search || !matches!(error, Error::Corrupt(_) | Error::Device(_)) {
            return Err(error);
        }
        if let Some(torn) = Self::of_torn(device, &error) {
            return Ok(torn);
        }
        let Some((superblock, at)) = find_backup(device) else {
            return Err(error);
        };
        let copy = SuperblockCopy::Backup(at);
        Ok(Self::instead(superblock, at, copy, &error))
    }

    /// The primary superblock, for writing: as it lies there, or put together again if it is torn
    /// between its two sectors.
    pub(crate) fn primary(device: &dyn BlockDevice) -> Result<Self> {
        match superblock_at(device, SUPERBLOCK_OFFSET) {
            Ok(superblock) => Ok(Self {
                superblock,
                at: Pblk(0),
                rescue: Rescue::default(),
            }),
            Err(error) => Self::of_torn(device, &error).ok_or(error),
        }
    }

    /// The primary superblock with the second sector of a backup, if `error` is a wrong checksum
    /// and its first sector is of the same file system as the backup.
    fn of_torn(device: &dyn BlockDevice, error: &Error) -> Option<Self> {
        if !matches!(error, Error::Corrupt(Damage::SuperblockChecksum { .. })) {
            return None;
        }
        let (backup, at) = find_backup(device)?;
        let mut bytes = [0; size_of::<SuperBlock>()];
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
        bytes[SECTOR..].copy_from_slice(&backup.as_bytes()[SECTOR..]);
        let mut superblock = SuperBlock::read_from_bytes(&bytes).ok()?;
        superblock.update_checksum();
        let copy = SuperblockCopy::FirstSector(at);
        let is_same = unchanging(superblock).as_bytes() == unchanging(backup).as_bytes();
        is_same.then(|| Self::instead(superblock, Pblk(0), copy, error))
    }

    fn instead(superblock: SuperBlock, at: Pblk, copy: SuperblockCopy, error: &Error) -> Self {
        let why = error.to_string();
        let rescue = Rescue {
            superblock: Some(LostSuperblock { why, copy }),
            ..Rescue::default()
        };
        Self {
            superblock,
            at,
            rescue,
        }
    }

    /// The same after a replay, which may have brought back what `before` lacked.
    pub(crate) fn after(mut self, before: Rescue) -> Self {
        let found = self.rescue.superblock.map(|lost| lost.copy);
        let lost = before.superblock.map(|lost| LostSuperblock {
            copy: found.unwrap_or(SuperblockCopy::Journal),
            ..lost
        });
        self.rescue = Rescue {
            superblock: lost,
            ..before
        };
        self
    }

    /// The device, as long as the file system says: what is missing of it is an error when it is
    /// read.
    pub(crate) fn extend(&mut self, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        let Ok(geometry) = Geometry::new(&self.superblock) else {
            return device;
        };
        let (need, have) = (geometry.len_bytes(), device.len());
        if need <= have {
            return device;
        }
        self.rescue.cut_off = Some(CutOff { need, have });
        Arc::new(CutDevice::new(device, need, geometry.block_size.bytes()))
    }
}

/// The superblock whose 1,024 bytes begin at `offset`.
pub(crate) fn superblock_at(device: &dyn BlockDevice, offset: u64) -> Result<SuperBlock> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    let have = device.len().saturating_sub(offset);
    if have < bytes.len() as u64 {
        return Err(Error::Corrupt(Damage::Truncated {
            structure: "superblock",
            need: bytes.len() as u64,
            have,
        }));
    }
    device.read_at(offset, &mut bytes)?;
    Ok(SuperBlock::parse(&bytes)?)
}

/// A superblock without what use and tune2fs change: what is left is the same in all its copies.
fn unchanging(superblock: SuperBlock) -> SuperBlock {
    let mut fixed = SuperBlock::zeroed();
    let mut features = superblock.features();
    features.compat.remove(Compat::EXT_ATTR);
    features.incompat.remove(Incompat::RECOVER);
    let changing = RoCompat::LARGE_FILE | RoCompat::ORPHAN_PRESENT;
    features.ro_compat.remove(changing);
    fixed.set_features(features);
    fixed.s_inodes_count = superblock.s_inodes_count;
    fixed.s_blocks_count_lo = superblock.s_blocks_count_lo;
    fixed.s_blocks_count_hi = superblock.s_blocks_count_hi;
    fixed.s_first_data_block = superblock.s_first_data_block;
    fixed.s_log_block_size = superblock.s_log_block_size;
    fixed.s_log_cluster_size = superblock.s_log_cluster_size;
    fixed.s_blocks_per_group = superblock.s_blocks_per_group;
    fixed.s_clusters_per_group = superblock.s_clusters_per_group;
    fixed.s_inodes_per_group = superblock.s_inodes_per_group;
    fixed.s_rev_level = superblock.s_rev_level;
    fixed.s_first_ino = superblock.s_first_ino;
    fixed.s_inode_size = superblock.s_inode_size;
    fixed.s_uuid = superblock.s_uuid;
    fixed.s_reserved_gdt_blocks = superblock.s_reserved_gdt_blocks;
    fixed.s_journal_inum = superblock.s_journal_inum;
    fixed.s_journal_dev = superblock.s_journal_dev;
    fixed.s_hash_seed = superblock.s_hash_seed;
    fixed.s_desc_size = superblock.s_desc_size;
    fixed.s_first_meta_bg = superblock.s_first_meta_bg;
    fixed.s_mmp_block = superblock.s_mmp_block;
    fixed.s_log_groups_per_flex = superblock.s_log_groups_per_flex;
    fixed.s_checksum_type = superblock.s_checksum_type;
    fixed
}

/// The block of a backup of a superblock on a device, where one is sound: for those that ask
/// whether an ext file system was there.
pub fn backup_of(device: &dyn BlockDevice) -> Option<Pblk> {
    find_backup(device).map(|(_, at)| at)
}

/// The first backup that is sound and lies where it says: where what is readable of the primary
/// leads to, then where mke2fs puts it.
fn find_backup(device: &dyn BlockDevice) -> Option<(SuperBlock, Pblk)> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    let read = device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok();
    let primary = read.and_then(|()| SuperBlock::read_from_bytes(&bytes).ok());
    let primary = primary.filter(|primary| primary.s_magic.get() == EXT4_SUPER_MAGIC);
    let of_primary = primary.and_then(|primary| {
        let log2 = primary.s_log_block_size.get().checked_add(10)?;
        Some((
            BlockSize::from_log2(log2)?,
            primary.s_blocks_per_group.get(),
        ))
    });
    let sizes = BlockSize::MIN.log2()..=BlockSize::MAX.log2();
    let usual = sizes.filter_map(|log2| Some((BlockSize::from_log2(log2)?, 8 << log2)));
    let shapes = of_primary.into_iter().chain(usual);
    let mut places = shapes.flat_map(|(size, per_group)| {
        let first = u64::from(size.bytes() == 1024);
        let groups = BACKUP_GROUPS.into_iter();
        groups.map(move |group| (size, first + u64::from(group) * u64::from(per_group)))
    });
    places.find_map(|(size, block)| {
        let offset = size.byte_offset(Pblk(block))?;
        let found = superblock_at(device, offset).ok()?;
        let geometry = Geometry::new(&found).ok()?;
        let into = block.checked_sub(geometry.first_data_block.into())?;
        let group = into.checked_div(geometry.blocks_per_group.get().into())?;
        let is_there = geometry.block_size == size
            && into.is_multiple_of(geometry.blocks_per_group.get().into())
            && (1..u64::from(geometry.groups_count.get())).contains(&group);
        is_there.then_some((found, Pblk(block)))
    })
}
