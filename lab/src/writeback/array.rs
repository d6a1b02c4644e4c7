//! W1: 1 to 1000 copies onto a fast array, and how often they are woken.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{Model, Plan, SECOND, Summary, round};
use super::trial::{ARRAY_MEMORY, accepts, by_policy, config, machine, scaled, settled, writers};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Setting};

pub const CLAIM: Claim = Claim {
    name: "writeback-array",
    title: "1 to 1000 dd on a 700 MB/s array: throughput, wake-ups, context switches a page",
    source: "Dave Chinner, re: [PATCH 00/13] IO-less dirty throttling, linux-mm, 17 November 2010",
    analysis: "Copies of 1 MiB writes for ever, the first 10 s dropped. As proposed, every writer is \
               woken 100 to 200 times a second; mainline's pauses grow with the writers, and ours hold a budget. With 1000 files a run is at most 2 * dirty / 1000 pages long, so seeks alone hold the array at 0.955 of 700 MB/s.",
    figures: &[
        Printed {
            what: "1 dd: throughput, switches total, per proc",
            printed: "700MB/s 400/s 100/s",
        },
        Printed {
            what: "2 dd",
            printed: "700MB/s 500/s 100/s",
        },
        Printed {
            what: "4 dd",
            printed: "700MB/s 700/s 100/s",
        },
        Printed {
            what: "8 dd",
            printed: "690MB/s 1,100/s 100/s",
        },
        Printed {
            what: "16 dd",
            printed: "675MB/s 2,000/s 110/s",
        },
        Printed {
            what: "32 dd",
            printed: "675MB/s 5,000/s 150/s",
        },
        Printed {
            what: "100 dd",
            printed: "650MB/s 22,000/s 210/s",
        },
        Printed {
            what: "1000 dd",
            printed: "600MB/s 160,000/s 160/s",
        },
        Printed {
            what: "1 dd, before",
            printed: "~650MB/s",
        },
    ],
    policies: &["vanilla", "ioless", "ioless-fixed", "mainline", "cell-rate"],
    accepts,
    parameters: &[],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

const COUNTS: [usize; 8] = [1, 2, 4, 8, 16, 32, 100, 1000];

const GATES: &[Gate] = &[
    Gate {
        what: "ioless, reproduced: throughput of 1000 over that of 1 (printed 0.857)",
        figure: Figure::Ratio("/ioless/1000/throughput", "/ioless/1/throughput"),
        bound: Bound::AtLeast(0.8),
    },
    Gate {
        what: "ioless, reproduced: fewest wake-ups a second of one of 16 or more writers",
        figure: Figure::At("/ioless/wakes_each_min"),
        bound: Bound::AtLeast(25.0),
    },
    Gate {
        what: "ioless, reproduced: most wake-ups a second of one of 16 or more writers",
        figure: Figure::At("/ioless/wakes_each_max"),
        bound: Bound::AtMost(250.0),
    },
    Gate {
        what: "ioless, reproduced: switches with 1000 over those with 100 (printed 7.3)",
        figure: Figure::Ratio("/ioless/1000/switches", "/ioless/100/switches"),
        bound: Bound::AtLeast(3.3),
    },
    Gate {
        what: "ioless, reproduced: longest pause, ms",
        figure: Figure::At("/ioless/pause_max_ms"),
        bound: Bound::AtMost(100.0),
    },
    Gate {
        what: "mainline, reproduced: wake-ups of 100 over ioless's",
        figure: Figure::Ratio("/mainline/100/wakes", "/ioless/100/wakes"),
        bound: Bound::AtMost(0.25),
    },
    Gate {
        what: "mainline, reproduced: wake-ups of 1000 over ioless's",
        figure: Figure::Ratio("/mainline/1000/wakes", "/ioless/1000/wakes"),
        bound: Bound::AtMost(0.15),
    },
    Gate {
        what: "mainline, reproduced: longest pause, ms",
        figure: Figure::At("/mainline/pause_max_ms"),
        bound: Bound::AtMost(200.0),
    },
    Gate {
        what: "mainline, reproduced: seconds until 100 are settled within a tenth of the setpoint",
        figure: Figure::At("/mainline/100/settled"),
        bound: Bound::AtMost(10.0),
    },
    Gate {
        what: "cell-rate: wake-ups a second over max(200, writers / 0.2 s), the most of any count",
        figure: Figure::At("/cell-rate/wakes_of_budget"),
        bound: Bound::AtMost(1.1),
    },
    Gate {
        what: "cell-rate: wake-ups over mainline's, the most of 16 writers and more",
        figure: Figure::LargestRatio(&[
            ("/cell-rate/16/wakes", "/mainline/16/wakes"),
            ("/cell-rate/32/wakes", "/mainline/32/wakes"),
            ("/cell-rate/100/wakes", "/mainline/100/wakes"),
            ("/cell-rate/1000/wakes", "/mainline/1000/wakes"),
        ]),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "cell-rate: part of the time the device is busy, the least of any count",
        figure: Figure::At("/cell-rate/busy_min"),
        bound: Bound::AtLeast(0.99),
    },
    Gate {
        what: "cell-rate: throughput over 700 MB/s, the least of any count (seeks between files included)",
        figure: Figure::At("/cell-rate/of_device_min"),
        bound: Bound::AtLeast(0.99),
    },
    Gate {
        what: "cell-rate: throughput over mainline's, the least of any count",
        figure: Figure::SmallestRatio(&[
            ("/cell-rate/1/throughput", "/mainline/1/throughput"),
            ("/cell-rate/2/throughput", "/mainline/2/throughput"),
            ("/cell-rate/4/throughput", "/mainline/4/throughput"),
            ("/cell-rate/8/throughput", "/mainline/8/throughput"),
            ("/cell-rate/16/throughput", "/mainline/16/throughput"),
            ("/cell-rate/32/throughput", "/mainline/32/throughput"),
            ("/cell-rate/100/throughput", "/mainline/100/throughput"),
            ("/cell-rate/1000/throughput", "/mainline/1000/throughput"),
        ]),
        bound: Bound::AtLeast(0.99),
    },
    Gate {
        what: "cell-rate: most dirty pages over the limit, from the first moment on",
        figure: Figure::At("/cell-rate/overshoot"),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "cell-rate: Jain's index of what the writers wrote in 10 s, the least of any count",
        figure: Figure::At("/cell-rate/jain_min"),
        bound: Bound::AtLeast(0.98),
    },
];

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| all_counts(setting, mode))
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
    Ok((summary, json, overshoot))
}

fn all_counts(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let mut all = Map::new();
    let (mut each_min, mut each_max) = (f64::MAX, 0f64);
    let (mut budget, mut busy, mut jain) = (0f64, 1f64, 1f64);
    let (mut over, mut pause, mut throughput) = (0f64, 0f64, f64::MAX);
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
        throughput = throughput.min(summary.throughput);
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
        "of_device_min".to_owned(),
        json!(round(throughput / 700.0, 4)),
    );
    Ok(Value::Object(all))
}
