//! What the claims have in common: building machines, naming policies, settling.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::{Hz, Mode};
use uext4_testkit::SplitMix64;
use uext4_writeback::throttle::Tunables;

use super::machine::{Config, MILLI, Machine, Model, Nanos, Plan, round};
use crate::experiment::{Failure, Parameter, Scale, Setting};

/// Dirtyable memory compared with the array, and compared with the disk.
pub const ARRAY_MEMORY: u64 = 4 << 30;
pub const DISK_MEMORY: u64 = 3 << 30;
/// Writers of one kind begin within so long.
const STARTS: Nanos = 10 * MILLI;

/// Whether a policy is spelled as the subsystem spells it.
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

/// Runs with so many seeds, from the setting's on; every number of the results is the mean.
pub fn mean_of_seeds(
    setting: &Setting,
    seeds: u64,
    run: impl Fn(&Setting) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    let mut all = Vec::new();
    for offset in 0..seeds {
        let mut setting = setting.clone();
        setting.seed = setting.seed.wrapping_add(offset);
        all.push(run(&setting)?);
    }
    Ok(mean(&all))
}

/// The mean of the numbers at each place, as the first has them.
fn mean(all: &[Value]) -> Value {
    let Some(first) = all.first() else {
        return Value::Null;
    };
    match first {
        Value::Object(places) => {
            let at = |name: &String| {
                let values = all.iter().filter_map(|value| value.get(name).cloned());
                mean(&values.collect::<Vec<_>>())
            };
            Value::Object(places.keys().map(|name| (name.clone(), at(name))).collect())
        }
        Value::Number(_) => {
            let sum: f64 = all.iter().filter_map(Value::as_f64).sum();
            json!(round(sum / all.len() as f64, 5))
        }
        other => other.clone(),
    }
}

/// One or the other, by how much is to be done.
pub fn scaled<T>(setting: &Setting, quick: T, full: T) -> T {
    match setting.scale {
        Scale::Quick => quick,
        Scale::Full => full,
    }
}

/// The parameter of claims about a kernel's pauses: its ticks a second. Each design has those of
/// its own kernel by default, see [`ticks`].
pub const TICKS: Parameter = Parameter {
    name: "hz",
    what: "ticks a second of the kernels: own is 100 for those of 2010 and 250 for mainline",
    values: &["own", "100", "250", "1000"],
};

/// The parameter of claims about `mainline`: pages of a folio, 256 where a write of 1 MiB makes
/// one.
pub const FOLIO: Parameter = Parameter {
    name: "folio",
    what: "most pages of a folio of mainline's: 1 as until 6.15, 256 for writes of 1 MiB since",
    values: &["256", "1"],
};

/// The ticks a second of a design's kernel. The machine of the thread had 100: its table of context
/// switches has 100 a second for each light writer, two for each pause, and `ioless` lengthens its
/// interval until pauses have two ticks. `mainline` is the kernel beneath the lab, which has 250.
pub fn ticks(setting: &Setting, mode: Mode) -> Hz {
    let own = match mode {
        Mode::Vanilla | Mode::Ioless | Mode::IolessFixed => Hz::H100,
        Mode::Mainline | Mode::CellRate => Hz::H250,
    };
    setting.value(TICKS.name).parse().unwrap_or(own)
}

/// A machine of eight processors.
pub fn config(setting: &Setting, mode: Mode, memory: u64, devices: Vec<Model>) -> Config {
    Config {
        seed: setting.seed,
        mode,
        hz: ticks(setting, mode),
        folio: setting.value(FOLIO.name).parse().unwrap_or(256),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_averaged_at_their_places() {
        let all = [
            json!({"a": {"n": 1}, "b": "x"}),
            json!({"a": {"n": 2}, "b": "x"}),
        ];
        assert_eq!(mean(&all), json!({"a": {"n": 1.5}, "b": "x"}));
    }

    #[test]
    fn each_design_has_the_ticks_of_its_kernel() {
        let mut setting = Setting {
            scale: Scale::Quick,
            seed: 1,
            policies: Vec::new(),
            values: vec![(TICKS.name, "own".to_owned())],
            on: Vec::new(),
        };
        assert_eq!(ticks(&setting, Mode::Ioless), Hz::H100);
        assert_eq!(ticks(&setting, Mode::Mainline), Hz::H250);
        setting.values[0].1 = "1000".to_owned();
        assert_eq!(ticks(&setting, Mode::Ioless), Hz::H1000);
    }
}
