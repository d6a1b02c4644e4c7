//! `undo`: puts back what a repair overwrote.

use std::path::PathBuf;

use clap::Args;

use super::Output;
use crate::args::PlaceArgs;
use crate::examination::{self, counted};
use crate::failure::{Exit, Failure};
use crate::said_waits::pause;
use crate::{interrupt, open};

/// Put back what a repair overwrote
///
/// The file was made by `uext4 repair --undo FILE`. Before the first byte of the image is written,
/// it is verified as a whole, and so is that the image holds nothing but what the repair found or
/// made there: a file of another image, or of one that was mounted since, is refused. If it is cut
/// off, it can be done again.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 repair -y --undo disk.undo disk.img
  uext4 undo disk.undo disk.img            # what this repair changed is as it was")]
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
    let blocks = uext4_fsck::undo::undo(&*device, &args.file, &pause);
    drop(deferred);
    let image = args.place.image.display();
    let blocks = blocks.map_err(|error| examination::failure(image, &error))?;
    let said = format_args!("{} put back", counted(blocks, "block"));
    examination::print_written(blocks, args.json, said, out)?;
    Ok(Exit::Success)
}
