//! What one search, and one entry that comes and goes, cost.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use uext4_mbcache::{Cache, Options};

/// Bytes of a block without its header.
const BODY: usize = 4096 - 32;

fn body(content: u64) -> Vec<u8> {
    let mut body = vec![0; BODY];
    body[..8].copy_from_slice(&content.to_le_bytes());
    body
}

fn filled(entries: u64) -> Cache {
    let cache = Cache::new(&Options::default()).expect("options within their ranges");
    for content in 0..entries {
        let key = cache.key(content as u32, &body(content)[..]);
        _ = cache.created(key, content, 1);
    }
    cache
}

/// A content that is found, gets a user and loses it, the hash of its block included.
fn hit(c: &mut Criterion) {
    let mut group = c.benchmark_group("hit");
    for entries in [10, 10_000] {
        let cache = filled(entries);
        let body = body(5);
        group.bench_function(BenchmarkId::from_parameter(entries), |b| {
            b.iter(|| {
                let key = cache.key(5, black_box(&body[..]));
                let found = cache.find(key).expect("it is there");
                found.taken(2).expect("it is not freed");
                cache.release(key, 5).left(1);
            });
        });
    }
    group.finish();
}

/// A content that is not found, made, and freed.
fn unique(c: &mut Criterion) {
    let cache = filled(10_000);
    let mut body = body(1 << 40);
    // On, so that no hash on disk is that of an entry that is there.
    let mut content = (1 << 40) + 10_000;
    c.bench_function("unique", |b| {
        b.iter(|| {
            content += 1;
            body[..8].copy_from_slice(&u64::to_le_bytes(content));
            let key = cache.key(content as u32, black_box(&body[..]));
            assert!(cache.find(key).is_none());
            _ = cache.created(key, content, 1);
            let release = cache.release(key, content);
            release.remove().expect("no thread has found it");
        });
    });
}

/// One content made and freed again and again.
fn same(c: &mut Criterion) {
    let cache = filled(10_000);
    let key = cache.key(77_777_777, &body(1 << 40)[..]);
    c.bench_function("same", |b| {
        b.iter(|| {
            _ = cache.created(key, 1 << 40, 1);
            let release = cache.release(key, 1 << 40);
            release.remove().expect("no thread has found it");
        });
    });
}

criterion_group!(benches, hit, unique, same);
criterion_main!(benches);
