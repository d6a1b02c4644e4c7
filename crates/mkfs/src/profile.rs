//! The defaults of `/etc/mke2fs.conf`, as Debian ships it with mke2fs 1.47, built in.
//!
//! A setting is looked up in every type that applies, the later overriding the earlier: the file
//! system type, then the size type or what `-T` named.

use uext4_ondisk::BlockSize;
use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};

use crate::fs_type::FsType;

/// A type that `-T` can name, or that the size implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageType {
    /// Below 3 MiB: 1 KiB blocks, an inode per 8 KiB.
    Floppy,
    /// Below 512 MiB: 1 KiB blocks, an inode per 4 KiB.
    Small,
    /// No settings of its own.
    Default,
    /// From 4 TiB: an inode per 32 KiB.
    Big,
    /// From 16 TiB: an inode per 64 KiB.
    Huge,
    /// An inode per 4 KiB.
    News,
    /// An inode per MiB.
    LargeFile,
    /// An inode per 4 MiB.
    LargeFile4,
    /// 128-byte inodes.
    Hurd,
}

/// The block size a type asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProfileBlockSize {
    Bytes(BlockSize),
    /// `-1`: the page size.
    Page,
}

/// The page size of the machines images are made for.
pub(crate) const PAGE_SIZE: BlockSize = match BlockSize::from_bytes(4096) {
    Some(size) => size,
    None => BlockSize::MIN,
};
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

impl UsageType {
    /// From an item of the list that `-T` takes.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "floppy" => Self::Floppy,
            "small" => Self::Small,
            "default" => Self::Default,
            "big" => Self::Big,
            "huge" => Self::Huge,
            "news" => Self::News,
            "largefile" => Self::LargeFile,
            "largefile4" => Self::LargeFile4,
            "hurd" => Self::Hurd,
            _ => return None,
        })
    }

    /// What a file system of this many bytes is used for when `-T` does not say.
    pub fn by_size(bytes: u64) -> Self {
        if bytes < 3 * MIB {
            Self::Floppy
        } else if bytes < 512 * MIB {
            Self::Small
        } else if bytes < 4 * TIB {
            Self::Default
        } else if bytes < 16 * TIB {
            Self::Big
        } else {
            Self::Huge
        }
    }

    fn block_size(self) -> Option<ProfileBlockSize> {
        match self {
            Self::Floppy | Self::Small => Some(ProfileBlockSize::Bytes(BlockSize::MIN)),
            Self::Hurd => Some(ProfileBlockSize::Bytes(PAGE_SIZE)),
            Self::LargeFile | Self::LargeFile4 => Some(ProfileBlockSize::Page),
            _ => None,
        }
    }

    fn inode_ratio(self) -> Option<u64> {
        Some(match self {
            Self::Floppy => 8192,
            Self::Small | Self::News => 4096,
            Self::Big => 32768,
            Self::Huge => 65536,
            Self::LargeFile => MIB,
            Self::LargeFile4 => 4 * MIB,
            Self::Default | Self::Hurd => return None,
        })
    }
}

/// The last of `types` that says something, else the default.
fn last<T>(types: &[UsageType], get: impl Fn(UsageType) -> Option<T>, default: T) -> T {
    types.iter().rev().find_map(|&t| get(t)).unwrap_or(default)
}

/// Block size of a file system used for `types`.
pub(crate) fn block_size(types: &[UsageType]) -> BlockSize {
    let default = ProfileBlockSize::Bytes(PAGE_SIZE);
    match last(types, UsageType::block_size, default) {
        ProfileBlockSize::Bytes(size) => size,
        ProfileBlockSize::Page => PAGE_SIZE,
    }
}

/// Bytes per inode.
pub(crate) fn inode_ratio(types: &[UsageType]) -> u64 {
    last(types, UsageType::inode_ratio, 16384)
}

/// Bytes of an inode.
pub(crate) fn inode_size(types: &[UsageType]) -> u16 {
    last(types, |t| (t == UsageType::Hurd).then_some(128), 256)
}

/// Features before `-O`.
pub(crate) fn default_features(fs_type: FsType) -> Features {
    let mut features = Features {
        compat: Compat::RESIZE_INODE | Compat::DIR_INDEX | Compat::EXT_ATTR,
        incompat: Incompat::FILETYPE,
        ro_compat: RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE,
    };
    if fs_type != FsType::Ext2 {
        features.compat |= Compat::HAS_JOURNAL;
    }
    if fs_type == FsType::Ext4 {
        features.incompat |= Incompat::EXTENTS | Incompat::FLEX_BG | Incompat::BIT64;
        features.ro_compat |= RoCompat::HUGE_FILE
            | RoCompat::METADATA_CSUM
            | RoCompat::DIR_NLINK
            | RoCompat::EXTRA_ISIZE;
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_size() {
        assert_eq!(UsageType::by_size(3 * MIB - 1), UsageType::Floppy);
        assert_eq!(UsageType::by_size(3 * MIB), UsageType::Small);
        assert_eq!(UsageType::by_size(512 * MIB), UsageType::Default);
        assert_eq!(UsageType::by_size(4 * TIB), UsageType::Big);
        assert_eq!(UsageType::by_size(16 * TIB), UsageType::Huge);
    }

    #[test]
    fn later_types_override() {
        let types = [UsageType::Small, UsageType::LargeFile];
        assert_eq!(block_size(&types).bytes(), 4096);
        assert_eq!(inode_ratio(&types), MIB);
        assert_eq!(block_size(&[UsageType::Small]).bytes(), 1024);
        assert_eq!(inode_ratio(&[UsageType::Default]), 16384);
    }
}
