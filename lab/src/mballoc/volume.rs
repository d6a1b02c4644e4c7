//! A file system as the allocator sees one: files with extents, delayed allocation, a flusher in
//! virtual time, and the bitmaps; no inode, directory entry or journal is written.
//!
//! ```text
//! write → dirty, reserved ──(too much dirty, sync)──> flusher: a chunk of each dirty file in turn
//!         → take_data, mark → extents → disk
//! ```
//! The allocator is the real one, its requests those of ext4: a dirty run in pieces of at most
//! 2,048 blocks, with the mapped neighbours, the size, and whether any thread has the file open.

use std::collections::{BTreeMap, VecDeque};

use uext4_lab_policies::mballoc::{Design, Made, Tunables};
use uext4_mballoc::{Allocator, DataRequest, Error, Request, Run};
use uext4_ondisk::{Geometry, GroupNr, Lblk, Pblk};

use crate::experiment::{Failure, Scale, Setting};
use crate::mballoc::bitmaps::{Contradiction, MemoryBitmaps};
use crate::mballoc::disk::Disk;
use crate::mballoc::extents::Extent;
use crate::mballoc::file::{File, FileNr};
use crate::mballoc::format::{self, Format};
use crate::mballoc::placement::Placement;

/// Blocks that writeback asks for at once (`MAX_WRITEPAGES_EXTENT_LEN`).
const EXTENT_WRITEPAGES_MAX: u64 = 2048;
/// Freed blocks are given back this often, as a journal commits.
const COMMIT_NS: u64 = 5_000_000_000;
/// Bytes of an extent in a block of the extent tree, and of that block's header.
const EXTENT_BYTES: u64 = 12;
/// Part of the file system only root may use: files stop short of it.
const RESERVED_PERCENT: u64 = 5;

/// Bytes of a stripe on each disk.
const RAID_CHUNK: u64 = 64 << 10;

/// What a volume is made with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes of the device.
    pub device: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Data blocks of a RAID 5 stripe; 0: one disk.
    pub stripe: u32,
    /// Blocks of one file the flusher writes before it turns to the next.
    pub chunk: u64,
    /// Dirty blocks from which on it writes.
    pub background: u64,
    /// What placement is random by.
    pub seed: u64,
}

/// The volume.
#[derive(Debug)]
pub struct Volume {
    pub(super) setup: Setup,
    pub(super) geometry: Geometry,
    pub(super) allocator: Allocator,
    /// Its designs.
    pub(super) made: Made,
    pub(super) bitmaps: MemoryBitmaps,
    pub(super) disk: Disk,
    pub(super) files: BTreeMap<FileNr, File>,
    /// Blocks of directories.
    pub(super) directories: Vec<Run>,
    /// Blocks used before any file was made.
    pub(super) metadata_blocks: u64,
    /// Cleared in the bitmaps, not yet given back.
    pub(super) held: Vec<Run>,
    placement: Placement,
    queue: VecDeque<FileNr>,
    dirty_blocks: u64,
    next_file: FileNr,
    committed_ns: u64,
    pub(super) refused: u64,
    mapped: u64,
}

impl Setup {
    /// What a claim's setting says, on a RAID 5 of so many data disks (0: one disk).
    pub fn of(setting: &Setting, disks: u64) -> Self {
        let block_bytes = setting.value("block").parse().unwrap_or(4096);
        let chunk: u64 = setting.value("chunk").parse().unwrap_or(4);
        let (device, background) = match setting.scale {
            Scale::Quick => (4u64 << 30, 64u64 << 20),
            Scale::Full => (32 << 30, 512 << 20),
        };
        Self {
            device,
            block_bytes,
            stripe: (disks * RAID_CHUNK / block_bytes) as u32,
            chunk: (chunk << 20) / block_bytes,
            background: background / block_bytes,
            seed: setting.seed,
        }
    }
}

impl Volume {
    /// As mke2fs would leave it, with an allocator of these designs on a device that seeks.
    ///
    /// # Errors
    /// [`Failure::Run`] for a setup of which no file system can be made.
    pub fn new(setup: Setup, design: Design) -> Result<Self, Failure> {
        let format = format::format(setup.device, setup.block_bytes)?;
        let tunables = Tunables {
            rotational: true,
            ..Tunables::default()
        };
        Self::on(setup, format, design.make(tunables))
    }

    /// On a file system that was made, with an allocator of these designs.
    ///
    /// # Errors
    /// [`Failure::Run`] for a geometry that the allocator refuses.
    pub fn on(setup: Setup, format: Format, made: Made) -> Result<Self, Failure> {
        let (geometry, bitmaps) = format;
        let allocator = format::allocator(&geometry, &bitmaps, setup.stripe, &made)?;
        let parts = geometry.groups_count.get() >> geometry.log_groups_per_flex;
        let inodes = u64::from(geometry.inodes_per_group.get()) << geometry.log_groups_per_flex;
        let blocks = geometry.blocks_count;
        Ok(Self {
            setup,
            metadata_blocks: blocks - bitmaps.free_blocks_in_all(),
            placement: Placement::new(parts as usize, inodes, setup.seed),
            disk: Disk::new(blocks, setup.block_bytes, setup.stripe.into()),
            geometry,
            allocator,
            made,
            bitmaps,
            files: BTreeMap::new(),
            directories: Vec::new(),
            held: Vec::new(),
            queue: VecDeque::new(),
            dirty_blocks: 0,
            next_file: 12,
            committed_ns: 0,
            refused: 0,
            mapped: 0,
        })
    }

    /// Makes a directory below one placed at `parent` (`None`: the root) for so many names; where
    /// it is placed.
    ///
    /// # Errors
    /// [`Failure::Run`] as for [`Volume::flush`].
    pub fn make_directory(&mut self, parent: Option<usize>, names: u64) -> Result<usize, Failure> {
        let free = self.free_by_part();
        let part = self.placement.directory(parent, &free);
        // About 32 bytes a name.
        for _ in 0..(names * 32 / self.setup.block_bytes).max(1) {
            let run = self.take_metadata(self.goal_of(part, false))?;
            self.directories.extend(run);
        }
        Ok(part)
    }

    /// Makes an empty file, open for writing, in a directory placed at `part`.
    pub fn create(&mut self, part: usize) -> FileNr {
        let part = self.placement.file(part);
        let nr = self.next_file;
        self.next_file += 1;
        let file = File::new(part, self.goal_of(part, true));
        self.files.insert(nr, file);
        nr
    }

    /// Bytes of the device.
    pub fn device(&self) -> u64 {
        self.geometry.len_bytes()
    }

    /// Of the blocks, those used or reserved.
    pub fn used_percent(&self) -> u64 {
        let free = self
            .bitmaps
            .free_blocks_in_all()
            .saturating_sub(self.dirty_blocks);
        100 - free * 100 / self.geometry.blocks_count
    }

    /// Of the blocks, what is used if there are so many of contents.
    pub fn percent_with(&self, blocks: u64) -> u64 {
        (self.metadata_blocks + blocks) * 100 / self.geometry.blocks_count
    }

    /// Blocks a file's size takes; 0 if there is none of that number.
    pub fn blocks(&self, nr: FileNr) -> u64 {
        self.size(nr).div_ceil(self.setup.block_bytes)
    }

    /// Runs mapped to files so far.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Bytes of a file; 0 if there is none of that number.
    pub fn size(&self, nr: FileNr) -> u64 {
        self.files.get(&nr).map_or(0, |file| file.size)
    }

    /// Blocks files can still have, what is dirty taken off.
    pub fn available(&self) -> u64 {
        let kept = self.geometry.blocks_count * RESERVED_PERCENT / 100;
        // A block of extent tree for every 64 of data is more than is ever needed.
        let reserved = self.dirty_blocks + self.dirty_blocks / 64;
        (self.bitmaps.free_blocks_in_all()).saturating_sub(kept + reserved)
    }

    /// The blocks of a range, by which the file has grown, or `None` if there is no space for them.
    fn room_for(&mut self, nr: FileNr, offset: u64, len: u64) -> Option<(u32, u32)> {
        let block = self.setup.block_bytes;
        let (start, end) = (offset / block, (offset + len).div_ceil(block));
        if self.available() < end - start {
            return None;
        }
        let file = self.files.get_mut(&nr)?;
        file.size = file.size.max(offset + len);
        Some((start as u32, end as u32))
    }

    /// Writes bytes; false if there is no space for them. The flusher may have to write others.
    ///
    /// # Errors
    /// [`Failure::Run`] as for [`Volume::flush`].
    pub fn write(&mut self, nr: FileNr, offset: u64, len: u64) -> Result<bool, Failure> {
        let Some((start, end)) = self.room_for(nr, offset, len) else {
            return Ok(false);
        };
        let Some(file) = self.files.get_mut(&nr) else {
            return Ok(false);
        };
        if file.dirty.is_empty() {
            self.queue.push_back(nr);
        }
        self.dirty_blocks += file.make_dirty(start, end);
        while self.dirty_blocks > self.setup.background {
            let Some(nr) = self.queue.pop_front() else {
                break;
            };
            self.flush(nr, self.setup.chunk)?;
        }
        Ok(true)
    }

    /// A thread has the file open again.
    pub fn open(&mut self, nr: FileNr) {
        if let Some(file) = self.files.get_mut(&nr) {
            file.open = true;
        }
    }

    /// Extents of a file; 0 if there is none of that number.
    pub fn extents_count(&self, nr: FileNr) -> u64 {
        self.files.get(&nr).map_or(0, |file| file.extents.len())
    }

    /// No process has the file open any more.
    pub fn close(&mut self, nr: FileNr) {
        if let Some(file) = self.files.get_mut(&nr) {
            file.open = false;
            if file.dirty.is_empty() {
                self.allocator.discard(&file.space);
            }
        }
    }

    /// Reads a whole file.
    pub fn read(&mut self, nr: FileNr) {
        if let Some(file) = self.files.get(&nr) {
            for (_, extent) in file.extents.iter().filter(|(_, e)| !e.unwritten) {
                self.disk.read(extent.pblk, extent.len.into());
            }
        }
    }

    /// Allocates blocks without writing them, as far as they are a hole; false if there is no
    /// space.
    ///
    /// # Errors
    /// [`Failure::Run`] as for [`Volume::flush`].
    pub fn fallocate(&mut self, nr: FileNr, offset: u64, len: u64) -> Result<bool, Failure> {
        let Some((mut at, end)) = self.room_for(nr, offset, len) else {
            return Ok(false);
        };
        while at < end {
            let file = &self.files[&nr];
            at = match (file.extents.at(at), file.dirty_at(at)) {
                (Some((lblk, extent)), _) => lblk + extent.len,
                // Delayed blocks are mapped when they are written.
                (None, Some(dirty_end)) => dirty_end,
                (None, None) => {
                    let hole = file.hole_end(at, end);
                    at + self.map(nr, at, hole - at, true)?.len
                }
            };
        }
        Ok(true)
    }

    /// Cuts a file at `size` bytes, or lengthens it by a hole.
    pub fn truncate(&mut self, nr: FileNr, size: u64) {
        let Some(file) = self.files.get_mut(&nr) else {
            return;
        };
        self.allocator.discard(&file.space);
        file.size = size;
        let first = size.div_ceil(self.setup.block_bytes) as u32;
        self.drop_blocks(nr, first, u32::MAX);
    }

    /// Makes a hole of whole blocks.
    pub fn punch(&mut self, nr: FileNr, offset: u64, len: u64) {
        if let Some(file) = self.files.get(&nr) {
            self.allocator.discard(&file.space);
            let block = self.setup.block_bytes;
            let (start, end) = (offset.div_ceil(block), (offset + len) / block);
            if start < end {
                self.drop_blocks(nr, start as u32, end as u32);
            }
        }
    }

    /// Removes a file.
    pub fn unlink(&mut self, nr: FileNr) {
        self.truncate(nr, 0);
        if let Some(file) = self.files.remove(&nr) {
            self.queue.retain(|&queued| queued != nr);
            self.placement.remove(file.part, false);
        }
    }

    /// Writes everything that is dirty, and commits.
    ///
    /// # Errors
    /// [`Failure::Run`] as for [`Volume::flush`].
    pub fn sync(&mut self) -> Result<(), Failure> {
        while let Some(nr) = self.queue.pop_front() {
            self.flush(nr, u64::MAX)?;
        }
        self.disk.flush();
        self.commit();
        Ok(())
    }

    /// Forgets files that no thread has open, as memory pressure does between two jobs.
    pub fn evict(&mut self) {
        for file in self.files.values().filter(|file| !file.open) {
            self.allocator.discard(&file.space);
        }
    }

    /// Lets others have what was freed.
    pub fn commit(&mut self) {
        self.committed_ns = self.disk.counters().ns;
        for run in self.held.drain(..) {
            self.allocator.give(run);
        }
    }

    /// Writes up to `most` dirty blocks of a file.
    fn flush(&mut self, nr: FileNr, most: u64) -> Result<(), Failure> {
        let mut left = most;
        while left > 0 {
            let Some(file) = self.files.get_mut(&nr) else {
                return Ok(());
            };
            let Some((start, end)) = file.dirty.pop_first() else {
                break;
            };
            let upto = end.min(start.saturating_add(left.min(u32::MAX.into()) as u32));
            if upto < end {
                file.dirty.insert(upto, end);
            }
            self.dirty_blocks -= u64::from(upto - start);
            left -= u64::from(upto - start);
            self.write_run(nr, start, upto)?;
        }
        let file = self.files.get(&nr);
        if file.is_some_and(|file| !file.dirty.is_empty()) {
            self.queue.push_back(nr);
        }
        if self.disk.counters().ns - self.committed_ns >= COMMIT_NS {
            self.commit();
        }
        Ok(())
    }

    /// Maps what of `start..end` is a hole, and writes all of it.
    fn write_run(&mut self, nr: FileNr, start: u32, end: u32) -> Result<(), Failure> {
        let mut at = start;
        while at < end {
            let file = &self.files[&nr];
            at = if let Some((lblk, extent)) = file.extents.at(at) {
                let upto = end.min(lblk + extent.len);
                let pblk = extent.pblk + u64::from(at - lblk);
                self.disk.write(pblk, (upto - at).into());
                if extent.unwritten
                    && let Some(file) = self.files.get_mut(&nr)
                {
                    file.extents.write(at, upto);
                    self.grow_tree(nr)?;
                }
                upto
            } else {
                let hole = file.hole_end(at, end);
                let len = u64::from(hole - at).min(EXTENT_WRITEPAGES_MAX) as u32;
                let run = self.map(nr, at, len, false)?;
                self.disk.write(run.start.0, run.len.into());
                at + run.len
            };
        }
        Ok(())
    }

    /// Allocates blocks for the start of a hole.
    fn map(&mut self, nr: FileNr, lblk: u32, len: u32, unwritten: bool) -> Result<Run, Failure> {
        self.mapped += 1;
        let run = match self.take_data(nr, lblk, len, unwritten) {
            Err(Error::NoSpace { .. }) if !self.held.is_empty() => {
                self.commit();
                self.take_data(nr, lblk, len, unwritten)
            }
            other => other,
        };
        let run = run.map_err(|error| self.refusal(&error))?;
        let marked = self.allocator.mark(&self.bitmaps, run);
        marked.map_err(|error| self.refusal(&error))?;
        if let Some(file) = self.files.get_mut(&nr) {
            let (len, pblk) = (run.len, run.start.0);
            file.extents.insert(
                lblk,
                Extent {
                    len,
                    pblk,
                    unwritten,
                },
            );
        }
        self.grow_tree(nr)?;
        Ok(run)
    }

    fn take_data(
        &self,
        nr: FileNr,
        lblk: u32,
        len: u32,
        unwritten: bool,
    ) -> Result<Run, Error<Contradiction>> {
        let file = &self.files[&nr];
        let left = file.extents.before(lblk).map(|(start, extent)| {
            let last = extent.len - 1;
            (Lblk(start + last), Pblk(extent.pblk + u64::from(last)))
        });
        let right = file.extents.after(lblk);
        let request = DataRequest {
            file: nr,
            lblk: Lblk(lblk),
            len,
            goal: file.goal,
            left,
            right: right.map(|(start, extent)| (Lblk(start), Pblk(extent.pblk))),
            size: file.size.div_ceil(self.setup.block_bytes),
            unwritten,
            closed: !file.open,
        };
        self.allocator
            .take_data(&self.bitmaps, &file.space, &request)
    }

    /// One block that is not data.
    fn take_metadata(&mut self, goal: Pblk) -> Result<Option<Run>, Failure> {
        let request = Request {
            goal,
            len: 1,
            min_len: 1,
            next_fit: false,
        };
        let run = self.allocator.allocate(&self.bitmaps, &request);
        run.map(Some).map_err(|error| self.refusal(&error))
    }

    /// Takes or frees blocks of the extent tree until it has as many as it needs.
    fn grow_tree(&mut self, nr: FileNr) -> Result<(), Failure> {
        let per_block = self.setup.block_bytes / EXTENT_BYTES - 1;
        while let Some(file) = self.files.get_mut(&nr) {
            let (have, need) = (file.tree.len() as u64, file.extents.tree_blocks(per_block));
            if have == need {
                break;
            }
            if have > need {
                let run = file.tree.pop();
                self.free_runs(run);
            } else {
                let goal = file.goal;
                let run = self.take_metadata(goal)?;
                if let Some(file) = self.files.get_mut(&nr) {
                    file.tree.extend(run);
                }
            }
        }
        Ok(())
    }

    fn drop_blocks(&mut self, nr: FileNr, start: u32, end: u32) {
        let Some(file) = self.files.get_mut(&nr) else {
            return;
        };
        self.dirty_blocks -= file.make_clean(start, end);
        let removed = file.extents.remove(start, end);
        let runs = removed.into_iter().map(|(_, extent)| Run {
            start: Pblk(extent.pblk),
            len: extent.len,
        });
        self.free_runs(runs.collect::<Vec<_>>());
        // A tree that only shrinks needs no space: it cannot be refused.
        let _ = self.grow_tree(nr);
    }

    /// Frees runs; others get them after the next commit.
    fn free_runs(&mut self, runs: impl IntoIterator<Item = Run>) {
        for run in runs {
            for (group, offset, len) in self.bitmaps.pieces(run.start.0, run.len.into()) {
                let start = self.geometry.group_start(GroupNr(group)).0;
                let piece = Run {
                    start: Pblk(start + u64::from(offset)),
                    len,
                };
                match self.allocator.clear(&self.bitmaps, piece) {
                    Ok(()) => self.held.push(piece),
                    // The check of bitmaps against extents after the step says so.
                    Err(_) => self.refused += 1,
                }
            }
        }
    }

    fn refusal(&mut self, error: &dyn std::fmt::Display) -> Failure {
        self.refused += 1;
        Failure::Run(format!(
            "{error}; {} blocks are free in the bitmaps, {} of them dirty",
            self.bitmaps.free_blocks_in_all(),
            self.dirty_blocks
        ))
    }

    fn goal_of(&self, part: usize, regular: bool) -> Pblk {
        let flex = self.geometry.log_groups_per_flex;
        let group = (part as u32) << flex;
        let apart = u32::from(regular && flex >= 2);
        let group = (group + apart).min(self.geometry.groups_count.get() - 1);
        Pblk(self.geometry.group_start(GroupNr(group)).0)
    }

    fn free_by_part(&self) -> Vec<u64> {
        let flex = self.geometry.log_groups_per_flex;
        let groups = self.bitmaps.free_by_group();
        groups
            .chunks(1 << flex)
            .map(|part| part.iter().sum())
            .collect()
    }
}
