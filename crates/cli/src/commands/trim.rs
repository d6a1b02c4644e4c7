//! `trim`: discards the free blocks of an image.

use std::io::Write;

use clap::Args;

use super::{Output, bytes, change};
use crate::args::{WriteArgs, parse_size};
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::open;
use crate::show::{escaped, size_text};

/// Discard the free blocks of an image
///
/// This does what fstrim does for a mounted file system: a device may forget the contents of free
/// blocks, and an image file gets holes there. The contents of files do not change.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 trim disk.img
  uext4 trim --minimum 1M disk.img      only runs of at least a mebibyte")]
pub struct TrimArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Skip shorter free runs
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size, default_value = "0")]
    minimum: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Opens, trims and closes.
pub fn run(args: &TrimArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.image.place.image;
    let shown = escaped(bytes(image.as_os_str()));
    let fs = open::open_rw(&args.image)?;
    let trimmed = fs
        .trim(0..u64::MAX, args.minimum)
        .map_err(|error| Failure::engine(image.display(), &error));
    let trimmed = change::close(&fs, image, trimmed)?;
    if args.json {
        let mut json = Json::new();
        json.open_object();
        json.key("image").text(bytes(image.as_os_str()));
        json.key("trimmed").number(trimmed);
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
        return Ok(Exit::Success);
    }
    writeln!(out, "{shown}: {} trimmed", size_text(trimmed))?;
    Ok(Exit::Success)
}
