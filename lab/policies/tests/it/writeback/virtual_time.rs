//! What holds for every design, in a small world of virtual time.

use std::time::Duration;

use proptest::prelude::*;
use uext4_lab_policies::writeback::Mode;
use uext4_writeback::throttle::{
    Bdi, Class, MAX_PAUSE, Outcome, PAGES_MAX, Task, Tunables, Verdict,
};

/// Pages a device of this test writes in a millisecond.
const SPEED: u64 = 20;

/// A writer of this test and what it waits for.
struct Writer {
    task: Task,
    left: u64,
    /// Pages dirtied.
    done: u64,
    until: Duration,
    /// It paused after pages became dirty, rather than before.
    owes: bool,
}

impl Writer {
    fn new(index: usize, pages: u64) -> Self {
        Self {
            task: Task::new(Class::Normal, index),
            left: pages,
            done: 0,
            until: Duration::ZERO,
            owes: false,
        }
    }

    /// Does what it may do now; pages it wrote itself.
    fn run(&mut self, bdi: &Bdi, now: Duration) -> u64 {
        let mut wrote = 0;
        if self.owes {
            self.owes = false;
            let verdict = bdi.resumed(&mut self.task, 0, now);
            wrote += self.obey(bdi, verdict, now);
        }
        // Few steps a millisecond, as a processor would make.
        for _ in 0..8 {
            if self.until > now || self.left == 0 {
                break;
            }
            let pages = bdi.allowance(&self.task, now).min(self.left);
            assert!((1..=PAGES_MAX).contains(&pages));
            match bdi.admit(&mut self.task, pages, now) {
                Verdict::Go => {}
                Verdict::Await { at_most } => {
                    self.until = now + bounded(at_most);
                    break;
                }
                other => panic!("asked for admission, received {other:?}"),
            }
            self.left -= pages;
            self.done += pages;
            let verdict = bdi.dirtied(&mut self.task, pages, now);
            wrote += self.obey(bdi, verdict, now);
        }
        wrote
    }

    fn obey(&mut self, bdi: &Bdi, mut verdict: Verdict, now: Duration) -> u64 {
        let mut wrote = 0;
        for _ in 0..4 {
            match verdict {
                Verdict::Go => return wrote,
                Verdict::Pause(pause) | Verdict::Await { at_most: pause } => {
                    self.until = now + bounded(pause);
                    self.owes = true;
                    return wrote;
                }
                Verdict::Write { pages } => {
                    let pages = pages.min(bdi.reclaimable());
                    bdi.writeback_started(pages, now);
                    bdi.completed(pages, Outcome::Written, now);
                    wrote += pages;
                    verdict = bdi.resumed(&mut self.task, pages, now);
                }
                Verdict::Failed => panic!("a device that works fails"),
            }
        }
        panic!("it never ends writing itself");
    }
}

fn bounded(pause: Duration) -> Duration {
    assert!(pause > Duration::ZERO && pause <= MAX_PAUSE, "{pause:?}");
    pause
}

/// What may be dirty at most, over the limit, in pages.
fn overshoot(mode: Mode, writers: u64, limit: u64) -> u64 {
    match mode {
        Mode::CellRate => 0,
        // Each may dirty what it has for one look before it looks.
        _ => writers * (2 * limit.isqrt() + 1024),
    }
}

/// Runs writers of `pages` each until all is written; pages written.
fn world(mode: Mode, memory: u64, writers: usize, pages: u64) -> u64 {
    world_of(&Tunables::default(), mode, memory, Load { writers, pages })
}

/// Writers, and the pages each of them writes.
struct Load {
    writers: usize,
    pages: u64,
}

fn world_of(tunables: &Tunables, mode: Mode, memory: u64, load: Load) -> u64 {
    let Load { writers, pages } = load;
    let domain = mode.domain(tunables, memory, 4).expect("in range");
    let bdi = Bdi::new(&domain, tunables).expect("in range");
    let mut all: Vec<_> = (0..writers).map(|i| Writer::new(i, pages)).collect();
    let most = domain.thresh() + overshoot(mode, writers as u64, domain.thresh());
    let (mut now, mut written, mut in_flight) = (Duration::ZERO, 0, 0);
    let deadline = Duration::from_secs(600);
    while all.iter().any(|w| w.left > 0 || w.owes) || bdi.unwritten() > 0 {
        now += Duration::from_millis(1);
        assert!(now < deadline, "{mode}: {} unwritten", bdi.unwritten());
        for writer in &mut all {
            if writer.until <= now {
                written += writer.run(&bdi, now);
            }
            assert!(domain.unwritten() <= most, "{mode}: {}", domain.unwritten());
        }
        bdi.completed(in_flight, Outcome::Written, now);
        written += in_flight;
        let is_last = all.iter().all(|w| w.left == 0);
        in_flight = match is_last || bdi.over_background(now) {
            true => SPEED.min(bdi.reclaimable()),
            false => 0,
        };
        bdi.writeback_started(in_flight, now);
        bdi.tick(now);
    }
    for writer in &mut all {
        assert_eq!(writer.done, pages);
        bdi.exited(&mut writer.task, now);
    }
    assert_eq!((domain.nr_dirty(), domain.nr_writeback()), (0, 0));
    written
}

#[test]
fn every_page_is_written_and_every_writer_ends() {
    for mode in Mode::ALL {
        for writers in [1, 7, 50] {
            let pages = 20_000 / writers as u64;
            // 64 MiB, of which 3276 pages may be dirty.
            let written = world(mode, 64 << 20, writers, pages);
            assert_eq!(written, pages * writers as u64, "{mode}, {writers} writers");
        }
    }
}

/// No writer waits for flushers that see no reason to write.
#[test]
fn a_background_limit_just_below_the_limit_is_one() {
    for mode in Mode::ALL {
        for text in [
            "dirty_ratio=80,dirty_background_ratio=79",
            "dirty_bytes=1048576,dirty_background_bytes=1044480",
            "dirty_bytes=16384,dirty_background_bytes=12288",
        ] {
            let tunables = text.parse().expect("in range");
            let written = world_of(
                &tunables,
                mode,
                4 << 20,
                Load {
                    writers: 3,
                    pages: 2000,
                },
            );
            assert_eq!(written, 6000, "{mode}, {text}");
        }
    }
}

#[test]
fn writers_of_one_kind_get_the_same() {
    for mode in [Mode::IolessFixed, Mode::Mainline, Mode::CellRate] {
        let tunables = Tunables::default();
        let domain = mode.domain(&tunables, 256 << 20, 4).expect("in range");
        let bdi = Bdi::new(&domain, &tunables).expect("in range");
        let mut all: Vec<_> = (0..10).map(|i| Writer::new(i, u64::MAX)).collect();
        let (mut now, mut in_flight) = (Duration::ZERO, 0);
        while now < Duration::from_secs(40) {
            now += Duration::from_millis(1);
            for writer in all.iter_mut().filter(|w| w.until <= now) {
                writer.run(&bdi, now);
            }
            bdi.completed(in_flight, Outcome::Written, now);
            in_flight = SPEED.min(bdi.reclaimable());
            bdi.writeback_started(in_flight, now);
        }
        let done: Vec<_> = all.iter().map(|w| w.done as f64).collect();
        let (sum, squares) = (
            done.iter().sum::<f64>(),
            done.iter().map(|d| d * d).sum::<f64>(),
        );
        let jain = sum * sum / (squares * done.len() as f64);
        assert!(jain > 0.97, "{mode}: {jain} {done:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Admit(usize, u64),
    Dirtied(usize, u64),
    Resumed(usize, u64),
    Started(u64),
    Completed(u64, Outcome),
    Cleaned(u64),
    Exited(usize),
    Tick,
    Memory(u64),
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..5000, Just(u64::MAX), Just(u64::MAX / 2), any::<u64>()]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![Just(Outcome::Written), Just(Outcome::Failed)]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        (0usize..4, number()).prop_map(|(t, n)| Call::Admit(t, n)),
        (0usize..4, number()).prop_map(|(t, n)| Call::Dirtied(t, n)),
        (0usize..4, number()).prop_map(|(t, n)| Call::Resumed(t, n)),
        number().prop_map(Call::Started),
        (number(), outcome()).prop_map(|(n, outcome)| Call::Completed(n, outcome)),
        number().prop_map(Call::Cleaned),
        (0usize..4).prop_map(Call::Exited),
        Just(Call::Tick),
        number().prop_map(Call::Memory),
    ]
}

fn step() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0u64..300).prop_map(Duration::from_millis),
        Just(Duration::from_secs(40)),
        Just(Duration::MAX),
    ]
}

fn check(verdict: Verdict) {
    match verdict {
        Verdict::Pause(pause) | Verdict::Await { at_most: pause } => {
            assert!(pause <= Duration::from_millis(200), "{pause:?}");
        }
        Verdict::Write { pages } => assert!(pages > 0),
        Verdict::Go | Verdict::Failed => {}
    }
}

proptest! {
    #[test]
    fn no_call_in_any_order_panics_or_pauses_long(
        mode in prop::sample::select(Mode::ALL.to_vec()),
        strict in any::<bool>(),
        calls in prop::collection::vec((call(), step()), 0..60),
    ) {
        let tunables = Tunables { strict_limit: strict, ..Tunables::default() };
        let domain = mode.domain(&tunables, 16 << 20, 2).expect("in range");
        let bdi = Bdi::new(&domain, &tunables).expect("in range");
        let mut tasks: Vec<_> = [Class::Normal, Class::RealTime, Class::Idle, Class::Normal]
            .into_iter()
            .enumerate()
            .map(|(cpu, class)| Task::new(class, cpu))
            .collect();
        let mut now = Duration::ZERO;
        for (call, step) in calls {
            now = now.saturating_add(step);
            match call {
                Call::Admit(task, pages) => check(bdi.admit(&mut tasks[task], pages, now)),
                Call::Dirtied(task, pages) => check(bdi.dirtied(&mut tasks[task], pages, now)),
                Call::Resumed(task, pages) => check(bdi.resumed(&mut tasks[task], pages, now)),
                Call::Started(pages) => bdi.writeback_started(pages, now),
                Call::Completed(pages, outcome) => bdi.completed(pages, outcome, now),
                Call::Cleaned(pages) => bdi.cleaned(pages, now),
                Call::Exited(task) => bdi.exited(&mut tasks[task], now),
                Call::Tick => bdi.tick(now),
                Call::Memory(bytes) => domain.set_dirtyable(bytes),
            }
            let chunk = bdi.chunk(now);
            prop_assert!(chunk.file > 0 && chunk.round > 0);
            prop_assert!((1..=PAGES_MAX).contains(&bdi.allowance(&tasks[0], now)));
            prop_assert!(domain.background() < domain.thresh());
            let _ = (bdi.over_background(now), bdi.stats(now).to_string());
        }
    }
}
