//! Seventeen small images of different features, filled by the kernel; some with a log that is to
//! be replayed, with orphans, or with fast commits.

use std::fs::{self, File};
use std::path::Path;
use std::sync::OnceLock;

use super::{Atlas, fill};
use crate::damage::{Contents, Survey};
use crate::e2fsprogs::{assert_clean, e2fsck, mke2fs};
use crate::loops::{Mount, can_mount};
use crate::tools::{copy_image, scratch};

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

/// An image to be changed, and what is known of it.
#[derive(Debug)]
pub struct Base {
    /// Its features.
    pub kind: BaseKind,
    /// The image as it lies on the disk.
    pub survey: Survey,
    /// Its structures.
    pub atlas: Atlas,
    /// What its files hold once the log is replayed and the orphans are deleted.
    pub contents: Contents,
}

/// The image of this index of [`ALL`], made once in a run; `None`, and said why, if this machine
/// cannot make it.
pub fn get(index: usize) -> Option<&'static Base> {
    static BASES: [OnceLock<Option<Base>>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
    let base = BASES[index].get_or_init(|| {
        let base = make(ALL[index]);
        if base.is_none() {
            println!("skipped: {}: needs a mount by the kernel", ALL[index].name);
        }
        base
    });
    base.as_ref()
}

/// The image of this name, as [`get`].
#[track_caller]
pub fn named(name: &str) -> Option<&'static Base> {
    let index = ALL.iter().position(|kind| kind.name == name);
    get(index.unwrap_or_else(|| panic!("no image {name}")))
}

#[track_caller]
fn make(kind: BaseKind) -> Option<Base> {
    let dir = scratch();
    let image = filled(kind, dir.path())?;
    let survey = Survey::new(fs::read(&image).unwrap());
    if kind.left != Left::Unmounted {
        // The kernel completes what waits.
        drop(Mount::new(&image, "rw"));
    }
    assert_clean(&image);
    let contents = Contents::new(&Survey::new(fs::read(&image).unwrap()));
    let atlas = Atlas::new(&survey);
    Some(Base {
        kind,
        survey,
        atlas,
        contents,
    })
}

/// Makes the image of a kind in a directory.
#[track_caller]
fn filled(kind: BaseKind, dir: &Path) -> Option<std::path::PathBuf> {
    let image = dir.join("image");
    if can_mount() {
        format(kind, &image, None);
        if let Ok(mount) = Mount::attempt(&image, kind.mount) {
            fill::plant(mount.path(), kind);
            fill::plant_by_kernel(mount.path(), kind);
            drop(mount);
            assert_clean(&image);
            return Some(left(kind, image));
        }
    }
    if kind.left != Left::Unmounted {
        return None;
    }
    println!("{}: filled by mke2fs", kind.name);
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    fill::plant(&tree, kind);
    format(kind, &image, Some(&tree));
    // The kernel would have hashed the large directory: so does e2fsck.
    e2fsck(&image, "-fyD");
    assert_clean(&image);
    Some(image)
}

/// Makes the file system, with the contents of a directory if there is one.
#[track_caller]
fn format(kind: BaseKind, image: &Path, tree: Option<&Path>) {
    // mke2fs leaves out an empty end.
    let file = File::create(image).unwrap();
    file.set_len(kind.kib << 10).unwrap();
    let extended = format!(
        "lazy_itable_init=0,lazy_journal_init=0,hash_seed=01234567-89ab-4def-8123-000000000000,{}",
        kind.extended
    );
    let mut options: Vec<&str> = kind.options.split_whitespace().collect();
    options.extend([
        "-U",
        "01234567-89ab-4def-8123-456789abcdef",
        "-E",
        &extended,
    ]);
    options.extend(["-N", "256", "-m", "0"]);
    if let Some(tree) = tree {
        options.extend(["-d", tree.to_str().unwrap()]);
    }
    mke2fs(image, options, &format!("{}k", kind.kib));
}

/// The image as it is to be left: as it is, or a copy of it in use.
#[track_caller]
fn left(kind: BaseKind, image: std::path::PathBuf) -> std::path::PathBuf {
    if kind.left == Left::Unmounted {
        return image;
    }
    let mount = Mount::new(&image, kind.mount);
    let open = match kind.left {
        Left::FastCommits => fill::change_fast(mount.path()),
        Left::Orphans => fill::change(mount.path(), 5),
        _ => fill::change(mount.path(), 0),
    };
    let copy = copy_image(&image, "left");
    drop(open);
    copy
}
