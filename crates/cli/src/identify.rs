//! Sentences about what an image holds, where it is not what a command can use or may overwrite.

use std::path::Path;
use std::sync::Arc;

use uext4::rescue::{backup_of, first_at};
use uext4_blockdev::partition::{Partition, Table, TableKind};
use uext4_blockdev::{BlockDevice, Error};

use crate::contents::{Contents, Family, contents};
use crate::device_failure::device_failure;
use crate::failure::{Exit, Failure};
use crate::show::{escaped, size_text};

/// Most partitions that one sentence names.
const PARTITIONS_MAX: usize = 16;

/// Why an image without an ext superblock cannot be used, and what to do.
pub fn not_ext(image: &Path, device: &Arc<dyn BlockDevice>) -> Failure {
    not_ext_but(image, device, RESCUE)
}

/// The same after a file system was looked for that lost its superblock.
pub fn nothing_found(image: &Path, device: &Arc<dyn BlockDevice>) -> Failure {
    not_ext_but(image, device, "")
}

/// The same with what else to do about data of no known format.
fn not_ext_but(image: &Path, device: &Arc<dyn BlockDevice>, else_do: &str) -> Failure {
    let path = image.display();
    match held(device) {
        Ok(held) => {
            if let Some(block) = backup_of(&**device).filter(|_| !held.is_known) {
                let what = format_args!("{path}: the superblock is lost, but its backup is there");
                return Failure::new(Exit::Damaged, what).hint(format!(
                    "read it by that backup, or restore it: `uext4 repair --superblock {} IMAGE`",
                    block.0
                ));
            }
            let what = format_args!(
                "{path}: no ext2, ext3 or ext4 file system, but {}",
                held.what
            );
            let step = match further_on(device).filter(|_| !held.is_format) {
                Some(at) => format!(
                    "an ext file system begins {at} bytes into it: give that as --offset; `uext4 scan \
                     IMAGE` looks for others"
                ),
                None if held.is_unknown => format!("{}{else_do}", held.step),
                None => held.step,
            };
            Failure::new(Exit::CouldNot, what).hint(step)
        }
        Err(error) => device_failure(image, &error),
    }
}

/// Where file systems mostly begin that no table names: as old and new partitioning programs place
/// the first partition, and boot loaders of small devices what they load.
const USUAL: [u64; 8] = [
    63 * 512,
    64 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    32 << 20,
];

/// Where in a device that is none a file system begins, if that is one of the usual places.
fn further_on(device: &Arc<dyn BlockDevice>) -> Option<u64> {
    first_at(&**device, &USUAL)
}

/// What an image holds.
pub struct Held {
    /// As a part of a sentence.
    pub what: String,
    /// What to do with it.
    step: String,
    /// Nothing that could be lost.
    pub is_empty: bool,
    /// Something with a name, and not just data or text.
    pub is_known: bool,
    /// The same, and no partition table.
    is_format: bool,
    /// Data without a name.
    is_unknown: bool,
}

/// Describes what an image holds.
///
/// # Errors
/// Those of reading it.
pub fn held(device: &Arc<dyn BlockDevice>) -> Result<Held, Error> {
    let contents = contents(&**device)?;
    let (what, step) = match &contents {
        Contents::NoBytes => (
            "no bytes at all".to_owned(),
            "is it the right file?".to_owned(),
        ),
        Contents::Zeroes => ("zeroes".to_owned(), SCAN.to_owned()),
        Contents::Known(format) => (format.name.to_owned(), step(format.family)),
        Contents::Partitions(table) => (
            partitions(table, device)?,
            format!("no partition holds ext; {SCAN}"),
        ),
        Contents::Text => ("text".to_owned(), "give the image itself".to_owned()),
        Contents::Unknown => (
            "data of no format that uext4 knows".to_owned(),
            SCAN.to_owned(),
        ),
    };
    Ok(Held {
        what,
        step,
        is_empty: matches!(contents, Contents::NoBytes | Contents::Zeroes),
        is_known: contents.is_known(),
        is_format: matches!(contents, Contents::Known(_)),
        is_unknown: matches!(contents, Contents::Unknown),
    })
}

/// A command that looks for a file system never advises to make one over it.
const SCAN: &str = "`uext4 scan IMAGE` looks for file systems in it; where one begins is then \
     --offset BYTES";

/// What else there is to do, after [`SCAN`].
const RESCUE: &str = "; `uext4 repair` and `uext4 salvage` look for one that lost its superblock";

/// What to do with a format that uext4 does not read.
fn step(family: Family) -> String {
    match family {
        Family::Ext => "give the image of the file system itself".to_owned(),
        Family::FileSystem => {
            "uext4 reads ext2, ext3 and ext4 alone: mount this one with the kernel, `mount -o \
             loop,ro IMAGE DIRECTORY`"
                .to_owned()
        }
        Family::Swap => "it holds no files".to_owned(),
        Family::HashTree => {
            "it covers another partition or image: give that, with `--partition N` in a disk"
                .to_owned()
        }
        Family::Encrypted => {
            "open it first: `cryptsetup open IMAGE NAME`, then use /dev/mapper/NAME".to_owned()
        }
        Family::Volume => {
            "assemble it first (`vgchange -ay`, `mdadm --assemble`), then use the device that this \
             makes"
                .to_owned()
        }
        Family::Disk { command } => format!("convert it first: `{command} IMAGE disk.img`"),
        Family::Compressed { command } => {
            format!("unpack it first: `{command} -dc IMAGE > disk.img`")
        }
        Family::Archive => {
            "`uext4 build ARCHIVE -o disk.img` makes an image of a tar archive; unpack others first"
                .to_owned()
        }
    }
}

/// A partition table with what its partitions hold.
fn partitions(table: &Table, device: &Arc<dyn BlockDevice>) -> Result<String, Error> {
    let Some(first) = table.partitions.first() else {
        return Ok("a damaged partition table".to_owned());
    };
    let kind = match first.table {
        TableKind::Gpt => "a GPT",
        TableKind::Mbr => "an MBR",
    };
    let mut list = Vec::new();
    for partition in table.partitions.iter().take(PARTITIONS_MAX) {
        list.push(one(partition, device)?);
    }
    let count = table.partitions.len();
    if count > PARTITIONS_MAX {
        list.push(format!("{} more", count - PARTITIONS_MAX));
    }
    let noun = if count == 1 {
        "partition"
    } else {
        "partitions"
    };
    Ok(format!(
        "{kind} partition table with {count} {noun}: {}",
        list.join(", ")
    ))
}

fn one(partition: &Partition, device: &Arc<dyn BlockDevice>) -> Result<String, Error> {
    let holds = match partition.open(Arc::clone(device)) {
        Ok(window) => match contents(&window)? {
            Contents::NoBytes | Contents::Zeroes => "empty",
            Contents::Known(format) => format.name,
            Contents::Partitions(_) => "a partition table",
            Contents::Text => "text",
            Contents::Unknown => "unknown data",
        },
        Err(Error::OutOfRange { .. }) => "past the end of the image",
        Err(error) => return Err(error),
    };
    let name = match partition.name.as_str() {
        "" => String::new(),
        name => format!(" \"{}\"", escaped(name.as_bytes())),
    };
    Ok(format!(
        "{}{name} ({}, {holds})",
        partition.number,
        size_text(partition.len)
    ))
}

/// True if the device holds an ext file system without its superblock: a backup is there, and
/// nothing else that is known.
pub fn lost_its_superblock(device: &dyn BlockDevice) -> bool {
    backup_of(device).is_some() && contents(device).is_ok_and(|contents| !contents.is_known())
}

/// True if the device holds no bytes, or something else with a name than an ext file system. What
/// cannot be read says nothing.
pub fn holds_another(device: &dyn BlockDevice) -> bool {
    contents(device)
        .is_ok_and(|contents| contents.is_known() || matches!(contents, Contents::NoBytes))
}
