//! Opening the file system that the image options point at.

use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use uext4::rescue::{Rescue, SuperblockCopy};
use uext4::{Image, OpenOptions, Volume};
use uext4_blockdev::{
    Access, BlockDevice, Error as BlockError, FileDevice, Origin, SystemClock, attached,
};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::superblock::{STATE_ERROR, SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Damage};
use uext4_remote::snapshot::Disk;
use uext4_remote::{RemoteTree, Tree};

use crate::args::{ImageArgs, PlaceArgs, WriteArgs};
use crate::cut_repair;
use crate::device_failure::device_failure;
use crate::ending::{after_ending, wait_for_others};
use crate::failure::{Exit, Failure, MAKE_WRITABLE};
use crate::identify;
use crate::kernel_mount;
use crate::memory;
use crate::messages;
use crate::mounted::{self, Door};
use crate::part::partition_number;
pub use crate::part::{holds_ext, part, part_to_write};
use crate::still::{Still, locked};
use crate::trace;

/// What is copied.
pub struct Source {
    /// The device of the file system.
    pub device: Arc<dyn BlockDevice>,
    /// The image as it is copied, where a mount writes it.
    pub snapshot: Option<Arc<dyn BlockDevice>>,
    /// Bytes of the image.
    pub len: u64,
    /// The image, and where in it the file system is.
    pub place: PlaceArgs,
}

/// What a mount writes.
pub struct ToServe {
    /// The file system.
    pub fs: Volume,
    /// What commands read snapshots of.
    pub disk: Option<Disk>,
    /// The image, if its length can be set.
    pub resizable: Option<RawFd>,
}

/// Opens the file system for reading: where a mount of ours has it, as it is now.
///
/// # Errors
/// Exit 8 if the image cannot be opened, 4 if the file system in it is damaged.
pub fn open(args: &ImageArgs) -> Result<Image, Failure> {
    let mut options = OpenOptions::default();
    options.memory = Some(memory::of_reader());
    options.replay_journal = !args.no_replay;
    options.superblock = args.superblock;
    open_still(Still::open(&args.place)?, &options)
}

/// Opens for reading what another process serves, as it is now.
///
/// # Errors
/// As [`open`].
pub fn open_served(fs: &RemoteTree, image: &Path) -> Result<Image, Failure> {
    let mut options = OpenOptions::default();
    options.memory = Some(memory::of_reader());
    let still = Still::served(fs.client(), image, fs.prefix().to_vec())?;
    open_still(still, &options)
}

fn open_still(still: Still, options: &OpenOptions) -> Result<Image, Failure> {
    let fs = open_whole(still.whole, &still.place, options)?;
    Ok(match still.dir {
        Some(dir) => fs.below(&dir),
        None => fs,
    })
}

/// Opens the file system of an image that no mount has for writing, with all options.
///
/// # Errors
/// As [`open`].
pub fn open_to_read(place: &PlaceArgs, options: &OpenOptions) -> Result<Image, Failure> {
    let whole = locked(&place.image).map_err(|error| device_failure(&place.image, &error))?;
    open_whole(Arc::new(whole), place, options)
}

/// Opens the file system in a whole image.
fn open_whole(
    whole: Arc<dyn BlockDevice>,
    place: &PlaceArgs,
    options: &OpenOptions,
) -> Result<Image, Failure> {
    let image = &place.image;
    let device = if options.superblock.is_some() && place.is_found() && holds_ext(&*whole) {
        whole
    } else {
        part(whole, place)?
    };
    // A sound superblock says enough: nothing else is read.
    if options.superblock.is_none()
        && !holds_ext(&*device)
        && !identify::lost_its_superblock(&*device)
    {
        return Err(identify::not_ext(image, &device));
    }
    let opened = kernel_mount::opened(|| Image::open(Arc::clone(&device), options));
    if let Ok(fs) = &opened
        && let Some(sequence) = fs.replayed().and_then(|r| r.failed_commit)
    {
        messages::warning(format_args!(
            "{}: the journal's transaction {sequence} is damaged: shown is the state before it",
            image.display()
        ));
    }
    if let Ok(fs) = &opened {
        warn_of(image, fs.rescue());
        cut_repair::seen(image, fs.rescue().cut_repair);
    }
    opened.map_err(|error| {
        let failure = Failure::engine(place.image.display(), &error);
        match error {
            uext4::Error::Corrupt(_) if kernel_mount::explains_damage() => failure,
            uext4::Error::Corrupt(_) if options.superblock.is_none() => failure
                .hint("no backup was found either; `--superblock N` takes one that lies elsewhere"),
            _ => failure,
        }
    })
}

/// The device of a file system to be examined: opened to read, or claimed if it is to be written.
/// It may be damaged beyond what [`open`] accepts; what is certainly something else is refused.
///
/// # Errors
/// Exit 8 if the image cannot be opened, is in use, or holds something else.
pub fn to_examine(args: &ImageArgs, access: Access) -> Result<Arc<dyn BlockDevice>, Failure> {
    let device = device(args, access)?;
    if args.superblock.is_none() && !holds_ext(&*device) && !identify::lost_its_superblock(&*device)
    {
        return Err(identify::not_ext(&args.place.image, &device));
    }
    Ok(device)
}

/// The same where the superblock and all backups may be lost: only what has the name of something
/// else is refused.
///
/// # Errors
/// As [`to_examine`].
pub fn to_salvage(args: &ImageArgs, access: Access) -> Result<Arc<dyn BlockDevice>, Failure> {
    let device = device(args, access)?;
    if args.superblock.is_none() && !may_hold_ext(&*device) {
        return Err(identify::not_ext(&args.place.image, &device));
    }
    Ok(device)
}

/// True if the device holds an ext superblock, or nothing that is known by its name.
pub fn may_hold_ext(device: &dyn BlockDevice) -> bool {
    holds_ext(device) || !identify::holds_another(device)
}

/// The part of the image that the options name.
fn device(args: &ImageArgs, access: Access) -> Result<Arc<dyn BlockDevice>, Failure> {
    let (whole, place) = match access {
        Access::ReadWrite => {
            let whole: Arc<dyn BlockDevice> = Arc::new(writable(&args.place.image)?);
            (whole, args.place.clone())
        }
        Access::ReadOnly => {
            let Still { whole, place, .. } = Still::open(&args.place)?;
            (whole, place)
        }
    };
    match (
        args.superblock.is_some() && place.is_found() && holds_ext(&*whole),
        access,
    ) {
        (true, _) => Ok(whole),
        (false, Access::ReadOnly) => part(whole, &place),
        (false, Access::ReadWrite) => part_to_write(whole, &place),
    }
}

/// The image, and the file system in it, for a copy of both.
///
/// # Errors
/// As [`to_examine`].
pub fn to_copy(place: &PlaceArgs) -> Result<Source, Failure> {
    let still = Still::open(place)?;
    let device = part(Arc::clone(&still.whole), &still.place)?;
    must_hold_ext(&place.image, &device)?;
    Ok(Source {
        device,
        len: still.whole.len(),
        snapshot: still.is_snapshot.then_some(still.whole),
        place: still.place,
    })
}

/// For copies that are made of the image itself, not of what was opened.
///
/// # Errors
/// Exit 8 if a mount of ours may write it.
pub fn must_not_be_served(place: &PlaceArgs) -> Result<(), Failure> {
    match mounted::find(place)? {
        Some(Door::Open(mount, _)) => {
            let (image, dir) = (place.image.display(), mount.place.display());
            let what = format_args!("{image}: is mounted at {dir}, and a copy of it would be torn");
            let hint = "`uext4 clone` makes a copy that can be repaired";
            Err(Failure::new(Exit::CouldNot, what).hint(hint))
        }
        _ => Ok(()),
    }
}

/// The device whose old contents are put back: claimed, whatever it holds by now.
///
/// # Errors
/// Exit 8 if the image cannot be opened or is in use.
pub fn to_restore(place: &PlaceArgs) -> Result<Arc<dyn BlockDevice>, Failure> {
    part_to_write(Arc::new(writable(&place.image)?), place)
}

/// Whether the last writer closed the file system in an image, and no errors are noted in it.
/// `None` if that is not known: it is not found without options, or may not be read.
pub fn was_left_clean(image: &Path) -> Option<bool> {
    let whole = FileDevice::open(image, Access::ReadOnly).ok()?;
    let place = PlaceArgs::of(image.to_owned());
    let device = part(Arc::new(whole), &place).ok()?;
    let mut bytes = [0; size_of::<SuperBlock>()];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let superblock = SuperBlock::parse(&bytes).ok()?;
    let in_use = superblock.features().incompat.contains(Incompat::RECOVER);
    Some(!in_use && superblock.was_left_clean())
}

/// Says on standard error what of a file system is missing, and what stands in for it.
fn warn_of(image: &Path, rescue: &Rescue) {
    let image = image.display();
    if let Some(lost) = &rescue.superblock {
        let copy = match lost.copy {
            SuperblockCopy::Journal => "its copy in the journal is used".to_owned(),
            SuperblockCopy::Backup(block) => format!("the backup in block {block} is used"),
            SuperblockCopy::FirstSector(block) => {
                format!("its first sector and the backup in block {block} are used")
            }
        };
        let why = &lost.why;
        messages::warning(format_args!(
            "{image}: the superblock cannot be used as it is ({why}): {copy}"
        ));
    }
    if let Some(cut) = rescue.cut_off {
        messages::warning(format_args!(
            "{image}: the image is cut off: the file system has {} bytes, {} are there; what lies \
             beyond cannot be read",
            cut.need, cut.have
        ));
    }
    if rescue.journal_is_missing {
        messages::warning(format_args!(
            "{image}: the journal lies beyond the end: shown is the state without it, which may be \
             inconsistent"
        ));
    }
}

/// The image to be written, claimed: no other program has it.
///
/// # Errors
/// Exit 8 if it cannot be opened or is in use.
pub fn writable(image: &Path) -> Result<FileDevice, Failure> {
    let whole = after_ending(image, || {
        let whole = FileDevice::open(image, Access::ReadWrite)?;
        whole.claim()?;
        Ok(whole)
    });
    whole.map_err(|error| match error {
        BlockError::Open { ref source, .. } if source.kind() == PermissionDenied => {
            let failure = device_failure(image, &error);
            failure.hint(who_may(image)).with_exit(Exit::Denied)
        }
        BlockError::Open { ref source, .. } if source.kind() == ReadOnlyFilesystem => {
            device_failure(image, &error).hint(MAKE_WRITABLE)
        }
        _ => device_failure(image, &error),
    })
}

/// What to do where the caller may not write an image.
fn who_may(image: &Path) -> String {
    let user = rustix::process::geteuid();
    match std::fs::metadata(image) {
        Ok(found) if !user.is_root() && found.uid() != user.as_raw() => format!(
            "it belongs to user {}, who can make it writable, or do this; or only read it \
             (`mount -o ro`)",
            found.uid()
        ),
        _ => MAKE_WRITABLE.to_owned(),
    }
}

/// For readers that rely on an image that no other program changes.
///
/// # Errors
/// Exit 8 if it is a loop device's that may be written.
pub fn must_stay_as_it_is(image: &Path) -> Result<(), Failure> {
    match attached::writing_loop_device(image) {
        Some(device) => Err(device_failure(
            image,
            &BlockError::Attached {
                path: image.to_owned(),
                mounted: attached::place_of(&device).map(|(dir, _)| dir),
                device,
            },
        )),
        None => Ok(()),
    }
}

/// Opens what is to be changed: here, or through the daemon of the mount that has it.
///
/// # Errors
/// As [`open_rw`]; exit 13 if the mount belongs to another user; exit 2 for options that are the
/// mount's.
pub fn open_tree(args: &WriteArgs) -> Result<Tree, Failure> {
    wait_for_others(args.wait.unwrap_or(0));
    let Some((mount, client)) = mounted::to_change(&args.place)? else {
        return open_rw(args).map(Tree::Local);
    };
    if !args.options.is_empty() {
        let what = format_args!(
            "--options: {} is mounted at {}, and its options are those of the mount",
            args.place.image.display(),
            mount.place.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    Ok(Tree::Remote(RemoteTree::new(client, &mount.prefix)))
}

/// Opens the file system for reading and writing, exclusively: its journal is replayed. The
/// caller closes it.
///
/// # Errors
/// Exit 2 if there is no such option, 8 if the image cannot be opened or is in use, 4 if the file
/// system in it is damaged.
pub fn open_rw(args: &WriteArgs) -> Result<Volume, Failure> {
    trace::start(&args.trace);
    let mut options = OpenOptions::default();
    options.memory = Some(memory::of_writer());
    for list in &args.options {
        let set = options.options(list);
        set.map_err(|error| Failure::new(Exit::Usage, format_args!("--options: {error}")))?;
    }
    open_to_write(&args.place, &options)
}

/// The same with all options.
///
/// # Errors
/// As [`open_rw`].
pub fn open_to_write(place: &PlaceArgs, options: &OpenOptions) -> Result<Volume, Failure> {
    open_claimed(Arc::new(writable(&place.image)?), place, options)
}

/// The same for a mount, which others read snapshots of.
///
/// # Errors
/// As [`open_rw`].
pub fn open_to_serve(place: &PlaceArgs, options: &OpenOptions) -> Result<ToServe, Failure> {
    let whole = writable(&place.image)?;
    let (reader, resizable) = (whole.reader(), whole.resizable());
    let origin = Arc::new(Origin::new(Arc::new(whole)));
    let fs = open_claimed(origin.clone(), place, options)?;
    let number = partition_number(place);
    let disk = reader.map(|image| Disk {
        origin,
        image,
        offset: place.offset,
        partition: number,
    });
    Ok(ToServe {
        fs,
        disk,
        resizable,
    })
}

fn open_claimed(
    whole: Arc<dyn BlockDevice>,
    place: &PlaceArgs,
    options: &OpenOptions,
) -> Result<Volume, Failure> {
    let device = part_to_write(whole, place)?;
    must_hold_ext(&place.image, &device)?;
    let opened = Volume::open(device, Arc::new(SystemClock), options);
    if let Ok(fs) = &opened {
        warn_of(&place.image, fs.rescue());
        cut_repair::finished(&place.image, fs.rescue().cut_repair);
        if fs.superblock().s_state.get() & STATE_ERROR != 0 {
            messages::warning(format_args!(
                "{}: errors are recorded in the file system: unmount it soon, and repair it with \
                 `uext4 repair IMAGE`",
                place.image.display()
            ));
        }
    }
    opened.map_err(|error| {
        let failure = Failure::engine(place.image.display(), &error);
        match error {
            uext4::Error::Corrupt(Damage::RepairLog) => {
                failure.hint("until then the image can only be read, as the repair left it")
            }
            uext4::Error::Corrupt(Damage::DeviceTooSmall { .. }) => failure.hint(
                "the image is cut off and can only be read: `uext4 get`, `uext4 tar`, `uext4 mount -o \
                 ro`",
            ),
            uext4::Error::Unsupported { .. } => failure.hint(
                "such file systems are only read: `uext4 mount -o ro`, or copy what you need out with \
                 `uext4 get`, and `uext4 build` a new image of it",
            ),
            _ => failure,
        }
    })
}

/// Where the superblock that begins so many KiB into the image says it lies, in its blocks, and
/// how large these are.
///
/// # Errors
/// Exit 8 if the image cannot be read, 4 if there is no superblock.
pub fn backup_at(place: &PlaceArgs, kib: u64) -> Result<(u64, BlockSize), Failure> {
    let image = &place.image;
    let whole = FileDevice::open(image, Access::ReadOnly).map_err(|e| device_failure(image, &e))?;
    let whole: Arc<dyn BlockDevice> = Arc::new(whole);
    let device = match place.is_found() {
        true => whole,
        false => part(whole, place)?,
    };
    let mut bytes = [0; 1024];
    let offset = kib.saturating_mul(1024);
    let read = device.read_at(offset, &mut bytes).ok();
    let found = read.and_then(|()| SuperBlock::parse(&bytes).ok());
    let size = found.and_then(|found| {
        let log2 = found.s_log_block_size.get().checked_add(10)?;
        BlockSize::from_log2(log2)
    });
    let found = size.filter(|size| offset.is_multiple_of(size.bytes().into()) || kib == 1);
    let Some(size) = found else {
        let what = format_args!("{}: no superblock at {kib} KiB", image.display());
        return Err(Failure::new(Exit::Damaged, what).hint(
            "sb= counts units of 1 KiB: mostly 131072, with blocks of 1 KiB 8193; `dumpe2fs` of a sound \
             copy lists them",
        ));
    };
    Ok((offset / u64::from(size.bytes()), size))
}

/// Fails with exit code 8 if the device holds something else, 4 if its superblock is lost.
pub fn must_hold_ext(image: &Path, device: &Arc<dyn BlockDevice>) -> Result<(), Failure> {
    match holds_ext(&**device) {
        true => Ok(()),
        false => Err(identify::not_ext(image, device)),
    }
}
