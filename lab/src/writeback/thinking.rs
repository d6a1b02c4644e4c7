//! W5: a writer that thinks beside one that does not.

use serde_json::{Value, json};
use uext4_writeback::throttle::Mode;

use super::machine::{MILLI, Model, Plan, SECOND, Work, round};
use super::trial::{DISK_MEMORY, accepts, by_policy, config, machine, scaled};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Setting};

pub const CLAIM: Claim = Claim {
    name: "writeback-thinking",
    title: "scp beside cp: does a writer that thinks keep its rate",
    source: "Wu Fengguang, [PATCH 00/13] IO-less dirty throttling, linux-mm, 17 November 2010",
    analysis: "One copy as fast as it may and one writer of 256 KiB that then waits 50 ms for the network. It asks for a tenth of the disk, so a fair throttle leaves it alone.",
    figures: &[Printed {
        what: "think time",
        printed: "it will throttle an \"scp\" over network way harder than a local \"cp\"",
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
        what: "ioless, reproduced: scp's rate beside cp over its natural one (it is throttled although below its share)",
        figure: Figure::At("/ioless/kept"),
        bound: Bound::AtMost(0.95),
    },
    Gate {
        what: "cell-rate: scp's rate beside cp over its natural one",
        figure: Figure::At("/cell-rate/kept"),
        bound: Bound::AtLeast(0.95),
    },
    Gate {
        what: "cell-rate: part of the time the disk is busy",
        figure: Figure::At("/cell-rate/busy"),
        bound: Bound::AtLeast(0.99),
    },
];

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| one(setting, mode))
}

fn one(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let scp = Plan {
        work: Work::Think(64, 50 * MILLI),
        ..Plan::copy()
    };
    let seconds = scaled(setting, 60, 300);
    // Alone for so short that nothing is throttled.
    let config = config(setting, mode, DISK_MEMORY, vec![Model::disk()]);
    let mut alone = machine(&config, std::slice::from_ref(&scp))?;
    alone.run_until(10 * SECOND);
    let natural = alone.tally.shares()[0] as f64 / 10.0;
    let mut both = machine(&config, &[Plan::copy(), scp])?;
    both.run_until(10 * SECOND);
    both.mark();
    both.run_until((10 + seconds) * SECOND);
    let shares = both.tally.shares();
    let rate = |writer: usize| shares[writer] as f64 / seconds as f64;
    Ok(json!({
        "natural": round(natural, 1),
        "scp": round(rate(1), 1),
        "cp": round(rate(0), 1),
        "kept": round(rate(1) / natural, 4),
        "busy": round(both.summary().busy, 4),
        "pause_max_ms": round(both.summary().pause_max_ms, 2),
    }))
}
