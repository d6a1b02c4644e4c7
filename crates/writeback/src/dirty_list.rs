//! The files with something to write: in shards by where they lie, in each the one dirty for
//! longest first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::Place;

/// Shards of a list; areas share them.
pub(crate) const SHARDS: usize = 16;
/// Most files chosen at once.
pub(crate) const CHOSEN_MAX: usize = 1024;

/// A place in the list: since when the file is dirty, and a sequence number that no other place
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// On the monotonic clock.
    since: Duration,
    seq: u64,
}

/// How many files are on which of the kernel's lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queues {
    /// No thread is at them.
    pub(crate) b_dirty: u64,
    /// Chosen, or being written.
    pub(crate) b_io: u64,
    /// Not finished when their turn was over.
    pub(crate) b_more_io: u64,
}

/// Files `F` ordered by key, which is the order of age. Each shard has a leaf lock, taken once
/// when a file becomes dirty and once when it becomes clean.
#[derive(Debug)]
pub(crate) struct DirtyList<F> {
    shards: [Mutex<Shard<F>>; SHARDS],
    next: AtomicU64,
    /// Files chosen whose turn has not come.
    chosen: AtomicUsize,
}

#[derive(Debug)]
struct Shard<F>(BTreeMap<Key, Entry<F>>);

#[derive(Debug)]
struct Entry<F> {
    file: Weak<F>,
    /// Where in its area it lies.
    order: u64,
    turn: Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Waiting,
    /// Had its turn, which was too short.
    More,
    /// A flusher is at it.
    Now,
}

/// Where files of a place are.
pub(crate) fn shard_of(place: Place) -> usize {
    // OK to truncate: less than the number of shards.
    (place.area % SHARDS as u64) as usize
}

impl<F> DirtyList<F> {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(Shard(BTreeMap::new()))),
            next: AtomicU64::new(0),
            chosen: AtomicUsize::new(0),
        }
    }

    fn shard(&self, place: Place) -> &Mutex<Shard<F>> {
        // In range: `shard_of` reports less than their number.
        &self.shards[shard_of(place)]
    }

    fn put(&self, shard: &mut Shard<F>, since: Duration, entry: Entry<F>) -> Key {
        let seq = self.next.fetch_add(1, Relaxed);
        let key = Key { since, seq };
        shard.0.insert(key, entry);
        key
    }

    /// Puts a file on the list that became dirty just now.
    pub(crate) fn insert(&self, file: Weak<F>, place: Place, since: Duration) -> Key {
        let entry = Entry {
            file,
            order: place.order,
            turn: Turn::Waiting,
        };
        self.put(&mut self.shard(place).lock(), since, entry)
    }

    /// Gives a file another place in one step, so that it is on the list at every moment: as one
    /// that is dirty since `since`, or, where that is none, as one that has more to write and is as
    /// old as it was.
    pub(crate) fn requeue(
        &self,
        file: Weak<F>,
        place: Place,
        key: Key,
        since: Option<Duration>,
    ) -> Key {
        let turn = match since {
            Some(_) => Turn::Waiting,
            None => Turn::More,
        };
        let order = place.order;
        let mut shard = self.shard(place).lock();
        shard.0.remove(&key);
        let since = since.unwrap_or(key.since);
        self.put(&mut shard, since, Entry { file, order, turn })
    }

    pub(crate) fn remove(&self, place: Place, key: Key) {
        self.shard(place).lock().0.remove(&key);
    }

    /// Every file that joins from now on has this sequence number or a higher one.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// Files of one shard (they go round) that no flusher is at, dirty since `since` or longer,
    /// with a sequence number below `bound`: the oldest, `max` at most, in the order in which
    /// they lie. They are to be claimed one by one.
    pub(crate) fn choose(
        &self,
        shard: usize,
        since: Duration,
        bound: u64,
        max: usize,
    ) -> Chosen<'_, F> {
        let shard = shard % SHARDS;
        let mut keys = Vec::new();
        for (key, entry) in &self.shards[shard].lock().0 {
            if key.since > since || keys.len() == max {
                break;
            }
            if entry.turn != Turn::Now && key.seq < bound {
                keys.push((entry.order, *key));
            }
        }
        // The last first, for they are taken from the end.
        keys.sort_unstable_by(|a, b| b.cmp(a));
        self.chosen.fetch_add(keys.len(), Relaxed);
        let list = self;
        Chosen { list, shard, keys }
    }

    /// The file of a place, if it is still there and no thread is at it. It is the caller's until
    /// it gets another place or leaves.
    fn claim(&self, shard: usize, key: Key) -> Option<Arc<F>> {
        let mut shard = self.shards[shard].lock();
        let entry = shard.0.get_mut(&key)?;
        if entry.turn == Turn::Now {
            return None;
        }
        let file = entry.file.upgrade();
        match file {
            Some(_) => entry.turn = Turn::Now,
            None => drop(shard.0.remove(&key)),
        }
        file
    }

    /// All files that are on the list now.
    pub(crate) fn files(&self) -> Vec<Arc<F>> {
        let mut files = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            files.extend(shard.0.values().filter_map(|entry| entry.file.upgrade()));
        }
        files
    }

    /// How many files are where: a look at each of them.
    pub(crate) fn queues(&self) -> Queues {
        let mut queues = Queues::default();
        for shard in &self.shards {
            for entry in shard.lock().0.values() {
                match entry.turn {
                    Turn::Waiting => queues.b_dirty += 1,
                    Turn::More => queues.b_more_io += 1,
                    Turn::Now => queues.b_io += 1,
                }
            }
        }
        // Those are counted as waiting, and may have left meanwhile.
        let chosen = (self.chosen.load(Relaxed) as u64).min(queues.b_dirty);
        queues.b_dirty -= chosen;
        queues.b_io += chosen;
        queues
    }
}

/// Files that were chosen, whose turn comes one after the other.
#[derive(Debug)]
pub(crate) struct Chosen<'a, F> {
    list: &'a DirtyList<F>,
    shard: usize,
    keys: Vec<(u64, Key)>,
}

impl<F> Chosen<'_, F> {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Files whose turn has not come, those that have left the list meanwhile included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The next that is still there and that no thread is at. It is the caller's until it gets
    /// another place or leaves.
    pub(crate) fn next(&mut self) -> Option<Arc<F>> {
        while let Some((_, key)) = self.keys.pop() {
            self.list.chosen.fetch_sub(1, Relaxed);
            let file = self.list.claim(self.shard, key);
            if file.is_some() {
                return file;
            }
        }
        None
    }
}

impl<F> Drop for Chosen<'_, F> {
    fn drop(&mut self) {
        self.list.chosen.fetch_sub(self.keys.len(), Relaxed);
    }
}
