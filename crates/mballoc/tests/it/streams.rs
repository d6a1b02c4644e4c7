//! Where streams go on.

use uext4_mballoc::{Allocator, Hints, Options, Policies, Request};
use uext4_ondisk::Pblk;

use crate::model::Bitmaps;

#[test]
fn files_that_grow_together_lie_apart() {
    let bitmaps = Bitmaps::new(1 + 64 * 256, 256);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    let mut ends = [None; 10];
    let mut extents = 0;
    for _ in 0..30 {
        for (file, end) in ends.iter_mut().enumerate() {
            // All of one directory: next to the same inodes.
            let request = Request {
                goal: end.unwrap_or(Pblk(1)),
                len: 8,
                min_len: 1,
                next_fit: false,
            };
            let hints = Hints {
                data: true,
                merge: end.is_some(),
                need: 8,
                stream: Some(file as u64),
                ..Hints::default()
            };
            let run = allocator.take_with(&bitmaps, &request, &hints).unwrap();
            extents += u32::from(*end != Some(run.start));
            *end = Some(Pblk(run.start.0 + u64::from(run.len)));
            allocator.mark(&bitmaps, run).unwrap();
        }
    }
    // 240 blocks of each, in a group of its own.
    assert_eq!(extents, 10);
}

#[test]
fn streams_that_are_crowded_lie_one_behind_the_other() {
    let bitmaps = Bitmaps::new(1 + 16 * 256, 256);
    let options = Options {
        flex_groups: 1,
        ..Options::default()
    };
    let allocator =
        Allocator::with_options(&bitmaps.geometry, &bitmaps, options, &Policies::default())
            .unwrap();
    for file in 0..8 {
        let request = Request {
            goal: Pblk(1),
            len: 16,
            min_len: 1,
            next_fit: false,
        };
        let hints = Hints {
            data: true,
            stream: Some(file),
            follows: true,
            crowded: true,
            ..Hints::default()
        };
        let run = allocator.take_with(&bitmaps, &request, &hints).unwrap();
        assert_eq!((run.start.0, run.len), (1 + 16 * file, 16));
    }
}
