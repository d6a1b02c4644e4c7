//! `shrink`: makes a file system smaller.

use std::io::Write;
use std::sync::Arc;

use clap::Args;
use uext4_blockdev::partition::{self, Name, Place, Window};
use uext4_blockdev::{BlockDevice, Clock, FileDevice};
use uext4_resize::{Error, Examination, Resized, SmallerSize, shrink};

use super::{Output, bytes, grow};
use crate::args::{PlaceArgs, parse_size};
use crate::cut_repair;
use crate::device_failure::device_failure;
use crate::examination::Watching;
use crate::failure::{Exit, Failure};
use crate::in_disk::warn_of_old_table;
use crate::progress::Groups;
use crate::said_waits::SaidWaits;
use crate::show::{escaped, size_text};
use crate::{interrupt, open, part};

/// Make a file system smaller
///
/// Files, and inodes, that lie past the new end move, in transactions of the journal; the last one
/// makes the file system smaller. Whatever interrupts it, the file system has the old size or the
/// new one, and is clean. An image file becomes shorter with the file system; a partition does with
/// --with-partition, and a disk or a block device keeps its size. The file system is examined
/// first, as by `uext4 check`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 shrink disk.img 2G        to 2 GiB
  uext4 shrink --min disk.img     to as little as its files need
  uext4 shrink --partition 2 --with-partition vm.raw 8G
                                  a partition's, and the partition")]
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
    /// Make the partition smaller, too, once the file system is
    #[arg(long)]
    with_partition: bool,
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
    let window = part::window(&(Arc::clone(&whole) as _), &args.place)?;
    if args.with_partition && window.partition.is_none() {
        let what = format_args!("{}: the file system is in no partition", image.display());
        return Err(Failure::new(Exit::CouldNot, what).hint("leave --with-partition out"));
    }
    let in_table = window.partition.as_ref().filter(|_| args.with_partition);
    if let Some(partition) = in_table
        && let Err(error) = partition::can_shorten(&*whole, partition)
    {
        // Before the file system becomes smaller for nothing.
        let what = format_args!("{}: {error}", image.display());
        return Err(Failure::new(Exit::CouldNot, what)
            .hint("without --with-partition the file system alone becomes smaller"));
    }
    let device = open::part_to_write(Arc::clone(&whole) as _, &args.place)?;
    open::must_hold_ext(image, &device)?;
    let size = match args.size {
        Some(bytes) => SmallerSize::Bytes(bytes),
        None => SmallerSize::Least,
    };
    let deferred = interrupt::defer();
    let watching = Watching::progress();
    let examination = match args.force {
        true => Examination::Skipped,
        false => Examination::First(&watching),
    };
    let clock: Arc<dyn Clock> = Arc::new(SaidWaits);
    let bar = Groups::new();
    let cut = cut_repair::to_finish(&*device);
    let shrunk = shrink(&device, &clock, size, examination, &mut |progress| {
        bar.show(progress.groups.into(), progress.of.into());
        match interrupt::is_requested() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    });
    drop((bar, watching, deferred));
    cut_repair::finished(image, cut.filter(|_| shrunk.is_ok()));
    let resized = shrunk.map_err(|error| grow::failure(image, &error))?;
    let stays = shorten(args, &whole, &window, &resized)?;
    grow::print(image, args.json, &resized, out)?;
    if let Some(stays) = stays.filter(|_| !args.json) {
        writeln!(out, "{stays}")?;
    }
    Ok(Exit::Success)
}

/// What the file system was in ends with it again: a file whose end it was, and the partition if
/// that is asked for. Returns the sentence about what keeps its size.
///
/// The table is written when the file system is smaller, and durably so: whatever interrupts that,
/// the partition is large enough.
fn shorten(
    args: &ShrinkArgs,
    whole: &FileDevice,
    window: &Window,
    resized: &Resized,
) -> Result<Option<String>, Failure> {
    let image = &args.place.image;
    let shown = escaped(bytes(image.as_os_str()));
    let in_bytes = |blocks: u64| blocks.saturating_mul(resized.block_size.into());
    let end = window.start.saturating_add(in_bytes(resized.after));
    if let Some(partition) = &window.partition {
        let (number, len) = (partition.number, size_text(partition.len));
        if !args.with_partition {
            let is_larger = partition.len > in_bytes(resized.after);
            return Ok(is_larger.then(|| {
                format!(
                    "partition {number} keeps its {len}: `--with-partition` makes it smaller, too"
                )
            }));
        }
        if let Err(error) = partition::shorten(whole, partition, end) {
            let what = format_args!(
                "{shown}: the file system is smaller, and partition {number} is not: {error}"
            );
            return Err(Failure::new(Exit::CouldNot, what));
        }
        warn_of_old_table(image, number);
        let place = Place::Partition(Name::Number(number));
        let now = Window::find(whole, &place).map_err(|error| device_failure(image, &error))?;
        let now = size_text(now.len_on(whole));
        return Ok(Some(format!(
            "partition {number}: {len} before, {now} now; {shown} keeps its {}",
            size_text(whole.len())
        )));
    }
    // What lies behind may be of use: a backup of a partition table, a tree of hashes.
    let behind = window
        .len_on(whole)
        .saturating_sub(in_bytes(resized.before));
    let is_all = window.end.is_none() && behind < resized.block_size.into();
    if is_all && image.is_file() && end < whole.len() && resized.after != resized.before {
        let shorter = whole.set_len(end);
        shorter.map_err(|error| device_failure(image, &error))?;
        return Ok(None);
    }
    let is_longer = end < whole.len() && resized.after != resized.before;
    Ok(is_longer.then(|| format!("{shown} keeps its {}", size_text(whole.len()))))
}
