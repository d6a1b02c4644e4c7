//! How long a sleeping thread takes to wake up. A mount's daemon sleeps until a request arrives, so
//! this time is part of every request. It is long where halted processors wake slowly.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::Finding;

/// Round trips that are timed.
const ROUNDS: usize = 200;
/// The sleep before each of them, so that the processor of the other thread halts.
const PAUSE: Duration = Duration::from_micros(200);
/// A median above this makes small requests several times slower than on a machine that wakes fast.
const SLOW: Duration = Duration::from_micros(25);

/// Times the wake-ups of a thread.
pub fn check() -> Finding {
    match median() {
        Some(time) => judged(time),
        None => Finding::note(
            "wake-up",
            "could not be measured: no thread can be started",
            "raise the limit of threads (`ulimit -u`)",
        ),
    }
}

fn judged(time: Duration) -> Finding {
    let micros = time.as_nanos() as f64 / 1000.0;
    let text = format!("a sleeping thread wakes up in {micros:.1} µs (median of {ROUNDS})");
    match time > SLOW {
        false => Finding::ok("wake-up", text),
        true => Finding::note(
            "wake-up",
            text,
            "requests of small files wait for that; as root `cpupower idle-set -D 10`, or in a \
             virtual machine the cpuidle governor haltpoll",
        ),
    }
}

/// Half the median time of a round trip between two threads.
fn median() -> Option<Duration> {
    let (ask, asked) = mpsc::sync_channel::<()>(0);
    let (answer, answered) = mpsc::sync_channel::<()>(0);
    let named = thread::Builder::new().name("uext4-wakeup".to_owned());
    let other = named.spawn(
        move || {
            while asked.recv().is_ok() && answer.send(()).is_ok() {}
        },
    );
    let other = other.ok()?;
    let mut times: Vec<Duration> = (0..ROUNDS)
        .filter_map(|_| {
            thread::sleep(PAUSE);
            let begun = Instant::now();
            ask.send(()).ok()?;
            answered.recv().ok()?;
            Some(begun.elapsed() / 2)
        })
        .collect();
    drop(ask);
    // A thread that panicked has answered no more; the times until then count.
    _ = other.join();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn slow_wake_ups_are_a_note() {
        assert_eq!(judged(Duration::from_micros(5)).state, State::Ok);
        assert_eq!(judged(Duration::from_micros(50)).state, State::Note);
    }

    #[test]
    fn a_wake_up_takes_some_time() {
        assert!(median().unwrap() > Duration::ZERO);
    }
}
