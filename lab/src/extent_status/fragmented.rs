//! Test A of the thread: a few hundred files, nearly all of whose extents are delayed.

use serde_json::Value;

use super::machine::{Machine, Plan};
use super::tally::{self, Run, Tally};
use super::{jobs, policy, shares};
use crate::claim::{
    Bound, Claim, Failure, Figure, Gate, Measure, Parameter, Printed, Scale, Setting,
};

/// The claim.
pub const CLAIM: Claim = Claim {
    name: "extent-status-fragmented",
    title: "with 500 files of mostly delayed extents, a list of what can be dropped makes scans short",
    source: "Zheng Liu, [RFC PATCH v2 0/4] ext4: extents status tree shrinker improvement, linux-ext4, April 2014",
    analysis: "The shrinkers under a model of test A: 100 writers append to five files each, a flusher makes the \
               oldest blocks written, the shrinker is called every 10 ms of virtual time and above the cap. Steps \
               are counted, not microseconds. 'shares' keeps the delayed share of 500 trees at a figure.",
    figures: FIGURES,
    policies: policy::ALL,
    accepts: policy::accepts,
    parameters: &[Parameter {
        name: "run",
        what: "mean length of the extents that the allocator gives, in blocks",
        values: &["32", "1", "8", "256"],
    }],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

const FIGURES: &[Printed] = &[
    Printed {
        what: "max scan in us (N Min Max Median Avg Stddev), vanilla",
        printed: "3 22230 24607 23532 23456.333 1190.3051",
    },
    Printed {
        what: "max scan, lru",
        printed: "3 203 364 301 289.33333 81.13158",
    },
    Printed {
        what: "max scan, lru to vanilla at 95.0%",
        printed: "-23167 +/- 1912.16, -98.7665% +/- 8.15199%, pooled s = 843.626",
    },
    Printed {
        what: "max scan, rr",
        printed: "3 165 248 172 195 46.032597",
    },
    Printed {
        what: "max scan, rr to vanilla at 95.0%",
        printed: "-23261.3 +/- 1909.16, -99.1687% +/- 8.1392%, pooled s = 842.302",
    },
    Printed {
        what: "avg scan in us (N Min Max Median Avg Stddev), vanilla",
        printed: "220 204 15997 3976 5268.6773 4121.2038",
    },
    Printed {
        what: "avg scan, lru",
        printed: "220 105 169 126 132.65 14.904881",
    },
    Printed {
        what: "avg scan, lru to vanilla at 95.0%",
        printed: "-5136.03 +/- 544.593, -97.4823% +/- 10.3364%, pooled s = 2914.15",
    },
    Printed {
        what: "avg scan, rr",
        printed: "224 55 144 82 97.834821 27.811093",
    },
    Printed {
        what: "avg scan, rr to vanilla at 95.0%",
        printed: "-5170.84 +/- 539.706, -98.1431% +/- 10.2437%, pooled s = 2900.98",
    },
];

const GATES: &[Gate] = &[
    Gate {
        what: "reproduced: mean steps of a call, lru to vanilla",
        figure: Figure::Ratio("/lru/steps/mean", "/vanilla/steps/mean"),
        bound: Bound::AtMost(0.1),
    },
    Gate {
        what: "reproduced: mean steps of a call, round-robin to vanilla",
        figure: Figure::Ratio("/round-robin/steps/mean", "/vanilla/steps/mean"),
        bound: Bound::AtMost(0.1),
    },
    Gate {
        what: "reproduced: most steps of a call, lru and round-robin to vanilla",
        figure: Figure::LargestRatio(&[
            ("/lru/steps/max", "/vanilla/steps/max"),
            ("/round-robin/steps/max", "/vanilla/steps/max"),
        ]),
        bound: Bound::AtMost(0.1),
    },
    Gate {
        what: "reproduced: steps of a call round-robin has more than lru (ministat's upper end)",
        figure: Figure::At("/compared/round_robin_more_than_lru_at_most"),
        bound: Bound::AtMost(0.0),
    },
    Gate {
        what: "beaten: steps per extent freed, leaf-queue to round-robin",
        figure: Figure::Ratio(
            "/leaf-queue/steps/per_freed",
            "/round-robin/steps/per_freed",
        ),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "beaten: the same with 0, 50, 90 and 99 % delayed, the largest",
        figure: Figure::LargestRatio(&[
            ("/shares/leaf-queue/0", "/shares/round-robin/0"),
            ("/shares/leaf-queue/50", "/shares/round-robin/50"),
            ("/shares/leaf-queue/90", "/shares/round-robin/90"),
            ("/shares/leaf-queue/99", "/shares/round-robin/99"),
        ]),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "beaten: steps per extent freed with 99 % delayed, leaf-queue to mainline",
        figure: Figure::Ratio("/shares/leaf-queue/99", "/shares/mainline/99"),
        bound: Bound::AtMost(0.05),
    },
    Gate {
        what: "beaten: steps under any one lock of leaf-queue, 99th percentile of the calls",
        figure: Figure::At("/leaf-queue/under_one_lock/p99"),
        bound: Bound::AtMost(256.0),
    },
    Gate {
        what: "beaten: steps under any one lock of leaf-queue, the most",
        figure: Figure::At("/leaf-queue/under_one_lock/max"),
        bound: Bound::AtMost(256.0),
    },
];

const FILES: usize = 500;
/// What may be dropped, more than which is a shortage.
const CAP: usize = 100_000;
/// Pages that the flusher takes of a file, of each GiB of memory: 1024 with the thread's 24 GB.
const CHUNK: usize = 43;
/// Runs of every policy, each with a seed of its own.
const RUNS: u64 = 10;

/// Memory in GiB, writes, and nanoseconds between two readings of the moving average.
fn extent_of(scale: Scale) -> (usize, usize, u64) {
    match scale {
        Scale::Quick => (1, 300_000, 200_000_000),
        Scale::Full => (2, 4_000_000, 4_000_000_000),
    }
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let runs: Vec<(&String, u64)> = setting
        .policies
        .iter()
        .flat_map(|policy| (0..RUNS).map(move |seed| (policy, setting.seed + seed)))
        .collect();
    let done = jobs::all(&runs, |(policy, seed)| once(setting, policy, *seed))?;
    let mut done = done.into_iter();
    let tallies: Vec<(String, Tally)> = setting
        .policies
        .iter()
        .map(|policy| {
            let runs = done.by_ref().take(RUNS as usize).collect();
            (policy.clone(), Tally { runs })
        })
        .collect();
    let mut results = tally::tell(&tallies);
    results.insert("shares".to_owned(), shares::run(setting)?);
    Ok(Value::Object(results))
}

fn once(setting: &Setting, policy: &str, seed: u64) -> Result<Run, Failure> {
    let (memory, writes, sample) = extent_of(setting.scale);
    let shrinker = policy::parse(policy).map_err(Failure::Usage)?;
    let plan = Plan {
        files: FILES,
        memory: memory << 18,
        chunk: CHUNK * memory,
        run: setting.value("run").parse().unwrap_or(32),
        cap: CAP,
        tick: 10_000_000,
        sample,
    };
    let mut machine = Machine::new(plan, shrinker, seed);
    // Writers and their files in an order of the seed's, the same in every round.
    let mut order: Vec<usize> = (0..FILES).collect();
    for at in (1..FILES).rev() {
        let other = machine.random().below(at as u64 + 1) as usize;
        order.swap(at, other);
    }
    machine.run_short();
    for write in 0..writes {
        machine.write(order[write % FILES], (write / FILES) as u32);
    }
    Ok(machine.finish())
}
