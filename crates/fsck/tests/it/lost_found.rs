//! What stands in the place of `lost+found` is kept by a repair as e2fsck keeps it, under whatever
//! name: it is a file of the user, and other files may be below it.

use std::fs;
use std::path::Path;

use uext4_ondisk::Ino;
use uext4_testkit::damage::{Contents, Survey};
use uext4_testkit::e2fsprogs::{debugfs, debugfs_write, e2fsck, mke2fs};
use uext4_testkit::{has_tool, scratch};

use crate::judge::Judge;

/// Features, as mke2fs spells them.
const SHAPES: [&str; 3] = [
    "-t ext2 -b 1024",
    "-t ext4 -b 1024 -N 64",
    "-t ext4 -b 4096 -N 64 -O inline_data -I 256",
];

/// Every type of file, and what may be lost below directories.
const TREE: [&str; 8] = [
    "mkdir dir",
    "mkdir dir/below",
    "symlink link /a/target/that/is/longer/than/what/an/inode/has/room/for/in/its/fields",
    "symlink short dir",
    "mknod pipe p",
    "mknod device c 1 3",
    "mkdir empty",
    "mkdir other",
];

/// What else stands there, and what has lost its name and needs the directory.
const INSTEAD: [(&str, &[&str]); 7] = [
    (
        "a link to a file",
        &["ln file lost+found", "sif file links_count 2"],
    ),
    ("a link to a directory", &["ln other lost+found"]),
    (
        "a symbolic link to a directory",
        &["symlink lost+found other"],
    ),
    (
        "a symbolic link to itself",
        &["symlink lost+found lost+found"],
    ),
    ("a device", &["mknod lost+found b 8 0"]),
    ("a pipe", &["mknod lost+found p"]),
    ("nothing", &[]),
];

fn image(dir: &Path, shape: &str) -> std::path::PathBuf {
    let image = dir.join("image");
    fs::remove_file(&image).ok();
    mke2fs(&image, shape.split_whitespace(), "8M");
    let source = dir.join("source");
    debugfs_write(&image, TREE);
    for (n, name) in ["file", "dir/file", "dir/below/file", "other/file"]
        .iter()
        .enumerate()
    {
        fs::write(&source, vec![b'a' + n as u8; 3000 + n]).unwrap();
        debugfs_write(&image, [format!("write {} {name}", source.display())]);
    }
    image
}

fn number(image: &Path, path: &str) -> Ino {
    let text = debugfs(image, &format!("stat {path}"));
    Ino(text.split_whitespace().nth(1).unwrap().parse().unwrap())
}

/// Repairs a damaged image in both ways. Both are clean, and what e2fsck keeps of the files of
/// before is kept.
fn assert_kept(what: &str, dir: &Path, before: &Contents, damaged: &[u8]) {
    let mended = Judge::new().mended(damaged);
    let mended = mended.unwrap_or_else(|complaint| panic!("{what}: {complaint}"));
    let ours = Contents::new(&Survey::new(mended));
    let theirs = dir.join("theirs");
    fs::write(&theirs, damaged).unwrap();
    e2fsck(&theirs, "-fy");
    e2fsck(&theirs, "-fy");
    let theirs = Contents::new(&Survey::new(fs::read(&theirs).unwrap()));
    let mut lost = ours.loses(&theirs, before);
    // Of two names of one directory either may stay. Under that of lost+found it does not count.
    lost.retain(|line| !line.contains("Some(Directory)"));
    assert_eq!(lost, [""; 0], "{what}");
}

#[test]
fn an_inode_that_is_exchanged_with_lost_found_keeps_its_contents() {
    if !has_tool("mke2fs") {
        return;
    }
    let dir = scratch();
    for shape in SHAPES {
        let image = image(dir.path(), shape);
        let whole = Survey::new(fs::read(&image).unwrap());
        let before = Contents::new(&whole);
        let lost_found = whole.inode_place(number(&image, "lost+found"));
        for path in [
            "file",
            "dir",
            "dir/file",
            "dir/below",
            "link",
            "short",
            "pipe",
            "device",
        ] {
            let other = whole.inode_place(number(&image, path));
            // Once as it is, and once where a file needs the directory.
            for loses_a_name in [false, true] {
                if loses_a_name {
                    debugfs_write(&image, ["unlink other/file"]);
                }
                let mut damaged = fs::read(&image).unwrap();
                let (first, second) = (lost_found.clone(), other.clone());
                let inode = damaged[first.clone()].to_vec();
                damaged.copy_within(second.clone(), first.start);
                damaged[second].copy_from_slice(&inode);
                let what = format!("{shape}: {path}, {loses_a_name}");
                assert_kept(&what, dir.path(), &before, &damaged);
            }
            fs::write(&image, &whole.bytes).unwrap();
        }
    }
}

#[test]
fn what_has_the_name_of_lost_found_is_kept() {
    if !has_tool("mke2fs") {
        return;
    }
    let dir = scratch();
    for shape in SHAPES {
        let image = image(dir.path(), shape);
        debugfs_write(&image, ["rmdir lost+found"]);
        let whole = fs::read(&image).unwrap();
        for (what, requests) in INSTEAD {
            fs::write(&image, &whole).unwrap();
            debugfs_write(&image, requests);
            let before = Contents::new(&Survey::new(fs::read(&image).unwrap()));
            debugfs_write(&image, ["unlink dir/file", "unlink dir/below"]);
            let damaged = fs::read(&image).unwrap();
            assert_kept(&format!("{shape}: {what}"), dir.path(), &before, &damaged);
        }
    }
}

#[test]
fn a_name_that_is_taken_in_lost_found_hides_no_file() {
    if !has_tool("mke2fs") {
        return;
    }
    let dir = scratch();
    for shape in SHAPES {
        let image = image(dir.path(), shape);
        let before = Contents::new(&Survey::new(fs::read(&image).unwrap()));
        for path in ["dir/file", "dir/below"] {
            let taken = number(&image, path);
            let name = format!("lost+found/#{taken}");
            debugfs_write(&image, [format!("mkdir {name}"), format!("unlink {path}")]);
        }
        let damaged = fs::read(&image).unwrap();
        let mended = Judge::new().mended(&damaged).unwrap();
        let ours = Contents::new(&Survey::new(mended));
        assert_eq!(ours.loses(&before, &before), [""; 0], "{shape}");
    }
}
