//! W10: a device that is gone, and a thousand writers that are killed.

use serde_json::{Value, json};
use uext4_lab_policies::writeback::Mode;
use uext4_writeback::throttle::Tunables;

use super::machine::{MILLI, Model, Plan, SECOND, round};
use super::trial::{ARRAY_MEMORY, FOLIO, TICKS, accepts, by_policy, config, machine, writers};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-removal",
    accepts,
    parameters: &[TICKS, FOLIO],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

/// How long is waited for writers that never end.
const PATIENCE: u64 = 120;
const REMOVED: u64 = 10;

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| {
        let stall = Tunables::default().wb_stall_ms;
        let (released, failed, kept) = removed(setting, mode, stall)?;
        let (without, _, _) = removed(setting, mode, 0)?;
        Ok(json!({
            "released": released,
            "failed": failed,
            "others_kept": kept,
            "released_without": without,
            "killed_ms": killed(setting, mode)?,
        }))
    })
}

/// Seconds until the last writer of the removed stick ended, how many had an error, and the array's
/// throughput from then on over before.
fn removed(setting: &Setting, mode: Mode, stall: u32) -> Result<(f64, usize, f64), Failure> {
    let mut config = config(
        setting,
        mode,
        ARRAY_MEMORY,
        vec![Model::array(), Model::stick()],
    );
    config.tunables.wb_stall_ms = stall;
    let stick = Plan {
        device: 1,
        ..Plan::copy()
    };
    let mut plans = writers(setting, 100, &stick);
    plans.extend(writers(setting, 4, &Plan::copy()));
    let mut machine = machine(&config, &plans)?;
    machine.run_until(REMOVED / 2 * SECOND);
    machine.mark();
    machine.run_until(REMOVED * SECOND);
    let before = machine.written(0) as f64 / (REMOVED / 2) as f64;
    machine.mark();
    machine.remove_device(1);
    let end = (REMOVED + PATIENCE) * SECOND;
    while machine.ended_writers() < 100 && machine.now() < end {
        machine.run_until((machine.now() + 100 * MILLI).min(end));
    }
    let seconds = (machine.now() - REMOVED * SECOND) as f64 / SECOND as f64;
    let after = machine.written(0) as f64 / seconds;
    let ended = (0..100)
        .filter_map(|writer| machine.writer(writer).ended())
        .max();
    let released = match machine.ended_writers() {
        100.. => ended.unwrap_or(0).saturating_sub(REMOVED * SECOND) as f64 / SECOND as f64,
        _ => PATIENCE as f64,
    };
    let failed = (0..100)
        .filter(|&writer| machine.writer(writer).has_failed())
        .count();
    Ok((round(released, 3), failed, round(after / before, 4)))
}

/// Milliseconds until a thousand writers, most of them paused, have ended.
fn killed(setting: &Setting, mode: Mode) -> Result<f64, Failure> {
    let config = config(setting, mode, ARRAY_MEMORY, vec![Model::array()]);
    let mut machine = machine(&config, &writers(setting, 1000, &Plan::copy()))?;
    let at = 10 * SECOND;
    machine.run_until(at);
    machine.kill(0..1000);
    let ended = machine
        .run_to_end(at + 60 * SECOND)
        .unwrap_or(at + 60 * SECOND);
    Ok(round((ended - at) as f64 / MILLI as f64, 3))
}
