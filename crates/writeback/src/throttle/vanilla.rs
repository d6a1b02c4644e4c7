//! `vanilla`: a writer over the limit writes pages of the device itself.
//!
//! Source: Linux 2.6.36 to 2.6.37-rc2, as the thread "IO-less dirty throttling" (Wu Fengguang,
//! linux-mm, November 2010) found it. Every so many pages a processor dirtied, the writer looks;
//! above its part of the limit it writes 1.5 times as much through the same lists as the flusher,
//! and sleeps, twice as long each time, when there is too little to write. So N writers are N
//! submitters on as many files, who meet at one lock.
//!
//! A writer's own limit is its device's, less up to an eighth by its part of what was dirtied
//! lately. Real-time writers have all limits a quarter higher.
//!
//! Differences: time is in jiffies of 1 ms; counts are exact where the kernel's are off by what
//! processors hold back. The lock is the caller's: this policy only says how much to write.
//!
//! | constant | unit | value |
//! |---|---|---|
//! | look every | pages dirtied on a processor | dirtyable / (32 · processors), 16…1024; 8 once over |
//! | write | pages | 1.5 × the above: 1536 |
//! | longest pause | ms | 100, or `wb_max_pause_ms` if less |
//! | flusher's round | pages, over all files | 1024 |

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::task::Next;
use super::{Chunk, Class, JIFFY, Policy, Task, Tunables, Verdict, View};

/// `MAX_WRITEBACK_PAGES`.
const ROUND: u64 = 1024;
/// Pages a processor dirties between two looks while the device is over its limit.
const RATELIMIT_EXCEEDED: u64 = 8;

#[derive(Debug)]
pub(super) struct Vanilla {
    max_pause: Duration,
}

/// What one look sees, in pages.
struct Look {
    unwritten: u64,
    freerun: u64,
    thresh: u64,
    task_thresh: u64,
}

impl Vanilla {
    pub(super) fn new(tunables: &Tunables) -> Self {
        let max = Duration::from_millis(u64::from(tunables.wb_max_pause_ms));
        Self {
            max_pause: max.min(Duration::from_millis(100)),
        }
    }

    fn ratelimit(view: &View<'_>) -> u64 {
        let cpus = view.domain.cpus.len() as u64;
        (view.domain.dirtyable() / (32 * cpus)).clamp(16, 1024)
    }

    fn look_every(view: &View<'_>) -> u64 {
        match view.bdi.exceeded.load(Relaxed) {
            true => RATELIMIT_EXCEEDED,
            false => Self::ratelimit(view),
        }
    }

    fn look(view: &View<'_>, task: &mut Task) -> Look {
        let lift = |pages: u64| match task.class {
            Class::RealTime => pages.saturating_add(pages / 4),
            Class::Normal | Class::Idle => pages,
        };
        let thresh = lift(view.domain.thresh());
        let freerun = lift(view.domain.freerun());
        let bdi_thresh = view.bdi.part_of(thresh, view.now);
        let (part, all) = view.domain.dirties.share(&mut task.share, view.now);
        let less = u128::from(bdi_thresh / 8) * u128::from(part) / u128::from(all);
        let less = u64::try_from(less).unwrap_or(u64::MAX);
        Look {
            unwritten: view.domain.unwritten(),
            freerun,
            thresh,
            task_thresh: bdi_thresh.saturating_sub(less).max(bdi_thresh / 2),
        }
    }

    /// One turn of the loop.
    fn balance(&self, view: &View<'_>, task: &mut Task) -> Verdict {
        let look = Self::look(view, task);
        if look.unwritten <= look.freerun {
            view.bdi.exceeded.store(false, Relaxed);
            return Verdict::Go;
        }
        if view.bdi.unwritten() <= look.task_thresh && look.unwritten <= look.thresh {
            view.bdi.exceeded.store(false, Relaxed);
            return Verdict::Go;
        }
        view.bdi.exceeded.store(true, Relaxed);
        if view.bdi.reclaimable() > look.task_thresh {
            task.next = Next::Wrote;
            return Verdict::Write {
                pages: task.charged.max(1),
            };
        }
        self.sleep(task)
    }

    fn sleep(&self, task: &mut Task) -> Verdict {
        let pause = task.pause;
        task.pause = (pause * 2).min(self.max_pause);
        task.next = Next::Look;
        Verdict::Pause(pause)
    }
}

impl Policy for Vanilla {
    fn dirtied(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict {
        view.domain.dirties.add(&mut task.share, pages, view.now);
        let limit = Self::look_every(view);
        let here = &view.domain.cpu(task.cpu).dirtied;
        if here.fetch_add(pages, Relaxed).saturating_add(pages) < limit {
            return Verdict::Go;
        }
        here.store(0, Relaxed);
        let count = pages.max(Self::ratelimit(view));
        task.charged = count.saturating_add(count / 2);
        task.pause = JIFFY;
        self.balance(view, task)
    }

    fn resumed(&self, view: &View<'_>, task: &mut Task, written: u64) -> Verdict {
        if task.next != Next::Wrote {
            return self.balance(view, task);
        }
        task.charged = task.charged.saturating_sub(written);
        match task.charged {
            0 => Verdict::Go,
            _ => self.sleep(task),
        }
    }

    fn allowance(&self, view: &View<'_>, task: &Task) -> u64 {
        let here = view.domain.cpu(task.cpu).dirtied.load(Relaxed);
        Self::look_every(view).saturating_sub(here)
    }

    fn chunk(&self, _: &View<'_>) -> Chunk {
        Chunk {
            file: ROUND,
            round: ROUND,
        }
    }
}
