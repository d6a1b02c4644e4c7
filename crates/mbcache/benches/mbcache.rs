//! What one search, and one entry that comes and goes, cost under each policy.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use uext4_mbcache::{Cache, Options, Policy};

/// Bytes of a block without its header.
const BODY: usize = 4096 - 32;

fn body(content: u64) -> Vec<u8> {
    let mut body = vec![0; BODY];
    body[..8].copy_from_slice(&content.to_le_bytes());
    body
}

fn filled(policy: Policy, entries: u64) -> Cache {
    let options = Options {
        policy,
        ..Options::default()
    };
    let cache = Cache::new(&options).expect("options within their ranges");
    for content in 0..entries {
        let key = cache.key(content as u32, &body(content));
        _ = cache.created(key, content, 1);
    }
    cache
}

/// A content that is found, gets a user and loses it, the hash of its block included.
fn hit(c: &mut Criterion) {
    let mut group = c.benchmark_group("hit");
    for policy in Policy::ALL {
        for entries in [10, 10_000] {
            let cache = filled(policy, entries);
            let body = body(5);
            let id = BenchmarkId::new(policy.to_string(), entries);
            group.bench_function(id, |b| {
                b.iter(|| {
                    let key = cache.key(5, black_box(&body));
                    let found = cache.find(key).expect("it is there");
                    found.taken(2).expect("nobody frees it");
                    cache.release(key, 5).left(1);
                });
            });
        }
    }
    group.finish();
}

/// A content that is not found, made, and freed.
fn unique(c: &mut Criterion) {
    let mut group = c.benchmark_group("unique");
    for policy in Policy::ALL {
        let cache = filled(policy, 10_000);
        let mut body = body(1 << 40);
        // On, so that no hash on disk is that of an entry that is there.
        let mut content = (1 << 40) + 10_000;
        group.bench_function(policy.to_string(), |b| {
            b.iter(|| {
                content += 1;
                body[..8].copy_from_slice(&u64::to_le_bytes(content));
                let key = cache.key(content as u32, black_box(&body));
                assert!(cache.find(key).is_none());
                _ = cache.created(key, content, 1);
                let release = cache.release(key, content);
                release.remove().expect("nobody has found it");
            });
        });
    }
    group.finish();
}

/// The same content made and freed again and again.
fn same(c: &mut Criterion) {
    let mut group = c.benchmark_group("same");
    for policy in Policy::ALL {
        let cache = filled(policy, 10_000);
        let key = cache.key(77_777_777, &body(1 << 40));
        group.bench_function(policy.to_string(), |b| {
            b.iter(|| {
                _ = cache.created(key, 1 << 40, 1);
                let release = cache.release(key, 1 << 40);
                release.remove().expect("nobody has found it");
            });
        });
    }
    group.finish();
}

/// A content whose blocks are full: 1000 of them, and one with room.
fn saturated(c: &mut Criterion) {
    let mut group = c.benchmark_group("saturated");
    for policy in Policy::ALL {
        let cache = filled(policy, 0);
        let body = body(1);
        let key = cache.key(1, &body);
        // The oldest has room, so all others are before it.
        _ = cache.created(key, 1000, 1);
        (0..1000).for_each(|value| _ = cache.created(key, value, 1024));
        group.bench_function(policy.to_string(), |b| {
            b.iter(|| {
                let mut next = cache.find(key);
                while let Some(found) = next.take() {
                    if found.value() == 1000 {
                        break;
                    }
                    next = found.next();
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, hit, unique, same, saturated);
criterion_main!(benches);
