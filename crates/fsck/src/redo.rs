//! Writing a plan in place, so that a cut at any write loses nothing.
//!
//! ```text
//! 1. the log: numbers and contents of all changed blocks, into clusters that
//!    were free before, too; inverted, so that no search takes them for metadata   flush
//! 2. the pointer to the log, into the superblock as the device has it             flush
//! 3. all changed blocks, each in its place; the superblock with the pointer       flush
//! 4. the superblock without the pointer                                           flush
//! ```
//! Before 2 is durable, nothing that the file system knows has changed: the next run plans anew.
//! From then on the next run finds the pointer, and the log behind it whole, and does 3 and 4
//! again; they write the same bytes however often they are done.
//!
//! Steps 2 and 4 write one sector, the second of the superblock's two, so that they cannot be
//! torn. Step 2 keeps everything else as it was: a journal that must be replayed must be until
//! step 3, which replays it. In step 3 the superblock may be torn; the pointer has a checksum of
//! its own and knows each sector as it was and as it will be, so that it is found nevertheless.
//!
//! A superblock with other contents is that of a file system that was in use since the cut: the
//! log is then out of date, and never written.

mod room;
#[cfg(test)]
mod tests;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::num::{index, len64};
use uext4_ondisk::repair_log::{BLOCKS_MAX, RepairPointer, log_blocks, runs_max};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Pblk};
use uext4_redo::{Log, LogRun, Places, UnfinishedRepair, primary};

use crate::clusters::ClusterSet;
use crate::error::{Error, Result};
use crate::overlay::Overlay;
use crate::report::Cause;
use room::{Wanted, find_room};

/// What a plan writes, and where its log goes.
#[derive(Debug)]
pub struct Writes {
    block_size: BlockSize,
    /// The blocks that change, ascending; the superblock's is always among them.
    numbers: Vec<u64>,
    /// The blocks of the log, in clusters that are free once the plan is done.
    log: Option<Places>,
}

impl Writes {
    /// The writes of `plan`. `used` are the clusters in use once it is done, and those that the
    /// next run would read if this one is cut off before the log is whole: the log takes others.
    ///
    /// # Errors
    /// Of the device, of the overlay and of the set.
    pub fn new(plan: &Overlay, used: &ClusterSet) -> Result<Self> {
        let block_size = plan.block_size();
        let mut numbers = Vec::new();
        plan.for_each_change(|change| {
            numbers.push(change.block.0);
            Ok(())
        })?;
        add_earlier(&mut numbers, plan)?;
        let mut log = None;
        if !numbers.is_empty() {
            add_superblock(&mut numbers, block_size);
            let mut superblock = [0; primary::LEN];
            plan.read_at(SUPERBLOCK_OFFSET, &mut superblock)?;
            let blocks = SuperBlock::parse(&superblock).map_or(u64::MAX, |sb| sb.blocks_count());
            let wanted = Wanted {
                blocks: log_blocks(block_size.bytes(), len64(numbers.len())),
                runs_max: index(runs_max(block_size.bytes())),
                not: &numbers,
                end: blocks.min(plan.base().len() >> block_size.log2()),
            };
            log = match len64(numbers.len()) <= BLOCKS_MAX {
                true => find_room(used, &wanted).or_else(|| in_spare(used.spare(), &wanted)),
                false => None,
            };
            used.check()?;
        }
        Ok(Self {
            block_size,
            numbers,
            log,
        })
    }

    /// The writes of a plan that was read: the blocks that change, and where its log goes. `None`
    /// if they do not ascend, or do not lie on the device with its log.
    pub fn of_plan(
        block_size: BlockSize,
        mut numbers: Vec<u64>,
        log: Option<Vec<LogRun>>,
        device_len: u64,
    ) -> Option<Self> {
        let blocks = device_len >> block_size.log2();
        let inside = numbers.last().is_none_or(|&last| last < blocks);
        if !numbers.is_sorted_by(|a, b| a < b) || !inside {
            return None;
        }
        if !numbers.is_empty() {
            add_superblock(&mut numbers, block_size);
        }
        let log = match log {
            None => None,
            Some(runs) if runs.len() > index(runs_max(block_size.bytes())) => return None,
            Some(runs) => Some(Places::new(runs, blocks)?),
        };
        let len = log_blocks(block_size.bytes(), len64(numbers.len()));
        let few = len64(numbers.len()) <= BLOCKS_MAX;
        let fits = |log: &Places| few && log.blocks() == len && !log.contain_any(&numbers);
        log.as_ref().is_none_or(fits).then_some(Self {
            block_size,
            numbers,
            log,
        })
    }

    /// The runs of blocks that the log goes to, if there is room for one.
    pub fn log(&self) -> Option<&[LogRun]> {
        Some(self.log.as_ref()?.runs())
    }

    /// How many blocks change.
    pub fn count(&self) -> u64 {
        len64(self.numbers.len())
    }

    /// Whether there is room for a log.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// All blocks that are overwritten, those of the log too, ascending.
    pub fn overwritten(&self) -> Vec<u64> {
        let mut all = self.numbers.clone();
        if let Some(log) = &self.log {
            all.extend((0..log.blocks()).map_while(|number| log.block(number)));
            all.sort_unstable();
        }
        all
    }

    /// What becomes of the blocks that are overwritten by writing `plan`.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn becoming<'a>(&'a self, plan: &'a Overlay) -> Result<Becoming<'a>> {
        let log = self.log.as_ref();
        let log = log.map(|places| Log::new(plan, self.block_size, &self.numbers, places));
        Ok(Becoming {
            plan,
            log: log.transpose()?,
        })
    }

    /// Writes all changes of `plan` to `device`, the one below it, as the head of this file says.
    ///
    /// # Errors
    /// Of the device: then the next run finishes what was begun. [`Error::NoLogRoom`] if there is
    /// no room for a log: nothing was written then.
    pub fn write(&self, device: &dyn BlockDevice, plan: &Overlay) -> Result<()> {
        if self.numbers.is_empty() {
            return Ok(());
        }
        let no_room = Error::NoLogRoom {
            blocks: self.count(),
        };
        let places = self.log.as_ref().ok_or(no_room)?;
        // The log of an earlier repair may lie where this one goes, and what it changes is part of
        // this plan, which was made of what it leaves; all its blocks are written here, too.
        if let Some(earlier) = UnfinishedRepair::find(device)? {
            earlier.finish(device)?;
        }
        let log = Log::new(plan, self.block_size, &self.numbers, places)?;
        let mut content = vec![0; self.block_size.len()];
        for (number, block) in (0..).zip(log.blocks()) {
            log.content(number, &mut content)?;
            device.write_at(block << self.block_size.log2(), &content)?;
        }
        // The log is whole before anything refers to it.
        device.flush()?;
        let mut superblock = primary::read(device)?.ok_or_else(|| Error::Refused {
            what: "the device ends before its superblock".to_owned(),
        })?;
        let pointer = log.pointer(&superblock)?;
        primary::change(&mut superblock, |bytes| pointer.store(bytes));
        primary::write_second_sector(device, &superblock)?;
        let (blocks, places) = (self.count(), places.clone());
        let repair = UnfinishedRepair::new(pointer, self.block_size, blocks, places);
        Ok(repair.finish(device)?)
    }

    /// Writes all changes of `plan` without a log: for a device that is of no use if this is cut
    /// off, or whose old contents are in an undo file. The superblock is first marked as one with
    /// errors, and written as it will be when all others are durable.
    ///
    /// # Errors
    /// Of the device.
    pub fn write_without_log(&self, device: &dyn BlockDevice, plan: &Overlay) -> Result<()> {
        if self.numbers.is_empty() {
            return Ok(());
        }
        let superblock = primary::block(self.block_size).0;
        let mut content = vec![0; self.block_size.len()];
        let mut write = |number: u64| {
            plan.read_block(Pblk(number), &mut content)?;
            device.write_at(number << self.block_size.log2(), &content)?;
            Ok::<_, Error>(())
        };
        primary::mark_errors(device)?;
        let others = self.numbers.iter().filter(|&&number| number != superblock);
        others.copied().try_for_each(&mut write)?;
        device.flush()?;
        write(superblock)?;
        Ok(device.flush()?)
    }
}

/// What becomes of blocks, those of the log too.
#[derive(Debug)]
pub struct Becoming<'a> {
    plan: &'a Overlay,
    log: Option<Log<'a>>,
}

impl Becoming<'_> {
    /// Reads what a block becomes.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn read(&self, block: u64, content: &mut [u8]) -> Result<()> {
        let in_log = self
            .log
            .as_ref()
            .and_then(|log| Some((log, log.number(block)?)));
        match in_log {
            Some((log, number)) => Ok(log.content(number, content)?),
            None => self.plan.read_block(Pblk(block), content),
        }
    }
}

/// Room for a log in blocks that are in use and hold nothing: the longest runs of them.
fn in_spare(spare: &[std::ops::Range<u64>], wanted: &Wanted<'_>) -> Option<Places> {
    let is_written = |run: &std::ops::Range<u64>| {
        let next = wanted.not.partition_point(|&block| block < run.start);
        wanted.not.get(next).is_some_and(|&block| block < run.end)
    };
    let runs = spare.iter().map(|run| run.start..run.end.min(wanted.end));
    let runs = runs.filter(|run| !run.is_empty() && !is_written(run));
    let mut runs: Vec<LogRun> = runs
        .map(|run| LogRun {
            start: run.start,
            blocks: run.end - run.start,
        })
        .collect();
    runs.sort_unstable_by(|a, b| b.cmp(a));
    runs.truncate(wanted.runs_max);
    let mut missing = wanted.blocks;
    let mut taken = Vec::new();
    for run in runs {
        let blocks = run.blocks.min(missing);
        missing -= blocks;
        taken.push(LogRun { blocks, ..run });
        if missing == 0 {
            return Places::new(taken, wanted.end);
        }
    }
    None
}

/// Adds the superblock's block: the pointer is put there, and taken away with its contents.
fn add_superblock(numbers: &mut Vec<u64>, block_size: BlockSize) {
    let block = primary::block(block_size).0;
    if let Err(at) = numbers.binary_search(&block) {
        numbers.insert(at, block);
    }
}

/// Adds the blocks of a repair that was cut off: it is finished before the plan is written, and may
/// put something else where the plan puts back what is there now.
fn add_earlier(numbers: &mut Vec<u64>, plan: &Overlay) -> Result<()> {
    let device = plan.base();
    if let Some(earlier) = UnfinishedRepair::find(&**device)? {
        earlier.for_each(&**device, |number, _| {
            numbers.push(number);
            Ok::<_, Error>(())
        })?;
        numbers.sort_unstable();
        numbers.dedup();
    }
    Ok(())
}

/// Takes the pointer to a log out of the superblock.
///
/// # Errors
/// Of the device and of the overlay.
pub fn clear_pointer(overlay: &Overlay, cause: Cause) -> Result<()> {
    overlay.update(primary::block(overlay.block_size()), cause, |content| {
        if let Some(bytes) = primary::of_block(content) {
            primary::change(bytes, RepairPointer::clear);
        }
    })
}

/// Shows the device as the finished repair leaves it.
///
/// # Errors
/// Of the device and of the overlay.
pub fn read_through(repair: &UnfinishedRepair, overlay: &Overlay, cause: Cause) -> Result<()> {
    let device = overlay.base();
    repair.for_each(&**device, |number, content| {
        overlay.replace(Pblk(number), cause, content)
    })
}
