//! Standard error: lines of text, or with `--json` one JSON object a line.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exit::Exit;
use crate::folded;
use crate::json::Json;
use crate::show::harmless;

/// The command line asks for JSON.
static JSON: AtomicBool = AtomicBool::new(false);
/// Whose exit codes the command has: its own, [`MOUNT`], [`FSCK`] or [`GREP`].
static CODES: AtomicU8 = AtomicU8::new(0);
const MOUNT: u8 = 1;
const FSCK: u8 = 2;
const GREP: u8 = 3;

/// What was to be printed, where that is collected.
static CAPTURED: Mutex<Option<Vec<Message>>> = Mutex::new(None);

/// An error or a warning.
#[derive(Debug)]
pub struct Message {
    /// Whether it is an error.
    pub is_error: bool,
    /// What it says.
    pub text: String,
    /// What to do next.
    pub hint: Option<String>,
}

/// Collects messages from now on in place of printing them.
pub fn capture() {
    *captured_so_far() = Some(Vec::new());
}

/// Ends that, and returns them.
pub fn captured() -> Vec<Message> {
    captured_so_far().take().unwrap_or_default()
}

fn captured_so_far() -> MutexGuard<'static, Option<Vec<Message>>> {
    CAPTURED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects a message; false if they are printed.
fn is_captured(is_error: bool, text: &impl Display, hint: Option<&str>) -> bool {
    let mut captured = captured_so_far();
    let is_captured = captured.is_some();
    if let Some(messages) = &mut *captured {
        messages.push(Message {
            is_error,
            text: text.to_string(),
            hint: hint.map(str::to_owned),
        });
    }
    is_captured
}

/// Chooses JSON for all messages to come.
pub fn choose_json() {
    JSON.store(true, Relaxed);
}

/// Chooses the exit codes of mount(8).
pub fn choose_mount_codes() {
    CODES.store(MOUNT, Relaxed);
}

/// Chooses the exit codes of fsck(8).
pub fn choose_fsck_codes() {
    CODES.store(FSCK, Relaxed);
}

/// Chooses the exit codes of grep(1) and diff(1).
pub fn choose_grep_codes() {
    CODES.store(GREP, Relaxed);
}

/// What the process ends with.
pub fn code(exit: Exit) -> u8 {
    match CODES.load(Relaxed) {
        MOUNT => exit.mount_code(),
        FSCK => exit.fsck_code(),
        GREP => exit.grep_code(),
        _ => exit.code(),
    }
}

/// Prints an error, with the exit code it leads to and what to do next.
pub fn error(exit: Exit, what: impl Display, hint: Option<&str>) {
    if is_captured(true, &what, hint) {
        return;
    }
    if !JSON.load(Relaxed) {
        line(format_args!("uext4: {what}"));
        if let Some(hint) = hint {
            line(format_args!("  {hint}"));
        }
        return;
    }
    print(&[("error", &what.to_string())], Some(exit), hint);
}

/// Prints what is worth knowing and no error.
pub fn warning(what: impl Display) {
    if is_captured(false, &what, None) {
        return;
    }
    match JSON.load(Relaxed) {
        true => print(&[("warning", &what.to_string())], None, None),
        false => line(format_args!("uext4: {what}")),
    }
}

/// Prints a line. Where standard error has no reader, the work goes on all the same.
///
/// Names of files of this machine are in it as they are: what a terminal could take as a command,
/// and what ends a line, is escaped here, whichever way it came into the text.
fn line(text: impl Display) {
    let mut stderr = std::io::stderr();
    let text = format!("{}\n", harmless(&text.to_string()));
    _ = stderr.write_all(folded::for_terminal(&text, &stderr).as_bytes());
}

fn print(texts: &[(&str, &str)], exit: Option<Exit>, hint: Option<&str>) {
    let mut json = Json::new();
    json.open_object();
    for (key, text) in texts {
        json.key(key).string(text);
    }
    if let Some(exit) = exit {
        json.key("exit").number(code(exit));
    }
    if let Some(hint) = hint {
        json.key("hint").string(hint);
    }
    json.close_object();
    json.end_line();
    _ = std::io::stderr().write_all(json.as_bytes());
}
