//! What a block of metadata is and whose: how it is verified when it comes in, and checksummed
//! with a checksum before it is written.

use uext4_buffer_cache::{ChecksumRule, Reuse, VerifyTag};
use uext4_ondisk::Ino;

/// What a block was verified as: the upper half of its [`VerifyTag`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Group descriptors, each verified when it is read.
    GroupDesc = 1,
    /// Inodes, each verified when it is read.
    InodeTable,
    /// A block of block numbers; it carries no checksum.
    Indirect,
    /// Block 0 of a directory.
    DirFirst,
    /// Any other block of a directory.
    Dir,
    /// Attributes.
    Xattr,
    /// Block and inode bitmaps; their sums are in the descriptors.
    Bitmap,
    /// Orphan file.
    Orphan,
    /// The superblock.
    Superblock,
    /// Bytes of a file or a symbolic link that go through the journal.
    Data,
    /// Quota file; it carries no checksum.
    Quota,
    /// An extent node of depth 0; deeper ones follow.
    Extent,
}

/// When a block of this tag will be used again, as far as its kind reports.
pub(crate) fn reuse(tag: VerifyTag) -> Reuse {
    match Kind::of_rule((tag.0 >> 56) as u32) {
        Kind::GroupDesc
        | Kind::Bitmap
        | Kind::Quota
        | Kind::DirFirst
        | Kind::Orphan
        | Kind::Superblock => Reuse::Soon,
        Kind::InodeTable | Kind::Indirect | Kind::Xattr | Kind::Extent => Reuse::Unknown,
        Kind::Dir | Kind::Data => Reuse::Once,
    }
}

/// The tag of a block of one kind that belongs to no inode.
pub(crate) fn tag(kind: Kind) -> VerifyTag {
    Owner::of(kind).tag()
}

/// The tag of a block of one kind (`sub`: its depth, for extent nodes) owned by an inode.
pub(crate) fn owned_tag(kind: Kind, sub: u16, ino: Ino, generation: u32) -> VerifyTag {
    Owner::new(kind, sub, ino, generation).tag()
}

/// What a block holds and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    kind: u32,
    ino: Ino,
    generation: u32,
}

impl Kind {
    /// Of what [`Owner::rule`] made.
    pub(crate) fn of_rule(kind: u32) -> Self {
        const KINDS: [Kind; 12] = [
            Kind::GroupDesc,
            Kind::InodeTable,
            Kind::Indirect,
            Kind::DirFirst,
            Kind::Dir,
            Kind::Xattr,
            Kind::Bitmap,
            Kind::Orphan,
            Kind::Superblock,
            Kind::Data,
            Kind::Quota,
            Kind::Extent,
        ];
        let index = (kind as usize).saturating_sub(1);
        KINDS.get(index).copied().unwrap_or(Kind::Extent)
    }
}

impl Owner {
    /// A block that belongs to no inode.
    pub(crate) fn of(kind: Kind) -> Self {
        Self::new(kind, 0, Ino(0), 0)
    }

    /// A block of an inode (`sub`: its depth, for extent nodes).
    pub(crate) fn new(kind: Kind, sub: u16, ino: Ino, generation: u32) -> Self {
        Self {
            kind: u32::from(kind as u8) + u32::from(sub),
            ino,
            generation,
        }
    }

    /// What it is verified as.
    pub(crate) fn tag(self) -> VerifyTag {
        let generation = u64::from(self.generation & 0xFF_FFFF);
        VerifyTag(u64::from(self.kind) << 56 | generation << 32 | u64::from(self.ino.0))
    }

    /// How it is checksummed before it is written.
    pub(crate) fn rule(self) -> ChecksumRule {
        ChecksumRule {
            kind: self.kind,
            owner: self.ino.0,
            generation: self.generation,
        }
    }
}
