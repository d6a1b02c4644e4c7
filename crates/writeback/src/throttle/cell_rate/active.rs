//! Active writers: the weights of those that are paced, and what the others dirty.
//!
//! Time is cut into windows of half a second. A writer is *heavy* in a window if it was paused in
//! it or in the last it wrote in, or is new; else *light*. Sums are those of the window that goes
//! on or of the one before, whichever is larger: a writer counts at once and is forgotten within a
//! second, at once if it says that it ends. A writer takes the lock once a window and once more
//! when it is first paused; it is a leaf.

use std::time::Duration;

use parking_lot::Mutex;

use crate::throttle::pacing::{Activity, Pacing};

const WINDOW: Duration = Duration::from_millis(500);
/// After so many windows without a write nothing is known of a writer's last pause.
const FORGET: u64 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    weight: f64,
    writers: f64,
    light: f64,
}

#[derive(Debug, Default)]
pub(super) struct Active(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    number: u64,
    before: Window,
    current: Window,
    /// Writers ever seen.
    seen: u64,
}

/// The sums.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// Of the heavy writers.
    pub(super) weight: f64,
    /// How many these are.
    pub(super) writers: f64,
    /// Pages a second of the light ones.
    pub(super) light: f64,
}

fn window(now: Duration) -> u64 {
    u64::try_from(now.as_nanos() / WINDOW.as_nanos()).unwrap_or(u64::MAX - 1) + 1
}

impl State {
    fn roll(&mut self, now: Duration) {
        let number = window(now);
        if number > self.number {
            self.before = match number - self.number {
                1 => self.current,
                _ => Window::default(),
            };
            self.current = Window::default();
            self.number = number;
        }
    }

    fn add(&mut self, weight: f64) {
        self.current.weight += weight;
        self.current.writers += 1.0;
    }
}

impl Window {
    fn remove(&mut self, weight: f64) {
        self.weight = (self.weight - weight).max(0.0);
        self.writers = (self.writers - 1.0).max(0.0);
    }
}

impl Active {
    /// Counts what a writer dirtied; whether it is new.
    pub(super) fn wrote(&self, task: &mut Pacing, weight: f64, pages: u64, now: Duration) -> bool {
        let number = window(now);
        let mine = &mut task.activity;
        if mine.window == number && mine.heavy {
            return false;
        }
        let mut state = self.0.lock();
        state.roll(now);
        let number = state.number;
        let is_new = mine.window == 0;
        if mine.window != number {
            let absent = number.saturating_sub(mine.window);
            let heavy = is_new || (mine.paused && absent <= FORGET);
            *mine = Activity {
                window: number,
                heavy,
                heavy_before: mine.heavy && absent == 1,
                paused: false,
            };
            if heavy {
                state.add(weight);
            }
        }
        if !mine.heavy {
            state.current.light += pages as f64;
        }
        if is_new {
            state.seen += 1;
            task.number = state.seen;
        }
        is_new
    }

    /// A writer is paused: it counts as heavy.
    pub(super) fn paused(&self, task: &mut Pacing, weight: f64, now: Duration) {
        let mine = &mut task.activity;
        mine.paused = true;
        if mine.heavy {
            return;
        }
        let mut state = self.0.lock();
        state.roll(now);
        if mine.window == state.number {
            mine.heavy = true;
            state.add(weight);
        }
    }

    /// A writer ends.
    pub(super) fn exited(&self, task: &mut Pacing, weight: f64, now: Duration) {
        let mut state = self.0.lock();
        state.roll(now);
        let mine = task.activity;
        match state.number.saturating_sub(mine.window) {
            0 => {
                if mine.heavy {
                    state.current.remove(weight);
                }
                if mine.heavy_before {
                    state.before.remove(weight);
                }
            }
            1 if mine.heavy => state.before.remove(weight),
            _ => {}
        }
        task.activity = Activity::default();
    }

    /// Begins a new window if it is time.
    pub(super) fn roll(&self, now: Duration) {
        self.0.lock().roll(now);
    }

    pub(super) fn sum(&self) -> Sum {
        let state = self.0.lock();
        let (before, current) = (&state.before, &state.current);
        Sum {
            weight: before.weight.max(current.weight),
            writers: before.writers.max(current.writers),
            light: before.light / WINDOW.as_secs_f64(),
        }
    }
}
