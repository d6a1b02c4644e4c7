//! Each policy compared with what it claims.

use std::sync::Arc;

use uext4_blockdev::MemoryDevice;
use uext4_buffer_cache::{BufferCache, Options as CacheOptions};
use uext4_ondisk::{BlockSize, Pblk};

use super::*;

fn key(block: u64) -> Key {
    Key { cache: 1, block }
}

/// A cache that pins nothing by itself.
fn cache() -> BufferCache {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    BufferCache::new(device, BlockSize::MIN, CacheOptions::default())
}

fn buffer(block: u64) -> Buffer {
    cache().getblk_new(Pblk(block))
}

fn buffers(count: u64) -> Vec<Buffer> {
    let cache = cache();
    (0..count)
        .map(|block| cache.getblk_new(Pblk(block)))
        .collect()
}

/// An LRU and what its calls cost together.
struct Tally {
    lru: Lru,
    hits: u64,
    effort: Effort,
    /// What was let go is not freed at once, as by its other holders.
    gone: Vec<Buffer>,
}

impl Tally {
    fn new(policy: Policy, size: usize) -> Self {
        Self {
            lru: Lru::new(policy, size),
            hits: 0,
            effort: Effort::default(),
            gone: Vec::new(),
        }
    }

    fn touch(&mut self, key: Key, buffer: &Buffer, reuse: Reuse) {
        match self.lru.lookup(key, &mut self.effort) {
            Some(found) => {
                assert!(found.buffer.is_same(buffer));
                self.hits += 1;
            }
            None => {
                let old = self.lru.install(key, buffer, reuse, &mut self.effort);
                self.gone.extend(old);
            }
        }
    }

    fn knows(&mut self, block: u64) -> bool {
        let mut ignored = Effort::default();
        let found = self.lru.lookup(key(block), &mut ignored);
        found.is_some()
    }
}

/// Hits of a cyclic stream of `k` blocks, after one warm-up round.
fn hits_of_cycle(policy: Policy, k: u64, size: usize, rounds: u64) -> u64 {
    let buffers = buffers(k);
    let mut counted = Tally::new(policy, size);
    for round in 0..=rounds {
        if round == 1 {
            counted.hits = 0;
        }
        for (block, buffer) in (0..).zip(&buffers) {
            counted.touch(key(block), buffer, Reuse::Unknown);
        }
    }
    counted.hits
}

#[test]
fn strict_lru_has_a_cliff() {
    for policy in [
        Policy::Vanilla,
        Policy::Tunable,
        Policy::Mainline,
        Policy::LruHash,
        Policy::Recent,
    ] {
        for size in [1, 2, 8, 16, 64] {
            for k in 1..=70 {
                let expected = if k <= size as u64 { 5 * k } else { 0 };
                let hits = hits_of_cycle(policy, k, size, 5);
                assert_eq!(hits, expected, "{policy}: {k} blocks, {size} slots");
            }
        }
    }
}

#[test]
fn sets_have_none() {
    let rounds = 50;
    for k in [4, 8, 16, 40, 64, 70, 80] {
        let hits = hits_of_cycle(Policy::SetAssociative, k, 64, rounds);
        assert!(hits > k * rounds * 6 / 10, "{k}: {hits}");
    }
}

#[test]
fn errors_of_other_caches_and_dropped_files_are_not_reported() {
    for policy in Policy::ALL
        .into_iter()
        .filter(|policy| *policy != Policy::None)
    {
        let mut counted = Tally::new(policy, 16);
        let all = buffers(4);
        for (block, buffer) in (0..).zip(&all) {
            counted.touch(key(block), buffer, Reuse::Unknown);
        }
        let mut effort = Effort::default();
        let other = Key { cache: 2, block: 1 };
        assert!(counted.lru.lookup(other, &mut effort).is_none());
        assert!((0..4).all(|block| counted.knows(block)), "{policy}");
        let holds_any = counted.lru.held() > 0;
        assert_eq!(holds_any, policy.holds_blocks(), "{policy}");
        drop(all);
        assert_eq!((0..4).all(|block| counted.knows(block)), holds_any);
        assert_eq!((0..4).any(|block| counted.knows(block)), holds_any);
        // A block that comes back is known again, once.
        let again = buffer(2);
        if !holds_any {
            counted.touch(key(2), &again, Reuse::Unknown);
            assert!(counted.knows(2));
        }
    }
}

#[test]
fn none_remembers_nothing_at_no_cost() {
    assert_eq!(hits_of_cycle(Policy::None, 1, 64, 5), 0);
    let mut counted = Tally::new(Policy::None, 1);
    counted.touch(key(1), &buffer(1), Reuse::Soon);
    assert!(!counted.knows(1));
    assert_eq!((counted.effort, counted.lru.held()), (Effort::default(), 0));
}

#[test]
fn an_install_of_a_block_that_is_there_keeps_the_others() {
    for policy in [Policy::Vanilla, Policy::Mainline] {
        let mut counted = Tally::new(policy, 4);
        let all = buffers(4);
        for (block, buffer) in (0..).zip(&all) {
            counted.touch(key(block), buffer, Reuse::Unknown);
        }
        let mut effort = Effort::default();
        let old = counted
            .lru
            .install(key(1), &all[1], Reuse::Unknown, &mut effort);
        drop(old);
        assert!((0..4).all(|block| counted.knows(block)), "{policy}");
        assert_eq!(counted.lru.held(), 4);
        assert!(!effort.evicted);
    }
}

#[test]
fn what_an_install_copies() {
    let all = buffers(20);
    for (policy, bytes, writes) in [
        (Policy::Vanilla, 8 * 8, 0),
        (Policy::Tunable, 64 * 8, 0),
        (Policy::Mainline, 0, 16),
        (Policy::SetAssociative, 0, 1),
    ] {
        let mut counted = Tally::new(policy, policy.default_size());
        for (block, buffer) in (0..19).zip(&all) {
            counted.touch(key(block), buffer, Reuse::Unknown);
        }
        counted.effort = Effort::default();
        counted.touch(key(19), &all[19], Reuse::Unknown);
        assert_eq!(counted.effort.bytes_copied, bytes, "{policy}");
        assert_eq!(counted.effort.slot_writes, writes, "{policy}");
    }
}

#[test]
fn misses_of_sets_and_hashes_cost_the_same_at_any_size() {
    let all = buffers(200);
    for (policy, most) in [
        (Policy::SetAssociative, 1.1),
        (Policy::LruHash, 3.0),
        (Policy::Mainline, 64.0),
    ] {
        let mut counted = Tally::new(policy, 64);
        for (block, buffer) in (0..).zip(&all) {
            counted.touch(key(block), buffer, Reuse::Unknown);
        }
        counted.effort = Effort::default();
        for block in 1000..2000 {
            assert!(!counted.knows(block));
            let mut effort = Effort::default();
            counted.lru.lookup(key(block), &mut effort);
            counted.effort.compares += effort.compares;
        }
        let each = f64::from(counted.effort.compares) / 1000.0;
        assert!(each <= most, "{policy}: {each}");
    }
}

#[test]
fn entries_used_once_are_admitted_the_second_time() {
    let mut counted = Tally::new(Policy::SetAssociative, 64);
    let once = buffer(7);
    counted.touch(key(7), &once, Reuse::Once);
    assert!(!counted.knows(7));
    counted.touch(key(7), &once, Reuse::Once);
    assert!(counted.knows(7) && counted.effort.ghost_hit);
    // A thousand others are more than it remembers.
    let other = buffer(8);
    counted.touch(key(8), &other, Reuse::Once);
    let many: Vec<_> = (100..1100).map(buffer).collect();
    for (block, buffer) in (100..).zip(&many) {
        counted.touch(key(block), buffer, Reuse::Once);
    }
    counted.touch(key(8), &other, Reuse::Once);
    assert!(!counted.knows(8));
}

#[test]
fn reused_blocks_outlive_others() {
    let mut counted = Tally::new(Policy::SetAssociative, 64);
    let hot = buffers(7);
    let cold: Vec<_> = (1000..3000).map(buffer).collect();
    for (at, buffer) in (0..).zip(&cold) {
        for (block, hot) in (0..).zip(&hot) {
            counted.touch(key(block), hot, Reuse::Unknown);
        }
        counted.touch(key(1000 + at), buffer, Reuse::Unknown);
    }
    // All but the first of each, and few more.
    assert!(counted.hits > 7 * 2000 * 99 / 100, "{}", counted.hits);
}
