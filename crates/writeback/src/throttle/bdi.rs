//! One device: its counters, its policy, and whether it still gets anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::proportion::{Share, SharedLocal};
use super::stall::Stall;
use super::{
    BdiStats, Chunk, Domain, Outcome, Policy, Task, TunableError, Tunables, Verdict, View, nanos,
};

/// A device that pages are written to, as throttling sees it.
///
/// The cache tells it when pages become dirty or clean; it tells writers how long to wait. Every
/// page goes the same way: [`Bdi::dirtied`] → [`Bdi::writeback_started`] → [`Bdi::completed`], or
/// from dirty to [`Bdi::cleaned`]. Counts saturate: a caller that forgets a step gets wrong pauses,
/// no panic. May be called from any thread, with any lock held: what it locks itself are leaves,
/// held for a few instructions.
#[derive(Debug)]
pub struct Bdi {
    domain: Arc<Domain>,
    policy: Box<dyn Policy>,
    tunables: Tunables,
    dirty: AtomicU64,
    writeback: AtomicU64,
    dirtied: AtomicU64,
    written: AtomicU64,
    share: SharedLocal,
    /// Nanoseconds when writeback last began from idle, and for how long it went on before that.
    busy_since: AtomicU64,
    busy_before: AtomicU64,
    stall: Stall,
}

/// Takes so much away as there is; returns how much that was.
fn take(counter: &AtomicU64, count: u64) -> u64 {
    let less = |value: u64| Some(value.saturating_sub(count));
    // The closure always says what to store.
    let before = counter.fetch_update(Relaxed, Relaxed, less).unwrap_or(0);
    before.min(count)
}

impl Bdi {
    /// A device of this domain, with nothing dirty. Of the tunables those of a device count:
    /// [`BDI_TUNABLES`](super::BDI_TUNABLES).
    ///
    /// # Errors
    ///
    /// A tunable is out of range, `min_ratio` is above `max_ratio`, or those of all devices are
    /// above 100 together.
    pub fn new(domain: &Arc<Domain>, tunables: &Tunables) -> Result<Arc<Self>, TunableError> {
        tunables.check()?;
        let min = u64::from(tunables.min_ratio);
        let sum = |others: u64| Some(others + min).filter(|sum| *sum <= 100);
        let added = domain.min_ratios.fetch_update(Relaxed, Relaxed, sum);
        if let Err(others) = added {
            let left = 100 - others.min(100);
            return Err(TunableError::new(
                &format!("min_ratio={min}"),
                format_args!("must be 0 to {left} percent: other devices have the rest"),
            ));
        }
        domain.devices.fetch_add(1, Relaxed);
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            policy: domain.new_policy(),
            tunables: *tunables,
            dirty: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
            dirtied: AtomicU64::new(0),
            written: AtomicU64::new(0),
            share: SharedLocal::default(),
            busy_since: AtomicU64::new(0),
            busy_before: AtomicU64::new(0),
            stall: Stall::default(),
        }))
    }

    /// What it shares with other devices.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// What was set for it.
    #[must_use]
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    fn view(&self, now: Duration) -> View<'_> {
        View {
            domain: &self.domain,
            bdi: self,
            now,
        }
    }

    /// Asks before at most `pages` clean pages become dirty. After [`Verdict::Go`] the caller
    /// makes them dirty and says with [`Bdi::dirtied`] how many it were (0, if it came to nothing).
    /// Any other verdict is followed by asking again when it is over.
    pub fn admit(&self, task: &mut Task, pages: u64, now: Duration) -> Verdict {
        let verdict = self.policy.admit(&self.view(now), task, pages);
        self.judge(task, verdict, now)
    }

    /// Pages the task may dirty now before the policy wants to know, 1 to [`super::PAGES_MAX`]. A
    /// caller that dirties more at once gets coarser pauses, and the limit is only exact for
    /// those who ask [`Bdi::admit`] for no more than this.
    #[must_use]
    pub fn allowance(&self, task: &Task, now: Duration) -> u64 {
        let pages = self.policy.allowance(&self.view(now), task);
        pages.clamp(1, super::PAGES_MAX)
    }

    /// Counts `pages` clean pages that became dirty, of those admitted, and says whether the
    /// writer should wait. Pages that were dirty already are no matter of it.
    pub fn dirtied(&self, task: &mut Task, pages: u64, now: Duration) -> Verdict {
        self.dirtied.fetch_add(pages, Relaxed);
        // The sum first, so that what the device is taken off with is never more than it counts
        // for.
        self.domain.dirty.fetch_add(pages, Relaxed);
        self.dirty.fetch_add(pages, Relaxed);
        let verdict = self.policy.dirtied(&self.view(now), task, pages);
        self.judge(task, verdict, now)
    }

    /// To be called after every verdict of [`Bdi::dirtied`] or of itself other than
    /// [`Verdict::Go`], when it is over; `written` pages the writer wrote itself
    /// ([`Verdict::Write`]).
    pub fn resumed(&self, task: &mut Task, written: u64, now: Duration) -> Verdict {
        let verdict = self.policy.resumed(&self.view(now), task, written);
        self.judge(task, verdict, now)
    }

    /// The writer will not be heard of again, or was cancelled while it was throttled.
    pub fn exited(&self, task: &mut Task, now: Duration) {
        self.policy.exited(&self.view(now), task);
        task.throttled_since = None;
    }

    /// Dirty pages are being written from now on.
    pub fn writeback_started(&self, pages: u64, now: Duration) {
        // Added before it is taken away, so that the sum is never too small meanwhile.
        self.domain.writeback.fetch_add(pages, Relaxed);
        if self.writeback.fetch_add(pages, Relaxed) == 0 {
            self.busy_since.store(nanos(now), Relaxed);
        }
        let moved = take(&self.dirty, pages);
        take(&self.domain.dirty, moved);
        // What was not dirty does not count.
        let more = take(&self.writeback, pages - moved);
        take(&self.domain.writeback, more);
    }

    /// Writeback of pages ended: they are on the device, or could not be written and are dirty
    /// again.
    pub fn completed(&self, pages: u64, outcome: Outcome, now: Duration) {
        let ended = take(&self.writeback, pages);
        if ended > 0 && self.writeback.load(Relaxed) == 0 {
            let busy = nanos(now).saturating_sub(self.busy_since.load(Relaxed));
            self.busy_before.fetch_add(busy, Relaxed);
        }
        if outcome == Outcome::Written {
            self.written.fetch_add(pages, Relaxed);
            self.stall.progress(now);
            let completions = &self.domain.completions;
            self.share.with(|share| completions.add(share, pages, now));
        } else {
            self.domain.dirty.fetch_add(ended, Relaxed);
            self.dirty.fetch_add(ended, Relaxed);
        }
        take(&self.domain.writeback, ended);
        self.policy.completed(&self.view(now), ended, outcome);
    }

    /// Some of what is under writeback is on the device, though nothing is completed yet: a device
    /// that works on a long run is slow, not stalled.
    pub fn progressed(&self, now: Duration) {
        self.stall.progress(now);
    }

    /// How long something was under writeback, of all the time up to now.
    #[must_use]
    pub fn busy(&self, now: Duration) -> Duration {
        let going_on = match self.writeback.load(Relaxed) {
            0 => 0,
            _ => nanos(now).saturating_sub(self.busy_since.load(Relaxed)),
        };
        let before = self.busy_before.load(Relaxed);
        Duration::from_nanos(before.saturating_add(going_on))
    }

    /// Dirty pages are gone without having been written: truncated, or given up.
    pub fn cleaned(&self, pages: u64, now: Duration) {
        let gone = take(&self.dirty, pages);
        take(&self.domain.dirty, gone);
        self.policy.cleaned(&self.view(now), gone);
    }

    /// To be called now and then while something is dirty; what is to be done every so often is
    /// also done by the other calls, so nothing depends on when.
    pub fn tick(&self, now: Duration) {
        self.policy.tick(&self.view(now));
    }

    /// Whether its flushers should write now whatever the age of what is dirty.
    #[must_use]
    pub fn over_background(&self, now: Duration) -> bool {
        self.dirty.load(Relaxed) > 0 && self.policy.over_background(&self.view(now))
    }

    /// How much a flusher takes at once.
    #[must_use]
    pub fn chunk(&self, now: Duration) -> Chunk {
        self.policy.chunk(&self.view(now))
    }

    /// Pages dirty or under writeback.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        let writeback = self.writeback.load(Relaxed);
        self.dirty.load(Relaxed).saturating_add(writeback)
    }

    /// Pages dirty and not under writeback.
    #[must_use]
    pub fn reclaimable(&self) -> u64 {
        self.dirty.load(Relaxed)
    }

    /// Pages that were ever made dirty.
    #[must_use]
    pub fn nr_dirtied(&self) -> u64 {
        self.dirtied.load(Relaxed)
    }

    /// Pages that were ever written.
    #[must_use]
    pub fn nr_written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Its part of `limit` pages, by what it completed of all that was completed lately.
    #[must_use]
    pub fn part_of(&self, limit: u64, now: Duration) -> u64 {
        let completions = &self.domain.completions;
        let share = self.share.with(|local| completions.share(local, now));
        self.part_by(limit, share)
    }

    /// Its part of `limit` pages if this is its share of completions, within `min_ratio` and
    /// `max_ratio`.
    #[must_use]
    pub fn part_by(&self, limit: u64, share: Share) -> u64 {
        let others = self.domain.min_ratios.load(Relaxed).min(100);
        let wide = |pages: u128| u64::try_from(pages).unwrap_or(u64::MAX);
        let percent = |percent: u64| wide(u128::from(limit) * u128::from(percent) / 100);
        let shared = u128::from(percent(100 - others));
        let whole = u128::from(share.whole.max(1));
        let part = wide(shared * u128::from(share.part) / whole);
        part.saturating_add(percent(self.tunables.min_ratio.into()))
            .min(percent(self.tunables.max_ratio.into()))
    }

    /// What all policies have in common: the state of the task, and a device without progress.
    fn judge(&self, task: &mut Task, verdict: Verdict, now: Duration) -> Verdict {
        if verdict == Verdict::Go {
            task.throttled_since = None;
            return verdict;
        }
        let is_new = task.throttled_since.replace(now).is_none();
        let limit = Duration::from_millis(u64::from(self.tunables.wb_stall_ms));
        let left = (!limit.is_zero()).then(|| self.stall.left(limit, is_new, now));
        if left == Some(Duration::ZERO) {
            task.throttled_since = None;
            return Verdict::Failed;
        }
        // No thread sleeps past the moment at which it would be asked to give up.
        let left = left.unwrap_or(Duration::MAX);
        match verdict {
            Verdict::Pause(pause) => Verdict::Pause(pause.min(left)),
            Verdict::Await { at_most } => Verdict::Await {
                at_most: at_most.min(left),
            },
            other => other,
        }
    }

    /// The statistics, in the form of the kernel's `bdi` stats file.
    #[must_use]
    pub fn stats(&self, now: Duration) -> BdiStats {
        let domain = &self.domain;
        BdiStats {
            writeback: self.writeback.load(Relaxed),
            reclaimable: self.dirty.load(Relaxed),
            thresh: self.part_of(domain.thresh(), now),
            dirty_thresh: domain.thresh(),
            background_thresh: domain.background(),
            dirtied: self.dirtied.load(Relaxed),
            written: self.written.load(Relaxed),
            write_bandwidth: self.policy.bandwidth(),
            dirty_ratelimit: self.policy.ratelimit(),
        }
    }
}

impl Drop for Bdi {
    fn drop(&mut self) {
        // What it has unwritten counts no longer, nor does it itself.
        let dirty = self.dirty.swap(0, Relaxed);
        let writeback = self.writeback.swap(0, Relaxed);
        take(&self.domain.dirty, dirty);
        take(&self.domain.writeback, writeback);
        let all = dirty.saturating_add(writeback);
        self.policy.cleaned(&self.view(Duration::ZERO), all);
        take(&self.domain.devices, 1);
        take(&self.domain.min_ratios, self.tunables.min_ratio.into());
    }
}
