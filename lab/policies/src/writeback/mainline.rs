//! `mainline`: position control, an estimated rate a task, and think time.
//!
//! Source: Linux 3.2 to 6.x (`balance_dirty_pages` as Wu Fengguang rewrote it, July to September
//! 2011), described from its documentation and behaviour. Between freerun and limit lies the
//! setpoint; a cubic of the distance from it, times a line for the device's own part, gives the
//! *position ratio*. Every 200 ms the *base rate* of all tasks of a device moves towards what they
//! would have to dirty for the device to keep up: `base · ratio · bandwidth / what was dirtied`. A
//! task may dirty `base · ratio` pages a second; it sleeps when it is far enough ahead of that, and
//! what it spent thinking since its last pause counts.
//!
//! Pauses are aimed at 10 ms, and 10 ms more for each doubling of bandwidth over base rate, which
//! is the number of writers about; at most 200 ms, and an eighth of what is dirty at full
//! bandwidth. All of it is computed in whole ticks, so it depends on `HZ`.
//!
//! The kernel asks once a folio. Where a write of 1 MiB makes one folio (ext4 since 6.16), a writer
//! dirties 256 pages before it is asked, whatever its interval is: with 100 writers that is more
//! than the longest pause pays for, the excess over the longest pause is forgiven, and the limit is
//! all that stops them. The machine around this policy dirties such folios (`Config::folio`).
//!
//! Differences: floating point for the ratio; exact counts; no control groups and so no second
//! domain; a restart of the stamps after an idle second looks at time alone; the estimate of
//! bandwidth alone, which the kernel makes 200 ms after a file's writeback has drained, is made by
//! a completion that finds no estimate for 400 ms.
//!
//! | constant | unit | value |
//! |---|---|---|
//! | estimation | ms | 200 |
//! | bandwidth's memory | s | 4.096 (5.12 at 100 ticks a second) |
//! | longest pause | ms | 200 |
//! | look every | pages of a task | as of the last look; 8 once over |
//! | force a look every | pages of a processor | limit / (32 · processors), at least 16 |
//! | flusher's chunk | pages a file | half a second of bandwidth, at most limit / 8, up to 1024s |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use uext4_writeback::throttle::{
    BANDWIDTH_START, Chunk, Class, Domain, Outcome, Policy, Task, Verdict, View,
};

use super::{Clock, Next, nanos};

const INTERVAL: Duration = Duration::from_millis(200);
/// Longer than that without an estimate, and there is nothing to estimate from.
const IDLE: Duration = Duration::from_secs(1);
/// Pages below which looking often costs more than it brings.
const POLL_PAGES: u64 = 32;
const RATELIMIT_EXCEEDED: u64 = 8;
const CHUNK: u64 = 1024;

/// What one processor counts.
#[derive(Debug, Default)]
struct CpuCounters {
    /// Pages dirtied here since a look was last forced.
    dirtied: AtomicU64,
    /// Pages of tasks that ended before they paid for them.
    leaked: AtomicU64,
}

/// What the devices of a domain have in common.
#[derive(Debug)]
struct Shared {
    cpus: Vec<CpuCounters>,
    /// The limit as it follows memory, and when it was last moved (nanoseconds).
    dirty_limit: AtomicU64,
    limit_moved: AtomicU64,
}

impl Shared {
    fn new(domain: &Domain) -> Self {
        let cpus = (0..domain.cpus()).map(|_| CpuCounters::default());
        Self {
            cpus: cpus.collect(),
            dirty_limit: AtomicU64::new(domain.thresh()),
            limit_moved: AtomicU64::new(0),
        }
    }

    fn cpu(&self, cpu: usize) -> &CpuCounters {
        // There is at least one.
        &self.cpus[cpu % self.cpus.len()]
    }
}

#[derive(Debug)]
struct Mainline {
    clock: Clock,
    shared: Arc<Shared>,
    /// Some writer found the device over its limit.
    exceeded: AtomicBool,
    /// Pages a second each task may dirty where all is balanced; at least 1.
    base: AtomicU64,
    bandwidth: AtomicU64,
    average_bandwidth: AtomicU64,
    /// Nanoseconds of the last estimate, to be looked at without the lock.
    estimated: AtomicU64,
    estimate: Mutex<Estimate>,
}

/// What makes an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// A writer that is throttled: base rate, too.
    Writer,
    /// Writeback: bandwidth alone.
    Completion,
}

#[derive(Debug)]
struct Estimate {
    at: Duration,
    written: u64,
    dirtied: u64,
    /// The balanced rate of the last time.
    balanced: u64,
}

/// What is remembered of a writer.
#[derive(Debug, Default)]
struct State {
    /// Pages dirtied since the last look.
    nr_dirtied: u64,
    /// How many may be dirtied until the next; 0: not known yet.
    nr_dirtied_pause: u64,
    /// The tick at which the last pause ended or would have.
    paused_when: Option<i64>,
    /// Pages the throttling that goes on is about.
    charged: u64,
    next: Next,
}

/// What one look sees, in pages.
#[derive(Debug)]
struct Look {
    dirty: u64,
    thresh: u64,
    background: u64,
    freerun: u64,
    limit: u64,
    bdi_dirty: u64,
    bdi_thresh: u64,
}

/// How long (in ticks) and how often (in pages).
struct Pace {
    shortest: u64,
    pages: u64,
}

/// The policy of a new device.
pub(super) fn mainline<const HZ: u64>(domain: &Domain) -> Box<dyn Policy> {
    Box::new(Mainline::new(domain, Clock { hz: HZ }))
}

impl Mainline {
    fn new(domain: &Domain, clock: Clock) -> Self {
        Self {
            clock,
            shared: domain.shared(|| Shared::new(domain)),
            exceeded: AtomicBool::new(false),
            base: AtomicU64::new(BANDWIDTH_START),
            bandwidth: AtomicU64::new(BANDWIDTH_START),
            average_bandwidth: AtomicU64::new(BANDWIDTH_START),
            estimated: AtomicU64::new(0),
            estimate: Mutex::new(Estimate {
                at: Duration::ZERO,
                written: 0,
                dirtied: 0,
                balanced: BANDWIDTH_START,
            }),
        }
    }

    fn look(&self, view: &View<'_>, class: Class) -> Look {
        let domain = view.domain;
        let (mut thresh, mut background) = (domain.thresh(), domain.background());
        let limit = self.shared.dirty_limit.load(Relaxed);
        if class == Class::RealTime {
            thresh = thresh + thresh / 4 + limit / 32;
            background = background + background / 4 + limit / 32;
        }
        let dirty = domain.unwritten();
        // A device that completed nothing lately has a part of what is left, to begin with.
        let part = view.bdi.part_of(thresh, view.now);
        let least = thresh.saturating_sub(dirty) / 8;
        Look {
            dirty,
            thresh,
            background,
            freerun: thresh.midpoint(background),
            limit: thresh.max(limit),
            bdi_dirty: view.bdi.unwritten(),
            bdi_thresh: part.max(least).max(1),
        }
    }

    /// The position ratio, 0 to 16: above 1 where there is room.
    fn position(&self, view: &View<'_>, look: &Look) -> f64 {
        if look.dirty >= look.limit {
            return 0.0;
        }
        let (dirty, limit) = (look.dirty as f64, look.limit as f64);
        let setpoint = f64::midpoint(look.freerun as f64, limit);
        let cubic = |setpoint: f64, dirty: f64, limit: f64| {
            let x = (setpoint - dirty) / (limit - setpoint).max(1.0);
            (1.0 + x * x * x).clamp(0.0, 2.0)
        };
        let global = cubic(setpoint, dirty, limit);
        let (bdi_dirty, bdi_thresh) = (look.bdi_dirty as f64, look.bdi_thresh as f64);
        if view.bdi.tunables().strict_limit {
            let part = look.background as f64 / look.thresh.max(1) as f64;
            let setpoint = f64::midpoint(bdi_thresh, bdi_thresh * part);
            return global.min(cubic(setpoint, bdi_dirty, bdi_thresh));
        }
        let thresh = look.thresh as f64;
        let part = (bdi_thresh / thresh.max(1.0)).min(1.0);
        let bandwidth = self.average_bandwidth.load(Relaxed) as f64;
        let middle = setpoint * part;
        let span = ((thresh - bdi_thresh).max(0.0) + 8.0 * bandwidth) * part;
        let end = middle + span;
        let mut position = global;
        position *= match bdi_dirty < end - span / 4.0 {
            true => (end - bdi_dirty) / span.max(1.0),
            false => 0.25,
        };
        if bdi_dirty < bdi_thresh / 2.0 {
            position *= (bdi_thresh / 2.0 / bdi_dirty.max(1.0)).min(8.0);
        }
        position
    }

    /// Moves limit, bandwidth and, for a writer, the base rate, if it is time.
    fn estimate(&self, view: &View<'_>, by: Caller) {
        let last = Duration::from_nanos(self.estimated.load(Relaxed));
        let interval = match by {
            Caller::Writer => INTERVAL,
            Caller::Completion => 2 * INTERVAL,
        };
        if view.now.saturating_sub(last) < interval {
            return;
        }
        let Some(mut estimate) = self.estimate.try_lock() else {
            return;
        };
        let elapsed = view.now.saturating_sub(estimate.at);
        if elapsed < interval {
            return;
        }
        self.estimated.store(nanos(view.now), Relaxed);
        let written = view.bdi.nr_written();
        let dirtied = view.bdi.nr_dirtied();
        if elapsed <= IDLE {
            let look = self.look(view, Class::Normal);
            self.move_limit(view, &look);
            let rate = dirtied.saturating_sub(estimate.dirtied) as f64 / elapsed.as_secs_f64();
            if by == Caller::Writer {
                self.move_base(view, &look, &mut estimate, rate);
            }
            self.move_bandwidth(written.saturating_sub(estimate.written), elapsed);
        }
        estimate.at = view.now;
        estimate.written = written;
        estimate.dirtied = dirtied;
    }

    fn move_limit(&self, view: &View<'_>, look: &Look) {
        let limit = self.shared.dirty_limit.load(Relaxed);
        let since = Duration::from_nanos(self.shared.limit_moved.load(Relaxed));
        if limit < look.thresh {
            self.shared.dirty_limit.store(look.thresh, Relaxed);
        } else if view.now.saturating_sub(since) >= INTERVAL {
            let floor = look.thresh.max(look.dirty);
            let less = limit.saturating_sub(floor) / 32;
            self.shared.dirty_limit.store(limit - less, Relaxed);
            self.shared.limit_moved.store(nanos(view.now), Relaxed);
        }
    }

    fn move_base(&self, view: &View<'_>, look: &Look, estimate: &mut Estimate, dirtied: f64) {
        let base = self.base.load(Relaxed);
        let bandwidth = self.average_bandwidth.load(Relaxed);
        let task_rate = (base as f64 * self.position(view, look)) as u64 + 1;
        let balanced = task_rate as f64 * bandwidth as f64 / dirtied.max(1.0);
        let balanced = (balanced as u64).clamp(1, bandwidth.max(1));
        let setpoint = look.freerun.midpoint(look.limit);
        let all = [estimate.balanced, balanced, task_rate];
        // Only as far as all three agree about the direction.
        let step = match look.dirty < setpoint {
            true => all
                .into_iter()
                .fold(u64::MAX, u64::min)
                .saturating_sub(base),
            false => base.saturating_sub(all.into_iter().fold(0, u64::max)),
        };
        let shift = base / step.saturating_mul(2).saturating_add(1);
        let step = match u32::try_from(shift) {
            Ok(shift) if shift < u64::BITS => (step >> shift).div_ceil(8),
            _ => 0,
        };
        let base = match base < balanced {
            true => base + step,
            false => base.saturating_sub(step),
        };
        self.base.store(base.max(1), Relaxed);
        estimate.balanced = balanced;
    }

    fn move_bandwidth(&self, written: u64, elapsed: Duration) {
        let fresh = written as f64;
        // Three seconds, up to a power of two of ticks.
        let hz = self.clock.hz;
        let period = (3 * hz).next_power_of_two() as f64 / hz as f64;
        let elapsed = elapsed.as_secs_f64();
        let old = self.bandwidth.load(Relaxed);
        let new = (fresh + old as f64 * (period - elapsed)) / period;
        let new = (new as u64).max(1);
        let mut average = self.average_bandwidth.load(Relaxed);
        if average > old && old >= new {
            average -= (average - old) / 8;
        }
        if average < old && old <= new {
            average += (old - average) / 8;
        }
        self.average_bandwidth.store(average.max(1), Relaxed);
        self.bandwidth.store(new, Relaxed);
    }

    /// Longest pause in ticks: what is dirty must last for eight of them.
    fn longest(&self, look: &Look) -> u64 {
        let bandwidth = self.average_bandwidth.load(Relaxed);
        let hz = self.clock.hz;
        let ticks = look.bdi_dirty / (1 + bandwidth / (1 + hz / 8).next_power_of_two());
        ticks.saturating_add(1).min(hz / 5)
    }

    fn pace(&self, rate: u64, longest: u64) -> Pace {
        let base = self.base.load(Relaxed).max(1);
        let bandwidth = self.average_bandwidth.load(Relaxed).max(1);
        let hz = self.clock.hz;
        let in_time = |rate: u64, ticks: u64| rate.saturating_mul(ticks) / hz.next_power_of_two();
        let doublings = u64::from(bandwidth.ilog2().saturating_sub(base.ilog2()));
        let mut time = (hz / 100).max(1) + doublings * 10 * hz / 1024;
        time = time.min(1 + longest / 2);
        let mut pages = in_time(base, time);
        if pages < POLL_PAGES {
            time = longest;
            pages = in_time(base, time);
            if pages > POLL_PAGES {
                pages = POLL_PAGES;
                time = hz * POLL_PAGES / base;
            }
        }
        if hz.saturating_mul(pages) / rate.saturating_add(1) > longest {
            time = longest;
            pages = in_time(rate, time);
        }
        let shortest = match pages >= POLL_PAGES {
            true => 1 + time / 2,
            false => time,
        };
        Pace { shortest, pages }
    }

    /// One turn of the loop.
    fn balance(&self, view: &View<'_>, class: Class, task: &mut State) -> Verdict {
        let look = self.look(view, class);
        let now = i64::try_from(self.clock.ticks(view.now)).unwrap_or(i64::MAX);
        if look.dirty <= look.freerun {
            let room = look.thresh.saturating_sub(look.dirty).max(1);
            task.nr_dirtied_pause = 1 << (room.ilog2() / 2);
            task.nr_dirtied = 0;
            task.paused_when = Some(now);
            return Verdict::Go;
        }
        let is_strict = view.bdi.tunables().strict_limit;
        let exceeded = look.bdi_dirty > look.bdi_thresh && (is_strict || look.dirty > look.thresh);
        if self.exceeded.load(Relaxed) != exceeded {
            self.exceeded.store(exceeded, Relaxed);
        }
        self.estimate(view, Caller::Writer);
        let rate = (self.base.load(Relaxed) as f64 * self.position(view, &look)) as u64;
        let longest = self.longest(&look);
        let pace = self.pace(rate, longest);
        if rate == 0 {
            task.next = Next::Look;
            return self.sleep(now, task, longest, &pace);
        }
        let period = self.clock.hz.saturating_mul(task.charged) / rate;
        let signed = |ticks: u64| i64::try_from(ticks).unwrap_or(i64::MAX);
        let thought = task.paused_when.map_or(0, |when| now.saturating_sub(when));
        let due = signed(period).saturating_sub(thought);
        if due < signed(pace.shortest) {
            if due < -signed(self.clock.hz) {
                task.paused_when = Some(now);
                task.nr_dirtied = 0;
            } else if period > 0 {
                // Too little to sleep for: what is owed stays owed.
                let when = task.paused_when.unwrap_or(now);
                task.paused_when = Some(when.saturating_add(signed(period)));
                task.nr_dirtied = 0;
            } else if task.nr_dirtied_pause <= task.charged {
                task.nr_dirtied_pause = task.nr_dirtied_pause.saturating_add(task.charged);
            }
            return Verdict::Go;
        }
        // What is owed beyond twice the longest pause is forgiven.
        let over = due
            .saturating_sub(signed(longest))
            .clamp(0, signed(longest));
        task.next = Next::Leave;
        let pause = u64::try_from(due).unwrap_or(0).min(longest);
        self.sleep(now.saturating_add(over), task, pause, &pace)
    }

    fn sleep(&self, now: i64, task: &mut State, pause: u64, pace: &Pace) -> Verdict {
        let pause = pause.max(1);
        task.paused_when = Some(now.saturating_add(i64::try_from(pause).unwrap_or(i64::MAX)));
        task.nr_dirtied = 0;
        task.nr_dirtied_pause = pace.pages.max(1);
        Verdict::Pause(self.clock.time(pause))
    }

    /// Pages after which a processor forces a look.
    fn forced_after(view: &View<'_>) -> u64 {
        let cpus = view.domain.cpus() as u64;
        (view.domain.thresh() / (32 * cpus)).max(16)
    }

    /// Pages a task may dirty between two looks; `pause` as it was computed at the last.
    fn task_limit(&self, pause: u64) -> u64 {
        let limit = match pause {
            0 => POLL_PAGES,
            pages => pages,
        };
        match self.exceeded.load(Relaxed) {
            true => limit.min(RATELIMIT_EXCEEDED),
            false => limit,
        }
    }
}

impl Policy for Mainline {
    fn dirtied(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict {
        let (class, here) = (task.class(), self.shared.cpu(task.cpu()));
        task.with_state(|task: &mut State| {
            task.nr_dirtied = task.nr_dirtied.saturating_add(pages);
            let mut limit = self.task_limit(task.nr_dirtied_pause);
            let count = here.dirtied.fetch_add(pages, Relaxed).saturating_add(pages);
            if task.nr_dirtied >= limit {
                here.dirtied.store(0, Relaxed);
            } else if count >= Self::forced_after(view) {
                here.dirtied.store(0, Relaxed);
                limit = 0;
            }
            let leaked = here.leaked.load(Relaxed);
            if leaked > 0 && task.nr_dirtied < limit {
                let taken = leaked.min(limit - task.nr_dirtied);
                here.leaked.fetch_sub(taken, Relaxed);
                task.nr_dirtied = task.nr_dirtied.saturating_add(taken);
            }
            if task.nr_dirtied < limit || task.nr_dirtied == 0 {
                return Verdict::Go;
            }
            task.charged = task.nr_dirtied;
            self.balance(view, class, task)
        })
    }

    fn resumed(&self, view: &View<'_>, task: &mut Task, _: u64) -> Verdict {
        let class = task.class();
        task.with_state(|task: &mut State| match task.next {
            Next::Leave => Verdict::Go,
            Next::Look if view.bdi.unwritten() == 0 => Verdict::Go,
            Next::Look => self.balance(view, class, task),
        })
    }

    fn tick(&self, view: &View<'_>) {
        self.estimate(view, Caller::Completion);
    }

    fn completed(&self, view: &View<'_>, _: u64, _: Outcome) {
        self.estimate(view, Caller::Completion);
    }

    fn exited(&self, _: &View<'_>, task: &mut Task) {
        let here = self.shared.cpu(task.cpu());
        task.with_state(|task: &mut State| {
            let unpaid = std::mem::take(&mut task.nr_dirtied);
            here.leaked.fetch_add(unpaid, Relaxed);
        });
    }

    fn over_background(&self, view: &View<'_>) -> bool {
        let (background, thresh) = (view.domain.background(), view.domain.thresh());
        view.domain.nr_dirty() > background
            || view.bdi.reclaimable() > view.bdi.part_of(background.min(thresh), view.now)
    }

    fn allowance(&self, _: &View<'_>, task: &Task) -> u64 {
        let (dirtied, pause) = task.state().map_or((0, 0), |task: &State| {
            (task.nr_dirtied, task.nr_dirtied_pause)
        });
        self.task_limit(pause).saturating_sub(dirtied).max(1)
    }

    fn chunk(&self, _: &View<'_>) -> Chunk {
        let bandwidth = self.average_bandwidth.load(Relaxed);
        let limit = self.shared.dirty_limit.load(Relaxed);
        let pages = (bandwidth / 2).min(limit / 8).max(1);
        Chunk {
            file: pages.next_multiple_of(CHUNK),
            round: 16 * pages.next_multiple_of(CHUNK),
        }
    }

    fn bandwidth(&self) -> u64 {
        self.bandwidth.load(Relaxed)
    }

    fn ratelimit(&self) -> u64 {
        self.base.load(Relaxed)
    }
}
