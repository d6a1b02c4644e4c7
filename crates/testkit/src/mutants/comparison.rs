//! Runs of many mutants: which seeds, and the count of what two judges say of them.
//!
//! A quick run tries the first few hundred seeds, `UEXT4_LONG` thousands. `UEXT4_MUTANTS=N`, `N-M`
//! or `N,N-M` tries these seeds; `UEXT4_KEEP=DIR` keeps the images that fail there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use super::Mutant;
use super::limits::Limits;
use super::oracle::Oracle;
use crate::cases::{is_long, run};

/// The seeds of a run: so many of a quick one, and so many of a long one; of both also those that
/// once showed a fault.
pub fn seeds(quick: u64, long: u64, faults: &[u64]) -> Vec<u64> {
    let Ok(asked) = std::env::var("UEXT4_MUTANTS") else {
        let count = if is_long() { long } else { quick };
        let others = faults.iter().copied().filter(|&seed| seed >= count);
        return (0..count).chain(others).collect();
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u64>().unwrap()..=last.parse().unwrap()
    };
    asked.split(',').flat_map(range).collect()
}

fn name(seed: &u64) -> String {
    format!("UEXT4_MUTANTS={seed}")
}

/// How two judgements of a mutant compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// They are the same.
    Same,
    /// They differ, and a row of the table explains it.
    Explained(&'static str),
    /// They differ; in words.
    Differ(String),
    /// One of them cannot be had: there is nothing to compare.
    Undecided(&'static str),
}

/// What a run counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// How many are the same.
    pub same: u64,
    /// How many differ, by the reason.
    pub explained: BTreeMap<&'static str, u64>,
    /// How many could not be compared, by the reason.
    pub undecided: BTreeMap<&'static str, u64>,
    /// What differs without a reason: a line for each.
    pub differ: Vec<String>,
}

impl Counts {
    /// All that were judged.
    pub fn all(&self) -> u64 {
        let explained: u64 = self.explained.values().sum();
        let undecided: u64 = self.undecided.values().sum();
        self.same + explained + undecided + self.differ.len() as u64
    }
}

/// Compares the mutants of all seeds, some at a time, and prints what came of it.
///
/// # Panics
/// If the process grows by more than the limits allow.
#[track_caller]
pub fn compare(
    what: &str,
    seeds: &[u64],
    each: impl Fn(&Oracle, &Mutant) -> Compared + Sync,
) -> Counts {
    let counts = Mutex::new(Counts::default());
    let limits = Limits::new();
    let failures = run(seeds, name, Oracle::new, |oracle, &seed| {
        let mutant = Mutant::new(seed);
        let compared = each(oracle, &mutant);
        let mut counts = counts.lock().unwrap();
        match compared {
            Compared::Same => counts.same += 1,
            Compared::Explained(why) => *counts.explained.entry(why).or_default() += 1,
            Compared::Undecided(why) => *counts.undecided.entry(why).or_default() += 1,
            Compared::Differ(how) => {
                keep(&mutant);
                return vec![format!("{how} | {mutant}")];
            }
        }
        Vec::new()
    });
    let mut counts = counts.into_inner().unwrap();
    counts.differ = failures;
    for line in &counts.differ {
        println!("{what} | {line}");
    }
    for (why, count) in counts.explained.iter().chain(&counts.undecided) {
        println!("{what}: {count} times: {why}");
    }
    let (all, differ) = (counts.all(), counts.differ.len());
    println!(
        "{what}: {all} mutants, {} agree, {differ} differ",
        counts.same
    );
    limits.assert_kept();
    counts
}

/// Keeps the image of a mutant that failed, if it is asked for.
fn keep(mutant: &Mutant) {
    if let Some(dir) = std::env::var_os("UEXT4_KEEP") {
        let path = Path::new(&dir).join(format!("mutant-{}.img", mutant.seed));
        fs::write(path, &mutant.bytes).unwrap();
    }
}
