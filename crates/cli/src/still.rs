//! Images that are read, which nothing may change meanwhile.

use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::{Access, BlockDevice, Error as BlockError, FileDevice};
use uext4_remote::snapshot::{self, Within};

use crate::args::PlaceArgs;
use crate::device_failure::device_failure;
use crate::ending::after_ending;
use crate::failure::Failure;
use crate::mounted::{self, Door};

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
            Some(Door::Open(mount, client)) => {
                let kept = snapshot::of(&client, image);
                let (whole, Within { offset, partition }) =
                    kept.map_err(|error| Failure::engine(image.display(), &error))?;
                let place = PlaceArgs {
                    image: image.clone(),
                    offset,
                    partition,
                };
                Ok(Self {
                    whole,
                    place,
                    dir: Some(mount.prefix),
                    is_snapshot: true,
                })
            }
            Some(Door::Reading(mount, place)) => {
                let whole = locked(&place.image);
                let whole = whole.map_err(|error| device_failure(&place.image, &error))?;
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
}
