//! The same slow disk under ours and the kernel's ext4: a loop device over memory whose writes the
//! kernel's block layer throttles to a rate. Not to a number of requests: those are counted before
//! they are joined, and writes to a block device come there block by block.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use uext4::{NewInode, OpenInode};
use uext4_blockdev::{Access, FileDevice};

use crate::measure::{CALL, Clock, rate};
use crate::ours::{FILE, mke2fs, open};
use crate::system::run;

/// Bytes that the disk takes in a second.
const BYTES_A_SECOND: u64 = 120 << 20;
/// Bytes that writers of large files write, all together.
const TOTAL: usize = 240 << 20;
const LIMIT: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// What is written: how many files at once, one after the other by how many threads, and how large.
#[derive(Clone, Copy, Debug)]
struct Load {
    what: &'static str,
    threads: usize,
    files: usize,
    bytes: usize,
}

/// The first is the second once before, for memory that is fresh: it is not reported.
const LOADS: [Load; 5] = [
    Load {
        what: "",
        threads: 1,
        files: 1,
        bytes: TOTAL,
    },
    Load {
        what: "slow disk, 1 writer, MB/s",
        threads: 1,
        files: 1,
        bytes: TOTAL,
    },
    Load {
        what: "slow disk, 10 writers, MB/s",
        threads: 10,
        files: 1,
        bytes: TOTAL / 10,
    },
    Load {
        what: "slow disk, 100 writers, MB/s",
        threads: 100,
        files: 1,
        bytes: TOTAL / 100,
    },
    Load {
        what: "slow disk, 20,000 files of 8 KiB, MB/s",
        threads: 4,
        files: 5000,
        bytes: 8192,
    },
];

/// A loop device with limits; gone at the end.
pub struct SlowDisk {
    device: String,
    number: String,
    dir: TempDir,
}

impl SlowDisk {
    /// # Errors
    /// Why there is none here: it takes root and `blkio` control groups.
    pub fn new() -> Result<Self, String> {
        let words = |error: std::io::Error| error.to_string();
        let dir = tempfile::tempdir_in("/dev/shm").map_err(words)?;
        let image = dir.path().join("slow.img");
        mke2fs(&image);
        let device = run("losetup", &["-f", "--show", image.to_str().unwrap()])?;
        let number = run("lsblk", &["-dno", "MAJ:MIN", &device]).unwrap_or_default();
        let disk = Self {
            number: number.trim().to_owned(),
            device,
            dir,
        };
        disk.limit(BYTES_A_SECOND)?;
        Ok(disk)
    }

    fn limit(&self, bytes: u64) -> Result<(), String> {
        let line = format!("{} {bytes}", self.number);
        std::fs::write(LIMIT, line).map_err(|error| format!("{LIMIT}: {error}"))
    }

    /// One round of all loads by ours: what, and megabytes a second until all is on the disk.
    pub fn ours(&self) -> Vec<(&'static str, f64)> {
        let device = FileDevice::open(Path::new(&self.device), Access::ReadWrite).unwrap();
        let fs = open(Arc::new(device));
        let root = fs.root().unwrap();
        let figures = LOADS.map(|load| {
            let megabytes = load.run(
                |thread| {
                    for file in 0..load.files {
                        let name = load.name(thread, file);
                        let file = root.create(name.as_bytes(), NewInode::File, &FILE).unwrap();
                        write_all(&file, load.bytes);
                    }
                },
                || fs.sync().unwrap(),
            );
            for (thread, file) in load.all() {
                root.unlink(load.name(thread, file).as_bytes()).unwrap();
            }
            fs.sync().unwrap();
            (load.what, megabytes)
        });
        drop(root);
        fs.close().unwrap();
        figures[1..].to_vec()
    }

    /// The same by the kernel's.
    ///
    /// # Errors
    /// Why it cannot be mounted.
    pub fn kernel(&self) -> Result<Vec<(&'static str, f64)>, String> {
        let point = self.dir.path().join("m");
        std::fs::create_dir_all(&point).map_err(|error| error.to_string())?;
        run(
            "mount",
            &["-t", "ext4", &self.device, point.to_str().unwrap()],
        )?;
        let mounted = Point(point);
        let data = vec![7u8; CALL];
        let sync = || rustix::fs::syncfs(File::open(&mounted.0).unwrap()).unwrap();
        let figures = LOADS.map(|load| {
            let path = |thread, file| mounted.0.join(load.name(thread, file));
            let megabytes = load.run(
                |thread| {
                    for file in 0..load.files {
                        let mut file = File::create(path(thread, file)).unwrap();
                        let mut left = load.bytes;
                        while left > 0 {
                            let len = left.min(CALL);
                            file.write_all(&data[..len]).unwrap();
                            left -= len;
                        }
                    }
                },
                sync,
            );
            for (thread, file) in load.all() {
                std::fs::remove_file(path(thread, file)).unwrap();
            }
            sync();
            (load.what, megabytes)
        });
        Ok(figures[1..].to_vec())
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // Zero lifts it.
        _ = self.limit(0);
        _ = run("losetup", &["-d", &self.device]);
    }
}

/// Where the kernel's is mounted; unmounted at the end.
struct Point(PathBuf);

impl Drop for Point {
    fn drop(&mut self) {
        _ = run("umount", &[self.0.to_str().unwrap()]);
    }
}

impl Load {
    fn name(self, thread: usize, file: usize) -> String {
        format!("{}-{thread}-{file}", self.threads)
    }

    fn all(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.threads).flat_map(move |thread| (0..self.files).map(move |file| (thread, file)))
    }

    /// Megabytes a second of threads that each do `f`, and of `sync` after them.
    fn run(self, f: impl Fn(usize) + Sync, sync: impl FnOnce()) -> f64 {
        let total = self.threads * self.files * self.bytes;
        rate(Clock::Wall, total, || {
            std::thread::scope(|scope| {
                for thread in 0..self.threads {
                    let f = &f;
                    scope.spawn(move || f(thread));
                }
            });
            sync();
        }) / 1e6
    }
}

fn write_all(file: &OpenInode, bytes: usize) {
    let data = vec![7u8; CALL.min(bytes)];
    let mut at = 0;
    while at < bytes {
        let len = data.len().min(bytes - at);
        at += file.write_at(at as u64, &data[..len]).unwrap();
    }
}
