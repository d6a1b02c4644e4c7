//! The corner cells of xattr-bench in the engine, by real threads.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};
use uext4::xattr::SetMode;
use uext4::{OpenInode, Volume};
use uext4_blockdev::MemoryDevice;

use super::cost::round;
use super::engine::{failed, make, name, open, users, value, wrong};
use super::policy::{self, MAINLINE, MB1};
use crate::experiment::{Experiment, Failure, Measure, Parameter, Scale, Setting};
use crate::ministat::Summary;
use uext4_testkit::SplitMix64;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mbcache-threads",
    accepts: policy::accepts,
    parameters: &[CELL],
    has_subjects: false,
    measure: Measure::Timed,
    run,
};

/// Which cells are run.
const CELL: Parameter = Parameter {
    name: "cell",
    what: "the cells that are run: values, files a thread, threads",
    values: &[
        "all",
        "10-10-1",
        "10-10-8",
        "10-10-64",
        "10-1000-1",
        "10-1000-8",
        "10-1000-64",
        "10000-10-1",
        "10000-10-8",
        "10000-10-64",
        "10000-1000-1",
        "10000-1000-8",
        "10000-1000-64",
    ],
};

/// V, F, P.
type Cell = (u64, u64, u64);

fn cell_name((values, files, threads): Cell) -> String {
    format!("{values}-{files}-{threads}")
}

/// Threads compared with one. A quick run has fewer: 64 threads have 64,000 files, a block each,
/// four times.
fn many(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 8,
        Scale::Full => 64,
    }
}

fn cells(many: u64) -> impl Iterator<Item = Cell> {
    let pairs = [10, 10_000]
        .into_iter()
        .flat_map(|values| [10, 1000].map(|files| (values, files)));
    pairs.flat_map(move |(values, files)| [1, many].map(|threads| (values, files, threads)))
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let (sets, rounds) = match setting.scale {
        Scale::Quick => (8000, 10),
        Scale::Full => (100_000, 20),
    };
    let mut results: Vec<Map<String, Value>> = vec![Map::new(); setting.policies.len()];
    let mut all_wrong = 0;
    let wanted = setting.value(CELL.name);
    for cell in
        cells(many(setting.scale)).filter(|&cell| wanted == "all" || wanted == cell_name(cell))
    {
        let (_, files, threads) = cell;
        let image = make(files * threads)?;
        let mounts: Result<Vec<Mount>, Failure> = setting
            .policies
            .iter()
            .map(|policy| Mount::new(&image, policy, cell, setting.seed))
            .collect();
        let mounts = mounts?;
        let mut rates = vec![Vec::new(); mounts.len()];
        // The first brings in memory and does not count.
        for round in 0..=rounds {
            for turn in 0..mounts.len() {
                // No policy always follows the same one.
                let at = (turn + round as usize) % mounts.len();
                let rate = mounts[at].rate(cell, sets, setting.seed.wrapping_add(round))?;
                rates[at].extend((round > 0).then_some(rate));
            }
        }
        let of = |policy: &str| {
            let at = setting.policies.iter().position(|p| p == policy)?;
            Some(&rates[at][..])
        };
        for (mount, (rate, reported)) in mounts.into_iter().zip(rates.iter().zip(&mut results)) {
            let (sharing, wrong) = mount.judge()?;
            all_wrong += wrong;
            let value = json!({
                "sets_per_second": {
                    "samples": rate,
                    "summary": Summary::of(rate).map(|s| s.to_string()),
                },
                "to_mainline": compared(rate, of(MAINLINE)),
                "to_mb1": compared(rate, of(MB1)),
                "sharing": sharing,
            });
            reported.insert(cell_name(cell), value);
        }
    }
    let policies = setting.policies.iter().cloned();
    let mut results: Map<_, _> = policies
        .zip(results.into_iter().map(Value::Object))
        .collect();
    results.insert("compared".to_owned(), json!({ "wrong": all_wrong }));
    Ok(Value::Object(results))
}

/// The median of the ratios of runs that followed one another, and whether the means differ;
/// nothing for a policy and itself.
fn compared(rates: &[f64], reference: Option<&[f64]>) -> Value {
    let Some(reference) = reference.filter(|reference| *reference != rates) else {
        return Value::Null;
    };
    let ratios: Vec<f64> = rates.iter().zip(reference).map(|(a, b)| a / b).collect();
    let both = Summary::of(rates).zip(Summary::of(reference));
    let said = both.map(|(this, that)| this.against(&that).to_string());
    json!({
        "median": Summary::of(&ratios).map(|s| round(s.median)),
        "ministat": said.map(|said| said.lines().map(str::to_owned).collect::<Vec<_>>()),
    })
}

/// A file system under a policy, with its files: those of one thread follow one another.
struct Mount {
    device: Arc<MemoryDevice>,
    fs: Volume,
    files: Vec<OpenInode>,
}

impl Mount {
    /// Every file has a value.
    fn new(image: &MemoryDevice, policy: &str, cell: Cell, seed: u64) -> Result<Self, Failure> {
        let (values, files, threads) = cell;
        let device = Arc::new(image.snapshot());
        let fs = open(Arc::clone(&device), &policy::indexes(policy)?)?;
        let root = fs.root().map_err(failed)?;
        let open = |number| root.lookup(&name(number)).map_err(failed);
        let files: Result<Vec<OpenInode>, Failure> = (0..files * threads).map(open).collect();
        let files = files?;
        let mut random = SplitMix64::new(seed);
        for file in &files {
            let value = value(random.below(values));
            let set = file.set_xattr(b"user.test", Some(&value), SetMode::Any);
            set.map_err(failed)?;
        }
        Ok(Self { device, fs, files })
    }

    /// Sets a second of all threads together.
    fn rate(&self, (values, files, threads): Cell, sets: u64, seed: u64) -> Result<f64, Failure> {
        let pool: Vec<Vec<u8>> = (0..values).map(value).collect();
        let each = sets / threads;
        let start = Instant::now();
        std::thread::scope(|scope| {
            let (pool, all) = (&pool, &self.files);
            let work = |thread: u64| {
                scope.spawn(move || {
                    let mut random =
                        SplitMix64::new(seed.wrapping_mul(threads).wrapping_add(thread));
                    for _ in 0..each {
                        let file = &all[(thread * files + random.below(files)) as usize];
                        let value = &pool[random.below(values) as usize];
                        file.set_xattr(b"user.test", Some(value), SetMode::Any)?;
                    }
                    Ok::<(), uext4::Error>(())
                })
            };
            let all: Vec<_> = (0..threads).map(work).collect();
            all.into_iter().try_for_each(|thread| {
                let done = thread.join();
                done.map_err(|_| Failure::Run("a thread panicked".to_owned()))?
                    .map_err(failed)
            })
        })?;
        Ok((each * threads) as f64 / start.elapsed().as_secs_f64())
    }

    /// Files that have one block, on average, and blocks that count other users than they have.
    fn judge(self) -> Result<(f64, u64), Failure> {
        let users = users(&self.files);
        let with: u32 = users.values().sum();
        drop(self.files);
        self.fs.close().map_err(failed)?;
        let sharing = round(f64::from(with) / users.len().max(1) as f64);
        Ok((sharing, wrong(&self.device, &users)?))
    }
}
