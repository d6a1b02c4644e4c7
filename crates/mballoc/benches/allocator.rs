//! Cost of an allocation: a stream at its goal, and searches on a device that was filled to 90 %
//! and half emptied several times. What each search looked at is printed at the same time, and
//! how often 64 writers that start in one place waited for each other.

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use criterion::{Criterion, criterion_group, criterion_main};
use uext4_mballoc::{Allocator, Error, GroupBitmaps, Hints, Request, Run, Stats};
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Pblk};
use uext4_testkit::SplitMix64;

const PER_GROUP: u32 = 32768;
const GROUPS: u32 = 128;

/// Of each group one byte a block, and how many are free.
struct Bitmaps(Vec<Mutex<(Vec<bool>, u32)>>);

impl Bitmaps {
    fn group(&self, group: GroupNr) -> MutexGuard<'_, (Vec<bool>, u32)> {
        let group = &self.0[group.0 as usize];
        group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, group: GroupNr, start: u32, len: u32, used: bool) {
        let (blocks, free) = &mut *self.group(group);
        blocks[start as usize..(start + len) as usize].fill(used);
        *free = if used { *free - len } else { *free + len };
    }
}

impl GroupBitmaps for Bitmaps {
    type Error = Infallible;
    fn free_blocks(&self, group: GroupNr) -> Result<u32, Infallible> {
        Ok(self.group(group).1)
    }
    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Infallible> {
        let blocks = &self.group(group).0;
        for (byte, blocks) in bitmap.iter_mut().zip(blocks.chunks(8)) {
            let bits = blocks.iter().enumerate();
            *byte = bits.fold(0, |byte, (at, &used)| byte | u8::from(used) << at);
        }
        Ok(())
    }
    fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Infallible> {
        self.change(group, start, len, true);
        Ok(())
    }
    fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Infallible> {
        self.change(group, start, len, false);
        Ok(())
    }
}

fn fresh() -> (Bitmaps, Allocator) {
    let mut sb = SuperBlock::zeroed();
    sb.s_magic = EXT4_SUPER_MAGIC.into();
    sb.s_rev_level = 1.into();
    sb.s_first_ino = 11.into();
    sb.s_inode_size = 256.into();
    sb.s_log_block_size = 2.into();
    sb.s_blocks_count_lo = (PER_GROUP * GROUPS).into();
    sb.s_blocks_per_group = PER_GROUP.into();
    sb.s_clusters_per_group = PER_GROUP.into();
    sb.s_inodes_per_group = 8192.into();
    sb.s_inodes_count = (8192 * GROUPS).into();
    let geometry = Geometry::new(&sb).unwrap();
    let empty = || Mutex::new((vec![false; PER_GROUP as usize], PER_GROUP));
    let bitmaps = Bitmaps((0..GROUPS).map(|_| empty()).collect());
    let allocator = Allocator::new(&geometry, &bitmaps).unwrap();
    (bitmaps, allocator)
}

/// A device with files on it, each a few runs.
struct Aged {
    bitmaps: Bitmaps,
    allocator: Allocator,
    random: SplitMix64,
    files: Vec<Vec<Run>>,
}

impl Aged {
    /// Filled to 90 %, then five times a random half of the files deleted and filled again.
    fn new() -> Self {
        let (bitmaps, allocator) = fresh();
        let mut aged = Self {
            bitmaps,
            allocator,
            random: SplitMix64::new(1),
            files: Vec::new(),
        };
        for round in 0..6 {
            for _ in 0..if round > 0 { aged.files.len() / 2 } else { 0 } {
                aged.delete();
            }
            let tenth = u64::from(PER_GROUP) * u64::from(GROUPS) / 10;
            while aged.allocator.free_blocks() > tenth {
                aged.create();
            }
        }
        aged
    }

    /// Most files are small, most blocks are in large ones.
    fn create(&mut self) {
        let order = self.random.below(12);
        let mut left = 1 + self.random.below(2 << order) as u32;
        let mut goal = Pblk(self.random.below(u64::from(GROUPS)) * u64::from(PER_GROUP));
        let mut runs = Vec::new();
        while left > 0 {
            // A window of a power of two, as normalised requests are, of which the rest is given
            // back.
            let request = Request {
                goal,
                len: left.next_power_of_two().min(2048),
                min_len: 1,
                next_fit: false,
            };
            let hints = Hints {
                data: true,
                merge: !runs.is_empty(),
                need: left.min(2048),
                stream: None,
                ..Hints::default()
            };
            let taken = self.allocator.take_with(&self.bitmaps, &request, &hints);
            let mut run = match taken {
                Ok(run) => run,
                Err(Error::NoSpace { .. }) => break,
                Err(other) => panic!("{other}"),
            };
            self.allocator.mark(&self.bitmaps, run).unwrap();
            if run.len > left {
                let rest = Run {
                    start: Pblk(run.start.0 + u64::from(left)),
                    len: run.len - left,
                };
                self.allocator.free(&self.bitmaps, rest).unwrap();
                run.len = left;
            }
            left -= run.len;
            goal = Pblk(run.start.0 + u64::from(run.len));
            runs.push(run);
        }
        self.files.push(runs);
    }

    fn delete(&mut self) {
        let at = self.random.below(self.files.len() as u64) as usize;
        for run in self.files.swap_remove(at) {
            self.allocator.free(&self.bitmaps, run).unwrap();
        }
    }

    /// What a thousand files and deletions cost, and what the free space then is.
    fn report(&mut self) {
        let before = self.allocator.stats();
        for _ in 0..1000 {
            self.delete();
            self.create();
        }
        let after = self.allocator.stats();
        let per = |count: fn(&Stats) -> u64| {
            (count(&after) - count(&before)) as f64 / (after.reqs - before.reqs) as f64
        };
        let fragments = (0..GROUPS).filter_map(|g| self.allocator.group_info(GroupNr(g)));
        let fragments: u32 = fragments.map(|info| info.fragments).sum();
        let extents: usize = self.files.iter().map(Vec::len).sum();
        println!(
            "aged: {:.2} groups + {:.2} runs a request, at most {} + {}; {:.3} runs a file, \
             {:.1} blocks a free run",
            per(|stats| stats.groups_considered),
            per(|stats| stats.extents_scanned),
            after.max_groups,
            after.max_extents,
            extents as f64 / self.files.len() as f64,
            self.allocator.free_blocks() as f64 / f64::from(fragments.max(1)),
        );
    }
}

fn stream(c: &mut Criterion) {
    c.bench_function("4-block files, at the goal", |b| {
        let (bitmaps, allocator) = fresh();
        let mut goal = 0;
        let mut held: Vec<Run> = Vec::new();
        b.iter(|| {
            if allocator.free_blocks() < 4 {
                held.drain(..)
                    .for_each(|run| allocator.free(&bitmaps, run).unwrap());
                goal = 0;
            }
            let request = Request {
                goal: Pblk(goal),
                len: 4,
                min_len: 1,
                next_fit: false,
            };
            let run = allocator.allocate(&bitmaps, black_box(&request)).unwrap();
            goal = run.start.0 + 4;
            held.push(run);
        });
    });
}

fn aged(c: &mut Criterion) {
    let mut aged = Aged::new();
    aged.report();
    c.bench_function("delete and write a file, aged", |b| {
        b.iter(|| {
            aged.delete();
            aged.create();
        });
    });
}

/// 64 writers append 8 KiB at a time to files of one directory, to 1 MiB, and truncate them.
fn writers() {
    let (bitmaps, allocator) = fresh();
    thread::scope(|scope| {
        for file in 0..64 {
            let (bitmaps, allocator) = (&bitmaps, &allocator);
            scope.spawn(move || (0..20).for_each(|_| append(bitmaps, allocator, file)));
        }
    });
    let stats = allocator.stats();
    println!(
        "64 writers: {} locks taken, {} waited for, {} passed by; {} of {} requests at their goal",
        stats.lock_acquired,
        stats.lock_contended,
        stats.trylock_skipped,
        stats.goal_hits,
        stats.reqs,
    );
}

fn append(bitmaps: &Bitmaps, allocator: &Allocator, file: u64) {
    let mut runs: Vec<Run> = Vec::new();
    for _ in 0..128 {
        let last = runs.last();
        let request = Request {
            goal: last.map_or(Pblk(100), |run| Pblk(run.start.0 + u64::from(run.len))),
            len: 2,
            min_len: 1,
            next_fit: false,
        };
        let hints = Hints {
            data: true,
            merge: last.is_some(),
            need: 2,
            stream: (runs.len() > 8).then_some(file),
            ..Hints::default()
        };
        let run = allocator.take_with(bitmaps, &request, &hints).unwrap();
        allocator.mark(bitmaps, run).unwrap();
        runs.push(run);
    }
    for run in runs {
        allocator.free(bitmaps, run).unwrap();
    }
}

fn benches(c: &mut Criterion) {
    writers();
    stream(c);
    aged(c);
}

criterion_group!(all, benches);
criterion_main!(all);
