//! The same steps on a RAID 5: whose writes cover whole stripes.

use serde_json::{Map, Value};

use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Parameter, Printed, Setting};
use crate::mballoc::{policy, steps};

/// The claim.
pub const CLAIM: Claim = Claim {
    name: "mballoc-stripe",
    title: "windows of whole stripes save a RAID its read-modify-writes",
    source: "Czerner and Dilger, [RFC][PATCH 0/1] ext4: Fix ext4_mb_normalize_request, linux-ext4, June 2014",
    analysis: "A stripe counts if it was not written whole before sixteen others were begun. The two \
               readings of the thread: whole stripes instead of the power of two (stripe, Dilger), and \
               after it (pow2-stripe, Czerner). All policies are told the stripe. Of 8 data disks the \
               stripe is a power of two, and windows of any policy keep it; of 31 none does by luck.",
    figures: &[
        Printed {
            what: "Dilger",
            printed: "if the allocator causes read-modify-write on a RAID array can cut performance in half",
        },
        Printed {
            what: "Yu Kuai, 32 disks in RAID 5, stripe of 496 blocks, December 2025: begin of a file's \
                   extent, remainder by the stripe before and after",
            printed: "34816 % 496 = 96, 0",
        },
    ],
    policies: &[
        policy::VANILLA,
        policy::POW2,
        "pow2-stripe+linear",
        "stripe+linear",
        policy::MAINLINE,
        policy::DEFAULT,
    ],
    accepts: policy::accepts,
    parameters: &[
        steps::TREE,
        steps::BLOCK,
        steps::CHUNK,
        Parameter {
            name: "disks",
            what: "of data in a stripe, 64 KiB of it on each; one more holds the parity",
            values: &["31", "8", "5"],
        },
    ],
    gates: &[
        Gate {
            what: "reproduced: read-modify-writes of the dd steps, stripe to table, both linear",
            figure: Figure::Ratio(
                "/stripe+linear/dd_read_modify_writes",
                "/table+linear/dd_read_modify_writes",
            ),
            bound: Bound::AtMost(0.25),
        },
        Gate {
            what: "reproduced: read-modify-writes of the dd steps, pow2-stripe to table, both linear",
            figure: Figure::Ratio(
                "/pow2-stripe+linear/dd_read_modify_writes",
                "/table+linear/dd_read_modify_writes",
            ),
            bound: Bound::AtMost(0.25),
        },
        Gate {
            what: "beaten: read-modify-writes of the dd steps, the defaults to table+linear",
            figure: Figure::Ratio(
                "/predict+largest-run/dd_read_modify_writes",
                "/table+linear/dd_read_modify_writes",
            ),
            bound: Bound::AtMost(0.1),
        },
    ],
    measure: Measure::Counted,
    run,
};

fn run(setting: &Setting) -> Result<Value, Failure> {
    let disks = setting.value("disks").parse().unwrap_or(31);
    let mut results = Map::new();
    for name in &setting.policies {
        let mut measured = steps::run_policy(setting, name, disks)?;
        let sum: u64 = ["single_dd", "multiple_dd"]
            .iter()
            .filter_map(|step| measured[step]["disk"]["read_modify_writes"].as_u64())
            .sum();
        measured["dd_read_modify_writes"] = sum.into();
        results.insert(name.clone(), measured);
    }
    Ok(Value::Object(results))
}
