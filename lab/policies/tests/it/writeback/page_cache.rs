//! The page cache with each design, with real threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{scope, sleep, yield_now};
use std::time::Duration;

use uext4_blockdev::{Clock, SystemClock, VirtualClock};
use uext4_lab_policies::writeback::Mode;
use uext4_ondisk::BlockSize;
use uext4_writeback::{Error, FilePages, Mapping, Options, PageCache, Writer};

#[derive(Debug, thiserror::Error)]
#[error("injected")]
struct Injected;

/// A device of one file.
#[derive(Default)]
struct Disk {
    bytes: Mutex<Vec<u8>>,
    /// How long a run takes.
    delay: Duration,
    /// No run can be written.
    fails: AtomicBool,
    /// No run ends as long as this is set.
    is_stuck: AtomicBool,
    /// A run that is stuck reports as many parts as are let, and has reported so many.
    let_parts: AtomicU64,
    parts: AtomicU64,
}

impl Mapping for Disk {
    type Error = Injected;

    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> Result<(), Injected> {
        let bytes = self.bytes.lock().unwrap();
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min(start + buf.len());
        buf.fill(0);
        buf[..end - start].copy_from_slice(&bytes[start..end]);
        Ok(())
    }

    fn write_run(&self, offset: u64, run: &[&[u8]]) -> Result<(), Injected> {
        self.write_run_reporting(offset, run, &|| {})
    }

    fn write_run_reporting(
        &self,
        offset: u64,
        run: &[&[u8]],
        report: &dyn Fn(),
    ) -> Result<(), Injected> {
        sleep(self.delay);
        while self.is_stuck.load(SeqCst) {
            if self.let_parts.load(SeqCst) > self.parts.load(SeqCst) {
                report();
                self.parts.fetch_add(1, SeqCst);
            }
            sleep(Duration::from_micros(100));
        }
        if self.fails.load(SeqCst) {
            return Err(Injected);
        }
        let run = run.concat();
        let mut bytes = self.bytes.lock().unwrap();
        let (start, end) = (offset as usize, offset as usize + run.len());
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(&run);
        Ok(())
    }
}

struct File {
    disk: Arc<Disk>,
    pages: FilePages<Injected>,
}

impl File {
    fn new(cache: &PageCache<Injected>, disk: Disk) -> Self {
        let disk = Arc::new(disk);
        let weak = Arc::downgrade(&disk);
        let pages = cache.file(weak);
        Self { disk, pages }
    }

    /// Appends: nothing is ever read for it.
    fn write(&self, at: u64, data: &[u8]) -> Result<usize, Error<Injected>> {
        self.pages.write(at, data, at)
    }

    /// What of a content, padded to whole blocks, is not on the device.
    fn assert_holds(&self, content: &[u8]) {
        let bytes = self.disk.bytes.lock().unwrap();
        assert!(bytes.len() >= content.len() && bytes[..content.len()] == *content);
    }
}

/// Lets a device go on when it is dropped, and so before its flushers are waited for.
struct Release(Arc<Disk>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.is_stuck.store(false, SeqCst);
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let hash = |i: u64| (i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (0..len as u64).map(|i| hash(i) as u8 | 1).collect()
}

/// For flushers that wake often and find everything old enough.
fn options(memory_max: u64) -> Options {
    let tunables = "dirty_ratio=50,dirty_background_ratio=10,\
                    dirty_writeback_centisecs=1,dirty_expire_centisecs=0";
    Options {
        tunables: tunables.parse().unwrap(),
        ..Options::with_memory(BlockSize::MIN, memory_max)
    }
}

fn open(mode: Mode, options: Options, clock: Arc<dyn Clock>) -> PageCache<Injected> {
    let limits = mode.limits(&options.tunables).unwrap();
    let cache = PageCache::with_limits(options, clock, &limits).unwrap();
    cache.start_flushers(1).unwrap();
    cache
}

/// Writes files from threads that start together, and checks what is on their devices.
fn write_all(cache: &PageCache<Injected>, writers: u64, len: usize) {
    let start = Barrier::new(writers as usize);
    scope(|scope| {
        for me in 0..writers {
            let start = &start;
            scope.spawn(move || {
                let file = File::new(cache, Disk::default());
                let content = pattern(len, me);
                start.wait();
                for (index, part) in content.chunks(20_000).enumerate() {
                    let at = index as u64 * 20_000;
                    // The last block of what was written before is there.
                    assert_eq!(file.pages.write(at, part, at).unwrap(), part.len());
                }
                file.pages.flush(0..u64::MAX).unwrap();
                file.assert_holds(&content);
            });
        }
    });
}

#[test]
fn all_is_written_that_many_threads_wrote() {
    for mode in Mode::ALL {
        for memory in [64 << 10, 4 << 20, 64 << 20] {
            let cache = open(mode, options(memory), Arc::new(SystemClock));
            cache.start_flushers(1).unwrap();
            write_all(&cache, 8, 400_000);
            cache.sync_all().unwrap();
            let stats = cache.stats();
            assert_eq!((stats.nr_dirty, stats.nr_writeback), (0, 0), "{mode}");
            let bdi = cache.bdi_stats().bdi;
            assert_eq!((bdi.reclaimable, bdi.writeback), (0, 0), "{mode}");
            assert_eq!(cache.limits().domain().unwritten(), 0, "{mode}");
        }
    }
}

#[test]
fn a_device_that_writes_has_its_part_of_the_limit() {
    for mode in Mode::ALL {
        let cache = open(mode, options(16 << 20), Arc::new(SystemClock));
        let file = File::new(&cache, Disk::default());
        for round in 0..8 {
            file.write(0, &pattern(3 << 20, round)).unwrap();
            file.pages.flush(0..u64::MAX).unwrap();
        }
        let bdi = cache.bdi_stats().bdi;
        assert!(bdi.thresh > bdi.dirty_thresh / 3, "{mode}: {bdi}");
    }
}

/// The pause comes as a value, and the writer comes back when it is over.
#[test]
fn pauses_are_values_where_the_writer_does_not_write_itself() {
    for mode in Mode::ALL.into_iter().filter(|mode| *mode != Mode::Vanilla) {
        let clock = Arc::new(VirtualClock::new(0));
        let mut options = options(8 << 20);
        // The device works in real time, of which little passes.
        options.tunables.wb_stall_ms = 0;
        let cache = open(mode, options, clock.clone());
        let slow = Disk {
            delay: Duration::from_millis(1),
            ..Disk::default()
        };
        let file = File::new(&cache, slow);
        let content = pattern(16 << 20, 3);
        let mut writer = Writer::default();
        let (mut at, mut pauses) = (0, 0);
        while at < content.len() {
            let end = content.len().min(at + (128 << 10));
            let mut write = |at: usize, data: &[u8]| {
                let at = at as u64;
                file.pages.write_paced(&mut writer, at, data, at).unwrap()
            };
            let paced = write(at, &content[at..end]);
            at += paced.taken;
            assert!(at == end || !paced.pause.is_zero(), "{mode}");
            if paced.pause.is_zero() {
                continue;
            }
            pauses += 1;
            assert!(paced.pause <= Duration::from_millis(200), "{mode}");
            // Too early: the rest of the pause, and nothing is taken.
            let again = write(at, b"x");
            assert_eq!((again.taken, again.pause), (0, paced.pause), "{mode}");
            clock.advance(paced.pause);
            yield_now();
        }
        assert!(pauses > 0, "{mode}");
        cache.sync_all().unwrap();
        file.assert_holds(&content);
    }
}

/// With limits in common, one device fails and then is gone: its writers get an error, those of the
/// other go on.
#[test]
fn a_failing_device_releases_its_writers_and_no_other_notices() {
    for mode in Mode::ALL {
        let options = options(4 << 20);
        let limits = mode.limits(&options.tunables).unwrap();
        let open = || {
            let clock = Arc::new(SystemClock);
            let cache = PageCache::with_limits(options, clock, &limits).unwrap();
            cache.start_flushers(1).unwrap();
            cache
        };
        let (dead, alive) = (open(), open());
        scope(|scope| {
            let writer = scope.spawn(|| {
                let file = File::new(&dead, Disk::default());
                file.disk.fails.store(true, SeqCst);
                let data = pattern(64 << 10, 1);
                let seen = AtomicU64::new(file.pages.error_token());
                for at in 0..256u64 {
                    // Where it only pauses, what is taken in is given up in the end.
                    if let Err(error) = file.write(at * data.len() as u64, &data) {
                        assert!(matches!(error, Error::Mapping(_)), "{mode}");
                        break;
                    }
                }
                assert!(file.pages.sync(0..u64::MAX, &seen).is_err(), "{mode}");
            });
            write_all(&alive, 4, 1 << 20);
            writer.join().unwrap();
        });
        alive.sync_all().unwrap();
        drop(dead);
        write_all(&alive, 2, 1 << 20);
    }
}

/// A device under whose hands everything stops, with some under writeback.
fn stuck(cache: &PageCache<Injected>) -> (File, Release) {
    let file = File::new(cache, Disk::default());
    file.disk.is_stuck.store(true, SeqCst);
    let release = Release(Arc::clone(&file.disk));
    file.write(0, &pattern(300 << 10, 1)).unwrap();
    while cache.stats().nr_writeback == 0 {
        yield_now();
    }
    (file, release)
}

/// A page a second until the first error.
fn write_until_error(
    file: &File,
    clock: &VirtualClock,
    pages: std::ops::Range<u64>,
) -> Option<Error<Injected>> {
    let mut writer = Writer::default();
    pages.into_iter().find_map(|page| {
        clock.advance(Duration::from_secs(1));
        let (at, data) = (page * 4096, pattern(4096, 2));
        file.pages.write_paced(&mut writer, at, &data, at).err()
    })
}

#[test]
fn a_stalled_device_is_reported_as_such() {
    for mode in Mode::ALL {
        let clock = Arc::new(VirtualClock::new(0));
        let cache = open(mode, options(1 << 20), clock.clone());
        let (_file, _release) = stuck(&cache);
        let other = File::new(&cache, Disk::default());
        let error = write_until_error(&other, &clock, 0..400);
        assert!(matches!(error, Some(Error::Stalled)), "{mode}: {error:?}");
    }
}

#[test]
fn a_run_that_takes_minutes_is_no_stall_while_its_parts_are_reported() {
    for mode in Mode::ALL.into_iter().filter(|mode| *mode != Mode::Vanilla) {
        let clock = Arc::new(VirtualClock::new(0));
        let cache = open(mode, options(1 << 20), clock.clone());
        let (slow, _release) = stuck(&cache);
        let other = File::new(&cache, Disk::default());
        // Ten minutes, and nothing is completed; a part every twenty seconds.
        for part in 0..30 {
            let pages = part * 20..(part + 1) * 20;
            let error = write_until_error(&other, &clock, pages);
            assert!(error.is_none(), "{mode}: {error:?}");
            slow.disk.let_parts.store(part + 1, SeqCst);
            while slow.disk.parts.load(SeqCst) <= part {
                yield_now();
            }
        }
        // Then none any more.
        let error = write_until_error(&other, &clock, 600..800);
        assert!(matches!(error, Some(Error::Stalled)), "{mode}: {error:?}");
    }
}

/// By the designs that stop a writer after its bytes are in, for which the write succeeded: the
/// bytes are not lost, so no sync says so.
#[test]
fn a_stall_after_all_was_taken_in_is_reported_to_writers_and_to_no_sync() {
    for mode in [Mode::Ioless, Mode::IolessFixed, Mode::Mainline] {
        let clock = Arc::new(VirtualClock::new(0));
        let cache = open(mode, options(1 << 20), clock.clone());
        let (_bad, release) = stuck(&cache);
        let file = File::new(&cache, Disk::default());
        let tokens = [(); 3].map(|()| file.pages.error_token());
        scope(|scope| {
            let writer = scope.spawn(|| {
                let mut taken = 0;
                loop {
                    match file.write(taken, &pattern(4096, 2)) {
                        Ok(len) => assert_eq!(len, 4096, "{mode}"),
                        Err(error) => return (taken, matches!(error, Error::Stalled)),
                    }
                    taken += 4096;
                }
            });
            while !writer.is_finished() {
                clock.advance(Duration::from_millis(500));
                sleep(Duration::from_micros(200));
            }
            let (taken, is_stalled) = writer.join().unwrap();
            assert!(taken > 0 && is_stalled, "{mode}");
        });
        // The device comes back, and all is written.
        drop(release);
        for token in tokens {
            let token = AtomicU64::new(token);
            file.pages.sync(0..u64::MAX, &token).unwrap();
        }
        assert_eq!((file.pages.dirty_bytes(), cache.stats().nr_lost), (0, 0));
    }
}
