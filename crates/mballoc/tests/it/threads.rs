//! Several threads at once: nobody is given a block twice, and nothing is lost.

use std::thread;

use uext4_mballoc::{Allocator, Error, Request};
use uext4_ondisk::Pblk;

use crate::model::Bitmaps;

#[test]
fn threads_share_without_overlap() {
    // `Bitmaps` panics if a block is marked twice, or freed when it is not used.
    let bitmaps = Bitmaps::new(1 + 64 * 40, 64);
    let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
    thread::scope(|scope| {
        for worker in 0..4u64 {
            let (allocator, bitmaps) = (&allocator, &bitmaps);
            scope.spawn(move || {
                let mut seed = worker + 1;
                let mut held = Vec::new();
                for _ in 0..2000 {
                    seed = seed
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let (len, goal) = ((seed >> 33) as u32 % 40 + 1, seed >> 40);
                    let goal = Pblk(1 + goal % (64 * 40));
                    let request = Request {
                        goal,
                        len,
                        min_len: 1,
                        next_fit: seed >> 63 != 0,
                    };
                    match allocator.allocate(bitmaps, &request) {
                        Ok(run) => held.push(run),
                        Err(Error::NoSpace { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                    if held.len() > 12 {
                        let at = (seed >> 20) as usize % held.len();
                        allocator.free(bitmaps, held.swap_remove(at)).unwrap();
                    }
                }
                for run in held {
                    allocator.free(bitmaps, run).unwrap();
                }
            });
        }
    });
    assert_eq!(allocator.free_blocks(), 64 * 40);
    assert_eq!(bitmaps.free(), 64 * 40);
}
