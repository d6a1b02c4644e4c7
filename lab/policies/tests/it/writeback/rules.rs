//! Single rules of the designs, with the numbers of their sources; and devices that fail, with
//! every design.

use std::sync::Arc;
use std::time::Duration;

use uext4_lab_policies::writeback::{Hz, Mode};
use uext4_writeback::throttle::{Bdi, Class, Domain, Outcome, Task, Tunables, Verdict};

const MEMORY: u64 = 4 << 30;
/// Of 4 GiB: 20 %, half way between 10 and 20 %.
const THRESH: u64 = 209_715;
const FREERUN: u64 = 157_286;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn device(mode: Mode, set: &str) -> (Arc<Domain>, Arc<Bdi>) {
    let tunables: Tunables = set.parse().expect("in range");
    let domain = mode.domain(&tunables, MEMORY, 8).expect("in range");
    let bdi = Bdi::new(&domain, &tunables).expect("in range");
    (domain, bdi)
}

/// Dirties so many pages without asking, in the name of another thread.
fn fill(bdi: &Bdi, pages: u64, now: Duration) {
    let mut other = Task::new(Class::Normal, 7);
    let _ = bdi.dirtied(&mut other, pages, now);
}

/// Makes the device the one that completes everything.
fn complete(bdi: &Bdi, pages: u64, now: Duration) {
    bdi.writeback_started(pages, now);
    bdi.completed(pages, Outcome::Written, now);
}

#[test]
fn vanilla_writes_half_as_much_again_then_sleeps_twice_as_long() {
    let (_, bdi) = device(Mode::Vanilla, "");
    let mut task = Task::new(Class::Normal, 0);
    fill(&bdi, FREERUN, Duration::ZERO);
    assert_eq!(bdi.allowance(&task, Duration::ZERO), 1024);
    let verdict = bdi.dirtied(&mut task, 1024, Duration::ZERO);
    assert_eq!(verdict, Verdict::Write { pages: 1536 });
    // All of it written: it goes on, and looks after 8 pages as long as the device is over.
    assert_eq!(bdi.resumed(&mut task, 1536, Duration::ZERO), Verdict::Go);
    assert_eq!(bdi.allowance(&task, Duration::ZERO), 8);
    // Nothing there to write: 1, 2, 4 … 100 ms.
    let verdict = bdi.dirtied(&mut task, 8, Duration::ZERO);
    assert_eq!(verdict, Verdict::Write { pages: 1536 });
    bdi.writeback_started(bdi.reclaimable(), Duration::ZERO);
    let mut verdict = bdi.resumed(&mut task, 0, Duration::ZERO);
    for pause in [1, 2, 4, 8, 16, 32, 64, 100, 100] {
        assert_eq!(verdict, Verdict::Pause(ms(pause)));
        verdict = bdi.resumed(&mut task, 0, Duration::ZERO);
    }
}

#[test]
fn ioless_gives_eight_times_the_bandwidth_at_freerun_to_light_writers_and_six_to_heavy_ones() {
    // The bandwidth is taken to be 25600 pages a second before anything is known.
    for (light, times) in [(true, 8), (false, 6)] {
        let (domain, bdi) = device(Mode::IolessFixed, "");
        for _ in 0..40 {
            // Another thread dirtied it all if the writer is to be light.
            fill(&bdi, 32_768, Duration::ZERO);
            complete(&bdi, 32_768, Duration::ZERO);
        }
        let mut task = Task::new(Class::Normal, 0);
        let pages = 10_000;
        if !light {
            for _ in 0..200 {
                let _ = bdi.dirtied(&mut task, 100_000, Duration::ZERO);
                bdi.cleaned(100_000, Duration::ZERO);
            }
        }
        fill(&bdi, FREERUN + 1 - pages, Duration::ZERO);
        let Verdict::Pause(pause) = bdi.dirtied(&mut task, pages, Duration::ZERO) else {
            panic!("not throttled at {} pages", domain.unwritten());
        };
        let rate = pages as f64 / pause.as_secs_f64() / 25_600.0;
        assert!(
            (rate - f64::from(times)).abs() < 0.7,
            "{rate} times, not {times}"
        );
    }
}

#[test]
fn ioless_sleeps_longest_above_its_part_of_the_limit() {
    for mode in [Mode::Ioless, Mode::IolessFixed] {
        let (_, bdi) = device(mode, "");
        let mut task = Task::new(Class::Normal, 0);
        // Nothing was completed yet, so the device has no part of the limit.
        fill(&bdi, FREERUN, Duration::ZERO);
        let verdict = bdi.dirtied(&mut task, 1024, Duration::ZERO);
        assert_eq!(verdict, Verdict::Pause(ms(100)), "{mode}");
    }
}

#[test]
fn mainline_stops_every_writer_above_the_limit() {
    let (domain, bdi) = device(Mode::Mainline, "");
    let mut task = Task::new(Class::Normal, 0);
    fill(&bdi, THRESH, Duration::ZERO);
    let mut verdict = bdi.dirtied(&mut task, 64, Duration::ZERO);
    for _ in 0..5 {
        assert_eq!(verdict, Verdict::Pause(ms(200)));
        verdict = bdi.resumed(&mut task, 0, Duration::ZERO);
    }
    // A real-time writer has a quarter more, and a 32nd.
    let mut task = Task::new(Class::RealTime, 0);
    assert_ne!(
        bdi.dirtied(&mut task, 64, Duration::ZERO),
        Verdict::Pause(ms(200))
    );
    assert_eq!(domain.unwritten(), THRESH + 128);
}

#[test]
fn mainline_pauses_for_what_was_dirtied_less_what_was_thought() {
    let (_, bdi) = device(Mode::Mainline, "");
    complete(&bdi, 1, ms(1));
    let mut task = Task::new(Class::Normal, 0);
    // At the setpoint the ratio is 1 and each may have the base rate, 25600 pages a second.
    fill(&bdi, 183_500 - 2560, ms(1));
    assert_eq!(bdi.dirtied(&mut task, 2560, ms(1)), Verdict::Pause(ms(100)));
    assert_eq!(bdi.resumed(&mut task, 0, ms(101)), Verdict::Go);
    bdi.cleaned(2560, ms(101));
    // 60 of the next 100 ms are spent thinking.
    assert_eq!(
        bdi.dirtied(&mut task, 2560, ms(161)),
        Verdict::Pause(ms(40))
    );
}

#[test]
fn a_device_that_gets_nowhere_fails_its_writers_and_no_others() {
    for mode in Mode::ALL {
        let tunables: Tunables = "wb_stall_ms=30000".parse().expect("in range");
        let domain = mode.domain(&tunables, MEMORY, 8).expect("in range");
        let dead = Bdi::new(&domain, &tunables).expect("in range");
        let alive = Bdi::new(&domain, &tunables).expect("in range");
        let mut task = Task::new(Class::Normal, 0);
        fill(&dead, THRESH, ms(0));
        dead.writeback_started(1000, ms(0));
        complete(&alive, 100, ms(29_000));
        let mut now = ms(1);
        let mut verdict = dead.dirtied(&mut task, 2048, now);
        while verdict != Verdict::Failed {
            assert!(now <= ms(30_000), "{mode} goes on at {now:?}");
            let pause = match verdict {
                Verdict::Pause(pause) | Verdict::Await { at_most: pause } => pause,
                Verdict::Write { .. } | Verdict::Go | Verdict::Failed => ms(50),
            };
            now += pause.max(Duration::from_micros(1));
            verdict = dead.resumed(&mut task, 0, now);
            if verdict == Verdict::Go {
                verdict = dead.dirtied(&mut task, 2048, now);
            }
        }
        let mut other = Task::new(Class::Normal, 1);
        assert_ne!(alive.dirtied(&mut other, 1, now), Verdict::Failed, "{mode}");
    }
}

#[test]
fn kernels_pause_for_whole_ticks() {
    let kernels = [
        Mode::Vanilla,
        Mode::Ioless,
        Mode::IolessFixed,
        Mode::Mainline,
    ];
    for mode in kernels {
        for hz in [Hz::H100, Hz::H250, Hz::H1000] {
            let domain = mode.domain_at(hz, &Tunables::default(), MEMORY, 8);
            let domain = domain.expect("in range");
            let bdi = Bdi::new(&domain, &Tunables::default()).expect("in range");
            fill(&bdi, THRESH, ms(1));
            // Nothing is left to write, so that vanilla sleeps, too.
            bdi.writeback_started(THRESH, ms(1));
            let mut task = Task::new(Class::Normal, 0);
            let mut verdict = bdi.dirtied(&mut task, 2048, ms(1));
            if let Verdict::Write { .. } = verdict {
                verdict = bdi.resumed(&mut task, 0, ms(1));
            }
            let Verdict::Pause(pause) = verdict else {
                panic!("{mode} at {hz:?}: {verdict:?}");
            };
            let tick = u128::from(hz.tick_nanos());
            assert_eq!(pause.as_nanos() % tick, 0, "{mode} at {hz:?}: {pause:?}");
            assert!(pause.as_nanos() >= tick, "{mode} at {hz:?}: {pause:?}");
        }
    }
}

#[test]
fn ticks_are_spelled_as_numbers() {
    assert_eq!("250".parse(), Ok(Hz::H250));
    let unknown = "300".parse::<Hz>().expect_err("no such ticks");
    assert!(unknown.to_string().contains("300"), "{unknown}");
}
