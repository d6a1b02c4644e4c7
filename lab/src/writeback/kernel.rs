//! The model's `mainline` compared with the kernel that runs here: the same writers, the same
//! device.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use uext4_lab_policies::writeback::Mode;
use uext4_writeback::throttle::{PAGE_SIZE, Tunables};

use super::machine::{Config, Model, Plan, SECOND, round};
use super::real::dd::Writers;
use super::real::disk::Disk;
use super::real::events::{Event, Tracing};
use super::real::figures::{Figures, PAGE, Span};
use super::trial::{FOLIO, TICKS, accepts, machine, scaled, ticks, writers};
use crate::experiment::{Experiment, Failure, Measure, Parameter, Scale, Setting};
use crate::kernel::settings::DirtyBytes;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-kernel",
    accepts,
    parameters: &[LIMIT, TICKS, FOLIO],
    has_subjects: false,
    measure: Measure::Timed,
    run,
};

const LIMIT: Parameter = Parameter {
    name: "limit",
    what: "MiB of dirty memory above which writers wait; flushers write above half of it",
    values: &["100", "400"],
};

/// Figures of which the model's are divided by the kernel's.
const COMPARED: [&str; 7] = [
    "throughput",
    "wakes",
    "pause_mean_ms",
    "pause_p50_ms",
    "pause_p95_ms",
    "dirty_of_limit",
    "dirty_max_of_limit",
];

/// What others may have dirty, over the limit, and how often a run that they disturbed is repeated.
const OTHERS_MAX: f64 = 0.05;
const ATTEMPTS: usize = 3;

/// One set of writers on one device.
#[derive(Clone, Copy, Debug)]
struct Trial {
    writers: usize,
    /// Bytes a second that the device writes.
    rate: u64,
    /// Bytes of dirty memory above which writers wait.
    limit: u64,
    /// Of the run; the second half counts.
    seconds: u64,
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let limit = setting.value(LIMIT.name).parse().unwrap_or(100_u64) << 20;
    let (rates, counts): (&[u64], &[usize]) = match setting.scale {
        Scale::Quick => (&[50], &[1, 10, 100]),
        Scale::Full => (&[50, 120], &[1, 10, 100, 1000]),
    };
    let mut all = Map::new();
    for rate in rates {
        let mut by_count = Map::new();
        for count in counts {
            let trial = Trial {
                writers: *count,
                rate: rate * 1_000_000,
                limit,
                seconds: scaled(setting, 6, 30),
            };
            by_count.insert(count.to_string(), cell(setting, trial)?);
        }
        all.insert(rate.to_string(), Value::Object(by_count));
    }
    Ok(Value::Object(all))
}

/// Kernel and models; what this machine cannot measure says why.
fn cell(setting: &Setting, trial: Trial) -> Result<Value, Failure> {
    let mut cell = Map::new();
    let kernel = kernel(trial).unwrap_or_else(|why| json!({ "not_run": why }));
    let starting = kernel["starting_s"].as_f64().unwrap_or(0.0);
    for policy in &setting.policies {
        let mode = policy.parse::<Mode>();
        let mode = mode.map_err(|error| Failure::Usage(error.to_string()))?;
        let figures = model(setting, trial, mode, starting)?;
        let ratio = |name: &&str| {
            let ratio = figures[*name].as_f64()? / kernel[*name].as_f64()?;
            Some(((*name).to_owned(), json!(round(ratio, 4))))
        };
        let ratios: Map<_, _> = COMPARED.iter().filter_map(ratio).collect();
        cell.insert(format!("{policy}_over_kernel"), Value::Object(ratios));
        cell.insert(policy.clone(), figures);
    }
    cell.insert("kernel".to_owned(), kernel);
    Ok(Value::Object(cell))
}

fn kernel_once(trial: Trial) -> Result<Value, String> {
    let disk = Disk::new(trial.rate * trial.seconds, None)?;
    disk.mount()?;
    let disk = disk.hold(trial.rate)?;
    let device = disk.numbers()?;
    let _limits = DirtyBytes::new(trial.limit, trial.limit / 2)?;
    let tracing = Tracing::new()?;
    tracing.mark("start")?;
    let began = Instant::now();
    let mut writers = Writers::start(trial.writers, disk.dir(), |id| disk.enter(id))?;
    let starting = began.elapsed();
    let half = Duration::from_secs(trial.seconds) / 2;
    thread::sleep(half.saturating_sub(began.elapsed()));
    tracing.mark("counted")?;
    let (sizes, written) = (writers.sizes(), disk.written()?);
    thread::sleep((half * 2).saturating_sub(began.elapsed()));
    let (last_sizes, last_written) = (writers.sizes(), disk.written()?);
    tracing.mark("end")?;
    let ended = writers.ended();
    writers.kill();
    let events = tracing.end()?;
    if ended > 0 {
        return Err(format!(
            "{ended} of {} dd ended by themselves",
            trial.writers
        ));
    }
    let mark = |text: &str| {
        let found = events.iter().find(|event| event.is_mark(text));
        found.map(|event| event.at)
    };
    let (Some(start), Some(counted), Some(end)) = (mark("start"), mark("counted"), mark("end"))
    else {
        return Err("the trace's buffer was too small".to_owned());
    };
    let span = Span {
        start,
        counted,
        end,
    };
    let mut figures = Figures::of_events(&events, span, Some(&device));
    figures.written = (last_written - written) as f64;
    let pairs = last_sizes.iter().zip(&sizes);
    figures.shares = pairs
        .map(|(last, first)| last.saturating_sub(*first))
        .collect();
    let mut json = figures.json();
    json["starting_s"] = json!(round(starting.as_secs_f64(), 4));
    json["others_of_limit"] = json!(elsewhere(&events, &figures));
    Ok(json)
}

/// What was dirty on average for other devices of this machine, over the limit.
fn elsewhere(events: &[Event], figures: &Figures) -> f64 {
    let pages: Vec<f64> = events.iter().filter_map(Event::dirty_elsewhere).collect();
    let sum: f64 = pages.iter().sum();
    round(sum / pages.len().max(1) as f64 * PAGE / figures.limit, 4)
}

/// The kernel's figures. Where other programs of this machine wrote meanwhile, which the kernel's
/// limits count too, the run is repeated, and the one that they disturbed least counts.
fn kernel(trial: Trial) -> Result<Value, String> {
    let mut best: Option<Value> = None;
    for _ in 0..ATTEMPTS {
        let next = kernel_once(trial)?;
        let others = |run: &Value| run["others_of_limit"].as_f64().unwrap_or(f64::MAX);
        if best
            .as_ref()
            .is_none_or(|best| others(&next) < others(best))
        {
            best = Some(next);
        }
        if best.as_ref().is_some_and(|best| others(best) <= OTHERS_MAX) {
            break;
        }
    }
    best.ok_or_else(|| "no attempt".to_owned())
}

/// The model's writers begin one after the other within `starting` seconds, as the processes did.
fn model(setting: &Setting, trial: Trial, mode: Mode, starting: f64) -> Result<Value, Failure> {
    let device = Model {
        bandwidth: trial.rate,
        seek: 0,
        // 1280 KiB, the largest request of a loop device.
        request_pages: 320,
        // The throttle of the block layer queues without a bound.
        queue: 1 << 20,
        ..Model::disk()
    };
    let config = Config {
        seed: setting.seed,
        mode,
        hz: ticks(setting, mode),
        folio: setting.value(FOLIO.name).parse().unwrap_or(256),
        tunables: Tunables {
            dirty_bytes: trial.limit,
            dirty_background_bytes: trial.limit / 2,
            ..Tunables::default()
        },
        dirtyable: 16 << 30,
        cpus: thread::available_parallelism().map_or(2, usize::from),
        devices: vec![device],
    };
    let mut plans = writers(setting, trial.writers, &Plan::copy());
    for (index, plan) in plans.iter_mut().enumerate() {
        let part = index as f64 / trial.writers as f64;
        // OK to cast: at most the seconds of a run, in nanoseconds.
        plan.start += (starting * part * SECOND as f64) as u64;
    }
    let mut machine = machine(&config, &plans)?;
    machine.run_until(trial.seconds * SECOND / 2);
    let mut samples = machine.tally.samples().to_vec();
    let most = machine.summary().dirty_max;
    let skipped = samples.len();
    machine.mark();
    machine.run_until(trial.seconds * SECOND);
    samples.extend(machine.tally.samples());
    let most = most.max(machine.summary().dirty_max) as f64 * PAGE;
    let (limit, setpoint) = machine.limits();
    let pauses = machine.tally.pauses().iter().enumerate();
    let pauses = pauses.flat_map(|(ms, count)| (0..*count).map(move |_| ms as f64));
    let figures = Figures {
        pauses: pauses.collect(),
        dirty: samples.iter().map(|pages| *pages as f64 * PAGE).collect(),
        skipped,
        limit: limit as f64 * PAGE,
        setpoint: setpoint as f64 * PAGE,
        seconds: trial.seconds as f64 / 2.0,
        written: (machine.written(0) * PAGE_SIZE) as f64,
        shares: machine.tally.shares().to_vec(),
    };
    let mut json = figures.json();
    // Between two samples it may have been more.
    json["dirty_max"] = json!(most);
    json["dirty_max_of_limit"] = json!(round(most / figures.limit, 4));
    Ok(json)
}
