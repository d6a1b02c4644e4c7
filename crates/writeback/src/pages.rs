//! What the cache knows of one file: its folios by offset. Plain data under the file's lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::folio::Folio;
use crate::loads::Loads;
use crate::pool::{Buffer, Pool};
use crate::readahead::Readahead;

/// Bytes of bookkeeping a folio costs, about: itself, its key and the head of its buffer.
const FOLIO_OVERHEAD: u64 = (size_of::<Folio>() + size_of::<Buffer>() + 32) as u64;
/// Bytes a file's first folio costs beyond that: the rest of a node of the map.
const FILE_OVERHEAD: u64 = 10 * (size_of::<Folio>() as u64 + 8);

/// Most bytes copied under the file's lock at once.
pub(crate) const COPY_MAX: usize = 1 << 20;

/// Sizes that hold for a whole cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Log2 of a block, in bytes.
    pub(crate) block_shift: u32,
    /// Log2 of the largest folio, in bytes.
    pub(crate) folio_shift_max: u32,
    /// Bytes read at once at most.
    pub(crate) window_max: u64,
}

impl Shape {
    pub(crate) fn block(self) -> u64 {
        1 << self.block_shift
    }

    /// Down to the start of a block.
    pub(crate) fn floor(self, offset: u64) -> u64 {
        offset & !(self.block() - 1)
    }

    /// Up to the start of a block; the last block of all stays as it is.
    pub(crate) fn ceil(self, offset: u64) -> u64 {
        self.floor(offset.saturating_add(self.block() - 1))
    }

    /// Log2 of the largest folio that starts at `start` and has at most `len` bytes, at least one
    /// block.
    pub(crate) fn folio_shift(self, start: u64, len: u64) -> u32 {
        let aligned = start.trailing_zeros();
        let fits = len.max(1).ilog2();
        aligned
            .min(fits)
            .clamp(self.block_shift, self.folio_shift_max)
    }
}

/// The pages of one file. Offsets are bytes in the file; none is above [`crate::OFFSET_MAX`], so
/// that the end of a folio never overflows.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) shape: Shape,
    pub(crate) pool: Arc<Pool>,
    /// By offset; they never overlap, and each is aligned to its size.
    pub(crate) folios: BTreeMap<u64, Folio>,
    /// Offsets of the folios with dirty blocks.
    pub(crate) dirty_folios: BTreeSet<u64>,
    /// Bytes of dirty blocks.
    pub(crate) dirty: u64,
    /// What is being written, in order: runs without a gap between their blocks.
    pub(crate) writing: Vec<Range<u64>>,
    /// Bytes of all folios.
    pub(crate) resident: u64,
    pub(crate) loads: Loads,
    pub(crate) readahead: Readahead,
    /// Where the last write ended, and how many bytes were written up to there without a gap.
    append: (u64, u64),
    /// Where the reclaim clock stopped.
    pub(crate) hand: u64,
}

/// How far a write came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes taken in.
    pub(crate) len: usize,
    /// Where it stopped: the block that must be read before its part can be changed.
    pub(crate) missing: Option<u64>,
}

impl Pages {
    pub(crate) fn new(shape: Shape, pool: Arc<Pool>) -> Self {
        Self {
            shape,
            pool,
            folios: BTreeMap::new(),
            dirty_folios: BTreeSet::new(),
            dirty: 0,
            writing: Vec::new(),
            resident: 0,
            loads: Loads::default(),
            readahead: Readahead::new(shape.window_max),
            append: (0, 0),
            hand: 0,
        }
    }

    /// The folio that covers an offset, and where it starts.
    pub(crate) fn find(&self, offset: u64) -> Option<(u64, &Folio)> {
        let (start, folio) = self.folios.range(..=offset).next_back()?;
        (offset - start < folio.size()).then_some((*start, folio))
    }

    pub(crate) fn find_mut(&mut self, offset: u64) -> Option<(u64, &mut Folio)> {
        let (start, folio) = self.folios.range_mut(..=offset).next_back()?;
        (offset - start < folio.size()).then_some((*start, folio))
    }

    /// True if the block at this offset can be read.
    pub(crate) fn is_uptodate(&self, offset: u64) -> bool {
        self.find(offset).is_some_and(|(start, folio)| {
            let block = (offset - start) >> self.shape.block_shift;
            folio.uptodate.contains(block as u32)
        })
    }

    /// Adds a folio where none is.
    pub(crate) fn insert(&mut self, start: u64, folio: Folio) {
        self.resident += folio.size();
        if self.folios.is_empty() {
            self.pool.charge(FILE_OVERHEAD);
        }
        self.pool.charge(FOLIO_OVERHEAD);
        self.folios.insert(start, folio);
    }

    /// Forgets the memory of `count` folios that were the last if no folio is left.
    fn uncharge(&self, count: u64) {
        self.pool.uncharge(FOLIO_OVERHEAD * count);
        if count > 0 && self.folios.is_empty() {
            self.pool.uncharge(FILE_OVERHEAD);
        }
    }

    /// Copies what is there from `offset` on, up to the first block that is not; returns how much.
    pub(crate) fn copy_out(&self, offset: u64, to: &mut [u8]) -> usize {
        let Some((mut start, mut folio)) = self.find(offset) else {
            return 0;
        };
        let bits = self.shape.block_shift;
        let (mut at, mut done) = ((offset - start) as usize, 0);
        loop {
            let copied = folio.copy_out(at, &mut to[done..], bits);
            done += copied;
            let end = start + folio.size();
            if done == to.len() || offset + (done as u64) < end {
                return done;
            }
            match self.folios.range(end..).next() {
                Some((next, neighbour)) if *next == end => (start, folio, at) = (end, neighbour, 0),
                _ => return done,
            }
        }
    }

    /// Takes bytes in and marks them dirty, up to the first block of which a part is to be changed
    /// and the rest is on the device. Blocks that start at or past `old_size` are not there.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], old_size: u64) -> Written {
        let run = match self.append {
            (end, len) if end == offset => len,
            _ => 0,
        };
        let mut done = 0;
        let mut missing = None;
        while done < data.len() && missing.is_none() {
            let (len, stop) = self.write_some(offset + done as u64, &data[done..], old_size, run);
            done += len;
            missing = stop;
        }
        self.append = (offset + done as u64, run.saturating_add(done as u64));
        Written { len: done, missing }
    }

    /// One step of [`Pages::write`], within one folio: how many bytes it took, and the block that
    /// must be read first if it took none.
    fn write_some(
        &mut self,
        offset: u64,
        data: &[u8],
        old_size: u64,
        run: u64,
    ) -> (usize, Option<u64>) {
        let shape = self.shape;
        let end = offset + data.len() as u64;
        let found = self.folios.range_mut(..=offset).next_back();
        let Some((start, folio)) = found.filter(|(start, folio)| offset - **start < folio.size())
        else {
            let missing = self.make_folio(offset, end, old_size, run);
            return (0, missing);
        };
        let mut end = end.min(start + folio.size());
        let (first, last) = (shape.floor(offset), shape.floor(end));
        let misses = |block: u64| {
            let index = (block - start) >> shape.block_shift;
            block < old_size && !folio.uptodate.contains(index as u32)
        };
        if first < offset && misses(first) {
            return (0, Some(first));
        }
        if last < end && misses(last) {
            end = last;
        }
        if end <= offset {
            return (0, Some(first));
        }
        let len = (end - offset) as usize;
        let was_clean = folio.dirty.is_empty();
        let at = (offset - start) as usize;
        let blocks = folio.write(at, &data[..len], shape.block_shift, &self.pool);
        self.dirty += u64::from(blocks) << shape.block_shift;
        if was_clean {
            self.dirty_folios.insert(*start);
        }
        (len, None)
    }

    /// Makes the folio that a write from `offset` to `end` begins in, where none is; or says which
    /// block must be read instead. It is made as large as what is still to be written, or half of
    /// `run`, the bytes that were appended before: so small appends end up in large folios, and at
    /// most a third of the memory is ahead of the data.
    fn make_folio(&mut self, offset: u64, end: u64, old_size: u64, run: u64) -> Option<u64> {
        let shape = self.shape;
        let first = shape.floor(offset);
        // A last block that must be read gets a folio of its own.
        let last = shape.floor(end);
        let whole = if last < end.min(old_size) { last } else { end };
        if first < offset.min(old_size) || whole <= first {
            return Some(first);
        }
        let room = match self.folios.range(first..).next() {
            Some((next, _)) => next - first,
            None => u64::MAX,
        };
        let wanted = (shape.ceil(whole) - first).max(run / 2).min(room);
        let shift = shape.folio_shift(first, wanted);
        let buffer = self.pool.take(1 << shift);
        self.insert(first, Folio::new(buffer, shift));
        None
    }

    /// Drops all blocks from `start` to `end` (both block-aligned), dirty or not, and makes reads
    /// that are under way there fetch again.
    pub(crate) fn drop_blocks(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.loads.spoil(&(start..end));
        let bits = self.shape.block_shift;
        let first = self.find(start).map_or(start, |(first, _)| first);
        let mut gone = Vec::new();
        for (offset, folio) in self.folios.range_mut(first..end) {
            if start <= *offset && end - offset >= folio.size() {
                gone.push(*offset);
                continue;
            }
            let low = (start.saturating_sub(*offset) >> bits) as u32;
            let high = (end - offset).min(folio.size()) >> bits;
            let range = low..high as u32;
            folio.uptodate.remove(&range);
            self.dirty -= u64::from(folio.dirty.remove(&range)) << bits;
            if folio.dirty.is_empty() {
                self.dirty_folios.remove(offset);
            }
            if folio.uptodate.is_empty() {
                gone.push(*offset);
            }
        }
        for offset in gone {
            self.evict(offset);
        }
    }

    /// Drops one folio, dirty or not; returns its bytes.
    pub(crate) fn evict(&mut self, start: u64) -> u64 {
        let Some(folio) = self.folios.remove(&start) else {
            return 0;
        };
        if !folio.dirty.is_empty() {
            self.dirty_folios.remove(&start);
        }
        self.uncharge(1);
        self.resident -= folio.size();
        self.dirty -= u64::from(folio.dirty.count()) << self.shape.block_shift;
        self.loads.spoil(&(start..start + folio.size()));
        folio.size()
    }

    /// Makes bytes of one block zero, if it is in the cache; with `mark` they become dirty if they
    /// were not zero. False if the block is not in the cache.
    pub(crate) fn zero_part(&mut self, range: Range<u64>, mark: bool) -> bool {
        self.loads.spoil(&range);
        let bits = self.shape.block_shift;
        let Some((start, folio)) = self.find_mut(range.start) else {
            return false;
        };
        let (at, end) = ((range.start - start) as usize, (range.end - start) as usize);
        let block = (at >> bits) as u32;
        if !folio.uptodate.contains(block) {
            return false;
        }
        if folio.zero(at, end, bits) && mark {
            let was_clean = folio.dirty.is_empty();
            let added = u64::from(folio.dirty.insert(&(block..block + 1))) << bits;
            self.dirty += added;
            if was_clean {
                self.dirty_folios.insert(start);
            }
        }
        true
    }

    /// The first dirty bytes at or after `from`, as far as they reach without a gap.
    pub(crate) fn next_dirty(&self, from: u64) -> Option<Range<u64>> {
        let bits = self.shape.block_shift;
        let mut found: Option<Range<u64>> = None;
        'folios: for start in self.dirty_folios.range(self.chunk(from)..) {
            let Some(folio) = self.folios.get(start) else {
                continue;
            };
            let blocks = folio.blocks(bits);
            let first = from.saturating_sub(*start) >> bits;
            let mut at = u32::try_from(first).unwrap_or(blocks).min(blocks);
            while let Some(run) = folio.dirty.run(&(at..blocks)) {
                at = run.end;
                let low = start + (u64::from(run.start) << bits);
                let high = start + (u64::from(run.end) << bits);
                match &mut found {
                    None => found = Some(low..high),
                    Some(found) if found.end == low => found.end = high,
                    Some(_) => break 'folios,
                }
            }
        }
        found.map(|found| found.start.max(from)..found.end)
    }

    /// The same of what is dirty or being written.
    pub(crate) fn next_unwritten(&self, from: u64) -> Option<Range<u64>> {
        let mut found: Option<Range<u64>> = None;
        loop {
            let at = found.as_ref().map_or(from, |found| found.end);
            let dirty = self.next_dirty(at);
            let first = self.writing.partition_point(|range| range.end <= at);
            let writing = self.writing.get(first);
            let writing = writing.map(|range| range.start.max(at)..range.end);
            let next = match (dirty, writing) {
                (Some(a), Some(b)) if a.start <= b.start => a,
                (Some(a), None) => a,
                (_, Some(b)) => b,
                (None, None) => return found,
            };
            match &mut found {
                None => found = Some(next),
                Some(found) if found.end == next.start => found.end = next.end,
                Some(_) => return found,
            }
        }
    }

    /// Where the largest folio starts that could cover an offset.
    pub(crate) fn chunk(&self, offset: u64) -> u64 {
        offset & !((1 << self.shape.folio_shift_max) - 1)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let folios = std::mem::take(&mut self.folios);
        self.uncharge(folios.len() as u64);
    }
}
