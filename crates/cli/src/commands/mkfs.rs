//! `mkfs`: an empty file system, as mke2fs would make it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use uext4_blockdev::partition::{Name, Place, Window};
use uext4_blockdev::{Access, BlockDevice, FileDevice, SubDevice, host};
use uext4_image::{Output as ImageOutput, Size};
use uext4_mkfs::{Layout, Options};
use uext4_ondisk::GroupNr;

use super::Output;
use super::build::{self, FillArgs, Inputs, Target, Verbosity, fill};
use crate::device_failure::device_failure;
use crate::failure::{Exit, Failure};
use crate::format::{Format, FormatArgs, mkfs_failure, size_argument};
use crate::in_disk;
use crate::json::Json;
use crate::messages;
use crate::mke2fs::CompatArgs;
use crate::open;
use crate::overwrite::{may_format, may_replace, warn_of_name};
use crate::show::{size_text, uuid_text};

/// Make an empty file system, with the flags and the choices of mke2fs 1.47
///
/// A file that does not exist is created, sparse, and appears when it is complete. On a terminal
/// the command asks before it overwrites a file system, a partition table or anything else it
/// knows, and with -d anything that is not empty; without a terminal, -d needs -F to overwrite.
/// The root directory belongs to root; -E root_owner makes it yours. With SOURCE_DATE_EPOCH in
/// the environment the same arguments give the same bytes. `uext4 help sizes` explains SIZE.
#[derive(Args, Debug)]
#[command(
    version,
    after_help = "Examples:
  uext4 mkfs disk.img 1G
  uext4 mkfs -E root_owner disk.img 1G
  uext4 mkfs -t ext3 -b 4096 -L backup disk.img 200M
  uext4 mkfs -d ./rootfs -L root disk.img 2G
  uext4 mkfs -O ^has_journal,metadata_csum_seed -E root_owner=1000:1000 disk.img 64M
  SOURCE_DATE_EPOCH=0 uext4 mkfs -U 01234567-89ab-cdef-0123-456789abcdef disk.img 1G"
)]
pub struct MkfsArgs {
    /// Image file or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Size with s, K, M, G or T; without a unit in blocks if -b is given, else in KiB
    #[arg(value_name = "SIZE")]
    size: Option<String>,
    /// Make it in this partition of a disk that is there: by its number, label or UUID
    #[arg(long, value_name = "N|LABEL|UUID")]
    partition: Option<Name>,
    /// With --partition or -E offset: replace what a dm-verity hash tree in another partition
    /// covers, or a partition marked as read-only; the tree, and the mark, are given up
    #[arg(long)]
    drop_verity: bool,
    /// Copy this directory or tar archive into it (- for an archive on standard input)
    #[arg(short = 'd', value_name = "SOURCE", conflicts_with = "dry_run")]
    source: Option<PathBuf>,
    /// Overwrite a file system, a partition table or anything else without asking
    #[arg(short = 'F', long = "force", action = clap::ArgAction::Count)]
    force: u8,
    /// Only print what would be made
    #[arg(short = 'n')]
    dry_run: bool,
    /// Print nothing but errors
    #[arg(short)]
    quiet: bool,
    /// Print what was made as one JSON object
    #[arg(long)]
    json: bool,
    // Last, because its heading is that of all options after it.
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    compat: CompatArgs,
}

/// Makes the file system.
pub fn run(args: &MkfsArgs, out: &mut Output) -> Result<Exit, Failure> {
    warn_of_name(&args.image);
    if let Some(source) = &args.source {
        return filled(args, source, out);
    }
    let mut format = args.format.read()?;
    note(args, &format)?;
    format.options.is_revision_0 = args.compat.is_revision_0();
    if args.compat.keeps_blocks() {
        format.options.extended.discard = false;
    }
    let mut options = format.settle()?;
    options.size = args
        .size
        .as_deref()
        .map(|text| size_argument(text, &options))
        .transpose()?;
    let exists = match fs::metadata(&args.image) {
        Ok(_) => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(Failure::io(args.image.display(), &error)),
    };
    let offset = options.extended.offset;
    let place = in_disk::place(&args.image, args.partition.as_ref(), offset)?;
    let layout = if exists {
        over(args, &options, place.as_ref())?
    } else {
        anew(args, &mut options)?
    };
    if !args.quiet {
        print_layout(args, &layout, out)?;
    }
    Ok(Exit::Success)
}

/// Prints what flags without effect there are, once they are known to be harmless.
fn note(args: &MkfsArgs, format: &Format) -> Result<(), Failure> {
    let notes = args.compat.notes(&args.image)?;
    if !args.quiet {
        notes
            .iter()
            .chain(&format.notes)
            .for_each(messages::warning);
    }
    Ok(())
}

/// With `-d`: in the size given, that of the file there is, or what the source needs.
fn filled(args: &MkfsArgs, source: &Path, out: &mut Output) -> Result<Exit, Failure> {
    let mut format = args.format.read()?;
    note(args, &format)?;
    format.options.is_revision_0 = args.compat.is_revision_0();
    // As mke2fs has it, whatever the size.
    format.reserved = format.reserved.or(Some(format.options.reserved_percent));
    let offset = format.options.extended.offset;
    let place = in_disk::place(&args.image, args.partition.as_ref(), offset)?;
    let rest = || match &place {
        Some(place) => in_disk::rest_of_file(&args.image, place),
        None => {
            let there = fs::metadata(&args.image).ok().filter(fs::Metadata::is_file);
            Ok(there.map(|file| file.len()).filter(|&len| len > 0))
        }
    };
    let size = match &args.size {
        Some(text) => Size::Exact(size_argument(text, &format.options)?),
        None => rest()?.map_or(Size::Auto, Size::Exact),
    };
    if args.force == 0 {
        may_replace(&args.image, place.as_ref())?;
    }
    let verbosity = match args.quiet {
        true => Verbosity::Quiet,
        false => Verbosity::Normal,
    };
    let report = fill(
        Inputs::one(source),
        Target {
            image: &args.image,
            place,
            protection: in_disk::protection(args.drop_verity),
            size,
        },
        &FillArgs::default(),
        None,
        format,
        verbosity,
    )?;
    match args.json {
        true => build::print_json(&args.image, &report, out),
        false => build::print_report(&args.image, &report, verbosity, out),
    }
}

/// A new file, which gets its name when it is complete.
fn anew(args: &MkfsArgs, options: &mut Options) -> Result<Layout, Failure> {
    let Some(size) = options.size else {
        return Err(Failure::new(
            Exit::Usage,
            format_args!(
                "{}: does not exist, and no size is given",
                args.image.display()
            ),
        )
        .hint("add the size: `uext4 mkfs IMAGE 1G`"));
    };
    options.assume_zeroed = true;
    let offset = options.extended.offset;
    let layout = uext4_mkfs::layout(options, size).map_err(|e| mkfs_failure(&e))?;
    if args.dry_run {
        return Ok(layout);
    }
    let failed = |error: &uext4_image::Error| build::failure(&args.image, error);
    let output = ImageOutput::look_at(&args.image).map_err(|e| failed(&e))?;
    let draft = output
        .begin(size.saturating_add(offset))
        .map_err(|e| failed(&e))?;
    let made = SubDevice::from_offset(draft.device(), offset)
        .map_err(uext4_mkfs::Error::from)
        .and_then(|device| uext4_mkfs::format(&layout, &device));
    made.map_err(|error| mkfs_failure(&error))?;
    draft.finish().map_err(|e| failed(&e))?;
    Ok(layout)
}

/// Over what is there: a block device, a part of a disk, or a file whose size counts if none is
/// given.
fn over(args: &MkfsArgs, options: &Options, place: Option<&Place>) -> Result<Layout, Failure> {
    let failed = |error: uext4_blockdev::Error| mkfs_failure(&error.into());
    let device = match args.dry_run {
        true => FileDevice::open(&args.image, Access::ReadOnly).map_err(failed)?,
        false => open::writable(&args.image)?,
    };
    let device = Arc::new(device);
    let window = match place {
        Some(place) => {
            Window::find(&*device, place).map_err(|e| device_failure(&args.image, &e))?
        }
        None => Window::whole(),
    };
    let kind = fs::metadata(&args.image).map_err(|e| Failure::io(args.image.display(), &e))?;
    let available = window.len_on(&*device);
    let size = options.size.unwrap_or(available);
    let may_grow = !kind.file_type().is_block_device() && window.end.is_none();
    if size > available && place.is_some() && !may_grow {
        return Err(in_disk::too_small(&args.image, &window, size, available));
    }
    let grows = may_grow && size > available;
    let layout = uext4_mkfs::layout(options, if grows { size } else { available })
        .map_err(|e| mkfs_failure(&e))?;
    let disk = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let (len, protection) = (layout.len_bytes(), in_disk::protection(args.drop_verity));
    let guards = in_disk::may_take(&disk, &window, options.size, len, protection)
        .map_err(|e| device_failure(&args.image, &e))?;
    if options.size.is_none() && !args.quiet {
        in_disk::warn_of_missing(&args.image, window.missing_on(&*device));
    }
    if args.dry_run {
        return Ok(layout);
    }
    if args.force == 0 && available > 0 {
        let place = window.open(Arc::clone(&device) as _).map_err(failed)?;
        let place: Arc<dyn BlockDevice> = Arc::new(place);
        may_format(&args.image, &place)?;
    }
    let had = device.len();
    if grows {
        device
            .set_len(size.saturating_add(window.start))
            .map_err(failed)?;
    }
    for guard in &guards {
        guard.lift(&*device).map_err(failed)?;
    }
    in_disk::warn_of_given_up(&guards);
    let window = match options.size {
        Some(size) if window.hidden.is_some() => window.within(size),
        _ => window,
    };
    let part = window.open(disk).map_err(failed)?;
    let formatted = uext4_mkfs::format(&layout, &part);
    if formatted.is_err() && grows {
        // The error that is reported is the one that matters.
        _ = device.set_len(had);
    }
    formatted.map_err(|e| mkfs_failure(&e))?;
    part.flush().map_err(failed)?;
    Ok(layout)
}

fn print_layout(args: &MkfsArgs, layout: &Layout, out: &mut Output) -> Result<(), Failure> {
    let (sb, geometry) = (&layout.superblock, &layout.geometry);
    let backups: Vec<u64> = (1..geometry.groups_count.get())
        .map(GroupNr)
        .filter(|&group| geometry.has_super(group))
        .map(|group| geometry.group_start(group).0)
        .collect();
    if args.json {
        let mut json = Json::new();
        json.open_object();
        json.key("image").text(super::bytes(args.image.as_os_str()));
        json.key("uuid").string(&uuid_text(&sb.s_uuid));
        json.key("size").number(geometry.len_bytes());
        json.key("block_size").number(geometry.block_size.bytes());
        json.key("blocks").number(geometry.blocks_count);
        json.key("free_blocks").number(layout.free_blocks());
        json.key("inodes").number(geometry.inodes_count);
        json.key("groups").number(geometry.groups_count.get());
        json.key("backups").open_array();
        backups.iter().for_each(|&block| json.number(block));
        json.close_array();
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
        return Ok(());
    }
    let verb = if args.dry_run { "would make" } else { "made" };
    writeln!(
        out,
        "{verb} {}: {} in {} blocks of {} bytes, {} inodes, {} groups",
        args.image.display(),
        size_text(geometry.len_bytes()),
        geometry.blocks_count,
        geometry.block_size,
        geometry.inodes_count,
        geometry.groups_count
    )?;
    writeln!(out, "UUID {}", uuid_text(&sb.s_uuid))?;
    if !backups.is_empty() {
        let list: Vec<String> = backups.iter().map(u64::to_string).collect();
        writeln!(
            out,
            "backups of the superblock in blocks {}",
            list.join(", ")
        )?;
    }
    let is_root = host::effective_user() == 0;
    if !is_root && !args.format.has_root_owner() {
        writeln!(
            out,
            "the root directory belongs to root: `-E root_owner` makes it yours, or mount with \
             `-o fakeroot`"
        )?;
    }
    Ok(())
}
