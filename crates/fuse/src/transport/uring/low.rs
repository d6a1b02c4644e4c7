//! A ring's thread is in the class SCHED_IDLE while it serves a single stream, and so the caller
//! stays on its CPU.
//!
//! Why that helps, `transport::dev::near` says. There another thread gives the replies; a ring's
//! thread cannot leave them to another, which would get the next request, too: so it serves in
//! that class, and other work could keep it from going on, with whatever locks it holds. Where a
//! thread gets out of the class again ([`scheduling::can_leave_idle`]: mounts of root), the guard,
//! which looks once a millisecond, lifts a thread that was at one request, or had one to take, all
//! the time. Elsewhere no thread enters it.
//!
//! The guard sleeps while no thread is in the class; those that have nothing to do it lifts first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use rustix::thread::gettid;

use crate::cpus;
use crate::scheduling::{self, Class, ThreadId};
use crate::transport::dev::{Counts, Reason};
use crate::transport::trials::Trials;

/// How often the guard looks while a thread is in the class.
const TICK: Duration = Duration::from_millis(1);
/// After so many ticks without a request a thread is lifted.
const QUIET: u32 = 16;
/// After so many ticks at one request, or with one to take, it is taken for one that other work
/// keeps from going on.
const KEPT: u32 = 2;
/// Bytes of a request or a reply that another CPU should copy meanwhile.
const BULK: usize = 64 << 10;

/// One queue's thread, as others see it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Seat {
    is_low: AtomicBool,
    /// Twice its requests, and one more while it is at one. Only the thread writes.
    turns: AtomicU64,
    id: OnceLock<ThreadId>,
}

/// What all threads of a mount share.
#[derive(Debug)]
pub struct Seats {
    seats: Box<[Seat]>,
    is_over: AtomicBool,
    guard_sleeps: AtomicBool,
    guard: OnceLock<Thread>,
    entered: AtomicU64,
    lifted: AtomicU64,
}

/// Ends the guard when a mount is over.
#[derive(Debug)]
pub struct Ender(pub Arc<Seats>);

impl Drop for Ender {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What the guard remembers of a thread.
#[derive(Clone, Debug, Default)]
struct Watch {
    turns: u64,
    quiet: u32,
}

impl Watch {
    /// Whether a thread is to be lifted; `can_run` says whether it would run if it had the CPU.
    fn look(&mut self, turns: u64, can_run: impl FnOnce() -> bool) -> bool {
        let is_same = turns == self.turns;
        self.turns = turns;
        self.quiet = if is_same { self.quiet + 1 } else { 0 };
        let is_kept = self.quiet >= KEPT && (turns % 2 == 1 || can_run());
        is_kept || self.quiet >= QUIET
    }
}

impl Seats {
    /// For so many queues; `None` where no thread gets out of the class.
    pub fn new(queues: usize) -> Option<Arc<Self>> {
        cpus::movable()?;
        scheduling::can_leave_idle().then(|| {
            Arc::new(Self {
                seats: (0..queues).map(|_| Seat::default()).collect(),
                is_over: AtomicBool::new(false),
                guard_sleeps: AtomicBool::new(false),
                guard: OnceLock::new(),
                entered: AtomicU64::new(0),
                lifted: AtomicU64::new(0),
            })
        })
    }

    /// Starts the guard of these threads, in the order of their queues. Without it none enters
    /// the class.
    pub fn guard(self: &Arc<Self>, threads: Vec<JoinHandle<()>>) {
        let seats = Arc::clone(self);
        let named = thread::Builder::new().name("uext4-guard".into());
        if let Ok(guard) = named.spawn(move || seats.watch(&threads)) {
            _ = self.guard.set(guard.thread().clone());
        }
    }

    /// How often a thread has entered the class, and has been lifted because it waited.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            entered: self.entered.load(Relaxed),
            ..Counts::default()
        };
        counts.left[Reason::Waiting as usize] = self.lifted.load(Relaxed);
        counts
    }

    /// Ends the guard.
    pub fn end(&self) {
        self.is_over.store(true, SeqCst);
        self.guard.get().map(Thread::unpark);
    }

    fn watch(&self, threads: &[JoinHandle<()>]) {
        let mut watches = vec![Watch::default(); self.seats.len()];
        while !self.is_over.load(SeqCst) {
            let mut is_any = false;
            for (seat, watch) in self.seats.iter().zip(&mut watches) {
                if !seat.is_low.load(SeqCst) {
                    *watch = Watch::default();
                } else if watch.look(seat.turns.load(SeqCst), || seat.can_run()) {
                    // In this order: a thread that enters the class meanwhile sees it.
                    seat.is_low.store(false, SeqCst);
                    seat.lift();
                    self.lifted.fetch_add(1, Relaxed);
                } else {
                    is_any = true;
                }
            }
            if is_any {
                thread::park_timeout(TICK);
                continue;
            }
            self.guard_sleeps.store(true, SeqCst);
            // A thread says that it is in the class before it looks whether the guard sleeps.
            if !self.seats.iter().any(|seat| seat.is_low.load(SeqCst)) {
                thread::park();
            }
            self.guard_sleeps.store(false, SeqCst);
        }
        // None ends in the class, where that may take long. One that has ended has no number.
        for (seat, thread) in self.seats.iter().zip(threads) {
            if !thread.is_finished() {
                seat.lift();
            }
        }
    }
}

impl Seat {
    fn can_run(&self) -> bool {
        self.id.get().is_some_and(|id| scheduling::can_run(*id))
    }

    fn lift(&self) {
        if let Some(id) = self.id.get() {
            scheduling::put(*id, Class::Normal);
        }
    }
}

/// The part of a queue's thread.
#[derive(Debug)]
pub struct Server {
    seats: Option<Arc<Seats>>,
    queue: usize,
    trials: Trials,
    is_low: bool,
}

impl Server {
    /// Of the thread of a queue; `None`: it never enters the class.
    pub fn new(seats: Option<Arc<Seats>>, queue: usize) -> Self {
        Self {
            seats,
            queue,
            trials: Trials::new(),
            is_low: false,
        }
    }

    fn seat(&self) -> Option<(&Arc<Seats>, &Seat)> {
        let seats = self.seats.as_ref()?;
        Some((seats, seats.seats.get(self.queue)?))
    }

    /// A request of this caller, 0 if none waits for it, came, and is served next.
    pub fn begin(&mut self, caller: u32, bytes: usize) {
        let Some((_, seat)) = self.seat() else { return };
        seat.turn();
        let was_lifted = self.is_low && !seat.is_low.load(SeqCst);
        if was_lifted {
            // The guard says so before it does it.
            self.leave();
        }
        if !self.is_low && caller != 0 && self.trials.see(caller, bytes < BULK) {
            self.enter();
        }
    }

    /// It is served, and its reply has so many bytes.
    pub fn end(&mut self, bytes: usize) {
        let Some((_, seat)) = self.seat() else { return };
        seat.turn();
        if self.is_low && bytes >= BULK {
            self.leave();
        }
    }

    fn enter(&mut self) {
        self.trials.begin();
        let Some((seats, seat)) = self.seat() else {
            return;
        };
        let Some(guard) = seats.guard.get() else {
            return;
        };
        _ = seat.id.set(gettid());
        seat.is_low.store(true, SeqCst);
        if seats.guard_sleeps.load(SeqCst) {
            guard.unpark();
        }
        let is_idle = scheduling::enter(Class::Idle);
        seats.entered.fetch_add(is_idle.into(), Relaxed);
        self.is_low = true;
        // Lifted before it was there, it would be so for good.
        if !is_idle
            || !self
                .seat()
                .is_some_and(|(_, seat)| seat.is_low.load(SeqCst))
        {
            self.leave();
        }
    }

    fn leave(&mut self) {
        scheduling::enter(Class::Normal);
        if let Some((_, seat)) = self.seat() {
            seat.is_low.store(false, SeqCst);
        }
        self.is_low = false;
        self.trials.end();
    }
}

impl Seat {
    fn turn(&self) {
        // No other thread writes it.
        let turns = self.turns.load(Relaxed);
        self.turns.store(turns.wrapping_add(1), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_kept_from_going_on_is_lifted_and_what_goes_on_is_not() {
        let looks = |turns: &[u64], can_run: bool| {
            let mut watch = Watch::default();
            let mut looks = turns.iter().map(|turns| watch.look(*turns, || can_run));
            looks.position(|is_lifted| is_lifted)
        };
        // At one request for two ticks, or with one to take.
        assert_eq!(looks(&[9, 9, 9], false), Some(2));
        assert_eq!(looks(&[8, 8, 8], true), Some(2));
        assert_eq!(looks(&[9, 9, 11, 11, 13, 13], true), None);
        // Nothing to do.
        assert_eq!(looks(&[8; 20], false), Some(16));
    }

    /// Enters the class, as a thread of a queue whose requests are of one caller.
    fn enter(server: &mut Server) {
        let end = Instant::now() + Duration::from_secs(60);
        while !server.is_low {
            assert!(Instant::now() < end, "never taken for a single stream");
            server.begin(7, 100);
            server.end(100);
        }
    }

    #[test]
    fn a_thread_enters_the_class_and_is_lifted() {
        let Some(seats) = Seats::new(1) else {
            println!("skipped: needs the privilege to get out of SCHED_IDLE");
            return;
        };
        let ender = Ender(Arc::clone(&seats));
        let (go, begin) = std::sync::mpsc::channel();
        let (done, is_done) = std::sync::mpsc::channel();
        let of_thread = Arc::clone(&seats);
        let thread = thread::spawn(move || {
            begin.recv().unwrap();
            let mut server = Server::new(Some(of_thread), 0);
            enter(&mut server);
            // At one request until it is lifted.
            server.begin(7, 100);
            let end = Instant::now() + Duration::from_secs(60);
            while !scheduling::is_in(Class::Normal) && Instant::now() < end {
                thread::sleep(TICK);
            }
            done.send(scheduling::is_in(Class::Normal)).unwrap();
            server.end(100);
            // Much data is none of it.
            enter(&mut server);
            server.begin(7, 100);
            server.end(BULK);
            done.send(scheduling::is_in(Class::Normal) && !server.is_low)
                .unwrap();
            // Nothing to do.
            enter(&mut server);
            begin.recv().unwrap();
        });
        seats.guard(vec![thread]);
        go.send(()).unwrap();
        assert!(is_done.recv().unwrap(), "it is still in the class");
        assert!(is_done.recv().unwrap());
        let end = Instant::now() + Duration::from_secs(60);
        while seats.counts().left[Reason::Waiting as usize] < 2 {
            assert!(
                Instant::now() < end,
                "a thread with nothing to do stays in the class"
            );
            thread::sleep(TICK);
        }
        go.send(()).unwrap();
        drop(ender);
    }
}
