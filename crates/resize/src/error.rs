//! Why a file system cannot be resized.

/// What keeps a file system from getting another size.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The examination before the first change found what is more than a note.
    #[error(
        "the file system is damaged ({findings} finding{}): nothing was changed",
        if *findings == 1 { "" } else { "s" }
    )]
    Damaged {
        /// How many were found.
        findings: usize,
    },
    /// The examination before the first change could not be done.
    #[error("examining the file system: {0}")]
    Examination(uext4_fsck::Error),
    /// It has more blocks than it would get.
    #[error(
        "the file system has {blocks} blocks of {block_size} bytes already, more than {wanted}: \
         growing makes nothing smaller"
    )]
    Smaller {
        /// Blocks that it has.
        blocks: u64,
        /// Blocks asked for.
        wanted: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// What there is does not fit.
    #[error(
        "{wanted} blocks of {block_size} bytes are too few for what the file system holds: \
         {least} are the least"
    )]
    TooSmall {
        /// Blocks asked for.
        wanted: u64,
        /// The fewest that are enough.
        least: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// No room is left for what must move.
    #[error(
        "no block or inode is free below the new end, or none in pieces that are large enough: \
         ask for a larger size, or use --min"
    )]
    Full,
    /// The caller wants no more.
    #[error("stopped: the file system has its old size, and is clean")]
    Stopped,
    /// A tree of extents cannot be built.
    #[error("the blocks of a file cannot be mapped: {0}")]
    Pack(#[from] uext4_ondisk::pack::PackError),
    /// The device ends before the file system would.
    #[error("{need} bytes are needed, and the device has {have}")]
    DeviceTooSmall {
        /// Bytes of the file system as it would be.
        need: u64,
        /// Bytes of the device.
        have: u64,
    },
    /// No file system of this kind has so many blocks.
    #[error("the file system cannot have {wanted} blocks: {why}; {most} is the most")]
    TooLarge {
        /// Blocks asked for.
        wanted: u64,
        /// The most that it can have.
        most: u64,
        /// What limits them.
        why: &'static str,
    },
    /// It is not what a mount leaves.
    #[error("{what}: run `uext4 repair` first")]
    Unsound {
        /// What is wrong.
        what: &'static str,
    },
    /// Something that this crate does not do.
    #[error("not supported: {what}")]
    Unsupported {
        /// What is in the way.
        what: &'static str,
    },
    /// One transaction does not fit the log.
    #[error(
        "the journal is too small: {needed} blocks change at once, and a transaction has {most}; \
         make a larger journal first"
    )]
    JournalTooSmall {
        /// Blocks that must change in one transaction.
        needed: usize,
        /// Blocks of a transaction.
        most: u32,
    },
    /// One transaction does not fit the part of the log that a growth may take while the file
    /// system is mounted.
    #[error(
        "{needed} blocks change at once, and while it is mounted they may be {most}; unmount it \
         first, or let it grow in smaller steps"
    )]
    TooMuchMounted {
        /// Blocks that must change in one transaction.
        needed: usize,
        /// Blocks that may.
        most: u32,
    },
    /// The file system cannot be read or mounted.
    #[error(transparent)]
    FileSystem(#[from] uext4::Error),
    /// The new groups cannot be laid out.
    #[error("new groups cannot be laid out: {0}")]
    Layout(#[from] uext4_mkfs::Error),
    /// The shape of the file system that would result is not valid.
    #[error("the file system is not valid, or would not be: {0}")]
    Shape(#[from] uext4_ondisk::Damage),
    /// Another host has the file system, or the block that says so cannot be used.
    #[error(transparent)]
    Shared(#[from] uext4_redo::Error),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] uext4_jbd2::Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] uext4_blockdev::Error),
}
