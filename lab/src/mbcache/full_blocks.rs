//! Few values and many files: blocks with as many users as they may have pile up.

use serde_json::{Map, Value};

use super::model;
use super::plan::Plan;
use super::policy;
use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mbcache-full-blocks",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

fn run(setting: &Setting) -> Result<Value, Failure> {
    let (tasks, sets) = match setting.scale {
        Scale::Quick => (64, 300),
        Scale::Full => (64, 10_000),
    };
    let plan = Plan {
        values: 5,
        files: 20_000,
        tasks,
        sets,
        zipf: 0.0,
        cap: None,
    };
    let mut results = Map::new();
    for policy in &setting.policies {
        results.insert(policy.clone(), model::run(policy, &plan, setting.seed)?);
    }
    Ok(Value::Object(results))
}
