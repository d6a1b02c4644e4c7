//! The one packer: from extents, block numbers and names to the bytes of the blocks that hold them.
//!
//! Pure: no I/O and no allocation of blocks. A packer asks its caller for a block for each node,
//! and hands over the bytes. Both writers of the engine and mkfs use it:
//!
//! | what | packer |
//! |---|---|
//! | extents of a file | [`extent_tree`] |
//! | block numbers of a file without extents | [`block_map`] |
//! | all names of a directory | [`directory`]; single blocks of names: [`crate::dir_block`] |
//! | extended attributes | [`crate::xattr::pack_block`], [`crate::xattr::pack_body`] |
//! | what all owners have | [`quota`] |
//!
//! Numbers are bounded here as they are where they are read: what a reader would refuse is a
//! [`PackError`]. Nothing is written then but nodes and tables of the same map, which is of no use.

pub mod block_map;
pub mod directory;
pub mod extent_tree;
pub mod quota;

use crate::extent::Extent;
use crate::units::Pblk;

/// Why something cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// An extent that no node may hold, or that does not lie behind the one before it.
    #[error("extent of {} blocks from {} on, at {}, cannot be stored", .0.len, .0.lblk, .0.pblk)]
    Extent(Extent),
    /// More extents than the deepest tree holds.
    #[error("{extents} extents are more than a tree holds")]
    TooManyExtents {
        /// The extents of the file.
        extents: u64,
    },
    /// A logical block past the largest file without extents.
    #[error("logical block {lblk} is out of reach of a block map")]
    OutOfReach {
        /// The logical block.
        lblk: u64,
    },
    /// A physical block whose number has more than 32 bits.
    #[error("block {block} has no number in a block map")]
    BlockNumber {
        /// The physical block.
        block: Pblk,
    },
    /// A name that no directory holds.
    #[error("a name of {len} bytes")]
    NameLength {
        /// Its length.
        len: u64,
    },
    /// Two equal names in one directory.
    #[error("a name is in the directory twice")]
    SameName,
    /// A name of an attribute that is too long, holds a zero byte, or looks like the end of a list.
    #[error("the name of an attribute, of {len} bytes, cannot be stored")]
    XattrName {
        /// Its length after the prefix.
        len: u64,
    },
    /// Attributes, or the value of one, that are larger than their place.
    #[error("attributes of {need} bytes, where there is room for {room}")]
    XattrsTooBig {
        /// Bytes that they take.
        need: u64,
        /// Bytes that there are.
        room: u64,
    },
    /// More names than a directory holds.
    #[error("more names than a directory holds")]
    TooManyNames,
}
