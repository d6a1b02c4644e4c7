//! A file system opened for writing: every method is one call into the module that does the work.

use std::fmt::Display;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uext4_blockdev::{Access, BlockDevice, Clock, FileDevice, SystemClock};
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
use crate::mount::grow::{self, GrowthTurn};
use crate::mount::in_use;
use crate::mount::leave::Users;
use crate::mount::open_options::{Background, OpenOptions};
use crate::mount::super_;
use crate::names::undelete;

/// A file system opened for reading and writing; it also provides everything that an [`Image`]
/// does. Clones share all state and may be used by many threads; each clone reports lost
/// write-back data once ([`Volume::sync`]).
///
/// Dropping the last clone closes the file system if [`Volume::close`] was not called; while an
/// [`Image`] of it exists, it stays marked as in use until that is dropped, too.
#[derive(Debug)]
pub struct Volume {
    image: Image,
    /// The caller on whose behalf it operates.
    caller: Caller,
    /// The lost data that this clone has reported.
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
    /// marked as in use until [`Volume::close`]. Before all that, a repair that was cut off while
    /// it was written is finished; [`Image::rescue`] says so.
    ///
    /// Until then the device is claimed: neither this process nor another one can open the same
    /// image for writing. Threads commit every 5 seconds and write back old data, unless
    /// [`OpenOptions::background`] specifies otherwise.
    ///
    /// # Errors
    /// As [`Image::open`]; [`crate::Error::Corrupt`] if the log of a repair that was cut off is
    /// damaged; [`crate::Error::Device`] if the device is in use;
    /// [`crate::Error::Unsupported`] naming the features that cannot be written, or for fast
    /// commits that need more than one transaction; [`crate::Error::NoSpace`] if there is no
    /// space for the maps and directories that these need; [`crate::Error::ReadOnly`] for a
    /// device that cannot be written.
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
            image: Image { sbi, below: None },
        };
        super_::adopt_orphans(&volume.sbi)?;
        in_use::opened(&volume.sbi)?;
        if has_threads {
            volume.start_background()?;
        }
        Ok(volume)
    }

    /// Opens the file system that fills an image file or a block device, with the time of this
    /// machine; see [`Volume::open`].
    ///
    /// # Errors
    /// As [`Volume::open`]; [`crate::Error::Device`] if the file cannot be opened.
    pub fn from_path(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let device = FileDevice::open(path, Access::ReadWrite)?;
        Self::open(Arc::new(device), Arc::new(SystemClock), options)
    }

    /// The same file system as a reader sees it.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The additional state of a mount for writing.
    fn rw(&self) -> &Rw {
        // OK to unwrap: it was opened for writing, which is never undone.
        self.sbi.rw().unwrap()
    }

    /// This file system for `caller`: its operations, and those of inodes opened through it, act
    /// on behalf of this caller, to whom the blocks reserved for root may be refused.
    /// [`Volume::open`] returns the file system for root.
    #[must_use]
    pub fn as_caller(&self, caller: Caller) -> Self {
        Self {
            caller,
            ..self.clone()
        }
    }

    /// Opens an inode by number; this adds a user.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if there is no such inode, or if it is being deleted or was;
    /// damage, device errors.
    pub fn open_inode(&self, ino: Ino) -> Result<OpenInode> {
        self.in_use().open(ino)
    }

    /// The right to grow the file system; waits for a thread that has it.
    ///
    /// # Errors
    /// None for a file system that is open for writing.
    pub fn growth_turn(&self) -> Result<GrowthTurn<'_>> {
        grow::begin(&self.image.sbi)
    }

    pub(crate) fn in_use(&self) -> InUse<'_> {
        InUse {
            sbi: &self.image.sbi,
            caller: self.caller,
        }
    }

    /// Puts a deleted inode back as `name` in a directory: with its number, its blocks and the
    /// attributes in its record, as `view` has them, one link, and charged to its owners. `view` is
    /// an image of the same file system, which may have older blocks of it; it is not trusted.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the number or a block is in use, or it is a directory;
    /// [`crate::Error::OtherProject`]; damage of the record or the map; as [`OpenInode::create`].
    pub fn undelete(
        &self,
        parent: &OpenInode,
        name: &[u8],
        ino: Ino,
        view: &Image,
    ) -> Result<OpenInode> {
        // Damage of the view is none of this file system.
        let put = undelete::undelete(&parent.0, name, ino, &view.sbi);
        put.map(OpenInode::from)
    }

    /// The root directory.
    ///
    /// # Errors
    /// As [`Volume::open_inode`].
    pub fn root(&self) -> Result<OpenInode> {
        self.open_inode(Ino::ROOT)
    }

    /// Makes all previous changes durable.
    ///
    /// # Errors
    /// Errors of writing data; otherwise, an error if data of a file was given up, after too many
    /// write errors, since this clone last reported such a loss. Errors of the commit, device
    /// errors.
    pub fn sync(&self) -> Result<()> {
        super_::sync(&self.sbi, &self.seen)
    }

    /// Makes everything durable and empties the journal: every block is written to its final
    /// location.
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
    /// As [`Volume::sync`]. If data was lost, that is recorded in the superblock, so that e2fsck
    /// checks the file system; after other errors the state is as if it had not been closed.
    pub fn close(&self) -> Result<()> {
        in_use::close(&self.sbi, &self.seen)
    }

    /// Inodes in use without a name, and those that are being deleted or truncated.
    pub fn unlinked(&self) -> usize {
        self.rw().orphans.len()
    }

    /// Ends all writing as after an error, without making anything durable first: like
    /// `EXT4_IOC_SHUTDOWN`, which has the reason "it was shut down". Later changes fail with
    /// [`crate::Error::Aborted`], which contains the reason.
    pub fn abort(&self, reason: &dyn Display) {
        self.rw().journal.abort(reason);
    }

    /// Sets a hook that is called with the reason when an error ends all writing, so that it can
    /// be logged. It may be called with locks held: it must not use the file system. Only the
    /// first hook is used.
    pub fn on_abort(&self, hook: impl Fn(&str) + Send + Sync + 'static) {
        self.rw().journal.on_abort(hook);
    }

    /// Sets which reads update the access time from now on; initially `relatime`.
    pub fn note_access(&self, times: AccessTimes) {
        self.rw().note_access(times);
    }

    /// Starts the threads that do the work of [`Volume::tick`], until [`Volume::close`]; does
    /// nothing if they run. [`Volume::open`] does this already, unless
    /// [`OpenOptions::background`] specifies otherwise: for programs that fork between opening
    /// and using a file system.
    ///
    /// # Errors
    /// [`crate::Error::NoThreads`] if the system cannot start a thread.
    pub fn start_background(&self) -> Result<()> {
        background::start_background(&self.sbi)
    }

    /// Does the work that is due now: commits changes that are old enough, checkpoints a journal
    /// that fills up, writes old dirty pages. To be called about every second if no threads run
    /// ([`Background::None`]).
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn tick(&self) -> Result<()> {
        super_::tick(&self.sbi)
    }

    /// Discards all free runs of at least `min_len` bytes in `range`, in bytes, as FITRIM does,
    /// and returns the number of bytes discarded. Blocks freed since the last commit and those
    /// preallocated for files are skipped.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a range that begins past the end, or a length of more than a
    /// group; damage of a bitmap, device errors.
    pub fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        fitrim::trim(&self.sbi, range, min_len)
    }

    /// Changes a writeback tunable by the kernel's name (`dirty_ratio`, `dirty_bytes`, …) from
    /// now on, for all file systems that share limits
    /// ([`crate::tuning::WritebackOptions::limits`]). Settings of the device
    /// ([`OpenOptions`](crate::OpenOptions) sets them) do not change.
    ///
    /// # Errors
    /// [`crate::Error::Option`] for an unknown name, or for a value out of range; it contains the
    /// range.
    pub fn set_tunable(&self, name: &str, value: &str) -> Result<()> {
        Ok(self.rw().pages.set_tunable(name, value)?)
    }

    /// Cancels all writers that wait for the device: they get [`crate::Error::Interrupted`], or a
    /// short write. Does not wait for them.
    pub fn cancel_writers(&self) {
        self.rw().pages.cancel_writers();
    }

    /// Sets the limits of a user, group or project, durable with the next commit. The grace
    /// period of soft limits that are already exceeded begins now. Limits of id 0 are stored and
    /// not enforced.
    ///
    /// # Errors
    /// As [`Image::quota`], [`crate::Error::NoSpace`].
    pub fn set_quota(&self, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
        quota_change::set_limits(&self.sbi, kind, id, limits)
    }

    /// Changes the label, up to the first zero byte of `text`: in the superblock with the running
    /// transaction, and in its backups.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a label of more than 16 bytes; errors of the journal.
    pub fn set_label(&self, text: &[u8]) -> Result<()> {
        label::set_label(&self.sbi, text)
    }
}
