//! Which group each thread was sent to when it found others busy.
//!
//! A thread that finds the group of its goal locked goes to a group of its own and remembers it,
//! so that threads which all start in one place soon work in different ones. A thread that must
//! wait, because what it asks for continues something, starts its next few files in its own
//! group. There are at most as many places as a quarter of the groups, and threads get theirs in
//! the order of their first request that found a lock held: one thread alone never has one, and
//! its layout depends on nothing else.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Places at most.
const PLACES_MAX: u32 = 64;
/// Files that a thread starts in its own group after it had to wait.
const STARTS: u32 = 64;
/// No group yet.
const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Place {
    /// Number of the thread it belongs to; 0: of none.
    thread: AtomicU64,
    group: AtomicU32,
    /// Files yet to be started in its own group; only its thread changes it, but for shared places.
    starts: AtomicU32,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Leases {
    places: Box<[Place]>,
    /// Any thread had to wait yet.
    any: AtomicBool,
}

impl Leases {
    pub(super) fn new(groups: u32) -> Self {
        let place = || Place {
            group: AtomicU32::new(NONE),
            ..Place::default()
        };
        Self {
            places: (0..Self::count(groups)).map(|_| place()).collect(),
            any: AtomicBool::new(false),
        }
    }

    /// How many places a file system of so many groups has.
    pub(super) fn count(groups: u32) -> usize {
        PLACES_MAX.min(groups / 4) as usize
    }

    /// How many places there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The calling thread's place, taken now if it has none; threads share when there are too few.
    fn place(&self) -> Option<&Place> {
        let thread = uext4_support::thread_number();
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
    pub(super) fn group(&self) -> Option<u32> {
        let group = self.place()?.group.load(Relaxed);
        (group != NONE).then_some(group)
    }

    /// The calling thread was sent to `group`.
    pub(super) fn set(&self, group: u32) {
        if let Some(place) = self.place() {
            place.group.store(group, Relaxed);
        }
    }

    /// The calling thread must wait for a group.
    pub(super) fn waits(&self) {
        if let Some(place) = self.place() {
            place.starts.store(STARTS, Relaxed);
            self.any.store(true, Relaxed);
        }
    }

    /// Whether the file that the calling thread starts should go to its own group.
    pub(super) fn start_apart(&self) -> bool {
        if !self.any.load(Relaxed) {
            return false;
        }
        let Some(place) = self.place() else {
            return false;
        };
        let left = place.starts.load(Relaxed);
        place.starts.store(left.saturating_sub(1), Relaxed);
        left > 0
    }

    /// Whether a thread was sent to `group`.
    pub(super) fn is_leased(&self, group: u32) -> bool {
        let mut places = self.places.iter();
        places.any(|place| place.group.load(Relaxed) == group)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::thread;

    use uext4_ondisk::{Geometry, GroupNr, Pblk};

    use super::Leases;
    use crate::testing::{PER_GROUP, geometry};
    use crate::{Allocator, GroupBitmaps, Request};

    /// Groups with nothing in them.
    struct Empty(Geometry);

    impl GroupBitmaps for Empty {
        type Error = Infallible;
        fn free_blocks(&self, group: GroupNr) -> Result<u32, Infallible> {
            Ok(self.0.blocks_in_group(group))
        }
        fn read_bitmap(&self, _: GroupNr, bitmap: &mut [u8]) -> Result<(), Infallible> {
            bitmap.fill(0);
            Ok(())
        }
        fn mark_used(&self, _: GroupNr, _: u32, _: u32) -> Result<(), Infallible> {
            Ok(())
        }
        fn mark_free(&self, _: GroupNr, _: u32, _: u32) -> Result<(), Infallible> {
            Ok(())
        }
    }

    fn empty(groups: u32) -> Empty {
        Empty(geometry(groups * PER_GROUP))
    }

    fn group_taken(allocator: &Allocator, bitmaps: &Empty) -> u64 {
        let request = Request {
            goal: Pblk(1),
            len: 4,
            min_len: 1,
            next_fit: false,
        };
        let run = allocator.take(bitmaps, &request).unwrap();
        (run.start.0 - 1) / 256
    }

    #[test]
    fn threads_that_meet_go_to_groups_of_their_own() {
        let bitmaps = empty(16);
        let allocator = Allocator::new(&bitmaps.0, &bitmaps).unwrap();
        assert_eq!(group_taken(&allocator, &bitmaps), 0);
        // While the lock of the first group is held.
        let elsewhere = allocator.groups().peek(GroupNr(0), |_| {
            let mine = [(); 3].map(|()| group_taken(&allocator, &bitmaps));
            let others = thread::scope(|scope| {
                let other = scope.spawn(|| [(); 3].map(|()| group_taken(&allocator, &bitmaps)));
                other.join().unwrap()
            });
            (mine, others)
        });
        assert_eq!(elsewhere, Some(([1, 1, 1], [2, 2, 2])));
        assert_eq!(group_taken(&allocator, &bitmaps), 0);
        let stats = allocator.stats();
        assert_eq!(stats.lock_contended, 0);
        assert!(stats.trylock_skipped >= 6, "{stats:?}");
    }

    #[test]
    fn places_are_at_most_a_quarter_of_the_groups() {
        let bitmaps = empty(3);
        let allocator = Allocator::new(&bitmaps.0, &bitmaps).unwrap();
        assert_eq!(group_taken(&allocator, &bitmaps), 0);
        let first = allocator
            .groups()
            .peek(GroupNr(0), |_| group_taken(&allocator, &bitmaps));
        assert_eq!(first, Some(1));
        let leases = Leases::new(3);
        leases.set(1);
        assert_eq!(leases.group(), None);
    }
}
