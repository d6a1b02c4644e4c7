//! What locks, sleeps and blocks cost, as modelled time: microseconds.
//!
//! Time is that of the narrowest place: all work over the cores there are, or the place whose
//! turns take longest one after another, or the journal's writer.

use std::collections::{HashMap, HashSet};

/// Cores of the modelled machine. The thread does not say.
pub const CORES: u64 = 16;
/// A lock changes hands; a thread sleeps, or is woken. The design paper's.
const HAND_OVER: f64 = 1.0;
pub const SWITCH: f64 = 2.0;
/// An uncontended lock, and what an entry of a chain costs that is passed.
const LOCK: f64 = 0.025;
pub const CHAIN_STEP: f64 = 0.005;
/// A cache line that another core changed last.
const LINE: f64 = 0.1;
/// A system call, the inode and its attributes, the hash that goes on disk.
pub const SET: f64 = 2.0;
/// A hash of a content, 332 bytes in use at 0.3 ns each, the design paper's; a block compared.
pub const CONTENT_HASH: f64 = 0.1;
pub const COMPARE: f64 = 0.1;
/// A buffer changed in a transaction; a search for a free block.
pub const UPDATE: f64 = 0.5;
pub const SEARCH: f64 = 1.0;
/// A block that the journal writes, and its place later.
const JOURNAL_WRITE: f64 = 5.0;

/// What one task has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The lock of a hash chain.
    Chain(u64),
    /// The lock of all entries, or of a part of them.
    List(u64),
    /// The lock of some entries.
    Entry(u64),
    /// The lock of the queue of a caller that sleeps.
    Queue,
    /// A block's buffer.
    Buffer(u64),
    /// The lock of some counts of users, alone; the same, shared; and one of these counts.
    Counts(u64),
    CountsShared(u64),
    Count(u64),
    /// A counter that is changed without a lock.
    Line(u64),
}

/// The last owner of a place, and how long it was taken.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    last: Option<usize>,
    busy: f64,
}

/// All that was paid.
#[derive(Debug, Default)]
pub struct Costs {
    work: f64,
    places: HashMap<Place, Turns>,
    /// Blocks that the journal has to write.
    dirty: HashSet<u64>,
    /// Locks that went from one task to another.
    pub handoffs: u64,
    /// Times a buffer was locked, and updates under it.
    pub buffer_locks: u64,
    pub updates: u64,
}

impl Costs {
    /// Work that hinders no thread.
    pub fn work(&mut self, time: f64) {
        self.work += time;
    }

    /// Takes a lock so many times in one go, and holds it for so long in all.
    pub fn lock(&mut self, place: Place, task: usize, times: u64, hold: f64) {
        if times > 0 {
            let moved = self.turn(place, task, LOCK * times as f64 + hold, HAND_OVER);
            self.handoffs += u64::from(moved);
        }
    }

    /// Changes a counter that tasks share.
    pub fn line(&mut self, line: u64, task: usize) {
        self.turn(Place::Line(line), task, 0.0, LINE);
    }

    /// Shares a lock, or changes a word under it: no thread waits, but the line moves.
    pub fn share(&mut self, place: Place, task: usize) {
        self.turn(place, task, LOCK, LINE);
    }

    fn turn(&mut self, place: Place, task: usize, time: f64, moving: f64) -> bool {
        let turns = self.places.entry(place).or_default();
        let moved = turns.last.is_some_and(|last| last != task);
        let time = time + if moved { moving } else { 0.0 };
        turns.last = Some(task);
        turns.busy += time;
        self.work += time;
        moved
    }

    /// Locks a block's buffer and changes it and so many others in the transaction.
    pub fn buffer(&mut self, block: u64, task: usize, updates: u64) {
        self.buffer_locks += 1;
        self.updates += updates;
        if updates > 0 {
            self.dirty.insert(block);
        }
        self.lock(Place::Buffer(block), task, 1, UPDATE * updates as f64);
    }

    /// A block that the journal has to write, any thread that changed it.
    pub fn dirty(&mut self, block: u64) {
        self.dirty.insert(block);
    }

    /// Time until all is done.
    pub fn elapsed(&self, tasks: u64) -> f64 {
        let busiest = self.places.values().map(|turns| turns.busy);
        let journal = self.dirty.len() as f64 * JOURNAL_WRITE;
        let work = self.work / tasks.min(CORES) as f64;
        busiest.fold(work.max(journal), f64::max)
    }
}

/// To four digits behind the point.
pub fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_place_takes_the_time() {
        let mut costs = Costs::default();
        for task in [0, 1, 1, 0] {
            costs.lock(Place::List(0), task, 1, 0.0);
        }
        assert_eq!(costs.handoffs, 2);
        assert!((costs.elapsed(2) - 2.1).abs() < 1e-9);
        costs.work(100.0);
        assert!((costs.elapsed(100) - 102.1 / 16.0).abs() < 1e-9);
        (0..10).for_each(|block| costs.dirty(block));
        assert_eq!(costs.elapsed(100), 50.0);
    }
}
