//! The steps of the search.

use uext4_mballoc::{Allocator, Hints, Options, Policies};

use crate::model::{Bitmaps, request, run};

const PER_GROUP: u32 = 256;

/// 16 groups of 256 blocks, of which `used` says which are used at first, by offset in the group.
fn device(options: Options, used: impl Fn(u32) -> bool) -> (Bitmaps, Allocator) {
    let bitmaps = Bitmaps::new(1 + 16 * PER_GROUP, PER_GROUP);
    for group in bitmaps.groups.lock().iter_mut() {
        for block in (0..PER_GROUP).filter(|&block| used(block)) {
            group[(block / 8) as usize] |= 1 << (block % 8);
        }
    }
    let allocator =
        Allocator::with_options(&bitmaps.geometry, &bitmaps, options, &Policies::default())
            .unwrap();
    for group in 0..16 {
        // Loads it.
        let first = run(1 + group * u64::from(PER_GROUP), 1);
        assert_eq!(allocator.is_used(&bitmaps, first).unwrap(), used(0));
    }
    (bitmaps, allocator)
}

fn data(need: u32) -> Hints {
    Hints {
        data: true,
        need,
        ..Hints::default()
    }
}

#[test]
fn short_runs_are_filled_before_long_ones_are_cut() {
    // A hole of 9 between two of 3, then much.
    let used = |block| matches!(block, 0 | 4 | 14 | 18..=20);
    let (bitmaps, allocator) = device(Options::default(), used);
    let mut taken = Vec::new();
    for len in [9, 3, 2, 3] {
        taken.push(allocator.take(&bitmaps, &request(1, len)).unwrap());
    }
    assert_eq!(taken, [run(6, 9), run(2, 3), run(16, 2), run(22, 3)]);
}

#[test]
fn a_run_that_is_filled_goes_before_one_that_is_broken() {
    // Runs of 24 from 8 on and of 192 from 64 on, in every group.
    let used = |block| !(8..32).contains(&block) && block < 64;
    let (bitmaps, allocator) = device(Options::default(), used);
    let goal = 1 + 3 * u64::from(PER_GROUP);
    let hints = |fill| Hints { fill, ..data(16) };
    let of = |fill| {
        let run = allocator.take_with(&bitmaps, &request(goal, 32), &hints(fill));
        run.unwrap()
    };
    assert_eq!(of(0), run(goal + 64, 32));
    // Whole, though it has less than is wanted; and one after the other from there on.
    assert_eq!(of(16), run(goal + 8, 24));
    assert_eq!(of(16), run(goal + u64::from(PER_GROUP) + 8, 24));
    // All are too short now for so many.
    assert_eq!(of(25), run(goal + 96, 32));
}

#[test]
fn metadata_goes_to_the_first_group_of_a_flex_group() {
    let options = Options {
        flex_groups: 4,
        ..Options::default()
    };
    let (bitmaps, allocator) = device(options, |block| block < 8);
    // The goal is taken.
    let goal = 1 + 6 * u64::from(PER_GROUP);
    let one = allocator.take(&bitmaps, &request(goal, 1)).unwrap();
    assert_eq!(one, run(1 + 4 * u64::from(PER_GROUP) + 8, 1));
    let of_file = allocator.take_with(&bitmaps, &request(goal, 1), &data(1));
    assert_eq!(of_file.unwrap(), run(goal + 8, 1));
}

#[test]
fn whole_stripes_start_where_stripes_do() {
    let options = Options {
        stripe: 32,
        ..Options::default()
    };
    let (bitmaps, allocator) = device(options, |block| block < 3);
    for _ in 0..20 {
        let taken = allocator.take_with(&bitmaps, &request(1, 96), &data(32));
        let taken = taken.unwrap();
        let is_whole = taken.start.0.is_multiple_of(32) && taken.len >= 32;
        assert!(is_whole, "{taken:?}");
    }
    // What is shorter than a stripe breaks none if it need not.
    let small = allocator.take(&bitmaps, &request(1, 8)).unwrap();
    let (group, offset) = ((small.start.0 - 1) / 256, (small.start.0 - 1) % 256);
    assert!(offset < 31 || offset + 8 > 223, "{group} {offset}");
}
