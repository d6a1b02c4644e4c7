//! One JSON object for each command of a script, so that a program at the other end of a pipe sees
//! where an answer ends, and whether the command succeeded.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::commands::{Output, output};
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::messages;

/// Most bytes that one command may print.
const PRINTED_MAX: usize = 16 << 20;

/// Runs a command, and prints what came of it.
///
/// # Errors
/// Those of `out`.
pub fn answer(
    line: u64,
    out: &mut Output,
    run: impl FnOnce(&mut Output) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let printed = Printed::default();
    let mut to = output(Box::new(printed.clone()));
    messages::capture();
    let done = run(&mut to).and_then(|exit| {
        to.flush()?;
        Ok(exit)
    });
    let exit = match done {
        Ok(exit) => exit,
        Err(Failure::BrokenPipe) => {
            messages::captured();
            return Err(Failure::BrokenPipe);
        }
        Err(Failure::Message { exit, what, hint }) => {
            messages::error(exit, what, hint.as_deref());
            exit
        }
    };
    let mut json = Json::new();
    json.open_object();
    json.key("line").number(line);
    json.key("ok").value(exit == Exit::Success);
    json.key("exit").number(exit.code());
    printed.write(&mut json);
    let (errors, warnings): (Vec<_>, Vec<_>) = messages::captured()
        .into_iter()
        .partition(|message| message.is_error);
    for (key, messages) in [("errors", errors), ("warnings", warnings)] {
        json.key(key).open_array();
        for message in messages {
            json.open_object();
            json.key("text").string(&message.text);
            if let Some(hint) = &message.hint {
                json.key("hint").string(hint);
            }
            json.close_object();
        }
        json.close_array();
    }
    json.close_object();
    json.end_line();
    out.write_all(json.as_bytes())?;
    Ok(exit)
}

/// What a command has printed.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    /// JSON as the value that it is, several values as an array; anything else as text.
    fn write(&self, json: &mut Json) {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_value = |line: &[u8]| {
            let first = line.first();
            matches!(first, Some(b'{' | b'['))
                && serde_json::from_slice::<serde_json::Value>(line).is_ok()
        };
        let lines = || {
            bytes
                .split(|&byte| byte == b'\n')
                .filter(|line| !line.is_empty())
        };
        if bytes.is_empty() || !lines().all(is_value) {
            json.key("output").text(&bytes);
            return;
        }
        match (lines().next(), lines().count()) {
            (Some(line), 1) => json.key("output").raw(line),
            _ => {
                json.key("output").open_array();
                lines().for_each(|line| json.raw(line));
                json.close_array();
            }
        }
    }
}

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut printed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.len() + bytes.len() > PRINTED_MAX {
            let what = "an answer has at most 16 MiB: use the command without --json of the script";
            return Err(io::Error::other(what));
        }
        printed.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
