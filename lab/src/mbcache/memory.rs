//! Few entries for many values, of which few are frequent.

use serde_json::{Map, Value};

use super::model;
use super::plan::Plan;
use super::policy;
use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mbcache-memory",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

fn run(setting: &Setting) -> Result<Value, Failure> {
    let files = match setting.scale {
        Scale::Quick => 2000,
        Scale::Full => 10_000,
    };
    let plan = Plan {
        values: 100_000,
        files,
        tasks: 8,
        sets: 10 * files,
        zipf: 0.9,
        cap: Some(4096),
    };
    let mut results = Map::new();
    for policy in &setting.policies {
        results.insert(policy.clone(), model::run(policy, &plan, setting.seed)?);
    }
    Ok(Value::Object(results))
}
