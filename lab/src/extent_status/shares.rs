//! Trees of which a given share of extents stays delayed, however much is dropped.
//!
//! Between two calls, as many delayed extents become written as the call before it dropped, at
//! random places, and as many new delayed ones are appended.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde_json::{Map, Value, json};
use uext4_extent_status::{BATCH, Extent, Status, Tree};
use uext4_ondisk::{Lblk, Pblk};

use super::tally::round;
use super::{jobs, policy};
use crate::experiment::{Failure, Scale, Setting};
use uext4_testkit::SplitMix64;

const SHARES: [u64; 4] = [0, 50, 90, 99];
const TREES: usize = 500;

/// Steps per extent freed of every policy at every share.
pub fn run(setting: &Setting) -> Result<Value, Failure> {
    let runs: Vec<(&String, u64)> = setting
        .policies
        .iter()
        .flat_map(|policy| SHARES.map(|share| (policy, share)))
        .collect();
    let done = jobs::all(&runs, |(policy, share)| once(setting, policy, *share))?;
    let mut results = Map::new();
    for ((policy, share), per_freed) in runs.iter().zip(done) {
        let of = results
            .entry((*policy).clone())
            .or_insert_with(|| json!({}));
        of[share.to_string()] = json!(per_freed);
    }
    Ok(Value::Object(results))
}

/// One tree: its blocks are extents of their own, some of them delayed.
struct File {
    tree: Tree,
    delayed: Vec<u32>,
    end: u32,
}

impl File {
    /// A new extent at the end.
    fn append(&mut self, status: Status) {
        self.put(self.end, status);
        if status == Status::Delayed {
            self.delayed.push(self.end);
        }
        self.end += 1;
    }

    fn put(&self, lblk: u32, status: Status) {
        self.tree.insert(Extent {
            lblk: Lblk(lblk),
            len: 1,
            // Apart on the device: no two of them adjoin.
            pblk: Pblk(u64::from(lblk) * 2),
            status,
        });
    }

    /// One more extent that may be dropped; the number of delayed ones stays.
    fn renew(&mut self, random: &mut SplitMix64) {
        if self.delayed.is_empty() {
            self.append(Status::Written);
            return;
        }
        let at = random.below(self.delayed.len() as u64) as usize;
        let lblk = self.delayed.swap_remove(at);
        self.put(lblk, Status::Written);
        self.append(Status::Delayed);
    }
}

fn once(setting: &Setting, policy: &str, share: u64) -> Result<f64, Failure> {
    let (extents, calls) = match setting.scale {
        Scale::Quick => (500, 150),
        Scale::Full => (5000, 1000),
    };
    let shrinker = policy::parse(policy).map_err(Failure::Usage)?;
    let clock = Arc::new(AtomicU64::new(1));
    let room = policy::room(shrinker, false, &clock);
    let mut random = SplitMix64::new(setting.seed);
    let mut files: Vec<File> = (0..TREES)
        .map(|_| File {
            tree: Tree::new(&room),
            delayed: Vec::new(),
            end: 0,
        })
        .collect();
    for _ in 0..extents {
        for file in &mut files {
            let is_delayed = random.below(100) < share;
            file.append(if is_delayed {
                Status::Delayed
            } else {
                Status::Written
            });
        }
    }
    let (mut steps, mut freed) = (0, 0);
    for _ in 0..calls {
        clock.fetch_add(10_000_000, std::sync::atomic::Ordering::Relaxed);
        let scan = room.scan_recorded(BATCH);
        (steps, freed) = (steps + scan.steps(), freed + scan.freed);
        for _ in 0..scan.freed {
            let at = random.below(TREES as u64) as usize;
            files[at].renew(&mut random);
        }
    }
    Ok(round(steps as f64 / freed as f64))
}
