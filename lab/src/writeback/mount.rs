//! Writers on our mount compared with the same on the kernel's ext4, on the same device, in
//! turns.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::machine::round;
use super::real::dd::Writers;
use super::real::disk::Disk;
use super::real::events::{Event, Tracing};
use super::real::figures::{Figures, Span, quantile_of};
use super::real::probes::{self, Measured, Probes};
use super::real::served::Served;
use super::trial::accepts;
use crate::experiment::{Experiment, Failure, Measure, Parameter, Scale, Setting};
use crate::kernel::settings::DirtyBytes;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "writeback-mount",
    accepts,
    parameters: &[
        Parameter {
            name: "limit",
            what: "MiB of dirty memory above which writers wait; flushers write above half of it",
            values: &["100", "400"],
        },
        Parameter {
            name: "writers",
            what: "so many dd alone, once, at 50 MB/s",
            values: &["all", "1", "10", "100", "1000"],
        },
    ],
    has_subjects: false,
    measure: Measure::Timed,
    run,
};

/// The kernel's name among the policies.
const KERNEL: &str = "kernel";
/// Seconds from the first writer's start that are not counted.
const SKIPPED: f64 = 0.5;

/// One set of writers on one device.
#[derive(Clone, Copy, Debug)]
struct Trial {
    writers: usize,
    /// Bytes a second that the device writes.
    rate: u64,
    /// Bytes of dirty memory above which writers wait.
    limit: u64,
    seconds: f64,
    rounds: u64,
    seed: u64,
}

fn trials(setting: &Setting) -> Vec<Trial> {
    let limit = setting.value("limit").parse().unwrap_or(100_u64) << 20;
    let trial = |mb: u64, writers: usize, seconds: f64, rounds: u64| Trial {
        writers,
        rate: mb * 1_000_000,
        limit,
        seconds,
        rounds,
        seed: setting.seed,
    };
    let at_rate = |mb: u64| {
        [
            trial(mb, 1, 10.0, 10),
            trial(mb, 10, 10.0, 10),
            trial(mb, 100, 15.0, 3),
            trial(mb, 1000, 40.0, 3),
        ]
    };
    if let Ok(writers) = setting.value("writers").parse() {
        return vec![trial(50, writers, 10.0, 1)];
    }
    match setting.scale {
        Scale::Quick => vec![trial(50, 10, 4.0, 3), trial(50, 100, 10.0, 1)],
        Scale::Full => [50, 120].into_iter().flat_map(at_rate).collect(),
    }
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let mut subjects = vec![KERNEL];
    subjects.extend(setting.policies.iter().map(String::as_str));
    let mut all = Map::new();
    for trial in trials(setting) {
        let rate = (trial.rate / 1_000_000).to_string();
        let at_rate = all.entry(rate).or_insert_with(|| json!({}));
        at_rate[trial.writers.to_string()] = cell(trial, &subjects)?;
    }
    Ok(Value::Object(all))
}

/// All subjects in turns, as many rounds as the trial has.
fn cell(trial: Trial, subjects: &[&str]) -> Result<Value, Failure> {
    let mut runs: Vec<Vec<Value>> = vec![Vec::new(); subjects.len()];
    for round in 0..trial.rounds {
        for (subject, runs) in subjects.iter().zip(&mut runs) {
            let seed = trial.seed.wrapping_add(round);
            let run = once(Trial { seed, ..trial }, subject);
            runs.push(run.map_err(Failure::NotRun)?);
        }
    }
    let gathered = subjects.iter().zip(&runs);
    Ok(gathered
        .map(|(subject, runs)| ((*subject).to_owned(), gather(runs)))
        .collect::<Map<_, _>>()
        .into())
}

/// Each number of the runs becomes its samples and their median; series are those of the first run.
fn gather(runs: &[Value]) -> Value {
    let mut all = Map::new();
    for (name, first) in runs
        .first()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let samples: Vec<f64> = runs.iter().filter_map(|run| run[name].as_f64()).collect();
        let gathered = match first.is_array() {
            true => first.clone(),
            false => json!({
                "median": quantile_of(&samples, 0.5),
                "most": samples.iter().copied().reduce(f64::max),
                "samples": samples,
            }),
        };
        all.insert(name.clone(), gathered);
    }
    Value::Object(all)
}

/// The moments of a run.
struct Moments {
    start: Instant,
    counted: Instant,
    end: Instant,
}

/// One run: the writers and what is done at the same time.
fn once(trial: Trial, subject: &str) -> Result<Value, String> {
    let place = TempDir::new().map_err(|error| error.to_string())?;
    let content = place.path().join("content");
    probes::prepare(&content).map_err(|error| error.to_string())?;
    let room = trial.rate * (trial.seconds as u64 + 1) + trial.writers as u64 * (2 << 20);
    let disk = Disk::new(room, Some(&content))?;
    let _limits = DirtyBytes::new(trial.limit, trial.limit / 2)?;
    if subject == KERNEL {
        disk.mount()?;
        let tracing = Tracing::new()?;
        let disk = disk.hold(trial.rate)?;
        let device = disk.numbers()?;
        tracing.mark("start")?;
        let run = Run::new(trial, disk, None)?;
        let events = tracing.end()?;
        let start = events.iter().find(|event| event.is_mark("start"));
        let start = start.ok_or("the trace's buffer was too small")?.at;
        return Ok(run.json(&events, start, Some(&device), trial));
    }
    let served = Served::new(&disk, subject, trial.limit, &place.path().join("trace"))?;
    let disk = disk.hold(trial.rate)?;
    let socket = served.socket()?;
    let start = served.began.elapsed().as_secs_f64();
    let run = Run::new(trial, disk, Some(socket))?;
    let events = served.end()?;
    Ok(run.json(&events, start, None, trial))
}

/// What was measured while the writers ran.
struct Run {
    moments: Moments,
    killed: Duration,
    written: u64,
    shares: Vec<u64>,
    measured: Measured,
    /// Unmounted last.
    _disk: Disk,
}

impl Run {
    fn new(
        trial: Trial,
        mut disk: Disk,
        socket: Option<std::path::PathBuf>,
    ) -> Result<Self, String> {
        let start = Instant::now();
        let probes = Probes::start(disk.dir(), trial.seed, &disk.numbers()?, socket);
        let mut writers = Writers::start(trial.writers, disk.dir(), |id| disk.enter(id))?;
        thread::sleep(Duration::from_secs_f64(SKIPPED).saturating_sub(start.elapsed()));
        let counted = Instant::now();
        let (sizes, written) = (writers.sizes(), disk.written()?);
        let end = Duration::from_secs_f64(trial.seconds);
        thread::sleep(end.saturating_sub(start.elapsed()));
        let end = Instant::now();
        let written = disk.written()? - written;
        let last = writers.sizes();
        let ended = writers.ended();
        probes.stop();
        let killed = writers.kill();
        disk.release();
        if ended > 0 {
            return Err(format!(
                "{ended} of {} dd ended by themselves",
                trial.writers
            ));
        }
        let pairs = last.iter().zip(&sizes);
        Ok(Self {
            moments: Moments {
                start,
                counted,
                end,
            },
            killed,
            written,
            shares: pairs
                .map(|(last, first)| last.saturating_sub(*first))
                .collect(),
            measured: probes.end(counted, end)?,
            _disk: disk,
        })
    }

    /// For the record; `start` is the first writer's in the trace's clock.
    fn json(&self, events: &[Event], start: f64, device: Option<&str>, trial: Trial) -> Value {
        let after = |moment: Instant| (moment - self.moments.start).as_secs_f64();
        let span = Span {
            start,
            counted: start + after(self.moments.counted),
            end: start + after(self.moments.end),
        };
        let mut figures = Figures::of_events(events, span, device);
        figures.written = self.written as f64;
        figures.shares.clone_from(&self.shares);
        let mut json = figures.json();
        json["killed_s"] = json!(round(self.killed.as_secs_f64(), 4));
        let measured = &self.measured;
        for (name, samples) in [
            ("read", &measured.reads),
            ("small", &measured.creates),
            ("fsync", &measured.fsyncs),
        ] {
            let at = |part| quantile_of(samples, part).map(|ms| round(ms, 3));
            json[format!("{name}_p50_ms")] = json!(at(0.5));
            json[format!("{name}_p99_ms")] = json!(at(0.99));
            json[format!("{name}_max_ms")] = json!(at(1.0));
            json[format!("{name}_count")] = json!(samples.len());
        }
        let most = |of: fn(&probes::Dirty) -> u64| measured.dirty.iter().map(of).max().unwrap_or(0);
        let both = most(|dirty| dirty.kernel + dirty.ours);
        json["kernel_dirty_max"] = json!(most(|dirty| dirty.kernel));
        json["our_dirty_max"] = json!(most(|dirty| dirty.ours));
        json["both_dirty_max"] = json!(both);
        json["both_of_limit"] = json!(round(both as f64 / trial.limit as f64, 4));
        json
    }
}
