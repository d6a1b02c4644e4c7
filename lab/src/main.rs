//! The lab: the experiments behind the subsystems' policies.
//!
//! Each claim (a mailing-list thread's, a paper's, or our own) is one file of `lab/claims`. Four
//! things are separated:
//!
//! | | file | holds |
//! |---|---|---|
//! | claim | [`claim`], read from `lab/claims` | the figures as printed, the policies, the gates |
//! | experiment | [`experiment`], one file under its subsystem | how it is tried |
//! | record | [`record`] | what a run produced |
//! | report | [`report`] | how claim, record and verdict are shown |
//!
//! Counted experiments are seeded and run on a virtual clock: the same seed gives the same record,
//! byte for byte. Timed ones interleave the policies and are judged by [`ministat`]'s rule and by
//! the machine's own [`noise`].
//!
//! Gates are bounds on figures of the record. They are never fitted to what a run gave: a miss
//! stays a miss, with its figure. Exit status: 0, 1 if a gate is contrary or a run fails, 2 for a
//! command line that asks for what there is not.

mod args;
mod bh_lru;
mod claim;
mod compare;
mod experiment;
mod extent_status;
mod judge;
mod kernel;
mod machine;
mod mballoc;
mod mbcache;
mod ministat;
mod mount;
mod noise;
mod record;
mod registry;
mod report;
mod session;
mod subject;
mod threads;
mod view;
mod writeback;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;

use crate::args::{Cli, Command, Run};
use crate::claim::{Claim, Gate};
use crate::experiment::{Failure, Measure, Wish};
use crate::judge::{Outcome, Verdict};
use crate::record::{Folder, Record};
use crate::report::text::{self, Tally};
use crate::report::{page, verdicts};
use crate::session::Job;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version come this way, too. If the output is closed, there is nothing to do.
            let _ = answer.print();
            return ExitCode::from(if answer.use_stderr() { 2 } else { 0 });
        }
    };
    let done = match &cli.command {
        Command::List { json } => list(*json),
        Command::Run(run) => run_claims(run),
        Command::Compare {
            before,
            after,
            json,
        } => compare(before, after, *json),
        Command::Report(report) => write_report(report),
        Command::Verdicts { folder } => verdicts(folder),
        Command::Mount(mount) => match mount::run(mount) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Noise { json } => measure_noise(*json),
        Command::Gate { claims, counted } => gate(claims, *counted),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("uext4-lab: {failure}");
            ExitCode::from(match failure {
                Failure::Usage(_) => 2,
                Failure::Run(_) | Failure::NotRun(_) => 1,
            })
        }
    }
}

fn list(is_json: bool) -> Result<bool, Failure> {
    let claims = registry::claims()?;
    match is_json {
        true => say(&format!("{}\n", text::list_json(claims)))?,
        false => say(&format!(
            "{}\n{}\n",
            text::list(claims),
            threads::summary()?
        ))?,
    }
    Ok(true)
}

/// Runs claims and prints them; false if a gate fails whose policies were all run.
fn run_claims(run: &Run) -> Result<bool, Failure> {
    let mut claims = match run.claims.is_empty() && !run.all {
        true => Vec::new(),
        false => registry::named(&run.claims)?,
    };
    for file in &run.files {
        claims.push(registry::of_file(file)?);
    }
    let jobs = session::jobs(&claims, &run.wish())?;
    let folder = match (&run.into, run.all) {
        (Some(path), _) => Some(Folder::create(path)?),
        (None, true) if !run.json => Some(Folder::create(&default_folder())?),
        (None, _) => None,
    };
    let noise = noise_floor(folder.as_ref())?;
    let mut all_pass = true;
    session::run(&jobs, folder.as_ref(), |job, record| {
        if run.json {
            return say(&format!("{}\n", record.to_json()));
        }
        if !run.all {
            say(&text::definition(job.claim, job.experiment))?;
            say(&text::results(record))?;
        }
        for gate in &job.claim.gates {
            let verdict = verdict(gate, record.results.as_ref(), noise);
            // Policies that were not run have no figures: not a failure where they were chosen.
            let is_chosen = verdict.outcome == Outcome::NoFigure && !run.policies.is_empty();
            if !is_chosen {
                all_pass &= verdict.passes(gate);
                say(&format!("{}\n", text::verdict(job.claim, gate, verdict)))?;
            }
        }
        Ok(())
    })?;
    if let Some(folder) = &folder {
        eprintln!("uext4-lab: recorded as {}", folder.name());
    }
    Ok(all_pass)
}

/// One line a gate, then the counts; false if any fails. If no claim is named, all but the live
/// ones.
fn gate(claims: &[String], only_counted: bool) -> Result<bool, Failure> {
    let mut wanted = registry::named(claims)?;
    wanted.retain(|claim| !claim.gates.is_empty() && (!claims.is_empty() || !claim.is_live));
    let is = |claim: &'static Claim, measure| {
        registry::experiment(claim).is_ok_and(|experiment| experiment.measure == measure)
    };
    wanted.retain(|claim| !only_counted || !is(claim, Measure::Timed));
    let (counted, others): (Vec<_>, Vec<_>) = wanted
        .into_iter()
        .partition(|claim| is(claim, Measure::Counted));
    let (counted, others) = (
        session::jobs(&counted, &Wish::quick())?,
        session::jobs(&others, &Wish::quick())?,
    );
    let mut tally = Tally::default();
    let mut all_pass = true;
    let noise = noise_floor(None)?;
    let mut each = |job: &Job, record: &Record| {
        for gate in &job.claim.gates {
            let verdict = verdict(gate, record.results.as_ref(), noise);
            all_pass &= verdict.passes(gate);
            tally.count(gate, verdict);
            say(&format!("{}\n", text::verdict(job.claim, gate, verdict)))?;
        }
        Ok(())
    };
    let first = session::run_at_once(&counted, &mut each);
    // Timed experiments have the machine to themselves, but for work that is not the lab's. That is
    // part of their figures: only a claim that falls short twice is contrary.
    let mut again = Vec::new();
    let ended = first.and(session::run(&others, None, |job, record| {
        let results = record.results.as_ref();
        let mut gates = job.claim.gates.iter();
        if gates.all(|gate| verdict(gate, results, noise).passes(gate)) {
            return each(job, record);
        }
        again.push(job.claim.name.clone());
        Ok(())
    }));
    let mut others = others;
    others.retain(|job| again.contains(&job.claim.name));
    let ended = ended.and_then(|()| session::run(&others, None, &mut each));
    say(&format!("{}\n", tally.text()))?;
    ended?;
    Ok(all_pass)
}

/// What became of a gate; without results, nothing.
fn verdict(gate: &Gate, results: Option<&serde_json::Value>, noise: f64) -> Verdict {
    match results {
        Some(results) => judge::judge(gate, results, noise),
        None => Verdict {
            figure: None,
            outcome: Outcome::NotRun,
        },
    }
}

/// What a difference must exceed: as the folder's machine was measured, or as it is assumed.
fn noise_floor(folder: Option<&Folder>) -> Result<f64, Failure> {
    folder.map_or(Ok(machine::NOISE_IF_UNKNOWN), machine::noise_floor)
}

/// Where a session of all claims records, if nothing else is said.
fn default_folder() -> std::path::PathBuf {
    Path::new("target").join("lab").join(machine::folder_name())
}

fn compare(before: &Path, after: &Path, is_json: bool) -> Result<bool, Failure> {
    let all = compare::compare(before, after, registry::claims()?)?;
    match is_json {
        true => say(&format!("{}\n", compare::to_json(&all)))?,
        false => say(&compare::text(&all))?,
    }
    Ok(true)
}

/// Writes the page; `--open` shows it in the user's browser.
fn write_report(report: &args::Report) -> Result<bool, Failure> {
    let folder = match &report.folder {
        Some(folder) => Folder::open(folder)?,
        None => Folder::newest(Path::new("lab/records"))?,
    };
    let page = page::page(&page::Source {
        claims: registry::claims()?,
        folder: &folder,
    })?;
    let failed = |error: io::Error| Failure::Run(format!("{}: {error}", report.out.display()));
    if let Some(parent) = report.out.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::write(&report.out, page).map_err(failed)?;
    say(&format!("{}\n", report.out.display()))?;
    if report.open {
        let opened = std::process::Command::new("xdg-open")
            .arg(&report.out)
            .status();
        opened.map_err(|error| Failure::Run(format!("xdg-open: {error}")))?;
    }
    Ok(true)
}

fn verdicts(folder: &Path) -> Result<bool, Failure> {
    let folder = Folder::open(folder)?;
    let all = verdicts::judge_all(registry::claims()?, &folder)?;
    say(&verdicts::markdown(&all, &folder))?;
    Ok(true)
}

/// The machine's noise; false if the lab's rule calls a part of it a difference.
fn measure_noise(is_json: bool) -> Result<bool, Failure> {
    let (noise, believed) = noise::check()?;
    match is_json {
        true => say(&format!("{}\n", json!({"noise": noise, "false": believed})))?,
        false => say(&format!(
            "a wake-up takes {:.1} us; two sets of the same binary differ by up to {:.2} %\n\
             of 20 pairs of the same binary, {} differ by ministat's rule alone\n\
             of 20 more, {believed} differ by the lab's rule (more than {:.2} %, too)\n",
            noise.wake_up_us,
            noise.differences.iter().copied().fold(0.0, f64::max) * 100.0,
            noise.false_by_ministat,
            noise.floor * 100.0,
        ))?,
    }
    Ok(believed == 0)
}

/// Prints; if the reader has closed our output, there is no more to do.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|error| Failure::Run(format!("standard output: {error}"))),
    }
}
