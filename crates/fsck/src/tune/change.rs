//! What can be changed, and the fields of the superblock that need nothing else to follow.

use uext4_ondisk::features::{Compat, Feature, FeatureBit, Incompat, RoCompat, feature_by_name};
use uext4_ondisk::num::{hi32, lo32};
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::superblock::{STATE_ERROR, STATE_VALID, SuperBlock};
use zerocopy::FromBytes;

use crate::error::{Error, Result};
use crate::make::set_feature;

/// `s_flags`: may be mounted by experimental code.
const FLAGS_TEST_FS: u32 = 0x4;
/// Longest interval between updates of the block for multiple mount protection, in seconds.
const MMP_INTERVAL_MAX: u16 = 300;

/// Blocks that only one owner may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reserved {
    /// So many.
    Blocks(u64),
    /// So many of a hundred blocks.
    Percent(f64),
}

/// A size, or a place from the start of the file system on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// In blocks of the file system.
    Blocks(u64),
    /// In bytes.
    Bytes(u64),
}

/// One thing to change.
#[derive(Clone, Debug)]
pub enum Change {
    /// `s_volume_name`, filled up with zeroes.
    Label([u8; 16]),
    /// `s_uuid`; checksums that depend on it follow.
    Uuid([u8; 16]),
    /// The seed of the hashes that order directories, which follow.
    HashSeed([u8; 16]),
    /// `s_r_blocks_count`.
    Reserved(Reserved),
    /// `s_def_resuid`.
    ReservedUser(u16),
    /// `s_def_resgid`.
    ReservedGroup(u16),
    /// `s_errors`: 1 goes on, 2 mounts read-only, 3 panics.
    Errors(u16),
    /// `s_max_mnt_count`; 0xFFFF is never.
    MountsMax(u16),
    /// `s_mnt_count`.
    Mounts(u16),
    /// `s_checkinterval` in seconds.
    CheckInterval(u32),
    /// `s_lastcheck` in seconds since 1970.
    CheckedAt(u64),
    /// `s_last_mounted`, filled up with zeroes.
    LastMounted([u8; 64]),
    /// Bits of `s_default_mount_opts` that are cleared, and those that are then set.
    DefaultMount {
        /// Cleared first.
        clear: u32,
        /// Set.
        set: u32,
    },
    /// `s_mount_opts`, filled up with zeroes.
    MountOptions([u8; 64]),
    /// `s_def_hash_version`: 0 legacy, 1 half_md4, 2 tea.
    Hash(u8),
    /// `s_raid_stride`.
    Stride(u16),
    /// `s_raid_stripe_width`.
    StripeWidth(u32),
    /// `s_mmp_interval` in seconds.
    MmpInterval(u16),
    /// Errors are noted, so that the next fsck examines everything.
    ForceFsck,
    /// Whether it may be mounted by experimental code.
    TestFs(bool),
    /// A feature is set or cleared, with all that follows.
    Feature {
        /// Its row of the table.
        feature: &'static Feature,
        /// Set or cleared.
        is_on: bool,
    },
    /// Bytes of the log of the journal that `has_journal` makes.
    JournalSize(u64),
    /// Where the journal that `has_journal` makes begins, or the first free place behind it.
    JournalPlace(Amount),
    /// Bytes for fast commits: behind the log of the journal that is made, or at the end of the
    /// one that is there.
    FastCommitSize(u64),
    /// `casefold` is set, with the encoding UTF-8 of Unicode 12.1.
    Encoding {
        /// Names that are no UTF-8 are refused.
        is_strict: bool,
    },
    /// A journal on another device, which cannot be changed with it, is given up.
    ForgetJournalDevice,
    /// Size of the file that `orphan_file` makes.
    OrphanFileSize(Amount),
    /// Bytes of an inode: as many as there are, or more.
    InodeSize(u64),
    /// One kind of quota is counted, or no longer.
    Quota {
        /// Which.
        kind: QuotaKind,
        /// Counted.
        is_on: bool,
    },
}

/// Stores another UUID, and returns whether anything follows from it.
///
/// # Errors
/// [`Error::Refused`] if it is in use.
pub(super) fn set_uuid(superblock: &mut SuperBlock, uuid: [u8; 16]) -> Result<bool> {
    let is_other = superblock.s_uuid != uuid;
    superblock.set_uuid(uuid).or_else(|in_use| {
        refused(format!(
            "the UUID cannot be changed with the feature {}: {}",
            in_use.feature, in_use.why
        ))
    })?;
    Ok(is_other && superblock.depends_on_uuid())
}

pub(super) fn refused<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Refused { what: what.into() })
}

/// Features that may be set without anything that follows.
const SET_ALONE: [FeatureBit; 10] = [
    FeatureBit::Compat(Compat::STABLE_INODES),
    FeatureBit::Compat(Compat::FAST_COMMIT),
    FeatureBit::Incompat(Incompat::EXTENTS),
    FeatureBit::Incompat(Incompat::EA_INODE),
    FeatureBit::Incompat(Incompat::LARGEDIR),
    FeatureBit::Incompat(Incompat::ENCRYPT),
    FeatureBit::RoCompat(RoCompat::LARGE_FILE),
    FeatureBit::RoCompat(RoCompat::HUGE_FILE),
    FeatureBit::RoCompat(RoCompat::READONLY),
    FeatureBit::RoCompat(RoCompat::VERITY),
];

/// Features that may be cleared without anything that follows.
const CLEARED_ALONE: [FeatureBit; 2] = [
    FeatureBit::Compat(Compat::FAST_COMMIT),
    FeatureBit::RoCompat(RoCompat::READONLY),
];

impl Change {
    /// The changes of a list of features, as `-O` has it: `quota,^has_journal`.
    ///
    /// # Errors
    /// [`Error::Refused`] for a name that is none.
    pub fn of_features(list: &str) -> Result<Vec<Self>> {
        let names = list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let changes = names.map(|name| {
            let is_on = !name.starts_with('^');
            let name = name.trim_start_matches(['^', '+']);
            match feature_by_name(name) {
                Some(feature) => Ok(Self::Feature { feature, is_on }),
                None => refused(format!(
                    "there is no feature {name}: `uext4 info IMAGE` shows those of a file system"
                )),
            }
        });
        changes.collect()
    }

    /// Whether nothing follows from it in this file system.
    pub(super) fn is_alone(&self, superblock: &SuperBlock) -> bool {
        match self {
            Self::Uuid(uuid) => superblock.s_uuid == *uuid || !superblock.depends_on_uuid(),
            Self::Feature { feature, is_on } => {
                let list: &[FeatureBit] = match is_on {
                    true => &SET_ALONE,
                    false => &CLEARED_ALONE,
                };
                list.contains(&feature.bit)
            }
            Self::HashSeed(_)
            | Self::JournalSize(_)
            | Self::JournalPlace(_)
            | Self::FastCommitSize(_)
            | Self::ForgetJournalDevice
            | Self::Encoding { .. }
            | Self::OrphanFileSize(_)
            | Self::InodeSize(_)
            | Self::Quota { .. } => false,
            _ => true,
        }
    }

    /// Changes the fields of the superblock; `false` if it is no change of fields alone.
    ///
    /// # Errors
    /// [`Error::Refused`] if the value cannot be.
    pub(super) fn apply_alone(&self, superblock: &mut SuperBlock) -> Result<bool> {
        match self {
            Self::Label(label) => superblock.s_volume_name = *label,
            Self::Uuid(uuid) => return set_uuid(superblock, *uuid).map(|follows| !follows),
            Self::Reserved(reserved) => set_reserved(superblock, *reserved)?,
            Self::ReservedUser(user) => superblock.s_def_resuid = (*user).into(),
            Self::ReservedGroup(group) => superblock.s_def_resgid = (*group).into(),
            Self::Errors(errors) => superblock.s_errors = (*errors).into(),
            Self::MountsMax(most) => superblock.s_max_mnt_count = (*most).into(),
            Self::Mounts(count) => superblock.s_mnt_count = (*count).into(),
            Self::CheckInterval(seconds) => superblock.s_checkinterval = (*seconds).into(),
            Self::CheckedAt(time) => {
                superblock.s_lastcheck = lo32(*time).into();
                superblock.s_lastcheck_hi = hi32(*time).to_le_bytes()[0];
            }
            Self::LastMounted(path) => superblock.s_last_mounted = *path,
            Self::DefaultMount { clear, set } => {
                let options = superblock.s_default_mount_opts.get();
                superblock.s_default_mount_opts = (options & !clear | set).into();
            }
            Self::MountOptions(options) => superblock.s_mount_opts = *options,
            Self::Hash(version) => superblock.s_def_hash_version = *version,
            Self::Stride(blocks) => superblock.s_raid_stride = (*blocks).into(),
            Self::StripeWidth(blocks) => superblock.s_raid_stripe_width = (*blocks).into(),
            Self::MmpInterval(seconds) => set_mmp_interval(superblock, *seconds)?,
            Self::ForceFsck => {
                let state = superblock.s_state.get() | STATE_VALID | STATE_ERROR;
                superblock.s_state = state.into();
            }
            Self::TestFs(is_on) => {
                let flags = superblock.s_flags.get() & !FLAGS_TEST_FS;
                let bit = if *is_on { FLAGS_TEST_FS } else { 0 };
                superblock.s_flags = (flags | bit).into();
            }
            Self::Feature { feature, is_on } if self.is_alone(superblock) => {
                set_feature(superblock, feature.bit, *is_on);
            }
            Self::HashSeed(_)
            | Self::Feature { .. }
            | Self::JournalSize(_)
            | Self::JournalPlace(_)
            | Self::FastCommitSize(_)
            | Self::ForgetJournalDevice
            | Self::Encoding { .. }
            | Self::OrphanFileSize(_)
            | Self::InodeSize(_)
            | Self::Quota { .. } => return Ok(false),
        }
        Ok(true)
    }
}

/// The seed as words, of its bytes as they lie on the disk.
pub(super) fn set_hash_seed(superblock: &mut SuperBlock, seed: &[u8; 16]) {
    if let Ok(words) = FromBytes::read_from_bytes(seed) {
        superblock.s_hash_seed = words;
    }
}

fn set_reserved(superblock: &mut SuperBlock, reserved: Reserved) -> Result<()> {
    let all = superblock.blocks_count();
    let blocks = match reserved {
        Reserved::Blocks(blocks) => blocks,
        Reserved::Percent(percent) if (0.0..=50.0).contains(&percent) => {
            // Rounding a number of blocks past 2^53 does not matter; the result is at most half.
            (percent / 100.0 * all as f64) as u64
        }
        Reserved::Percent(percent) => {
            return refused(format!("{percent} % cannot be reserved: 50 % is the most"));
        }
    };
    if blocks > all / 2 {
        return refused(format!(
            "{blocks} blocks cannot be reserved: half of the {all} blocks is the most"
        ));
    }
    superblock.s_r_blocks_count_lo = lo32(blocks).into();
    superblock.s_r_blocks_count_hi = hi32(blocks).into();
    Ok(())
}

fn set_mmp_interval(superblock: &mut SuperBlock, seconds: u16) -> Result<()> {
    if !superblock.features().incompat.contains(Incompat::MMP) {
        return refused("mmp_update_interval needs the feature mmp: set it by -O mmp");
    }
    if seconds > MMP_INTERVAL_MAX {
        return refused(format!(
            "an MMP interval of {seconds} s is too long: {MMP_INTERVAL_MAX} s is the most"
        ));
    }
    superblock.s_mmp_interval = if seconds == 0 { 5 } else { seconds }.into();
    Ok(())
}
