//! What is predicted, and what every window keeps.

use proptest::prelude::*;
use uext4_ondisk::{Lblk, Pblk};

use super::*;
use crate::history::{Before, History};

/// End of the longest file.
const BLOCKS_MAX: u64 = Lblk::LAST.0 as u64 + 1;

fn request(lblk: u32, len: u32) -> DataRequest {
    DataRequest {
        file: 12,
        lblk: Lblk(lblk),
        len,
        goal: Pblk(1000),
        left: None,
        right: None,
        size: 0,
        unwritten: false,
        closed: false,
    }
}

/// An empty device with blocks of this size, on which no file is small.
fn around(block_size_log2: u32) -> Surroundings<'static> {
    Surroundings {
        block_size_log2,
        blocks_per_group: 8 << block_size_log2,
        stripe: 0,
        stream_req: 0,
        group_prealloc: 0,
        free: 1 << 30,
        blocks: 1 << 30,
        average_run: 8 << block_size_log2,
        files: 0,
        writers: 1,
        history: History::default(),
        held: &[],
    }
}

fn window(request: &DataRequest, around: &Surroundings<'_>) -> (u32, u32) {
    let window = Predict.plan(request, around).window;
    (window.lblk().0, window.blocks())
}

#[test]
fn unwritten_requests_are_cut_where_an_extent_ends() {
    let unwritten = |lblk, len| {
        let request = DataRequest {
            unwritten: true,
            ..request(lblk, len)
        };
        window(&request, &around(12))
    };
    assert_eq!(unwritten(5, 100), (5, 100));
    assert_eq!(unwritten(5, 32_768), (5, 32_762));
    assert_eq!(unwritten(32_767, 32_768), (32_767, 32_767));
    assert_eq!(unwritten(32_768, 32_768), (32_768, 32_766));
}

/// Windows for requests of 16 blocks each at these places, one after the other.
fn predicted(places: &[u32], around: &Surroundings<'_>) -> Vec<(u32, u32)> {
    let mut around = *around;
    let step = |&lblk: &u32| {
        let request = request(lblk, 16);
        around.history.note(request.lblk, request.len, Before::Hole);
        window(&request, &around)
    };
    places.iter().map(step).collect()
}

#[test]
fn appenders_double_and_others_get_what_they_ask_for() {
    let all = around(12);
    assert_eq!(
        predicted(&[0, 16, 32, 48], &all),
        [(0, 32), (16, 48), (32, 96), (48, 80)]
    );
    assert_eq!(
        predicted(&[1000, 17, 50_000], &all),
        [(1000, 16), (17, 19), (50_000, 16)]
    );
    // Many writers, or little space: their share, and at last nothing.
    let share = |free, writers| {
        predicted(
            &[0],
            &Surroundings {
                free,
                writers,
                ..all
            },
        )
    };
    assert_eq!(share(1 << 30, 1 << 24), [(0, 32)]);
    assert_eq!(share(1 << 30, 1 << 25), [(0, 16)]);
    assert_eq!(share((1 << 30) / 21, 1), [(0, 16)]);
}

#[test]
fn closed_files_get_what_they_need() {
    let mut around = around(12);
    around.history.note(Lblk(0), 100, Before::Hole);
    let request = DataRequest {
        size: 777,
        closed: true,
        ..request(0, 100)
    };
    assert_eq!(window(&request, &around), (0, 777));
}

#[test]
fn windows_of_a_stripe_are_whole_stripes() {
    let all = Surroundings {
        stripe: 496,
        ..around(12)
    };
    assert_eq!(predicted(&[0], &all), [(0, 32)]);
    let mut long = all;
    long.history.note(Lblk(0), 600, Before::Hole);
    assert_eq!(window(&request(0, 600), &long), (0, 5 * 496));
}

#[test]
fn windows_are_adjacent_to_their_neighbours() {
    let between = |left: Option<(u32, u64)>, right: Option<(u32, u64)>| {
        let place = |(lblk, pblk)| (Lblk(lblk), Pblk(pblk));
        let request = DataRequest {
            left: left.map(place),
            right: right.map(place),
            ..request(10, 2)
        };
        let window = Window::new(0..16, &request, &around(12));
        let (lblk, goal) = (window.lblk().0, window.goal().0);
        (lblk, window.blocks(), goal, window.try_goal())
    };
    assert_eq!(between(None, None), (0, 16, 1000, false));
    assert_eq!(between(Some((9, 500)), None), (10, 6, 501, true));
    assert_eq!(between(Some((4, 500)), Some((14, 900))), (5, 9, 501, true));
    assert_eq!(between(None, Some((14, 900))), (0, 14, 886, true));
    assert_eq!(between(None, Some((20, 900))), (0, 16, 880, false));
    assert_eq!(between(None, Some((20, 3))), (0, 16, 1000, false));
}

#[test]
fn small_files_lie_together_and_closed_ones_side_by_side() {
    let around = Surroundings {
        stream_req: 16,
        group_prealloc: 512,
        ..around(12)
    };
    let plan = |size, closed, around: &Surroundings<'_>| {
        let request = DataRequest {
            closed,
            ..request(0, size)
        };
        Predict.plan(&request, around)
    };
    assert_eq!(plan(16, false, &around).small, Some(SmallFiles::Joined));
    let grows = plan(17, false, &around);
    assert_eq!((grows.small, grows.next_to_closed), (None, false));
    assert_eq!(grows.stream.map(|stream| stream.follows), Some(true));
    let closed = plan(512, true, &around);
    assert_eq!(closed.small, Some(SmallFiles::Joined));
    assert!(closed.next_to_closed && closed.leads_closed && closed.stream.is_none());
    assert_eq!(plan(513, true, &around).small, None);
    // Where free runs are short, a closed file fills those that fit it.
    let short = Surroundings {
        average_run: 100,
        ..around
    };
    let filled = plan(512, true, &short);
    assert_eq!((filled.small, filled.next_to_closed), (None, false));
    assert_eq!(filled.window.blocks(), 512);
}

/// Small numbers, and those near the largest.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..100_000u32, any::<u32>(), u32::MAX - 40_000..=u32::MAX]
}

proptest! {
    #[test]
    fn windows_keep_their_bounds(
        (lblk, len, size) in (number(), number(), prop_oneof![0..100_000u64, any::<u64>()]),
        (unwritten, closed) in any::<(bool, bool)>(),
        (left, right) in (prop::option::of(0..5000u32), prop::option::of(0..50_000u32)),
        (before, behind) in (0..3000u64, 0..3000u64),
        (log, group, stripe) in (10..=16u32, prop_oneof![1..70_000u32, Just(u32::MAX)], number()),
        (free, writers) in (any::<u64>(), number()),
        notes in prop::collection::vec((number(), number()), 0..5),
    ) {
        let first = lblk.min(Lblk::LAST.0);
        let left = left.and_then(|by| first.checked_sub(by + 1));
        let right = right.and_then(|by| first.checked_add(by + 1));
        let request = DataRequest {
            len, size, unwritten, closed,
            left: left.map(|l| (Lblk(l), Pblk(u64::MAX - 3))),
            right: right.map(|r| (Lblk(r), Pblk(77))),
            ..request(lblk, len)
        };
        let at = u64::from(first);
        let held = [at.saturating_sub(2 * before)..at.saturating_sub(before), at + 1 + behind..at + 9 + behind];
        let mut around = Surroundings {
            blocks_per_group: group, stripe, free, writers, held: &held,
            ..around(log)
        };
        for (lblk, len) in notes {
            around.history.note(Lblk(lblk), len, Before::Hole);
            around.history.note_window(len, lblk);
        }
        around.history.note(request.lblk, request.len, Before::Hole);
        let window = Predict.plan(&request, &around).window;
        let (start, len) = (u64::from(window.lblk().0), window.blocks());
        let end = start + u64::from(len);
        prop_assert!(start <= at && at < end && end <= BLOCKS_MAX, "{start}..{end}");
        prop_assert!(len <= group);
        prop_assert!(left.is_none_or(|l| u64::from(l) < start));
        prop_assert!(right.is_none_or(|r| end <= u64::from(r)));
        prop_assert!(held.iter().all(|h| h.is_empty() || h.end <= start || end <= h.start));
    }
}
