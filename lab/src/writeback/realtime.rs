//! W6: a real-time writer among a hundred copies.

use serde_json::{Value, json};
use uext4_lab_policies::writeback::Mode;
use uext4_writeback::throttle::Class;

use super::machine::{MILLI, Model, Plan, SECOND, Work, round};
use super::trial::{
    ARRAY_MEMORY, FOLIO, TICKS, accepts, by_policy, config, machine, scaled, writers,
};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-realtime",
    accepts,
    parameters: &[TICKS, FOLIO],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| one(setting, mode))
}

fn one(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let config = config(setting, mode, ARRAY_MEMORY, vec![Model::array()]);
    let every = 52 * MILLI;
    let mut plans = writers(setting, 100, &Plan::copy());
    plans.push(Plan {
        work: Work::Paced(64, every),
        class: Class::RealTime,
        ..Plan::copy()
    });
    let mut machine = machine(&config, &plans)?;
    machine.run_until(10 * SECOND);
    let before = machine.writer(100).paused;
    machine.mark();
    let seconds = scaled(setting, 20, 60);
    machine.run_until((10 + seconds) * SECOND);
    let paused = machine.writer(100).paused - before;
    let shares = machine.tally.shares();
    let wanted = (seconds * SECOND / every * 64) as f64;
    Ok(json!({
        "paused_ms": round(paused as f64 / MILLI as f64, 3),
        "kept": round(shares[100] as f64 / wanted, 4),
        "jain": round(super::machine::jain(&shares[..100]), 4),
        "throughput": round(machine.summary().throughput, 2),
    }))
}
