//! Requests that make no sense, each with its numbers.

use uext4_ondisk::{Ino, Lblk};

/// What is wrong with a request (EINVAL).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The inode is neither a regular file nor a directory.
    #[error("not a regular file")]
    NotRegularFile,
    /// The inode is no symbolic link.
    #[error("not a symbolic link")]
    NotSymlink,
    /// An inode whose contents lie in no blocks.
    #[error("inode {0} has no blocks: it is inline, a short symbolic link or a special file")]
    NoBlocks(Ino),
    /// A name or a target of no bytes.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// A name or a target with a byte that it cannot have.
    #[error("{what} has the byte {byte:#04x} at {at}")]
    Byte {
        /// A name, or the target of a symbolic link.
        what: &'static str,
        /// Zero, or a slash in a name.
        byte: u8,
        /// Where the byte is.
        at: usize,
    },
    /// "." and ".." are in every directory, and cannot be made, moved or removed.
    #[error("the name is . or ..")]
    Dots,
    /// The root directory cannot be moved or removed.
    #[error("the root directory has no name")]
    Root,
    /// An inode that cannot be put back.
    #[error("inode {ino} cannot be put back: {why}")]
    NotDeleted {
        /// The inode.
        ino: Ino,
        /// What is in the way.
        why: &'static str,
    },
    /// A new directory without a name.
    #[error("a directory has a name from the beginning")]
    UnnamedDirectory,
    /// A directory would be moved to below itself.
    #[error("a directory cannot be moved into itself")]
    IntoItself,
    /// A range that must have whole blocks, or at least one byte.
    #[error(
        "{len} bytes at {offset}: the range must be of whole blocks of {block} bytes, not empty"
    )]
    Unaligned {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// A range that begins, or ends, where there is nothing any more.
    #[error("{len} bytes at {offset}: the range must lie below {end}")]
    PastEnd {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Where it has to end.
        end: u64,
    },
    /// A range is copied onto itself.
    #[error("{len} bytes at {from} cannot be copied to {to} of the same file: the ranges overlap")]
    Overlap {
        /// First byte that is copied.
        from: u64,
        /// Where to.
        to: u64,
        /// Bytes.
        len: u64,
    },
    /// A range is shorter than a block.
    #[error("a range of {len} bytes has no block, which has {block}")]
    RangeLen {
        /// Bytes.
        len: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// Free runs of this length do not fit a group.
    #[error("no free run has {len} blocks: a group has {group}")]
    RunLen {
        /// Blocks.
        len: u32,
        /// Blocks of a group.
        group: u32,
    },
    /// So many blocks cannot be one extent.
    #[error("no extent has {len} blocks from logical block {lblk} on")]
    Extent {
        /// First block.
        lblk: Lblk,
        /// Blocks.
        len: u32,
    },
    /// Logical blocks that must be a hole.
    #[error("of {len} blocks from logical block {lblk} on some are mapped already")]
    Mapped {
        /// First block.
        lblk: Lblk,
        /// Blocks.
        len: u32,
    },
    /// A logical block that must be mapped.
    #[error("logical block {0} is not mapped")]
    NotMapped(Lblk),
    /// Blocks would be moved to before the file.
    #[error("logical block {lblk} cannot be moved {by} blocks towards the start")]
    Shift {
        /// First block.
        lblk: Lblk,
        /// Blocks to move it by.
        by: u64,
    },
    /// The file system has no such group.
    #[error("no block group {group}: there are {groups}")]
    Group {
        /// Number of the group.
        group: u32,
        /// Groups.
        groups: u32,
    },
    /// No superblock can be at this block.
    #[error("no superblock lies at block {0}: backups are at 8193, 32768 or 98304")]
    Superblock(u64),
    /// A label that is too long.
    #[error("a label of {0} bytes: it may have 16")]
    Label(usize),
    /// Something that is no ACL.
    #[error("no ACL: {0}")]
    Acl(&'static str),
    /// An inode would have an extended attribute twice.
    #[error("an extended attribute is there twice")]
    SameXattr,
    /// The name of an extended attribute is a prefix alone.
    #[error("the name of an extended attribute is empty after its prefix")]
    XattrPrefix,
    /// Sharing of attributes is off.
    #[error("attributes are not shared with nombcache")]
    NotShared,
    /// Contents for an inode that is no empty file.
    #[error("inode {0} is no empty file, and cannot be given contents")]
    NotEmptyFile(Ino),
    /// Ranges of data must ascend and end within the size.
    #[error("data at bytes {start} to {end} overlap, descend or are past the end, {size}")]
    Data {
        /// First byte of the range.
        start: u64,
        /// Its end.
        end: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// A [`Creator`](crate::bulk::Creator) after an error.
    #[error("an earlier call failed half-way: create the file system anew")]
    Failed,
    /// A file system must have been unmounted before it is filled.
    #[error("the file system was not cleanly unmounted (state {0:#x}): run e2fsck")]
    NotClean(u16),
    /// The file was closed while its data were being written.
    #[error("the file is no longer in use")]
    Gone,
}
