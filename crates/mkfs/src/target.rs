//! What must mount or read an image: kernels, boot loaders and platforms, and the features that
//! each of them understands. One row of the table each; releases of distributions and platforms
//! without a list of their own are other names of kernels.
//!
//! Sources: "KERNEL SUPPORT" in ext4(5), which names the kernel that first supported a feature
//! (and says that enterprise kernels may differ); the pages named in the rows. Where the e2fsck of
//! a release is older than its kernel, the release has the row that its e2fsck understands, because
//! that runs before the file system is mounted. Boot loaders are not looked at for a release: where
//! a GRUB without metadata_csum_seed reads the image, `-O ^metadata_csum_seed` is needed, too.

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

/// Another name of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// What `--profile` takes.
    pub name: &'static str,
    /// The profile.
    pub profile: &'static str,
    /// Why, in one line.
    pub why: &'static str,
    /// Where that is documented.
    pub source: &'static str,
}

const fn alias(
    name: &'static str,
    profile: &'static str,
    why: &'static str,
    source: &'static str,
) -> Alias {
    Alias {
        name,
        profile,
        why,
        source,
    }
}

const FAST_COMMIT: &str = "https://lwn.net/Articles/842385/";
/// The notes of version 1.47.0.
const E2FSPROGS: &str = "https://e2fsprogs.sourceforge.net/e2fsprogs-release.html";
const U_BOOT: &str = "u-boot/u-boot: fs/ext4/ext4_write.c, fs/ext4/ext4_common.c at 011bc3342a48";
const DEBIAN: &str = "https://wiki.debian.org/DebianReleases";
const UBUNTU: &str = "https://ubuntu.com/kernel/lifecycle";
const UBUNTU_TOOLS: &str = "https://packages.ubuntu.com/jammy/e2fsprogs";
const RHEL: &str = "https://access.redhat.com/articles/3078";
const FIRECRACKER: &str = "firecracker-microvm/firecracker: docs/rootfs-and-kernel-setup.md";
const CLOUD_HYPERVISOR: &str = "cloud-hypervisor/cloud-hypervisor: README.md";
const KATA: &str =
    "kata-containers/kata-containers: tools/osbuilder/image-builder/image_builder.sh";
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
        name: "linux-5.10",
        features: "^orphan_file",
        why: "the first kernel with fast_commit; orphan_file came with 5.15",
        source: FAST_COMMIT,
    },
    Profile {
        name: "linux-5.15",
        features: "",
        why: "the first kernel with orphan_file: it has all features",
        source: E2FSPROGS,
    },
    Profile {
        name: "u-boot",
        features: "^64bit,^metadata_csum,^metadata_csum_seed,^dir_index",
        why: "writes no file where there is metadata_csum, nor into a directory that is a hash \
              tree; versions of 2016 refuse 64bit",
        source: U_BOOT,
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

/// Other names: kernels, then distributions by age, then platforms.
pub const ALIASES: &[Alias] = &[
    alias("linux-6.1", "linux-5.15", "no feature was new", E2FSPROGS),
    alias("linux-6.6", "linux-5.15", "no feature was new", E2FSPROGS),
    alias("linux-6.12", "linux-5.15", "no feature was new", E2FSPROGS),
    alias("debian-10", "linux-4.18", "Linux 4.19", DEBIAN),
    alias("debian-11", "linux-5.10", "Linux 5.10", DEBIAN),
    alias("debian-12", "linux-6.1", "Linux 6.1", DEBIAN),
    alias("debian-13", "linux-6.12", "Linux 6.12", DEBIAN),
    alias("ubuntu-20.04", "linux-5.4", "Linux 5.4", UBUNTU),
    alias(
        "ubuntu-22.04",
        "linux-5.10",
        "Linux 5.15, but e2fsck 1.46.5, which refuses orphan_file",
        UBUNTU_TOOLS,
    ),
    alias("ubuntu-24.04", "linux-6.6", "Linux 6.8", UBUNTU),
    alias("rhel-7", "linux-3.10", "Linux 3.10 with changes", RHEL),
    alias("rhel-8", "linux-4.18", "Linux 4.18 with changes", RHEL),
    alias("rhel-9", "linux-5.10", "Linux 5.14 with changes", RHEL),
    alias("rhel-10", "linux-6.12", "Linux 6.12 with changes", RHEL),
    alias(
        "firecracker",
        "linux-5.10",
        "its guide takes the defaults of mkfs.ext4; its oldest guest kernel is 5.10",
        FIRECRACKER,
    ),
    alias(
        "cloud-hypervisor",
        "linux-6.12",
        "its guest kernel is 6.12; it has no features of its own",
        CLOUD_HYPERVISOR,
    ),
    alias(
        "kata",
        "linux-5.15",
        "its image builder takes the defaults of mkfs.ext4, with blocks of 4096 bytes (-b 4096)",
        KATA,
    ),
];

/// The profile of this name, or of which this is another name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    let mut name = name;
    // An alias may name another one, which stands before it.
    for alias in ALIASES.iter().rev() {
        if alias.name == name {
            name = alias.profile;
        }
    }
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
            let words = row.features.split(',').filter(|word| !word.is_empty());
            assert_eq!(edits.len(), words.count(), "{}", row.name);
            assert!(!row.why.is_empty() && !row.source.is_empty());
            assert_eq!(profile(row.name), Some(row));
        }
        assert_eq!(profile("linux-0.1"), None);
    }

    #[test]
    fn every_other_name_leads_to_a_profile() {
        for row in ALIASES {
            let (this, other) = (profile(row.name), profile(row.profile));
            assert!(this.is_some() && this == other, "{}", row.name);
            assert!(!row.why.is_empty() && !row.source.is_empty());
            assert!(PROFILES.iter().all(|profile| profile.name != row.name));
        }
        let kernel = |name| profile(name).unwrap().name;
        assert_eq!(kernel("debian-13"), "linux-5.15");
        assert_eq!(kernel("ubuntu-22.04"), "linux-5.10");
    }

    #[test]
    fn newer_kernels_have_all_features_of_older_ones() {
        let kernels = PROFILES.iter().filter(|row| row.name.starts_with("linux-"));
        let cleared: Vec<Vec<&str>> = kernels
            .map(|row| {
                row.features
                    .split(',')
                    .filter(|word| !word.is_empty())
                    .collect()
            })
            .collect();
        for pair in cleared.windows(2) {
            assert!(pair[1].len() < pair[0].len());
            assert!(pair[1].iter().all(|feature| pair[0].contains(feature)));
        }
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
