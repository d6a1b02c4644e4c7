//! Where runs come from: the goal, the nearest group, and what is left when it is almost full.

use uext4_mballoc::{Allocator, Error, Request, Run};
use uext4_ondisk::Pblk;

use crate::model::{Bitmaps, request};

#[test]
fn a_stream_is_laid_without_gaps() {
    let bitmaps = Bitmaps::new(8193 * 4, 8192);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    let mut next = 1;
    for len in [3, 1, 100, 8, 17, 64] {
        let run = allocator.allocate(&bitmaps, &request(next, len)).unwrap();
        assert_eq!(
            run,
            Run {
                start: Pblk(next),
                len
            }
        );
        next += u64::from(len);
    }
    assert_eq!(allocator.stats().goal_hits, 6);
    let info = allocator.group_info(uext4_ondisk::GroupNr(0)).unwrap();
    assert_eq!((info.free, info.fragments), (8192 - 193, 1));
    assert_eq!(allocator.group_info(uext4_ondisk::GroupNr(1)), None);
}

#[test]
fn long_files_get_whole_groups() {
    let bitmaps = Bitmaps::new(1 + 8192 * 4, 8192);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    allocator.allocate(&bitmaps, &request(1, 10)).unwrap();
    // The rest of group 0 is shorter than asked: a whole group elsewhere is better …
    let run = allocator.allocate(&bitmaps, &request(11, 20_000)).unwrap();
    assert_eq!(
        run,
        Run {
            start: Pblk(8193),
            len: 8192
        }
    );
    // … unless the caller wants no gaps.
    let next_fit = Request {
        next_fit: true,
        ..request(11, 20_000)
    };
    let run = allocator.allocate(&bitmaps, &next_fit).unwrap();
    assert_eq!(
        run,
        Run {
            start: Pblk(11),
            len: 8182
        }
    );
}

#[test]
fn next_fit_leaves_no_gap_and_goes_once_round() {
    let bitmaps = Bitmaps::new(1 + 256 * 3, 256);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    // Something in the way, as tables are.
    for (start, len) in [(20, 10), (257, 40)] {
        allocator.allocate(&bitmaps, &request(start, len)).unwrap();
    }
    let mut goal = 15;
    let mut starts = Vec::new();
    while let Ok(run) = allocator.allocate(
        &bitmaps,
        &Request {
            next_fit: true,
            ..request(goal, 200)
        },
    ) {
        starts.push((run.start.0, run.len));
        goal = run.start.0 + u64::from(run.len);
    }
    let expected = [
        (15, 5),
        (30, 200),
        (230, 27),
        (297, 200),
        (497, 16),
        (513, 200),
        (713, 56),
        (1, 14),
    ];
    assert_eq!(starts, expected);
    assert_eq!(bitmaps.free(), 0);
}

#[test]
fn a_run_between_chunks_is_found() {
    let bitmaps = Bitmaps::new(1 + 256, 256);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    allocator.allocate(&bitmaps, &request(1, 256)).unwrap();
    // 30 blocks that straddle block 64 of the group: chunks of at most 8.
    allocator
        .free(
            &bitmaps,
            Run {
                start: Pblk(1 + 49),
                len: 30,
            },
        )
        .unwrap();
    let run = allocator.allocate(&bitmaps, &request(1, 30)).unwrap();
    assert_eq!(
        run,
        Run {
            start: Pblk(50),
            len: 30
        }
    );
}

#[test]
fn every_last_block_is_found_and_the_index_spares_the_search() {
    let groups = 600;
    let bitmaps = Bitmaps::new(1 + groups * 64, 64);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    let mut goal = 1;
    for _ in 0..groups * 64 {
        goal = allocator
            .allocate(&bitmaps, &request(goal, 1))
            .unwrap()
            .start
            .0
            + 1;
    }
    let full = allocator.allocate(&bitmaps, &request(goal, 1));
    assert!(matches!(full, Err(Error::NoSpace { free: 0, .. })));
    let stats = allocator.stats();
    assert_eq!(stats.buddies_generated, groups.into());
    assert!(
        stats.groups_considered <= 2 * u64::from(groups),
        "{stats:?}"
    );
    // One block here and there: each request looks into one group.
    for group in (0..u64::from(groups)).step_by(7) {
        let start = Pblk(1 + group * 64 + 20);
        allocator.free(&bitmaps, Run { start, len: 1 }).unwrap();
    }
    let before = allocator.stats().groups_considered;
    for _ in (0..groups).step_by(7) {
        assert_eq!(
            allocator.allocate(&bitmaps, &request(9, 50)).unwrap().len,
            1
        );
    }
    let looked = allocator.stats().groups_considered - before;
    assert!(looked <= 8 * u64::from(groups.div_ceil(7)), "{looked}");
    assert_eq!(bitmaps.free(), 0);
}

#[test]
fn double_free_and_ranges_are_refused() {
    let bitmaps = Bitmaps::new(1 + 512, 256);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    let run = allocator.allocate(&bitmaps, &request(1, 4)).unwrap();
    allocator.free(&bitmaps, run).unwrap();
    for bad in [
        run,
        Run {
            start: Pblk(0),
            len: 1,
        },
        Run {
            start: Pblk(250),
            len: 20,
        },
        Run {
            start: Pblk(600),
            len: 1,
        },
        Run {
            start: Pblk(5),
            len: 0,
        },
    ] {
        assert!(
            matches!(allocator.free(&bitmaps, bad), Err(Error::NotUsed { .. })),
            "{bad:?}"
        );
    }
}

#[test]
fn a_run_is_taken_where_it_is_wanted_or_not_at_all() {
    let bitmaps = Bitmaps::new(1 + 8192 * 2, 8192);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    let run = |start, len| Run {
        start: Pblk(start),
        len,
    };
    let free = allocator.free_blocks();
    assert!(allocator.take_at(&bitmaps, run(100, 50)).unwrap());
    assert!(!allocator.take_at(&bitmaps, run(149, 2)).unwrap());
    assert!(!allocator.take_at(&bitmaps, run(60, 41)).unwrap());
    assert!(allocator.take_at(&bitmaps, run(150, 1)).unwrap());
    assert_eq!(allocator.free_blocks(), free - 51);
    assert!(allocator.is_used(&bitmaps, run(100, 51)).unwrap());
    assert!(!allocator.is_used(&bitmaps, run(150, 2)).unwrap());
    for wrong in [run(8190, 10), run(0, 1), run(16_384, 2), run(1, 0)] {
        let refused = allocator.take_at(&bitmaps, wrong);
        assert!(matches!(refused, Err(Error::NotUsed { .. })), "{wrong:?}");
    }
    allocator.free(&bitmaps, run(100, 51)).unwrap();
    assert_eq!(allocator.free_blocks(), free);
}
