//! `grow`: makes a file system larger.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use uext4_blockdev::partition::{self, Partition, TableKind, gpt};
use uext4_blockdev::{BlockDevice, Clock, FileDevice, SystemClock};
use uext4_ondisk::Geometry;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_resize::{Error, Resized, Size, grow};

use super::{Output, bytes};
use crate::args::{PlaceArgs, parse_size};
use crate::device_failure::device_failure;
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::open;
use crate::show::{escaped, size_text};

/// Make a file system larger
///
/// The image file grows with the file system; a block device or a partition must have the room
/// already. One transaction of the journal makes the new blocks a part of the file system: whatever
/// interrupts it, the file system has the old size or the new one, and is clean.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 grow disk.img 30G        to 30 GiB
  uext4 grow disk.img +10G       by 10 GiB
  uext4 grow /dev/vdb1           to all that the device has
  uext4 grow --with-partition vm.raw 30G
                                 the last partition of the disk, and the disk, too")]
pub struct GrowArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Make the partition larger, too: the last one of a GPT (or N of --partition N)
    #[arg(long, conflicts_with = "offset")]
    with_partition: bool,
    /// Size of the file system, +SIZE to add so much, or max: all that the image has
    #[arg(value_name = "SIZE", value_parser = parse_wanted, default_value = "max")]
    #[arg(hide_default_value = true)]
    size: Wanted,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The size as it is asked for, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    To(u64),
    By(u64),
    Max,
}

fn parse_wanted(text: &str) -> Result<Wanted, String> {
    Ok(match (text, text.strip_prefix('+')) {
        ("max", _) => Wanted::Max,
        (_, Some(more)) => Wanted::By(parse_size(more)?),
        _ => Wanted::To(parse_size(text)?),
    })
}

/// What grows, and how far.
struct Growing {
    device: Arc<dyn BlockDevice>,
    size: Size,
    /// Bytes of the device from here on read as zeroes.
    zero_from: u64,
}

/// Grows the file, and then the file system in it.
pub fn run(args: &GrowArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.place.image;
    let whole = Arc::new(open::writable(image)?);
    let had = whole.len();
    let start = args.place.offset.unwrap_or(0);
    let growing = match args.with_partition {
        true => with_partition(args, &whole)?,
        false => within(args, &whole, start)?,
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let Growing {
        device,
        size,
        zero_from,
    } = growing;
    let grown = grow(&device, &clock, size, zero_from).map_err(|error| {
        if !args.with_partition {
            give_back(&whole, &*device, start, had);
        }
        failure(image, &error)
    })?;
    print(image, args.json, &grown, out)?;
    Ok(Exit::Success)
}

/// The file system in its part of the image, which begins at byte `start`. A file becomes longer
/// where the file system reaches to its end.
fn within(args: &GrowArgs, whole: &Arc<FileDevice>, start: u64) -> Result<Growing, Failure> {
    let image = &args.place.image;
    let had = whole.len();
    let mut device = open::part(Arc::clone(whole) as _, &args.place)?;
    open::must_hold_ext(image, &device)?;
    let size = args.size(&*device);
    let zero_from = had.saturating_sub(start).min(device.len());
    let may_extend = image.is_file() && start.checked_add(device.len()) == Some(had);
    if let Size::Bytes(bytes) = size
        && may_extend
        && bytes > device.len()
    {
        let extended = whole.set_len(start.saturating_add(bytes));
        extended.map_err(|error| device_failure(image, &error))?;
        device = open::part(Arc::clone(whole) as _, &args.place)?;
    }
    Ok(Growing {
        device,
        size,
        zero_from,
    })
}

/// The file system in the last partition, which becomes longer, as does the file.
fn with_partition(args: &GrowArgs, whole: &Arc<FileDevice>) -> Result<Growing, Failure> {
    let image = &args.place.image;
    let failed = |error| device_failure(image, &error);
    let partition = chosen(args, &**whole)?;
    let opened = partition.open(Arc::clone(whole) as _).map_err(failed)?;
    let device: Arc<dyn BlockDevice> = Arc::new(opened);
    open::must_hold_ext(image, &device)?;
    let size = args.size(&*device);
    let had = whole.len();
    let end = match size {
        Size::Bytes(bytes) => Some(partition.start.saturating_add(bytes)),
        Size::Device => None,
    };
    if let Some(need) = end.map(gpt::disk_len)
        && need > had
        && image.is_file()
    {
        whole.set_len(need).map_err(failed)?;
    }
    if let Err(error) = gpt::extend(&**whole, partition.number, end) {
        // The error that is reported is the one that matters.
        _ = whole.set_len(had);
        let what = format_args!("{}: {error}", image.display());
        return Err(Failure::new(Exit::CouldNot, what));
    }
    let opened = partition::open(Arc::clone(whole) as _, partition.number).map_err(failed)?;
    Ok(Growing {
        zero_from: opened.len(),
        device: Arc::new(opened),
        size,
    })
}

/// The partition that is asked for, or the one that begins last.
fn chosen(args: &GrowArgs, whole: &dyn BlockDevice) -> Result<Partition, Failure> {
    let image = &args.place.image;
    let table = partition::scan(whole).map_err(|error| device_failure(image, &error))?;
    let found = match args.place.partition {
        Some(number) => table.into_iter().find(|found| found.number == number),
        None => table.into_iter().max_by_key(|found| found.start),
    };
    match found {
        Some(found) if found.table == TableKind::Gpt => Ok(found),
        Some(_) => Err(Failure::new(
            Exit::CouldNot,
            format_args!("{}: only partitions of a GPT grow", image.display()),
        )
        .hint("make the partition larger with sfdisk(8), then run this without --with-partition")),
        None => Err(Failure::new(
            Exit::CouldNot,
            format_args!("{}: there is no such partition", image.display()),
        )),
    }
}

impl GrowArgs {
    /// The size that is asked for, of a file system on `device`.
    fn size(&self, device: &dyn BlockDevice) -> Size {
        match self.size {
            Wanted::Max => Size::Device,
            Wanted::To(bytes) => Size::Bytes(bytes),
            Wanted::By(more) => Size::Bytes(len_of(device).unwrap_or(0).saturating_add(more)),
        }
    }
}

/// Bytes of the file system that a superblock speaks of.
fn len_of(device: &dyn BlockDevice) -> Option<u64> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let superblock = SuperBlock::parse(&bytes).ok()?;
    Some(Geometry::new(&superblock).ok()?.len_bytes())
}

/// After an error: the file gets its old length, unless the file system has grown all the same.
fn give_back(whole: &FileDevice, device: &dyn BlockDevice, start: u64, had: u64) {
    let end = len_of(device).and_then(|len| start.checked_add(len));
    if end.is_some_and(|end| end <= had) && whole.len() > had {
        // The error that is reported is the one that matters.
        _ = whole.set_len(had);
    }
}

/// What an error is called.
pub fn failure(image: &Path, error: &Error) -> Failure {
    let shown = image.display();
    match error {
        Error::FileSystem(error) => Failure::engine(shown, error),
        Error::DeviceTooSmall { .. } => {
            Failure::new(Exit::CouldNot, format_args!("{shown}: {error}")).hint(
                "make the device or the partition larger first; without SIZE all of it is used",
            )
        }
        Error::Device(error) => device_failure(image, error),
        Error::Unsound { .. } => Failure::new(Exit::Damaged, format_args!("{shown}: {error}")),
        _ => Failure::new(Exit::CouldNot, format_args!("{shown}: {error}")),
    }
}

/// Says how large the file system was, and is.
pub fn print(
    image: &Path,
    as_json: bool,
    resized: &Resized,
    out: &mut Output,
) -> Result<(), Failure> {
    let image = bytes(image.as_os_str());
    let Resized {
        before,
        after,
        block_size,
    } = *resized;
    let in_bytes = |blocks: u64| blocks.saturating_mul(block_size.into());
    if as_json {
        let mut json = Json::new();
        json.open_object();
        json.key("image").text(image);
        json.key("block_size").number(block_size);
        json.key("blocks_before").number(before);
        json.key("blocks").number(after);
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
        return Ok(());
    }
    let shown = escaped(image);
    let now = size_text(in_bytes(after));
    match before == after {
        true => writeln!(out, "{shown}: has {now} already ({after} blocks)")?,
        false => {
            let was = size_text(in_bytes(before));
            writeln!(out, "{shown}: {was} before, {now} now ({after} blocks)")?;
        }
    }
    Ok(())
}
