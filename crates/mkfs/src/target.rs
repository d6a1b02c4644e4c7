//! What must mount or read an image: kernels, boot loaders and platforms, and the features that
//! each of them understands. One row of the table each.
//!
//! Sources: "KERNEL SUPPORT" in ext4(5), which names the kernel that first supported a feature
//! (and says that enterprise kernels may differ); the pages named in the rows.

use crate::feature_list::parse_features;
use crate::options::Options;

/// The features that fit one kernel, boot loader or platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What `--profile` takes.
    pub name: &'static str,
    /// Features to clear and to set, as `-O` takes them.
    pub features: &'static str,
    /// Why, in one line.
    pub why: &'static str,
    /// Where that is documented.
    pub source: &'static str,
}

const KERNEL: &str = "ext4(5), KERNEL SUPPORT";
const SYSLINUX: &str = "https://wiki.syslinux.org/wiki/index.php/Filesystem";
const GRUB: &str = "https://github.com/lunar-linux/moonbase-core/pull/3334";
const E2B: &str = "e2b-dev/infra: packages/orchestrator/pkg/template/build/core/filesystem/ext4.go";

/// All profiles: kernels by age, then boot loaders, then platforms.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "linux-3.10",
        features: "^metadata_csum,^metadata_csum_seed,^sparse_super2,^encrypt,^project,^ea_inode,\
                   ^large_dir,^casefold,^verity,^stable_inodes,^fast_commit,^orphan_file",
        why: "has inline_data and quota; metadata_csum came with 3.18",
        source: KERNEL,
    },
    Profile {
        name: "linux-3.18",
        features: "^metadata_csum_seed,^encrypt,^project,^ea_inode,^large_dir,^casefold,^verity,\
                   ^stable_inodes,^fast_commit,^orphan_file",
        why: "the first kernel with metadata_csum; no encrypt and no metadata_csum_seed",
        source: KERNEL,
    },
    Profile {
        name: "linux-4.4",
        features: "^project,^ea_inode,^large_dir,^casefold,^verity,^stable_inodes,^fast_commit,\
                   ^orphan_file",
        why: "the first kernel with metadata_csum_seed; project came with 4.5",
        source: KERNEL,
    },
    Profile {
        name: "linux-4.18",
        features: "^casefold,^verity,^stable_inodes,^fast_commit,^orphan_file",
        why: "has ea_inode and large_dir; casefold came with 5.2",
        source: KERNEL,
    },
    Profile {
        name: "linux-5.4",
        features: "^stable_inodes,^fast_commit,^orphan_file",
        why: "has casefold and verity; stable_inodes came with 5.5",
        source: KERNEL,
    },
    Profile {
        name: "syslinux",
        features: "^64bit",
        why: "the boot loader fails on file systems with 64bit, as of version 6.03",
        source: SYSLINUX,
    },
    Profile {
        name: "grub-2.06",
        features: "^metadata_csum_seed",
        why: "does not recognise file systems with metadata_csum_seed",
        source: GRUB,
    },
    Profile {
        name: "e2b",
        features: "^64bit,^dir_index,^dir_nlink,inline_data,sparse_super2",
        why: "what the microVM platform E2B makes its templates with",
        source: E2B,
    },
];

/// The profile of this name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

impl Profile {
    /// Puts the profile's features before those that the options have: these win.
    pub fn apply(&self, options: &mut Options) {
        // OK to default: a test parses every row.
        let mut edits = parse_features(self.features).unwrap_or_default();
        edits.append(&mut options.features);
        options.features = edits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};

    #[test]
    fn every_row_is_a_list_of_features_with_a_reason() {
        for row in PROFILES {
            let edits = parse_features(row.features).unwrap();
            assert_eq!(edits.len(), row.features.split(',').count(), "{}", row.name);
            assert!(!row.why.is_empty() && !row.source.is_empty());
            assert_eq!(profile(row.name), Some(row));
        }
        assert_eq!(profile("linux-0.1"), None);
    }

    #[test]
    fn features_that_are_asked_for_win() {
        let features = |profile: &str, asked: &str| -> Features {
            let mut options = Options::new([1; 16], [2; 16], 0);
            options.features = parse_features(asked).unwrap();
            super::profile(profile).unwrap().apply(&mut options);
            let layout = crate::layout(&options, 64 << 20).unwrap();
            layout.geometry.features
        };
        let old = features("linux-3.10", "");
        assert!(!old.ro_compat.contains(RoCompat::METADATA_CSUM));
        assert!(old.compat.contains(Compat::HAS_JOURNAL));
        let asked = features("linux-3.10", "metadata_csum");
        assert!(asked.ro_compat.contains(RoCompat::METADATA_CSUM));
        assert!(!features("syslinux", "").incompat.contains(Incompat::BIT64));
    }
}
