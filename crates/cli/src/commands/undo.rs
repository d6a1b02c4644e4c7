//! `undo`: puts back what a repair overwrote.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::Output;
use crate::args::PlaceArgs;
use crate::examination::{self, counted};
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::{interrupt, open};

/// Put back what a repair overwrote
///
/// The file was made by `uext4 repair --undo FILE`. It is verified as a whole before the first
/// byte of the image is written, and can be used again if that is cut off.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  uext4 repair -y --undo disk.undo disk.img && uext4 undo disk.undo disk.img")]
pub struct UndoArgs {
    /// What `uext4 repair --undo` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Writes the old contents.
pub fn run(args: &UndoArgs, out: &mut Output) -> Result<Exit, Failure> {
    let device = open::to_restore(&args.place)?;
    // What is begun is completed.
    let deferred = interrupt::defer();
    let blocks = uext4_fsck::undo::undo(&*device, &args.file);
    drop(deferred);
    let image = args.place.image.display();
    let blocks = blocks.map_err(|error| examination::failure(image, &error))?;
    if args.json {
        let mut json = Json::new();
        json.open_object();
        json.key("blocks").number(blocks);
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
    } else {
        writeln!(out, "{} put back", counted(blocks, "block"))?;
    }
    Ok(Exit::Success)
}
