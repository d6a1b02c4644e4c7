//! Attributes set on the kernel's ext4, on our library with the model's indexes and the
//! product's, and on any mounted directory: the blocks they share, and the time.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use uext4::tuning::Policies;
use uext4::{Image, OpenOptions};
use uext4_blockdev::{Access, BlockDevice as _, FileDevice};
use uext4_ondisk::Pblk;
use uext4_ondisk::xattr::{XATTR_REFCOUNT_MAX, verify_block};
use uext4_testkit::SplitMix64;

use super::cost::round;
use super::engine::{failed, value};
use super::policy;
use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};
use crate::kernel::loops::{Mounted, Plan};
use crate::subject::{Directory, Files, Library, Subject};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mbcache-kernel",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: true,
    measure: Measure::Timed,
    run,
};

const BYTES: u64 = 1 << 30;
const BLOCK_BYTES: usize = 4096;
const ATTRIBUTE: &str = "user.test";
/// Sets of a round are timed together.
const ROUNDS: u64 = 10;

/// What is set: one of so many values, on one of so many files.
#[derive(Clone, Copy, Debug)]
struct Cell {
    values: u64,
    files: u64,
}

/// Few values that fill blocks, some that share, one for each file, and more than Linux remembers.
const CELLS: [Cell; 4] = [
    Cell {
        values: 5,
        files: 6000,
    },
    Cell {
        values: 100,
        files: 2000,
    },
    Cell {
        values: 100_000,
        files: 2000,
    },
    Cell {
        values: 30_000,
        files: 40_000,
    },
];

fn run(setting: &Setting) -> Result<Value, Failure> {
    let sets = match setting.scale {
        Scale::Quick => 2000,
        Scale::Full => 20_000,
    };
    let is_wanted = |subject: &Subject| setting.on.is_empty() || setting.on.contains(subject);
    let mut results = Map::new();
    for cell in CELLS {
        let work = Work {
            cell,
            sets,
            seed: setting.seed,
        };
        let mut measured = Map::new();
        if is_wanted(&Subject::Library) {
            for name in &setting.policies {
                measured.insert(name.clone(), work.library(name)?);
            }
        }
        for subject in &setting.on {
            if let Subject::Mount(dir) | Subject::Directory(dir) = subject {
                let done = work.all_of(&Directory::new(dir))?;
                measured.insert(subject.to_string(), json!({ "set_us": done.rounds }));
            }
        }
        if setting.on.is_empty() {
            let kernel = match Mounted::new(&PLAN) {
                Ok(mounted) => work.kernel(mounted)?,
                Err(why) => json!({ "not_run": why }),
            };
            measured.insert("kernel".to_owned(), kernel);
        }
        let name = format!("{}-{}", cell.values, cell.files);
        results.insert(name, Value::Object(measured));
    }
    Ok(Value::Object(results))
}

/// Values of 300 bytes do not fit into these inodes.
const PLAN: Plan<'static> = Plan {
    bytes: BYTES,
    format: &["-b", "4096", "-I", "256"],
    options: "noatime",
    attach: &[],
    dir: None,
};

/// A workload, the same on every subject.
struct Work {
    cell: Cell,
    /// Of each round.
    sets: u64,
    seed: u64,
}

/// What came of it.
struct Done {
    /// Microseconds of a set in each round.
    rounds: Vec<f64>,
    /// The value that each file has.
    last: Vec<Vec<u8>>,
}

impl Done {
    /// Blocks that these values need if all that may be shared is.
    fn least_blocks(&self) -> usize {
        let mut files: BTreeMap<&[u8], usize> = BTreeMap::new();
        for value in &self.last {
            *files.entry(value).or_insert(0) += 1;
        }
        let most = XATTR_REFCOUNT_MAX as usize;
        files.values().map(|files| files.div_ceil(most)).sum()
    }
}

fn path(file: u64) -> String {
    format!("d/f{file}")
}

impl Work {
    /// Makes the files and sets attributes on them.
    fn all_of(&self, files: &dyn Files) -> Result<Done, Failure> {
        let mut random = SplitMix64::new(self.seed);
        let mut set = |file: u64| {
            let value = value(random.below(self.cell.values));
            let set = files.set_attribute(&path(file), ATTRIBUTE, &value);
            set.map(|()| value).map_err(failed)
        };
        files.make_dir("d").map_err(failed)?;
        let mut last = Vec::new();
        for file in 0..self.cell.files {
            files.create(&path(file)).map_err(failed)?;
            last.push(set(file)?);
        }
        let mut drawn = SplitMix64::new(self.seed ^ 1);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for _ in 0..self.sets {
                let file = drawn.below(self.cell.files);
                last[file as usize] = set(file)?;
            }
            rounds.push(round(
                began.elapsed().as_secs_f64() * 1e6 / self.sets as f64,
            ));
        }
        files.sync().map_err(failed)?;
        for (file, value) in (0..).zip(&last) {
            let found = files.attribute(&path(file), ATTRIBUTE).map_err(failed)?;
            if found != *value {
                return Err(failed(format!(
                    "{}: another value than was set",
                    path(file)
                )));
            }
        }
        Ok(Done { rounds, last })
    }

    fn kernel(&self, mut mounted: Mounted) -> Result<Value, Failure> {
        let done = self.all_of(&Directory::new(mounted.path()))?;
        mounted.unmount().map_err(Failure::Run)?;
        self.reported(&mounted.image(), &done)
    }

    /// The library on a file in memory, with these indexes of shared blocks.
    fn library(&self, name: &str) -> Result<Value, Failure> {
        let dir = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
        let dir = dir.map_err(failed)?;
        let image: PathBuf = dir.path().join("image");
        let file = File::create(&image).and_then(|file| file.set_len(BYTES));
        file.map_err(failed)?;
        let open = || FileDevice::open(&image, Access::ReadWrite).map_err(failed);
        let mut wishes = uext4_mkfs::Options::new([7; 16], [9; 16], 1_700_000_000);
        wishes.assume_zeroed = true;
        let layout = uext4_mkfs::layout(&wishes, BYTES).map_err(failed)?;
        uext4_mkfs::format(&layout, &open()?).map_err(failed)?;
        let indexes = policy::indexes(name)?;
        let mut options = OpenOptions::default();
        options.policies = Policies {
            xattr_blocks: indexes.blocks.map(|index| index as _),
            xattr_values: indexes.values.map(|index| index as _),
            ..Policies::default()
        };
        let library = Library::open(Arc::new(open()?), &options).map_err(failed)?;
        let done = self.all_of(&library)?;
        library.close().map_err(failed)?;
        self.reported(&image, &done)
    }

    /// What the image holds, which nothing writes to any more.
    fn reported(&self, image: &Path, done: &Done) -> Result<Value, Failure> {
        let device = Arc::new(FileDevice::open(image, Access::ReadOnly).map_err(failed)?);
        let fs = Image::open(Arc::clone(&device) as _, &OpenOptions::default()).map_err(failed)?;
        let mut users: BTreeMap<Pblk, u32> = BTreeMap::new();
        for file in 0..self.cell.files {
            if let Some(at) = fs.metadata(path(file)).map_err(failed)?.xattr_block {
                *users.entry(at).or_insert(0) += 1;
            }
        }
        let mut full = 0;
        for (at, users) in &users {
            let mut block = vec![0; BLOCK_BYTES];
            let place = at.0 * BLOCK_BYTES as u64;
            device.read_at(place, &mut block).map_err(failed)?;
            let header = verify_block(&block, *at, None).map_err(failed)?;
            let counted = header.h_refcount.get();
            if counted != *users {
                let why = format!("block {} counts {counted} users and has {users}", at.0);
                return Err(Failure::Run(why));
            }
            full += u64::from(counted == XATTR_REFCOUNT_MAX);
        }
        let with: u32 = users.values().sum();
        Ok(json!({
            "set_us": done.rounds,
            "blocks": users.len(),
            "blocks_beyond": users.len().saturating_sub(done.least_blocks()),
            "full_blocks": full,
            "users_mean": round(f64::from(with) / users.len().max(1) as f64),
            "users_most": users.values().max(),
        }))
    }
}
