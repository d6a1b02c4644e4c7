//! Test A of the thread: a few hundred files, nearly all of whose extents are delayed.

use serde_json::Value;

use super::machine::{Machine, Plan};
use super::tally::{self, Run, Tally};
use super::{jobs, policy, shares};
use crate::experiment::{Experiment, Failure, Measure, Parameter, Scale, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "extent-status-fragmented",
    accepts: policy::accepts,
    parameters: &[Parameter {
        name: "run",
        what: "mean length of the extents that the allocator gives, in blocks",
        values: &["32", "1", "8", "256"],
    }],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const FILES: usize = 500;
/// What may be dropped, more than which is a shortage.
const CAP: usize = 100_000;
/// Pages that the flusher takes of a file, of each GiB of memory: 1024 with the thread's 24 GB.
const CHUNK: usize = 43;
/// Runs of every policy, each with a seed of its own.
const RUNS: u64 = 10;

/// Memory in GiB, writes, and nanoseconds between two readings of the moving average.
fn extent_of(scale: Scale) -> (usize, usize, u64) {
    match scale {
        Scale::Quick => (1, 300_000, 200_000_000),
        Scale::Full => (2, 4_000_000, 4_000_000_000),
    }
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let runs: Vec<(&String, u64)> = setting
        .policies
        .iter()
        .flat_map(|policy| (0..RUNS).map(move |seed| (policy, setting.seed + seed)))
        .collect();
    let done = jobs::all(&runs, |(policy, seed)| once(setting, policy, *seed))?;
    let mut done = done.into_iter();
    let tallies: Vec<(String, Tally)> = setting
        .policies
        .iter()
        .map(|policy| {
            let runs = done.by_ref().take(RUNS as usize).collect();
            (policy.clone(), Tally { runs })
        })
        .collect();
    let mut results = tally::report(&tallies);
    results.insert("shares".to_owned(), shares::run(setting)?);
    Ok(Value::Object(results))
}

fn once(setting: &Setting, policy: &str, seed: u64) -> Result<Run, Failure> {
    let (memory, writes, sample) = extent_of(setting.scale);
    let shrinker = policy::parse(policy).map_err(Failure::Usage)?;
    let plan = Plan {
        files: FILES,
        memory: memory << 18,
        chunk: CHUNK * memory,
        run: setting.value("run").parse().unwrap_or(32),
        cap: CAP,
        tick: 10_000_000,
        sample,
    };
    let mut machine = Machine::new(plan, shrinker, seed);
    // Writers and their files in an order of the seed's, the same in every round.
    let mut order: Vec<usize> = (0..FILES).collect();
    for at in (1..FILES).rev() {
        let other = machine.random().below(at as u64 + 1) as usize;
        order.swap(at, other);
    }
    machine.run_short();
    for write in 0..writes {
        machine.write(order[write % FILES], (write / FILES) as u32);
    }
    Ok(machine.finish())
}
