//! W8: 64 MiB of memory.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{Model, Plan, SECOND, round};
use super::trial::{accepts, by_policy, config, limits, machine, scaled, writers};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Setting};

pub const CLAIM: Claim = Claim {
    name: "writeback-small-memory",
    title: "1, 10 and 100 dd on one disk with 64 MiB of dirtyable memory",
    source: "Wu Fengguang, [PATCH 00/13] IO-less dirty throttling, linux-mm, 17 November 2010",
    analysis: "The range for soft throttling is 1.6 MiB, less than what a second of pauses adds up to. What counts: the limit holds, the disk stays busy.",
    figures: &[Printed {
        what: "small memory",
        printed: "Under small memory system the pause time will fluctuate much more due to the limited range for soft throttling",
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
        what: "cell-rate: most dirty pages over the limit, any count",
        figure: Figure::At("/cell-rate/overshoot"),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "cell-rate: throughput over mainline's, the least of any count",
        figure: Figure::SmallestRatio(&[
            ("/cell-rate/1/throughput", "/mainline/1/throughput"),
            ("/cell-rate/10/throughput", "/mainline/10/throughput"),
            ("/cell-rate/100/throughput", "/mainline/100/throughput"),
        ]),
        bound: Bound::AtLeast(0.99),
    },
    Gate {
        what: "cell-rate: part of the time the disk is busy, the least of any count",
        figure: Figure::At("/cell-rate/busy_min"),
        bound: Bound::AtLeast(0.99),
    },
    Gate {
        what: "ioless, reproduced: p95 of the pauses over their median, 10 dd",
        figure: Figure::At("/ioless/10/spread"),
        bound: Bound::AtLeast(2.0),
    },
    Gate {
        what: "ioless-fixed, reproduced: p95 of the pauses over their median, 10 dd",
        figure: Figure::At("/ioless-fixed/10/spread"),
        bound: Bound::AtLeast(2.0),
    },
    Gate {
        what: "cell-rate: p95 of the pauses over their median, 10 dd",
        figure: Figure::At("/cell-rate/10/spread"),
        bound: Bound::AtMost(2.0),
    },
];

const MEMORY: u64 = 64 << 20;

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| all_counts(setting, mode))
}

fn all_counts(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let mut all = Map::new();
    let (mut over, mut busy) = (0f64, 1f64);
    for count in [1, 10, 100] {
        let config = config(setting, mode, MEMORY, vec![Model::disk()]);
        let mut machine = machine(&config, &writers(setting, count, &Plan::copy()))?;
        machine.run_until(10 * SECOND);
        let first = machine.summary().dirty_max;
        machine.mark();
        machine.run_until(scaled(setting, 40, 120) * SECOND);
        let summary = machine.summary();
        let (limit, _) = machine.limits();
        over = over.max(first.max(summary.dirty_max) as f64 / limit as f64);
        busy = busy.min(summary.busy);
        let mut json = summary.json();
        json["limits"] = limits(&machine);
        let spread = summary.pause_p95_ms.max(1) as f64 / summary.pause_p50_ms.max(1) as f64;
        json["spread"] = json!(round(spread, 2));
        all.insert(count.to_string(), json);
    }
    all.insert("overshoot".to_owned(), json!(round(over, 4)));
    all.insert("busy_min".to_owned(), json!(round(busy, 4)));
    Ok(Value::Object(all))
}
