//! W8: 64 MiB of memory.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{Model, Plan, SECOND, round};
use super::trial::{TICKS, accepts, by_policy, config, limits, machine, mean_of_seeds, writers};
use crate::experiment::{Experiment, Failure, Measure, Parameter, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-small-memory",
    accepts,
    parameters: &[
        TICKS,
        // A folio of 1 MiB for each of a hundred writers would be more than all the memory.
        Parameter {
            name: "folio",
            what: "most pages of a folio of mainline's",
            values: &["1", "256"],
        },
    ],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const MEMORY: u64 = 64 << 20;

/// Runs; figures are their means.
const SEEDS: u64 = 5;

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| {
        mean_of_seeds(setting, SEEDS, |setting| all_counts(setting, mode))
    })
}

fn all_counts(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let mut all = Map::new();
    let (mut over, mut busy) = (0f64, 1f64);
    for count in [1, 10, 100] {
        let config = config(setting, mode, MEMORY, vec![Model::disk()]);
        let mut machine = machine(&config, &writers(setting, count, &Plan::copy()))?;
        machine.run_until(10 * SECOND);
        let first = machine.summary().dirty_max;
        machine.mark();
        machine.run_until(120 * SECOND);
        let summary = machine.summary();
        let (limit, _) = machine.limits();
        over = over.max(first.max(summary.dirty_max) as f64 / limit as f64);
        busy = busy.min(summary.busy);
        let mut json = summary.json();
        json["limits"] = limits(&machine);
        let spread = summary.pause_p95_ms.max(1) as f64 / summary.pause_p50_ms.max(1) as f64;
        json["spread"] = json!(round(spread, 2));
        all.insert(count.to_string(), json);
    }
    all.insert("overshoot".to_owned(), json!(round(over, 4)));
    all.insert("busy_min".to_owned(), json!(round(busy, 4)));
    Ok(Value::Object(all))
}
