//! Random changes of a file's map against a naive model, judged by the reader and by e2fsck.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_mballoc::Request;
use uext4_ondisk::Pblk;
use uext4_ondisk::extent::{ExtentNode, empty_extent_root};
use uext4_ondisk::inode::FileType;

use super::*;
use crate::base::mapping::MapState;
use crate::inode::iget;
use crate::inode::store::store;
use crate::map::{MapCursor, map_blocks};
use crate::mount::open_options::OpenOptions;
use crate::mount::super_;
use crate::orphan::change::set_next;
use crate::testing::{mke2fs, mount, new_inode, unmount_and_check};

mod refused;

/// What a block is: where, and whether it is unwritten.
type Model = BTreeMap<u32, (u64, bool)>;

/// Whether a change of many steps has the credits for more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credits {
    Plenty,
    /// Of one step, and no more to be had.
    Scarce,
}

fn run(start: u32, len: u32) -> LblkRun {
    LblkRun {
        start: Lblk(start),
        len,
    }
}

struct Fixture {
    device: Arc<MemoryDevice>,
    sbi: Arc<Sbi>,
    inode: Inode,
    model: Model,
    credits: Credits,
    /// Times that a change had to go on with another handle.
    rests: u32,
}

impl Fixture {
    fn new(flags: &str, kib: u64, kind: FileType, credits: Credits) -> Self {
        let device = mke2fs(flags, kib);
        let sbi = mount(&device);
        let inode = new_inode(&sbi.start(64).unwrap(), kind);
        Self {
            device,
            sbi,
            inode,
            model: Model::new(),
            credits,
            rests: 0,
        }
    }

    /// Does one step after another, each with a handle of its own.
    fn steps(
        &mut self,
        mut range: (Lblk, u32),
        mut step: impl FnMut(&Handle<'_>, &mut Inode, (Lblk, u32)) -> Result<Progress>,
    ) {
        let sbi = Arc::clone(&self.sbi);
        let journal = &sbi.rw().unwrap().journal;
        loop {
            let credits = credits_step(&sbi, &self.inode) + 1;
            let rest = if self.credits == Credits::Scarce {
                journal.commit_now(&*sbi).unwrap();
                journal.credits_max() - credits
            } else {
                0
            };
            // It leaves nothing that the second could be given in addition.
            let _other = journal.start(rest, &*sbi).unwrap();
            let handle = sbi.start(credits).unwrap();
            let progress = step(&handle, &mut self.inode, range).unwrap();
            store(&handle, &sbi, &self.inode).unwrap();
            match progress {
                Progress::Done => return,
                Progress::Rest(rest) => {
                    let rest = (rest.start, rest.len);
                    assert_ne!(rest, range, "no progress");
                    range = rest;
                    self.rests += 1;
                    // A stop leaves a tree that can be read, and nothing is lost by it.
                    let read = self.read();
                    assert!(read.len() <= self.model.len());
                }
            }
        }
    }

    /// Maps up to `len` blocks from the first unmapped one at or after `lblk` on.
    fn insert(&mut self, lblk: u32, len: u32, goal: u64, unwritten: bool) {
        let lblk = (lblk..).find(|l| !self.model.contains_key(l)).unwrap();
        let next = self
            .model
            .range(lblk..)
            .next()
            .map_or(u32::MAX, |(l, _)| *l);
        let sbi = Arc::clone(&self.sbi);
        let len = len.clamp(1, next - lblk);
        let handle = sbi
            .start(credits_insert(&sbi, &self.inode, len) + 8)
            .unwrap();
        let rw = handle.rw();
        let bitmaps = rw.groups.bitmaps(&sbi, &handle);
        let request = Request {
            goal: Pblk(goal % sbi.geometry().blocks_count),
            len,
            min_len: 1,
            next_fit: true,
        };
        let run = rw.allocator.allocate(&bitmaps, &request).unwrap();
        let before = handle.credits();
        let extent = Extent {
            lblk: Lblk(lblk),
            len: run.len as u16,
            pblk: run.start,
            unwritten: unwritten && self.inode.has(InodeFlags::EXTENTS),
        };
        insert(&handle, &mut self.inode, extent).unwrap();
        let used = before - handle.credits();
        assert!(used <= credits_insert(&sbi, &self.inode, len), "{used}");
        store(&handle, &sbi, &self.inode).unwrap();
        for i in 0..run.len {
            let block = (run.start.0 + u64::from(i), extent.unwritten);
            self.model.insert(lblk + i, block);
        }
    }

    fn remove(&mut self, lblk: u32, len: u32) {
        let until = u64::from(lblk) + u64::from(len);
        let last = self.model.keys().next_back().map_or(0, |l| u64::from(*l));
        let mut before = None;
        let model = self.model.clone();
        self.steps((Lblk(lblk), len), |handle, inode, (lblk, len)| {
            // What a stop says is unmapped is, and nothing else.
            let end = u64::from(lblk.0) + u64::from(len);
            if end < until && before.replace(end).is_none() {
                for at in (lblk.0..).take_while(|at| u64::from(*at) < until.min(last + 2)) {
                    let mapping = map_blocks(handle.sbi(), inode, Lblk(at), 1)?;
                    let expected = u64::from(at) < end && model.contains_key(&at);
                    assert_eq!(mapping.state != MapState::Hole, expected, "{at}");
                }
            }
            remove(handle, inode, lblk, len)
        });
        self.model
            .retain(|l, _| *l < lblk || u64::from(*l) >= until);
    }

    /// Marks the first run of mapped blocks from `lblk` on, or `len` blocks of it.
    fn mark(&mut self, lblk: u32, len: u32, unwritten: bool) {
        let Some(first) = self.model.range(lblk..).next().map(|(l, _)| *l) else {
            return;
        };
        let run = (first..first.saturating_add(len)).take_while(|l| self.model.contains_key(l));
        let len = run.count() as u32;
        let unwritten = unwritten && self.inode.has(InodeFlags::EXTENTS);
        self.steps((Lblk(first), len), |handle, inode, (lblk, len)| {
            if unwritten {
                mark_unwritten(handle, inode, lblk, len)
            } else {
                mark_written(handle, inode, lblk, len)
            }
        });
        for l in first..first + len {
            self.model.get_mut(&l).unwrap().1 = unwritten;
        }
    }

    /// COLLAPSE_RANGE of -`by` blocks, or INSERT_RANGE of `by`.
    fn shift(&mut self, lblk: u32, by: i32) {
        if !self.inode.has(InodeFlags::EXTENTS) {
            return;
        }
        let distance = by.unsigned_abs();
        let from = if by < 0 { lblk + distance } else { lblk };
        if by < 0 {
            self.remove(lblk, distance);
        }
        self.steps((Lblk(from), u32::MAX), |handle, inode, (start, len)| {
            shift(handle, inode, LblkRun { start, len }, by.into())
        });
        let moved = self.model.split_off(&from);
        let moved = moved.into_iter();
        self.model
            .extend(moved.map(|(l, block)| (l.checked_add_signed(by).unwrap(), block)));
    }

    /// The map as the reader sees it.
    fn read(&self) -> Model {
        let last = self.model.keys().next_back().map_or(0, |l| l + 1);
        let mut read = Model::new();
        let mut cursor = MapCursor::default();
        let mut at = 0;
        while at < last.saturating_add(1000) {
            let mapping = cursor.map(&self.sbi, &self.inode, Lblk(at), u32::MAX);
            let mapping = mapping.unwrap();
            if mapping.state != MapState::Hole {
                for i in 0..mapping.len {
                    let unwritten = mapping.state == MapState::Unwritten;
                    read.insert(at + i, (mapping.pblk.0 + u64::from(i), unwritten));
                }
            }
            at = mapping.end();
        }
        read
    }

    /// What the reader sees is the model.
    fn check(&self) {
        let (sbi, inode) = (&self.sbi, &self.inode);
        let read = self.read();
        assert!(read == self.model, "{read:?}\nis not\n{:?}", self.model);
        let stored = iget(sbi, inode.ino).unwrap();
        assert_eq!(stored.i_block, inode.i_block);
        let unit = sbi.block_len() as u64 / 512;
        assert!(stored.blocks >= self.model.len() as u64 * unit);
    }

    fn depth(&self) -> u16 {
        match ExtentNode::parse(&self.inode.i_block, None, None).unwrap() {
            ExtentNode::Leaf(_) => 0,
            ExtentNode::Index { depth, .. } => depth,
        }
    }

    /// Removes the file; nothing of it may be left.
    fn delete(mut self) {
        self.remove(0, u32::MAX);
        self.check();
        assert_eq!(self.inode.blocks, 0);
        let empty = if self.inode.has(InodeFlags::EXTENTS) {
            empty_extent_root()
        } else {
            [0; 60]
        };
        assert_eq!(self.inode.i_block, empty);
        let handle = self.sbi.start(8).unwrap();
        self.inode.links = 0;
        set_next(&self.sbi, &handle, self.inode.id(), 1_700_000_000).unwrap();
        store(&handle, &self.sbi, &self.inode).unwrap();
        let is_dir = self.inode.file_type == FileType::Directory;
        handle.free_inode(self.inode.ino, is_dir).unwrap();
        drop(handle);
        unmount_and_check(&self.sbi, &self.device);
    }

    /// Gives the file a name and leaves it; the map must be the same when it is read anew, and
    /// e2fsck must find nothing wrong.
    fn keep(mut self) {
        let last = self.model.keys().next_back().map_or(0, |l| l + 1);
        self.inode.size = u64::from(last) * self.sbi.block_len() as u64;
        let handle = self.sbi.start(8).unwrap();
        store(&handle, &self.sbi, &self.inode).unwrap();
        drop(handle);
        crate::testing::close(&self.sbi);
        self.check_again();
        let image = uext4_testkit::stored(&self.device);
        let link = format!("ln <{}> kept", self.inode.ino);
        uext4_testkit::debugfs_write(image.path(), [link]);
        uext4_testkit::assert_clean(image.path());
    }

    /// Opens the file system for reading and compares once more.
    fn check_again(&mut self) {
        let device: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(&self.device);
        let sbi = super_::open(device, &OpenOptions::default()).unwrap();
        let inode = iget(&sbi, self.inode.ino).unwrap();
        assert_eq!(inode.i_block, self.inode.i_block);
        (self.sbi, self.inode) = (Arc::new(sbi), inode);
        self.check();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u32, u32, u64, bool),
    Remove(u32, u32),
    Mark(u32, u32, bool),
    Shift(u32, i32),
}

fn op(span: u32) -> impl Strategy<Value = Op> {
    let (at, len) = (0..span, 1..span / 4);
    prop_oneof![
        8 => (at.clone(), 1..8u32, any::<u64>(), any::<bool>())
            .prop_map(|(l, n, goal, u)| Op::Insert(l, n, goal, u)),
        2 => (at.clone(), 1..200u32, any::<u64>(), any::<bool>())
            .prop_map(|(l, n, goal, u)| Op::Insert(l, n, goal, u)),
        2 => (at.clone(), len).prop_map(|(l, n)| Op::Remove(l, n)),
        2 => (at.clone(), 1..6u32).prop_map(|(l, n)| Op::Remove(l, n)),
        4 => (at.clone(), 1..20u32, any::<bool>()).prop_map(|(l, n, u)| Op::Mark(l, n, u)),
        1 => (at, -50..50i32).prop_map(|(l, by)| Op::Shift(l, by)),
    ]
}

impl Fixture {
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Insert(lblk, len, goal, unwritten) => self.insert(lblk, len, goal, unwritten),
            Op::Remove(lblk, len) => self.remove(lblk, len),
            Op::Mark(lblk, len, unwritten) => self.mark(lblk, len, unwritten),
            Op::Shift(lblk, by) => self.shift(lblk, by),
        }
    }
}

fn random(flags: &str, span: u32, cases: u32, credits: Credits) {
    let config = Config {
        cases,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let ops = prop::collection::vec(op(span), 1..150);
    let result = TestRunner::new(config).run(&ops, |ops| {
        let mut fixture = Fixture::new(flags, 16_384, FileType::Regular, credits);
        for op in &ops {
            fixture.apply(op);
            fixture.check();
        }
        fixture.delete();
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn extents_follow_the_model() {
    random("-t ext4 -b 1024", 3000, 24, Credits::Plenty);
    random("-t ext4 -b 4096", 1000, 12, Credits::Plenty);
}

#[test]
fn extents_follow_the_model_in_small_steps() {
    random("-t ext4 -b 1024 -g 1024", 3000, 16, Credits::Scarce);
}

#[test]
fn indirect_blocks_follow_the_model() {
    random("-t ext2 -b 1024", 3000, 16, Credits::Plenty);
    random("-t ext3 -b 1024", 80_000, 8, Credits::Scarce);
    random("-t ext2 -b 4096", 3000, 8, Credits::Plenty);
}

/// Blocks far from one another: 0 ..count, in an order that `place` makes of it.
fn scatter(fixture: &mut Fixture, count: u32, place: impl Fn(u32) -> u32) {
    for i in 0..count {
        // Every other block of the device, so that nothing joins.
        fixture.insert(place(i), 1, 5000 + 2 * u64::from(i), i % 3 == 0);
    }
}

/// Leaves of the tree that `count` extents are in, if they are full.
fn least_nodes(count: u64, per_node: u64) -> u64 {
    let (mut nodes, mut level) = (0, count);
    while level > 4 {
        level = level.div_ceil(per_node);
        nodes += level;
    }
    nodes
}

#[test]
fn growing_at_either_end_leaves_nodes_full() {
    for descending in [false, true] {
        let flags = "-t ext4 -b 1024";
        let mut fixture = Fixture::new(flags, 65_536, FileType::Regular, Credits::Plenty);
        let count = 9000;
        scatter(&mut fixture, count, |i| {
            2 * if descending { count - i } else { i }
        });
        assert_eq!(fixture.depth(), 2);
        let nodes = fixture.inode.blocks / 2 - u64::from(count);
        let least = least_nodes(count.into(), 84);
        assert!(nodes <= least + 3, "{nodes} nodes, {least} would do");
        fixture.check();
        fixture.keep();
    }
}

/// A tree of three levels, as writing here and there, moving and marking leave it.
fn deep_tree() -> Fixture {
    let flags = "-t ext4 -b 1024 -J size=4";
    let mut fixture = Fixture::new(flags, 131_072, FileType::Regular, Credits::Plenty);
    let count = 32_000;
    // Round and round, so that leaves are halved.
    scatter(&mut fixture, count, |i| (i * 7919) % count * 2);
    assert_eq!(fixture.depth(), 3);
    fixture.check();
    fixture.shift(20_001, 333);
    fixture.shift(40_000, -128);
    fixture.mark(10_000, 1, true);
    fixture.check();
    fixture
}

#[test]
fn a_deep_tree_is_preserved() {
    deep_tree().keep();
}

#[test]
fn a_deep_tree_is_removed() {
    let mut fixture = deep_tree();
    fixture.credits = Credits::Scarce;
    fixture.remove(1000, 61_000);
    fixture.check();
    assert!(fixture.rests > 0);
    fixture.delete();
}

#[test]
fn triple_indirect_blocks_are_preserved_and_removed() {
    for (flags, keep) in [("-t ext2 -b 1024", true), ("-t ext3 -b 1024", false)] {
        let mut fixture = Fixture::new(flags, 65_536, FileType::Regular, Credits::Plenty);
        let far = 12 + 256 + 65_536 + 70_000;
        for at in [0, 5, 200, 12 + 250, 12 + 256 + 250, 60_000, 65_700, far] {
            fixture.insert(at, 300, u64::from(at) % 60_000, false);
        }
        fixture.check();
        if keep {
            fixture.keep();
        } else {
            fixture.credits = Credits::Scarce;
            fixture.remove(100, 65_700);
            fixture.check();
            assert!(fixture.rests > 0);
            fixture.delete();
        }
    }
}

#[test]
fn the_longest_extents_are_marked_both_ways() {
    let mut fixture = Fixture::new(
        "-t ext4 -b 4096 -E lazy_itable_init=1",
        600_000,
        FileType::Regular,
        Credits::Scarce,
    );
    let (mut done, len) = (0, 80_000);
    while done < len {
        fixture.insert(done, 32_768.min(len - done), 40_000, false);
        done = fixture.model.len() as u32;
    }
    fixture.mark(0, len, true);
    fixture.check();
    fixture.mark(10, len - 20, false);
    fixture.check();
    fixture.delete();
}

#[test]
fn a_directory_goes_with_its_journaled_blocks() {
    for flags in ["-t ext4 -b 1024", "-t ext3 -b 1024"] {
        let mut fixture = Fixture::new(flags, 16_384, FileType::Directory, Credits::Plenty);
        for i in 0..20 {
            fixture.insert(i, 3, u64::from(i) * 9, false);
        }
        fixture.check();
        fixture.delete();
    }
}
