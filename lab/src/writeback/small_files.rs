//! W3: fs_mark, millions of files of one byte.

use serde_json::{Value, json};
use uext4_lab_policies::writeback::Mode;

use super::machine::{MICRO, Model, Nanos, Plan, SECOND, Work, round};
use super::trial::{TICKS, accepts, by_policy, config, machine, mean_of_seeds, scaled};
use crate::experiment::{Experiment, Failure, Measure, Setting};

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-small-files",
    accepts,
    parameters: &[TICKS],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

/// Processor time of making a file: (250 % − …) of eight processors at 22,000 files a second.
const CREATE: Nanos = 114 * MICRO;

/// Runs; figures are their means.
const SEEDS: u64 = 3;

fn run(setting: &Setting) -> Result<Value, Failure> {
    by_policy(setting, |mode| {
        mean_of_seeds(setting, SEEDS, |setting| both(setting, mode))
    })
}

/// The array with eight threads, and twelve disks with twelve.
fn both(setting: &Setting, mode: Mode) -> Result<Value, Failure> {
    let striped = |flushers| Model {
        flushers,
        ..Model::striped()
    };
    let mut all = json!({
        "8": one(setting, mode, 8, vec![striped(1)])?,
        "12": one(setting, mode, 12, vec![Model::disk(); 12])?,
    });
    // The kernels of 2010 had one flusher a device; of the others both can be asked.
    if matches!(mode, Mode::Mainline | Mode::CellRate) {
        all["8_with_4_flushers"] = one(setting, mode, 8, vec![striped(4)])?;
    }
    Ok(all)
}

/// Threads make files, each in a directory of its own, on the one device or each on its own.
fn one(setting: &Setting, mode: Mode, threads: u64, devices: Vec<Model>) -> Result<Value, Failure> {
    // What the first files cost, before anything is throttled, must not be much of it.
    let files = scaled(setting, 50_000, 100_000);
    let devices_count = devices.len();
    // A tenth of the files' data: the thread's 13 rows of 800,000 files were 42 GB compared with
    // 4 GB.
    let memory = threads * files * 4096 / 10;
    let config = config(setting, mode, memory, devices);
    let plans: Vec<Plan> = (0..threads as usize)
        .map(|index| Plan {
            device: index % devices_count,
            work: Work::Files(files, CREATE),
            ..Plan::copy()
        })
        .collect();
    let mut machine = machine(&config, &plans)?;
    let end = 3600 * SECOND;
    let made = machine.run_to_end(end).unwrap_or(end) as f64 / SECOND as f64;
    let summary = machine.summary();
    let requests = summary.requests * machine.now() as f64 / SECOND as f64;
    let cpu = (summary.writer_cpu + summary.flusher_cpu) * machine.now() as f64 / SECOND as f64;
    Ok(json!({
        "files": round((threads * files) as f64 / made, 1),
        "elapsed": round(made, 3),
        "requests": round(requests, 0),
        "cpu": round(cpu, 3),
        "flusher_cpu": round(summary.flusher_cpu, 4),
        "handovers": round(summary.handovers, 1),
        "busy": round(summary.busy, 4),
        "wakes": round(summary.wakes, 1),
        "dirty_p50_of_limit": round(summary.dirty_p50 as f64 / machine.limits().0 as f64, 4),
        "pause_max_ms": round(summary.pause_max_ms, 2),
    }))
}
