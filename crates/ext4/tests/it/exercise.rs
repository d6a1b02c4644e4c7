//! Everything a reader can ask of an image, whatever the image, and small images to damage: used by
//! the test of hostile images and by the fuzzer.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use uext4::format::{GroupNr, Lblk};
use uext4::{FileType, FollowLast, Image, Ino, OpenOptions};
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_testkit::{assert_e2fsck, debugfs_script, mke2fs};

/// Inodes visited, and names taken of one directory, at most: so that a run ends soon.
const INODES_MAX: usize = 2_000;
const NAMES_MAX: usize = 5_000;

/// Opens the image and goes through all of it. What it finds does not matter, that it ends does.
pub fn exercise(device: Arc<dyn BlockDevice>) {
    let mut options = OpenOptions::default();
    options.memory_max = 1 << 20;
    let Ok(fs) = Image::open(device, &options) else {
        return;
    };
    for group in (0..fs.geometry().groups_count.get()).take(64) {
        let _ = fs.group_desc(GroupNr(group));
    }
    let mut seen = HashSet::from([Ino::ROOT]);
    let mut todo = vec![Ino::ROOT];
    // Those that no name leads to, too.
    todo.extend((1..=16).map(Ino));
    while let Some(ino) = todo.pop() {
        for next in visit(&fs, ino) {
            if seen.len() < INODES_MAX && seen.insert(next) {
                todo.push(next);
            }
        }
    }
    let _ = fs.resolve(b"/d/../d/link/./file", FollowLast::Yes);
}

/// Asks everything of one inode; the inodes its names lead to.
fn visit(fs: &Image, ino: Ino) -> Vec<Ino> {
    let Ok(inode) = fs.inode(ino) else {
        return Vec::new();
    };
    let _ = fs.xattrs(&inode);
    let _ = fs.read_link(&inode);
    for lblk in [0, 1, 11, 12, 300, 70_000, u32::MAX - 1] {
        let _ = fs.map(&inode, Lblk(lblk), 1000);
    }
    if inode.file_type == FileType::Regular {
        if let Ok(ranges) = fs.data_ranges(&inode) {
            let _ = ranges.take(1000).count();
        }
        let mut buf = [0; 10_000];
        for offset in [
            0,
            5_000,
            1 << 20,
            inode.size.saturating_sub(100),
            u64::MAX - 3,
        ] {
            let _ = fs.read_at(&inode, offset, &mut buf);
        }
    }
    let Ok(entries) = fs.read_dir(&inode) else {
        return Vec::new();
    };
    let mut inodes = Vec::new();
    for entry in entries.take(NAMES_MAX).filter_map(Result::ok) {
        if inodes.len() < 50 {
            let _ = fs.lookup(&inode, &entry.name);
        }
        inodes.push(entry.ino);
    }
    inodes
}

/// Flags and size of the images to damage: every way to lay out files and directories, with and
/// without checksums, one with a journal to replay, and one with quotas and an orphan file.
pub const SEEDS: &[(&[&str], &str)] = &[
    (&["-t", "ext4", "-O", "^metadata_csum,^has_journal"], "512K"),
    (&["-t", "ext2"], "512K"),
    (
        &[
            "-t",
            "ext4",
            "-I",
            "512",
            "-O",
            "^metadata_csum,^has_journal,inline_data,ea_inode",
        ],
        "768K",
    ),
    (
        &[
            "-t",
            "ext4",
            "-C",
            "4096",
            "-O",
            "^metadata_csum,^has_journal,bigalloc",
        ],
        "2M",
    ),
    (&["-t", "ext4", "-O", "^has_journal"], "512K"),
    (&["-t", "ext3", "-J", "size=1"], "4M"),
    (
        &[
            "-t",
            "ext4",
            "-O",
            "^metadata_csum,quota,project,orphan_file",
            "-J",
            "size=1",
        ],
        "4M",
    ),
];

/// All seed images, made once.
pub fn seed_images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    IMAGES.get_or_init(|| (0..SEEDS.len()).map(seed_image).collect())
}

/// What the fuzzer's bytes say: the seed image, and patches. Reads all of it.
pub fn exercise_bytes(bytes: &[u8]) {
    let Some((seed, patches)) = bytes.split_first() else {
        return;
    };
    let seeds = seed_images();
    let mut image = seeds[usize::from(*seed) % seeds.len()].clone();
    patch(&mut image, patches);
    exercise(Arc::new(MemoryDevice::from_bytes(image)));
}

/// Makes the seed image of this index with the real mke2fs; 1 KiB blocks, 128 inodes.
fn seed_image(index: usize) -> Vec<u8> {
    let (flags, size) = SEEDS[index];
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    fill(&source);
    // mke2fs leaves out an empty end.
    let kib: u64 = size.trim_end_matches(['K', 'M']).parse().unwrap();
    let bytes = if size.ends_with('M') {
        kib << 20
    } else {
        kib << 10
    };
    std::fs::File::create(&image)
        .unwrap()
        .set_len(bytes)
        .unwrap();
    let options = ["-b", "1024", "-N", "128", "-d"].map(OsStr::new);
    let options = options.into_iter().chain([source.as_os_str()]);
    mke2fs(&image, options.chain(flags.iter().map(OsStr::new)), size);
    // The kernel would have hashed the directory: so does e2fsck -D.
    assert_e2fsck(&image, "-fyD", 1);
    if flags.contains(&"ext3") {
        let script = "jo
jw -b 100-120 /dev/zero
jw -r 110
jw -b 200,201 /dev/zero
jc
";
        debugfs_script(script, Some(&image));
    }
    std::fs::read(&image).unwrap()
}

/// A little of everything, so that a small image has many structures.
fn fill(root: &Path) {
    std::fs::create_dir_all(root.join("d/e/f")).unwrap();
    for i in 0..60 {
        let name = format!("d/a longer name for more blocks {i}");
        std::fs::write(root.join(name), [i; 300]).unwrap();
    }
    std::fs::write(root.join("d/file"), vec![1; 40_000]).unwrap();
    std::os::unix::fs::symlink("d/file", root.join("link")).unwrap();
    std::os::unix::fs::symlink("x/".repeat(100), root.join("long")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(root.join("d/file"), "user.big", &[7; 600], flags).unwrap();
}

/// Lays patches over an image: each is four bytes that say where, one that says how long (up to
/// 16), and the bytes. What is left at the end is ignored.
pub fn patch(image: &mut [u8], mut patches: &[u8]) {
    while let [a, b, c, d, len, rest @ ..] = patches {
        let place = [a, b, c, d]
            .iter()
            .fold(0usize, |n, byte| n << 8 | usize::from(**byte));
        let len = (usize::from(*len) % 16 + 1).min(rest.len());
        let at = place % image.len();
        let len = len.min(image.len() - at);
        image[at..at + len].copy_from_slice(&rest[..len]);
        patches = &rest[len..];
    }
}
