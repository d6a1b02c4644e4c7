//! Many writers at once: how often they wait for each other's group.

use std::sync::Barrier;
use std::time::Instant;

use serde_json::{Map, Value, json};
use uext4_lab_policies::mballoc::Tunables;
use uext4_mballoc::{Allocator, DataRequest, FileSpace, Run};
use uext4_ondisk::{GroupNr, Lblk, Pblk};

use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};
use crate::mballoc::bitmaps::MemoryBitmaps;
use crate::mballoc::measure::{self, Counted};
use crate::mballoc::{format, policy};
use crate::ministat::Summary;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mballoc-contention",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Threads,
    run,
};

const WRITERS: [u64; 5] = [1, 2, 4, 8, 64];
/// Times each is run, the policies in turns.
const REPEATS: usize = 5;
/// Blocks of an append and of a full file: 8 KiB and 1 MiB.
const APPEND: u32 = 2;
const FILE: u32 = 256;
const DEVICE: u64 = 4 << 30;
const BLOCK_BYTES: u64 = 4096;

/// What one policy did with one number of writers.
#[derive(Default)]
struct Row {
    /// Snapshots of every repeat, summed up.
    allocator: Vec<Counted>,
    ops_per_second: Vec<f64>,
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let files = match setting.scale {
        Scale::Quick => 2048,
        Scale::Full => 24_576,
    };
    let mut results = Map::new();
    for writers in WRITERS {
        let mut rows: Vec<Row> = setting.policies.iter().map(|_| Row::default()).collect();
        for _ in 0..REPEATS {
            for (name, row) in setting.policies.iter().zip(&mut rows) {
                run_once(name, writers, files / writers, row)?;
            }
        }
        let reference = Summary::of(&rows[0].ops_per_second);
        for (name, row) in setting.policies.iter().zip(&rows) {
            let reported = row.report(reference.as_ref());
            results.entry(name.clone()).or_insert_with(|| json!({}))[writers.to_string()] =
                reported;
        }
    }
    Ok(Value::Object(results))
}

fn run_once(name: &str, writers: u64, files_each: u64, row: &mut Row) -> Result<(), Failure> {
    let design = policy::parse(name).map_err(Failure::Usage)?;
    let made = design.make(Tunables::default());
    let (geometry, bitmaps) = format::format(DEVICE, BLOCK_BYTES)?;
    let allocator = format::allocator(&geometry, &bitmaps, 0, &made)?;
    // All in one directory: near the same group.
    let goal = geometry.group_start(GroupNr(1));
    let barrier = Barrier::new(writers as usize);
    let start = Instant::now();
    let done: Result<Vec<()>, String> = std::thread::scope(|scope| {
        let (allocator, bitmaps, barrier) = (&allocator, &bitmaps, &barrier);
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    barrier.wait();
                    write(allocator, bitmaps, writer, files_each, goal)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|_| Err("a writer panicked".to_owned())))
            .collect()
    });
    done.map_err(Failure::Run)?;
    let ops = writers * files_each * u64::from(FILE / APPEND + 1);
    row.ops_per_second
        .push(ops as f64 / start.elapsed().as_secs_f64());
    row.allocator.push(Counted {
        stats: allocator.stats(),
        kernel: made.stats(),
    });
    Ok(())
}

/// One writer: fills its file and empties it, so many times.
fn write(
    allocator: &Allocator,
    bitmaps: &MemoryBitmaps,
    file: u64,
    times: u64,
    goal: Pblk,
) -> Result<(), String> {
    for _ in 0..times {
        let space = FileSpace::default();
        let mut runs: Vec<Run> = Vec::new();
        let mut at = 0;
        while at < FILE {
            let left = runs.last().map(|run| {
                let last = u64::from(run.len) - 1;
                (Lblk(at - 1), Pblk(run.start.0 + last))
            });
            let request = DataRequest {
                file,
                lblk: Lblk(at),
                len: APPEND.min(FILE - at),
                goal,
                left,
                right: None,
                size: u64::from(at + APPEND),
                unwritten: true,
                closed: false,
            };
            let run = allocator.take_data(bitmaps, &space, &request);
            let run = run.map_err(|error| error.to_string())?;
            allocator
                .mark(bitmaps, run)
                .map_err(|error| error.to_string())?;
            runs.push(run);
            at += run.len;
        }
        allocator.discard(&space);
        for run in runs {
            allocator
                .free(bitmaps, run)
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

impl Row {
    /// All repeats, and how the speed compares with the first policy's.
    fn report(&self, reference: Option<&Summary>) -> Value {
        let summary = Summary::of(&self.ops_per_second);
        let said = summary.zip(reference).map(|(this, reference)| {
            let difference = this.against(reference).to_string();
            difference.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        json!({
            "allocator": measure::sum(&self.allocator),
            "ops_per_second": summary.map(|s| s.to_string()),
            "ops_per_second_against_the_first_policy": said,
        })
    }
}
