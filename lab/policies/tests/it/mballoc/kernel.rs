//! What distinguishes the kernel's searches.

use uext4_lab_policies::mballoc::{Design, KernelSearch, Made, Tunables};
use uext4_mballoc::{Allocator, GroupBitmaps, Hints, Options};
use uext4_ondisk::GroupNr;

use super::allocator;
use super::model::{Bitmaps, Refused, request, run};

const PER_GROUP: u32 = 256;

/// An allocator, its device, and its designs.
struct Device {
    bitmaps: Bitmaps,
    allocator: Allocator,
    made: Made,
}

/// 16 groups of 256 blocks, of which `used` says which are used at first, by offset in the group.
fn device(
    search: Option<KernelSearch>,
    tunables: Tunables,
    options: Options,
    used: impl Fn(u32) -> bool,
) -> Device {
    let bitmaps = Bitmaps::new(1 + 16 * PER_GROUP, PER_GROUP);
    for group in bitmaps.groups.lock().iter_mut() {
        for block in (0..PER_GROUP).filter(|&block| used(block)) {
            group[(block / 8) as usize] |= 1 << (block % 8);
        }
    }
    let made = Design::new(None, search).make(tunables);
    let allocator =
        Allocator::with_options(&bitmaps.geometry, &bitmaps, options, &made.policies).unwrap();
    for group in 0..16 {
        // Loads it.
        let first = run(1 + group * u64::from(PER_GROUP), 1);
        assert_eq!(allocator.is_used(&bitmaps, first).unwrap(), used(0));
    }
    Device {
        bitmaps,
        allocator,
        made,
    }
}

fn data(need: u32) -> Hints {
    Hints {
        data: true,
        need,
        ..Hints::default()
    }
}

#[test]
fn powers_of_two_are_taken_by_order_and_data_leaves_the_first_group() {
    for search in [KernelSearch::Linear, KernelSearch::Criteria] {
        let options = Options {
            flex_groups: 4,
            ..Options::default()
        };
        let Device {
            bitmaps,
            allocator,
            made,
        } = device(Some(search), Tunables::default(), options, |_| false);
        assert!(allocator.take_at(&bitmaps, run(1, 10)).unwrap());
        // The lowest order that will do: a chunk of 16 behind one of 2 and one of 4.
        let other = allocator.take(&bitmaps, &request(1, 8)).unwrap();
        assert_eq!(other, run(1 + 16, 8));
        let of_file = allocator.take_with(&bitmaps, &request(1, 8), &data(8));
        assert_eq!(of_file.unwrap(), run(1 + 256, 8));
        assert_eq!(made.stats().pow2_hits, 2);
        // Not a power of two: the first run that has it.
        let odd = allocator.take(&bitmaps, &request(1, 5)).unwrap();
        assert_eq!(odd, run(1 + 10, 5));
        assert_eq!(allocator.stats().criteria[1].hits, 1);
    }
}

#[test]
fn criteria_shorten_a_request_before_they_walk_over_all_groups() {
    let search = Some(KernelSearch::Criteria);
    // Runs of 32 everywhere.
    let used = |block| block / 32 % 2 == 1;
    let Device {
        bitmaps, allocator, ..
    } = device(search, Tunables::default(), Options::default(), used);
    let cut = allocator.take_with(&bitmaps, &request(1, 256), &data(8));
    assert_eq!(cut.unwrap().len, 32);
    let stats = allocator.stats();
    assert_eq!(stats.criteria.map(|cr| cr.hits), [0, 0, 1, 0, 0]);
    assert_eq!(stats.criteria[2].groups_considered, 1);
    // What is needed itself is not cut, and neither is what is not data.
    for hints in [data(64), Hints::default()] {
        let walked = allocator.take_with(&bitmaps, &request(1, 256), &hints);
        assert_eq!(walked.unwrap().len, 32);
        assert_eq!(allocator.stats().criteria[2].hits, 1);
    }
    assert!(allocator.stats().criteria[4].groups_considered > 0);
}

#[test]
fn whole_stripes_start_where_stripes_do() {
    for search in [KernelSearch::Linear, KernelSearch::Criteria] {
        let options = Options {
            stripe: 32,
            ..Options::default()
        };
        let used = |block| block < 3;
        let Device {
            bitmaps, allocator, ..
        } = device(Some(search), Tunables::default(), options, used);
        for _ in 0..20 {
            let taken = allocator.take_with(&bitmaps, &request(1, 96), &data(32));
            let taken = taken.unwrap();
            let is_whole = taken.start.0.is_multiple_of(32) && taken.len >= 32;
            assert!(is_whole, "{search:?} {taken:?}");
        }
    }
}

#[test]
fn a_search_breaks_off_when_it_has_seen_enough() {
    let tunables = Tunables {
        max_to_scan: 3,
        ..Tunables::default()
    };
    let search = Some(KernelSearch::Linear);
    let Device {
        bitmaps, allocator, ..
    } = device(search, tunables, Options::default(), |block| block % 2 == 0);
    let one = allocator.take(&bitmaps, &request(1, 5)).unwrap();
    assert_eq!(one, run(2, 1));
    let stats = allocator.stats();
    assert_eq!((stats.breaks, stats.extents_scanned), (1, 4));
}

#[test]
fn statistics_have_the_criteria_of_the_search() {
    for (design, criterion) in Design::SEARCHES.into_iter().zip([0, 0, 1]) {
        // 8 blocks taken at the goal, and 8 more by a search.
        let bitmaps = Bitmaps::new(1 + 16 * 256, 256);
        let allocator = allocator(&bitmaps, design);
        for _ in 0..2 {
            allocator.allocate(&bitmaps, &request(1, 8)).unwrap();
        }
        let stats = allocator.stats().criteria[criterion];
        let counts = (stats.hits, stats.groups_considered, stats.extents_scanned);
        assert_eq!(counts, (1, 1, 1), "{design:?}");
    }
}

#[test]
fn linear_has_one_goal_of_streams_and_criteria_one_a_file() {
    for (search, group) in [(KernelSearch::Linear, 20), (KernelSearch::Criteria, 3)] {
        let bitmaps = Bitmaps::new(1 + 64 * 64, 64);
        let allocator = allocator(&bitmaps, Design::new(None, Some(search)));
        let take = |goal: u64, file| {
            let hints = Hints {
                stream: Some(file),
                ..data(8)
            };
            let request = request(1 + 64 * goal, 8);
            let taken = allocator.take_with(&bitmaps, &request, &hints);
            taken.unwrap().start.0 / 64
        };
        assert_eq!(take(20, 7), 20);
        // A goal that is not free: on in the group of the last stream, or near the goal.
        assert!(allocator.take_at(&bitmaps, run(1 + 64 * 3, 1)).unwrap());
        assert_eq!(take(3, 8), group, "{search:?}");
        assert_eq!(allocator.stats().stream_goal_hits, u64::from(group == 20));
    }
}

/// Bitmaps of which that of group 3 cannot be read, and the descriptor of group 5 is wrong.
struct Damaged(Bitmaps);

impl GroupBitmaps for Damaged {
    type Error = Refused;

    fn free_blocks(&self, group: GroupNr) -> Result<u32, Refused> {
        let free = self.0.free_blocks(group)?;
        Ok(if group.0 == 5 { free / 2 } else { free })
    }

    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Refused> {
        if group.0 == 3 {
            return Err(Refused);
        }
        self.0.read_bitmap(group, bitmap)
    }

    fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Refused> {
        assert!(![3, 5].contains(&group.0), "a bad group was used");
        self.0.mark_used(group, start, len)
    }

    fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Refused> {
        self.0.mark_free(group, start, len)
    }
}

#[test]
fn bad_groups_are_passed_by_and_all_others_used() {
    for design in Design::SEARCHES {
        let damaged = Damaged(Bitmaps::new(1 + 20 * 64, 64));
        let policies = design.make(Tunables::default()).policies;
        let (geometry, options) = (&damaged.0.geometry, Options::default());
        let allocator = Allocator::with_options(geometry, &damaged, options, &policies).unwrap();
        let mut taken = 0;
        while let Ok(run) = allocator.allocate(&damaged, &request(1 + 64 * 2, 10)) {
            taken += run.len;
        }
        assert_eq!(taken, 18 * 64, "{design}");
        let mut bad: Vec<u32> = allocator.bad_groups().iter().map(|b| b.group.0).collect();
        bad.sort_unstable();
        assert_eq!(bad, [3, 5]);
    }
}
