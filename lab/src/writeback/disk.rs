//! W2: 1, 10 and 100 copies onto one disk: throughput, size of requests, processor time.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;
use uext4_writeback::throttle::PAGE_SIZE;

use super::machine::{Machine, Model, PAGE_COST, Plan, SECOND, round};
use super::trial::{
    DISK_MEMORY, FOLIO, TICKS, accepts, by_policy, config, machine, mean_of_seeds, writers,
};
use crate::experiment::{Experiment, Failure, Measure, Parameter, Scale, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-disk",
    accepts,
    parameters: &[
        TICKS,
        FOLIO,
        Parameter {
            name: "batch",
            what: "requests that a woken submitter may put into a full queue at once",
            values: &["0", "32"],
        },
    ],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const COUNTS: [usize; 3] = [1, 10, 100];

/// Runs of each count; figures are their means.
const SEEDS: u64 = 5;

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| {
        mean_of_seeds(setting, SEEDS, |setting| all_counts(setting, mode))
    })
}

/// The first minute but for its start, in which the device's part of the limit grows; if all is to
/// be done also the four minutes after it, under `later`.
fn all_counts(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let mut all = Map::new();
    let mut later = Map::new();
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
        machine.run_until(60 * SECOND);
        all.insert(count.to_string(), figures(&machine));
        if setting.scale == Scale::Full {
            machine.mark();
            machine.run_until(300 * SECOND);
            later.insert(count.to_string(), figures(&machine));
        }
    }
    if !later.is_empty() {
        all.insert("later".to_owned(), Value::Object(later));
    }
    Ok(Value::Object(all))
}

fn figures(machine: &Machine) -> Value {
    let summary = machine.summary();
    let mut json = summary.json();
    // In the thread's units: sectors of 512 bytes.
    json["avgrq_sz"] = json!(summary.request_bytes as u64 / 512);
    let pages = summary.throughput * 1e6 / PAGE_SIZE as f64;
    // Copied in, submitted: no policy can spend less at this throughput.
    let least = 2.0 * pages * PAGE_COST as f64 / SECOND as f64;
    json["cpu_least"] = json!(round(least, 5));
    json
}
