//! `get` and `tar` give back what the kernel shows.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::host::{Mount, can_mount, has_tool, mke2fs, scratch, text, uext4, uext4_ok};
use crate::oracle::{self, Tree};
use crate::tree;

/// What a copy on another file system cannot keep, or counts in its own way.
const LOST: [&str; 4] = ["ino", "blocks", "ctime_ns", "flags"];

/// An image filled by the kernel, and the tree the kernel shows.
fn filled() -> Option<(TempDir, PathBuf, Tree)> {
    if !can_mount() {
        return None;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-b", "4096"], 96);
    let mount = Mount::new(&image, false)?;
    tree::fill(mount.path());
    drop(mount);
    let mount = Mount::new(&image, true)?;
    let shown = oracle::walk(mount.path());
    Some((scratch, image, shown))
}

/// Forgets what directories have of their own on every file system.
fn without_directory_sizes(mut tree: Tree) -> Tree {
    for keys in tree.values_mut().filter(|keys| keys["type"] == "dir") {
        keys.remove("size");
        keys.remove("nlink");
    }
    tree
}

fn assert_holes_are_kept(copy: &Path) {
    let blocks = |name: &str| {
        fs::metadata(copy.join("holes").join(name))
            .unwrap()
            .blocks()
    };
    assert_eq!(blocks("only-a-hole"), 0);
    assert!(blocks("far") < 1_000, "{}", blocks("far"));
    assert!(blocks("comb") < 8_000, "{}", blocks("comb"));
}

/// Immutable files could not be deleted again.
fn is_plain_file_system(dir: &Path) -> bool {
    let probe = dir.join("probe");
    fs::write(&probe, "").unwrap();
    let set = rustix::fs::XattrFlags::empty();
    let takes = rustix::fs::setxattr(&probe, "user.probe", b"1", set).is_ok();
    fs::remove_file(&probe).unwrap();
    if !takes {
        println!("skipped: {} takes no user xattrs", dir.display());
    }
    takes
}

#[test]
fn get_restores_everything() {
    let Some((scratch, image, shown)) = filled() else {
        return;
    };
    if !is_plain_file_system(scratch.path()) {
        return;
    }
    let copy = scratch.path().join("copy");
    uext4_ok(&["get", text(&image), "/", text(&copy)]);
    assert_holes_are_kept(&copy);
    let mut ours = without_directory_sizes(oracle::walk(&copy));
    let mut shown = without_directory_sizes(shown);
    for tree in [&mut ours, &mut shown] {
        // The walk itself reads a file's first name before it looks at the next one.
        for keys in tree
            .values_mut()
            .filter(|keys| keys.get("nlink").is_some_and(|n| n != 1))
        {
            keys.remove("atime_ns");
        }
    }
    oracle::assert_equal(&ours, &shown, &LOST);
}

#[test]
fn get_goes_into_directories_and_keeps_what_exists() {
    let Some((scratch, image, _)) = filled() else {
        return;
    };
    let dest = scratch.path().join("dest");
    fs::create_dir(&dest).unwrap();
    uext4_ok(&["get", text(&image), "/links", text(&dest)]);
    assert_eq!(fs::read(dest.join("links/sub/three")).unwrap(), b"linked");
    assert_eq!(fs::metadata(dest.join("links/one")).unwrap().nlink(), 3);
    let single = dest.join("single");
    let arguments = ["get", text(&image), "/links/one", text(&single)];
    uext4_ok(&arguments);
    assert_eq!(fs::read(&single).unwrap(), b"linked");
    fs::write(&single, "mine").unwrap();
    assert_eq!(uext4(&arguments).status.code(), Some(1));
    assert_eq!(fs::read(&single).unwrap(), b"mine");
    uext4_ok(&[&arguments[..], &["--overwrite"]].concat());
    assert_eq!(fs::read(single).unwrap(), b"linked");
}

#[test]
fn gnu_tar_restores_everything() {
    let Some((scratch, image, shown)) = filled() else {
        return;
    };
    if !is_plain_file_system(scratch.path()) || !has_tool("tar") {
        return;
    }
    let copy = scratch.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let mut ours = Command::new(env!("CARGO_BIN_EXE_uext4"))
        .args(["tar", text(&image)])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let tar = Command::new("tar")
        .args([
            "-x",
            "-p",
            "-f",
            "-",
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "-C",
        ])
        .arg(&copy)
        .stdin(ours.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(ours.wait().unwrap().success());
    assert!(
        tar.status.success(),
        "{}",
        String::from_utf8_lossy(&tar.stderr)
    );
    assert_holes_are_kept(&copy);
    let mut shown = without_directory_sizes(shown);
    shown.retain(|_, keys| keys["type"] != "sock");
    let mut ours = without_directory_sizes(oracle::walk(&copy));
    for tree in [&mut ours, &mut shown] {
        // GNU tar sets the access time to that of the extraction.
        tree.values_mut()
            .for_each(|keys| drop(keys.remove("atime_ns")));
    }
    oracle::assert_equal(&ours, &shown, &LOST);
}

#[test]
fn what_exists_is_kept_and_named() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/file"), "new").unwrap();
    let image = scratch.path().join("image");
    uext4_ok(&["build", text(&source), "-o", text(&image)]);
    let dest = scratch.path().join("dest");
    fs::write(&dest, "old").unwrap();
    let output = uext4(&["get", text(&image), "/dir/file", text(&dest)]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.starts_with("uext4: /dir/file: File exists"), "{told}");
    assert_eq!(fs::read(&dest).unwrap(), b"old");
    uext4_ok(&["get", "--overwrite", text(&image), "/dir/file", text(&dest)]);
    assert_eq!(fs::read(&dest).unwrap(), b"new");
}
