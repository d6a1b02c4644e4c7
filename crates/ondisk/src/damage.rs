//! Every kind of damage an image can have, each with the numbers that show it.

use crate::num::len64;
use crate::units::{GroupNr, Ino, Lblk, Pblk};

/// What is wrong with an image, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A structure runs past the end of what holds it.
    #[error("{structure}: needs {need} bytes, only {have} are there")]
    Truncated {
        /// The structure.
        structure: &'static str,
        /// Bytes it needs.
        need: u64,
        /// Bytes there are.
        have: u64,
    },
    /// Not an ext2, ext3 or ext4 file system.
    #[error(
        "superblock: magic is {found:#06x}, not 0xef53: no ext2, ext3 or ext4 file system here"
    )]
    SuperblockMagic {
        /// What stands in `s_magic`.
        found: u16,
    },
    /// The superblock's checksum is wrong.
    #[error("superblock: checksum is {stored:#010x}, should be {computed:#010x}")]
    SuperblockChecksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// A field of the superblock has a value it cannot have.
    #[error("superblock: {field} is {value}: {why}")]
    SuperblockField {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// Why that cannot be.
        why: &'static str,
    },
    /// The file system is larger than the device or image it lies on.
    #[error("superblock: the file system needs {need} bytes, the device has {have}")]
    DeviceTooSmall {
        /// Bytes the file system spans.
        need: u64,
        /// Bytes of the device.
        have: u64,
    },
    /// The superblock names the log of a repair that was cut off, and the log is damaged.
    #[error(
        "a repair was cut off while it was written, and its log is damaged: `uext4 repair IMAGE` \
         mends what is there"
    )]
    RepairLog,
    /// A group descriptor's checksum is wrong.
    #[error("group {group}: descriptor checksum is {stored:#06x}, should be {computed:#06x}")]
    DescChecksum {
        /// The group.
        group: GroupNr,
        /// As stored.
        stored: u16,
        /// As computed.
        computed: u16,
    },
    /// A descriptor places something outside the file system or its group.
    #[error("group {group}: {what} at block {block} lies outside where it may")]
    DescLocation {
        /// The group.
        group: GroupNr,
        /// Block bitmap, inode bitmap or inode table.
        what: &'static str,
        /// Where it says it is.
        block: Pblk,
    },
    /// A bitmap's checksum is wrong.
    #[error("group {group}: {what} checksum is {stored:#x}, should be {computed:#x}")]
    BitmapChecksum {
        /// The group.
        group: GroupNr,
        /// Block bitmap or inode bitmap.
        what: &'static str,
        /// As stored in the descriptor.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// A bitmap does not have as much free as its descriptor says.
    #[error("group {group}: {what} has {bitmap} free, the descriptor says {descriptor}")]
    BitmapCount {
        /// The group.
        group: GroupNr,
        /// Block bitmap or inode bitmap.
        what: &'static str,
        /// Free ones in the bitmap, or as many as can be.
        bitmap: u32,
        /// Free ones by the descriptor.
        descriptor: u32,
    },
    /// A block number outside the file system.
    #[error(
        "{what}: blocks {start} to {start}+{len} lie outside the file system of {blocks_count} blocks"
    )]
    BlockRange {
        /// What refers to it.
        what: &'static str,
        /// First block.
        start: Pblk,
        /// Blocks.
        len: u64,
        /// Blocks of the file system.
        blocks_count: u64,
    },
    /// An inode number outside the file system.
    #[error("{what}: inode {ino} does not exist, there are {inodes_count}")]
    InodeNumber {
        /// What refers to it.
        what: &'static str,
        /// The number.
        ino: Ino,
        /// Inodes of the file system.
        inodes_count: u32,
    },
    /// An inode's checksum is wrong.
    #[error("inode {ino}: checksum is {stored:#x}, should be {computed:#x}")]
    InodeChecksum {
        /// The inode.
        ino: Ino,
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// `i_extra_isize` does not fit.
    #[error("inode {ino}: i_extra_isize {extra_isize} does not fit an inode of {inode_size} bytes")]
    InodeExtraSize {
        /// The inode.
        ino: Ino,
        /// The field.
        extra_isize: u16,
        /// Bytes of an inode.
        inode_size: u32,
    },
    /// An inode that is not in use, though something refers to it.
    #[error("inode {ino} is not in use: {why}")]
    UnusedInode {
        /// The inode.
        ino: Ino,
        /// What says so.
        why: &'static str,
    },
    /// A field of an inode has a value it cannot have.
    #[error("inode {ino}: {field} is {value}: {why}")]
    InodeField {
        /// The inode.
        ino: Ino,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// Why that cannot be.
        why: &'static str,
    },
    /// An extent node's header is wrong.
    #[error("extent node {}: {why} (magic {magic:#06x}, {entries} of {max} entries, depth {depth})",
        place(*.block))]
    ExtentHeader {
        /// The node's block; none for the root in the inode.
        block: Option<Pblk>,
        /// What is wrong.
        why: &'static str,
        /// `eh_magic`.
        magic: u16,
        /// `eh_entries`.
        entries: u16,
        /// `eh_max`.
        max: u16,
        /// `eh_depth`.
        depth: u16,
    },
    /// Extents overlap, descend or are empty.
    #[error("extent node {}: entry {entry} (logical block {lblk}) overlaps, descends or is empty",
        place(*.block))]
    ExtentOrder {
        /// The node's block; none for the root in the inode.
        block: Option<Pblk>,
        /// Index of the entry.
        entry: u16,
        /// Its first logical block.
        lblk: Lblk,
    },
    /// The checksum of a block of metadata is wrong.
    #[error("{structure} in block {block}: checksum is {stored:#010x}, should be {computed:#010x}")]
    BlockChecksum {
        /// What the block holds.
        structure: &'static str,
        /// The block.
        block: Pblk,
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// A block of metadata has no room for its checksum.
    #[error("{structure} in block {block}: the checksum record is missing")]
    NoChecksum {
        /// What the block holds.
        structure: &'static str,
        /// The block.
        block: Pblk,
    },
    /// A directory record is wrong.
    #[error("directory {}, offset {offset}: {why} (record of {rec_len} bytes)", place(*.block))]
    DirEntry {
        /// The block; none for inline data.
        block: Option<Pblk>,
        /// Offset of the record in it.
        offset: u32,
        /// What is wrong.
        why: &'static str,
        /// The record's length.
        rec_len: u32,
    },
    /// A directory as a whole is wrong.
    #[error("directory inode {ino}: {why}")]
    Directory {
        /// The directory.
        ino: Ino,
        /// What is wrong.
        why: &'static str,
    },
    /// An htree node is wrong.
    #[error("htree node in logical block {lblk}: {why} (limit {limit}, count {count})")]
    HtreeNode {
        /// Its logical block in the directory.
        lblk: Lblk,
        /// What is wrong.
        why: &'static str,
        /// `limit`.
        limit: u16,
        /// `count`.
        count: u16,
    },
    /// An attribute block's header is wrong.
    #[error(
        "xattr block {block}: magic is {magic:#010x} and h_blocks {blocks}, should be 0xea020000 and 1"
    )]
    XattrHeader {
        /// The block.
        block: Pblk,
        /// `h_magic`.
        magic: u32,
        /// `h_blocks`.
        blocks: u32,
    },
    /// An attribute is wrong.
    #[error("xattrs of {}, offset {offset}: {why}", xattr_place(*.at))]
    Xattr {
        /// Where the attributes are.
        at: XattrPlace,
        /// Offset in them.
        offset: u32,
        /// What is wrong.
        why: &'static str,
    },
    /// A POSIX ACL is wrong.
    #[error("ACL: {why}")]
    Acl {
        /// What is wrong.
        why: &'static str,
    },
    /// The journal's superblock is wrong.
    #[error("journal superblock: {why} ({value})")]
    JournalSuperblock {
        /// What is wrong.
        why: &'static str,
        /// The value that shows it.
        value: u64,
    },
    /// A journal checksum is wrong where it must not be.
    #[error(
        "journal {what} at log block {block}: checksum is {stored:#010x}, should be {computed:#010x}"
    )]
    JournalChecksum {
        /// What is summed.
        what: &'static str,
        /// Block of the log.
        block: u32,
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// A journal block is wrong.
    #[error("journal: log block {at}: {why}")]
    JournalBlock {
        /// Block of the log.
        at: u32,
        /// What is wrong.
        why: &'static str,
    },
    /// A structure of which the field names suffice is wrong: MMP, orphan file, quota, fast commit.
    #[error("{structure}: {field} is {value}: {why}")]
    Field {
        /// The structure.
        structure: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// Why that cannot be.
        why: &'static str,
    },
}

impl Damage {
    /// [`Damage::Truncated`] of a structure that needs `need` bytes, where there are `have`.
    pub fn truncated(structure: &'static str, need: usize, have: usize) -> Self {
        Self::Truncated {
            structure,
            need: len64(need),
            have: len64(have),
        }
    }

    /// [`Damage::BlockChecksum`] unless the two sums are equal.
    pub(crate) fn check_sum(
        structure: &'static str,
        block: Pblk,
        stored: u32,
        computed: u32,
    ) -> Result<(), Self> {
        if stored == computed {
            return Ok(());
        }
        Err(Self::BlockChecksum {
            structure,
            block,
            stored,
            computed,
        })
    }
}

fn place(block: Option<Pblk>) -> String {
    block.map_or_else(|| "in the inode".to_owned(), |b| format!("in block {b}"))
}

/// Where a set of attributes was found, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrPlace {
    /// In the body of an inode.
    Inode(Ino),
    /// In a block.
    Block(Pblk),
}

fn xattr_place(at: XattrPlace) -> String {
    match at {
        XattrPlace::Inode(ino) => format!("inode {ino}"),
        XattrPlace::Block(block) => format!("block {block}"),
    }
}
