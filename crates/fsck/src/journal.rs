//! The journal: found, judged, and replayed into the overlay.
//!
//! ```text
//! s_journal_inum ─▶ inode ─▶ map ─▶ superblock ─▶ log ──replay──▶ overlay
//!        or inode 8 ───┘      │
//!        or s_jnl_blocks ─────┘
//! ```
//! It comes before everything but the superblock: what the log holds is newer than what lies in
//! its place, descriptors and inodes included. So the map is read through descriptors that no
//! step has checked yet, and where that fails, from the copy in the superblock.
//!
//! Fast commits, which may follow the log, are only read here. [`crate::fast_commits`] replays them
//! when more of the file system is known to be right.
//!
//! What must be written to mend the journal is written later, by [`mend`], when descriptors are
//! known to be right; and a new journal takes its blocks when all owners are known, by
//! [`recreate`].

mod create;
mod fast_commits;
mod older;
mod repair;
mod spare;
mod unreplayed;

use std::ops::Range;
use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_jbd2::{LogRun, Recovery, ReplayedBlock, recover, recover_what_holds};
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags, RawInode};
use uext4_ondisk::journal::{JournalHeader, JournalSuperblock, MIN_JOURNAL_BLOCKS, unescape};
use uext4_ondisk::num::{hi32, lo32};
use uext4_ondisk::superblock::{JNL_BACKUP_BLOCKS, SuperBlock};
use uext4_ondisk::{Ino, Pblk};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::fixed_places::for_each_metadata;
use crate::options::Options;
use crate::problem::{JournalProblem, SuperblockProblem};
use crate::report::{Cause, Findings};
use crate::strict_map::Map;
use crate::volume::Volume;

pub use create::{default_area, default_blocks, recreate};
pub use fast_commits::FastCommits;
pub use older::restore;
pub use repair::{mend, set_fast_commit_blocks};
pub use spare::spare;
pub use unreplayed::unreplayed;

/// Where the journal's map was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// In the inode.
    Inode,
    /// In `s_jnl_blocks`; the inode is damaged.
    Backup,
}

/// A journal whose blocks are known.
struct Found {
    ino: Ino,
    source: Source,
    inode: RawInode,
    map: Map,
}

/// What the journal turned out to be.
enum Judged {
    /// Usable; the log may be empty.
    Right(Box<Recovery>),
    /// Its superblock cannot be used.
    BadSuperblock,
    /// The superblock is right, the log is not.
    BadLog,
}

/// The log was replayed: all that was read before must be read again.
#[derive(Debug)]
pub struct Replayed {
    /// The fast commits behind it.
    pub fast_commits: Option<FastCommits>,
    /// Blocks of which the newest copy was left out, each with the finding of it.
    pub left_out: Vec<(Pblk, Cause)>,
}

/// Replays the log into the overlay, if it is not empty.
///
/// # Errors
/// [`Error::Refused`] if it must be replayed and may not or cannot be; [`Error::Features`]; of the
/// device and of the overlay.
pub fn replay(
    volume: &Volume,
    options: &Options,
    findings: &Findings<'_>,
) -> Result<Option<Replayed>> {
    let superblock = volume.superblock();
    let features = superblock.features();
    let needs_recovery = features.incompat.contains(Incompat::RECOVER);
    let has_journal = features.compat.contains(Compat::HAS_JOURNAL);
    // A log that must be replayed is not thrown away for a feature that was lost.
    if !has_journal && !needs_recovery {
        return Ok(None);
    }
    if is_external(&superblock) {
        return match needs_recovery {
            true => Err(Error::Refused {
                what: "the journal is on another device and must be replayed first: mount the \
                       file system with that device once, then examine it"
                    .into(),
            }),
            false => Ok(None),
        };
    }
    let Some(found) = find(volume)? else {
        return Ok(None);
    };
    let Judged::Right(recovery) = judge(volume, &found)? else {
        return Ok(None);
    };
    if recovery.superblock.s_start.get() == 0 {
        return Ok(None);
    }
    if !options.replay {
        return Err(Error::Refused {
            what: "the journal must be replayed first, and that was not allowed".into(),
        });
    }
    if !has_journal {
        set_feature(volume, findings)?;
    }
    reach(volume, &superblock, &found, findings)?;
    let fast_commits = fast_commits::read(volume, found.ino, &recovery, findings)?;
    if !needs_recovery {
        let finding = Finding::new(JournalProblem::RecoverMissing, Place::inode(found.ino));
        findings.report(finding);
    }
    let left_out = report_left_out(&found, &recovery, findings);
    let torn = report_torn(&found, &recovery, findings);
    let blocks = recovery.replay.blocks();
    let replayed = || {
        let finding = Finding::new(JournalProblem::Replay, Place::inode(found.ino));
        findings.report(finding.found(blocks.len() as u64))
    };
    let cause = match torn {
        Some(torn) if blocks.is_empty() => torn,
        _ => replayed(),
    };
    write_home(volume, blocks, cause)?;
    let mut log = recovery.superblock;
    log.s_start = 0.into();
    log.s_sequence = recovery.next_sequence.wrapping_add(1).into();
    put_log_superblock(volume, &found.map, &log, cause)?;
    clear_recover(volume, cause)?;
    Ok(Some(Replayed {
        fast_commits,
        left_out,
    }))
}

/// Reports the transaction before which the log ends although it was committed.
fn report_torn(found: &Found, recovery: &Recovery, findings: &Findings<'_>) -> Option<Cause> {
    let sequence = recovery.failed_commit?;
    findings.empty_log();
    let finding = Finding::new(JournalProblem::Torn, Place::inode(found.ino));
    Some(findings.report(finding.found(sequence)))
}

/// Reports what keeps others from the journal: a mount goes by the superblock and the descriptors
/// as they are before the replay, which may put all of it right.
fn reach(
    volume: &Volume,
    superblock: &SuperBlock,
    found: &Found,
    findings: &Findings<'_>,
) -> Result<()> {
    if found.source == Source::Backup {
        let finding = Finding::new(JournalProblem::Unreachable, Place::inode(found.ino));
        findings.report(finding);
    }
    repair::number(volume, superblock, found, findings)
}

/// Reports the blocks of committed transactions that are damaged in the log: the homes that do not
/// get them, each with its finding.
fn report_left_out(
    found: &Found,
    recovery: &Recovery,
    findings: &Findings<'_>,
) -> Vec<(Pblk, Cause)> {
    findings.leave_out(recovery.left_out.len() as u64);
    let each = recovery.left_out.iter().map(|left_out| {
        let place = Place::inode(found.ino).block(left_out.log);
        let problem = match left_out.is_in_place {
            true => JournalProblem::BlockInPlace,
            false => JournalProblem::BlockLeftOut,
        };
        let cause = findings.report(Finding::new(problem, place).found(left_out.home.0));
        (!left_out.is_in_place).then_some((left_out.home, cause))
    });
    each.flatten().collect()
}

/// Writes what the log holds to its places in the overlay.
fn write_home(volume: &Volume, blocks: &[ReplayedBlock], cause: Cause) -> Result<()> {
    let mut content = vec![0; volume.geometry().block_size.len()];
    for block in blocks {
        volume.overlay().read_block(block.log, &mut content)?;
        if block.escaped {
            unescape(&mut content, 0);
        }
        volume.overlay().replace(block.home, cause, &content)?;
    }
    Ok(())
}

/// Sets the feature has_journal again, which was lost.
fn set_feature(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let place = Place::whole().name(b"has_journal");
    let cause = findings.report(Finding::new(SuperblockProblem::LostFeature, place));
    volume.update_superblock(cause, |superblock| {
        let mut features = superblock.features();
        features.compat.insert(Compat::HAS_JOURNAL);
        superblock.set_features(features);
    })
}

/// In the superblock as the replay left it, not as it was read.
fn clear_recover(volume: &Volume, cause: Cause) -> Result<()> {
    let block = volume.geometry().superblock_block();
    let block = match volume.geometry().block_size.log2() {
        10 => block,
        _ => Pblk(0),
    };
    let skip = match block.0 {
        0 => 1024,
        _ => 0,
    };
    volume.overlay().update(block, cause, |bytes| {
        if let Ok(mut superblock) = SuperBlock::parse(&bytes[skip..]) {
            let mut features = superblock.features();
            features.incompat.remove(Incompat::RECOVER);
            superblock.set_features(features);
            superblock.update_checksum();
            bytes[skip..skip + 1024].copy_from_slice(superblock.as_bytes());
        }
    })
}

/// The blocks of the journal, as far as they are known: what lies there is no more than a copy.
///
/// # Errors
/// Of the device and of the overlay.
pub fn runs(volume: &Volume) -> Result<Vec<Range<u64>>> {
    let found = find(volume)?;
    let runs = found.into_iter().flat_map(|found| found.map.runs);
    let range = |run: LogRun| run.start.0..run.start.0.saturating_add(run.len.into());
    Ok(runs.map(range).collect())
}

/// Whether the journal is said to be on another device.
fn is_external(superblock: &SuperBlock) -> bool {
    let named = superblock.s_journal_dev.get() != 0 || superblock.s_journal_uuid != [0; 16];
    superblock.s_journal_inum.get() == 0 && named
}

/// The journal by the inode that the superblock names, by the usual inode, or by the copy of its
/// map in the superblock.
fn find(volume: &Volume) -> Result<Option<Found>> {
    let superblock = volume.superblock();
    let named = Ino(superblock.s_journal_inum.get());
    let mut candidates = Vec::new();
    let usual = (named != Ino::JOURNAL).then_some(Ino::JOURNAL);
    for ino in [Some(named), usual].into_iter().flatten() {
        let bytes = volume.read_inode(ino)?;
        let inode = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok());
        candidates.extend(inode.map(|inode| (ino, Source::Inode, inode)));
    }
    if superblock.s_jnl_backup_type == JNL_BACKUP_BLOCKS {
        candidates.push((Ino::JOURNAL, Source::Backup, from_backup(&superblock)));
    }
    let mut maps = Vec::new();
    for (ino, source, inode) in candidates {
        maps.extend(plausible(volume, &inode)?.map(|map| Found {
            ino,
            source,
            inode,
            map,
        }));
    }
    // A wrong number in an inode leads to a block that is no journal's. Only if no candidate leads
    // to one is the journal's first block itself damaged.
    // And a number in its middle that leads to metadata is wrong for sure: another one may be
    // whole.
    maps.sort_by_cached_key(|found| is_metadata(volume, &found.map));
    for at in 0..maps.len() {
        if has_magic(volume, &maps[at].map)? {
            return Ok(Some(maps.swap_remove(at)));
        }
    }
    maps.retain(|found| !is_metadata(volume, &found.map));
    Ok(maps.into_iter().next())
}

fn has_magic(volume: &Volume, map: &Map) -> Result<bool> {
    let mut bytes = vec![0; volume.geometry().block_size.len()];
    if let Some(first) = map.runs.first() {
        volume.overlay().read_block(first.start, &mut bytes)?;
    }
    Ok(JournalHeader::parse(&bytes).is_some())
}

/// Whether any of the blocks belongs to something else for sure.
fn is_metadata(volume: &Volume, map: &Map) -> bool {
    let mut runs: Vec<_> = map.runs.iter().map(|run| (run.start.0, run.len)).collect();
    runs.sort_unstable();
    let mut overlaps = false;
    for_each_metadata(volume.geometry(), &volume.groups(), |_, start, len| {
        let end = start.0.saturating_add(len);
        let before = runs.partition_point(|&(at, _)| at < end).checked_sub(1);
        let before = before.and_then(|at| runs.get(at));
        overlaps |= before.is_some_and(|&(at, len)| at.saturating_add(len.into()) > start.0);
    });
    overlaps
}

/// The map of an inode that can be the journal's: a regular file without holes that is long
/// enough.
fn plausible(volume: &Volume, inode: &RawInode) -> Result<Option<Map>> {
    let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
    let never = InodeFlags::ENCRYPT | InodeFlags::INLINE_DATA | InodeFlags::EA_INODE;
    let is_file = FileType::from_mode(inode.i_mode.get()) == Some(FileType::Regular);
    if !is_file || inode.i_links_count.get() == 0 || flags.intersects(never) {
        return Ok(None);
    }
    let size = u64::from(inode.i_size_high.get()) << 32 | u64::from(inode.i_size_lo.get());
    let blocks = size >> volume.geometry().block_size.log2();
    // The file may have blocks past its end.
    let long_enough = |map: &Map| {
        map.len >= MIN_JOURNAL_BLOCKS
            && u64::from(map.len) >= blocks
            && blocks >= u64::from(MIN_JOURNAL_BLOCKS)
    };
    Ok(Map::of_journal(volume, inode)?.filter(long_enough))
}

/// The inode that `s_jnl_blocks` describes: `i_block`, then the high and the low half of the size.
fn from_backup(superblock: &SuperBlock) -> RawInode {
    let words = superblock.s_jnl_blocks;
    let mut inode = RawInode::zeroed();
    inode.i_mode = (uext4_ondisk::inode::S_IFREG | 0o600).into();
    inode.i_links_count = 1.into();
    let mut i_block = [0; I_BLOCK_LEN];
    i_block.copy_from_slice(&words.as_bytes()[..I_BLOCK_LEN]);
    if uext4_ondisk::extent::header(&i_block)
        .is_some_and(|header| header.eh_magic.get() == uext4_ondisk::extent::EXT4_EXT_MAGIC)
    {
        inode.i_flags = InodeFlags::EXTENTS.bits().into();
    }
    inode.i_block = i_block;
    inode.i_size_high = words[15];
    inode.i_size_lo = words[16];
    inode
}

/// What `s_jnl_blocks` should hold.
fn backup_of(inode: &RawInode) -> [zerocopy::little_endian::U32; 17] {
    let mut words = [zerocopy::little_endian::U32::ZERO; 17];
    words.as_mut_bytes()[..I_BLOCK_LEN].copy_from_slice(&inode.i_block);
    words[15] = inode.i_size_high;
    words[16] = inode.i_size_lo;
    words
}

fn judge(volume: &Volume, found: &Found) -> Result<Judged> {
    let geometry = volume.geometry();
    let device: &dyn BlockDevice = volume.overlay();
    let runs = &found.map.runs;
    match recover_what_holds(device, geometry.block_size, geometry.blocks_count, runs) {
        // The kernel refuses to mount with a log that is shorter.
        Ok(recovery)
            if recovery.superblock.s_start.get() == 0
                && recovery.superblock.s_maxlen.get() < MIN_JOURNAL_BLOCKS =>
        {
            Ok(Judged::BadSuperblock)
        }
        Ok(recovery) => Ok(Judged::Right(Box::new(recovery))),
        Err(uext4_jbd2::Error::Device(error)) => Err(error.into()),
        Err(uext4_jbd2::Error::UnknownFeature { name }) if !is_empty(volume, found)? => {
            Err(Error::Features {
                features: format!("journal {name}"),
            })
        }
        Err(_) => {
            let mut block = vec![0; geometry.block_size.len()];
            if let Some(first) = runs.first() {
                volume.overlay().read_block(first.start, &mut block)?;
            }
            // With an empty log everything but the superblock is right.
            let empty = JournalSuperblock::parse(&block).is_ok_and(|sb| sb.s_start.get() == 0);
            let usable = !empty && is_usable(volume, found, &block)?;
            Ok(match usable {
                true => Judged::BadLog,
                false => Judged::BadSuperblock,
            })
        }
    }
}

/// Whether the journal says that its log is empty: then no feature that it has matters.
fn is_empty(volume: &Volume, found: &Found) -> Result<bool> {
    let mut block = vec![0; volume.geometry().block_size.len()];
    if let Some(first) = found.map.runs.first() {
        volume.overlay().read_block(first.start, &mut block)?;
    }
    let head = JournalSuperblock::ref_from_prefix(&block);
    Ok(head.is_ok_and(|(head, _)| head.s_start.get() == 0))
}

/// Whether the journal would be right if its log were empty.
fn is_usable(volume: &Volume, found: &Found, block: &[u8]) -> Result<bool> {
    let Ok(mut log) = JournalSuperblock::parse(block) else {
        return Ok(false);
    };
    log.s_start = 0.into();
    update_checksum(&mut log);
    let geometry = volume.geometry();
    let first = found.map.runs.first().map(|run| run.start);
    let base: Arc<dyn BlockDevice> = Arc::clone(volume.overlay().base());
    let copy = crate::overlay::Overlay::new(base, geometry.block_size, u64::MAX);
    if let Some(first) = first {
        copy.update(first, Cause(0), |bytes| {
            bytes.copy_from_slice(block);
            bytes[..log.as_bytes().len()].copy_from_slice(log.as_bytes());
        })?;
    }
    let runs = &found.map.runs;
    let result = recover(&copy, geometry.block_size, geometry.blocks_count, runs);
    Ok(result.is_ok())
}

fn update_checksum(log: &mut JournalSuperblock) {
    if log.checksum_version() >= 2 {
        log.s_checksum = log.checksum().into();
    }
}

fn put_log_superblock(
    volume: &Volume,
    map: &Map,
    log: &JournalSuperblock,
    cause: Cause,
) -> Result<()> {
    let mut log = *log;
    update_checksum(&mut log);
    let Some(first) = map.runs.first() else {
        return Ok(());
    };
    volume.overlay().update(first.start, cause, |bytes| {
        bytes[..log.as_bytes().len()].copy_from_slice(log.as_bytes());
    })
}

/// Stores `i_blocks` of a file of so many blocks.
fn set_blocks(volume: &Volume, inode: &mut RawInode, blocks: u64) {
    let sectors = blocks << (volume.geometry().block_size.log2() - 9);
    inode.i_blocks_lo = lo32(sectors).into();
    // At most 10,240,000 blocks of 128 sectors.
    inode.i_blocks_high = uext4_ondisk::num::lo16(hi32(sectors)).into();
}
