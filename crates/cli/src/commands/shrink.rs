//! `shrink`: makes a file system smaller.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use uext4_blockdev::{BlockDevice, Clock, FileDevice, SystemClock};
use uext4_resize::{Error, Resized, SmallerSize, shrink};

use super::{Output, grow};
use crate::args::{PlaceArgs, parse_size};
use crate::failure::{Exit, Failure};
use crate::progress::Groups;
use crate::{examination, interrupt, open};

/// Make a file system smaller
///
/// Files, and inodes, that lie past the new end move, in transactions of the journal; the last one
/// makes the file system smaller. Whatever interrupts it, the file system has the old size or the
/// new one, and is clean. An image file becomes shorter with the file system; a partition or a
/// block device keeps its size. The file system is examined first, as by `uext4 check`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 shrink disk.img 2G        to 2 GiB
  uext4 shrink --min disk.img     to as little as its files need
  uext4 shrink --partition 2 vm.raw 8G
                                  a partition's; make the partition smaller afterwards")]
pub struct ShrinkArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Size of the file system; a last group too short for its metadata is left out
    #[arg(value_name = "SIZE", value_parser = parse_size)]
    #[arg(required_unless_present = "min", conflicts_with = "min")]
    size: Option<u64>,
    /// Leave no more room than what there is needs
    #[arg(long)]
    min: bool,
    /// Do not examine the file system first
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shrinks the file system, and then the file that it is in.
pub fn run(args: &ShrinkArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.place.image;
    let whole = Arc::new(open::writable(image)?);
    let device = open::part(Arc::clone(&whole) as _, &args.place)?;
    open::must_hold_ext(image, &device)?;
    let size = match args.size {
        Some(bytes) => SmallerSize::Bytes(bytes),
        None => SmallerSize::Least,
    };
    let deferred = interrupt::defer();
    if !args.force {
        must_be_sound(image, &device)?;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let bar = Groups::new();
    let shrunk = shrink(&device, &clock, size, &mut |progress| {
        bar.show(progress.groups.into(), progress.of.into());
        match interrupt::is_requested() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    });
    drop((bar, deferred));
    let resized = shrunk.map_err(|error| failure(image, &error))?;
    shorten(&args.place, &whole, &*device, &resized)?;
    grow::print(image, args.json, &resized, out)?;
    Ok(Exit::Success)
}

/// Fails if an examination finds anything: what is damaged must not move.
fn must_be_sound(image: &Path, device: &Arc<dyn BlockDevice>) -> Result<(), Failure> {
    let found = uext4_fsck::findings(device);
    let found = found.map_err(|error| examination::failure(image.display(), &error))?;
    if found.is_empty() {
        return Ok(());
    }
    let what = format_args!(
        "{}: the file system is damaged ({}): nothing was changed",
        image.display(),
        examination::counted(found.len() as u64, "finding")
    );
    Err(Failure::new(Exit::Damaged, what).hint("run `uext4 repair` first"))
}

/// A file whose end the file system was ends with it again.
fn shorten(
    place: &PlaceArgs,
    whole: &FileDevice,
    device: &dyn BlockDevice,
    resized: &Resized,
) -> Result<(), Failure> {
    let image = &place.image;
    let start = place.offset.unwrap_or(0);
    let in_bytes = |blocks: u64| blocks.saturating_mul(resized.block_size.into());
    let is_end = start.checked_add(device.len()) == Some(whole.len());
    // What lies behind may be of use: a backup of a partition table, a tree of hashes.
    let behind = device.len().saturating_sub(in_bytes(resized.before));
    let is_all = place.partition.is_none() && is_end && behind < resized.block_size.into();
    if !is_all || !image.is_file() || resized.after == resized.before {
        return Ok(());
    }
    let len = start.saturating_add(in_bytes(resized.after));
    if len < whole.len() {
        let shorter = whole.set_len(len);
        shorter.map_err(|error| crate::device_failure::device_failure(image, &error))?;
    }
    Ok(())
}

fn failure(image: &Path, error: &Error) -> Failure {
    match error {
        Error::Stopped => Failure::new(
            Exit::Interrupted,
            format_args!("{}: {error}", image.display()),
        ),
        error => grow::failure(image, error),
    }
}
