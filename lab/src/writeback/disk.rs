//! W2: 1, 10 and 100 copies onto one disk: throughput, size of requests, processor time.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{Model, Plan, SECOND};
use super::trial::{DISK_MEMORY, accepts, by_policy, config, machine, scaled, writers};
use crate::experiment::{Experiment, Failure, Measure, Parameter, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-disk",
    accepts,
    parameters: &[Parameter {
        name: "batch",
        what: "requests that a woken submitter may put into a full queue at once",
        values: &["0", "32"],
    }],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const COUNTS: [usize; 3] = [1, 10, 100];

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| all_counts(setting, mode))
}

fn all_counts(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let mut all = Map::new();
    for count in COUNTS {
        let disk = Model {
            batch: match setting.value("batch") {
                "32" => 32,
                _ => 0,
            },
            ..Model::disk()
        };
        let config = config(setting, mode, DISK_MEMORY, vec![disk]);
        let mut machine = machine(&config, &writers(setting, count, &Plan::copy()))?;
        machine.run_until(10 * SECOND);
        machine.mark();
        machine.run_until(scaled(setting, 60, 300) * SECOND);
        let mut json = machine.summary().json();
        // In the thread's units: sectors of 512 bytes.
        json["avgrq_sz"] = json!(machine.summary().request_bytes as u64 / 512);
        all.insert(count.to_string(), json);
    }
    Ok(Value::Object(all))
}
