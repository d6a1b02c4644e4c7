//! What the claims have in common: building machines, naming policies, settling.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;
use uext4_testkit::SplitMix64;
use uext4_writeback::throttle::Tunables;

use super::machine::{Config, MILLI, Machine, Model, Nanos, Plan, round};
use crate::experiment::{Failure, Scale, Setting};

/// Dirtyable memory beside the array, and beside the disk.
pub const ARRAY_MEMORY: u64 = 4 << 30;
pub const DISK_MEMORY: u64 = 3 << 30;
/// Writers of one kind begin within so long.
const STARTS: Nanos = 10 * MILLI;

/// Whether a policy is spelled as the room spells it.
pub fn accepts(policy: &str) -> Result<(), String> {
    let known = policy.parse::<Mode>().map(drop);
    known.map_err(|error| error.to_string())
}

fn failure(error: impl ToString) -> Failure {
    Failure::Run(error.to_string())
}

/// Runs every policy of the setting; their results by name.
pub fn by_policy(
    setting: &Setting,
    run: impl Fn(Mode) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    let mut all = Map::new();
    for policy in &setting.policies {
        let mode = policy.parse::<Mode>().map_err(failure)?;
        all.insert(policy.clone(), run(mode)?);
    }
    Ok(Value::Object(all))
}

/// One or the other, by how much is to be done.
pub fn scaled<T>(setting: &Setting, quick: T, full: T) -> T {
    match setting.scale {
        Scale::Quick => quick,
        Scale::Full => full,
    }
}

/// A machine of eight processors.
pub fn config(setting: &Setting, mode: Mode, memory: u64, devices: Vec<Model>) -> Config {
    Config {
        seed: setting.seed,
        mode,
        tunables: Tunables::default(),
        dirtyable: memory,
        cpus: 8,
        devices,
    }
}

pub fn machine(config: &Config, plans: &[Plan]) -> Result<Machine, Failure> {
    Machine::new(config, plans).map_err(failure)
}

/// So many writers alike, that begin at about the same time.
pub fn writers(setting: &Setting, count: usize, plan: &Plan) -> Vec<Plan> {
    let mut random = SplitMix64::new(setting.seed);
    let mut one = || Plan {
        start: plan.start + random.next_u64() % STARTS,
        ..plan.clone()
    };
    (0..count).map(|_| one()).collect()
}

/// Seconds after which the average of a tenth of a second never leaves `setpoint` by more than a
/// tenth again; as many as there are samples (one each 10 ms) if it does to the end.
pub fn settled(samples: &[u64], setpoint: u64) -> f64 {
    let windows = samples.chunks(10).map(|window| {
        let sum: u64 = window.iter().sum();
        sum as f64 / window.len() as f64 / setpoint as f64
    });
    let windows: Vec<f64> = windows.collect();
    let last = windows.iter().rposition(|part| (part - 1.0).abs() > 0.1);
    let index = last.map_or(0, |index| index + 1);
    round(index as f64 / 10.0, 1)
}

/// What the limits are, for the record.
pub fn limits(machine: &Machine) -> Value {
    let (limit, setpoint) = machine.limits();
    json!({ "limit": limit, "setpoint": setpoint })
}
