//! The kernel's allocator compared with its model and our library: the thread's steps, on each of
//! them.

use serde_json::{Map, Value, json};

use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};
use crate::mballoc::comparison::{Kernel, Ours, Subject};
use crate::mballoc::free_space::{self, share};
use crate::mballoc::policy;
use crate::mballoc::small_steps::{STEPS, Sizes, Steps};
use crate::mballoc::tree::Tree;
use crate::mballoc::volume::Setup;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mballoc-kernel",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Timed,
    run,
};

const BLOCK_BYTES: u64 = 4096;
/// Of the device, one of the five copies.
const TREE_SHARE: f64 = 0.02;

fn run(setting: &Setting) -> Result<Value, Failure> {
    let sizes = match setting.scale {
        Scale::Quick => Sizes {
            device: 2 << 30,
            single: 256,
            each: 32,
            operations: 4000,
        },
        Scale::Full => Sizes {
            device: 8 << 30,
            single: 1024,
            each: 128,
            operations: 10_000,
        },
    };
    let most = (sizes.device as f64 * TREE_SHARE) as u64;
    let tree = Tree::named("linux", setting.seed)?.first(BLOCK_BYTES, most);
    let setup = Setup {
        device: sizes.device,
        block_bytes: BLOCK_BYTES,
        stripe: 0,
        // Nothing is written before it is synced.
        chunk: u64::MAX,
        background: u64::MAX,
        seed: setting.seed,
    };
    let on = |subject: &dyn Subject| steps(subject, &tree, sizes, setting.seed);
    let mut results = Map::new();
    let kernel = Kernel::new(sizes.device);
    let ours = Ours::new(sizes.device)?;
    for name in &setting.policies {
        let design = policy::parse(name).map_err(Failure::Usage)?;
        let model = match &kernel {
            Ok(kernel) => kernel.model(setup, design)?,
            Err(_) => ours.model(setup, design)?,
        };
        results.insert(name.clone(), on(&model)?);
    }
    results.insert("library".to_owned(), on(&ours)?);
    drop(ours);
    let reported = match &kernel {
        Ok(kernel) => on(kernel)?,
        Err(why) => json!({ "not_run": why }),
    };
    results.insert("kernel".to_owned(), reported);
    Ok(Value::Object(results))
}

/// What each step leaves.
fn steps(on: &dyn Subject, tree: &Tree, sizes: Sizes, seed: u64) -> Result<Value, Failure> {
    let failed = |step: &str| {
        let step = step.to_owned();
        move |error: std::io::Error| Failure::Run(format!("{step}: {error}"))
    };
    let files = on.files();
    let blocks = sizes.device / BLOCK_BYTES;
    let mut session = Steps::new(files, tree, sizes, seed);
    let mut results = Map::new();
    let empty = on.layout(&[])?;
    results.insert(
        "empty".to_owned(),
        json!({ "free": free_space::summary(&empty.free, blocks, BLOCK_BYTES) }),
    );
    for (name, step) in STEPS {
        let before = on.counters()?;
        let made = step(&mut session).map_err(failed(name))?;
        session.sync().map_err(failed(name))?;
        let after = on.counters()?;
        let ino = |path: &String| files.stat(path).map(|status| status.ino);
        let inos = made
            .paths
            .iter()
            .map(ino)
            .collect::<std::io::Result<Vec<_>>>();
        let layout = on.layout(&inos.map_err(failed(name))?)?;
        let extents: u64 = layout.extents.iter().sum();
        let count = layout.extents.len() as u64;
        results.insert(
            (*name).to_owned(),
            json!({
                "files": {
                    "files": count,
                    "extents": extents,
                    "extents_mean": share(extents, count),
                    "extents_max": layout.extents.iter().max(),
                },
                "free": free_space::summary(&layout.free, blocks, BLOCK_BYTES),
                "allocator": after.since(&before).report(),
            }),
        );
        if made.is_removed {
            for path in &made.paths {
                files.unlink(path).map_err(failed(name))?;
            }
            session.sync().map_err(failed(name))?;
        }
    }
    Ok(Value::Object(results))
}
