//! The LRU in front of the buffer cache: no design changes an answer, none holds memory for ever.

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use uext4_blockdev::MemoryDevice;
use uext4_buffer_cache::{BhLru, BufferCache, OVERHEAD, Options, Reuse, VerifyTag};
use uext4_lab_policies::bh_lru::{self, Lrus, Policy, Scope, bind_core};
use uext4_ondisk::{BlockSize, Pblk};

const SIZE: usize = 1024;
const TAG: VerifyTag = VerifyTag(1);

const BLOCKS: u64 = 96;

fn lrus(policy: Policy, scope: Scope, size: Option<usize>) -> Arc<Lrus> {
    Arc::new(Lrus::new(bh_lru::Options {
        policy,
        size,
        scope,
    }))
}

/// A cache that may hold so many blocks.
fn cache(bh_lru: &Arc<Lrus>, blocks: usize) -> BufferCache {
    let device = Arc::new(MemoryDevice::new(BLOCKS * SIZE as u64));
    let bh_lru: Arc<dyn BhLru> = Arc::<Lrus>::clone(bh_lru);
    let options = Options {
        memory_max: blocks * (SIZE + OVERHEAD),
        bh_lru: Some(bh_lru),
        ..Options::default()
    };
    BufferCache::new(device, BlockSize::MIN, options)
}

fn combinations() -> impl Iterator<Item = (Policy, Scope)> {
    let scopes = [Scope::Thread, Scope::Core];
    let with = move |policy| scopes.map(|scope| (policy, scope));
    Policy::ALL.into_iter().flat_map(with)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn all_policies_give_the_same_answers(
        calls in prop::collection::vec((0..BLOCKS, any::<u8>(), 0..5u8), 1..200),
        size in 1..=64usize,
    ) {
        let reuses = [Reuse::Unknown, Reuse::Soon, Reuse::Once];
        for (policy, scope) in combinations() {
            let lrus = lrus(policy, scope, Some(size));
            let cache = cache(&lrus, 24);
            let mut now = vec![0; BLOCKS as usize];
            for (block, value, what) in &calls {
                let reuse = reuses[usize::from(*value) % reuses.len()];
                let buffer = cache.bread_expecting(Pblk(*block), reuse, TAG, |_| Ok(())).unwrap();
                prop_assert_eq!(buffer.data()[0], now[*block as usize], "{}", policy);
                match what {
                    0 => {
                        buffer.modify(|bytes| bytes.fill(*value));
                        now[*block as usize] = *value;
                    }
                    1 => _ = cache.scan(usize::from(*value)),
                    2 => cache.write_dirty().unwrap(),
                    _ => {}
                }
            }
            let lru = lrus.stats();
            prop_assert_eq!(lru.hits() + lru.misses, calls.len() as u64);
            prop_assert!(lru.held <= size as u64);
            cache.write_dirty().unwrap();
            cache.scan(BLOCKS as usize);
            prop_assert_eq!(cache.stats().nr_buffers, 0, "{}", policy);
        }
    }
}

#[test]
fn what_a_policy_holds_goes_when_memory_is_asked_for() {
    for (policy, scope) in combinations() {
        let lrus = lrus(policy, scope, None);
        let cache = cache(&lrus, 64);
        for block in 0..40 {
            cache.bread(Pblk(block), TAG, |_| Ok(())).unwrap();
        }
        let held = lrus.stats().held;
        let holds = policy.holds_blocks();
        assert_eq!(held > 0, holds, "{policy} by {scope}");
        cache.scan(40);
        let (left, stats) = (cache.stats().nr_buffers, lrus.stats());
        assert_eq!((left, stats.held), (0, 0));
        assert_eq!(stats.invalidations, u64::from(holds));
    }
}

#[test]
fn threads_of_one_core_share_and_others_do_not() {
    for (policy, scope) in combinations() {
        let lrus = lrus(policy, scope, None);
        let cache = cache(&lrus, 64);
        let read = |core: usize| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    bind_core(Some(core));
                    cache.bread(Pblk(7), VerifyTag(3), |_| Ok(())).unwrap();
                });
            });
            lrus.stats().hits()
        };
        let shared = u64::from(scope == Scope::Core && policy != Policy::None);
        assert_eq!(
            [read(1), read(2), read(1)],
            [0, 0, shared],
            "{policy} by {scope}"
        );
    }
}
