//! The small caches in front: no policy changes an answer, none keeps memory for ever.

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use uext4_blockdev::MemoryDevice;
use uext4_buffer_cache::{
    BhLruOptions, BufferCache, OVERHEAD, Options, Policy, Reuse, Scope, VerifyTag, bind_core,
};
use uext4_ondisk::{BlockSize, Pblk};

use crate::{SIZE, TAG};

const BLOCKS: u64 = 96;

fn options(policy: Policy, scope: Scope, blocks: usize) -> Options {
    Options {
        memory_max: blocks * (SIZE + OVERHEAD),
        bh_lru: BhLruOptions {
            policy,
            scope,
            ..BhLruOptions::default()
        },
    }
}

fn cache(options: Options) -> BufferCache {
    let device = Arc::new(MemoryDevice::new(BLOCKS * SIZE as u64));
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
            let mut options = options(policy, scope, 24);
            options.bh_lru.size = Some(size);
            let cache = cache(options);
            cache.count_bh_lru(true);
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
            let lru = cache.stats().bh_lru;
            prop_assert_eq!(lru.hits() + lru.misses, calls.len() as u64);
            prop_assert!(lru.parked <= size as u64);
            cache.write_dirty().unwrap();
            cache.scan(BLOCKS as usize);
            prop_assert_eq!(cache.stats().nr_buffers, 0, "{}", policy);
        }
    }
}

#[test]
fn what_a_policy_holds_goes_when_memory_is_asked_for() {
    for (policy, scope) in combinations() {
        let cache = cache(options(policy, scope, 64));
        for block in 0..40 {
            cache.bread(Pblk(block), TAG, |_| Ok(())).unwrap();
        }
        let parked = cache.stats().bh_lru.parked;
        let holds = [Policy::Vanilla, Policy::Tunable, Policy::Mainline].contains(&policy);
        assert_eq!(parked > 0, holds, "{policy} by {scope}");
        cache.scan(40);
        let stats = cache.stats();
        assert_eq!((stats.nr_buffers, stats.bh_lru.parked), (0, 0));
        assert_eq!(stats.bh_lru.invalidations, u64::from(holds));
    }
}

#[test]
fn threads_of_one_core_share_and_others_do_not() {
    for (policy, scope) in combinations() {
        let cache = cache(options(policy, scope, 64));
        cache.count_bh_lru(true);
        let read = |core: usize| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    bind_core(Some(core));
                    cache.bread(Pblk(7), VerifyTag(3), |_| Ok(())).unwrap();
                });
            });
            cache.stats().bh_lru.hits()
        };
        let shared = u64::from(scope == Scope::Core);
        assert_eq!(
            [read(1), read(2), read(1)],
            [0, 0, shared],
            "{policy} by {scope}"
        );
    }
}
