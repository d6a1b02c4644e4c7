//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::experiment::{Scale, Wish};
use crate::mount::Mount;

/// Seed if none is given.
const SEED: u64 = 2014;

const EXAMPLES: &str = "Examples:
  uext4-lab list                              every claim, and how many gates it has
  uext4-lab run mballoc-steps                 one claim: definition, results, gates
  uext4-lab run mballoc-steps --policy table+logical+linear --json
  uext4-lab run --file mine.toml               a claim of your own, see docs/lab.md
  uext4-lab run --all --quick --into DIR      a record of every claim; run again, it goes on
  uext4-lab compare lab/records/DAY DIR       what is not the same, and is it proven
  uext4-lab report --open                     the page of the newest folder of lab/records
  uext4-lab mount --policy writeback=mainline disk.img DIR
  uext4-lab gate                              the gates of all claims but the live ones
  uext4-lab gate --counted                    without what is timed, as continuous integration
  uext4-lab gate writeback-kernel             the model next to the running kernel, as root

Exit status: 0; 1 if a gate fails or a claim could not be run to its end; 2 for a wrong command line.";

/// Re-runs the experiments behind the subsystems' policies and holds them against their gates.
#[derive(Debug, Parser)]
#[command(name = "uext4-lab", version, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists the claims.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Runs claims and prints or records what came out.
    Run(Run),
    /// Compares two folders of records.
    Compare {
        /// The folder to compare with.
        before: PathBuf,
        /// The other.
        after: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Writes the report of a folder of records: one HTML page that needs no other file.
    Report(Report),
    /// Judges the gates by a folder of records and prints the table of verdicts, as Markdown.
    Verdicts {
        /// The folder.
        folder: PathBuf,
    },
    /// Mounts an image, in the foreground, with designs of subsystems.
    Mount(Mount),
    /// Measures this machine's noise, and whether the rule for differences believes any of it.
    Noise {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Runs claims quickly and prints one line a gate; exit 1 if any is contrary.
    Gate {
        /// Claims; all if none is named, but for those that measure the running kernel live.
        claims: Vec<String>,
        /// Leaves out what is timed, or counted by the running kernel: it differs with the load.
        #[arg(long)]
        counted: bool,
    },
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Claims.
    #[arg(required_unless_present_any = ["all", "files"], conflicts_with = "all")]
    pub claims: Vec<String>,
    /// Also the claim in this file, which need not be one of the lab's; may be given several times.
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Every claim.
    #[arg(long)]
    pub all: bool,
    /// A small experiment (the default).
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// The experiment at full size.
    #[arg(long)]
    pub full: bool,
    /// Runs on this subject only, where the claim has several: library, fuse:DIR, dir:DIR; may be
    /// given several times.
    #[arg(long = "on", value_name = "SUBJECT")]
    pub on: Vec<String>,
    /// Runs this policy instead of the claim's own list; may be given several times.
    #[arg(long = "policy", value_name = "POLICY")]
    pub policies: Vec<String>,
    /// Sets a parameter of the claim; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Records into this folder, and leaves out what it has already.
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// One JSON object a claim and line, instead of text.
    #[arg(long)]
    pub json: bool,
    /// What everything random is made from.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The folder of records; the newest of lab/records if none is named.
    pub folder: Option<PathBuf>,
    /// The page.
    #[arg(long, value_name = "FILE", default_value = "target/lab/report.html")]
    pub out: PathBuf,
    /// Opens it in the browser.
    #[arg(long)]
    pub open: bool,
}

impl Run {
    /// What is asked of every claim.
    pub fn wish(&self) -> Wish {
        Wish {
            scale: if self.full { Scale::Full } else { Scale::Quick },
            seed: self.seed,
            policies: self.policies.clone(),
            set: self.set.clone(),
            on: self.on.clone(),
        }
    }
}

impl Wish {
    /// A quick run as claims define it.
    pub fn quick() -> Self {
        Self {
            scale: Scale::Quick,
            seed: SEED,
            policies: Vec::new(),
            set: Vec::new(),
            on: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
