//! `stats` in a script: what waits to be written, and how fast the device is taken to be.

use std::io::Write;

use clap::Args;
use uext4::Image;

use super::Output;
use crate::failure::{Exit, Failure};
use crate::json::Json;

/// Report what waits to be written
///
/// The lines of Linux's /sys/kernel/debug/bdi/*/stats: pages in kB, rates in kB a second, and dirty
/// files by the list they are in. With --json the same names and units. Nothing is written for it.
#[derive(Args, Clone, Debug)]
pub struct BdiArgs {
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Prints them, of a file system that is open for writing.
pub fn run(args: &BdiArgs, fs: &Image, out: &mut Output) -> Result<Exit, Failure> {
    let Some(stats) = fs.stats().device else {
        return Ok(Exit::Success);
    };
    if !args.json {
        write!(out, "{stats}")?;
        return Ok(Exit::Success);
    }
    let mut json = Json::new();
    json.open_object();
    for (name, value, _) in stats.bdi.lines() {
        json.key(name).number(value);
    }
    for (name, files) in stats.queues() {
        json.key(name).number(files);
    }
    json.close_object();
    json.end_line();
    out.write_all(json.as_bytes())?;
    Ok(Exit::Success)
}
