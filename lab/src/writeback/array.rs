//! W1: 1 to 1000 copies onto a fast array, and how often they are woken.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;
use uext4_writeback::throttle::PAGE_SIZE;

use super::machine::{Model, Plan, SECOND, Summary, round};
use super::trial::{
    ARRAY_MEMORY, FOLIO, TICKS, accepts, by_policy, config, machine, scaled, settled, writers,
};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-array",
    accepts,
    parameters: &[TICKS, FOLIO],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const COUNTS: [usize; 8] = [1, 2, 4, 8, 16, 32, 100, 1000];

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| all_counts(setting, mode))
}

/// The most megabytes a second that `count` copies can write while no more than `limit` pages are
/// dirty: files take turns, and one whose turn has come has gathered twice the average. What comes
/// in one turn costs one seek.
fn most_within(limit: u64, count: usize) -> f64 {
    let array = Model::array();
    let pages = (2 * limit).div_ceil(count as u64);
    let bandwidth = array.bandwidth as f64;
    let transfer = (pages * PAGE_SIZE) as f64 / bandwidth;
    let seek = match count {
        1 => 0.0,
        _ => array.seek as f64 / SECOND as f64,
    };
    bandwidth / 1e6 * transfer / (transfer + seek)
}

/// One count: what came in the end, and the most dirty pages of all the time, of the limit.
fn one_count(
    setting: &Setting,
    mode: Mode,
    count: usize,
) -> Result<(Summary, Value, f64), Failure> {
    let config = config(setting, mode, ARRAY_MEMORY, vec![Model::array()]);
    let mut machine = machine(&config, &writers(setting, count, &Plan::copy()))?;
    let (limit, setpoint) = machine.limits();
    machine.run_until(10 * SECOND);
    let first = machine.summary().dirty_max;
    machine.run_until(scaled(setting, 20, 50) * SECOND);
    let settled = settled(machine.tally.samples(), setpoint);
    machine.mark();
    machine.run_until(scaled(setting, 30, 60) * SECOND);
    let summary = machine.summary();
    let overshoot = first.max(summary.dirty_max) as f64 / limit as f64;
    let mut json = summary.json();
    json["settled"] = json!(settled);
    json["overshoot"] = json!(round(overshoot, 4));
    // A pause is two context switches, to another task or none and back; of each writer.
    json["switches_each"] = json!(round(2.0 * summary.wakes / count as f64, 2));
    let most = most_within(limit, count);
    json["of_most_within_limit"] = json!(round(summary.throughput / most, 4));
    Ok((summary, json, overshoot))
}

fn all_counts(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let mut all = Map::new();
    let (mut each_min, mut each_max) = (f64::MAX, 0f64);
    let (mut budget, mut busy, mut jain) = (0f64, 1f64, 1f64);
    let (mut over, mut pause, mut of_most) = (0f64, 0f64, f64::MAX);
    let mut throughput = f64::MAX;
    for count in COUNTS {
        let (summary, json, overshoot) = one_count(setting, mode, count)?;
        let writers = count as f64;
        if count >= 16 {
            each_min = each_min.min(summary.wakes / writers);
            each_max = each_max.max(summary.wakes / writers);
        }
        budget = budget.max(summary.wakes / (writers / 0.2).max(200.0));
        busy = busy.min(summary.busy);
        jain = jain.min(summary.jain);
        over = over.max(overshoot);
        pause = pause.max(summary.pause_max_ms);
        if count <= 100 {
            throughput = throughput.min(summary.throughput);
        }
        let part = json["of_most_within_limit"].as_f64().unwrap_or(0.0);
        of_most = of_most.min(part);
        all.insert(count.to_string(), json);
    }
    all.insert("wakes_each_min".to_owned(), json!(round(each_min, 2)));
    all.insert("wakes_each_max".to_owned(), json!(round(each_max, 2)));
    all.insert("wakes_of_budget".to_owned(), json!(round(budget, 4)));
    all.insert("busy_min".to_owned(), json!(round(busy, 4)));
    all.insert("jain_min".to_owned(), json!(round(jain, 4)));
    all.insert("overshoot".to_owned(), json!(round(over, 4)));
    all.insert("pause_max_ms".to_owned(), json!(round(pause, 2)));
    all.insert(
        "of_device_min_to_100".to_owned(),
        json!(round(throughput / 700.0, 4)),
    );
    all.insert("of_most_within_limit_min".to_owned(), json!(of_most));
    Ok(Value::Object(all))
}
