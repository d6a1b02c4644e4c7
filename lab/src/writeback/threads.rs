//! The same with the real page cache and real threads.
//!
//! Sleeps last longer on a busy machine, and nothing that is held against a clock alone is the same
//! there. So in the same seconds another thread writes to a device of its own of the same speed,
//! without a cache, and throughput is a part of what that one reaches.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uext4_blockdev::SystemClock;
use uext4_lab_policies::writeback::Mode;
use uext4_ondisk::BlockSize;
use uext4_writeback::{FilePages, Mapping, Options, PageCache};

use super::machine::{jain, round};
use super::trial::{accepts, by_policy, scaled};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-threads",
    accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Threads,
    run,
};

const MEMORY: u64 = 256 << 20;
/// Bytes a second.
const BANDWIDTH: f64 = 50e6;
const WRITE: usize = 64 << 10;
/// Bytes of one write of the thread without a cache.
const REFERENCE_WRITE: usize = 4 << 20;

/// A file on the slow device.
struct Slow(Arc<Mutex<()>>);

impl Mapping for Slow {
    type Error = io::Error;

    fn read_blocks(&self, _: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn write_run(&self, _: u64, run: &[&[u8]]) -> io::Result<()> {
        let bytes: usize = run.iter().map(|piece| piece.len()).sum();
        let _turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        thread::sleep(Duration::from_secs_f64(bytes as f64 / BANDWIDTH));
        Ok(())
    }
}

/// What threads share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Most bytes dirty or under writeback that any writer saw.
    peak: AtomicU64,
    /// Bytes that the thread without a cache wrote.
    reference: AtomicU64,
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| one(setting, mode))
}

fn failure(error: impl ToString) -> Failure {
    Failure::Run(error.to_string())
}

fn one(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let writers = scaled(setting, 16, 64);
    let block_size = BlockSize::from_bytes(4096).ok_or_else(|| failure("no blocks of 4096"))?;
    let options = Options::with_memory(block_size, MEMORY);
    let limits = mode.limits(&options.tunables).map_err(failure)?;
    let clock = Arc::new(SystemClock);
    let cache = PageCache::with_limits(options, clock, &limits).map_err(failure)?;
    cache.start_flushers(1).map_err(failure)?;
    let device = Arc::new(Mutex::new(()));
    let mappings: Vec<_> = (0..writers)
        .map(|_| Arc::new(Slow(Arc::clone(&device))))
        .collect();
    let shared = Shared::default();
    let counts: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    let seconds = scaled(setting, 4, 20);
    let result = thread::scope(|scope| {
        for (mapping, count) in mappings.iter().zip(&counts) {
            let weak: Weak<Slow> = Arc::downgrade(mapping);
            let file = cache.file(weak);
            let (cache, shared) = (&cache, &shared);
            scope.spawn(move || copy(cache, &file, count, shared));
        }
        scope.spawn(|| write_through(&shared));
        // From the start on for the limit; for rates when it has settled.
        thread::sleep(Duration::from_secs(2));
        let before: Vec<u64> = counts.iter().map(|count| count.load(Relaxed)).collect();
        let reference = shared.reference.load(Relaxed);
        let (stats, start) = (cache.stats(), Instant::now());
        thread::sleep(Duration::from_secs(seconds));
        let (after, elapsed) = (cache.stats(), start.elapsed().as_secs_f64());
        let shares: Vec<u64> = counts
            .iter()
            .zip(&before)
            .map(|(c, b)| c.load(Relaxed) - b)
            .collect();
        let reference = shared.reference.load(Relaxed) - reference;
        shared.stop.store(true, Relaxed);
        let reference = reference as f64 / elapsed;
        let written = (after.nr_written - stats.nr_written) as f64 / elapsed;
        let wakes = (after.throttled - stats.throttled) as f64 / elapsed;
        let limit = after.nr_dirty_threshold as f64;
        json!({
            "throughput": round(written / 1e6, 2),
            "reference": round(reference / 1e6, 2),
            "of_reference": round(written / reference, 4),
            "wakes": round(wakes, 1),
            "wakes_of_budget": round(wakes / (writers as f64 / 0.2).max(200.0), 4),
            "jain": round(jain(&shares), 4),
            "overshoot": round(shared.peak.load(Relaxed) as f64 / limit, 4),
        })
    });
    cache.stop_flushers();
    Ok(result)
}

/// Writes to a device of its own, without a cache.
fn write_through(shared: &Shared) {
    let device = Slow(Arc::default());
    let data = vec![7; REFERENCE_WRITE];
    while !shared.stop.load(Relaxed) && device.write_run(0, &[&data]).is_ok() {
        shared.reference.fetch_add(REFERENCE_WRITE as u64, Relaxed);
    }
}

/// Writes until it is stopped.
fn copy(
    cache: &PageCache<io::Error>,
    file: &FilePages<io::Error>,
    count: &AtomicU64,
    shared: &Shared,
) {
    let data = vec![7; WRITE];
    let mut at = 0;
    while !shared.stop.load(Relaxed) {
        let Ok(taken) = file.write(at, &data, at) else {
            break;
        };
        at += taken as u64;
        count.fetch_add(taken as u64, Relaxed);
        let unwritten = cache.limits().domain().unwritten() * 4096;
        shared.peak.fetch_max(unwritten, Relaxed);
    }
}
