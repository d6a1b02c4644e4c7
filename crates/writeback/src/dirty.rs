//! Dirty blocks of one file: taken for writing, given back when that failed.

use std::ops::Range;
use std::sync::Arc;

use crate::pages::Pages;
use crate::pool::Buffer;

/// Dirty blocks of one folio that follow each other, with the buffer as it was when they were
/// taken.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Where the folio starts in the file.
    folio: u64,
    /// The blocks, relative to the folio.
    blocks: Range<u32>,
    /// The bytes, relative to the folio.
    bytes: Range<usize>,
    buffer: Arc<Buffer>,
}

impl Piece {
    /// Where the bytes belong in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.folio + self.bytes.start as u64
    }

    /// The first byte past them.
    pub(crate) fn end(&self) -> u64 {
        self.folio + self.bytes.end as u64
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// What to write. Blocks that were dirty have all their bytes, so nothing is ever cut off.
    pub(crate) fn data(&self) -> &[u8] {
        let bytes = self.buffer.bytes().get(self.bytes.clone());
        bytes.unwrap_or_default()
    }
}

impl Pages {
    /// The end of the last dirty block within the range; nothing if there is none.
    pub(crate) fn dirty_end(&self, range: &Range<u64>) -> Option<u64> {
        if self.dirty == 0 || range.start >= range.end {
            return None;
        }
        let bits = self.shape.block_shift;
        let chunk = self.chunk(range.start);
        let last = self.dirty_folios.range(chunk..range.end).next_back()?;
        let end = last + (u64::from(self.folios.get(last)?.blocks(bits)) << bits);
        Some(end.min(self.shape.ceil(range.end)))
    }

    /// Takes dirty blocks from `from` to `end` for writing, about `max` bytes at most: they are
    /// clean from now on, and under writeback until [`Pages::end_writeback`]. Their order is the
    /// file's.
    pub(crate) fn take_dirty(&mut self, from: u64, end: u64, max: u64) -> Vec<Piece> {
        let bits = self.shape.block_shift;
        let (mut pieces, mut cleaned, mut taken) = (Vec::new(), Vec::new(), 0);
        if from >= end {
            return pieces;
        }
        let from = self.shape.floor(from);
        for start in self.dirty_folios.range(self.chunk(from)..end) {
            if taken >= max {
                break;
            }
            let Some(folio) = self.folios.get_mut(start) else {
                continue;
            };
            let size = folio.size();
            let low = (from.saturating_sub(*start).min(size) >> bits) as u32;
            let high = ((end - start).min(size).div_ceil(1 << bits)) as u32;
            let mut at = low;
            while let Some(run) = folio.dirty.run(&(at..high)) {
                at = run.end;
                folio.dirty.remove(&run);
                folio.writeback = true;
                let bytes = (run.start as usize) << bits..(run.end as usize) << bits;
                taken += bytes.len() as u64;
                pieces.push(Piece {
                    folio: *start,
                    blocks: run,
                    bytes,
                    buffer: folio.snapshot(),
                });
            }
            if folio.dirty.is_empty() {
                cleaned.push(*start);
            }
        }
        for start in cleaned {
            self.dirty_folios.remove(&start);
        }
        self.dirty -= taken;
        let runs = pieces.chunk_by(|a, b| a.end() == b.offset());
        self.writing.extend(runs.filter_map(|run| {
            let (first, last) = (run.first()?, run.last()?);
            Some(first.offset()..last.end())
        }));
        pieces
    }

    /// Ends the writeback of pieces, all that there are of this file, written or given back.
    pub(crate) fn end_writeback(&mut self, pieces: &[Piece]) {
        self.writing.clear();
        for piece in pieces {
            if let Some(folio) = self.folios.get_mut(&piece.folio) {
                folio.writeback = false;
            }
        }
    }

    /// Marks pieces dirty again that could not be written. Their folios are still there, for they
    /// are under writeback.
    pub(crate) fn give_back(&mut self, pieces: &[Piece]) {
        let bits = self.shape.block_shift;
        for piece in pieces {
            if let Some(folio) = self.folios.get_mut(&piece.folio) {
                let was_clean = folio.dirty.is_empty();
                self.dirty += u64::from(folio.dirty.insert(&piece.blocks)) << bits;
                if was_clean {
                    self.dirty_folios.insert(piece.folio);
                }
            }
        }
    }

    /// Drops the blocks of pieces that will never be written, but for those that were written to
    /// since.
    pub(crate) fn give_up(&mut self, pieces: &[Piece]) {
        let bits = self.shape.block_shift;
        for piece in pieces {
            let mut at = piece.blocks.start;
            while let Some(folio) = self.folios.get(&piece.folio) {
                let clean = folio.dirty.gap(&(at..piece.blocks.end));
                let Some(clean) = clean else {
                    break;
                };
                at = clean.end;
                let start = piece.folio + (u64::from(clean.start) << bits);
                let end = piece.folio + (u64::from(clean.end) << bits);
                self.drop_blocks(start, end);
            }
        }
    }
}
