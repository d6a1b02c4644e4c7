//! Time on the wall beside the model: policies take turns, and what differs is said by ministat's rule.

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
    parameters: &[policy::SCOPE, policy::FILES],
    has_subjects: false,
    measure: Measure::Timed,
    run,
};

const ROUNDS: usize = 10;
const FILES: u64 = 1_000_000;

/// A cell: its name, its tasks, files there before, and whether quotas are counted.
const CELLS: [(&str, u64, u64, bool); 4] = [
    ("mdtest-1-0", 1, 0, false),
    ("mdtest-1-500000", 1, 500_000, false),
    ("survey-1", 1, 0, true),
    ("survey-8", 8, 0, true),
];

fn run(setting: &Setting) -> Result<Value, Failure> {
    let divisor = policy::divisor(setting);
    let files = FILES / divisor;
    let mut results: Map<String, Value> = Map::new();
    for (cell, tasks, prefill, quota) in CELLS {
        let image = volume::make(&Shape {
            files,
            directories: 1,
            prefill: prefill / divisor,
            acl: true,
            quota,
        })?;
        let plan = Plan {
            tasks,
            files,
            selinux: true,
            directories: 1,
            scope: policy::scope(setting),
        };
        let mut times = vec![Vec::new(); setting.policies.len()];
        for _ in 0..ROUNDS {
            for (policy, times) in setting.policies.iter().zip(&mut times) {
                times.push(workload::time(&image, policy, &plan)?);
            }
        }
        for (policy, of) in setting.policies.iter().zip(&times) {
            let told = results.entry(policy.clone()).or_insert_with(|| json!({}));
            told[cell] = tell(of, &times[0]);
        }
    }
    Ok(Value::Object(results))
}

/// The times of one policy beside those of the first.
fn tell(times: &[[f64; 3]], first: &[[f64; 3]]) -> Value {
    let mut told = Map::new();
    for (at, phase) in PHASES.into_iter().enumerate() {
        let of = |times: &[[f64; 3]]| times.iter().map(|time| time[at]).collect::<Vec<_>>();
        let (this, reference) = (of(times), of(first));
        let ratios: Vec<f64> = this.iter().zip(&reference).map(|(a, b)| a / b).collect();
        let said = Summary::of(&this).zip(Summary::of(&reference));
        let difference = said.map(|(this, reference)| {
            let difference = this.against(&reference).to_string();
            difference.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        told.insert(
            phase.to_owned(),
            json!({
                "nanoseconds": said.map(|(this, _)| this.to_string()),
                "to_the_first": difference,
                "median_to_the_first": Summary::of(&ratios).map(|s| round(s.median)),
            }),
        );
    }
    Value::Object(told)
}
