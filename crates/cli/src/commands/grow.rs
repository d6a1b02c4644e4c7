//! `grow`: makes a file system larger.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use uext4_blockdev::partition::{self, EditError, Name, Partition, TableKind, Window};
use uext4_blockdev::{BlockDevice, Clock, FileDevice};
use uext4_remote::RemoteTree;
use uext4_remote::client::Client;
use uext4_remote::refusal::{Cause, Refusal};
use uext4_remote::wire::Growth;
use uext4_resize::{Error, Examination, Resized, Size, grow, must_be_sound};

use super::{Output, bytes};
use crate::args::{PlaceArgs, parse_size};
use crate::cut_repair;
use crate::device_failure::device_failure;
use crate::examination::{self, Watching};
use crate::failure::{Exit, Failure};
use crate::file_limit;
use crate::in_disk::warn_of_old_table;
use crate::json::Json;
use crate::mounted::{self, Mount};
use crate::part::{self, holds_ext, len_of};
use crate::said_waits::SaidWaits;
use crate::show::{escaped, size_text};
use crate::{interrupt, open};

/// Make a file system larger
///
/// The image file grows with the file system; a block device or a partition must have the room
/// already. One transaction of the journal makes the new blocks a part of the file system: whatever
/// interrupts it, the file system has the old size or the new one, and is clean. The file system is
/// examined first, as by `uext4 check`.
///
/// An image that a mount has is given itself, or by a directory of the mount: it grows while it is
/// in use, by the mount's daemon.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 grow disk.img 30G        to 30 GiB
  uext4 grow disk.img +10G       by 10 GiB
  uext4 grow /dev/vdb1           to all that the device has
  uext4 grow ~/mnt +10G          what is mounted there, and its image, by 10 GiB
  uext4 grow --with-partition vm.raw 30G
                                 the last partition of the disk, and the disk, too")]
pub struct GrowArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Make the partition larger, too: the last one of the disk, a primary one if it has an MBR
    #[arg(long, conflicts_with = "offset")]
    with_partition: bool,
    /// Size of the file system, +SIZE to add so much, or max: all that the image has
    #[arg(value_name = "SIZE", value_parser = parse_wanted, default_value = "max")]
    #[arg(hide_default_value = true)]
    size: Size,
    /// Do not examine the file system first
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_wanted(text: &str) -> Result<Size, String> {
    Ok(match (text, text.strip_prefix('+')) {
        ("max", _) => Size::Device,
        (_, Some(more)) => Size::More(parse_size(more)?),
        _ => Size::Bytes(parse_size(text)?),
    })
}

/// Grows the file system, and the file that it is in: here, or by the daemon of the mount that has
/// it.
pub fn run(args: &GrowArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.place.image;
    let (grown, more) = match mounted::to_change(&args.place)? {
        Some((mount, client)) => (by_daemon(args, &mount, client)?, None),
        None => here(args)?,
    };
    print(image, args.json, &grown, out)?;
    if let Some(more) = more.filter(|_| !args.json) {
        writeln!(out, "{more}")?;
    }
    Ok(Exit::Success)
}

/// Asks the daemon at the other end of `client`.
fn by_daemon(args: &GrowArgs, mount: &Mount, client: Client) -> Result<Resized, Failure> {
    let image = &args.place.image;
    if args.with_partition {
        let (shown, place) = (image.display(), mount.place.display());
        let what = format_args!(
            "--with-partition: {shown} is mounted at {place}, and the partition table of a disk in \
             use is not changed"
        );
        return Err(Failure::new(Exit::CouldNot, what).hint(format!(
            "`uext4 umount {place}` first; where the partition is a device of its own, make it larger \
             with another program, and then run `uext4 grow {place}`"
        )));
    }
    let growth = match args.size {
        Size::Bytes(bytes) => Growth::To(bytes),
        Size::More(more) => Growth::By(more),
        Size::Device => Growth::Device,
    };
    let answer = RemoteTree::new(client, &mount.prefix).grow(growth);
    let answer = answer.map_err(|error| Failure::engine(image.display(), &error))?;
    let grown = answer.map_err(|refusal| refused(image, refusal))?;
    Ok(Resized {
        before: grown.before,
        after: grown.after,
        block_size: grown.block_size,
    })
}

/// What grows, and how far.
struct Growing {
    device: Arc<dyn BlockDevice>,
    size: Size,
}

/// Grows what no mount has. Returns also the sentence about room that only the partition may take.
fn here(args: &GrowArgs) -> Result<(Resized, Option<String>), Failure> {
    file_limit::is_an_error();
    let image = &args.place.image;
    let whole = Arc::new(open::writable(image)?);
    let mut partition = None;
    let Growing { device, size } = match args.with_partition {
        true => with_partition(args, &whole)?,
        false => {
            let disk: Arc<dyn BlockDevice> = whole.clone();
            let window = part::window(&disk, &args.place)?;
            if args.size == Size::Device {
                let known = window.must_be_known();
                known.map_err(|error| device_failure(image, &error))?;
            }
            partition = window.partition;
            Growing {
                device: open::part_to_write(disk, &args.place)?,
                size: args.size,
            }
        }
    };
    open::must_hold_ext(image, &device)?;
    let clock: Arc<dyn Clock> = Arc::new(SaidWaits);
    // What the device gets for it, and nothing else, is known to be zeroes.
    let zero_from = device.len();
    let deferred = interrupt::defer();
    let watching = Watching::progress();
    let examination = match args.force {
        true => Examination::Skipped,
        false => Examination::First(&watching),
    };
    let cut = cut_repair::to_finish(&*device);
    let grown = grow(&device, &clock, size, zero_from, examination);
    drop((watching, deferred));
    cut_repair::finished(image, cut.filter(|_| grown.is_ok()));
    match grown {
        Ok(grown) => {
            let more = partition.filter(|_| size == Size::Device);
            Ok((grown, more.and_then(|own| room_behind(&whole, &own))))
        }
        Err(error @ Error::DeviceTooSmall { .. }) if partition.is_some() => {
            Err(failure(image, &error).hint(WITH_PARTITION))
        }
        Err(error) => Err(failure(image, &error)),
    }
}

/// What to do where a partition ends too early.
const WITH_PARTITION: &str =
    "`--with-partition` makes the partition larger, too, if no other one follows it";

/// Less than so much is not worth a sentence.
const ROOM_MIN: u64 = 1 << 20;

/// The sentence about room behind a partition that it could have. The table is not changed unless
/// that is asked for.
fn room_behind(disk: &FileDevice, own: &Partition) -> Option<String> {
    let end = own.start.checked_add(own.len)?;
    let table = partition::read(disk).ok()?;
    let is_last = table
        .partitions
        .iter()
        .all(|other| other.start <= own.start);
    let is_primary = own.table == TableKind::Gpt || own.number <= 4;
    let room = disk
        .len()
        .checked_sub(partition::disk_len(own.table, end))?;
    (is_last && is_primary && room >= ROOM_MIN).then(|| {
        format!(
            "partition {} ends here, and the disk has {} more: `--with-partition` makes it larger, \
             too",
            own.number,
            size_text(room)
        )
    })
}

/// The file system in the last partition, which becomes longer, as does the file.
fn with_partition(args: &GrowArgs, whole: &Arc<FileDevice>) -> Result<Growing, Failure> {
    let image = &args.place.image;
    let failed = |error| device_failure(image, &error);
    let disk: Arc<dyn BlockDevice> = whole.clone();
    let Chosen { partition, next } = chosen(args, &disk)?;
    let number = partition.number;
    let place = PlaceArgs {
        partition: Some(Name::Number(number)),
        ..args.place.clone()
    };
    let table_failed = |error| {
        let what = format_args!("{}: {error}", image.display());
        Failure::new(Exit::CouldNot, what)
    };
    let of_partition = |failure: Failure| failure.about(format_args!("partition {number}"));
    // Before anything that protects it is given up.
    let found = Window::of(partition.clone()).open(disk).map_err(failed)?;
    let found: Arc<dyn BlockDevice> = Arc::new(found);
    open::must_hold_ext(image, &found).map_err(of_partition)?;
    if let Some(next) = next {
        return Err(table_failed(EditError::NotLast { number, next }));
    }
    // Before the file becomes longer, and the file system is examined.
    partition::can_extend(&**whole, &partition).map_err(table_failed)?;
    let device = open::part_to_write(Arc::clone(whole) as _, &place).map_err(of_partition)?;
    if !args.force {
        // Before the table of partitions is changed, too.
        let deferred = interrupt::defer();
        let sound = must_be_sound(&device, &Watching::progress());
        drop(deferred);
        sound.map_err(|error| failure(image, &error))?;
    }
    let size = match args.size {
        // The partition is to end where the file system will.
        Size::More(more) => Size::Bytes(len_of(&*device).unwrap_or(0).saturating_add(more)),
        size => size,
    };
    let had = whole.len();
    let end = match size {
        Size::Bytes(bytes) => Some(partition.start.saturating_add(bytes)),
        _ => None,
    };
    if let Some(need) = end.map(|end| partition::disk_len(partition.table, end))
        && need > had
        && image.is_file()
    {
        whole.set_len(need).map_err(failed)?;
    }
    if let Err(error) = partition::extend(&**whole, &partition, end) {
        // The error that is reported is the one that matters.
        _ = whole.set_len(had);
        return Err(table_failed(error));
    }
    warn_of_old_table(image, number);
    let device = open::part_to_write(Arc::clone(whole) as _, &place)?;
    Ok(Growing { device, size })
}

/// A partition that is to grow.
struct Chosen {
    partition: Partition,
    /// The first of those that begin behind it.
    next: Option<u32>,
}

/// The partition that is asked for, or of those with an ext file system the one that begins last.
fn chosen(args: &GrowArgs, disk: &Arc<dyn BlockDevice>) -> Result<Chosen, Failure> {
    let image = &args.place.image;
    let failed = |error| device_failure(image, &error);
    let table = partition::scan(&**disk).map_err(failed)?;
    let holds_ext = |found: &&Partition| {
        let opened = found.open(Arc::clone(disk));
        opened.is_ok_and(|part| holds_ext(&part))
    };
    let last = || {
        let with_ext = table
            .iter()
            .filter(holds_ext)
            .max_by_key(|found| found.start);
        with_ext.or_else(|| table.iter().max_by_key(|found| found.start))
    };
    let found = match &args.place.partition {
        Some(name) => Some(name.among(&table).map_err(failed)?),
        None => last().cloned(),
    };
    let Some(partition) = found else {
        let what = format_args!("{}: has no partition", image.display());
        let failure = Failure::new(Exit::CouldNot, what);
        return Err(failure.hint("without --with-partition the image itself grows"));
    };
    let behind = table.iter().filter(|other| other.start > partition.start);
    let next = behind.min_by_key(|other| other.start);
    Ok(Chosen {
        next: next.map(|next| next.number),
        partition,
    })
}

/// What an error is called, of a file system that this process has open.
pub fn failure(image: &Path, error: &Error) -> Failure {
    let shown = image.display();
    match error {
        Error::FileSystem(error) => Failure::engine(shown, error),
        Error::DeviceTooSmall { .. } => too_small(image, error),
        Error::Device(error) => device_failure(image, error),
        Error::Unsound { .. } => Failure::new(Exit::Damaged, format_args!("{shown}: {error}")),
        Error::Damaged { .. } => {
            let failure = Failure::new(Exit::Damaged, format_args!("{shown}: {error}"));
            failure.hint("run `uext4 repair IMAGE` first; -f does not examine it")
        }
        Error::Examination(error) => examination::failure(shown, error),
        Error::Stopped => Failure::new(Exit::Interrupted, format_args!("{shown}: {error}")),
        _ => Failure::new(Exit::CouldNot, format_args!("{shown}: {error}")),
    }
}

/// The same of one that a daemon has open.
fn refused(image: &Path, refusal: Refusal) -> Failure {
    let (shown, said) = (image.display(), &refusal.message);
    match refusal.cause {
        Cause::DeviceTooSmall => too_small(image, said),
        Cause::Unsound => Failure::new(Exit::Damaged, format_args!("{shown}: {said}")),
        _ => Failure::engine(shown, &refusal.into()),
    }
}

fn too_small(image: &Path, said: impl Display) -> Failure {
    let what = format_args!("{}: {said}", image.display());
    Failure::new(Exit::CouldNot, what)
        .hint("make the device or the partition larger first; without SIZE all of it is used")
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
