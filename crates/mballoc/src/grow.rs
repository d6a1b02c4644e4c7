//! A file system that grows while it is mounted: further groups behind the last, and a last group
//! that gets the blocks it lacked.
//!
//! Threads search meanwhile. The tables of the search are replaced by larger ones first, in which
//! the new groups have nothing yet; what a thread set in an old table meanwhile is set again in the
//! new one, under the lock of its group. Then the new groups are put behind the others, with what
//! their descriptors say. The blocks that the last group gets are used at first: the caller frees
//! them as it frees any others.
//!
//! A group that is to change while no thread may find its bitmap and its descriptor to disagree is
//! *held* ([`Allocator::hold`]): its buddy is loaded before, and stays.

use uext4_ondisk::{Geometry, GroupNr};

use crate::GroupBitmaps;
use crate::allocator::Allocator;
use crate::groups::{Answer, Visit};
use crate::search::Searching;

impl Allocator {
    /// Whether the file system may grow: the search of another design may know its groups by a
    /// table that it made for so many.
    pub fn can_grow(&self) -> bool {
        matches!(self.space().search, Searching::Shipped(_))
    }

    /// The file system has grown to `geometry`, whose groups go on behind those that were there.
    /// Free blocks of the new groups are those that their descriptors say, and can be taken at
    /// once; those that the last group got are used until they are freed.
    ///
    /// One caller at a time, and only if [`Allocator::can_grow`].
    ///
    /// # Errors
    /// [`crate::Error::Bitmaps`] if a descriptor cannot be read; nothing has grown then.
    pub fn grow<B: GroupBitmaps>(&self, geometry: &Geometry, bitmaps: &B) -> Answer<(), B> {
        self.groups().grow(geometry, bitmaps)?;
        if let Searching::Shipped(search) = &self.space().search {
            search.grow(geometry.groups_count.get());
        }
        Ok(())
    }

    /// Loads a group's bitmap and keeps it loaded until [`Allocator::let_go`], however its
    /// descriptor changes; false if the group is marked bad, and need not be let go.
    ///
    /// # Errors
    /// [`crate::Error::Bitmaps`]; the group is marked bad then.
    pub fn hold<B: GroupBitmaps>(&self, bitmaps: &B, group: GroupNr) -> Answer<bool, B> {
        let io = self.space().io(bitmaps);
        let visit = self.groups().visit(io, group.0, |_| Some(()))?;
        Ok(matches!(visit, Visit::Done(())))
    }

    /// Ends what [`Allocator::hold`] began.
    pub fn let_go(&self, group: GroupNr) {
        self.groups().marked(group.0);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;

    use parking_lot::Mutex;
    use uext4_ondisk::{GroupNr, Pblk};

    use super::*;
    use crate::testing::{PER_GROUP, geometry};
    use crate::{Request, Run};

    /// Bitmaps in memory: a byte a block, 1 where it is used.
    struct Bitmaps(Mutex<Vec<Vec<u8>>>);

    impl Bitmaps {
        fn new(blocks: u32) -> Self {
            let all = Self(Mutex::default());
            all.add(blocks, 0);
            all
        }

        /// Groups of so many blocks in all, from group `first` on.
        fn add(&self, blocks: u32, first: u32) {
            for group in first..blocks.div_ceil(PER_GROUP) {
                let len = (blocks - group * PER_GROUP).min(PER_GROUP) as usize;
                let mut bytes = vec![0; len];
                bytes.resize(PER_GROUP as usize, 1);
                self.0.lock().push(bytes);
            }
        }

        fn mark(&self, group: GroupNr, start: u32, len: u32, value: u8) {
            let mut all = self.0.lock();
            let range = start as usize..(start + len) as usize;
            let bytes = &mut all[group.0 as usize][range];
            assert!(bytes.iter().all(|&byte| byte != value));
            bytes.fill(value);
        }
    }

    impl GroupBitmaps for Bitmaps {
        type Error = Infallible;
        fn free_blocks(&self, group: GroupNr) -> Result<u32, Infallible> {
            let all = self.0.lock();
            let bytes = &all[group.0 as usize];
            Ok(bytes.iter().filter(|&&byte| byte == 0).count() as u32)
        }
        fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Infallible> {
            bitmap.fill(0);
            for (at, byte) in self.0.lock()[group.0 as usize].iter().enumerate() {
                bitmap[at / 8] |= byte << (at % 8);
            }
            Ok(())
        }
        fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Infallible> {
            self.mark(group, start, len, 1);
            Ok(())
        }
        fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Infallible> {
            self.mark(group, start, len, 0);
            Ok(())
        }
    }

    fn take_all(allocator: &Allocator, bitmaps: &Bitmaps) -> u32 {
        let request = Request {
            goal: Pblk(1),
            len: 64,
            min_len: 1,
            next_fit: false,
        };
        let runs = std::iter::from_fn(|| allocator.allocate(bitmaps, &request).ok());
        runs.map(|run| run.len).sum()
    }

    /// Grows, as an engine does.
    fn grow(allocator: &Allocator, bitmaps: &Bitmaps, from: u32, to: u32) {
        let last = (from - 1) / PER_GROUP;
        assert!(allocator.hold(bitmaps, GroupNr(last)).unwrap());
        bitmaps.add(to, last + 1);
        allocator.grow(&geometry(to), bitmaps).unwrap();
        let start = from - last * PER_GROUP;
        let len = to.min((last + 1) * PER_GROUP) - from;
        if len > 0 {
            let start = Pblk(u64::from(1 + last * PER_GROUP + start));
            allocator.free(bitmaps, Run { start, len }).unwrap();
        }
        allocator.let_go(GroupNr(last));
    }

    #[test]
    fn all_blocks_that_were_added_are_handed_out_once() {
        for stripe in [0, 16] {
            for sizes in [
                &[300, 700, 50_000][..],
                &[10_000, 20_000, 20_001],
                &[256, 512],
                &[16_384, 16_640],
            ] {
                let bitmaps = Bitmaps::new(sizes[0]);
                let options = crate::Options {
                    stripe,
                    ..crate::Options::default()
                };
                let policies = crate::Policies::default();
                let shape = geometry(sizes[0]);
                let allocator =
                    Allocator::with_options(&shape, &bitmaps, options, &policies).unwrap();
                assert_eq!(take_all(&allocator, &bitmaps), sizes[0]);
                for pair in sizes.windows(2) {
                    let more = pair[1] - pair[0];
                    grow(&allocator, &bitmaps, pair[0], pair[1]);
                    assert_eq!(allocator.free_blocks(), more.into());
                    assert!(allocator.check_more(&bitmaps, more.into()));
                    assert_eq!(take_all(&allocator, &bitmaps), more);
                }
                assert!(allocator.bad_groups().is_empty());
            }
        }
    }

    #[test]
    fn threads_allocate_and_free_while_it_grows() {
        let sizes: Vec<u32> = (1..40).map(|at| at * 777).collect();
        let bitmaps = Bitmaps::new(sizes[0]);
        let allocator = Allocator::new(&geometry(sizes[0]), &bitmaps).unwrap();
        let request = Request {
            goal: Pblk(1),
            len: 32,
            min_len: 1,
            next_fit: false,
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..3000 {
                        let runs: Vec<Run> = (0..8)
                            .filter_map(|_| allocator.allocate(&bitmaps, &request).ok())
                            .collect();
                        for run in runs {
                            allocator.free(&bitmaps, run).unwrap();
                        }
                    }
                });
            }
            for pair in sizes.windows(2) {
                grow(&allocator, &bitmaps, pair[0], pair[1]);
            }
        });
        let all = *sizes.last().unwrap();
        assert_eq!(allocator.free_blocks(), all.into());
        assert_eq!(take_all(&allocator, &bitmaps), all);
        assert!(allocator.bad_groups().is_empty());
    }

    /// Runs `search` in threads of its own while the allocator grows in steps.
    fn grow_during(sizes: &[u32], search: impl Fn(&Allocator, &Bitmaps) + Sync) {
        let bitmaps = Bitmaps::new(sizes[0]);
        let allocator = Allocator::new(&geometry(sizes[0]), &bitmaps).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        search(&allocator, &bitmaps);
                    }
                });
            }
            for pair in sizes.windows(2) {
                grow(&allocator, &bitmaps, pair[0], pair[1]);
            }
            done.store(true, Relaxed);
        });
        let all = u64::from(*sizes.last().unwrap());
        assert_eq!(allocator.free_blocks(), all);
        assert!(allocator.check_more(&bitmaps, all));
    }

    #[test]
    fn a_thread_that_was_refused_meanwhile_hides_no_group() {
        for _ in 0..20 {
            let sizes = [2000 * PER_GROUP, 4000 * PER_GROUP];
            let lacking = u64::from(sizes[0]) + 1;
            grow_during(&sizes, |allocator, bitmaps| {
                allocator.check_more(bitmaps, lacking);
            });
        }
    }

    #[test]
    fn a_goal_behind_the_end_is_no_group_until_it_is_there() {
        let sizes: Vec<u32> = (4..1500).map(|at| at * PER_GROUP).collect();
        grow_during(&sizes, |allocator, bitmaps| {
            let goal = Pblk(allocator.groups().blocks_count());
            let request = Request {
                goal,
                len: 1,
                min_len: 1,
                next_fit: false,
            };
            if let Ok(run) = allocator.take(bitmaps, &request) {
                allocator.cancel(run);
            }
        });
    }
}
