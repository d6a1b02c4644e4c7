//! W6: a real-time writer among a hundred copies.

use serde_json::{Value, json};
use uext4_lab_policies::writeback::Mode;
use uext4_writeback::throttle::Class;

use super::machine::{MILLI, Model, Plan, SECOND, Work, round};
use super::trial::{ARRAY_MEMORY, accepts, by_policy, config, machine, scaled, writers};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Setting};

pub const CLAIM: Claim = Claim {
    name: "writeback-realtime",
    title: "a real-time writer of 5 MB/s among 100 dd: is it ever paused",
    source: "Andrew Morton and Wu Fengguang, re: [PATCH 00/13] IO-less dirty throttling, linux-mm, 18 November 2010",
    analysis: "The real-time writer has 256 KiB to write each 52 ms, which is less than its share of the array. The author expected limits a quarter higher to make such tasks throttle free.",
    figures: &[Printed {
        what: "real-time tasks",
        printed: "soft throttled at (6~8)*bdi_bandwidth. We can increase that to (12~16)*bdi_bandwidth or whatever",
    }],
    policies: &["vanilla", "ioless", "ioless-fixed", "mainline", "cell-rate"],
    accepts,
    parameters: &[],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

const GATES: &[Gate] = &[
    Gate {
        what: "cell-rate: milliseconds the real-time writer was paused",
        figure: Figure::At("/cell-rate/paused_ms"),
        bound: Bound::AtMost(0.0),
    },
    Gate {
        what: "cell-rate: what the real-time writer wrote over what it had to",
        figure: Figure::At("/cell-rate/kept"),
        bound: Bound::AtLeast(0.99),
    },
    Gate {
        what: "mainline: milliseconds the real-time writer was paused",
        figure: Figure::At("/mainline/paused_ms"),
        bound: Bound::AtMost(0.0),
    },
    Gate {
        what: "cell-rate: Jain's index of the hundred others",
        figure: Figure::At("/cell-rate/jain"),
        bound: Bound::AtLeast(0.98),
    },
];

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
