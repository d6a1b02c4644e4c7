//! The lab: the experiments behind the rooms' policies.
//!
//! Each claim (a mailing-list thread's, a paper's, or our own) is one file under its room. Three
//! things are kept apart:
//!
//! | | file | holds |
//! |---|---|---|
//! | definition | [`claim`], one file a claim under `mballoc/`, `writeback/` | the figures as printed, the policies, the parameters, the gates |
//! | record | [`record`] | what a run produced |
//! | report | [`report`] | how definition, record and verdict are shown |
//!
//! Counted experiments are seeded and run on a virtual clock: the same seed gives the same record,
//! byte for byte. Timed ones interleave the policies and are judged by [`ministat`]'s rule.
//!
//! Gates are bounds on figures of the record. They are never fitted to what a run gave: a miss stays
//! a miss, with its figure. Exit status: 0, 1 if a gate falls short or a run fails, 2 for a command
//! line that asks for what there is not.

mod args;
mod bh_lru;
mod claim;
mod extent_status;
mod judge;
mod mballoc;
mod mbcache;
mod ministat;
mod mount;
mod record;
mod registry;
mod report;
mod writeback;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command, Run};
use crate::claim::{Claim, Failure, Setting};
use crate::record::Record;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => {
            // Also how help and version are told. If nobody listens, there is nothing to do.
            let _ = told.print();
            return ExitCode::from(if told.use_stderr() { 2 } else { 0 });
        }
    };
    let done = match &cli.command {
        Command::List => say(&report::list(&registry::claims())).map(|()| true),
        Command::Run(run) => run_claims(run),
        Command::Mount(mount) => match mount::run(mount) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Gate { claims } => gate(claims),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("uext4-lab: {failure}");
            ExitCode::from(match failure {
                Failure::Usage(_) => 2,
                Failure::Run(_) => 1,
            })
        }
    }
}

/// Runs claims and prints them; false if a gate falls short whose policies were all run.
fn run_claims(run: &Run) -> Result<bool, Failure> {
    let mut all_hold = true;
    for (claim, setting) in settings(run)? {
        let record = run_one(claim, setting)?;
        if run.json {
            say(&format!("{}\n", record.to_json()))?;
            continue;
        }
        say(&report::definition(claim))?;
        say(&report::results(&record))?;
        for gate in claim.gates {
            let verdict = judge::judge(gate, &record.results);
            // Policies that were not run have no figures: not a gate's failure when they were chosen.
            if verdict.figure.is_some() || run.policies.is_empty() {
                all_hold &= verdict.holds;
                say(&format!("{}\n", report::verdict(claim, gate, verdict)))?;
            }
        }
    }
    Ok(all_hold)
}

/// One line a gate, then the count; false if any falls short.
fn gate(claims: &[String]) -> Result<bool, Failure> {
    let (mut holding, mut short) = (0, 0);
    for (claim, setting) in settings(&Run::quick(claims.to_vec()))? {
        if claim.gates.is_empty() {
            continue;
        }
        let results = match run_one(claim, setting) {
            Ok(record) => record.results,
            Err(failure) => {
                // Its gates have no figures then and fall short, the others are still judged.
                eprintln!("uext4-lab: {}: {failure}", claim.name);
                serde_json::Value::Null
            }
        };
        for gate in claim.gates {
            let verdict = judge::judge(gate, &results);
            holding += usize::from(verdict.holds);
            short += usize::from(!verdict.holds);
            say(&format!("{}\n", report::verdict(claim, gate, verdict)))?;
        }
    }
    say(&format!("{}\n", report::tally(holding, short)))?;
    Ok(short == 0)
}

/// The claims to run with their settings: every word of the command line is looked at before anything
/// runs.
fn settings(run: &Run) -> Result<Vec<(&'static Claim, Setting)>, Failure> {
    registry::named(&run.claims)?
        .into_iter()
        .map(|claim| {
            let setting = claim.setting((run.scale(), run.seed), &run.policies, &run.set)?;
            Ok((claim, setting))
        })
        .collect()
}

fn run_one(claim: &Claim, setting: Setting) -> Result<Record, Failure> {
    let results = (claim.run)(&setting)?;
    Ok(Record::new(claim, setting, results))
}

/// Prints; whoever closed our output has seen enough.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|error| Failure::Run(format!("standard output: {error}"))),
    }
}
