//! W7: a slow stick and a fast array share memory.

use serde_json::{Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{Model, Plan, SECOND, round};
use super::trial::{ARRAY_MEMORY, FOLIO, TICKS, accepts, by_policy, config, machine, scaled};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-two-devices",
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
    let plans = |device: usize| {
        let plan = Plan {
            device,
            ..Plan::copy()
        };
        std::iter::repeat_n(plan, 4)
    };
    let seconds = scaled(setting, 20, 60);
    let rate = |pages: u64| pages as f64 * 4096.0 / 1e6 / seconds as f64;
    let one = config(setting, mode, ARRAY_MEMORY, vec![Model::array()]);
    let mut alone = machine(&one, &plans(0).collect::<Vec<_>>())?;
    alone.run_until(10 * SECOND);
    alone.mark();
    alone.run_until((10 + seconds) * SECOND);
    let natural = rate(alone.written(0));
    let two = config(
        setting,
        mode,
        ARRAY_MEMORY,
        vec![Model::array(), Model::stick()],
    );
    let mut both = machine(&two, &plans(0).chain(plans(1)).collect::<Vec<_>>())?;
    both.run_until(10 * SECOND);
    let first = both.summary().dirty_max;
    both.mark();
    both.run_until((10 + seconds) * SECOND);
    let (limit, _) = both.limits();
    let most = first.max(both.summary().dirty_max);
    Ok(json!({
        "alone": round(natural, 2),
        "array": round(rate(both.written(0)), 2),
        "stick": round(rate(both.written(1)), 2),
        "kept": round(rate(both.written(0)) / natural, 4),
        "stick_of_device": round(rate(both.written(1)) / 10.0, 4),
        "overshoot": round(most as f64 / limit as f64, 4),
    }))
}
