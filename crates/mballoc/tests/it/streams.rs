//! Where streams go on.

use uext4_mballoc::{Allocator, Hints, Options, Request, Search};
use uext4_ondisk::Pblk;

use crate::model::Bitmaps;

#[test]
fn names_of_policies_are_read_as_they_are_written() {
    for search in Search::ALL {
        assert_eq!(search.to_string().parse(), Ok(search));
    }
    assert!("fastest".parse::<Search>().is_err());
}

#[test]
fn linear_has_one_goal_and_the_others_one_a_file() {
    let bitmaps = Bitmaps::new(1 + 64 * 64, 64);
    for search in Search::ALL {
        let options = Options {
            search,
            ..Options::default()
        };
        let allocator = Allocator::with_options(&bitmaps.geometry, &bitmaps, options).unwrap();
        assert_eq!(allocator.stream_goal(7), None);
        let request = Request {
            goal: Pblk(1 + 64 * 20),
            len: 8,
            min_len: 1,
            next_fit: false,
        };
        let hints = Hints {
            data: true,
            stream: Some(7),
            ..Hints::default()
        };
        let run = allocator.take_with(&bitmaps, &request, &hints).unwrap();
        let goal = allocator.stream_goal(7).unwrap().0;
        assert!((run.start.0..=run.start.0 + 8).contains(&goal));
        assert_eq!(allocator.stream_goal(8).is_some(), search == Search::Linear);
        assert!(allocator.stream_goal(7 + 16).is_some());
        allocator.untake(run);
    }
}
