//! Which group each thread was sent to when it found others busy.
//!
//! A thread that finds the group of its goal locked goes to a group of its own and remembers it, so
//! that threads which all start in one place soon work in different ones. There are at most as many
//! places as a quarter of the groups, and threads get theirs in the order of their first request that
//! found a lock held: one thread alone never has one, and its layout depends on nothing else.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Places at most.
const PLACES_MAX: u32 = 64;
/// No group yet.
const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Place {
    /// Number of the thread it belongs to; 0: nobody's.
    thread: AtomicU64,
    group: AtomicU32,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Leases {
    places: Box<[Place]>,
}

impl Leases {
    pub(crate) fn new(groups: u32) -> Self {
        let place = || Place {
            group: AtomicU32::new(NONE),
            ..Place::default()
        };
        Self {
            places: (0..PLACES_MAX.min(groups / 4)).map(|_| place()).collect(),
        }
    }

    /// The calling thread's place, taken now if it has none; threads share when there are too few.
    fn place(&self) -> Option<&Place> {
        let thread = thread_number();
        for place in &self.places {
            let owner = place.thread.load(Relaxed);
            let taken = owner == 0
                && place
                    .thread
                    .compare_exchange(0, thread, Relaxed, Relaxed)
                    .is_ok();
            if taken || owner == thread {
                return Some(place);
            }
        }
        let at = thread.checked_rem(self.places.len() as u64)?;
        self.places.get(at as usize)
    }

    /// The group the calling thread was sent to.
    pub(crate) fn group(&self) -> Option<u32> {
        let group = self.place()?.group.load(Relaxed);
        (group != NONE).then_some(group)
    }

    /// The calling thread was sent to `group`.
    pub(crate) fn set(&self, group: u32) {
        if let Some(place) = self.place() {
            place.group.store(group, Relaxed);
        }
    }

    /// Whether a thread was sent to `group`.
    pub(crate) fn is_leased(&self, group: u32) -> bool {
        let mut places = self.places.iter();
        places.any(|place| place.group.load(Relaxed) == group)
    }
}

/// A number of the calling thread, more than 0, that no other thread of the process has.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}
