//! `sync`: a journal replayed for good.

use std::io::Write;

use clap::Args;
use uext4_ondisk::features::Incompat;

use super::{Output, change};
use crate::args::{ImageArgs, PlaceArgs, WriteArgs};
use crate::failure::{Exit, Failure};
use crate::open;
use crate::show::escaped;

/// Replay the journal, and mark the image as cleanly unmounted
///
/// Finishes what an interrupted command, or a machine that lost power, left in the journal. The
/// readers of this program do so in memory only; after this, every other program sees the same. An
/// image that is clean is not written to.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 sync disk.img && e2fsck -fn disk.img")]
pub struct SyncArgs {
    #[command(flatten)]
    image: WriteArgs,
}

/// Opens and closes.
pub fn run(args: &SyncArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.image.place.image;
    let shown = escaped(super::bytes(image.as_os_str()));
    if is_clean(&args.image.place)? {
        writeln!(out, "{shown}: clean already")?;
        return Ok(Exit::Success);
    }
    let fs = open::open_rw(&args.image)?;
    change::close(&fs, image, Ok(()))?;
    writeln!(out, "{shown}: journal replayed, clean")?;
    Ok(Exit::Success)
}

/// Nothing in the journal, nothing half-deleted.
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
    Ok(!recover && !orphans)
}
