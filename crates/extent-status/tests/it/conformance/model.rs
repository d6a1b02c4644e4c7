//! Random calls on two trees of one cache of each design, compared with what each block is, one
//! by one.

use std::ops::Range;

use proptest::prelude::*;
use uext4_extent_status::{Extent, FILL_MAX, LEAF_EXTENTS, Status, Tree};
use uext4_ondisk::{Lblk, Pblk};

use super::{Design, Merge, Subject, designs, extent};

/// What is known of a block: its status and place.
type Block = Option<(Status, u64)>;

#[derive(Clone, Debug)]
enum Op {
    Insert(Extent),
    Cache(Extent),
    CacheAll(Vec<Extent>),
    Remove(u32, u32),
    Lookup(u32),
    Find(u32, [bool; 4]),
    Precache,
    Clear,
    Scan(usize),
}

fn status() -> impl Strategy<Value = Status> {
    prop::sample::select(Status::ALL.to_vec())
}

/// In a window of so many blocks. Places agree for adjacent blocks of one of three runs.
fn any_extent(blocks: u32, longest: u32) -> impl Strategy<Value = Extent> {
    let status = prop_oneof![1 => Just(Status::Delayed), 2 => status()];
    (0..blocks, 0..longest, 1..4u64, status).prop_map(|(lblk, len, run, status)| {
        let pblk = run * 1000 + u64::from(lblk);
        extent(lblk, len, if status.is_mapped() { pblk } else { 0 }, status)
    })
}

/// Blocks side by side that do not merge, as a whole leaf of the map on the device.
fn leaf(blocks: u32) -> impl Strategy<Value = Vec<Extent>> {
    (0..blocks, 0..blocks).prop_map(move |(from, count)| {
        let to = (from + count).min(blocks);
        let one = |lblk| extent(lblk, 1, u64::from(lblk) * 3 + 5000, Status::Written);
        (from..to).map(one).collect()
    })
}

fn op(blocks: u32, longest: u32) -> impl Strategy<Value = Op> {
    let extents = move || any_extent(blocks, longest);
    prop_oneof![
        6 => extents().prop_map(Op::Insert),
        2 => extents().prop_map(Op::Cache),
        2 => prop::collection::vec(extents(), 1..4).prop_map(Op::CacheAll),
        1 => leaf(blocks).prop_map(Op::CacheAll),
        3 => (0..blocks, 0..longest).prop_map(|(lblk, len)| Op::Remove(lblk, len)),
        3 => (0..blocks).prop_map(Op::Lookup),
        2 => (0..blocks, any::<[bool; 4]>()).prop_map(|(from, set)| Op::Find(from, set)),
        1 => Just(Op::Precache),
        1 => Just(Op::Clear),
        2 => (0..20usize).prop_map(Op::Scan),
    ]
}

/// A tree next to the blocks it must know, `base` being the first of the window.
struct Pair {
    tree: Tree,
    blocks: Vec<Block>,
    base: u32,
    merge: Merge,
}

/// What an extent says of a block in it.
fn said(extent: &Extent, lblk: Lblk) -> Block {
    let pblk = extent.pblk_at(lblk).map_or(0, |pblk| pblk.0);
    Some((extent.status, pblk))
}

impl Pair {
    fn size(&self) -> u32 {
        self.blocks.len() as u32
    }

    fn range(&self, lblk: u32, len: u32) -> Range<usize> {
        lblk as usize..(lblk + len).min(self.size()) as usize
    }

    fn moved(&self, extent: &Extent) -> Extent {
        Extent {
            lblk: Lblk(self.base + extent.lblk.0),
            // What lies beyond the window is cut, as the tree does at the last block there is.
            len: match self.base {
                0 => extent.len.min(self.size() - extent.lblk.0),
                _ => extent.len,
            },
            ..*extent
        }
    }

    fn delayed_in(&self, range: Range<usize>) -> u32 {
        let is_delayed = |b: &&Block| matches!(b, Some((Status::Delayed, _)));
        self.blocks[range].iter().filter(is_delayed).count() as u32
    }

    fn put(&mut self, new: &Extent) {
        for at in self.range(new.lblk.0, new.len) {
            self.blocks[at] = said(new, Lblk(at as u32));
        }
    }

    /// Puts those in of which nothing is known.
    fn put_unknown(&mut self, all: &[Extent]) {
        for new in all.iter().filter(|e| e.status.is_reclaimable()) {
            let mut old = self.blocks[self.range(new.lblk.0, new.len)].iter();
            if old.all(Option::is_none) {
                self.put(new);
            }
        }
    }

    /// Puts a part of `new` into each gap between `known`, until [`FILL_MAX`] parts are passed.
    fn fill(&mut self, new: &Extent, known: &[Extent]) {
        let end = self.range(new.lblk.0, new.len).end as u32;
        let mut at = new.lblk.0;
        for _ in 0..FILL_MAX {
            let lblk = self.base + at.min(end);
            let holds = |e: &&Extent| e.lblk.0 <= lblk && lblk < e.end();
            let next = known.iter().find(|e| e.lblk.0 > lblk);
            at = match known.iter().find(holds) {
                Some(here) => here.end() - self.base,
                None => {
                    let stop = next.map_or(end, |next| (next.lblk.0 - self.base).min(end));
                    (at..stop).for_each(|at| self.blocks[at as usize] = said(new, Lblk(at)));
                    stop
                }
            };
        }
    }

    /// The blocks as the tree must report them: the largest possible extents, or, if neighbours
    /// are not merged, any that say the same.
    fn expected(&self) -> Vec<Extent> {
        if self.merge == Merge::Off {
            let extents = self.tree.extents();
            let mut reported = vec![None; self.blocks.len()];
            for extent in &extents {
                for lblk in extent.lblk.0..extent.end() {
                    let old =
                        reported[(lblk - self.base) as usize].replace(said(extent, Lblk(lblk)));
                    assert_eq!(old, None, "extents must be disjoint");
                }
            }
            let reported: Vec<Block> = reported.into_iter().map(Option::flatten).collect();
            assert_eq!(reported, self.blocks);
            assert!(extents.is_sorted_by_key(|extent| extent.lblk));
            return extents;
        }
        let mut extents: Vec<Extent> = Vec::new();
        for (lblk, block) in (self.base..u32::MAX).zip(&self.blocks) {
            let Some((status, pblk)) = *block else {
                continue;
            };
            match extents.last_mut() {
                Some(last)
                    if last.end() == lblk
                        && last.status == status
                        && (!status.is_mapped() || last.pblk.0 + u64::from(last.len) == pblk) =>
                {
                    last.len += 1;
                }
                _ => extents.push(extent(lblk, 1, pblk, status)),
            }
        }
        extents
    }

    fn run(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let seq = self.tree.seq();
        match op {
            Op::Insert(new) => {
                let replaced = self.delayed_in(self.range(new.lblk.0, new.len));
                prop_assert_eq!(self.tree.insert(self.moved(new)), replaced);
                self.put(new);
                prop_assert_eq!(self.tree.seq() > seq, new.len > 0);
            }
            Op::Cache(new) => {
                let known = self.tree.extents();
                self.tree.cache(self.moved(new));
                if new.status.is_reclaimable() {
                    self.fill(new, &known);
                }
                prop_assert_eq!(self.tree.seq(), seq);
            }
            Op::CacheAll(all) => {
                let moved: Vec<Extent> = all.iter().map(|e| self.moved(e)).collect();
                self.tree.cache_all(&moved);
                self.put_unknown(all);
                prop_assert_eq!(self.tree.seq(), seq);
            }
            Op::Remove(lblk, len) => {
                let range = self.range(*lblk, *len);
                let removed = self.delayed_in(range.clone());
                let len = if self.base == 0 {
                    range.len() as u32
                } else {
                    *len
                };
                prop_assert_eq!(self.tree.remove(Lblk(self.base + lblk), len), removed);
                self.blocks[range].fill(None);
                prop_assert_eq!(self.tree.seq() > seq, len > 0);
            }
            Op::Lookup(lblk) => {
                let lblk = Lblk(self.base + lblk);
                let holds = |e: &Extent| e.lblk <= lblk && lblk.0 < e.end();
                let expected = self.expected().into_iter().find(holds);
                prop_assert_eq!(self.tree.lookup(lblk), expected);
            }
            Op::Find(from, set) => {
                let from = self.base + from;
                let wanted = |status: Status| set[status as usize];
                let mut all = self.expected().into_iter();
                let expected = all.find(|e| e.end() > from && wanted(e.status)).map(|e| {
                    let start = e.lblk.0.max(from);
                    let pblk = e.pblk_at(Lblk(start)).unwrap_or(Pblk(0));
                    extent(start, e.end() - start, pblk.0, e.status)
                });
                prop_assert_eq!(self.tree.find(Lblk(from), wanted), expected);
            }
            Op::Precache => {
                self.tree.set_precached();
                prop_assert!(self.tree.is_precached());
            }
            Op::Clear => {
                self.tree.clear_cache();
                prop_assert!(!self.tree.is_precached());
                let stays = |b: &Block| matches!(b, Some((Status::Delayed, _)));
                self.blocks
                    .iter_mut()
                    .for_each(|b| *b = b.filter(|_| stays(b)));
                prop_assert_eq!(self.tree.seq(), seq);
            }
            // Of the cache, not of one tree.
            Op::Scan(_) => {}
        }
        Ok(())
    }

    /// After a scan: what is known may be less, but never other, and delayed blocks all stay.
    fn forget(&mut self) -> Result<(), TestCaseError> {
        let mut now = vec![None; self.blocks.len()];
        for extent in self.tree.extents() {
            for lblk in extent.lblk.0..extent.end() {
                now[(lblk - self.base) as usize] = said(&extent, Lblk(lblk));
            }
        }
        for (block, now) in self.blocks.iter().zip(&now) {
            let is_delayed = matches!(block, Some((Status::Delayed, _)));
            prop_assert!(now == block || now.is_none() && !is_delayed);
        }
        self.blocks = now;
        Ok(())
    }
}

/// Two trees of a cache: one window at the first block, one that ends at the last.
fn run(
    design: Design,
    merge: Merge,
    blocks: u32,
    ops: &[(usize, Op)],
) -> Result<(), TestCaseError> {
    let subject = Subject::new(design, merge);
    let room = &subject.room;
    let mut pairs = [0, u32::MAX - blocks].map(|base| Pair {
        tree: Tree::new(room),
        blocks: vec![None; blocks as usize],
        base,
        merge,
    });
    for (which, op) in ops {
        if let Op::Scan(nr) = op {
            let before = room.count();
            let seqs = pairs.each_ref().map(|pair| pair.tree.seq());
            let scan = room.scan_recorded(*nr);
            let over = if design.has_leaves && *nr > 0 {
                LEAF_EXTENTS - 1
            } else {
                0
            };
            prop_assert!(scan.freed <= nr + over);
            prop_assert!(!design.has_leaves || scan.max_steps_under_lock <= 256);
            prop_assert_eq!(room.count(), before - scan.freed);
            prop_assert_eq!(seqs, pairs.each_ref().map(|pair| pair.tree.seq()));
            for pair in &mut pairs {
                pair.forget()?;
            }
        } else {
            pairs[*which].run(op)?;
        }
        let mut all = Vec::new();
        for pair in &pairs {
            let expected = pair.expected();
            prop_assert_eq!(&pair.tree.extents(), &expected);
            let delayed = pair.delayed_in(0..blocks as usize);
            prop_assert_eq!(pair.tree.delayed_blocks(), u64::from(delayed));
            all.push(expected);
        }
        let shrinkable = |e: &&Extent| e.status.is_reclaimable();
        let count = |list: &Vec<Extent>| list.iter().filter(shrinkable).count();
        prop_assert_eq!(room.count(), all.iter().map(count).sum::<usize>());
        let stats = room.stats();
        prop_assert_eq!(
            stats.es_stats_all_cnt,
            all.iter().map(Vec::len).sum::<usize>() as u64
        );
        if !design.lists_idle_trees {
            let listed = all.iter().filter(|list| count(list) > 0).count();
            prop_assert_eq!(stats.s_es_nr_inode, listed as u64);
        }
    }
    drop(pairs);
    prop_assert_eq!(room.count(), 0);
    prop_assert_eq!(room.memory(), subject.memory_without_trees());
    Ok(())
}

proptest! {
    #[test]
    fn answers_are_those_of_single_blocks(
        merge in prop::sample::select(vec![Merge::On, Merge::Off]),
        ops in prop::collection::vec((0..2usize, op(80, 30)), 1..120),
    ) {
        for design in designs() {
            run(design, merge, 80, &ops)?;
        }
    }

    /// Enough extents for several leaves and an index of several nodes.
    #[test]
    fn answers_are_the_same_in_large_trees(
        merge in prop::sample::select(vec![Merge::On, Merge::Off]),
        ops in prop::collection::vec((0..2usize, op(3000, 600)), 1..40),
    ) {
        for design in designs() {
            run(design, merge, 3000, &ops)?;
        }
    }
}
