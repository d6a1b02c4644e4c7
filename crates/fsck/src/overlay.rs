//! A device with changes that it does not have yet.
//!
//! Every remedy is a change of the overlay; the device below is only read. What the overlay holds
//! at the end is the plan: for each changed block what it becomes, and the findings that caused
//! it. A check throws it away.
//!
//! Locking: one read-write lock around the map of changes. As long as there is none, which is the
//! common case, reads look at one counter and go to the device.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use uext4_blockdev::{BlockDevice, Error as DeviceError};
use uext4_ondisk::num::{index, len64};
use uext4_ondisk::{BlockSize, Pblk};

use crate::copies::Copies;
use crate::error::Error;
use crate::report::Cause;

/// A device, and the blocks that a repair changes.
#[derive(Debug)]
pub struct Overlay {
    base: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    count: AtomicUsize,
    changes: RwLock<Changes>,
}

#[derive(Debug)]
struct Changes {
    blocks: BTreeMap<u64, Change>,
    copies: Copies,
    /// Bytes of contents in memory.
    in_memory: u64,
    /// Most bytes of contents in memory.
    memory_max: u64,
    spill: Option<File>,
    spilled: u64,
}

#[derive(Debug)]
struct Change {
    content: Content,
    causes: Vec<Cause>,
}

#[derive(Debug)]
enum Content {
    Memory(Box<[u8]>),
    /// At this byte of the temporary file.
    Spilled(u64),
}

/// One changed block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedBlock {
    /// The block.
    pub block: Pblk,
    /// What it becomes, one block long.
    pub content: Vec<u8>,
    /// The findings that caused the change.
    pub causes: Vec<Cause>,
}

impl Overlay {
    /// An overlay without changes, which keeps at most `memory_max` bytes of them in memory and
    /// the rest in an unnamed temporary file.
    pub fn new(base: Arc<dyn BlockDevice>, block_size: BlockSize, memory_max: u64) -> Self {
        Self {
            base,
            block_size,
            count: AtomicUsize::new(0),
            changes: RwLock::new(Changes {
                blocks: BTreeMap::new(),
                copies: Copies::default(),
                in_memory: 0,
                memory_max,
                spill: None,
                spilled: 0,
            }),
        }
    }

    /// The device below.
    pub fn base(&self) -> &Arc<dyn BlockDevice> {
        &self.base
    }

    /// The unit of its changes.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// How many blocks are changed.
    pub fn changed(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Reads bytes as they will be.
    ///
    /// # Errors
    /// [`Error::Device`], also for a range past the end; [`Error::Spill`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        if let Err(error) = self.base.read_at(offset, buf) {
            self.read_unchanged(offset, buf, error)?;
        }
        if self.changed() == 0 || buf.is_empty() {
            return Ok(());
        }
        let size = u64::from(self.block_size.bytes());
        let end = offset.saturating_add(len64(buf.len()));
        let blocks = offset >> self.block_size.log2()..end.div_ceil(size);
        let changes = self.changes.read();
        for run in changes.copies.within(blocks.clone()) {
            let start = run.start << self.block_size.log2();
            let from = start.max(offset);
            let to = (run.end << self.block_size.log2()).min(end);
            let into = &mut buf[index64(from - offset)..index64(to - offset)];
            let source = (run.from << self.block_size.log2()) + (from - start);
            self.base.read_at(source, into)?;
        }
        for (&block, change) in changes.blocks.range(blocks) {
            let start = block << self.block_size.log2();
            let from = start.max(offset);
            let to = start.saturating_add(size).min(end);
            let into = &mut buf[index64(from - offset)..index64(to - offset)];
            let skip = from - start;
            match &change.content {
                Content::Memory(bytes) => {
                    let skip = index64(skip);
                    into.copy_from_slice(&bytes[skip..skip + into.len()]);
                }
                Content::Spilled(at) => {
                    let file = changes.spill.as_ref().ok_or_else(Error::spill_lost)?;
                    file.read_exact_at(into, at + skip).map_err(Error::Spill)?;
                }
            }
        }
        Ok(())
    }

    /// Reads from the device, block by block, what no change replaces: what the device cannot read
    /// there is not needed. `error` is what it returned for all of it, and the end if nothing there
    /// is changed.
    fn read_unchanged(&self, offset: u64, buf: &mut [u8], error: DeviceError) -> Result<(), Error> {
        let size = u64::from(self.block_size.bytes());
        let end = offset.saturating_add(len64(buf.len())).div_ceil(size);
        let changes = self.changes.read();
        let changed = changes.next(offset >> self.block_size.log2());
        if changed.is_none_or(|block| block >= end) {
            return Err(error.into());
        }
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let len = (size - at % size).min(len64(rest.len()));
            let (part, behind) = rest.split_at_mut(index64(len));
            let block = at >> self.block_size.log2();
            if changes.next(block) != Some(block) {
                self.base.read_at(at, part)?;
            }
            at = at.saturating_add(len);
            rest = behind;
        }
        Ok(())
    }

    /// Reads one block as it will be.
    ///
    /// # Errors
    /// As [`Overlay::read_at`].
    pub fn read_block(&self, block: Pblk, buf: &mut [u8]) -> Result<(), Error> {
        let offset = self.offset(block)?;
        self.read_at(offset, buf)
    }

    /// Changes a block: `change` gets it as it is by now. Nothing is kept if it leaves the block
    /// as it was.
    ///
    /// # Errors
    /// As [`Overlay::read_at`].
    pub fn update<R>(
        &self,
        block: Pblk,
        cause: Cause,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let mut bytes = vec![0; self.block_size.len()];
        let mut changes = self.changes.write();
        let offset = self.offset(block)?;
        match changes.blocks.get(&block.0).map(|old| &old.content) {
            Some(Content::Memory(old)) => bytes.copy_from_slice(old),
            Some(Content::Spilled(at)) => {
                let file = changes.spill.as_ref().ok_or_else(Error::spill_lost)?;
                file.read_exact_at(&mut bytes, *at).map_err(Error::Spill)?;
            }
            None => {
                let source = changes.copies.source(block.0);
                let source = source.map_or(Ok(offset), |source| self.offset(Pblk(source)))?;
                self.base.read_at(source, &mut bytes)?;
            }
        }
        let before = bytes.clone();
        let result = change(&mut bytes);
        if bytes != before {
            changes.put(block, bytes, cause)?;
            self.count.store(changes.count(), Ordering::Release);
        }
        Ok(result)
    }

    /// Replaces a block.
    ///
    /// # Errors
    /// As [`Overlay::read_at`].
    pub fn replace(&self, block: Pblk, cause: Cause, content: &[u8]) -> Result<(), Error> {
        self.update(block, cause, |bytes| bytes.copy_from_slice(content))
    }

    /// Replaces a block for several reasons. Nothing is kept if it stays as it was.
    ///
    /// # Errors
    /// As [`Overlay::read_at`].
    pub fn replace_for(&self, block: Pblk, causes: &[Cause], content: &[u8]) -> Result<(), Error> {
        let Some((&first, more)) = causes.split_first() else {
            return Ok(());
        };
        self.replace(block, first, content)?;
        if let Some(change) = self.changes.write().blocks.get_mut(&block.0) {
            for cause in more {
                if !change.causes.contains(cause) {
                    change.causes.push(*cause);
                }
            }
        }
        Ok(())
    }

    /// Makes `len` blocks from `to` on what those from `from` on are now. What the device holds is
    /// not read: a copy costs the same, however long it is.
    ///
    /// # Errors
    /// As [`Overlay::read_at`].
    pub fn copy(&self, from: Pblk, to: Pblk, len: u64, cause: Cause) -> Result<(), Error> {
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < len {
            let (from, to) = (from.0.saturating_add(at), to.0.saturating_add(at));
            let last = len - at - 1;
            self.offset(Pblk(from.saturating_add(last)))?;
            self.offset(Pblk(to.saturating_add(last)))?;
            let mut changes = self.changes.write();
            let done = changes.copy(from, to, len - at, cause);
            self.count.store(changes.count(), Ordering::Release);
            drop(changes);
            if done == 0 {
                bytes.resize(self.block_size.len(), 0);
                self.read_block(Pblk(from), &mut bytes)?;
                self.replace(Pblk(to), cause, &bytes)?;
            }
            at += done.max(1);
        }
        Ok(())
    }

    /// Keeps the contents of copies whose originals change, so that the blocks can be written in
    /// any order. The last step of a plan.
    ///
    /// # Errors
    /// As [`Overlay::read_at`].
    pub fn settle(&self) -> Result<(), Error> {
        let mut changes = self.changes.write();
        for run in changes.copies.all() {
            let originals = run.from..run.from + (run.end - run.start);
            let mut at = originals.start;
            while let Some(original) = changes.next(at).filter(|&next| next < originals.end) {
                at = original + 1;
                let block = run.start + (original - run.from);
                if changes.blocks.contains_key(&block) {
                    continue;
                }
                let mut bytes = vec![0; self.block_size.len()];
                self.base
                    .read_at(self.offset(Pblk(original))?, &mut bytes)?;
                changes.put(Pblk(block), bytes, run.cause)?;
            }
        }
        Ok(())
    }

    /// The changed blocks by number, in order, without copies of what the device holds.
    pub fn changed_blocks(&self) -> Vec<u64> {
        self.changes.read().blocks.keys().copied().collect()
    }

    /// The changed blocks in order, one at a time; those that came back to what the device holds
    /// are left out.
    ///
    /// # Errors
    /// Of `each`, and as [`Overlay::read_at`].
    pub fn for_each_change(
        &self,
        mut each: impl FnMut(ChangedBlock) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut from = 0;
        let mut before = vec![0; self.block_size.len()];
        loop {
            let next = {
                let changes = self.changes.read();
                let next = changes.next(from);
                next.map(|block| (block, changes.causes(block)))
            };
            let Some((block, causes)) = next else {
                return Ok(());
            };
            let mut content = vec![0; self.block_size.len()];
            self.read_block(Pblk(block), &mut content)?;
            self.base.read_at(self.offset(Pblk(block))?, &mut before)?;
            if content != before {
                each(ChangedBlock {
                    block: Pblk(block),
                    content,
                    causes,
                })?;
            }
            from = block + 1;
        }
    }

    fn offset(&self, block: Pblk) -> Result<u64, Error> {
        let offset = self.block_size.byte_offset(block).unwrap_or(u64::MAX);
        DeviceError::check_range(offset, self.block_size.bytes().into(), self.base.len())?;
        Ok(offset)
    }
}

/// For readers that take any device. It cannot be written.
impl BlockDevice for Overlay {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        Self::read_at(self, offset, buf).map_err(|error| match error {
            Error::Device(error) => error,
            other => DeviceError::io("read", offset, io::Error::other(other)),
        })
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }
}

impl Changes {
    /// How many blocks are changed, at most.
    fn count(&self) -> usize {
        let copied = usize::try_from(self.copies.blocks()).unwrap_or(usize::MAX);
        self.blocks.len().saturating_add(copied)
    }

    /// The first changed block from `from` on.
    fn next(&self, from: u64) -> Option<u64> {
        let changed = self.blocks.range(from..).next().map(|(&block, _)| block);
        let copied = self.copies.next(from);
        changed.into_iter().chain(copied).min()
    }

    fn causes(&self, block: u64) -> Vec<Cause> {
        match self.blocks.get(&block) {
            Some(change) => change.causes.clone(),
            None => self.copies.cause(block).into_iter().collect(),
        }
    }

    /// Makes at most `len` blocks copies of what the device holds; returns how many. 0 if the first
    /// one's contents are not those of the device, or there are others already.
    fn copy(&mut self, from: u64, to: u64, len: u64, cause: Cause) -> u64 {
        let until = |next: Option<u64>, at: u64| next.map_or(len, |next| next.saturating_sub(at));
        let changed = |at: u64| self.blocks.range(at..).next().map(|(&block, _)| block);
        let (source, same) = self.copies.resolve(from, len);
        let len = len
            .min(until(changed(from), from))
            .min(until(self.next(to), to))
            .min(same);
        if len > 0 {
            self.copies.put(to..to + len, source, cause);
        }
        len
    }

    fn put(&mut self, block: Pblk, bytes: Vec<u8>, cause: Cause) -> Result<(), Error> {
        let len = len64(bytes.len());
        let old = self.blocks.remove(&block.0);
        let (mut causes, place) = match old {
            Some(Change { content, causes }) => (causes, Some(content)),
            None => (self.copies.cause(block.0).into_iter().collect(), None),
        };
        if !causes.contains(&cause) {
            causes.push(cause);
        }
        let content = match place {
            Some(Content::Spilled(at)) => self.write_spilled(at, &bytes)?,
            Some(Content::Memory(_)) => Content::Memory(bytes.into()),
            None if self.in_memory.saturating_add(len) > self.memory_max => {
                let at = self.spilled;
                self.spilled = at.saturating_add(len);
                self.write_spilled(at, &bytes)?
            }
            None => {
                self.in_memory = self.in_memory.saturating_add(len);
                Content::Memory(bytes.into())
            }
        };
        self.blocks.insert(block.0, Change { content, causes });
        Ok(())
    }

    fn write_spilled(&mut self, at: u64, bytes: &[u8]) -> Result<Content, Error> {
        let file = match &mut self.spill {
            Some(file) => file,
            none => none.insert(tempfile::tempfile().map_err(Error::Spill)?),
        };
        file.write_all_at(bytes, at).map_err(Error::Spill)?;
        Ok(Content::Spilled(at))
    }
}

/// A distance within a buffer.
fn index64(distance: u64) -> usize {
    index(u32::try_from(distance).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use uext4_blockdev::MemoryDevice;
    use uext4_testkit::sim::{Fault, Op, SimDevice, SimOptions};

    use super::*;

    const SIZE: BlockSize = BlockSize::MIN;

    fn overlay(memory_max: u64) -> Overlay {
        let bytes = (0..8 * 1024_u32).map(|i| (i / 1024) as u8).collect();
        let base: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes));
        Overlay::new(base, SIZE, memory_max)
    }

    #[test]
    fn reads_show_changes_and_the_device_stays_as_it_was() {
        for memory_max in [0, 1024, u64::MAX] {
            let overlay = overlay(memory_max);
            for block in [2, 5, 2] {
                let change = |bytes: &mut [u8]| bytes[1000] = 0xEE;
                overlay
                    .update(Pblk(block), Cause(block as u32), change)
                    .unwrap();
            }
            let mut all = vec![0; 8 * 1024 - 10];
            overlay.read_at(5, &mut all).unwrap();
            let changed: Vec<_> = (0..all.len()).filter(|&i| all[i] == 0xEE).collect();
            assert_eq!(changed, [2 * 1024 + 995, 5 * 1024 + 995]);
            let mut blocks = Vec::new();
            let list = |change: ChangedBlock| {
                blocks.push((change.block.0, change.causes));
                Ok(())
            };
            overlay.for_each_change(list).unwrap();
            assert_eq!(blocks, [(2, vec![Cause(2)]), (5, vec![Cause(5)])]);
            let mut base = vec![0; 1024];
            overlay.base().read_at(2 * 1024, &mut base).unwrap();
            assert_eq!(base[1000], 2);
        }
    }

    #[test]
    fn a_changed_block_is_read_where_the_device_fails() {
        let whole = MemoryDevice::from_bytes(vec![7; 8 * 1024]);
        let device = Arc::new(SimDevice::new(&whole, SimOptions::default()));
        let overlay = Overlay::new(device.clone(), SIZE, u64::MAX);
        let change = |bytes: &mut [u8]| bytes.fill(9);
        overlay.update(Pblk(3), Cause(0), change).unwrap();
        let fault = Fault::new(Op::Read).within(3 * 1024..4 * 1024);
        device.inject(fault.times(u64::MAX));
        assert_eq!(firsts(&overlay), [7, 7, 7, 9, 7, 7, 7, 7]);
        let fault = Fault::new(Op::Read).within(5 * 1024..5 * 1024 + 1);
        device.inject(fault.times(u64::MAX));
        let mut all = vec![0; 8 * 1024];
        assert!(overlay.read_at(0, &mut all).is_err());
        // Where nothing is changed, a read that fails is not repeated.
        device.reset_stats();
        assert!(overlay.read_at(4 * 1024, &mut all[..4 * 1024]).is_err());
        assert_eq!(device.stats().reads, 1);
    }

    #[test]
    fn a_block_that_came_back_is_no_change() {
        let overlay = overlay(u64::MAX);
        overlay
            .update(Pblk(3), Cause(0), |bytes| bytes[0] = 9)
            .unwrap();
        overlay
            .update(Pblk(3), Cause(1), |bytes| bytes[0] = 3)
            .unwrap();
        let mut count = 0;
        overlay
            .for_each_change(|_| {
                count += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(count, 0);
    }

    /// The first byte of each block.
    fn firsts(overlay: &Overlay) -> Vec<u8> {
        let mut all = vec![0; 8 * 1024];
        overlay.read_at(0, &mut all).unwrap();
        all.chunks(1024).map(|block| block[1]).collect()
    }

    #[test]
    fn copies_read_as_the_blocks_they_were_made_of() {
        let overlay = overlay(u64::MAX);
        overlay.copy(Pblk(1), Pblk(4), 2, Cause(7)).unwrap();
        assert_eq!(firsts(&overlay), [0, 1, 2, 3, 1, 2, 6, 7]);
        // A copy of a copy, and of a block that has changed.
        let change = |bytes: &mut [u8]| bytes.fill(9);
        overlay.update(Pblk(3), Cause(8), change).unwrap();
        overlay.copy(Pblk(3), Pblk(6), 2, Cause(9)).unwrap();
        assert_eq!(firsts(&overlay), [0, 1, 2, 9, 1, 2, 9, 1]);
        // A copy that changes, and one that is replaced.
        overlay.update(Pblk(4), Cause(10), change).unwrap();
        overlay.copy(Pblk(0), Pblk(5), 1, Cause(11)).unwrap();
        assert_eq!(firsts(&overlay), [0, 1, 2, 9, 9, 0, 9, 1]);
        let mut causes = Vec::new();
        let list = |change: ChangedBlock| {
            assert_eq!(change.content[1], firsts(&overlay)[change.block.0 as usize]);
            causes.push((change.block.0, change.causes.first().map(|cause| cause.0)));
            Ok(())
        };
        overlay.for_each_change(list).unwrap();
        let expected = [(3, 8), (4, 7), (5, 7), (6, 9), (7, 9)];
        assert_eq!(causes, expected.map(|(block, cause)| (block, Some(cause))));
    }

    #[test]
    fn copies_of_what_changes_keep_their_contents() {
        let overlay = overlay(u64::MAX);
        overlay.copy(Pblk(1), Pblk(4), 3, Cause(0)).unwrap();
        let change = |bytes: &mut [u8]| bytes.fill(9);
        overlay.update(Pblk(2), Cause(1), change).unwrap();
        let before = firsts(&overlay);
        assert_eq!(overlay.changes.read().blocks.len(), 1);
        overlay.settle().unwrap();
        let kept: Vec<_> = overlay.changes.read().blocks.keys().copied().collect();
        assert_eq!(kept, [2, 5]);
        assert_eq!(firsts(&overlay), before);
    }

    #[test]
    fn a_long_copy_takes_no_memory() {
        let base: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 40));
        let overlay = Overlay::new(base, SIZE, 0);
        let half = 1 << 29;
        overlay.copy(Pblk(0), Pblk(half), half, Cause(0)).unwrap();
        assert!(overlay.changes.read().blocks.is_empty());
        assert!(overlay.changes.read().spill.is_none());
        assert!(
            overlay
                .copy(Pblk(1), Pblk(half), half + 1, Cause(0))
                .is_err()
        );
    }

    #[test]
    fn a_block_past_the_end_is_refused() {
        let overlay = overlay(u64::MAX);
        assert!(overlay.update(Pblk(8), Cause(0), |_| ()).is_err());
        assert!(overlay.update(Pblk(u64::MAX), Cause(0), |_| ()).is_err());
    }
}
