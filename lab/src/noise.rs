//! How noisy this machine is, as the lab itself measures it.
//!
//! Two things are measured. *A/A*: one workload of the engine, the same binary on both sides, run
//! in turns and judged as any two policies are; what the sides differ by is chance. *Wake-up*:
//! how long a sleeping thread takes to run once it is woken.
//!
//! A difference is believed only above `floor`: the third quartile of the A/A differences and
//! three times the distance of the quartiles (the rule of rustc-perf's comparisons), and 3 % at
//! least: a machine that was calm while it was measured need not be calm later. In a calm minute
//! the rule alone gave 0.67 %, and of 20 pairs of the same binary two differed by more.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use uext4::NewInode;
use uext4_blockdev::MemoryDevice;

use crate::bh_lru::volume::{self, BY, Shape, failed};
use crate::experiment::Failure;
use crate::ministat::{Difference, Summary};

/// Pairs of sets that are compared.
const PAIRS: usize = 20;
/// Samples of each set.
const SAMPLES: usize = 10;
/// Files made by a sample.
const FILES: u64 = 2000;
/// Least floor, as a part of one.
const FLOOR_LEAST: f64 = 0.03;
/// Wake-ups of which the median is taken.
const WAKE_UPS: usize = 201;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Noise {
    /// By how much the means of two sets of the same binary differ, as parts of one, in the order
    /// of measuring.
    pub differences: Vec<f64>,
    /// What a difference must exceed to be believed, as a part of one.
    pub floor: f64,
    /// Pairs of which `ministat`'s rule alone says that they differ: chance makes it one in twenty.
    pub false_by_ministat: usize,
    /// Median microseconds from a wake-up to the thread that was woken.
    pub wake_up_us: f64,
}

/// Measures for about ten seconds.
///
/// # Errors
/// [`Failure::Run`] if the engine fails.
pub fn measure() -> Result<Noise, Failure> {
    let pairs = pairs(PAIRS)?;
    let differences: Vec<f64> = pairs.iter().map(|pair| pair.relative).collect();
    Ok(Noise {
        floor: floor(&differences),
        false_by_ministat: pairs.iter().filter(|pair| pair.is_proven).count(),
        wake_up_us: wake_up(),
        differences,
    })
}

/// Measures the noise, then as many pairs again; how many of those the lab's rule would call a
/// difference, which should be none.
///
/// # Errors
/// [`Failure::Run`] if the engine fails.
pub fn check() -> Result<(Noise, usize), Failure> {
    let noise = measure()?;
    let again = pairs(PAIRS)?;
    let is_false = |pair: &&Pair| pair.is_proven && pair.relative > noise.floor;
    let count = again.iter().filter(is_false).count();
    Ok((noise, count))
}

/// Two sets of samples of the same binary.
struct Pair {
    /// Distance of the means over the first.
    relative: f64,
    /// Whether `ministat`'s rule says that they differ.
    is_proven: bool,
}

fn pairs(count: usize) -> Result<Vec<Pair>, Failure> {
    let empty = volume::make(&Shape {
        files: FILES,
        directories: 1,
        prefill: 0,
        acl: false,
        quota: false,
    })?;
    // The first sample warms what the others find warm.
    sample(&empty)?;
    let mut pairs = Vec::new();
    for _ in 0..count {
        let mut sets = [Vec::new(), Vec::new()];
        for _ in 0..SAMPLES {
            for set in &mut sets {
                set.push(sample(&empty)?);
            }
        }
        let [Some(first), Some(second)] = sets.map(|set| Summary::of(&set)) else {
            return Err(Failure::Run("A/A: too few samples".to_owned()));
        };
        pairs.push(Pair {
            relative: (second.avg - first.avg).abs() / first.avg,
            is_proven: matches!(second.against(&first), Difference::Proven { .. }),
        });
    }
    Ok(pairs)
}

/// Seconds that it takes to make [`FILES`] files and to commit them, on a copy of `empty`.
fn sample(empty: &MemoryDevice) -> Result<f64, Failure> {
    let fs = volume::open(Arc::new(empty.snapshot()), None)?;
    let root = fs.root().map_err(failed)?;
    let dir = root.lookup(&volume::directory(0)).map_err(failed)?;
    let begin = Instant::now();
    for number in 0..FILES {
        let name = format!("file.{number}");
        dir.create(name.as_bytes(), NewInode::File, &BY)
            .map_err(failed)?;
    }
    fs.sync().map_err(failed)?;
    let seconds = begin.elapsed().as_secs_f64();
    fs.close().map_err(failed)?;
    Ok(seconds)
}

/// Above which a difference is more than the machine's noise: the third quartile and three times
/// the distance of the quartiles, [`FLOOR_LEAST`] at least.
fn floor(differences: &[f64]) -> f64 {
    let mut sorted = differences.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |part: usize| sorted.get(sorted.len() * part / 4).copied().unwrap_or(0.0);
    let (first, third) = (at(1), at(3));
    (third + 3.0 * (third - first)).max(FLOOR_LEAST)
}

/// Median microseconds of one way between two threads that wake each other.
fn wake_up() -> f64 {
    let (there, arrived) = mpsc::sync_channel::<()>(0);
    let (back, returned) = mpsc::sync_channel::<()>(0);
    let other = thread::spawn(
        move || {
            while arrived.recv().is_ok() && back.send(()).is_ok() {}
        },
    );
    let mut ways: Vec<f64> = (0..WAKE_UPS)
        .map(|_| {
            // Both threads sleep when the next turn begins.
            thread::sleep(Duration::from_micros(200));
            let begin = Instant::now();
            let is_back = there.send(()).is_ok() && returned.recv().is_ok();
            match is_back {
                true => begin.elapsed().as_secs_f64() * 1e6 / 2.0,
                false => f64::INFINITY,
            }
        })
        .collect();
    drop(there);
    // It ends when its channel does; it does not panic.
    let _ = other.join();
    ways.sort_by(f64::total_cmp);
    ways[WAKE_UPS / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_above_what_chance_did() {
        let differences = [0.01, 0.02, 0.01, 0.03, 0.02, 0.01, 0.02, 0.03];
        let floor = floor(&differences);
        assert!((0.03..0.2).contains(&floor), "{floor}");
        assert_eq!(super::floor(&[0.001; 8]), FLOOR_LEAST);
    }

    #[test]
    fn a_wake_up_takes_time() {
        let taken = wake_up();
        assert!(taken > 0.0 && taken.is_finite());
    }
}
