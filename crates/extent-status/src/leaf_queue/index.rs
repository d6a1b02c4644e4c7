//! The index of a tree's leaves: a tree of small nodes that are never changed, only copied. So who
//! holds a root sees all leaves as they were, for as long as it looks.
//!
//! Most files have a handful of extents: all of them lie in one leaf, which then is the root
//! itself.
//!
//! A leaf holds the extents that begin from its key up to the next leaf's; the first leaf also
//! those before its key. An extent may end behind the next leaf's key.

use std::sync::Arc;

use super::leaf::{Leaf, Packed};

/// The most rows of a node.
const FAN: usize = 32;

/// Neighbours of no more rows than this become one.
const FEW: usize = FAN / 4;

/// First blocks and what begins there. Never empty.
#[derive(Debug)]
struct Node<T> {
    rows: Vec<Row<T>>,
}

type Row<T> = (u32, Child<T>);

#[derive(Debug)]
enum Child<T> {
    Node(Arc<Node<T>>),
    Leaf(Arc<Leaf<T>>),
}

// A derived one would ask for `T: Clone`.
impl<T> Clone for Child<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Node(node) => Self::Node(Arc::clone(node)),
            Self::Leaf(leaf) => Self::Leaf(Arc::clone(leaf)),
        }
    }
}

/// All leaves of a tree of type `T`, or none.
#[derive(Debug)]
pub(super) struct Root<T>(Option<Row<T>>);

impl<T> Clone for Root<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Root<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Root<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The leaf whose extents begin around `key`, and its own key, which lies behind it only for
    /// the first leaf.
    pub(super) fn leaf_at(&self, key: u32) -> Option<(u32, &Arc<Leaf<T>>)> {
        let mut row = self.0.as_ref()?;
        loop {
            match row {
                (_, Child::Node(node)) => row = node.rows.get(node.position(key))?,
                (first, Child::Leaf(leaf)) => return Some((*first, leaf)),
            }
        }
    }

    /// The first leaf whose key lies behind `key`.
    pub(super) fn leaf_after(&self, key: u32) -> Option<(u32, &Arc<Leaf<T>>)> {
        match self.0.as_ref()? {
            (_, Child::Node(node)) => node.leaf_after(key),
            (first, Child::Leaf(leaf)) => (*first > key).then_some((*first, leaf)),
        }
    }

    /// The entry that contains `lblk`, and its leaf. For readers too, who may see half of a change.
    pub(super) fn containing(&self, lblk: u32) -> Option<(&Arc<Leaf<T>>, usize, Packed)> {
        let mut key = lblk;
        // No leaf is empty, so it is in the first that is asked, or in the one before.
        for _ in 0..2 {
            let (first, leaf) = self.leaf_at(key)?;
            if let Some(index) = leaf.floor(lblk) {
                let packed = leaf.get(index);
                let inside = packed.start() <= lblk && lblk < packed.end();
                return inside.then_some((leaf, index, packed));
            }
            if first > key {
                return None;
            }
            key = first.checked_sub(1)?;
        }
        None
    }

    /// Every leaf, in order.
    pub(super) fn for_each(&self, work: &mut impl FnMut(&Arc<Leaf<T>>)) {
        match &self.0 {
            None => {}
            Some((_, Child::Node(node))) => node.for_each(work),
            Some((_, Child::Leaf(leaf))) => work(leaf),
        }
    }
}

impl<T> Node<T> {
    /// The row that leads to `key`.
    fn position(&self, key: u32) -> usize {
        let before = self.rows.partition_point(|(first, _)| *first <= key);
        before.saturating_sub(1)
    }

    /// The first leaf whose key lies behind `key`.
    fn leaf_after(&self, key: u32) -> Option<(u32, &Arc<Leaf<T>>)> {
        let here = self.position(key);
        for (first, child) in self.rows.iter().skip(here) {
            match child {
                Child::Node(below) => {
                    if let Some(found) = below.leaf_after(key) {
                        return Some(found);
                    }
                }
                Child::Leaf(leaf) if *first > key => return Some((*first, leaf)),
                Child::Leaf(_) => {}
            }
        }
        None
    }

    fn for_each(&self, work: &mut impl FnMut(&Arc<Leaf<T>>)) {
        for (_, child) in &self.rows {
            match child {
                Child::Node(below) => below.for_each(work),
                Child::Leaf(leaf) => work(leaf),
            }
        }
    }

    /// The rows after the leaf at `key` was replaced by others, in at most two nodes. Adds the rows
    /// it copied to `copied`.
    fn replaced(&self, key: u32, new: &[(u32, Arc<Leaf<T>>)], copied: &mut u64) -> Vec<Row<T>> {
        let at = self.position(key);
        let below = match self.rows.get(at) {
            Some((_, Child::Node(below))) => below.replaced(key, new, copied),
            _ => new
                .iter()
                .map(|(key, leaf)| (*key, Child::Leaf(Arc::clone(leaf))))
                .collect(),
        };
        let appended = at + 1 == self.rows.len();
        let (before, after) = self.rows.split_at(at);
        let after = after.get(1..).unwrap_or_default();
        let rows = [before, &below, after].concat();
        *copied += rows.len() as u64;
        debug_assert!(rows.is_sorted_by(|a, b| a.0 < b.0), "keys ascend");
        in_nodes(merged(rows, at), appended)
    }
}

/// The rows with the node at `at` joined to its right neighbour, if both have few.
fn merged<T>(mut rows: Vec<Row<T>>, at: usize) -> Vec<Row<T>> {
    if let Some([(_, Child::Node(left)), (_, Child::Node(right))]) = rows.get(at..at + 2)
        && left.rows.len() <= FEW
        && right.rows.len() <= FEW
    {
        let both = [&left.rows[..], &right.rows[..]].concat();
        let joined = in_nodes(both, false);
        rows.splice(at..at + 2, joined);
    }
    rows
}

/// The rows in as few nodes as hold them: none, one, or two. At the end of the file the left one is
/// left full.
fn in_nodes<T>(mut rows: Vec<Row<T>>, appended: bool) -> Vec<Row<T>> {
    let right = match rows.len() {
        0..=FAN => Vec::new(),
        _ if appended => rows.split_off(FAN),
        len => rows.split_off(len / 2),
    };
    [rows, right]
        .into_iter()
        .filter_map(|rows| {
            let first = rows.first()?.0;
            Some((first, Child::Node(Arc::new(Node { rows }))))
        })
        .collect()
}

/// The index after the leaf at `key` was replaced by others in order; with no leaf yet, `new` are
/// all. Adds the rows it copied to `copied`.
pub(super) fn replace<T>(
    root: &Root<T>,
    key: u32,
    new: &[(u32, Arc<Leaf<T>>)],
    copied: &mut u64,
) -> Root<T> {
    let mut rows = match (&root.0, new) {
        (Some((_, Child::Node(node))), _) => node.replaced(key, new, copied),
        (_, []) => return Root(None),
        (_, [(key, leaf)]) => {
            *copied += 1;
            return Root(Some((*key, Child::Leaf(Arc::clone(leaf)))));
        }
        _ => Node { rows: Vec::new() }.replaced(key, new, copied),
    };
    let mut top = match rows.len() {
        0 | 1 => rows.pop(),
        _ => Some((rows[0].0, Child::Node(Arc::new(Node { rows })))),
    };
    while let Some((_, Child::Node(node))) = &top
        && let [only] = &node.rows[..]
    {
        top = Some(only.clone());
    }
    Root(top)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    use proptest::prelude::*;

    use super::*;

    fn keys(root: &Root<()>) -> usize {
        let mut count = 0;
        root.for_each(&mut |_| count += 1);
        count
    }

    proptest! {
        #[test]
        fn leaves_are_found_where_they_were_put(
            ops in prop::collection::vec((0..5000_u32, 0..3), 1..400),
        ) {
            let mut root = Root::default();
            let mut model: BTreeMap<u32, Arc<Leaf<()>>> = BTreeMap::new();
            let mut copied = 0;
            for (key, op) in ops {
                let below = model.range(..=key).next_back().or(model.iter().next());
                let old = below.map(|(key, leaf)| (*key, Arc::clone(leaf)));
                let new = (key, Arc::new(Leaf::new(&[], 0, None)));
                if op == 0 {
                    if let Some((old, _)) = old {
                        root = replace(&root, key, &[], &mut copied);
                        model.remove(&old);
                    }
                } else if let Entry::Vacant(place) = model.entry(key) {
                    let mut rows: Vec<_> = old.into_iter().chain([new.clone()]).collect();
                    rows.sort_by_key(|(key, _)| *key);
                    root = replace(&root, key, &rows, &mut copied);
                    place.insert(new.1);
                }
                prop_assert_eq!(keys(&root), model.len());
                let expected = model.range(..=key).next_back().or(model.iter().next());
                let found = root.leaf_at(key);
                prop_assert_eq!(found.map(|f| f.0), expected.map(|e| *e.0));
                if let (Some(found), Some(expected)) = (found, expected) {
                    prop_assert!(Arc::ptr_eq(found.1, expected.1));
                }
                let after = root.leaf_after(key);
                let expected = model.range(key + 1..).next();
                prop_assert_eq!(after.map(|a| a.0), expected.map(|e| *e.0));
            }
        }
    }

    #[test]
    fn a_long_index_is_shallow_and_cheap_to_change() {
        let mut root = Root::default();
        let mut copied = 0;
        for key in 0..30_000 {
            let new = (key, Arc::new(Leaf::new(&[], 0, None)));
            let last = root.leaf_at(key);
            let rows: Vec<_> = last
                .map(|(k, l)| (k, Arc::clone(l)))
                .into_iter()
                .chain([new])
                .collect();
            let before = copied;
            root = replace(&root, key, &rows, &mut copied);
            assert!(
                copied - before <= 4 * (FAN as u64 + 1),
                "{}",
                copied - before
            );
        }
        assert_eq!(keys(&root), 30_000);
    }
}
