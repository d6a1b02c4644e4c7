//! How many requests reading takes.

use crate::mapping::{BLOCK, TestFile, cache, pattern};
use uext4_testkit::SplitMix64;

#[test]
fn sequential_reads_take_few_requests() {
    let (cache, _) = cache(64 << 20);
    let content = pattern(8 << 20, 1);
    let file = TestFile::new(&cache, content.clone());
    for (index, part) in content.chunks(4096).enumerate() {
        assert_eq!(file.read(index as u64 * 4096, 4096).unwrap(), part);
    }
    let reads = file.disk.reads.lock().unwrap();
    // Each block once, in order, in folios that grow to 256 KiB.
    assert!(reads.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert_eq!(reads.last().unwrap().end, 8 << 20);
    assert!(reads.len() <= 48, "{}", reads.len());
    let stats = cache.stats();
    assert_eq!(
        (stats.nr_read, stats.read_requests),
        (8 << 20, reads.len() as u64)
    );
}

#[test]
fn two_streams_do_not_disturb_each_other() {
    let (cache, _) = cache(64 << 20);
    let file = TestFile::new(&cache, pattern(8 << 20, 1));
    for at in (0..4u64 << 20).step_by(8192) {
        file.read(at, 8192).unwrap();
        file.read(at + (4 << 20), 8192).unwrap();
    }
    assert!(file.disk.reads.lock().unwrap().len() <= 64);
}

#[test]
fn random_reads_read_what_they_want() {
    let (cache, _) = cache(64 << 20);
    let file = TestFile::new(&cache, pattern(8 << 20, 1));
    let mut random = SplitMix64::new(1);
    for _ in 0..200 {
        file.read(random.below(8 << 10) * BLOCK, 1024).unwrap();
    }
    let stats = cache.stats();
    assert!(stats.nr_read <= 230 * BLOCK, "{}", stats.nr_read);
}

#[test]
fn small_files_take_one_request_and_little_memory() {
    let (cache, _) = cache(64 << 20);
    let file = TestFile::new(&cache, pattern(3000, 1));
    assert_eq!(file.read(0, 1 << 20).unwrap(), pattern(3000, 1));
    // Three blocks: a folio of two and one of one.
    assert_eq!(*file.disk.reads.lock().unwrap(), [0..2048, 2048..3072]);
    assert_eq!(file.pages.resident(), 3072);
    assert_eq!(file.read(3000, 5).unwrap(), [0u8; 0]);
}
