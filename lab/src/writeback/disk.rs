//! W2: 1, 10 and 100 copies onto one disk: throughput, size of requests, processor time.

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{Model, Plan, SECOND};
use super::trial::{DISK_MEMORY, accepts, by_policy, config, machine, scaled, writers};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Parameter, Printed, Setting};

pub const CLAIM: Claim = Claim {
    name: "writeback-disk",
    title: "1, 10 and 100 dd on one disk: throughput, size of requests, processor time",
    source: "Wu Fengguang, [PATCH 00/13] IO-less dirty throttling, linux-mm, 17 and 18 November 2010",
    analysis: "60 s from a fresh start, the first 10 s dropped. Writers that write themselves mix their \
               requests in the queue and meet each other on the lists; processor time counts copying, \
               submitting, switches and spinning, but not what else the thread's machine did a page.",
    figures: &[
        Printed {
            what: "100dd 2.6.37-rc2: %system wkB/s avgrq-sz",
            printed: "30.916 37843.000 748.670",
        },
        Printed {
            what: "100dd 2.6.37-rc1-next-20101115+",
            printed: "3.079 41654.853 822.322",
        },
        Printed {
            what: "100dd 2.6.37-rc2, again",
            printed: "30.501 37227.521 735.754",
        },
        Printed {
            what: "100dd 2.6.37-rc1-next-20101115+, again",
            printed: "3.744 41531.725 820.360",
        },
        Printed {
            what: "10dd 2.6.37-rc2",
            printed: "39.442 47745.021 900.935",
        },
        Printed {
            what: "10dd 2.6.37-rc1-next-20101115+",
            printed: "20.756 47951.702 901.006",
        },
        Printed {
            what: "10dd 2.6.37-rc2, again",
            printed: "39.204 47484.616 899.330",
        },
        Printed {
            what: "10dd 2.6.37-rc1-next-20101115+, again",
            printed: "20.550 47970.093 900.247",
        },
        Printed {
            what: "1dd 2.6.37-rc2",
            printed: "13.046 57357.468 910.659",
        },
        Printed {
            what: "1dd 2.6.37-rc1-next-20101115+",
            printed: "13.060 57632.715 909.212",
        },
        Printed {
            what: "1dd 2.6.37-rc2, again",
            printed: "12.896 56433.152 909.861",
        },
        Printed {
            what: "1dd 2.6.37-rc1-next-20101115+, again",
            printed: "12.467 56294.440 909.644",
        },
    ],
    policies: &["vanilla", "ioless", "ioless-fixed", "mainline", "cell-rate"],
    accepts,
    parameters: &[Parameter {
        name: "batch",
        what: "requests that a woken submitter may put into a full queue at once",
        values: &["0", "32"],
    }],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

const COUNTS: [usize; 3] = [1, 10, 100];

macro_rules! against_vanilla {
    ($what:literal, $count:literal, $figure:literal, $low:literal, $high:literal) => {
        Gate {
            what: $what,
            figure: Figure::Ratio(
                concat!("/ioless/", $count, "/", $figure),
                concat!("/vanilla/", $count, "/", $figure),
            ),
            bound: Bound::Within($low, $high),
        }
    };
}

const GATES: &[Gate] = &[
    against_vanilla!(
        "100 dd, ioless over vanilla: throughput (printed 1.101, 1.116)",
        "100",
        "throughput",
        1.05,
        1.2
    ),
    against_vanilla!(
        "100 dd, ioless over vanilla: bytes a request (printed 1.098, 1.115)",
        "100",
        "request_bytes",
        1.05,
        1.2
    ),
    against_vanilla!(
        "100 dd, ioless over vanilla: processor time (printed 0.10, 0.12)",
        "100",
        "cpu",
        0.0,
        0.3
    ),
    against_vanilla!(
        "10 dd, ioless over vanilla: throughput (printed 1.004, 1.010)",
        "10",
        "throughput",
        0.97,
        1.03
    ),
    against_vanilla!(
        "10 dd, ioless over vanilla: bytes a request (printed 1.000, 1.001)",
        "10",
        "request_bytes",
        0.97,
        1.03
    ),
    against_vanilla!(
        "10 dd, ioless over vanilla: processor time (printed 0.53, 0.52)",
        "10",
        "cpu",
        0.35,
        0.7
    ),
    against_vanilla!(
        "1 dd, ioless over vanilla: throughput (printed 1.005, 0.998)",
        "1",
        "throughput",
        0.97,
        1.03
    ),
    against_vanilla!(
        "1 dd, ioless over vanilla: bytes a request (printed 0.998, 1.000)",
        "1",
        "request_bytes",
        0.97,
        1.03
    ),
    against_vanilla!(
        "1 dd, ioless over vanilla: processor time (printed 1.001, 0.967)",
        "1",
        "cpu",
        0.97,
        1.03
    ),
    Gate {
        what: "cell-rate over mainline: throughput, the least of any count",
        figure: Figure::SmallestRatio(&[
            ("/cell-rate/1/throughput", "/mainline/1/throughput"),
            ("/cell-rate/10/throughput", "/mainline/10/throughput"),
            ("/cell-rate/100/throughput", "/mainline/100/throughput"),
        ]),
        bound: Bound::AtLeast(0.99),
    },
    Gate {
        what: "cell-rate over vanilla: throughput of 100 dd",
        figure: Figure::Ratio("/cell-rate/100/throughput", "/vanilla/100/throughput"),
        bound: Bound::AtLeast(1.05),
    },
    Gate {
        what: "cell-rate over ioless: processor time, the most of any count",
        figure: Figure::LargestRatio(&[
            ("/cell-rate/1/cpu", "/ioless/1/cpu"),
            ("/cell-rate/10/cpu", "/ioless/10/cpu"),
            ("/cell-rate/100/cpu", "/ioless/100/cpu"),
        ]),
        bound: Bound::AtMost(1.0),
    },
];

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| all_counts(setting, mode))
}

fn all_counts(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let mut all = Map::new();
    for count in COUNTS {
        let disk = Model {
            batch: match setting.value("batch") {
                "32" => 32,
                _ => 0,
            },
            ..Model::disk()
        };
        let config = config(setting, mode, DISK_MEMORY, vec![disk]);
        let mut machine = machine(&config, &writers(setting, count, &Plan::copy()))?;
        machine.run_until(10 * SECOND);
        machine.mark();
        machine.run_until(scaled(setting, 60, 300) * SECOND);
        let mut json = machine.summary().json();
        // In the thread's units: sectors of 512 bytes.
        json["avgrq_sz"] = json!(machine.summary().request_bytes as u64 / 512);
        all.insert(count.to_string(), json);
    }
    Ok(Value::Object(all))
}
