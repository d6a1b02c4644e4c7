//! Features that the primary superblock has lost.
//!
//! Without its feature, what an inode holds reads as something else: data within an inode as block
//! numbers, the value of an attribute as a file without a name. Mended one by one, all such inodes
//! would lose their contents, where one bit was lost. So a feature that a backup has and the
//! primary superblock has not is looked for in the inodes, and set again if one uses it. Backups
//! alone prove nothing: tools that clear a feature may leave them as they are. Small file systems
//! have no backup; there the inode must prove it.
//!
//! Of a superblock that was made anew nothing is known of features: each inode proves its own.
//!
//! The tables are read only if there may be such a feature, and only up to the first inode that
//! uses it.

use uext4_ondisk::features::{Compat, FEATURES, FeatureBit, Incompat, RoCompat};
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::xattr::EXT4_XATTR_MAGIC;
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::quota_files::begins_with_magic;
use super::shape::ENCODING_UTF8;
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::inodes::inline_value;
use crate::options::Options;
use crate::problem::SuperblockProblem;
use crate::report::Findings;
use crate::used_inodes::{Used, for_each_inode};
use crate::volume::Volume;

/// Most backups that are looked at.
const BACKUPS_MAX: usize = 3;
/// Most groups that are looked at where there is no backup.
const GROUPS_MAX: u32 = 8;

/// A feature that inodes show by themselves.
struct Shown {
    bit: FeatureBit,
    /// Whether the inode alone proves it; else a backup must have it.
    is_proof: bool,
    is_used: fn(&Volume, &Used<'_>) -> Result<bool>,
}

impl Shown {
    const fn by_flag(bit: FeatureBit, is_used: fn(&Volume, &Used<'_>) -> Result<bool>) -> Self {
        Self {
            bit,
            is_proof: false,
            is_used,
        }
    }

    const fn proved(bit: FeatureBit, is_used: fn(&Volume, &Used<'_>) -> Result<bool>) -> Self {
        Self {
            bit,
            is_proof: true,
            is_used,
        }
    }
}

const SHOWN: [Shown; 7] = [
    Shown::proved(FeatureBit::Incompat(Incompat::INLINE_DATA), |_, used| {
        let has_rest = inline_value(&used.raw, used.bytes).is_some();
        Ok(has(&used.raw, InodeFlags::INLINE_DATA) && has_rest)
    }),
    Shown::proved(FeatureBit::Incompat(Incompat::EA_INODE), |_, used| {
        // Where other files have a time, those with values have the upper half of a small number.
        let references = used.raw.i_version.get();
        let is_counted = used.raw.i_ctime.get() == 0 && (1..1 << 24).contains(&references);
        Ok(has(&used.raw, InodeFlags::EA_INODE) && is_counted)
    }),
    Shown::proved(FeatureBit::Compat(Compat::EXT_ATTR), has_attributes),
    Shown::proved(FeatureBit::RoCompat(RoCompat::QUOTA), |volume, used| {
        let superblock = volume.superblock();
        let kind = match used.ino {
            Ino::USER_QUOTA if superblock.s_usr_quota_inum.get() == used.ino.0 => QuotaKind::User,
            Ino::GROUP_QUOTA if superblock.s_grp_quota_inum.get() == used.ino.0 => QuotaKind::Group,
            _ => return Ok(false),
        };
        begins_with_magic(volume, used.ino, kind)
    }),
    Shown::by_flag(FeatureBit::Incompat(Incompat::CASEFOLD), |_, used| {
        Ok(has(&used.raw, InodeFlags::CASEFOLD))
    }),
    Shown::by_flag(FeatureBit::Incompat(Incompat::ENCRYPT), |_, used| {
        Ok(has(&used.raw, InodeFlags::ENCRYPT))
    }),
    Shown::by_flag(FeatureBit::RoCompat(RoCompat::VERITY), |_, used| {
        Ok(has(&used.raw, InodeFlags::VERITY))
    }),
];

/// Sets the features again that are lost. In `options`, `remake` says whether the superblock was
/// made anew. Returns whether there was one: what was read before must
/// be read again.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(volume: &Volume, options: &Options, findings: &Findings<'_>) -> Result<bool> {
    let primary = volume.superblock();
    let backup = backup(volume, &primary)?;
    let set = primary.features();
    let is_lost = |shown: &&Shown| {
        let is_known = match &backup {
            Some(backup) => shown.bit.is_in(backup.features()),
            None => shown.is_proof || options.remake,
        };
        is_known && !shown.bit.is_in(set)
    };
    let mut lost: Vec<&Shown> = SHOWN.iter().filter(is_lost).collect();
    if lost.is_empty() {
        return Ok(false);
    }
    let mut is_any_set = false;
    let groups = volume.geometry().groups_count.get();
    let groups = match backup {
        None if !options.remake => groups.min(GROUPS_MAX),
        _ => groups,
    };
    for group in (0..groups).map(GroupNr) {
        if lost.is_empty() {
            break;
        }
        for_each_inode(volume, group, |used| {
            let mut at = 0;
            while let Some(shown) = lost.get(at) {
                if (shown.is_used)(volume, used)? {
                    set_again(volume, findings, used.ino, shown.bit, backup.as_ref())?;
                    lost.swap_remove(at);
                    is_any_set = true;
                } else {
                    at += 1;
                }
            }
            Ok(!lost.is_empty())
        })?;
    }
    Ok(is_any_set)
}

/// The first backup of the same file system.
fn backup(volume: &Volume, primary: &SuperBlock) -> Result<Option<SuperBlock>> {
    let geometry = volume.geometry();
    let mut bytes = [0; 1024];
    for group in geometry.backup_groups().take(BACKUPS_MAX) {
        let start = geometry.group_start(group);
        let Some(offset) = geometry.block_size.byte_offset(start) else {
            continue;
        };
        volume.overlay().read_at(offset, &mut bytes)?;
        if let Ok(backup) = SuperBlock::parse(&bytes)
            && backup.s_uuid == primary.s_uuid
            && backup.s_magic == primary.s_magic
        {
            return Ok(Some(backup));
        }
    }
    Ok(None)
}

fn set_again(
    volume: &Volume,
    findings: &Findings<'_>,
    ino: Ino,
    bit: FeatureBit,
    backup: Option<&SuperBlock>,
) -> Result<()> {
    let name = FEATURES.iter().find(|row| row.bit == bit);
    let name = name.map_or("", |row| row.name);
    let place = Place::inode(ino).name(name.as_bytes());
    let cause = findings.report(Finding::new(SuperblockProblem::LostFeature, place));
    volume.update_superblock(cause, |superblock| {
        let mut features = superblock.features();
        bit.insert_into(&mut features);
        superblock.set_features(features);
        if bit == FeatureBit::Incompat(Incompat::CASEFOLD) && superblock.s_encoding.get() == 0 {
            superblock.s_encoding = ENCODING_UTF8.into();
        }
        if let Some(backup) = backup
            && bit == FeatureBit::Incompat(Incompat::CASEFOLD)
        {
            superblock.s_encoding = backup.s_encoding;
            superblock.s_encoding_flags = backup.s_encoding_flags;
        }
    })
}

/// Whether a file or directory has a flag.
fn has(raw: &RawInode, flag: InodeFlags) -> bool {
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    // More of them than an inode can have are damage.
    let is_plain = !flags.contains(InodeFlags::IMAGIC | InodeFlags::INDEX);
    let has_contents = matches!(
        FileType::from_mode(raw.i_mode.get()),
        Some(FileType::Regular | FileType::Directory | FileType::Symlink)
    );
    has_contents && is_plain && flags.contains(flag)
}

/// Whether the block of attributes is one.
fn has_attributes(volume: &Volume, used: &Used<'_>) -> Result<bool> {
    let raw = &used.raw;
    let high = u64::from(raw.i_file_acl_high.get()) << 32;
    let block = Pblk(high | u64::from(raw.i_file_acl_lo.get()));
    if block.0 == 0 || !volume.geometry().contains(block, 1) {
        return Ok(false);
    }
    let mut magic = [0; 4];
    let offset = block.0 << volume.geometry().block_size.log2();
    volume.overlay().read_at(offset, &mut magic)?;
    Ok(u32::from_le_bytes(magic) == EXT4_XATTR_MAGIC)
}
