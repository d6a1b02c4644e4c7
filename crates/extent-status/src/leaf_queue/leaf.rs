//! A leaf: up to [`LEAF_EXTENTS`] extents of one tree, 16 bytes each, in order.
//!
//! Entries are pairs of atomics, so that the one writer (who holds the tree's lock) changes them in
//! place while readers look. A reader may see half of a change: it must check the tree's version
//! afterwards, and until then bound what it reads.

use std::ops::Range;
use std::sync::Weak;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use uext4_ondisk::{Lblk, Pblk};
use uext4_support::ring;

use crate::extent::{Extent, Status};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64};

/// The most extents of one leaf; a leaf is dropped as a whole.
pub const LEAF_EXTENTS: usize = 64;

/// The room of the smallest leaf, which needs no memory but its own.
pub(super) const FEWEST: usize = 4;

/// The most a leaf can be in favour.
const FREQ_MAX: u32 = 3;

/// Bits of the frequency in a mark; the tick lies above.
const FREQ_BITS: u32 = 2;

/// Where the status lies above the place.
const STATUS_SHIFT: u32 = 60;

/// An extent in 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// First block above, length below.
    range: u64,
    /// Status above, place below.
    place: u64,
}

impl Packed {
    pub(super) fn start(self) -> u32 {
        (self.range >> 32) as u32
    }

    pub(super) fn len(self) -> u32 {
        self.range as u32
    }

    pub(super) fn end(self) -> u32 {
        self.start().saturating_add(self.len())
    }

    pub(super) fn extent(self) -> Extent {
        Extent {
            lblk: Lblk(self.start()),
            len: self.len(),
            pblk: Pblk(self.place & (Extent::PLACES - 1)),
            status: match self.place >> STATUS_SHIFT {
                0 => Status::Written,
                1 => Status::Unwritten,
                2 => Status::Delayed,
                _ => Status::Hole,
            },
        }
    }
}

impl From<&Extent> for Packed {
    /// Of an extent that is [`Extent::bounded`]: its place is below [`Extent::PLACES`].
    fn from(extent: &Extent) -> Self {
        let status = match extent.status {
            Status::Written => 0,
            Status::Unwritten => 1,
            Status::Delayed => 2,
            Status::Hole => 3,
        };
        Self {
            range: u64::from(extent.lblk.0) << 32 | u64::from(extent.len),
            place: status << STATUS_SHIFT | extent.pblk.0,
        }
    }
}

#[derive(Debug)]
struct Entry {
    range: AtomicU64,
    place: AtomicU64,
}

impl From<Packed> for Entry {
    fn from(packed: Packed) -> Self {
        Self {
            range: AtomicU64::new(packed.range),
            place: AtomicU64::new(packed.place),
        }
    }
}

/// In which queue of its shard a leaf waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// New ones.
    Probation,
    /// Those that were used again.
    Main,
    /// Those of trees loaded in advance by request.
    Protected,
}

/// Where a leaf waits. Written under the shard's lock only.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) shard: u32,
    pub(super) hash: u64,
    pub(super) queue: AtomicU8,
    pub(super) slot: AtomicU32,
    /// Its tree has dropped it.
    pub(super) gone: AtomicBool,
}

impl Place {
    /// A place in no queue yet.
    pub(super) fn new(shard: u32, hash: u64) -> Self {
        Self {
            shard,
            hash,
            queue: AtomicU8::new(Queue::Probation as u8),
            slot: AtomicU32::new(ring::NONE),
            gone: AtomicBool::new(false),
        }
    }

    pub(super) fn queue(&self) -> Queue {
        match self.queue.load(Relaxed) {
            0 => Queue::Probation,
            1 => Queue::Main,
            _ => Queue::Protected,
        }
    }
}

/// Most files have few extents: so many lie in the leaf itself.
#[derive(Debug)]
enum Entries {
    Few([Entry; FEWEST]),
    Many(Box<[Entry]>),
}

/// Entries that a leaf of `len` extents has space for: few sizes, so that it is seldom made anew.
pub(super) fn capacity_for(len: usize) -> usize {
    match len {
        0..=FEWEST => FEWEST,
        5..=16 => 16,
        _ => LEAF_EXTENTS,
    }
}

/// A leaf of a tree of type `T`, never empty while it is in the index of that tree.
#[derive(Debug)]
pub(super) struct Leaf<T> {
    entries: Entries,
    len: AtomicU32,
    /// The tick of the last lookup that counted, and how many counted.
    mark: AtomicU32,
    /// Its tree and its place in the queues, unless its extents are delayed.
    pub(super) queued: Option<(Weak<T>, Place)>,
}

impl<T> Leaf<T> {
    /// A leaf with room for `capacity` extents, at least [`FEWEST`].
    pub(super) fn new(
        entries: &[Packed],
        capacity: usize,
        queued: Option<(Weak<T>, Place)>,
    ) -> Self {
        let zero = Packed { range: 0, place: 0 };
        let capacity = capacity.max(FEWEST);
        Self {
            entries: if capacity == FEWEST {
                let at = |index| entries.get(index).copied().unwrap_or(zero);
                Entries::Few(std::array::from_fn(|index| Entry::from(at(index))))
            } else {
                let padded = entries.iter().copied().chain(std::iter::repeat(zero));
                Entries::Many(padded.take(capacity).map(Entry::from).collect())
            },
            len: AtomicU32::new(entries.len().min(capacity) as u32),
            mark: AtomicU32::new(0),
            queued,
        }
    }

    fn entries(&self) -> &[Entry] {
        match &self.entries {
            Entries::Few(entries) => entries,
            Entries::Many(entries) => entries,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.entries().len()
    }

    /// What it takes, with its row in the index, in bytes.
    pub(super) fn bytes(&self) -> i64 {
        let own = size_of::<Self>() + 16 + 32;
        let apart = match &self.entries {
            Entries::Few(_) => 0,
            Entries::Many(entries) => 16 + size_of_val(&**entries),
        };
        (own + apart) as i64
    }

    pub(super) fn len(&self) -> usize {
        (self.len.load(Relaxed) as usize).min(self.capacity())
    }

    /// The entry at `index`; nothing sensible beyond the last.
    pub(super) fn get(&self, index: usize) -> Packed {
        match self.entries().get(index) {
            Some(entry) => Packed {
                range: entry.range.load(Relaxed),
                place: entry.place.load(Relaxed),
            },
            None => Packed { range: 0, place: 0 },
        }
    }

    /// The entries in use. A reader may see a length that is not theirs yet, within the cache.
    fn known(&self) -> &[Entry] {
        &self.entries()[..self.len()]
    }

    /// How many entries begin before `lblk`.
    pub(super) fn before(&self, lblk: u32) -> usize {
        let known = self.known();
        known.partition_point(|entry| ((entry.range.load(Relaxed) >> 32) as u32) < lblk)
    }

    /// The index of the last entry that begins at or before `lblk`.
    pub(super) fn floor(&self, lblk: u32) -> Option<usize> {
        let known = self.known();
        known
            .partition_point(|entry| (entry.range.load(Relaxed) >> 32) as u32 <= lblk)
            .checked_sub(1)
    }

    pub(super) fn packed(&self) -> Vec<Packed> {
        (0..self.len()).map(|index| self.get(index)).collect()
    }

    /// Changes the entry at `index`, which must be there.
    pub(super) fn set(&self, index: usize, packed: Packed) {
        if let Some(entry) = self.entries().get(index) {
            entry.range.store(packed.range, Relaxed);
            entry.place.store(packed.place, Relaxed);
        }
    }

    /// Puts `new` in place of the entries `old`; what is there then must fit the capacity.
    pub(super) fn splice(&self, old: Range<usize>, new: &[Packed]) {
        let len = self.len();
        let grown = len - old.len() + new.len();
        if new.len() > old.len() {
            let by = new.len() - old.len();
            for index in (old.end..len).rev() {
                self.set(index + by, self.get(index));
            }
        } else if new.len() < old.len() {
            let by = old.len() - new.len();
            for index in old.end..len {
                self.set(index - by, self.get(index));
            }
        }
        for (index, packed) in (old.start..).zip(new) {
            self.set(index, *packed);
        }
        self.len.store(grown as u32, Relaxed);
    }

    /// Counts a lookup, if it is the first in this tick of the queue and may still count: lookups
    /// in quick succession are one use. One store at most.
    pub(super) fn refer(&self, tick: u32) {
        let mark = self.mark.load(Relaxed);
        let freq = mark & FREQ_MAX;
        let tick = tick << FREQ_BITS;
        if freq < FREQ_MAX && mark & !FREQ_MAX != tick {
            self.mark.store(tick | (freq + 1), Relaxed);
        }
    }

    /// How often it was used, 0 to 3.
    pub(super) fn freq(&self) -> u32 {
        self.mark.load(Relaxed) & FREQ_MAX
    }

    /// Sets how often it was used. What a reader counts at the same moment may be lost.
    pub(super) fn set_freq(&self, freq: u32) {
        let tick = self.mark.load(Relaxed) & !FREQ_MAX;
        self.mark.store(tick | freq.min(FREQ_MAX), Relaxed);
    }

    /// Begins its life in this tick: lookups in it do not count.
    pub(super) fn begin(&self, tick: u32) {
        self.mark.store(tick << FREQ_BITS, Relaxed);
    }

    /// Takes over how the leaf was used of which this one is the continuation.
    pub(super) fn inherit(&self, of: &Self) {
        self.mark.store(of.mark.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(lblk: u32) -> Packed {
        Packed::from(&Extent {
            lblk: Lblk(lblk),
            len: 1,
            pblk: Pblk(0),
            status: Status::Hole,
        })
    }

    #[test]
    fn sixteen_bytes_hold_an_extent() {
        for status in Status::ALL {
            let extent = Extent {
                lblk: Lblk(u32::MAX - 7),
                len: 7,
                pblk: Pblk(Extent::PLACES - 7),
                status,
            };
            assert_eq!(Packed::from(&extent).extent(), extent);
            assert_eq!(Packed::from(&extent).end(), u32::MAX);
        }
        assert_eq!(size_of::<Entry>(), 16);
    }

    #[test]
    fn entries_move_as_others_come_and_go() {
        let leaf = Leaf::<()>::new(&[2, 4, 6].map(hole), 8, None);
        leaf.splice(1..1, &[hole(3)]);
        assert_eq!(leaf.packed(), [2, 3, 4, 6].map(hole));
        leaf.splice(1..3, &[hole(5)]);
        assert_eq!(leaf.packed(), [2, 5, 6].map(hole));
        assert_eq!(
            (leaf.floor(1), leaf.floor(5), leaf.floor(9)),
            (None, Some(1), Some(2))
        );
        assert_eq!((leaf.before(5), leaf.before(7)), (1, 3));
        leaf.splice(0..3, &[]);
        assert_eq!((leaf.len(), leaf.floor(9)), (0, None));
    }

    #[test]
    fn look_ups_in_quick_succession_are_one_use() {
        let leaf = Leaf::<()>::new(&[hole(2)], 4, None);
        leaf.begin(5);
        leaf.refer(5);
        assert_eq!(leaf.freq(), 0);
        for tick in [6, 6, 7] {
            leaf.refer(tick);
        }
        assert_eq!(leaf.freq(), 2);
        (8..20).for_each(|tick| leaf.refer(tick));
        assert_eq!(leaf.freq(), FREQ_MAX);
    }
}
