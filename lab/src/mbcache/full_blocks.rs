//! Few values and many files: blocks with as many users as they may have pile up.

use serde_json::{Map, Value};

use super::model;
use super::plan::Plan;
use super::policy;
use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Printed, Scale, Setting};

/// The claim.
pub const CLAIM: Claim = Claim {
    name: "mbcache-full-blocks",
    title: "blocks that are full are found again and again: 25 times slower with 5 values, 20000 files, 64 processes",
    source: "Tahsin Erdogan and Andreas Gruenbacher, e_reusable, linux-ext4, 2017",
    analysis: "V=5 and 20000 files a process, which have a value already; 16 processes (--full: 64). In the \
               order of mbcache2 the newest block comes first, so full ones are passed one by one.",
    figures: &[Printed {
        what: "gain of the mark at 64 processes, and at 8",
        printed: "25 3",
    }],
    policies: &[policy::MBCACHE2, policy::MAINLINE, policy::DEFAULT],
    accepts: policy::accepts,
    parameters: &[],
    gates: &[
        Gate {
            what: "reproduced: blocks compared a set, mbcache2 over mainline",
            figure: Figure::Ratio("/mbcache2/compares", "/mainline/compares"),
            bound: Bound::AtLeast(3.0),
        },
        Gate {
            what: "beaten: blocks compared a set, over those of mbcache2",
            figure: Figure::Ratio("/one-donor/compares", "/mbcache2/compares"),
            bound: Bound::AtMost(0.05),
        },
        Gate {
            what: "beaten: blocks compared a set",
            figure: Figure::At("/one-donor/compares"),
            bound: Bound::AtMost(1.05),
        },
        Gate {
            what: "beaten: files a block over mainline's",
            figure: Figure::Ratio("/one-donor/sharing", "/mainline/sharing"),
            bound: Bound::AtLeast(1.0),
        },
        Gate {
            what: "beaten: time over mainline's",
            figure: Figure::Ratio("/one-donor/time_us", "/mainline/time_us"),
            bound: Bound::AtMost(1.02),
        },
    ],
    measure: Measure::Counted,
    run,
};

fn run(setting: &Setting) -> Result<Value, Failure> {
    let (tasks, sets) = match setting.scale {
        Scale::Quick => (16, 500),
        Scale::Full => (64, 10_000),
    };
    let plan = Plan {
        values: 5,
        files: 20_000,
        tasks,
        sets,
        zipf: 0.0,
        cap: None,
    };
    let mut results = Map::new();
    for policy in &setting.policies {
        results.insert(policy.clone(), model::run(policy, &plan, setting.seed)?);
    }
    Ok(Value::Object(results))
}
