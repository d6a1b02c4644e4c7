//! The blocks that creating a file touches in the kernel, as the thread counts them, round and
//! round.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use uext4_blockdev::MemoryDevice;
use uext4_buffer_cache::{BhLru, BufferCache, Options, Reuse, VerifyTag};
use uext4_lab_policies::bh_lru::{Lrus, Scope, Stats, bind_core};
use uext4_ondisk::{BlockSize, Pblk};

use super::cost::{Counted, gain, round};
use super::policy::{self, DEFAULT, MAINLINE, VANILLA_8, VANILLA_16};
use super::volume::failed;
use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};
use uext4_testkit::SplitMix64;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bh-lru-create-cycle",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

/// A kind of create: its name, and what it touches.
#[derive(Clone, Copy, Debug)]
struct Stream {
    name: &'static str,
    quota: bool,
    acl: bool,
    /// Each with a directory of its own.
    tasks: u64,
    /// Each block is looked up twice, as those who change it do.
    twice: bool,
}

const PLAIN: Stream = Stream {
    name: "plain",
    quota: false,
    acl: false,
    tasks: 1,
    twice: false,
};
const STREAMS: [Stream; 5] = [
    PLAIN,
    Stream {
        name: "quota",
        quota: true,
        ..PLAIN
    },
    Stream {
        name: "quota-twice",
        quota: true,
        twice: true,
        ..PLAIN
    },
    Stream {
        name: "quota-acl",
        quota: true,
        acl: true,
        ..PLAIN
    },
    Stream {
        name: "quota-8-tasks",
        quota: true,
        tasks: 8,
        ..PLAIN
    },
];

/// Leaves of a directory, and index blocks of its htree and of its map.
const LEAVES: u64 = 20_000;
const INDEXES: u64 = 60;
const MAPS: u64 = 60;
/// Blocks that a directory of the model takes.
const DIRECTORY: u64 = LEAVES + INDEXES + MAPS + 16;
const INODES_PER_BLOCK: u64 = 16;
/// Blocks of inode tables.
const TABLES: u64 = 10_000;

fn run(setting: &Setting) -> Result<Value, Failure> {
    let operations = match setting.scale {
        Scale::Quick => 20_000,
        Scale::Full => 1_000_000,
    };
    let mut results = Map::new();
    for policy in &setting.policies {
        let mut streams = Map::new();
        for stream in STREAMS {
            let counted = creates(policy, stream, operations, setting.seed)?;
            streams.insert(stream.name.to_owned(), counted.json());
        }
        results.insert(policy.clone(), Value::Object(streams));
    }
    if [VANILLA_8, VANILLA_16, MAINLINE, DEFAULT]
        .iter()
        .all(|policy| results.contains_key(*policy))
    {
        let compared = compare(&results)?;
        results.insert("compared".to_owned(), compared);
    }
    Ok(Value::Object(results))
}

fn creates(policy: &str, stream: Stream, operations: u64, seed: u64) -> Result<Counted, Failure> {
    let blocks = 64 + TABLES + stream.tasks * DIRECTORY;
    let device = Arc::new(MemoryDevice::new(blocks * 1024));
    let design = policy::parse(policy, Scope::Core).map_err(Failure::Usage)?;
    let lrus = Arc::new(Lrus::new(design));
    let options = Options {
        memory_max: 1 << 30,
        bh_lru: Some(Arc::clone(&lrus) as Arc<dyn BhLru>),
        ..Options::default()
    };
    let cache = BufferCache::new(device, BlockSize::MIN, options);
    let mut random = SplitMix64::new(seed);
    let mut touched = Vec::new();
    for number in 0..operations {
        let task = number % stream.tasks;
        bind_core(Some((task % 2) as usize));
        touched.clear();
        create(stream, number, task, &mut random, &mut touched);
        for (block, reuse) in &touched {
            for _ in 0..1 + u8::from(stream.twice) {
                let found = cache.bread_expecting(Pblk(*block), *reuse, VerifyTag(1), |_| Ok(()));
                found.map_err(failed)?;
            }
        }
    }
    bind_core(None);
    Ok(Counted::between(
        operations,
        &Stats::default(),
        &lrus.stats(),
    ))
}

/// The blocks of one create, in their order.
fn create(
    stream: Stream,
    number: u64,
    task: u64,
    random: &mut SplitMix64,
    touched: &mut Vec<(u64, Reuse)>,
) {
    use Reuse::{Once, Soon, Unknown};
    let directory = 64 + TABLES + task * DIRECTORY;
    let table = 64 + (number / INODES_PER_BLOCK) % TABLES;
    touched.extend([(directory, Unknown), (1, Soon), (table, Unknown)]);
    if stream.quota {
        touched.extend([(2, Soon), (3, Soon)]);
    }
    if stream.acl {
        // The directory's attributes, the shared ACL, its bitmap and descriptor.
        touched.extend([(4, Unknown), (5, Unknown), (6, Soon), (7, Soon)]);
    }
    let leaf = directory + 16 + random.below(LEAVES);
    let index = directory + 16 + LEAVES + random.below(INDEXES);
    let map = directory + 16 + LEAVES + INDEXES + random.below(MAPS);
    touched.extend([
        (directory + 1, Soon),
        (index, Unknown),
        (directory + 2, Unknown),
        (map, Unknown),
        (leaf, Once),
    ]);
}

fn compare(results: &Map<String, Value>) -> Result<Value, Failure> {
    let mut compared = Map::new();
    let (mut worst, mut compares) = (0f64, 0f64);
    for stream in STREAMS {
        let of = |policy: &str| &results[policy][stream.name];
        let number = |policy: &str, what: &str| of(policy)[what].as_f64().unwrap_or(f64::NAN);
        let (eight, sixteen) = (of(VANILLA_8), of(VANILLA_16));
        let added = number(VANILLA_16, "hit_ratio") - number(VANILLA_8, "hit_ratio");
        let lesser = number(VANILLA_8, "cost_ns").min(number(MAINLINE, "cost_ns"));
        worst = worst.max(number(DEFAULT, "cost_ns") / lesser);
        compares = compares.max(number(DEFAULT, "compares"));
        compared.insert(
            stream.name.to_owned(),
            json!({ "gain": gain(sixteen, eight)?, "hit_ratio_added": round(added) }),
        );
    }
    compared.insert("worst_to_lesser".to_owned(), json!(round(worst)));
    compared.insert("compares_most".to_owned(), json!(round(compares)));
    Ok(Value::Object(compared))
}
