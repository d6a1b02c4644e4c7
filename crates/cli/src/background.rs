//! Going on in the background: the command starts itself once more, and ends when that is ready.
//!
//! ```text
//! uext4 mount …  ──spawns──▶  uext4 mount --in-background …   leads a session of its own
//!        ◀── one line on its standard output: ready ──         then leaves the terminal
//!        ◀── or it ends: so does this, with its exit code
//! ```
//! Nothing is forked, so threads and locks are those of a program that was started. A signal that
//! comes while this waits is passed on, and ends both.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::{Exit, Failure};
use crate::helper;

/// The variable that marks the program in the background.
pub const FLAG: &str = "--in-background";
/// What it says when it is ready.
const READY: &str = "ready\n";

/// States of the process that waits. A signal is passed on to the one in the background;
const WAITS: u8 = 0;
/// this was done;
const INTERRUPTED: u8 = 1;
/// that one is ready, and a signal ends this process alone.
const IS_READY: u8 = 2;

/// Starts this command once more in the background, and waits until it is ready or has failed;
/// what it had to say then, it has said.
///
/// # Errors
/// [`Exit::System`] if it cannot be started.
pub fn start() -> Result<Exit, Failure> {
    let failed = |error: &io::Error| {
        Failure::io("starting in the background", error).with_exit(Exit::System)
    };
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|error| failed(&error))?;
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
    let state = Arc::new(AtomicU8::new(WAITS));
    pass_on(signals, &child, &state);
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // Without a line it has ended.
        _ = BufReader::new(stdout).read_line(&mut line);
    }
    let turn = |next| state.compare_exchange(WAITS, next, SeqCst, SeqCst);
    // A signal was either passed on before, or is for this process alone from here on.
    if line == READY && turn(IS_READY).is_ok() {
        return Ok(Exit::Success);
    }
    let status = child.wait().map_err(|error| failed(&error))?;
    if state.load(SeqCst) == INTERRUPTED {
        return Err(Failure::new(
            Exit::Interrupted,
            "interrupted: nothing is mounted",
        ));
    }
    Ok(Exit::of_mount_code(status.code()))
}

/// Passes signals on to the one in the background until that is ready.
fn pass_on(mut signals: Signals, child: &Child, state: &Arc<AtomicU8>) {
    let state = Arc::clone(state);
    // Waited for in `start`, so the number is its own for as long as this runs.
    let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    thread::spawn(move || {
        for signal in signals.forever() {
            let before = state.compare_exchange(WAITS, INTERRUPTED, SeqCst, SeqCst);
            if before == Err(IS_READY) {
                _ = emulate_default_handler(signal);
            }
            if let Some(child) = child {
                _ = kill_process(child, Signal::TERM);
            }
        }
    });
}

/// Leaves the terminal and the directory, does `last`, and notifies the parent that it is ready.
/// What fails then fails before any thread relies on it.
///
/// # Errors
/// Those of doing so, above all that the parent cannot be notified.
pub fn ready(last: impl FnOnce()) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // It may lead a session already.
    _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    rustix::stdio::dup2_stdin(&null)?;
    last();
    // Not through what would keep it, and try again at the end.
    File::from(rustix::stdio::stdout().try_clone_to_owned()?).write_all(READY.as_bytes())?;
    // From here on it is mounted, even if the parent no longer reads.
    _ = rustix::stdio::dup2_stdout(&null);
    _ = rustix::stdio::dup2_stderr(&null);
    Ok(())
}
