//! `doctor`: what this machine offers for mounts, what it lacks, and the remedy.
//!
//! Each check reads one thing of the system in `checks`, and decides in a function of its own that
//! tests call with other answers. Nothing is changed, but that an empty file system is mounted for
//! a moment where this user can mount.

mod checks;
mod leftovers;
mod round_trip;
mod wakeup;

use std::io::{Write, stdout};

use clap::Args;

use super::Output;
use crate::failure::{Exit, Failure};
use crate::folded;
use crate::json::Json;

/// Show what this machine offers for mounts, and what is missing
///
/// Each line is one check: `ok`, `note` (mounts work, but slower or with less protection) or
/// `missing` (this user cannot mount). A remedy follows where there is one. Nothing is changed; to
/// see what a request costs, an empty file system is mounted for a moment.
/// Commands that do not mount need none of it. Exit code 0: this user can mount; 1: not.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 doctor
  uext4 doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .remedy'")]
pub struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// As it should be.
    Ok,
    /// Mounts work, but slower or with less protection.
    Note,
    /// This user cannot mount.
    Missing,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Missing => "missing",
        }
    }
}

/// What a check found.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// The thing that was looked at.
    subject: &'static str,
    state: State,
    /// What was found.
    text: String,
    /// What to do about it.
    remedy: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            subject,
            state: State::Ok,
            text: text.into(),
            remedy: None,
        }
    }

    fn note(subject: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: State::Note,
            remedy: Some(remedy.into()),
            ..Self::ok(subject, text)
        }
    }

    fn missing(subject: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: State::Missing,
            remedy: Some(remedy.into()),
            ..Self::ok(subject, text)
        }
    }
}

/// Runs all checks and prints what they found.
pub fn run(args: &DoctorArgs, out: &mut Output) -> Result<Exit, Failure> {
    let mut findings = checks::all();
    findings.push(wakeup::check());
    if findings.iter().all(|found| found.state != State::Missing) {
        findings.push(round_trip::check());
    }
    findings.extend(leftovers::check());
    let can_mount = findings.iter().all(|found| found.state != State::Missing);
    if args.json {
        out.write_all(as_json(&findings, can_mount).as_bytes())?;
    } else {
        print(&findings, can_mount, out)?;
    }
    Ok(match can_mount {
        true => Exit::Success,
        false => Exit::Incomplete,
    })
}

fn print(findings: &[Finding], can_mount: bool, out: &mut Output) -> Result<(), Failure> {
    for found in findings {
        let word = found.state.word();
        let mut text = format!("{word:<8} {:<14} {}\n", found.subject, found.text);
        if let Some(remedy) = &found.remedy {
            text += &format!("{:24}-> {remedy}\n", "");
        }
        out.write_all(folded::for_terminal(&text, &stdout()).as_bytes())?;
    }
    let verdict = match can_mount {
        true => "This user can mount images on this machine.",
        false => "This user cannot mount images here yet; all other commands work.",
    };
    writeln!(out, "\n{verdict}")?;
    Ok(())
}

fn as_json(findings: &[Finding], can_mount: bool) -> Json {
    let mut json = Json::new();
    json.open_object();
    json.key("can_mount").value(can_mount);
    json.key("checks").open_array();
    for found in findings {
        json.open_object();
        json.key("subject").string(found.subject);
        json.key("state").string(found.state.word());
        json.key("text").string(&found.text);
        if let Some(remedy) = &found.remedy {
            json.key("remedy").string(remedy);
        }
        json.close_object();
    }
    json.close_array();
    json.close_object();
    json.end_line();
    json
}
