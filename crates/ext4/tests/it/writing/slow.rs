//! Devices that take long to discard, or fail at data: who waits for them, and the thread that is
//! notified.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::yield_now;
use std::time::Duration;

use parking_lot::Mutex;
use uext4::{Creation, NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock, WriteRequest};

use super::device::{judge, made};

/// All bytes of the files here.
const DATA: u8 = 0xA5;

#[derive(Debug)]
struct Device {
    base: Arc<MemoryDevice>,
    reported: Mutex<Vec<Range<u64>>>,
    /// Discards begun.
    begun: AtomicUsize,
    /// No discard ends while this is set.
    is_stuck: AtomicBool,
    /// No data can be written.
    is_bad: AtomicBool,
    /// Bytes of the longest batch.
    longest: AtomicUsize,
}

impl BlockDevice for Device {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        if self.is_bad.load(SeqCst) && buf.iter().all(|byte| *byte == DATA) {
            let source = std::io::Error::other("bad blocks");
            return Err(DeviceError::Io {
                op: "write",
                offset,
                source,
            });
        }
        self.base.write_at(offset, buf)
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let len = requests.iter().map(|request| request.buf.len()).sum();
        self.longest.fetch_max(len, SeqCst);
        for request in requests {
            self.write_at(request.offset, request.buf)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.begun.fetch_add(1, SeqCst);
        while self.is_stuck.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.reported.lock().push(offset..offset + len);
        self.base.discard(offset, len)
    }
}

/// Lets discards end, even if a test fails.
struct Release(Arc<Device>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.is_stuck.store(false, SeqCst);
    }
}

fn open(kib: u64, options: &str) -> (Arc<Device>, Arc<VirtualClock>, Volume) {
    let device = Arc::new(Device {
        base: made("-t ext4 -b 4096", kib),
        reported: Mutex::default(),
        begun: AtomicUsize::new(0),
        is_stuck: AtomicBool::new(false),
        is_bad: AtomicBool::new(false),
        longest: AtomicUsize::new(0),
    });
    let mut all = OpenOptions::default();
    all.options(options).unwrap();
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let fs = Volume::open(device.clone(), clock.clone(), &all).unwrap();
    (device, clock, fs)
}

fn file(fs: &Volume, name: &str, len: usize) -> OpenInode {
    let root = fs.root().unwrap();
    let new = root.create(name.as_bytes(), NewInode::File, &Creation::default());
    let file = new.unwrap();
    assert_eq!(file.write_at(0, &vec![DATA; len]).unwrap(), len);
    file
}

fn places(file: &OpenInode) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    file.fiemap(0..u64::MAX, |part| {
        let start = part.physical.unwrap();
        all.push(start..start + part.len);
        true
    })
    .unwrap();
    all
}

/// Flushers meet the errors, and give the data up: who syncs or closes is notified, each once.
#[test]
fn lost_data_are_reported_to_sync_and_close() {
    let (device, clock, fs) = open(65_536, "");
    let other = fs.clone();
    let lost = file(&fs, "lost", 64 << 10);
    device.is_bad.store(true, SeqCst);
    while fs.stats().pages.unwrap().nr_dirty > 0 {
        clock.advance(Duration::from_secs(40));
        fs.tick().unwrap();
    }
    device.is_bad.store(false, SeqCst);
    assert!(fs.sync().is_err());
    fs.sync().unwrap();
    assert!(lost.fsync().is_err());
    lost.fsync().unwrap();
    drop(lost);
    assert!(other.close().is_err());
    judge(&device.base, "after data were given up");
}

#[test]
fn a_slow_discard_does_not_delay_commits() {
    for has_threads in [false, true] {
        let (device, _, fs) = open(65_536, "discard");
        if has_threads {
            fs.start_background().unwrap();
        }
        let gone = file(&fs, "gone", 8 << 20);
        fs.sync().unwrap();
        let freed = places(&gone);
        drop(gone);
        fs.root().unwrap().unlink(b"gone").unwrap();
        device.is_stuck.store(true, SeqCst);
        std::thread::scope(|scope| {
            let _release = Release(device.clone());
            let syncing = scope.spawn(|| fs.sync().unwrap());
            while device.begun.load(SeqCst) == 0 {
                yield_now();
            }
            // The unlinking is durable, and so is what comes now. The blocks have no owner yet.
            for number in 0..4 {
                let other = file(&fs, &format!("{number}"), 4 << 20);
                other.fsync().unwrap();
                let overlaps =
                    |a: &Range<u64>| freed.iter().any(|b| a.start < b.end && b.start < a.end);
                assert!(!places(&other).iter().any(overlaps));
            }
            assert_eq!(device.reported.lock().len(), 0);
            device.is_stuck.store(false, SeqCst);
            syncing.join().unwrap();
        });
        fs.close().unwrap();
        let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|r| r.end - r.start).sum::<u64>();
        assert_eq!(bytes(&device.reported.lock()), bytes(&freed));
        drop(fs);
        judge(&device.base, "discard");
    }
}

#[test]
fn allocation_waits_for_pending_discards() {
    for has_threads in [false, true] {
        let (device, _, fs) = open(32_768, "discard");
        if has_threads {
            fs.start_background().unwrap();
        }
        drop(file(&fs, "gone", 16 << 20));
        fs.sync().unwrap();
        fs.root().unwrap().unlink(b"gone").unwrap();
        device.is_stuck.store(true, SeqCst);
        std::thread::scope(|scope| {
            let _release = Release(device.clone());
            scope.spawn(|| fs.sync().unwrap());
            while device.begun.load(SeqCst) == 0 {
                yield_now();
            }
            // Does not fit next to what is being discarded.
            let writer = scope.spawn(|| file(&fs, "next", 16 << 20).fsync().unwrap());
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(1));
                assert!(!writer.is_finished());
            }
            device.is_stuck.store(false, SeqCst);
            writer.join().unwrap();
        });
        fs.close().unwrap();
        drop(fs);
        judge(&device.base, "discard");
    }
}

#[test]
fn a_device_is_given_a_mebibyte_of_data_at_once() {
    let (device, _, fs) = open(65_536, "");
    file(&fs, "long", 20 << 20).fsync().unwrap();
    let longest = device.longest.load(SeqCst);
    assert!((1..=1 << 20).contains(&longest), "{longest}");
    fs.close().unwrap();
    judge(&device.base, "long");
}

#[test]
fn a_data_error_is_reported_once_to_each_handle() {
    let (device, clock, fs) = open(65_536, "");
    let first = file(&fs, "file", 100_000);
    let root = fs.root().unwrap();
    let second = root.lookup(b"file").unwrap();
    let other = file(&fs, "other", 0);
    device.is_bad.store(true, SeqCst);
    clock.advance(Duration::from_secs(40));
    fs.tick().unwrap();
    device.is_bad.store(false, SeqCst);
    // Two threads come through one of them.
    let twice = std::thread::scope(|scope| {
        let sync = || first.fsync().is_err();
        let threads = [scope.spawn(sync), scope.spawn(sync)];
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(twice.iter().filter(|reported| **reported).count(), 1);
    first.fsync().unwrap();
    let late = root.lookup(b"file").unwrap();
    assert!(second.fsync().is_err());
    second.fsync().unwrap();
    late.fsync().unwrap();
    other.fsync().unwrap();
    let mut found = vec![0; 100_000];
    assert_eq!(late.read_at(0, &mut found).unwrap(), found.len());
    assert!(found.iter().all(|byte| *byte == DATA));
    drop((first, second, late, other, root));
    fs.close().unwrap();
    drop(fs);
    judge(&device.base, "reported");
}
