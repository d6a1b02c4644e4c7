//! The engine sets attributes under each policy, and every block has as many users as inodes have
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use uext4::tuning::Policies;
use uext4::xattr::SetMode;
use uext4::{Creation, NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_lab_policies::mbcache::{Measured, Stats};
use uext4_mkfs::BlockSizeWish;
use uext4_ondisk::xattr::verify_block;
use uext4_ondisk::{BlockSize, Pblk};

use super::cost::round;
use super::policy::{self, Indexes};
use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};
use uext4_testkit::SplitMix64;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mbcache-engine",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

/// Every file system is made at this moment.
const TIME: i64 = 1_700_000_000;
const VALUES: [u64; 3] = [3, 100, 100_000];
const BLOCK_BYTES: u32 = 4096;
/// Bytes of a value: too many for an inode.
const VALUE_LEN: usize = 300;
const BY: Creation = Creation {
    mode: 0o644,
    umask: 0,
    uid: 1000,
    gid: 1000,
};

/// A run that could not go on.
pub fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Run(error.to_string())
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let (files, sets) = match setting.scale {
        Scale::Quick => (4000, 12_000),
        Scale::Full => (20_000, 400_000),
    };
    let image = make(files)?;
    let mut results = Map::new();
    let mut wrong = 0;
    for policy in &setting.policies {
        let mut measured = Map::new();
        for values in VALUES {
            let device = Arc::new(image.snapshot());
            let sets = Sets {
                files,
                sets,
                values,
            };
            let (value, bad) = sets.run(&device, policy, setting.seed)?;
            measured.insert(values.to_string(), value);
            wrong += bad;
        }
        results.insert(policy.clone(), Value::Object(measured));
    }
    results.insert("compared".to_owned(), json!({ "wrong": wrong }));
    Ok(Value::Object(results))
}

/// What is done: so many sets on so many files, with so many values.
struct Sets {
    files: u64,
    sets: u64,
    values: u64,
}

impl Sets {
    fn run(
        &self,
        device: &Arc<MemoryDevice>,
        policy: &str,
        seed: u64,
    ) -> Result<(Value, u64), Failure> {
        let indexes = policy::indexes(policy)?;
        let fs = open(Arc::clone(device), &indexes)?;
        let root = fs.root().map_err(failed)?;
        let files: Result<Vec<OpenInode>, Failure> = (0..self.files)
            .map(|number| root.lookup(&name(number)).map_err(failed))
            .collect();
        let files = files?;
        let mut random = SplitMix64::new(seed);
        for _ in 0..self.sets {
            let file = &files[random.below(self.files) as usize];
            let value = value(random.below(self.values));
            // Now and then none.
            let value = (random.below(20) > 0).then_some(&value[..]);
            let done = file.set_xattr(b"user.test", value, SetMode::Any);
            done.map_err(failed)?;
        }
        let stats = fs.stats();
        let users = users(&files);
        drop((files, root));
        fs.close().map_err(failed)?;
        let wrong = wrong(device, &users)?;
        let with: u32 = users.values().sum();
        let stats = stats.xattr_blocks.unwrap_or_default();
        let index = match &indexes.blocks {
            Some(index) => index.stats(),
            None => Stats::of_product(&stats),
        };
        let each = |count: u64| round(count as f64 / self.sets as f64);
        let value = json!({
            "sharing": round(f64::from(with) / users.len().max(1) as f64),
            "locks": each(index.locks()),
            "compares": each(stats.compares),
            "content_hashes": each(stats.content_hashes),
        });
        Ok((value, wrong))
    }
}

/// How many of these inodes have each block.
pub fn users(files: &[OpenInode]) -> BTreeMap<Pblk, u32> {
    let mut users = BTreeMap::new();
    for file in files {
        if let Some(at) = file.inode().xattr_block {
            *users.entry(at).or_insert(0u32) += 1;
        }
    }
    users
}

/// Blocks that count other users than these.
///
/// # Errors
/// Of the device, damage of a block.
pub fn wrong(device: &MemoryDevice, users: &BTreeMap<Pblk, u32>) -> Result<u64, Failure> {
    users.iter().try_fold(0, |wrong, (at, users)| {
        Ok(wrong + u64::from(count(device, *at)? != *users))
    })
}

/// The users that a block counts.
fn count(device: &MemoryDevice, at: Pblk) -> Result<u32, Failure> {
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    device
        .read_at(at.0 * u64::from(BLOCK_BYTES), &mut bytes)
        .map_err(failed)?;
    let header = verify_block(&bytes, at, None).map_err(failed)?;
    Ok(header.h_refcount.get())
}

/// A file's name.
pub fn name(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

/// A value that is too long for an inode.
pub fn value(number: u64) -> Vec<u8> {
    let digits = format!("{number:06}.");
    digits.bytes().cycle().take(VALUE_LEN).collect()
}

/// A file system in memory with so many files.
///
/// # Errors
/// None that are known.
pub fn make(files: u64) -> Result<MemoryDevice, Failure> {
    let bytes = ((files * 6000) + (192 << 20)).next_multiple_of(1 << 20);
    let device = MemoryDevice::new(bytes);
    let mut wishes = uext4_mkfs::Options::new([7; 16], [9; 16], TIME as u32);
    wishes.block_size = BlockSize::from_bytes(BLOCK_BYTES).map(BlockSizeWish::Exactly);
    wishes.inodes = Some(files + 1024);
    wishes.assume_zeroed = true;
    let layout = uext4_mkfs::layout(&wishes, bytes).map_err(failed)?;
    uext4_mkfs::format(&layout, &device).map_err(failed)?;
    let device = Arc::new(device);
    let fs = open(Arc::clone(&device), &policy::indexes(policy::DEFAULT)?)?;
    let root = fs.root().map_err(failed)?;
    for number in 0..files {
        root.create(&name(number), NewInode::File, &BY)
            .map_err(failed)?;
    }
    drop(root);
    fs.close().map_err(failed)?;
    Ok(device.snapshot())
}

/// Opens it for writing with these indexes, which no other file system has had.
///
/// # Errors
/// Of opening.
pub fn open(device: Arc<MemoryDevice>, indexes: &Indexes) -> Result<Volume, Failure> {
    let given = |index: &Option<Arc<dyn Measured>>| Some(Arc::clone(index.as_ref()?) as _);
    let mut options = OpenOptions::default();
    options.memory = Some(1 << 30);
    options.policies = Policies {
        xattr_blocks: given(&indexes.blocks),
        xattr_values: given(&indexes.values),
        ..Policies::default()
    };
    let clock = Arc::new(VirtualClock::new(TIME));
    Volume::open(device, clock, &options).map_err(failed)
}
