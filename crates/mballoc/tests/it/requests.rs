//! Data of files: those that will not grow lie side by side.

use uext4_mballoc::{Allocator, DataRequest, FileSpace, Options, Policies};
use uext4_ondisk::{Lblk, Pblk};

use crate::model::Bitmaps;

/// A file with nothing mapped, which no user has open for writing, so long.
fn closed(file: u64, len: u32) -> DataRequest {
    DataRequest {
        file,
        lblk: Lblk(0),
        len,
        goal: Pblk(1),
        left: None,
        right: None,
        size: len.into(),
        unwritten: false,
        closed: true,
    }
}

#[test]
fn small_and_large_files_that_are_closed_lie_side_by_side() {
    let bitmaps = Bitmaps::new(1 + 8 * 4096, 4096);
    let options = Options {
        flex_groups: 1,
        ..Options::default()
    };
    let allocator =
        Allocator::with_options(&bitmaps.geometry, &bitmaps, options, &Policies::default())
            .unwrap();
    let mut next = None;
    for (file, len) in [3, 5, 900, 1, 70, 1200, 4].into_iter().enumerate() {
        let request = closed(file as u64, len);
        let run = allocator.take_data(&bitmaps, &FileSpace::default(), &request);
        let run = run.unwrap();
        allocator.mark(&bitmaps, run).unwrap();
        assert_eq!(run.len, len);
        assert!(next.is_none_or(|next| next == run.start), "{file}: {run:?}");
        next = Some(run.end());
    }
}

#[test]
fn closed_files_lie_side_by_side() {
    let bitmaps = Bitmaps::new(1 + 8 * 8192, 8192);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    let mut next = None;
    for i in 0..300u32 {
        let request = DataRequest {
            goal: Pblk(u64::from(i) * 1400),
            ..closed(i.into(), 1 + i * 13 % 40)
        };
        let run = allocator.take_data(&bitmaps, &FileSpace::default(), &request);
        let run = run.unwrap();
        allocator.mark(&bitmaps, run).unwrap();
        assert_eq!(run.len, request.len);
        assert!(next.is_none_or(|next| next == run.start), "file {i}");
        next = Some(run.end());
    }
}
