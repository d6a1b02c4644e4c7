//! The issues that a check can find: one variant per kind, each with the values that show it.

use std::fmt;

use uext4_ondisk::inode::FileType;
use uext4_ondisk::{Damage, GroupNr, Ino, Pblk};

/// One issue found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Issue {
    /// A structure does not parse, or its checksum is wrong.
    Damage {
        /// The inode that it belongs to, if any.
        ino: Option<Ino>,
        /// The damage.
        damage: Damage,
    },
    /// The device ends before the file system does; the rest was not checked.
    CutOff {
        /// Size of the file system in bytes.
        need: u64,
        /// Size of the device in bytes.
        have: u64,
        /// Number of blocks that are missing, wholly or in part.
        blocks: u64,
    },
    /// The primary superblock cannot be used; a copy of it was used instead.
    LostSuperblock {
        /// The reason.
        why: String,
    },
    /// A block has two owners.
    SharedBlock {
        /// The first such block of the run.
        block: Pblk,
        /// The second owner; `None` for group metadata.
        ino: Option<Ino>,
    },
    /// Blocks in use are marked free in the bitmap.
    BlocksNotMarked {
        /// The group.
        group: GroupNr,
        /// The number of blocks.
        count: u32,
        /// The first of them.
        first: Pblk,
    },
    /// Blocks are marked used in the bitmap, but have no owner.
    BlocksUnowned {
        /// The group.
        group: GroupNr,
        /// The number of blocks.
        count: u32,
        /// The first of them.
        first: Pblk,
    },
    /// The inode bitmap and the inode table disagree.
    InodeBitmap {
        /// The inode.
        ino: Ino,
        /// The bit in the bitmap.
        marked: bool,
    },
    /// The bits of a bitmap past the end of its group are not all set.
    BitmapPadding {
        /// The group.
        group: GroupNr,
        /// Block bitmap or inode bitmap.
        what: &'static str,
    },
    /// The superblock records errors that were not yet repaired.
    ErrorState {
        /// `s_error_count`.
        count: u32,
    },
    /// A count in a group descriptor is wrong.
    GroupCount {
        /// The group.
        group: GroupNr,
        /// The field.
        field: &'static str,
        /// As stored.
        stored: u32,
        /// As counted.
        counted: u32,
    },
    /// A count in the superblock is wrong.
    TotalCount {
        /// The field.
        field: &'static str,
        /// As stored.
        stored: u64,
        /// As counted.
        counted: u64,
    },
    /// `i_blocks` does not match the blocks that the inode owns.
    InodeBlocks {
        /// The inode.
        ino: Ino,
        /// As stored, in 512-byte units.
        stored: u64,
        /// As counted.
        counted: u64,
    },
    /// `i_size` ends before the last block that is mapped and written, or is not a whole number
    /// of blocks in a directory.
    InodeSize {
        /// The inode.
        ino: Ino,
        /// As stored.
        size: u64,
        /// End of its mapped blocks in bytes.
        mapped_to: u64,
    },
    /// The link count differs from the number of names.
    LinkCount {
        /// The inode.
        ino: Ino,
        /// As stored.
        stored: u16,
        /// As counted.
        counted: u32,
    },
    /// An inode is in use, but no directory entry refers to it.
    Unreachable {
        /// The inode.
        ino: Ino,
    },
    /// A directory entry refers to an inode that is not in use.
    DanglingName {
        /// The directory.
        dir: Ino,
        /// The name as stored.
        name: Vec<u8>,
        /// The inode that it refers to.
        ino: Ino,
    },
    /// A name contains a slash or a zero byte, so that no path can contain it.
    IllegalName {
        /// The directory.
        dir: Ino,
        /// The name as stored.
        name: Vec<u8>,
    },
    /// A directory entry refers to an inode that is internal to the file system, such as the
    /// journal.
    ReservedName {
        /// The directory.
        dir: Ino,
        /// The name as stored.
        name: Vec<u8>,
        /// The inode that it refers to.
        ino: Ino,
    },
    /// The orphan list or the orphan file contains an inode that cannot be an orphan.
    Orphan {
        /// The inode.
        ino: Ino,
        /// The reason.
        why: &'static str,
    },
    /// A directory entry's file type differs from that of its inode.
    NameType {
        /// The directory.
        dir: Ino,
        /// The name as stored.
        name: Vec<u8>,
        /// The file type in the entry.
        recorded: FileType,
        /// The inode's type.
        actual: FileType,
    },
    /// A directory contains the same name twice.
    DuplicateName {
        /// The directory.
        dir: Ino,
        /// The name as stored.
        name: Vec<u8>,
    },
    /// Two directory entries refer to a directory.
    SecondParent {
        /// The directory.
        dir: Ino,
        /// The second directory that refers to it.
        parent: Ino,
    },
    /// The `..` of a directory does not refer to its parent.
    DotDot {
        /// The directory.
        dir: Ino,
        /// The inode that its `..` refers to.
        found: Ino,
        /// The directory that refers to it.
        parent: Ino,
    },
    /// A lookup does not find a name, or finds another inode: the entry is in the wrong leaf.
    NameNotFound {
        /// The directory.
        dir: Ino,
        /// The name as stored.
        name: Vec<u8>,
    },
    /// The reference count of a shared attribute block is wrong.
    XattrRefcount {
        /// The block.
        block: Pblk,
        /// As stored.
        stored: u32,
        /// As counted.
        counted: u32,
    },
}

impl Issue {
    /// A stable identifier of this kind, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Damage { .. } => "damage",
            Self::CutOff { .. } => "cut-off",
            Self::LostSuperblock { .. } => "lost-superblock",
            Self::SharedBlock { .. } => "shared-block",
            Self::BlocksNotMarked { .. } => "blocks-not-marked",
            Self::BlocksUnowned { .. } => "blocks-unowned",
            Self::InodeBitmap { .. } => "inode-bitmap",
            Self::BitmapPadding { .. } => "bitmap-padding",
            Self::ErrorState { .. } => "error-state",
            Self::GroupCount { .. } => "group-count",
            Self::TotalCount { .. } => "total-count",
            Self::InodeBlocks { .. } => "inode-blocks",
            Self::InodeSize { .. } => "inode-size",
            Self::LinkCount { .. } => "link-count",
            Self::Unreachable { .. } => "unreachable",
            Self::DanglingName { .. } => "dangling-name",
            Self::IllegalName { .. } => "illegal-name",
            Self::ReservedName { .. } => "reserved-name",
            Self::Orphan { .. } => "orphan",
            Self::NameType { .. } => "name-type",
            Self::DuplicateName { .. } => "duplicate-name",
            Self::SecondParent { .. } => "second-parent",
            Self::DotDot { .. } => "dot-dot",
            Self::NameNotFound { .. } => "name-not-found",
            Self::XattrRefcount { .. } => "xattr-refcount",
        }
    }

    /// The inode concerned, if any.
    pub fn ino(&self) -> Option<Ino> {
        match self {
            Self::Damage { ino, .. } | Self::SharedBlock { ino, .. } => *ino,
            Self::InodeBitmap { ino, .. }
            | Self::InodeBlocks { ino, .. }
            | Self::InodeSize { ino, .. }
            | Self::LinkCount { ino, .. }
            | Self::Orphan { ino, .. }
            | Self::Unreachable { ino } => Some(*ino),
            Self::DanglingName { dir, .. }
            | Self::IllegalName { dir, .. }
            | Self::ReservedName { dir, .. }
            | Self::NameType { dir, .. }
            | Self::DuplicateName { dir, .. }
            | Self::SecondParent { dir, .. }
            | Self::DotDot { dir, .. }
            | Self::NameNotFound { dir, .. } => Some(*dir),
            _ => None,
        }
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damage {
                ino: Some(ino),
                damage,
            } => write!(f, "inode {ino}: {damage}"),
            Self::Damage { ino: None, damage } => damage.fmt(f),
            Self::SharedBlock {
                block,
                ino: Some(ino),
            } => {
                write!(f, "block {block}: has another owner besides inode {ino}")
            }
            Self::SharedBlock { block, ino: None } => {
                write!(
                    f,
                    "block {block}: two structures of the group metadata claim it"
                )
            }
            Self::BlocksNotMarked {
                group,
                count,
                first,
            } => {
                write!(
                    f,
                    "group {group}: {count} blocks in use are marked free, first {first}"
                )
            }
            Self::BlocksUnowned {
                group,
                count,
                first,
            } => {
                write!(
                    f,
                    "group {group}: {count} blocks marked used have no owner, first {first}"
                )
            }
            Self::InodeBitmap { ino, marked: true } => {
                write!(f, "inode {ino}: marked used in the bitmap, but is not")
            }
            Self::InodeBitmap { ino, marked: false } => {
                write!(f, "inode {ino}: in use, but marked free in the bitmap")
            }
            Self::BitmapPadding { group, what } => {
                write!(f, "group {group}: the {what} is not padded with ones")
            }
            Self::ErrorState { count } => {
                write!(f, "superblock: marked as having errors ({count} recorded)")
            }
            Self::GroupCount {
                group,
                field,
                stored,
                counted,
            } => {
                write!(f, "group {group}: {field} is {stored}, counted {counted}")
            }
            Self::TotalCount {
                field,
                stored,
                counted,
            } => {
                write!(f, "superblock: {field} is {stored}, counted {counted}")
            }
            _ => self.fmt_inode(f),
        }
    }
}

impl Issue {
    fn fmt_inode(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InodeBlocks {
                ino,
                stored,
                counted,
            } => {
                write!(f, "inode {ino}: i_blocks is {stored}, counted {counted}")
            }
            Self::InodeSize {
                ino,
                size,
                mapped_to,
            } => {
                write!(
                    f,
                    "inode {ino}: i_size is {size}, its blocks reach to {mapped_to}"
                )
            }
            Self::LinkCount {
                ino,
                stored,
                counted,
            } => {
                write!(
                    f,
                    "inode {ino}: link count is {stored}, {counted} names lead to it"
                )
            }
            Self::Unreachable { ino } => write!(f, "inode {ino}: in use, but no name leads to it"),
            Self::Orphan { ino, why } => {
                write!(f, "inode {ino}: is on the orphan list, but {why}")
            }
            Self::XattrRefcount {
                block,
                stored,
                counted,
            } => {
                write!(
                    f,
                    "xattr block {block}: reference count is {stored}, counted {counted}"
                )
            }
            _ => self.fmt_name(f),
        }
    }

    fn fmt_name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DanglingName { dir, name, ino } => {
                write!(
                    f,
                    "directory {dir}: \"{}\" leads to unused inode {ino}",
                    name.escape_ascii()
                )
            }
            Self::IllegalName { dir, name } => {
                write!(
                    f,
                    "directory {dir}: \"{}\" contains a slash or a zero byte",
                    name.escape_ascii()
                )
            }
            Self::ReservedName { dir, name, ino } => {
                write!(
                    f,
                    "directory {dir}: \"{}\" leads to inode {ino}, which is the file system's own",
                    name.escape_ascii()
                )
            }
            Self::NameType {
                dir,
                name,
                recorded,
                actual,
            } => write!(
                f,
                "directory {dir}: \"{}\" is recorded as {recorded:?}, is {actual:?}",
                name.escape_ascii()
            ),
            Self::DuplicateName { dir, name } => {
                write!(
                    f,
                    "directory {dir}: \"{}\" is there twice",
                    name.escape_ascii()
                )
            }
            Self::SecondParent { dir, parent } => {
                write!(
                    f,
                    "directory {dir}: is named a second time, by directory {parent}"
                )
            }
            Self::DotDot { dir, found, parent } => {
                write!(
                    f,
                    "directory {dir}: \"..\" leads to {found}, its parent is {parent}"
                )
            }
            Self::NameNotFound { dir, name } => write!(
                f,
                "directory {dir}: a look-up does not find \"{}\": it lies in the wrong block",
                name.escape_ascii()
            ),
            _ => self.fmt_loss(f),
        }
    }

    fn fmt_loss(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutOff { need, have, blocks } => write!(
                f,
                "the image ends at byte {have}, the file system at {need}: {} bytes ({blocks} blocks) \
                 are missing; the rest was not checked",
                need.saturating_sub(*have)
            ),
            Self::LostSuperblock { why } => {
                write!(f, "the primary superblock cannot be used: {why}")
            }
            // Every other kind is printed by `Display` itself.
            other => f.write_str(other.kind()),
        }
    }
}
