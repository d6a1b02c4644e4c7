//! W9: one writer, suddenly many, then one again.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{Model, Plan, SECOND, round};
use super::trial::{
    ARRAY_MEMORY, FOLIO, TICKS, accepts, by_policy, config, machine, settled, writers,
};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-steps",
    accepts,
    parameters: &[TICKS, FOLIO],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| {
        let mut all = Map::new();
        for count in [100, 1000] {
            all.insert(count.to_string(), one(setting, mode, count)?);
        }
        Ok(Value::Object(all))
    })
}

fn one(setting: &Setting, mode: Mode, count: usize) -> Result<Value, Failure> {
    let config = config(setting, mode, ARRAY_MEMORY, vec![Model::array()]);
    let others = Plan {
        start: 20 * SECOND,
        stop: Some(40 * SECOND),
        ..Plan::copy()
    };
    let mut plans = vec![Plan::copy()];
    plans.extend(writers(setting, count - 1, &others));
    let mut machine = machine(&config, &plans)?;
    let (limit, setpoint) = machine.limits();
    let mut json = Map::new();
    let mut most = 0;
    for (name, end) in [("start", 20), ("up", 40), ("down", 60)] {
        machine.mark();
        machine.run_until(end * SECOND);
        let seconds = settled(machine.tally.samples(), setpoint);
        json.insert(name.to_owned(), json!(seconds));
        let summary = machine.summary();
        most = most.max(summary.dirty_max);
        json.insert(
            format!("{name}_throughput"),
            json!(round(summary.throughput, 2)),
        );
    }
    json.insert(
        "overshoot".to_owned(),
        json!(round(most as f64 / limit as f64, 4)),
    );
    Ok(Value::Object(json))
}
