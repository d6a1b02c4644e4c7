//! Free runs shown to the device (`FITRIM`), piece by piece.

use std::ops::Range;

use uext4_ondisk::Pblk;

use crate::allocator::Allocator;
use crate::groups::{Answer, Visit};
use crate::runs::Piece;
use crate::{Error, GroupBitmaps, Run, trace};

/// Blocks taken out of use at once.
const PIECE_MAX: u32 = 4096;

impl Allocator {
    /// Calls `f` for every free run of at least `min_len` blocks that lies in `range`, group by
    /// group and in pieces of at most 4096 blocks. While `f` has a piece no other caller gets it,
    /// and no lock is held; afterwards it is free again. Groups marked bad are passed by. Answers
    /// with the blocks shown.
    ///
    /// # Errors
    /// What `f` answers, and [`Error::Bitmaps`]; what was shown before is counted.
    pub fn trim<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        range: Range<Pblk>,
        min_len: u32,
        mut f: impl FnMut(Run) -> Result<(), B::Error>,
    ) -> Answer<u64, B> {
        let mut trimmed = 0;
        for group in 0..self.groups().count() {
            let start = self.groups().group_start(group);
            let blocks = u64::from(self.groups().blocks_in_group(group));
            let within = |block: Pblk| block.0.clamp(start, start + blocks) - start;
            let part = within(range.start) as u32..within(range.end) as u32;
            let free = self.groups().state(group).free;
            if free < min_len.max(1) || part.is_empty() {
                continue;
            }
            trace::trim_all_free(self.groups(), group, part.start, part.end - part.start);
            trimmed += self.trim_group(bitmaps, group, part, min_len.max(1), &mut f)?;
        }
        Ok(trimmed)
    }

    fn trim_group<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        group: u32,
        part: Range<u32>,
        min_len: u32,
        f: &mut impl FnMut(Run) -> Result<(), B::Error>,
    ) -> Answer<u64, B> {
        let counters = self.counters();
        let (mut at, mut trimmed) = (part.start, 0);
        // Where the run ends of which a piece was shown: the rest may be shorter.
        let mut run_end = at;
        while at < part.end {
            // A request that finds nothing waits for the piece to come back, and no piece is
            // taken meanwhile.
            let _flight = self.preallocations().start_when_eased();
            let io = self.space().io(bitmaps);
            let visit = self.groups().visit_counted(io, group, 0, |buddy| {
                let left = buddy.run_at(at, run_end.saturating_sub(at));
                let mut piece = if left > 0 {
                    Piece {
                        start: at,
                        len: left,
                    }
                } else {
                    buddy.next_run(at, part.end - at, min_len)?
                };
                piece.len = piece.len.min(part.end.saturating_sub(piece.start));
                if left == 0 && piece.len < min_len {
                    return None;
                }
                let end = piece.start + piece.len;
                piece.len = piece.len.min(PIECE_MAX);
                buddy.take(piece.start, piece.len);
                Some((piece, end))
            });
            // A group whose bitmap cannot be read is passed by; the rest is trimmed.
            let Ok(Visit::Done((piece, end))) = visit else {
                break;
            };
            let run = Run {
                start: Pblk(self.groups().group_start(group) + u64::from(piece.start)),
                len: piece.len,
            };
            trace::trim_extent(self.groups(), group, piece.start, piece.len);
            let shown = f(run);
            self.space().release(run);
            shown.map_err(Error::Bitmaps)?;
            trimmed += u64::from(piece.len);
            counters.add(&counters.trimmed, piece.len.into());
            (at, run_end) = (piece.start + piece.len, end);
        }
        Ok(trimmed)
    }
}
