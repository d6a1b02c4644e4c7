//! `sync`: replays the journal of an image.

use std::io::Write;

use clap::Args;
use uext4_ondisk::features::Incompat;

use super::{Output, bytes, change};
use crate::args::{ImageArgs, PlaceArgs, WriteArgs};
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::show::escaped;
use crate::{cut_repair, open};

/// Replay the journal, and mark the image as cleanly unmounted
///
/// Writes the changes that an interrupted command, or a machine that lost power, left in the
/// journal to their home locations. The reading commands do this in memory only; afterwards every
/// other program sees the same. A clean image is not written to.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 sync disk.img && e2fsck -fn disk.img")]
pub struct SyncArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Opens and closes.
pub fn run(args: &SyncArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.image.place.image;
    let was_clean = replay(&args.image)?;
    if args.json {
        let mut json = Json::new();
        json.open_object();
        json.key("image").text(bytes(image.as_os_str()));
        json.key("was_clean").value(was_clean);
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
        return Ok(Exit::Success);
    }
    let done = match was_clean {
        true => "clean already",
        false => "journal replayed, clean",
    };
    writeln!(out, "{}: {done}", escaped(bytes(image.as_os_str())))?;
    Ok(Exit::Success)
}

/// Replays the journal, unless the image is clean; returns whether it was.
///
/// # Errors
/// Exit 8 if the image cannot be opened or is in use, 4 if the file system in it is damaged.
pub fn replay(args: &WriteArgs) -> Result<bool, Failure> {
    let was_clean = is_clean(&args.place)?;
    if !was_clean {
        let fs = open::open_rw(args)?;
        change::close(&fs, &args.place.image, Ok(()))?;
    }
    Ok(was_clean)
}

/// Nothing in the journal, nothing half-deleted, no repair that was cut off.
fn is_clean(place: &PlaceArgs) -> Result<bool, Failure> {
    let fs = open::open(&ImageArgs {
        place: place.clone(),
        superblock: None,
        no_replay: true,
    })?;
    let recover = fs
        .superblock()
        .features()
        .incompat
        .contains(Incompat::RECOVER);
    let orphans = fs.orphans().map_or(true, |orphans| !orphans.is_empty());
    let is_cut = cut_repair::is_on(&**fs.device());
    Ok(!recover && !orphans && !is_cut)
}
