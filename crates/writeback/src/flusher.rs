//! Flusher threads.
//!
//! A flusher wakes every `dirty_writeback_centisecs`, or when kicked. It writes the files that were
//! dirty for `dirty_expire_centisecs` or longer; then, while throttling says that too much is
//! dirty, the others. Each file has a turn of a chunk (about half a second's bytes) before the next
//! has its own, so that none starves. Flushers share the shards of the list of dirty files among
//! them, and so the areas of the device; who has nothing left takes whole files from the others. In
//! a shard the oldest are chosen, and written in the order in which they lie.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::dirty_list::{CHOSEN_MAX, Chosen, SHARDS};
use crate::file::{Cache, File};
use crate::flush::Turn;
use crate::limits::Member;
use crate::throttle::PAGE_SIZE;
use crate::trace::{self, Reason};
use crate::{Error, MappingError};

/// What one pass over the dirty files came to.
#[derive(Debug)]
struct Pass<E: MappingError> {
    written: u64,
    /// A turn was too short for some file.
    has_more: bool,
    /// The last.
    error: Option<Error<E>>,
}

impl<E: MappingError> Pass<E> {
    fn add(&mut self, turn: Turn, result: Result<(), Error<E>>) {
        self.written += turn.written;
        self.has_more |= turn.has_more;
        match result {
            Ok(()) => {}
            // What had no owner any more is dropped: that is progress, too.
            Err(Error::Gone) => self.written += 1,
            Err(error) => self.error = Some(error),
        }
    }
}

impl<E: MappingError> Member for Cache<E> {
    fn wake_flushers(&self) {
        self.kick_if_needed();
    }

    fn interval_changed(&self) {
        self.flushers.wake_all();
    }
}

impl<E: MappingError> Cache<E> {
    /// What a flusher thread does.
    fn run_flusher(&self, number: usize) {
        let mut failed = false;
        let mut rest = None;
        while self.flushers.wait(self.interval(), failed) {
            self.gate.bdi.tick(self.gate.now());
            if self.interval().is_some() {
                self.flush_old(number, || self.flushers.are_running());
            }
            failed = self.flush_background(number, &mut rest).is_err();
        }
    }

    /// The shards in the order in which a flusher goes through them: its own, then those of the
    /// others, to take from them what they have not come to.
    fn shards_of(&self, flusher: usize) -> impl Iterator<Item = usize> + use<E> {
        let count = self.flushers.count().max(1);
        let own = flusher % count;
        (0..count).flat_map(move |next| ((own + next) % count..SHARDS).step_by(count))
    }

    /// Gives each file that is dirty since `since` or longer when the call begins a turn, as long
    /// as `goes_on`. Begins with `rest`, the files that an earlier pass chose and did not come to,
    /// and leaves there what this one does not come to: a pass that may write little would else
    /// choose and sort as many files as a long one.
    fn pass<'a>(
        &'a self,
        flusher: usize,
        since: Duration,
        goes_on: impl Fn() -> bool,
        rest: &mut Option<Chosen<'a, File<E>>>,
    ) -> Pass<E> {
        let bound = self.dirty.next_seq();
        let mut pass = Pass {
            written: 0,
            has_more: false,
            error: None,
        };
        if let Some(chosen) = rest.take() {
            *rest = self.give_turns(chosen, &goes_on, &mut pass);
        }
        for shard in self.shards_of(flusher) {
            while rest.is_none() && goes_on() {
                let chosen = self.dirty.choose(shard, since, bound, CHOSEN_MAX);
                if chosen.is_empty() {
                    break;
                }
                *rest = self.give_turns(chosen, &goes_on, &mut pass);
            }
        }
        pass
    }

    /// Gives the chosen files their turns, as long as `goes_on`; returns those that are left.
    fn give_turns<'a>(
        &self,
        mut chosen: Chosen<'a, File<E>>,
        goes_on: impl Fn() -> bool,
        pass: &mut Pass<E>,
    ) -> Option<Chosen<'a, File<E>>> {
        while goes_on() {
            let file = chosen.next()?;
            let (turn, result) = self.turn(&file);
            pass.add(turn, result);
        }
        (!chosen.is_empty()).then_some(chosen)
    }

    /// Lets a file that was claimed have its turn.
    fn turn(&self, file: &File<E>) -> (Turn, Result<(), Error<E>>) {
        let budget = self.turn_max();
        trace::turn_start(&self.gate, file.place, budget);
        let (turn, result) = file.flush_turn(budget);
        file.requeue(turn.has_more);
        trace::turn_end(&self.gate, file.place, budget, turn.written);
        if turn.has_more {
            trace::requeued(file.place);
        }
        (turn, result)
    }

    /// Bytes of a file that are written before the next has its turn.
    fn turn_max(&self) -> u64 {
        let pages = self.gate.bdi.chunk(self.gate.now()).file;
        pages.max(1).saturating_mul(PAGE_SIZE)
    }

    /// Writes some of one file with a sequence number below `bound`, if there is one that no
    /// thread is at; the oldest of its shard.
    pub(crate) fn flush_any(&self, bound: u64) -> Option<Result<u64, Error<E>>> {
        let first = bound as usize;
        let file = (0..SHARDS).find_map(|next| {
            let shard = first.wrapping_add(next);
            self.dirty.choose(shard, Duration::MAX, bound, 1).next()
        })?;
        let (turn, result) = self.turn(&file);
        Some(result.map(|()| turn.written))
    }

    /// Writes what has been dirty for the time of expiry or longer, all of it; as if by the first
    /// flusher. Errors stay with the files.
    pub(crate) fn flush_expired(&self) {
        self.flush_old(0, || true);
    }

    fn flush_old(&self, flusher: usize, goes_on: impl Fn() -> bool) {
        let Some(since) = self.gate.now().checked_sub(self.expire()) else {
            return;
        };
        // No more than there is now, for some files may become dirty all the time.
        let mut left = self.counters.unwritten();
        loop {
            trace::start(&self.gate, Reason::Periodic);
            let pass = self.pass(flusher, since, &goes_on, &mut None);
            trace::written(&self.gate, Reason::Periodic, pass.written);
            left = left.saturating_sub(pass.written);
            if !pass.has_more || pass.written == 0 || left == 0 || !goes_on() {
                return;
            }
        }
    }

    /// Writes until little enough is unwritten, but a turn's bytes at least: a flusher that ends as
    /// soon as the limit is reached is woken again by the next write, and for no more than that.
    ///
    /// Fails if a pass wrote nothing because of errors. The failure is reported to writers only if
    /// no other flusher wrote anything either, nor may yet: they share the files, and the one that
    /// got the bad file is no measure.
    fn flush_background<'a>(
        &'a self,
        flusher: usize,
        rest: &mut Option<Chosen<'a, File<E>>>,
    ) -> Result<(), Error<E>> {
        if !self.is_over_background() {
            return Ok(());
        }
        let (began, least) = (self.counters.written.load(Relaxed), self.turn_max());
        let has_begun = || self.counters.written.load(Relaxed) - began < least;
        let goes_on = || self.flushers.are_running() && (has_begun() || self.is_over_background());
        while goes_on() {
            self.wake_another();
            let before = self.counters.written.load(Relaxed);
            trace::start(&self.gate, Reason::Background);
            let pass = self.pass(flusher, Duration::MAX, goes_on, rest);
            trace::written(&self.gate, Reason::Background, pass.written);
            if pass.written > 0 {
                continue;
            }
            let Some(error) = pass.error else {
                break;
            };
            if self.may_get_on() || self.counters.written.load(Relaxed) != before {
                return Err(error);
            }
            self.flushers.pass_failed(&error);
            self.gate.limits.waiters.wake_all(self.gate.number);
            return Err(error);
        }
        Ok(())
    }

    /// Whether little enough is unwritten, or a file is dirty or being written that did not fail
    /// when it was tried last. A look at all dirty files.
    pub(crate) fn may_get_on(&self) -> bool {
        let files = self.dirty.files();
        let is_good = |file: &Arc<File<E>>| !file.is_failing.load(Relaxed);
        files.iter().any(is_good) || !self.is_over_background()
    }

    /// Wakes one more flusher if there is more to write than one turn brings away, and so much that
    /// writers have to wait. Before that another is woken only by the writes themselves, each time
    /// there is too much again.
    fn wake_another(&self) {
        let is_alone = self.flushers.count() < 2;
        let domain = self.gate.limits.domain();
        let is_behind = domain.unwritten() > domain.freerun();
        if !is_alone && is_behind && self.counters.dirty.load(Relaxed) > self.turn_max() {
            self.flushers.wake_another();
        }
    }

    /// Writes everything that is dirty now; the first error, after trying all.
    pub(crate) fn sync_all(&self) -> Result<(), Error<E>> {
        let mut first = Ok(());
        let before = self.counters.written.load(Relaxed);
        trace::start(&self.gate, Reason::Sync);
        trace::wait(&self.gate, Reason::Sync);
        for file in self.dirty.files() {
            let result = file.flush_range(0..u64::MAX);
            if first.is_ok() {
                first = result.map(drop);
            }
        }
        let after = self.counters.written.load(Relaxed);
        trace::written(&self.gate, Reason::Sync, after - before);
        first
    }
}

/// A flusher thread of its own.
pub(crate) fn spawn<E: MappingError>(
    cache: &Arc<Cache<E>>,
    number: usize,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let cache = Arc::clone(cache);
    std::thread::Builder::new()
        .name(format!("flush-{number}"))
        .spawn(move || cache.run_flusher(number))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use uext4_blockdev::SystemClock;
    use uext4_ondisk::BlockSize;

    use super::*;
    use crate::flush::tests::Nowhere;
    use crate::{Mapping, Options, PageCache, Place};

    #[test]
    fn a_short_pass_goes_on_with_the_files_that_the_last_one_chose() {
        let options = Options::new(BlockSize::MIN);
        let cache = PageCache::new(options, Arc::new(SystemClock)).unwrap();
        let owner: Arc<dyn Mapping<Error = std::io::Error>> = Arc::new(Nowhere);
        let file = |_| cache.file_at(Arc::downgrade(&owner), Place::default());
        let files: Vec<_> = (0..100).map(file).collect();
        for file in &files {
            file.write(0, &[1; 1024], 0).unwrap();
        }
        let shared = &files[0].0.shared;
        let mut rest = None;
        for passes in 1..=50 {
            let turns = Cell::new(2u32);
            let goes_on = || turns.replace(turns.get().saturating_sub(1)) > 0;
            let pass = shared.pass(0, Duration::MAX, goes_on, &mut rest);
            assert!(pass.error.is_none());
            let dirty = files.iter().filter(|file| file.is_dirty()).count();
            let left = rest.as_ref().map_or(0, Chosen::len);
            assert_eq!(left, dirty, "pass {passes} chose anew");
        }
        // Files that were written by others meanwhile are passed over.
        files.iter().for_each(|file| drop(file.flush(0..u64::MAX)));
        let pass = shared.pass(0, Duration::MAX, || true, &mut rest);
        assert_eq!(pass.written, 0);
        assert!(rest.is_none());
    }

    #[test]
    fn a_flusher_that_was_woken_writes_a_turn_at_least() {
        let mut options = Options::new(BlockSize::MIN);
        options.tunables = "dirty_bytes=67108864,dirty_background_bytes=16773120"
            .parse()
            .unwrap();
        let cache = PageCache::new(options, Arc::new(SystemClock)).unwrap();
        let owner: Arc<dyn Mapping<Error = std::io::Error>> = Arc::new(Nowhere);
        let file = |_| cache.file_at(Arc::downgrade(&owner), Place::default());
        let files: Vec<_> = (0..256).map(file).collect();
        let contents = vec![1; 64 << 10];
        for file in &files {
            file.write(0, &contents, 0).unwrap();
        }
        // A page more than should be left.
        let shared = &files[0].0.shared;
        shared.flushers.start();
        assert!(shared.is_over_background());
        let turn = shared.turn_max();
        assert!((1 << 20..=12 << 20).contains(&turn), "{turn}");
        shared.flush_background(0, &mut None).unwrap();
        let written = shared.counters.written.load(Relaxed);
        assert!((turn..turn + (128 << 10)).contains(&written), "{written}");
        // There is no reason to begin again.
        shared.flush_background(0, &mut None).unwrap();
        assert_eq!(shared.counters.written.load(Relaxed), written);
    }
}
