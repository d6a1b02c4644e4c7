//! The extents of one tree that are cache, or those that are delayed: ordered, merged, in leaves.
//! Leaves out locks and versions: one writer at a time calls what changes.

use std::ops::Range;
use std::sync::Arc;

use super::index::{self, Root};
use super::leaf::{FEWEST, LEAF_EXTENTS, Leaf, Packed, capacity_for};
use super::owner::Owner;
use crate::extent::Extent;

/// Leaves with no more extents than this become one with such a neighbour.
const FEW: usize = LEAF_EXTENTS / 4;

/// The most leaves that come into the index at once: half as many as a node of it has rows.
const BATCH_LEAVES: usize = 16;

/// Disjoint extents by first block, each in `0..u32::MAX` and [`Extent::bounded`].
#[derive(Debug)]
pub(super) struct Side<T> {
    root: Root<T>,
    extents: usize,
    /// Its leaves wait in queues to be dropped.
    queued: bool,
    /// Rows of the index copied, ever.
    copied: u64,
    /// Roots there were.
    version: u64,
}

impl<T> Side<T> {
    pub(super) fn new(queued: bool) -> Self {
        Self {
            root: Root::default(),
            extents: 0,
            queued,
            copied: 0,
            version: 0,
        }
    }

    pub(super) fn root(&self) -> &Root<T> {
        &self.root
    }

    pub(super) fn len(&self) -> usize {
        self.extents
    }

    /// Rows of the index copied, ever.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// A number that changes with the root.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The extent that contains `lblk`.
    pub(super) fn containing(&self, lblk: u32) -> Option<Packed> {
        let (_, _, packed) = self.root.containing(lblk)?;
        Some(packed)
    }

    /// The leaf and the entry of the first extent that begins at `lblk` or after it.
    fn at_or_after(&self, lblk: u32) -> Option<(&Arc<Leaf<T>>, usize)> {
        let (key, leaf) = self.root.leaf_at(lblk)?;
        let index = leaf.before(lblk);
        if index < leaf.len() {
            return Some((leaf, index));
        }
        let (_, next) = self.root.leaf_after(key.max(lblk))?;
        Some((next, 0))
    }

    /// Where the first extent at `lblk` or after it begins.
    pub(super) fn next_start(&self, lblk: u32) -> Option<u32> {
        let (leaf, index) = self.at_or_after(lblk)?;
        Some(leaf.get(index).start())
    }

    /// The extents that end after `from`, in order.
    pub(super) fn after(&self, from: u32) -> impl Iterator<Item = Packed> {
        let first = self.containing(from).filter(|packed| packed.start() < from);
        let mut here = self.at_or_after(from);
        let rest = std::iter::from_fn(move || {
            let (leaf, index) = here?;
            let packed = leaf.get(index);
            here = if index + 1 < leaf.len() {
                Some((leaf, index + 1))
            } else {
                self.at_or_after(packed.end())
            };
            Some(packed)
        });
        first.into_iter().chain(rest)
    }

    /// Forgets the range, cutting what reaches over its ends. Answers the blocks forgotten.
    pub(super) fn remove(&mut self, range: Range<u32>, owner: &Owner<'_, T>) -> u32 {
        let mut blocks = 0;
        let mut tail = None;
        if let Some((leaf, index, packed)) = self.root.containing(range.start)
            && packed.start() < range.start
        {
            let whole = packed.extent();
            leaf.set(
                index,
                Packed::from(&whole.part(packed.start(), range.start)),
            );
            blocks += packed.end().min(range.end) - range.start;
            tail = (packed.end() > range.end).then(|| whole.part(range.end, packed.end()));
        }
        while tail.is_none()
            && let Some((leaf, index)) = self.at_or_after(range.start)
            && leaf.get(index).start() < range.end
        {
            let leaf = Arc::clone(leaf);
            let stop = leaf.before(range.end);
            for gone in index..stop {
                let gone = leaf.get(gone);
                blocks += gone.end().min(range.end) - gone.start();
                tail = (gone.end() > range.end).then(|| gone.extent().part(range.end, gone.end()));
            }
            self.edit(&leaf, index..stop, &[], owner);
        }
        if let Some(tail) = tail {
            self.put(Packed::from(&tail), owner);
        }
        blocks
    }

    /// Puts `extent` where nothing is, and merges it with its neighbours if the tree does that.
    pub(super) fn add(&mut self, extent: &Extent, owner: &Owner<'_, T>) {
        let mut new = *extent;
        if owner.merge && !self.root.is_empty() {
            let before = extent.lblk.0.checked_sub(1);
            let before = before.and_then(|last| self.root.containing(last));
            let before = before.filter(|(_, _, packed)| packed.extent().joins(extent));
            if let Some((_, _, packed)) = before {
                new = Extent {
                    len: new.len + packed.len(),
                    ..packed.extent()
                };
            }
            let after = self.root.containing(extent.end());
            let after = after.filter(|(_, _, packed)| extent.joins(&packed.extent()));
            new.len += after.map_or(0, |(_, _, packed)| packed.len());
            if let Some((leaf, index, _)) = before {
                leaf.set(index, Packed::from(&new));
            }
            let after = after.map(|(leaf, index, _)| (Arc::clone(leaf), index));
            let is_in = before.is_some();
            if let Some((leaf, index)) = after {
                self.edit(&leaf, index..index + 1, &[], owner);
            }
            if is_in {
                return;
            }
        }
        self.put(Packed::from(&new), owner);
    }

    /// Puts extents where nothing is, also between them: in ascending order, merged among each
    /// other if the tree does that. Many of them, as a leaf of the map on the device has, get
    /// leaves of their own: they came together, and so they go and come back.
    pub(super) fn add_all(&mut self, extents: &[Extent], owner: &Owner<'_, T>) {
        if extents.len() <= FEWEST && self.root.is_empty() {
            self.add_first(extents, owner);
            return;
        }
        let mut rest = extents;
        if rest.len() >= FEW && owner.merge {
            // Only the first and the last can join what is there.
            if let Some((first, others)) = rest.split_first() {
                let before = first
                    .lblk
                    .0
                    .checked_sub(1)
                    .and_then(|at| self.containing(at));
                if before.is_some_and(|before| before.extent().joins(first)) {
                    self.add(first, owner);
                    rest = others;
                }
            }
            if let Some((last, others)) = rest.split_last() {
                let after = self.containing(last.end());
                if after.is_some_and(|after| last.joins(&after.extent())) {
                    self.add(last, owner);
                    rest = others;
                }
            }
        }
        for batch in rest.chunks(BATCH_LEAVES * LEAF_EXTENTS) {
            if batch.len() < FEW || !self.add_leaves(batch, owner) {
                batch.iter().for_each(|extent| self.add(extent, owner));
            }
        }
    }

    /// Puts the first extents in, at most [`FEWEST`]: one leaf, made at once.
    fn add_first(&mut self, extents: &[Extent], owner: &Owner<'_, T>) {
        let Some(first) = extents.first() else {
            return;
        };
        let mut packed = [Packed::from(first); FEWEST];
        for (packed, extent) in packed.iter_mut().zip(extents) {
            *packed = Packed::from(extent);
        }
        let packed = &packed[..extents.len().min(FEWEST)];
        let leaf = self.leaf(packed, FEWEST, owner);
        self.extents += packed.len();
        let rows = [(first.lblk.0, leaf)];
        self.publish(first.lblk.0, &rows);
        let [(_, leaf)] = &rows;
        self.enter(leaf, None, owner);
    }

    /// Makes leaves of extents that lie between two leaves. Answers whether they do; else nothing
    /// was done.
    fn add_leaves(&mut self, extents: &[Extent], owner: &Owner<'_, T>) -> bool {
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else {
            return false;
        };
        let start = first.lblk.0;
        // A leaf's key may lie before its first extent, and the first leaf's also behind it.
        let (before, after, key) = match self.root.leaf_at(start) {
            None => (None, None, start),
            Some((key, leaf)) => {
                let first = leaf.get(0).start();
                match leaf.before(start) {
                    0 => (None, Some((first, Arc::clone(leaf))), key),
                    at if at == leaf.len() => (Some((key.min(first), Arc::clone(leaf))), None, key),
                    _ => return false,
                }
            }
        };
        // Nothing may lie between them.
        let next = self.root.leaf_after(key.max(start));
        let is_in = match &after {
            Some((key, _)) => *key < last.lblk.0,
            None => next.is_some_and(|(key, _)| key <= last.lblk.0),
        };
        if is_in {
            return false;
        }
        let packed: Vec<Packed> = extents.iter().map(Packed::from).collect();
        let each = packed.len().div_ceil(packed.len().div_ceil(LEAF_EXTENTS));
        let new: Vec<(u32, Arc<Leaf<T>>)> = packed
            .chunks(each)
            .map(|chunk| {
                let capacity = chunk.len().next_multiple_of(8);
                (chunk[0].start(), self.leaf(chunk, capacity, owner))
            })
            .collect();
        let rows: Vec<_> = before
            .into_iter()
            .chain(new.iter().cloned())
            .chain(after)
            .collect();
        self.extents += packed.len();
        self.publish(start, &rows);
        for (_, leaf) in &new {
            self.enter(leaf, None, owner);
        }
        true
    }

    /// Puts an entry where nothing is, as it is.
    fn put(&mut self, packed: Packed, owner: &Owner<'_, T>) {
        let start = packed.start();
        let Some((key, leaf)) = self.root.leaf_at(start) else {
            let leaf = self.leaf(&[packed], capacity_for(1), owner);
            self.extents += 1;
            self.publish(start, &[(start, Arc::clone(&leaf))]);
            self.enter(&leaf, None, owner);
            return;
        };
        let index = leaf.before(start);
        let leaf = Arc::clone(leaf);
        let outside = index == leaf.len() || index == 0 && start < key;
        // A leaf that was dropped a while ago begins again where it began.
        if self.queued && outside && owner.is_remembered(start) {
            let new = self.leaf(&[packed], capacity_for(1), owner);
            self.extents += 1;
            let mut rows = [
                (key.min(leaf.get(0).start()), leaf),
                (start, Arc::clone(&new)),
            ];
            rows.sort_by_key(|(key, _)| *key);
            self.publish(start, &rows);
            self.enter(&new, None, owner);
            return;
        }
        self.edit(&leaf, index..index, &[packed], owner);
    }

    /// Puts `new` in place of the entries `old` of a leaf: in place if it fits, else in leaves made
    /// anew.
    fn edit(
        &mut self,
        leaf: &Arc<Leaf<T>>,
        old: Range<usize>,
        new: &[Packed],
        owner: &Owner<'_, T>,
    ) {
        let (len, first) = (leaf.len(), leaf.get(0).start());
        let left = len - old.len() + new.len();
        self.extents = self.extents + new.len() - old.len();
        if left == 0 {
            self.publish(first, &[]);
            self.leave(leaf, owner);
        } else if left > leaf.capacity() {
            let mut all = leaf.packed();
            let appended = old.start == len;
            all.splice(old, new.iter().copied());
            self.remake(leaf, first, &all, appended, owner);
        } else {
            let shrinks = new.len() < old.len() && left <= FEW;
            leaf.splice(old, new);
            if shrinks && !self.merge(leaf, owner) && left <= leaf.capacity() / 8 {
                let first = leaf.get(0).start();
                self.remake(leaf, first, &leaf.packed(), false, owner);
            }
        }
    }

    /// Puts one or two leaves in place of one, whose first entry began at `first`.
    fn remake(
        &mut self,
        leaf: &Arc<Leaf<T>>,
        first: u32,
        all: &[Packed],
        appended: bool,
        owner: &Owner<'_, T>,
    ) {
        let found = self.root.leaf_at(first);
        let key = found.map_or(first, |(key, _)| key);
        let at = match all.len() {
            0..=LEAF_EXTENTS => all.len(),
            // Files grow at their end: what is full stays full.
            _ if appended => LEAF_EXTENTS,
            len => len / 2,
        };
        let (left, right) = all.split_at(at);
        let key = left.first().map_or(key, |packed| key.min(packed.start()));
        let one = self.leaf(left, capacity_for(left.len()), owner);
        let Some(packed) = right.first() else {
            self.publish(first, &[(key, Arc::clone(&one))]);
            self.renew(leaf, &one, owner);
            return;
        };
        let two = self.leaf(right, LEAF_EXTENTS, owner);
        let rows = [(key, Arc::clone(&one)), (packed.start(), Arc::clone(&two))];
        self.publish(first, &rows);
        self.renew(leaf, &one, owner);
        self.enter(&two, Some(&one), owner);
    }

    /// Makes a leaf with few entries one with a neighbour that has few too. Answers whether there
    /// is one.
    fn merge(&mut self, leaf: &Arc<Leaf<T>>, owner: &Owner<'_, T>) -> bool {
        let few = |(_, leaf): &(u32, &Arc<Leaf<T>>)| leaf.len() <= FEW;
        let root = &self.root;
        let Some((key, _)) = root.leaf_at(leaf.get(0).start()) else {
            return false;
        };
        let after = root.leaf_after(key).filter(few);
        let before = || {
            let found = root.leaf_at(key.checked_sub(1)?);
            found
                .filter(few)
                .filter(|(_, found)| !Arc::ptr_eq(found, leaf))
        };
        let (left, right) = match after {
            Some((_, right)) => (Arc::clone(leaf), Arc::clone(right)),
            None => match before() {
                Some((_, left)) => (Arc::clone(left), Arc::clone(leaf)),
                None => return false,
            },
        };
        let both = [left.packed(), right.packed()].concat();
        self.publish(right.get(0).start(), &[]);
        self.leave(&right, owner);
        self.remake(&left, left.get(0).start(), &both, false, owner);
        true
    }

    /// Takes a leaf out of the index and the counts. Answers its extents, or `None` if it is not in
    /// the index.
    pub(super) fn drop_leaf(&mut self, leaf: &Arc<Leaf<T>>, owner: &Owner<'_, T>) -> Option<usize> {
        let first = leaf.get(0).start();
        let (_, found) = self.root.leaf_at(first)?;
        if !Arc::ptr_eq(found, leaf) {
            return None;
        }
        let extents = leaf.len();
        self.extents -= extents;
        self.publish(first, &[]);
        self.leave(leaf, owner);
        Some(extents)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self, owner: &Owner<'_, T>) {
        if !self.root.is_empty() {
            let root = std::mem::take(&mut self.root);
            root.for_each(&mut |leaf| self.leave(leaf, owner));
            self.version += 1;
        }
        self.extents = 0;
    }

    fn publish(&mut self, key: u32, rows: &[(u32, Arc<Leaf<T>>)]) {
        self.version += 1;
        self.root = index::replace(&self.root, key, rows, &mut self.copied);
    }

    fn leaf(&self, packed: &[Packed], capacity: usize, owner: &Owner<'_, T>) -> Arc<Leaf<T>> {
        let first = packed.first().map_or(0, |packed| packed.start());
        let queued = self.queued.then(|| owner.place(first));
        let leaf = Leaf::new(packed, capacity, queued);
        owner.bytes(leaf.bytes());
        Arc::new(leaf)
    }

    /// Puts a new leaf into the queues: next to the one it was split from, or as one that is new.
    fn enter(&self, leaf: &Arc<Leaf<T>>, from: Option<&Arc<Leaf<T>>>, owner: &Owner<'_, T>) {
        if self.queued {
            owner.enter(leaf, from);
        }
    }

    /// Puts a leaf into the place of one that is no longer in the index.
    fn renew(&self, old: &Arc<Leaf<T>>, new: &Arc<Leaf<T>>, owner: &Owner<'_, T>) {
        owner.bytes(-old.bytes());
        if self.queued {
            owner.queues.renew(old, new);
        }
    }

    /// Notes that a leaf is no longer in the index.
    fn leave(&self, leaf: &Arc<Leaf<T>>, owner: &Owner<'_, T>) {
        owner.bytes(-leaf.bytes());
        if self.queued {
            owner.queues.leave(leaf);
        }
    }
}
