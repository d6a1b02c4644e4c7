//! Why a file system cannot be made as asked.

use uext4_ondisk::Damage;
use uext4_ondisk::pack::PackError;

/// What is wrong with the wishes or the device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Some blocks of the file system are old, and some are new.
    #[error("a repair was cut off while it was written: finish it first, by `uext4 repair IMAGE`")]
    CutRepair,
    /// Contents lie where the file system needs its own blocks, or past its end, or in a file
    /// system without `flex_bg`.
    #[error(
        "blocks {start} to {end} hold contents already, where the file system has its own blocks"
    )]
    Occupied {
        /// First block.
        start: u64,
        /// Block after the last one.
        end: u64,
    },
    /// A flag's value cannot be.
    #[error("{flag}: {value}: {why}")]
    Option {
        /// The flag or the name within it, as mke2fs spells it.
        flag: &'static str,
        /// The value as given.
        value: String,
        /// Why it cannot be.
        why: &'static str,
    },
    /// A name within `-O`, `-E`, `-J` or `-T` is not known.
    #[error("{flag}: {name:?} is not known or not supported")]
    UnknownName {
        /// The flag.
        flag: &'static str,
        /// The name as given.
        name: String,
    },
    /// Features that exclude each other, or lack one they need.
    #[error("feature {feature}: {why}")]
    Feature {
        /// The feature that cannot be had.
        feature: &'static str,
        /// What stands against it.
        why: &'static str,
    },
    /// No file system fits so little space.
    #[error("{blocks} blocks of {block_size} bytes are too few: {what} needs more")]
    TooSmall {
        /// Blocks there would be.
        blocks: u64,
        /// Bytes of a block.
        block_size: u32,
        /// What does not fit.
        what: &'static str,
    },
    /// More blocks than there are numbers for, or groups than this implementation takes on.
    #[error("{blocks} blocks of {block_size} bytes are too many: {why}")]
    TooLarge {
        /// Blocks there would be.
        blocks: u64,
        /// Bytes of a block.
        block_size: u32,
        /// What would help.
        why: &'static str,
    },
    /// The size asked for is larger than the device.
    #[error("the file system needs {need} bytes, the device has {have}")]
    DeviceTooSmall {
        /// Bytes asked for.
        need: u64,
        /// Bytes of the device.
        have: u64,
    },
    /// The inode tables leave no room, or the inodes exceed 2³².
    #[error("{inodes} inodes of {inode_size} bytes are too many for {blocks} blocks")]
    TooManyInodes {
        /// Inodes wished for.
        inodes: u64,
        /// Bytes of an inode.
        inode_size: u16,
        /// Blocks of the file system.
        blocks: u64,
    },
    /// No free run of blocks for a structure.
    #[error("no room for {len} blocks of {what}")]
    NoSpace {
        /// The structure.
        what: &'static str,
        /// Blocks it needs.
        len: u64,
    },
    /// The journal cannot have this size here.
    #[error("a journal of {blocks} blocks: {why}")]
    JournalSize {
        /// Blocks asked for.
        blocks: u64,
        /// What stands against it.
        why: &'static str,
    },
    /// The resulting superblock is not one this implementation accepts.
    #[error("the layout asked for is not valid: {0}")]
    Shape(#[from] Damage),
    /// The file system that is to be changed is damaged.
    #[error(transparent)]
    Damaged(Damage),
    /// A file of the new file system cannot be stored.
    #[error("the layout asked for cannot be stored: {0}")]
    Pack(#[from] PackError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] uext4_blockdev::Error),
}
