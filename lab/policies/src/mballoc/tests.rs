//! The table at every block size, the other rules, and what every window keeps.

use proptest::prelude::*;
use uext4_ondisk::{Lblk, Pblk};

use uext4_mballoc::{Before, DataRequest, History, Surroundings};

use super::*;

/// End of the longest file.
const BLOCKS_MAX: u64 = Lblk::LAST.0 as u64 + 1;

const MIB: u64 = 1 << 20;

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

/// An empty device with blocks of this size.
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

/// Bytes where a window of the table begins, and its length, for one block at the end of a file of
/// `size` bytes.
fn table(block_size_log2: u32, size: u64) -> (u64, u64) {
    let last = (size >> block_size_log2) as u32 - 1;
    let window = Switches::TABLE.window(&request(last, 1), &around(block_size_log2));
    let bytes = |blocks: u32| u64::from(blocks) << block_size_log2;
    (bytes(window.lblk().0), bytes(window.blocks()))
}

#[test]
fn small_files_get_a_power_of_two_from_their_start() {
    for log in 10..=13 {
        for (size, window) in [(16, 16), (24, 32), (64, 64), (72, 128), (1000, 1024)] {
            assert_eq!(
                table(log, size * 1024),
                (0, window * 1024),
                "blocks of 2^{log}"
            );
        }
    }
}

#[test]
fn the_test_that_is_always_true_takes_everything_from_its_row_on() {
    for (log, sizes, window) in [
        (10, [2, 5, 40], [2, 2, 2]),
        (11, [2, 5, 40], [2, 4, 4]),
        (12, [2, 5, 40], [2, 4, 8]),
        // Blocks the test is right for: one block is less than 8 MiB.
        (13, [2, 5, 40], [2, 4, 8]),
    ] {
        for (size, window) in sizes.into_iter().zip(window) {
            let (start, len) = table(log, size * MIB);
            assert_eq!(len, window * MIB, "blocks of 2^{log}, {size} MiB");
            assert_eq!(start % len, 0);
            assert!((start..start + len).contains(&(size * MIB - 1)));
        }
    }
}

#[test]
fn long_requests_pass_the_table_with_large_blocks_or_without_its_cap() {
    let long = |log: u32, policy: Switches| {
        let blocks = ((40 * MIB) >> log) as u32;
        policy.window(&request(100, blocks), &around(log))
    };
    assert_eq!(long(12, Switches::TABLE).blocks(), 2048);
    assert_eq!(long(13, Switches::TABLE).blocks(), 5120);
    let uncapped: Switches = "table+cap=group".parse().unwrap();
    assert_eq!(
        (long(12, uncapped).lblk().0, long(12, uncapped).blocks()),
        (100, 10_240)
    );
}

#[test]
fn powers_of_two_begin_where_the_request_does() {
    let window = |policy: &str, lblk, len| {
        let policy: Switches = policy.parse().unwrap();
        let window = policy.window(&request(lblk, len), &around(12));
        (window.lblk().0, window.blocks())
    };
    assert_eq!(window("pow2", 3, 2), (3, 5));
    assert_eq!(window("pow2+nological", 3, 2), (0, 8));
    assert_eq!(window("pow2", 40_000, 1), (40_000, 65_536 - 40_000));
    assert_eq!(window("pow2", 33_000, 1), (33_000, 65_536 - 33_000));
    assert_eq!(window("pow2", 70_000, 1), (70_000, 32_768));
    assert_eq!(window("pow2+cap=table", 70_000, 1), (70_000, 2048));
    assert_eq!(window("table+logical", 100, 8), (100, 28));
}

#[test]
fn unwritten_requests_are_cut_so_that_halves_join() {
    let window = |policy: Switches, lblk, len| {
        let request = DataRequest {
            unwritten: true,
            ..request(lblk, len)
        };
        let window = policy.window(&request, &around(12));
        (window.lblk().0, window.blocks())
    };
    assert_eq!(window(Switches::TABLE, 5, 32_767), (5, 32_767));
    assert_eq!(window(Switches::TABLE, 5, 32_768), (0, 2048));
    assert_eq!(window(Switches::POW2, 5, 100), (5, 100));
    assert_eq!(window(Switches::POW2, 5, 32_768), (5, 16_384));
    assert_eq!(window(Switches::EXACT, 5, 32_768), (5, 32_767));
}

#[test]
fn stripes_are_whole_where_they_fit() {
    let window = |policy: &str, stripe, lblk, len| {
        let policy: Switches = policy.parse().unwrap();
        let around = Surroundings {
            stripe,
            ..around(12)
        };
        let window = policy.window(&request(lblk, len), &around);
        (window.lblk().0, window.blocks())
    };
    // 31 data disks of 64 KiB.
    assert_eq!(window("stripe", 496, 0, 3), (0, 496));
    assert_eq!(window("stripe", 496, 1000, 3), (992, 4 * 496));
    assert_eq!(window("stripe", 496, 500_000, 3), (499_968, 66 * 496));
    assert_eq!(window("pow2-stripe", 496, 0, 3), (0, 4));
    assert_eq!(window("pow2-stripe", 496, 0, 600), (0, 3 * 496));
    // No stripe, or one that cannot be honored.
    for stripe in [0, 1, 40_000] {
        assert_eq!(window("stripe", stripe, 0, 3), (0, 4));
    }
}

fn policy() -> impl Strategy<Value = Switches> {
    let switches = (any::<(bool, bool, bool, bool)>(), 0..3usize, 0..3usize);
    switches.prop_map(
        |((unwritten, logical, adapt, group), rule, stripe)| Switches {
            unwritten,
            rule: [Rule::Exact, Rule::Table, Rule::Pow2][rule],
            logical,
            cap: if group { Cap::Group } else { Cap::Table },
            stripe: [StripeRule::None, StripeRule::AfterRule, StripeRule::Only][stripe],
            adapt,
        },
    )
}

/// Small numbers, and those near the largest.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..100_000u32, any::<u32>(), u32::MAX - 40_000..=u32::MAX]
}

proptest! {
    #[test]
    fn every_spelling_is_read_back(policy in policy()) {
        prop_assert_eq!(policy.to_string().parse(), Ok(policy));
    }

    #[test]
    fn windows_keep_their_bounds(
        policy in policy(),
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
        let window = policy.window(&request, &around);
        let (start, end) = (u64::from(window.lblk().0), u64::from(window.lblk().0) + u64::from(window.blocks()));
        prop_assert!(start <= at && at < end && end <= BLOCKS_MAX, "{start}..{end}");
        prop_assert!(window.blocks() <= group);
        prop_assert!(left.is_none_or(|l| u64::from(l) < start));
        prop_assert!(right.is_none_or(|r| end <= u64::from(r)));
        prop_assert!(held.iter().all(|h| h.is_empty() || h.end <= start || end <= h.start));
    }
}

#[test]
fn unknown_policies_are_refused() {
    for wrong in [
        "",
        "tables",
        "table+",
        "table+cap",
        "table+cap=3",
        "table,logical",
        "pow2+no",
    ] {
        let error = wrong.parse::<Switches>().unwrap_err().to_string();
        assert!(error.contains("pow2-stripe"), "{error}");
    }
}

#[test]
fn pairs_are_read_and_written() {
    for pair in [
        "table+linear",
        "table+logical+criteria",
        "predict+linear",
        "pow2-stripe+largest-run",
        "predict+largest-run",
    ] {
        let design: Design = pair.parse().unwrap();
        assert_eq!(design.to_string(), pair);
    }
    let linear: Design = "pow2-stripe".parse().unwrap();
    assert_eq!(linear.search, Some(KernelSearch::Linear));
    assert_eq!("predict+largest-run".parse(), Ok(Design::default()));
    for wrong in ["largest-run", "table+fastest", "+linear"] {
        assert!(wrong.parse::<Design>().is_err(), "{wrong}");
    }
}
