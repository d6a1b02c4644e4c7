//! The journal of a file system that was not unmounted: where it lies, and what it changes.
//!
//! The log itself is read by `uext4_jbd2`, which knows no inodes. Nothing is written: for a
//! reader whole transactions become a device that reads as if they had been replayed, and fast
//! commits an overlay in [`Disk`]. A writer's journal replays the log on the device, and `replay`
//! the fast commits.

use std::sync::Arc;

use uext4_jbd2::{LogRun, Recovery, ReplayedDevice};
use uext4_ondisk::fast_commit::{Record, committed_records};
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::{Damage, Ino, Lblk};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::fast_commit::ReplaySummary;
use crate::base::mapping::MapState;
use crate::inode::iget;
use crate::map::MapCursor;
use uext4_ondisk::fast_commit::FastCommit;

/// Bytes of fast commits that are read, at most: 64 times what mke2fs sets aside.
const FAST_COMMIT_MAX: u64 = 64 << 20;

/// Pieces of a journal, at most; there is mostly one.
const RUNS_MAX: usize = 1 << 16;

/// Whether there is a journal to look into: the superblock says so, or it is a backup, which the
/// kernel never reports.
pub(crate) fn needs_recovery(disk: &Disk, from_backup: bool) -> bool {
    let features = disk.geometry().features;
    let dirty = features.incompat.contains(Incompat::RECOVER);
    features.compat.contains(Compat::HAS_JOURNAL) && (dirty || from_backup)
}

/// Finds what the journal of a file system, mounted without it, would replay. `None` if the
/// journal is not in it and the file system is a backup's view, of which one cannot report.
pub(crate) fn recover(disk: &Disk) -> Result<Option<Recovery>> {
    let superblock = disk.superblock();
    let ino = Ino(superblock.s_journal_inum.get());
    if ino.0 == 0 {
        if !disk
            .geometry()
            .features
            .incompat
            .contains(Incompat::RECOVER)
        {
            return Ok(None);
        }
        return Err(Error::Unsupported {
            what: "an external journal that must be replayed".to_owned(),
        });
    }
    let runs = journal_runs(disk, ino)?;
    let geometry = disk.geometry();
    let (size, count) = (geometry.block_size, geometry.blocks_count);
    Ok(Some(uext4_jbd2::recover(
        &**disk.device(),
        size,
        count,
        &runs,
    )?))
}

/// Where the journal lies that a file system with one must have, to write to it.
pub(crate) fn runs(disk: &Disk) -> Result<Vec<LogRun>> {
    match disk.superblock().s_journal_inum.get() {
        0 => Err(Error::Unsupported {
            what: "writing with an external journal".to_owned(),
        }),
        ino => journal_runs(disk, Ino(ino)),
    }
}

/// The outcome of the fast commits that wait in the journal of a file system mounted without it, if
/// any do: they must be redone before the log is begun anew.
pub(crate) fn waiting_fast_commits(disk: &Disk) -> Result<Option<FastCommit>> {
    if !needs_recovery(disk, false) {
        return Ok(None);
    }
    let Some(recovery) = recover(disk)? else {
        return Ok(None);
    };
    let area = fast_commit_area(disk, &recovery)?;
    let records = records_in(disk, &recovery, &area)?;
    Ok((!records.is_empty()).then(|| FastCommit::new(&records)))
}

/// Where the blocks of the journal file lie, in order.
fn journal_runs(disk: &Disk, ino: Ino) -> Result<Vec<LogRun>> {
    let inode = iget(disk, ino)?;
    let bad = |field, value: u64, why| {
        Error::Corrupt(Damage::InodeField {
            ino,
            field,
            value,
            why,
        })
    };
    let blocks = inode.size >> disk.geometry().block_size.log2();
    let end = u32::try_from(blocks)
        .ok()
        .filter(|_| blocks <= disk.geometry().blocks_count)
        .ok_or_else(|| {
            bad(
                "i_size",
                inode.size,
                "the journal is larger than the file system",
            )
        })?;
    let mut runs = Vec::new();
    let mut cursor = MapCursor::default();
    let mut next = 0;
    while next < end {
        let run = cursor.map(disk, &inode, Lblk(next), end - next)?;
        if run.state != MapState::Written {
            return Err(bad("logical block", next.into(), "the journal has a hole"));
        }
        next = run.end();
        match runs.last_mut() {
            Some(LogRun { start, len }) if start.0 + u64::from(*len) == run.pblk.0 => {
                *len += run.len;
            }
            _ => runs.push(LogRun {
                start: run.pblk,
                len: run.len,
            }),
        }
        if runs.len() > RUNS_MAX {
            return Err(bad(
                "logical block",
                next.into(),
                "the journal is in too many pieces",
            ));
        }
    }
    Ok(runs)
}

/// The first `blocks` blocks of runs of which none continues the one before it.
pub(crate) fn first_blocks(runs: &[LogRun], blocks: u32) -> Vec<LogRun> {
    let mut left = blocks;
    let mut first = Vec::new();
    for run in runs {
        let len = run.len.min(left);
        left -= len;
        if len > 0 {
            first.push(LogRun { len, ..*run });
        }
    }
    first
}

/// The device as it reads after the replay.
pub(crate) fn replayed_device(disk: &Disk, recovery: &Recovery) -> ReplayedDevice {
    let size = disk.geometry().block_size;
    ReplayedDevice::new(Arc::clone(disk.device()), size, recovery.replay.clone())
}

/// Lays the fast commits over `disk`, which is mounted on the replayed device, and sums up.
pub(crate) fn apply_fast_commits(disk: &mut Disk, recovery: &Recovery) -> Result<ReplaySummary> {
    let area = fast_commit_area(disk, recovery)?;
    let records = records_in(disk, recovery, &area)?;
    let summary = ReplaySummary {
        transactions: recovery.transactions,
        blocks: recovery.replay.len(),
        fast_commit_records: records.len(),
        failed_commit: recovery.failed_commit,
    };
    if !records.is_empty() {
        let overlay = FastCommit::new(&records);
        disk.set_fast_commit(overlay);
    }
    Ok(summary)
}

/// The blocks of the fast-commit area.
fn fast_commit_area(disk: &Disk, recovery: &Recovery) -> Result<Vec<u8>> {
    let blocks = &recovery.fast_commit;
    if (blocks.len() as u64) << disk.geometry().block_size.log2() > FAST_COMMIT_MAX {
        return Err(Error::Unsupported {
            what: "more than 64 MiB of fast commits".to_owned(),
        });
    }
    let len = disk.block_len();
    let mut area = vec![0; blocks.len() * len];
    for (block, bytes) in blocks.iter().zip(area.chunks_exact_mut(len)) {
        disk.check_range("journal", *block, 1)?;
        disk.device().read_at(disk.byte_offset(*block), bytes)?;
    }
    Ok(area)
}

/// The committed records of a fast-commit area.
fn records_in<'a>(disk: &Disk, recovery: &Recovery, area: &'a [u8]) -> Result<Vec<Record<'a>>> {
    let blocks = area.chunks_exact(disk.block_len());
    let inode_size = disk.geometry().inode_size;
    Ok(committed_records(
        blocks,
        recovery.next_sequence,
        inode_size,
    )?)
}
