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
//! - The [`answerer`] writes replies and does nothing else, so that it never holds a lock. The
//!   caller that a reply wakes takes the CPU from it.
//! - The [`guard`] looks once a millisecond while there are requests.
//! - Other threads that read requests rest.
//! - All other threads of the process, the flushers above all, run elsewhere (the [`bystanders`]):
//!   next to one of these the CPU does not count as idle.
//!
//! The leader follows a caller that runs elsewhere. Where the answerer has not let go of the last
//! reply when the next request comes, the caller has taken the CPU from it, and so is here; after
//! a few requests without that, `/proc` says where the caller is. (Where caller and daemon are in
//! different scheduling groups, the answerer may finish first, though both are on one CPU.)
//!
//! Without all this ("spread") each thread reads, and answers itself. So the mount goes on where it
//! does not help, or would harm ([`Reason`]), and when requests stop. It tries again 20 ms later;
//! each trial that lasts for less than 200 ms doubles the pause, up to four seconds. A trial costs
//! about a millisecond.
//!
//! Locks, leaves all: one for those that rest, one for the CPUs that they may use again, one for
//! the bystanders.

mod answerer;
mod bystanders;
mod guard;
mod leader;
mod outbox;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::{self, Thread};

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

use bystanders::Bystanders;
pub use leader::Leader;
use outbox::Outbox;

use crate::cpus;
use crate::scheduling::{self, Class, ThreadId};
use crate::transport::dev::Device;

/// Why requests are no longer served on the caller's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Two callers wait at the same time: one thread serves them one after the other.
    Overlapping,
    /// A reply waited for one to two milliseconds: other work has taken the CPU.
    Waiting,
    /// The leader was at one request for two to three milliseconds; others are not to wait for it.
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

/// What has happened.
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
    /// The guard has ended it as there were no requests, which says nothing against it.
    was_quiet: AtomicBool,
    leader: OnceLock<ThreadId>,
    answerer: OnceLock<(Thread, ThreadId)>,
    guard: OnceLock<(Thread, ThreadId)>,
    /// The CPUs that the leader might use when it began.
    home: Mutex<CpuSet>,
    bystanders: Mutex<Bystanders>,
    counters: Counters,
}

impl Near {
    /// Starts answerer and guard. `None` where there is nothing to gain, with one CPU, or where
    /// the kernel does not let threads into SCHED_IDLE or start.
    pub fn start(device: &Arc<Device>) -> Option<Arc<Self>> {
        let all = cpus::movable().filter(|all| all.count() > 1)?;
        let near = Arc::new(Self::new(device, all));
        let has_both = near.spawn("uext4-answerer", &near.answerer, Class::Idle, answerer::run)
            && near.spawn("uext4-guard", &near.guard, Class::Normal, guard::run);
        if !has_both {
            near.end();
        }
        has_both.then_some(near)
    }

    fn new(device: &Arc<Device>, home: CpuSet) -> Self {
        Self {
            device: Arc::clone(device),
            outbox: Outbox::default(),
            is_on: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            resting: Mutex::default(),
            changed: Condvar::new(),
            turns: AtomicU64::new(0),
            guard_sleeps: AtomicBool::new(false),
            was_quiet: AtomicBool::new(false),
            leader: OnceLock::new(),
            answerer: OnceLock::new(),
            guard: OnceLock::new(),
            home: Mutex::new(home),
            bystanders: Mutex::default(),
            counters: Counters::default(),
        }
    }

    /// Starts a thread of this class, and notes it.
    fn spawn(
        self: &Arc<Self>,
        name: &str,
        place: &OnceLock<(Thread, ThreadId)>,
        class: Class,
        run: fn(&Self),
    ) -> bool {
        let near = Arc::clone(self);
        let (ready, readied) = mpsc::channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let is_in_class = class == Class::Normal || scheduling::enter(class);
            _ = ready.send(is_in_class.then(gettid));
            if is_in_class {
                run(&near);
            }
        });
        let id = readied.recv().ok().flatten();
        let noted = thread.ok().zip(id);
        noted.is_some_and(|(thread, id)| place.set((thread.thread().clone(), id)).is_ok())
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

    /// From now on each thread reads requests, and answers itself. `None`: there are none.
    fn leave(&self, reason: Option<Reason>) {
        self.was_quiet.store(reason.is_none(), SeqCst);
        if self.is_on.swap(false, SeqCst)
            && let Some(reason) = reason
        {
            // OK to index: one place a reason.
            self.counters.left[reason as usize].fetch_add(1, Relaxed);
        }
        self.wake_resting();
        self.spread();
        // After the change: a reply that is put there later is written by the leader, which sees
        // it.
        self.outbox.write(&self.device, || {});
    }

    /// Leader, answerer and guard run where the leader did before, and the leader in its class.
    fn spread(&self) {
        let home = *self.home.lock().unwrap_or_else(PoisonError::into_inner);
        for id in self.threads() {
            _ = sched_setaffinity(Some(id), &home);
        }
        let own: Vec<ThreadId> = self.threads().collect();
        self.bystanders().give_back(&home, &own);
        if let Some(leader) = self.leader.get() {
            scheduling::put(*leader, Class::Normal);
        }
    }

    /// The leader is about to begin: it notes where it runs.
    fn note_home(&self) {
        if let Ok(home) = sched_getaffinity(None) {
            *self.home.lock().unwrap_or_else(PoisonError::into_inner) = home;
        }
        let own: Vec<ThreadId> = self.threads().collect();
        self.bystanders().find(&own);
    }

    fn bystanders(&self) -> MutexGuard<'_, Bystanders> {
        let bystanders = self.bystanders.lock();
        bystanders.unwrap_or_else(PoisonError::into_inner)
    }

    fn threads(&self) -> impl Iterator<Item = ThreadId> {
        let others = [&self.answerer, &self.guard];
        let others = others.into_iter().filter_map(OnceLock::get);
        let leader = self.leader.get().copied().into_iter();
        leader.chain(others.map(|(_, id)| *id))
    }

    fn wake_resting(&self) {
        // Who is about to rest has the lock.
        drop(self.resting.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Puts leader, answerer and guard on a CPU that the leader may use. The guard would else wake
    /// on an idle CPU, which then looks for work, and takes the caller.
    fn place(&self, cpu: usize) -> bool {
        let home = *self.home.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(one) = scheduling::only(cpu).filter(|_| home.is_set(cpu)) else {
            return false;
        };
        let mut threads = self.threads();
        let are_there = threads.all(|id| sched_setaffinity(Some(id), &one).is_ok());
        if are_there {
            self.bystanders().leave(cpu);
        }
        are_there
    }

    /// Writes all that was left for the answerer: no request comes any more.
    pub fn finish(&self) {
        self.outbox.write_all(&self.device);
    }

    /// Ends the threads: the leader reads no more.
    fn end(&self) {
        self.is_on.store(false, SeqCst);
        self.is_over.store(true, SeqCst);
        self.outbox.write_all(&self.device);
        self.wake_resting();
        self.spread();
        let threads = [&self.answerer, &self.guard];
        for (thread, _) in threads.into_iter().filter_map(OnceLock::get) {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests;
