//! Random calls on two trees of one room, compared with what each block is, one by one.

use std::ops::Range;

use proptest::prelude::*;
use uext4_extent_status::{Extent, Status, Tree};
use uext4_ondisk::{Lblk, Pblk};

use crate::{extent, room};

const BLOCKS: u32 = 80;

/// What is known of a block: its status and place.
type Block = Option<(Status, u64)>;

#[derive(Clone, Debug)]
enum Op {
    Insert(Extent),
    Cache(Vec<Extent>),
    Remove(u32, u32),
    Lookup(u32),
    Find(u32, [bool; 4]),
    Scan(usize),
}

fn status() -> impl Strategy<Value = Status> {
    prop::sample::select(Status::ALL.to_vec())
}

/// Offsets are relative to the window; places agree for adjacent blocks of one of three runs.
fn any_extent() -> impl Strategy<Value = Extent> {
    let status = prop_oneof![1 => Just(Status::Delayed), 2 => status()];
    (0..BLOCKS, 0..30u32, 1..4u64, status).prop_map(|(lblk, len, run, status)| {
        let pblk = run * 1000 + u64::from(lblk);
        extent(lblk, len, if status.is_mapped() { pblk } else { 0 }, status)
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any_extent().prop_map(Op::Insert),
        3 => prop::collection::vec(any_extent(), 1..4).prop_map(Op::Cache),
        3 => (0..BLOCKS, 0..40u32).prop_map(|(lblk, len)| Op::Remove(lblk, len)),
        3 => (0..BLOCKS).prop_map(Op::Lookup),
        2 => (0..BLOCKS, any::<[bool; 4]>()).prop_map(|(from, set)| Op::Find(from, set)),
        2 => (0..20usize).prop_map(Op::Scan),
    ]
}

/// A tree beside the blocks it must know, `base` being the first of the window.
struct Pair {
    tree: Tree,
    blocks: Vec<Block>,
    base: u32,
}

impl Pair {
    fn range(&self, lblk: u32, len: u32) -> Range<usize> {
        lblk as usize..(lblk + len).min(BLOCKS) as usize
    }

    fn moved(&self, extent: &Extent) -> Extent {
        Extent {
            lblk: Lblk(self.base + extent.lblk.0),
            // What lies beyond the window is cut, as the tree does at the last block there is.
            len: match self.base {
                0 => extent.len.min(BLOCKS - extent.lblk.0),
                _ => extent.len,
            },
            ..*extent
        }
    }

    fn delayed_in(&self, range: Range<usize>) -> u32 {
        let is_delayed = |b: &&Block| matches!(b, Some((Status::Delayed, _)));
        self.blocks[range].iter().filter(is_delayed).count() as u32
    }

    fn put(&mut self, new: &Extent, replace: bool) {
        for at in self.range(new.lblk.0, new.len) {
            let pblk = new.pblk_at(Lblk(at as u32)).map_or(0, |pblk| pblk.0);
            if replace || self.blocks[at].is_none() {
                self.blocks[at] = Some((new.status, pblk));
            }
        }
    }

    /// The blocks as the largest possible extents.
    fn expected(&self) -> Vec<Extent> {
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
                self.put(new, true);
                prop_assert_eq!(self.tree.seq() > seq, new.len > 0);
            }
            Op::Cache(all) => {
                let moved: Vec<Extent> = all.iter().map(|e| self.moved(e)).collect();
                self.tree.cache_all(&moved);
                for new in all.iter().filter(|e| e.status.is_reclaimable()) {
                    self.put(new, false);
                }
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
            // Of the room, not of one tree.
            Op::Scan(_) => {}
        }
        Ok(())
    }

    /// After a scan: what is known may be less, but never other, and delayed blocks all stay.
    fn forget(&mut self) -> Result<(), TestCaseError> {
        for (at, block) in self.blocks.iter_mut().enumerate() {
            let lblk = Lblk(self.base + at as u32);
            let extents = self.tree.extents();
            let found = extents.iter().find(|e| e.lblk <= lblk && lblk.0 < e.end());
            let now = found.map(|e| (e.status, e.pblk_at(lblk).map_or(0, |pblk| pblk.0)));
            let is_delayed = matches!(block, Some((Status::Delayed, _)));
            prop_assert!(now == *block || now.is_none() && !is_delayed);
            *block = now;
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn answers_are_those_of_single_blocks(
        ops in prop::collection::vec((0..2usize, op()), 1..120),
    ) {
        let room = room();
        // One window at the first block, one that ends at the last.
        let mut pairs = [0, u32::MAX - BLOCKS].map(|base| Pair {
            tree: Tree::new(&room),
            blocks: vec![None; BLOCKS as usize],
            base,
        });
        for (which, op) in &ops {
            if let Op::Scan(nr) = op {
                let before = room.count();
                let seqs = pairs.each_ref().map(|pair| pair.tree.seq());
                let freed = room.scan(*nr);
                prop_assert!(freed <= *nr);
                prop_assert_eq!(room.count(), before - freed);
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
                let delayed = pair.delayed_in(0..BLOCKS as usize);
                prop_assert_eq!(pair.tree.delayed_blocks(), u64::from(delayed));
                all.push(expected);
            }
            let shrinkable = |e: &&Extent| e.status.is_reclaimable();
            let count = |list: &Vec<Extent>| list.iter().filter(shrinkable).count();
            prop_assert_eq!(room.count(), all.iter().map(count).sum::<usize>());
            let stats = room.stats();
            prop_assert_eq!(stats.es_stats_all_cnt, all.iter().map(Vec::len).sum::<usize>() as u64);
            let listed = all.iter().filter(|list| count(list) > 0).count();
            prop_assert_eq!(stats.s_es_nr_inode, listed as u64);
        }
    }
}
