//! Feature sets, and the one table that says what this implementation does with each of them.

use bitflags::bitflags;

bitflags! {
    /// Features that an implementation may ignore altogether (`s_feature_compat`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Compat: u32 {
        /// Directory preallocation.
        const DIR_PREALLOC = 0x1;
        /// AFS server inodes.
        const IMAGIC_INODES = 0x2;
        /// A journal exists.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes.
        const EXT_ATTR = 0x8;
        /// Reserved descriptor blocks, held by inode 7.
        const RESIZE_INODE = 0x10;
        /// Hashed directories.
        const DIR_INDEX = 0x20;
        /// Lazy group initialisation (never used by the kernel).
        const LAZY_BG = 0x40;
        /// Snapshot exclude inode (never merged).
        const EXCLUDE_INODE = 0x80;
        /// Snapshot exclude bitmap (never merged).
        const EXCLUDE_BITMAP = 0x100;
        /// At most two backup superblocks, in the groups named by `s_backup_bgs`.
        const SPARSE_SUPER2 = 0x200;
        /// Fast commits may be in the journal.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and UUID never change (for encryption).
        const STABLE_INODES = 0x800;
        /// The orphan file exists.
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }
}

bitflags! {
    /// Features without which the file system must not be read (`s_feature_incompat`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Incompat: u32 {
        /// Compressed files.
        const COMPRESSION = 0x1;
        /// Directory entries report the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// This is an external journal.
        const JOURNAL_DEV = 0x8;
        /// Descriptors live in their meta block group.
        const META_BG = 0x10;
        /// Extent trees.
        const EXTENTS = 0x40;
        /// 64-bit block numbers and larger descriptors.
        const BIT64 = 0x80;
        /// Multiple mount protection.
        const MMP = 0x100;
        /// Bitmaps and tables may live in another group of the flex group.
        const FLEX_BG = 0x200;
        /// Attribute values in inodes of their own.
        const EA_INODE = 0x400;
        /// Data in directory entries.
        const DIRDATA = 0x1000;
        /// The checksum seed is stored, not derived from the UUID.
        const CSUM_SEED = 0x2000;
        /// Directories over 2 GiB, three-level htrees.
        const LARGEDIR = 0x4000;
        /// Small files within the inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted inodes may exist.
        const ENCRYPT = 0x10000;
        /// Case-insensitive directories may exist.
        const CASEFOLD = 0x20000;
        const _ = !0;
    }
}

bitflags! {
    /// Features without which the file system may be read but not written (`s_feature_ro_compat`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct RoCompat: u32 {
        /// Backups only in groups 0, 1 and powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x1;
        /// Files over 2 GiB.
        const LARGE_FILE = 0x2;
        /// B-tree directories (never used).
        const BTREE_DIR = 0x4;
        /// `i_blocks` may count file-system blocks.
        const HUGE_FILE = 0x8;
        /// Descriptors carry a crc16 and may be uninitialised (`uninit_bg`).
        const GDT_CSUM = 0x10;
        /// More than 65,000 subdirectories.
        const DIR_NLINK = 0x20;
        /// Large inodes carry extra fields.
        const EXTRA_ISIZE = 0x40;
        /// Snapshots (never merged).
        const HAS_SNAPSHOT = 0x80;
        /// Quota in hidden inodes.
        const QUOTA = 0x100;
        /// Allocation in clusters of blocks.
        const BIGALLOC = 0x200;
        /// crc32c over all metadata.
        const METADATA_CSUM = 0x400;
        /// Replicas (never used).
        const REPLICA = 0x800;
        /// The image is read-only for ever.
        const READONLY = 0x1000;
        /// Project quota.
        const PROJECT = 0x2000;
        /// Shared blocks (Android).
        const SHARED_BLOCKS = 0x4000;
        /// Verity files may exist.
        const VERITY = 0x8000;
        /// The orphan file may hold inodes.
        const ORPHAN_PRESENT = 0x10000;
        const _ = !0;
    }
}

/// The three feature words of one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Features {
    /// May be ignored.
    pub compat: Compat,
    /// Must be understood to read.
    pub incompat: Incompat,
    /// Must be understood to write.
    pub ro_compat: RoCompat,
}

/// One feature's bit, in its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureBit {
    /// A bit of `s_feature_compat`.
    Compat(Compat),
    /// A bit of `s_feature_incompat`.
    Incompat(Incompat),
    /// A bit of `s_feature_ro_compat`.
    RoCompat(RoCompat),
}

/// What is done with a feature in one respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Fully supported.
    Yes,
    /// Such a file system is refused, by this name.
    Refused,
}

/// A row of the feature table.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// The name mke2fs and dumpe2fs use.
    pub name: &'static str,
    /// Its bit.
    pub bit: FeatureBit,
    /// Reading a file system that has it.
    pub read: Support,
    /// Writing a file system that has it.
    pub write: Support,
    /// Checking the structures it brings.
    pub check: Support,
    /// One line for the documentation.
    pub note: &'static str,
}

const Y: Support = Support::Yes;
const N: Support = Support::Refused;

macro_rules! features {
    ($($word:ident $bit:ident $name:literal $r:ident $w:ident $c:ident $note:literal;)*) => {
        &[$(Feature {
            name: $name,
            bit: FeatureBit::$word($word::$bit),
            read: $r, write: $w, check: $c,
            note: $note,
        }),*]
    };
}

/// Every feature with a name, in the order of its word and bit: the only list there is.
///
/// `write` means: such an image can be created and filled by this implementation.
#[rustfmt::skip]
pub static FEATURES: &[Feature] = features! {
    Compat DIR_PREALLOC      "dir_prealloc"      Y N Y "ignored, as the kernel does";
    Compat IMAGIC_INODES     "imagic_inodes"     Y N N "ignored, as the kernel does";
    Compat HAS_JOURNAL       "has_journal"       Y Y Y "internal journal; replayed in memory for reading";
    Compat EXT_ATTR          "ext_attr"          Y Y Y "";
    Compat RESIZE_INODE      "resize_inode"      Y Y Y "";
    Compat DIR_INDEX         "dir_index"         Y Y Y "";
    Compat LAZY_BG           "lazy_bg"           Y N N "";
    Compat EXCLUDE_INODE     "exclude_inode"     Y N N "snapshots were never merged";
    Compat EXCLUDE_BITMAP    "snapshot_bitmap"   Y N N "snapshots were never merged";
    Compat SPARSE_SUPER2     "sparse_super2"     Y Y Y "";
    Compat FAST_COMMIT       "fast_commit"       Y Y Y "replayed, in memory or for good; not written";
    Compat STABLE_INODES     "stable_inodes"     Y N Y "";
    Compat ORPHAN_FILE       "orphan_file"       Y Y Y "";
    Incompat COMPRESSION     "compression"       N N N "never in mainline";
    Incompat FILETYPE        "filetype"          Y Y Y "";
    Incompat RECOVER         "needs_recovery"    Y N Y "set by a writer while it is mounted";
    Incompat JOURNAL_DEV     "journal_dev"       N N N "an external journal, not a file system";
    Incompat META_BG         "meta_bg"           Y Y Y "";
    Incompat EXTENTS         "extent"            Y Y Y "";
    Incompat BIT64           "64bit"             Y Y Y "";
    Incompat MMP             "mmp"               Y Y Y "";
    Incompat FLEX_BG         "flex_bg"           Y Y Y "";
    Incompat EA_INODE        "ea_inode"          Y Y Y "";
    Incompat DIRDATA         "dirdata"           N N N "Lustre only";
    Incompat CSUM_SEED       "metadata_csum_seed" Y Y Y "";
    Incompat LARGEDIR        "large_dir"         Y Y Y "";
    Incompat INLINE_DATA     "inline_data"       Y Y Y "read, made, changed and moved out";
    Incompat ENCRYPT         "encrypt"           Y N Y "names in no-key form; contents refused";
    Incompat CASEFOLD        "casefold"          Y N Y "names shown as stored, looked up exactly";
    RoCompat SPARSE_SUPER    "sparse_super"      Y Y Y "";
    RoCompat LARGE_FILE      "large_file"        Y Y Y "";
    RoCompat BTREE_DIR       "btree_dir"         Y N N "never used";
    RoCompat HUGE_FILE       "huge_file"         Y Y Y "";
    RoCompat GDT_CSUM        "uninit_bg"         Y Y Y "";
    RoCompat DIR_NLINK       "dir_nlink"         Y Y Y "";
    RoCompat EXTRA_ISIZE     "extra_isize"       Y Y Y "";
    RoCompat HAS_SNAPSHOT    "snapshot"          Y N N "snapshots were never merged";
    RoCompat QUOTA           "quota"             Y Y Y "counted, journaled, enforced, built";
    RoCompat BIGALLOC        "bigalloc"          Y N Y "";
    RoCompat METADATA_CSUM   "metadata_csum"     Y Y Y "";
    RoCompat REPLICA         "replica"           Y N N "never used";
    RoCompat READONLY        "read-only"         Y N Y "";
    RoCompat PROJECT         "project"           Y Y Y "project ids are read and kept";
    RoCompat SHARED_BLOCKS   "shared_blocks"     Y N Y "blocks may have several owners";
    RoCompat VERITY          "verity"            Y N Y "data as stored; the tree is not verified";
    RoCompat ORPHAN_PRESENT  "orphan_present"    Y N Y "set by a writer while it is mounted";
};

impl FeatureBit {
    /// True if `features` has this bit.
    pub fn is_in(self, features: Features) -> bool {
        match self {
            FeatureBit::Compat(b) => features.compat.contains(b),
            FeatureBit::Incompat(b) => features.incompat.contains(b),
            FeatureBit::RoCompat(b) => features.ro_compat.contains(b),
        }
    }

    /// Sets this bit in `features`.
    pub fn insert_into(self, features: &mut Features) {
        match self {
            FeatureBit::Compat(b) => features.compat.insert(b),
            FeatureBit::Incompat(b) => features.incompat.insert(b),
            FeatureBit::RoCompat(b) => features.ro_compat.insert(b),
        }
    }

    /// Clears this bit in `features`.
    pub fn remove_from(self, features: &mut Features) {
        match self {
            FeatureBit::Compat(b) => features.compat.remove(b),
            FeatureBit::Incompat(b) => features.incompat.remove(b),
            FeatureBit::RoCompat(b) => features.ro_compat.remove(b),
        }
    }
}

/// The row of the table with this name (`extents` and `huge_files` style aliases of mke2fs
/// included).
pub fn feature_by_name(name: &str) -> Option<&'static Feature> {
    let name = match name {
        "extents" => "extent",
        "gdt_csum" => "uninit_bg",
        "inline" => "inline_data",
        other => other,
    };
    FEATURES.iter().find(|f| f.name == name)
}

impl Features {
    /// The known features that are set, in the table's order.
    pub fn known(self) -> impl Iterator<Item = &'static Feature> {
        FEATURES.iter().filter(move |f| f.bit.is_in(self))
    }

    /// Names of the features for which such a file system cannot be read, unknown bits included.
    pub fn unreadable(self) -> Vec<String> {
        let mut names = self.refused(|f| f.read);
        push_unknown(&mut names, "FEATURE_I", self.incompat.bits(), |f| {
            match f.bit {
                FeatureBit::Incompat(b) => b.bits(),
                _ => 0,
            }
        });
        names
    }

    /// Names of the features for which such a file system cannot be written, unknown bits included.
    pub fn unwritable(self) -> Vec<String> {
        let mut names = self.refused(|f| f.write);
        push_unknown(&mut names, "FEATURE_I", self.incompat.bits(), |f| {
            match f.bit {
                FeatureBit::Incompat(b) => b.bits(),
                _ => 0,
            }
        });
        push_unknown(
            &mut names,
            "FEATURE_R",
            self.ro_compat.bits(),
            |f| match f.bit {
                FeatureBit::RoCompat(b) => b.bits(),
                _ => 0,
            },
        );
        names
    }

    /// True if all metadata carries crc32c checksums.
    pub fn metadata_csum(self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    fn refused(self, by: impl Fn(&Feature) -> Support) -> Vec<String> {
        self.known()
            .filter(|f| by(f) == Support::Refused)
            .map(|f| f.name.to_owned())
            .collect()
    }
}

/// Adds the set bits of `word` that no row of the table owns, named as dumpe2fs names them.
fn push_unknown(
    names: &mut Vec<String>,
    prefix: &str,
    word: u32,
    bit_of: impl Fn(&Feature) -> u32,
) {
    let known = FEATURES.iter().fold(0, |mask, f| mask | bit_of(f));
    names.extend(
        (0..32)
            .filter(|i| word & !known & (1 << i) != 0)
            .map(|i| format!("{prefix}{i}")),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (i, f) in FEATURES.iter().enumerate() {
            assert!(
                std::ptr::eq(feature_by_name(f.name).unwrap(), &FEATURES[i]),
                "{}",
                f.name
            );
        }
    }

    #[test]
    fn unknown_bits_are_named() {
        let features = Features {
            incompat: Incompat::from_bits_retain(1 << 31),
            ..Features::default()
        };
        assert_eq!(features.unreadable(), ["FEATURE_I31"]);
    }

    #[test]
    fn writable_implies_readable() {
        for f in FEATURES {
            assert!(
                f.read == Support::Yes || f.write == Support::Refused,
                "{}",
                f.name
            );
        }
    }
}
