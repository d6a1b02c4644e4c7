//! `completions`: what a shell needs to complete the command line, made of its definition.

use std::io::Write;

use clap::{Args, Command, ValueEnum};
use clap_complete::{Shell, generate};

use super::Output;
use crate::failure::{Exit, Failure};

/// Print the completions of a shell
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 completions bash > /etc/bash_completion.d/uext4
  uext4 completions zsh > /usr/local/share/zsh/site-functions/_uext4
  uext4 completions fish > ~/.config/fish/completions/uext4.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Known,
}

/// The shells.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Prints them.
pub fn run(
    args: &CompletionsArgs,
    mut command: Command,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let shell = match args.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    // The generator panics if a write fails: it writes to memory.
    let mut script = Vec::new();
    generate(shell, &mut command, "uext4", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Success)
}
