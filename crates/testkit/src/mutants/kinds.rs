//! The features of the images that mutants are made of, and how each is left.

/// How an image was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Unmounted.
    Unmounted,
    /// While it was mounted: its last changes are in the log alone.
    Live,
    /// The same, with deleted files that a process still had open.
    Orphans,
    /// The same, with fast commits behind the log.
    FastCommits,
}

/// An image to be changed.
#[derive(Clone, Copy, Debug)]
pub struct BaseKind {
    /// A stable name.
    pub name: &'static str,
    /// Options of mke2fs.
    pub options: &'static str,
    /// Its extended options.
    pub extended: &'static str,
    /// Options of the mount that fills it.
    pub mount: &'static str,
    /// Bytes of a block, as the options say.
    pub block: u32,
    /// KiB of the image.
    pub kib: u64,
    /// How it was left.
    pub left: Left,
}

const fn base(name: &'static str, options: &'static str, kib: u64) -> BaseKind {
    BaseKind {
        name,
        options,
        extended: "nodiscard",
        mount: "rw",
        block: 1024,
        kib,
        left: Left::Unmounted,
    }
}

impl BaseKind {
    const fn block(self, block: u32) -> Self {
        Self { block, ..self }
    }

    const fn extended(self, extended: &'static str) -> Self {
        Self { extended, ..self }
    }

    const fn left(self, left: Left, mount: &'static str) -> Self {
        Self {
            left,
            mount,
            ..self
        }
    }

    /// Whether `mke2fs -O` was given this feature.
    pub fn has(&self, feature: &str) -> bool {
        let words = self.options.split([' ', ',']);
        words.into_iter().any(|word| word == feature)
    }
}

/// The images.
pub const ALL: &[BaseKind] = &[
    base("ext2", "-t ext2 -b 1024 -g 2048", 4096),
    base("ext3", "-t ext3 -b 1024 -g 2048 -J size=1", 5120).left(Left::Live, "rw,data=journal"),
    base("k1", "-t ext4 -b 1024 -g 2048 -J size=1", 5120),
    base("k2", "-t ext4 -b 2048 -g 4096 -O ^flex_bg -J size=2", 10240).block(2048),
    base("k4", "-t ext4 -b 4096 -J size=4", 12288).block(4096),
    base(
        "gdt-csum",
        "-t ext4 -b 1024 -g 2048 -O ^metadata_csum,uninit_bg,^64bit -J size=1",
        5120,
    ),
    base(
        "no-csum",
        "-t ext4 -b 1024 -I 128 -O ^metadata_csum,^has_journal",
        4096,
    ),
    base(
        "inline",
        "-t ext4 -b 1024 -O inline_data,^has_journal",
        4096,
    ),
    base(
        "bigalloc",
        "-t ext4 -b 1024 -C 4096 -O bigalloc -J size=1",
        8192,
    ),
    base(
        "meta-bg",
        "-t ext4 -b 1024 -g 512 -O meta_bg,^resize_inode,^has_journal",
        6144,
    ),
    base("quota", "-t ext4 -b 1024 -O quota,project -J size=1", 6144)
        .extended("nodiscard,quotatype=usrquota:grpquota:prjquota"),
    base(
        "ea-inode",
        "-t ext4 -b 1024 -I 512 -O ea_inode,inline_data -J size=1",
        5120,
    ),
    base(
        "orphan-file",
        "-t ext4 -b 1024 -O orphan_file -J size=1",
        5120,
    )
    .left(Left::Orphans, "rw"),
    base("orphan-list", "-t ext4 -b 1024 -g 2048 -J size=1", 5120).left(Left::Orphans, "rw"),
    base("mmp", "-t ext4 -b 1024 -O mmp,^has_journal", 4096)
        .extended("nodiscard,mmp_update_interval=1"),
    base(
        "fast-commit",
        "-t ext4 -b 1024 -g 2048 -O fast_commit -J size=2",
        8192,
    )
    .left(Left::FastCommits, "rw"),
    base(
        "large-dir",
        "-t ext4 -b 1024 -O casefold,large_dir,encrypt -J size=1",
        6144,
    )
    .extended("nodiscard,encoding=utf8"),
];
