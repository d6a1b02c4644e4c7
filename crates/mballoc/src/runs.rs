//! The longest free run of a group, which stays exact while blocks come and go.
//!
//! A tree over the bitmap. A leaf stands for 256 blocks, a node above for twice as many as those
//! below it; each knows how much is free at its head, at its tail, and in one run within. The
//! root so knows the longest run; a change of the bitmap costs its leaves and one path to the
//! root; and a search for a run of some length steps over nodes that cannot hold one.

use crate::bits;

/// Blocks of a leaf.
const LEAF: u32 = 256;

/// Free blocks from `start` on, `len` of them, relative to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first.
    pub start: u32,
    /// How many.
    pub len: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node {
    head: u32,
    tail: u32,
    longest: u32,
}

/// See the file's head. Blocks past the last word count as used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RunTree {
    /// Leaves first, the root last.
    levels: Vec<Box<[Node]>>,
}

impl RunTree {
    pub(crate) fn new(used: &[u64]) -> Self {
        let mut count = (used.len() as u32 * 64).div_ceil(LEAF).max(1) as usize;
        let mut levels = vec![vec![Node::default(); count].into_boxed_slice()];
        while count > 1 {
            count = count.div_ceil(2);
            levels.push(vec![Node::default(); count].into_boxed_slice());
        }
        let mut tree = Self { levels };
        tree.update(used, 0, used.len() as u32 * 64);
        tree
    }

    /// Blocks of the longest free run.
    pub(crate) fn longest(&self) -> u32 {
        self.levels
            .last()
            .and_then(|root| root.first())
            .map_or(0, |root| root.longest)
    }

    /// Blocks `start..end` of `used` have changed.
    pub(crate) fn update(&mut self, used: &[u64], start: u32, end: u32) {
        let (mut low, mut high) = ((start / LEAF) as usize, end.div_ceil(LEAF) as usize);
        for at in low..high.min(self.levels[0].len()) {
            self.levels[0][at] = leaf(used, at as u32 * LEAF);
        }
        let mut size = LEAF;
        for level in 1..self.levels.len() {
            (low, high) = (low / 2, high.div_ceil(2));
            let (below, above) = self.levels.split_at_mut(level);
            let below = &below[level - 1];
            for at in low..high.min(above[0].len()) {
                let right = below.get(at * 2 + 1).copied().unwrap_or_default();
                above[0][at] = join(below[at * 2], right, size);
            }
            size *= 2;
        }
    }

    /// The first free run at or after `from` of at least `least` blocks, as long as it is; of a run
    /// that `from` lies in, only what follows counts. `blocks` is where the group ends.
    pub(crate) fn next(&self, used: &[u64], blocks: u32, from: u32, least: u32) -> Option<Piece> {
        let mut at = from;
        while at < blocks {
            if at.is_multiple_of(LEAF)
                && let Some(past) = self.step_over(at, least)
            {
                at = past;
                continue;
            }
            // What a step lands on may be the tail of a node: a run, measured from its start.
            let leaf_end = (at / LEAF + 1).saturating_mul(LEAF).min(blocks);
            let start = bits::next(used, at, leaf_end, false);
            if start == leaf_end {
                at = leaf_end;
                continue;
            }
            let end = bits::next(used, start, blocks, true);
            if end - start >= least {
                return Some(Piece {
                    start,
                    len: end - start,
                });
            }
            at = end;
        }
        None
    }

    /// Where the tail of the largest node begins that starts at `at`, a leaf's start, and holds
    /// no run of `least` blocks; `None` if there is none or all of it is its tail.
    fn step_over(&self, at: u32, least: u32) -> Option<u32> {
        let (mut index, mut size, mut past) = ((at / LEAF) as usize, LEAF, None);
        for level in &self.levels {
            let node = level.get(index)?;
            if node.longest >= least {
                break;
            }
            if node.tail < size {
                past = Some(at + size - node.tail);
            }
            if !index.is_multiple_of(2) {
                break;
            }
            (index, size) = (index / 2, size.saturating_mul(2));
        }
        past
    }
}

/// The node of the 256 blocks from `start` on.
fn leaf(used: &[u64], start: u32) -> Node {
    let end = (start + LEAF).min(used.len() as u32 * 64);
    let mut node = Node {
        head: bits::next(used, start, end, true) - start,
        ..Node::default()
    };
    let mut at = start;
    while at < end {
        let from = bits::next(used, at, end, false);
        let upto = bits::next(used, from, end, true);
        node.longest = node.longest.max(upto - from);
        if upto == start + LEAF {
            node.tail = upto - from;
        }
        at = upto;
    }
    node
}

/// The node of two neighbours; the left one stands for `size` blocks.
fn join(left: Node, right: Node, size: u32) -> Node {
    Node {
        head: left.head + if left.head == size { right.head } else { 0 },
        tail: right.tail + if right.tail == size { left.tail } else { 0 },
        longest: left.longest.max(right.longest).max(left.tail + right.head),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first run of `least` clear bits from `from` on, bit by bit.
    fn naive(used: &[u64], blocks: u32, from: u32, least: u32) -> Option<Piece> {
        let mut at = from;
        while at < blocks {
            let len = (at..blocks).take_while(|&b| !bits::get(used, b)).count() as u32;
            if len > 0 && len >= least {
                return Some(Piece { start: at, len });
            }
            at += len + 1;
        }
        None
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_over_all_bits_finds(
            blocks in 1u32..3000,
            changes in prop::collection::vec((any::<u32>(), 1u32..900, any::<bool>()), 1..30),
            asks in prop::collection::vec((any::<u32>(), 1u32..1200), 1..10),
        ) {
            let mut used = vec![!0u64; blocks.div_ceil(64) as usize];
            bits::fill(&mut used, 0, blocks, false);
            let mut tree = RunTree::new(&used);
            for (start, len, value) in changes {
                let start = start % blocks;
                let end = (start + len).min(blocks);
                bits::fill(&mut used, start, end, value);
                tree.update(&used, start, end);
                prop_assert_eq!(&tree, &RunTree::new(&used));
            }
            let mut runs = (0..blocks).filter_map(|b| naive(&used, blocks, b, 1));
            let longest = runs.by_ref().map(|run| run.len).max().unwrap_or(0);
            prop_assert_eq!(tree.longest(), longest);
            for (from, least) in asks {
                let from = from % blocks;
                prop_assert_eq!(
                    tree.next(&used, blocks, from, least),
                    naive(&used, blocks, from, least)
                );
            }
        }
    }
}
