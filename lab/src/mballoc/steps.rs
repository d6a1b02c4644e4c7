//! The seven steps of the thread's script, and what each leaves behind.

use serde_json::{Map, Value, json};

use crate::experiment::{Experiment, Failure, Measure, Parameter, Setting};
use crate::mballoc::free_space::share;
use crate::mballoc::tree::Tree;
use crate::mballoc::volume::{Setup, Volume};
use crate::mballoc::workload::{STEPS, Session};
use crate::mballoc::{policy, seeds};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mballoc-steps",
    accepts: policy::accepts,
    parameters: &[TREE, BLOCK, CHUNK, seeds::SEEDS],
    has_subjects: false,
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

/// Of the device, one of the five copies: together 19.5 %, as the thread's counts of free blocks
/// say.
const TREE_SHARE: f64 = 0.039;

fn run(setting: &Setting) -> Result<Value, Failure> {
    seeds::run(setting, run_seed)
}

/// Runs all policies at the seed of the setting.
///
/// # Errors
/// As for [`run_policy`].
pub fn run_seed(setting: &Setting) -> Result<Value, Failure> {
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
