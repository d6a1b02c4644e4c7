//! Worker pool and timer for requests that may block a thread that reads requests.
//!
//! ```text
//! run(job)               a pool of up to POOL_MAX threads, started when they are needed
//! after(pause, unique)   one thread, a heap of what is due when
//! ```
//! A writer over the dirty limits is not answered until its pause is over, and no thread waits
//! for that but the one timer for all. A signal ([`Executor::interrupt`]) ends the pause at once.
//! It does not cut a write to a file short, unless it ends the writer's process: whether one
//! came, at any time since the writer began to wait, is what a [`Watch`] knows.
//!
//! Lock: one for the pool and one for the timer, leaves; jobs run with neither.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::cpus;
use crate::panic_guard::PanicGuard;

/// Most threads of the pool.
const POOL_MAX: usize = 16;

/// Work for the pool.
type Job = Box<dyn FnOnce() + Send>;
/// What is done when a pause is over; true: it was called off, for all ends.
type Ending = Box<dyn FnOnce(bool) + Send>;

/// A pause of a request.
struct Pause {
    until: Instant,
    unique: u64,
    ending: Ending,
}

impl PartialEq for Pause {
    fn eq(&self, other: &Self) -> bool {
        (self.until, self.unique) == (other.until, other.unique)
    }
}

impl Eq for Pause {}

impl PartialOrd for Pause {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pause {
    /// The one that ends first is the greatest.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.until, other.unique).cmp(&(self.until, self.unique))
    }
}

#[derive(Default)]
struct Pool {
    jobs: VecDeque<Job>,
    idle: usize,
    ends: bool,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Pauses {
    all: BinaryHeap<Pause>,
    /// Requests that are watched, and whether each was interrupted.
    watched: HashMap<u64, bool>,
    ends: bool,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    pool: Mutex<Pool>,
    has_jobs: Condvar,
    pauses: Mutex<Pauses>,
    is_due: Condvar,
}

/// Remembers whether a request was interrupted, as long as it lives.
pub struct Watch {
    shared: Arc<Shared>,
    unique: u64,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.unique)
    }
}

impl Watch {
    /// Whether the request was interrupted since it is watched.
    pub fn was_interrupted(&self) -> bool {
        let pauses = lock(&self.shared.pauses);
        pauses.watched.get(&self.unique) == Some(&true)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.shared.pauses).watched.remove(&self.unique);
    }
}

/// The threads that answer later.
#[derive(Default)]
pub struct Executor {
    shared: Arc<Shared>,
    panic_guard: PanicGuard,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

/// A panic of a job must not end all others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Executor {
    /// No thread at first. A job that panics loses its pending reply, which answers, and is left to
    /// `panic_guard`.
    pub fn new(panic_guard: PanicGuard) -> Self {
        Self {
            panic_guard,
            ..Self::default()
        }
    }

    /// Has a job done by another thread, or by this one where there is no other.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(job) = self.enqueue(job) {
            job();
        }
    }

    /// Has a job done by another thread; drops it where there is no other.
    pub fn run_elsewhere(&self, job: impl FnOnce() + Send + 'static) {
        drop(self.enqueue(job));
    }

    /// Leaves a job to the pool; gives it back if that has ended, or no thread can be started.
    fn enqueue(&self, job: impl FnOnce() + Send + 'static) -> Option<Job> {
        let panic_guard = self.panic_guard.clone();
        let job = move || {
            panic_guard.catch(job);
        };
        let mut pool = lock(&self.shared.pool);
        if pool.ends {
            return Some(Box::new(job));
        }
        pool.jobs.push_back(Box::new(job));
        if pool.idle >= pool.jobs.len() || pool.threads.len() >= POOL_MAX {
            self.shared.has_jobs.notify_one();
            return None;
        }
        let shared = Arc::clone(&self.shared);
        let name = "uext4-executor".to_owned();
        match thread::Builder::new().name(name).spawn(move || {
            cpus::unpin();
            work(&shared);
        }) {
            Ok(thread) => pool.threads.push(thread),
            Err(_) if pool.threads.is_empty() => return pool.jobs.pop_back(),
            Err(_) => {}
        }
        None
    }

    /// Calls `ending` when the pause of a request is over, or earlier if it is interrupted or all
    /// ends.
    pub fn after(&self, pause: Duration, unique: u64, ending: impl FnOnce(bool) + Send + 'static) {
        let panic_guard = self.panic_guard.clone();
        let ending = move |called_off| {
            panic_guard.catch(|| ending(called_off));
        };
        let mut pauses = lock(&self.shared.pauses);
        if pauses.ends {
            drop(pauses);
            return ending(true);
        }
        if pauses.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let timer = thread::Builder::new().name("uext4-timer".to_owned());
            let run = move || {
                cpus::unpin();
                end_pauses(&shared);
            };
            match timer.spawn(run) {
                Ok(thread) => pauses.thread = Some(thread),
                Err(_) => {
                    drop(pauses);
                    // Without a timer the writer is throttled by the thread it asked.
                    thread::sleep(pause);
                    return ending(false);
                }
            }
        }
        pauses.all.push(Pause {
            until: Instant::now() + pause,
            unique,
            ending: Box::new(ending),
        });
        self.shared.is_due.notify_one();
    }

    /// Remembers from now on whether a request is interrupted.
    pub fn watch(&self, unique: u64) -> Watch {
        lock(&self.shared.pauses).watched.insert(unique, false);
        Watch {
            shared: Arc::clone(&self.shared),
            unique,
        }
    }

    /// Ends the pause of a request; returns whether there was one.
    pub fn interrupt(&self, unique: u64) -> bool {
        let mut pauses = lock(&self.shared.pauses);
        if let Some(interrupted) = pauses.watched.get_mut(&unique) {
            *interrupted = true;
        }
        let (over, others) = std::mem::take(&mut pauses.all)
            .into_iter()
            .partition::<Vec<_>, _>(|pause| pause.unique == unique);
        pauses.all = others.into();
        drop(pauses);
        let found = !over.is_empty();
        for pause in over {
            (pause.ending)(false);
        }
        found
    }

    /// Ends all pauses, does all jobs, and ends all threads.
    pub fn finish(&self) {
        let mut pauses = lock(&self.shared.pauses);
        pauses.ends = true;
        let all = std::mem::take(&mut pauses.all);
        let timer = pauses.thread.take();
        drop(pauses);
        self.shared.is_due.notify_all();
        for pause in all {
            (pause.ending)(true);
        }
        let mut pool = lock(&self.shared.pool);
        pool.ends = true;
        let threads = std::mem::take(&mut pool.threads);
        drop(pool);
        self.shared.has_jobs.notify_all();
        for thread in threads.into_iter().chain(timer) {
            // What a job panicked of has been reported.
            _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    let mut pool = lock(&shared.pool);
    loop {
        if let Some(job) = pool.jobs.pop_front() {
            drop(pool);
            job();
            pool = lock(&shared.pool);
            continue;
        }
        if pool.ends {
            return;
        }
        pool.idle += 1;
        pool = shared
            .has_jobs
            .wait(pool)
            .unwrap_or_else(PoisonError::into_inner);
        pool.idle -= 1;
    }
}

fn end_pauses(shared: &Shared) {
    let mut pauses = lock(&shared.pauses);
    while !pauses.ends {
        let now = Instant::now();
        let next = pauses.all.peek().map(|pause| pause.until);
        pauses = match next {
            None => shared
                .is_due
                .wait(pauses)
                .unwrap_or_else(PoisonError::into_inner),
            Some(until) if until > now => {
                let waited = shared.is_due.wait_timeout(pauses, until - now);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            Some(_) => {
                let due = pauses.all.pop();
                drop(pauses);
                if let Some(due) = due {
                    (due.ending)(false);
                }
                lock(&shared.pauses)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn pauses_end_in_the_order_of_their_ends() {
        let executor = Executor::default();
        let (report, reported) = mpsc::channel();
        let began = Instant::now();
        for (unique, millis) in [(1, 60), (2, 20), (3, 40)] {
            let report = report.clone();
            executor.after(Duration::from_millis(millis), unique, move |off| {
                report.send((unique, off)).unwrap();
            });
        }
        let all: Vec<_> = (0..3).map(|_| reported.recv().unwrap()).collect();
        assert_eq!(all, [(2, false), (3, false), (1, false)]);
        assert!(began.elapsed() >= Duration::from_millis(60));
        executor.finish();
    }

    #[test]
    fn an_interrupt_ends_the_pause_of_its_writer() {
        let executor = Executor::default();
        let (report, reported) = mpsc::channel();
        let hour = Duration::from_secs(3600);
        for unique in 1..=3 {
            let report = report.clone();
            executor.after(hour, unique, move |off| report.send((unique, off)).unwrap());
        }
        assert!(executor.interrupt(2));
        assert!(!executor.interrupt(2));
        assert_eq!(reported.recv().unwrap(), (2, false));
        executor.finish();
        let mut rest: Vec<_> = reported.try_iter().collect();
        rest.sort_unstable();
        assert_eq!(rest, [(1, true), (3, true)]);
        executor.after(hour, 4, move |off| report.send((4, off)).unwrap());
        assert_eq!(reported.recv().unwrap(), (4, true));
    }

    #[test]
    fn an_interrupt_between_two_pauses_is_remembered() {
        let executor = Executor::default();
        let watch = executor.watch(2);
        assert!(!executor.interrupt(1) && !watch.was_interrupted());
        assert!(!executor.interrupt(2) && watch.was_interrupted());
        drop(watch);
        assert!(!executor.watch(2).was_interrupted());
        assert!(lock(&executor.shared.pauses).watched.is_empty());
    }

    #[test]
    fn jobs_that_wait_for_one_another_get_on() {
        let executor = Executor::default();
        let done = Arc::new(AtomicU32::new(0));
        let barrier = Arc::new(std::sync::Barrier::new(POOL_MAX));
        for _ in 0..POOL_MAX {
            let (done, barrier) = (Arc::clone(&done), Arc::clone(&barrier));
            executor.run(move || {
                barrier.wait();
                done.fetch_add(1, SeqCst);
            });
        }
        for _ in 0..100 {
            let done = Arc::clone(&done);
            executor.run(move || _ = done.fetch_add(1, SeqCst));
        }
        executor.finish();
        assert_eq!(done.load(SeqCst) as usize, POOL_MAX + 100);
        let after = Arc::clone(&done);
        executor.run(move || _ = after.fetch_add(1, SeqCst));
        assert_eq!(done.load(SeqCst) as usize, POOL_MAX + 101);
    }
}
