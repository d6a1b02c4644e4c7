//! What all writers of a device together may dirty a second.
//!
//! ```text
//! e = 2·(setpoint − dirty) / (limit − freerun)         of the device's part or of all: the smaller
//! R = bandwidth · clamp(1 + kp·e + I, 0, 2)            I += ki·e·Δt, held where R is at an end
//! ```
//!
//! Dirty pages integrate R − bandwidth, and writers act on a new R only after their pauses. With
//! a = 2·bandwidth / (limit − freerun), kp = 0.3 / (a · delay), at most 1.5, keeps the loop far from
//! swinging whatever device and memory are, and ki = a·kp²/4 is critical damping.
//!
//! The setpoint is half way from freerun to the limit. Where the device writes that in less than 200 ms
//! it is up to 4/5 of the way: credits hold the limit anyway, and the more is dirty the longer are the
//! runs that a seeking device gets.
//!
//! Bandwidth is what was completed in the last eight steps in which the device had something to do,
//! without the best and the worst of them: something was under writeback, or should have been, at both
//! ends. A step in which nothing was completed counts as nothing: a flusher that is stuck has no
//! capacity.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::throttle::View;
use crate::throttle::bdi::{BANDWIDTH_START, nanos};

const STEP: Duration = Duration::from_millis(50);
const STEPS: usize = 8;
/// A step that took longer was no step: nobody was there to take it.
const STEP_MAX: Duration = Duration::from_secs(1);
const KP_MAX: f64 = 1.5;
/// Where between freerun and limit the setpoint lies, and how much higher where memory is small.
const PLACE: f64 = 0.5;
const PLACE_MORE: f64 = 0.3;
/// Seconds of writing from the setpoint to the limit from which on memory is not small.
const ROOM: f64 = 0.2;

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

#[derive(Debug)]
struct State {
    at: Duration,
    written: u64,
    /// The device had something to do at the end of the last step.
    was_busy: bool,
    /// Pages a second in the last busy steps.
    steps: [f64; STEPS],
    /// How many of these there were ever.
    count: usize,
    integral: f64,
}

impl State {
    fn bandwidth(&self, failing: bool) -> f64 {
        let known = &self.steps[..self.count.min(STEPS)];
        match known.len() {
            // Queues fill first: the best of the first few is the nearest, if there is any.
            0..STEPS => match known.iter().copied().fold(0.0, f64::max) {
                0.0 if failing => 0.0,
                0.0 => BANDWIDTH_START as f64,
                best => best,
            },
            _ => {
                let low = known.iter().copied().fold(f64::MAX, f64::min);
                let high = known.iter().copied().fold(0.0, f64::max);
                let sum: f64 = known.iter().sum();
                (sum - low - high) / (STEPS - 2) as f64
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
                was_busy: false,
                steps: [0.0; STEPS],
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

    /// Writeback ended, well or not: nothing is expected of a device that has only failed.
    pub(super) fn ended(&self, ok: bool) {
        if self.failing.load(Relaxed) == ok {
            self.failing.store(!ok, Relaxed);
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

    /// One step, if nobody else takes it; `pause` is the writers' delay.
    pub(super) fn step(&self, view: &View<'_>, pause: Duration) {
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        let elapsed = view.now.saturating_sub(state.at);
        if elapsed < STEP {
            return;
        }
        self.stepped.store(nanos(view.now), Relaxed);
        let written = view.bdi.written.load(Relaxed);
        let fresh = written.saturating_sub(state.written) as f64 / elapsed.as_secs_f64();
        let is_busy = view.bdi.writeback.load(Relaxed) > 0
            || (view.bdi.reclaimable() > 0 && view.domain.nr_dirty() > view.domain.background());
        if is_busy && state.was_busy && elapsed < STEP_MAX {
            let slot = state.count % STEPS;
            state.steps[slot] = fresh;
            state.count += 1;
        }
        state.at = view.now;
        state.written = written;
        state.was_busy = is_busy;
        let bandwidth = state.bandwidth(self.failing.load(Relaxed));
        let rate = bandwidth * self.factor(view, &mut state, elapsed.min(STEP_MAX), pause);
        self.bandwidth.store(bandwidth.to_bits(), Relaxed);
        view.bdi.bandwidth.store((bandwidth as u64).max(1), Relaxed);
        self.rate.store(rate.to_bits(), Relaxed);
    }

    fn factor(&self, view: &View<'_>, state: &mut State, step: Duration, pause: Duration) -> f64 {
        let domain = view.domain;
        let (limit, freerun) = (domain.thresh(), domain.freerun());
        let least = limit.saturating_sub(domain.unwritten()) / 8;
        let part = view.bdi.part_of(limit, view.now).max(least).max(2) as f64;
        let (limit, freerun) = (limit as f64, freerun as f64);
        let bandwidth = state.bandwidth(self.failing.load(Relaxed));
        let span = (part * (limit - freerun) / (2.0 * limit)).max(1.0);
        let room = span / bandwidth;
        self.room.store((room * 1e9).min(1e15) as u64, Relaxed);
        let place = PLACE + PLACE_MORE * (1.0 - room / ROOM).max(0.0);
        let setpoint = freerun + place * (limit - freerun);
        let error = (setpoint * part / limit - view.bdi.unwritten() as f64) / span;
        // Where another device holds more than its part, there is less for this one.
        let all = (setpoint - domain.unwritten() as f64) * 2.0 / (limit - freerun).max(1.0);
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
