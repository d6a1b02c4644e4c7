//! Why an examination or a repair could not be done. What is wrong with the file system is a
//! finding, not an error.

use std::io;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] uext4_blockdev::Error),
    /// The temporary file failed.
    #[error("the temporary file for what does not fit into memory: {0}")]
    Spill(#[source] io::Error),
    /// What is written for the user could not be written.
    #[error("writing: {0}")]
    Output(#[source] io::Error),
    /// No ext2, ext3 or ext4 file system can be recognised.
    #[error("no ext2, ext3 or ext4 file system: {why}")]
    NotExt4 {
        /// What was looked for and not found.
        why: String,
    },
    /// It uses features that this version does not know: changing it could destroy it.
    #[error("the file system uses features that this version does not know: {features}")]
    Features {
        /// Their names or bits.
        features: String,
    },
    /// The device ends before the file system does.
    #[error(
        "the file system needs {need} bytes and the device has {have}: the rest is cut off; extend \
         the device or the file, or read what is there by `uext4 salvage`"
    )]
    CutOff {
        /// Size of the file system in bytes.
        need: u64,
        /// Size of the device in bytes.
        have: u64,
    },
    /// More memory is needed than is allowed.
    #[error("{need} bytes of memory are needed, {limit} are allowed: allow more by --memory")]
    Memory {
        /// Bytes needed at least.
        need: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// There is no room in the file system for what a remedy must write.
    #[error(
        "no free block is left for {what}: make a copy of the file system larger (`truncate`, \
         `resize2fs -f`), or read it by `uext4 salvage`"
    )]
    NoSpace {
        /// What needs the block.
        what: &'static str,
    },
    /// There is no room in the file system, nor in its journal, for the redo log.
    #[error(
        "no room is left in the file system for the log of {blocks} blocks that keeps a repair in \
         place safe from power cuts; nothing was written. With an undo file (--undo), or into a \
         copy (--into), none is needed"
    )]
    NoLogRoom {
        /// How many blocks change.
        blocks: u64,
    },
    /// A repair would lose what was committed behind the log.
    #[error(
        "the journal holds fast commits, which are not replayed here where blocks have more than \
         one owner and cannot be parted: mount the file system for writing once, unmount it, then \
         repair it"
    )]
    FastCommits,
    /// It was asked to stop.
    #[error("interrupted")]
    Cancelled,
    /// What was asked for cannot be done, with the reason.
    #[error("{what}")]
    Refused {
        /// The sentence for the user.
        what: String,
    },
}

impl Error {
    /// A block is said to be in a temporary file that does not exist: never happens.
    pub(crate) fn spill_lost() -> Self {
        Self::Spill(io::Error::from(io::ErrorKind::NotFound))
    }
}

impl From<uext4_redo::Error> for Error {
    fn from(error: uext4_redo::Error) -> Self {
        match error {
            uext4_redo::Error::Device(error) => Self::Device(error),
            other => Self::Refused {
                what: other.to_string(),
            },
        }
    }
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
