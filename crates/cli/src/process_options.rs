//! Options that most commands have, and that say how the process runs.

use clap::{Arg, ArgAction};

use crate::args::parse_size;
use crate::reach;

/// Adds the options that say how a command runs, whatever it does, where it has none of that name.
pub fn with_process_options(command: clap::Command) -> clap::Command {
    let shared = |arg: Arg| {
        let arg = arg.help_heading("Image options");
        arg.hide_short_help(true).hide_long_help(true)
    };
    let memory = Arg::new("memory")
        .long("memory")
        .value_name("SIZE")
        .value_parser(parse_size)
        .help("Use about so much memory at most for caches and tables");
    let no_sandbox = Arg::new("no_sandbox")
        .long("no-sandbox")
        .action(ArgAction::SetTrue)
        .help("Do not give up paths and system calls that are not needed");
    command.mut_subcommands(|command| {
        let is_confined = reach::is_confined(command.get_name());
        let has_memory = command.get_arguments().any(|arg| arg.get_id() == "memory");
        let takes_memory = is_confined || command.get_name() == "mount";
        let command = match takes_memory && !has_memory {
            true => command.arg(shared(memory.clone())),
            false => command,
        };
        match is_confined {
            true => command.arg(shared(no_sandbox.clone())),
            false => command,
        }
    })
}
