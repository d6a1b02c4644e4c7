//! The command line.

use clap::{Args, Parser, Subcommand};

use crate::claim::Scale;
use crate::mount::Mount;

/// Seed if none is given.
const SEED: u64 = 2014;

const EXAMPLES: &str = "Examples:
  uext4-lab list                              every claim, and how many gates it has
  uext4-lab run mballoc-steps                 one claim: definition, results, gates
  uext4-lab run mballoc-steps --policy table+logical+linear --json
  uext4-lab run --full --seed 7 > record.txt
  uext4-lab mount --policy writeback=mainline disk.img DIR
  uext4-lab gate                              all gates; the last line counts them";

/// Re-runs the experiments behind the rooms' policies and holds them against their gates.
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
    List,
    /// Runs claims and prints what came out.
    Run(Run),
    /// Mounts an image, in the foreground, with designs of subsystems.
    Mount(Mount),
    /// Runs claims quickly and prints one line a gate; exit 1 if any falls short.
    Gate {
        /// Claims; all if none is named.
        claims: Vec<String>,
    },
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Claims; all if none is named.
    pub claims: Vec<String>,
    /// A small experiment (the default).
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// The experiment at full size.
    #[arg(long)]
    pub full: bool,
    /// Runs this policy instead of the claim's own list; may be given several times.
    #[arg(long = "policy", value_name = "POLICY")]
    pub policies: Vec<String>,
    /// Sets a parameter of the claim; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// One JSON object a claim and line, instead of text.
    #[arg(long)]
    pub json: bool,
    /// What everything random is made from.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
}

impl Run {
    /// All gates of these claims, quickly.
    pub fn quick(claims: Vec<String>) -> Self {
        Self {
            claims,
            quick: true,
            full: false,
            policies: Vec::new(),
            set: Vec::new(),
            json: false,
            seed: SEED,
        }
    }

    /// How much is to be done.
    pub fn scale(&self) -> Scale {
        if self.full { Scale::Full } else { Scale::Quick }
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
