//! Many threads at once, with little memory and all background threads: no thread waits for ever,
//! and what is there afterwards is what the threads say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use uext4::data::Fallocate;
use uext4::xattr::SetMode;
use uext4::{
    Creation, Error, FollowLast, Image, NewInode, OpenInode, OpenOptions, RenameMode,
    SetAttributes, Volume,
};
use uext4_blockdev::{MemoryDevice, SystemClock};
use uext4_testkit::SplitMix64;

use super::device::{judge, made, steps};

const THREADS: u64 = 8;
/// Bytes of a record that is appended to the file of all.
const RECORD: usize = 48;
/// Without any progress for so long, something waits for ever.
const STUCK: Duration = Duration::from_secs(60);
const CREATION: Creation = Creation {
    mode: 0o700,
    umask: 0,
    uid: 0,
    gid: 0,
};

/// Ends the process, reporting what each thread was doing, when no thread gets on.
struct Watchdog {
    doing: Vec<Mutex<&'static str>>,
    count: AtomicU64,
    ends: AtomicBool,
}

impl Watchdog {
    fn step(&self, thread: u64, what: &'static str) {
        *self.doing[thread as usize].lock() = what;
        self.count.fetch_add(1, Relaxed);
    }

    fn watch(&self) {
        let (mut last, mut since) = (0, std::time::Instant::now());
        while !self.ends.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
            let count = self.count.load(Relaxed);
            if count != last {
                (last, since) = (count, std::time::Instant::now());
            } else if since.elapsed() > STUCK {
                for (thread, doing) in self.doing.iter().enumerate() {
                    eprintln!("thread {thread} is stuck in {}", doing.lock());
                }
                std::process::abort();
            }
        }
    }
}

/// One thread and what it has made.
struct Worker<'a> {
    number: u64,
    fs: Volume,
    own: OpenInode,
    shared: OpenInode,
    log: OpenInode,
    random: SplitMix64,
    files: BTreeMap<String, Vec<u8>>,
    records: u64,
    watchdog: &'a Watchdog,
}

/// What others may have come first with.
fn raced<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(
            Error::NotFound
            | Error::Exists
            | Error::NotEmpty
            | Error::IsDirectory
            | Error::NotDirectory
            | Error::Invalid { .. }
            | Error::NoAttribute
            | Error::NotPermitted { .. },
        ) => None,
        Err(error) => panic!("{error:?}"),
    }
}

impl Worker<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn bytes(&mut self, max: u64) -> Vec<u8> {
        let (len, seed) = (self.below(max), self.random.next_u64());
        (0..len)
            .map(|i| (i.wrapping_mul(7) + seed + i / 300) as u8)
            .collect()
    }

    fn run(mut self, count: u64) -> (BTreeMap<String, Vec<u8>>, u64) {
        for _ in 0..count {
            match self.below(10) {
                0..5 => self.in_own(),
                5..8 => self.in_shared(),
                8 => self.directories(),
                _ => self.of_all(),
            }
        }
        (self.files, self.records)
    }

    /// No other thread is here: everything must be as it was left.
    fn in_own(&mut self) {
        let name = format!("f{}", self.below(20));
        let raw = name.as_bytes();
        let Some(mut bytes) = self.files.get(&name).cloned() else {
            self.watchdog.step(self.number, "create");
            let file = self.own.create(raw, NewInode::File, &CREATION).unwrap();
            let bytes = self.bytes(30_000);
            assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
            self.files.insert(name, bytes);
            return;
        };
        let file = self.own.lookup(raw).unwrap();
        match self.below(9) {
            0 | 1 => {
                self.watchdog.step(self.number, "unlink");
                self.own.unlink(raw).unwrap();
                self.files.remove(&name);
                let mut found = vec![0; bytes.len() + 1];
                assert_eq!(file.read_at(0, &mut found).unwrap(), bytes.len());
                assert!(found[..bytes.len()] == bytes, "unlinked, still open");
            }
            2 => {
                self.watchdog.step(self.number, "rename");
                let new = format!("f{}", self.below(20));
                self.own
                    .rename(raw, &self.own, new.as_bytes(), RenameMode::Replace)
                    .unwrap();
                self.files.remove(&name);
                self.files.insert(new, bytes);
            }
            _ => {
                self.contents(&file, &mut bytes);
                self.files.insert(name, bytes);
            }
        }
    }

    /// Of a file of its own.
    fn contents(&mut self, file: &OpenInode, bytes: &mut Vec<u8>) {
        match self.below(6) {
            0 => {
                self.watchdog.step(self.number, "read");
                let mut found = vec![0; bytes.len() + 5000];
                let read = match self.below(2) {
                    0 => file.read_at(0, &mut found),
                    _ => file.read_uncached(0, bytes.len() + 1, &mut found),
                };
                assert_eq!(read.unwrap(), bytes.len());
                assert!(found[..bytes.len()] == bytes[..], "read back");
            }
            1 => {
                self.watchdog.step(self.number, "truncate");
                let size = self.below(40_000);
                let change = SetAttributes {
                    size: Some(size),
                    ..SetAttributes::default()
                };
                file.set_attributes(&change).unwrap();
                bytes.resize(size as usize, 0);
            }
            2 => {
                self.watchdog.step(self.number, "punch");
                let (from, len) = (self.below(30_000), 1 + self.below(10_000));
                file.fallocate(Fallocate::PunchHole, from, len).unwrap();
                let to = ((from + len) as usize).min(bytes.len());
                bytes[(from as usize).min(to)..to].fill(0);
            }
            3 => {
                self.watchdog.step(self.number, "fsync");
                file.fsync().unwrap();
            }
            _ => {
                self.watchdog.step(self.number, "write");
                let (at, data) = (self.below(30_000) as usize, self.bytes(20_000));
                assert_eq!(file.write_at(at as u64, &data).unwrap(), data.len());
                if !data.is_empty() {
                    bytes.resize(bytes.len().max(at + data.len()), 0);
                    bytes[at..at + data.len()].copy_from_slice(&data);
                }
            }
        }
    }

    /// Names that all threads make, move, read and take.
    fn in_shared(&mut self) {
        let name = format!("n{}", self.below(12));
        let other = format!("n{}", self.below(12));
        let (raw, other) = (name.as_bytes(), other.as_bytes());
        let dir = self.shared.clone();
        match self.below(8) {
            0 | 1 => {
                self.watchdog.step(self.number, "create shared");
                let made = raced(dir.create(raw, NewInode::File, &CREATION));
                if let Some(file) = made {
                    file.write_at(self.below(9000), b"shared").unwrap();
                }
            }
            2 => {
                self.watchdog.step(self.number, "unlink shared");
                raced(dir.unlink(raw));
            }
            3 => {
                self.watchdog.step(self.number, "rename shared");
                let modes = [
                    RenameMode::Replace,
                    RenameMode::Exchange,
                    RenameMode::NoReplace,
                    RenameMode::Whiteout(Creation::default()),
                ];
                let mode = modes[self.below(4) as usize];
                raced(dir.rename(raw, &dir, other, mode));
            }
            4 => {
                self.watchdog.step(self.number, "link shared");
                if let Some(file) = raced(dir.lookup(raw)) {
                    raced(file.link(&dir, other));
                }
            }
            5 => {
                self.watchdog.step(self.number, "list shared");
                dir.list(0, &mut |_| true).unwrap();
            }
            6 => {
                self.watchdog.step(self.number, "attributes shared");
                if let Some(file) = raced(dir.lookup(raw)) {
                    let value = self.bytes(100);
                    raced(file.set_xattr(b"user.x", Some(&value), SetMode::Any));
                    raced(file.xattrs());
                }
            }
            _ => {
                self.watchdog.step(self.number, "write shared");
                if let Some(file) = raced(dir.lookup(raw)) {
                    raced(file.write_at(self.below(20_000), b"shared"));
                    raced(file.read_at(0, &mut [0; 5000]));
                    raced(file.read_uncached(4096, 100, &mut [0; 5000]));
                }
            }
        }
    }

    /// Directories that all threads make, move into one another, and take.
    fn directories(&mut self) {
        let name = |random: &mut SplitMix64| format!("d{}", random.below(4)).into_bytes();
        let dir = |worker: &mut Self| {
            let mut at = worker.shared.clone();
            for _ in 0..worker.below(4) {
                let next = name(&mut worker.random);
                match raced(at.lookup(&next)) {
                    Some(dir) => at = dir,
                    None => break,
                }
            }
            at
        };
        let (from, to) = (dir(self), dir(self));
        let (old, new) = (name(&mut self.random), name(&mut self.random));
        match self.below(5) {
            0 | 1 => {
                self.watchdog.step(self.number, "mkdir");
                raced(from.create(&old, NewInode::Directory, &CREATION));
            }
            2 => {
                self.watchdog.step(self.number, "rmdir");
                raced(from.rmdir(&old));
            }
            n => {
                self.watchdog.step(self.number, "rename of directories");
                let mode = match n {
                    3 => RenameMode::Replace,
                    _ => RenameMode::Exchange,
                };
                raced(from.rename(&old, &to, &new, mode));
            }
        }
    }

    /// One file that all append to, and what concerns the whole file system.
    fn of_all(&mut self) {
        match self.below(20) {
            0 => {
                self.watchdog.step(self.number, "sync");
                self.fs.sync().unwrap();
            }
            1 => {
                self.watchdog.step(self.number, "fsync of all");
                self.log.fsync().unwrap();
            }
            2 => {
                self.watchdog.step(self.number, "tick");
                self.fs.tick().unwrap();
            }
            3 => {
                self.watchdog.step(self.number, "unnamed");
                let file = self
                    .shared
                    .create_unnamed(NewInode::File, &CREATION)
                    .unwrap();
                file.write_at(0, b"gone soon").unwrap();
            }
            _ => {
                self.watchdog.step(self.number, "append");
                let mut record = format!("{} {}", self.number, self.records);
                record.push_str(&".".repeat(RECORD - 1 - record.len()));
                record.push('\n');
                let (at, len) = self.log.append(record.as_bytes()).unwrap();
                assert_eq!((at % RECORD as u64, len), (0, RECORD));
                self.records += 1;
            }
        }
    }
}

/// Every thread's records are there, whole and in their order.
fn check_log(log: &[u8], counts: &[u64]) {
    let mut next = vec![0; counts.len()];
    for record in log.chunks(RECORD) {
        let text = std::str::from_utf8(record).unwrap();
        let mut parts = text.trim_end_matches(['.', '\n']).split(' ');
        let mut number = || parts.next().unwrap().parse::<usize>().unwrap();
        let (thread, count) = (number(), number());
        assert_eq!(count as u64, next[thread], "of thread {thread}");
        next[thread] += 1;
    }
    assert_eq!(next, counts);
}

fn run(flags: &str) {
    let device = made(flags, 65_536);
    let mut options = OpenOptions::default();
    options.memory_max = 512 << 10;
    options.pages_max = 512 << 10;
    let fs = Volume::open(device.clone(), Arc::new(SystemClock), &options).unwrap();
    fs.start_background().unwrap();
    let root = fs.root().unwrap();
    let make = |name: &str, kind| root.create(name.as_bytes(), kind, &CREATION).unwrap();
    let (shared, log) = (
        make("shared", NewInode::Directory),
        make("log", NewInode::File),
    );
    let watchdog = Watchdog {
        doing: (0..THREADS).map(|_| Mutex::new("nothing")).collect(),
        count: AtomicU64::new(0),
        ends: AtomicBool::new(false),
    };
    // Directories that move into one another gather below the reach of the threads: one in ten
    // operations may leave one more, and there are 16,384 inodes.
    let count = steps(1500, 20_000);
    let worker = |number: u64| Worker {
        number,
        fs: fs.clone(),
        own: make(&format!("own{number}"), NewInode::Directory),
        shared: shared.clone(),
        log: log.clone(),
        random: SplitMix64::new(number + 77),
        files: BTreeMap::new(),
        records: 0,
        watchdog: &watchdog,
    };
    let made: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| watchdog.watch());
        let workers: Vec<Worker<'_>> = (0..THREADS).map(worker).collect();
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| scope.spawn(move || worker.run(count)))
            .collect();
        let made: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
        watchdog.ends.store(true, Relaxed);
        made.into_iter().map(Result::unwrap).collect()
    });
    fs.sync().unwrap();
    drop((shared, log, root));
    fs.close().unwrap();
    drop(fs);
    judge(&device, flags);
    check(&device, &made);
}

/// The tree is what the threads say.
fn check(device: &Arc<MemoryDevice>, made: &[(BTreeMap<String, Vec<u8>>, u64)]) {
    let fs = Image::open(device.clone(), &OpenOptions::default()).unwrap();
    let read = |path: &str| {
        let inode = fs.resolve(path.as_bytes(), FollowLast::No).unwrap();
        let mut bytes = vec![0; inode.size as usize];
        assert_eq!(fs.read_at(&inode, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    };
    for (number, (files, _)) in made.iter().enumerate() {
        let dir = format!("own{number}");
        for (name, bytes) in files {
            assert!(read(&format!("{dir}/{name}")) == *bytes, "{dir}/{name}");
        }
        let dir = fs.resolve(dir.as_bytes(), FollowLast::No).unwrap();
        assert_eq!(fs.read_dir(&dir).unwrap().count(), files.len());
    }
    let counts: Vec<u64> = made.iter().map(|(_, records)| *records).collect();
    check_log(&read("log"), &counts);
}

#[test]
fn with_a_journal() {
    run("-t ext4");
}

#[test]
fn small_blocks_and_orphan_file() {
    run("-t ext4 -b 1024 -O orphan_file");
}

#[test]
fn block_numbers() {
    run("-t ext3 -b 1024");
}

#[test]
fn without_a_journal() {
    run("-t ext4 -O ^has_journal");
}
