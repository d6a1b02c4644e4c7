//! The kernel's LRU compared with the designs: the blocks that its ext4 looks up, looked up in
//! each design.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde_json::{Map, Value, json};
use uext4_blockdev::MemoryDevice;
use uext4_buffer_cache::{BhLru as _, Buffer, BufferCache, Key, Options, Reuse};
use uext4_lab_policies::bh_lru::{Lrus, Scope, Stats};
use uext4_ondisk::{BlockSize, Pblk};

use super::cost::{Counted, gain, round};
use super::policy::{self, DEFAULT, MAINLINE, VANILLA_8, VANILLA_16};
use super::sequence::{Lookup, Phase, Traced, whole};
use super::volume;
use super::workload::PHASES;
use crate::experiment::{Experiment, Failure, Measure, Scale, Setting};
use crate::kernel::loops::{Mounted, Plan};
use crate::kernel::proc::drop_caches;
use crate::kernel::trace::{Clock, Event, Trace};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bh-lru-kernel",
    accepts: policy::accepts,
    parameters: &[],
    has_subjects: false,
    measure: Measure::Timed,
    run,
};

const EVENT: &str = "block/block_touch_buffer";
/// Memory for trace events, in KiB for each processor.
const BUFFER_KIB: u32 = 32 << 10;
const DIRECTORY: &str = "d";

/// A file system: its name, and what is counted or inherited.
struct Case {
    name: &'static str,
    quota: bool,
    acl: bool,
}

const CASES: [Case; 4] = [
    Case {
        name: "plain",
        quota: false,
        acl: false,
    },
    Case {
        name: "acl",
        quota: false,
        acl: true,
    },
    Case {
        name: "quota",
        quota: true,
        acl: false,
    },
    Case {
        name: "quota-acl",
        quota: true,
        acl: true,
    },
];

fn run(setting: &Setting) -> Result<Value, Failure> {
    let files = match setting.scale {
        Scale::Quick => 20_000,
        Scale::Full => 100_000,
    };
    let mut results = Map::new();
    for case in &CASES {
        let reported = match trace(case, files) {
            Ok(phases) => next_to(setting, &phases)?,
            // Without the first there is none; this kernel may have no quota.
            Err(why) if results.is_empty() => return Err(Failure::NotRun(why)),
            Err(why) => json!({ "not_run": why }),
        };
        results.insert(case.name.to_owned(), reported);
    }
    summarize(&mut results);
    Ok(Value::Object(results))
}

/// The worst of all phases and cases.
fn summarize(results: &mut Map<String, Value>) {
    let (mut alike, mut cost) = (f64::INFINITY, 0f64);
    let (mut least, mut most, mut explained) = (f64::INFINITY, 0f64, f64::INFINITY);
    let was_run = |case: &&Case| results[case.name].get("not_run").is_none();
    for case in CASES.iter().filter(was_run) {
        for phase in PHASES {
            let number = |of: &str, what: &str| {
                let number = results[case.name]
                    .get(of)
                    .and_then(|of| of[phase][what].as_f64());
                number.unwrap_or(f64::NAN)
            };
            alike = alike.min(number(MAINLINE, "as_the_kernel"));
            explained = explained.min(number("kernel", "operations_explained"));
            let hits = number(MAINLINE, "hits") / number("kernel", "hits");
            (least, most) = (least.min(hits), most.max(hits));
            cost = cost.max(number(DEFAULT, "cost_ns") / number(MAINLINE, "cost_ns"));
        }
    }
    let reported = json!({
        "alike_least": round(alike),
        "explained_least": round(explained),
        "hits_ratio": { "least": round(least), "most": round(most) },
        "cost_to_mainline_most": round(cost),
    });
    results.insert("worst".to_owned(), reported);
}

/// Runs the three phases on the kernel's ext4, in a thread on one processor; the lookups of each.
fn trace(case: &Case, files: usize) -> Result<Vec<Phase>, String> {
    let trace = Trace::new(Clock::Counter)?;
    trace.resize(BUFFER_KIB)?;
    let features = if case.quota { "quota" } else { "^quota" };
    let mounted = Mounted::new(&Plan {
        bytes: 2 << 30,
        // Inodes for the files of a full run.
        format: &["-b", "4096", "-I", "256", "-N", "150000", "-O", features],
        // A commit would look up blocks of the journal in between.
        options: "noatime,commit=300",
        ..Plan::default()
    })?;
    trace.filter(EVENT, &mounted.filter()?)?;
    trace.enable(&[EVENT])?;
    let follower = trace.follow()?;
    let root = mounted.path();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| work(&trace, &root, case, files));
        work.join()
            .unwrap_or_else(|_| Err("the workload panicked".to_owned()))
    })?;
    trace.record(false)?;
    let events = follower.finish()?;
    match trace.lost()? {
        0 => Ok(phases(&events)),
        lost => Err(format!("{lost} trace events were lost")),
    }
}

/// Creates, stats and removes files, with a mark before and behind each of these.
fn work(trace: &Trace, root: &Path, case: &Case, files: usize) -> Result<(), String> {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).map_err(|error| format!("sched_setaffinity: {error}"))?;
    let wrong = |error: std::io::Error| format!("{}: {error}", root.display());
    let dir = root.join(DIRECTORY);
    fs::create_dir(&dir).map_err(wrong)?;
    if case.acl {
        let name = "system.posix_acl_default";
        let set = rustix::fs::setxattr(
            &dir,
            name,
            &volume::large_acl(),
            rustix::fs::XattrFlags::empty(),
        );
        set.map_err(|error| format!("{name}: {error}"))?;
    }
    for phase in PHASES {
        // Names and inodes are looked up anew in each phase.
        rustix::fs::syncfs(fs::File::open(root).map_err(wrong)?)
            .map_err(|error| error.to_string())?;
        drop_caches(2)?;
        for number in 0..files {
            let path = dir.join(format!("file.mdtest.0.{number}"));
            trace.mark(&format!("{phase} {number}"))?;
            let done = match phase {
                "create" => fs::File::create_new(&path).map(|_| ()),
                "stat" => fs::metadata(&path).map(|_| ()),
                _ => fs::remove_file(&path),
            };
            trace.mark("end")?;
            done.map_err(wrong)?;
        }
    }
    Ok(())
}

/// The lookups of each phase, of what was recorded between marks.
fn phases(events: &[Event]) -> Vec<Phase> {
    let mut traced: HashMap<&str, Vec<Traced>> = HashMap::new();
    let mut current: Option<(&str, Traced, u32)> = None;
    for event in events {
        match (event.name.as_str(), event.fields.split_once(' ')) {
            ("tracing_mark_write", Some((phase, file))) => {
                let file = file.parse().unwrap_or(0);
                let operation = Traced {
                    file,
                    hits: Vec::new(),
                };
                let phase = PHASES.into_iter().find(|known| *known == phase);
                current = phase.map(|phase| (phase, operation, event.pid));
            }
            ("tracing_mark_write", None) => {
                if let Some((phase, operation, _)) = current.take() {
                    traced.entry(phase).or_default().push(operation);
                }
            }
            ("block_touch_buffer", _) => {
                let block = event.number("sector").and_then(|n| u64::try_from(n).ok());
                if let (Some((_, operation, pid)), Some(block)) = (&mut current, block)
                    && *pid == event.pid
                {
                    operation.hits.push(block);
                }
            }
            _ => {}
        }
    }
    // Removing looks a leaf up twice, so that the second is answered: it says what stat looked up.
    let mut known = HashMap::new();
    let mut whole_of = |phase: &str| {
        let none = Vec::new();
        whole(traced.get(phase).unwrap_or(&none), &mut known)
    };
    let remove = whole_of(PHASES[2]);
    let stat = whole_of(PHASES[1]);
    let mut other = HashMap::new();
    let none = Vec::new();
    // Leaves are split while files are made, so what removing met says nothing of it.
    let create = whole(traced.get(PHASES[0]).unwrap_or(&none), &mut other);
    vec![create, stat, remove]
}

/// Every design's figures compared with the kernel's, phase by phase.
fn next_to(setting: &Setting, phases: &[Phase]) -> Result<Value, Failure> {
    let mut results = Map::new();
    let mut kernel = Map::new();
    for (name, phase) in PHASES.into_iter().zip(phases) {
        kernel.insert(name.to_owned(), of_kernel(phase));
    }
    results.insert("kernel".to_owned(), Value::Object(kernel));
    for policy in &setting.policies {
        results.insert(policy.clone(), replay(policy, phases)?);
    }
    if [VANILLA_8, VANILLA_16, MAINLINE]
        .iter()
        .all(|policy| results.contains_key(*policy))
    {
        let mut gains = Map::new();
        let mut losses = 0;
        for phase in PHASES {
            let gained = gain(&results[VANILLA_16][phase], &results[VANILLA_8][phase])?;
            losses += u32::from(gained <= 0.0);
            gains.insert(phase.to_owned(), json!(gained));
        }
        let part = round(f64::from(losses) / PHASES.len() as f64);
        let compared = json!({ "gains": gains, "losses": part });
        results.insert("compared".to_owned(), compared);
    }
    Ok(Value::Object(results))
}

fn of_kernel(phase: &Phase) -> Value {
    let count = phase.operations.len().max(1) as f64;
    let all = phase.operations.iter().flatten();
    let lookups = all.clone().count();
    let hits = all.filter(|lookup| lookup.was_hit).count();
    let blocks = |operation: &Vec<Lookup>| {
        let blocks: HashSet<u64> = operation.iter().map(|lookup| lookup.block).collect();
        blocks.len()
    };
    let different: usize = phase.operations.iter().map(blocks).sum();
    json!({
        "operations": phase.operations.len(),
        "operations_explained": round(phase.explained as f64 / count),
        "lookups": round(lookups as f64 / count),
        "different_blocks": round(different as f64 / count),
        "hits": round(hits as f64 / count),
        "slow_lookups": round((lookups - hits) as f64 / count),
        "hit_ratio": round(hits as f64 / lookups.max(1) as f64),
    })
}

/// What the engine knows of a block when it looks it up: a leaf may not come back.
fn reuse(lookup: &Lookup) -> Reuse {
    match lookup.changes {
        true => Reuse::Unknown,
        false => Reuse::Soon,
    }
}

fn replay(policy: &str, phases: &[Phase]) -> Result<Value, Failure> {
    let design = policy::parse(policy, Scope::Thread).map_err(Failure::Usage)?;
    let lrus = Lrus::new(design);
    let buffers = buffers(phases);
    let mut results = Map::new();
    for (name, phase) in PHASES.into_iter().zip(phases) {
        let before = lrus.stats();
        let (mut alike, mut all) = (0, 0);
        for lookup in phase.operations.iter().flatten() {
            let key = Key {
                cache: 1,
                block: lookup.block,
            };
            let is_hit = lrus.lookup(key).is_some();
            if let (false, Some(buffer)) = (is_hit, buffers.get(&lookup.block)) {
                lrus.install(key, buffer, reuse(lookup));
            }
            alike += u64::from(is_hit == lookup.was_hit);
            all += 1;
        }
        let operations = phase.operations.len() as u64;
        let counted = Counted::between(operations, &before, &lrus.stats());
        let mut reported = counted.json();
        reported["hits"] = json!(round(counted.hits as f64 / operations.max(1) as f64));
        reported["as_the_kernel"] = json!(round(alike as f64 / f64::from(all.max(1))));
        results.insert(name.to_owned(), reported);
    }
    let of = Counted::between(1, &Stats::default(), &lrus.stats());
    results.insert("all_lookups".to_owned(), json!(of.lookups));
    Ok(Value::Object(results))
}

/// A block of memory for each that is looked up, whatever its number.
fn buffers(phases: &[Phase]) -> HashMap<u64, Buffer> {
    let lookups = phases
        .iter()
        .flat_map(|phase| phase.operations.iter().flatten());
    let blocks: HashSet<u64> = lookups.map(|lookup| lookup.block).collect();
    let device = MemoryDevice::new(((blocks.len() as u64 + 1) * 1024).next_multiple_of(1 << 20));
    let options = Options {
        memory_max: 1 << 30,
        ..Options::default()
    };
    let cache = BufferCache::new(Arc::new(device), BlockSize::MIN, options);
    let numbered = blocks.into_iter().zip(0..);
    numbered
        .map(|(block, number)| (block, cache.getblk_new(Pblk(number))))
        .collect()
}
