//! Small images of many feature sets, with a tree that has one of everything.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};

use super::{Contents, Survey};
use crate::e2fsprogs::{assert_clean, assert_e2fsck, debugfs_write, mke2fs};
use crate::tools::{is_root, scratch};

/// One feature set.
#[derive(Clone, Copy, Debug)]
pub struct ImageKind {
    /// A stable name.
    pub name: &'static str,
    /// Options of mke2fs.
    pub options: &'static str,
    /// Bytes of a block, as the options say.
    pub block: u32,
    /// KiB of the image.
    pub kib: u64,
}

const fn image(name: &'static str, options: &'static str, block: u32, kib: u64) -> ImageKind {
    ImageKind {
        name,
        options,
        block,
        kib,
    }
}

/// The feature sets.
pub const ALL: &[ImageKind] = &[
    image("ext4", "-t ext4 -b 1024 -g 2048 -J size=1", 1024, 8192),
    image(
        "ext4-4k",
        "-t ext4 -b 4096 -O ^has_journal -g 1024",
        4096,
        16384,
    ),
    image(
        "ext4-no-flex",
        "-t ext4 -b 1024 -g 2048 -O ^flex_bg,^has_journal",
        1024,
        8192,
    ),
    image(
        "ext4-no-csum",
        "-t ext4 -b 1024 -g 2048 -O ^metadata_csum -J size=1",
        1024,
        8192,
    ),
    image(
        "uninit",
        "-t ext4 -b 1024 -g 2048 -O ^metadata_csum,uninit_bg -J size=1",
        1024,
        8192,
    ),
    image("ext2", "-t ext2 -b 1024 -g 2048", 1024, 8192),
    image("ext3", "-t ext3 -b 1024 -g 2048 -J size=1", 1024, 8192),
    image(
        "old",
        "-t ext2 -b 1024 -O ^filetype,^dir_index,^resize_inode,^sparse_super",
        1024,
        8192,
    ),
    image(
        "bigalloc",
        "-t ext4 -b 1024 -C 4096 -g 2048 -O bigalloc,^has_journal",
        1024,
        16384,
    ),
    image(
        "bigalloc-journal",
        "-t ext4 -b 1024 -C 8192 -O bigalloc -J size=1",
        1024,
        24576,
    ),
    image(
        "inline",
        "-t ext4 -b 1024 -O inline_data,^has_journal",
        1024,
        8192,
    ),
    image(
        "inline-512",
        "-t ext4 -b 1024 -I 512 -O inline_data,ea_inode -J size=1",
        1024,
        8192,
    ),
    image(
        "ea-inode",
        "-t ext4 -b 1024 -O ea_inode,^has_journal",
        1024,
        8192,
    ),
    image("quota", "-t ext4 -b 1024 -O quota,^has_journal", 1024, 8192),
    image(
        "project",
        "-t ext4 -b 1024 -O quota,project -E quotatype=usrquota:grpquota:prjquota \
           -J size=1",
        1024,
        8192,
    ),
    image(
        "orphan-file",
        "-t ext4 -b 1024 -O orphan_file -J size=1",
        1024,
        8192,
    ),
    image(
        "meta-bg",
        "-t ext4 -b 1024 -g 512 -O meta_bg,^resize_inode,^has_journal",
        1024,
        12288,
    ),
    image(
        "super2",
        "-t ext4 -b 1024 -g 2048 -O sparse_super2,^resize_inode -J size=1",
        1024,
        8192,
    ),
    image("mmp", "-t ext4 -b 1024 -O mmp,^has_journal", 1024, 8192),
    image(
        "small-inodes",
        "-t ext4 -b 1024 -I 128 -g 2048 -O ^64bit -J size=1",
        1024,
        8192,
    ),
    image(
        "seed",
        "-t ext4 -b 2048 -g 4096 -O metadata_csum_seed,stable_inodes -J size=2",
        2048,
        12288,
    ),
    image(
        "casefold",
        "-t ext4 -b 1024 -O casefold,large_dir,verity,encrypt -E encoding=utf8 \
           -J size=1",
        1024,
        8192,
    ),
    image(
        "fast-commit",
        "-t ext4 -b 1024 -O fast_commit -J size=2",
        1024,
        10240,
    ),
    image(
        "mixed",
        "-t ext3 -b 1024 -I 256 -O metadata_csum,^has_journal",
        1024,
        8192,
    ),
    image("ext4-64k", "-t ext4 -b 65536 -O ^has_journal", 65536, 49152),
];

/// An image, surveyed.
#[derive(Debug)]
pub struct Sample {
    /// Its feature set.
    pub kind: ImageKind,
    /// The image.
    pub survey: Survey,
    /// What its files hold.
    pub contents: Contents,
}

/// The image of this index of [`ALL`], made once in a run.
#[track_caller]
pub fn sample(index: usize) -> &'static Sample {
    static SAMPLES: [OnceLock<Sample>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
    SAMPLES[index].get_or_init(|| {
        let survey = Survey::new(make(ALL[index]));
        Sample {
            kind: ALL[index],
            contents: Contents::new(&survey),
            survey,
        }
    })
}

/// All images.
pub fn all() -> impl Iterator<Item = &'static Sample> {
    (0..ALL.len()).map(sample)
}

/// The image of this name.
#[track_caller]
pub fn named(name: &str) -> &'static Sample {
    let index = ALL.iter().position(|kind| kind.name == name);
    sample(index.unwrap_or_else(|| panic!("no image {name}")))
}

/// Makes the bytes of an image.
#[track_caller]
fn make(kind: ImageKind) -> Vec<u8> {
    let dir = scratch();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    plant(&tree, kind);
    // mke2fs leaves out an empty end.
    File::create(&image)
        .unwrap()
        .set_len(kind.kib << 10)
        .unwrap();
    let uuid =
        "-U 01234567-89ab-4def-8123-456789abcdef -E hash_seed=01234567-89ab-4def-8123-000000000000";
    let options = kind
        .options
        .split_whitespace()
        .chain(uuid.split_whitespace());
    let options = options.chain(["-N", "512", "-m", "0", "-d", tree.to_str().unwrap()]);
    mke2fs(&image, options, &format!("{}k", kind.kib));
    if kind.name == "casefold" {
        // 0x4008_0000: case-insensitive, with extents.
        debugfs_write(&image, ["set_inode_field /fold flags 0x40080000"]);
    }
    if kind.name == "mixed" {
        // Files of before have no extents.
        debugfs_write(&image, ["feature extent"]);
    }
    // The kernel would have hashed the large directory: so does e2fsck.
    assert_e2fsck(&image, "-fyD", 1);
    assert_clean(&image);
    fs::read(&image).unwrap()
}

/// Makes a tree with one of everything.
fn plant(root: &Path, kind: ImageKind) {
    fs::create_dir_all(root.join("deep/a/b/c/d/e/f/g/h/i/j/k")).unwrap();
    fs::write(root.join("deep/a/b/c/d/e/f/g/h/i/j/k/leaf"), "leaf").unwrap();
    fs::create_dir(root.join("names")).unwrap();
    fs::create_dir(root.join("fold")).unwrap();
    fs::write(root.join("fold/Name"), "one").unwrap();
    fs::write(root.join("fold/other"), "two").unwrap();
    files(&root.join("files"));
    // Names cost less than inodes.
    for i in 0..names_of(kind) {
        let to = root.join(format!("names/a name of a file number {i:06}"));
        fs::hard_link(root.join(format!("files/file {}", i % 40)), to).unwrap();
    }
    for i in 0..60 {
        fs::create_dir(root.join(format!("deep/a/directory {i}"))).unwrap();
    }
    fragmented(&root.join("fragmented"), kind);
    fs::write(root.join("large"), vec![0xA7; 300_000]).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    symlink("files/file 1", root.join("link")).unwrap();
    symlink("x/".repeat(100), root.join("long link")).unwrap();
    symlink("y/".repeat(45), root.join("longer link")).unwrap();
    attributes(root, kind);
    if is_root() {
        devices(&root.join("devices"));
    }
}

/// Names of the large directory: more than one level of an index where blocks are small.
fn names_of(kind: ImageKind) -> u32 {
    match kind.block {
        1024 => 3000,
        _ => 1000,
    }
}

fn files(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for i in 0..40_usize {
        let content = vec![i as u8 + 1; 1 + i * 97];
        fs::write(dir.join(format!("file {i}")), content).unwrap();
    }
}

/// A file with a hole behind each block: a tree of extents with more than one level, and indirect
/// blocks of three levels where there are no extents.
fn fragmented(path: &Path, kind: ImageKind) {
    let file = File::create(path).unwrap();
    let block = u64::from(kind.block);
    let is_large = kind.block == 65536;
    let pieces = match kind.block {
        1024 => 900,
        2048 => 700,
        4096 => 800,
        _ => 40,
    };
    for i in 0..pieces {
        let content = vec![(i % 251) as u8 + 1; kind.block as usize];
        file.write_all_at(&content, i * 2 * block).unwrap();
    }
    if !is_large {
        file.write_all_at(&[3; 500], 70_000 * block).unwrap();
    }
}

fn attributes(root: &Path, kind: ImageKind) {
    let flags = XattrFlags::empty();
    let put = |path: &str, name: &str, len: usize| {
        setxattr(root.join(path), name, &vec![b'v'; len], flags).unwrap();
    };
    put("files/file 3", "user.small", 20);
    put("files/file 4", "user.big", 600);
    put("files/file 5", "user.big", 600);
    put("files/file 5", "user.small", 30);
    put("deep/a", "user.big", 500);
    put("deep", "user.small", 10);
    if kind.options.contains("ea_inode") {
        put("files/file 6", "user.huge", 3000);
        put("files/file 7", "user.huge", 3000);
        put("files/file 8", "user.huge", 2500);
    }
}

fn devices(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let mode = Mode::from_raw_mode(0o644);
    let node = |name: &str, file_type, device| {
        mknodat(CWD, dir.join(name), file_type, mode, device).unwrap();
    };
    node("null", FileType::CharacterDevice, makedev(1, 3));
    node("large", FileType::CharacterDevice, makedev(300, 70_000));
    node("disk", FileType::BlockDevice, makedev(8, 1));
    node("pipe", FileType::Fifo, 0);
    node("socket", FileType::Socket, 0);
}
