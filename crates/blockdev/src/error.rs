//! What can go wrong between the engine and a device.

use std::io;
use std::path::PathBuf;

use crate::partition_damage::Damage;

/// Why a device did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The range does not lie wholly on the device. Nothing was transferred.
    #[error("{len} bytes at {offset} lie outside the device of {device_len} bytes")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes on the device.
        device_len: u64,
    },
    /// The range lies past the end of a device that is shorter than what it should hold.
    #[error(
        "block {block}, at byte {offset}, lies beyond the end of the image, which has {device_len} bytes"
    )]
    BeyondEnd {
        /// The first block that is missing, counted as the contents count.
        block: u64,
        /// The first byte that is missing.
        offset: u64,
        /// Bytes on the device.
        device_len: u64,
    },
    /// The device was opened for reading only.
    #[error("the device is read-only")]
    ReadOnly,
    /// The device can be neither longer nor shorter: a block device, a partition.
    #[error("the device has {len} bytes, and its length is fixed")]
    FixedLength {
        /// Bytes on the device.
        len: u64,
    },
    /// The medium or the operating system failed.
    #[error("{op} at byte {offset}: {source}")]
    Io {
        /// What was tried: "read", "write", "flush", "discard", …
        op: &'static str,
        /// First byte of the transfer; 0 where the operation has no place.
        offset: u64,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file could not be opened or created.
    #[error("{}: {source}", path.display())]
    Open {
        /// The path as given.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Another program holds the lock of the file.
    #[error("{} is in use by another program", path.display())]
    Locked {
        /// The path as given.
        path: PathBuf,
    },
    /// The kernel has the image attached as a loop device, or the device mounted: it would never
    /// see what another program writes, and writes itself.
    #[error("{} is in use as {device}{}", path.display(), at_place(mounted))]
    Attached {
        /// The path as given.
        path: PathBuf,
        /// The device of the kernel.
        device: String,
        /// Where it is mounted, if it is.
        mounted: Option<String>,
    },
    /// The partition table is damaged.
    #[error("partition table: {0}")]
    Partition(#[from] Damage),
    /// The partition asked for is not in the table.
    #[error("there is no partition {name}, only {}", list(present))]
    NoPartition {
        /// The number, or in quotes the label or UUID asked for.
        name: String,
        /// The numbers there are.
        present: Vec<u32>,
    },
    /// Several partitions have the label asked for.
    #[error("{name} is the label of several partitions: {}", list(numbers))]
    SeveralPartitions {
        /// The label, in quotes.
        name: String,
        /// The numbers of the partitions.
        numbers: Vec<u32>,
    },
    /// A dm-verity hash tree covers the file system, which any change would make an error of.
    #[error(
        "a dm-verity hash tree {} covers the file system: after any change the kernel refuses to \
         read it",
        tree_place(*partition, *at)
    )]
    Verified {
        /// Where the tree lies on its device, in bytes.
        at: u64,
        /// The partition of the tree, if it has one of its own.
        partition: Option<u32>,
    },
    /// A footer of Android Verified Boot covers the file system, which any change would make an
    /// error of.
    #[error(
        "a footer of Android Verified Boot at byte {at} covers the file system: after any change \
         no device that verifies it boots with it"
    )]
    VerifiedBoot {
        /// Where the footer lies on its device, in bytes.
        at: u64,
    },
    /// The table says that the partition is read-only.
    #[error("partition {number} is marked as read-only in the GPT (attribute 60)")]
    ReadOnlyPartition {
        /// The partition.
        number: u32,
    },
    /// A file system should be written over the partition table of its disk.
    #[error("byte {offset} belongs to the partition table of the disk")]
    InPartitionTable {
        /// Where the file system should begin.
        offset: u64,
    },
    /// A partition shares bytes with another one.
    #[error("partition {number} overlaps partition {other}, which would be overwritten")]
    Overlap {
        /// The partition.
        number: u32,
        /// The other one.
        other: u32,
    },
    /// The partition table is damaged so that it may hide partitions.
    #[error(
        "what follows byte {offset} is not known, because the partition table is damaged: {damage}"
    )]
    HiddenPartitions {
        /// Where the file system should begin.
        offset: u64,
        /// The damage.
        damage: Damage,
    },
}

/// Where a hash tree lies, as a part of a sentence.
fn tree_place(partition: Option<u32>, at: u64) -> String {
    match partition {
        Some(number) => format!("in partition {number}"),
        None => format!("at byte {at}"),
    }
}

/// Where a device is mounted, as the end of a sentence.
fn at_place(mounted: &Option<String>) -> String {
    match mounted {
        Some(dir) => format!(", mounted at {dir}"),
        None => String::new(),
    }
}

/// Numbers as a user reads them.
fn list(numbers: &[u32]) -> String {
    if numbers.is_empty() {
        return "an unpartitioned device".to_owned();
    }
    let words: Vec<_> = numbers.iter().map(u32::to_string).collect();
    words.join(", ")
}

impl Error {
    /// Whether a write failed only because the host has no room for the image (`ENOSPC`, `EDQUOT`).
    #[must_use]
    pub fn is_host_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Io { op, source, .. } => {
                *op != "flush" && matches!(source.kind(), StorageFull | QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Checks that `len` bytes at `offset` lie on a device of `device_len` bytes.
    ///
    /// An empty range is right anywhere up to and including the end.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not, also where `offset + len` passes `u64::MAX`.
    pub fn check_range(offset: u64, len: u64, device_len: u64) -> Result<(), Self> {
        match offset.checked_add(len) {
            Some(end) if end <= device_len => Ok(()),
            _ => Err(Self::OutOfRange {
                offset,
                len,
                device_len,
            }),
        }
    }

    /// Wraps an operating system error.
    #[must_use]
    pub fn io(op: &'static str, offset: u64, source: impl Into<io::Error>) -> Self {
        Self::Io {
            op,
            offset,
            source: source.into(),
        }
    }
}
