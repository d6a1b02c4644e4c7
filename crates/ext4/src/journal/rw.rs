//! State that exists only when a file system is mounted for writing: its journal, the groups and
//! the block allocator, the superblock as it will be written, the inodes in use, the clock.
//!
//! Everything that changes metadata goes through a handle.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use uext4_blockdev::{Claim, Clock};
use uext4_extent_status::{ExtentStatusCache, Options as ExtentStatusOptions};
use uext4_jbd2::{Journal, Tid};
use uext4_mballoc::{Allocator, Options as AllocatorOptions, Policies as AllocatorPolicies, Run};
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, TimeFields, Timestamp};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Damage, GroupNr, Ino, Pblk};
use uext4_writeback::PageCache;

use crate::alloc::discards::Discards;
use crate::alloc::groups::Groups;
use crate::base::background::Background;
use crate::base::caller::Caller;
use crate::base::disk::{Disk, Writing};
use crate::base::edit::Direct;
use crate::base::error::{Error, Result};
use crate::base::growth::PendingGrowth;
use crate::base::memory::Memory;
use crate::base::policies::Designs;
use crate::inode::dentry::NameCache;
use crate::inode::icache::InodeCache;
use crate::journal::mmp::Mmp;
use crate::journal::mount_limits::MountLimits;
use crate::journal::reservations::Reservations;
use crate::journal::taking::Taking;
use crate::journal::unfinished::Unfinished;
use crate::journal::xattr_shared::XattrSharing;
use crate::orphan::change::Orphans;
use crate::quota::Quotas;

/// Blocks that only metadata may use once data has used up the rest, so that reserved data of
/// writers can be mapped: at most this many, and at most 2 % of the file system.
const METADATA_RESERVE_MAX: u64 = 4096;

/// What a file system of so many blocks keeps for metadata.
fn metadata_reserve_of(blocks: u64) -> u64 {
    (blocks / 50).min(METADATA_RESERVE_MAX)
}

/// The purpose of a reservation: it decides how many other blocks must stay free.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Data of files. The blocks needed to map all of it must stay free, and root's reserved
    /// blocks unless the caller may use them.
    Data(Caller),
    /// Attributes and new directories, which may use half of the blocks that data must leave
    /// free.
    Metadata(Caller),
    /// Directory entries, which mostly need no block. Root's reserved blocks may be used, so that
    /// on a full file system a file can still be renamed, or an empty one created, as with the
    /// kernel's ext4. A directory may grow through that, which the kernel refuses.
    Names,
    /// Changes of the block map that a file has, which free some blocks or need hardly any: all
    /// free blocks may be used.
    Maps,
}

/// Which reads update the access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessTimes {
    /// None: `noatime`.
    None = 0,
    /// The first read after a change, and one per day: `relatime`.
    Relative,
    /// All: `strictatime`.
    Strict,
}

impl Writing for Rw {
    fn group_desc(&self, group: GroupNr) -> Option<GroupDesc> {
        self.groups.desc(group)
    }

    fn inode_table(&self, group: GroupNr) -> Option<Pblk> {
        self.groups.inode_table(group)
    }

    fn met(&self, ino: Option<Ino>, unread: Option<Pblk>, error: &Error) {
        let damage = error.damage().cloned();
        let is_half_done = self.is_half_done.load(Relaxed);
        let counts = damage.is_some() || unread.is_some();
        // Errors found after writing has ended are not recorded any more.
        if !counts || self.journal.is_aborted() && !is_half_done {
            return;
        }
        self.note(Met {
            ino,
            unread,
            damage,
        });
    }
}

/// Maximum number of errors that wait to be recorded.
const MET_MAX: usize = 16;

/// An error that is to be recorded: damage, or a block of metadata that cannot be read.
#[derive(Debug)]
pub(crate) struct Met {
    /// The inode that was used, if known.
    pub(crate) ino: Option<Ino>,
    pub(crate) unread: Option<Pblk>,
    pub(crate) damage: Option<Damage>,
}

/// The state of a file system mounted for writing.
#[derive(Debug)]
pub(crate) struct Rw {
    /// The names of the designs of all subsystems.
    pub(crate) designs: Designs,
    pub(crate) journal: Journal,
    pub(crate) groups: Groups,
    pub(crate) allocator: Allocator,
    pub(crate) inodes: InodeCache,
    /// Cache of recently looked up names.
    pub(crate) names: NameCache,
    pub(crate) orphans: Orphans,
    /// Blocks of attributes, and inodes of values, that further inodes may share.
    pub(crate) xattrs: XattrSharing,
    /// Usage per owner, if quotas are counted.
    pub(crate) quotas: Option<Quotas>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The data of files.
    pub(crate) pages: PageCache<Error>,
    /// Requested number of flushers; 0: a number that suits the device.
    pub(crate) wb_flushers: u32,
    /// Held while a name moves from one directory to another: no directory moves otherwise.
    pub(crate) rename: Mutex<()>,
    /// Which reads update the access time: an [`AccessTimes`].
    access_times: AtomicU8,
    /// The options of the mount.
    pub(crate) limits: MountLimits,
    /// Whether inodes have space for nanoseconds and times after 2038.
    time_fields: TimeFields,
    /// The superblock except for its counts, which [`Rw::superblock`] fills in.
    superblock: Mutex<SuperBlock>,
    superblock_changed: AtomicBool,
    /// Freed blocks to be discarded on the device.
    pub(crate) discards: Discards,
    /// Blocks freed by transactions that are not durable yet.
    freed: Mutex<Vec<(Tid, Run)>>,
    /// Number of blocks that are freed and cannot be allocated yet, including those to be
    /// discarded.
    freed_blocks: AtomicU64,
    /// Blocks reserved for delayed data.
    reserved: Reservations,
    metadata_reserve: AtomicU64,
    next_generation: AtomicU32,
    /// A growth of the file system that waits for a commit.
    pub(crate) growing: PendingGrowth,
    /// Multiple mount protection against other hosts, if the file system has the feature.
    mmp: OnceLock<Mmp>,
    /// Allocations in progress for reserved data.
    pub(crate) taking: Taking,
    /// Truncations and deletions that wait for space.
    pub(crate) unfinished: Unfinished,
    /// One limit for pages, metadata, extents, shared attributes, inodes and names.
    pub(crate) memory: Memory,
    /// Held while everything that waits for the journal is written because memory is short.
    pub(crate) draining: Mutex<()>,
    /// When the memory pressure of the machine was last read, on the monotonic clock.
    pub(crate) pressure_asked: Mutex<Duration>,
    /// Errors that were recorded in memory and still have to be handled (`error_record`); whether
    /// there are any, and whether this mount has had some before.
    pub(crate) damage: Mutex<Vec<Met>>,
    pub(crate) has_damage: AtomicBool,
    pub(crate) was_damaged: AtomicBool,
    /// Whether one of them has ended writing and is not recorded on the device yet.
    pub(crate) is_half_done: AtomicBool,
    /// The background threads, if they were started.
    pub(crate) background: Mutex<Vec<Background>>,
    /// Exclusive use of the device, as long as anything may be written to it.
    pub(crate) claim: Mutex<Option<Claim>>,
    /// Whether the mount is incomplete or closed: the last user then has nothing to write when it
    /// is dropped.
    pub(crate) is_left: AtomicBool,
    /// Whether no [`crate::Volume`] is left while inodes are in use: each inode then writes its
    /// data when it is dropped.
    pub(crate) writes_on_drop: AtomicBool,
}

/// The parts of a mount for writing.
pub(crate) struct Parts {
    /// The journal, replayed and opened.
    pub(crate) journal: Journal,
    /// The clock for time stamps and for scheduled work.
    pub(crate) clock: Arc<dyn Clock>,
    /// The budget for all memory.
    pub(crate) memory: Memory,
    /// The pages of files.
    pub(crate) pages: PageCache<Error>,
    /// Maximum number of bytes for names.
    pub(crate) names_max: usize,
    /// The inodes to be deleted or truncated by the next mount if power is lost now.
    pub(crate) orphans: Orphans,
    /// The quotas, if the file system has them.
    pub(crate) quotas: Option<Quotas>,
    /// The attributes that inodes share.
    pub(crate) xattrs: XattrSharing,
    /// How the status of extents is cached.
    pub(crate) extent_status: ExtentStatusOptions,
    /// How blocks are allocated.
    pub(crate) allocator: AllocatorOptions,
    /// The allocation policies.
    pub(crate) mballoc: AllocatorPolicies,
    /// The names of the designs of all subsystems.
    pub(crate) designs: Designs,
    /// Whether freed blocks are discarded on the device.
    pub(crate) discard: bool,
}

impl Rw {
    /// Creates the state of a writable mount; `disk` is mounted for reading.
    pub(crate) fn new(disk: &Disk, parts: Parts) -> Result<Self> {
        let groups = Groups::open(disk)?;
        let edit = Direct(disk);
        let bitmaps = groups.bitmaps(disk, &edit);
        let (options, policies) = (parts.allocator, &parts.mballoc);
        let allocator = Allocator::with_options(disk.geometry(), &bitmaps, options, policies)?;
        let (sec, nsec) = parts.clock.now();
        let for_room = Arc::clone(&parts.clock);
        let extent_status =
            ExtentStatusCache::with_options(parts.extent_status, move || for_room.monotonic());
        Ok(Self {
            journal: parts.journal,
            groups,
            allocator,
            designs: parts.designs,
            inodes: InodeCache::new(&extent_status),
            names: NameCache::new(parts.names_max),
            orphans: parts.orphans,
            xattrs: parts.xattrs,
            quotas: parts.quotas,
            superblock: Mutex::new(*disk.superblock()),
            superblock_changed: AtomicBool::new(true),
            discards: Discards::new(parts.discard),
            freed: Mutex::default(),
            freed_blocks: AtomicU64::new(0),
            reserved: Reservations::default(),
            metadata_reserve: AtomicU64::new(metadata_reserve_of(disk.geometry().blocks_count)),
            growing: PendingGrowth::default(),
            // Any number will do; the same clock gives the same numbers.
            next_generation: AtomicU32::new((sec as u32).rotate_left(16) ^ nsec),
            wb_flushers: parts.pages.bdi_tunables().wb_flushers,
            pages: parts.pages,
            rename: Mutex::default(),
            access_times: AtomicU8::new(AccessTimes::Relative as u8),
            limits: MountLimits::default(),
            time_fields: if usize::from(disk.geometry().inode_size) > GOOD_OLD_INODE_SIZE {
                TimeFields::Extra
            } else {
                TimeFields::Base
            },
            clock: parts.clock,
            mmp: OnceLock::new(),
            taking: Taking::default(),
            unfinished: Unfinished::default(),
            memory: parts.memory,
            draining: Mutex::default(),
            pressure_asked: Mutex::default(),
            damage: Mutex::default(),
            has_damage: AtomicBool::new(false),
            was_damaged: AtomicBool::new(false),
            is_half_done: AtomicBool::new(false),
            background: Mutex::default(),
            claim: Mutex::default(),
            is_left: AtomicBool::new(true),
            writes_on_drop: AtomicBool::new(false),
        })
    }

    fn note(&self, met: Met) {
        let mut all = self.damage.lock();
        if all.len() < MET_MAX {
            all.push(met);
        }
        drop(all);
        self.has_damage.store(true, Relaxed);
    }

    /// Records that an error has left a change half-done: it is written in place, even if another
    /// thread has already taken the errors recorded before.
    pub(crate) fn note_half_done(&self, error: &Error) {
        self.is_half_done.store(true, Release);
        self.note(Met {
            ino: None,
            unread: None,
            damage: error.damage().cloned(),
        });
    }

    /// Claims exclusive use of the device until the file system is closed.
    pub(crate) fn set_claim(&self, claim: Claim) {
        *self.claim.lock() = Some(claim);
    }

    /// Returns this state with the options of the mount.
    pub(crate) fn with_limits(self, limits: MountLimits) -> Self {
        Self { limits, ..self }
    }

    /// Sets which reads update the access time from now on.
    pub(crate) fn note_access(&self, times: AccessTimes) {
        self.access_times.store(times as u8, Relaxed);
    }

    /// Which reads update the access time.
    pub(crate) fn access_times(&self) -> AccessTimes {
        match self.access_times.load(Relaxed) {
            0 => AccessTimes::None,
            1 => AccessTimes::Relative,
            _ => AccessTimes::Strict,
        }
    }

    /// Multiple mount protection, if the file system has the feature.
    pub(crate) fn mmp(&self) -> Option<&Mmp> {
        self.mmp.get()
    }

    /// Sets the multiple mount protection, once.
    pub(crate) fn set_mmp(&self, mmp: Mmp) {
        _ = self.mmp.set(mmp);
    }

    /// The current time, as inodes store it.
    pub(crate) fn now(&self) -> Timestamp {
        let (sec, nsec) = self.clock.now();
        self.kept(Timestamp { sec, nsec })
    }

    /// Truncates a time to what inodes of this file system can store.
    pub(crate) fn kept(&self, time: Timestamp) -> Timestamp {
        time.kept(self.time_fields)
    }

    /// A generation for a new inode.
    pub(crate) fn next_generation(&self) -> u32 {
        self.next_generation.fetch_add(0x9E37_79B1, Relaxed)
    }

    /// Changes the superblock. It is written with the running transaction, so the caller must
    /// hold a handle.
    pub(crate) fn change_superblock<R>(&self, f: impl FnOnce(&mut SuperBlock) -> R) -> R {
        let result = f(&mut self.superblock.lock());
        self.superblock_changed.store(true, Relaxed);
        result
    }

    /// The superblock with current counts and checksum.
    pub(crate) fn superblock(&self) -> SuperBlock {
        let mut superblock = *self.superblock.lock();
        let total = self.groups.total();
        superblock.set_free_blocks_count(total.free_blocks);
        superblock.s_free_inodes_count = (total.free_inodes as u32).into();
        superblock.update_checksum();
        superblock
    }

    /// Returns the superblock if it has to be written.
    pub(crate) fn take_superblock(&self) -> Option<SuperBlock> {
        self.superblock_changed
            .swap(false, Relaxed)
            .then(|| self.superblock())
    }

    /// Marks the superblock as changed because its counts have changed.
    pub(crate) fn superblock_is_stale(&self) {
        self.superblock_changed.store(true, Relaxed);
    }

    /// Blocks that can still be reserved for data, according to the bitmaps that were read.
    pub(crate) fn available_blocks(&self) -> u64 {
        self.allocator
            .checked_free_blocks()
            .saturating_sub(self.reserved.reserved())
            .saturating_sub(self.metadata_reserve())
    }

    /// Blocks reserved for delayed data.
    pub(crate) fn reserved_blocks(&self) -> u64 {
        self.reserved.reserved()
    }

    /// Blocks that data must leave free, for mapping reserved data.
    pub(crate) fn metadata_reserve(&self) -> u64 {
        self.metadata_reserve.load(Relaxed)
    }

    /// The file system has so many blocks from now on.
    pub(crate) fn note_size(&self, blocks: u64) {
        let reserve = metadata_reserve_of(blocks);
        self.metadata_reserve.store(reserve, Relaxed);
    }

    /// Reserves `blocks` blocks; false if there are not that many. Reads more bitmaps if those
    /// known are not enough. Only groups whose bitmaps were read and agree with their descriptors
    /// count: an allocation of reserved blocks must never be the first to detect that they do not
    /// exist.
    pub(crate) fn reserve(&self, disk: &Disk, purpose: Purpose, blocks: u64) -> bool {
        let reserved_from = |caller| self.limits.reserved_from(caller, disk.superblock());
        let kept = match purpose {
            Purpose::Data(caller) => self
                .metadata_reserve()
                .saturating_add(reserved_from(caller)),
            // The other half is for mapping data that has a reservation.
            Purpose::Metadata(caller) => {
                (self.metadata_reserve() / 2).saturating_add(reserved_from(caller))
            }
            Purpose::Names => self.metadata_reserve() / 2,
            Purpose::Maps => 0,
        };
        while !self.add_reserved(blocks, kept) {
            let wanted = self.reserved.reserved().saturating_add(blocks);
            let edit = Direct(disk);
            let bitmaps = self.groups.bitmaps(disk, &edit);
            let wanted = wanted.saturating_add(kept);
            if !self.allocator.check_more(&bitmaps, wanted) {
                return false;
            }
        }
        true
    }

    /// Adds a reservation only if it fits; a failed attempt changes nothing and hinders no other
    /// thread.
    fn add_reserved(&self, blocks: u64, kept: u64) -> bool {
        // Read after the reserved count, so that blocks being allocated count as reserved or as
        // used, or both.
        let room = || self.allocator.checked_free_blocks().saturating_sub(kept);
        self.reserved.reserve(blocks, room)
    }

    /// Releases a reservation, or reports that its blocks were allocated.
    pub(crate) fn release(&self, blocks: u64) {
        self.reserved.release(blocks);
    }

    /// Whether a commit and the following discard would make blocks free.
    pub(crate) fn has_freed(&self) -> bool {
        self.freed_blocks.load(Relaxed) > 0
    }

    /// Remembers blocks until the transaction that freed them is durable.
    pub(crate) fn hold_freed(&self, tid: Tid, run: Run) {
        self.freed.lock().push((tid, run));
        self.freed_blocks.fetch_add(run.len.into(), Relaxed);
    }

    /// Makes blocks freed up to and including transaction `tid`, which is durable, available to
    /// [`Rw::settle_freed`]. This is quick: the log is locked, and all threads that wait for the
    /// commit wait for this.
    pub(crate) fn give_freed(&self, tid: Tid) {
        let mut due = Vec::new();
        self.freed.lock().retain(|(by, run)| {
            let is_due = *by <= tid;
            if is_due {
                due.push(*run);
            }
            !is_due
        });
        self.discards.add(due);
    }

    /// Discards freed and durable blocks on the device, if discard is enabled, and makes them
    /// available for allocation. Waits for a thread that is doing so already; the caller must not
    /// hold a handle.
    pub(crate) fn settle_freed(&self, disk: &Disk) {
        let give = |runs: &[Run]| self.give(runs);
        self.discards.settle(disk, &self.journal, give);
    }

    /// Makes freed runs available for allocation.
    fn give(&self, runs: &[Run]) {
        for run in runs {
            self.allocator.give(*run);
            self.freed_blocks.fetch_sub(run.len.into(), Relaxed);
        }
    }
}
