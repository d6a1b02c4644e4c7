//! A walk ends on any image, and gives no path that leads elsewhere.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use uext4::{Error, Image, OpenOptions, Volume};
use uext4_blockdev::{Access, FileDevice, SystemClock};

use crate::tree::open;

/// An image of `source`, changed by debugfs commands.
fn image(dir: &Path, source: &Path, commands: &str) -> PathBuf {
    let image = dir.join("image");
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-O", "^metadata_csum,^dir_index", "-d"])
        .args([source.as_os_str(), image.as_os_str(), "8M".as_ref()])
        .status();
    assert!(made.unwrap().success());
    let script = dir.join("script");
    std::fs::write(&script, commands).unwrap();
    let changed = Command::new("debugfs")
        .arg("-w")
        .arg("-f")
        .args([&script, &image])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(changed.unwrap().success());
    image
}

#[test]
fn a_directory_with_a_second_name_is_entered_once() {
    const DEPTH: usize = 24;
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("d/".repeat(DEPTH))).unwrap();
    // Each directory has two names in the one above: 2^24 ways to the last.
    let links: Vec<String> = (1..=DEPTH)
        .map(|depth| {
            let above = "/d".repeat(depth - 1);
            format!("link {above}/d {above}/e\n")
        })
        .collect();
    let image = open(&image(dir.path(), &source, &links.concat()));
    let walk = image.walk("/").unwrap().take(10_000);
    let (found, damaged): (Vec<_>, Vec<_>) = walk.partition(Result::is_ok);
    // The root, lost+found and each directory by one name.
    assert_eq!((found.len(), damaged.len()), (2 + DEPTH, DEPTH));
    let is_damage = |error: Error| matches!(error, Error::Corrupt(_));
    assert!(
        damaged
            .into_iter()
            .all(|damaged| damaged.is_err_and(is_damage))
    );
}

#[test]
fn names_before_damage_are_listed_where_the_file_system_is_written_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for i in 0..60 {
        std::fs::write(source.join(format!("{i:0>100}")), "").unwrap();
    }
    let path = image(dir.path(), &source, "");
    let mut bytes = std::fs::read(&path).unwrap();
    // The last name stands in the last block of the directory, whose first record is damaged.
    let last = format!("{:0>100}", 59);
    let mut names = bytes.windows(100).enumerate();
    let at = names
        .find(|(_, bytes)| *bytes == last.as_bytes())
        .unwrap()
        .0;
    let block = at - at % 1024;
    bytes[block + 4..block + 6].copy_from_slice(&[3, 0]);
    std::fs::write(&path, bytes).unwrap();
    let device = Arc::new(FileDevice::open(&path, Access::ReadWrite).unwrap());
    let volume = Volume::open(device, Arc::new(SystemClock), &OpenOptions::default()).unwrap();
    let root = volume.metadata("/").unwrap();
    let (found, failed): (Vec<_>, Vec<_>) =
        volume.read_dir(&root).unwrap().partition(Result::is_ok);
    assert_eq!(failed.len(), 1);
    assert!((8..60).contains(&found.len()), "{} names", found.len());
}

#[test]
fn a_directory_is_read_by_its_path_in_an_image_opened_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("dir/sub")).unwrap();
    let path = image(dir.path(), &source, "");
    let options = OpenOptions::default();
    let names = |image: &Image| {
        let by_path = image
            .read_dir("/dir")
            .unwrap()
            .map(|entry| entry.unwrap().name);
        let inode = image.metadata("/dir").unwrap();
        let by_inode = image
            .read_dir(&inode)
            .unwrap()
            .map(|entry| entry.unwrap().name);
        assert!(by_path.eq(by_inode));
        let names = image
            .read_dir("dir")
            .unwrap()
            .map(|entry| entry.unwrap().name);
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&Image::from_path(&path, &options).unwrap()), [b"sub"]);
    let volume = Volume::from_path(&path, &options).unwrap();
    assert_eq!(names(volume.image()), [b"sub"]);
    assert!(matches!(volume.read_dir("/none"), Err(Error::NotFound)));
    volume.close().unwrap();
    assert!(matches!(
        Image::from_path("/no/such", &options),
        Err(Error::Device(_))
    ));
}

#[test]
fn a_name_with_a_slash_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for name in ["..Xevil", "good"] {
        std::fs::write(source.join(name), name).unwrap();
    }
    let path = image(dir.path(), &source, "");
    let mut bytes = std::fs::read(&path).unwrap();
    let mut names = bytes.windows(7).enumerate();
    let at = names.find(|(_, bytes)| *bytes == b"..Xevil").unwrap().0;
    bytes[at + 2] = b'/';
    std::fs::write(&path, bytes).unwrap();
    let image = open(&path);
    let (found, damaged): (Vec<_>, Vec<_>) = image.walk("/").unwrap().partition(Result::is_ok);
    let paths: Vec<Vec<u8>> = found.into_iter().map(|found| found.unwrap().path).collect();
    assert_eq!(damaged.len(), 1);
    assert!(
        paths.contains(&b"/good".to_vec()) && paths.len() == 3,
        "{paths:?}"
    );
}
