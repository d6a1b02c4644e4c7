//! Single rules of throttling, with their numbers.

use std::sync::Arc;
use std::time::Duration;

use uext4_writeback::throttle::{Bdi, Class, Domain, Outcome, Task, Tunables, Verdict};

const MEMORY: u64 = 4 << 30;
/// Of 4 GiB: 20 %, half way between 10 and 20 %.
const THRESH: u64 = 209_715;
const FREERUN: u64 = 157_286;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn device(set: &str) -> (Arc<Domain>, Arc<Bdi>) {
    let tunables: Tunables = set.parse().expect("in range");
    let domain = Domain::new(&tunables, MEMORY, 8).expect("in range");
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
fn limits_of_four_gibibytes() {
    let (domain, _) = device("");
    assert_eq!((domain.thresh(), domain.background()), (THRESH, 104_857));
    assert_eq!(domain.freerun(), FREERUN);
}

#[test]
fn credits_end_at_the_limit_and_come_back_with_completions() {
    let (domain, bdi) = device("");
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
fn throttling_aims_at_two_hundred_wake_ups_a_second() {
    for (writers, pause) in [(1, 10), (10, 50), (40, 200), (400, 200)] {
        let (_, bdi) = device("");
        fill(&bdi, FREERUN, ms(1));
        let mut tasks: Vec<_> = (0..writers).map(|i| Task::new(Class::Normal, i)).collect();
        // The first look reports it how many there are.
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
    let tunables: Tunables = "wb_stall_ms=30000".parse().expect("in range");
    let domain = Domain::new(&tunables, MEMORY, 8).expect("in range");
    let dead = Bdi::new(&domain, &tunables).expect("in range");
    let alive = Bdi::new(&domain, &tunables).expect("in range");
    let mut task = Task::new(Class::Normal, 0);
    fill(&dead, THRESH, ms(0));
    dead.writeback_started(1000, ms(0));
    complete(&alive, 100, ms(29_000));
    let mut now = ms(1);
    let mut verdict = dead.dirtied(&mut task, 2048, now);
    while verdict != Verdict::Failed {
        assert!(now <= ms(30_000), "goes on at {now:?}");
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
    assert_ne!(alive.dirtied(&mut other, 1, now), Verdict::Failed);
}

/// A flusher that writes 8 MiB at once completes it at once, too.
#[test]
fn a_device_is_known_that_completes_in_large_pieces() {
    const PIECE: u64 = 2048;
    for bytes in [100_000_000, 10_000_000, 1_000_000] {
        let (_, bdi) = device("");
        let speed = bytes / 4096;
        let takes = Duration::from_secs_f64(PIECE as f64 / speed as f64);
        let mut now = ms(1);
        for _ in 0..12 {
            fill(&bdi, PIECE, now);
            bdi.writeback_started(PIECE, now);
            let end = now + takes;
            while now + ms(7) < end {
                now += ms(7);
                bdi.tick(now);
            }
            now = end;
            bdi.completed(PIECE, Outcome::Written, now);
            // The next is chosen.
            now += ms(2);
        }
        let known = bdi.stats(now).write_bandwidth as f64 / speed as f64;
        assert!((0.75..=1.25).contains(&known), "{bytes}: {known} times");
    }
}

/// What was dirtied when the device seemed to be slow is not paid for when it turns out not to be.
#[test]
fn a_debt_of_slow_times_is_forgotten() {
    let (_, bdi) = device("");
    fill(&bdi, FREERUN + 10_000, ms(1));
    bdi.writeback_started(10_000, ms(1));
    let mut now = ms(1);
    for _ in 0..20 {
        now += ms(1000);
        bdi.completed(1, Outcome::Written, now);
    }
    let mut task = Task::new(Class::Normal, 0);
    let mut verdict = bdi.dirtied(&mut task, 1024, now);
    assert!(matches!(verdict, Verdict::Pause(_)), "{verdict:?}");
    // 20000 pages a second from now on.
    let began = now;
    while verdict != Verdict::Go {
        assert!(now < began + ms(5000), "{verdict:?} at {now:?}");
        now += ms(50);
        bdi.completed(1000, Outcome::Written, now);
        fill(&bdi, 1000, now);
        bdi.writeback_started(1000, now);
        verdict = bdi.resumed(&mut task, 0, now);
    }
}

/// Blocks of 64 KiB next to a limit of 100 pages.
#[test]
fn a_large_block_is_admitted_whole_and_the_limit_holds() {
    let (domain, bdi) = device("dirty_bytes=409600");
    let mut tasks: Vec<_> = (0..9).map(|i| Task::new(Class::Normal, i)).collect();
    let mut admitted = 0;
    for task in &mut tasks {
        if bdi.admit(task, 16, ms(1)) == Verdict::Go {
            let _ = bdi.dirtied(task, 16, ms(1));
            admitted += 1;
        }
        assert!(domain.unwritten() <= 100, "{}", domain.unwritten());
    }
    assert_eq!(admitted, 6);
}

#[test]
fn a_limit_in_bytes_is_no_more_than_memory() {
    let tunables = "dirty_bytes=1073741824".parse().expect("in range");
    let domain = Domain::new(&tunables, 16 << 20, 1).expect("in range");
    assert_eq!((domain.thresh(), domain.background()), (4096, 409));
    domain.set_dirtyable(2 << 30);
    assert_eq!(domain.thresh(), 262_144);
}

#[test]
fn tunables_of_a_device_are_not_set_for_all() {
    let (domain, _) = device("");
    for (name, value) in [
        ("wb_stall_ms", "1000"),
        ("min_ratio", "1"),
        ("strict_limit", "1"),
    ] {
        let error = domain.set_tunable(name, value);
        let error = error.expect_err("a device's").to_string();
        assert!(
            error.contains("must be set when the device is opened"),
            "{error}"
        );
    }
    std::thread::scope(|scope| {
        for name in ["dirty_expire_centisecs", "dirty_writeback_centisecs"] {
            let domain = &domain;
            scope.spawn(move || {
                for value in 0..2000 {
                    let value = value.to_string();
                    domain.set_tunable(name, &value).expect("in range");
                }
            });
        }
    });
    let tunables = domain.tunables();
    assert_eq!(tunables.dirty_expire_centisecs, 1999);
    assert_eq!(tunables.dirty_writeback_centisecs, 1999);
}

#[test]
fn min_ratios_of_devices_are_no_more_than_all() {
    let tunables: Tunables = "min_ratio=60".parse().expect("in range");
    let domain = Domain::new(&tunables, MEMORY, 1).expect("in range");
    let first = Bdi::new(&domain, &tunables).expect("in range");
    let error = Bdi::new(&domain, &tunables).expect_err("120 percent");
    assert_eq!(
        error.to_string(),
        "min_ratio=60: must be 0 to 40 percent: other devices have the rest"
    );
    drop(first);
    let _again = Bdi::new(&domain, &tunables).expect("the first gave its part back");
}

#[test]
fn statistics_have_the_kernels_form() {
    let (_, bdi) = device("");
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

/// A device that never has anything under writeback when a thread looks, and stalls for 3 s.
#[test]
fn bandwidth_is_learnt_between_runs_and_again_after_a_stall() {
    let (domain, bdi) = device("");
    fill(&bdi, 180_000, ms(1));
    let mut task = Task::new(Class::Normal, 0);
    let (mut now, mut verdict) = (ms(1), Verdict::Go);
    let mut run = |millis: u64, pages: u64| {
        let end = now + ms(millis);
        let (mut slept, mut dirtied) = (ms(0), 0);
        while now < end {
            now += ms(5);
            bdi.writeback_started(pages, now);
            bdi.completed(pages, Outcome::Written, now);
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

#[test]
fn what_a_device_that_is_dropped_had_dirty_counts_no_longer() {
    let tunables: Tunables = "min_ratio=60".parse().expect("in range");
    let domain = Domain::new(&tunables, MEMORY, 1).expect("in range");
    let gone = Bdi::new(&domain, &tunables).expect("in range");
    let mut task = Task::new(Class::Normal, 0);
    while gone.admit(&mut task, 16, ms(1)) == Verdict::Go && domain.unwritten() < THRESH {
        let _ = gone.dirtied(&mut task, 16, ms(1));
    }
    gone.writeback_started(100, ms(1));
    assert!(domain.unwritten() > THRESH / 10 * 9);
    assert!(
        Bdi::new(&domain, &tunables).is_err(),
        "60 percent are taken"
    );
    drop(gone);
    assert_eq!(domain.unwritten(), 0);
    let alive = Bdi::new(&domain, &tunables).expect("60 percent are free again");
    let mut task = Task::new(Class::Normal, 0);
    while alive.admit(&mut task, 16, ms(1)) == Verdict::Go {
        let _ = alive.dirtied(&mut task, 16, ms(1));
    }
    assert!(domain.unwritten() > THRESH / 64 * 63 - 64);
}

#[test]
fn a_writer_that_finds_no_credit_waits_for_half_a_pause_at_least() {
    let (domain, bdi) = device("");
    complete(&bdi, 1, ms(1));
    // All but the 64th that is left to real-time writers.
    fill(&bdi, THRESH - THRESH / 64 - domain.unwritten(), ms(1));
    for index in 0..8 {
        let mut task = Task::new(Class::Normal, index);
        let Verdict::Await { at_most } = bdi.admit(&mut task, 1, ms(1)) else {
            panic!("a page without a credit, {} unwritten", domain.unwritten());
        };
        // The shortest pause that is aimed at is 10 ms.
        assert!(at_most >= ms(5) && at_most <= ms(200), "{at_most:?}");
    }
}
