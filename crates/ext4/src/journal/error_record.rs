//! Records errors found in use in the superblock, as the kernel's ext4 does, and applies the
//! `errors=` policy to damage.
//!
//! Damage and unreadable metadata are noted where they are found, under any locks
//! ([`crate::base::disk::Writing::met`]). They are handled where an operation ends and holds no
//! lock, or by the next tick: the record is committed with all changes that were complete before,
//! and with `errors=remount-ro` the journal is aborted then. A change that an error left
//! half-done has aborted the journal already: its record is written in place, and the error is
//! also stored in the journal's superblock, because a replay restores an older file system
//! superblock.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use uext4_ondisk::superblock::{
    ERR_EFSCORRUPTED, ERR_EIO, STATE_ERROR, SUPERBLOCK_OFFSET, SuperBlock,
};
use uext4_ondisk::{Damage, Ino, Pblk};
use zerocopy::IntoBytes;

use crate::base::error::{Error, Result};
use crate::base::lock_order::{Held, Rank};
use crate::journal::mount_limits::OnDamage;
use crate::journal::rw::{Met, Rw};
use crate::journal::sbi::Sbi;

/// One error as the superblock stores it.
pub(crate) struct Record {
    /// The function that found it.
    pub(crate) func: &'static [u8],
    /// One of the codes of the format.
    pub(crate) code: u8,
    /// The inode and the block where it was found, if known.
    pub(crate) ino: Option<Ino>,
    pub(crate) block: Option<Pblk>,
}

/// Stores an error in the superblock, which the next commit writes. Commands that open the file
/// system for writing report that it should be checked.
pub(crate) fn record(rw: &Rw, record: &Record) {
    let (sec, _) = rw.clock.now();
    let mut func = [0; 32];
    for (to, from) in func.iter_mut().zip(record.func) {
        *to = *from;
    }
    let (ino, block) = (
        record.ino.map_or(0, |ino| ino.0),
        record.block.map_or(0, |block| block.0),
    );
    // The low 32 bits and the next 8 bits.
    let (time, time_hi) = (sec as u32, (sec >> 32) as u8);
    rw.change_superblock(|sb| {
        sb.s_state = (sb.s_state.get() | STATE_ERROR).into();
        let count = sb.s_error_count.get();
        sb.s_error_count = count.saturating_add(1).into();
        sb.s_last_error_func = func;
        sb.s_last_error_errcode = record.code;
        (sb.s_last_error_time, sb.s_last_error_time_hi) = (time.into(), time_hi);
        sb.s_last_error_ino = ino.into();
        sb.s_last_error_block = block.into();
        sb.s_last_error_line = 0.into();
        if count == 0 {
            sb.s_first_error_func = func;
            sb.s_first_error_errcode = record.code;
            (sb.s_first_error_time, sb.s_first_error_time_hi) = (time.into(), time_hi);
            sb.s_first_error_ino = ino.into();
            sb.s_first_error_block = block.into();
            sb.s_first_error_line = 0.into();
        }
    });
}

/// The errno values that are stored in the journal's superblock.
const EIO: u32 = 5;
const EUCLEAN: u32 = 117;

/// Returns the result unchanged; an error that means a damaged image is noted.
pub(crate) fn noted<T>(sbi: &Sbi, ino: Ino, result: Result<T>) -> Result<T> {
    result.inspect_err(|error| sbi.note(Some(ino), error))
}

/// Like [`noted`], at the end of an operation, where no lock and no handle is held: also handles
/// the error.
pub(crate) fn met<T>(sbi: &Sbi, ino: Ino, result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => Ok(value),
        error => {
            let error = noted(sbi, ino, error);
            act(sbi);
            error
        }
    }
}

/// Like [`met`], for an inode number or a path given by the caller: that the inode does not
/// exist, or no longer exists where the path leads, is not damage.
pub(crate) fn met_by_caller<T>(sbi: &Sbi, ino: Option<Ino>, result: Result<T>) -> Result<T> {
    if let Err(error) = &result {
        if !error.is_no_inode(ino.is_some()) {
            sbi.note(ino, error);
        }
        act(sbi);
    }
    result
}

/// Notes that an error has left a change half-done, before writing is ended for that reason.
pub(crate) fn half_done(sbi: &Sbi, error: &Error) {
    let Some(rw) = sbi.rw() else { return };
    let is_read = matches!(error, Error::Device(_));
    if !rw.journal.is_aborted() && (is_read || error.damage().is_some()) {
        rw.note_half_done(error);
    }
}

/// Applies the `errors=` policy to errors that were noted and not handled yet.
pub(crate) fn act(sbi: &Sbi) {
    let Some(rw) = sbi.rw() else { return };
    if !rw.has_damage.load(Relaxed) {
        return;
    }
    // A commit waits for all handles, and the threads that hold them may wait for inode locks.
    drop(Held::new(Rank::Handle));
    let Some(last) = settle(sbi) else { return };
    let policy = rw.limits.on_damage(sbi.superblock());
    // Repeated damage does not cost a commit each time.
    let is_first = !rw.was_damaged.swap(true, Relaxed);
    if is_first || policy == OnDamage::RemountReadOnly {
        // If the commit fails, it has aborted the journal.
        _ = rw.journal.commit_now(sbi);
    }
    if policy == OnDamage::RemountReadOnly {
        let reason = match &last.damage {
            Some(damage) => format!("the image is damaged: {damage} (errors=remount-ro)"),
            None => "metadata cannot be read (errors=remount-ro)".to_owned(),
        };
        rw.journal.abort(&reason);
    }
}

/// Records the noted errors; the next commit makes them durable. `None` if there are none, or if
/// writing has ended: then they are written in place.
pub(crate) fn settle(sbi: &Sbi) -> Option<Met> {
    let rw = sbi.rw()?;
    if !rw.has_damage.swap(false, Relaxed) {
        return None;
    }
    let mut all = std::mem::take(&mut *rw.damage.lock());
    if rw.is_half_done.swap(false, AcqRel) {
        // Prefer an error with a known inode. Another thread may have recorded all in memory
        // already.
        let known = all.iter().find(|met| met.ino.is_some()).or(all.first());
        if let Some(met) = known {
            record(rw, &of(met));
        }
        let errno = match known {
            Some(Met {
                damage: Some(_), ..
            }) => EUCLEAN,
            _ => EIO,
        };
        if let Err(error) = record_in_place(sbi, rw, errno) {
            tracing::error!(%error, "an error could not be recorded on the device");
        }
    } else if !rw.journal.is_aborted() {
        all.iter().for_each(|met| record(rw, &of(met)));
        return all.pop();
    }
    None
}

/// Converts a noted error to its record.
fn of(met: &Met) -> Record {
    let damage = met.damage.as_ref();
    Record {
        func: b"uext4",
        code: match damage {
            Some(_) => ERR_EFSCORRUPTED,
            None => ERR_EIO,
        },
        ino: met.ino,
        block: met.unread.or_else(|| damage.and_then(block_of)),
    }
}

/// Writes the records in place when no commit will do so: into the superblock on the device and
/// into that of the journal; each write is tried even if the other fails.
fn record_in_place(sbi: &Sbi, rw: &Rw, errno: u32) -> Result<()> {
    // Not while a commit or a checkpoint writes the block: it would write older bytes, or receive
    // them.
    let (written, noted) = rw.journal.note_errno_after(errno, || -> Result<()> {
        let device = sbi.device();
        let mut bytes = [0; size_of::<SuperBlock>()];
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let mut superblock = SuperBlock::parse(&bytes)?;
        carry_over(&rw.superblock(), &mut superblock);
        superblock.update_checksum();
        device.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
        Ok(device.flush()?)
    });
    written?;
    Ok(noted?)
}

/// Copies the error records if `from` has more of them.
pub(crate) fn carry_over(from: &SuperBlock, to: &mut SuperBlock) {
    to.s_state = (to.s_state.get() | from.s_state.get() & STATE_ERROR).into();
    if from.s_error_count.get() <= to.s_error_count.get() {
        return;
    }
    to.s_error_count = from.s_error_count;
    to.s_first_error_time = from.s_first_error_time;
    to.s_first_error_time_hi = from.s_first_error_time_hi;
    to.s_first_error_ino = from.s_first_error_ino;
    to.s_first_error_block = from.s_first_error_block;
    to.s_first_error_func = from.s_first_error_func;
    to.s_first_error_line = from.s_first_error_line;
    to.s_first_error_errcode = from.s_first_error_errcode;
    to.s_last_error_time = from.s_last_error_time;
    to.s_last_error_time_hi = from.s_last_error_time_hi;
    to.s_last_error_ino = from.s_last_error_ino;
    to.s_last_error_block = from.s_last_error_block;
    to.s_last_error_func = from.s_last_error_func;
    to.s_last_error_line = from.s_last_error_line;
    to.s_last_error_errcode = from.s_last_error_errcode;
}

/// The block that a damage refers to.
fn block_of(damage: &Damage) -> Option<Pblk> {
    match damage {
        Damage::BlockRange { start: block, .. }
        | Damage::BlockChecksum { block, .. }
        | Damage::NoChecksum { block, .. }
        | Damage::XattrHeader { block, .. }
        | Damage::DescLocation { block, .. } => Some(*block),
        Damage::ExtentHeader { block, .. }
        | Damage::ExtentOrder { block, .. }
        | Damage::DirEntry { block, .. } => *block,
        _ => None,
    }
}
