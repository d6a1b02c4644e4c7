//! Many writers and little memory: what they leave for others.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

use crate::failing::SlowDisk;
use crate::host::{assert_clean, mke2fs, scratch, text};
use crate::served::Served;
use crate::transport::{Transport, over_each};

over_each!(
    lookups_are_fast_during_a_hundred_writers,
    the_dirty_limit_holds_for_all_that_was_taken_in,
    a_mount_with_little_memory_takes_little,
);

/// An image, and where to mount it.
fn image_and_place(scratch: &TempDir, mib: u32) -> (PathBuf, PathBuf) {
    let (image, dir) = (scratch.path().join("image"), scratch.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    mke2fs(&image, &["-t", "ext4", "-J", "size=4"], mib);
    (image, dir)
}

/// Processes that write 1 MiB at a time, each its own file, until they are ended.
struct Writers(Vec<Child>);

impl Writers {
    fn new(dir: &Path, count: usize) -> Self {
        let children = (0..count).map(|number| {
            let target = format!("of={}/file-{number}", text(dir));
            let mut command = Command::new("dd");
            command.args(["if=/dev/zero", &target, "bs=1M"]);
            command.stderr(Stdio::null()).spawn().unwrap()
        });
        Self(children.collect())
    }

    /// Bytes that each has written.
    fn written(&self) -> Vec<u64> {
        let of = |child: &Child| {
            let path = format!("/proc/{}/io", child.id());
            let all = fs::read_to_string(path).unwrap_or_default();
            let line = all.lines().find_map(|line| line.strip_prefix("wchar: "));
            line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
        };
        self.0.iter().map(of).collect()
    }

    fn sum(&self) -> u64 {
        self.written().iter().sum()
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            _ = child.kill();
        }
        for child in &mut self.0 {
            _ = child.wait();
        }
    }
}

/// A mount of an image of so many MiB on a disk that takes `rate` bytes a second, where at most
/// `limit` bytes are dirty; `None`, with the reason on standard output, where there can be none.
fn over_slow_disk(
    transport: Transport,
    scratch: &TempDir,
    mib: u32,
    rate: u64,
    limit: u64,
) -> Option<(SlowDisk, Served, PathBuf)> {
    if !transport.can_serve() {
        return None;
    }
    let (image, dir) = image_and_place(scratch, mib);
    let disk = SlowDisk::new(&image, rate)?;
    let background = limit / 2;
    let options = format!("rw,dirty_bytes={limit},dirty_background_bytes={background}");
    let served = Served::over(transport, disk.path(), &dir, &options);
    Some((disk, served, dir))
}

/// Where lookups wait for writers' pauses, the disk takes much in the meantime: so the cost of a
/// hundred lookups is counted in bytes.
fn lookups_are_fast_during_a_hundred_writers(transport: Transport) {
    const RATE: u64 = 4 << 20;
    const LOOK_UPS: u64 = 100;
    /// What the disk takes in 16 s, much for a machine that is busy.
    const BYTES_MAX: u64 = 16 * RATE;
    const LIMIT: u64 = 16 << 20;
    let scratch = scratch();
    let Some((disk, served, dir)) = over_slow_disk(transport, &scratch, 1024, RATE, LIMIT) else {
        return;
    };
    let writers = Writers::new(&dir, 100);
    let end = Instant::now() + Duration::from_secs(60);
    while writers.sum() < LIMIT {
        assert!(Instant::now() < end, "only {} bytes", writers.sum());
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = writers.sum();
    for number in 0..LOOK_UPS {
        assert!(fs::metadata(dir.join(format!("missing-{number}"))).is_err());
        let meanwhile = writers.sum() - before;
        assert!(
            meanwhile < BYTES_MAX,
            "{number} look-ups took as long as {meanwhile} bytes to a disk of {RATE} a second"
        );
    }
    disk.hurry();
    // No writer is left out.
    while writers.written().contains(&0) {
        assert!(Instant::now() < end, "{:?}", writers.written());
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(writers);
    assert!(served.end().success());
    assert_clean(disk.path());
}

/// What four writers were rid of is on the disk or below the limit, so the end is not far off
/// either.
fn the_dirty_limit_holds_for_all_that_was_taken_in(transport: Transport) {
    const RATE: u64 = 16 << 20;
    const LIMIT: u64 = 32 << 20;
    let scratch = scratch();
    let Some((_disk, served, dir)) = over_slow_disk(transport, &scratch, 2048, RATE, LIMIT) else {
        return;
    };
    let begun = Instant::now();
    let writers = Writers::new(&dir, 4);
    std::thread::sleep(Duration::from_secs(3));
    let (taken, seconds) = (writers.sum(), begun.elapsed().as_secs() + 1);
    drop(writers);
    // The block layer lets a little more through, and each writer has a request under way.
    let most = 2 * LIMIT + seconds * RATE * 2;
    assert!(taken < most, "{taken} bytes in {seconds} s");
    let ends = Instant::now();
    assert!(served.end().success());
    // Two seconds for the limit; much for a machine that is busy.
    let took = ends.elapsed();
    assert!(took < Duration::from_secs(20), "the end took {took:?}");
}

/// KiB of memory that a process has for itself.
fn anonymous(process: u32) -> u64 {
    let all = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = all.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

/// Writes a file and reads it again, past the kernel's cache.
fn write_and_read(path: &Path) {
    let data: Vec<u8> = (0..13_000_000u32).map(|at| (at / 7) as u8).collect();
    let mut file = File::create_new(path).unwrap();
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    let mut read = Vec::new();
    File::open(path).unwrap().read_to_end(&mut read).unwrap();
    assert!(read == data);
}

fn a_mount_with_little_memory_takes_little(transport: Transport) {
    const ASKED_KIB: u64 = 16 << 10;
    /// What the program, its threads and the allocator take in addition: 4 MiB at rest, 18 MiB at
    /// work.
    const BASE_KIB: u64 = 24 << 10;
    if !transport.can_serve() {
        return;
    }
    let scratch = scratch();
    let (image, dir) = image_and_place(&scratch, 512);
    let served = Served::over(transport, &image, &dir, "rw,memory=16M");
    let (daemon, is_over) = (served.daemon(), AtomicBool::new(false));
    let most = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Relaxed) {
                most = most.max(anonymous(daemon));
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let dir = &dir;
        let work = |number| move || write_and_read(&dir.join(format!("file-{number}")));
        let workers: Vec<_> = (0..8).map(|number| scope.spawn(work(number))).collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, Relaxed);
        assert!(ended.iter().all(Result::is_ok));
        sampler.join().unwrap()
    });
    assert!(most <= ASKED_KIB + BASE_KIB, "{most} KiB");
    assert!(served.end().success());
    assert_clean(&image);
}
