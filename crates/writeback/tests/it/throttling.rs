//! Writers that are throttled, with real threads.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use uext4_blockdev::{Clock, SystemClock, VirtualClock};
use uext4_writeback::throttle::Class;
use uext4_writeback::{Cancel, DirtyLimits, Error, PageCache, Writer};

use crate::mapping::{BLOCK, Disk, Injected, TestFile, eager, live_cache, options, pattern};

/// Bytes dirty or under writeback, never more than there are: what was written is read last.
fn unwritten(cache: &PageCache<Injected>) -> u64 {
    let dirtied = cache.stats().nr_dirtied;
    dirtied.saturating_sub(cache.stats().nr_written)
}

/// Writes files of their own from `writers` threads at once, all of which start together.
fn write_all(cache: &PageCache<Injected>, writers: u64, len: usize) -> Vec<TestFile> {
    let start = Barrier::new(writers as usize);
    std::thread::scope(|scope| {
        let writer = |me: u64| {
            let start = &start;
            scope.spawn(move || {
                let file = TestFile::new(cache, Vec::new());
                let content = pattern(len, me);
                start.wait();
                for (index, part) in content.chunks(20_000).enumerate() {
                    let at = index as u64 * 20_000;
                    assert_eq!(file.write(at, part).unwrap(), part.len());
                }
                file
            })
        };
        let threads: Vec<_> = (0..writers).map(writer).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, TestFile>| thread.join().unwrap();
        threads.into_iter().map(join).collect()
    })
}

#[test]
fn all_is_written_that_many_threads_wrote() {
    let cache = live_cache(4 << 20, 2);
    let files = write_all(&cache, 16, 400_000);
    cache.sync_all().unwrap();
    for (me, file) in files.iter().enumerate() {
        assert!(file.disk.content() == pattern(400_000, me as u64));
    }
    let stats = cache.stats();
    assert_eq!((stats.nr_dirty, stats.nr_writeback), (0, 0));
    let bdi = cache.bdi_stats().bdi;
    assert_eq!((bdi.reclaimable, bdi.writeback), (0, 0));
    assert_eq!(cache.limits().domain().unwritten(), 0);
}

#[test]
fn a_sudden_start_of_64_writers_never_exceeds_the_limit() {
    let mut options = eager(16 << 20);
    options.tunables = "dirty_ratio=20,dirty_background_ratio=10".parse().unwrap();
    let cache = PageCache::new(options, Arc::new(SystemClock)).unwrap();
    cache.start_flushers(4).unwrap();
    let limit = cache.stats().nr_dirty_threshold;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while !stop.load(SeqCst) {
                peak = unwritten(&cache).max(peak);
                std::thread::yield_now();
            }
            peak
        });
        write_all(&cache, 64, 300_000);
        stop.store(true, SeqCst);
        let peak = watcher.join().unwrap();
        assert!(peak <= limit, "{peak} of {limit}");
        assert!(peak > limit / 4, "{peak} of {limit}");
    });
}

#[test]
fn little_memory_is_enough() {
    for memory in [64 * BLOCK, 64 << 20] {
        let cache = live_cache(memory, 1);
        let files = write_all(&cache, 4, 200_000);
        cache.sync_all().unwrap();
        for (me, file) in files.iter().enumerate() {
            assert!(file.disk.content() == pattern(200_000, me as u64));
        }
    }
}

/// Lets a device go on when it is dropped, and so before its flushers are waited for.
struct Release(Arc<Disk>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.stuck.store(false, SeqCst);
    }
}

/// A cache whose device takes nothing before it is let go, with nothing left to be made dirty.
fn stuck() -> (PageCache<Injected>, TestFile, Release) {
    let cache = live_cache(1 << 20, 1);
    let blocker = TestFile::new(&cache, Vec::new());
    blocker.disk.stuck.store(true, SeqCst);
    let release = Release(Arc::clone(&blocker.disk));
    let limit = cache.stats().nr_dirty_threshold;
    let cancel = Cancel::new();
    let mut writer = Writer::default().with_cancel(cancel.clone());
    cancel.cancel();
    let data = pattern(4096, 1);
    let mut at = 0;
    // Where the writer would have to wait, it is called off instead.
    while at < 2 * limit {
        match blocker.write_by(&mut writer, at, &data) {
            Ok(taken) if taken == data.len() => at += taken as u64,
            _ => break,
        }
    }
    (cache, blocker, release)
}

#[test]
fn a_thousand_throttled_writers_are_called_off_at_once() {
    const WRITERS: usize = 1000;
    let (cache, _blocker, _release) = stuck();
    let cancel = Cancel::new();
    let (ready, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for me in 0..WRITERS as u64 {
            let (cache, cancel, ready, ended) = (&cache, cancel.clone(), &ready, &ended);
            let body = move || {
                let file = TestFile::new(cache, Vec::new());
                let mut writer = Writer::default().with_cancel(cancel);
                ready.fetch_add(1, SeqCst);
                let mut error = None;
                for at in 0..1000 {
                    if let Err(e) = file.write_by(&mut writer, at * 4096, &pattern(4096, me)) {
                        error = Some(e);
                        break;
                    }
                }
                assert!(matches!(error, Some(Error::Cancelled)));
                ended.fetch_add(1, SeqCst);
            };
            let thread = std::thread::Builder::new().stack_size(128 << 10);
            thread.spawn_scoped(scope, body).unwrap();
        }
        while ready.load(SeqCst) < WRITERS || cache.stats().throttled < WRITERS as u64 / 2 {
            std::thread::yield_now();
        }
        // The device is at its first run, so no thread can end but by this.
        assert_eq!(ended.load(SeqCst), 0);
        cancel.cancel();
        while ended.load(SeqCst) < WRITERS {
            std::thread::yield_now();
        }
        assert!(cancel.is_cancelled());
        assert!(
            cache.stats().nr_writeback > 0,
            "the device had to come back"
        );
    });
}

#[test]
fn all_writers_of_a_cache_are_called_off() {
    let (cache, _blocker, _release) = stuck();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|me| {
                let cache = &cache;
                scope.spawn(move || {
                    let file = TestFile::new(cache, Vec::new());
                    let data = pattern(1 << 20, me);
                    file.write(0, &data).map(|taken| taken < data.len())
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            cache.cancel_writers();
            std::thread::sleep(Duration::from_millis(1));
        }
        for thread in threads {
            let short = thread.join().unwrap();
            assert!(matches!(short, Ok(true) | Err(Error::Cancelled)));
        }
    });
}

/// With limits in common, one device fails and then stalls: its writers get an error, those of the
/// other go on.
#[test]
fn a_dead_device_releases_its_writers_and_no_other_notices() {
    let options = eager(4 << 20);
    let limits = DirtyLimits::new(&options.tunables).unwrap();
    let open = || {
        let clock = Arc::new(SystemClock);
        let cache = PageCache::with_limits(options, clock, &limits).unwrap();
        cache.start_flushers(1).unwrap();
        cache
    };
    let (dead, alive) = (open(), open());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let file = TestFile::new(&dead, Vec::new());
            *file.disk.bad.lock().unwrap() = 0..u64::MAX;
            let data = pattern(64 << 10, 1);
            let seen = AtomicU64::new(file.pages.error_token());
            for at in 0..256u64 {
                // Where it only pauses, what is taken in is given up in the end.
                if let Err(error) = file.write(at * data.len() as u64, &data) {
                    assert!(matches!(error, Error::Mapping(_)));
                    break;
                }
            }
            assert!(file.pages.sync(0..u64::MAX, &seen).is_err());
        });
        write_all(&alive, 4, 1 << 20);
        writer.join().unwrap();
    });
    alive.sync_all().unwrap();
    drop(dead);
    write_all(&alive, 2, 1 << 20);
}

#[test]
fn a_stalled_device_is_named() {
    let clock = Arc::new(VirtualClock::new(0));
    let for_cache: Arc<dyn Clock> = clock.clone();
    let cache = PageCache::new(eager(1 << 20), for_cache).unwrap();
    cache.start_flushers(1).unwrap();
    let file = TestFile::new(&cache, Vec::new());
    file.disk.stuck.store(true, SeqCst);
    let _release = Release(Arc::clone(&file.disk));
    file.write(0, &pattern(300 << 10, 1)).unwrap();
    while cache.stats().nr_writeback == 0 {
        std::thread::yield_now();
    }
    // Nothing is written for longer than any thread has patience.
    let other = TestFile::new(&cache, Vec::new());
    let mut writer = Writer::default();
    let mut reported = None;
    for at in 0..400 {
        match other.write_paced(&mut writer, at * 4096, &pattern(4096, 2)) {
            Ok(_) => clock.advance(Duration::from_secs(1)),
            Err(error) => {
                reported = Some(error);
                break;
            }
        }
    }
    assert!(matches!(reported, Some(Error::Stalled)), "{reported:?}");
}

/// The pause comes as a value, and the writer comes back when it is over.
#[test]
fn pauses_are_returned_instead_of_slept() {
    let clock = Arc::new(VirtualClock::new(0));
    let for_cache: Arc<dyn Clock> = clock.clone();
    let mut options = options(8 << 20);
    // The device works in real time, of which little passes.
    options.tunables.wb_stall_ms = 0;
    let cache = PageCache::new(options, for_cache).unwrap();
    cache.start_flushers(1).unwrap();
    let file = TestFile::new(&cache, Vec::new());
    *file.disk.delay.lock().unwrap() = Duration::from_millis(1);
    let content = pattern(16 << 20, 3);
    let mut writer = Writer::new(Class::Normal);
    let (mut at, mut pauses) = (0, 0);
    while at < content.len() {
        let end = content.len().min(at + (128 << 10));
        let paced = file.write_paced(&mut writer, at as u64, &content[at..end]);
        let paced = paced.unwrap();
        at += paced.taken;
        assert!(at == end || !paced.pause.is_zero());
        if paced.pause.is_zero() {
            continue;
        }
        pauses += 1;
        assert!(paced.pause <= Duration::from_millis(200));
        // Too early: the rest of the pause, and nothing is taken.
        let again = file.write_paced(&mut writer, at as u64, b"x").unwrap();
        assert_eq!((again.taken, again.pause), (0, paced.pause));
        clock.advance(paced.pause);
        std::thread::yield_now();
    }
    assert!(pauses > 0);
    cache.sync_all().unwrap();
    assert!(file.disk.content() == content);
}

#[test]
fn tunables_change_while_it_runs() {
    let (cache, _) = crate::mapping::cache(10 << 20);
    let pages = |bytes: u64| bytes / 4096 * 4096;
    assert_eq!(cache.stats().nr_dirty_threshold, pages(5 << 20));
    cache.set_tunable("dirty_ratio", "20").unwrap();
    assert_eq!(cache.stats().nr_dirty_threshold, pages(2 << 20));
    // Above the limit it counts as half of it.
    cache.set_tunable("dirty_background_ratio", "30").unwrap();
    let half = cache.stats().nr_dirty_background_threshold;
    assert_eq!(half, pages(1 << 20));
    let error = cache.set_tunable("dirty_ratio", "101").unwrap_err();
    assert!(error.to_string().contains("1 to 100"), "{error}");
    for value in ["1", "much"] {
        let unknown = cache.set_tunable("dirty_rate", value);
        let error = unknown.unwrap_err().to_string();
        assert_eq!(error, format!("dirty_rate={value}: no such tunable"));
    }
    // Less memory, lower limits.
    cache.set_limit(5 << 20);
    assert_eq!(cache.stats().nr_dirty_threshold, pages(1 << 20));
    cache.set_tunable("dirty_bytes", "1048576").unwrap();
    cache.set_limit(10 << 20);
    assert_eq!(cache.stats().nr_dirty_threshold, 1 << 20);
}

#[test]
fn a_device_that_writes_has_its_part_of_the_limit() {
    let cache = PageCache::new(options(16 << 20), Arc::new(SystemClock)).unwrap();
    let file = TestFile::new(&cache, Vec::new());
    for round in 0..8 {
        file.write(0, &pattern(3 << 20, round)).unwrap();
        file.flush().unwrap();
    }
    let bdi = cache.bdi_stats().bdi;
    assert!(bdi.thresh > bdi.dirty_thresh / 3, "{bdi}");
}

#[test]
fn statistics_are_the_kernels_lines() {
    let (cache, _) = crate::mapping::cache(16 << 20);
    let files: Vec<TestFile> = (0..3).map(|_| TestFile::new(&cache, Vec::new())).collect();
    for file in &files {
        file.write(0, &pattern(64 << 10, 1)).unwrap();
    }
    let text = cache.bdi_stats().to_string();
    let names: Vec<&str> = text.lines().filter_map(|l| l.split(':').next()).collect();
    let wanted = [
        "BdiWriteback",
        "BdiReclaimable",
        "BdiDirtyThresh",
        "DirtyThresh",
        "BackgroundThresh",
        "BdiDirtied",
        "BdiWritten",
        "BdiWriteBandwidth",
    ];
    assert_eq!(names[..8], wanted);
    assert!(names.ends_with(&["b_dirty", "b_io", "b_more_io", "b_dirty_time"]));
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert_eq!((value("BdiReclaimable"), value("b_dirty")), (192, 3));
    cache.sync_all().unwrap();
    assert_eq!(cache.bdi_stats().b_dirty, 0);
}
