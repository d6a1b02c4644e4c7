//! mds-survey: with quota, in one directory or in one for each thread.

use serde_json::{Map, Value, json};

use super::mdtest::compare;
use super::policy;
use super::volume::{self, Shape};
use super::workload::{self, Plan};
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Setting};

/// The claim.
pub const CLAIM: Claim = Claim {
    name: "bh-lru-survey",
    title: "mds-survey with quota: 16 crosses the cliff that 8 falls from, less with more threads",
    source: "Buisson, Liang and Dilger, [PATCH] Allow increasing the buffer-head per-CPU LRU size, June 2014",
    analysis: "The engine's own look-ups, with user and group quota, ACL and label: all of the thread's files \
               (quick: a hundredth). Threads are tasks that take turns on two cores, or threads of \
               their own that take turns.",
    figures: &[
        Printed {
            what: "one directory, 1, 2, 4, 8 and 16 threads: create",
            printed: "11,3 6,4 1,9 -0,6 0,5",
        },
        Printed {
            what: "the same, lookup",
            printed: "1,2 2,3 3,0 4,3 4,4",
        },
        Printed {
            what: "the same, destroy",
            printed: "7,2 6,9 1,3 0,7 0,6",
        },
        Printed {
            what: "a directory each, 4, 8 and 16 threads: create",
            printed: "3,2 1,2 0,6",
        },
        Printed {
            what: "the same, lookup",
            printed: "28,5 33,9 7,9",
        },
        Printed {
            what: "the same, destroy",
            printed: "5,3 2,0 -0,2",
        },
    ],
    policies: policy::ALL,
    accepts: policy::accepts,
    parameters: &[policy::SCOPE, policy::FILES],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

const GATES: &[Gate] = &[
    Gate {
        what: "reproduced: gain of 16 over 8, one thread, create, per cent",
        figure: Figure::At("/compared/gains/c-1-create"),
        bound: Bound::AtLeast(0.1),
    },
    Gate {
        what: "reproduced: gain of 16 over 8, one thread, destroy, per cent",
        figure: Figure::At("/compared/gains/c-1-remove"),
        bound: Bound::AtLeast(0.1),
    },
    Gate {
        what: "reproduced: slow look-ups of 16 over those of 8, one thread, create",
        figure: Figure::Ratio(
            "/vanilla+16/c-1/create/slow_lookups",
            "/vanilla/c-1/create/slow_lookups",
        ),
        bound: Bound::AtMost(0.6),
    },
    Gate {
        what: "beaten: cost over mainline's, most of any cell",
        figure: Figure::At("/compared/to_mainline_most"),
        bound: Bound::AtMost(0.6),
    },
    Gate {
        what: "beaten: cost over mainline's, one thread, create",
        figure: Figure::Ratio(
            "/set-associative/c-1/create/cost_ns",
            "/mainline/c-1/create/cost_ns",
        ),
        bound: Bound::AtMost(0.6),
    },
    Gate {
        what: "beaten: references held and LRUs invalidated, any cell",
        figure: Figure::At("/compared/parked_or_invalidated"),
        bound: Bound::AtMost(0.0),
    },
    Gate {
        what: "beaten: cost over the lesser of 8 and mainline, most of any cell",
        figure: Figure::At("/compared/worst_to_lesser"),
        bound: Bound::AtMost(1.02),
    },
    Gate {
        what: "beaten: slow look-ups over mainline's, most of any cell",
        figure: Figure::At("/compared/slow_most"),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "beaten: compares a look-up, most of any cell",
        figure: Figure::At("/compared/compares_most"),
        bound: Bound::AtMost(3.0),
    },
];

/// Files of all threads, as in the thread.
const FILES: u64 = 1_000_000;
/// Threads, one directory; threads with one each.
const SHARED: [u64; 5] = [1, 2, 4, 8, 16];
const OWN: [u64; 3] = [4, 8, 16];

fn run(setting: &Setting) -> Result<Value, Failure> {
    let files = FILES / policy::divisor(setting);
    let shape = Shape {
        files,
        directories: 16,
        prefill: 0,
        acl: true,
        quota: true,
    };
    let image = volume::make(&shape)?;
    let shared = SHARED.map(|tasks| ("c", tasks, 1));
    let own = OWN.map(|tasks| ("d", tasks, tasks));
    let mut results = Map::new();
    for policy in &setting.policies {
        let mut cells = Map::new();
        for (kind, tasks, directories) in shared.into_iter().chain(own) {
            let plan = Plan {
                tasks,
                files,
                selinux: true,
                directories,
                scope: policy::scope(setting),
            };
            let measured = workload::run(&image, policy, &plan)?;
            cells.insert(format!("{kind}-{tasks}"), measured);
        }
        results.insert(policy.clone(), json!(cells));
    }
    if let Some(compared) = compare(&results)? {
        results.insert("compared".to_owned(), compared);
    }
    Ok(Value::Object(results))
}
