//! Why an image or a device cannot be used, and what to do.

use std::io::ErrorKind::{PermissionDenied, ResourceBusy};
use std::path::Path;

use uext4_blockdev::{Error as BlockError, attached};

use crate::failure::{DROP_VERITY, Exit, Failure};

/// Why a device cannot be used, and what to do.
pub fn device_failure(image: &Path, error: &BlockError) -> Failure {
    match error {
        // They name the path themselves.
        BlockError::Open { source, .. } if source.kind() == PermissionDenied => {
            Failure::new(Exit::Denied, error)
        }
        BlockError::Open { source, .. } if source.kind() == ResourceBusy => {
            let failure = Failure::new(Exit::CouldNot, error);
            match attached::place_of(&image.to_string_lossy()) {
                Some((dir, _)) => failure.hint(format!(
                    "the kernel has it mounted at {dir}: `umount {dir}` first, or use it there"
                )),
                None => failure,
            }
        }
        BlockError::Open { .. } => Failure::new(Exit::CouldNot, error),
        BlockError::Locked { .. } => {
            let failure = Failure::new(Exit::CouldNot, error);
            match uext4_fuse::mountinfo::place_of(image) {
                Ok(Some(dir)) => failure.hint(format!(
                    "it is mounted at {0}: `uext4 umount {0}` first, or use it there",
                    dir.display()
                )),
                _ => failure.hint("wait until that has ended, or end it, and try again"),
            }
        }
        BlockError::Attached { device, .. } if Path::new(device) == image => {
            Failure::new(Exit::CouldNot, error).hint("unmount it first, or use it there")
        }
        BlockError::Attached { device, .. } => Failure::new(Exit::CouldNot, error).hint(format!(
            "unmount it and run `losetup -d {device}`, or use {device} itself"
        )),
        BlockError::Verified { .. } | BlockError::ReadOnlyPartition { .. } => {
            Failure::new(Exit::CouldNot, format_args!("{}: {error}", image.display()))
                .hint(DROP_VERITY)
        }
        BlockError::InPartitionTable { .. } => {
            Failure::new(Exit::CouldNot, format_args!("{}: {error}", image.display()))
                .hint("give the byte where a partition begins, or --partition N")
        }
        BlockError::Partition(_) => {
            Failure::new(Exit::Damaged, format_args!("{}: {error}", image.display()))
                .hint("say where the file system begins with --offset BYTES")
        }
        _ => Failure::new(Exit::CouldNot, format_args!("{}: {error}", image.display())),
    }
}
