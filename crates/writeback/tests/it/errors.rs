//! Injected errors: who hears of them, and what becomes of the data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use uext4_blockdev::{Clock, SystemClock, VirtualClock};
use uext4_writeback::{Error, FAILURES_MAX, PageCache};

use crate::mapping::{BLOCK, TestFile, cache, eager, live_cache, only, pattern};

#[test]
fn what_cannot_be_read_is_an_error_then_a_short_read() {
    let (cache, _) = cache(4 << 20);
    let content = pattern(64 << 10, 1);
    let file = TestFile::new(&cache, content.clone());
    file.disk.fail_reads.store(true, SeqCst);
    assert!(matches!(file.read(0, 100), Err(Error::Mapping(_))));
    // A part of a block cannot be written without the rest of it; whole blocks can.
    assert!(matches!(file.write(10, b"x"), Err(Error::Mapping(_))));
    assert_eq!(file.write(4096, &content[..5000]).unwrap(), 4096);
    assert_eq!(file.read(4096, 10_000).unwrap(), content[..4096]);
    file.disk.fail_reads.store(false, SeqCst);
    assert_eq!(file.read(0, 4096).unwrap(), content[..4096]);
    assert_eq!(file.write(10, b"x").unwrap(), 1);
}

#[test]
fn a_failed_run_stays_dirty_and_is_reported_once_to_each() {
    let (cache, clock) = cache(4 << 20);
    let file = TestFile::new(&cache, Vec::new());
    let content = pattern(64 << 10, 1);
    file.write(0, &content).unwrap();
    let (mut one, two) = (file.pages.error_token(), file.pages.error_token());
    let two = AtomicU64::new(two);
    *file.disk.bad.lock().unwrap() = 8192..8193;
    clock.advance(Duration::from_secs(40));
    cache.flush_expired();
    // The run is one: all of it failed.
    assert_eq!(file.pages.dirty_bytes(), 64 << 10);
    assert!(file.pages.error_since(&mut one).is_err());
    assert!(file.pages.error_since(&mut one).is_ok());
    assert_eq!(file.read(0, content.len()).unwrap(), content);
    *file.disk.bad.lock().unwrap() = 0..0;
    file.flush().unwrap();
    assert!(file.pages.sync(0..10, &two).is_err());
    assert!(file.pages.sync(0..10, &two).is_ok());
    assert!(!file.pages.is_dirty());
    assert_eq!(file.disk.content(), content);
}

#[test]
fn good_blocks_are_written_between_failing_ones() {
    let (cache, _) = cache(4 << 20);
    let file = TestFile::new(&cache, vec![0; 64 << 10]);
    for at in [0, 16 << 10, 32 << 10] {
        file.write(at, &pattern(2048, at)).unwrap();
    }
    *file.disk.bad.lock().unwrap() = 16 << 10..(16 << 10) + 1;
    assert!(file.flush().is_err());
    assert_eq!(file.pages.next_dirty(0), Some(16 << 10..18 << 10));
    assert_eq!(file.pages.next_dirty(17 << 10), Some(17 << 10..18 << 10));
    assert_eq!(
        file.disk.content()[32 << 10..34 << 10],
        pattern(2048, 32 << 10)
    );
    // What is asked for is all good.
    file.pages.flush(0..16 << 10).unwrap();
    assert!(file.pages.flush(16 << 10..20 << 10).is_err());
}

#[test]
fn a_dead_device_is_given_up_in_the_end() {
    let (cache, _) = cache(4 << 20);
    let file = TestFile::new(&cache, pattern(32 << 10, 3));
    file.write(BLOCK, &[0xAA; 4096]).unwrap();
    *file.disk.bad.lock().unwrap() = 0..u64::MAX;
    let mut passes = 0;
    while file.pages.is_dirty() {
        assert!(cache.sync_all().is_err());
        passes += 1;
    }
    assert_eq!(passes, FAILURES_MAX);
    assert_eq!(only(&file.disk.lost), BLOCK..BLOCK + 4096);
    assert_eq!(cache.stats().nr_lost, 4096);
    cache.sync_all().unwrap();
    assert_eq!(file.pages.next_unwritten(0), None);
    // What is read now is what the device has.
    assert_eq!(file.read(0, 32 << 10).unwrap(), pattern(32 << 10, 3));
}

/// Flushers give a file up: each who syncs all files is informed once, whether it is dirty then
/// or not.
#[test]
fn data_that_flushers_give_up_are_reported_to_sync() {
    let (cache, clock) = cache(4 << 20);
    let file = TestFile::new(&cache, Vec::new());
    let (one, two) = (cache.error_token(), cache.error_token());
    let (one, two) = (AtomicU64::new(one), AtomicU64::new(two));
    file.write(0, &pattern(8192, 1)).unwrap();
    *file.disk.bad.lock().unwrap() = 0..u64::MAX;
    for _ in 0..FAILURES_MAX {
        assert!(file.pages.is_dirty());
        clock.advance(Duration::from_secs(40));
        cache.flush_expired();
    }
    assert!(!file.pages.is_dirty());
    *file.disk.bad.lock().unwrap() = 0..0;
    assert!(matches!(cache.error_since(&one), Err(Error::Mapping(_))));
    cache.error_since(&one).unwrap();
    assert!(matches!(cache.error_since(&two), Err(Error::Mapping(_))));
    cache.error_since(&two).unwrap();
    // A thread knows: it is no news to a caller that comes now.
    cache
        .error_since(&AtomicU64::new(cache.error_token()))
        .unwrap();
}

#[test]
fn blocks_under_writeback_differ_from_clean_ones() {
    let (cache, _) = cache(4 << 20);
    let file = TestFile::new(&cache, Vec::new());
    file.write(0, &pattern(8192, 1)).unwrap();
    file.write(16 << 10, &pattern(4096, 1)).unwrap();
    file.disk.stuck.store(true, SeqCst);
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| file.flush());
        while file.pages.next_dirty(0).is_some() {
            std::thread::yield_now();
        }
        let written = file.write(8192, &pattern(BLOCK as usize, 2));
        let unwritten = [0, 5000, 9 << 10, 17 << 10].map(|at| file.pages.next_unwritten(at));
        file.disk.stuck.store(false, SeqCst);
        written.unwrap();
        assert_eq!(
            unwritten,
            [
                Some(0..9 << 10),
                Some(5000..9 << 10),
                Some(16 << 10..20 << 10),
                Some(17 << 10..20 << 10)
            ]
        );
        flusher.join().unwrap().unwrap();
    });
    assert_eq!(file.pages.next_unwritten(0), Some(8192..9 << 10));
}

#[test]
fn writers_get_the_error_instead_of_waiting_for_ever() {
    for flushers in [0, 1, 2] {
        let memory = 1 << 20;
        let cache = live_cache(memory, flushers);
        let file = TestFile::new(&cache, Vec::new());
        *file.disk.bad.lock().unwrap() = 0..u64::MAX;
        let data = pattern(64 << 10, 1);
        let mut failed = 0;
        for at in 0..64u64 {
            let at = at * data.len() as u64;
            match file.write(at, &data) {
                Ok(len) if len == data.len() => {}
                Ok(_) => failed += 1,
                Err(error) => {
                    assert!(matches!(error, Error::Mapping(_)));
                    failed += 1;
                }
            }
            if failed > 1 {
                break;
            }
        }
        assert!(failed > 0, "{flushers}");
        assert!(cache.resident() <= memory + memory / 10);
        // The device comes back: so do the writers.
        *file.disk.bad.lock().unwrap() = 0..0;
        file.flush().unwrap();
        assert_eq!(file.write(0, &data).unwrap(), data.len());
    }
}

/// One bad file: who writes others, with a flusher at each or with none, is not reported.
#[test]
fn a_failing_file_does_not_affect_writers_of_others() {
    for flushers in [0, 3] {
        let cache = PageCache::new(eager(4 << 20), Arc::new(SystemClock)).unwrap();
        cache.start_flushers(flushers).unwrap();
        let bad = TestFile::new(&cache, Vec::new());
        let good = TestFile::new(&cache, Vec::new());
        *bad.disk.bad.lock().unwrap() = 0..u64::MAX;
        *good.disk.delay.lock().unwrap() = Duration::from_millis(1);
        bad.write(0, &pattern(256 << 10, 1)).unwrap();
        let data = pattern(64 << 10, 2);
        for at in 0..256 {
            let len = good.write(at * data.len() as u64, &data);
            assert!(matches!(len, Ok(65_536)), "{flushers} flushers: {len:?}");
        }
    }
}

/// Flushers try again and again within the same second: nothing is given up for that.
#[test]
fn failed_passes_count_once_a_second() {
    let clock = Arc::new(VirtualClock::new(0));
    let for_cache: Arc<dyn Clock> = clock.clone();
    let cache = PageCache::new(eager(4 << 20), for_cache).unwrap();
    let file = TestFile::new(&cache, Vec::new());
    *file.disk.bad.lock().unwrap() = 0..u64::MAX;
    file.write(0, &pattern(8192, 1)).unwrap();
    for second in 0..FAILURES_MAX {
        for _ in 0..20 {
            assert!(second + 1 == FAILURES_MAX || file.pages.is_dirty());
            cache.flush_expired();
            clock.advance(Duration::from_millis(49));
        }
        clock.advance(Duration::from_millis(20));
    }
    assert!(!file.pages.is_dirty());
}

#[test]
fn a_file_without_its_mapping_is_gone() {
    let (cache, _) = cache(4 << 20);
    let file = TestFile::new(&cache, pattern(5000, 1));
    file.write(0, &[1; 2048]).unwrap();
    let TestFile { disk, pages } = file;
    drop(disk);
    let mut buf = [0; 100];
    assert_eq!(pages.read(0, &mut buf, 5000).unwrap(), 100);
    assert!(matches!(pages.read(3000, &mut buf, 5000), Err(Error::Gone)));
    assert!(matches!(pages.flush(0..100), Err(Error::Gone)));
    // Writers of other files do not hear of it.
    assert!(!pages.is_dirty());
    drop(pages);
    let stats = cache.stats();
    assert_eq!((stats.nr_dirty, stats.nr_lost), (0, 2048));
    cache.sync_all().unwrap();
    let seen = AtomicU64::new(0);
    assert!(matches!(cache.error_since(&seen), Err(Error::Gone)));
    cache.error_since(&seen).unwrap();
}

#[test]
fn offsets_past_all_files_are_refused() {
    let (cache, _) = cache(4 << 20);
    let file = TestFile::new(&cache, Vec::new());
    for offset in [u64::MAX, 1 << 62, (1 << 62) - 1] {
        let error = file.pages.write(offset, b"ab", 0).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }));
    }
    let mut buf = [0; 8];
    assert_eq!(file.pages.read(u64::MAX, &mut buf, u64::MAX).unwrap(), 0);
    file.pages.truncate(u64::MAX);
    file.pages.discard(5..u64::MAX).unwrap();
    file.pages.flush(u64::MAX - 1..u64::MAX).unwrap();
    assert_eq!(file.pages.next_dirty(u64::MAX), None);
}
