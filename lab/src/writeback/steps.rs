//! W9: one writer, suddenly many, then one again.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{Model, Plan, SECOND, round};
use super::trial::{ARRAY_MEMORY, accepts, by_policy, config, machine, settled, writers};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Setting};

pub const CLAIM: Claim = Claim {
    name: "writeback-steps",
    title: "1, then 100 or 1000, then 1 writer again: how soon all is settled, and how far above the limit",
    source: "our own, after the thread: prevent overrunning dirty limit on lots of concurrent dirtiers",
    analysis: "The others begin within 10 ms of each other at 20 s and end at 40 s. Settled: from then on, averages of a tenth of a second stay within a tenth of the setpoint until the next step.",
    figures: &[Printed {
        what: "changes from initial RFC",
        printed: "prevent overrunning dirty limit on lots of concurrent dirtiers",
    }],
    policies: &["ioless-fixed", "mainline", "cell-rate"],
    accepts,
    parameters: &[],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

const GATES: &[Gate] = &[
    Gate {
        what: "cell-rate: most dirty pages over the limit, 100",
        figure: Figure::At("/cell-rate/100/overshoot"),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "cell-rate: most dirty pages over the limit, 1000",
        figure: Figure::At("/cell-rate/1000/overshoot"),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "cell-rate: seconds until settled after 1 to 100",
        figure: Figure::At("/cell-rate/100/up"),
        bound: Bound::AtMost(2.0),
    },
    Gate {
        what: "cell-rate: seconds until settled after 100 to 1",
        figure: Figure::At("/cell-rate/100/down"),
        bound: Bound::AtMost(2.0),
    },
    Gate {
        what: "cell-rate: seconds until settled after 1 to 1000",
        figure: Figure::At("/cell-rate/1000/up"),
        bound: Bound::AtMost(2.0),
    },
    Gate {
        what: "cell-rate: seconds until settled after 1000 to 1",
        figure: Figure::At("/cell-rate/1000/down"),
        bound: Bound::AtMost(2.0),
    },
    Gate {
        what: "cell-rate: seconds until settled after the first start",
        figure: Figure::At("/cell-rate/100/start"),
        bound: Bound::AtMost(2.0),
    },
    Gate {
        what: "mainline, reproduced: seconds until settled after 1 to 100",
        figure: Figure::At("/mainline/100/up"),
        bound: Bound::AtMost(10.0),
    },
];

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| {
        let mut all = Map::new();
        for count in [100, 1000] {
            all.insert(count.to_string(), one(setting, mode, count)?);
        }
        Ok(Value::Object(all))
    })
}

fn one(setting: &Setting, mode: Mode, count: usize) -> Result<Value, Failure> {
    let config = config(setting, mode, ARRAY_MEMORY, vec![Model::array()]);
    let others = Plan {
        start: 20 * SECOND,
        stop: Some(40 * SECOND),
        ..Plan::copy()
    };
    let mut plans = vec![Plan::copy()];
    plans.extend(writers(setting, count - 1, &others));
    let mut machine = machine(&config, &plans)?;
    let (limit, setpoint) = machine.limits();
    let mut json = Map::new();
    let mut most = 0;
    for (name, end) in [("start", 20), ("up", 40), ("down", 60)] {
        machine.mark();
        machine.run_until(end * SECOND);
        let seconds = settled(machine.tally.samples(), setpoint);
        json.insert(name.to_owned(), json!(seconds));
        let summary = machine.summary();
        most = most.max(summary.dirty_max);
        json.insert(
            format!("{name}_throughput"),
            json!(round(summary.throughput, 2)),
        );
    }
    json.insert(
        "overshoot".to_owned(),
        json!(round(most as f64 / limit as f64, 4)),
    );
    Ok(Value::Object(json))
}
