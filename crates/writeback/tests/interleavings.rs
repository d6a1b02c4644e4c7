//! Writers who sleep and what wakes them, in many orders, as the model checker `shuttle` chooses
//! them. Time never passes here: any thread that is not woken sleeps for ever, which the checker
//! reports as a deadlock. `UEXT4_LONG=1` tries many more.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

/// The same names as in the crate, of the checker.
mod sync {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// Empty only within a call of [`Condvar::wait_for`].
    pub struct Guard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    #[derive(Debug, Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    /// Whether the time was over: never.
    pub struct TimedOut;

    impl TimedOut {
        pub fn timed_out(&self) -> bool {
            false
        }
    }

    impl Condvar {
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn wait_for<T>(&self, guard: &mut Guard<'_, T>, _: Duration) -> TimedOut {
            let held = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(held).unwrap());
            TimedOut
        }
    }
}

// Of the crate itself, which does not show it.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/waiters.rs"]
mod waiters;

use waiters::{Cancel, Sleep, Slot, Waiters};

/// Schedules for each test.
fn schedules() -> usize {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => 50_000,
        None => 1000,
    }
}

/// Tries random schedules, and some that switch at few unlikely places.
fn check(test: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(test, schedules());
    shuttle::check_pct(test, schedules(), 3);
}

/// Pages that may be dirty, and those who wait for some.
#[derive(Default)]
struct Memory {
    free: sync::Mutex<u64>,
    waiters: Waiters,
    is_over: sync::AtomicBool,
}

impl Memory {
    fn take(&self, pages: u64) -> bool {
        let mut free = self.free.lock();
        let is_there = *free >= pages;
        if is_there {
            *free -= pages;
        }
        is_there
    }

    fn give(&self, cache: u64, pages: u64) {
        *self.free.lock() += pages;
        self.waiters.free(cache, pages);
    }

    /// What a writer does; false if it was called off.
    fn write(&self, cache: u64, pages: u64, cancel: Option<&Cancel>) -> bool {
        let slot = Arc::new(Slot::default());
        let is_over = || self.is_over.load(std::sync::atomic::Ordering::SeqCst);
        loop {
            let freed = self.waiters.freed();
            if self.take(pages) {
                return true;
            }
            let sleep = Sleep {
                cache,
                pages,
                freed,
                at_most: Duration::MAX,
            };
            self.waiters.sleep(&slot, sleep, cancel, is_over);
            if is_over() || cancel.is_some_and(Cancel::is_cancelled) {
                self.waiters.free(cache, pages);
                return false;
            }
        }
    }
}

#[test]
fn a_waiter_gets_the_freed_tokens() {
    check(|| {
        let memory = Arc::new(Memory::default());
        let writers: Vec<_> = [(0, 1), (0, 2), (1, 1)]
            .into_iter()
            .map(|(cache, pages)| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || assert!(memory.write(cache, pages, None)))
            })
            .collect();
        for _ in 0..2 {
            memory.give(0, 2);
        }
        for writer in writers {
            writer.join().unwrap();
        }
        assert!(memory.take(0) && !memory.take(1));
    });
}

#[test]
fn a_cancelled_waiter_wakes_another() {
    check(|| {
        let memory = Arc::new(Memory::default());
        let cancel = Cancel::new();
        let off = {
            let (memory, cancel) = (Arc::clone(&memory), cancel.clone());
            thread::spawn(move || memory.write(0, 1, Some(&cancel)))
        };
        let on = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || assert!(memory.write(0, 1, None)))
        };
        memory.give(0, 1);
        cancel.cancel();
        // If the first was quick it has what there was.
        if off.join().unwrap() {
            memory.give(0, 1);
        }
        on.join().unwrap();
    });
}

#[test]
fn no_writer_sleeps_after_the_end() {
    check(|| {
        let memory = Arc::new(Memory::default());
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || assert!(!memory.write(7, 1, None)))
            })
            .collect();
        memory
            .is_over
            .store(true, std::sync::atomic::Ordering::SeqCst);
        memory.waiters.wake_all(7);
        for writer in writers {
            writer.join().unwrap();
        }
    });
}
