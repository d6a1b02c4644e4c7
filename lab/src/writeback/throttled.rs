//! Writers on a device that is held to a rate, as the kernel beneath the lab can be measured.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{Config, Model, Plan, SECOND, round};
use super::trial::{FOLIO, TICKS, accepts, by_policy, machine, scaled, settled, ticks, writers};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-throttled",
    accepts,
    parameters: &[TICKS, FOLIO],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

/// Megabytes a second.
const RATES: [u64; 2] = [50, 120];
const LIMIT: u64 = 100 << 20;

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| {
        let mut all = Map::new();
        let mut budget = 0f64;
        for rate in RATES {
            let mut counts = Map::new();
            for count in [1, 10, 100, 1000] {
                let figures = one(setting, mode, rate, count)?;
                let allowed = (count as f64 / 0.2).max(200.0);
                budget = budget.max(figures["wakes"].as_f64().unwrap_or(0.0) / allowed);
                counts.insert(count.to_string(), figures);
            }
            all.insert(rate.to_string(), Value::Object(counts));
        }
        all.insert("wakes_of_budget".to_owned(), json!(round(budget, 4)));
        Ok(Value::Object(all))
    })
}

fn one(setting: &Setting, mode: Mode, rate: u64, count: usize) -> Result<Value, Failure> {
    let mut config = Config {
        seed: setting.seed,
        mode,
        hz: ticks(setting, mode),
        folio: setting.value(FOLIO.name).parse().unwrap_or(256),
        tunables: Default::default(),
        dirtyable: 20 << 30,
        cpus: 2,
        devices: vec![Model::held(rate * 1_000_000)],
    };
    config.tunables.dirty_bytes = LIMIT;
    config.tunables.dirty_background_bytes = LIMIT / 2;
    let mut machine = machine(&config, &writers(setting, count, &Plan::copy()))?;
    let (limit, setpoint) = machine.limits();
    let half = scaled(setting, 10, 30);
    machine.run_until(half * SECOND);
    let first = machine.summary().dirty_max;
    let start: Vec<u64> = machine.tally.samples().to_vec();
    machine.mark();
    machine.run_until(2 * half * SECOND);
    let summary = machine.summary();
    let samples = machine.tally.samples();
    let mean = samples.iter().sum::<u64>() as f64 / samples.len().max(1) as f64;
    let most = first.max(summary.dirty_max) as f64;
    let all = [start.as_slice(), samples].concat();
    let mut json = summary.json();
    json["limit"] = json!(limit);
    json["dirty_most"] = json!(most);
    json["dirty_mean_of_limit"] = json!(round(mean / limit as f64, 4));
    json["overshoot"] = json!(round(most / limit as f64, 4));
    json["settled"] = json!(settled(&all, setpoint));
    Ok(json)
}
