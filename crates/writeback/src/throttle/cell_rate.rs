//! A controller for the device, a cell rate clock for each writer, credits for pages.
//!
//! Source: ours, from what the thread of November 2010 left open: pauses that grow with the number
//! of writers, a bounded number of wake-ups, think time, real-time writers, small memory, dead
//! devices.
//!
//! 1. *Controller* ([`controller`]): every 50 ms a proportional-integral step on the distance of
//!    the device's dirty pages from its setpoint gives R, what all writers together may dirty a
//!    second.
//! 2. *Fair share* ([`active`]): R less what light writers dirty anyway, divided by the weights of
//!    the writers that were paused in the last half second. A writer that comes or ends changes it
//!    at once: nothing has to be learnt from too many or too few dirty pages.
//! 3. *Pacing*: each writer has a generic cell rate clock, as ATM networks police sources, in its
//!    leaky form: what it dirties fills a bucket, which leaks at its rate and may lag a burst
//!    behind. The writer sleeps when it is a whole target pause ahead, until it no longer is.
//!    Thinking lets it lag, so it is paid for once, and by no other thread. The bucket holds
//!    pages, not time: what was dirtied while the device was slow is not waited for at that rate
//!    when it is fast again.
//! 4. *Wake-up budget*: the target pause is a 200th second a writer, 10 to 200 ms:
//!    200 wake-ups a second up to 40 writers, and one each 200 ms for each of more. New writers
//!    start at different points of it, so that those that start together do not stay together.
//! 5. *Credits* ([`super::credits`]): a page becomes dirty only with one, so dirty pages never
//!    exceed the limit, however many writers start at once. A caller that gets none waits its
//!    turn on one more such clock, which spreads those who wait over the time their pages take to
//!    be written.
//! 6. A device may take credits up to its part of the limit, or an eighth of what is free (all of
//!    it, while no thread is throttled): a slow one cannot take the memory of a fast one, even if
//!    it was there first. Where there are others that live it leaves them a sixteenth of what it
//!    finds, whether they write or not: a device that gets nowhere keeps what it has until it is
//!    known to be dead. The controller aims below that, so that writers are paced and do not wait
//!    for credits.
//!
//! Real-time writers have four times the share and a second of burst, and a 64th of the limit is
//! theirs alone; idle ones have a quarter of the share.
//!
//! Left out: the timer wheel that wakes those due within 4 ms with one timer is the caller's, who
//! owns the timers.
//!
//! Without `strict_limit` no writer is throttled below freerun.

mod active;
mod controller;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::credits::Credits;
use super::{
    Chunk, Class, Domain, JIFFY, MAX_PAUSE, Outcome, PAGES_MAX, Policy, Task, Verdict, View, nanos,
};
use active::Active;
use controller::Controller;

/// Wake-ups of writers a second that are aimed at while few write.
const WAKE_BUDGET: f64 = 200.0;
/// The shortest pause that is aimed at where memory does not ask for less.
const MIN_TARGET: Duration = Duration::from_millis(10);
/// How far a real-time writer's clock may lag.
const REALTIME_BURST: Duration = Duration::from_secs(1);
/// Fewest and most pages between two looks while no thread is throttled.
const FREE_PAGES: (u64, u64) = (8, 1024);
/// One part in so many of what a device finds free, and has, is left to other devices.
const LEFT_TO_OTHERS: u64 = 16;
/// Flushers' chunks are multiples of so many pages.
const CHUNK: u64 = 1024;

#[derive(Debug)]
pub(super) struct CellRate {
    controller: Controller,
    active: Active,
    /// Nanoseconds: when credits will be there for all who wait for some, about.
    queue: AtomicU64,
    /// Of the domain.
    credits: Arc<Credits>,
}

/// What a writer may do now.
struct Pace {
    /// Pages a second, above 0.
    rate: f64,
    /// How far ahead of its clock it is when it sleeps.
    target: Duration,
}

fn weight(class: Class) -> f64 {
    match class {
        Class::RealTime => 4.0,
        Class::Normal => 1.0,
        Class::Idle => 0.25,
    }
}

/// Most pages that credits are given for at once, under this limit.
fn admit_max(limit: u64) -> u64 {
    (limit / 16).clamp(1, PAGES_MAX)
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 3600.0))
}

impl CellRate {
    /// The policy of a new device.
    pub(super) fn of(domain: &Domain) -> Box<dyn Policy> {
        Box::new(Self {
            controller: Controller::new(),
            active: Active::default(),
            queue: AtomicU64::new(0),
            credits: domain.shared(|| Credits::new(domain.cpus())),
        })
    }

    /// The pause to aim at for so many writers. Where memory is small next to the device,
    /// shorter: what is written between two pauses must fit between setpoint and limit.
    fn target(&self, writers: f64, memory: Duration) -> Duration {
        let budget = seconds(writers / WAKE_BUDGET).clamp(MIN_TARGET, MAX_PAUSE);
        let memory = memory.as_secs_f64() * writers.max(1.0).sqrt() / 4.0;
        budget.min(seconds(memory)).max(JIFFY)
    }

    fn pace(&self, class: Class) -> Pace {
        let all = self.active.sum();
        // What light writers take must leave something to the others.
        let total = self.controller.rate();
        let left = (total - all.light).max(total / 8.0);
        Pace {
            rate: (left / all.weight.max(0.25) * weight(class)).max(0.1),
            target: self.target(all.writers, self.controller.room()),
        }
    }

    /// How long a writer's bucket may have leaked for nothing.
    fn burst(&self, class: Class) -> Duration {
        match class {
            Class::RealTime => REALTIME_BURST,
            Class::Normal | Class::Idle => MAX_PAUSE,
        }
    }

    fn is_free(view: &View<'_>) -> bool {
        if view.domain.unwritten() > view.domain.freerun() {
            return false;
        }
        !view.bdi.tunables().strict_limit
            || view.bdi.unwritten() <= view.bdi.part_of(view.domain.freerun(), view.now)
    }

    /// Gives back the credits for pages that did not become dirty, or takes those for more that
    /// did.
    fn settle_credits(&self, task: &mut Task, pages: u64) {
        let credits = &self.credits;
        if pages > task.pacing.credits {
            credits.force(pages - task.pacing.credits);
        } else {
            credits.put_back(task.cpu(), task.pacing.credits - pages);
        }
        task.pacing.credits = 0;
    }

    fn update(&self, view: &View<'_>) {
        if self.controller.is_due(view.now) {
            self.active.roll(view.now);
            let pause = self.target(self.active.sum().writers, self.controller.room());
            self.controller.step(view, pause, Self::ceiling(view));
        }
    }

    /// Lets the bucket leak until now.
    fn leak(view: &View<'_>, task: &mut Task, rate: f64, burst: Duration) {
        let elapsed = view.now.saturating_sub(task.pacing.ahead_at).as_secs_f64();
        let least = -burst.as_secs_f64() * rate;
        task.pacing.ahead = (task.pacing.ahead - elapsed * rate).max(least);
        task.pacing.ahead_at = view.now;
    }

    /// Sleeps if the writer is far enough ahead.
    fn wait(&self, view: &View<'_>, task: &mut Task, rate: f64, target: Duration) -> Verdict {
        let ahead = seconds(task.pacing.ahead / rate);
        if ahead < target.max(JIFFY) {
            return Verdict::Go;
        }
        let weight = weight(task.class());
        self.active.paused(&mut task.pacing, weight, view.now);
        Verdict::Pause(ahead.min(MAX_PAUSE))
    }

    /// What normal writers may have out of the limit: a 64th is left to real-time ones.
    fn credit_limit(limit: u64) -> u64 {
        limit - limit / 64
    }

    /// The background limit, if it lies far enough below what credits are given for: who waits for
    /// credits needs flushers that write.
    fn background(view: &View<'_>) -> u64 {
        let credits = Self::credit_limit(view.domain.thresh());
        view.domain
            .background()
            .min(credits / 4 * 3 + credits % 4 / 2)
    }

    /// The most a device may have unwritten: what it has claim to, but for what it leaves to
    /// others.
    fn cap(view: &View<'_>) -> u64 {
        let claim = Self::claim(view);
        if view.domain.devices.load(Relaxed) < 2 {
            return claim;
        }
        let limit = Self::credit_limit(view.domain.thresh());
        let free = limit.saturating_sub(view.domain.unwritten());
        claim.min(free.saturating_mul(LEFT_TO_OTHERS - 1))
    }

    /// What all devices have unwritten when this one reaches its [`CellRate::cap`] and the others
    /// keep what they have: it cannot come closer to the limit, so its setpoint must lie below.
    fn ceiling(view: &View<'_>) -> u64 {
        let limit = view.domain.thresh();
        if view.domain.devices.load(Relaxed) < 2 {
            return limit;
        }
        let credits = Self::credit_limit(limit);
        let others = view
            .domain
            .unwritten()
            .saturating_sub(view.bdi.unwritten())
            .min(credits);
        credits - (credits - others) / LEFT_TO_OTHERS
    }

    /// A device's part of the limit, or of what is free as much again while no thread is
    /// throttled, an eighth else.
    fn claim(view: &View<'_>) -> u64 {
        let (limit, unwritten) = (view.domain.thresh(), view.domain.unwritten());
        if view.bdi.unwritten() >= unwritten && view.bdi.tunables().max_ratio == 100 {
            // The only device may have it all.
            return limit;
        }
        let part = view.bdi.part_of(limit, view.now);
        let free = limit.saturating_sub(unwritten);
        part.max(if Self::is_free(view) { free } else { free / 8 })
    }

    fn queue_for_credits(&self, view: &View<'_>, pages: u64) -> Duration {
        let now = nanos(view.now);
        let takes = nanos(seconds(pages as f64 / self.controller.bandwidth()));
        let horizon = now.saturating_add(nanos(MAX_PAUSE));
        let place = self.queue.load(Relaxed).max(now).saturating_add(takes);
        // Past the longest pause there is no order to keep.
        self.queue.store(place.min(horizon), Relaxed);
        let wait = Duration::from_nanos(place.min(horizon) - now);
        // Not for a page at a time: at the limit the device has work for longer than this.
        let least = self.target(self.active.sum().writers, self.controller.room()) / 2;
        wait.clamp(least.max(JIFFY), MAX_PAUSE)
    }
}

impl Policy for CellRate {
    fn admit(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict {
        let (limit, class) = (view.domain.thresh(), task.class());
        let limit = match class {
            Class::RealTime => limit,
            Class::Normal | Class::Idle => Self::credit_limit(limit),
        };
        // A block larger than all there is for every caller passes when nothing else is dirty.
        let pages = pages.min(limit);
        if pages <= task.pacing.credits {
            return Verdict::Go;
        }
        let wanted = pages - task.pacing.credits;
        // Below a few pages a device always gets on.
        let fits = class == Class::RealTime
            || view.bdi.unwritten().saturating_add(wanted) <= Self::cap(view).max(pages);
        if fits && self.credits.take(task.cpu(), wanted, limit) {
            task.pacing.credits += wanted;
            return Verdict::Go;
        }
        self.update(view);
        Verdict::Await {
            at_most: self.queue_for_credits(view, wanted),
        }
    }

    fn dirtied(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict {
        self.settle_credits(task, pages);
        let class = task.class();
        let is_new = self
            .active
            .wrote(&mut task.pacing, weight(class), pages, view.now);
        self.update(view);
        if Self::is_free(view) {
            (task.pacing.ahead, task.pacing.ahead_at) = (0.0, view.now);
            return Verdict::Go;
        }
        let Pace { rate, mut target } = self.pace(class);
        let burst = self.burst(class);
        Self::leak(view, task, rate, burst);
        if is_new {
            // The golden ratio spreads any number of writers evenly.
            let phase = (task.pacing.number as f64 * 0.618_033_988_749_895).fract();
            let start = match class {
                Class::RealTime => burst,
                Class::Normal | Class::Idle => target.mul_f64(0.5 * phase),
            };
            task.pacing.ahead = -start.as_secs_f64() * rate;
        }
        if class == Class::RealTime {
            target = target.max(MIN_TARGET);
        }
        task.pacing.ahead += pages as f64;
        self.wait(view, task, rate, target)
    }

    fn resumed(&self, view: &View<'_>, task: &mut Task, _: u64) -> Verdict {
        self.update(view);
        if Self::is_free(view) {
            (task.pacing.ahead, task.pacing.ahead_at) = (task.pacing.ahead.min(0.0), view.now);
            return Verdict::Go;
        }
        let class = task.class();
        self.active
            .wrote(&mut task.pacing, weight(class), 0, view.now);
        let Pace { rate, target } = self.pace(class);
        Self::leak(view, task, rate, self.burst(class));
        self.wait(view, task, rate, target / 2)
    }

    fn completed(&self, view: &View<'_>, pages: u64, outcome: Outcome) {
        self.controller.ended(outcome);
        if outcome == Outcome::Written {
            self.credits.put(pages);
        }
        self.update(view);
    }

    fn cleaned(&self, _: &View<'_>, pages: u64) {
        self.credits.put(pages);
    }

    fn tick(&self, view: &View<'_>) {
        self.update(view);
    }

    fn exited(&self, view: &View<'_>, task: &mut Task) {
        self.settle_credits(task, 0);
        let weight = weight(task.class());
        self.active.exited(&mut task.pacing, weight, view.now);
    }

    fn over_background(&self, view: &View<'_>) -> bool {
        let background = Self::background(view);
        view.domain.nr_dirty() > background
            || view.bdi.reclaimable() > view.bdi.part_of(background, view.now)
    }

    fn allowance(&self, view: &View<'_>, task: &Task) -> u64 {
        let most = admit_max(view.domain.thresh());
        if Self::is_free(view) {
            let room = view.domain.freerun() - view.domain.unwritten().min(view.domain.freerun());
            let (few, many) = FREE_PAGES;
            return (room / 16).clamp(few, many).min(most);
        }
        let Pace { rate, target } = self.pace(task.class());
        let elapsed = view.now.saturating_sub(task.pacing.ahead_at).as_secs_f64();
        let ahead = (task.pacing.ahead - elapsed * rate).max(0.0);
        let pages = target.as_secs_f64() * rate - ahead;
        // One more, or rounding would leave it just short of its pause.
        (pages as u64 + 1).min(most)
    }

    fn chunk(&self, view: &View<'_>) -> Chunk {
        let pages = (self.controller.bandwidth() / 2.0) as u64;
        let pages = pages.min(view.domain.thresh() / 8).max(1);
        let file = pages.next_multiple_of(CHUNK);
        Chunk {
            file,
            round: 16 * file,
        }
    }

    fn bandwidth(&self) -> u64 {
        self.controller.bandwidth() as u64
    }

    fn ratelimit(&self) -> u64 {
        self.pace(Class::Normal).rate as u64
    }
}
