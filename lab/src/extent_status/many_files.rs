//! Test B of the thread: very many open files with a few extents each, and one large one.

use serde_json::{Map, Value, json};

use super::machine::{Machine, Plan};
use super::tally::{self, Run, Tally};
use super::{jobs, policy};
use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "extent-status-many-files",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const WRITERS: usize = 25;
/// Files that vanilla's growth is distinguished from.
const FEWER: usize = 25_000;
const MORE: usize = 100_000;
/// Blocks of a file: 1 MiB.
const BLOCKS: u64 = 256;
/// One block of the stream is written for so many of the files.
const STREAM: usize = 4;

/// Pages of memory for each file: 2 GiB for 100,000, and for a million what the thread had.
const PAGES: usize = 5;
/// Runs of every policy, each with a seed of its own.
const RUNS: u64 = 3;

/// Files, and nanoseconds between two readings of the moving average.
fn extent_of(scale: Scale) -> (usize, u64) {
    match scale {
        Scale::Quick => (WRITERS * 4_000, 200_000_000),
        Scale::Full => (WRITERS * 40_000, 4_000_000_000),
    }
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let (files, _) = extent_of(setting.scale);
    let seeds = (0..RUNS).map(|run| setting.seed + run);
    let shapes: Vec<(u64, usize)> = seeds.map(|seed| (seed, files)).collect();
    let mut tallies = Vec::new();
    for (policy, runs) in runs(setting, &setting.policies, &shapes)? {
        tallies.push((policy, Tally { runs }));
    }
    let mut results = tally::report(&tallies);
    let mut growth = Map::new();
    let vanilla = [policy::VANILLA.to_owned()];
    for number in [FEWER, MORE] {
        let known = tallies.iter().find(|(policy, _)| *policy == vanilla[0]);
        let reported = match known {
            Some((_, tally)) if number == files => tally.report(),
            _ => {
                let shape = (setting.seed, number);
                let runs = runs(setting, &vanilla, &[shape])?.into_iter();
                Tally {
                    runs: runs.flat_map(|(_, runs)| runs).collect(),
                }
                .report()
            }
        };
        let inodes = reported.pointer("/mean_of_a_call/inodes").cloned();
        growth.insert(number.to_string(), json!({ "inodes": inodes }));
    }
    results.insert("growth".to_owned(), Value::Object(growth));
    Ok(Value::Object(results))
}

/// The runs of each policy, one for each seed and number of files.
fn runs(
    setting: &Setting,
    policies: &[String],
    shapes: &[(u64, usize)],
) -> Result<Vec<(String, Vec<Run>)>, Failure> {
    let caps = jobs::all(shapes, |shape| cap(setting, *shape))?;
    let each = |policy| shapes.iter().zip(&caps).map(move |shape| (policy, shape));
    let all: Vec<_> = policies.iter().flat_map(each).collect();
    let done = jobs::all(&all, |(policy, ((seed, files), cap))| {
        once(setting, (policy, *seed, *files), **cap)
    })?;
    let mut done = done.into_iter();
    let taken = policies.iter().map(|policy| {
        let runs = done.by_ref().take(shapes.len()).collect();
        (policy.clone(), runs)
    });
    Ok(taken.collect())
}

fn once(
    setting: &Setting,
    (policy, seed, files): (&str, u64, usize),
    cap: usize,
) -> Result<Run, Failure> {
    let (_, sample) = extent_of(setting.scale);
    let shrinker = policy::parse(policy).map_err(Failure::Usage)?;
    let mut source = Source::new(files, seed);
    let plan = Plan {
        files: files + 1,
        memory: PAGES * files,
        chunk: 1024,
        run: 32,
        cap,
        tick: 10_000_000,
        sample,
    };
    let mut machine = Machine::new(plan, shrinker, seed);
    if cap < usize::MAX {
        machine.run_short();
    }
    while let Some((file, lblk)) = source.next() {
        machine.write(file, lblk);
    }
    Ok(machine.finish())
}

/// What may be dropped of so many files, if nothing is: more than 40 % of that are a shortage.
fn cap(setting: &Setting, (seed, files): (u64, usize)) -> Result<usize, Failure> {
    let peak = once(setting, (policy::DEFAULT, seed, files), usize::MAX)?.reclaimable;
    Ok(peak as usize * 2 / 5)
}

/// What is written, in order: the writers' files in rounds, each a block a round until it has its
/// one to eight; and the stream between them.
struct Source {
    files: Vec<Shape>,
    /// The next file, before the writers take turns; and the round.
    at: usize,
    round: u32,
    written: usize,
    streamed: u32,
}

/// Where a file's blocks are: so many, from the first one on, so far apart.
struct Shape {
    blocks: u32,
    first: u32,
    apart: u32,
}

impl Source {
    fn new(files: usize, seed: u64) -> Self {
        let mut random = uext4_testkit::SplitMix64::new(seed);
        let shape = |_| Shape {
            blocks: 1 + random.below(8) as u32,
            first: random.below(BLOCKS) as u32,
            // Odd, so that it meets every block of the file once.
            apart: 3 + 2 * random.below(BLOCKS / 2 - 3) as u32,
        };
        let files: Vec<Shape> = (0..files).map(shape).collect();
        Self {
            files,
            at: 0,
            round: 0,
            written: 0,
            streamed: 0,
        }
    }

    /// The next block: its file and its number.
    fn next(&mut self) -> Option<(usize, u32)> {
        if self.written % (STREAM + 1) == STREAM {
            self.written += 1;
            self.streamed += 1;
            return Some((self.files.len(), self.streamed - 1));
        }
        loop {
            if self.at == self.files.len() {
                (self.at, self.round) = (0, self.round + 1);
            }
            if self.round == 8 {
                return None;
            }
            // Writers take turns, each with the next of its own files.
            let each = self.files.len() / WRITERS;
            let number = self.at % WRITERS * each + self.at / WRITERS;
            self.at += 1;
            let file = &self.files[number];
            if self.round < file.blocks {
                self.written += 1;
                let lblk = (file.first + self.round * file.apart) % BLOCKS as u32;
                return Some((number, lblk));
            }
        }
    }
}
