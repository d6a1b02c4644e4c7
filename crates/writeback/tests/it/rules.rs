//! Single rules of the policies, with the numbers of their sources.

use std::sync::Arc;
use std::time::Duration;

use uext4_writeback::throttle::{Bdi, Class, Domain, Mode, Task, Tunables, Verdict};

const MEMORY: u64 = 4 << 30;
/// Of 4 GiB: 20 %, half way between 10 and 20 %.
const THRESH: u64 = 209_715;
const FREERUN: u64 = 157_286;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn device(mode: Mode, set: &str) -> (Arc<Domain>, Arc<Bdi>) {
    let tunables: Tunables = set.parse().expect("in range");
    let domain = Domain::new(mode, &tunables, MEMORY, 8).expect("in range");
    let bdi = Bdi::new(&domain, &tunables).expect("in range");
    (domain, bdi)
}

/// Dirties so many pages without asking, in the name of somebody else.
fn fill(bdi: &Bdi, pages: u64, now: Duration) {
    let mut other = Task::new(Class::Normal, 7);
    let _ = bdi.dirtied(&mut other, pages, now);
}

/// Makes the device the one that completes everything.
fn complete(bdi: &Bdi, pages: u64, now: Duration) {
    bdi.writeback_started(pages, now);
    bdi.completed(pages, true, now);
}

#[test]
fn limits_of_four_gibibytes() {
    let (domain, _) = device(Mode::Vanilla, "");
    assert_eq!((domain.thresh(), domain.background()), (THRESH, 104_857));
    assert_eq!(domain.freerun(), FREERUN);
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
            // Somebody else dirtied it all if the writer is to be light.
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
fn mainline_lets_nobody_go_on_above_the_limit() {
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
fn credits_end_at_the_limit_and_come_back_with_completions() {
    let (domain, bdi) = device(Mode::CellRate, "");
    let mut tasks: Vec<_> = (0..1000).map(|i| Task::new(Class::Normal, i)).collect();
    let mut refused = 0;
    // All at once, heedless of any pause.
    for round in 0..40 {
        for task in &mut tasks {
            match bdi.admit(task, 16, ms(round)) {
                Verdict::Go => {
                    let _ = bdi.dirtied(task, 16, ms(round));
                }
                Verdict::Await { at_most } => {
                    assert!(at_most >= ms(1) && at_most <= ms(200));
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
            assert!(domain.unwritten() <= THRESH);
        }
    }
    assert!(refused > 0);
    // Normal writers leave a 64th to real-time ones.
    assert!(domain.unwritten() > THRESH - THRESH / 64 - 64);
    let mut urgent = Task::new(Class::RealTime, 3);
    assert_eq!(bdi.admit(&mut urgent, 256, ms(40)), Verdict::Go);
    let _ = bdi.dirtied(&mut urgent, 256, ms(40));
    // What is written can be dirtied again; what was refused once is not lost.
    complete(&bdi, 5000, ms(41));
    assert_eq!(bdi.admit(&mut tasks[0], 16, ms(42)), Verdict::Go);
}

#[test]
fn cell_rate_aims_at_two_hundred_wake_ups_a_second() {
    for (writers, pause) in [(1, 10), (10, 50), (40, 200), (400, 200)] {
        let (_, bdi) = device(Mode::CellRate, "");
        fill(&bdi, FREERUN, ms(1));
        let mut tasks: Vec<_> = (0..writers).map(|i| Task::new(Class::Normal, i)).collect();
        // The first look tells it how many there are.
        for task in &mut tasks {
            let _ = bdi.dirtied(task, 1, ms(1));
        }
        let task = &mut tasks[0];
        let mut verdict = Verdict::Go;
        while verdict == Verdict::Go {
            let pages = bdi.allowance(task, ms(2)).min(16);
            verdict = bdi.dirtied(task, pages, ms(2));
        }
        let Verdict::Pause(slept) = verdict else {
            panic!("{verdict:?}");
        };
        let off = slept.as_secs_f64() / ms(pause).as_secs_f64();
        assert!((0.7..=1.3).contains(&off), "{writers} writers: {slept:?}");
    }
}

#[test]
fn a_device_that_gets_nowhere_fails_its_writers_and_no_others() {
    for mode in Mode::ALL {
        let tunables: Tunables = "wb_stall_ms=30000".parse().expect("in range");
        let domain = Domain::new(mode, &tunables, MEMORY, 8).expect("in range");
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
fn a_device_marked_dead_fails_whoever_would_wait() {
    for mode in Mode::ALL {
        let (_, bdi) = device(mode, "");
        fill(&bdi, THRESH, ms(0));
        bdi.mark_dead();
        let mut task = Task::new(Class::Normal, 0);
        assert_eq!(
            bdi.dirtied(&mut task, 4096, ms(1)),
            Verdict::Failed,
            "{mode}"
        );
    }
}

#[test]
fn min_ratios_of_devices_are_no_more_than_all() {
    let tunables: Tunables = "min_ratio=60".parse().expect("in range");
    let domain = Domain::new(Mode::Mainline, &tunables, MEMORY, 1).expect("in range");
    let first = Bdi::new(&domain, &tunables).expect("in range");
    let error = Bdi::new(&domain, &tunables).expect_err("120 percent");
    assert_eq!(error.to_string(), "min_ratio = 60 lies outside 0 to 40");
    drop(first);
    let _again = Bdi::new(&domain, &tunables).expect("the first gave its part back");
}

#[test]
fn statistics_have_the_kernels_form() {
    let (_, bdi) = device(Mode::Mainline, "");
    fill(&bdi, 100, ms(0));
    let text = bdi.stats(ms(0)).to_string();
    assert!(
        text.contains("BdiReclaimable:              400 kB\n"),
        "{text}"
    );
    assert!(
        text.contains("DirtyThresh:              838860 kB\n"),
        "{text}"
    );
}

/// A device that never has anything under writeback when somebody looks, and stalls for 3 s.
#[test]
fn cell_rate_learns_the_bandwidth_between_runs_and_again_after_a_stall() {
    let (domain, bdi) = device(Mode::CellRate, "");
    fill(&bdi, 180_000, ms(1));
    let mut task = Task::new(Class::Normal, 0);
    let (mut now, mut verdict) = (ms(1), Verdict::Go);
    let mut run = |millis: u64, pages: u64| {
        let end = now + ms(millis);
        let (mut slept, mut dirtied) = (ms(0), 0);
        while now < end {
            now += ms(5);
            bdi.writeback_started(pages, now);
            bdi.completed(pages, true, now);
            if slept > now {
                continue;
            }
            if verdict != Verdict::Go {
                verdict = bdi.resumed(&mut task, 0, now);
            }
            if verdict == Verdict::Go && domain.unwritten() < 200_000 {
                let count = bdi.allowance(&task, now);
                dirtied += count;
                verdict = bdi.dirtied(&mut task, count, now);
            }
            if let Verdict::Pause(pause) = verdict {
                slept = now + pause;
            }
        }
        dirtied
    };
    // 50 pages each 5 ms: 10,000 a second.
    run(2000, 50);
    let bandwidth = bdi.stats(ms(2001)).write_bandwidth;
    assert!((9_000..=11_000).contains(&bandwidth), "{bandwidth}");
    // Nothing at all: what is dirtied meanwhile is next to nothing.
    run(1000, 0);
    let stalled = run(2000, 0);
    assert!(stalled < 2000, "{stalled}");
    // It writes again: so does the writer, within a second.
    run(1000, 50);
    let again = run(2000, 50);
    assert!(again > 10_000, "{again}");
}
