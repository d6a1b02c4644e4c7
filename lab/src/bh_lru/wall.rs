//! Time on the wall compared with the model: policies take turns, and what differs is said by
//! ministat's rule.

use serde_json::{Map, Value, json};

use super::cost::round;
use super::policy;
use super::volume::{self, Shape};
use super::workload::{self, PHASES, Plan};
use crate::experiment::{Experiment, Failure, Measure, Setting};
use crate::ministat::Summary;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bh-lru-wall",
    accepts: policy::accepts,
    parameters: &[policy::SCOPE_TIMED, policy::FILES],
    has_subjects: false,
    measure: Measure::Timed,
    run,
};

const ROUNDS: usize = 10;
/// Of all tasks; a fifth of the thread's, because ten rounds of every policy take turns.
const FILES: u64 = 200_000;

/// What is timed together.
struct Cell {
    name: &'static str,
    tasks: u64,
    /// Files that were there before, in the directory.
    prefill: u64,
    quota: bool,
    /// Tasks do not take turns: each is a thread, with a directory of its own.
    at_once: bool,
}

const CELL: Cell = Cell {
    name: "mdtest-1-0",
    tasks: 1,
    prefill: 0,
    quota: false,
    at_once: false,
};
const CELLS: [Cell; 5] = [
    CELL,
    Cell {
        name: "mdtest-1-500000",
        prefill: 500_000,
        ..CELL
    },
    Cell {
        name: "survey-1",
        quota: true,
        ..CELL
    },
    Cell {
        name: "survey-8",
        tasks: 8,
        quota: true,
        ..CELL
    },
    Cell {
        name: "at-once-2",
        tasks: 2,
        quota: true,
        at_once: true,
        ..CELL
    },
];

fn run(setting: &Setting) -> Result<Value, Failure> {
    let divisor = policy::divisor(setting);
    let files = FILES / divisor;
    let mut results: Map<String, Value> = Map::new();
    for cell in CELLS {
        let directories = if cell.at_once { cell.tasks } else { 1 };
        let image = volume::make(&Shape {
            files,
            directories,
            prefill: cell.prefill / divisor,
            acl: true,
            quota: cell.quota,
        })?;
        let plan = Plan {
            tasks: cell.tasks,
            files,
            selinux: true,
            directories,
            scope: policy::scope(setting),
        };
        let time = if cell.at_once {
            workload::time_at_once
        } else {
            workload::time
        };
        let mut times = vec![Vec::new(); setting.policies.len()];
        for _ in 0..ROUNDS {
            for (policy, times) in setting.policies.iter().zip(&mut times) {
                times.push(time(&image, policy, &plan)?);
            }
        }
        for (policy, of) in setting.policies.iter().zip(&times) {
            let reported = results.entry(policy.clone()).or_insert_with(|| json!({}));
            reported[cell.name] = report(of, &times[0]);
        }
    }
    Ok(Value::Object(results))
}

/// The times of one policy compared with those of the first.
fn report(times: &[[f64; 3]], first: &[[f64; 3]]) -> Value {
    let mut reported = Map::new();
    for (at, phase) in PHASES.into_iter().enumerate() {
        let of = |times: &[[f64; 3]]| times.iter().map(|time| time[at]).collect::<Vec<_>>();
        let (this, reference) = (of(times), of(first));
        let ratios: Vec<f64> = this.iter().zip(&reference).map(|(a, b)| a / b).collect();
        let said = Summary::of(&this).zip(Summary::of(&reference));
        let difference = said.map(|(this, reference)| {
            let difference = this.against(&reference).to_string();
            difference.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        reported.insert(
            phase.to_owned(),
            json!({
                "samples": this.iter().map(|time| round(*time)).collect::<Vec<_>>(),
                "nanoseconds": said.map(|(this, _)| this.to_string()),
                "to_the_first": difference,
                "median_to_the_first": Summary::of(&ratios).map(|s| round(s.median)),
            }),
        );
    }
    Value::Object(reported)
}
