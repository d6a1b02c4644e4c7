//! `grow`: makes a file system larger.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use uext4_blockdev::{BlockDevice, Clock, FileDevice, SystemClock};
use uext4_ondisk::Geometry;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_resize::{Error, Grown, Size, grow};

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
  uext4 grow /dev/vdb1           to all that the device has")]
pub struct GrowArgs {
    #[command(flatten)]
    place: PlaceArgs,
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

/// Grows the file, and then the file system in it.
pub fn run(args: &GrowArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.place.image;
    let whole = Arc::new(open::writable(image)?);
    let had = whole.len();
    let mut device = open::part(Arc::clone(&whole) as _, &args.place)?;
    open::must_hold_ext(image, &device)?;
    let size = match args.size {
        Wanted::Max => Size::Device,
        Wanted::To(bytes) => Size::Bytes(bytes),
        Wanted::By(more) => Size::Bytes(len_of(&*device).unwrap_or(0).saturating_add(more)),
    };
    let start = args.place.offset.unwrap_or(0);
    let zero_from = had.saturating_sub(start).min(device.len());
    // A file system that reaches to the end of a file, but for that of a partition.
    let may_extend = image.is_file() && start.checked_add(device.len()) == Some(had);
    if let Size::Bytes(bytes) = size
        && may_extend
        && bytes > device.len()
    {
        let extended = whole.set_len(start.saturating_add(bytes));
        extended.map_err(|error| device_failure(image, &error))?;
        device = open::part(Arc::clone(&whole) as _, &args.place)?;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let grown = grow(&device, &clock, size, zero_from).map_err(|error| {
        give_back(&whole, &*device, start, had);
        failure(image, &error)
    })?;
    print(args, &grown, out)?;
    Ok(Exit::Success)
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

fn failure(image: &Path, error: &Error) -> Failure {
    let shown = image.display();
    match error {
        Error::FileSystem(error) => Failure::engine(shown, error),
        Error::DeviceTooSmall { .. } => {
            Failure::new(Exit::CouldNot, format_args!("{shown}: {error}")).hint(
                "make the device or the partition larger first; without SIZE all of it is used",
            )
        }
        Error::Device(error) => device_failure(image, error),
        Error::HasErrors => Failure::new(Exit::Damaged, format_args!("{shown}: {error}")),
        _ => Failure::new(Exit::CouldNot, format_args!("{shown}: {error}")),
    }
}

fn print(args: &GrowArgs, grown: &Grown, out: &mut Output) -> Result<(), Failure> {
    let image = bytes(args.place.image.as_os_str());
    let Grown {
        before,
        after,
        block_size,
    } = *grown;
    let in_bytes = |blocks: u64| blocks.saturating_mul(block_size.into());
    if args.json {
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
