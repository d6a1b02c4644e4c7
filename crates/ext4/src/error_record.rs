//! Errors met while a file system is in use, recorded in its superblock as the kernel's ext4
//! records them, and what damage leads to (`errors=`).
//!
//! Damage is noted where it is met, under whatever locks, and acted upon where an operation ends
//! and holds none, or by the next tick: the record is committed with everything that was complete
//! before, and with `errors=remount-ro` the journal is aborted then. A change that damage left
//! half-done has aborted the journal already, and what is aborted records nothing more.

use std::sync::atomic::Ordering::Relaxed;

use uext4_ondisk::superblock::{ERR_EFSCORRUPTED, STATE_ERROR};
use uext4_ondisk::{Damage, Ino, Pblk};

use crate::error::{Error, Result};
use crate::lock_order::{Held, Rank};
use crate::mount_limits::OnDamage;
use crate::rw::Rw;
use crate::sbi::Sbi;

/// One error as the superblock records it.
pub(crate) struct Record {
    /// What met it.
    pub(crate) func: &'static [u8],
    /// One of the codes of the format.
    pub(crate) code: u8,
    /// The inode and the block it was met in, where that is known.
    pub(crate) ino: Option<Ino>,
    pub(crate) block: Option<Pblk>,
}

/// Puts an error into the superblock, which the next commit writes: whoever opens the file system
/// for writing is told to check it.
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
    // The low 32 bits, and the next 8.
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

/// Passes a result on; where it says that the image is damaged, that is recorded. Takes the
/// superblock's lock alone.
///
/// Those of `result`.
pub(crate) fn noted<T>(sbi: &Sbi, ino: Ino, result: Result<T>) -> Result<T> {
    if let Err(error) = &result
        && let Some(damage) = error.damage()
        && let Some(rw) = sbi.rw()
        && !rw.journal.is_aborted()
    {
        let (ino, block) = (Some(ino), block_of(damage));
        record(
            rw,
            &Record {
                func: b"uext4",
                code: ERR_EFSCORRUPTED,
                ino,
                block,
            },
        );
        *rw.damage.lock() = Some(damage.to_string());
        rw.has_damage.store(true, Relaxed);
    }
    result
}

/// The same at the end of an operation, where no lock and no handle is held: acts upon it, too.
///
/// Those of `result`.
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

/// Does what `errors=` says about damage that was noted and not acted upon yet.
pub(crate) fn act(sbi: &Sbi) {
    let Some(rw) = sbi.rw() else { return };
    if !rw.has_damage.load(Relaxed) || !rw.has_damage.swap(false, Relaxed) {
        return;
    }
    let Some(damage) = rw.damage.lock().take() else {
        return;
    };
    let policy = rw.limits.on_damage(sbi.superblock());
    // A commit waits for all handles, and those may wait for inodes.
    drop(Held::new(Rank::Handle));
    // Damage that is met again and again costs no commit each time.
    let is_first = !rw.was_damaged.swap(true, Relaxed);
    if is_first || policy == OnDamage::RemountReadOnly {
        // What fails has aborted the journal.
        _ = rw.journal.commit_now(sbi);
    }
    if policy == OnDamage::RemountReadOnly {
        let reason = format!("the image is damaged: {damage} (errors=remount-ro)");
        rw.journal.abort(&reason);
    }
}

/// The block that a damage names.
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

impl Error {
    /// The damage that it reports.
    fn damage(&self) -> Option<&Damage> {
        match self {
            Self::Corrupt(damage) => Some(damage),
            Self::Shared(error) => error.damage(),
            _ => None,
        }
    }
}
