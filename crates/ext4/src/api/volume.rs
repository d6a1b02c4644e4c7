//! A file system that is written: every method is one call into the module that does the work.

use std::fmt::Display;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uext4_blockdev::{BlockDevice, Clock};
use uext4_ondisk::Ino;
use uext4_ondisk::quota::QuotaKind;

use crate::api::image::Image;
use crate::api::in_use::InUse;
use crate::api::open_inode::OpenInode;
use crate::base::caller::Caller;
use crate::base::error::Result;
use crate::file::quota_change;
use crate::inode::dquot::QuotaLimits;
use crate::journal::fitrim;
use crate::journal::label;
use crate::journal::rw::{AccessTimes, Rw};
use crate::mount::background;
use crate::mount::in_use;
use crate::mount::leave::Users;
use crate::mount::open_options::{Background, OpenOptions};
use crate::mount::super_;

/// A file system opened for reading and writing; it gives all that an [`Image`] does too. Clones
/// share all state and may be used by many threads; each clone reports data lost in writing back
/// once ([`Volume::sync`]).
///
/// The last clone closes the file system if [`Volume::close`] was not called; while an [`Image`]
/// of it is still in use, it stays marked as in use until that is dropped, too.
#[derive(Debug)]
pub struct Volume {
    image: Image,
    /// The caller that its operations are for.
    caller: Caller,
    /// Losses of data that this clone has reported.
    seen: AtomicU64,
    /// Closes the file system when the last clone is dropped.
    users: Arc<Users>,
}

impl Clone for Volume {
    fn clone(&self) -> Self {
        Self {
            image: self.image.clone(),
            caller: self.caller,
            seen: AtomicU64::new(self.seen.load(Relaxed)),
            users: Arc::clone(&self.users),
        }
    }
}

impl Deref for Volume {
    type Target = Image;

    fn deref(&self) -> &Image {
        &self.image
    }
}

impl Volume {
    /// Opens a file system for reading and writing. Its journal is replayed on the device, fast
    /// commits included, files whose deletion was interrupted are deleted, and the file system is
    /// marked as in use until [`Volume::close`].
    ///
    /// Until then the device is claimed: the same image is not opened for writing twice, neither by
    /// this process nor by another one. Threads commit every 5 seconds and write old data back by
    /// themselves, unless [`OpenOptions::background`] says otherwise.
    ///
    /// # Errors
    /// As [`Image::open`]; [`crate::Error::Device`] if the device is in use;
    /// [`crate::Error::Unsupported`] naming the features that cannot be written, or for fast
    /// commits that take more than one transaction; [`crate::Error::NoSpace`] if there is none for
    /// the maps and directories that these need; [`crate::Error::ReadOnly`] for a device that takes
    /// no writes.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let has_threads = match options.background {
            Background::Auto => !clock.is_virtual(),
            Background::Threads => true,
            Background::None => false,
        };
        let sbi = Arc::new(super_::open_rw(device, clock, options)?);
        let volume = Self {
            users: Users::new(&sbi),
            caller: Caller::default(),
            seen: AtomicU64::new(0),
            image: Image { sbi },
        };
        super_::adopt_orphans(&volume.sbi)?;
        in_use::opened(&volume.sbi)?;
        if has_threads {
            volume.start_background()?;
        }
        Ok(volume)
    }

    /// The same file system as a reader sees it.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// What writing adds to the mounted state.
    fn rw(&self) -> &Rw {
        // OK to unwrap: it was opened for writing, which is never undone.
        self.sbi.rw().unwrap()
    }

    /// This file system for `caller`: what is done by it, and by inodes opened by it, is on behalf
    /// of this caller, who may be refused the blocks reserved for the superuser. [`Volume::open`]
    /// returns that of the superuser.
    #[must_use]
    pub fn as_caller(&self, caller: Caller) -> Self {
        Self {
            caller,
            ..self.clone()
        }
    }

    /// One more user of an inode.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if there is none, or it is being deleted or was; damage, device
    /// errors.
    pub fn open_inode(&self, ino: Ino) -> Result<OpenInode> {
        self.in_use().open(ino)
    }

    pub(crate) fn in_use(&self) -> InUse<'_> {
        InUse {
            sbi: &self.image.sbi,
            caller: self.caller,
        }
    }

    /// The root directory.
    ///
    /// # Errors
    /// As [`Volume::open_inode`].
    pub fn root(&self) -> Result<OpenInode> {
        self.open_inode(Ino::ROOT)
    }

    /// Makes everything durable that was done so far.
    ///
    /// # Errors
    /// Errors of writing data; else, that data of some file were given up since this clone reported
    /// that last, after writing them had failed too often. Errors of the commit, device errors.
    pub fn sync(&self) -> Result<()> {
        super_::sync(&self.sbi, &self.seen)
    }

    /// Makes everything durable and leaves nothing in the journal: every block is at its final
    /// place.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn checkpoint(&self) -> Result<()> {
        super_::checkpoint(&self.sbi, &self.seen)
    }

    /// Makes everything durable and marks the file system as cleanly unmounted. Inodes still in use
    /// stay usable, but nothing should be changed any more.
    ///
    /// # Errors
    /// As [`Volume::sync`]. Where data were lost that is noted in the superblock, so that e2fsck
    /// checks the file system; after other errors it is as if it had not been closed.
    pub fn close(&self) -> Result<()> {
        in_use::close(&self.sbi, &self.seen)
    }

    /// Inodes in use without a name, and those that are being deleted or truncated.
    pub fn unlinked(&self) -> usize {
        self.rw().orphans.len()
    }

    /// Ends all writing as after an error, without making anything durable first: as
    /// `EXT4_IOC_SHUTDOWN` for the reason "it was shut down". Later changes fail with
    /// [`crate::Error::Aborted`], which gives the reason.
    pub fn abort(&self, reason: &dyn Display) {
        self.rw().journal.abort(reason);
    }

    /// Has `hook` called with the reason when an error ends all writing, so that it can be logged.
    /// It may be called with locks held: it must not use the file system. Only the first hook
    /// counts.
    pub fn on_abort(&self, hook: impl Fn(&str) + Send + Sync + 'static) {
        self.rw().journal.on_abort(hook);
    }

    /// Which times of access are noted from now on; at first those relative to changes.
    pub fn note_access(&self, times: AccessTimes) {
        self.rw().note_access(times);
    }

    /// Starts the threads that do what [`Volume::tick`] does, until [`Volume::close`]; nothing if
    /// they run. [`Volume::open`] does this already, unless [`OpenOptions::background`] says
    /// otherwise: for programs that fork between opening and using a file system.
    ///
    /// # Errors
    /// [`crate::Error::NoThreads`] if the system can start no thread.
    pub fn start_background(&self) -> Result<()> {
        background::start_background(&self.sbi)
    }

    /// Does what is due now: commits changes that are old enough, checkpoints a journal that fills,
    /// writes old dirty pages. To be called every second or so where no threads run
    /// ([`Background::None`]).
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn tick(&self) -> Result<()> {
        super_::tick(&self.sbi)
    }

    /// Discards all free runs of at least `min_len` bytes in `range`, in bytes, as FITRIM does, and
    /// returns the bytes discarded. Left out are blocks freed since the last commit and those
    /// preallocated for files.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a range that begins past the end, or a length of more than a
    /// group; damage of a bitmap, device errors.
    pub fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        fitrim::trim(&self.sbi, range, min_len)
    }

    /// Changes a tunable of writeback by the kernel's name (`dirty_ratio`, `dirty_bytes`, …) from
    /// now on, for all file systems that share limits
    /// ([`crate::tuning::WritebackOptions::limits`]). What belongs to the device
    /// ([`OpenOptions`](crate::OpenOptions) sets it) does not change.
    ///
    /// # Errors
    /// [`crate::Error::Option`] for an unknown name, and for a value out of range, which it names.
    pub fn set_tunable(&self, name: &str, value: &str) -> Result<()> {
        Ok(self.rw().pages.set_tunable(name, value)?)
    }

    /// Calls off all writers that wait for the device: they get [`crate::Error::Interrupted`], or
    /// have written less than they wanted. Does not wait for them.
    pub fn cancel_writers(&self) {
        self.rw().pages.cancel_writers();
    }

    /// Sets the limits of a user, group or project, durable with the next commit. The grace of soft
    /// limits that are exceeded already begins now. Those of id 0 are stored and refuse nothing.
    ///
    /// # Errors
    /// As [`Image::quota`], [`crate::Error::NoSpace`].
    pub fn set_quota(&self, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
        quota_change::set_limits(&self.sbi, kind, id, limits)
    }

    /// Changes the label, up to the first zero byte of `text`: in the superblock with the
    /// transaction that runs, and in its backups.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for one of more than 16 bytes; errors of the journal.
    pub fn set_label(&self, text: &[u8]) -> Result<()> {
        label::set_label(&self.sbi, text)
    }
}
