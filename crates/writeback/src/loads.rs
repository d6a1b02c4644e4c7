//! The loads of one file that are under way.
//!
//! While a load is under way its range is on a list. A reader that misses a block of it waits for
//! it; a writer of whole blocks does not, and the load then leaves those alone. Whatever *drops*
//! blocks in the range spoils the load, for what it reads may be older than what was dropped:
//! nothing of it may enter the cache, and it is tried again. Loads of which nothing enters the
//! cache are not waited for; they are on the list to be spoilt.

use std::ops::Range;

/// A load under way.
#[derive(Debug)]
struct Load {
    id: u64,
    range: Range<u64>,
    spoilt: bool,
    /// What it reads enters the cache.
    keeps: bool,
}

/// The loads of one file that are under way: about as many as threads reading it.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    next: u64,
    ended: u64,
    active: Vec<Load>,
}

impl Loads {
    /// Begins one whose pieces enter the cache; returns its number, for [`Loads::end`].
    pub(crate) fn begin(&mut self, range: Range<u64>) -> u64 {
        self.add(range, true)
    }

    /// Begins one of which nothing enters the cache, so that no reader waits for it; for
    /// [`Loads::leave`].
    pub(crate) fn begin_passing(&mut self, range: Range<u64>) -> u64 {
        self.add(range, false)
    }

    fn add(&mut self, range: Range<u64>, keeps: bool) -> u64 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.active.push(Load {
            id,
            range,
            spoilt: false,
            keeps,
        });
        id
    }

    /// What is read in this range must not be used.
    pub(crate) fn spoil(&mut self, range: &Range<u64>) {
        for load in &mut self.active {
            load.spoilt |= load.range.start < range.end && range.start < load.range.end;
        }
    }

    /// True if what the load read may be used.
    pub(crate) fn is_good(&self, id: u64) -> bool {
        self.active.iter().any(|load| load.id == id && !load.spoilt)
    }

    /// Takes a load off the list; returns how many have ended.
    pub(crate) fn end(&mut self, id: u64) -> u64 {
        self.active.retain(|load| load.id != id);
        self.ended += 1;
        self.ended
    }

    /// Takes one that no reader waits for off the list.
    pub(crate) fn leave(&mut self, id: u64) {
        self.active.retain(|load| load.id != id);
    }

    /// How many have ended that a reader may have waited for.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    fn keeping(&self) -> impl Iterator<Item = &Range<u64>> {
        let keeping = self.active.iter().filter(|load| load.keeps);
        keeping.map(|load| &load.range)
    }

    /// True if the block at this offset is about to enter the cache.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        self.keeping().any(|range| range.contains(&offset))
    }

    /// Where the next one begins that fills the cache.
    pub(crate) fn next_start(&self, offset: u64) -> Option<u64> {
        let starts = self.keeping().map(|range| range.start);
        starts.filter(|start| *start > offset).min()
    }
}
