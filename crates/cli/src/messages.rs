//! Standard error: lines of text, or with `--json` one JSON object a line.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use crate::exit::Exit;
use crate::json::Json;

/// The command line asks for JSON.
static JSON: AtomicBool = AtomicBool::new(false);
/// Whose exit codes the command has: its own, [`MOUNT`], [`FSCK`] or [`GREP`].
static CODES: AtomicU8 = AtomicU8::new(0);
const MOUNT: u8 = 1;
const FSCK: u8 = 2;
const GREP: u8 = 3;

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
    match JSON.load(Relaxed) {
        true => print(&[("warning", &what.to_string())], None, None),
        false => line(format_args!("uext4: {what}")),
    }
}

/// Prints a line. Where standard error has no reader, the work goes on all the same.
fn line(text: impl Display) {
    _ = writeln!(std::io::stderr(), "{text}");
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
