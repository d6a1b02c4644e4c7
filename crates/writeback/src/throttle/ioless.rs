//! `ioless` and `ioless-fixed`: pauses that grow with the device's dirty pages.
//!
//! Source: "[PATCH 00/13] IO-less dirty throttling" (v2), Wu Fengguang, linux-mm, 17 November 2010.
//! Nobody but flushers writes. Between 7/8 of the device's part of the limit and the whole, a
//! writer's rate falls from 8 times the device's bandwidth to nothing; a second ramp, a sixteenth
//! wide and ending where the writer's own limit is, makes heavy writers slower than light ones. A
//! writer sleeps for as long as what it dirtied takes at that rate, 1 jiffy to 100 ms.
//!
//! How many pages it dirties between two sleeps is its own: a 32nd more after each sleep of one
//! jiffy, a quarter less after each of 100 ms. As posted, that did not grow from below 32 pages;
//! `ioless-fixed` has the "+ 1" the author added the same evening.
//!
//! The rate does not know how many writers there are: only the dirty pages do, which settle where
//! all pauses together fit. So writers sleep shorter and more often the more they are, which is what
//! Dave Chinner's table of context switches shows. Think time is not considered.
//!
//! Differences: exact counts; bandwidth is sampled by whoever is first 10 ms after the last sample,
//! rather than by each sleeper racing with the others; real-time writers have limits a quarter higher.
//!
//! | constant | unit | value |
//! |---|---|---|
//! | pauses | ms | 1 to 100, or `wb_max_pause_ms` if less |
//! | ramp of the device, of the task | part of its limit | 1/8, 1/16 |
//! | way out | pages completed since the last look | 250 ms of bandwidth |
//! | flusher's chunk | pages a file | 1024 |

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;

use super::task::Next;
use super::{Chunk, Class, JIFFY, Policy, Task, Tunables, Verdict, View};

/// Parts of the device's limit over which its writers slow down.
const BDI_SOFT: u64 = 8;
const TASK_SOFT: u64 = 16;
/// Fewest milliseconds between two samples of the bandwidth.
const SAMPLE: Duration = Duration::from_millis(10);
/// Pages of one file a flusher writes before the next has its turn.
const CHUNK: u64 = 1024;

#[derive(Debug)]
pub(super) struct Ioless {
    max_pause: Duration,
    /// Steps of less than a page are rounded up to one.
    fixed: bool,
    sample: Mutex<Sample>,
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

impl Ioless {
    pub(super) fn new(tunables: &Tunables, fixed: bool) -> Self {
        let max = Duration::from_millis(u64::from(tunables.wb_max_pause_ms));
        Self {
            max_pause: max.min(Duration::from_millis(100)),
            fixed,
            sample: Mutex::default(),
        }
    }

    fn look(view: &View<'_>, task: &mut Task) -> Look {
        let lift = |pages: u64| match task.class {
            Class::RealTime => pages.saturating_add(pages / 4),
            Class::Normal | Class::Idle => pages,
        };
        let thresh = lift(view.domain.thresh());
        let bdi_thresh = view.bdi.part_of(thresh, view.now);
        let (part, all) = view.domain.dirties.share(&mut task.share, view.now);
        let less = u128::from(bdi_thresh / TASK_SOFT) * u128::from(part) / u128::from(all);
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
    fn poll(view: &View<'_>) -> u64 {
        let (unwritten, thresh) = (view.domain.unwritten(), view.domain.thresh());
        if unwritten < view.domain.freerun() {
            return 1 + (thresh - unwritten.min(thresh)).isqrt();
        }
        let (dirty, part) = (view.bdi.unwritten(), view.bdi.part_of(thresh, view.now));
        1 + part.saturating_sub(dirty).isqrt()
    }

    fn sample_bandwidth(&self, view: &View<'_>) {
        let mut sample = self.sample.lock();
        let written = view.bdi.written.load(Relaxed);
        let elapsed = view.now.saturating_sub(sample.at);
        if elapsed < SAMPLE {
            return;
        }
        let fresh = written.saturating_sub(sample.written) as f64 / elapsed.as_secs_f64();
        let weight = (elapsed.as_millis() / SAMPLE.as_millis()).clamp(1, 128) as f64 / 1024.0;
        let average = view.bdi.bandwidth.load(Relaxed) as f64;
        let average = average * (1.0 - weight) + fresh * weight;
        *sample = Sample {
            at: view.now,
            written,
        };
        view.bdi.bandwidth.store((average as u64).max(1), Relaxed);
    }

    /// The pause for what the task dirtied, where the limits leave it any rate.
    fn pause(&self, view: &View<'_>, task: &Task, look: &Look) -> Duration {
        if look.bdi_dirty >= look.task_thresh {
            return self.max_pause;
        }
        let bandwidth = view.bdi.bandwidth.load(Relaxed) as f64;
        let ramp = |top: u64, soft: u64| {
            (top - look.bdi_dirty.min(top)) as f64 / (look.bdi_thresh / soft + 1) as f64
        };
        let rate = bandwidth * ramp(look.bdi_thresh, BDI_SOFT) * ramp(look.task_thresh, TASK_SOFT);
        let pause = task.charged as f64 / (rate + 1.0);
        let pause = Duration::from_secs_f64(pause.min(1.0));
        super::whole_jiffies(pause).clamp(JIFFY, self.max_pause)
    }

    /// One turn of the loop.
    fn balance(&self, view: &View<'_>, task: &mut Task) -> Verdict {
        let look = Self::look(view, task);
        if look.unwritten <= look.freerun {
            return self.leave(view, task);
        }
        let quarter = view.bdi.bandwidth.load(Relaxed) / 4;
        if let Some(seen) = task.seen
            && look.unwritten < look.thresh
            && seen.saturating_sub(look.bdi_dirty) > quarter
        {
            return self.leave(view, task);
        }
        task.seen = Some(look.bdi_dirty);
        task.pause = self.pause(view, task, &look);
        let exceeded = look.bdi_dirty > look.bdi_thresh || look.unwritten > look.thresh;
        task.next = Next::Leave;
        if exceeded {
            view.bdi.exceeded.store(true, Relaxed);
            task.next = Next::Look;
        } else if view.bdi.exceeded.load(Relaxed) {
            view.bdi.exceeded.store(false, Relaxed);
        }
        Verdict::Pause(task.pause)
    }

    fn leave(&self, view: &View<'_>, task: &mut Task) -> Verdict {
        let pages = task.nr_dirtied_pause;
        if task.pause.is_zero() && view.domain.unwritten() < view.domain.background() {
            task.nr_dirtied_pause = Self::poll(view);
        } else if task.pause <= JIFFY && !task.pause.is_zero() {
            let more = pages / 32 + u64::from(self.fixed);
            task.nr_dirtied_pause = pages.saturating_add(more);
        } else if task.pause >= self.max_pause {
            task.nr_dirtied_pause = pages.saturating_sub(pages.saturating_add(2) / 4).max(1);
        }
        task.nr_dirtied = 0;
        task.seen = None;
        Verdict::Go
    }
}

impl Policy for Ioless {
    fn dirtied(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict {
        view.domain.dirties.add(&mut task.share, pages, view.now);
        task.nr_dirtied = task.nr_dirtied.saturating_add(pages);
        if task.nr_dirtied_pause == 0 {
            task.nr_dirtied_pause = Self::poll(view);
        }
        let exceeded = view.bdi.exceeded.load(Relaxed);
        if pages == 0 || (task.nr_dirtied < task.nr_dirtied_pause && !exceeded) {
            return Verdict::Go;
        }
        task.charged = task.nr_dirtied;
        task.pause = Duration::ZERO;
        self.balance(view, task)
    }

    fn resumed(&self, view: &View<'_>, task: &mut Task, _: u64) -> Verdict {
        self.sample_bandwidth(view);
        match task.next {
            Next::Leave => self.leave(view, task),
            Next::Look | Next::Wrote => self.balance(view, task),
        }
    }

    fn allowance(&self, view: &View<'_>, task: &Task) -> u64 {
        if view.bdi.exceeded.load(Relaxed) {
            return 1;
        }
        let pages = match task.nr_dirtied_pause {
            0 => Self::poll(view),
            pages => pages,
        };
        pages.saturating_sub(task.nr_dirtied)
    }

    fn chunk(&self, _: &View<'_>) -> Chunk {
        Chunk {
            file: CHUNK,
            round: 16 * CHUNK,
        }
    }
}
