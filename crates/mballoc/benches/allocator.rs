//! Cost of an allocation: a stream at its goal, and a search on a fragmented, almost full device.

use std::cell::RefCell;
use std::convert::Infallible;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use uext4_mballoc::{Allocator, GroupBitmaps, Request, Run};
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Pblk};

const PER_GROUP: u32 = 32768;
const GROUPS: u32 = 64;

/// Bitmaps whose marks cost nothing, so that only the allocator is measured.
struct Free(RefCell<Vec<u32>>);

impl GroupBitmaps for Free {
    type Error = Infallible;
    fn free_blocks(&self, group: GroupNr) -> Result<u32, Infallible> {
        Ok(self.0.borrow()[group.0 as usize])
    }
    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Infallible> {
        // A group is loaded when nothing of it is used yet, and again after it was full.
        let full = self.0.borrow()[group.0 as usize] == 0;
        bitmap.fill(if full { 0xFF } else { 0 });
        Ok(())
    }
    fn mark_used(&self, group: GroupNr, _: u32, len: u32) -> Result<(), Infallible> {
        self.0.borrow_mut()[group.0 as usize] -= len;
        Ok(())
    }
    fn mark_free(&self, group: GroupNr, _: u32, len: u32) -> Result<(), Infallible> {
        self.0.borrow_mut()[group.0 as usize] += len;
        Ok(())
    }
}

fn fresh() -> (Free, Allocator) {
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
    let bitmaps = Free(RefCell::new(vec![PER_GROUP; GROUPS as usize]));
    let allocator = Allocator::new(&geometry, &bitmaps).unwrap();
    (bitmaps, allocator)
}

fn benches(c: &mut Criterion) {
    c.bench_function("stream of 4-block files, at the goal", |b| {
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
    c.bench_function("allocate and free 4 blocks, every other block used", |b| {
        let (bitmaps, allocator) = fresh();
        let all = u64::from(PER_GROUP) * u64::from(GROUPS);
        let one = |goal| Request {
            goal: Pblk(goal),
            len: 1,
            min_len: 1,
            next_fit: false,
        };
        for block in (0..all).step_by(2) {
            allocator.allocate(&bitmaps, &one(block)).unwrap();
        }
        let mut goal = 0u64;
        b.iter(|| {
            goal = goal
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let goal = Pblk((goal >> 20) % all);
            let request = Request {
                goal,
                len: 4,
                min_len: 1,
                next_fit: false,
            };
            let run = allocator.allocate(&bitmaps, black_box(&request)).unwrap();
            allocator.free(&bitmaps, run).unwrap();
        });
    });
}

criterion_group!(all, benches);
criterion_main!(all);
