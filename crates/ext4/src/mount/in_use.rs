//! What the superblock says of how a file system is used: in use, left clean, left with errors.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use uext4_ondisk::features::{Compat, Incompat, RoCompat};
use uext4_ondisk::repair_log::RepairPointer;
use uext4_ondisk::superblock::{ERR_EIO, ERR_ENOSPC, ERR_UNKNOWN, STATE_VALID, SUPERBLOCK_OFFSET};
use zerocopy::IntoBytes;

use crate::base::error::{Error, Result};
use crate::journal::error_record::{self, Record};
use crate::journal::rw::Rw;
use crate::journal::sbi::Sbi;
use crate::journal::space::write_all;

/// What met the error, as it is noted.
const FUNC: &[u8] = b"close";

/// Writes the superblock in place: while in use it is neither valid nor without need of recovery.
pub(crate) fn set_in_use(sbi: &Sbi, in_use: bool) -> Result<()> {
    let rw = sbi.writable()?;
    let (sec, _) = rw.clock.now();
    let has_log = rw.journal.has_log();
    let may_have_orphans = in_use || !rw.orphans.all().is_empty();
    rw.change_superblock(|superblock| {
        let mut features = superblock.features();
        features.incompat.set(Incompat::RECOVER, in_use && has_log);
        let has_file = features.compat.contains(Compat::ORPHAN_FILE);
        let present = has_file && may_have_orphans;
        features.ro_compat.set(RoCompat::ORPHAN_PRESENT, present);
        superblock.set_features(features);
        let valid = superblock.s_state.get() & !STATE_VALID;
        // With a journal the state stays valid: the journal reports.
        let is_valid = !in_use || has_log;
        superblock.s_state = (valid | if is_valid { STATE_VALID } else { 0 }).into();
        let time = (sec as u32, (sec >> 32) as u8);
        (superblock.s_wtime, superblock.s_wtime_hi) = (time.0.into(), time.1);
        if in_use {
            // From now on the superblock is another: a log that is out of date is so for good.
            RepairPointer::take_from(superblock.as_mut_bytes());
            (superblock.s_mtime, superblock.s_mtime_hi) = (time.0.into(), time.1);
            superblock.s_mnt_count = superblock.s_mnt_count.get().wrapping_add(1).into();
        }
    });
    // Written here, it need not be in a transaction.
    let taken = rw.take_superblock();
    let superblock = taken.unwrap_or_else(|| rw.superblock());
    sbi.device()
        .write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
    Ok(rw.journal.flush_device()?)
}

/// Notes that data were lost, as the kernel's ext4 notes errors: any thread that opens the file
/// system for writing is asked to check it. Written with the superblock.
fn note_loss(sbi: &Sbi, error: &Error) -> Result<()> {
    let code = match error {
        error if error.is_no_space() => ERR_ENOSPC,
        Error::Interrupted | Error::Invalid { .. } => ERR_UNKNOWN,
        _ => ERR_EIO,
    };
    let func = FUNC;
    // Which file it was of is known no longer.
    let (ino, block) = (None, None);
    let lost = Record {
        func,
        code,
        ino,
        block,
    };
    error_record::record(sbi.writable()?, &lost);
    Ok(())
}

/// Makes everything durable and marks the file system as cleanly unmounted; with errors where
/// data were lost. What ended all writing before leaves it as after a power cut.
pub(crate) fn close(sbi: &Sbi, seen: &AtomicU64) -> Result<()> {
    let rw = sbi.writable()?;
    rw.is_left.store(true, Relaxed);
    // The flushers end first: one that wrote after the last commit would change the metadata of
    // a file system that is marked as clean.
    stop_threads(rw);
    // The end is durable, whatever was not before.
    let was_off = rw.journal.barrier().enable();
    let written = write_all(sbi, rw, seen);
    // Also what this last writing met.
    _ = error_record::settle(sbi);
    if was_off {
        // Also what was put in its place while nothing waited for flushes.
        rw.journal.flush_device()?;
    }
    rw.allocator.discard_all();
    rw.journal.flush(sbi)?;
    rw.settle_freed(sbi);
    if let Err(error) = &written {
        note_loss(sbi, error)?;
    }
    // The superblock says "clean" only after everything is at its home location and flushed; the
    // MMP block frees the file system for other hosts only after that.
    set_in_use(sbi, false)?;
    if let Some(mmp) = rw.mmp() {
        mmp.release(&*rw.clock)?;
    }
    // A thread that still has an inode open must not write to what is marked as clean.
    rw.journal.end(&"the file system was closed");
    *rw.claim.lock() = None;
    written
}

/// Ends the threads of a file system; what they did is done by those that use it from now on.
pub(crate) fn stop_threads(rw: &Rw) {
    rw.discards.set_waker(None);
    let threads = std::mem::take(&mut *rw.background.lock());
    drop(threads);
    rw.pages.cancel_writers();
    rw.pages.stop_flushers();
}

/// Notes that a file system is open for writing: from now on what its users leave is written.
pub(crate) fn opened(sbi: &Sbi) -> Result<()> {
    sbi.writable()?.is_left.store(false, Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock};
    use uext4_ondisk::superblock::{STATE_ERROR, SuperBlock};

    use super::*;
    use crate::Creation;
    use crate::NewInode;
    use crate::Volume;
    use crate::mount::open_options::OpenOptions;
    use crate::testing::{e2fsck, mke2fs};

    /// A device that writes metadata, and no data while it is not to.
    #[derive(Debug)]
    struct NoData(Arc<MemoryDevice>, AtomicBool);

    impl BlockDevice for NoData {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::result::Result<(), DeviceError> {
            self.0.read_at(offset, buf)
        }

        fn write_at(&self, offset: u64, buf: &[u8]) -> std::result::Result<(), DeviceError> {
            match self.1.load(Relaxed) && buf.starts_with(b"data") {
                true => Err(DeviceError::Io {
                    op: "write",
                    offset,
                    source: std::io::Error::other("injected"),
                }),
                false => self.0.write_at(offset, buf),
            }
        }

        fn flush(&self) -> std::result::Result<(), DeviceError> {
            self.0.flush()
        }

        fn discard(&self, offset: u64, len: u64) -> std::result::Result<(), DeviceError> {
            self.0.discard(offset, len)
        }
    }

    fn open(device: &Arc<NoData>) -> Result<Volume> {
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        Volume::open(Arc::<NoData>::clone(device), clock, &OpenOptions::default())
    }

    #[test]
    fn data_that_were_lost_are_noted_as_an_error() {
        let memory = mke2fs("-t ext4", 8192);
        let device = Arc::new(NoData(Arc::clone(&memory), AtomicBool::new(true)));
        let fs = open(&device).unwrap();
        let root = fs.root().unwrap();
        let file = root.create(b"file", NewInode::File, &Creation::default());
        file.unwrap().write_at(0, &b"data".repeat(1024)).unwrap();
        assert!(fs.close().is_err());
        drop(fs);
        let mut superblock = [0; size_of::<SuperBlock>()];
        memory.read_at(SUPERBLOCK_OFFSET, &mut superblock).unwrap();
        let superblock = SuperBlock::parse(&superblock).unwrap();
        assert_eq!(superblock.s_state.get(), STATE_VALID | STATE_ERROR);
        assert_eq!(superblock.s_error_count.get(), 1);
        assert_eq!(superblock.s_last_error_time.get(), 1_700_000_000);
        assert_eq!(superblock.s_first_error_errcode, ERR_EIO);
        assert!(superblock.s_last_error_func.starts_with(b"close\0"));
        // The file system itself is as it should be, and the next mount does not forget it.
        e2fsck(&memory);
        device.1.store(false, Relaxed);
        let fs = open(&device).unwrap();
        assert_eq!(fs.superblock().s_state.get() & STATE_ERROR, STATE_ERROR);
        fs.close().unwrap();
    }
}
