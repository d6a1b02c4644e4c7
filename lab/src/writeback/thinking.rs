//! W5: a writer that thinks compared with one that does not.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{MILLI, Model, Plan, SECOND, Work, round};
use super::trial::{
    DISK_MEMORY, FOLIO, TICKS, accepts, by_policy, config, machine, scaled, writers,
};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-thinking",
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
    let scp = Plan {
        work: Work::Think(64, 50 * MILLI),
        ..Plan::copy()
    };
    // Alone for so short that nothing is throttled.
    let config = config(setting, mode, DISK_MEMORY, vec![Model::disk()]);
    let mut alone = machine(&config, std::slice::from_ref(&scp))?;
    alone.run_until(10 * SECOND);
    let natural = alone.tally.shares()[0] as f64 / 10.0;
    let mut all = Map::new();
    all.insert("natural".to_owned(), json!(round(natural, 1)));
    for copies in [1, 8] {
        let mut plans = writers(setting, copies, &Plan::copy());
        plans.push(scp.clone());
        let mut both = machine(&config, &plans)?;
        both.run_until(10 * SECOND);
        both.mark();
        let seconds = scaled(setting, 60, 300);
        both.run_until((10 + seconds) * SECOND);
        let shares = both.tally.shares();
        let rate = |writer: usize| shares[writer] as f64 / seconds as f64;
        let result = json!({
            "scp": round(rate(copies), 1),
            "cp": round(rate(0), 1),
            "kept": round(rate(copies) / natural, 4),
            "busy": round(both.summary().busy, 4),
            "pause_max_ms": round(both.summary().pause_max_ms, 2),
        });
        all.insert(copies.to_string(), result);
    }
    Ok(Value::Object(all))
}
