//! Opening: from a device to the mounted state.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use uext4_blockdev::verity::refuse_behind;
use uext4_blockdev::{BlockDevice, Claim, Clock, host};
use uext4_buffer_cache::{BufferCache, Options};
use uext4_extent_status::Options as ExtentStatusOptions;
use uext4_jbd2::{Journal, LogRun, Recovery};
use uext4_ondisk::features::{Compat, Incompat, RoCompat};
use uext4_ondisk::journal::JournalIncompat;
use uext4_ondisk::superblock::{STATE_ERROR, SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Damage, Geometry, Pblk};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::memory::{Memory, default_budget};
use crate::base::rescue::{CutRepair, Rescue, Usable, superblock_at};
use crate::file::evict;
use crate::file::inode_ref::InodeRef;
use crate::journal::error_record;
use crate::journal::mmp::Mmp;
use crate::journal::rw::{Parts, Rw};
use crate::journal::sbi::Sbi;
use crate::journal::space::write_all;
use crate::map::map_blocks;
use crate::mount::cut_repair;
use crate::mount::in_use::set_in_use;
use crate::mount::journal;
use crate::mount::open_options::OpenOptions;
use crate::orphan::change::Orphans;
use crate::quota::Quotas;
use crate::replay::redo;
use uext4_ondisk::fast_commit::FastCommit;

/// One part in so many of the memory for metadata is for names.
const NAMES_SHARE: usize = 8;

/// Budget of a file system opened for reading, in bytes; where memory is short, an eighth of it.
const READING_MEMORY: u64 = 64 << 20;

/// Opens for reading.
pub(crate) fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Sbi> {
    let (options, _) = &options.with_budget(|| host::share_of_memory(8, READING_MEMORY));
    let may_search = options.superblock.is_none();
    let (device, cut_repair) = match options.replay_journal {
        true => cut_repair::read_through(device)?,
        false => (device, None),
    };
    let read = read_superblock(&*device, options);
    let mut usable = Usable::find(&*device, read, may_search)?;
    let device = usable.extend(device);
    let (mut sbi, mut rescue) = mount_usable(device, usable, options)?;
    let from_backup = !may_search || rescue.superblock.is_some();
    if options.replay_journal
        && journal::needs_recovery(&sbi, from_backup)
        && let Some(recovery) = recover(&sbi, &mut rescue)?
    {
        let replayed: Arc<dyn BlockDevice> = Arc::new(journal::replayed_device(&sbi, &recovery));
        let read = read_superblock(&*replayed, options);
        let usable = Usable::find(&*replayed, read, may_search)?.after(rescue);
        let before = sbi;
        (sbi, rescue) = mount_usable(replayed, usable, options)?;
        check_same_blocks(&before, &sbi)?;
        let summary = journal::apply_fast_commits(&mut sbi, &recovery)?;
        sbi.set_replayed(summary);
    }
    rescue.cut_repair = cut_repair;
    sbi.set_rescue(rescue);
    Ok(Sbi::new(sbi))
}

/// Mounts with a superblock that can be used, and what that took.
fn mount_usable(
    device: Arc<dyn BlockDevice>,
    usable: Usable,
    options: &OpenOptions,
) -> Result<(Disk, Rescue)> {
    let mut sbi = mount(device, usable.superblock, usable.at, options)?;
    if usable.rescue.uses_backup() {
        sbi.prefer_primary_descriptors();
    }
    Ok((sbi, usable.rescue))
}

/// What the journal would replay. `None` also if the device ends before the journal does.
fn recover(sbi: &Disk, rescue: &mut Rescue) -> Result<Option<Recovery>> {
    match journal::recover(sbi) {
        Err(error) if error.is_beyond_end() => {
            rescue.journal_is_missing = true;
            Ok(None)
        }
        recovery => recovery,
    }
}

/// Opens for reading and writing: the journal is replayed on the device, and the file system is
/// marked as in use, and its device claimed, until [`crate::mount::in_use::close`].
///
/// Fails as [`open`], with [`Damage::DeviceTooSmall`], [`Error::Device`] if the device is in use,
/// [`Error::Unsupported`] naming the features that cannot be written, [`Error::ReadOnly`] for a
/// device that takes no writes.
pub(crate) fn open_rw(
    device: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    options: &OpenOptions,
) -> Result<Sbi> {
    if device.is_read_only() {
        return Err(Error::ReadOnly);
    }
    options.check()?;
    let claim = Claim::new(Arc::clone(&device))?;
    let cut_repair = finish_cut_repair(&*device, &*clock)?;
    let Usable {
        superblock,
        mut rescue,
        ..
    } = Usable::primary(&*device)?;
    rescue.cut_repair = cut_repair;
    check_writable(&superblock)?;
    refuse_hash_tree(&*device, &superblock)?;
    let (options, budget) = &options.with_budget(|| default_budget(host::memory()));
    let mut first = mount(Arc::clone(&device), superblock, Pblk(0), options)?;
    first.set_rescue(rescue);
    let mmp = Mmp::claim(&first, &*clock)?;
    let mounted = open_journal(first, &clock, options).and_then(|(journal, sbi, waiting)| {
        let parts = parts(&sbi, journal, &clock, options, *budget)?;
        let rw = Rw::new(&sbi, parts)?;
        let sbi = Sbi::new(sbi);
        let rw = rw.with_limits(options.limits);
        if rw.journal.has_log() {
            let runs = journal::runs(&sbi)?;
            let runs = runs.iter().map(|run| (run.start, run.len.into()));
            rw.groups.protect(runs);
        }
        sbi.set_rw(rw);
        if let Some(fast_commits) = waiting {
            // The log is begun anew only after this transaction is at its home location: until
            // then a power cut finds the fast commits still in it.
            redo(&sbi, &fast_commits)?;
            sbi.writable()?.journal.flush(&sbi)?;
        }
        // While the log is empty: records that are in it were written by the features it has.
        // The superblock says "needs recovery" before the first change can be logged.
        set_log_features(&sbi)?;
        set_in_use(&sbi, true)?;
        // The superblock says it now.
        sbi.writable()?.journal.note_errno(0)?;
        // What opening wrote is durable, whatever comes.
        if !options.limits.barrier {
            sbi.writable()?.journal.barrier().disable();
        }
        Ok(sbi)
    });
    match (mounted, mmp) {
        (Ok(sbi), mmp) => {
            let rw = sbi.writable()?;
            rw.set_claim(claim);
            if let Some(mmp) = mmp {
                rw.set_mmp(mmp);
            }
            Ok(sbi)
        }
        // The claim ends after this: until then no other writer owns the block.
        (Err(error), Some(mmp)) => {
            // The error before this one is what matters.
            _ = mmp.release(&*clock);
            Err(error)
        }
        (Err(error), None) => Err(error),
    }
}

/// What a mount for writing is made of, as the options say, with a budget of memory in bytes.
fn parts(
    sbi: &Disk,
    journal: Journal,
    clock: &Arc<dyn Clock>,
    options: &OpenOptions,
    budget: u64,
) -> Result<Parts> {
    let quotas = Quotas::open(sbi, map_blocks, Arc::clone(clock), options.quota_limits)?;
    let orphans = Orphans::open(sbi, map_blocks)?;
    let memory = Memory::new(budget);
    let pages_max = options.pages_max.min(memory.limit());
    let block_size = sbi.geometry().block_size;
    let pages =
        options
            .writeback
            .page_cache(options.policies.throttle, block_size, pages_max, clock)?;
    let allocator = options.for_allocator(sbi)?;
    let xattrs = options.for_sharing(sbi, &**clock)?;
    Ok(Parts {
        journal,
        clock: Arc::clone(clock),
        memory,
        pages,
        names_max: options.memory_max / NAMES_SHARE,
        orphans,
        quotas,
        xattrs,
        extent_status: ExtentStatusOptions {
            stats: options.es_stats,
            shrinker: options.policies.extent_status.clone(),
        },
        allocator,
        mballoc: options.policies.mballoc.clone(),
        designs: options.policies.shown(),
        discard: options.discards(sbi),
    })
}

/// Fails with what keeps a file system with this superblock from being written.
fn check_writable(superblock: &SuperBlock) -> Result<()> {
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
    Ok(())
}

/// Judges the file system that the replay would leave, before anything of it is written: the log
/// may hold another superblock.
fn check_replayed(
    sbi: &Disk,
    recovery: &Recovery,
    runs: &[LogRun],
    options: &OpenOptions,
) -> Result<()> {
    let replayed: Arc<dyn BlockDevice> = Arc::new(journal::replayed_device(sbi, recovery));
    let Usable { superblock, at, .. } = Usable::primary(&*replayed)?;
    check_writable(&superblock)?;
    let after = mount(replayed, superblock, at, options)?;
    check_same_blocks(sbi, &after)?;
    let has_journal = after
        .geometry()
        .features
        .compat
        .contains(Compat::HAS_JOURNAL);
    // What the file has behind the log may come and go.
    let log = |runs: &[LogRun]| journal::first_blocks(runs, recovery.superblock.s_maxlen.get());
    if has_journal && log(&journal::runs(&after)?) == log(runs) {
        return Ok(());
    }
    Err(Error::Corrupt(Damage::SuperblockField {
        field: "s_journal_inum",
        value: superblock.s_journal_inum.get().into(),
        why: "replaying the journal would move or remove the journal itself",
    }))
}

/// Fails with [`Damage::SuperblockField`] if the replay changes the size of a block, by which the
/// log is read.
fn check_same_blocks(before: &Disk, after: &Disk) -> Result<()> {
    if before.geometry().block_size == after.geometry().block_size {
        return Ok(());
    }
    Err(Error::Corrupt(Damage::SuperblockField {
        field: "s_log_block_size",
        value: after.superblock().s_log_block_size.get().into(),
        why: "replaying the journal would change the size of a block",
    }))
}

/// Replays the log, if there is one, and mounts what that leaves. With fast commits that wait,
/// which it answers, the log stays as it was until they are redone.
fn open_journal(
    sbi: Disk,
    clock: &Arc<dyn Clock>,
    options: &OpenOptions,
) -> Result<(Journal, Disk, Option<FastCommit>)> {
    let device = Arc::clone(sbi.device());
    if !sbi.geometry().features.compat.contains(Compat::HAS_JOURNAL) {
        let journal = Journal::without_log(Arc::clone(sbi.cache()), Arc::clone(clock));
        return Ok((journal, sbi, None));
    }
    let runs = journal::runs(&sbi)?;
    if let Some(recovery) = journal::recover(&sbi)? {
        check_replayed(&sbi, &recovery, &runs, options)?;
    }
    let waiting = journal::waiting_fast_commits(&sbi)?;
    let counts = sbi.geometry().features.ro_compat;
    if waiting.is_some() && counts.contains(RoCompat::QUOTA) {
        return Err(Error::Unsupported {
            what: "redoing fast commits where quotas are counted: run e2fsck first".to_owned(),
        });
    }
    let (blocks, block_size) = (sbi.geometry().blocks_count, sbi.geometry().block_size);
    let before = sbi.rescue().clone();
    let recorded = *sbi.superblock();
    // What was read to find the journal may be older than what the replay wrote.
    drop(sbi);
    let cache = new_cache(&device, block_size, options);
    let cache = Arc::new(cache);
    let open = match waiting {
        Some(_) => Journal::open_behind,
        None => Journal::open,
    };
    let (journal, recovery) = open(Arc::clone(&cache), Arc::clone(clock), blocks, &runs)?;
    let Usable {
        mut superblock,
        at,
        rescue,
    } = Usable::primary(&*device)?.after(before);
    // What was recorded in place is older in the log.
    error_record::carry_over(&recorded, &mut superblock);
    if recovery.errno() != 0 {
        superblock.s_state = (superblock.s_state.get() | STATE_ERROR).into();
    }
    check_writable(&superblock)?;
    let geometry = judge(&*device, &superblock)?;
    let mut sbi = Disk::new(device, cache, superblock, geometry, at);
    sbi.set_rescue(rescue);
    Ok((journal, sbi, waiting))
}

/// Lets the log, which is empty, have block numbers and checksums like the rest.
fn set_log_features(sbi: &Sbi) -> Result<()> {
    let wanted = JournalIncompat::wanted(sbi.geometry().features);
    Ok(sbi.writable()?.journal.set_features(wanted)?)
}

/// Deletes the inodes that were to be deleted when the file system was left, and cuts others to
/// their size. Where errors are recorded they stay as they are, for e2fsck: they may be what was
/// met.
pub(crate) fn adopt_orphans(sbi: &Arc<Sbi>) -> Result<()> {
    if sbi.superblock().s_state.get() & STATE_ERROR != 0 {
        return Ok(());
    }
    for ino in sbi.writable()?.orphans.all() {
        let inode = InodeRef::get(sbi, ino)?;
        // One without links goes with its last user, at the end of this block.
        if inode.inode.read().links > 0 {
            evict::cut_to_end(sbi, &inode)?;
        }
    }
    Ok(())
}

/// Makes everything durable.
pub(crate) fn sync(sbi: &Sbi, seen: &AtomicU64) -> Result<()> {
    let rw = sbi.writable()?;
    // Data, then the commit of what maps it, then a flush that covers both. An error of the data
    // is returned last: what could be written is durable all the same.
    let written = write_all(sbi, rw, seen);
    let seq = rw.journal.barrier().seq();
    rw.journal.commit_now(sbi)?;
    rw.journal.wait_durable(seq)?;
    written
}

/// Makes everything durable, and leaves the log empty.
pub(crate) fn checkpoint(sbi: &Sbi, seen: &AtomicU64) -> Result<()> {
    sync(sbi, seen)?;
    Ok(sbi.writable()?.journal.flush(sbi)?)
}

/// Does what is due.
pub(crate) fn tick(sbi: &Arc<Sbi>) -> Result<()> {
    let rw = sbi.writable()?;
    if let Some(mmp) = rw.mmp()
        && let Err(error) = mmp.update(&*rw.clock, || Ok(rw.journal.flush_device()?))
    {
        rw.journal.abort(&error);
        return Err(error);
    }
    let tunables = rw.pages.limits().domain().tunables();
    if tunables.dirty_writeback_centisecs != 0 {
        rw.pages.flush_expired();
    }
    error_record::act(sbi);
    let interval = rw.limits.commit_interval();
    let due = rw.clock.monotonic().checked_sub(interval);
    let is_due = match rw.journal.began() {
        Some(began) => due.is_some_and(|due| began <= due),
        // Nothing else will take them along.
        None => rw.inodes.later_count() > 0,
    };
    if is_due || rw.journal.has_unwritten() {
        rw.journal.commit_now(&**sbi)?;
    }
    finish(sbi, rw);
    if rw.journal.wants_checkpoint() {
        rw.journal.checkpoint()?;
    }
    sbi.reclaim();
    Ok(())
}

/// Takes up cuts and deletions that had no room. What fails once more waits on.
fn finish(sbi: &Arc<Sbi>, rw: &Rw) {
    if rw.journal.has_unwritten() {
        return;
    }
    for cell in rw.unfinished.take_deletions() {
        let done = error_record::noted(sbi, cell.ino, evict::evict(sbi, &cell));
        if done.is_err_and(|error| evict::may_go_on(rw, &error)) {
            rw.unfinished.note_deletion(&cell);
        }
    }
    for ino in rw.unfinished.cuts() {
        let Ok(file) = InodeRef::get(sbi, ino) else {
            // A file that was deleted since took its blocks with it.
            rw.unfinished.cut(ino);
            continue;
        };
        let _contents = file.rw.write();
        let done = error_record::noted(sbi, ino, evict::end_cut(sbi, &file));
        if done.is_err_and(|error| !evict::may_go_on(rw, &error)) {
            rw.unfinished.cut(ino);
        }
    }
}

fn new_cache(
    device: &Arc<dyn BlockDevice>,
    block_size: BlockSize,
    options: &OpenOptions,
) -> BufferCache {
    let cache_options = Options {
        memory_max: options.memory_max,
        bh_lru_size: options.bh_lru_size as usize,
        bh_lru: options.policies.bh_lru.clone(),
    };
    BufferCache::new(Arc::clone(device), block_size, cache_options)
}

/// Fails if a dm-verity hash tree, or a footer of Android Verified Boot, lies behind the file
/// system: with the first byte that is written, the kernel refuses to read the image by it.
fn refuse_hash_tree(device: &dyn BlockDevice, superblock: &SuperBlock) -> Result<()> {
    let len = Geometry::new(superblock)?.len_bytes();
    Ok(refuse_behind(device, len)?)
}

/// Finishes a repair that was cut off. Not even its log is written where a hash tree lies behind; a
/// superblock that is damaged until then is looked at once it is whole.
fn finish_cut_repair(device: &dyn BlockDevice, clock: &dyn Clock) -> Result<Option<CutRepair>> {
    if let Ok(usable) = Usable::primary(device) {
        refuse_hash_tree(device, &usable.superblock)?;
    }
    cut_repair::finish(device, clock)
}

/// Judges a superblock: what can be read, its shape, and whether the device holds all of it.
fn judge(device: &dyn BlockDevice, superblock: &SuperBlock) -> Result<Geometry> {
    let unreadable = superblock.features().unreadable();
    if !unreadable.is_empty() {
        return Err(Error::Unsupported {
            what: unreadable.join(", "),
        });
    }
    let geometry = Geometry::new(superblock)?;
    let (need, have) = (geometry.len_bytes(), device.len());
    if need > have {
        return Err(Error::Corrupt(Damage::DeviceTooSmall { need, have }));
    }
    Ok(geometry)
}

/// Judges a superblock and puts the mounted state together.
fn mount(
    device: Arc<dyn BlockDevice>,
    superblock: SuperBlock,
    at: Pblk,
    options: &OpenOptions,
) -> Result<Disk> {
    let geometry = judge(&*device, &superblock)?;
    let cache = Arc::new(new_cache(&device, geometry.block_size, options));
    Ok(Disk::new(device, cache, superblock, geometry, at))
}

/// Reads the superblock that was asked for, and returns the block it lies in.
fn read_superblock(device: &dyn BlockDevice, options: &OpenOptions) -> Result<(SuperBlock, Pblk)> {
    let Some(block) = options.superblock else {
        let superblock = superblock_at(device, SUPERBLOCK_OFFSET)?;
        return Ok((superblock, Pblk(0)));
    };
    let sizes = match options.block_size {
        Some(size) => size..=size,
        None => BlockSize::MIN..=BlockSize::MAX,
    };
    let mut reason = Error::Invalid(Invalid::Superblock(block));
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
            .ok_or(Error::Invalid(Invalid::Superblock(block)))
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
