//! `clone`: a copy of an image with a UUID of its own.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use uext4::{OpenOptions, Volume};
use uext4_blockdev::{Access, BlockDevice, FileDevice, SystemClock};
use uext4_mkfs::{Error, change_uuid, parse_uuid};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};

use super::{Output, bytes, change};
use crate::args::PlaceArgs;
use crate::device_failure::device_failure;
use crate::failure::{Exit, Failure};
use crate::format::random_uuid;
use crate::image_copy::Copy;
use crate::json::Json;
use crate::overwrite::{may_replace, warn_of_name};
use crate::progress::Copying;
use crate::show::{escaped, uuid_text};
use crate::{cut_repair, interrupt, open, still};

/// Copy an image, and give the copy a UUID of its own
///
/// The copy shares the blocks of the image where the file system of this machine can (Btrfs, XFS),
/// and has holes for zeroes elsewhere. It appears under its name when it is complete. mount(8) and
/// udev cannot distinguish two file systems of one UUID, so the copy gets another, in all copies
/// of its superblock: with metadata_csum, the feature metadata_csum_seed is added, so that
/// checksums stay as they are; a journal that needs recovery is replayed in the copy first, and a
/// repair that was cut off is finished there. With --keep-uuid the copy is equal byte for byte, as
/// one with a dm-verity tree must be.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 clone golden.img vm1.img
  uext4 clone --keep-uuid disk.img backup.img
  uext4 clone --partition 2 disk.img other-disk.img --json")]
pub struct CloneArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Name of the copy
    #[arg(value_name = "COPY")]
    to: PathBuf,
    /// Change nothing in the copy
    #[arg(long, conflicts_with = "uuid")]
    keep_uuid: bool,
    /// Give the copy this UUID in place of a random one
    #[arg(short = 'U', long, value_name = "UUID")]
    #[arg(value_parser = |text: &str| parse_uuid("-U", text).map_err(|error| error.to_string()))]
    uuid: Option<[u8; 16]>,
    /// Replace an existing file without asking, unless it is in use
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The UUIDs of an image and its copy.
struct Uuids {
    old: [u8; 16],
    new: [u8; 16],
    adds_seed: bool,
}

/// Makes the copy.
pub fn run(args: &CloneArgs, out: &mut Output) -> Result<Exit, Failure> {
    // Open until the copy is whole, so that no other program writes to it.
    let source = open::to_copy(&args.place)?;
    let image = &source.place.image;
    still::must_not_be_mounted(image)?;
    warn_of_name(&args.to);
    let replaced = replaced(image, &args.to, args.force)?;
    let progress = Copying::new(source.len);
    let _deferred = interrupt::defer();
    let snapshot = source.snapshot.as_deref();
    let copy = Copy::of(image, snapshot, &args.to, |at| {
        progress.show(at);
        interrupt::stop_if_requested()
    })?;
    drop(progress);
    let uuids = match args.keep_uuid {
        false => args.change(&copy, &source.place)?,
        true => {
            let uuid = superblock(&*source.device, image)?.s_uuid;
            Uuids {
                old: uuid,
                new: uuid,
                adds_seed: false,
            }
        }
    };
    match replaced {
        Some(_) => copy.replace()?,
        None => copy.finish()?,
    }
    args.report(&uuids, out)?;
    Ok(Exit::Success)
}

/// Makes sure that a file of the copy's name may be replaced, and locks it; `None` without one.
fn replaced(image: &Path, to: &Path, force: bool) -> Result<Option<FileDevice>, Failure> {
    let Ok(found) = fs::metadata(to) else {
        return Ok(None);
    };
    let refused = |why| Failure::new(Exit::CouldNot, format_args!("{}: {why}", to.display()));
    let same = |path| fs::canonicalize(path).ok();
    if same(image) == same(to) {
        return Err(refused("is the image itself"));
    }
    if !found.is_file() {
        return Err(refused("is not a file; a copy of an image is a new file"));
    }
    if !force {
        may_replace(to, None)?;
    }
    let locked = FileDevice::open(to, Access::ReadOnly).and_then(|file| {
        file.claim()?;
        Ok(file)
    });
    locked.map(Some).map_err(|error| device_failure(to, &error))
}

fn superblock(device: &dyn BlockDevice, image: &Path) -> Result<SuperBlock, Failure> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    let read = device.read_at(SUPERBLOCK_OFFSET, &mut bytes);
    read.map_err(|error| device_failure(image, &error))?;
    SuperBlock::parse(&bytes).map_err(|damage| {
        let what = format_args!("{}: {damage}", image.display());
        let failure = Failure::new(Exit::Damaged, what);
        failure.hint("repair it first: `uext4 repair IMAGE`")
    })
}

fn unchanged(failure: Failure) -> Failure {
    failure.hint("the copy could not get a UUID of its own; `--keep-uuid` copies it as it is")
}

impl CloneArgs {
    /// Gives the copy its UUID.
    fn change(&self, copy: &Copy, place: &PlaceArgs) -> Result<Uuids, Failure> {
        let image = &place.image;
        let uuid = self.uuid.map_or_else(random_uuid, Ok)?;
        let part = || open::part_to_write(Arc::new(copy.device()?), place).map_err(unchanged);
        let needs_recovery = |superblock: SuperBlock| {
            let incompat = superblock.features().incompat;
            incompat.contains(Incompat::RECOVER)
        };
        let found = part()?;
        let waits = cut_repair::is_on(&*found) || needs_recovery(superblock(&*found, image)?);
        drop(found);
        if waits {
            let options = OpenOptions::default();
            let opened = Volume::open(part()?, Arc::new(SystemClock), &options);
            let replayed = opened
                .map_err(|error| Failure::engine(image.display(), &error))
                .and_then(|volume| change::close(&volume, image, Ok(())));
            replayed.map_err(unchanged)?;
        }
        let changed = change_uuid(&*part()?, uuid).map_err(|error| {
            let exit = match error {
                Error::Damaged(_) => Exit::Damaged,
                _ => Exit::CouldNot,
            };
            unchanged(Failure::new(
                exit,
                format_args!("{}: {error}", image.display()),
            ))
        })?;
        Ok(Uuids {
            old: changed.old,
            new: uuid,
            adds_seed: changed.adds_seed,
        })
    }

    fn report(&self, uuids: &Uuids, out: &mut Output) -> Result<(), Failure> {
        let to = bytes(self.to.as_os_str());
        if self.json {
            let mut json = Json::new();
            json.open_object();
            json.key("image").text(bytes(self.place.image.as_os_str()));
            json.key("copy").text(to);
            json.key("old_uuid").string(&uuid_text(&uuids.old));
            json.key("uuid").string(&uuid_text(&uuids.new));
            json.key("adds_metadata_csum_seed").value(uuids.adds_seed);
            json.close_object();
            json.end_line();
            return Ok(out.write_all(json.as_bytes())?);
        }
        let seed = match uuids.adds_seed {
            true => ", with metadata_csum_seed",
            false => "",
        };
        let uuid = uuid_text(&uuids.new);
        Ok(writeln!(out, "made {}: UUID {uuid}{seed}", escaped(to))?)
    }
}
