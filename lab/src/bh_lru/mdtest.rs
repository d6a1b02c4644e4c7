//! mdtest: create, stat and remove in one directory that may be large already.

use serde_json::{Map, Value, json};

use super::cost::{gain, round};
use super::policy::{self, DEFAULT, MAINLINE, VANILLA_8, VANILLA_16};
use super::volume::{self, Shape};
use super::workload::{self, PHASES, Plan};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bh-lru-mdtest",
    accepts: policy::accepts,
    parameters: &[policy::SCOPE, policy::FILES],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

/// Files of all tasks, and files there before, as in the thread.
const FILES: u64 = 1_000_000;
const PREFILLS: [u64; 6] = [0, 100_000, 500_000, 2_000_000, 5_000_000, 10_000_000];
const TASKS: [u64; 2] = [1, 8];

fn run(setting: &Setting) -> Result<Value, Failure> {
    let divisor = policy::divisor(setting);
    let files = FILES / divisor;
    let mut results: Map<String, Value> = Map::new();
    for prefill in PREFILLS {
        let shape = Shape {
            files,
            directories: 1,
            prefill: prefill / divisor,
            acl: true,
            quota: false,
        };
        let image = volume::make(&shape)?;
        for (kind, selinux) in [("a", true), ("b", false)] {
            for tasks in TASKS {
                let plan = Plan {
                    tasks,
                    files,
                    selinux,
                    directories: 1,
                    scope: policy::scope(setting),
                };
                for policy in &setting.policies {
                    let measured = workload::run(&image, policy, &plan)?;
                    let cell = format!("{kind}-{tasks}-{prefill}");
                    let of = results.entry(policy.clone()).or_insert_with(|| json!({}));
                    of[cell] = measured;
                }
            }
        }
    }
    if let Some(compared) = compare(&results)? {
        results.insert("compared".to_owned(), compared);
    }
    Ok(Value::Object(results))
}

/// All cells of the policies side by side, without those in which the engine looked nothing up;
/// `None` if a policy that is needed was not run.
///
/// # Errors
/// [`Failure::Run`] for a cell without lookups.
pub fn compare(results: &Map<String, Value>) -> Result<Option<Value>, Failure> {
    let needed = [VANILLA_8, VANILLA_16, MAINLINE, DEFAULT];
    let Some(cells) = results.get(DEFAULT).and_then(Value::as_object) else {
        return Ok(None);
    };
    if needed.iter().any(|policy| !results.contains_key(*policy)) {
        return Ok(None);
    }
    let (mut gains, mut losses, mut compares) = (Map::new(), 0, 0.0);
    let (mut worst, mut most, mut slow, mut held) = (0f64, 0f64, 0f64, 0f64);
    let (mut to_mainline, mut idle) = (0f64, 0);
    for cell in cells.keys() {
        for phase in PHASES {
            let of = |policy: &str| &results[policy][cell][phase];
            let number = |policy: &str, what: &str| of(policy)[what].as_f64().unwrap_or(f64::NAN);
            // What the inodes in memory answer is not looked up: there is nothing to compare.
            if number(VANILLA_8, "lookups") == 0.0 {
                idle += 1;
                continue;
            }
            let gained = gain(of(VANILLA_16), of(VANILLA_8))?;
            gains.insert(format!("{cell}-{phase}"), json!(gained));
            losses += u32::from(gained <= 0.0);
            compares += number(VANILLA_16, "compares") / number(VANILLA_8, "compares");
            let lesser = number(VANILLA_8, "cost_ns").min(number(MAINLINE, "cost_ns"));
            worst = worst.max(number(DEFAULT, "cost_ns") / lesser);
            most = most.max(number(DEFAULT, "compares"));
            held = held.max(number(DEFAULT, "held_by_lru") + number(DEFAULT, "invalidations"));
            let mainline = number(DEFAULT, "cost_ns") / number(MAINLINE, "cost_ns");
            to_mainline = to_mainline.max(mainline);
            let table = number(MAINLINE, "slow_lookups");
            // None in either is no more than mainline's.
            let ratio = number(DEFAULT, "slow_lookups") / table;
            slow = slow.max(if ratio.is_nan() { 1.0 } else { ratio });
        }
    }
    let count = gains.len().max(1) as f64;
    Ok(Some(json!({
        "cells": gains.len(),
        "cells_without_lookups": idle,
        "gains": gains,
        "losses": round(f64::from(losses) / count),
        "compares_ratio": round(compares / count),
        "worst_to_lesser": round(worst),
        "compares_most": round(most),
        "slow_most": round(slow),
        "to_mainline_most": round(to_mainline),
        // The name that the records have.
        concat!("par", "ked_or_invalidated"): held,
    })))
}
