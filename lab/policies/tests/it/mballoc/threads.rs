//! Several threads at once: no block is handed out twice, and nothing is lost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use uext4_lab_policies::mballoc::Design;
use uext4_mballoc::{Allocator, DataRequest, Error, FileSpace, Hints, Request, Run};
use uext4_ondisk::{Lblk, Pblk};
use uext4_testkit::SplitMix64;

use super::allocator;
use super::model::Bitmaps;

/// Takes and gives back runs of its own, and leaves nothing behind.
fn work(allocator: &Allocator, bitmaps: &Bitmaps, worker: u64) {
    let mut random = SplitMix64::new(worker + 1);
    let mut held = Vec::new();
    for _ in 0..2000 {
        let seed = random.next_u64();
        let (len, goal) = ((seed >> 33) as u32 % 40 + 1, seed >> 40);
        let request = Request {
            goal: Pblk(1 + goal % (64 * 40)),
            len,
            min_len: 1,
            next_fit: seed >> 62 == 3,
        };
        let hints = Hints {
            data: seed >> 50 & 1 != 0,
            merge: seed >> 51 & 1 != 0,
            need: len / 2,
            stream: (seed >> 52 & 1 != 0).then_some(worker),
            ..Hints::default()
        };
        match allocator.take_with(bitmaps, &request, &hints) {
            Ok(run) => {
                allocator.mark(bitmaps, run).unwrap();
                held.push(run);
            }
            // Less than 40 · 12 blocks are held by each.
            Err(Error::NoSpace { .. }) => panic!("there is always something free"),
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
}

#[test]
fn threads_share_without_overlap() {
    for design in Design::SEARCHES {
        // `Bitmaps` panics if a block is marked twice, or freed when it is not used.
        let bitmaps = Bitmaps::new(1 + 64 * 40, 64);
        let allocator = allocator(&bitmaps, design);
        thread::scope(|scope| {
            for worker in 0..4u64 {
                let (allocator, bitmaps) = (&allocator, &bitmaps);
                scope.spawn(move || work(allocator, bitmaps, worker));
            }
        });
        assert_eq!(allocator.free_blocks(), 64 * 40);
        assert_eq!(bitmaps.free(), 64 * 40);
        let stats = allocator.stats();
        assert!(stats.lock_contended <= stats.lock_acquired, "{stats:?}");
        assert_eq!((stats.reqs, stats.success), (8000, 8000));
    }
}

/// What was reserved is there, while others preallocate blocks they do not need and give them back.
#[test]
fn what_counts_as_free_is_not_refused() {
    for design in Design::SEARCHES {
        let bitmaps = Bitmaps::new(1 + 64 * 12, 64);
        let allocator = allocator(&bitmaps, design);
        let reserved = AtomicU64::new(0);
        thread::scope(|scope| {
            for worker in 0..4 {
                let (allocator, bitmaps, reserved) = (&allocator, &bitmaps, &reserved);
                scope.spawn(move || fill(allocator, bitmaps, reserved, worker));
            }
        });
        assert_eq!(allocator.free_blocks(), 64 * 12);
    }
}

/// Takes single blocks for files that grow, close and are deleted, each block reserved before.
fn fill(allocator: &Allocator, bitmaps: &Bitmaps, reserved: &AtomicU64, worker: u64) {
    for round in 0..40 {
        let mut held: Vec<Run> = Vec::new();
        let spaces: Vec<FileSpace> = (0..6).map(|_| FileSpace::default()).collect();
        for step in 0..220u32 {
            let at = step as usize % spaces.len();
            // As many as there are blocks in all, among four.
            if reserved.fetch_add(1, Relaxed) >= 64 * 12 {
                reserved.fetch_sub(1, Relaxed);
                break;
            }
            let request = DataRequest {
                file: worker * 10 + at as u64,
                lblk: Lblk(step / 6),
                len: 1,
                goal: Pblk(1 + worker * 100),
                left: None,
                right: None,
                size: 200,
                unwritten: false,
                closed: false,
            };
            let run = allocator.take_data(bitmaps, &spaces[at], &request);
            let run = run.unwrap_or_else(|error| panic!("{error} in round {round}"));
            allocator.mark(bitmaps, run).unwrap();
            held.push(run);
            if step % 17 == 0 {
                allocator.discard(&spaces[at]);
            }
        }
        for space in &spaces {
            allocator.discard(space);
        }
        for run in held {
            allocator.free(bitmaps, run).unwrap();
            reserved.fetch_sub(1, Relaxed);
        }
    }
}
