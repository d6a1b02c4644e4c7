//! Random traces through every search, each answer judged by the bitmaps alone.

use proptest::prelude::*;
use uext4_lab_policies::mballoc::{Design, Tunables};
use uext4_mballoc::{Allocator, Error, Hints, Options, Request, Run};
use uext4_ondisk::{GroupNr, Pblk};

use super::model::Bitmaps;

/// A design with its tunables, and the options of its allocator.
#[derive(Clone, Copy, Debug)]
struct Setting {
    design: Design,
    tunables: Tunables,
    options: Options,
}

impl Setting {
    fn allocator(&self, bitmaps: &Bitmaps) -> Allocator {
        let policies = self.design.make(self.tunables).policies;
        let allocator =
            Allocator::with_options(&bitmaps.geometry, bitmaps, self.options, &policies);
        allocator.unwrap()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate {
        request: Request,
        hints: Hints,
    },
    Free {
        which: usize,
        part: u32,
    },
    /// Buddies are dropped: no answer may change.
    Shrink {
        most: u32,
    },
}

fn request() -> impl Strategy<Value = Request> {
    let len = prop_oneof![1u32..400, (0u32..9).prop_map(|order| 1 << order)];
    (0u64..2500, len, 1u32..20, any::<bool>()).prop_map(|(goal, len, min_len, next_fit)| Request {
        goal: Pblk(goal),
        len,
        min_len: min_len.min(len),
        next_fit,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let stream = prop::option::of(0u64..5);
    let hints = (any::<bool>(), any::<bool>(), 0u32..500, stream);
    let hints = hints.prop_map(|(data, merge, need, stream)| Hints {
        data,
        merge,
        need,
        stream,
        ..Hints::default()
    });
    let allocate = (request(), hints).prop_map(|(request, hints)| Op::Allocate { request, hints });
    let free = (any::<usize>(), 1u32..100).prop_map(|(which, part)| Op::Free { which, part });
    let shrink = (0u32..12).prop_map(|most| Op::Shrink { most });
    prop_oneof![6 => allocate, 4 => free, 1 => shrink]
}

fn setting() -> impl Strategy<Value = Setting> {
    let design = prop::sample::select(&Design::SEARCHES[..]);
    let stripe = prop::sample::select(&[0u32, 1, 8, 24, 264, 300][..]);
    let scan = (1u32..12, 0u32..4);
    (design, stripe, any::<bool>(), scan, 0u32..40).prop_map(
        |(design, stripe, rotational, (max_to_scan, min_to_scan), prefetch)| Setting {
            design,
            tunables: Tunables {
                rotational,
                max_to_scan,
                min_to_scan,
                prefetch,
                ..Tunables::default()
            },
            options: Options {
                stripe,
                flex_groups: 4,
                ..Options::default()
            },
        },
    )
}

/// Length of the longest free run within one group.
fn longest(bitmaps: &Bitmaps) -> u32 {
    let (mut best, mut run, mut last) = (0, 0, None);
    for block in 1..bitmaps.geometry.blocks_count {
        let (group, _) = bitmaps.geometry.group_of(Pblk(block)).unwrap();
        run = match (bitmaps.is_used(block), last == Some(group)) {
            (true, _) => 0,
            (false, true) => run + 1,
            (false, false) => 1,
        };
        last = Some(group);
        best = best.max(run);
    }
    best
}

/// What the buddies report is what the bitmaps hold.
fn check_buddies(allocator: &Allocator, bitmaps: &Bitmaps) {
    assert_eq!(allocator.free_blocks(), bitmaps.free());
    for group in (0..bitmaps.geometry.groups_count.get()).map(GroupNr) {
        let Some(info) = allocator.group_info(group) else {
            continue;
        };
        let start = bitmaps.geometry.group_start(group).0;
        let blocks = start..start + u64::from(bitmaps.geometry.blocks_in_group(group));
        let free: Vec<u64> = blocks.filter(|&b| !bitmaps.is_used(b)).collect();
        let starts = free.iter().filter(|&&b| !free.contains(&b.wrapping_sub(1)));
        assert_eq!(info.free as usize, free.len());
        assert_eq!(info.fragments as usize, starts.count());
        let in_chunks = info.counters.iter().enumerate().map(|(o, n)| n << o);
        assert_eq!(in_chunks.sum::<u32>(), info.free);
        if let Some(first) = free.first() {
            assert_eq!(u64::from(info.first), first - start);
        }
    }
}

/// Works off one operation and judges its answer.
fn step(allocator: &Allocator, bitmaps: &Bitmaps, held: &mut Vec<Run>, op: &Op) {
    match *op {
        Op::Allocate { request, hints } => {
            // `Bitmaps` panics if a block is marked that is used, or is not in the group.
            let taken = allocator.take_with(bitmaps, &request, &hints);
            match taken.and_then(|run| allocator.mark(bitmaps, run).map(|()| run)) {
                Ok(run) => {
                    assert!((request.min_len..=request.len).contains(&run.len));
                    held.push(run);
                }
                Err(Error::NoSpace { free, .. }) => {
                    assert_eq!(free, bitmaps.free());
                    assert!(longest(bitmaps) < request.min_len);
                }
                Err(other) => panic!("{other}"),
            }
        }
        Op::Free { which, part } if !held.is_empty() => {
            let at = which % held.len();
            let mut run = held.swap_remove(at);
            let head = Run {
                len: part.min(run.len),
                ..run
            };
            allocator.free(bitmaps, head).unwrap();
            run.start.0 += u64::from(head.len);
            run.len -= head.len;
            if run.len > 0 {
                held.push(run);
            }
        }
        Op::Free { .. } => {}
        Op::Shrink { most } => {
            let loaded = allocator.loaded_groups();
            let dropped = allocator.shrink(most);
            // Nothing is under way between the steps.
            assert_eq!(dropped, most.min(loaded));
            assert_eq!(allocator.loaded_groups(), loaded - dropped);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn every_answer_is_valid(
        setting in setting(),
        many in any::<bool>(),
        ops in prop::collection::vec(op(), 1..100),
    ) {
        // Groups of an odd size, the last one short; few, or enough for the indexes of `criteria`.
        let bitmaps = if many { Bitmaps::new(2203, 88) } else { Bitmaps::new(2203, 264) };
        let allocator = setting.allocator(&bitmaps);
        let mut held = Vec::new();
        for op in &ops {
            step(&allocator, &bitmaps, &mut held, op);
            check_buddies(&allocator, &bitmaps);
        }
        let held_blocks: u64 = held.iter().map(|r| u64::from(r.len)).sum();
        prop_assert_eq!(bitmaps.free() + held_blocks, bitmaps.geometry.blocks_count - 1);
        prop_assert_eq!(allocator.bad_groups(), vec![]);
        if setting.design.search.is_none() {
            prop_assert_eq!(allocator.stats().lock_contended, 0);
        }
    }

    #[test]
    fn the_same_requests_give_the_same_layout(
        setting in setting(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let layouts: Vec<Vec<Run>> = (0..2)
            .map(|_| {
                let bitmaps = Bitmaps::new(2203, 88);
                let allocator = setting.allocator(&bitmaps);
                let mut held = Vec::new();
                let work = || ops.iter().for_each(|op| step(&allocator, &bitmaps, &mut held, op));
                // On a thread of its own each time: which one must not matter.
                std::thread::scope(|scope| scope.spawn(work).join().unwrap());
                held
            })
            .collect();
        prop_assert_eq!(&layouts[0], &layouts[1]);
    }
}
