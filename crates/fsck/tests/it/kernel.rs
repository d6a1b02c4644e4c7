//! Mended images that the kernel mounts, reads and writes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use uext4_testkit::damage::images;
use uext4_testkit::damage::{Sums, kinds};
use uext4_testkit::{Mount, assert_clean, can_mount, has_tool, scratch};

use crate::cases::{assert_none, is_long, pick, run};

/// How many kinds one of which is tried without `UEXT4_LONG`.
const STEP: usize = 12;

/// Bytes that are read of a file: more than any has, but for those that damage has left a size.
const READ_MAX: u64 = 64 << 20;

/// Reads every file that a directory leads to.
fn read_all(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file_type = entry.file_type()?;
        if file_type.is_dir() {
            bytes += read_all(&entry.path())?;
        } else if file_type.is_file() {
            let mut file = File::open(entry.path())?.take(READ_MAX);
            bytes += io::copy(&mut file, &mut io::sink())?;
        } else if file_type.is_symlink() {
            fs::read_link(entry.path())?;
        }
    }
    Ok(bytes)
}

#[test]
fn the_kernel_mounts_reads_and_writes_what_was_mended() {
    if !can_mount() || !has_tool("e2fsck") {
        return;
    }
    let image = images::named("ext4");
    let step = if is_long() { 1 } else { STEP };
    let cases: Vec<_> = kinds()
        .filter(|kind| kind.hopeless.is_none() && pick(kind.name).is_multiple_of(step))
        .collect();
    let mounted = AtomicUsize::new(0);
    let failures = run(
        &cases,
        |kind| kind.name.to_owned(),
        |judge, kind| {
            let Some(damaged) = kind.apply(&image.survey, Sums::Right, 1) else {
                return Vec::new();
            };
            let complain = |what: String| vec![format!("{}: {what}", kind.name)];
            let mended = match judge.mended(&damaged.bytes) {
                Ok(mended) => mended,
                Err(complaint) => return complain(complaint.to_string()),
            };
            let dir = scratch();
            let path = dir.path().join("image");
            fs::write(&path, &mended).unwrap();
            match Mount::attempt(&path, "defaults") {
                Err(message) => return complain(message),
                Ok(mount) => {
                    mounted.fetch_add(1, Ordering::Relaxed);
                    if let Err(error) = read_all(mount.path()) {
                        return complain(error.to_string());
                    }
                    fs::write(mount.path().join("new"), "new").unwrap();
                }
            }
            assert_clean(&path);
            Vec::new()
        },
    );
    let mounted = mounted.into_inner();
    println!("{mounted} of {} kinds have a place here", cases.len());
    assert!(mounted > cases.len() / 2, "{mounted} mounted");
    assert_none(&failures, cases.len());
}
