//! One stream of requests is served on the CPU of its caller, and the caller stays there.
//!
//! A reply wakes the caller while the thread that writes it still runs. The scheduler does not
//! queue the caller behind that thread where another CPU is idle, but has it run there. So both
//! run on different CPUs, and each request and each reply costs an interrupt between processors,
//! an idle CPU that has to wake, and cold caches: with two virtual CPUs more than all the rest.
//! Only a CPU that runs nothing but threads of the class SCHED_IDLE counts as idle: a caller that
//! was there stays, and takes it at once. But a thread of that class starves next to any other
//! work, with the locks that it holds. So three threads share the work:
//!
//! ```text
//!            ┌─────── on the CPU of the caller ───────┐
//! kernel ─▶ leader ─▶ outbox ─▶ answerer (SCHED_IDLE) ─▶ kernel
//!                       ▲
//!                     guard: writes what waits there
//! ```
//! - The [`Leader`] reads requests and serves them as any thread does, but puts replies into the
//!   outbox. When it finds no other request it sleeps, and the answerer runs.
//! - The [`answerer`] writes replies and does nothing else, so that it never holds a lock of the
//!   engine. The caller that a reply wakes takes the CPU from it.
//! - The [`guard`] looks once a millisecond while there are requests.
//! - Other threads that read requests rest.
//!
//! The leader follows a caller that runs elsewhere. A reply after which the answerer is still
//! busy as the next request comes has found the caller on its CPU; after a few that did not,
//! `/proc` says where the caller is.
//!
//! The mount goes on as without all this ("spread": each thread reads, and answers itself) where
//! it does not help, or would harm ([`Reason`]), and tries again after a while that doubles as
//! long as that does not last: at most four seconds, in which the trial costs about a
//! millisecond.
//!
//! Locks: one, a leaf, for those that rest.

mod answerer;
mod guard;
mod leader;
mod outbox;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use rustix::thread::{CpuSet, gettid, sched_setaffinity};

pub use leader::Leader;
use outbox::Outbox;

use crate::cpus;
use crate::scheduling::{self, Class, ThreadId};
use crate::transport::dev::Device;

/// How often it is looked whether a reply that is being written is gone, and how often at most.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 1000;

/// Why requests are no longer served on the caller's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Two callers wait at the same time: one thread serves them one after the other.
    Overlapping,
    /// A reply waited for a millisecond: other work has taken the CPU.
    Waiting,
    /// The leader was at one request for longer than a millisecond; others are not to wait for it.
    Busy,
    /// Much data is moved, which another CPU does while the caller works.
    Bulk,
    /// The caller does not stay, or cannot be followed.
    Unsteady,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Overlapping,
        Self::Waiting,
        Self::Busy,
        Self::Bulk,
        Self::Unsteady,
    ];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overlapping => "overlapping",
            Self::Waiting => "waiting",
            Self::Busy => "busy",
            Self::Bulk => "bulk",
            Self::Unsteady => "unsteady",
        }
    }
}

/// What has happened, each counted by the one thread that does it.
#[derive(Debug, Default)]
struct Counters {
    stayed: AtomicU64,
    followed: AtomicU64,
    entered: AtomicU64,
    left: [AtomicU64; Reason::ALL.len()],
}

/// What has happened since the mount began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests before which the last reply had found its caller on the CPU of the server.
    pub stayed: u64,
    /// How often the server went to the CPU of its caller.
    pub followed: u64,
    /// How often serving near the caller began.
    pub entered: u64,
    /// How often it ended, in the order of [`Reason::ALL`].
    pub left: [u64; Reason::ALL.len()],
}

/// What the threads share.
#[derive(Debug)]
pub struct Near {
    device: Arc<Device>,
    outbox: Outbox,
    is_on: AtomicBool,
    is_over: AtomicBool,
    resting: Mutex<()>,
    changed: Condvar,
    /// Twice the requests of the leader, and one more while it is at one. Only the leader writes.
    turns: AtomicU64,
    guard_sleeps: AtomicBool,
    answerer: OnceLock<(Thread, ThreadId)>,
    guard: OnceLock<(Thread, ThreadId)>,
    /// The CPUs that the process may use.
    all: CpuSet,
    counters: Counters,
}

impl Near {
    /// Starts answerer and guard. `None` where there is nothing to gain, with one CPU, or where
    /// the kernel does not let threads into SCHED_IDLE or start.
    pub fn start(device: &Arc<Device>) -> Option<Arc<Self>> {
        let all = cpus::all().filter(|all| all.count() > 1)?;
        let near = Arc::new(Self::new(device, all));
        let answerer = near.spawn("uext4-answerer", Class::Idle, answerer::run);
        let guard = answerer
            .as_ref()
            .and_then(|_| near.spawn("uext4-guard", Class::Normal, guard::run));
        let (Some(answerer), Some(guard)) = (answerer, guard) else {
            near.end();
            return None;
        };
        // Both are set once, here.
        _ = near.answerer.set(answerer);
        _ = near.guard.set(guard);
        Some(near)
    }

    fn new(device: &Arc<Device>, all: CpuSet) -> Self {
        Self {
            device: Arc::clone(device),
            outbox: Outbox::default(),
            is_on: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            resting: Mutex::default(),
            changed: Condvar::new(),
            turns: AtomicU64::new(0),
            guard_sleeps: AtomicBool::new(false),
            answerer: OnceLock::new(),
            guard: OnceLock::new(),
            all,
            counters: Counters::default(),
        }
    }

    fn spawn(
        self: &Arc<Self>,
        name: &str,
        class: Class,
        run: fn(&Self),
    ) -> Option<(Thread, ThreadId)> {
        let near = Arc::clone(self);
        let (ready, readied) = mpsc::channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let is_in_class = class == Class::Normal || scheduling::enter(class);
            _ = ready.send(is_in_class.then(gettid));
            if is_in_class {
                run(&near);
            }
        });
        let thread = thread.ok()?;
        let id = readied.recv().ok()??;
        Some((thread.thread().clone(), id))
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        let counters = &self.counters;
        Counts {
            stayed: counters.stayed.load(Relaxed),
            followed: counters.followed.load(Relaxed),
            entered: counters.entered.load(Relaxed),
            left: counters.left.each_ref().map(|count| count.load(Relaxed)),
        }
    }

    /// Waits while the leader alone reads requests.
    pub fn rest(&self) {
        if !self.is_on.load(SeqCst) {
            return;
        }
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        while self.is_on.load(SeqCst) && !self.is_over.load(SeqCst) {
            let waited = self.changed.wait(resting);
            resting = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// From now on each thread reads requests, and answers itself.
    fn leave(&self, reason: Reason) {
        if self.is_on.swap(false, SeqCst) {
            // OK to index: one place a reason.
            self.counters.left[reason as usize].fetch_add(1, Relaxed);
        }
        // After the change: a reply that is put there later is taken by the leader, which sees it.
        self.outbox.write_all(&self.device);
        self.wake_resting();
    }

    fn wake_resting(&self) {
        // Who is about to rest has the lock.
        drop(self.resting.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Puts leader, which calls, answerer and guard on one CPU. The guard would else wake on an
    /// idle CPU, which then looks for work, and takes the caller.
    fn place(&self, cpu: usize) -> bool {
        let others = [&self.answerer, &self.guard];
        let others = others.into_iter().filter_map(OnceLock::get);
        let Some(one) = scheduling::only(cpu) else {
            return false;
        };
        sched_setaffinity(None, &one).is_ok()
            && others
                .map(|(_, id)| sched_setaffinity(Some(*id), &one))
                .all(|placed| placed.is_ok())
    }

    /// All that was left for the answerer is written: no request comes any more.
    pub fn finish(&self) {
        self.outbox.write_all(&self.device);
        for _ in 0..LOOKS {
            if !self.outbox.is_writing() {
                break;
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends the threads: the mount is gone.
    fn end(&self) {
        self.is_over.store(true, SeqCst);
        self.wake_resting();
        let threads = [&self.answerer, &self.guard];
        for (thread, _) in threads.into_iter().filter_map(OnceLock::get) {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests;
