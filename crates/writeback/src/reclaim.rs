//! Clean folios are given up for new ones by a clock that goes round the files, and through each
//! file from its start to its end. A folio used since the hand came by last gets a second chance.

use crate::MappingError;
use crate::clock::Files;
use crate::file::{Cache, File};
use crate::pages::Pages;
use crate::stats::add;
use crate::trace::{self, Reason};

/// Folios looked at before the file's lock is let go.
const STEP: usize = 512;
/// Rounds of evicting and writing before memory may grow past its bound.
const ROUNDS: usize = 4;

/// Where the hand stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hand {
    Within,
    AtEnd,
    /// The file has no folio left and leaves the clock.
    Nothing,
}

impl Pages {
    /// Evicts clean folios until `goal` bytes are gone or [`STEP`] folios were looked at.
    fn shrink(&mut self, goal: u64) -> (u64, Hand) {
        let (mut found, mut victims, mut stop) = (0, Vec::new(), None);
        for (seen, (start, folio)) in self.folios.range(self.hand..).enumerate() {
            if seen == STEP || found >= goal {
                stop = Some(*start);
                break;
            }
            let is_bound = !folio.dirty.is_empty() || folio.writeback;
            if !is_bound && !folio.untouch() {
                found += folio.size();
                victims.push(*start);
            }
        }
        self.hand = stop.unwrap_or(0);
        for start in victims {
            self.evict(start);
        }
        if self.folios.is_empty() {
            (found, Hand::Nothing)
        } else if stop.is_some() {
            (found, Hand::Within)
        } else {
            (found, Hand::AtEnd)
        }
    }
}

impl<E: MappingError> Cache<E> {
    /// Evicts about `goal` bytes of clean folios; gives up after two rounds of the clock.
    fn shrink(&self, files: &mut Files<File<E>>, goal: u64) -> u64 {
        let mut freed = 0;
        let mut turns = files.len() * 2;
        while freed < goal && turns > 0 {
            let Some(weak) = files.pop_front() else {
                break;
            };
            let Some(file) = weak.upgrade() else {
                turns -= 1;
                self.reclaim.swept();
                continue;
            };
            let mut state = file.state.write();
            let (bytes, hand) = state.pages.shrink(goal - freed);
            if hand == Hand::Nothing {
                state.registered = false;
            }
            drop(state);
            freed += bytes;
            match hand {
                Hand::Within => files.push_front(weak),
                Hand::AtEnd => {
                    turns -= 1;
                    files.push_back(weak);
                }
                Hand::Nothing => turns -= 1,
            }
        }
        add(&self.counters.reclaimed, freed);
        freed
    }

    /// Evicts about `goal` bytes; for the owner of the memory budget.
    pub(crate) fn scan(&self, goal: u64) -> u64 {
        let freed = self.shrink(&mut self.reclaim.files.lock(), goal);
        self.pool.trim(0);
        freed
    }

    /// Makes room for `need` more bytes. Where all is dirty the caller writes. It never fails: past
    /// the bound with a device that does not take anything, memory grows by what is asked for, and
    /// throttling makes writers wait.
    pub(crate) fn make_room(&self, need: u64) {
        let limit = self.memory_limit();
        self.pool.balance();
        let wanted = |slack: u64| (self.pool.resident() + need).saturating_sub(limit + slack);
        if wanted(0) == 0 {
            return;
        }
        for _ in 0..ROUNDS {
            // A little over the bound one thread at it is enough.
            let files = if wanted(limit / 32) == 0 {
                self.reclaim.files.try_lock()
            } else {
                Some(self.reclaim.files.lock())
            };
            let Some(mut files) = files else {
                return;
            };
            let goal = wanted(0);
            if goal > 0 {
                // A little more, so that it need not be done every time.
                self.shrink(&mut files, goal + limit / 64);
            }
            drop(files);
            if wanted(limit / 32) == 0 {
                return;
            }
            if self.flushers.kick() {
                trace::queue(&self.gate, Reason::Vmscan);
            }
            if self.flush_any(self.dirty.next_seq()).is_none() {
                // Others are writing whatever there is.
                std::thread::yield_now();
            }
        }
    }
}
