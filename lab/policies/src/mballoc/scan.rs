//! How vanilla and mainline look through one group: the best of the first so many runs.
//!
//! A run is measured as chunks report, up to the first chunk that makes it long enough. The first
//! that has exactly the length wanted is taken; else the shortest that is long enough of those
//! met before the group ends or `mb_min_to_scan` are exceeded, else the longest met before
//! `mb_max_to_scan` are, whatever group it is in. Beyond the kernel's rule, a run shorter than
//! the least that is of use ends no search: then more are measured, all there are if it must be.

use uext4_mballoc::{Buddy, Found, Piece, Query};

use super::kernel::Tunables;

/// What is looked at in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The first chunk of the lowest order from this one up.
    Order(u32),
    /// Starts of stripes of so many blocks, the first at this offset; then all runs.
    Stripes { stripe: u32, first: u32 },
    /// All runs.
    Runs,
}

/// A search through groups.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) want: u32,
    min: u32,
    max_to_scan: u32,
    min_to_scan: u32,
    /// Runs shorter than wanted are passed by and not counted.
    pub(super) skip_short: bool,
    /// `EXT4_MB_HINT_FIRST`: the first run that will do is taken.
    pub(super) first: bool,
    /// Runs measured so far.
    pub(super) found: u32,
    best: Option<Found>,
    /// Enough was seen: the best is to be taken.
    pub(super) enough: bool,
}

impl Scan {
    pub(super) fn new(query: &Query, tunables: &Tunables) -> Self {
        Self {
            want: query.want,
            min: query.min,
            max_to_scan: tunables.max_to_scan,
            min_to_scan: tunables.min_to_scan,
            skip_short: false,
            first: false,
            found: 0,
            best: None,
            enough: false,
        }
    }

    /// The best run so far, if it will do; afterwards the search starts afresh, and takes the
    /// first.
    pub(super) fn give_up(&mut self) -> Option<Found> {
        (self.first, self.enough, self.found) = (true, false, 0);
        self.best.take().filter(|best| best.piece.len >= self.min)
    }

    /// Looks through a group, under its lock, and answers with what it took.
    pub(super) fn group(&mut self, look: Look, buddy: &mut Buddy, group: u32) -> Option<Piece> {
        match look {
            Look::Order(order) => {
                let chunk = buddy.chunk_of_order(order)?;
                self.found += 1;
                return Some(self.take(buddy, chunk));
            }
            Look::Stripes { stripe, first } => {
                if let Some(piece) = self.stripe(buddy, stripe, first) {
                    return Some(piece);
                }
            }
            Look::Runs => {}
        }
        let mut at = buddy.next_free(0);
        while at < buddy.blocks() && !self.enough {
            let len = if self.skip_short {
                buddy.run_at(at, self.want)
            } else {
                self.want
            };
            if len < self.want {
                at = buddy.next_free(at + len);
                continue;
            }
            let piece = buddy.extent(at, self.want);
            if let Some(taken) = self.measure(buddy, group, piece) {
                return Some(taken);
            }
            at = buddy.next_free(at + piece.len);
        }
        self.settle(buddy, group, true)
    }

    fn stripe(&mut self, buddy: &mut Buddy, stripe: u32, first: u32) -> Option<Piece> {
        let starts = (first..buddy.blocks()).step_by(stripe.max(1) as usize);
        let mut free = starts.filter(|&at| buddy.run_at(at, 1) > 0);
        let piece = free.find_map(|at| {
            let piece = buddy.extent(at, stripe);
            (piece.len >= stripe.max(self.min)).then_some(piece)
        })?;
        self.found += 1;
        Some(self.take(buddy, piece))
    }

    /// A run was met.
    fn measure(&mut self, buddy: &mut Buddy, group: u32, piece: Piece) -> Option<Piece> {
        self.found += 1;
        if piece.len == self.want || self.first && piece.len >= self.min {
            return Some(self.take(buddy, piece));
        }
        let better = match self.best {
            None => true,
            Some(best) if best.piece.len < self.want => piece.len > best.piece.len,
            Some(best) => piece.len > self.want && piece.len < best.piece.len,
        };
        if better {
            self.best = Some(Found { group, piece });
        }
        self.settle(buddy, group, false)
    }

    /// Takes the best run if enough were seen.
    fn settle(&mut self, buddy: &mut Buddy, group: u32, group_ends: bool) -> Option<Piece> {
        let Found {
            group: at,
            piece: best,
        } = self.best?;
        if self.found > self.max_to_scan && !self.first && best.len >= self.min {
            self.enough = true;
        } else if best.len >= self.want
            && at == group
            && (group_ends || self.found > self.min_to_scan)
        {
            return Some(self.take(buddy, best));
        }
        None
    }

    /// Takes the best run of an earlier look, as much of it as is left; `None` if that will not do.
    pub(super) fn retake(&self, buddy: &mut Buddy, best: Piece) -> Option<Piece> {
        if buddy.run_at(best.start, 1) == 0 {
            return None;
        }
        let piece = buddy.extent(best.start, best.len);
        (piece.len >= self.min).then(|| self.take(buddy, piece))
    }

    fn take(&self, buddy: &mut Buddy, piece: Piece) -> Piece {
        let len = piece.len.min(self.want);
        buddy.take(piece.start, len);
        Piece { len, ..piece }
    }
}
