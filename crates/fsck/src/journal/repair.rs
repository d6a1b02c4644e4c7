//! What is written to mend the journal, once descriptors are right.

use std::mem::offset_of;

use uext4_ondisk::checksum::crc32c;
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::journal::{
    BlockType, JBD2_MAGIC, JOURNAL_SUPERBLOCK_LEN, JournalHeader, JournalIncompat,
    JournalSuperblock, MIN_JOURNAL_BLOCKS,
};
use uext4_ondisk::num::{hi32, index, lo32};
use uext4_ondisk::superblock::{JNL_BACKUP_BLOCKS, STATE_ERROR, SuperBlock};
use uext4_ondisk::{GroupNr, Ino};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use super::{Found, Judged, Source, backup_of, find, is_external, judge};
use super::{put_log_superblock, set_blocks};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::JournalProblem;
use crate::report::{Cause, Findings};
use crate::volume::{Volume, is_clear};

/// Bytes of a journal's superblock of the first version.
const VERSION_ONE_LEN: usize = 0x24;

/// Judges the journal, and mends everything but what needs new blocks: see [`super::recreate`].
///
/// # Errors
/// [`crate::Error::Features`]; of the device and of the overlay.
pub fn mend(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let superblock = volume.superblock();
    let features = superblock.features();
    let has_journal = features.compat.contains(Compat::HAS_JOURNAL);
    if has_journal && is_external(&superblock) {
        return Ok(());
    }
    uuid(volume, &superblock, findings)?;
    if !has_journal {
        return without_journal(volume, &superblock, findings);
    }
    let Some(mut found) = find(volume)? else {
        return lost(volume, &superblock, findings);
    };
    number_and_inode(volume, &superblock, &mut found, findings)?;
    log(volume, &found, findings)?;
    if superblock.s_jnl_backup_type != JNL_BACKUP_BLOCKS
        || superblock.s_jnl_blocks != backup_of(&found.inode)
    {
        let finding = Finding::new(JournalProblem::NotBackedUp, Place::inode(found.ino));
        let cause = findings.report(finding);
        volume.update_superblock(cause, |superblock| {
            superblock.s_jnl_backup_type = JNL_BACKUP_BLOCKS;
            superblock.s_jnl_blocks = backup_of(&found.inode);
        })?;
    }
    Ok(())
}

/// Clears the UUID of a journal that is not on another device. The kernel does not look at it;
/// e2fsck looks for the device, and refuses to go on without.
fn uuid(volume: &Volume, superblock: &SuperBlock, findings: &Findings<'_>) -> Result<()> {
    if superblock.s_journal_uuid == [0; 16] {
        return Ok(());
    }
    let finding = Finding::new(JournalProblem::Uuid, Place::whole());
    let cause = findings.report(finding);
    volume.update_superblock(cause, |superblock| superblock.s_journal_uuid = [0; 16])
}

fn without_journal(
    volume: &Volume,
    superblock: &SuperBlock,
    findings: &Findings<'_>,
) -> Result<()> {
    let features = superblock.features();
    if features.incompat.contains(Incompat::RECOVER) {
        let finding = Finding::new(JournalProblem::RecoverWithoutJournal, Place::whole());
        clear_recover(volume, findings.report(finding))?;
    }
    let inum = superblock.s_journal_inum.get();
    if inum == 0 {
        return Ok(());
    }
    let finding = Finding::new(JournalProblem::WithoutFeature, Place::whole()).found(inum);
    let cause = findings.report(finding);
    volume.update_superblock(cause, |superblock| {
        superblock.s_journal_inum = 0.into();
        superblock.s_journal_dev = 0.into();
        superblock.s_jnl_backup_type = 0;
        superblock.s_jnl_blocks = [U32::ZERO; 17];
    })?;
    match inum == Ino::JOURNAL.0 {
        true => volume.update_inode(Ino::JOURNAL, cause, |bytes| bytes.fill(0)),
        false => Ok(()),
    }
}

fn clear_recover(volume: &Volume, cause: Cause) -> Result<()> {
    volume.update_superblock(cause, |superblock| {
        let mut features = superblock.features();
        features.incompat.remove(Incompat::RECOVER);
        superblock.set_features(features);
    })
}

/// No inode can be the journal: the usual one is cleared, and a new journal is made later.
fn lost(volume: &Volume, superblock: &SuperBlock, findings: &Findings<'_>) -> Result<()> {
    let inum = Ino(superblock.s_journal_inum.get());
    let bytes = volume.read_inode(Ino::JOURNAL)?.unwrap_or_default();
    let is_clear = inum == Ino::JOURNAL && is_clear(&bytes);
    if is_clear && !superblock.features().incompat.contains(Incompat::RECOVER) {
        // A new journal could not be made in an earlier round, or it never was one.
        return Ok(());
    }
    let cause = findings.report(Finding::new(JournalProblem::Inode, Place::inode(inum)));
    volume.update_superblock(cause, |superblock| {
        superblock.s_journal_inum = Ino::JOURNAL.0.into();
        superblock.s_jnl_backup_type = 0;
        superblock.s_jnl_blocks = [U32::ZERO; 17];
    })?;
    clear_recover(volume, cause)?;
    volume.update_inode(Ino::JOURNAL, cause, |bytes| bytes.fill(0))
}

/// Stores the number of the journal's inode, if the superblock has another.
///
/// # Errors
/// Of the device and of the overlay.
pub(super) fn number(
    volume: &Volume,
    superblock: &SuperBlock,
    found: &Found,
    findings: &Findings<'_>,
) -> Result<()> {
    let inum = superblock.s_journal_inum.get();
    if inum == found.ino.0 {
        return Ok(());
    }
    let finding = Finding::new(JournalProblem::InodeNumber, Place::whole());
    let cause = findings.report(finding.found(inum).right(found.ino.0));
    volume.update_superblock(cause, |superblock| {
        superblock.s_journal_inum = found.ino.0.into();
    })
}

fn number_and_inode(
    volume: &Volume,
    superblock: &SuperBlock,
    found: &mut Found,
    findings: &Findings<'_>,
) -> Result<()> {
    number(volume, superblock, found, findings)?;
    let device = superblock.s_journal_dev.get();
    if device != 0 {
        // The kernel refuses to mount with two journals.
        let finding = Finding::new(JournalProblem::Device, Place::whole());
        let cause = findings.report(finding.found(device).right(found.ino.0));
        volume.update_superblock(cause, |superblock| superblock.s_journal_dev = 0.into())?;
    }
    if found.source == Source::Backup {
        let finding = Finding::new(JournalProblem::InodeBackup, Place::inode(found.ino));
        let cause = findings.report(finding);
        let blocks = u64::from(found.map.len).saturating_add(found.map.nodes.into());
        set_blocks(volume, &mut found.inode, blocks);
        let inode = found.inode;
        volume.update_inode(found.ino, cause, |bytes| {
            bytes.fill(0);
            inode.store(bytes);
        })?;
    }
    fill_map(volume, found, findings)?;
    size_of_inode(volume, found, findings)
}

/// Stores the numbers of the map that are missing.
fn fill_map(volume: &Volume, found: &Found, findings: &Findings<'_>) -> Result<()> {
    for filled in &found.map.filled {
        let place = Place::inode(found.ino).block(filled.table);
        let finding = Finding::new(JournalProblem::MapHole, place);
        let cause = findings.report(finding.found(filled.found).right(filled.right));
        volume.overlay().update(filled.table, cause, |bytes| {
            let at = filled.index * size_of::<u32>();
            if let Some(number) = bytes.get_mut(at..at + size_of::<u32>()) {
                number.copy_from_slice(&filled.right.to_le_bytes());
            }
        })?;
    }
    Ok(())
}

/// Cuts a size that ends within a block behind the last one: e2fsck misses that block.
fn size_of_inode(volume: &Volume, found: &mut Found, findings: &Findings<'_>) -> Result<()> {
    let block_size = volume.geometry().block_size;
    let inode = &mut found.inode;
    let size = u64::from(inode.i_size_high.get()) << 32 | u64::from(inode.i_size_lo.get());
    let whole = u64::from(found.map.len) << block_size.log2();
    if size <= whole {
        return Ok(());
    }
    let finding = Finding::new(JournalProblem::InodeSize, Place::inode(found.ino));
    let cause = findings.report(finding.found(size).right(whole));
    inode.i_size_lo = lo32(whole).into();
    inode.i_size_high = hi32(whole).into();
    volume.update_raw_inode(found.ino, cause, |raw| {
        raw.i_size_lo = lo32(whole).into();
        raw.i_size_high = hi32(whole).into();
    })
}

/// The journal's own superblock, and the log if it could not be replayed.
fn log(volume: &Volume, found: &Found, findings: &Findings<'_>) -> Result<()> {
    let place = || Place::inode(found.ino);
    let needs_recovery = volume
        .superblock()
        .features()
        .incompat
        .contains(Incompat::RECOVER);
    version_one(volume, found, findings)?;
    let log = match judge(volume, found)? {
        Judged::Right(recovery) => recovery.superblock,
        judged => {
            let problem = match judged {
                Judged::BadLog => JournalProblem::Torn,
                _ => JournalProblem::Damaged,
            };
            let cause = findings.report(Finding::new(problem, place()));
            if needs_recovery {
                findings.empty_log();
            }
            let mut log = empty(volume, found);
            log.s_sequence = fresh_sequence(volume, found)?.into();
            put_log_superblock(volume, &found.map, &log, cause)?;
            return clear_recover(volume, cause);
        }
    };
    if needs_recovery {
        let cause = findings.report(Finding::new(JournalProblem::RecoverOfNothing, place()));
        clear_recover(volume, cause)?;
    }
    let mut log = log;
    short_log(volume, found, &mut log, findings)?;
    let users = log.s_nr_users.get();
    if log.has_features() && users > 1 {
        let cause = findings.report(Finding::new(JournalProblem::Users, place()).found(users));
        log.s_nr_users = 1.into();
        put_log_superblock(volume, &found.map, &log, cause)?;
    }
    if log.s_errno.get() != 0 {
        let errno = log.s_errno.get().cast_signed().unsigned_abs();
        let finding = Finding::new(JournalProblem::Errno, place()).found(errno);
        let cause = findings.report(finding);
        log.s_errno = 0.into();
        put_log_superblock(volume, &found.map, &log, cause)?;
        volume.update_superblock(cause, |superblock| {
            let state = superblock.s_state.get() & !STATE_ERROR;
            superblock.s_state = state.into();
        })?;
    }
    Ok(())
}

/// The kernel refuses a journal whose log is too short because of the blocks for fast commits. Here
/// all of it is taken for the log then, so that none are lost with the feature.
fn short_log(
    volume: &Volume,
    found: &Found,
    log: &mut JournalSuperblock,
    findings: &Findings<'_>,
) -> Result<()> {
    let area = log.fast_commit_blocks();
    if area == 0 || log.s_maxlen.get().saturating_sub(area) >= MIN_JOURNAL_BLOCKS {
        return Ok(());
    }
    let finding = Finding::new(JournalProblem::ShortLog, Place::inode(found.ino));
    let cause = findings.report(finding.found(area).right(MIN_JOURNAL_BLOCKS));
    let features = log.incompat().difference(JournalIncompat::FAST_COMMIT);
    log.s_feature_incompat = features.bits().into();
    log.s_num_fc_blks = 0.into();
    put_log_superblock(volume, &found.map, log, cause)
}

/// Gives the last blocks of an empty journal to fast commits.
///
/// # Errors
/// [`crate::Error::Refused`] if the log has too few blocks left; of the device and of the overlay.
pub fn set_fast_commit_blocks(volume: &Volume, blocks: u32, cause: Cause) -> Result<()> {
    let refused = |what: String| Err(crate::Error::Refused { what });
    let Some(found) = find(volume)? else {
        return refused("the journal is on another device, which is not changed".to_owned());
    };
    let Judged::Right(recovery) = judge(volume, &found)? else {
        return refused("the journal cannot be used".to_owned());
    };
    let mut log = recovery.superblock;
    let len = log.s_maxlen.get();
    if !log.has_features() || len.saturating_sub(blocks) < MIN_JOURNAL_BLOCKS {
        return refused(format!(
            "{blocks} of the {len} blocks of the journal cannot be for fast commits: its log needs \
             {MIN_JOURNAL_BLOCKS}; -O ^has_journal, and then -J size=, makes a larger one"
        ));
    }
    log.s_num_fc_blks = blocks.into();
    put_log_superblock(volume, &found.map, &log, cause)
}

/// A journal of the first version has no fields behind `s_errno`; one that became of the second
/// version may have been left with what stood there.
fn version_one(volume: &Volume, found: &Found, findings: &Findings<'_>) -> Result<()> {
    let Some(first) = found.map.runs.first().map(|run| run.start) else {
        return Ok(());
    };
    let mut block = vec![0; volume.geometry().block_size.len()];
    volume.overlay().read_block(first, &mut block)?;
    let Ok((log, _)) = JournalSuperblock::ref_from_prefix(&block) else {
        return Ok(());
    };
    if log.s_header.h_magic.get() != JBD2_MAGIC {
        return Ok(());
    }
    // The kernel sets features of the journal for these, or does not mount.
    let features = volume.superblock().features();
    let needs_two = features.incompat.contains(Incompat::BIT64) || features.metadata_csum();
    let is_two = log.has_features();
    let from = if is_two {
        // Its checksum, if it has one, says that it was always of the second version.
        let plain = log.incompat().is_empty() && log.compat().is_empty();
        match plain && index(log.s_nr_users.get()) > log.s_users.len() {
            true => offset_of!(JournalSuperblock, s_nr_users),
            false => return Ok(()),
        }
    } else {
        VERSION_ONE_LEN
    };
    let problem = match log.as_bytes()[from..].iter().all(|&byte| byte == 0) {
        false => JournalProblem::VersionOneFields,
        true if !is_two && needs_two => JournalProblem::VersionOne,
        true => return Ok(()),
    };
    let cause = findings.report(Finding::new(problem, Place::inode(found.ino)));
    volume.overlay().update(first, cause, |bytes| {
        bytes[from..JOURNAL_SUPERBLOCK_LEN].fill(0);
        if needs_two && let Ok((log, _)) = JournalSuperblock::mut_from_prefix(bytes) {
            log.s_header.h_blocktype = BlockType::SuperblockV2.code().into();
        }
    })
}

/// The superblock of an empty journal in the blocks of this one.
pub(super) fn empty(volume: &Volume, found: &Found) -> JournalSuperblock {
    let geometry = volume.geometry();
    let mut log = JournalSuperblock::zeroed();
    log.s_header = JournalHeader::new(BlockType::SuperblockV2, 0);
    log.s_blocksize = geometry.block_size.bytes().into();
    let size =
        u64::from(found.inode.i_size_high.get()) << 32 | u64::from(found.inode.i_size_lo.get());
    let blocks = u32::try_from(size >> geometry.block_size.log2()).unwrap_or(u32::MAX);
    log.s_maxlen = blocks.min(found.map.len).into();
    log.s_first = 1.into();
    log.s_sequence = 1.into();
    log.s_nr_users = 1.into();
    log.s_uuid = volume.superblock().s_uuid;
    log
}

/// A number for the first transaction that no block left over from an earlier log carries.
pub(super) fn fresh_sequence(volume: &Volume, found: &Found) -> Result<u32> {
    let mut block = vec![0; volume.geometry().block_size.len()];
    if let Some(first) = found.map.runs.first() {
        volume.overlay().read_block(first.start, &mut block)?;
    }
    Ok(crc32c(!0, &block) | 1)
}

/// The group in which a new journal is best put: the middle of the file system.
pub(super) fn middle(volume: &Volume) -> GroupNr {
    GroupNr(volume.geometry().groups_count.get() / 2)
}
