//! mdtest: create, stat and remove in one directory that may be large already.

use serde_json::{Map, Value, json};

use super::cost::{gain, round};
use super::policy::{self, DEFAULT, MAINLINE, VANILLA_8, VANILLA_16};
use super::volume::{self, Shape};
use super::workload::{self, PHASES, Plan};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Setting};

/// The claim.
pub const CLAIM: Claim = Claim {
    name: "bh-lru-mdtest",
    title: "mdtest with large ACLs, with and without SELinux: 16 costs more than 8 where 8 held the blocks",
    source: "Buisson, Liang and Dilger, [PATCH] Allow increasing the buffer-head per-CPU LRU size, June 2014",
    analysis: "The engine's own look-ups, counted and weighed by the model of docs/lab.md; all of the thread's files \
               (quick: a hundredth). The engine keeps bitmaps, descriptors and inodes in memory of their \
               own, so it looks up fewer blocks an operation than the kernel.",
    figures: FIGURES,
    policies: policy::ALL,
    accepts: policy::accepts,
    parameters: &[policy::SCOPE, policy::FILES],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

const FIGURES: &[Printed] = &[
    Printed {
        what: "gain in per cent, ACL and SELinux, 1 task, create by files there before (0 to 10,000,000)",
        printed: "-8,7 -5,2 -5,1 -5,1 -4,2 -3,5",
    },
    Printed {
        what: "the same, stat",
        printed: "-2,7 -0,5 -3,7 -4,0 -5,3 -8,0",
    },
    Printed {
        what: "the same, remove",
        printed: "-0,5 -1,1 -1,5 -8,5 -10,2 -10,9",
    },
    Printed {
        what: "ACL and SELinux, 8 tasks, create",
        printed: "-0,3 -1,2 0,5 -1,7 -5,9 -4,1",
    },
    Printed {
        what: "the same, stat",
        printed: "-3,8 -3,7 -3,2 -6,1 -7,7 -8,8",
    },
    Printed {
        what: "the same, remove",
        printed: "-1,2 -1,5 -5,3 -8,7 -11,9 -13,6",
    },
    Printed {
        what: "ACL, 1 task, create",
        printed: "0,0 1,0 3,7 1,1 3,5 9,0",
    },
    Printed {
        what: "the same, stat",
        printed: "-0,9 -3,0 -3,0 3,6 0,1 3,8",
    },
    Printed {
        what: "the same, remove",
        printed: "-1,1 -3,5 -2,4 -0,2 5,9 6,4",
    },
    Printed {
        what: "ACL, 8 tasks, create",
        printed: "2,4 -0,2 1,1 -0,3 0,3 1,5",
    },
    Printed {
        what: "the same, stat",
        printed: "-1,2 -1,8 -0,3 -2,8 -3,1 0,0",
    },
    Printed {
        what: "the same, remove",
        printed: "-4,3 -2,4 2,0 -3,3 -1,3 0,7",
    },
];

const GATES: &[Gate] = &[
    Gate {
        what: "reproduced: part of the cells in which 16 costs no less than 8",
        figure: Figure::At("/compared/losses"),
        bound: Bound::AtLeast(0.6666),
    },
    Gate {
        what: "reproduced: compares of 16 over those of 8, mean of all cells",
        figure: Figure::At("/compared/compares_ratio"),
        bound: Bound::AtLeast(1.2),
    },
    Gate {
        what: "beaten: cost over the lesser of 8 and mainline, most of any cell",
        figure: Figure::At("/compared/worst_to_lesser"),
        bound: Bound::AtMost(1.02),
    },
    Gate {
        what: "beaten: compares a look-up, most of any cell",
        figure: Figure::At("/compared/compares_most"),
        bound: Bound::AtMost(3.0),
    },
    Gate {
        what: "beaten: slow look-ups over mainline's, most of any cell",
        figure: Figure::At("/compared/slow_most"),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "beaten: references held and LRUs invalidated, any cell",
        figure: Figure::At("/compared/parked_or_invalidated"),
        bound: Bound::AtMost(0.0),
    },
];

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

/// All cells of the policies beside each other; `None` if one that is needed was not run.
///
/// # Errors
/// [`Failure::Run`] for a cell without look-ups.
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
    let mut to_mainline = 0f64;
    for cell in cells.keys() {
        for phase in PHASES {
            let of = |policy: &str| &results[policy][cell][phase];
            let number = |policy: &str, what: &str| of(policy)[what].as_f64().unwrap_or(f64::NAN);
            let gained = gain(of(VANILLA_16), of(VANILLA_8))?;
            gains.insert(format!("{cell}-{phase}"), json!(gained));
            losses += u32::from(gained <= 0.0);
            compares += number(VANILLA_16, "compares") / number(VANILLA_8, "compares");
            let lesser = number(VANILLA_8, "cost_ns").min(number(MAINLINE, "cost_ns"));
            worst = worst.max(number(DEFAULT, "cost_ns") / lesser);
            most = most.max(number(DEFAULT, "compares"));
            held = held.max(number(DEFAULT, "parked") + number(DEFAULT, "invalidations"));
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
        "gains": gains,
        "losses": round(f64::from(losses) / count),
        "compares_ratio": round(compares / count),
        "worst_to_lesser": round(worst),
        "compares_most": round(most),
        "slow_most": round(slow),
        "to_mainline_most": round(to_mainline),
        "parked_or_invalidated": held,
    })))
}
