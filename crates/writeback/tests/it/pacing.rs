//! Writers are paced, in a small world of virtual time.

use std::time::Duration;

use uext4_writeback::throttle::{Bdi, Class, Domain, Outcome, Task, Tunables, Verdict};

/// Pages a device of this test writes in a millisecond.
const SPEED: u64 = 20;

/// A writer without end, and what it waits for.
struct Writer {
    task: Task,
    until: Duration,
    /// It paused after pages became dirty, rather than before.
    owes: bool,
    /// Times it waited for credits.
    awaited: u64,
}

impl Writer {
    fn new(index: usize) -> Self {
        Self {
            task: Task::new(Class::Normal, index),
            until: Duration::ZERO,
            owes: false,
            awaited: 0,
        }
    }

    /// Does what it may do now.
    fn run(&mut self, bdi: &Bdi, now: Duration) {
        if self.owes {
            self.owes = false;
            let verdict = bdi.resumed(&mut self.task, 0, now);
            self.obey(verdict, now);
        }
        // Few steps a millisecond, as a processor would make.
        for _ in 0..8 {
            if self.until > now {
                break;
            }
            let pages = bdi.allowance(&self.task, now);
            if let Verdict::Await { at_most } = bdi.admit(&mut self.task, pages, now) {
                self.awaited += 1;
                self.until = now + at_most;
                break;
            }
            let verdict = bdi.dirtied(&mut self.task, pages, now);
            self.obey(verdict, now);
        }
    }

    fn obey(&mut self, verdict: Verdict, now: Duration) {
        match verdict {
            Verdict::Go => {}
            Verdict::Pause(pause) => {
                self.until = now + pause;
                self.owes = true;
            }
            other => panic!("after pages became dirty: {other:?}"),
        }
    }
}

/// Memory so small that the setpoint is as high as it gets, and a device that others could use
/// but do not: credits end below the limit then, and writers must be paced all the same.
#[test]
fn writers_are_paced_next_to_an_idle_device_in_small_memory() {
    let tunables = Tunables::default();
    let domain = Domain::new(&tunables, 320 << 20, 4).expect("in range");
    let [bdi, _idle] = [(); 2].map(|()| Bdi::new(&domain, &tunables).expect("in range"));
    let mut all: Vec<_> = (0..4).map(Writer::new).collect();
    let (mut now, mut in_flight) = (Duration::ZERO, 0);
    let (mut wakes, mut sum, mut awaited) = (0, 0, 0);
    let (begin, steps) = (Duration::from_secs(5), 5000);
    while now < begin + Duration::from_millis(steps) {
        now += Duration::from_millis(1);
        for writer in all.iter_mut().filter(|writer| writer.until <= now) {
            wakes += u64::from(now > begin);
            writer.run(&bdi, now);
        }
        bdi.completed(in_flight, Outcome::Written, now);
        let writes = bdi.over_background(now);
        in_flight = if writes {
            SPEED.min(bdi.reclaimable())
        } else {
            0
        };
        bdi.writeback_started(in_flight, now);
        bdi.tick(now);
        if now == begin {
            awaited = all.iter().map(|writer| writer.awaited).sum();
        } else if now > begin {
            sum += domain.unwritten();
        }
    }
    let waits = all.iter().map(|writer| writer.awaited).sum::<u64>() - awaited;
    assert_eq!(waits, 0, "held by credits, not paced");
    // 200 a second, and a tenth.
    assert!(wakes <= 220 * steps / 1000, "{wakes} in {steps} ms");
    // 15/16 of the 63/64 of the limit that normal writers may have; 4/5 of the way there from
    // freerun.
    let ceiling = domain.thresh() as f64 * (63.0 / 64.0) * (15.0 / 16.0);
    let freerun = domain.freerun() as f64;
    let setpoint = freerun + 0.8 * (ceiling - freerun);
    let off = (sum as f64 / steps as f64 - setpoint) / (ceiling - freerun) * 2.0;
    assert!(off.abs() < 0.2, "error of {off}");
}
