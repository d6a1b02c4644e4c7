//! The seven steps of the thread's script, and what each leaves behind.

use serde_json::{Map, Value, json};

use crate::claim::{Bound, Claim, Failure, Figure, Gate, Measure, Parameter, Printed, Setting};
use crate::mballoc::free_space::share;
use crate::mballoc::policy;
use crate::mballoc::tree::Tree;
use crate::mballoc::volume::{Setup, Volume};
use crate::mballoc::workload::{STEPS, Session};

/// The claim.
pub const CLAIM: Claim = Claim {
    name: "mballoc-steps",
    title: "windows of a power of two make extents few, and free runs shorter",
    source: "Czerner and Dilger, [RFC][PATCH 0/1] ext4: Fix ext4_mb_normalize_request, linux-ext4, June 2014",
    analysis: "Layout is counted exactly: extents, trees, free runs. The file of one dd alone must have \
               8 extents, a group each, and no policy gives it many more on an image that is not aged: so \
               the files of both dd steps count together. Time is a model of one disk and no processor; \
               the thread's own times prove nothing (two runs a side), and neither do these. With the \
               linear search unwritten extents do not merge, as in 3.15.",
    figures: FIGURES,
    policies: &[
        policy::VANILLA,
        policy::POW2,
        "pow2-stripe+linear",
        "stripe+linear",
        policy::MAINLINE,
        policy::DEFAULT,
    ],
    accepts: policy::accepts,
    parameters: &[TREE, BLOCK, CHUNK],
    gates: GATES,
    measure: Measure::Counted,
    run,
};

/// Whose files are copied.
pub const TREE: Parameter = Parameter {
    name: "tree",
    what: "whose files are copied: Linux 6.1's, or a synthetic list",
    values: &["linux", "lognormal"],
};

/// The block size.
pub const BLOCK: Parameter = Parameter {
    name: "block",
    what: "bytes of a block",
    values: &["4096", "1024"],
};

/// The flusher's chunk.
pub const CHUNK: Parameter = Parameter {
    name: "chunk",
    what: "MiB of one file the flusher writes before it turns to the next",
    values: &["4", "8", "64"],
};

/// Of the device, one of the five copies: together 19.5 %, as the thread's counts of free blocks say.
const TREE_SHARE: f64 = 0.039;

const FIGURES: &[Printed] = &[
    Printed {
        what: "avg. free extent on the image file after Fallocate, 3.15.0 / patched",
        printed: "235700 KB / 228096 KB",
    },
    Printed {
        what: "the same after Copy",
        printed: "267724 KB / 209384 KB",
    },
    Printed {
        what: "the same after Untar",
        printed: "102936 KB / 72120 KB",
    },
    Printed {
        what: "free blocks after Fallocate, Copy, Untar (3.15.0)",
        printed: "3535514 (15.9%), 17536027 (78.7%), 8852805 (39.7%)",
    },
    Printed {
        what: "max. free extent in all of them",
        printed: "2064256 KB",
    },
    Printed {
        what: "extents",
        printed: "extent tree is much smaller (sometimes five times smaller) with the patch",
    },
    Printed {
        what: "Untar on the device, Orig3 Patch5 Orig4 Patch6",
        printed: "7m23.806s 7m6.787s 7m27.812s 7m11.225s",
    },
    Printed {
        what: "Single_dd on the image file, Orig3 Patch5 Orig4 Patch6",
        printed: "0m14.875s 0m16.735s 0m19.060s 0m16.500s",
    },
];

const GATES: &[Gate] = &[
    Gate {
        what: "reproduced: extents a file of both dd steps, pow2 to table, both linear",
        figure: Figure::Ratio(
            "/pow2+linear/dd_extents_mean",
            "/table+linear/dd_extents_mean",
        ),
        bound: Bound::AtMost(0.5),
    },
    Gate {
        what: "reproduced: extents of fallocated files, pow2 to table, both linear",
        figure: Figure::Ratio(
            "/pow2+linear/fallocate/files/extents",
            "/table+linear/fallocate/files/extents",
        ),
        bound: Bound::Within(1.5, 2.5),
    },
    Gate {
        what: "reproduced: avg. free extent after the copy, pow2 to table, both linear",
        figure: Figure::Ratio(
            "/pow2+linear/copy/free/avg_kb",
            "/table+linear/copy/free/avg_kb",
        ),
        bound: Bound::Within(0.5, 0.95),
    },
    Gate {
        what: "reproduced: avg. free extent after untar, pow2 to table, both linear",
        figure: Figure::Ratio(
            "/pow2+linear/untar/free/avg_kb",
            "/table+linear/untar/free/avg_kb",
        ),
        bound: Bound::Within(0.5, 0.95),
    },
    Gate {
        what: "reproduced: share of free runs below 64 KiB after untar, pow2 to table, both linear",
        figure: Figure::Ratio(
            "/pow2+linear/untar/free/share_of_runs_below_64k",
            "/table+linear/untar/free/share_of_runs_below_64k",
        ),
        bound: Bound::AtMost(1.0),
    },
    Gate {
        what: "reproduced: largest time of steps 2 to 7, pow2 to table, both linear",
        figure: Figure::LargestRatio(POW2_TIMES),
        bound: Bound::AtMost(1.05),
    },
    Gate {
        what: "reproduced: smallest time of steps 2 to 7, pow2 to table, both linear",
        figure: Figure::SmallestRatio(POW2_TIMES),
        bound: Bound::AtLeast(0.95),
    },
    Gate {
        what: "beaten: extents a file of both dd steps, the defaults to table+criteria",
        figure: Figure::Ratio(
            "/predict+largest-run/dd_extents_mean",
            "/table+criteria/dd_extents_mean",
        ),
        bound: Bound::AtMost(0.5),
    },
    Gate {
        what: "beaten: smallest avg. free extent after any step, the defaults to table+linear",
        figure: Figure::SmallestRatio(DEFAULT_AVERAGES),
        bound: Bound::AtLeast(0.95),
    },
];

const POW2_TIMES: &[(&str, &str)] = &[
    (
        "/pow2+linear/copy/disk/time_ms",
        "/table+linear/copy/disk/time_ms",
    ),
    (
        "/pow2+linear/tar/disk/time_ms",
        "/table+linear/tar/disk/time_ms",
    ),
    (
        "/pow2+linear/untar/disk/time_ms",
        "/table+linear/untar/disk/time_ms",
    ),
    (
        "/pow2+linear/single_dd/disk/time_ms",
        "/table+linear/single_dd/disk/time_ms",
    ),
    (
        "/pow2+linear/multiple_dd/disk/time_ms",
        "/table+linear/multiple_dd/disk/time_ms",
    ),
    (
        "/pow2+linear/fsstress/disk/time_ms",
        "/table+linear/fsstress/disk/time_ms",
    ),
];

const DEFAULT_AVERAGES: &[(&str, &str)] = &[
    (
        "/predict+largest-run/fallocate/free/avg_kb",
        "/table+linear/fallocate/free/avg_kb",
    ),
    (
        "/predict+largest-run/copy/free/avg_kb",
        "/table+linear/copy/free/avg_kb",
    ),
    (
        "/predict+largest-run/tar/free/avg_kb",
        "/table+linear/tar/free/avg_kb",
    ),
    (
        "/predict+largest-run/untar/free/avg_kb",
        "/table+linear/untar/free/avg_kb",
    ),
    (
        "/predict+largest-run/single_dd/free/avg_kb",
        "/table+linear/single_dd/free/avg_kb",
    ),
    (
        "/predict+largest-run/multiple_dd/free/avg_kb",
        "/table+linear/multiple_dd/free/avg_kb",
    ),
    (
        "/predict+largest-run/fsstress/free/avg_kb",
        "/table+linear/fsstress/free/avg_kb",
    ),
];

/// Runs all policies.
///
/// # Errors
/// As for [`run_policy`].
pub fn run(setting: &Setting) -> Result<Value, Failure> {
    let mut results = Map::new();
    for name in &setting.policies {
        results.insert(name.clone(), run_policy(setting, name, 0)?);
    }
    Ok(Value::Object(results))
}

/// The steps under one policy, on a RAID 5 of so many data disks (0: one disk).
///
/// # Errors
/// [`Failure`] for a policy that is none, and for a volume that contradicts itself.
pub fn run_policy(setting: &Setting, name: &str, disks: u64) -> Result<Value, Failure> {
    let design = policy::parse(name).map_err(Failure::Usage)?;
    let setup = Setup::of(setting, disks);
    let (block_bytes, device) = (setup.block_bytes, setup.device);
    let tree = Tree::named(setting.value("tree"), setting.seed)?;
    let tree = tree.at_scale(setting.scale, block_bytes, device, TREE_SHARE);
    let mut session = Session::new(Volume::new(setup, design)?, &tree, setting);
    let mut steps = Map::new();
    for (name, step) in STEPS {
        let before = session.volume.before();
        let done = step(&mut session)?;
        let volume = &mut session.volume;
        volume.sync()?;
        volume.evict();
        volume.check()?;
        let mut measured = volume.measure(&before, &done.made);
        measured["left_out"] = json!(done.left_out);
        steps.insert((*name).to_owned(), measured);
        for nr in done.removed_after {
            volume.unlink(nr);
        }
        volume.sync()?;
        volume.check()?;
    }
    let of = |step: &str, what: &str| steps[step]["files"][what].as_u64().unwrap_or(0);
    let both = |what: &str| of("single_dd", what) + of("multiple_dd", what);
    let mean = share(both("extents"), both("files"));
    steps.insert("dd_extents_mean".to_owned(), mean.into());
    Ok(Value::Object(steps))
}
