//! W5: a writer that thinks beside one that does not.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{MILLI, Model, Plan, SECOND, Work, round};
use super::trial::{DISK_MEMORY, accepts, by_policy, config, machine, scaled, writers};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Setting};

pub const CLAIM: Claim = Claim {
    name: "writeback-thinking",
    title: "scp beside cp: does a writer that thinks keep its rate",
    source: "Wu Fengguang, [PATCH 00/13] IO-less dirty throttling, linux-mm, 17 November 2010",
    analysis: "One or eight copies as fast as they may and one writer of 256 KiB that then waits 50 ms for the network. It asks for less than its share of the disk, so a fair throttle leaves it alone. As posted, pauses of cp that cannot get longer than a jiffy hide the effect.",
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
        what: "ioless, reproduced: scp's rate beside one cp over its natural one (throttled although below its share)",
        figure: Figure::At("/ioless/1/kept"),
        bound: Bound::AtMost(0.95),
    },
    Gate {
        what: "ioless-fixed, reproduced: scp's rate beside 8 cp over its natural one (throttled although below its share)",
        figure: Figure::At("/ioless-fixed/8/kept"),
        bound: Bound::AtMost(0.95),
    },
    Gate {
        what: "cell-rate: scp's rate beside cp over its natural one",
        figure: Figure::At("/cell-rate/1/kept"),
        bound: Bound::AtLeast(0.95),
    },
    Gate {
        what: "cell-rate: scp's rate beside 8 cp over its natural one",
        figure: Figure::At("/cell-rate/8/kept"),
        bound: Bound::AtLeast(0.95),
    },
    Gate {
        what: "cell-rate: part of the time the disk is busy",
        figure: Figure::At("/cell-rate/8/busy"),
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
    // Alone for so short that nothing is throttled.
    let config = config(setting, mode, DISK_MEMORY, vec![Model::disk()]);
    let mut alone = machine(&config, std::slice::from_ref(&scp))?;
    alone.run_until(10 * SECOND);
    let natural = alone.tally.shares()[0] as f64 / 10.0;
    let mut all = Map::new();
    all.insert("natural".to_owned(), json!(round(natural, 1)));
    for copies in [1, 8] {
        let mut plans = writers(setting, copies, &Plan::copy());
        plans.push(scp.clone());
        let mut both = machine(&config, &plans)?;
        both.run_until(10 * SECOND);
        both.mark();
        let seconds = scaled(setting, 60, 300);
        both.run_until((10 + seconds) * SECOND);
        let shares = both.tally.shares();
        let rate = |writer: usize| shares[writer] as f64 / seconds as f64;
        let result = json!({
            "scp": round(rate(copies), 1),
            "cp": round(rate(0), 1),
            "kept": round(rate(copies) / natural, 4),
            "busy": round(both.summary().busy, 4),
            "pause_max_ms": round(both.summary().pause_max_ms, 2),
        });
        all.insert(copies.to_string(), result);
    }
    Ok(Value::Object(all))
}
