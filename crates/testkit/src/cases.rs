//! Many cases, some at a time: panics are caught with their words, a case that does not end is
//! named, and what fails is gathered.

use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

/// A case that is not done after this time ends the process.
const HANG: Duration = Duration::from_secs(120);

thread_local! {
    static IS_CASE: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Whether all of it is asked for: `UEXT4_LONG=1`.
pub fn is_long() -> bool {
    std::env::var_os("UEXT4_LONG").is_some()
}

/// A number that stays a kind's own while others come and go: of a quick run it says which image
/// the kind is tried on, and whether.
pub fn pick(kind: &str) -> usize {
    let add = |n: usize, byte| n.wrapping_mul(31).wrapping_add(usize::from(byte));
    kind.bytes().fold(0, add)
}

/// The words of the last panic of this thread, with their place. Those of a thread that it started
/// are shown where they happen.
pub fn last_panic() -> String {
    LAST_PANIC.with_borrow(Clone::clone)
}

/// Forgets them.
pub fn forget_panic() {
    LAST_PANIC.set("in another thread".to_owned());
}

/// Panics of cases are kept and not shown.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = panic::take_hook();
        panic::set_hook(Box::new(move |info| match IS_CASE.get() {
            true => LAST_PANIC.set(info.to_string().replace('\n', " ")),
            false => shown(info),
        }));
    });
}

/// Runs all cases, as many at a time as there are processors, at most four. `each` says what
/// failed, with what `judge` makes for each thread; `name` is for a case that does not end.
pub fn run<T: Sync, J>(
    cases: &[T],
    name: impl Fn(&T) -> String + Sync,
    judge: impl Fn() -> J + Sync,
    each: impl Fn(&J, &T) -> Vec<String> + Sync,
) -> Vec<String> {
    keep_panics();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, |n| n.get().min(4));
    let slots: Vec<_> = (0..threads).map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for slot in &slots {
            let (next, failures, each, name, judge) = (&next, &failures, &each, &name, &judge);
            scope.spawn(move || {
                IS_CASE.set(true);
                let judge = judge();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else {
                        break;
                    };
                    *slot.lock().unwrap() = Some((at, Instant::now()));
                    forget_panic();
                    let failed = panic::catch_unwind(AssertUnwindSafe(|| each(&judge, case)))
                        .unwrap_or_else(|_| vec![format!("{}: {}", name(case), last_panic())]);
                    failures
                        .lock()
                        .unwrap()
                        .extend(failed.into_iter().map(|what| (at, what)));
                    *slot.lock().unwrap() = None;
                }
            });
        }
        watch(&slots, &next, cases.len(), |at| name(&cases[at]));
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    failures.into_iter().map(|(_, what)| what).collect()
}

/// Waits for the last case, and names one that does not end.
fn watch(
    slots: &[Mutex<Option<(usize, Instant)>>],
    next: &AtomicUsize,
    count: usize,
    name: impl Fn(usize) -> String,
) {
    let is_open = || {
        let is_busy = slots.iter().any(|slot| slot.lock().unwrap().is_some());
        is_busy || next.load(Ordering::Relaxed) < count
    };
    while is_open() {
        thread::sleep(Duration::from_millis(5));
        for slot in slots {
            let Some((at, since)) = *slot.lock().unwrap() else {
                continue;
            };
            if since.elapsed() > HANG {
                // `eprintln!` goes where the end of the process takes it along.
                _ = writeln!(io::stderr(), "{} does not end", name(at));
                std::process::abort();
            }
        }
    }
}

/// Shows the failures, and fails if there are any.
#[track_caller]
pub fn assert_none(failures: &[String], of: usize) {
    for failure in failures {
        println!("{failure}");
    }
    let count = failures.len();
    assert!(failures.is_empty(), "{count} failures in {of} cases");
}
