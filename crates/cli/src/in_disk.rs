//! Where in a disk `mkfs` and `build` put a file system: a partition, or what follows a byte.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::partition::{Guard, Name, Place, Window};
use uext4_blockdev::{Access, BlockDevice, Error, FileDevice};
use uext4_image::{Protection, fs_len};

use crate::device_failure::device_failure;
use crate::failure::{Exit, Failure};
use crate::messages;
use crate::show::size_text;

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
/// Exit 8 if the disk cannot be read, or has no such place; 4 if its table is damaged so that this
/// is not known.
pub fn rest_of_file(image: &Path, place: &Place) -> Result<Option<u64>, Failure> {
    let failed = |error| device_failure(image, &error);
    let disk = FileDevice::open(image, Access::ReadOnly).map_err(failed)?;
    let window = Window::find(&disk, place).map_err(failed)?;
    window.must_be_known().map_err(failed)?;
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

/// Makes sure that `len` bytes of a window may be overwritten, without `size` all of them: that
/// they belong to nothing else, and are not protected. Returns what is to be given up.
///
/// # Errors
/// What is in the way.
pub fn may_take(
    disk: &Arc<dyn BlockDevice>,
    window: &Window,
    size: Option<u64>,
    len: u64,
    protection: Protection,
) -> Result<Vec<Guard>, Error> {
    if size.is_none() {
        window.must_be_known()?;
    }
    window.must_be_free(&**disk, len)?;
    let guards = window.guards(disk, &fs_len)?;
    match (guards.first(), protection) {
        (Some(guard), Protection::Keep) => Err(guard.error()),
        _ => Ok(guards),
    }
}

/// What `--drop-verity` asks for.
pub fn protection(drop_verity: bool) -> Protection {
    match drop_verity {
        true => Protection::GiveUp,
        false => Protection::Keep,
    }
}

/// Says what protects a part of a disk no longer.
pub fn warn_of_given_up(guards: &[Guard]) {
    for guard in guards {
        messages::warning(match guard {
            Guard::ReadOnly { number } => {
                format!("partition {number} is no longer marked as read-only")
            }
            Guard::Tree { number, .. } => {
                format!("the dm-verity hash tree in partition {number} is given up")
            }
        });
    }
}

/// Says that the image ends so many bytes before its partition does.
pub fn warn_of_missing(image: &Path, missing: u64) {
    if missing > 0 {
        messages::warning(format_args!(
            "{}: ends {} before the partition does, and so does the file system",
            image.display(),
            size_text(missing)
        ));
    }
}

/// Says that the kernel goes on with the old length of a partition whose table was changed.
pub fn warn_of_old_table(image: &Path, number: u32) {
    let kind = fs::metadata(image).map(|found| found.file_type());
    if kind.is_ok_and(|kind| kind.is_block_device()) {
        let shown = image.display();
        messages::warning(format_args!(
            "{shown}: the kernel has the old length of partition {number} until it reads the table \
             again: `partprobe {shown}`, or `partx -u {shown}` while the disk is in use"
        ));
    }
}
