//! Under which content a thing came in last, so that it need not be hashed once more when it is to
//! go.
//!
//! A table of a fixed number of places; what comes later to a place takes it. What it says is true:
//! a thing gets another content only from its one user, after it has left the cache, and comes in
//! again under that, or not at all. It may always say nothing.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

/// Places, a power of two.
const PLACES: usize = 8192;
/// 2⁶⁴ divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// In place of a thing: none, and a thread that writes.
const NONE: u64 = 0;
const WRITING: u64 = 1;

#[derive(Debug)]
struct Place {
    /// The thing's number and two, wrapping: a thing that looks like none is not noted.
    thing: AtomicU64,
    content: AtomicU64,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Memo(Box<[Place]>);

impl Memo {
    pub(crate) const BYTES: usize = PLACES * size_of::<Place>();

    pub(crate) fn new() -> Self {
        let place = |_| Place {
            thing: AtomicU64::new(NONE),
            content: AtomicU64::new(0),
        };
        Self((0..PLACES).map(place).collect())
    }

    fn place(&self, value: u64) -> (&Place, u64) {
        let at = value.wrapping_mul(GOLDEN) >> (64 - PLACES.ilog2());
        (&self.0[at as usize], value.wrapping_add(2))
    }

    /// A thing comes in. Called by one of its users.
    pub(crate) fn note(&self, value: u64, content: u64) {
        let (place, thing) = self.place(value);
        let was = place.thing.load(Acquire);
        // A thread that writes meanwhile notes another thing, or the same content of this.
        let is_free = was != WRITING && thing > WRITING;
        let swap = |was| {
            let swapped = place.thing.compare_exchange(was, WRITING, AcqRel, Acquire);
            swapped.is_ok()
        };
        if is_free && swap(was) {
            place.content.store(content, Release);
            place.thing.store(thing, Release);
        }
    }

    /// The content of a thing when it came in last, if that is known. Called by its only user.
    pub(crate) fn content(&self, value: u64) -> Option<u64> {
        let (place, thing) = self.place(value);
        let is_it = || thing > WRITING && place.thing.load(Acquire) == thing;
        if !is_it() {
            return None;
        }
        let content = place.content.load(Acquire);
        // No thread has written in between.
        is_it().then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_was_said_last_or_nothing() {
        let memo = Memo::new();
        assert_eq!(memo.content(5), None);
        memo.note(5, 50);
        memo.note(5, 51);
        assert_eq!(memo.content(5), Some(51));
        for value in [u64::MAX, u64::MAX - 1] {
            memo.note(value, 7);
            assert_eq!(memo.content(value), None);
        }
        (6..100_000).for_each(|value| memo.note(value, value * 10));
        let known = (0..100_000).filter_map(|value| Some((value, memo.content(value)?)));
        let known: Vec<(u64, u64)> = known.collect();
        assert_eq!(known.len(), PLACES);
        assert!(known.iter().all(|&(value, content)| content == value * 10));
    }
}
