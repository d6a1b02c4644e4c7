//! Reads that keep nothing of what they read.

use std::sync::atomic::Ordering::SeqCst;

use crate::mapping::{BLOCK, TestFile, cache, only, pattern};

const MEMORY: u64 = 64 << 20;
const LEN: usize = 300_000;
/// The blocks that this many bytes take.
const BLOCKS: u64 = (LEN as u64).next_multiple_of(BLOCK);

#[test]
fn nothing_of_it_stays() {
    let (cache, _) = cache(MEMORY);
    let content = pattern(LEN, 1);
    let file = TestFile::new(&cache, content.clone());
    for _ in 0..2 {
        assert!(file.read_uncached(0, LEN, BLOCK as usize).unwrap() == content);
        assert!(file.read_uncached(7 * BLOCK, 9000, 1000).unwrap() == content[7168..16_168]);
    }
    assert_eq!((file.pages.resident(), cache.resident()), (0, 0));
    let read = [0..BLOCKS, 7168..7168 + 9216];
    assert_eq!(file.disk.reads.lock().unwrap()[..2], read);
    let stats = cache.stats();
    assert_eq!(
        (stats.nr_read, stats.read_requests),
        (2 * (BLOCKS + 9216), 4)
    );
    assert_eq!(file.read_uncached(LEN as u64, 10, 4096).unwrap(), []);
    assert_eq!(file.read_uncached(1 << 62, 10, 4096).unwrap(), []);
}

#[test]
fn a_mebibyte_is_read_at_once() {
    let (cache, _) = cache(MEMORY);
    let content = pattern(5 << 19, 2);
    let file = TestFile::new(&cache, content.clone());
    assert!(file.read_uncached(0, 4 << 20, 0).unwrap() == content);
    let mib = 1 << 20;
    let reads = [0..mib, mib..2 * mib, 2 * mib..5 * mib / 2];
    assert_eq!(*file.disk.reads.lock().unwrap(), reads);
}

/// Of the last block of the file a part is wanted, and the buffer has room for that part or for
/// all.
#[test]
fn a_last_block_needs_space_or_stays() {
    for (room, kept) in [(1023, 0), (1022, BLOCK), (0, BLOCK)] {
        let (cache, _) = cache(MEMORY);
        let content = pattern(8 * BLOCK as usize + 1, 3);
        let file = TestFile::new(&cache, content.clone());
        assert!(file.read_uncached(0, content.len(), room).unwrap() == content);
        assert_eq!(file.pages.resident(), kept, "with {room} bytes of room");
    }
}

#[test]
fn blocks_read_in_part_are_cached_and_others_are_not() {
    let (cache, _) = cache(MEMORY);
    let content = pattern(LEN, 4);
    let file = TestFile::new(&cache, content.clone());
    for _ in 0..2 {
        let read = file.read_uncached(1500, 10_000, 0).unwrap();
        assert!(read == content[1500..11_500]);
    }
    assert_eq!(file.pages.resident(), 2 * BLOCK);
    let reads = [1024..2048, 2048..11_264, 11_264..12_288, 2048..11_264];
    assert_eq!(*file.disk.reads.lock().unwrap(), reads);
}

#[test]
fn dirty_blocks_come_from_the_cache() {
    let (cache, _) = cache(MEMORY);
    let mut content = pattern(LEN, 5);
    let file = TestFile::new(&cache, content.clone());
    for at in [0, 50 * BLOCK, 51 * BLOCK, 100 * BLOCK] {
        let data = pattern(BLOCK as usize, at);
        file.write(at, &data).unwrap();
        content[at as usize..][..BLOCK as usize].copy_from_slice(&data);
    }
    let resident = file.pages.resident();
    assert!(file.read_uncached(0, LEN, BLOCK as usize).unwrap() == content);
    assert_eq!(file.pages.resident(), resident);
    let reads = [
        BLOCK..50 * BLOCK,
        52 * BLOCK..100 * BLOCK,
        101 * BLOCK..BLOCKS,
    ];
    assert_eq!(*file.disk.reads.lock().unwrap(), reads);
}

#[test]
fn a_hole_is_zero_and_so_is_what_lies_past_the_end() {
    let (cache, _) = cache(MEMORY);
    let file = TestFile::new(&cache, vec![]);
    file.write(100 * BLOCK, &[1; 10]).unwrap();
    let mut expected = vec![0; 100 * BLOCK as usize];
    expected.extend([1; 10]);
    assert!(file.read_uncached(0, LEN, 0).unwrap() == expected);
    assert_eq!(file.pages.resident(), BLOCK);
}

#[test]
fn a_write_meanwhile_wins() {
    let (cache, _) = cache(MEMORY);
    let mut content = pattern(LEN, 6);
    let file = TestFile::new(&cache, content.clone());
    // A part of one block, for which the block is read, and some whole ones.
    let read = file.read_uncached_with(0, LEN, |_| {
        file.write(5000, &[7; 100]).unwrap();
        file.write(100 * BLOCK, &[8; 4096]).unwrap();
    });
    content[5000..5100].fill(7);
    content[102_400..106_496].fill(8);
    assert!(read.unwrap() == content);
    assert_eq!(file.disk.reads.lock().unwrap().len(), 2);
}

/// Once what was written is on the device and gone from the cache, what was read before is too old.
#[test]
fn a_write_that_is_evicted_meanwhile_wins() {
    let (cache, _) = cache(MEMORY);
    let mut content = pattern(LEN, 7);
    let file = TestFile::new(&cache, content.clone());
    let read = file.read_uncached_with(0, LEN, |_| {
        file.write(100 * BLOCK, &[9; 4096]).unwrap();
        file.flush().unwrap();
        cache.scan(u64::MAX);
        cache.scan(u64::MAX);
        assert_eq!(file.pages.resident(), 0);
    });
    content[102_400..106_496].fill(9);
    assert!(read.unwrap() == content);
    assert_eq!(file.pages.resident(), 0);
    // It began again, with one block, then ever more.
    let reads = file.disk.reads.lock().unwrap();
    assert_eq!(reads[..4], [0..BLOCKS, 0..1024, 1024..3072, 3072..7168]);
}

#[test]
fn a_write_back_that_fails_for_good_meanwhile_shows_what_the_device_has() {
    let (cache, clock) = cache(MEMORY);
    let content = pattern(LEN, 8);
    let file = TestFile::new(&cache, content.clone());
    *file.disk.bad.lock().unwrap() = 0..u64::MAX;
    let read = file.read_uncached_with(0, LEN, |_| {
        file.write(100 * BLOCK, &[9; 4096]).unwrap();
        while file.pages.is_dirty() {
            clock.advance(std::time::Duration::from_secs(2));
            file.flush().unwrap_err();
        }
    });
    assert!(read.unwrap() == content);
}

#[test]
fn a_truncation_meanwhile_shows_zeroes() {
    let (cache, _) = cache(MEMORY);
    let mut content = pattern(LEN, 9);
    let file = TestFile::new(&cache, content.clone());
    let read = file.read_uncached_with(0, LEN, |_| {
        file.truncate(1500);
        // Longer again, and others' blocks may be where its own were.
        file.truncate(LEN as u64);
    });
    content[1500..].fill(0);
    assert!(read.unwrap() == content);
    let read = file.read_uncached_with(0, LEN, |_| file.punch(0..1200).unwrap());
    content[..1200].fill(0);
    assert!(read.unwrap() == content);
}

#[test]
fn an_error_ends_it_at_the_block_that_is_bad() {
    let (cache, _) = cache(MEMORY);
    let content = pattern(LEN, 10);
    let file = TestFile::new(&cache, content.clone());
    for bad in [1, 2, 100, 255, 292] {
        let start = bad * BLOCK;
        *file.disk.bad_reads.lock().unwrap() = start..start + 1;
        let read = file.read_uncached(0, LEN, BLOCK as usize).unwrap();
        assert!(read == content[..start as usize], "{bad}: {}", read.len());
        file.read_uncached(start, LEN, BLOCK as usize).unwrap_err();
        file.read_uncached(start + 5, 10, 0).unwrap_err();
        let after = file.read_uncached(start + BLOCK, 100, 2000).unwrap();
        let from = (start + BLOCK) as usize;
        let some = &content[from.min(LEN)..(from + 100).min(LEN)];
        assert!(after == some);
    }
    assert_eq!(file.pages.resident(), 0);
    file.disk.fail_reads.store(true, SeqCst);
    file.read_uncached(0, LEN, 0).unwrap_err();
    // Nothing waits for what failed.
    file.disk.fail_reads.store(false, SeqCst);
    *file.disk.bad_reads.lock().unwrap() = 0..0;
    assert!(file.read(0, LEN).unwrap() == content);
}

#[test]
fn many_readers_share_one_load_without_delaying_others() {
    let (cache, _) = cache(MEMORY);
    let content = pattern(LEN, 11);
    let file = TestFile::new(&cache, content.clone());
    let read = file.read_uncached_with(0, LEN, |_| {
        // Each of these would wait for ever.
        assert!(file.read_uncached(0, LEN, BLOCK as usize).unwrap() == content);
        assert!(file.read(0, 4096).unwrap() == content[..4096]);
    });
    assert!(read.unwrap() == content);
}

#[test]
fn a_file_without_a_mapping_says_so() {
    let (cache, _) = cache(MEMORY);
    let file = TestFile::new(&cache, pattern(LEN, 12));
    file.write(0, &[1; 1024]).unwrap();
    assert_eq!(file.read_uncached(0, 1000, 0).unwrap(), [1; 1000]);
    file.flush().unwrap();
    assert_eq!(only(&file.disk.writes), 0..1024);
    let TestFile { disk, pages } = file;
    drop(disk);
    let mut buf = vec![0; LEN];
    assert_eq!(pages.read_uncached(0, &mut buf, LEN as u64).unwrap(), 1024);
    pages.read_uncached(1024, &mut buf, LEN as u64).unwrap_err();
}
