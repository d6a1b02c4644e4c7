//! The same steps on a RAID 5: whose writes cover whole stripes.

use serde_json::{Map, Value};

use crate::experiment::{Experiment, Failure, Measure, Parameter, Setting};
use crate::mballoc::{policy, seeds, steps};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mballoc-stripe",
    accepts: policy::accepts,
    parameters: &[
        steps::TREE,
        steps::BLOCK,
        steps::CHUNK,
        Parameter {
            name: "disks",
            what: "of data in a stripe, 64 KiB of it on each; one more holds the parity",
            values: &["31", "8", "5"],
        },
        seeds::SEEDS,
    ],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

fn run(setting: &Setting) -> Result<Value, Failure> {
    seeds::run(setting, run_seed)
}

fn run_seed(setting: &Setting) -> Result<Value, Failure> {
    let disks = setting.value("disks").parse().unwrap_or(31);
    let mut results = Map::new();
    for name in &setting.policies {
        let mut measured = steps::run_policy(setting, name, disks)?;
        let sum: u64 = ["single_dd", "multiple_dd"]
            .iter()
            .filter_map(|step| measured[step]["disk"]["read_modify_writes"].as_u64())
            .sum();
        measured["dd_read_modify_writes"] = sum.into();
        results.insert(name.clone(), measured);
    }
    Ok(Value::Object(results))
}
