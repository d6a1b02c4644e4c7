//! What all writers of a device together may dirty a second.
//!
//! ```text
//! e = 2·(setpoint − dirty) / (ceiling − freerun)       of the device's part or of all: the smaller
//! R = bandwidth · clamp(1 + kp·e + I, 0, 2)            I += ki·e·Δt, held where R is at an end
//! ```
//!
//! Dirty pages integrate R − bandwidth, and writers act on a new R only after their pauses. Let a
//! be 2·bandwidth / (ceiling − freerun): kp = 0.3 / (a · delay), at most 1.5, keeps the loop far
//! from swinging whatever device and memory are, and ki = a·kp²/4 is critical damping.
//!
//! The ceiling is the limit, or what credits allow the device where some are left to others. The
//! setpoint is half way from freerun to it. Where the device writes that in less than 200 ms it is
//! higher, 4/5 of the way from 100 ms down: credits hold the limit anyway, and the more is dirty
//! the longer are the runs that a seeking device gets.
//!
//! Bandwidth is what was completed in a second in which something was under writeback, or should
//! have been, for there was more than the background limit, over the last eight samples without the
//! best and the worst. A sample ends with the first step (50 ms) in which something was completed,
//! so that it is as long as a completion takes, however coarse these are: a flusher that writes 8
//! MiB at once to a slow device completes nothing for seconds. A sample in which the device was
//! idle for most of the time says nothing about it. Time that goes on without a completion counts
//! as samples of nothing, as many as it has of the longest's length: a flusher that is stuck has no
//! capacity.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::throttle::{BANDWIDTH_START, Outcome, View, nanos};

const STEP: Duration = Duration::from_millis(50);
const SAMPLES: usize = 8;
/// What a step without a completion counts for at most.
const STEP_MAX: Duration = Duration::from_secs(1);
const KP_MAX: f64 = 1.5;
/// Where between freerun and limit the setpoint lies, and how much higher where memory is small.
const PLACE: f64 = 0.5;
const PLACE_MORE: f64 = 0.3;
/// Seconds of writing from the setpoint to the limit: memory is small up to the first, and not
/// small from the second on.
const ROOM: (f64, f64) = (0.1, 0.2);

#[derive(Debug)]
pub(super) struct Controller {
    /// Nanoseconds of the last step.
    stepped: AtomicU64,
    /// Pages a second, as bits.
    rate: AtomicU64,
    bandwidth: AtomicU64,
    /// What ended last could not be written.
    failing: AtomicBool,
    /// Nanoseconds in which the device writes what lies between setpoint and limit.
    room: AtomicU64,
    state: Mutex<State>,
}

/// What was completed, and in which time.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Pages.
    pages: u64,
    /// Seconds in which something was under writeback.
    busy: f64,
    /// Seconds.
    all: f64,
}

impl Sample {
    fn rate(&self) -> f64 {
        self.pages as f64 / self.busy.max(1e-6)
    }

    fn plus(self, other: &Self) -> Self {
        Self {
            pages: self.pages.saturating_add(other.pages),
            busy: self.busy + other.busy,
            all: self.all + other.all,
        }
    }
}

#[derive(Debug)]
struct State {
    at: Duration,
    written: u64,
    /// How long something was under writeback, at the last step.
    busy: Duration,
    /// There was something that should have been under writeback then.
    had_work: bool,
    /// The sample that goes on.
    open: Sample,
    samples: [Sample; SAMPLES],
    /// How many of these there were ever.
    count: usize,
    integral: f64,
}

impl State {
    /// Counts what happened since the last step.
    fn sample(&mut self, view: &View<'_>, elapsed: Duration) {
        let written = view.bdi.nr_written();
        let pages = written.saturating_sub(self.written);
        let total = view.bdi.busy(view.now);
        let (mut busy, mut all) = (total.saturating_sub(self.busy).min(elapsed), elapsed);
        (self.at, self.written, self.busy) = (view.now, written, total);
        let has_work =
            view.bdi.reclaimable() > 0 && view.domain.nr_dirty() > view.domain.background();
        if std::mem::replace(&mut self.had_work, has_work) && has_work {
            busy = elapsed;
        }
        if pages == 0 {
            // No thread was there to look, nor was perhaps the device.
            (busy, all) = (busy.min(STEP_MAX), all.min(STEP_MAX));
        }
        if pages == 0 && busy.is_zero() {
            self.open = Sample::default();
            return;
        }
        self.open = self.open.plus(&Sample {
            pages,
            busy: busy.as_secs_f64(),
            all: all.as_secs_f64(),
        });
        if pages == 0 {
            return;
        }
        let closed = std::mem::take(&mut self.open);
        if closed.busy * 2.0 >= closed.all {
            self.samples[self.count % SAMPLES] = closed;
            self.count += 1;
        }
    }

    /// The same where nothing was completed for the time of so many samples, at least one: they
    /// take the place of the oldest.
    fn bandwidth_stuck(&self, stuck: usize) -> f64 {
        let left = SAMPLES.saturating_sub(stuck).min(self.count);
        let newest = (0..left).map(|back| &self.samples[(self.count - 1 - back) % SAMPLES]);
        let sum = newest.fold(self.open, |sum, sample| sum.plus(sample));
        sum.rate()
    }

    fn bandwidth(&self, failing: bool) -> f64 {
        let known = &self.samples[..self.count.min(SAMPLES)];
        let longest = known.iter().map(|sample| sample.busy).fold(0.0, f64::max);
        // OK to truncate: whole samples without a page.
        let stuck = (self.open.busy / longest.max(1e-3)) as usize;
        if stuck > 0 && !known.is_empty() {
            return self.bandwidth_stuck(stuck).max(1.0);
        }
        match known {
            [] if failing => 0.0,
            [] => BANDWIDTH_START as f64,
            [only] => only.rate(),
            known if known.len() < SAMPLES => {
                // Queues fill first: the best of the first few is the nearest. Two by two, for
                // completions of several flushers may come close together.
                let pairs = known.windows(2).map(|two| two[0].plus(&two[1]));
                pairs.map(|pair| pair.rate()).fold(0.0, f64::max)
            }
            _ => {
                let mut sorted = self.samples;
                sorted.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
                let middle = &sorted[1..SAMPLES - 1];
                middle
                    .iter()
                    .fold(Sample::default(), |sum, sample| sum.plus(sample))
                    .rate()
            }
        }
        .max(1.0)
    }
}

impl Controller {
    pub(super) fn new() -> Self {
        let start = (BANDWIDTH_START as f64).to_bits();
        Self {
            stepped: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            rate: AtomicU64::new(start),
            bandwidth: AtomicU64::new(start),
            room: AtomicU64::new(nanos(Duration::from_secs(1))),
            state: Mutex::new(State {
                at: Duration::ZERO,
                written: 0,
                busy: Duration::ZERO,
                had_work: false,
                open: Sample::default(),
                samples: [Sample::default(); SAMPLES],
                count: 0,
                integral: 0.0,
            }),
        }
    }

    /// Pages a second all writers may dirty, at least 1.
    pub(super) fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Relaxed)).max(1.0)
    }

    /// Pages a second the device writes, at least 1.
    pub(super) fn bandwidth(&self) -> f64 {
        f64::from_bits(self.bandwidth.load(Relaxed)).max(1.0)
    }

    /// Writeback ended: nothing is expected of a device that has only failed.
    pub(super) fn ended(&self, outcome: Outcome) {
        let is_failing = outcome == Outcome::Failed;
        if self.failing.load(Relaxed) != is_failing {
            self.failing.store(is_failing, Relaxed);
        }
    }

    /// How long the device writes at what lies between its setpoint and its limit.
    pub(super) fn room(&self) -> Duration {
        Duration::from_nanos(self.room.load(Relaxed))
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        let last = Duration::from_nanos(self.stepped.load(Relaxed));
        now.saturating_sub(last) >= STEP
    }

    /// One step, if no other thread takes it; `pause` is the writers' delay, `ceiling` the most
    /// pages that this device can bring the sum of all to.
    pub(super) fn step(&self, view: &View<'_>, pause: Duration, ceiling: u64) {
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        let elapsed = view.now.saturating_sub(state.at);
        if elapsed < STEP {
            return;
        }
        self.stepped.store(nanos(view.now), Relaxed);
        state.sample(view, elapsed);
        let bandwidth = state.bandwidth(self.failing.load(Relaxed));
        let elapsed = elapsed.min(STEP_MAX);
        let rate = bandwidth * self.factor(view, &mut state, elapsed, pause, ceiling);
        self.bandwidth.store(bandwidth.to_bits(), Relaxed);
        self.rate.store(rate.to_bits(), Relaxed);
    }

    fn factor(
        &self,
        view: &View<'_>,
        state: &mut State,
        step: Duration,
        pause: Duration,
        ceiling: u64,
    ) -> f64 {
        let domain = view.domain;
        let limit = domain.thresh();
        let least = limit.saturating_sub(domain.unwritten()) / 8;
        let part = view.bdi.part_of(limit, view.now).max(least).max(2);
        // What others hold that they do not write is not for this one to wait for: what is left
        // above it is its range, even where that begins above freerun.
        let others = domain.unwritten().saturating_sub(view.bdi.unwritten());
        let stuck = others.saturating_sub(limit.saturating_sub(part));
        let freerun = domain.freerun().max(stuck).min(ceiling);
        let share = part as f64 / limit.max(1) as f64;
        let (ceiling, freerun) = (ceiling as f64, freerun as f64);
        let bandwidth = state.bandwidth(self.failing.load(Relaxed));
        let span = (share * (ceiling - freerun) / 2.0).max(1.0);
        let room = span / bandwidth;
        self.room.store((room * 1e9).min(1e15) as u64, Relaxed);
        let small = (ROOM.1 - room) / (ROOM.1 - ROOM.0);
        let place = PLACE_MORE.mul_add(small.clamp(0.0, 1.0), PLACE);
        let setpoint = freerun + place * (ceiling - freerun);
        let error = (setpoint * share - view.bdi.unwritten() as f64) / span;
        // Where another device holds more than its part, there is less for this one.
        let all = (setpoint - domain.unwritten() as f64) * 2.0 / (ceiling - freerun).max(1.0);
        let error = error.min(all).clamp(-4.0, 4.0);
        let speed = bandwidth / span;
        let delay = (pause + STEP).as_secs_f64();
        let kp = (0.3 / (speed * delay)).min(KP_MAX);
        let ki = speed * kp * kp / 4.0;
        let free = kp.mul_add(error, 1.0) + state.integral;
        let outward = (free >= 2.0 && error > 0.0) || (free <= 0.0 && error < 0.0);
        if domain.unwritten() as f64 <= freerun {
            state.integral *= 0.9;
        } else if !outward {
            state.integral += ki.min(1.0) * error.clamp(-1.0, 1.0) * step.as_secs_f64();
            state.integral = state.integral.clamp(-0.5, 0.5);
        }
        (kp * error + 1.0 + state.integral).clamp(0.0, 2.0)
    }
}
