//! Groups whose descriptors lie: left alone, and reported; others are used.

use std::collections::BTreeMap;
use std::sync::Mutex;

use uext4_mballoc::{Allocator, BadGroup, Error, GroupBitmaps, Run};
use uext4_ondisk::{GroupNr, Pblk};

use crate::model::{Bitmaps, Refused, request};

/// Bitmaps with descriptors that say something else for some groups.
struct Lying {
    bitmaps: Bitmaps,
    lies: BTreeMap<u32, u32>,
    /// Groups whose bitmaps cannot be read.
    unreadable: Vec<u32>,
    /// Groups that the allocator said it leaves alone.
    left: Mutex<Vec<u32>>,
}

impl GroupBitmaps for Lying {
    type Error = Refused;
    fn free_blocks(&self, group: GroupNr) -> Result<u32, Refused> {
        match self.lies.get(&group.0) {
            Some(&lie) => Ok(lie),
            None => self.bitmaps.free_blocks(group),
        }
    }
    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Refused> {
        if self.unreadable.contains(&group.0) {
            return Err(Refused);
        }
        self.bitmaps.read_bitmap(group, bitmap)
    }
    fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Refused> {
        assert!(!self.lies.contains_key(&group.0), "a bad group was used");
        self.bitmaps.mark_used(group, start, len)
    }
    fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Refused> {
        assert!(!self.lies.contains_key(&group.0), "a bad group was used");
        self.bitmaps.mark_free(group, start, len)
    }
    fn left_alone(&self, group: GroupNr) {
        self.left.lock().unwrap().push(group.0);
    }
}

fn lying(groups: u32, lies: &[(u32, u32)]) -> Lying {
    Lying {
        bitmaps: Bitmaps::new(1 + groups * 64, 64),
        lies: lies.iter().copied().collect(),
        unreadable: Vec::new(),
        left: Mutex::default(),
    }
}

fn allocator(lying: &Lying) -> Allocator {
    Allocator::new(&lying.bitmaps.geometry, lying).unwrap()
}

#[test]
fn other_groups_are_used_and_the_liars_reported() {
    // Too few, too many, more than there are blocks, and none although there are some.
    let lying = lying(20, &[(0, 7), (3, 63), (4, 65), (5, 0), (19, 64 * 64)]);
    let allocator = allocator(&lying);
    let mut held = Vec::new();
    while let Ok(run) = allocator.allocate(&lying, &request(1, 10)) {
        held.push(run);
    }
    let taken: u32 = held.iter().map(|run| run.len).sum();
    assert_eq!((taken, allocator.free_blocks()), (15 * 64, 0));
    let full = allocator.allocate(&lying, &request(1, 1));
    assert!(matches!(full, Err(Error::NoSpace { free: 0, .. })));
    // Those that claim more than they have are known from the start.
    let mut left = std::mem::take(&mut *lying.left.lock().unwrap());
    left.sort_unstable();
    assert_eq!(left, [0, 3]);
    let mut bad = allocator.bad_groups();
    bad.sort_by_key(|bad| bad.group.0);
    let expected = [(0, 64, 7), (3, 64, 63), (4, 64, 65), (19, 64, 64 * 64)];
    let expected = expected.map(|(group, bitmap, descriptor)| BadGroup {
        group: GroupNr(group),
        bitmap: Some(bitmap),
        descriptor,
    });
    assert_eq!(bad, expected);
    for run in held {
        allocator.free(&lying, run).unwrap();
    }
    assert_eq!(allocator.free_blocks(), 15 * 64);
}

#[test]
fn an_operation_on_a_bad_group_names_it() {
    let lying = lying(4, &[(1, 7), (2, 0)]);
    let allocator = allocator(&lying);
    for (group, descriptor) in [(1, 7), (2, 0)] {
        let run = Run {
            start: Pblk(1 + 64 * group + 3),
            len: 2,
        };
        let named = |error| {
            matches!(error, Error::FreeCount { group: GroupNr(g), bitmap: 64, descriptor: d }
                if u64::from(g) == group && d == descriptor)
        };
        assert!(allocator.free(&lying, run).is_err_and(named));
        assert!(allocator.take_at(&lying, run).is_err_and(named));
        assert!(allocator.is_used(&lying, run).is_err_and(named));
    }
    assert_eq!(allocator.bad_groups().len(), 2);
    assert_eq!(allocator.free_blocks(), 2 * 64);
}

#[test]
fn one_group_that_lies_leaves_no_space() {
    let lying = lying(1, &[(0, 12)]);
    let allocator = allocator(&lying);
    assert_eq!(allocator.free_blocks(), 12);
    let none = allocator.allocate(&lying, &request(1, 3));
    assert!(matches!(
        none,
        Err(Error::NoSpace {
            min_len: 1,
            free: 0
        })
    ));
    assert_eq!(allocator.bad_groups().len(), 1);
}

#[test]
fn one_tiny_group_gives_what_it_has() {
    for blocks in [5u32, 9, 64] {
        let lying = Lying {
            bitmaps: Bitmaps::new(blocks, 64),
            lies: BTreeMap::new(),
            unreadable: Vec::new(),
            left: Mutex::default(),
        };
        let allocator = allocator(&lying);
        let run = allocator.allocate(&lying, &request(0, 4000)).unwrap();
        assert_eq!((run.start, run.len), (Pblk(1), blocks - 1));
        let none = allocator.allocate(&lying, &request(1, 1));
        assert!(matches!(none, Err(Error::NoSpace { .. })));
        allocator.free(&lying, run).unwrap();
    }
}

#[test]
fn an_unreadable_bitmap_does_not_block_other_groups() {
    let mut lying = lying(9, &[]);
    lying.unreadable = vec![0, 3, 8];
    let allocator = allocator(&lying);
    assert_eq!(allocator.free_blocks(), 9 * 64);
    let mut held = Vec::new();
    while let Ok(run) = allocator.allocate(&lying, &request(1, 20)) {
        held.push(run);
    }
    let taken: u32 = held.iter().map(|run| run.len).sum();
    assert_eq!((taken, allocator.free_blocks()), (6 * 64, 0));
    let bad = allocator.bad_groups();
    assert_eq!(bad.len(), 3);
    assert!(bad.iter().all(|bad| bad.bitmap.is_none()));
    let run = Run {
        start: Pblk(1 + 64 * 3),
        len: 2,
    };
    assert!(allocator.is_bad(run.start) && !allocator.is_bad(Pblk(1 + 64)));
    let named = |error| matches!(error, Error::Unreadable { group: GroupNr(3) });
    assert!(allocator.free(&lying, run).is_err_and(named));
    let whole = allocator.trim(&lying, Pblk(0)..Pblk(u64::MAX), 1, |_| Ok(()));
    assert_eq!(whole.unwrap(), 0);
    for run in held {
        allocator.free(&lying, run).unwrap();
    }
}

#[test]
fn only_checked_groups_count_for_reservations() {
    let mut lying = lying(20, &[(0, 40), (3, 63), (5, 0)]);
    lying.unreadable = vec![4];
    let allocator = allocator(&lying);
    let generated = || allocator.stats().buddies_generated;
    assert_eq!((allocator.checked_free_blocks(), generated()), (0, 0));
    assert!(allocator.check_more(&lying, 0));
    assert_eq!(generated(), 0);
    // The first lies; two more will do.
    assert!(allocator.check_more(&lying, 100));
    assert_eq!((allocator.checked_free_blocks(), generated()), (128, 3));
    assert!(allocator.check_more(&lying, 128));
    assert_eq!(generated(), 3);
    // It stays with the group when its buddy is dropped, and follows what is taken and freed.
    let held = allocator.allocate(&lying, &request(70, 10)).unwrap();
    assert_eq!(allocator.checked_free_blocks(), 118);
    assert_eq!(allocator.shrink(20), 2);
    assert_eq!(allocator.checked_free_blocks(), 118);
    allocator.free(&lying, held).unwrap();
    assert_eq!(allocator.checked_free_blocks(), 128);
    // All of it: no more than is there, however much is claimed; group 5 is not looked at, which
    // claims nothing.
    assert!(!allocator.check_more(&lying, 20 * 64));
    assert_eq!(allocator.checked_free_blocks(), 16 * 64);
    assert_eq!(allocator.free_blocks(), 16 * 64);
    let bad: Vec<u32> = allocator.bad_groups().iter().map(|b| b.group.0).collect();
    assert_eq!(bad, [0, 3, 4]);
    let before = generated();
    assert!(!allocator.check_more(&lying, u64::MAX));
    assert_eq!(generated(), before);
}

#[test]
fn a_checked_group_that_cannot_be_read_again_counts_no_more() {
    let mut lying = lying(4, &[]);
    let allocator = allocator(&lying);
    lying.unreadable.clear();
    assert!(!allocator.check_more(&lying, u64::MAX));
    allocator.shrink(4);
    lying.unreadable = vec![2];
    let request = request(1 + 2 * 64, 1);
    let held = allocator.allocate(&lying, &request);
    assert!(held.is_err() || !allocator.is_bad(held.unwrap().start));
    while allocator.bad_groups().is_empty() {
        allocator.allocate(&lying, &request).unwrap();
    }
    assert_eq!(allocator.checked_free_blocks(), allocator.free_blocks());
    assert!(allocator.free_blocks() <= 3 * 64);
}

#[test]
fn threads_that_check_at_once_all_find_the_blocks() {
    let lying = lying(200, &[(7, 3), (90, 63)]);
    let allocator = allocator(&lying);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (allocator, lying) = (&allocator, &lying);
            scope.spawn(move || {
                for wanted in (0..=198).skip(thread) {
                    assert!(allocator.check_more(lying, wanted * 64));
                }
            });
        }
    });
    assert_eq!(allocator.checked_free_blocks(), 198 * 64);
    assert!(!allocator.check_more(&lying, 198 * 64 + 1));
}
