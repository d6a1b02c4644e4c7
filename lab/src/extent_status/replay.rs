//! A shrinker compared with the kernel's: what the kernel did is done to its trees, call by call.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use serde_json::{Value, json};
use uext4_extent_status::{ExtentStatusCache, Tree};
use uext4_lab_policies::extent_status::Policy;
use uext4_ondisk::Lblk;

use super::policy;
use super::steps::{Call, Step};
use super::tally::round;

/// What a design did, or the kernel.
#[derive(Debug, Default)]
pub struct Figures {
    /// Extents dropped by each call.
    pub shrunk: Vec<u64>,
    /// Microseconds of each call.
    pub microseconds: Vec<f64>,
    /// Extents that might have been dropped, before each call.
    pub reclaimable: Vec<u64>,
    /// Steps of each call; the kernel does not report them.
    pub steps: Vec<u64>,
    /// Whether each lookup was answered.
    pub found: Vec<bool>,
    /// Which calls were the first of a shortage.
    pub first: Vec<usize>,
}

/// The places of calls before which something else was done: the others go on with a shortage.
fn first_calls(steps: &[Step]) -> Vec<usize> {
    let (mut first, mut calls, mut is_first) = (Vec::new(), 0, true);
    for step in steps {
        if !matches!(step, Step::Shrink(_)) {
            is_first = true;
            continue;
        }
        if std::mem::take(&mut is_first) {
            first.push(calls);
        }
        calls += 1;
    }
    first
}

impl Figures {
    /// What the kernel's events say.
    pub fn of_kernel(steps: &[Step]) -> Self {
        let mut figures = Self {
            first: first_calls(steps),
            ..Self::default()
        };
        for step in steps {
            match step {
                Step::Shrink(call) => {
                    figures.shrunk.push(call.shrunk);
                    figures.microseconds.push(call.microseconds as f64);
                    figures.reclaimable.push(call.reclaimable);
                }
                Step::Lookup { found, .. } => figures.found.push(found.is_some()),
                _ => {}
            }
        }
        figures
    }

    /// For the record.
    pub fn report(&self) -> Value {
        let calls = self.shrunk.len().max(1) as f64;
        let shrunk: u64 = self.shrunk.iter().sum();
        let first = self.first.iter().filter_map(|at| self.shrunk.get(*at));
        let first: u64 = first.sum();
        let hits = self.found.iter().filter(|found| **found).count();
        let mut times = self.microseconds.clone();
        times.sort_by(f64::total_cmp);
        let percentile = |part: usize| {
            let at = times.len().saturating_sub(1) * part / 100;
            times.get(at).map(|time| round(*time))
        };
        let steps = (!self.steps.is_empty()).then(|| {
            let sum: u64 = self.steps.iter().sum();
            json!({
                "mean": round(sum as f64 / calls),
                "max": self.steps.iter().max(),
                "per_shrunk": round(sum as f64 / shrunk.max(1) as f64),
            })
        });
        json!({
            "calls": self.shrunk.len(),
            "shrunk": shrunk,
            "shrunk_a_call": round(shrunk as f64 / calls),
            "shrunk_in_the_first_call": round(first as f64 / self.first.len().max(1) as f64),
            "lookups": self.found.len(),
            "hit_ratio": round(hits as f64 / self.found.len().max(1) as f64),
            "microseconds": {
                "mean": round(times.iter().sum::<f64>() / calls),
                "median": percentile(50),
                "p99": percentile(99),
                "max": times.last().map(|time| round(*time)),
            },
            "steps": steps,
        })
    }

    /// How many of a hundred calls and lookups were as the kernel's.
    pub fn next_to(&self, kernel: &Self) -> Value {
        fn same<T: PartialEq>(ours: &[T], theirs: &[T]) -> (usize, Value) {
            let same = ours.iter().zip(theirs).filter(|(a, b)| a == b).count();
            let all = ours.len().max(theirs.len());
            let part = (all > 0).then(|| round(same as f64 / all as f64));
            (same, json!(part))
        }
        let (identical, part) = same(&self.shrunk, &kernel.shrunk);
        let counts = self.reclaimable.iter().zip(&kernel.reclaimable);
        json!({
            "calls_that_dropped_the_same": identical,
            "calls": part,
            "reclaimable_off_by_at_most": counts.map(|(ours, theirs)| ours.abs_diff(*theirs)).max(),
            "lookups": same(&self.found, &kernel.found).1,
        })
    }
}

/// Trees of one design, to which is done what was done to the kernel's.
struct Replay {
    room: Arc<ExtentStatusCache>,
    trees: HashMap<u64, Tree>,
    figures: Figures,
}

impl Replay {
    fn tree(&mut self, ino: u64) -> &Tree {
        let room = &self.room;
        self.trees.entry(ino).or_insert_with(|| Tree::new(room))
    }

    fn shrink(&mut self, call: &Call) {
        self.figures.reclaimable.push(self.room.count() as u64);
        let start = Instant::now();
        let scan = self.room.scan_recorded(call.budget as usize);
        let time = start.elapsed().as_secs_f64() * 1e6;
        self.figures.microseconds.push(time);
        self.figures.shrunk.push(scan.freed as u64);
        self.figures.steps.push(scan.steps());
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Insert { ino, extent } => _ = self.tree(*ino).insert(*extent),
            // The kernel notes it only if nothing of its range is known.
            Step::Cache { ino, extent } => self.tree(*ino).cache_all(&[*extent]),
            Step::Remove { ino, lblk, len } => _ = self.tree(*ino).remove(Lblk(*lblk), *len),
            Step::Lookup { ino, lblk, found } => {
                let tree = self.tree(*ino);
                let answer = tree.lookup(Lblk(*lblk));
                // Another design may have dropped what the kernel still had: it reads it anew.
                if let (None, Some(extent)) = (answer, found) {
                    tree.cache(*extent);
                }
                self.figures.found.push(answer.is_some());
            }
            Step::Shrink(call) => self.shrink(call),
        }
    }
}

/// Does all steps to the trees of a design. Returns its figures and what it holds at the end: all
/// extents, those that may be dropped, and files that have some.
pub fn run(design: Policy, steps: &[Step]) -> (Figures, [u64; 3]) {
    let clock = Arc::new(AtomicU64::new(1));
    let mut replay = Replay {
        room: policy::room(design, true, &clock),
        trees: HashMap::new(),
        figures: Figures {
            first: first_calls(steps),
            ..Figures::default()
        },
    };
    for step in steps {
        // Designs that sort by last use need a time that goes on.
        clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        replay.step(step);
    }
    let stats = replay.room.stats();
    let end = [
        stats.es_stats_all_cnt,
        stats.es_stats_shk_cnt,
        stats.s_es_nr_inode,
    ];
    (replay.figures, end)
}
