//! `ioless` and `ioless-fixed`: pauses that grow with the device's dirty pages.
//!
//! Source: "[PATCH 00/13] IO-less dirty throttling" (v2), Wu Fengguang, linux-mm, 17 November
//! 2010. No thread but flushers writes. Between 7/8 of the device's part of the limit and the
//! whole, a writer's rate falls from 8 times the device's bandwidth to nothing; a second ramp, a
//! sixteenth wide and ending where the writer's own limit is, makes heavy writers slower than
//! light ones. A writer sleeps for as long as what it dirtied takes at that rate, 1 tick to 100
//! ms.
//!
//! How many pages it dirties between two sleeps is its own: a 32nd more after each sleep of one
//! tick, a quarter less after each of 100 ms. As posted, that did not grow from below 32 pages;
//! `ioless-fixed` has the "+ 1" the author added the same evening.
//!
//! The rate does not know how many writers there are: only the dirty pages do, which settle where
//! all pauses together fit. So writers sleep shorter and more often the more they are, which is
//! what Dave Chinner's table of context switches shows. Think time is not considered.
//!
//! Differences: exact counts; bandwidth is sampled by any thread that is first 10 ms after the
//! last sample, rather than by each sleeper racing with the others; real-time writers have limits
//! a quarter higher.
//!
//! | constant | unit | value |
//! |---|---|---|
//! | pauses | ms | a tick to 100 |
//! | ramp of the device, of the task | part of its limit | 1/8, 1/16 |
//! | way out | pages completed since the last look | 250 ms of bandwidth |
//! | flusher's chunk | pages a file | 1024 |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use uext4_writeback::throttle::{
    BANDWIDTH_START, Chunk, Class, Domain, Outcome, Policy, Task, Verdict, View,
};

use super::proportion::{Global, Local};
use super::{Clock, Next};

/// Parts of the device's limit over which its writers slow down.
const BDI_SOFT: u64 = 8;
const TASK_SOFT: u64 = 16;
/// Fewest milliseconds between two samples of the bandwidth.
const SAMPLE: Duration = Duration::from_millis(10);
/// Pages of one file a flusher writes before the next has its turn.
const CHUNK: u64 = 1024;

/// How the interval between two sleeps grows after a short one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// As it was posted: by a 32nd, which is nothing below 32 pages.
    AsPosted,
    /// By one page more.
    Corrected,
}

/// What the devices of a domain have in common.
#[derive(Debug, Default)]
struct Shared {
    /// Completions by device, pages dirtied by task.
    completions: Global,
    dirties: Global,
}

#[derive(Debug)]
struct Ioless {
    clock: Clock,
    growth: Growth,
    shared: Arc<Shared>,
    /// The device's completions.
    completed: Mutex<Local>,
    /// Some writer found the device over its limit.
    exceeded: AtomicBool,
    /// Pages a second.
    bandwidth: AtomicU64,
    sample: Mutex<Sample>,
}

/// What is remembered of a writer.
#[derive(Debug, Default)]
struct State {
    /// Pages dirtied since the last look.
    nr_dirtied: u64,
    /// How many may be dirtied until the next; 0: not known yet.
    nr_dirtied_pause: u64,
    /// Pages the throttling that goes on is about.
    charged: u64,
    /// The pause that goes on or was last.
    pause: Duration,
    next: Next,
    /// Dirty pages of the device at the last look within this throttling.
    seen: Option<u64>,
    /// Pages it dirtied lately, compared with all writers'.
    share: Local,
}

/// When the bandwidth was last sampled, and the pages written until then.
#[derive(Debug, Default)]
struct Sample {
    at: Duration,
    written: u64,
}

/// What one look sees, in pages.
struct Look {
    unwritten: u64,
    thresh: u64,
    freerun: u64,
    bdi_dirty: u64,
    bdi_thresh: u64,
    task_thresh: u64,
}

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// The policy of a new device, as it was posted.
pub(super) fn as_posted<const HZ: u64>(domain: &Domain) -> Box<dyn Policy> {
    Box::new(Ioless::new(domain, Clock { hz: HZ }, Growth::AsPosted))
}

/// The policy of a new device, with the author's correction.
pub(super) fn corrected<const HZ: u64>(domain: &Domain) -> Box<dyn Policy> {
    Box::new(Ioless::new(domain, Clock { hz: HZ }, Growth::Corrected))
}

/// Completions after which the devices' shares age: eight times as often as in 2.6.36.
fn completions(view: &View<'_>) -> u64 {
    ((1 << view.domain.thresh().ilog2()) / 4).max(1)
}

/// Pages dirtied after which the tasks' shares age.
fn dirties(view: &View<'_>) -> u64 {
    2 << view.domain.thresh().ilog2()
}

impl Ioless {
    fn new(domain: &Domain, clock: Clock, growth: Growth) -> Self {
        Self {
            clock,
            growth,
            shared: domain.shared(Shared::default),
            completed: Mutex::default(),
            exceeded: AtomicBool::new(false),
            bandwidth: AtomicU64::new(BANDWIDTH_START),
            sample: Mutex::default(),
        }
    }

    /// The device's part of so many pages.
    fn part_of(&self, view: &View<'_>, pages: u64) -> u64 {
        let all = &self.shared.completions;
        let share = all.share(&mut self.completed.lock(), completions(view));
        view.bdi.part_by(pages, share)
    }

    fn look(&self, view: &View<'_>, class: Class, task: &mut State) -> Look {
        let lift = |pages: u64| match class {
            Class::RealTime => pages.saturating_add(pages / 4),
            Class::Normal | Class::Idle => pages,
        };
        let thresh = lift(view.domain.thresh());
        let bdi_thresh = self.part_of(view, thresh);
        let dirtied = self.shared.dirties.share(&mut task.share, dirties(view));
        let less = u128::from(bdi_thresh / TASK_SOFT) * u128::from(dirtied.part);
        let less = less / u128::from(dirtied.whole);
        Look {
            unwritten: view.domain.unwritten(),
            thresh,
            freerun: lift(view.domain.freerun()),
            bdi_dirty: view.bdi.unwritten(),
            bdi_thresh,
            task_thresh: bdi_thresh.saturating_sub(u64::try_from(less).unwrap_or(u64::MAX)),
        }
    }

    /// Pages a task may dirty before it looks for the first time.
    fn poll(&self, view: &View<'_>) -> u64 {
        let (unwritten, thresh) = (view.domain.unwritten(), view.domain.thresh());
        if unwritten < view.domain.freerun() {
            return 1 + (thresh - unwritten.min(thresh)).isqrt();
        }
        let (dirty, part) = (view.bdi.unwritten(), self.part_of(view, thresh));
        1 + part.saturating_sub(dirty).isqrt()
    }

    fn sample_bandwidth(&self, view: &View<'_>) {
        let mut sample = self.sample.lock();
        let written = view.bdi.nr_written();
        let elapsed = view.now.saturating_sub(sample.at);
        if elapsed < SAMPLE {
            return;
        }
        let fresh = written.saturating_sub(sample.written) as f64 / elapsed.as_secs_f64();
        let weight = (elapsed.as_millis() / SAMPLE.as_millis()).clamp(1, 128) as f64 / 1024.0;
        let average = self.bandwidth.load(Relaxed) as f64;
        let average = average * (1.0 - weight) + fresh * weight;
        *sample = Sample {
            at: view.now,
            written,
        };
        self.bandwidth.store((average as u64).max(1), Relaxed);
    }

    /// The pause for what the task dirtied, where the limits leave it any rate.
    fn pause(&self, task: &State, look: &Look) -> Duration {
        if look.bdi_dirty >= look.task_thresh {
            return MAX_PAUSE;
        }
        let bandwidth = self.bandwidth.load(Relaxed) as f64;
        let ramp = |top: u64, soft: u64| {
            (top - look.bdi_dirty.min(top)) as f64 / (look.bdi_thresh / soft + 1) as f64
        };
        let rate = bandwidth * ramp(look.bdi_thresh, BDI_SOFT) * ramp(look.task_thresh, TASK_SOFT);
        let pause = task.charged as f64 / (rate + 1.0);
        let pause = Duration::from_secs_f64(pause.min(1.0));
        let ticks = self.clock.ticks(pause).max(1);
        self.clock.time(ticks).min(MAX_PAUSE)
    }

    /// One turn of the loop.
    fn balance(&self, view: &View<'_>, class: Class, task: &mut State) -> Verdict {
        let look = self.look(view, class, task);
        if look.unwritten <= look.freerun {
            return self.leave(view, task);
        }
        let quarter = self.bandwidth.load(Relaxed) / 4;
        if let Some(seen) = task.seen
            && look.unwritten < look.thresh
            && seen.saturating_sub(look.bdi_dirty) > quarter
        {
            return self.leave(view, task);
        }
        task.seen = Some(look.bdi_dirty);
        task.pause = self.pause(task, &look);
        let exceeded = look.bdi_dirty > look.bdi_thresh || look.unwritten > look.thresh;
        task.next = Next::Leave;
        if exceeded {
            self.exceeded.store(true, Relaxed);
            task.next = Next::Look;
        } else if self.exceeded.load(Relaxed) {
            self.exceeded.store(false, Relaxed);
        }
        Verdict::Pause(task.pause)
    }

    fn leave(&self, view: &View<'_>, task: &mut State) -> Verdict {
        let pages = task.nr_dirtied_pause;
        if task.pause.is_zero() && view.domain.unwritten() < view.domain.background() {
            task.nr_dirtied_pause = self.poll(view);
        } else if task.pause <= self.clock.time(1) && !task.pause.is_zero() {
            let more = pages / 32 + u64::from(self.growth == Growth::Corrected);
            task.nr_dirtied_pause = pages.saturating_add(more);
        } else if task.pause >= MAX_PAUSE {
            task.nr_dirtied_pause = pages.saturating_sub(pages.saturating_add(2) / 4).max(1);
        }
        task.nr_dirtied = 0;
        task.seen = None;
        Verdict::Go
    }
}

impl Policy for Ioless {
    fn dirtied(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict {
        let class = task.class();
        task.with_state(|task: &mut State| {
            let all = &self.shared.dirties;
            all.add(&mut task.share, pages, dirties(view));
            task.nr_dirtied = task.nr_dirtied.saturating_add(pages);
            if task.nr_dirtied_pause == 0 {
                task.nr_dirtied_pause = self.poll(view);
            }
            let exceeded = self.exceeded.load(Relaxed);
            if pages == 0 || (task.nr_dirtied < task.nr_dirtied_pause && !exceeded) {
                return Verdict::Go;
            }
            task.charged = task.nr_dirtied;
            task.pause = Duration::ZERO;
            self.balance(view, class, task)
        })
    }

    fn resumed(&self, view: &View<'_>, task: &mut Task, _: u64) -> Verdict {
        self.sample_bandwidth(view);
        let class = task.class();
        task.with_state(|task: &mut State| match task.next {
            Next::Leave => self.leave(view, task),
            Next::Look => self.balance(view, class, task),
        })
    }

    fn completed(&self, view: &View<'_>, pages: u64, outcome: Outcome) {
        if outcome == Outcome::Written {
            let all = &self.shared.completions;
            all.add(&mut self.completed.lock(), pages, completions(view));
        }
    }

    fn exited(&self, _: &View<'_>, task: &mut Task) {
        task.with_state(|task: &mut State| task.seen = None);
    }

    fn allowance(&self, view: &View<'_>, task: &Task) -> u64 {
        if self.exceeded.load(Relaxed) {
            return 1;
        }
        let (dirtied, pause) = task.state().map_or((0, 0), |task: &State| {
            (task.nr_dirtied, task.nr_dirtied_pause)
        });
        let pages = match pause {
            0 => self.poll(view),
            pages => pages,
        };
        pages.saturating_sub(dirtied)
    }

    fn over_background(&self, view: &View<'_>) -> bool {
        view.domain.nr_dirty() > view.domain.background()
    }

    fn chunk(&self, _: &View<'_>) -> Chunk {
        Chunk {
            file: CHUNK,
            round: 16 * CHUNK,
        }
    }

    fn bandwidth(&self) -> u64 {
        self.bandwidth.load(Relaxed)
    }
}
