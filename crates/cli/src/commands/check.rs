//! `check`: checks the file system.

use std::io::Write;

use clap::Args;
use uext4::check::Issue;

use super::Output;
use crate::args::ImageArgs;
use crate::failure::{Exit, Failure, note};
use crate::json::Json;
use crate::open;
use crate::progress::Checking;
use crate::show::escaped;

/// Check structures, checksums, links, bitmaps and counts
///
/// The image is not changed. Each issue is one line. Exit code 0 means clean, 4 damaged, 8 that
/// the check could not be done. Inodes that wait to be deleted or truncated after a crash are
/// reported as a note, not as damage.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 check disk.img && echo clean
  uext4 check --json disk.img | jq -r '.issues[].kind' | sort | uniq -c")]
pub struct CheckArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Print at most N issues
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    issues: u64,
    /// Print nothing; only set the exit code
    #[arg(short)]
    quiet: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the issues.
pub fn run(args: &CheckArgs, out: &mut Output) -> Result<Exit, Failure> {
    let mut report = Report {
        args,
        out,
        json: Json::new(),
        reported: 0,
        failed: None,
    };
    if args.json {
        report.json.open_object();
        report.json.key("issues").open_array();
    }
    let fs = match open::open(&args.image) {
        Ok(fs) => fs,
        Err(Failure::Message {
            exit: Exit::Damaged,
            what,
            ..
        }) if args.json => {
            report.line("unreadable", &what);
            report.end(None)?;
            return Ok(Exit::Damaged);
        }
        Err(failure) => return Err(failure),
    };
    let mut checking = Checking::new();
    let result = fs.check_with_progress(
        &mut |issue: Issue| report.line(issue.kind(), &issue.to_string()),
        &mut |progress| checking.show(progress),
    );
    drop(checking);
    let summary = result.map_err(|error| {
        let failure = Failure::engine(args.image.place.image.display(), &error);
        match failure {
            // A check that did not reach its end has no result.
            Failure::Message { what, hint, .. } => Failure::Message {
                exit: Exit::CouldNot,
                what,
                hint,
            },
            other => other,
        }
    })?;
    report.end(Some(&summary))?;
    if summary.issues > 0 {
        Ok(Exit::Damaged)
    } else {
        Ok(Exit::Success)
    }
}

struct Report<'a> {
    args: &'a CheckArgs,
    out: &'a mut Output,
    json: Json,
    reported: u64,
    /// Standard output failed; reported at the end.
    failed: Option<Failure>,
}

impl Report<'_> {
    fn line(&mut self, kind: &str, text: &str) {
        self.reported += 1;
        note(Exit::Damaged);
        if self.args.quiet || self.reported > self.args.issues || self.failed.is_some() {
            return;
        }
        let result = if self.args.json {
            self.json.open_object();
            self.json.key("kind").string(kind);
            self.json.key("text").string(text);
            self.json.close_object();
            let result = self.out.write_all(self.json.as_bytes());
            self.json.continue_array();
            result
        } else {
            writeln!(self.out, "{}", escaped(text.as_bytes()))
        };
        self.failed = result.err().map(Failure::from);
    }

    fn end(&mut self, summary: Option<&uext4::check::Summary>) -> Result<(), Failure> {
        if let Some(failure) = self.failed.take() {
            return Err(failure);
        }
        if self.args.quiet {
            return Ok(());
        }
        if self.args.json {
            self.json.close_array();
            self.json.key("clean").value(self.reported == 0);
            self.json.key("issue_count").number(self.reported);
            if let Some(summary) = summary {
                self.json.key("inodes").number(summary.inodes);
                self.json.key("directories").number(summary.directories);
                self.json.key("blocks_used").number(summary.blocks_used);
                self.json.key("orphans").number(summary.orphans);
            }
            self.json.close_object();
            self.json.end_line();
            self.out.write_all(self.json.as_bytes())?;
            return Ok(());
        }
        if self.reported > self.args.issues {
            writeln!(self.out, "… {} more", self.reported - self.args.issues)?;
        }
        if let Some(waiting) = summary.map(|s| s.orphans).filter(|n| *n > 0) {
            writeln!(
                self.out,
                "note: {waiting} inodes wait to be deleted or truncated; the next mount for writing \
                 or `e2fsck -p` does that"
            )?;
        }
        match summary {
            Some(summary) if self.reported == 0 => writeln!(
                self.out,
                "clean: {} inodes, {} of them directories, {} blocks in use",
                summary.inodes, summary.directories, summary.blocks_used
            )?,
            _ => writeln!(self.out, "damaged: {} issues", self.reported)?,
        }
        Ok(())
    }
}
