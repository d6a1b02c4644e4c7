//! Images on file systems where files share blocks.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;
use uext4_image::{BuildOptions, Builder, Size, Source, Sparse, build};
use uext4_testkit::{
    Loop, assert_clean, can_mount, has_tool, run, scratch, try_run, unmount_lazily,
};

use crate::fixture::{pattern, set_time};

const LARGE: usize = 40 << 20;

fn make_tree(dir: &Path) {
    fs::create_dir_all(dir.join("sub")).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(dir.join(name), bytes).unwrap();
        set_time(&dir.join(name), 1_000_000_000, 0);
    };
    write("a-short", &pattern(100));
    write("large", &pattern(LARGE));
    write("odd", &pattern((3 << 20) + 777));
    write("sub/just", &pattern(64 << 10));
    write("sub/below", &pattern((64 << 10) - 1));
    let sparse = File::create(dir.join("z-sparse")).unwrap();
    sparse.write_all_at(&pattern(1 << 20), 1 << 20).unwrap();
    sparse.write_all_at(&pattern(300_000), 4 << 20).unwrap();
    sparse.set_len(9 << 20).unwrap();
    set_time(&dir.join("z-sparse"), 1_000_000_000, 0);
    for dir in [&dir.join("sub"), dir] {
        set_time(dir, 1_000_000_000, 0);
    }
}

fn used(dir: &Path) -> u64 {
    let dir = File::open(dir).unwrap();
    rustix::fs::syncfs(&dir).unwrap();
    let statvfs = rustix::fs::fstatvfs(&dir).unwrap();
    (statvfs.f_blocks - statvfs.f_bfree) * statvfs.f_frsize
}

fn with_block_size(bytes: u32, sparse: Option<Sparse>) -> BuildOptions {
    let mut options = BuildOptions {
        size: Size::Auto,
        sparse,
        ..BuildOptions::default()
    };
    let size = uext4_ondisk::BlockSize::from_bytes(bytes).unwrap();
    options.mkfs.block_size = Some(uext4_mkfs::BlockSizeWish::Exactly(size));
    options
}

/// The image shares the blocks of files, and is the one that is made where nothing is shared.
fn check_sharing(dir: &Path, elsewhere: &Path) {
    let tree = dir.join("tree");
    make_tree(&tree);
    let source = Source::Directory(tree.clone());
    for (number, (block, sparse)) in [(4096, None), (4096, Some(Sparse::Never)), (1024, None)]
        .into_iter()
        .enumerate()
    {
        // None is removed: what that frees may be free later.
        let image = dir.join(number.to_string());
        let options = with_block_size(block, sparse);
        let before = used(dir);
        build(&source, &image, &options, &()).unwrap();
        let taken = used(dir).saturating_sub(before);
        // What a journal and tables take is less than the large file.
        let is_shared = taken < LARGE as u64 * 3 / 4;
        assert_eq!(is_shared, block == 4096, "{taken} bytes, blocks of {block}");
        assert_clean(&image);
        let copy = elsewhere.join("image");
        build(&source, &copy, &options, &()).unwrap();
        assert!(fs::read(&image).unwrap() == fs::read(&copy).unwrap());
        // What is written to one of them is not in the other.
        let file = File::options().write(true).open(tree.join("odd")).unwrap();
        file.write_all_at(b"other", 1 << 20).unwrap();
        drop(file);
        assert!(fs::read(&image).unwrap() == fs::read(&copy).unwrap());
    }
    // A partition, and two sources.
    let image = dir.join("disk");
    let mut builder = Builder::new(BuildOptions {
        finish: uext4_image::finish::FinishOptions {
            gpt: Some(uext4_image::finish::GptOptions {
                kind: uext4_image::gpt::PartitionType::LINUX,
                name: None,
            }),
            verity: None,
        },
        ..with_block_size(4096, None)
    });
    builder.source(source.clone());
    builder.source(Source::Directory(tree.join("sub")));
    let before = used(dir);
    builder.build(&image, &()).unwrap();
    let taken = used(dir).saturating_sub(before);
    assert!(taken < LARGE as u64 * 3 / 4, "{taken} bytes");
}

/// A mounted file system.
struct Mounted {
    point: TempDir,
    /// Dropped after the mount.
    _device: Loop,
}

impl Mounted {
    fn new(kind: &str, device: &Path) -> Result<Self, String> {
        let device = Loop::with_options(device, &[])?;
        let point = scratch();
        let arguments = ["-t".as_ref(), kind.as_ref(), device.path(), point.path()];
        try_run("mount", arguments)?;
        Ok(Self {
            point,
            _device: device,
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount_lazily(self.point.path());
    }
}

fn on_file_system(kind: &str, options: &[&str]) {
    let tool = &*format!("mkfs.{kind}");
    if !can_mount() || !has_tool(tool) {
        eprintln!("skipped: needs root, loop devices and {tool}");
        return;
    }
    let scratch = scratch();
    let device = scratch.path().join("device");
    File::create(&device).unwrap().set_len(1 << 30).unwrap();
    run(tool, [options, &[device.to_str().unwrap()]].concat());
    match Mounted::new(kind, &device) {
        Ok(mounted) => check_sharing(mounted.point.path(), scratch.path()),
        Err(why) => eprintln!("skipped: the kernel does not mount it: {why}"),
    }
}

#[test]
fn files_and_image_share_blocks_on_xfs() {
    on_file_system("xfs", &["-q", "-m", "reflink=1"]);
}

#[test]
fn files_and_image_share_blocks_on_btrfs() {
    on_file_system("btrfs", &["-q"]);
}
