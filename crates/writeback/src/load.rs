//! Which reads bring what is missing into the cache: plain data under the file's lock.

use crate::folio::Folio;
use crate::pages::Pages;
use crate::pool::Buffer;

/// What to do about a block that is wanted.
#[derive(Debug)]
pub(crate) enum Plan {
    /// It is there by now.
    Present,
    /// Another thread reads it: wait until more loads ended than these.
    Wait(u64),
    /// Read these pieces, each of at most one folio, adjacent and in order; then end the load.
    Load {
        /// For [`Loads::end`](crate::loads::Loads::end).
        id: u64,
        /// Offsets and lengths, whole blocks.
        pieces: Vec<(u64, usize)>,
    },
}

impl Pages {
    /// Plans the reading of what is missing at `offset`, where `want` bytes are wanted at once and
    /// the file has `size` bytes. Only what is missing without a gap is read.
    pub(crate) fn plan_load(&mut self, offset: u64, want: u64, size: u64) -> Plan {
        let shape = self.shape;
        let start = shape.floor(offset);
        if self.is_uptodate(start) {
            return Plan::Present;
        }
        if self.loads.covers(start) {
            return Plan::Wait(self.loads.ended());
        }
        let limit = shape.ceil(size).max(start.saturating_add(shape.block()));
        let wanted = shape.ceil(offset.saturating_add(want)).min(limit) - start;
        let behind = start >= 4 * shape.block()
            && (1..=4).all(|back| self.is_uptodate(start - back * shape.block()));
        let window = self.readahead.window(start, wanted, behind);
        let mut limit = limit.min(start.saturating_add(window));
        if let Some(other) = self.loads.next_start(start) {
            limit = limit.min(other);
        }
        let pieces = self.missing(start, limit);
        let end = pieces.last().map_or(start, |(at, len)| at + *len as u64);
        self.readahead.ended(end);
        let id = self.loads.begin(start..end);
        Plan::Load { id, pieces }
    }

    /// Plans the reading of one block that is to be changed in part.
    pub(crate) fn plan_block(&mut self, block: u64) -> Plan {
        if self.is_uptodate(block) {
            return Plan::Present;
        }
        if self.loads.covers(block) {
            return Plan::Wait(self.loads.ended());
        }
        let len = self.shape.block();
        Plan::Load {
            id: self.loads.begin(block..block + len),
            pieces: vec![(block, len as usize)],
        }
    }

    /// Cuts what is missing from `start` on into pieces: those where no folio is become folios, so
    /// they are aligned; the others lie within a folio.
    fn missing(&self, start: u64, limit: u64) -> Vec<(u64, usize)> {
        let bits = self.shape.block_shift;
        let mut pieces = Vec::new();
        let mut at = start;
        let first = self.find(start).map_or(start, |(first, _)| first);
        for (offset, folio) in self.folios.range(first..limit.max(first)) {
            self.cut(at, (*offset).min(limit), &mut pieces);
            at = at.max(*offset);
            let from = ((at - offset) >> bits) as u32;
            let blocks = folio.blocks(bits);
            let gap = folio.uptodate.gap(&(from..blocks));
            let Some(gap) = gap.filter(|gap| gap.start == from) else {
                return pieces;
            };
            let end = (offset + (u64::from(gap.end) << bits)).min(limit);
            if at < end {
                pieces.push((at, (end - at) as usize));
                at = end;
            }
            if gap.end < blocks {
                return pieces;
            }
        }
        self.cut(at, limit, &mut pieces);
        pieces
    }

    fn cut(&self, mut at: u64, end: u64, pieces: &mut Vec<(u64, usize)>) {
        while at < end {
            let shift = self.shape.folio_shift(at, end - at);
            pieces.push((at, 1 << shift));
            at += 1 << shift;
        }
    }

    /// Takes in what was read of one piece; blocks that a thread filled meanwhile stay.
    pub(crate) fn install(&mut self, start: u64, buffer: Buffer) {
        let shape = self.shape;
        let len = buffer.bytes().len() as u64;
        let end = start + len;
        let is_free = self.find(start).is_none() && self.folios.range(start..end).next().is_none();
        if is_free && len.is_power_of_two() && start.is_multiple_of(len) {
            let mut folio = Folio::new(buffer, len.ilog2());
            folio.uptodate.insert(&(0..folio.blocks(shape.block_shift)));
            self.insert(start, folio);
            return;
        }
        for (index, bytes) in buffer.bytes().chunks(shape.block() as usize).enumerate() {
            let at = start + index as u64 * shape.block();
            if self.find(at).is_none() {
                let memory = self.pool.take(bytes.len());
                self.insert(at, Folio::new(memory, shape.block_shift));
            }
            if let Some((offset, folio)) = self.find_mut(at) {
                let block = ((at - offset) >> shape.block_shift) as u32;
                if !folio.uptodate.contains(block) {
                    folio.fill(block, bytes, shape.block_shift);
                }
            }
        }
    }
}
