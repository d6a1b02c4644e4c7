//! One budget for everything that is held in memory: it holds, whatever is done, and nothing is
//! lost by it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use uext4::stats::MemoryUse;
use uext4::{
    Creation, Error, FollowLast, Image, NewInode, OpenInode, OpenOptions, SetAttributes, Volume,
};
use uext4_blockdev::{MemoryDevice, SystemClock, VirtualClock};
use uext4_testkit::SplitMix64;

use super::device::{judge, made, mount, steps};

const MIB: u64 = 1 << 20;
const FILE: Creation = Creation {
    mode: 0o700,
    umask: 0,
    uid: 0,
    gid: 0,
};

fn open(device: &Arc<MemoryDevice>, memory: u64, threads: bool) -> Volume {
    let mut options = OpenOptions::default();
    options.memory = Some(memory);
    let fs = Volume::open(device.clone(), Arc::new(SystemClock), &options).unwrap();
    if threads {
        fs.start_background().unwrap();
    }
    fs
}

/// The most that was ever taken, of all and of inodes with extents.
#[derive(Default)]
struct Peak {
    all: AtomicU64,
    inodes: AtomicU64,
    ends: AtomicBool,
}

impl Peak {
    fn sample(&self, fs: &Volume) {
        let now = fs.stats().memory;
        self.all.fetch_max(now.total(), Relaxed);
        self.inodes.fetch_max(now.inodes + now.extents, Relaxed);
    }

    /// Does the work while another thread watches, and says what was taken at most.
    fn during(fs: &Volume, what: &str, work: impl FnOnce()) -> MemoryUse {
        let peak = Self::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !peak.ends.load(Relaxed) {
                    peak.sample(fs);
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
            struct Ends<'a>(&'a AtomicBool);
            impl Drop for Ends<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Relaxed);
                }
            }
            let _ends = Ends(&peak.ends);
            work();
        });
        let (all, inodes) = (peak.all.load(Relaxed), peak.inodes.load(Relaxed));
        let now = fs.stats().memory;
        println!("{what}: at most {all}, inodes and extents {inodes}; {now:?}");
        assert!(all <= now.budget + now.budget / 10, "{what}: {all} {now:?}");
        assert!(inodes <= now.budget, "{what}: {inodes} {now:?}");
        now
    }
}

/// Bytes of a file's contents that count upwards; the next piece starts one higher.
const PIECE: u64 = 512;
/// Bytes that count upwards: a piece that starts with any byte is a part of it.
static RUN: [u8; 256 + PIECE as usize] = {
    let mut run = [0; 256 + PIECE as usize];
    let mut at = 0;
    while at < run.len() {
        run[at] = at as u8;
        at += 1;
    }
    run
};

/// What a file holds there, piece by piece.
fn pieces(seed: u64, range: Range<u64>) -> impl Iterator<Item = &'static [u8]> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let first = (seed.wrapping_mul(31) + at + at / PIECE) as u8;
        let len = (PIECE - at % PIECE).min(range.end - at);
        at += len;
        let first = usize::from(first);
        (len > 0).then(|| &RUN[first..first + len as usize])
    })
}

fn bytes(seed: u64, range: Range<u64>) -> Vec<u8> {
    pieces(seed, range).flatten().copied().collect()
}

fn check(seed: u64, at: u64, got: &[u8], what: &str) {
    let mut rest = got;
    for piece in pieces(seed, at..at + got.len() as u64) {
        let (found, after) = rest.split_at(piece.len());
        rest = after;
        let place = at + (got.len() - rest.len() - piece.len()) as u64;
        assert!(found == piece, "{what}: wrong behind {place}");
    }
}

/// A thread's files: the small ones by number with their sizes, and one that is larger than memory.
struct Worker {
    number: u64,
    dir: OpenInode,
    random: SplitMix64,
    small: Vec<u64>,
    large: u64,
}

/// Small files of a worker at most, and bytes of its large one: all fit the image, however long
/// it runs.
const SMALL_MAX: usize = 2000;
const LARGE_MAX: u64 = 40 * MIB;

impl Worker {
    fn name(number: usize) -> String {
        format!("small-{number}")
    }

    fn seed(&self, file: usize) -> u64 {
        self.number * 10_000 + file as u64
    }

    fn run(mut self, count: u64) -> Self {
        let large = self.dir.create(b"large", NewInode::File, &FILE).unwrap();
        for _ in 0..count {
            match self.random.below(8) {
                0..3 => self.make(),
                3..5 => self.look(),
                5 => self.cut(),
                6 => self.extend(&large),
                _ => self.read(&large),
            }
        }
        self
    }

    fn make(&mut self) {
        let mut file = self.small.len();
        if file == SMALL_MAX {
            file = self.random.below(file as u64) as usize;
            self.dir.unlink(Self::name(file).as_bytes()).unwrap();
        } else {
            self.small.push(0);
        }
        let len = self.random.below(60_000) >> self.random.below(8);
        let name = Self::name(file);
        let made = self.dir.create(name.as_bytes(), NewInode::File, &FILE);
        let made = made.unwrap();
        let data = bytes(self.seed(file), 0..len);
        assert_eq!(made.write_at(0, &data).unwrap(), data.len());
        self.small[file] = len;
    }

    fn look(&mut self) {
        if self.small.is_empty() {
            return;
        }
        let file = self.random.below(self.small.len() as u64) as usize;
        let found = self.dir.lookup(Self::name(file).as_bytes()).unwrap();
        let mut data = vec![0; 70_000];
        let len = found.read_at(0, &mut data).unwrap();
        assert_eq!(len as u64, self.small[file]);
        check(self.seed(file), 0, &data[..len], &Self::name(file));
    }

    fn cut(&mut self) {
        if self.small.is_empty() {
            return;
        }
        let file = self.random.below(self.small.len() as u64) as usize;
        let found = self.dir.lookup(Self::name(file).as_bytes()).unwrap();
        let size = self.random.below(self.small[file] + 1);
        let attributes = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        found.set_attributes(&attributes).unwrap();
        self.small[file] = size;
    }

    /// Many chunks in one call.
    fn extend(&mut self, file: &OpenInode) {
        if self.large > LARGE_MAX {
            let attributes = SetAttributes {
                size: Some(0),
                ..SetAttributes::default()
            };
            file.set_attributes(&attributes).unwrap();
            self.large = 0;
        }
        let len = 1 + self.random.below(2 * MIB);
        let data = bytes(self.number, self.large..self.large + len);
        assert_eq!(file.write_at(self.large, &data).unwrap(), data.len());
        self.large += len;
    }

    fn read(&mut self, file: &OpenInode) {
        if self.large == 0 {
            return;
        }
        let at = self.random.below(self.large);
        let mut data = vec![0; 1 + self.random.below(2 * MIB) as usize];
        let len = match self.random.below(2) {
            0 => file.read_at(at, &mut data).unwrap(),
            _ => file.read_uncached(at, data.len(), &mut data).unwrap(),
        };
        assert_eq!(len as u64, (data.len() as u64).min(self.large - at));
        check(self.number, at, &data[..len], "large");
    }
}

/// Everything is as the threads left it.
fn judge_all(device: &Arc<MemoryDevice>, workers: &[Worker], flags: &str) {
    judge(device, flags);
    let fs = Image::open(device.clone(), &OpenOptions::default()).unwrap();
    for worker in workers {
        let read = |name: &str, seed: u64, len: u64| {
            let path = format!("d{}/{name}", worker.number);
            let inode = fs.resolve(path.as_bytes(), FollowLast::No).unwrap();
            assert_eq!(inode.size, len, "{path}");
            let mut data = vec![0; len as usize];
            assert_eq!(fs.read_at(&inode, 0, &mut data).unwrap(), data.len());
            check(seed, 0, &data, &path);
        };
        for (file, len) in worker.small.iter().enumerate() {
            read(&Worker::name(file), worker.seed(file), *len);
        }
        read("large", worker.number, worker.large);
    }
}

fn run(flags: &str, memory: u64, background: bool) {
    let device = made(flags, 512 << 10);
    let fs = open(&device, memory, background);
    let root = fs.root().unwrap();
    let worker = |number: u64| {
        let name = format!("d{number}");
        let dir = root.create(name.as_bytes(), NewInode::Directory, &FILE);
        Worker {
            number,
            dir: dir.unwrap(),
            random: SplitMix64::new(number + 5),
            small: Vec::new(),
            large: 0,
        }
    };
    let workers: Vec<Worker> = (0..6).map(worker).collect();
    let mut done = Vec::new();
    let count = steps(300, 20_000);
    let used = Peak::during(&fs, flags, || {
        done = std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .into_iter()
                .map(|worker| scope.spawn(move || worker.run(count)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        fs.sync().unwrap();
    });
    assert!(used.reclaimed > 0, "{used:?}");
    fs.close().unwrap();
    judge_all(&device, &done, flags);
}

#[test]
fn it_holds_with_many_files_and_much_data() {
    run("-t ext4 -b 4096", 8 * MIB, true);
}

#[test]
fn the_limit_holds_with_small_blocks_and_no_flushers() {
    run("-t ext4 -b 1024", 8 * MIB, false);
}

#[test]
fn it_holds_without_a_journal() {
    run("-t ext4 -b 4096 -O ^has_journal", 16 * MIB, true);
}

/// Directories of a tree of many inodes, and files in each.
const DIRS: usize = 100;
const FILES: usize = 1000;

#[test]
fn a_large_tree_is_made_and_walked_within_it() {
    let flags = "-t ext4 -b 4096 -N 120000";
    let device = made(flags, 256 << 10);
    let fs = open(&device, 8 * MIB, false);
    Peak::during(&fs, "made", || {
        let root = fs.root().unwrap();
        for d in 0..DIRS {
            let name = format!("d{d}");
            let dir = root.create(name.as_bytes(), NewInode::Directory, &FILE);
            let dir = dir.unwrap();
            for f in 0..FILES {
                let name = format!("f{f}");
                dir.create(name.as_bytes(), NewInode::File, &FILE).unwrap();
            }
        }
    });
    fs.close().unwrap();
    drop(fs);
    judge(&device, "made");
    let fs = open(&device, 8 * MIB, true);
    let found = AtomicU64::new(0);
    let used = Peak::during(&fs, "walked", || {
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (fs, found) = (&fs, &found);
                scope.spawn(move || {
                    for d in (thread..DIRS).step_by(2) {
                        found.fetch_add(walk(fs, d), Relaxed);
                    }
                });
            }
        });
    });
    assert_eq!(found.load(Relaxed), (DIRS * FILES) as u64);
    assert!(used.reclaimed > 0, "{used:?}");
    fs.close().unwrap();
    judge(&device, "walked");
}

/// Looks every name of a directory up, and reads each file, which notes the time.
fn walk(fs: &Volume, d: usize) -> u64 {
    let root = fs.root().unwrap();
    let dir = root.lookup(format!("d{d}").as_bytes()).unwrap();
    let mut names = Vec::new();
    dir.list(0, &mut |&uext4::Listed { name, .. }| {
        names.push(name.to_vec());
        true
    })
    .unwrap();
    let mut found = 0;
    for name in names {
        let inode = dir.lookup(&name).unwrap();
        match inode.read_at(0, &mut [0]) {
            Ok(0) => found += 1,
            Err(Error::IsDirectory) => {}
            other => panic!("{other:?}"),
        }
    }
    found
}

/// Times of more files than the log has blocks wait for one commit.
#[test]
fn times_of_many_files_fit_into_the_log() {
    const COUNT: usize = 20_000;
    let device = made("-t ext4 -b 1024 -I 256 -J size=4 -N 24000", 64 << 10);
    let fs = mount(device.clone());
    let root = fs.root().unwrap();
    let names: Vec<String> = (0..COUNT).map(|i| format!("f{i}")).collect();
    for name in &names {
        root.create(name.as_bytes(), NewInode::File, &FILE).unwrap();
    }
    fs.close().unwrap();
    drop((root, fs));
    let clock = VirtualClock::new(1_800_000_000);
    let options = OpenOptions::default();
    let fs = Volume::open(device.clone(), Arc::new(clock), &options).unwrap();
    let root = fs.root().unwrap();
    for name in &names {
        let file = root.lookup(name.as_bytes()).unwrap();
        assert_eq!(file.read_at(0, &mut [0]).unwrap(), 0);
    }
    fs.sync().unwrap();
    drop(root);
    fs.close().unwrap();
    drop(fs);
    judge(&device, "times");
    let fs = Image::open(device, &OpenOptions::default()).unwrap();
    for name in &names {
        let inode = fs.resolve(name.as_bytes(), FollowLast::No).unwrap();
        assert_eq!(inode.atime.sec, 1_800_000_000, "{name}");
    }
}
