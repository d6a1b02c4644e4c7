//! Many threads at one cache: nothing torn, nothing lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use uext4_blockdev::SystemClock;
use uext4_testkit::SplitMix64;
use uext4_writeback::PageCache;

use crate::mapping::{BLOCK, TestFile, eager, live_cache};

const BLOCKS: u64 = 256;

/// Through the cache or past it.
fn read(file: &TestFile, random: &mut SplitMix64, at: u64, blocks: u64) -> Vec<u8> {
    let len = (blocks * BLOCK) as usize;
    let read = match random.below(2) {
        0 => file.read(at, len),
        _ => file.read_uncached(at, len, 0),
    };
    read.unwrap()
}

/// Runs of blocks, each full of one byte, so that a torn block shows.
fn assert_whole(bytes: &[u8]) {
    for block in bytes.chunks(BLOCK as usize) {
        assert!(block.iter().all(|byte| *byte == block[0]), "torn");
    }
}

/// Each writer has every fourth block for its own, and knows in the end what it wrote there last.
fn writer(file: &TestFile, me: u64, rounds: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(me + 1);
    let mut last = vec![0; BLOCKS as usize];
    for _ in 0..rounds {
        let block = random.below(BLOCKS / 4) * 4 + me;
        let byte = random.below(255) as u8 + 1;
        let data = vec![byte; BLOCK as usize];
        file.write(block * BLOCK, &data).unwrap();
        last[block as usize] = byte;
        if random.below(64) == 0 {
            file.pages
                .flush(block * BLOCK..(block + 9) * BLOCK)
                .unwrap();
        }
        if random.below(16) == 0 {
            let got = read(file, &mut random, block * BLOCK, 1);
            assert_eq!(got, data);
        }
    }
    last
}

#[test]
fn writers_readers_flushers_and_reclaim() {
    for memory in [64 << 10, 1 << 20] {
        let cache = live_cache(memory, 2);
        let files: Vec<TestFile> = (0..2)
            .map(|_| TestFile::new(&cache, vec![0; (BLOCKS * BLOCK) as usize]))
            .collect();
        let stop = AtomicBool::new(false);
        let expected: Vec<Vec<Vec<u8>>> = std::thread::scope(|scope| {
            let files = &files;
            for (index, file) in files.iter().enumerate() {
                let stop = &stop;
                scope.spawn(move || {
                    let mut random = SplitMix64::new(99 + index as u64);
                    while !stop.load(SeqCst) {
                        let at = random.below(BLOCKS) * BLOCK;
                        assert_whole(&read(file, &mut random, at, 20));
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    cache.scan(20_000);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let handles: Vec<Vec<_>> = files
                .iter()
                .map(|file| {
                    (0..4)
                        .map(|me| scope.spawn(move || writer(file, me, 3000)))
                        .collect()
                })
                .collect();
            let last = handles
                .into_iter()
                .map(|of_file| of_file.into_iter().map(|h| h.join().unwrap()).collect())
                .collect();
            stop.store(true, SeqCst);
            last
        });
        cache.sync_all().unwrap();
        for (file, last) in files.iter().zip(expected) {
            let content = file.disk.content();
            let cached = file.read(0, content.len()).unwrap();
            assert!(content == cached);
            for (block, bytes) in content.chunks(BLOCK as usize).enumerate() {
                let wanted = last[block % 4][block];
                assert!(bytes.iter().all(|byte| *byte == wanted), "block {block}");
            }
        }
        let stats = cache.stats();
        assert_eq!(
            (stats.nr_dirty, stats.nr_writeback, stats.nr_lost),
            (0, 0, 0)
        );
    }
}

/// Sizes go up and down while others read and flush: readers see blocks of the file or nothing.
/// Notifies others to stop when it goes.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn truncation_during_reads_and_flushes() {
    let cache = live_cache(256 << 10, 1);
    let file = TestFile::new(&cache, Vec::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (file, stop) = (&file, &stop);
            scope.spawn(move || {
                let mut random = SplitMix64::new(seed);
                while !stop.load(SeqCst) {
                    let at = random.below(BLOCKS) * BLOCK;
                    assert_whole(&read(file, &mut random, at, 8));
                    if random.below(8) == 0 {
                        file.flush().unwrap();
                    }
                }
            });
        }
        // Also if an assertion fails: the readers would go on for ever.
        let _stop = StopAtEnd(&stop);
        let mut random = SplitMix64::new(7);
        for round in 0..2000u64 {
            let blocks = random.below(BLOCKS / 2) + 1;
            let size = file.disk.size();
            let data = vec![round as u8 | 1; (blocks * BLOCK) as usize];
            file.write(size, &data).unwrap();
            assert!(read(&file, &mut random, size, blocks) == data);
            if size + blocks * BLOCK > BLOCKS * BLOCK || random.below(3) == 0 {
                file.truncate(random.below(size / BLOCK + 1) * BLOCK);
            }
        }
    });
    let cached = file.read(0, 1 << 20).unwrap();
    file.flush().unwrap();
    assert!(file.disk.content() == cached);
}

#[test]
fn files_come_and_go_during_flushes() {
    let cache = live_cache(1 << 20, 2);
    std::thread::scope(|scope| {
        for seed in 0..3u64 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..500u64 {
                    let file = TestFile::new(cache, Vec::new());
                    file.write(0, &vec![round as u8; 5000 + 40 * round as usize])
                        .unwrap();
                    if (round + seed) % 3 > 0 {
                        file.flush().unwrap();
                        assert!(!file.pages.is_dirty());
                    }
                }
            });
        }
    });
    // A flusher may still hold the last one.
    cache.stop_flushers();
    let stats = cache.stats();
    assert_eq!(
        (stats.nr_dirty, stats.nr_writeback, stats.nr_file_pages),
        (0, 0, 0)
    );
    assert_eq!(stats.nr_dirtied, stats.nr_written + stats.nr_lost);
}

/// Files move about in the list of dirty ones while they are synced; none is overlooked.
#[test]
fn sync_during_flushes_misses_nothing() {
    let cache = PageCache::new(eager(1 << 20), Arc::new(SystemClock)).unwrap();
    let file = TestFile::new(&cache, Vec::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    cache.flush_expired();
                }
            });
        }
        for round in 0..3000u64 {
            let data = round.to_string();
            file.write(round % 5 * BLOCK, data.as_bytes()).unwrap();
            file.write(7 * BLOCK, data.as_bytes()).unwrap();
            cache.sync_all().unwrap();
            assert!(!file.pages.is_dirty());
            let content = file.disk.content();
            assert!(content[7 * BLOCK as usize..].starts_with(data.as_bytes()));
        }
        stop.store(true, SeqCst);
    });
}
