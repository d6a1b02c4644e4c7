//! What is written when, and in how many runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use uext4_writeback::{Mapping, Place};

use crate::mapping::{Injected, TestFile, cache, live_cache, only, pattern};

#[test]
fn small_appends_are_written_in_one_run() {
    let (cache, _) = cache(16 << 20);
    let file = TestFile::new(&cache, Vec::new());
    let content = pattern(300_000, 1);
    for (index, part) in content.chunks(700).enumerate() {
        file.write(index as u64 * 700, part).unwrap();
    }
    assert!(
        file.pages.resident() <= 512 << 10,
        "{}",
        file.pages.resident()
    );
    file.flush().unwrap();
    assert_eq!(only(&file.disk.writes), 0..300_032);
    assert_eq!(file.disk.content(), content);
    assert!(file.disk.reads.lock().unwrap().is_empty());
    assert_eq!(cache.stats().nr_written, 300_032);
    assert_eq!(cache.stats().write_requests, 1);
}

#[test]
fn flush_writes_its_range_only() {
    let (cache, _) = cache(16 << 20);
    let file = TestFile::new(&cache, Vec::new());
    file.write(0, &pattern(100 << 10, 1)).unwrap();
    file.pages.flush(5000..9000).unwrap();
    assert_eq!(only(&file.disk.writes), 4096..9216);
    assert_eq!(file.pages.next_dirty(0), Some(0..4096));
    assert_eq!(file.pages.next_dirty(4096), Some(9216..100 << 10));
}

#[test]
fn old_files_are_written_first_and_young_ones_left() {
    let (cache, clock) = cache(16 << 20);
    let old = TestFile::new(&cache, Vec::new());
    let young = TestFile::new(&cache, Vec::new());
    old.write(0, b"old").unwrap();
    clock.advance(Duration::from_secs(29));
    young.write(0, b"young").unwrap();
    // Written again, but dirty since then.
    old.write(3, b"er").unwrap();
    cache.flush_expired();
    assert!(old.pages.is_dirty());
    clock.advance(Duration::from_secs(1));
    cache.flush_expired();
    assert!(!old.pages.is_dirty() && young.pages.is_dirty());
    assert_eq!(old.disk.content(), b"older");
    clock.advance(Duration::from_secs(29));
    cache.flush_expired();
    assert_eq!(cache.dirty_bytes(), 0);
}

#[test]
fn flushers_write_by_themselves() {
    let cache = live_cache(16 << 20, 2);
    let files: Vec<TestFile> = (0..20).map(|_| TestFile::new(&cache, Vec::new())).collect();
    for (index, file) in files.iter().enumerate() {
        file.write(0, &pattern(10_000, index as u64)).unwrap();
    }
    let mut waits = 0;
    while files.iter().any(|file| file.pages.is_dirty()) {
        std::thread::sleep(Duration::from_millis(2));
        waits += 1;
        assert!(waits < 5000);
    }
    for (index, file) in files.iter().enumerate() {
        assert_eq!(file.disk.content(), pattern(10_000, index as u64));
    }
    cache.stop_flushers();
}

#[test]
fn a_block_written_again_meanwhile_stays_dirty() {
    let (cache, _) = cache(16 << 20);
    let file = Arc::new(TestFile::new(&cache, Vec::new()));
    file.write(0, &[1; 8192]).unwrap();
    *file.disk.delay.lock().unwrap() = Duration::from_millis(50);
    let flusher = {
        let file = Arc::clone(&file);
        std::thread::spawn(move || file.flush().unwrap())
    };
    while cache.stats().nr_writeback == 0 {
        std::thread::yield_now();
    }
    // Neither writers nor readers wait, and reclaim keeps its hands off.
    file.write(100, &[2; 10]).unwrap();
    assert_eq!(file.pages.next_dirty(0), Some(0..1024));
    cache.scan(u64::MAX);
    cache.scan(u64::MAX);
    assert_eq!(file.read(95, 10).unwrap(), [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
    let still_writing = cache.stats().nr_writeback > 0;
    assert!(file.disk.reads.lock().unwrap().is_empty() || !still_writing);
    flusher.join().unwrap();
    assert_eq!(file.pages.dirty_bytes(), 1024);
    assert_eq!(file.disk.content(), [1; 8192]);
    *file.disk.delay.lock().unwrap() = Duration::ZERO;
    file.flush().unwrap();
    assert_eq!(file.disk.content()[95..112], file.read(95, 17).unwrap());
    assert!(!file.pages.is_dirty());
}

#[test]
fn truncation_waits_for_writeback() {
    let (cache, _) = cache(16 << 20);
    let file = Arc::new(TestFile::new(&cache, Vec::new()));
    file.write(0, &[1; 65536]).unwrap();
    *file.disk.delay.lock().unwrap() = Duration::from_millis(30);
    let flusher = {
        let file = Arc::clone(&file);
        std::thread::spawn(move || file.flush().unwrap())
    };
    while cache.stats().nr_writeback == 0 {
        std::thread::yield_now();
    }
    file.truncate(1500);
    assert_eq!(cache.stats().nr_writeback, 0);
    flusher.join().unwrap();
    assert_eq!(file.disk.content(), [1; 1500]);
    file.truncate(3000);
    assert_eq!(
        file.read(1490, 2000).unwrap()[..12],
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    );
}

#[test]
fn punched_edges_are_zeroed_and_written_only_if_they_held_something() {
    let (cache, _) = cache(16 << 20);
    let mut content = pattern(8192, 1);
    content[4096..].fill(0);
    let file = TestFile::new(&cache, content.clone());
    file.punch(500..6000).unwrap();
    assert_eq!(file.pages.next_dirty(0), Some(0..1024));
    assert_eq!(file.pages.next_dirty(1024), None);
    content[500..6000].fill(0);
    assert_eq!(file.read(0, 8192).unwrap(), content);
    file.flush().unwrap();
    assert_eq!(file.disk.content(), content);
}

/// Files of one device, which remembers in what order they were written.
struct Logged {
    number: u64,
    log: Arc<Mutex<Vec<u64>>>,
}

impl Mapping for Logged {
    type Error = Injected;

    fn read_blocks(&self, _: u64, buf: &mut [u8]) -> Result<(), Injected> {
        buf.fill(0);
        Ok(())
    }

    fn write_run(&self, _: u64, _: &[&[u8]]) -> Result<(), Injected> {
        self.log.lock().unwrap().push(self.number);
        Ok(())
    }
}

/// Writes files of these numbers and lengths, each at its place, and returns in what order they
/// were written back when all were old.
fn order_of(files: &[(u64, usize, Place)]) -> Vec<u64> {
    let (cache, clock) = cache(64 << 20);
    let log = Arc::new(Mutex::new(Vec::new()));
    let made: Vec<_> = files
        .iter()
        .map(|(number, len, place)| {
            let (number, log) = (*number, Arc::clone(&log));
            let mapping = Arc::new(Logged { number, log });
            let weak = Arc::downgrade(&mapping);
            let pages = cache.file_at(weak, *place);
            pages.write(0, &vec![1; *len], 0).unwrap();
            (mapping, pages)
        })
        .collect();
    assert!(log.lock().unwrap().is_empty());
    clock.advance(Duration::from_secs(31));
    cache.flush_expired();
    assert!(made.iter().all(|(_, pages)| !pages.is_dirty()));
    let log = log.lock().unwrap();
    log.clone()
}

#[test]
fn a_huge_file_does_not_keep_others_waiting() {
    let place = Place::default();
    let order = order_of(&[(1, 20 << 20, place), (2, 4096, place), (3, 4096, place)]);
    // The first has a turn, then the others, then the first again.
    let last = order.iter().rposition(|number| *number == 1).unwrap();
    for small in [2, 3] {
        let at = order.iter().position(|number| *number == small).unwrap();
        assert!(at < last, "{order:?}");
    }
    assert_eq!(order[0], 1);
}

#[test]
fn files_of_an_area_are_written_in_the_order_in_which_they_lie() {
    let place = |area, order| Place { area, order };
    let files: Vec<_> = [(30, 1), (10, 0), (20, 0), (40, 1), (15, 0)]
        .into_iter()
        .map(|(order, area)| (order, 4096, place(area, order)))
        .collect();
    assert_eq!(order_of(&files), [10, 15, 20, 30, 40]);
}
