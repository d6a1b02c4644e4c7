//! `check`: examines the file system.

use std::io::Write;

use clap::Args;
use uext4_blockdev::Access;
use uext4_fsck::{Error, Finding, Outcome};

use super::Output;
use crate::examination::{self, ExamineArgs, Watching, counted};
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::show::escaped;
use crate::{interrupt, kernel_mount, open};

/// Check structures, checksums, links, bitmaps and counts
///
/// The image is not changed. Each finding is one line; `uext4 help problems` lists all that there
/// can be. Exit code 0 means clean, 4 damaged, 8 that the check could not be done. What the next
/// mount completes after a crash (a journal to be replayed, inodes to be deleted) is a note, not
/// damage.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 check disk.img && echo clean
  uext4 check --json disk.img | jq -r '.issues[].kind' | sort | uniq -c
  uext4 repair --plan disk.img            # what a repair would change")]
pub struct CheckArgs {
    #[command(flatten)]
    examine: ExamineArgs,
    /// Print nothing; only set the exit code
    #[arg(short)]
    quiet: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the findings.
pub fn run(args: &CheckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let device = open::to_examine(&args.examine.image, Access::ReadOnly)?;
    if !args.quiet {
        kernel_mount::warn(&args.examine.image.place.image);
    }
    let mut seen = Vec::new();
    let watching = Watching::new(|finding: &Finding| seen.push(finding.clone()));
    let deferred = interrupt::defer();
    let outcome = uext4_fsck::examine(&device, &args.examine.options(), &watching);
    drop(watching);
    drop(deferred);
    let outcome = match outcome {
        // A remedy had no block to go to: what was found until then is worth knowing.
        Err(error @ Error::NoSpace { .. }) => {
            if !args.quiet && !args.json {
                print_findings(&seen, out)?;
                out.flush()?;
            }
            return Err(args.examine.failure(&error));
        }
        outcome => outcome.map_err(|error| args.examine.failure(&error))?,
    };
    if !args.quiet {
        match args.json {
            true => print_json(&outcome, &seen, out)?,
            false => print_text(&outcome, &seen, out)?,
        }
    }
    Ok(match outcome.is_clean {
        true => Exit::Success,
        false => Exit::Damaged,
    })
}

fn print_findings(findings: &[Finding], out: &mut Output) -> Result<(), Failure> {
    for finding in findings {
        writeln!(out, "{}", escaped(finding.to_string().as_bytes()))?;
    }
    Ok(())
}

fn print_text(outcome: &Outcome, findings: &[Finding], out: &mut Output) -> Result<(), Failure> {
    print_findings(findings, out)?;
    examination::print_hidden(outcome, findings.len(), out)?;
    let summary = &outcome.summary;
    if outcome.is_clean {
        writeln!(
            out,
            "clean: {} inodes, {} directories, {} blocks in use{}",
            summary.inodes,
            summary.directories,
            summary.blocks_used,
            match summary.findings {
                0 => "",
                _ => "; the next mount for writing completes what is noted above",
            }
        )?;
    } else {
        writeln!(
            out,
            "{}; `uext4 repair --plan IMAGE` shows what a repair would do, and what it would lose",
            counted(summary.findings, "finding")
        )?;
    }
    Ok(())
}

fn print_json(outcome: &Outcome, findings: &[Finding], out: &mut Output) -> Result<(), Failure> {
    let mut json = Json::new();
    json.open_object();
    json.key("issues").open_array();
    for finding in findings {
        put_finding(&mut json, finding);
    }
    json.close_array();
    let summary = &outcome.summary;
    json.key("clean").value(outcome.is_clean);
    json.key("issue_count").number(summary.findings);
    json.key("inodes").number(summary.inodes);
    json.key("directories").number(summary.directories);
    json.key("blocks_used").number(summary.blocks_used);
    json.key("orphans").number(summary.orphans);
    json.close_object();
    json.end_line();
    out.write_all(json.as_bytes())?;
    Ok(())
}

/// A finding as a JSON object.
fn put_finding(json: &mut Json, finding: &Finding) {
    let info = finding.problem.info();
    let place = &finding.place;
    json.open_object();
    json.key("kind").string(info.name);
    json.key("structure").string(finding.problem.structure());
    json.key("severity").string(info.severity.name());
    json.key("loses").string(info.loss.name());
    let numbers = [
        ("group", place.group.map(|group| group.0.into())),
        ("inode", place.ino.map(|ino| ino.0.into())),
        ("logical_block", place.lblk.map(|lblk| lblk.0.into())),
        ("block", place.block.map(|block| block.0)),
        ("offset", place.offset.map(u64::from)),
        ("found", finding.found),
        ("right", finding.right),
    ];
    for (key, number) in numbers {
        if let Some(number) = number {
            json.key(key).number(number);
        }
    }
    if let Some(name) = &place.name {
        json.key("name").text(name);
    }
    json.key("text").string(&finding.to_string());
    json.key("remedy").string(&finding.remedy());
    json.close_object();
}
