//! What a request may cost at most, whatever the bitmaps are, and how large file systems may be.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use uext4_mballoc::{Allocator, Error, GroupBitmaps, Hints, Options, Policies, Request, Run};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Pblk};

/// Groups whose bitmaps are made up when they are read, from one pattern of 64 blocks each.
struct Synthetic {
    geometry: Geometry,
    /// Bit set: used.
    pattern: Box<dyn Fn(u32) -> u64>,
    reads: AtomicU64,
    asked_ahead: AtomicU32,
}

impl GroupBitmaps for Synthetic {
    type Error = Infallible;
    fn free_blocks(&self, group: GroupNr) -> Result<u32, Infallible> {
        let words = self.geometry.blocks_in_group(group) / 64;
        Ok((self.pattern)(group.0).count_zeros() * words)
    }
    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Infallible> {
        self.reads.fetch_add(1, Relaxed);
        for word in bitmap.chunks_mut(8) {
            word.copy_from_slice(&(self.pattern)(group.0).to_le_bytes());
        }
        Ok(())
    }
    fn mark_used(&self, _: GroupNr, _: u32, _: u32) -> Result<(), Infallible> {
        Ok(())
    }
    fn mark_free(&self, _: GroupNr, _: u32, _: u32) -> Result<(), Infallible> {
        Ok(())
    }
    fn prefetch(&self, groups: &[GroupNr]) {
        self.asked_ahead.fetch_max(groups.len() as u32, Relaxed);
    }
}

const PER_GROUP: u32 = 32_768;
/// Groups and runs that a bounded search may look at for one request.
const BOUND: (u64, u64) = (64, 512);

/// Whole groups of 32,768 blocks of 4 KiB, all of whose words are what `pattern` says for the
/// group.
fn synthetic(groups: u32, pattern: impl Fn(u32) -> u64 + 'static) -> Synthetic {
    let blocks = u64::from(groups) * u64::from(PER_GROUP);
    let mut sb = SuperBlock::zeroed();
    sb.s_magic = EXT4_SUPER_MAGIC.into();
    sb.s_rev_level = 1.into();
    sb.s_first_ino = 11.into();
    sb.s_inode_size = 256.into();
    sb.s_log_block_size = 2.into();
    sb.s_feature_incompat = Incompat::BIT64.bits().into();
    sb.s_desc_size = 64.into();
    sb.s_blocks_count_lo = (blocks as u32).into();
    sb.s_blocks_count_hi = ((blocks >> 32) as u32).into();
    sb.s_blocks_per_group = PER_GROUP.into();
    sb.s_clusters_per_group = PER_GROUP.into();
    sb.s_inodes_per_group = 16.into();
    sb.s_inodes_count = (16 * groups).into();
    Synthetic {
        geometry: Geometry::new(&sb).unwrap(),
        pattern: Box::new(pattern),
        reads: AtomicU64::new(0),
        asked_ahead: AtomicU32::new(0),
    }
}

fn allocator(synthetic: &Synthetic, stripe: u32) -> Allocator {
    let options = Options {
        stripe,
        ..Options::default()
    };
    let policies = Policies::default();
    Allocator::with_options(&synthetic.geometry, synthetic, options, &policies).unwrap()
}

fn request(goal: u64, len: u32, min_len: u32) -> Request {
    Request {
        goal: Pblk(goal),
        len,
        min_len,
        next_fit: false,
    }
}

fn assert_bounded(allocator: &Allocator) {
    let stats = allocator.stats();
    assert!(stats.max_groups <= BOUND.0, "{stats:?}");
    assert!(stats.max_extents <= BOUND.1, "{stats:?}");
}

#[test]
fn sixteen_tebibytes_are_loaded_as_they_are_used() {
    let groups = 131_072;
    let synthetic = synthetic(groups, |_| 0);
    assert_eq!(synthetic.geometry.blocks_count, 1 << 32);
    let allocator = allocator(&synthetic, 0);
    assert_eq!(allocator.free_blocks(), 1 << 32);
    let before = synthetic.reads.load(Relaxed);
    for at in 0..1000u64 {
        let goal = (at % 10) * (1 << 28) + (1 << 31);
        let request = request(goal, 2048, 1);
        let run = allocator.take(&synthetic, &request).unwrap();
        assert_eq!(run.len, 2048);
    }
    // 1000 windows, 16 to a group, in ten places.
    let reads = synthetic.reads.load(Relaxed) - before;
    assert!(reads <= 80, "{reads}");
    let considered = allocator.stats().groups_considered;
    assert!(considered <= 1000 * 10, "{considered}");
}

#[test]
fn full_of_crumbs_but_for_one_group_far_away() {
    let groups = 2000;
    let last = groups - 1;
    let synthetic = synthetic(groups, move |group| match group {
        group if group == last => 0,
        _ => 0xAAAA_AAAA_AAAA_AAAA,
    });
    for stripe in [0, 128] {
        let allocator = allocator(&synthetic, stripe);
        // What was never read may be long runs: as many are read as the bound allows.
        let short = allocator.take(&synthetic, &request(5, 2000, 1)).unwrap();
        assert_eq!(short.len, 1);
        for at in 0..40 {
            let goal = at * u64::from(PER_GROUP);
            allocator.take(&synthetic, &request(goal, 2000, 1)).unwrap();
        }
        assert_bounded(&allocator);
        // Soon all groups are known, and the far one is found at once.
        let found = allocator.take(&synthetic, &request(5, 2000, 1)).unwrap();
        assert_eq!(found.len, 2000);
        assert!(found.start.0 / u64::from(PER_GROUP) == u64::from(last));
        assert!(synthetic.asked_ahead.load(Relaxed) > 1);
    }
}

/// Free runs of all lengths to 64, other ones in every group.
fn scattered(group: u32) -> u64 {
    let mut hash = (u64::from(group) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^= hash >> 29;
    hash | hash << (group % 7)
}

#[test]
fn nothing_costs_more_than_the_bound() {
    let groups = 300;
    for stripe in [0, 16, 100] {
        let synthetic = synthetic(groups, scattered);
        let allocator = allocator(&synthetic, stripe);
        let mut random = uext4_testkit::SplitMix64::new(9);
        for at in 0..6000u32 {
            let goal = random.below(synthetic.geometry.blocks_count);
            let len = 1 + random.below(1 << (at % 16)) as u32;
            let hints = Hints {
                need: len.min(at % 5),
                data: true,
                merge: at % 3 == 0,
                stream: (at % 2 == 0).then_some(u64::from(at % 22)),
                ..Hints::default()
            };
            let run = allocator.take_with(&synthetic, &request(goal, len, 1), &hints);
            assert!(run.unwrap().len <= len);
        }
        assert_bounded(&allocator);
        assert_eq!(allocator.stats().lock_contended, 0);
    }
}

#[test]
fn the_least_length_is_certain_within_the_bound_once_all_groups_were_read() {
    let groups = 2000;
    // Runs of 20 everywhere, in one group of 30.
    let synthetic = synthetic(groups, |group| match group {
        1700 => !((1 << 30) - 1),
        _ => !((1 << 20) - 1),
    });
    let allocator = allocator(&synthetic, 0);
    for group in 0..u64::from(groups) {
        let run = Run {
            start: Pblk(group * u64::from(PER_GROUP)),
            len: 1,
        };
        assert!(!allocator.is_used(&synthetic, run).unwrap());
    }
    for _ in 0..u64::from(PER_GROUP / 64) {
        let run = allocator.take(&synthetic, &request(0, 5000, 21)).unwrap();
        assert_eq!((run.len, run.start.0 / u64::from(PER_GROUP)), (30, 1700));
    }
    let none = allocator.take(&synthetic, &request(0, 5000, 21));
    assert!(matches!(none, Err(Error::NoSpace { min_len: 21, .. })));
    assert_eq!(
        allocator
            .take(&synthetic, &request(0, 5000, 20))
            .unwrap()
            .len,
        20
    );
    assert_bounded(&allocator);
}
