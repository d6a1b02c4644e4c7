//! This engine, in this process, on an image in memory.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use uext4::{Creation, NewInode, OpenInode, OpenOptions, RenameMode, SetAttributes, Volume};
use uext4_blockdev::{Access, BlockDevice, Error, FileDevice, MemoryDevice, SystemClock};

use crate::measure::{BYTES, CALL, Clock, Names, rate};

pub const FILE: Creation = Creation {
    mode: 0o644,
    umask: 0,
    uid: 0,
    gid: 0,
};

/// Makes an empty file system as all of them get it.
pub fn mke2fs(path: &Path) {
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-N", "250000"])
        .args(["-E", "lazy_itable_init=1,nodiscard"])
        .arg(path)
        .arg("2G")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

fn image() -> MemoryDevice {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.img");
    mke2fs(&path);
    let file = FileDevice::open(&path, Access::ReadOnly).unwrap();
    let device = MemoryDevice::new(file.len());
    let mut at = 0;
    while let Some(range) = file.next_data(at).unwrap() {
        at = range.end.min(range.start + (1 << 20));
        let mut bytes = vec![0; (at - range.start) as usize];
        file.read_at(range.start, &mut bytes).unwrap();
        device.write_at(range.start, &bytes).unwrap();
    }
    device
}

pub fn open(device: Arc<dyn BlockDevice>) -> Volume {
    let mut options = OpenOptions::default();
    options.memory_max = 512 << 20;
    options.pages_max = 1 << 30;
    open_as(device, &options)
}

pub fn open_as(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Volume {
    let fs = Volume::open(device, Arc::new(SystemClock), options).unwrap();
    fs.start_background().unwrap();
    fs
}

/// Two directories of a fresh file system.
pub struct Ours {
    fs: Volume,
    dirs: Vec<OpenInode>,
}

impl Ours {
    pub fn new() -> Self {
        let fs = open(Arc::new(image()));
        let root = fs.root().unwrap();
        let dir = |name: &&str| root.create(name.as_bytes(), NewInode::Directory, &FILE);
        let dirs = ["a", "b"].iter().map(|name| dir(name).unwrap()).collect();
        Self { fs, dirs }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.dirs.clear();
        self.fs.close().unwrap();
    }
}

impl Names for Ours {
    fn subject(&self) -> &'static str {
        "ours"
    }

    fn create(&self, dir: usize, name: &str) {
        let made = self.dirs[dir].create(name.as_bytes(), NewInode::File, &FILE);
        drop(made.unwrap());
    }

    fn stat(&self, dir: usize, name: &str) {
        black_box(self.dirs[dir].lookup(name.as_bytes()).unwrap().inode());
    }

    fn rename(&self, dir: usize, name: &str, to: &str) {
        let dir = &self.dirs[dir];
        let (name, to) = (name.as_bytes(), to.as_bytes());
        dir.rename(name, dir, to, RenameMode::Replace).unwrap();
    }

    fn unlink(&self, dir: usize, name: &str) {
        self.dirs[dir].unlink(name.as_bytes()).unwrap();
    }
}

/// A device whose flush takes its time.
#[derive(Debug)]
struct SlowFlush(MemoryDevice);

impl BlockDevice for SlowFlush {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), Error> {
        std::thread::sleep(Duration::from_millis(2));
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.0.discard(offset, len)
    }
}

/// Calls of fsync a second when `writers` threads each append 4 KiB to a file of their own and call
/// it, `count` times over.
pub fn fsyncs(writers: usize, count: usize) -> f64 {
    let fs = open(Arc::new(SlowFlush(image())));
    let root = fs.root().unwrap();
    let file = |i: usize| root.create(format!("{i}").as_bytes(), NewInode::File, &FILE);
    let files: Vec<OpenInode> = (0..writers).map(|i| file(i).unwrap()).collect();
    fs.sync().unwrap();
    let data = [7; 4096];
    let ready = Barrier::new(writers);
    let rate = rate(Clock::Wall, writers * count, || {
        std::thread::scope(|scope| {
            for file in &files {
                scope.spawn(|| {
                    ready.wait();
                    for _ in 0..count {
                        file.append(&data).unwrap();
                        file.fsync().unwrap();
                    }
                });
            }
        });
    });
    drop((files, root));
    fs.close().unwrap();
    rate
}

/// Megabytes a second of writing a file into the page cache, and of reading it from there. The
/// cache has its memory already: the same was written, and cut off again, before.
pub fn bytes(clock: Clock) -> (f64, f64) {
    let fs = open(Arc::new(image()));
    let root = fs.root().unwrap();
    let file = root.create(b"f", NewInode::File, &FILE).unwrap();
    let mut data = vec![1u8; CALL];
    let offsets = || (0..BYTES).step_by(CALL).map(|at| at as u64);
    let fill = || {
        for at in offsets() {
            assert_eq!(file.write_at(at, black_box(&data)).unwrap(), CALL);
        }
    };
    fill();
    let empty = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    file.set_attributes(&empty).unwrap();
    fs.sync().unwrap();
    let write = rate(clock, BYTES, fill);
    let read = rate(clock, BYTES, || {
        for at in offsets() {
            assert_eq!(file.read_at(at, black_box(&mut data)).unwrap(), CALL);
        }
    });
    drop((file, root));
    fs.close().unwrap();
    (write / 1e6, read / 1e6)
}
