//! Power cuts at every write: whatever a cut leaves is recovered to a sound file system in which
//! everything that was made durable is there, unchanged, and nothing else than was ever done.
//!
//! A run of random operations is recorded, change by change. Then for every point between two
//! changes images are built of what was durable and of a part of what was written since the last
//! flush, torn at sectors. Each is recovered and judged. `UEXT4_LONG=1` makes many more of them.

mod inline;
mod judge;
pub mod log;
mod model;
mod others;
mod race;
pub mod recorder;
mod replaced;
mod shared;
mod workload;

use std::sync::Arc;

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_testkit::SplitMix64;

use crate::writing::device::made;
use judge::{judge, read, recover, waits_for_a_mount};
use model::Oracle;
use recorder::{Cuts, Recorder};
use workload::Run;

/// Images built for each point, next to the one that lost nothing.
const SEEDS: u64 = 3;

/// How much is done with the states of one kind of file system.
struct Plan {
    flags: &'static str,
    kib: u64,
    /// Operations of a run.
    operations: usize,
    /// States, at least.
    states: usize,
    /// Whether the journal has checksums, and old transactions in its log.
    used_log: bool,
}

/// Where a state comes from, so that it can be made again.
#[allow(dead_code, reason = "shown when a state is not as it should be")]
#[derive(Clone, Debug)]
struct Origin {
    flags: &'static str,
    run: u64,
    /// Changes and flushes that were sent.
    events: usize,
    seed: Option<u64>,
    during: String,
}

fn many(states: usize) -> usize {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => states * 40,
        None => states,
    }
}

/// Runs and cuts until there were as many states as planned.
fn cut_everywhere(plan: &Plan) {
    let empty = made(plan.flags, plan.kib);
    if plan.used_log {
        crate::log_place::give_checksums(&empty);
        log::use_up(&empty);
    }
    let mut states = 0;
    let mut number = 0;
    while states < many(plan.states) {
        let run = workload::run(&empty, number, plan.operations);
        states += cut_run(plan, &empty, number, &run);
        number += 1;
    }
    println!("{}: {states} states of {number} runs", plan.flags);
}

fn cut_run(plan: &Plan, empty: &MemoryDevice, number: u64, run: &Run) -> usize {
    let mut cuts = Cuts::new(empty);
    let mut oracle = Oracle::new(&run.steps);
    let mut states = 0;
    for (at, (_, event)) in run.events.iter().enumerate() {
        cuts.push(event);
        let next = run.events.get(at + 1);
        oracle.advance(next.map_or(run.steps.len() - 1, |(operation, _)| *operation));
        let seeds = if cuts.is_durable() { 0 } else { SEEDS };
        for seed in (0..seeds).map(Some).chain([None]) {
            let origin = Origin {
                flags: plan.flags,
                run: number,
                events: at + 1,
                seed,
                during: oracle.what(),
            };
            let image = match seed {
                Some(seed) => cuts.some(number << 32 | (at as u64) << 8 | seed),
                None => cuts.all(),
            };
            judge_state(&image, &oracle, &origin, states);
            states += 1;
        }
    }
    states
}

fn judge_state(image: &MemoryDevice, oracle: &Oracle<'_>, origin: &Origin, number: usize) {
    let recovered = Arc::new(image.snapshot());
    let result = recover(Arc::clone(&recovered) as _).and_then(|()| {
        let found = read(&recovered)?;
        judge(&found, oracle)?;
        if number.is_multiple_of(5) {
            waits_for_a_mount(image)?;
        }
        if number.is_multiple_of(7) {
            cut_recovery(image, oracle, number as u64)?;
        }
        if number.is_multiple_of(97) {
            others::agree(image, &recovered, &found)?;
        }
        Ok(())
    });
    if let Err(reason) = result {
        if let Some(path) = std::env::var_os("UEXT4_KEEP") {
            std::fs::write(path, image.to_bytes()).unwrap();
        }
        panic!("{origin:?}: {reason}");
    }
}

/// The power goes again while the journal is replayed or orphans are deleted.
fn cut_recovery(image: &MemoryDevice, oracle: &Oracle<'_>, seed: u64) -> Result<(), String> {
    let device = Arc::new(Recorder::new(image));
    recover(Arc::clone(&device) as _)?;
    let events = device.take_events();
    let last = SplitMix64::new(seed).below(events.len() as u64 + 1) as usize;
    let mut cuts = Cuts::new(image);
    events[..last]
        .iter()
        .for_each(|(_, event)| cuts.push(event));
    let recovered = Arc::new(cuts.some(seed));
    let again = || -> Result<(), String> {
        recover(Arc::clone(&recovered) as Arc<dyn BlockDevice>)?;
        judge(&read(&recovered)?, oracle)
    };
    again().map_err(|error| format!("after {last} changes of recovery: {error}"))
}

#[test]
fn ext4_with_1k_blocks() {
    cut_everywhere(&Plan {
        flags: "-t ext4 -b 1024 -J size=1",
        kib: 8192,
        operations: 700,
        states: 3000,
        used_log: true,
    });
}

#[test]
fn ext4_with_4k_blocks() {
    cut_everywhere(&Plan {
        flags: "-t ext4 -b 4096 -J size=4",
        kib: 16_384,
        operations: 120,
        states: 2250,
        used_log: false,
    });
}

#[test]
fn ext4_with_an_orphan_file() {
    cut_everywhere(&Plan {
        flags: "-t ext4 -b 1024 -J size=1 -O orphan_file",
        kib: 8192,
        operations: 100,
        states: 1750,
        used_log: true,
    });
}

#[test]
fn ext4_without_checksums() {
    cut_everywhere(&Plan {
        flags: "-t ext4 -b 1024 -J size=1 -O ^metadata_csum,^64bit",
        kib: 8192,
        operations: 100,
        states: 1750,
        used_log: false,
    });
}

#[test]
fn ext3() {
    cut_everywhere(&Plan {
        flags: "-t ext3 -b 1024 -J size=1",
        kib: 8192,
        operations: 100,
        states: 1750,
        used_log: false,
    });
}

/// Where what is counted is judged too.
#[test]
fn ext4_with_quotas() {
    cut_everywhere(&Plan {
        flags: "-t ext4 -b 1024 -J size=1 -O quota,project",
        kib: 8192,
        operations: 150,
        states: 1750,
        used_log: false,
    });
}
