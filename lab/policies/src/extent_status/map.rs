//! The extents of one file, ordered and merged. Leaves out locks, counters of the file system, and
//! the choice of what to forget: callers say where to look and how far.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::pass::Pass;
use uext4_extent_status::{Extent, FILL_MAX, Status, StatusSet};
use uext4_ondisk::{Lblk, Pblk};

/// An extent without its first block, which is its key.
#[derive(Debug)]
struct Node {
    pblk: u64,
    len: u32,
    status: Status,
    /// Asked for since the shrinker last came by.
    referenced: AtomicBool,
    /// Its place in the map's queue, if there is one and the extent may be forgotten.
    seq: u64,
}

impl Node {
    fn new(extent: &Extent, referenced: bool) -> Self {
        Self {
            pblk: extent.pblk.0,
            len: extent.len,
            status: extent.status,
            referenced: AtomicBool::new(referenced),
            seq: 0,
        }
    }

    fn extent(&self, lblk: u32) -> Extent {
        Extent {
            lblk: Lblk(lblk),
            len: self.len,
            pblk: Pblk(self.pblk),
            status: self.status,
        }
    }

    fn is_referenced(&self) -> bool {
        self.referenced.load(Relaxed)
    }

    /// Sets the mark, storing only if it is not set: readers share the cache line.
    fn refer(&self) {
        if !self.is_referenced() {
            self.referenced.store(true, Relaxed);
        }
    }
}

/// The extents of a map that may be forgotten, in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    /// First blocks by sequence number.
    order: BTreeMap<u64, u32>,
    /// The last sequence number drawn.
    last: u64,
}

/// Disjoint extents, as large as merging makes them, by first block.
///
/// Every extent lies in `0..u32::MAX`, so its end fits its key's type.
#[derive(Debug, Default)]
pub(crate) struct Map {
    nodes: BTreeMap<u32, Node>,
    /// Delayed blocks, not extents.
    delayed_blocks: u64,
    /// Extents that may be forgotten.
    reclaimable: usize,
    /// These, if they are to be found without walking over the others.
    queue: Option<Queue>,
    /// Neighbours of one kind stay apart.
    apart: bool,
}

impl Map {
    /// An empty map; `queued` if [`reclaim_queued`](Self::reclaim_queued) will be asked for.
    pub(crate) fn new(queued: bool, merge: bool) -> Self {
        Self {
            queue: queued.then(Queue::default),
            apart: !merge,
            ..Self::default()
        }
    }

    /// Forgets all; answers the old map.
    pub(crate) fn take(&mut self) -> Self {
        let empty = Self::new(self.queue.is_some(), !self.apart);
        std::mem::replace(self, empty)
    }

    /// Keeps a node, and its place in the queue.
    fn keep(&mut self, first: u32, mut node: Node) {
        if node.status.is_reclaimable() {
            self.reclaimable += 1;
            if let Some(queue) = &mut self.queue {
                queue.last += 1;
                node.seq = queue.last;
                queue.order.insert(node.seq, first);
            }
        }
        self.nodes.insert(first, node);
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn delayed_blocks(&self) -> u64 {
        self.delayed_blocks
    }

    pub(crate) fn reclaimable(&self) -> usize {
        self.reclaimable
    }

    /// The extent that contains `lblk`, marked as asked for.
    pub(crate) fn lookup(&self, lblk: u32) -> Option<Extent> {
        let (first, node) = self.containing(lblk)?;
        node.refer();
        Some(node.extent(first))
    }

    fn containing(&self, lblk: u32) -> Option<(u32, &Node)> {
        let (first, node) = self.nodes.range(..=lblk).next_back()?;
        (lblk - first < node.len).then_some((*first, node))
    }

    /// The first block of the extent that contains `lblk`; else `lblk`.
    pub(crate) fn first_from(&self, lblk: u32) -> u32 {
        self.containing(lblk).map_or(lblk, |(first, _)| first)
    }

    /// The first block of the first extent that begins at `lblk` or behind.
    pub(crate) fn first_at(&self, lblk: u32) -> Option<u32> {
        self.nodes.range(lblk..).next().map(|(first, _)| *first)
    }

    /// The first extent that ends after `from` and whose status is in `wanted`, cut to start at
    /// `from`. Walks over the others.
    pub(crate) fn find(&self, from: u32, wanted: StatusSet) -> Option<Extent> {
        if wanted == StatusSet::DELAYED && self.delayed_blocks == 0 {
            return None;
        }
        let begin = self.containing(from).map_or(from, |(first, _)| first);
        let (first, node) = self
            .nodes
            .range(begin..)
            .find(|(_, node)| wanted.contains(node.status))?;
        let extent = node.extent(*first);
        Some(extent.part(from.max(*first), extent.end()))
    }

    pub(crate) fn extents(&self) -> Vec<Extent> {
        self.nodes.iter().map(|(k, n)| n.extent(*k)).collect()
    }

    /// Puts `extent` in place of whatever its range held. Answers the delayed blocks replaced.
    pub(crate) fn insert(&mut self, extent: &Extent) -> u32 {
        let (start, end) = (extent.lblk.0, extent.end());
        if let Some((first, node)) = self.containing(start) {
            let known = node.extent(first);
            // Nothing changes; a page made dirty again comes here.
            if end <= known.end() && known.part(start, end) == *extent {
                let is_delayed = extent.status == Status::Delayed;
                return if is_delayed { extent.len } else { 0 };
            }
        }
        let delayed = self.remove(start..end);
        self.add(extent);
        delayed
    }

    /// Puts `extent` where nothing is known, going over [`FILL_MAX`] parts of it at most; what is
    /// known stays.
    pub(crate) fn fill(&mut self, extent: &Extent) {
        let end = extent.end();
        let mut at = extent.lblk.0;
        for _ in 0..FILL_MAX {
            if at >= end {
                break;
            }
            if let Some((first, node)) = self.containing(at) {
                at = first + node.len;
                continue;
            }
            let next = self.nodes.range(at..end).next();
            let stop = next.map_or(end, |(first, _)| *first);
            self.add(&extent.part(at, stop));
            at = stop;
        }
    }

    /// Puts `extent` where it is if nothing of its range is known.
    pub(crate) fn add_unknown(&mut self, extent: &Extent) {
        let (start, end) = (extent.lblk.0, extent.end());
        let is_known = self.containing(start).is_some();
        if !is_known && self.nodes.range(start..end).next().is_none() {
            self.add(extent);
        }
    }

    /// Forgets the range, cutting what reaches over its ends. Answers the delayed blocks removed.
    pub(crate) fn remove(&mut self, range: Range<u32>) -> u32 {
        let mut delayed = 0;
        let mut tail = None;
        let before = self.nodes.range_mut(..range.start).next_back();
        if let Some((first, node)) = before
            && first + node.len > range.start
        {
            let (whole, referenced) = (node.extent(*first), node.is_referenced());
            node.len = range.start - first;
            if whole.status == Status::Delayed {
                delayed += whole.end().min(range.end) - range.start;
            }
            if whole.end() > range.end {
                tail = Some((whole, referenced));
            }
        }
        for (first, node) in self.nodes.extract_if(range.clone(), |_, _| true) {
            let whole = node.extent(first);
            if whole.status == Status::Delayed {
                delayed += whole.end().min(range.end) - first;
            }
            if whole.end() > range.end {
                tail = Some((whole, node.is_referenced()));
            }
            self.reclaimable -= forget(&mut self.queue, &node);
        }
        if let Some((whole, referenced)) = tail {
            let rest = whole.part(range.end, whole.end());
            self.keep(range.end, Node::new(&rest, referenced));
        }
        self.delayed_blocks -= u64::from(delayed);
        delayed
    }

    /// Puts `extent` where nothing is, and merges it with its neighbours.
    fn add(&mut self, extent: &Extent) {
        let mut new = Node::new(extent, false);
        let (start, end) = (extent.lblk.0, extent.end());
        if extent.status == Status::Delayed {
            self.delayed_blocks += u64::from(extent.len);
        }
        let after = self.nodes.get(&end).map(|node| node.extent(end));
        if after.is_some_and(|after| !self.apart && extent.joins(&after))
            && let Some(after) = self.nodes.remove(&end)
        {
            new.len += after.len;
            *new.referenced.get_mut() = after.is_referenced();
            self.reclaimable -= forget(&mut self.queue, &after);
        }
        let before = self.nodes.range_mut(..start).next_back();
        if let Some((first, node)) = before
            && !self.apart
            && node.extent(*first).joins(extent)
        {
            node.len += new.len;
            *node.referenced.get_mut() |= new.is_referenced();
            return;
        }
        self.keep(start, new);
    }

    /// Visits up to `nr` extents of `range` in order. Those that may be forgotten are, unless they
    /// were asked for since the last visit: these lose that mark. Answers what was done and the
    /// block to go on from: the range's end if all was visited.
    pub(crate) fn reclaim(&mut self, range: Range<u32>, nr: usize) -> (Pass, u32) {
        let mut ahead = self.nodes.range(range.clone());
        let visited = ahead.by_ref().take(nr).count();
        let stop = ahead.next().map_or(range.end, |(first, _)| *first);
        let mut delayed_seen = 0;
        let dropped = self.nodes.extract_if(range.start..stop, |_, node| {
            if node.status == Status::Delayed {
                delayed_seen += 1;
                return false;
            }
            !std::mem::take(node.referenced.get_mut())
        });
        let freed = dropped
            .map(|(_, node)| forget(&mut self.queue, &node))
            .sum();
        self.reclaimable -= freed;
        let pass = Pass {
            visited,
            freed,
            delayed_seen,
        };
        (pass, stop)
    }

    /// Walks from the first extent on and forgets those that may be, until `nr` of them are or all
    /// were visited. Marks do not count.
    pub(crate) fn reclaim_from_first(&mut self, nr: usize) -> Pass {
        let mut pass = Pass::default();
        let mut stop = u32::MAX;
        for (first, node) in &self.nodes {
            if pass.freed == nr {
                stop = *first;
                break;
            }
            pass.visited += 1;
            match node.status {
                Status::Delayed => pass.delayed_seen += 1,
                _ => pass.freed += 1,
            }
        }
        let goes = |_: &u32, node: &mut Node| node.status.is_reclaimable();
        let dropped = self.nodes.extract_if(..stop, goes);
        let freed: usize = dropped
            .map(|(_, node)| forget(&mut self.queue, &node))
            .sum();
        self.reclaimable -= freed;
        pass
    }

    /// Forgets up to `nr` extents from the head of the queue, visiting no others.
    pub(crate) fn reclaim_queued(&mut self, nr: usize) -> Pass {
        let mut pass = Pass::default();
        while pass.freed < nr
            && let Some((_, first)) = self.queue.as_mut().and_then(|q| q.order.pop_first())
        {
            self.nodes.remove(&first);
            self.reclaimable -= 1;
            pass.freed += 1;
        }
        pass.visited = pass.freed;
        pass
    }

    /// Forgets all but what is delayed.
    pub(crate) fn clear_cache(&mut self) {
        self.reclaim_from_first(usize::MAX);
    }
}

/// Takes a node out of the queue that has nothing more to drop, if it may be forgotten. Answers
/// whether it may, as a number.
fn forget(queue: &mut Option<Queue>, node: &Node) -> usize {
    if !node.status.is_reclaimable() {
        return 0;
    }
    if let Some(queue) = queue {
        queue.order.remove(&node.seq);
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(lblk: u32, len: u32, pblk: u64, status: Status) -> Extent {
        Extent {
            lblk: Lblk(lblk),
            len,
            pblk: Pblk(pblk),
            status,
        }
    }

    fn map(extents: &[Extent]) -> Map {
        let mut map = Map::default();
        for extent in extents {
            map.insert(extent);
        }
        map
    }

    #[test]
    fn neighbours_merge_on_both_sides() {
        let left = extent(0, 4, 100, Status::Written);
        let right = extent(6, 4, 106, Status::Written);
        let mut map = map(&[left, right]);
        assert_eq!((map.len(), map.reclaimable()), (2, 2));
        map.insert(&extent(4, 2, 104, Status::Written));
        assert_eq!(map.extents(), [extent(0, 10, 100, Status::Written)]);
        assert_eq!(map.reclaimable(), 1);
    }

    #[test]
    fn mapped_neighbours_must_adjoin_on_the_device() {
        let map = map(&[
            extent(0, 4, 100, Status::Written),
            extent(4, 4, 200, Status::Written),
            extent(8, 4, 204, Status::Unwritten),
        ]);
        assert_eq!(map.len(), 3);
    }

    #[test]
    fn removing_the_middle_splits() {
        let mut map = map(&[extent(0, 10, 100, Status::Unwritten)]);
        assert_eq!(map.remove(3..5), 0);
        let rest = [
            extent(0, 3, 100, Status::Unwritten),
            extent(5, 5, 105, Status::Unwritten),
        ];
        assert_eq!(map.extents(), rest);
        assert_eq!(map.reclaimable(), 2);
    }

    #[test]
    fn a_merged_extent_keeps_the_mark() {
        let mut map = map(&[extent(0, 4, 100, Status::Written)]);
        assert!(map.lookup(3).is_some());
        map.insert(&extent(4, 4, 104, Status::Written));
        let (pass, _) = map.reclaim(0..u32::MAX, 10);
        assert_eq!((pass.visited, pass.freed), (1, 0));
        let (pass, stop) = map.reclaim(0..u32::MAX, 10);
        assert_eq!((pass.visited, pass.freed, stop), (1, 1, u32::MAX));
        assert_eq!((map.len(), map.reclaimable()), (0, 0));
    }

    #[test]
    fn a_pass_stops_when_its_budget_is_spent() {
        let mut map = map(&[
            extent(0, 1, 0, Status::Delayed),
            extent(1, 1, 0, Status::Hole),
            extent(2, 1, 0, Status::Delayed),
            extent(3, 1, 0, Status::Hole),
        ]);
        let (pass, stop) = map.reclaim(0..u32::MAX, 3);
        assert_eq!((pass.visited, pass.freed, pass.delayed_seen), (3, 1, 2));
        assert_eq!((stop, map.reclaimable()), (3, 1));
    }
}
