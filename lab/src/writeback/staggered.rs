//! W4: copies that start and end one after the other.

use serde_json::{Value, json};
use uext4_lab_policies::writeback::Mode;
use uext4_writeback::throttle::PAGE_SIZE;

use super::machine::{Machine, Model, Plan, SECOND, Work, round};
use super::trial::{ARRAY_MEMORY, FOLIO, TICKS, accepts, by_policy, config, machine, scaled};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-staggered",
    accepts,
    parameters: &[TICKS, FOLIO],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const COUNT: u64 = 8;

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| one(setting, mode))
}

/// Microseconds of processor time a page written since the mark.
fn cost(machine: &Machine) -> f64 {
    let summary = machine.summary();
    let pages = summary.throughput * 1e6 / PAGE_SIZE as f64;
    (summary.writer_cpu + summary.flusher_cpu) * 1e6 / pages.max(1.0)
}

fn one(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let config = config(setting, mode, ARRAY_MEMORY, vec![Model::array()]);
    // Written at their shares, the first ends some seconds after the last began.
    let pages = scaled(setting, 1_000_000, 4_000_000);
    let plans: Vec<Plan> = (0..COUNT)
        .map(|index| Plan {
            work: Work::Copy(Some(pages)),
            start: index * SECOND,
            ..Plan::copy()
        })
        .collect();
    let mut machine = machine(&config, &plans)?;
    machine.run_until(COUNT * SECOND);
    machine.mark();
    let end = 600 * SECOND;
    while machine.ended_writers() == 0 && machine.now() < end {
        machine.run_until(machine.now() + SECOND / 10);
    }
    let before = cost(&machine);
    machine.mark();
    let ended = machine.run_to_end(end);
    let after = cost(&machine);
    Ok(json!({
        "before": round(before, 4),
        "after": round(after, 4),
        "growth": round(after / before, 4),
        "switches_per_page": round(machine.summary().switches_per_page, 4),
        "elapsed": ended.map(|at| round(at as f64 / SECOND as f64, 2)),
    }))
}
