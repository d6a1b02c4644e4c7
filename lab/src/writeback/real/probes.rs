//! What else is done while the writers write: reads, fsyncs, small files; and how much is dirty.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use uext4_testkit::SplitMix64;

use super::served::dirty_bytes;
use crate::subject::{Directory, Files};

/// The file that is read, its size, and what is in it.
const COLD: &str = "cold";
const COLD_BYTES: usize = 64 << 20;
const COLD_BYTE: u8 = 0x5a;
/// Bytes of each read and write.
const BLOCK: usize = 4096;
/// Time from one read, small file, fsync or look at dirty memory to the next.
const READ_EVERY: Duration = Duration::from_millis(10);
const CREATE_EVERY: Duration = Duration::from_millis(25);
const FSYNC_EVERY: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is to be on the disk before it is mounted.
///
/// # Errors
/// Those of writing it.
pub fn prepare(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    fs::create_dir(dir.join("small"))?;
    fs::write(dir.join("log"), [])?;
    fs::write(dir.join(COLD), vec![COLD_BYTE; COLD_BYTES])
}

/// When something began, and how long it took.
#[derive(Clone, Copy, Debug)]
struct Timed {
    began: Instant,
    took: Duration,
}

/// What is dirty at a moment, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dirty {
    /// For the device, in the kernel: dirty or under writeback.
    pub kernel: u64,
    /// In our mount.
    pub ours: u64,
}

/// What was measured, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Reads of one block that was not in memory.
    pub reads: Vec<f64>,
    /// Small files made and written.
    pub creates: Vec<f64>,
    /// Writes of a block and the fsync after each.
    pub fsyncs: Vec<f64>,
    /// Looks at what is dirty.
    pub dirty: Vec<Dirty>,
}

/// Threads that do all of it.
#[derive(Debug)]
pub struct Probes {
    stop: Arc<AtomicBool>,
    reads: JoinHandle<io::Result<Vec<Timed>>>,
    creates: JoinHandle<io::Result<Vec<Timed>>>,
    fsyncs: JoinHandle<io::Result<Vec<Timed>>>,
    dirty: JoinHandle<Result<Vec<Dirty>, String>>,
}

/// Does something again and again until it is to stop.
fn repeat(
    stop: &AtomicBool,
    every: Duration,
    mut act: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<Timed>> {
    let mut all = Vec::new();
    while !stop.load(Relaxed) {
        let began = Instant::now();
        act()?;
        let took = began.elapsed();
        all.push(Timed { began, took });
        thread::sleep(every.saturating_sub(took));
    }
    Ok(all)
}

/// Reads blocks of the cold file in random order, none of them twice.
fn read(dir: &Directory, seed: u64, stop: &AtomicBool) -> io::Result<Vec<Timed>> {
    let mut blocks: Vec<u64> = (0..(COLD_BYTES / BLOCK) as u64).collect();
    let mut random = SplitMix64::new(seed);
    for last in (1..blocks.len()).rev() {
        blocks.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    let file = dir.open(COLD)?;
    let mut buffer = vec![0; BLOCK];
    repeat(stop, READ_EVERY, || {
        let Some(block) = blocks.pop() else {
            return Err(io::Error::other("all of the file was read"));
        };
        let count = file.read_at(block * BLOCK as u64, &mut buffer)?;
        match count == BLOCK && buffer.iter().all(|byte| *byte == COLD_BYTE) {
            true => Ok(()),
            false => Err(io::Error::other(format!("block {block} was read wrongly"))),
        }
    })
}

fn create(dir: &Directory, stop: &AtomicBool) -> io::Result<Vec<Timed>> {
    let mut count = 0;
    repeat(stop, CREATE_EVERY, || {
        count += 1;
        dir.create(&format!("small/{count}"))?
            .write_at(0, &[1; BLOCK])
    })
}

fn fsync(dir: &Directory, stop: &AtomicBool) -> io::Result<Vec<Timed>> {
    let file = dir.open("log")?;
    let mut end = 0;
    repeat(stop, FSYNC_EVERY, || {
        file.write_at(end, &[2; BLOCK])?;
        end += BLOCK as u64;
        file.fsync()
    })
}

/// Bytes dirty or under writeback for a device, by the kernel's debugfs.
fn kernel_dirty(device: &str) -> Result<u64, String> {
    let file = format!("/sys/kernel/debug/bdi/{device}/stats");
    let stats = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let value = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let kib = rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
        matches!(name, "BdiWriteback" | "BdiReclaimable").then_some(kib << 10)
    };
    Ok(stats.lines().filter_map(value).sum())
}

fn look(device: &str, socket: Option<&Path>, stop: &AtomicBool) -> Result<Vec<Dirty>, String> {
    let mut all = Vec::new();
    while !stop.load(Relaxed) {
        all.push(Dirty {
            kernel: kernel_dirty(device)?,
            ours: socket.map_or(Ok(0), dirty_bytes)?,
        });
        thread::sleep(LOOK_EVERY);
    }
    Ok(all)
}

fn joined<T, E: ToString>(thread: JoinHandle<Result<T, E>>, what: &str) -> Result<T, String> {
    let result = thread.join().map_err(|_| format!("{what}: it panicked"))?;
    result.map_err(|error| format!("{what}: {}", error.to_string()))
}

impl Probes {
    /// Starts them in the root of what [`prepare`] made. `device` is named as in `7:0`; `socket` is
    /// that of our mount, if it is one.
    pub fn start(dir: &Path, seed: u64, device: &str, socket: Option<PathBuf>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let dir = Directory::new(dir);
        let device = device.to_owned();
        let for_each = || (dir.clone(), stop.clone());
        let ((reads, r), (creates, c), (fsyncs, f)) = (for_each(), for_each(), for_each());
        let looks = stop.clone();
        Self {
            reads: thread::spawn(move || read(&reads, seed, &r)),
            creates: thread::spawn(move || create(&creates, &c)),
            fsyncs: thread::spawn(move || fsync(&fsyncs, &f)),
            dirty: thread::spawn(move || look(&device, socket.as_deref(), &looks)),
            stop,
        }
    }

    /// Has them stop; what is under way goes on until [`Probes::end`].
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Waits for them. What began from `counted` to `end` counts, and no longer than until then.
    ///
    /// # Errors
    /// What one of them failed with.
    pub fn end(self, counted: Instant, end: Instant) -> Result<Measured, String> {
        self.stop();
        let ms = |all: Vec<Timed>| {
            let counts = |one: &&Timed| one.began >= counted && one.began < end;
            let took = |one: &Timed| one.took.min(end - one.began).as_secs_f64() * 1e3;
            all.iter().filter(counts).map(took).collect()
        };
        Ok(Measured {
            reads: ms(joined(self.reads, "reader")?),
            creates: ms(joined(self.creates, "small files")?),
            fsyncs: ms(joined(self.fsyncs, "fsync")?),
            dirty: joined(self.dirty, "dirty memory")?,
        })
    }
}
