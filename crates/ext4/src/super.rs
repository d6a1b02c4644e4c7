//! Opening: from a device to the mounted state.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use uext4_blockdev::{BlockDevice, Clock, host};
use uext4_buffer_cache::{BhLruOptions, BufferCache, Options};
use uext4_extent_status::Options as ExtentStatusOptions;
use uext4_jbd2::Journal;
use uext4_mballoc::Options as AllocatorOptions;
use uext4_mbcache::Options as MbcacheOptions;
use uext4_ondisk::features::{Compat, Incompat, RoCompat};
use uext4_ondisk::superblock::{STATE_ERROR, SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::xattr::XATTR_REFCOUNT_MAX;
use uext4_ondisk::{BlockSize, Damage, Geometry, Pblk};

use crate::background::Background;
use crate::error::{Error, Result};
use crate::fast_commit::FastCommit;
use crate::file_change;
use crate::in_use::set_in_use;
use crate::inode_ref::InodeRef;
use crate::journal;
use crate::memory::{Memory, default_budget};
use crate::mmp::Mmp;
use crate::quota::Quotas;
use crate::redo::redo;
use crate::rw::Rw;
use crate::sbi::Sbi;
use crate::space::write_all;
use crate::writeback_options::{WritebackOptions, flushers};
use crate::xattr_shared::XattrSharing;

/// One part in so many of the memory for metadata is for names.
const NAMES_SHARE: usize = 8;

/// How long changes may wait before they are committed.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);
/// How often the thread looks that commits.
const TICK: Duration = Duration::from_secs(1);
/// How often the thread looks that reclaims memory, unless it is woken.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(2);
/// Budget of a file system opened for reading, in bytes.
const READING_MEMORY: u64 = 64 << 20;

/// How to open a file system. `OpenOptions::default()` is right unless there is a reason.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bytes of memory for all that is kept: data of files, metadata, extents, inodes, names. `None`:
    /// an eighth of the machine's memory, at most 1 GiB; for reading, 64 MiB. At least 1 MiB.
    pub memory: Option<u64>,
    /// Bytes of metadata kept in memory, at most, within `memory`.
    pub memory_max: usize,
    /// Bytes of file data kept in memory, at most, within `memory`; at least 64 blocks. Only for
    /// writing.
    pub pages_max: u64,
    /// Which blocks each thread or core keeps at hand without asking the shared table.
    pub bh_lru: BhLruOptions,
    /// Show a file system that was not unmounted as if its journal had been replayed. The device
    /// is not written. Without it such a file system is shown as it lies there.
    pub replay_journal: bool,
    /// Block of a backup superblock to use in place of the primary, for example 32768.
    pub superblock: Option<u64>,
    /// Block size, needed to find a backup if the primary superblock is unreadable; `None` tries
    /// all of them.
    pub block_size: Option<BlockSize>,
    /// Refuse what exceeds the limits of a user, group or project. Without it they are counted, and
    /// nothing is refused. Only for writing, and only where there is the feature `quota`.
    ///
    /// Limits are those of who owns what is made or grows, whoever asks for it; what belongs to id 0
    /// is not limited.
    pub quota_limits: bool,
    /// When writers wait, how much may be dirty and for how long. Only for writing.
    pub writeback: WritebackOptions,
    /// How blocks are chosen: policies and tunables of the allocator. Only for writing. Its `stripe`,
    /// `flex_groups` and `rotational` are those of the file system and the device.
    pub allocator: AllocatorOptions,
    /// How attributes that inodes may share are found: policy and tunables. `None`: nothing is shared
    /// that is not yet. Only for writing. Seed and limits are those of the file system.
    pub mbcache: Option<MbcacheOptions>,
    /// How what is known of the blocks of files is shrunk and counted. Only for writing.
    pub extent_status: ExtentStatusOptions,
    /// Blocks of a full stripe of the RAID below; 0 for none. `None`: what the superblock says, if it
    /// fits a group.
    pub stripe: Option<u32>,
    /// Tell the device of freed blocks once their transaction is durable.
    pub discard: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            memory: None,
            memory_max: usize::MAX,
            pages_max: u64::MAX,
            bh_lru: BhLruOptions::default(),
            replay_journal: true,
            superblock: None,
            block_size: None,
            quota_limits: true,
            writeback: WritebackOptions::default(),
            allocator: AllocatorOptions::default(),
            mbcache: Some(MbcacheOptions::default()),
            extent_status: ExtentStatusOptions::default(),
            stripe: None,
            discard: false,
        }
    }
}

impl OpenOptions {
    /// Sets one option as mount options are written: `stripe=BLOCKS`, `discard`, `nodiscard`, `mbcache=`,
    /// `mb_bucket_bits=`, `mb_max_entries=`, `nombcache` (or `no_mbcache`), what
    /// [`AllocatorOptions::set`] knows (`mb_normalize=`, `mb_search=`, the `mb_` tunables), what
    /// [`WritebackOptions::set`] knows, what [`BhLruOptions::set`] does (`bh_lru=`, …), and what
    /// [`ExtentStatusOptions::set`] does (`es_shrinker=`, …). After `nombcache`, `mb_bucket_bits=` and
    /// `mb_max_entries=` count for nothing until `mbcache=` switches the cache on again, with their defaults.
    ///
    /// # Errors
    /// [`Error::Option`], [`Error::MbcacheOption`], [`Error::Tunable`], [`Error::WritebackMode`],
    /// [`Error::BhLru`] and [`Error::ExtentStatus`] for a name that is none, and for a value out of its
    /// range, which it tells.
    pub fn option(&mut self, option: &str) -> Result<()> {
        if let Some((name, value)) = option.split_once('=') {
            if let "mbcache" | "mb_bucket_bits" | "mb_max_entries" = name {
                let mut mbcache = self.mbcache.unwrap_or_default();
                mbcache.set(name, value)?;
                // A number for a cache that is switched off does not switch it on.
                if name == "mbcache" || self.mbcache.is_some() {
                    self.mbcache = Some(mbcache);
                }
                return Ok(());
            }
            if WritebackOptions::knows(name) {
                return self.writeback.set(name, value);
            }
            if BhLruOptions::knows(name) {
                return Ok(self.bh_lru.set(name, value)?);
            }
            if ExtentStatusOptions::knows(name) {
                return Ok(self.extent_status.set(name, value)?);
            }
        }
        match option {
            "nombcache" | "no_mbcache" => self.mbcache = None,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            _ => {
                self.allocator.set(option)?;
                if option.starts_with("stripe=") {
                    self.stripe = Some(self.allocator.stripe);
                }
            }
        }
        Ok(())
    }

    /// The same for several, separated by commas, as behind `mount -o`.
    ///
    /// # Errors
    /// That of the first that cannot be set; those before it are.
    pub fn options(&mut self, list: &str) -> Result<()> {
        let mut each = list.split(',').filter(|option| !option.is_empty());
        each.try_for_each(|option| self.option(option))
    }

    /// The allocator's options on this file system and device.
    ///
    /// # Errors
    /// [`Error::Option`] for a stripe that was asked for and is longer than a group.
    fn for_allocator(&self, sbi: &Sbi) -> Result<AllocatorOptions> {
        let geometry = sbi.geometry();
        let group = geometry.blocks_per_group.get();
        // Made for a device of other shape, or wrong: never a reason not to open.
        let of_superblock =
            Some(sbi.superblock().s_raid_stripe_width.get()).filter(|s| *s <= group);
        let options = AllocatorOptions {
            stripe: self.stripe.or(of_superblock).unwrap_or(0),
            flex_groups: 1u32
                .checked_shl(geometry.log_groups_per_flex.into())
                .unwrap_or(u32::MAX),
            rotational: self.allocator.rotational || sbi.device().is_rotational(),
            ..self.allocator
        };
        options.check(group)?;
        Ok(options)
    }

    /// What inodes may share, of this file system.
    ///
    /// # Errors
    /// [`Error::MbcacheOption`].
    fn for_sharing(&self, sbi: &Sbi, clock: &dyn Clock) -> Result<XattrSharing> {
        let (sec, nsec) = clock.now();
        // The same on the same clock; not known to who only knows the image.
        let seed = u64::from(nsec) << 32 ^ sec as u64;
        let options = self.mbcache.map(|options| {
            let options = MbcacheOptions { seed, ..options };
            options.for_blocks(sbi.geometry().blocks_count)
        });
        XattrSharing::new(options, XATTR_REFCOUNT_MAX)
    }

    /// The same with the budget as a number: `memory`, or what `default` says.
    fn with_budget(&self, default: impl FnOnce() -> u64) -> (Self, u64) {
        let memory = self.memory.unwrap_or_else(default);
        let most = usize::try_from(memory).unwrap_or(usize::MAX);
        let options = Self {
            memory_max: self.memory_max.min(most),
            ..self.clone()
        };
        (options, memory)
    }
}

/// Opens for reading.
///
/// # Errors
/// Damage of the superblock, [`Damage::DeviceTooSmall`], [`Error::Unsupported`] naming the
/// features that cannot be read or an external journal, damage of the journal, device errors.
pub(crate) fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Sbi> {
    let (options, _) = &options.with_budget(|| READING_MEMORY);
    let (superblock, at) = read_superblock(&*device, options)?;
    let mut sbi = mount(device, superblock, at, options)?;
    let from_backup = options.superblock.is_some();
    if options.replay_journal
        && journal::needs_recovery(&sbi, from_backup)
        && let Some(recovery) = journal::recover(&sbi)?
    {
        let replayed: Arc<dyn BlockDevice> = Arc::new(journal::replayed_device(&sbi, &recovery));
        let (superblock, at) = read_superblock(&*replayed, options)?;
        sbi = mount(replayed, superblock, at, options)?;
        let summary = journal::apply_fast_commits(&mut sbi, &recovery)?;
        sbi.set_replayed(summary);
    }
    Ok(sbi)
}

/// Opens for reading and writing: the journal is replayed on the device, and the file system is
/// marked as in use until [`close`].
///
/// # Errors
/// As [`open`], and [`Error::Unsupported`] naming the features that cannot be written,
/// [`Error::ReadOnly`] for a device that takes no writes, [`Error::Invalid`] for a file system that
/// has errors recorded.
pub(crate) fn open_rw(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    options: &OpenOptions,
) -> Result<Sbi> {
    if device.is_read_only() {
        return Err(Error::ReadOnly);
    }
    let (superblock, _) = read_superblock(&*device, &OpenOptions::default())?;
    let mut features = superblock.features();
    // Not in the way: the journal is replayed, and orphans are deleted.
    features.incompat.remove(Incompat::RECOVER);
    features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
    let unwritable = features.unwritable();
    if !unwritable.is_empty() {
        return Err(Error::Unsupported {
            what: unwritable.join(", "),
        });
    }
    if superblock.s_state.get() & STATE_ERROR != 0 {
        return Err(Error::Invalid {
            what: "the file system has errors: run e2fsck",
        });
    }
    let (options, memory) = &options.with_budget(|| default_budget(host::meminfo().as_deref()));
    let first = mount(Arc::clone(&device), superblock, Pblk(0), options)?;
    let mmp = Mmp::claim(&first, &*clock)?;
    let mounted = open_journal(first, &clock, options).and_then(|(journal, sbi, waiting)| {
        let names_max = options.memory_max / NAMES_SHARE;
        let clock = Arc::clone(&clock);
        let quotas = Quotas::open(&sbi, Arc::clone(&clock), options.quota_limits)?;
        let memory = Memory::new(*memory);
        let pages_max = options.pages_max.min(memory.limit());
        let block_size = sbi.geometry().block_size;
        let pages = options
            .writeback
            .page_cache(block_size, pages_max, &clock)?;
        let allocator = (options.for_allocator(&sbi)?, options.discard);
        let memory = (memory, pages, names_max);
        let sharing = options.for_sharing(&sbi, &*clock)?;
        let rooms = (quotas, sharing, options.extent_status);
        let rw = Rw::new(&sbi, journal, clock, memory, rooms, allocator)?;
        sbi.set_writing(rw);
        if let Some(fast_commits) = waiting {
            redo(&sbi, &fast_commits)?;
            sbi.writable()?.journal.flush(&sbi)?;
        }
        set_log_features(&sbi)?;
        set_in_use(&sbi, true)?;
        Ok(sbi)
    });
    match (mounted, mmp) {
        (Ok(sbi), Some(mmp)) => {
            sbi.writable()?.set_mmp(mmp);
            Ok(sbi)
        }
        (Err(error), Some(mmp)) => {
            // The error before this one is what matters.
            _ = mmp.release(&*clock);
            Err(error)
        }
        (mounted, None) => mounted,
    }
}

/// Replays the log, if there is one, and mounts what that leaves. With fast commits that wait, which
/// it answers, the log stays as it was until they are redone.
fn open_journal(
    sbi: Sbi,
    clock: &Arc<dyn Clock>,
    options: &OpenOptions,
) -> Result<(Journal, Sbi, Option<FastCommit>)> {
    let device = Arc::clone(sbi.device());
    if !sbi.geometry().features.compat.contains(Compat::HAS_JOURNAL) {
        let journal = Journal::without_log(Arc::clone(sbi.cache()), Arc::clone(clock));
        return Ok((journal, sbi, None));
    }
    let runs = journal::runs(&sbi)?;
    let waiting = journal::waiting_fast_commits(&sbi)?;
    let counts = sbi.geometry().features.ro_compat;
    if waiting.is_some() && counts.contains(RoCompat::QUOTA) {
        return Err(Error::Unsupported {
            what: "redoing fast commits where quotas are counted: run e2fsck first".to_owned(),
        });
    }
    let (blocks, block_size) = (sbi.geometry().blocks_count, sbi.geometry().block_size);
    // What was read to find the journal may be older than what the replay wrote.
    drop(sbi);
    let cache = new_cache(&device, block_size, options);
    let cache = Arc::new(cache);
    let open = match waiting {
        Some(_) => Journal::open_behind,
        None => Journal::open,
    };
    let (journal, _) = open(Arc::clone(&cache), Arc::clone(clock), blocks, &runs)?;
    let (superblock, at) = read_superblock(&*device, &OpenOptions::default())?;
    let geometry = Geometry::new(&superblock)?;
    let sbi = Sbi::new(device, cache, superblock, geometry, at);
    Ok((journal, sbi, waiting))
}

/// Lets the log, which is empty, have block numbers and checksums like the rest.
fn set_log_features(sbi: &Sbi) -> Result<()> {
    let features = sbi.geometry().features;
    let wide = features.incompat.contains(Incompat::BIT64);
    let checksums = features.ro_compat.contains(RoCompat::METADATA_CSUM);
    Ok(sbi.writable()?.journal.set_features(wide, checksums)?)
}

/// Deletes the inodes that were to be deleted when the file system was left, and cuts others to their
/// size.
///
/// # Errors
/// Damage, device errors.
pub(crate) fn adopt_orphans(sbi: &Arc<Sbi>) -> Result<()> {
    for ino in sbi.writable()?.orphans.all() {
        let inode = InodeRef::get(sbi, ino)?;
        // One without links goes with its last user, at the end of this block.
        if inode.inode.read().links > 0 {
            file_change::finish_truncate(&inode)?;
        }
    }
    Ok(())
}

/// Makes everything durable.
///
/// # Errors
/// What writing data said, or that some were given up since `seen`; errors of the commit, device errors.
pub(crate) fn sync(sbi: &Sbi, seen: &AtomicU64) -> Result<()> {
    let rw = sbi.writable()?;
    let written = write_all(sbi, rw, seen);
    let ticket = rw.journal.barrier().ticket();
    rw.journal.commit_now(sbi)?;
    rw.journal.wait_durable(ticket)?;
    written
}

/// Does what is due.
///
/// # Errors
/// As [`sync`].
pub(crate) fn tick(sbi: &Sbi) -> Result<()> {
    let rw = sbi.writable()?;
    if let Some(mmp) = rw.mmp()
        && let Err(error) = mmp.update(&*rw.clock, || Ok(rw.journal.barrier().flush()?))
    {
        rw.journal.abort(&error);
        return Err(error);
    }
    let tunables = rw.pages.limits().domain().tunables();
    if tunables.dirty_writeback_centisecs != 0 {
        rw.pages.flush_expired();
    }
    let due = rw.clock.monotonic().checked_sub(COMMIT_INTERVAL);
    let is_due = match rw.journal.began() {
        Some(began) => due.is_some_and(|due| began <= due),
        // Nothing else will take them along.
        None => rw.inodes.later_count() > 0,
    };
    if is_due {
        rw.journal.commit_now(sbi)?;
    }
    if rw.journal.wants_checkpoint() {
        rw.journal.checkpoint()?;
    }
    sbi.reclaim();
    Ok(())
}

/// Starts the threads that flush, commit and shrink.
///
/// # Errors
/// [`Error::Invalid`] if the system has no threads for us, [`Error::ReadOnly`].
pub(crate) fn start_background(sbi: &Arc<Sbi>) -> Result<()> {
    let rw = sbi.writable()?;
    let no_thread = |_| Error::Invalid {
        what: "no more threads can be started",
    };
    let flushers = flushers(rw.wb_flushers, sbi.device().is_rotational());
    rw.pages.start_flushers(flushers).map_err(no_thread)?;
    let weak = Arc::downgrade(sbi);
    let commit = move || {
        let sbi = weak.upgrade();
        // What fails has aborted the journal: whoever asks next is told.
        sbi.map(|sbi| _ = tick(&sbi)).is_some()
    };
    let weak = Arc::downgrade(sbi);
    let reclaim = move || {
        let sbi = weak.upgrade();
        let reclaim = |sbi: Arc<Sbi>| (sbi.watch_pressure(), sbi.reclaim());
        sbi.map(reclaim).is_some()
    };
    let mut threads = rw.background.lock();
    threads.push(Background::start("uext4-journal", TICK, commit).map_err(no_thread)?);
    let reclaimer = Background::start("uext4-reclaim", RECLAIM_INTERVAL, reclaim);
    let reclaimer = reclaimer.map_err(no_thread)?;
    rw.memory.set_waker(reclaimer.waker());
    threads.push(reclaimer);
    if rw.discards.is_on() {
        let weak = Arc::downgrade(sbi);
        let discard = move || {
            let sbi = weak.upgrade();
            let parts = sbi.as_deref().and_then(|sbi| Some((sbi.rw()?, sbi)));
            parts.map(|(rw, sbi)| rw.settle_freed(sbi)).is_some()
        };
        let discarder = Background::start("uext4-discard", TICK, discard).map_err(no_thread)?;
        rw.discards.set_waker(Some(discarder.waker()));
        threads.push(discarder);
    }
    Ok(())
}

fn new_cache(
    device: &Arc<dyn BlockDevice>,
    block_size: BlockSize,
    options: &OpenOptions,
) -> BufferCache {
    let cache_options = Options {
        memory_max: options.memory_max,
        bh_lru: options.bh_lru,
    };
    BufferCache::new(Arc::clone(device), block_size, cache_options)
}

/// Judges a superblock and puts the mounted state together.
fn mount(
    device: Arc<dyn BlockDevice>,
    superblock: SuperBlock,
    at: Pblk,
    options: &OpenOptions,
) -> Result<Sbi> {
    let unreadable = superblock.features().unreadable();
    if !unreadable.is_empty() {
        return Err(Error::Unsupported {
            what: unreadable.join(", "),
        });
    }
    let geometry = Geometry::new(&superblock)?;
    let (need, have) = (geometry.len_bytes(), device.len());
    if need > have {
        return Err(Error::Corrupt(Damage::DeviceTooSmall { need, have }));
    }
    let cache = Arc::new(new_cache(&device, geometry.block_size, options));
    Ok(Sbi::new(device, cache, superblock, geometry, at))
}

/// Reads the superblock that was asked for, and tells the block it lies in.
fn read_superblock(device: &dyn BlockDevice, options: &OpenOptions) -> Result<(SuperBlock, Pblk)> {
    let Some(block) = options.superblock else {
        let superblock = superblock_at(device, SUPERBLOCK_OFFSET)?;
        return Ok((superblock, Pblk(0)));
    };
    let sizes = match options.block_size {
        Some(size) => size..=size,
        None => BlockSize::MIN..=BlockSize::MAX,
    };
    let mut reason = Error::Invalid {
        what: "no such superblock",
    };
    for log2 in sizes.start().log2()..=sizes.end().log2() {
        let Some(size) = BlockSize::from_log2(log2) else {
            continue;
        };
        // Block 0 starts with the boot sector, the superblock comes 1 KiB later.
        let offset = match block {
            0 => Some(SUPERBLOCK_OFFSET),
            _ => size.byte_offset(Pblk(block)),
        };
        let found = offset
            .ok_or(Error::Invalid {
                what: "no such superblock",
            })
            .and_then(|offset| superblock_at(device, offset));
        match found {
            // A superblock that lies elsewhere by its own word was found by chance.
            Ok(superblock) if superblock.s_log_block_size.get() + 10 == log2 || block == 0 => {
                return Ok((superblock, Pblk(block)));
            }
            Ok(_) => {}
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

fn superblock_at(device: &dyn BlockDevice, offset: u64) -> Result<SuperBlock> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    let have = device.len().saturating_sub(offset);
    if have < bytes.len() as u64 {
        return Err(Error::Corrupt(Damage::Truncated {
            structure: "superblock",
            need: bytes.len() as u64,
            have,
        }));
    }
    device.read_at(offset, &mut bytes)?;
    Ok(SuperBlock::parse(&bytes)?)
}
