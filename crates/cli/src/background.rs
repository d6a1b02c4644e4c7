//! Going on in the background: the command starts itself once more, and ends when that is ready.
//!
//! ```text
//! uext4 mount …  ──spawns──▶  uext4 mount --in-background …   leads a session of its own
//!        ◀── one line on its standard output: ready ──         then leaves the terminal
//!        ◀── or it ends: so does this, with its exit code
//! ```
//! Nothing is forked, so threads and locks are those of a program that was started.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::failure::{Exit, Failure};
use crate::helper;

/// What tells the program that it is the one in the background.
pub const FLAG: &str = "--in-background";
/// What it says when it is ready.
const READY: &str = "ready\n";

/// Starts this command once more in the background, and waits until it is ready or has failed; what it
/// had to say then, it has said.
///
/// # Errors
/// Exit 8 if it cannot be started.
pub fn start() -> Result<Exit, Failure> {
    let failed = |error: &io::Error| Failure::io("starting in the background", error);
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let called = helper::arguments(std::env::args_os());
    let mut arguments: Vec<OsString> = called.into_iter().skip(1).collect();
    // Behind the name of the subcommand.
    arguments.insert(arguments.len().min(1), FLAG.into());
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // A signal from this terminal is not for it.
        .process_group(0)
        .spawn();
    let mut child = child.map_err(|error| failed(&error))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // Without a line it has ended.
        _ = BufReader::new(stdout).read_line(&mut line);
    }
    if line == READY {
        return Ok(Exit::Success);
    }
    let status = child.wait().map_err(|error| failed(&error))?;
    Ok(match status.code() {
        Some(1) => Exit::Incomplete,
        Some(2) => Exit::Usage,
        Some(4) => Exit::Damaged,
        _ => Exit::CouldNot,
    })
}

/// Leaves the terminal and the directory, and tells who started this that it is ready. What fails then
/// fails before anybody relies on it.
///
/// # Errors
/// Those of doing so, of telling nobody above all.
pub fn ready() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // It may lead a session already.
    _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    rustix::stdio::dup2_stdin(&null)?;
    // Not through what would keep it, and try again at the end.
    File::from(rustix::stdio::stdout().try_clone_to_owned()?).write_all(READY.as_bytes())?;
    // From here on it is mounted, whatever becomes of what nobody reads.
    _ = rustix::stdio::dup2_stdout(&null);
    _ = rustix::stdio::dup2_stderr(&null);
    Ok(())
}
