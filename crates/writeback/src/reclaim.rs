//! Clean folios are given up for new ones by a clock that goes round the files, and through each
//! file from its start to its end. A folio used since the hand came by last gets a second chance.

use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;

use crate::MappingError;
use crate::file::File;
use crate::pages::Pages;
use crate::shared::Shared;
use crate::stats::add;
use crate::trace::Reason;

/// Folios looked at before the file's lock is let go.
const STEP: usize = 512;
/// Files that are gone and may stand under the clock, beside an eighth of all.
const DEAD_MIN: usize = 64;
/// Rounds of evicting and writing before memory may grow past its bound.
const ROUNDS: usize = 4;

/// The files with folios, the one under the hand first.
pub(crate) type Files<E> = VecDeque<Weak<File<E>>>;

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
            self.registered = false;
            (found, Hand::Nothing)
        } else if stop.is_some() {
            (found, Hand::Within)
        } else {
            (found, Hand::AtEnd)
        }
    }
}

impl<E: MappingError> Shared<E> {
    /// Puts a file under the clock. Those that are gone leave it when they are an eighth of it.
    pub(crate) fn register(&self, file: Weak<File<E>>) {
        let mut files = self.reclaim.lock();
        files.push_back(file);
        if self.dead.load(Relaxed) > DEAD_MIN + files.len() / 8 {
            self.dead.store(0, Relaxed);
            files.retain(|file| file.strong_count() > 0);
        }
    }

    /// Evicts about `goal` bytes of clean folios; gives up after two rounds of the clock.
    fn shrink(&self, files: &mut Files<E>, goal: u64) -> u64 {
        let mut freed = 0;
        let mut turns = files.len() * 2;
        while freed < goal && turns > 0 {
            let Some(weak) = files.pop_front() else {
                break;
            };
            let Some(file) = weak.upgrade() else {
                turns -= 1;
                // It may have been counted before the others were last swept out.
                let one_less = |dead: usize| dead.checked_sub(1);
                _ = self.dead.fetch_update(Relaxed, Relaxed, one_less);
                continue;
            };
            let (bytes, hand) = file.state.write().shrink(goal - freed);
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
        let freed = self.shrink(&mut self.reclaim.lock(), goal);
        self.pool.trim(0);
        freed
    }

    /// Makes room for `need` more bytes. Where all is dirty the caller writes. It never fails: past
    /// the bound with a device that does not take anything, memory grows by what is asked for, and
    /// [`Shared::admit`] tells the writers.
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
                self.reclaim.try_lock()
            } else {
                Some(self.reclaim.lock())
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
                self.trace_queue(Reason::Vmscan);
            }
            if self.flush_any(self.dirty.next_ticket()).is_none() {
                // Others are writing whatever there is.
                std::thread::yield_now();
            }
        }
    }

    /// Bytes that reclaim could evict, about.
    pub(crate) fn reclaimable(&self) -> u64 {
        let resident = self.pool.resident();
        resident.saturating_sub(self.counters.unwritten())
    }
}
