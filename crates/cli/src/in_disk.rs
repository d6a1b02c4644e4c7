//! Where in a disk `mkfs` and `build` put a file system: a partition, or what follows a byte.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use uext4_blockdev::partition::{Name, Place, Window};
use uext4_blockdev::{Access, BlockDevice, FileDevice};

use crate::device_failure::device_failure;
use crate::failure::{Exit, Failure};

/// What to do about a part of a disk that is too small.
pub const LARGER: &str = "make the partition larger first, or give a smaller size";

/// The place in the disk at `image`; `None` where the image is all that has this name: a new file,
/// a file that is replaced, a whole block device.
///
/// # Errors
/// Exit 2 if both a partition and an offset are given, 8 if there is no disk that could have the
/// partition.
pub fn place(
    image: &Path,
    partition: Option<&Name>,
    offset: u64,
) -> Result<Option<Place>, Failure> {
    let there = fs::metadata(image).map(|found| found.file_type());
    let is_disk = |kind: fs::FileType| kind.is_file() || kind.is_block_device();
    match (partition, offset, there) {
        (Some(_), 1.., _) => {
            let what = "--partition and -E offset both say where the file system begins";
            Err(Failure::new(Exit::Usage, what))
        }
        (Some(name), 0, Ok(_)) => Ok(Some(Place::Partition(name.clone()))),
        (Some(_), 0, Err(error)) => Err(Failure::io(image.display(), &error)
            .hint("--partition fills a partition of a disk that is there: make its table first")),
        (None, 1.., Ok(kind)) if is_disk(kind) => Ok(Some(Place::Offset(offset))),
        (None, ..) => Ok(None),
    }
}

/// Bytes of the disk behind the byte where the file system is to begin, up to the end of a file
/// that nothing but its end bounds.
///
/// # Errors
/// Exit 8 if the disk cannot be read, or has no such place.
pub fn rest_of_file(image: &Path, place: &Place) -> Result<Option<u64>, Failure> {
    let failed = |error| device_failure(image, &error);
    let disk = FileDevice::open(image, Access::ReadOnly).map_err(failed)?;
    let window = Window::find(&disk, place).map_err(failed)?;
    let rest = disk.len().saturating_sub(window.start);
    Ok((window.end.is_none() && rest > 0).then_some(rest))
}

/// Why a file system of `need` bytes cannot be in a part of a disk.
pub fn too_small(image: &Path, window: &Window, need: u64, have: u64) -> Failure {
    let error = uext4_image::Error::InDisk {
        need,
        have,
        partition: window.partition.as_ref().map(|found| found.number),
        next: window.next,
    };
    Failure::new(Exit::CouldNot, format_args!("{}: {error}", image.display())).hint(LARGER)
}
