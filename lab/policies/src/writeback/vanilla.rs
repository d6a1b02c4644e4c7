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
//! Differences: counts are exact where the kernel's are off by what
//! processors hold back. The lock is the caller's: this policy only says how much to write.
//!
//! | constant | unit | value |
//! |---|---|---|
//! | look every | pages dirtied on a processor | dirtyable / (32 · processors), 16…1024; 8 once over |
//! | write | pages | 1.5 × the above: 1536 |
//! | longest pause | ms | 100 |
//! | flusher's round | pages, over all files | 1024 |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use uext4_writeback::throttle::{
    BANDWIDTH_START, Chunk, Class, Domain, Outcome, Policy, Task, Verdict, View,
};

use super::Clock;
use super::proportion::{Global, Local};

/// `MAX_WRITEBACK_PAGES`.
const ROUND: u64 = 1024;
/// Pages a processor dirties between two looks while the device is over its limit.
const RATELIMIT_EXCEEDED: u64 = 8;

/// Events after which shares age, of completions and of pages dirtied: 2^(1 + log2 of the limit).
fn period(view: &View<'_>) -> u64 {
    2 << view.domain.thresh().ilog2()
}

/// What the devices of a domain have in common.
#[derive(Debug)]
struct Shared {
    /// Completions by device, pages dirtied by task.
    completions: Global,
    dirties: Global,
    /// Pages dirtied on each processor since a look was last forced.
    cpus: Vec<AtomicU64>,
}

impl Shared {
    fn new(cpus: usize) -> Self {
        Self {
            completions: Global::default(),
            dirties: Global::default(),
            cpus: (0..cpus).map(|_| AtomicU64::default()).collect(),
        }
    }

    fn cpu(&self, cpu: usize) -> &AtomicU64 {
        // There is at least one.
        &self.cpus[cpu % self.cpus.len()]
    }
}

#[derive(Debug)]
struct Vanilla {
    clock: Clock,
    shared: Arc<Shared>,
    /// The device's completions.
    completed: Mutex<Local>,
    /// Some writer found the device over its limit.
    exceeded: AtomicBool,
}

/// What is remembered of a writer.
#[derive(Debug, Default)]
struct State {
    /// Pages the throttling that goes on is about.
    charged: u64,
    /// The next pause.
    pause: Duration,
    /// It was to write, rather than to sleep.
    writes: bool,
    /// Pages it dirtied lately, compared with all writers'.
    share: Local,
}

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// The policy of a new device.
pub(super) fn vanilla<const HZ: u64>(domain: &Domain) -> Box<dyn Policy> {
    Box::new(Vanilla {
        clock: Clock { hz: HZ },
        shared: domain.shared(|| Shared::new(domain.cpus())),
        completed: Mutex::default(),
        exceeded: AtomicBool::new(false),
    })
}

/// What one look sees, in pages.
struct Look {
    unwritten: u64,
    freerun: u64,
    thresh: u64,
    task_thresh: u64,
}

impl Vanilla {
    fn ratelimit(view: &View<'_>) -> u64 {
        let cpus = view.domain.cpus() as u64;
        (view.domain.dirtyable() / (32 * cpus)).clamp(16, 1024)
    }

    fn look_every(&self, view: &View<'_>) -> u64 {
        match self.exceeded.load(Relaxed) {
            true => RATELIMIT_EXCEEDED,
            false => Self::ratelimit(view),
        }
    }

    fn look(&self, view: &View<'_>, class: Class, task: &mut State) -> Look {
        let lift = |pages: u64| match class {
            Class::RealTime => pages.saturating_add(pages / 4),
            Class::Normal | Class::Idle => pages,
        };
        let thresh = lift(view.domain.thresh());
        let freerun = lift(view.domain.freerun());
        let completions = &self.shared.completions;
        let part = completions.share(&mut self.completed.lock(), period(view));
        let bdi_thresh = view.bdi.part_by(thresh, part);
        let dirtied = self.shared.dirties.share(&mut task.share, period(view));
        let less = u128::from(bdi_thresh / 8) * u128::from(dirtied.part);
        let less = less / u128::from(dirtied.whole);
        let less = u64::try_from(less).unwrap_or(u64::MAX);
        Look {
            unwritten: view.domain.unwritten(),
            freerun,
            thresh,
            task_thresh: bdi_thresh.saturating_sub(less).max(bdi_thresh / 2),
        }
    }

    /// One turn of the loop.
    fn balance(&self, view: &View<'_>, class: Class, task: &mut State) -> Verdict {
        let look = self.look(view, class, task);
        if look.unwritten <= look.freerun {
            self.exceeded.store(false, Relaxed);
            return Verdict::Go;
        }
        if view.bdi.unwritten() <= look.task_thresh && look.unwritten <= look.thresh {
            self.exceeded.store(false, Relaxed);
            return Verdict::Go;
        }
        self.exceeded.store(true, Relaxed);
        if view.bdi.reclaimable() > look.task_thresh {
            task.writes = true;
            return Verdict::Write {
                pages: task.charged.max(1),
            };
        }
        self.sleep(task)
    }

    fn sleep(&self, task: &mut State) -> Verdict {
        let pause = task.pause;
        task.pause = (pause * 2).min(MAX_PAUSE);
        task.writes = false;
        Verdict::Pause(pause)
    }
}

impl Policy for Vanilla {
    fn dirtied(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict {
        let (class, here) = (task.class(), self.shared.cpu(task.cpu()));
        task.with_state(|task: &mut State| {
            let dirties = &self.shared.dirties;
            dirties.add(&mut task.share, pages, period(view));
            let limit = self.look_every(view);
            if here.fetch_add(pages, Relaxed).saturating_add(pages) < limit {
                return Verdict::Go;
            }
            here.store(0, Relaxed);
            let count = pages.max(Self::ratelimit(view));
            task.charged = count.saturating_add(count / 2);
            task.pause = self.clock.time(1);
            self.balance(view, class, task)
        })
    }

    fn resumed(&self, view: &View<'_>, task: &mut Task, written: u64) -> Verdict {
        let class = task.class();
        task.with_state(|task: &mut State| {
            if !task.writes {
                return self.balance(view, class, task);
            }
            task.charged = task.charged.saturating_sub(written);
            match task.charged {
                0 => Verdict::Go,
                _ => self.sleep(task),
            }
        })
    }

    fn completed(&self, view: &View<'_>, pages: u64, outcome: Outcome) {
        if outcome == Outcome::Written {
            let completions = &self.shared.completions;
            completions.add(&mut self.completed.lock(), pages, period(view));
        }
    }

    fn allowance(&self, view: &View<'_>, task: &Task) -> u64 {
        let here = self.shared.cpu(task.cpu()).load(Relaxed);
        self.look_every(view).saturating_sub(here)
    }

    fn over_background(&self, view: &View<'_>) -> bool {
        view.domain.nr_dirty() > view.domain.background()
    }

    fn chunk(&self, _: &View<'_>) -> Chunk {
        Chunk {
            file: ROUND,
            round: ROUND,
        }
    }

    fn bandwidth(&self) -> u64 {
        BANDWIDTH_START
    }
}
