//! Data of files: every pair of designs against bitmaps in memory, preallocations included.

use std::collections::BTreeMap;
use std::thread;

use proptest::prelude::*;
use uext4_lab_policies::mballoc::{Design, Switches, Tunables};
use uext4_mballoc::{Allocator, DataRequest, Error, FileSpace, Options, Request, Run};
use uext4_ondisk::{GroupNr, Lblk, Pblk};

use super::allocator;
use super::model::Bitmaps;

/// A file as its owner sees it.
#[derive(Default)]
struct File {
    space: FileSpace,
    map: BTreeMap<u32, u64>,
}

#[derive(Clone, Debug)]
enum Op {
    /// Maps up to `len` blocks at `lblk`, or behind the last.
    Write {
        file: usize,
        lblk: Option<u32>,
        len: u32,
        unwritten: bool,
        closed: bool,
    },
    Cancel {
        file: usize,
        len: u32,
    },
    Truncate {
        file: usize,
        from: u32,
    },
    Discard {
        file: usize,
    },
    DiscardAll,
    Metadata,
}

fn op() -> impl Strategy<Value = Op> {
    let file = 0..4usize;
    let write = (
        file.clone(),
        prop::option::weighted(0.3, 0..300u32),
        1..60u32,
        prop::bool::weighted(0.1),
        any::<bool>(),
    )
        .prop_map(|(file, lblk, len, unwritten, closed)| Op::Write {
            file,
            lblk,
            len,
            unwritten,
            closed,
        });
    prop_oneof![
        12 => write,
        1 => (file.clone(), 1..40u32).prop_map(|(file, len)| Op::Cancel { file, len }),
        2 => (file.clone(), 0..300u32).prop_map(|(file, from)| Op::Truncate { file, from }),
        2 => file.prop_map(|file| Op::Discard { file }),
        1 => Just(Op::DiscardAll),
        2 => Just(Op::Metadata),
    ]
}

/// A pair of designs, and the blocks of a stripe.
fn setting() -> impl Strategy<Value = (Design, u32)> {
    let mut normalize: Vec<_> = Switches::designs().map(|(_, s)| Some(s)).collect();
    normalize.push(None);
    let normalize = prop::sample::select(normalize);
    let search = prop::sample::select(&Design::SEARCHES[..]);
    let stripe = prop_oneof![Just(0u32), 1..64u32];
    (normalize, search, stripe)
        .prop_map(|(normalize, search, stripe)| (Design::new(normalize, search.search), stripe))
}

impl File {
    fn request(&self, number: u64, lblk: Option<u32>, len: u32) -> Option<DataRequest> {
        let end = self.map.keys().next_back().map_or(0, |last| last + 1);
        let lblk = lblk.unwrap_or(end);
        if self.map.contains_key(&lblk) {
            return None;
        }
        let left = self.map.range(..lblk).next_back();
        let right = self.map.range(lblk..).next();
        let hole = right.map_or(u32::MAX, |(right, _)| right - lblk);
        let place = |(lblk, pblk): (&u32, &u64)| (Lblk(*lblk), Pblk(*pblk));
        Some(DataRequest {
            file: number,
            lblk: Lblk(lblk),
            len: len.min(hole),
            goal: Pblk(number * 200),
            left: left.map(place),
            right: right.map(place),
            size: end.max(lblk + len).into(),
            unwritten: false,
            closed: false,
        })
    }

    fn map(&mut self, lblk: Lblk, run: Run) {
        for i in 0..run.len {
            let before = self.map.insert(lblk.0 + i, run.start.0 + u64::from(i));
            assert_eq!(before, None);
        }
    }
}

/// What is free in the buddies and what is preallocated is what is free in the bitmaps, group by
/// group.
fn check(allocator: &Allocator, bitmaps: &Bitmaps) {
    let geometry = &bitmaps.geometry;
    let mut kept = vec![0; geometry.groups_count.get() as usize];
    let mut all = 0;
    for run in allocator.preallocated() {
        let (group, offset) = geometry.group_of(run.start).unwrap();
        assert!(offset + run.len <= geometry.blocks_in_group(group));
        assert!((run.start.0..run.end().0).all(|block| !bitmaps.is_used(block)));
        kept[group.0 as usize] += run.len;
        all += u64::from(run.len);
    }
    assert_eq!(allocator.preallocation_stats().kept, all);
    for (group, kept) in kept.into_iter().enumerate() {
        let group = GroupNr(group as u32);
        let start = geometry.group_start(group).0;
        let blocks = start..start + u64::from(geometry.blocks_in_group(group));
        let free = blocks.filter(|block| !bitmaps.is_used(*block)).count() as u32;
        match allocator.group_info(group) {
            Some(info) => assert_eq!(info.free + kept, free, "group {group}"),
            None => assert_eq!(kept, 0),
        }
    }
    assert_eq!(allocator.free_blocks(), bitmaps.free());
}

/// Does one thing, and returns what was taken.
fn step(allocator: &Allocator, bitmaps: &Bitmaps, files: &mut [File], op: &Op) -> Option<Run> {
    let refused = |result: Result<Run, Error<_>>| match result {
        Ok(run) => Some(run),
        Err(Error::NoSpace { .. }) => {
            assert_eq!(
                (bitmaps.free(), allocator.preallocation_stats().kept),
                (0, 0)
            );
            None
        }
        Err(other) => panic!("{other}"),
    };
    match *op {
        Op::Write {
            file: number,
            lblk,
            len,
            unwritten,
            closed,
        } => {
            let file = &mut files[number];
            let request = DataRequest {
                unwritten,
                closed,
                ..file.request(number as u64, lblk, len)?
            };
            let run = refused(allocator.take_data(bitmaps, &file.space, &request))?;
            assert!((1..=request.len).contains(&run.len));
            allocator.mark(bitmaps, run).unwrap();
            file.map(request.lblk, run);
            Some(run)
        }
        Op::Cancel { file: number, len } => {
            let request = files[number].request(number as u64, None, len)?;
            let run = refused(allocator.take_data(bitmaps, &files[number].space, &request))?;
            allocator.cancel(run);
            Some(run)
        }
        Op::Truncate { file, from } => {
            allocator.discard(&files[file].space);
            for (_, pblk) in files[file].map.split_off(&from) {
                let run = Run {
                    start: Pblk(pblk),
                    len: 1,
                };
                allocator.free(bitmaps, run).unwrap();
            }
            None
        }
        Op::Discard { file } => {
            allocator.discard(&files[file].space);
            None
        }
        Op::DiscardAll => {
            allocator.discard_all();
            assert_eq!(allocator.preallocated(), []);
            None
        }
        Op::Metadata => {
            let request = Request {
                goal: Pblk(700),
                len: 1,
                min_len: 1,
                next_fit: false,
            };
            refused(allocator.allocate(bitmaps, &request))
        }
    }
}

fn play(design: Design, stripe: u32, ops: &[Op], checked: bool) -> Vec<Option<Run>> {
    let bitmaps = Bitmaps::new(1203, 264);
    let options = Options {
        stripe,
        group_prealloc: 32,
        ..Options::default()
    };
    let policies = design.make(Tunables::default()).policies;
    let allocator = Allocator::with_options(&bitmaps.geometry, &bitmaps, options, &policies);
    let allocator = allocator.unwrap();
    let mut files: [File; 4] = Default::default();
    let mut taken = Vec::new();
    for op in ops {
        taken.push(step(&allocator, &bitmaps, &mut files, op));
        if checked {
            check(&allocator, &bitmaps);
        }
    }
    let blocks = files.iter().flat_map(|file| file.map.values());
    assert!(blocks.into_iter().all(|block| bitmaps.is_used(*block)));
    taken
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn buddies_and_preallocations_agree_with_the_bitmaps(
        (design, stripe) in setting(),
        ops in prop::collection::vec(op(), 1..100),
    ) {
        let first = play(design, stripe, &ops, true);
        // One thread: the same requests, the same layout.
        prop_assert_eq!(first, play(design, stripe, &ops, false));
    }
}

fn take(allocator: &Allocator, bitmaps: &Bitmaps, file: &mut File, len: u32) -> Run {
    let request = file.request(1, None, len).unwrap();
    let run = allocator.take_data(bitmaps, &file.space, &request).unwrap();
    allocator.mark(bitmaps, run).unwrap();
    file.map(request.lblk, run);
    run
}

/// Ours and the two that the thread was about, each with our search.
fn windows() -> impl Iterator<Item = Design> {
    let normalize = [Some(Switches::TABLE), Some(Switches::POW2), None];
    normalize.into_iter().map(|n| Design::new(n, None))
}

fn extents(file: &File) -> usize {
    let pairs = file.map.iter().zip(file.map.iter().skip(1));
    1 + pairs.filter(|((_, a), (_, b))| **a + 1 != **b).count()
}

#[test]
fn files_that_grow_side_by_side_do_not_mix() {
    for design in windows() {
        let bitmaps = Bitmaps::new(1 + 8 * 8192, 8192);
        let allocator = allocator(&bitmaps, design);
        let mut files: [File; 4] = Default::default();
        for _ in 0..64 {
            for file in &mut files {
                take(&allocator, &bitmaps, file, 32);
            }
        }
        let all: usize = files.iter().map(extents).sum();
        assert!(all <= 4 * 8, "{design}: {all} extents");
        files.iter().for_each(|file| allocator.discard(&file.space));
        check(&allocator, &bitmaps);
        let stats = allocator.preallocation_stats();
        assert_eq!((stats.kept, stats.files), (0, 0));
        let done = allocator.stats();
        assert!(done.preallocated > done.discarded, "{done:?}");
    }
}

#[test]
fn preallocations_are_given_back_before_any_request_is_refused() {
    for design in windows() {
        let bitmaps = Bitmaps::new(1 + 4 * 264, 264);
        let allocator = allocator(&bitmaps, design);
        let mut files: [File; 3] = Default::default();
        for file in &mut files {
            take(&allocator, &bitmaps, file, 20);
        }
        let mut all: u32 = 60;
        loop {
            let request = Request {
                goal: Pblk(0),
                len: 7,
                min_len: 1,
                next_fit: false,
            };
            match allocator.allocate(&bitmaps, &request) {
                Ok(run) => all += run.len,
                Err(Error::NoSpace { free, .. }) => break assert_eq!(free, 0),
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(all, 4 * 264, "{design}");
        check(&allocator, &bitmaps);
    }
}

#[test]
fn threads_are_refused_nothing_that_was_reserved() {
    for design in windows() {
        let bitmaps = Bitmaps::new(1 + 20 * 264, 264);
        let allocator = allocator(&bitmaps, design);
        // Every thread has reserved its part; together these are all blocks.
        let part = bitmaps.free() / 4;
        thread::scope(|scope| {
            for number in 0..4u64 {
                let (allocator, bitmaps) = (&allocator, &bitmaps);
                scope.spawn(move || {
                    let mut left = part as u32;
                    let mut file = File::default();
                    let mut round = number as u32;
                    while left > 0 {
                        round += 1;
                        let len = (1 + round * 7 % 30).min(left);
                        left -= take(allocator, bitmaps, &mut file, len).len;
                        if round.is_multiple_of(9) {
                            allocator.discard(&file.space);
                            file = File::default();
                        }
                    }
                    allocator.discard(&file.space);
                });
            }
        });
        assert_eq!(
            (bitmaps.free(), allocator.free_blocks()),
            (0, 0),
            "{design}"
        );
    }
}
