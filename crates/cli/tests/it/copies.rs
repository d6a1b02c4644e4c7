//! `get` and `tar` give back what the kernel shows.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::host::{
    UEXT4, can_mount, has_tool, mke2fs, mounted, run, scratch, text, uext4, uext4_ok,
};
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
    let mount = mounted(&image, false)?;
    tree::fill(mount.path());
    drop(mount);
    let mount = mounted(&image, true)?;
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

fn assert_holes_are_preserved(copy: &Path) {
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
    assert_holes_are_preserved(&copy);
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
    assert_holes_are_preserved(&copy);
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
fn existing_files_are_not_replaced_and_are_named() {
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
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.starts_with("uext4: /dir/file: File exists"),
        "{printed}"
    );
    assert_eq!(fs::read(&dest).unwrap(), b"old");
    uext4_ok(&["get", "--overwrite", text(&image), "/dir/file", text(&dest)]);
    assert_eq!(fs::read(&dest).unwrap(), b"new");
}

/// An image of three files, of which the second has `size` bytes, and their directory.
fn three_files(dir: &Path, size: usize) -> (PathBuf, PathBuf) {
    let source = dir.join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("a"), "first").unwrap();
    fs::write(source.join("b"), vec![b'x'; size]).unwrap();
    fs::write(source.join("sub/c"), "last").unwrap();
    fs::hard_link(source.join("a"), source.join("sub/d")).unwrap();
    std::os::unix::fs::symlink("a", source.join("link")).unwrap();
    let image = dir.join("image");
    uext4_ok(&["build", text(&source), "-o", text(&image)]);
    (source, image)
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = names
        .map(|name| name.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn an_interrupted_get_leaves_complete_files_and_a_second_one_goes_on() {
    let scratch = scratch();
    let (source, image) = three_files(scratch.path(), 8 << 20);
    let copy = scratch.path().join("copy");
    // The kernel ends the process in the middle of the large file.
    let script = format!(
        "ulimit -c 0; ulimit -f 4096; exec {UEXT4} get {} / {}",
        text(&image),
        text(&copy)
    );
    let cut = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(cut.status.code(), None, "{cut:?}");
    assert_eq!(names(&copy), ["a"]);
    assert_eq!(fs::read(copy.join("a")).unwrap(), b"first");
    // What is complete is accepted, and is the file that further names are links to.
    for _ in 0..2 {
        uext4_ok(&["get", text(&image), "/", text(&copy)]);
        run(
            "diff",
            &[
                "-r",
                "--no-dereference",
                "-x",
                "lost+found",
                text(&source),
                text(&copy),
            ],
        );
        assert_eq!(fs::metadata(copy.join("sub/d")).unwrap().nlink(), 2);
    }
    // Files that differ stay, unless they are to be replaced; links are replaced as well.
    fs::write(copy.join("b"), "mine").unwrap();
    assert_eq!(
        uext4(&["get", text(&image), "/", text(&copy)])
            .status
            .code(),
        Some(1)
    );
    assert_eq!(fs::read(copy.join("b")).unwrap(), b"mine");
    uext4_ok(&["get", "--overwrite", text(&image), "/", text(&copy)]);
    run(
        "diff",
        &[
            "-r",
            "--no-dereference",
            "-x",
            "lost+found",
            text(&source),
            text(&copy),
        ],
    );
    assert_eq!(fs::metadata(copy.join("sub/d")).unwrap().nlink(), 2);
    assert_eq!(names(&copy), ["a", "b", "link", "lost+found", "sub"]);
}

/// Runs the command as an ordinary user in a directory.
fn as_ordinary_user(dir: &Path, arguments: &[&str]) -> std::process::Output {
    Command::new("setpriv")
        .args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            UEXT4,
        ])
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap()
}

/// Three files and an image of them, in a directory that an ordinary user may write; `None` where
/// the command cannot be run as one.
fn three_files_for_all() -> Option<(TempDir, PathBuf, PathBuf)> {
    if !rustix::process::geteuid().is_root() || !has_tool("setpriv") {
        println!("skipped: needs root and setpriv");
        return None;
    }
    let scratch = scratch();
    let all = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(scratch.path(), all(0o777)).unwrap();
    let (source, image) = three_files(scratch.path(), 1);
    fs::set_permissions(&image, all(0o644)).unwrap();
    Some((scratch, source, image))
}

#[test]
fn get_of_an_ordinary_user_drops_set_id_with_the_owner() {
    let Some((scratch, source, image)) = three_files_for_all() else {
        return;
    };
    let all = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(source.join("a"), all(0o6755)).unwrap();
    fs::set_permissions(source.join("b"), all(0o6755)).unwrap();
    rustix::fs::chown(
        source.join("b"),
        Some(rustix::fs::Uid::from_raw(65534)),
        Some(rustix::fs::Gid::from_raw(65534)),
    )
    .unwrap();
    fs::set_permissions(source.join("b"), all(0o6755)).unwrap();
    uext4_ok(&["build", "-qF", text(&source), "-o", text(&image)]);
    let got = as_ordinary_user(scratch.path(), &["get", text(&image), "/", "copy"]);
    let said = String::from_utf8_lossy(&got.stderr);
    assert!(got.status.success(), "{said}");
    assert!(said.contains("lost set-user-id or set-group-id"), "{said}");
    let mode = |name: &str| {
        fs::metadata(scratch.path().join("copy").join(name))
            .unwrap()
            .mode()
    };
    assert_eq!(mode("a") & 0o7777, 0o755);
    assert_eq!(mode("b") & 0o7777, 0o6755);
    // "/" is "/", and not the current directory.
    let here = scratch.path().join("here");
    fs::create_dir(&here).unwrap();
    fs::set_permissions(&here, all(0o777)).unwrap();
    let got = as_ordinary_user(&here, &["get", text(&image), "/", "/"]);
    assert_eq!(got.status.code(), Some(1), "{got:?}");
    assert!(names(&here).is_empty());
}

#[test]
fn get_ends_with_1_where_attributes_are_refused_and_copies_all_else() {
    let Some((scratch, _, image)) = three_files_for_all() else {
        return;
    };
    let get = |dest: &str| {
        let got = as_ordinary_user(scratch.path(), &["get", text(&image), "/", dest]);
        let said = String::from_utf8_lossy(&got.stderr).into_owned();
        (got.status.code(), said)
    };
    assert_eq!(get("sound"), (Some(0), String::new()));
    let set = ["setfattr", "-n", "trusted.x", "-v", "1", text(&image), "/a"];
    uext4_ok(&set);
    let (code, said) = get("refused");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 extended attribute was refused"), "{said}");
    let copied = |name: &str| names(&scratch.path().join(name));
    assert_eq!(copied("refused"), copied("sound"));
}

#[test]
fn get_of_the_root_goes_to_the_directory_that_is_named() {
    let scratch = scratch();
    let (_, image) = three_files(scratch.path(), 1);
    for (at, dest) in [
        ("in", "."),
        ("in/inner", ".."),
        ("out", "../in"),
        ("out", "../link"),
    ] {
        for dir in ["in/inner", "out"] {
            fs::create_dir_all(scratch.path().join(dir)).unwrap();
        }
        std::os::unix::fs::symlink("in", scratch.path().join("link")).unwrap();
        let output = Command::new(UEXT4)
            .args(["get", text(&image), "/", dest])
            .current_dir(scratch.path().join(at))
            .output()
            .unwrap();
        assert!(output.status.success(), "{dest}: {output:?}");
        let expected = ["a", "b", "inner", "link", "lost+found", "sub"];
        assert_eq!(names(&scratch.path().join("in")), expected, "{dest}");
        assert!(names(&scratch.path().join("out")).is_empty(), "{dest}");
        fs::remove_file(scratch.path().join("link")).unwrap();
        for dir in ["in", "out"] {
            fs::remove_dir_all(scratch.path().join(dir)).unwrap();
        }
    }
}
