//! Images that are read, which nothing may change meanwhile.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use uext4_blockdev::partition::Name;
use uext4_blockdev::{Access, BlockDevice, Error as BlockError, FileDevice};
use uext4_remote::client::Client;
use uext4_remote::snapshot::{self, Within};

use crate::args::PlaceArgs;
use crate::device_failure::device_failure;
use crate::ending::after_ending;
use crate::failure::{Exit, Failure};
use crate::kernel_mount::{self, ELSEWHERE};
use crate::mounted::{self, Door};

/// The snapshots that are read, which hold until they are checked.
static SNAPSHOTS: Mutex<Vec<(PathBuf, Arc<dyn BlockDevice>)>> = Mutex::new(Vec::new());

/// Checks that every snapshot stayed valid, and releases them. If one did not, read errors of the
/// command come from that, and the command has failed.
///
/// # Errors
/// Exit 8 with the reason why a snapshot is no longer valid.
pub fn check_snapshots() -> Result<(), Failure> {
    let mut all = SNAPSHOTS.lock().unwrap_or_else(PoisonError::into_inner);
    for (image, snapshot) in all.drain(..) {
        let read = snapshot.read_at(0, &mut [0]);
        read.map_err(|error| device_failure(&image, &error))?;
    }
    Ok(())
}

/// For copies that rely on an image that does not change meanwhile.
///
/// # Errors
/// Exit 8 if the kernel has it mounted and may write.
pub fn must_not_be_mounted(image: &Path) -> Result<(), Failure> {
    let Some(dir) = kernel_mount::written_at(image) else {
        return Ok(());
    };
    let image = image.display();
    let what = format_args!("{image}: is mounted at {dir}, and a copy of it would be torn");
    let failure = Failure::new(Exit::CouldNot, what);
    Err(failure.hint(match dir == ELSEWHERE {
        true => "unmount it there first, or make a snapshot of the device".to_owned(),
        false => format!("`umount {dir}` first, or make a snapshot of the device"),
    }))
}

/// An image that does not change while it is read, and where in it the file system is.
pub struct Still {
    /// The image.
    pub whole: Arc<dyn BlockDevice>,
    /// As options say it.
    pub place: PlaceArgs,
    /// The directory of the file system that stands for the root, where one of a mount was given.
    pub dir: Option<Vec<u8>>,
    /// A mount writes the image; this is a snapshot.
    pub is_snapshot: bool,
}

/// The image, locked so that no other program changes it. Where there are no locks, reading is
/// still worth it.
///
/// # Errors
/// That it cannot be opened, or that another program has it.
pub fn locked(image: &Path) -> Result<FileDevice, BlockError> {
    after_ending(image, || {
        let whole = FileDevice::open(image, Access::ReadOnly)?;
        match whole.lock_shared() {
            Err(error @ BlockError::Locked { .. }) => Err(error),
            _ => Ok(whole),
        }
    })
}

impl Still {
    /// The image itself, or a snapshot of the one that a mount has.
    ///
    /// # Errors
    /// Exit 8 if it cannot be opened, 13 if it is another user's mount that has it.
    pub fn open(place: &PlaceArgs) -> Result<Self, Failure> {
        let image = &place.image;
        let error = match locked(image) {
            Ok(whole) => {
                kernel_mount::warn(image);
                return Ok(Self {
                    whole: Arc::new(whole),
                    place: place.clone(),
                    dir: None,
                    is_snapshot: false,
                });
            }
            Err(error) => error,
        };
        let may_be_mounted = matches!(error, BlockError::Locked { .. }) || image.is_dir();
        let door = match may_be_mounted {
            true => mounted::find(place)?,
            false => None,
        };
        match door {
            Some(Door::Open(mount, client)) => Self::served(&client, image, mount.prefix),
            Some(Door::Reading(mount)) => {
                let place = mount.image();
                let failed = |error| device_failure(&place.image, &error);
                let whole = locked(&place.image).map_err(failed)?;
                mount.must_have(&whole.metadata().map_err(failed)?, image)?;
                Ok(Self {
                    whole: Arc::new(whole),
                    place,
                    dir: Some(mount.prefix),
                    is_snapshot: false,
                })
            }
            None => Err(device_failure(image, &error)),
        }
    }

    /// A snapshot of the image that the other end of `client` writes, with the directory that
    /// stands for the root.
    ///
    /// # Errors
    /// Exit 8.
    pub fn served(client: &Client, image: &Path, dir: Vec<u8>) -> Result<Self, Failure> {
        let kept = snapshot::of(client, image);
        let (whole, Within { offset, partition }) =
            kept.map_err(|error| Failure::engine(image.display(), &error))?;
        let place = PlaceArgs {
            image: image.to_owned(),
            offset,
            partition: partition.map(Name::Number),
            drop_verity: false,
        };
        let mut all = SNAPSHOTS.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((image.to_owned(), Arc::clone(&whole)));
        Ok(Self {
            whole,
            place,
            dir: Some(dir),
            is_snapshot: true,
        })
    }
}
