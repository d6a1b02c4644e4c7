//! A change of `tune` that a power cut ended: every command that writes finishes it first, every
//! command that reads sees through it, and no file is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_fsck::tune::{Change, tune};
use uext4_fsck::{Options, UnfinishedRepair, apply};
use uext4_testkit::{SimDevice, SimOptions};

use crate::changing::{done, image, judge};
use crate::host::{scratch, text, uext4, uext4_ok};
use crate::served::{Served, can_serve};

/// An image with inodes of 128 bytes, and 180 files and directories.
fn filled() -> Option<(TempDir, PathBuf)> {
    let (scratch, image) = image(&["-t", "ext4", "-I", "128", "-b", "1024"], 16)?;
    let source = scratch.path().join("source");
    for dir in 0..12_u8 {
        let dir = source.join(format!("dir{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..14_u8 {
            fs::write(dir.join(format!("file{file}")), vec![file; 2000]).unwrap();
        }
    }
    done(&image, &["put", &format!("{}/.", text(&source)), "/"]);
    Some((scratch, image))
}

/// The images that cuts leave of `tune -I 256`, all with a log that is to be finished.
fn cut_images(image: &Path) -> Vec<Vec<u8>> {
    let start = MemoryDevice::from_bytes(fs::read(image).unwrap());
    let device: Arc<dyn BlockDevice> = Arc::new(start.snapshot());
    let changes = [Change::InodeSize(256)];
    let tuned = tune(&device, &Options::default(), &changes, &()).unwrap();
    let write = |device: &dyn BlockDevice| {
        apply::in_place(device, &tuned.overlay, &tuned.writes, None, &|_| ())
    };
    let whole = SimDevice::new(&start, SimOptions::default());
    write(&whole).unwrap();
    let (all, homes) = (whole.stats().changes(), tuned.writes.count());
    // The first and the last of the writes to their places, and between.
    let cuts = [1, homes / 3, homes * 2 / 3, homes].map(|behind| all - 1 - homes + behind);
    let image = |at| {
        let device = SimDevice::new(&start, SimOptions::default());
        device.cut_at_write(at);
        assert!(write(&device).is_err());
        let after = device.power_cut(at);
        assert!(UnfinishedRepair::find(&after).unwrap().is_some(), "{at}");
        after.to_bytes()
    };
    cuts.into_iter().map(image).collect()
}

/// What can be said of a file that no change of `tune` changes.
fn files(image: &Path) -> Vec<[Value; 5]> {
    let said = uext4_ok(&["manifest", text(image)]);
    let lines = said.split(|&byte| byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    let files = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let files = files.filter(|file| file["type"] == "file" && file["path"] != "new");
    let fields =
        |file: Value| ["path", "ino", "size", "mode", "sha256"].map(|key| file[key].clone());
    files.map(fields).collect()
}

#[test]
fn a_cut_of_tune_loses_no_file_whatever_command_comes_next() {
    let Some((scratch, image)) = filled() else {
        return;
    };
    let wanted = files(&image);
    assert!(wanted.len() >= 168, "{}", wanted.len());
    let source = scratch.path().join("source/dir0/file1");
    let (path, source) = (text(&image), text(&source));
    let writers: [&[&str]; 7] = [
        &["put", path, source, "/new"],
        &["mkdir", path, "/new"],
        &["chmod", path, "700", "/dir0"],
        &["sync", path],
        &["fsck", "-p", path],
        &["repair", "-y", path],
        &["grow", path, "+1M"],
    ];
    for (at, cut) in cut_images(&image).iter().enumerate() {
        // A repair that was cut off is a finding.
        for (reader, code) in [
            (&["ls", path, "/dir3"][..], 0),
            (&["check", path], 4),
            (&["tar", path, "/dir5"], 0),
        ] {
            fs::write(&image, cut).unwrap();
            let output = uext4(reader);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{at}, {reader:?}: {said}");
            assert!(files(&image) == wanted, "{at}, {reader:?}");
            assert!(fs::read(&image).unwrap() == *cut, "{at}, {reader:?} writes");
        }
        for writer in writers {
            fs::write(&image, cut).unwrap();
            let output = uext4(writer);
            let said = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1)), "{at}, {writer:?}: {said}");
            assert!(said.contains("was cut off"), "{at}, {writer:?}: {said}");
            judge(&image);
            assert!(files(&image) == wanted, "{at}, {writer:?}: files are lost");
        }
    }
}

#[test]
fn a_mount_finishes_what_a_cut_of_tune_left() {
    let Some((_scratch, image)) = filled() else {
        return;
    };
    if !can_serve() {
        return;
    }
    let wanted = files(&image);
    for cut in cut_images(&image) {
        fs::write(&image, &cut).unwrap();
        let dir = scratch();
        let served = Served::new(&image, dir.path(), "noatime");
        fs::write(dir.path().join("new"), "new").unwrap();
        drop(served);
        judge(&image);
        assert!(files(&image) == wanted, "files are lost");
    }
}
