//! Queues of leaves that may be dropped, in shards with a lock each.
//!
//! A shard's lock is taken inside a tree's, for a step. A scan takes a leaf off its queue, lets
//! go of the shard, and then only tries the lock of the tree. Meanwhile the leaf is in no queue;
//! if its tree drops it just then, it is marked, and not put back.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use uext4_support::ring::{self, Ring};

use super::ghost::Ghost;
use super::leaf::{Leaf, Place, Queue};
use crate::scan::Scan;
use crate::sync::AtomicU32;

#[derive(Debug)]
struct Rings<T> {
    rings: [Ring<Weak<Leaf<T>>>; 3],
    /// Leaves that came or were taken since the last tick.
    moves: usize,
    /// What the rings took when that was last counted.
    bytes: usize,
}

// A derived one would ask for `T: Default`.
impl<T> Default for Rings<T> {
    fn default() -> Self {
        Self {
            rings: Default::default(),
            moves: 0,
            bytes: 0,
        }
    }
}

impl<T> Rings<T> {
    fn ring(&mut self, queue: Queue) -> &mut Ring<Weak<Leaf<T>>> {
        &mut self.rings[queue as usize]
    }

    fn len(&self) -> usize {
        self.rings.iter().map(Ring::len).sum()
    }

    fn bytes(&self) -> usize {
        self.rings.iter().map(Ring::bytes).sum()
    }
}

/// On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard<T> {
    rings: Mutex<Rings<T>>,
    /// Counts up as leaves move: what is one use is reported by it.
    tick: AtomicU32,
    /// Leaves now, for a caller that holds no lock.
    len: AtomicUsize,
    ghost: Ghost,
    /// What the queues of all shards take, in bytes.
    taken: Arc<AtomicU64>,
}

/// A leaf taken off a queue, or why there is none.
#[derive(Debug)]
pub(super) enum Taken<T> {
    Leaf(Arc<Leaf<T>>, Queue),
    /// It went away just now.
    Gone,
    Empty,
}

/// A tick passes when one leaf in so many of a shard's has moved.
const TICKS: usize = 32;

#[derive(Debug)]
pub(super) struct Queues<T> {
    /// One leaf in so many is on probation; 0: none, and new leaves are in the main queue.
    probation: usize,
    /// A power of two of them.
    shards: Box<[Shard<T>]>,
    /// The shard whose turn is next, before wrapping.
    next: AtomicUsize,
    /// The number of the last tree.
    trees: AtomicU64,
    /// What the queues take, in bytes.
    taken: Arc<AtomicU64>,
}

impl<T> Queues<T> {
    pub(super) fn new(probation: usize, shards: usize) -> Self {
        let taken = Arc::new(AtomicU64::new(0));
        let shards = shards.max(1).next_power_of_two();
        let shard = |_| Shard {
            rings: Mutex::default(),
            tick: AtomicU32::new(0),
            len: AtomicUsize::new(0),
            ghost: Ghost::default(),
            taken: Arc::clone(&taken),
        };
        Self {
            probation,
            shards: (0..shards).map(shard).collect(),
            next: AtomicUsize::new(0),
            trees: AtomicU64::new(0),
            taken,
        }
    }

    /// What the queues take, free slots too, in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// A number no other tree has.
    pub(super) fn number(&self) -> u64 {
        self.trees.fetch_add(1, Relaxed)
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// What is stored of leaves that were dropped, in bytes.
    pub(super) fn ghost_bytes(&self) -> u64 {
        let bytes = self.shards.iter().map(|shard| shard.ghost.bytes() as u64);
        bytes.sum()
    }

    /// Shards in turn.
    pub(super) fn next_shard(&self) -> usize {
        self.next.fetch_add(1, Relaxed) & (self.shards.len() - 1)
    }

    fn shard(&self, of: u32) -> &Shard<T> {
        // There is at least one, and their number is a power of two.
        &self.shards[of as usize & (self.shards.len() - 1)]
    }

    /// The place of a new leaf of tree `number` that begins at `first`: in no queue yet.
    pub(super) fn place(&self, number: u64, first: u32) -> Place {
        let hash = hash(number, first);
        let shard = (hash >> 20) as u32 & (self.shards.len() - 1) as u32;
        Place::new(shard, hash)
    }

    /// Says whether a leaf of tree `number` that began at `first` was dropped of late.
    pub(super) fn is_remembered(&self, number: u64, first: u32) -> bool {
        let hash = hash(number, first);
        let shard = self.shard((hash >> 20) as u32);
        shard.ghost.knows(hash, shard.len.load(Relaxed))
    }

    /// The tick by which lookups of the leaf count.
    pub(super) fn tick(&self, place: &Place) -> u32 {
        self.shard(place.shard).tick.load(Relaxed)
    }

    /// Puts a new leaf into a queue: that of the leaf it was split from, or the one for new ones.
    /// Answers whether it came back soon after it was dropped.
    pub(super) fn enter(
        &self,
        leaf: &Arc<Leaf<T>>,
        from: Option<&Leaf<T>>,
        precached: bool,
    ) -> bool {
        let Some((_, place)) = &leaf.queued else {
            return false;
        };
        let shard = self.shard(place.shard);
        let known = from.is_none() && shard.ghost.knows(place.hash, shard.len.load(Relaxed));
        let sibling = from.and_then(|from| from.queued.as_ref());
        let queue = match sibling {
            _ if precached => Queue::Protected,
            Some((_, sibling)) => sibling.queue(),
            None if known || self.probation == 0 => Queue::Main,
            None => Queue::Probation,
        };
        leaf.begin(shard.tick.load(Relaxed));
        if known {
            shard.ghost.forget(place.hash);
        }
        let rings = &mut *shard.rings.lock();
        shard.moved(rings);
        shard.push(rings, leaf, place, queue);
        known
    }

    /// Puts `new` into the place of `old`, which its tree has let go of.
    pub(super) fn renew(&self, old: &Leaf<T>, new: &Arc<Leaf<T>>) {
        let (Some((_, old_place)), Some((_, place))) = (&old.queued, &new.queued) else {
            return;
        };
        new.inherit(old);
        let queue = old_place.queue();
        self.leave(old);
        let shard = self.shard(place.shard);
        shard.push(&mut shard.rings.lock(), new, place, queue);
    }

    /// Takes a leaf that its tree lets go of out of its queue.
    pub(super) fn leave(&self, leaf: &Leaf<T>) {
        if let Some((_, place)) = &leaf.queued {
            let shard = self.shard(place.shard);
            let rings = &mut *shard.rings.lock();
            place.gone.store(true, Relaxed);
            shard.pull(rings, place);
        }
    }

    /// Moves a leaf to the end of a queue.
    pub(super) fn requeue(&self, leaf: &Arc<Leaf<T>>, queue: Queue) {
        if let Some((_, place)) = &leaf.queued {
            let shard = self.shard(place.shard);
            let rings = &mut *shard.rings.lock();
            shard.pull(rings, place);
            if !place.gone.load(Relaxed) {
                shard.push(rings, leaf, place, queue);
            }
        }
    }

    /// Takes the leaf that goes first: on probation, if there are more than their share of the
    /// shard's, or in the main queue; of the protected ones, if `protected` says so.
    pub(super) fn take(&self, shard: usize, protected: bool, scan: &mut Scan) -> Taken<T> {
        scan.list_locks += 1;
        let shard = self.shard(shard as u32);
        let rings = &mut *shard.rings.lock();
        let probation = rings.ring(Queue::Probation).len();
        let main = rings.ring(Queue::Main).len();
        let queue = if protected {
            Queue::Protected
        } else if self.probation > 0 && (main == 0 || probation * self.probation > probation + main)
        {
            Queue::Probation
        } else {
            Queue::Main
        };
        let Some(leaf) = rings.ring(queue).pop_front() else {
            return Taken::Empty;
        };
        shard.note(rings);
        shard.moved(rings);
        scan.leaves += 1;
        scan.held(1);
        let Some(leaf) = leaf.upgrade() else {
            return Taken::Gone;
        };
        if let Some((_, place)) = &leaf.queued {
            place.slot.store(ring::NONE, Relaxed);
        }
        Taken::Leaf(leaf, queue)
    }

    /// Puts a leaf that was taken at the end of a queue, unless its tree has let go of it.
    pub(super) fn put_back(&self, leaf: &Arc<Leaf<T>>, queue: Queue, scan: &mut Scan) {
        scan.list_locks += 1;
        self.requeue(leaf, queue);
    }

    /// Remembers a leaf that was dropped, for when it comes back.
    pub(super) fn remember(&self, place: &Place) {
        let shard = self.shard(place.shard);
        shard.ghost.remember(place.hash, shard.len.load(Relaxed));
    }
}

impl<T> Shard<T> {
    fn push(&self, rings: &mut Rings<T>, leaf: &Arc<Leaf<T>>, place: &Place, queue: Queue) {
        let slot = rings.ring(queue).push_back(Arc::downgrade(leaf));
        place.slot.store(slot, Relaxed);
        place.queue.store(queue as u8, Relaxed);
        self.note(rings);
    }

    fn pull(&self, rings: &mut Rings<T>, place: &Place) {
        let slot = place.slot.swap(ring::NONE, Relaxed);
        if slot != ring::NONE {
            rings.ring(place.queue()).remove(slot);
            self.note(rings);
        }
    }

    /// Counts what is in the rings now.
    fn note(&self, rings: &mut Rings<T>) {
        self.len.store(rings.len(), Relaxed);
        let bytes = rings.bytes();
        let before = std::mem::replace(&mut rings.bytes, bytes);
        if bytes > before {
            self.taken.fetch_add((bytes - before) as u64, Relaxed);
        } else if bytes < before {
            self.taken.fetch_sub((before - bytes) as u64, Relaxed);
        }
    }

    /// A leaf came or was taken: time goes on.
    fn moved(&self, rings: &mut Rings<T>) {
        rings.moves += 1;
        if rings.moves > rings.len() / TICKS {
            rings.moves = 0;
            self.tick.fetch_add(1, Relaxed);
        }
    }
}

/// Spreads trees and first blocks over all bits.
fn hash(number: u64, first: u32) -> u64 {
    let mixed =
        (number << 32 ^ number >> 32 ^ u64::from(first)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 32
}
