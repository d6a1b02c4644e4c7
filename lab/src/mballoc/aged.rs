//! The same allocator on an image that was filled and emptied again and again.

use serde_json::{Map, Value, json};

use crate::experiment::{Experiment, Failure, Measure, Parameter, Scale, Setting};
use crate::mballoc::file::FileNr;
use crate::mballoc::free_space::share;
use crate::mballoc::tree::Tree;
use crate::mballoc::volume::{Setup, Volume};
use crate::mballoc::{policy, seeds, steps, workload};
use uext4_testkit::SplitMix64;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mballoc-aged",
    accepts: policy::accepts,
    parameters: &[steps::TREE, steps::BLOCK, steps::CHUNK, RAID, seeds::SEEDS],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

/// Whether it is a RAID.
const RAID: Parameter = Parameter {
    name: "disks",
    what: "of data in a RAID 5 stripe, 64 KiB of it on each; 0: one disk",
    values: &["0", "8", "31"],
};

const ROUNDS: usize = 5;
const FULL_PERCENT: u64 = 90;
/// Files replaced while the image is full.
const REPLACED: usize = 5000;
/// Files there is no space for before the image counts as full.
const REFUSED: u64 = 200;
/// One file in so many is large: log-normal with this median, standard deviation of the
/// logarithm, most.
const LARGE_EVERY: u64 = 50;
const LARGE: (f64, f64, f64) = (1048576.0, 1.5, 134217728.0);
/// Files of a directory.
const DIRECTORY: u64 = 64;

/// A volume that ages.
struct Aging {
    volume: Volume,
    random: SplitMix64,
    sizes: Vec<u64>,
    files: Vec<FileNr>,
    /// Blocks of their contents: what is made and removed follows from these alone, so that it is
    /// the same under every policy.
    blocks: u64,
    part: usize,
    left_out: u64,
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    seeds::run(setting, run_seed)
}

fn run_seed(setting: &Setting) -> Result<Value, Failure> {
    let mut results = Map::new();
    for name in &setting.policies {
        results.insert(name.clone(), run_policy(setting, name)?);
    }
    Ok(Value::Object(results))
}

fn run_policy(setting: &Setting, name: &str) -> Result<Value, Failure> {
    let design = policy::parse(name).map_err(Failure::Usage)?;
    let disks: u64 = setting.value("disks").parse().unwrap_or(0);
    let setup = Setup::of(setting, disks);
    let tree = Tree::named(setting.value("tree"), setting.seed)?;
    let mut aging = Aging {
        volume: Volume::new(setup, design)?,
        random: SplitMix64::new(setting.seed ^ 0x6167_6564),
        sizes: tree.directories.into_iter().flat_map(|d| d.files).collect(),
        files: Vec::new(),
        blocks: 0,
        part: 0,
        left_out: 0,
    };
    let mut results = Map::new();
    let before = aging.volume.before();
    for _ in 0..ROUNDS {
        aging.fill()?;
        aging.halve()?;
    }
    results.insert(
        "aged".to_owned(),
        aging.volume.measure(&before, &aging.files),
    );
    let each = match setting.scale {
        Scale::Quick => 128,
        Scale::Full => 256,
    };
    for (name, files, each) in [("single_dd", 1, 1024), ("multiple_dd", 10, each)] {
        let before = aging.volume.before();
        let done = workload::dd(&mut aging.volume, files, each, setting.seed)?;
        aging.settle()?;
        let measured = aging.volume.measure(&before, &done.made);
        results.insert(name.to_owned(), measured);
        for nr in done.made {
            aging.volume.unlink(nr);
        }
        aging.settle()?;
    }
    aging.fill()?;
    let before = aging.volume.before();
    let mapped_before = aging.volume.mapped();
    aging.churn()?;
    let mut measured = aging.volume.measure(&before, &aging.files);
    let mapped = aging.volume.mapped() - mapped_before;
    let counted = |name: &str| measured["allocator"][name].as_u64().unwrap_or(0);
    let work = counted("groups_considered") + counted("extents_scanned");
    measured["allocations"] = json!(mapped);
    measured["work_per_allocation"] = json!(share(work, mapped));
    results.insert("churn".to_owned(), measured);
    aging.fill_up()?;
    results.insert("full".to_owned(), aging.full());
    results.insert("left_out".to_owned(), aging.left_out.into());
    Ok(Value::Object(results))
}

impl Aging {
    fn size(&mut self) -> u64 {
        if self.random.below(LARGE_EVERY) == 0 {
            let (median, sigma, most) = LARGE;
            return (median * (sigma * self.random.normal()).exp()).min(most) as u64;
        }
        self.sizes[self.random.below(self.sizes.len() as u64) as usize]
    }

    /// Makes one file; false if there is no space for it.
    fn make(&mut self) -> Result<bool, Failure> {
        if (self.files.len() as u64).is_multiple_of(DIRECTORY) {
            self.part = self.volume.make_directory(None, DIRECTORY)?;
        }
        let size = self.size();
        let nr = self.volume.create(self.part);
        self.files.push(nr);
        let fits = size == 0 || self.volume.write(nr, 0, size)?;
        self.blocks += self.volume.blocks(nr);
        self.volume.close(nr);
        Ok(fits)
    }

    /// Until 90 % are used.
    fn fill(&mut self) -> Result<(), Failure> {
        while self.volume.percent_with(self.blocks) < FULL_PERCENT {
            self.left_out += u64::from(!self.make()?);
        }
        self.settle()
    }

    /// Removes a random half of the files.
    fn halve(&mut self) -> Result<(), Failure> {
        let half = self.files.len() / 2;
        while self.files.len() > half {
            self.remove_one();
        }
        self.settle()
    }

    /// Files come and go at 90 %.
    fn churn(&mut self) -> Result<(), Failure> {
        for _ in 0..REPLACED {
            self.remove_one();
            while self.volume.percent_with(self.blocks) < FULL_PERCENT {
                self.left_out += u64::from(!self.make()?);
            }
        }
        self.settle()
    }

    /// Until nothing more may be written: whatever was reserved must then be found.
    fn fill_up(&mut self) -> Result<(), Failure> {
        let mut refused = 0;
        while refused < REFUSED {
            refused += u64::from(!self.make()?);
        }
        self.settle()
    }

    fn full(&self) -> Value {
        json!({
            "used_percent": self.volume.used_percent(),
            "refused_with_space": self.volume.refused,
        })
    }

    fn remove_one(&mut self) {
        let which = self.random.below(self.files.len() as u64) as usize;
        let nr = self.files.swap_remove(which);
        self.blocks -= self.volume.blocks(nr);
        self.volume.unlink(nr);
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.volume.sync()?;
        self.volume.evict();
        self.volume.check()
    }
}
