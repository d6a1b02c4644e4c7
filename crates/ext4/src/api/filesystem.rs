//! The handle users hold: every method is one call into the module that does the work.

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uext4_blockdev::{BlockDevice, Clock};
use uext4_buffer_cache::Stats as BufferStats;
use uext4_extent_status::{Stats as ExtentStatusStats, StatsMode};
use uext4_jbd2::Stats as JournalStats;
use uext4_mballoc::{PreallocationStats, Stats as AllocatorStats};
use uext4_mbcache::Stats as MbcacheStats;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::{GroupNr, Ino, Lblk};
use uext4_writeback::{DeviceStats, Stats as PageStats};

use crate::alloc::bitmap;
use crate::api::open_inode::OpenInode;
use crate::base::error::{Error, Result};
use crate::base::mapping::Mapping;
use crate::base::memory::MemoryUse;
use crate::check::{self, Issue, Summary as CheckSummary};
use crate::dir::crypto::NameForm;
use crate::dir::namei::{self, FollowLast};
use crate::dir::readdir::{self, Listed};
use crate::dir::symlink;
use crate::dir::{self, DirEntry, ReadDir};
use crate::file::inode_ref::InodeRef;
use crate::file::quota_change;
use crate::file::{self, DataRanges};
use crate::inode::dquot::{Quota, QuotaLimits};
use crate::inode::{self, Inode};
use crate::journal::error_record::{met, met_by_caller};
use crate::journal::fitrim;
use crate::journal::rw::AccessTimes;
use crate::journal::sbi::Sbi;
use crate::map;
use crate::mount::in_use;
use crate::mount::leave::Users;
use crate::mount::open_options::OpenOptions;
use crate::mount::statfs::{self, Statfs};
use crate::mount::super_;
use crate::orphan;
use crate::quota::{self, Quotas};
use crate::xattr::{self, Reader, Xattr};

/// A file system opened for reading. Clones share everything and may be used by many threads; but each
/// is told for itself, once, of data that had to be given up.
#[derive(Debug)]
pub struct Filesystem {
    pub(crate) sbi: Arc<Sbi>,
    /// Losses of data that this one has been told.
    seen: AtomicU64,
    /// What is to be done when the last clone goes.
    users: Arc<Users>,
}

impl Clone for Filesystem {
    fn clone(&self) -> Self {
        Self {
            sbi: Arc::clone(&self.sbi),
            seen: AtomicU64::new(self.seen.load(Relaxed)),
            users: Arc::clone(&self.users),
        }
    }
}

impl Filesystem {
    fn new(sbi: Sbi) -> Self {
        let sbi = Arc::new(sbi);
        Self {
            users: Users::new(&sbi),
            seen: AtomicU64::new(0),
            sbi,
        }
    }

    /// Opens a file system. Nothing is ever written to the device.
    ///
    /// Where the primary superblock cannot be used and none is asked for, its copy in the journal or a
    /// backup is taken; where the device is shorter than the file system, what is there can be read.
    /// [`Filesystem::rescue`] says so.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if the superblock and its backups or the journal is damaged,
    /// [`crate::Error::Unsupported`] naming the features that cannot be read, device errors.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        Ok(Self::new(super_::open(device, options)?))
    }

    /// Opens a file system for reading and writing. Its journal is replayed on the device, fast commits
    /// included, what was left half-deleted is deleted, and the file system is marked as in use until
    /// [`Filesystem::close`], which the last clone does if nobody has. Until then the device is claimed ([`uext4_blockdev::Claim`]): the same image
    /// is not opened for writing twice, neither by this process nor by another one.
    ///
    /// # Errors
    /// As [`Filesystem::open`]; [`crate::Error::Device`] with [`uext4_blockdev::Error::Locked`] or
    /// [`uext4_blockdev::Error::Attached`] if the device is in use; [`crate::Error::Unsupported`] naming the features that cannot be
    /// written, or for fast commits that take more than one transaction; [`crate::Error::NoSpace`] if
    /// there is none for the maps and directories that these need; [`crate::Error::ReadOnly`] for a
    /// device that takes no writes.
    pub fn open_rw(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let opened = Self::new(super_::open_rw(device, clock, options)?);
        super_::adopt_orphans(&opened.sbi)?;
        in_use::opened(&opened.sbi)?;
        Ok(opened)
    }

    /// One more user of an inode of a file system opened for writing.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if there is none, or it is being deleted or was;
    /// [`crate::Error::ReadOnly`], damage, device errors.
    pub fn open_inode(&self, ino: Ino) -> Result<OpenInode> {
        match met_by_caller(&self.sbi, Some(ino), InodeRef::get(&self.sbi, ino)) {
            Err(error) if error.is_no_inode(true) => Err(Error::NotFound),
            inode => Ok(inode?.into()),
        }
    }

    /// The root directory of a file system opened for writing.
    ///
    /// # Errors
    /// As [`Filesystem::open_inode`].
    pub fn root(&self) -> Result<OpenInode> {
        self.open_inode(Ino::ROOT)
    }

    /// Makes everything durable that was done so far.
    ///
    /// # Errors
    /// What writing data said; else, that data of some file were given up since this `Filesystem` was
    /// told last, after writing them had failed too often. Errors of the commit, device errors.
    pub fn sync(&self) -> Result<()> {
        super_::sync(&self.sbi, &self.seen)
    }

    /// The same, and leaves nothing in the journal: what is in place then is all there is.
    ///
    /// # Errors
    /// As [`Filesystem::sync`].
    pub fn checkpoint(&self) -> Result<()> {
        super_::checkpoint(&self.sbi, &self.seen)
    }

    /// Makes everything durable and marks the file system as cleanly unmounted. Inodes still in use
    /// stay usable, but nothing should be changed any more.
    ///
    /// # Errors
    /// As [`Filesystem::sync`]. Where data were lost that is noted in the superblock, so that e2fsck
    /// checks the file system; after other errors it is as if it had not been closed.
    pub fn close(&self) -> Result<()> {
        in_use::close(&self.sbi, &self.seen)
    }

    /// What statfs tells.
    pub fn statfs(&self) -> Statfs {
        statfs::statfs(&self.sbi)
    }

    /// Inodes without a name that somebody uses, and those that are being deleted or cut.
    pub fn unlinked(&self) -> usize {
        self.sbi.rw().map_or(0, |rw| rw.orphans.len())
    }

    /// Ends all writing as after an error, and makes nothing durable first: `EXT4_IOC_SHUTDOWN`.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn shutdown(&self) -> Result<()> {
        self.end_writing(&"it was shut down")
    }

    /// The same for a reason, which every change is refused with from now on.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn end_writing(&self, reason: &dyn Display) -> Result<()> {
        self.sbi.writable()?.journal.abort(reason);
        Ok(())
    }

    /// Has `hook` called with the reason when an error ends all writing, so that it can be logged.
    /// It may be called with locks held: it must not use the file system. Only the first hook
    /// counts.
    ///
    /// [`crate::Error::ReadOnly`].
    pub fn on_abort(&self, hook: impl Fn(&str) + Send + Sync + 'static) -> Result<()> {
        self.sbi.writable()?.journal.on_abort(hook);
        Ok(())
    }

    /// Which times of access are noted from now on; at first those relative to changes.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn note_access(&self, times: AccessTimes) -> Result<()> {
        self.sbi.writable()?.note_access(times);
        Ok(())
    }

    /// Starts threads that do what [`Filesystem::tick`] does, until [`Filesystem::close`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the system has no threads for us, [`crate::Error::ReadOnly`].
    pub fn start_background(&self) -> Result<()> {
        super_::start_background(&self.sbi)
    }

    /// Does what is due now: commits what has waited for its time, writes home what fills the log,
    /// writes old dirty pages. To be called every second or so where no threads of ours run.
    ///
    /// # Errors
    /// As [`Filesystem::sync`].
    pub fn tick(&self) -> Result<()> {
        super_::tick(&self.sbi)
    }

    /// Tells the device of all free runs of at least `min_len` bytes in `range`, in bytes, as FITRIM
    /// does; what was freed and is not durable yet, and what is kept for files, is left out. Answers
    /// with the bytes told.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a range that begins past the end, or a length of more than a
    /// group; [`crate::Error::ReadOnly`], damage of a bitmap, device errors.
    pub fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        fitrim::trim(&self.sbi, range, min_len)
    }

    /// What the journal has done.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn journal_stats(&self) -> Result<JournalStats> {
        Ok(self.sbi.writable()?.journal.stats())
    }

    /// What the block allocator has done, and what it keeps for files now.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn allocator_stats(&self) -> Result<(AllocatorStats, PreallocationStats)> {
        let allocator = &self.sbi.writable()?.allocator;
        Ok((allocator.stats(), allocator.preallocation_stats()))
    }

    /// What was done to share blocks of attributes, and values in inodes of their own; `None` for what
    /// is not shared (`nombcache`).
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn mbcache_stats(&self) -> Result<Option<(MbcacheStats, MbcacheStats)>> {
        let sharing = &self.sbi.writable()?.xattrs;
        Ok(sharing.blocks.stats().zip(sharing.values.stats()))
    }

    /// Starts or stops counting for [`mbcache_stats`](Self::mbcache_stats); on at first. Searches of many
    /// threads cost less without. Nothing with `nombcache`.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn count_mbcache(&self, on: bool) -> Result<()> {
        self.sbi.writable()?.xattrs.set_stats(on);
        Ok(())
    }

    /// What the shrinker of the extent status did, and how look-ups of blocks went.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn extent_status_stats(&self) -> Result<ExtentStatusStats> {
        Ok(self.sbi.writable()?.inodes.room().stats())
    }

    /// Switches what [`extent_status_stats`](Self::extent_status_stats) counts, as `es_stats=`.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn count_extent_status(&self, mode: StatsMode) -> Result<()> {
        self.sbi.writable()?.inodes.room().set_stats(mode);
        Ok(())
    }

    /// The kernel's `mb_stats`: what the searches did.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn mb_stats(&self) -> Result<impl Display> {
        Ok(self.sbi.writable()?.allocator.mb_stats())
    }

    /// The kernel's `mb_groups`: the free runs of each group that was looked into.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn mb_groups(&self) -> Result<impl Display> {
        Ok(self.sbi.writable()?.allocator.mb_groups())
    }

    /// The kernel's `mb_structs_summary`: the groups under each order.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn mb_structs_summary(&self) -> Result<impl Display> {
        Ok(self.sbi.writable()?.allocator.mb_structs_summary())
    }

    /// What is taken of the memory budget now ([`OpenOptions::memory`]).
    pub fn memory(&self) -> MemoryUse {
        self.sbi.memory_use()
    }

    /// Changes a tunable of writeback by the kernel's name (`dirty_ratio`, `dirty_bytes`, …) from now on.
    /// It holds for all file systems that share limits ([`crate::WritebackOptions::limits`]). `min_ratio`,
    /// `max_ratio`, `strict_limit` and `wb_*` belong to the device, and are set when it is opened.
    ///
    /// # Errors
    /// [`crate::Error::Tunable`] for an unknown name, and for a value out of range, which it names;
    /// [`crate::Error::ReadOnly`].
    pub fn set_tunable(&self, name: &str, value: &str) -> Result<()> {
        Ok(self.sbi.writable()?.pages.set_tunable(name, value)?)
    }

    /// What throttling knows of the device; its text is that of the kernel's `bdi` stats file.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn bdi_stats(&self) -> Result<DeviceStats> {
        Ok(self.sbi.writable()?.pages.bdi_stats())
    }

    /// The counters of the cache of metadata blocks.
    pub fn buffer_stats(&self) -> BufferStats {
        self.sbi.cache().stats()
    }

    /// The counters of the pages of files, under the kernel's names (`nr_dirty`, `nr_writeback`, …).
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn page_stats(&self) -> Result<PageStats> {
        Ok(self.sbi.writable()?.pages.stats())
    }

    /// Calls off all writers that wait for the device: they get [`crate::Error::Interrupted`], or have
    /// written less than they wanted. Does not wait for them.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn cancel_writers(&self) -> Result<()> {
        self.sbi.writable()?.pages.cancel_writers();
        Ok(())
    }

    /// The quotas of a file system opened for writing, if it has any.
    fn counted(&self) -> Option<&Quotas> {
        self.sbi.rw()?.quotas.as_ref()
    }

    /// What a user, group or project has and may have; nothing, if it was never counted. Of a file
    /// system opened for writing as it is now.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] if its kind is not counted, damage, device errors.
    pub fn quota(&self, kind: QuotaKind, id: u32) -> Result<Quota> {
        quota::quota(&self.sbi, self.counted(), map::map_blocks, kind, id)
    }

    /// What all users, groups or projects have and may have, by id.
    ///
    /// # Errors
    /// As [`Filesystem::quota`].
    pub fn quotas(&self, kind: QuotaKind) -> Result<Vec<Quota>> {
        quota::quotas(&self.sbi, self.counted(), map::map_blocks, kind)
    }

    /// Sets the limits of a user, group or project, durable with the next commit. The grace of soft
    /// limits that are exceeded already begins now. Those of id 0 are kept and refuse nothing.
    ///
    /// # Errors
    /// As [`Filesystem::quota`], [`crate::Error::ReadOnly`], [`crate::Error::NoSpace`].
    pub fn set_quota(&self, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
        quota_change::set_limits(&self.sbi, kind, id, limits)
    }

    /// The device as it looks with the journal replayed.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.sbi.device()
    }

    /// A group's descriptor, its checksum verified.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] past the last group, damage, device errors.
    pub fn group_desc(&self, group: GroupNr) -> Result<GroupDesc> {
        self.sbi.group_desc(group)
    }

    /// Reads an inode that is in use.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if there is no such inode, it is not in use, or it is damaged;
    /// device errors.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        met_by_caller(&self.sbi, Some(ino), inode::iget(&self.sbi, ino))
    }

    /// The bytes of an inode, in use or not; nothing is verified.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if there is no such inode, device errors.
    pub fn inode_bytes(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(inode::inode_bytes(&self.sbi, ino)?.to_vec())
    }

    /// Looks a name up in a directory, by hash where there is an htree. In an encrypted directory
    /// the name is the one [`Filesystem::display_name`] gives.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::NotDirectory`], [`crate::Error::NameTooLong`],
    /// damage, device errors.
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Ino> {
        met(&self.sbi, dir.ino, namei::lookup(&self.sbi, dir, name))
    }

    /// Resolves a path from the root directory. Symbolic links are followed, absolute ones from the
    /// root of this file system, at most 40; the empty path is the root.
    ///
    /// # Errors
    /// Those of [`Filesystem::lookup`], [`crate::Error::TooManySymlinks`].
    pub fn resolve(&self, path: &[u8], last: FollowLast) -> Result<Inode> {
        met_by_caller(&self.sbi, None, namei::resolve(&self.sbi, path, last))
    }

    /// Starts reading a directory: its entries in the order they lie there, "." and ".." included.
    ///
    /// # Errors
    /// [`crate::Error::NotDirectory`], damage that leaves nothing to read, device errors.
    pub fn read_dir(&self, dir: &Inode) -> Result<ReadDir> {
        met(&self.sbi, dir.ino, dir::read_dir(&self.sbi, dir))
    }

    /// Tells names of a directory after `cookie` (0: all) to `each`, with a cookie, until it says false.
    ///
    /// # Errors
    /// As [`Filesystem::read_dir`].
    pub fn list(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        let result = readdir::list(&self.sbi, dir, cookie, each);
        met(&self.sbi, dir.ino, result)
    }

    /// The name to show for one stored in a directory: in an encrypted directory its no-key form, as
    /// the kernel shows it to who has no key, else the name itself.
    ///
    /// Directories that are also case-insensitive need [`Filesystem::entry_name`]. If the directory
    /// is too damaged to tell its hash function, the hash in the name is 0.
    pub fn display_name(&self, dir: &Inode, stored: &[u8]) -> Vec<u8> {
        NameForm::of(&self.sbi, dir).show(&self.sbi, stored, None)
    }

    /// The name to show for an entry, as [`Filesystem::display_name`], for every directory.
    pub fn entry_name(&self, dir: &Inode, entry: &DirEntry) -> Vec<u8> {
        NameForm::of(&self.sbi, dir).show(&self.sbi, &entry.name, entry.hash)
    }

    /// Whether an inode holds something of the file system's own, which no name leads to.
    pub fn is_hidden(&self, ino: Ino) -> bool {
        namei::is_hidden(&self.sbi, ino)
    }

    /// Inodes that were to be deleted, or cut to their size, when the file system was left.
    ///
    /// # Errors
    /// Damage of the list or the orphan file, device errors.
    pub fn orphans(&self) -> Result<Vec<Ino>> {
        orphan::orphans(&self.sbi, map::map_blocks)
    }

    /// The clusters of a group, one bit each, set where in use or past its end; a block long.
    ///
    /// # Errors
    /// Damage of the bitmap or the descriptor, device errors.
    pub fn block_bitmap(&self, group: GroupNr) -> Result<Arc<[u8]>> {
        bitmap::block_bitmap(&self.sbi, group)
    }

    /// The inodes of a group, one bit each, set where in use or past its end; a block long.
    ///
    /// # Errors
    /// Damage of the bitmap or the descriptor, device errors.
    pub fn inode_bitmap(&self, group: GroupNr) -> Result<Arc<[u8]>> {
        bitmap::inode_bitmap(&self.sbi, group)
    }

    /// The target of a symbolic link, 1 to 4,095 bytes.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is none, [`crate::Error::Encrypted`], damage, device errors.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        met(&self.sbi, inode.ino, symlink::read_link(&self.sbi, inode))
    }

    /// Reads from a regular file and tells how many bytes there were: fewer than asked for only at
    /// its end. Holes and unwritten blocks read as zeroes.
    ///
    /// # Errors
    /// [`crate::Error::IsDirectory`], [`crate::Error::Invalid`] for other special files,
    /// [`crate::Error::Encrypted`], damage, device errors.
    pub fn read_at(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let result = file::read_at(&self.sbi, inode, offset, buf);
        met(&self.sbi, inode.ino, result)
    }

    /// Where logical block `lblk` of a file lies, and how many of the `len - 1` blocks after it are
    /// in the same run, at least as far as is known without further reading.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the inode maps no blocks or `len` is 0, damage, device errors.
    pub fn map(&self, inode: &Inode, lblk: Lblk, len: u32) -> Result<Mapping> {
        let result = map::map_blocks(&self.sbi, inode, lblk, len);
        met(&self.sbi, inode.ino, result)
    }

    /// The parts of a regular file that hold data, in bytes, ascending; the rest reads as zeroes.
    ///
    /// # Errors
    /// As [`Filesystem::read_at`], at once or while going through them.
    pub fn data_ranges(&self, inode: &Inode) -> Result<DataRanges> {
        met(&self.sbi, inode.ino, file::data_ranges(&self.sbi, inode))
    }

    /// The extended attributes as listxattr and getxattr show them to root, sorted by name: ACLs in
    /// the kernel's form, without those the file system keeps for itself.
    ///
    /// # Errors
    /// Damage of the attributes, device errors.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let result = xattr::list(&self.sbi, inode, Reader::Onlooker);
        met(&self.sbi, inode.ino, result)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`crate::Error::NoAttribute`], damage, device errors.
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let result = xattr::get(&self.sbi, inode, Reader::Onlooker, name);
        met(&self.sbi, inode.ino, result)
    }

    /// Checks everything, checksums and cross references, and shows `report` each issue as it is
    /// found. Nothing is written. Memory is bounded whatever the size.
    ///
    /// # Errors
    /// Device errors, and [`crate::Error::Unsupported`] if fast commits wait in the journal; damage
    /// is an issue, not an error.
    pub fn check(&self, report: &mut dyn FnMut(Issue)) -> Result<CheckSummary> {
        check::check(&self.sbi, report)
    }
}
