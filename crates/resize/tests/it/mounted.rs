//! A file system grows while threads create, write and delete files in it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use tempfile::TempDir;
use uext4::tuning::Background;
use uext4::{Creation, Error as FsError, FollowLast, Image, OpenOptions, Volume};
use uext4_blockdev::{Access, BlockDevice, Clock, FileDevice, MemoryDevice, SystemClock};
use uext4_resize::{Error, Resized, Size, grow_mounted};
use uext4_testkit::e2fsprogs::{assert_clean, debugfs};
use uext4_testkit::loops::{Mount, can_mount};
use uext4_testkit::{SimDevice, SimOptions, has_tool};

use crate::grow::{SHAPES, field, grow_file, image};

fn open(image: &Path, background: Background) -> Volume {
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut options = OpenOptions::default();
    options.background = background;
    Volume::open(device, clock, &options).unwrap()
}

/// Shapes that are mounted for writing.
fn shapes() -> impl Iterator<Item = &'static (&'static str, u64, u64)> {
    let all = SHAPES.iter();
    all.filter(|(options, ..)| !options.contains("bigalloc"))
}

/// Files of a thread: each is written, read, and every other one deleted, until `done`. Returns
/// how many stay.
fn work(volume: &Volume, name: &str, done: &AtomicBool) -> u32 {
    let dir = format!("/{name}");
    volume.create_dir(&dir, &Creation::directory()).unwrap();
    let mut left = 0;
    for nr in 0..100_000u32 {
        if done.load(Relaxed) && nr > 20 {
            break;
        }
        let path = format!("{dir}/{nr}");
        let bytes = vec![nr as u8; 1000 + nr as usize % 50 * 300];
        match volume.write(&path, &bytes) {
            Ok(()) => {}
            // What is deleted is free after a commit only.
            Err(FsError::NoSpace { .. } | FsError::NoInodes { .. }) => {
                _ = volume.remove(&path);
                continue;
            }
            Err(error) => panic!("{path}: {error}"),
        }
        assert_eq!(volume.read(&path).unwrap(), bytes);
        match nr % 2 {
            0 => volume.remove(&path).unwrap(),
            _ => left += 1,
        }
    }
    left
}

fn grow_in_use(volume: &Volume, size: Size) -> Result<Resized, Error> {
    let done = AtomicBool::new(false);
    let before = volume.statfs();
    thread::scope(|scope| {
        for name in ["one", "two"] {
            let done = &done;
            scope.spawn(move || {
                let name = format!("{name}{}", before.blocks);
                let left = work(volume, &name, done);
                let dir = volume
                    .open_path(format!("/{name}"), FollowLast::Yes)
                    .unwrap();
                let names = volume.read_dir(&dir.inode()).unwrap();
                assert_eq!(names.count() as u32, left);
            });
        }
        let grown = grow_mounted(volume, size);
        done.store(true, Relaxed);
        grown
    })
}

#[test]
fn every_shape_grows_in_use_as_it_does_unmounted() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    for &(options, from, to) in shapes() {
        let what = format!("{options} {from} {to}");
        let image = image(&dir, options, from);
        let copy = image.with_extension("unmounted");
        fs::copy(&image, &copy).unwrap();
        let unmounted = grow_file(&copy, Size::Bytes(to << 20), to << 20).unwrap();
        let volume = open(&image, Background::Threads);
        let grown = grow_in_use(&volume, Size::Bytes(to << 20))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(grown, unmounted, "{what}");
        let size = volume.statfs();
        assert!(size.free > 0 && size.inodes > 0, "{what}");
        volume.close().unwrap();
        assert_clean(&image);
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&image, Access::ReadOnly).unwrap());
        let found = uext4_fsck::findings(&device).unwrap();
        assert!(found.is_empty(), "{what}: {found:?}");
        assert!(debugfs(&image, "ls -l sub").contains("30403"), "{what}");
        for name in [
            "Block count",
            "Inode count",
            "Reserved block count",
            "Reserved GDT blocks",
            "Overhead clusters",
            "Filesystem features",
        ] {
            assert_eq!(field(&image, name), field(&copy, name), "{what}: {name}");
        }
    }
}

#[test]
fn it_grows_again_and_again_and_is_filled() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    for options in [
        "-t ext4 -b 1024",
        "-t ext4 -b 1024 -O ^resize_inode",
        "-t ext4 -b 1024 -g 1024 -O ^resize_inode,^flex_bg",
        "-t ext2 -b 1024",
    ] {
        let image = image(&dir, options, 12);
        let volume = open(&image, Background::Threads);
        let mut size = 12u64 << 20;
        for step in 0..12u64 {
            let more = (1 << 20) + step * step * (777 << 10);
            size = volume.geometry().len_bytes() + more;
            grow_in_use(&volume, Size::More(more)).unwrap();
        }
        // All of the room can be used.
        volume.write("/large", b"").unwrap();
        let file = volume.open_path("/large", FollowLast::Yes).unwrap();
        let (mut at, chunk) = (0, vec![7; 1 << 16]);
        while let Ok(count) = file.write_at(at, &chunk) {
            at += count as u64;
        }
        volume.sync().unwrap();
        let left = volume.statfs();
        assert!(left.available < 200, "{options}: {left:?} of {size}");
        assert!(at > size / 2, "{options}: {at} of {size}");
        drop(file);
        volume.close().unwrap();
        assert_clean(&image);
        if can_mount() {
            let mount = Mount::new(&image, "");
            let bytes = fs::read(mount.path().join("large")).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 7), "{options}");
            fs::remove_file(mount.path().join("large")).unwrap();
        }
        assert_clean(&image);
    }
}

/// With a journal and without one.
#[test]
fn the_new_size_is_durable_when_it_has_grown() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    for options in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        let mut bytes = fs::read(image(&dir, options, 12)).unwrap();
        bytes.resize(60 << 20, 0);
        let start = MemoryDevice::from_bytes(bytes);
        let device = Arc::new(SimDevice::new(&start, SimOptions::default()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut how = OpenOptions::default();
        how.background = Background::None;
        let volume = Volume::open(Arc::clone(&device) as _, clock, &how).unwrap();
        grow_mounted(&volume, Size::Device).unwrap();
        let durable = Image::open(Arc::new(device.durable()), &how).unwrap();
        assert_eq!(durable.geometry().blocks_count, 60 << 10, "{options}");
        volume.close().unwrap();
    }
}

#[test]
fn sizes_that_cannot_be_leave_it_as_it_is() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = image(&dir, "-t ext4 -O ^64bit", 64);
    let volume = open(&image, Background::None);
    let smaller = grow_mounted(&volume, Size::Bytes(32 << 20)).unwrap_err();
    assert!(smaller.to_string().contains("65536 blocks"), "{smaller}");
    let large = grow_mounted(&volume, Size::Bytes(17 << 40)).unwrap_err();
    assert!(large.to_string().contains("64bit"), "{large}");
    let same = grow_mounted(&volume, Size::Device).unwrap();
    assert_eq!(same.before, same.after);
    stays(volume, &image, 64);
}

#[test]
fn more_than_fits_a_transaction_with_those_of_others_is_refused() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = image(&dir, "-t ext4 -b 1024 -J size=1", 64);
    let volume = open(&image, Background::None);
    let error = grow_mounted(&volume, Size::Bytes(30 << 30)).unwrap_err();
    assert!(matches!(error, Error::TooMuchMounted { .. }), "{error}");
    stays(volume, &image, 64);
}

/// Goes on being used as it is.
fn stays(volume: Volume, image: &Path, mib: u64) {
    volume.write("/file", b"as before").unwrap();
    volume.close().unwrap();
    assert_eq!(fs::metadata(image).unwrap().len(), mib << 20);
    assert_clean(image);
}
