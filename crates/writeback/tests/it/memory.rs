//! Memory stays within its bound, whatever is done; and what is used stays longer.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::mapping::{TestFile, cache, live_cache, pattern};

const MEMORY: u64 = 2 << 20;

#[test]
fn reading_and_writing_much_keeps_the_bound() {
    for flushers in [0, 1] {
        let cache = live_cache(MEMORY, flushers);
        let content = pattern(8 << 20, 5);
        let file = TestFile::new(&cache, content.clone());
        let copy = TestFile::new(&cache, Vec::new());
        for (index, part) in content.chunks(50_000).enumerate() {
            let at = index as u64 * 50_000;
            let read = file.read(at, 50_000).unwrap();
            assert!(read == part);
            copy.write(at, &read).unwrap();
            assert!(cache.resident() <= MEMORY + MEMORY / 10);
        }
        cache.sync_all().unwrap();
        assert!(copy.disk.content() == content);
        let stats = cache.stats();
        assert!(stats.nr_reclaimed > 8 << 20);
        assert!(stats.nr_dirty == 0 && stats.nr_dirtied >= 8 << 20);
    }
}

#[test]
fn all_dirty_makes_the_writer_write() {
    let (cache, _) = cache(MEMORY);
    let files: Vec<TestFile> = (0..64).map(|_| TestFile::new(&cache, Vec::new())).collect();
    for (index, file) in files.iter().enumerate() {
        file.write(0, &pattern(100_000, index as u64)).unwrap();
        assert!(cache.resident() <= MEMORY + MEMORY / 10);
        assert!(cache.dirty_bytes() <= MEMORY / 2 + 100_000);
    }
    assert!(cache.stats().throttled > 0);
    for (index, file) in files.iter().enumerate() {
        assert!(file.read(0, 200_000).unwrap() == pattern(100_000, index as u64));
    }
}

#[test]
fn used_folios_get_a_second_chance() {
    let (cache, _) = cache(MEMORY);
    let hot = TestFile::new(&cache, pattern(4096, 1));
    let cold = TestFile::new(&cache, pattern(16 << 20, 2));
    for at in (0..16u64 << 20).step_by(65536) {
        hot.read(0, 4096).unwrap();
        cold.read(at, 65536).unwrap();
    }
    assert!(hot.disk.reads.lock().unwrap().len() <= 8);
}

#[test]
fn scan_frees_clean_folios_only() {
    let (cache, _) = cache(MEMORY);
    let clean = TestFile::new(&cache, pattern(200_000, 1));
    let dirty = TestFile::new(&cache, Vec::new());
    clean.read(0, 200_000).unwrap();
    dirty.write(0, &pattern(100_000, 1)).unwrap();
    assert!(cache.count() >= 200_000);
    let freed: u64 = (0..4).map(|_| cache.scan(u64::MAX)).sum();
    assert!(freed >= 200_000);
    assert_eq!(clean.pages.resident(), 0);
    assert_eq!(dirty.pages.dirty_bytes(), 98 << 10);
    let bookkeeping = cache.resident() - dirty.pages.resident();
    assert!(bookkeeping < 4096, "{bookkeeping}");
    assert!(cache.count() < 40_000);
    dirty.flush().unwrap();
    cache.scan(u64::MAX);
    cache.scan(u64::MAX);
    assert_eq!(cache.resident(), 0);
    assert!(dirty.read(0, 100_000).unwrap() == pattern(100_000, 1));
}

#[test]
fn many_threads_keep_the_bound_together() {
    let memory = 4 * MEMORY;
    let cache = live_cache(memory, 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|me| {
                let cache = &cache;
                scope.spawn(move || {
                    let content = pattern(6 << 20, me);
                    let from = TestFile::new(cache, content.clone());
                    let to = TestFile::new(cache, Vec::new());
                    for (index, part) in content.chunks(100_000).enumerate() {
                        let at = index as u64 * 100_000;
                        let read = from.read(at, part.len()).unwrap();
                        assert!(read == part);
                        to.write(at, &read).unwrap();
                    }
                    assert!(to.read(0, content.len()).unwrap() == content);
                    to.flush().unwrap();
                    assert!(to.disk.content() == content);
                })
            })
            .collect();
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while !stop.load(SeqCst) {
                peak = cache.resident().max(peak);
                std::thread::sleep(Duration::from_micros(50));
            }
            peak
        });
        for worker in workers {
            worker.join().unwrap();
        }
        stop.store(true, SeqCst);
        let peak = watcher.join().unwrap();
        assert!(peak <= memory + memory / 10, "{peak}");
    });
}
