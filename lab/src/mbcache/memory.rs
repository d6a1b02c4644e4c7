//! Few entries for many values, of which few are frequent.

use serde_json::{Map, Value};

use super::model;
use super::plan::Plan;
use super::policy;
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Scale, Setting};

/// The claim.
pub const CLAIM: Claim = Claim {
    name: "mbcache-memory",
    title: "with memory for 4096 entries those that are used stay, and more files share a block",
    source: "our own",
    analysis: "V=100000, drawn by Zipf's law with exponent 0.9; 8 processes with 2000 files each (--full: 10000), \
               ten sets a file. What is judged is how many files have one block at the end.",
    figures: &[],
    policies: policy::ALL,
    accepts: policy::accepts,
    parameters: &[],
    gates: &[
        Gate {
            what: "beaten: files a block over mainline's",
            figure: Figure::Ratio("/one-donor/sharing", "/mainline/sharing"),
            bound: Bound::AtLeast(1.2),
        },
        Gate {
            what: "beaten: time over mainline's",
            figure: Figure::Ratio("/one-donor/time_us", "/mainline/time_us"),
            bound: Bound::AtMost(1.02),
        },
    ],
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
