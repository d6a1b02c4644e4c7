//! Runs that know nothing of each other, on as many threads as there are processors. What comes out
//! does not depend on how many there are.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::experiment::Failure;

/// The result of `work` for each of the jobs, in their order.
///
/// # Errors
/// The first that a job met, and [`Failure::Run`] if one panicked.
pub fn all<J: Sync, R: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<R, Failure>)>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some((at, job)) = {
                    let at = next.fetch_add(1, Relaxed);
                    jobs.get(at).map(|job| (at, job))
                } {
                    let result = (at, work(job));
                    if let Ok(mut done) = done.lock() {
                        done.push(result);
                    }
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .map_err(|_| Failure::Run("a run panicked".to_owned()))?;
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
