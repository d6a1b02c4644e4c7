//! Why a partition table that is there cannot be changed.

use super::Damage;
use crate::Error;

/// Why a partition cannot become longer or shorter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The table is damaged.
    #[error("the partition table cannot be changed: {0}")]
    Table(#[from] Damage),
    /// There is no such partition.
    #[error("the disk has no partition {number}")]
    NoPartition {
        /// Its number.
        number: u32,
    },
    /// Another one lies behind it.
    #[error("partition {number} cannot grow: partition {next} follows it")]
    NotLast {
        /// The partition.
        number: u32,
        /// The other.
        next: u32,
    },
    /// It lies in an extended partition, whose chain of tables would have to change, too.
    #[error("partition {number} is a logical one: only primary partitions of an MBR are changed")]
    Logical {
        /// The partition.
        number: u32,
    },
    /// The disk ends too early.
    #[error("partition {number} would end at byte {end}, and the disk has room up to byte {room}")]
    NoRoom {
        /// The partition.
        number: u32,
        /// The byte behind it.
        end: u64,
        /// The byte behind the last one that a partition may have.
        room: u64,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] Error),
}
