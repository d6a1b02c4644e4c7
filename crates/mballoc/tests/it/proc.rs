//! Reports of an allocator, in the kernel's forms.

use uext4_mballoc::{Allocator, Request, Run};
use uext4_ondisk::Pblk;

use crate::model::Bitmaps;

/// 16 groups of 256 blocks; 8 blocks taken at the goal, and 8 more by a search.
fn used() -> Allocator {
    let bitmaps = Bitmaps::new(1 + 16 * 256, 256);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    for _ in 0..2 {
        let request = Request {
            goal: Pblk(1),
            len: 8,
            min_len: 1,
            next_fit: false,
        };
        allocator.allocate(&bitmaps, &request).unwrap();
    }
    let middle = Run {
        start: Pblk(3),
        len: 2,
    };
    allocator.free(&bitmaps, middle).unwrap();
    allocator
}

#[test]
fn groups_are_reported_line_by_line() {
    let text = used().mb_groups().to_string();
    let lines: Vec<&str> = text.lines().collect();
    let head =
        "#group: free  frags first [ 2^0   2^1   2^2   2^3   2^4   2^5   2^6   2^7   2^8   ]";
    assert_eq!(lines[0], head);
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    let expected = "#0 : 242 2 2 [ 0 1 0 0 1 1 1 1 0 ]";
    assert_eq!(words, expected.split(' ').collect::<Vec<_>>());
    assert_eq!(lines[2], "#1    : 256   not loaded");
    assert_eq!(lines.len(), 17);
}

#[test]
fn statistics_name_the_steps_of_the_search() {
    let text = used().mb_stats().to_string();
    assert!(text.starts_with("mballoc:\n\treqs: 2\n\tsuccess: 2\n\tgroups_scanned: 1\n"));
    let stats =
        "\tlong_enough_stats:\n\t\thits: 1\n\t\tgroups_considered: 1\n\t\textents_scanned: 1\n";
    assert!(text.contains(stats), "{text}");
    let hits = "\t\tgoal_hits: 1\n\t\tlen_goal_hits: 2\n";
    assert!(text.contains(hits), "{text}");
    assert!(text.contains("\tbuddies_generated: 1/16\n"), "{text}");
}

#[test]
fn statistics_are_switched_while_it_runs() {
    let bitmaps = Bitmaps::new(1 + 256, 256);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    let request = Request {
        goal: Pblk(1),
        len: 8,
        min_len: 1,
        next_fit: false,
    };
    allocator.set_stats(false);
    allocator.allocate(&bitmaps, &request).unwrap();
    assert_eq!(allocator.stats(), uext4_mballoc::Stats::default());
    assert!(allocator.mb_stats().to_string().contains("turned off"));
    allocator.set_stats(true);
    allocator.allocate(&bitmaps, &request).unwrap();
    assert_eq!(allocator.stats().reqs, 1);
}

#[test]
fn groups_are_counted_by_order() {
    let text = used().mb_structs_summary().to_string();
    assert!(text.starts_with("optimize_scan: 1\nmax_free_order_lists:\n"));
    // One group lost its largest chunk; the average of its two runs is a quarter of the others'.
    assert!(
        text.contains("\tlist_order_7_groups: 1\n\tlist_order_8_groups: 15\n"),
        "{text}"
    );
    assert!(text.contains("avg_fragment_size_lists:\n"));
    assert!(text.contains("\tlist_order_5_groups: 1\n"), "{text}");
}
