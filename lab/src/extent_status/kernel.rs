//! The kernel's shrinker compared with the designs: its own calls, replayed.

use std::fs;

use serde_json::{Map, Value, json};
use uext4_testkit::SplitMix64;

use super::policy;
use super::replay::{self, Figures};
use super::steps::{self, EVENTS, Step, Steps};
use crate::experiment::{Experiment, Failure, Measure, Parameter, Scale, Setting};
use crate::kernel::loops::{Mounted, Plan};
use crate::kernel::proc::{Shrinker, drop_caches};
use crate::kernel::trace::{Clock, Trace};
use crate::subject::{Directory, Files, OpenFile};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "extent-status-kernel",
    accepts: policy::accepts,
    parameters: &[Parameter {
        name: "store",
        what: "whether the kernel's calls are stored in this directory, as extent-status.steps.zst",
        values: &["no", "yes"],
    }],
    has_subjects: false,
    measure: Measure::Timed,
    run,
};

/// Calls of a kernel, recorded by `--set store=yes`.
const RECORDED: &[u8] = include_bytes!("../../data/extent-status.steps.zst");
/// More than the text of a recording has.
const TEXT_MAX: usize = 64 << 20;
/// Where a recording is stored.
const STORED: &str = "extent-status.steps.zst";
/// Memory for trace events, in KiB for each processor.
const BUFFER_KIB: u32 = 32 << 10;
const BLOCK: u64 = 4096;

/// What is done on the kernel's file system.
#[derive(Clone, Copy, Debug)]
struct Work {
    files: usize,
    /// Shortages of memory.
    rounds: usize,
    /// Blocks that are written in each file before each of them.
    writes: usize,
    /// Blocks of a file, every second of which is written at some time.
    blocks: u64,
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let recorded = recorded().map_err(Failure::Run)?;
    let mut results = Map::new();
    results.insert("recorded".to_owned(), next_to(setting, &recorded)?);
    let live = match live(setting) {
        Ok((steps, end)) => {
            if setting.value("store") == "yes" {
                store(&steps).map_err(Failure::Run)?;
            }
            let mut live = next_to(setting, &steps)?;
            live["kernel"]["at_the_end"] = end;
            live
        }
        Err(why) => json!({ "not_run": why }),
    };
    results.insert("live".to_owned(), live);
    Ok(Value::Object(results))
}

fn recorded() -> Result<Vec<Step>, String> {
    let text = zstd::bulk::decompress(RECORDED, TEXT_MAX);
    let text = text.map_err(|error| format!("the recorded steps: {error}"))?;
    steps::read(&String::from_utf8_lossy(&text))
}

fn store(all: &[Step]) -> Result<(), String> {
    let packed = zstd::bulk::compress(steps::write(all).as_bytes(), 19);
    let stored = packed.and_then(|packed| fs::write(STORED, packed));
    stored.map_err(|error| format!("{STORED}: {error}"))
}

/// Every design's figures compared with those of the kernel.
fn next_to(setting: &Setting, steps: &[Step]) -> Result<Value, Failure> {
    let kernel = Figures::of_kernel(steps);
    let mut results = Map::new();
    for name in &setting.policies {
        let design = policy::parse(name).map_err(Failure::Usage)?;
        let (figures, [extents, reclaimable, files]) = replay::run(design, steps);
        let mut reported = figures.report();
        reported["as_the_kernel"] = figures.next_to(&kernel);
        reported["at_the_end"] = json!({
            "extents": extents, "reclaimable": reclaimable, "inodes": files,
        });
        results.insert(name.clone(), reported);
    }
    let mut reported = kernel.report();
    let (mut skipped, mut retried) = (0, 0);
    for step in steps {
        if let Step::Shrink(call) = step {
            (skipped, retried) = (skipped + call.skipped, retried + call.retried);
        }
    }
    reported["skipped"] = json!(skipped);
    reported["retried"] = json!(retried);
    results.insert("kernel".to_owned(), reported);
    Ok(Value::Object(results))
}

/// Has the kernel write, read and forget; returns what it did, and what it says about the end.
fn live(setting: &Setting) -> Result<(Vec<Step>, Value), String> {
    let work = match setting.scale {
        Scale::Quick => Work {
            files: 40,
            rounds: 24,
            writes: 5,
            blocks: 4000,
        },
        Scale::Full => Work {
            files: 150,
            rounds: 100,
            writes: 10,
            blocks: 20_000,
        },
    };
    let trace = Trace::new(Clock::Counter)?;
    trace.resize(BUFFER_KIB)?;
    trace.enable(EVENTS)?;
    // What mounting looks up is part of it, so events are recorded before there is a device to
    // name.
    let mounted = Mounted::new(&Plan {
        bytes: 10 << 30,
        options: "noatime",
        ..Plan::default()
    })?;
    let filter = mounted.filter()?;
    for event in EVENTS {
        trace.filter(event, &filter)?;
    }
    let follower = trace.follow()?;
    let files = Directory::new(mounted.path());
    let open = write(&files, &work, setting.seed).map_err(|error| error.to_string())?;
    trace.record(false)?;
    let end = Shrinker::of(&mounted.name())?;
    drop(open);
    let (events, device) = (follower.finish()?, mounted.numbers()?);
    let lost = trace.lost()?;
    if lost > 0 {
        return Err(format!("{lost} trace events were lost"));
    }
    let mut steps = Steps::default();
    for event in events.iter().filter(|event| event.is_on(&device)) {
        steps.add(event);
    }
    let end = json!({
        "extents": end.objects,
        "reclaimable": end.reclaimable,
        "inodes": end.inodes,
        "hits": end.hits,
        "misses": end.misses,
        "longest_us": end.longest_us,
    });
    Ok((steps.all, end))
}

/// Writes single blocks with a gap between any two, syncs a third of the files, and has memory run
/// short, again and again. Returns the files, open.
fn write(files: &dyn Files, work: &Work, seed: u64) -> std::io::Result<Vec<Box<dyn OpenFile>>> {
    let mut random = SplitMix64::new(seed);
    let open = (0..work.files).map(|file| files.create(&format!("file{file}")));
    let open: Vec<_> = open.collect::<std::io::Result<_>>()?;
    // Every fourth file has unwritten extents, which writing splits.
    for file in open.iter().step_by(4) {
        file.fallocate(0, work.blocks / 2 * BLOCK)?;
    }
    let contents = vec![b'x'; BLOCK as usize];
    let mut buffer = contents.clone();
    for round in 0..work.rounds {
        for file in &open {
            for _ in 0..work.writes {
                let block = 2 * random.below(work.blocks / 2);
                file.write_at(block * BLOCK, &contents)?;
            }
            // Most of what is read was never written.
            let block = random.below(work.blocks);
            file.read_at(block * BLOCK, &mut buffer)?;
        }
        for file in open.iter().skip(round % 3).step_by(3) {
            file.fsync()?;
        }
        // After the last round something is left to be dropped.
        if round + 1 < work.rounds {
            drop_caches(2).map_err(std::io::Error::other)?;
        }
    }
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uext4_lab_policies::extent_status::Policy;

    #[test]
    fn the_recorded_calls_are_replayed_by_every_design() {
        let steps = recorded().unwrap();
        let kernel = Figures::of_kernel(&steps);
        assert!(kernel.shrunk.len() > 200, "{}", kernel.shrunk.len());
        for design in Policy::ALL {
            let (figures, [extents, reclaimable, _]) = replay::run(design, &steps);
            assert_eq!(figures.shrunk.len(), kernel.shrunk.len());
            assert_eq!(figures.found.len(), kernel.found.len());
            assert!(
                figures.shrunk.iter().sum::<u64>() > 0 && reclaimable <= extents,
                "{design}"
            );
        }
    }
}
