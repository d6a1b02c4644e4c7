//! Work divided among threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::Result;

/// Calls `work` for each number below `count`, in as many threads as given. A thread takes `step`
/// numbers in a row, in ascending order, and has a state of its own that `make` makes; the states
/// are returned. The first error ends all.
///
/// # Errors
/// The first of `work`.
pub fn for_each<S: Send>(
    threads: NonZeroUsize,
    count: u64,
    step: u64,
    make: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, u64) -> Result<()> + Sync,
) -> Result<Vec<S>> {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let step = step.max(1);
    let failed = Mutex::new(None);
    let run = || {
        let mut state = make();
        while !stop.load(Ordering::Relaxed) {
            let from = next.fetch_add(step, Ordering::Relaxed);
            if from >= count {
                break;
            }
            for number in from..count.min(from.saturating_add(step)) {
                if let Err(error) = work(&mut state, number) {
                    stop.store(true, Ordering::Relaxed);
                    failed.lock().get_or_insert(error);
                    return state;
                }
            }
        }
        state
    };
    let chunks = usize::try_from(count.div_ceil(step)).unwrap_or(usize::MAX);
    let threads = threads.get().min(chunks).max(1);
    let states = std::thread::scope(|scope| {
        let run = &run;
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut states = vec![run()];
        for other in others {
            match other.join() {
                Ok(state) => states.push(state),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        states
    });
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(states),
    }
}
