//! Queues of leaves that may be dropped, in shards with a lock each. Leaves out in which order they
//! go: that is a policy each.
//!
//! A shard's lock is taken inside a tree's, for a step. A scan takes a leaf off its queue, lets go of
//! the shard, and then only tries the lock of the tree. Meanwhile the leaf is in no queue; if its
//! tree drops it just then, it is marked, and not put back.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::ghost::Ghost;
use crate::leaf::Leaf;
use crate::options::Shrinker;
use crate::ring::{self, Ring};
use crate::room::Room;
use crate::scan::Scan;
use crate::sync::{AtomicBool, AtomicU32};

/// In which queue of its shard a leaf waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// New ones.
    Probation,
    /// Those that were used again.
    Main,
    /// Those of trees loaded in advance by request.
    Protected,
}

/// Where a leaf waits. Written under the shard's lock only.
#[derive(Debug)]
pub(crate) struct Place {
    shard: u32,
    hash: u64,
    queue: AtomicU8,
    slot: AtomicU32,
    /// Its tree has let go of it.
    gone: AtomicBool,
}

impl Place {
    fn queue(&self) -> Queue {
        match self.queue.load(Relaxed) {
            0 => Queue::Probation,
            1 => Queue::Main,
            _ => Queue::Protected,
        }
    }
}

#[derive(Debug, Default)]
struct Rings {
    rings: [Ring<Weak<Leaf>>; 3],
    /// Leaves that came or were taken since the last tick.
    moves: usize,
    /// What the rings took when that was last counted.
    bytes: usize,
}

impl Rings {
    fn ring(&mut self, queue: Queue) -> &mut Ring<Weak<Leaf>> {
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
struct Shard {
    rings: Mutex<Rings>,
    /// Counts up as leaves move: what is one use is told by it.
    tick: AtomicU32,
    /// Leaves now, for who holds no lock.
    len: AtomicUsize,
    ghost: Ghost,
    /// What the queues of all shards take, in bytes.
    taken: Arc<AtomicU64>,
}

/// A leaf taken off a queue, or why there is none.
#[derive(Debug)]
pub(crate) enum Taken {
    Leaf(Arc<Leaf>, Queue),
    /// It went away just now.
    Gone,
    Empty,
}

/// What came of trying to drop a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    Yes,
    /// Its tree has let go of it meanwhile.
    Gone,
    /// Its tree is in use; it is back in its queue.
    Busy,
}

/// A tick passes when one leaf in so many of a shard's has moved.
const TICKS: usize = 32;

#[derive(Debug)]
pub(crate) struct Queues {
    shrinker: Shrinker,
    /// A power of two of them.
    shards: Box<[Shard]>,
    /// The shard whose turn is next, before wrapping.
    next: AtomicUsize,
    /// The number of the last tree.
    trees: AtomicU64,
    /// What the queues take, in bytes.
    taken: Arc<AtomicU64>,
}

impl Queues {
    pub(crate) fn new(shrinker: Shrinker, shards: usize) -> Self {
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
            shrinker,
            shards: (0..shards).map(shard).collect(),
            next: AtomicUsize::new(0),
            trees: AtomicU64::new(0),
            taken,
        }
    }

    /// What the queues take, free slots too, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// A number no other tree has.
    pub(crate) fn number(&self) -> u64 {
        self.trees.fetch_add(1, Relaxed)
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// What is kept of leaves that were dropped, in bytes.
    pub(crate) fn ghost_bytes(&self) -> u64 {
        let bytes = self.shards.iter().map(|shard| shard.ghost.bytes() as u64);
        bytes.sum()
    }

    /// Shards in turn.
    pub(crate) fn next_shard(&self) -> usize {
        self.next.fetch_add(1, Relaxed) & (self.shards.len() - 1)
    }

    fn shard(&self, of: u32) -> &Shard {
        // There is at least one, and their number is a power of two.
        &self.shards[of as usize & (self.shards.len() - 1)]
    }

    /// The place of a new leaf of tree `number` that begins at `first`: in no queue yet.
    pub(crate) fn place(&self, number: u64, first: u32) -> Place {
        let hash = hash(number, first);
        Place {
            shard: (hash >> 20) as u32 & (self.shards.len() - 1) as u32,
            hash,
            queue: AtomicU8::new(Queue::Probation as u8),
            slot: AtomicU32::new(ring::NONE),
            gone: AtomicBool::new(false),
        }
    }

    /// Says whether a leaf of tree `number` that began at `first` was dropped of late.
    pub(crate) fn is_remembered(&self, number: u64, first: u32) -> bool {
        let hash = hash(number, first);
        let shard = self.shard((hash >> 20) as u32);
        self.shrinker == Shrinker::LeafQueue && shard.ghost.knows(hash, shard.len.load(Relaxed))
    }

    /// The tick by which look-ups of the leaf count.
    pub(crate) fn tick(&self, place: &Place) -> u32 {
        self.shard(place.shard).tick.load(Relaxed)
    }

    /// Puts a new leaf into a queue: that of the leaf it was split from, or the one for new ones.
    /// Answers whether it came back soon after it was dropped.
    pub(crate) fn enter(&self, leaf: &Arc<Leaf>, from: Option<&Leaf>, precached: bool) -> bool {
        let Some((_, place)) = &leaf.queued else {
            return false;
        };
        let shard = self.shard(place.shard);
        let known = from.is_none()
            && self.shrinker == Shrinker::LeafQueue
            && shard.ghost.knows(place.hash, shard.len.load(Relaxed));
        let sibling = from.and_then(|from| from.queued.as_ref());
        let queue = match sibling {
            _ if precached => Queue::Protected,
            Some((_, sibling)) => sibling.queue(),
            None if known || self.shrinker == Shrinker::Clock => Queue::Main,
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
    pub(crate) fn renew(&self, old: &Leaf, new: &Arc<Leaf>) {
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
    pub(crate) fn leave(&self, leaf: &Leaf) {
        if let Some((_, place)) = &leaf.queued {
            let shard = self.shard(place.shard);
            let rings = &mut *shard.rings.lock();
            place.gone.store(true, Relaxed);
            shard.pull(rings, place);
        }
    }

    /// Moves a leaf to the end of a queue.
    pub(crate) fn requeue(&self, leaf: &Arc<Leaf>, queue: Queue) {
        if let Some((_, place)) = &leaf.queued {
            let shard = self.shard(place.shard);
            let rings = &mut *shard.rings.lock();
            shard.pull(rings, place);
            if !place.gone.load(Relaxed) {
                shard.push(rings, leaf, place, queue);
            }
        }
    }

    /// The queue for a leaf whose tree is no longer, or now is, loaded in advance by request.
    pub(crate) fn usual(&self, precached: bool) -> Queue {
        match self.shrinker {
            _ if precached => Queue::Protected,
            Shrinker::Clock => Queue::Main,
            _ => Queue::Probation,
        }
    }

    /// Takes the leaf at the front of the queue that `choose` names, given how many are on probation
    /// and in the main queue.
    pub(crate) fn take(
        &self,
        shard: usize,
        choose: impl FnOnce(usize, usize) -> Queue,
        scan: &mut Scan,
    ) -> Taken {
        scan.list_locks += 1;
        let shard = self.shard(shard as u32);
        let rings = &mut *shard.rings.lock();
        let probation = rings.ring(Queue::Probation).len();
        let queue = choose(probation, rings.ring(Queue::Main).len());
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
    pub(crate) fn put_back(&self, leaf: &Arc<Leaf>, queue: Queue, scan: &mut Scan) {
        scan.list_locks += 1;
        self.requeue(leaf, queue);
    }

    /// Drops a leaf that was taken off `queue`.
    pub(crate) fn evict(
        &self,
        room: &Room,
        leaf: &Arc<Leaf>,
        queue: Queue,
        scan: &mut Scan,
    ) -> Evicted {
        let Some((tree, place)) = &leaf.queued else {
            return Evicted::Gone;
        };
        let Some(tree) = tree.upgrade() else {
            return Evicted::Gone;
        };
        match tree.try_evict(room, self, leaf) {
            None => {
                scan.trylock_failed += 1;
                self.put_back(leaf, queue, scan);
                Evicted::Busy
            }
            Some((0, _)) => Evicted::Gone,
            Some((freed, copied)) => {
                scan.freed += freed;
                scan.leaves_evicted += 1;
                scan.copied += copied;
                scan.held(1 + copied);
                if queue == Queue::Probation {
                    let shard = self.shard(place.shard);
                    shard.ghost.remember(place.hash, shard.len.load(Relaxed));
                }
                Evicted::Yes
            }
        }
    }
}

impl Shard {
    fn push(&self, rings: &mut Rings, leaf: &Arc<Leaf>, place: &Place, queue: Queue) {
        let slot = rings.ring(queue).push_back(Arc::downgrade(leaf));
        place.slot.store(slot, Relaxed);
        place.queue.store(queue as u8, Relaxed);
        self.note(rings);
    }

    fn pull(&self, rings: &mut Rings, place: &Place) {
        let slot = place.slot.swap(ring::NONE, Relaxed);
        if slot != ring::NONE {
            rings.ring(place.queue()).remove(slot);
            self.note(rings);
        }
    }

    /// Counts what is in the rings now.
    fn note(&self, rings: &mut Rings) {
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
    fn moved(&self, rings: &mut Rings) {
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
