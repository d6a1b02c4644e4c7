//! A file system that is examined before it is known whether it will be written.
//!
//! One that is protected, by a dm-verity hash tree or by a mark in the partition table, is only
//! read until then: an examination that finds nothing to repair is nothing to be protected from.
//! Where something is to be written that is refused, or the protection is given up first, as the
//! user said, and not before the user has agreed to the rest.

use std::sync::Arc;

use uext4_blockdev::{Access, BlockDevice, Error as BlockError};

use crate::args::{ImageArgs, PlaceArgs};
use crate::device_failure::device_failure;
use crate::failure::Failure;
use crate::open::{must_hold_ext, writable};
use crate::part::{self, part, part_to_write};

/// A file system, and what protects it.
pub struct Guarded {
    device: Arc<dyn BlockDevice>,
    protection: Option<Protection>,
}

enum Protection {
    /// For this reason the device is only read.
    Kept(BlockError),
    /// This image is claimed, and its protection goes before something is written.
    GivenUp(Arc<dyn BlockDevice>),
}

/// Opens the device of a file system.
type Open = fn(&ImageArgs, Access) -> Result<Arc<dyn BlockDevice>, Failure>;

impl Guarded {
    /// Opens what is to be examined by `open`, to be written if `access` says so.
    ///
    /// # Errors
    /// Those of `open`; exit 8 if an image whose protection is given up cannot be claimed.
    pub fn open(open: Open, args: &ImageArgs, access: Access) -> Result<Self, Failure> {
        let place = &args.place;
        let why = match access {
            Access::ReadOnly => None,
            Access::ReadWrite => part::protection(place),
        };
        let Some(why) = why else {
            let device = open(args, access)?;
            let protection = None;
            return Ok(Self { device, protection });
        };
        if !place.drop_verity {
            return Ok(Self {
                device: open(args, Access::ReadOnly)?,
                protection: Some(Protection::Kept(why)),
            });
        }
        let whole: Arc<dyn BlockDevice> = Arc::new(writable(&place.image)?);
        let device = part(Arc::clone(&whole), place)?;
        must_hold_ext(&place.image, &device)?;
        Ok(Self {
            device,
            protection: Some(Protection::GivenUp(whole)),
        })
    }

    /// The file system, to be read.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Whether it is protected: then nothing may be written before [`Guarded::to_write`].
    pub fn is_protected(&self) -> bool {
        self.protection.is_some()
    }

    /// # Errors
    /// Exit 8 if it may not be written.
    pub fn refuse_writing(&self, place: &PlaceArgs) -> Result<(), Failure> {
        match &self.protection {
            Some(Protection::Kept(why)) => Err(device_failure(&place.image, why)),
            _ => Ok(()),
        }
    }

    /// The file system, to be written; `view` is what it becomes. What protects it is given up now,
    /// if that was asked for.
    ///
    /// # Errors
    /// As [`Guarded::refuse_writing`]; of the device.
    pub fn to_write(
        &self,
        place: &PlaceArgs,
        view: &dyn BlockDevice,
    ) -> Result<Arc<dyn BlockDevice>, Failure> {
        self.refuse_writing(place)?;
        let device = match &self.protection {
            Some(Protection::GivenUp(whole)) => part_to_write(Arc::clone(whole), place)?,
            _ => Arc::clone(&self.device),
        };
        // Where the superblock was damaged, only what it becomes says where a tree begins.
        if place.drop_verity
            && let Some(len) = part::len_of(view)
        {
            let given_up = part::give_up_tree(&*device, len, 0);
            given_up.map_err(|error| device_failure(&place.image, &error))?;
        }
        Ok(device)
    }
}
