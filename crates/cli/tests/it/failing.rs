//! Devices that fail or are slow beneath a mount: errors are returned to the callers concerned,
//! the mount goes on or can only be read, nothing hangs, and what was fsynced before is there
//! afterwards.
//!
//! A device that takes no more is an image with holes on a tmpfs that is full; one that cannot be
//! read is an image cut off while it is mounted; a slow one is a loop device that the block layer
//! throttles.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tempfile::TempDir;

use crate::host::{Loop, assert_clean, mke2fs, run, scratch, text, unmount_lazily};
use crate::served::{Served, can_serve};

fn file_of(number: usize) -> Vec<u8> {
    (0..500_000usize)
        .map(|at| (at / 3 * (number + 7) % 251) as u8)
        .collect()
}

fn name_of(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("file-{number}"))
}

/// Makes a file durable.
fn put(dir: &Path, number: usize) -> io::Result<()> {
    let mut file = File::create_new(name_of(dir, number))?;
    file.write_all(&file_of(number))?;
    file.sync_all()
}

fn errno(result: io::Result<()>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

/// A tmpfs of its own, unmounted at the end.
struct Memory(PathBuf);

impl Memory {
    fn new(at: PathBuf, mib: u32) -> Self {
        fs::create_dir(&at).unwrap();
        let options = format!("size={mib}m");
        run(
            "mount",
            &["-t", "tmpfs", "-o", &options, "tmpfs", text(&at)],
        );
        Self(at)
    }

    fn grow(&self, mib: u32) {
        let options = format!("remount,size={mib}m");
        run("mount", &["-o", &options, text(&self.0)]);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmount_lazily(&self.0);
    }
}

/// An image of 256 MiB, and where to mount it.
fn image_and_place(scratch: &TempDir) -> (PathBuf, PathBuf) {
    let (image, dir) = (scratch.path().join("image"), scratch.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    mke2fs(&image, &["-t", "ext4", "-J", "size=4"], 256);
    (image, dir)
}

#[test]
fn a_device_that_takes_no_more() {
    if !can_serve() {
        return;
    }
    let scratch = scratch();
    let memory = Memory::new(scratch.path().join("memory"), 40);
    let (image, dir) = (memory.0.join("image"), scratch.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    mke2fs(&image, &["-t", "ext4", "-J", "size=4"], 512);
    let served = Served::new(&image, &dir, "rw");
    // What the file system has room for, and the device has not.
    let mut durable = 0;
    let error = loop {
        match put(&dir, durable) {
            Ok(()) => durable += 1,
            error => break errno(error),
        }
        assert!(durable < 1000, "nothing failed");
    };
    assert!(durable > 10, "{durable} files, then {error}");
    assert!(
        [Errno::IO, Errno::ROFS, Errno::NOSPC].contains(&error),
        "{error}"
    );
    // It goes on or becomes read-only; every request is answered.
    for number in 0..durable {
        assert!(
            fs::read(name_of(&dir, number)).unwrap() == file_of(number),
            "{number}"
        );
    }
    let after: Vec<Errno> = (0..20)
        .map(|number| put(&dir, 2000 + number))
        .filter(Result::is_err)
        .map(errno)
        .collect();
    assert!(
        after
            .iter()
            .all(|error| [Errno::IO, Errno::ROFS, Errno::NOSPC].contains(error)),
        "{after:?}"
    );
    assert!(fs::read_dir(&dir).unwrap().count() > durable);
    // How it ends says whether everything could be written.
    _ = served.end();
    memory.grow(600);
    let served = Served::new(&image, &dir, "rw");
    for number in 0..durable {
        assert!(
            fs::read(name_of(&dir, number)).unwrap() == file_of(number),
            "{number}"
        );
    }
    put(&dir, 5000).unwrap();
    assert!(served.end().success());
    // Data that could not be written may have left blocks without an owner.
    assert_clean(&image);
}

#[test]
fn a_device_that_cannot_be_read_everywhere() {
    if !can_serve() {
        return;
    }
    let scratch = scratch();
    let (image, dir) = image_and_place(&scratch);
    let served = Served::new(&image, &dir, "rw");
    for number in 0..200 {
        fs::write(name_of(&dir, number), file_of(number)).unwrap();
    }
    assert!(served.end().success());
    // The log lies behind what is cut: a commit, of a time of access say, would make zeroes of
    // the rest.
    let served = Served::new(&image, &dir, "rw,noatime");
    let half = File::options().write(true).open(&image).unwrap();
    half.set_len(64 << 20).unwrap();
    let mut failed = 0;
    for number in 0..200 {
        match fs::read(name_of(&dir, number)) {
            Ok(read) => assert!(read == file_of(number), "{number} has other contents"),
            Err(error) => {
                let error = Errno::from_io_error(&error).unwrap();
                assert!(
                    [Errno::IO, Errno::UCLEAN].contains(&error),
                    "{number}: {error}"
                );
                failed += 1;
            }
        }
    }
    assert!(
        (20..200).contains(&failed),
        "{failed} of 200 could not be read"
    );
    // The mount is there: what can be read is read again.
    assert!(fs::read(name_of(&dir, 0)).unwrap() == file_of(0));
    let mut first = [0; 10];
    let read = File::open(name_of(&dir, 1)).and_then(|mut file| file.read_exact(&mut first));
    assert!(read.is_ok() && first == file_of(1)[..10]);
    _ = served.end();
}

/// A loop device to which so many bytes a second are written; `None`, with a word why, where the
/// block layer cannot throttle.
pub struct SlowDisk {
    /// The device.
    device: Loop,
    number: String,
}

/// The file that configures the block layer.
const LIMIT: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

impl SlowDisk {
    /// Above an image.
    pub fn new(image: &Path, bytes_a_second: u64) -> Option<Self> {
        if !Path::new(LIMIT).exists() {
            println!("skipped: needs {LIMIT}");
            return None;
        }
        let device = Loop::new(image);
        let number = run("lsblk", &["-dno", "MAJ:MIN", text(device.path())]);
        let number = String::from_utf8(number).unwrap().trim().to_owned();
        let line = format!("{number} {bytes_a_second}");
        let disk = Self { device, number };
        match fs::write(LIMIT, line) {
            Ok(()) => Some(disk),
            Err(error) => {
                println!("skipped: {LIMIT}: {error}");
                None
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.device.path()
    }

    /// From now on it is as fast as it can be.
    pub fn hurry(&self) {
        _ = fs::write(LIMIT, format!("{} 0", self.number));
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // The limit stays with the number, which the next loop device has.
        self.hurry();
    }
}

#[test]
fn a_slow_device_delays_only_writers() {
    const RATE: u64 = 4 << 20;
    const FILES: usize = 40;
    if !can_serve() {
        return;
    }
    let scratch = scratch();
    let (image, dir) = image_and_place(&scratch);
    let Some(disk) = SlowDisk::new(&image, RATE) else {
        return;
    };
    let served = Served::new(disk.path(), &dir, "rw,memory=64M");
    fs::write(dir.join("known"), "contents").unwrap();
    let begun = Instant::now();
    let longest = std::thread::scope(|scope| {
        let writers = scope.spawn(|| (0..FILES).try_for_each(|number| put(&dir, number)));
        let mut longest = Duration::ZERO;
        while !writers.is_finished() {
            let asked = Instant::now();
            assert_eq!(fs::read_to_string(dir.join("known")).unwrap(), "contents");
            assert!(fs::metadata(dir.join("missing")).is_err());
            longest = longest.max(asked.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        writers.join().unwrap().unwrap();
        longest
    });
    let least = Duration::from_secs((FILES * 500_000) as u64 / RATE / 2);
    assert!(
        begun.elapsed() > least,
        "the device was not slow: {:?}",
        begun.elapsed()
    );
    assert!(
        longest < Duration::from_secs(2),
        "who only read waited {longest:?}"
    );
    assert!(served.end().success());
    assert_clean(disk.path());
}
