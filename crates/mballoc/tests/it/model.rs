//! Bitmaps in memory; random traces whose every answer is judged by them.

use std::fmt;

use parking_lot::Mutex;
use proptest::prelude::*;
use uext4_mballoc::{Allocator, Error, GroupBitmaps, Request, Run};
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Pblk};

/// One `Vec<u8>` a group, bit set = used.
pub struct Bitmaps {
    pub geometry: Geometry,
    pub groups: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug)]
pub struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}
impl std::error::Error for Refused {}

/// A file system of 1 KiB blocks and groups of `per_group` blocks.
pub fn geometry(blocks: u32, per_group: u32) -> Geometry {
    let mut sb = SuperBlock::zeroed();
    let groups = (blocks - 1).div_ceil(per_group);
    sb.s_magic = EXT4_SUPER_MAGIC.into();
    sb.s_rev_level = 1.into();
    sb.s_first_ino = 11.into();
    sb.s_inode_size = 128.into();
    sb.s_first_data_block = 1.into();
    sb.s_blocks_count_lo = blocks.into();
    sb.s_blocks_per_group = per_group.into();
    sb.s_clusters_per_group = per_group.into();
    sb.s_inodes_per_group = 16.into();
    sb.s_inodes_count = (16 * groups).into();
    Geometry::new(&sb).unwrap()
}

impl Bitmaps {
    pub fn new(blocks: u32, per_group: u32) -> Self {
        let geometry = geometry(blocks, per_group);
        let groups = geometry.groups_count.get() as usize;
        Self {
            groups: Mutex::new(vec![vec![0; per_group.div_ceil(8) as usize]; groups]),
            geometry,
        }
    }

    fn is_used(&self, block: u64) -> bool {
        let (group, offset) = self.geometry.group_of(Pblk(block)).unwrap();
        let groups = self.groups.lock();
        groups[group.0 as usize][(offset / 8) as usize] >> (offset % 8) & 1 != 0
    }

    pub fn free(&self) -> u64 {
        let all = 1..self.geometry.blocks_count;
        all.filter(|&b| !self.is_used(b)).count() as u64
    }

    fn change(&self, group: GroupNr, start: u32, len: u32, used: bool) -> Result<(), Refused> {
        assert!(start + len <= self.geometry.blocks_in_group(group));
        let mut groups = self.groups.lock();
        let bitmap = &mut groups[group.0 as usize];
        for bit in start..start + len {
            let byte = &mut bitmap[(bit / 8) as usize];
            let mask = 1 << (bit % 8);
            assert_eq!(
                *byte & mask == 0,
                used,
                "block {bit} of group {group} marked twice"
            );
            *byte ^= mask;
        }
        Ok(())
    }
}

impl GroupBitmaps for Bitmaps {
    type Error = Refused;

    fn free_blocks(&self, group: GroupNr) -> Result<u32, Refused> {
        let blocks = self.geometry.blocks_in_group(group);
        let start = self.geometry.group_start(group).0;
        Ok((0..blocks)
            .filter(|&b| !self.is_used(start + u64::from(b)))
            .count() as u32)
    }

    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Refused> {
        bitmap.copy_from_slice(&self.groups.lock()[group.0 as usize]);
        Ok(())
    }

    fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Refused> {
        self.change(group, start, len, true)
    }

    fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Refused> {
        self.change(group, start, len, false)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate {
        goal: u64,
        len: u32,
        min_len: u32,
        next_fit: bool,
    },
    Free {
        which: usize,
        part: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let allocate = (0u64..2500, 1u32..400, 1u32..20, any::<bool>()).prop_map(
        |(goal, len, min_len, next_fit)| Op::Allocate {
            goal,
            len,
            min_len: min_len.min(len),
            next_fit,
        },
    );
    let free = (any::<usize>(), 1u32..100).prop_map(|(which, part)| Op::Free { which, part });
    prop_oneof![3 => allocate, 2 => free]
}

/// Length of the longest free run within one group.
fn longest(bitmaps: &Bitmaps) -> u32 {
    let (mut best, mut run, mut last) = (0, 0, None);
    for block in 1..bitmaps.geometry.blocks_count {
        let (group, _) = bitmaps.geometry.group_of(Pblk(block)).unwrap();
        run = match (bitmaps.is_used(block), last == Some(group)) {
            (true, _) => 0,
            (false, true) => run + 1,
            (false, false) => 1,
        };
        last = Some(group);
        best = best.max(run);
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_answer_is_valid(ops in prop::collection::vec(op(), 1..120)) {
        // Groups of an odd size, the last one short.
        let bitmaps = Bitmaps::new(2203, 264);
        let allocator = Allocator::new(&bitmaps.geometry, &bitmaps).unwrap();
        let mut held: Vec<Run> = Vec::new();
        for op in ops {
            match op {
                Op::Allocate { goal, len, min_len, next_fit } => {
                    let request = Request { goal: Pblk(goal), len, min_len, next_fit };
                    match allocator.allocate(&bitmaps, &request) {
                        Ok(run) => {
                            prop_assert!((min_len..=len).contains(&run.len));
                            held.push(run);
                        }
                        Err(Error::NoSpace { free, .. }) => {
                            prop_assert_eq!(free, bitmaps.free());
                            prop_assert!(longest(&bitmaps) < min_len);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                Op::Free { which, part } if !held.is_empty() => {
                    let at = which % held.len();
                    let mut run = held.swap_remove(at);
                    let head = Run { len: part.min(run.len), ..run };
                    allocator.free(&bitmaps, head).unwrap();
                    run.start.0 += u64::from(head.len);
                    run.len -= head.len;
                    if run.len > 0 {
                        held.push(run);
                    }
                }
                Op::Free { .. } => {}
            }
            prop_assert_eq!(allocator.free_blocks(), bitmaps.free());
        }
        let held_blocks: u64 = held.iter().map(|r| u64::from(r.len)).sum();
        prop_assert_eq!(bitmaps.free() + held_blocks, bitmaps.geometry.blocks_count - 1);
    }
}
