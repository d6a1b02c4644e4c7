//! Runs claims one after another, with progress, and records each as soon as it is done.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::claim::Claim;
use crate::experiment::{Experiment, Failure, Setting, Wish};
use crate::record::{Folder, Record};
use crate::{machine, noise, registry};

/// A claim, how it is tried, and with what.
pub struct Job {
    /// The claim.
    pub claim: &'static Claim,
    /// How it is tried.
    pub experiment: &'static Experiment,
    /// With what.
    pub setting: Setting,
}

/// The jobs of these claims: every word is looked at before anything runs.
///
/// # Errors
/// [`Failure::Usage`] for what no experiment knows.
pub fn jobs(claims: &[&'static Claim], wish: &Wish) -> Result<Vec<Job>, Failure> {
    let job = |claim: &&'static Claim| {
        let claim = *claim;
        let experiment = registry::experiment(claim)?;
        Ok(Job {
            claim,
            experiment,
            setting: Setting::new(claim, experiment, wish)?,
        })
    };
    claims.iter().map(job).collect()
}

/// Runs all jobs; `each` is given every record as soon as it is there.
///
/// What `folder` has already is left and not run again; what is run is written there before
/// `each` sees it, whole or not at all, so that a session may be interrupted at any moment and
/// goes on where it was. A claim that cannot be run on this machine has a record that says why.
///
/// # Errors
/// [`Failure::Run`] if the folder holds a record of another setting, cannot be written, or, at the
/// end, if a claim could not be run to its end.
pub fn run(
    jobs: &[Job],
    folder: Option<&Folder>,
    mut each: impl FnMut(&Job, &Record) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if let Some(folder) = folder
        && folder.json(machine::FILE)?.is_none()
    {
        eprintln!("uext4-lab: measuring the noise of this machine");
        folder.write(machine::FILE, &machine::page(&noise::measure()?))?;
    }
    let commit = machine::commit();
    let mut progress = Progress::new(jobs);
    let mut failed = Vec::new();
    for job in jobs {
        let empty = Record::new(job.claim, job.experiment, &job.setting);
        if let Some(kept) = kept(folder, &empty)? {
            progress.done(job, "kept");
            each(job, &kept)?;
            continue;
        }
        progress.begin(job);
        let Ran { record, has_failed } = run_one(job, &commit);
        if has_failed {
            failed.push(job.claim.name.as_str());
        }
        // A failure is not stored: the next session runs it again.
        if let Some(folder) = folder
            && !has_failed
        {
            folder.write(&format!("{}.json", job.claim.name), &json!(record))?;
        }
        progress.done(job, "done");
        each(job, &record)?;
    }
    ended(&failed)
}

/// What a run gave.
struct Ran {
    record: Record,
    has_failed: bool,
}

/// Runs a job, whatever comes of it. A failure is printed.
fn run_one(job: &Job, commit: &str) -> Ran {
    let mut record = Record::new(job.claim, job.experiment, &job.setting);
    let mut has_failed = false;
    let begin = Instant::now();
    match try_out(job) {
        Ok(results) => record.results = Some(results),
        Err(Failure::NotRun(why)) => record.not_run = Some(why),
        Err(failure) => {
            eprintln!("uext4-lab: {}: {failure}", job.claim.name);
            has_failed = true;
            record.not_run = Some(format!("failed: {failure}"));
        }
    }
    record.seconds = (begin.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    record.commit = commit.to_owned();
    Ran { record, has_failed }
}

/// Runs jobs whose figures no other work changes, as many at once as there are processors. `each`
/// is given the records in the order of the jobs.
///
/// # Errors
/// [`Failure::Run`], at the end, if a claim could not be run to its end; what `each` fails with.
pub fn run_at_once(
    jobs: &[Job],
    mut each: impl FnMut(&Job, &Record) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let (done, ran) = mpsc::channel();
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let mut failed = Vec::new();
    thread::scope(|scope| {
        for _ in 0..processors {
            let (done, next) = (done.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    // Nothing is received any more after an error.
                    if done.send((index, run_one(job, ""))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let mut waiting = BTreeMap::new();
        let mut reported = 0;
        for (index, one) in ran {
            waiting.insert(index, one);
            while let Some(one) = waiting.remove(&reported) {
                if one.has_failed {
                    failed.push(jobs[reported].claim.name.as_str());
                }
                each(&jobs[reported], &one.record)?;
                reported += 1;
            }
        }
        Ok(())
    })?;
    ended(&failed)
}

fn ended(failed: &[&str]) -> Result<(), Failure> {
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(format!("failed: {}", failed.join(", ")))),
    }
}

/// Runs the experiment, if it is one for the subjects that were named.
fn try_out(job: &Job) -> Result<Value, Failure> {
    if !job.setting.on.is_empty() && !job.experiment.has_subjects {
        let why = "it runs on models alone, so that --on has nothing to choose";
        return Err(Failure::NotRun(why.to_owned()));
    }
    (job.experiment.run)(&job.setting)
}

/// The record that is there already.
fn kept(folder: Option<&Folder>, wanted: &Record) -> Result<Option<Record>, Failure> {
    let Some(folder) = folder else {
        return Ok(None);
    };
    match folder.record(&wanted.claim)? {
        Some(found) if found.is_same_setting(wanted) => Ok(Some(found)),
        Some(_) => Err(Failure::Run(format!(
            "{}: has a record of {} with another setting; records are never changed: take another \
             folder",
            folder.path().display(),
            wanted.claim
        ))),
        None => Ok(None),
    }
}

/// What is done and how long the rest will take, on standard error.
struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    /// Of the claims' estimates: all, and what is done.
    expected: f64,
    done: f64,
}

impl Progress {
    fn new(jobs: &[Job]) -> Self {
        let bar = (std::io::stderr().is_terminal() && jobs.len() > 1).then(|| {
            let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg}");
            let bar = ProgressBar::new(jobs.len() as u64);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            bar,
            started: Instant::now(),
            expected: jobs.iter().map(|job| estimate(job.claim)).sum(),
            done: 0.0,
        }
    }

    fn begin(&self, job: &Job) {
        let Some(bar) = &self.bar else { return };
        // How fast this machine is shows in what it has done.
        let pace = match self.done > 0.0 {
            true => self.started.elapsed().as_secs_f64() / self.done,
            false => 1.0,
        };
        let left = (self.expected - self.done) * pace;
        bar.set_message(format!("{}, about {left:.0} s left", job.claim.name));
        bar.tick();
    }

    fn done(&mut self, job: &Job, how: &str) {
        match how {
            "kept" => self.expected -= estimate(job.claim),
            _ => self.done += estimate(job.claim),
        }
        if let Some(bar) = &self.bar {
            bar.suspend(|| eprintln!("{how} {}", job.claim.name));
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Seconds of a quick run, at least one.
fn estimate(claim: &Claim) -> f64 {
    claim.seconds.max(1.0)
}
