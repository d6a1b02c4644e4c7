//! The `uext4` command: file systems of the ext family in images and on devices, without root and
//! without a kernel.
//!
//! One file a subcommand under `commands`; what they share is one noun a file in this directory.
//! Nothing here knows the format: the engine and the crates below it do. It is a library for the
//! program of a few lines in `main.rs`, and for tests that call a command without a process.

mod acl_change;
mod acl_restore;
mod acl_text;
mod args;
mod background;
mod below;
mod color;
mod command_line;
mod commands;
mod contents;
mod cut_repair;
mod deleted;
mod device_failure;
mod ending;
mod examination;
mod exit;
mod extents;
mod failure;
mod file_limit;
mod find_filter;
mod folded;
mod format;
mod free;
mod fsck_progress;
mod grep;
mod group_space;
mod grower;
mod guarded;
mod guesses;
mod help;
mod helper;
mod identify;
mod image_copy;
mod in_disk;
mod inode_flags;
mod interrupt;
mod json;
mod kernel_mount;
mod listener;
mod losses;
mod memory;
mod messages;
mod metrics;
mod missing;
mod mke2fs;
mod mode;
mod mount_failure;
mod mount_options;
mod mounted;
mod open;
mod overwrite;
mod owner;
mod part;
mod paths;
mod phase_bar;
mod preload;
mod process_options;
mod progress;
mod reach;
mod record;
mod rescue_map;
mod said_waits;
mod sandbox;
mod show;
mod snapshot;
mod still;
mod trace;
mod tune_names;
mod unmounter;
mod when;

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;
use uext4::Volume;
use uext4::tuning::Policies;

use crate::command_line::Command;
use crate::commands::mount::MountArgs;
use crate::failure::{Exit, Failure};
use crate::show::harmless;

/// Runs the command that the words ask for, the name of the program being the first of them, and
/// says what it ends with.
pub fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words = helper::arguments(words);
    let mut options = words.iter().take_while(|word| *word != "--");
    let is_json = options.any(|word| word == "--json");
    if is_json {
        messages::choose_json();
    }
    match words.get(1).and_then(|word| word.to_str()) {
        Some("mount" | "umount") => messages::choose_mount_codes(),
        Some("repair" | "fsck") => messages::choose_fsck_codes(),
        Some("grep" | "diff") => messages::choose_grep_codes(),
        _ => {}
    }
    let ended = |exit: Exit| ExitCode::from(messages::code(exit));
    let first = words.get(1).and_then(|word| word.to_str());
    let parsed = command_line::command_for(first).try_get_matches_from(&words);
    let known = parsed.and_then(|matches| {
        process_options::refuse_needless(&matches)?;
        Ok((Command::from_arg_matches(&matches)?, matches))
    });
    let (asked_for, matches) = match known {
        Ok(known) => known,
        Err(error) => {
            let texts: Vec<String> = words
                .iter()
                .map(|word| word.to_string_lossy().into())
                .collect();
            let error = guesses::without_far_guesses(error, command_line::command(), &texts);
            return ended(not_a_command(&error, &words, is_json));
        }
    };
    let memory = matches
        .subcommand()
        .map(|(_, given)| given.try_get_one::<u64>("memory"));
    memory::choose(memory.and_then(Result::ok).flatten().copied());
    let temporary = reach::keep_to(&matches);
    let done = command_line::run(&asked_for);
    let exit = match done.and_then(|exit| still::check_snapshots().map(|()| exit)) {
        Ok(exit) => exit,
        Err(failure) => report(failure),
    };
    drop(temporary);
    ended(exit)
}

/// Runs the lines of a script on a file system that is open for writing, as `uext4 script
/// --keep-going` does; what its commands print goes to `out`. Returns the exit code.
pub fn script(fs: &Volume, lines: &mut dyn BufRead, out: Box<dyn Write>) -> u8 {
    let exit = commands::script::run_all(fs, lines, out).unwrap_or_else(report);
    exit.code()
}

/// Mounts an image in the foreground as `uext4 mount --foreground -o OPTIONS` does, with these
/// designs of subsystems, and prints the trace events that `trace` names. Returns the exit code
/// when the image is unmounted.
pub fn mount(
    image: PathBuf,
    dir: PathBuf,
    options: Vec<String>,
    trace: Vec<String>,
    policies: Policies,
) -> ExitCode {
    messages::choose_mount_codes();
    let args = MountArgs::with_policies(image, dir, options, trace, policies);
    let mut out = commands::output(Box::new(std::io::stdout()));
    let exit = commands::mount::run(&args, &mut out).unwrap_or_else(report);
    ExitCode::from(messages::code(exit))
}

/// Prints a failure.
fn report(failure: Failure) -> Exit {
    match failure {
        Failure::BrokenPipe => Exit::Success,
        Failure::Message { exit, what, hint } => {
            messages::error(exit, what, hint.as_deref());
            exit
        }
    }
}

fn print_folded(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(folded::for_terminal(text, &stdout).as_bytes())
}

/// Prints what the parser of the command line has to say: what is wrong, or help, or the version.
fn not_a_command(error: &clap::Error, words: &[OsString], is_json: bool) -> Exit {
    if is_json && error.use_stderr() {
        let text = error.render().to_string();
        let what = text.trim_start_matches("error: ").trim_end();
        messages::error(Exit::Usage, what, None);
        return Exit::Usage;
    }
    let is_odd = |word: &&OsString| matches!(harmless(&word.to_string_lossy()), Cow::Owned(_));
    if error.use_stderr() && words.iter().any(|word| is_odd(&word)) {
        // Words of the command line are in it, as they are.
        let words = words
            .iter()
            .filter(is_odd)
            .map(|word| word.to_string_lossy());
        let text = words.fold(error.render().to_string(), |text, word| {
            text.replace(&*word, &harmless(&word))
        });
        let lines: Vec<_> = text.trim_end().lines().map(harmless).collect();
        let text = format!("{}\n", lines.join("\n"));
        let mut stderr = std::io::stderr();
        _ = stderr.write_all(folded::for_terminal(&text, &stderr).as_bytes());
        return Exit::Usage;
    }
    // What clap does not fold at words.
    let text = error.render().to_string();
    let printed = match error.use_stderr() {
        true if folded::is_too_narrow(&text, &std::io::stderr()) => {
            let mut stderr = std::io::stderr();
            stderr.write_all(folded::for_terminal(&text, &stderr).as_bytes())
        }
        false if error.kind() == ErrorKind::DisplayHelp => print_folded(&text),
        _ => error.print(),
    };
    let printed = printed.and_then(|()| std::io::stdout().flush());
    match printed {
        _ if error.use_stderr() => Exit::Usage,
        Ok(()) => Exit::Success,
        Err(error) => report(Failure::from(error)),
    }
}
