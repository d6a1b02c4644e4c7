//! What a file system has beyond reading when it is mounted for writing: its journal, the groups
//! and the block allocator, the superblock as it will be written, the inodes in use, the clock.
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

/// Blocks that only metadata may take once data has used up the rest, so that what was reserved
/// for a writer can be mapped: at most this many, and at most 2 % of the file system.
const METADATA_RESERVE_MAX: u64 = 4096;

/// What blocks are reserved for: it decides how many others must stay free.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Data of files. Left are the blocks that mapping all of it takes, and those of the superuser
    /// unless the caller may use them.
    Data(Caller),
    /// Attributes and new directories, which may use half of what data must leave.
    Metadata(Caller),
    /// Names, which mostly take no block. The superuser's blocks may be used, so that where there
    /// are no others a file can still be moved, or an empty one made, as with the kernel's ext4.
    /// What may grow by that, which the kernel refuses, is a directory.
    Names,
    /// Changes of the map of blocks that a file has, which free some or take hardly any: all that
    /// is left may be used.
    Maps,
}

/// Which times of access are noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessTimes {
    /// None: `noatime`.
    None = 0,
    /// The first since a change, and one a day: `relatime`.
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
        // What is met after the end of writing is not recorded any more.
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

/// Errors that wait to be recorded, at most.
const MET_MAX: usize = 16;

/// An error that is to be recorded: damage, or a block of metadata that cannot be read.
#[derive(Debug)]
pub(crate) struct Met {
    /// The inode that was used, where that is known.
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
    /// Names looked up of late.
    pub(crate) names: NameCache,
    pub(crate) orphans: Orphans,
    /// Blocks of attributes, and inodes of values, that more inodes may come to use.
    pub(crate) xattrs: XattrSharing,
    /// Usage of each owner, if it is counted.
    pub(crate) quotas: Option<Quotas>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The data of files.
    pub(crate) pages: PageCache<Error>,
    /// Flushers that were asked for; 0: as many as are right for the device.
    pub(crate) wb_flushers: u32,
    /// Held while a name moves from one directory to another: no directory moves otherwise.
    pub(crate) rename: Mutex<()>,
    /// Which times of access are noted: an [`AccessTimes`].
    access_times: AtomicU8,
    /// What the mount has set itself.
    pub(crate) limits: MountLimits,
    /// Inodes have room for nanoseconds and times after 2038.
    time_fields: TimeFields,
    /// The superblock but for its counts, which [`Rw::superblock`] puts in.
    superblock: Mutex<SuperBlock>,
    superblock_changed: AtomicBool,
    /// What the device is to be notified of freed blocks.
    pub(crate) discards: Discards,
    /// Blocks freed by transactions that are not durable.
    freed: Mutex<Vec<(Tid, Run)>>,
    /// How many blocks are freed and not yet available, those the device is to be notified of among
    /// them.
    freed_blocks: AtomicU64,
    /// Blocks reserved for data that waits to be written.
    reserved: Reservations,
    metadata_reserve: u64,
    next_generation: AtomicU32,
    /// What keeps other hosts from writing, where the file system has it.
    mmp: OnceLock<Mmp>,
    /// Allocations for reserved data under way.
    pub(crate) taking: Taking,
    /// Cuts and deletions that wait for room.
    pub(crate) unfinished: Unfinished,
    /// One limit for pages, metadata, extents, shared attributes, inodes and names.
    pub(crate) memory: Memory,
    /// Held while all that waits for the journal is written because memory is short.
    pub(crate) draining: Mutex<()>,
    /// When the machine was asked last how short of memory it is, on the monotonic clock.
    pub(crate) pressure_asked: Mutex<Duration>,
    /// Errors that were noted, and are still to be acted upon (`error_record`); whether there are
    /// any, and whether this mount has met some before.
    pub(crate) damage: Mutex<Vec<Met>>,
    pub(crate) has_damage: AtomicBool,
    pub(crate) was_damaged: AtomicBool,
    /// One of them has ended writing, and is not recorded yet.
    pub(crate) is_half_done: AtomicBool,
    /// The threads that do what is due, if they were started.
    pub(crate) background: Mutex<Vec<Background>>,
    /// Exclusive use of the device, as long as anything may be written to it.
    pub(crate) claim: Mutex<Option<Claim>>,
    /// Not opened wholly yet, or closed: the last user has nothing to do when it goes.
    pub(crate) is_left: AtomicBool,
    /// No [`crate::Volume`] is left, but inodes are in use: each writes its data when it goes.
    pub(crate) writes_on_drop: AtomicBool,
}

/// What a mount for writing is made of.
pub(crate) struct Parts {
    /// The journal, replayed and opened.
    pub(crate) journal: Journal,
    /// The clock for time stamps and for work with a due time.
    pub(crate) clock: Arc<dyn Clock>,
    /// The budget for all memory.
    pub(crate) memory: Memory,
    /// The pages of files.
    pub(crate) pages: PageCache<Error>,
    /// Bytes for names, at most.
    pub(crate) names_max: usize,
    /// The inodes to be deleted, or cut, if the power goes now.
    pub(crate) orphans: Orphans,
    /// The quotas, if the file system has them.
    pub(crate) quotas: Option<Quotas>,
    /// The attributes that inodes share.
    pub(crate) xattrs: XattrSharing,
    /// How the status of extents is cached.
    pub(crate) extent_status: ExtentStatusOptions,
    /// How blocks are allocated.
    pub(crate) allocator: AllocatorOptions,
    /// By which designs.
    pub(crate) mballoc: AllocatorPolicies,
    /// The names of the designs of all subsystems.
    pub(crate) designs: Designs,
    /// Whether freed blocks are discarded on the device.
    pub(crate) discard: bool,
}

impl Rw {
    /// Makes the state of a writable mount; `disk` is mounted for reading.
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
            metadata_reserve: (disk.geometry().blocks_count / 50).min(METADATA_RESERVE_MAX),
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

    /// Notes that an error has left a change half-done: it is recorded in place, even if another
    /// thread has taken what was noted before.
    pub(crate) fn note_half_done(&self, error: &Error) {
        self.is_half_done.store(true, Release);
        self.note(Met {
            ino: None,
            unread: None,
            damage: error.damage().cloned(),
        });
    }

    /// Takes exclusive use of the device, until the file system is closed.
    pub(crate) fn set_claim(&self, claim: Claim) {
        *self.claim.lock() = Some(claim);
    }

    /// The same with what the mount sets itself.
    pub(crate) fn with_limits(self, limits: MountLimits) -> Self {
        Self { limits, ..self }
    }

    /// Which times of access are noted from now on.
    pub(crate) fn note_access(&self, times: AccessTimes) {
        self.access_times.store(times as u8, Relaxed);
    }

    /// Which times of access are noted.
    pub(crate) fn access_times(&self) -> AccessTimes {
        match self.access_times.load(Relaxed) {
            0 => AccessTimes::None,
            1 => AccessTimes::Relative,
            _ => AccessTimes::Strict,
        }
    }

    /// What keeps other hosts from writing, if anything does.
    pub(crate) fn mmp(&self) -> Option<&Mmp> {
        self.mmp.get()
    }

    /// Sets it, once.
    pub(crate) fn set_mmp(&self, mmp: Mmp) {
        _ = self.mmp.set(mmp);
    }

    /// Now, as inodes store it.
    pub(crate) fn now(&self) -> Timestamp {
        let (sec, nsec) = self.clock.now();
        self.kept(Timestamp { sec, nsec })
    }

    /// What inodes of this file system keep of a time.
    pub(crate) fn kept(&self, time: Timestamp) -> Timestamp {
        time.kept(self.time_fields)
    }

    /// A generation for a new inode.
    pub(crate) fn next_generation(&self) -> u32 {
        self.next_generation.fetch_add(0x9E37_79B1, Relaxed)
    }

    /// Changes the superblock; it is written with the transaction that runs now, so a handle must
    /// be held.
    pub(crate) fn change_superblock<R>(&self, f: impl FnOnce(&mut SuperBlock) -> R) -> R {
        let result = f(&mut self.superblock.lock());
        self.superblock_changed.store(true, Relaxed);
        result
    }

    /// The superblock as it is now, counts and checksum included.
    pub(crate) fn superblock(&self) -> SuperBlock {
        let mut superblock = *self.superblock.lock();
        let total = self.groups.total();
        superblock.set_free_blocks_count(total.free_blocks);
        superblock.s_free_inodes_count = (total.free_inodes as u32).into();
        superblock.update_checksum();
        superblock
    }

    /// The superblock if it has to be written.
    pub(crate) fn take_superblock(&self) -> Option<SuperBlock> {
        self.superblock_changed
            .swap(false, Relaxed)
            .then(|| self.superblock())
    }

    /// Its counts have changed.
    pub(crate) fn superblock_is_stale(&self) {
        self.superblock_changed.store(true, Relaxed);
    }

    /// Blocks that data may still be reserved, as far as bitmaps were read.
    pub(crate) fn available_blocks(&self) -> u64 {
        self.allocator
            .checked_free_blocks()
            .saturating_sub(self.reserved.reserved())
            .saturating_sub(self.metadata_reserve)
    }

    /// Blocks reserved for data that waits to be written.
    pub(crate) fn reserved_blocks(&self) -> u64 {
        self.reserved.reserved()
    }

    /// Blocks that data must leave free, for mapping what was reserved.
    pub(crate) fn metadata_reserve(&self) -> u64 {
        self.metadata_reserve
    }

    /// Reserves `blocks` blocks; false if there are not so many. Reads bitmaps if what is known of
    /// them is not enough. Only groups whose bitmaps were read and agree with their descriptors
    /// count: taking reserved blocks must never be what finds out that they are not there.
    pub(crate) fn reserve(&self, disk: &Disk, purpose: Purpose, blocks: u64) -> bool {
        let reserved_from = |caller| self.limits.reserved_from(caller, disk.superblock());
        let kept = match purpose {
            Purpose::Data(caller) => self.metadata_reserve.saturating_add(reserved_from(caller)),
            // The other half is for mapping what was reserved for data.
            Purpose::Metadata(caller) => {
                (self.metadata_reserve / 2).saturating_add(reserved_from(caller))
            }
            Purpose::Names => self.metadata_reserve / 2,
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

    /// Reserves blocks by compare-and-swap; a failed attempt changes nothing.
    fn add_reserved(&self, blocks: u64, kept: u64) -> bool {
        // Read behind what is reserved, so that blocks just taken count as one or the other, or
        // as both.
        let room = || self.allocator.checked_free_blocks().saturating_sub(kept);
        self.reserved.reserve(blocks, room)
    }

    /// Releases a reservation, whether or not its blocks were used.
    pub(crate) fn release(&self, blocks: u64) {
        self.reserved.release(blocks);
    }

    /// Whether a commit, and notifying the device, would make blocks free.
    pub(crate) fn has_freed(&self) -> bool {
        self.freed_blocks.load(Relaxed) > 0
    }

    /// Remembers blocks until the transaction that freed them is durable.
    pub(crate) fn hold_freed(&self, tid: Tid, run: Run) {
        self.freed.lock().push((tid, run));
        self.freed_blocks.fetch_add(run.len.into(), Relaxed);
    }

    /// What was freed up to and with transaction `tid`, which is durable, can be had by others
    /// once it is settled. Quick: the log is locked, and the thread that waits for the commit
    /// waits for this.
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

    /// Notifies the device of what is freed and durable, if it is to be reported, and lets others
    /// have that. Waits for a caller that is at it; no handle may be held.
    pub(crate) fn settle_freed(&self, disk: &Disk) {
        let give = |runs: &[Run]| self.give(runs);
        self.discards.settle(disk, &self.journal, give);
    }

    /// Lets others have runs that were freed.
    fn give(&self, runs: &[Run]) {
        for run in runs {
            self.allocator.give(*run);
            self.freed_blocks.fetch_sub(run.len.into(), Relaxed);
        }
    }
}
