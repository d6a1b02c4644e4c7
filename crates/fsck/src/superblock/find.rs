//! Which superblock can be used: the primary one, else a backup, else the primary one with the
//! fields mended that follow from others.
//!
//! A backup is known by what it says of itself: it must lie where the shape that it describes has
//! one. Copies inside files (images of other file systems) do not. Of several kinds of backups
//! the kind with the most copies counts, and of equals the one with the primary's UUID.

use std::iter;
use std::ops::Range;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::features::{Compat, Incompat, RoCompat};
use uext4_ondisk::num::{len64, lo16};
use uext4_ondisk::superblock::{
    CHECKSUM_TYPE_CRC32C, EXT4_SUPER_MAGIC, SUPERBLOCK_OFFSET, SuperBlock,
};
use uext4_ondisk::{BlockSize, Damage, Geometry, GroupNr, Ino, Pblk};
use zerocopy::FromBytes;

use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::options::Options;
use crate::problem::{Problem, SuperblockProblem};

use super::fit::{Fit, has_other_inodes};

/// Bytes that are read at a time in a search.
pub const PIECE: usize = 1 << 20;
/// The unit of a search.
pub const UNIT: usize = 1024;
/// Bytes that are looked through for a backup in an unusual place.
const SEARCHED: u64 = 1 << 30;
/// Groups that usually have a backup.
const GROUPS: [u32; 14] = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343, 625, 729];
/// Most fields that are mended before the primary superblock is given up.
const FIELDS_MAX: usize = 16;

/// A superblock that can be used.
#[derive(Clone, Debug)]
pub struct Found {
    /// As the primary one should be, but for what later checks find.
    pub superblock: SuperBlock,
    /// Its shape.
    pub geometry: Geometry,
    /// What is wrong with the primary one.
    pub findings: Vec<Finding>,
}

/// A backup, and where it is.
pub struct Backup {
    pub superblock: SuperBlock,
    pub geometry: Geometry,
    pub block: Pblk,
}

/// Finds the superblock to use. Nothing is reported or changed.
///
/// # Errors
/// [`Error::NotExt4`] if there is none; [`Error::Features`] if it has unknown features.
pub fn find(device: &dyn BlockDevice, options: &Options) -> Result<Found> {
    let mut bytes = [0; 1024];
    if device.len() < SUPERBLOCK_OFFSET + len64(bytes.len()) {
        return Err(Error::NotExt4 {
            why: "the device is shorter than a superblock".into(),
        });
    }
    // One that cannot be read is as one that is damaged.
    if let Some(read) = read(device, SUPERBLOCK_OFFSET) {
        bytes = read;
    }
    let primary = usable(&bytes);
    if let Some(block) = options.superblock {
        let chosen = chosen(device, options, block)?;
        return match primary {
            Ok((superblock, geometry)) if is_same(&superblock, &geometry, &chosen) => {
                known(Found {
                    superblock,
                    geometry,
                    findings: Vec::new(),
                })
            }
            _ => known(from_backup(&bytes, &chosen, SuperblockProblem::Chosen)),
        };
    }
    let damage = match primary {
        Ok((superblock, geometry)) => {
            let found = match contradicting(device, &bytes, &superblock, &geometry) {
                Some(backup) => from_backup(&bytes, &backup, SuperblockProblem::Contradicted),
                None => with_places_of_copies(device, &bytes, superblock, geometry),
            };
            return known(found);
        }
        Err(damage) => damage,
    };
    if let Some(backup) = search(device, &bytes) {
        return known(from_backup(&bytes, &backup, SuperblockProblem::Unusable));
    }
    match mend(device, &bytes) {
        Some(found) if !has_impossible_features(&found) => known(found),
        Some(_) => Err(Error::NotExt4 {
            why: format!("{damage}, its features cannot be, and it has no backup"),
        }),
        None => Err(Error::NotExt4 {
            why: format!("{damage}, and no backup of the superblock was found"),
        }),
    }
}

fn read(device: &dyn BlockDevice, offset: u64) -> Option<[u8; 1024]> {
    let mut bytes = [0; 1024];
    let inside = offset.checked_add(len64(bytes.len()))? <= device.len();
    (inside && device.read_at(offset, &mut bytes).is_ok()).then_some(bytes)
}

/// A superblock, if its shape can be.
///
/// # Errors
/// The first field that cannot be.
pub fn usable(bytes: &[u8]) -> Result<(SuperBlock, Geometry), Damage> {
    let superblock = SuperBlock::parse(bytes)?;
    let geometry = Geometry::new(&superblock)?;
    match super::shape::wrong_field(&superblock) {
        Some(damage) => Err(damage),
        None => Ok((superblock, geometry)),
    }
}

/// Refuses what this version does not know: a remedy could destroy it.
fn known(found: Found) -> Result<Found> {
    let features = super::shape::unknown_features(found.superblock.features());
    if features.is_empty() {
        Ok(found)
    } else {
        Err(Error::Features {
            features: features.join(", "),
        })
    }
}

/// Whether the features are unknown because they are damaged: a version that knows more of them
/// would have stored the right checksum.
fn has_impossible_features(found: &Found) -> bool {
    let is_wrong = |finding: &Finding| finding.problem == SuperblockProblem::Checksum.into();
    found.findings.iter().any(is_wrong)
        && !super::shape::unknown_features(found.superblock.features()).is_empty()
}

fn chosen(device: &dyn BlockDevice, options: &Options, block: u64) -> Result<Backup> {
    let sizes = match options.block_size {
        Some(bytes) => BlockSize::from_bytes(bytes).into_iter().collect(),
        None => sizes().collect::<Vec<_>>(),
    };
    let found = sizes.into_iter().find_map(|size| {
        let bytes = read(device, size.byte_offset(Pblk(block))?)?;
        let (superblock, geometry) = usable(&bytes).ok()?;
        (geometry.block_size == size).then_some(Backup {
            superblock,
            geometry,
            block: Pblk(block),
        })
    });
    found.ok_or_else(|| Error::NotExt4 {
        why: format!("block {block} holds no superblock that can be used"),
    })
}

/// Whether the primary superblock is one of the same file system, with the same shape.
fn is_same(primary: &SuperBlock, geometry: &Geometry, chosen: &Backup) -> bool {
    let mut plain = geometry.clone();
    // These come and go, in the primary superblock alone.
    plain.features = chosen.geometry.features;
    plain == chosen.geometry && primary.s_uuid == chosen.superblock.s_uuid
}

/// The primary superblock; with the fields that say where copies of the descriptors are from a
/// backup, if copies are there and not where the primary one has them. Blocks of files would be
/// taken for the copies that are missing, and written over.
fn with_places_of_copies(
    device: &dyn BlockDevice,
    bytes: &[u8],
    superblock: SuperBlock,
    geometry: Geometry,
) -> Found {
    // Without these features the fields say nothing.
    let features = superblock.features();
    let lost = match features.incompat.contains(Incompat::META_BG)
        || features.compat.contains(Compat::SPARSE_SUPER2)
    {
        true => super::fit::lost_copies(device, &geometry),
        false => 0,
    };
    let better = || {
        let backup = search(device, bytes)?;
        let from = &backup.superblock;
        let mut mended = superblock;
        mended.s_first_meta_bg = from.s_first_meta_bg;
        mended.s_backup_bgs = from.s_backup_bgs;
        mended.update_checksum();
        let is_same = from.s_uuid == superblock.s_uuid
            && backup.geometry.blocks_count == geometry.blocks_count;
        let new = Geometry::new(&mended).ok().filter(|_| is_same)?;
        let finding = Finding::new(SuperblockProblem::CopiesElsewhere, Place::whole());
        (super::fit::lost_copies(device, &new) < lost).then(|| Found {
            superblock: mended,
            geometry: new,
            findings: vec![finding.found(lost as u64).right(backup.block.0)],
        })
    };
    match lost {
        0 => None,
        _ => better(),
    }
    .unwrap_or_else(|| with_sparse_super(device, superblock, geometry))
}

/// The primary superblock, with the feature sparse_super if it has lost it.
fn with_sparse_super(
    device: &dyn BlockDevice,
    superblock: SuperBlock,
    geometry: Geometry,
) -> Found {
    let found = Found {
        superblock,
        geometry,
        findings: Vec::new(),
    };
    if !super::fit::has_lost_sparse_super(device, &found.superblock, &found.geometry) {
        return found;
    }
    let mut mended = superblock;
    let mut features = mended.features();
    features.ro_compat.insert(RoCompat::SPARSE_SUPER);
    mended.set_features(features);
    let place = Place::whole().name(b"sparse_super");
    match Geometry::new(&mended) {
        Ok(geometry) => Found {
            superblock: mended,
            geometry,
            findings: vec![Finding::new(SuperblockProblem::LostFeature, place)],
        },
        Err(_) => found,
    }
}

/// A backup of another shape that the descriptors fit, where they do not fit the primary one.
fn contradicting(
    device: &dyn BlockDevice,
    bytes: &[u8],
    superblock: &SuperBlock,
    geometry: &Geometry,
) -> Option<Backup> {
    if geometry.len_bytes() > device.len() {
        return None;
    }
    let fit = Fit::of(device, geometry);
    if !fit.is_doubtful() {
        return None;
    }
    let backup = search(device, bytes)?;
    // A file system that was being resized has backups of both sizes.
    let is_other = !is_same(superblock, geometry, &backup)
        && backup.geometry.blocks_count == geometry.blocks_count;
    (is_other && fit.is_worse_than(Fit::of(device, &backup.geometry))).then_some(backup)
}

fn from_backup(bytes: &[u8], backup: &Backup, problem: SuperblockProblem) -> Found {
    let superblock = super::shape::restored(&backup.superblock, bytes);
    let finding = Finding::new(problem, Place::whole()).right(backup.block.0);
    Found {
        geometry: Geometry::new(&superblock).unwrap_or_else(|_| backup.geometry.clone()),
        superblock,
        findings: vec![finding],
    }
}

fn sizes() -> impl Iterator<Item = BlockSize> {
    (BlockSize::MIN.log2()..=BlockSize::MAX.log2()).filter_map(BlockSize::from_log2)
}

/// The best backup in the usual places, else the first one near the start of the device.
fn search(device: &dyn BlockDevice, primary: &[u8]) -> Option<Backup> {
    let mut found = Vec::new();
    for offset in usual_offsets(device.len(), primary) {
        found.extend(backup_at(device, offset));
    }
    best(found, primary).or_else(|| scan(device))
}

/// Of backups those of the kind with the most copies count, and of equals the first one.
pub fn best(mut found: Vec<Backup>, primary: &[u8]) -> Option<Backup> {
    found.sort_by_key(|backup| (backup.geometry.block_size.log2(), backup.block));
    found.dedup_by_key(|backup| (backup.geometry.block_size.log2(), backup.block));
    let raw = SuperBlock::read_from_prefix(primary)
        .ok()
        .map(|(raw, _)| raw);
    let kind = |backup: &Backup| {
        let superblock = &backup.superblock;
        (superblock.s_uuid, superblock.blocks_count())
    };
    let votes = |backup: &Backup| {
        let same = found.iter().filter(|other| kind(other) == kind(backup));
        let uuid = raw.is_some_and(|raw| raw.s_uuid == backup.superblock.s_uuid);
        (same.count(), uuid)
    };
    // Of equals the first one: `max_by_key` takes the last.
    let best = (0..found.len()).rev().max_by_key(|&at| votes(&found[at]));
    best.map(|best| found.swap_remove(best))
}

/// Where backups usually are, for all sizes of blocks and clusters; and where the primary
/// superblock, damaged as it is, says that they are.
fn usual_offsets(len: u64, primary: &[u8]) -> Vec<u64> {
    let mut offsets = Vec::new();
    let mut add = |size: BlockSize, per_group: u64, group: u32, first: u64| {
        let block = per_group.checked_mul(group.into());
        let block = block.and_then(|block| block.checked_add(first));
        let offset = block.and_then(|block| size.byte_offset(Pblk(block)));
        offsets.extend(offset.filter(|&offset| offset < len));
    };
    for size in sizes() {
        for cluster_bits in 0..16 {
            let first = u64::from(size == BlockSize::MIN && cluster_bits == 0);
            for group in GROUPS {
                add(
                    size,
                    u64::from(size.bytes()) << (3 + cluster_bits),
                    group,
                    first,
                );
            }
        }
    }
    if let Ok((raw, _)) = SuperBlock::read_from_prefix(primary)
        && raw.s_magic.get() == EXT4_SUPER_MAGIC
    {
        let sparse2 = raw.features().compat.contains(Compat::SPARSE_SUPER2);
        let named = raw.s_backup_bgs.map(|group| group.get());
        let named = named.into_iter().filter(|&group| sparse2 && group != 0);
        for size in sizes() {
            for group in GROUPS.into_iter().chain(named.clone()) {
                for first in [0, 1] {
                    add(size, raw.s_blocks_per_group.get().into(), group, first);
                }
            }
        }
    }
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

/// The backup at a byte of the device, if it lies where its shape has one.
fn backup_at(device: &dyn BlockDevice, offset: u64) -> Option<Backup> {
    backup_in(&read(device, offset)?, offset, device.len())
}

/// The same for bytes that were read.
pub fn backup_in(bytes: &[u8], offset: u64, device_len: u64) -> Option<Backup> {
    let (superblock, geometry) = usable(bytes).ok()?;
    let block = Pblk(offset >> geometry.block_size.log2());
    let (group, at) = geometry.group_of(block)?;
    // Of revision 0 it is 0 in all copies; large numbers do not fit.
    let said = superblock.s_block_group_nr.get();
    let fits = group != GroupNr(0)
        && at == 0
        && (said == 0 || said == lo16(group.0))
        && geometry.has_super(group)
        && geometry.block_size.byte_offset(block) == Some(offset)
        && geometry.len_bytes() <= device_len;
    fits.then_some(Backup {
        superblock,
        geometry,
        block,
    })
}

/// The first backup in the first GiB, whatever the size of its groups.
fn scan(device: &dyn BlockDevice) -> Option<Backup> {
    let mut buf = vec![0; PIECE];
    for Range { start, end } in pieces(device, SEARCHED) {
        let len = usize::try_from(end - start).unwrap_or(PIECE);
        let piece = &mut buf[..len];
        if device.read_at(start, piece).is_err() {
            continue;
        }
        for (unit, offset) in piece.chunks_exact(UNIT).zip((start..).step_by(UNIT)) {
            if unit[0x38..0x3A] == EXT4_SUPER_MAGIC.to_le_bytes()
                && let Some(backup) = backup_in(unit, offset, device.len())
            {
                return Some(backup);
            }
        }
    }
    None
}

/// The parts of a device that may hold data, of at most [`PIECE`] bytes. They begin before `end`,
/// at multiples of [`UNIT`]. Where the device cannot say where data is, all of it is.
pub fn pieces(device: &dyn BlockDevice, end: u64) -> impl Iterator<Item = Range<u64>> + '_ {
    let total = device.len();
    let mut at = 0;
    iter::from_fn(move || {
        if at >= total.min(end) {
            return None;
        }
        let start = match device.next_data(at) {
            Ok(data) => data?.start.max(at) & !(len64(UNIT) - 1),
            Err(_) => at,
        };
        at = start.saturating_add(len64(PIECE)).min(total);
        (start < total.min(end)).then_some(start..at)
    })
}

/// The primary superblock with the fields mended that follow from others; `None` if that does not
/// make a shape that fits the device.
fn mend(device: &dyn BlockDevice, bytes: &[u8]) -> Option<Found> {
    let (mut superblock, _) = SuperBlock::read_from_prefix(bytes).ok()?;
    if superblock.s_magic.get() != EXT4_SUPER_MAGIC {
        return None;
    }
    let mut findings = Vec::new();
    let features = superblock.features();
    if features.metadata_csum() {
        let kind = superblock.s_checksum_type;
        if kind != CHECKSUM_TYPE_CRC32C {
            findings.push(
                Finding::new(SuperblockProblem::ChecksumType, Place::whole())
                    .found(kind)
                    .right(CHECKSUM_TYPE_CRC32C),
            );
            superblock.s_checksum_type = CHECKSUM_TYPE_CRC32C;
        } else if superblock.s_checksum.get() != superblock.checksum() {
            findings.push(
                Finding::new(SuperblockProblem::Checksum, Place::whole())
                    .found(superblock.s_checksum.get())
                    .right(superblock.checksum()),
            );
        }
    }
    for _ in 0..FIELDS_MAX {
        // First what the shape does not depend on: a group's size follows from its clusters.
        let shape = match super::shape::wrong_field(&superblock) {
            Some(damage) => Err(damage),
            None => Geometry::new(&superblock),
        };
        let damage = match shape {
            Err(damage) => damage,
            Ok(geometry) => {
                let fits = geometry.len_bytes() <= device.len()
                    && geometry.inode_group(Ino::ROOT).is_some();
                return fits.then_some(Found {
                    superblock,
                    geometry,
                    findings,
                });
            }
        };
        let Damage::SuperblockField { field, value, .. } = damage else {
            return None;
        };
        // With a right checksum it is an encoding of another version, not damage.
        if field == "s_encoding" && findings.is_empty() {
            return None;
        }
        let (field, value) = match field {
            "s_inodes_count" if has_other_inodes(device, &superblock) => {
                let inodes = superblock.s_inodes_per_group.get();
                ("s_inodes_per_group", inodes.into())
            }
            field => (field, value),
        };
        let (problem, right) = super::shape::mend_field(&mut superblock, field)?;
        let problem: Problem = problem.into();
        findings.push(
            Finding::new(problem, Place::whole().name(field.as_bytes()))
                .found(value)
                .right(right),
        );
    }
    None
}
