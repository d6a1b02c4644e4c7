//! Options that most commands have, and that say how the process runs; and one that only those have
//! that write.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches};

use crate::args::parse_size;
use crate::reach;

/// Gives up what protects an image.
const DROP_VERITY: &str = "drop_verity";

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
        let has = |name| command.get_arguments().any(|arg| arg.get_id() == name);
        let has_memory = has("memory");
        let hides_drop = reach::only_reads(command.get_name()) && has(DROP_VERITY);
        let takes_memory = is_confined || command.get_name() == "mount";
        let command = match takes_memory && !has_memory {
            true => command.arg(shared(memory.clone())),
            false => command,
        };
        // Of no use where nothing is changed: completions and manual pages leave it out.
        let command = match hides_drop {
            true => command.mut_arg(DROP_VERITY, |arg| arg.hide(true)),
            false => command,
        };
        match is_confined {
            true => command.arg(shared(no_sandbox.clone())),
            false => command,
        }
    })
}

/// Refuses to give up what protects an image for a command that only reads it.
///
/// # Errors
/// With the command and what it does.
pub fn refuse_needless(matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((name, given)) = matches.subcommand() else {
        return Ok(());
    };
    let is_given = given.try_get_one::<bool>(DROP_VERITY).ok().flatten();
    match is_given == Some(&true) && reach::only_reads(name) {
        true => Err(clap::Error::raw(
            ErrorKind::ArgumentConflict,
            format_args!(
                "--drop-verity: `uext4 {name}` only reads the image, and needs no protection to be \
                 given up\n"
            ),
        )),
        false => Ok(()),
    }
}
