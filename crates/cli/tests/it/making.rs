//! `mkfs` and `build`: what they make is sound, the same each time, and whole or not there at all.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::host::{can_mount, has_tool, mounted, run, scratch, text, uext4, uext4_ok};
use crate::oracle::{self, Tree};
use crate::served::{Served, can_serve};
use crate::tree::Source;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// Runs the command with the time fixed.
fn dated(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uext4"))
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .args(arguments)
        .output()
        .unwrap()
}

fn assert_clean(image: &Path) {
    if has_tool("e2fsck") {
        uext4_testkit::assert_clean(image);
    }
    uext4_ok(&["check", text(image)]);
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn new_file_systems_are_clean() {
    let scratch = scratch();
    for (index, flags) in [
        &[][..],
        &["-t", "ext2"],
        &["-t", "ext3", "-b", "4096"],
        &["-b", "-2048", "-I", "128", "-L", "label", "-m", "0"],
        &[
            "-O",
            "^has_journal,metadata_csum_seed",
            "-E",
            "root_owner=5:6",
        ],
        &["-J", "size=4", "-N", "1000", "-i", "65536"],
    ]
    .into_iter()
    .enumerate()
    {
        let image = scratch.path().join(format!("{index}.img"));
        let mut arguments = vec!["mkfs"];
        arguments.extend(flags);
        arguments.extend([text(&image), "64M"]);
        uext4_ok(&arguments);
        assert_clean(&image);
        // Once more, over what is there now, in the size there is.
        arguments.pop();
        uext4_ok(&arguments);
        assert_clean(&image);
        assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
    }
}

#[test]
fn the_same_arguments_make_the_same_bytes() {
    let scratch = scratch();
    let (a, b) = (scratch.path().join("a"), scratch.path().join("b"));
    for flags in [&["-U", UUID][..], &[]] {
        for image in [&a, &b] {
            let mut arguments = vec!["mkfs", text(image), "32M"];
            arguments.extend(flags);
            assert!(dated(&arguments).status.success());
        }
        assert!(fs::read(&a).unwrap() == fs::read(&b).unwrap(), "{flags:?}");
    }
    for image in [&a, &b] {
        uext4_ok(&["mkfs", "-q", text(image), "32M"]);
    }
    assert!(
        fs::read(&a).unwrap() != fs::read(&b).unwrap(),
        "UUIDs are random by default"
    );
}

#[test]
fn an_offset_is_left_free() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let made = uext4_ok(&[
        "mkfs",
        "--json",
        "-E",
        "offset=1048576",
        text(&image),
        "16M",
    ]);
    let made: Value = serde_json::from_slice(&made).unwrap();
    assert_eq!(made["size"], 16 << 20);
    assert_eq!(fs::metadata(&image).unwrap().len(), 17 << 20);
    assert!(fs::read(&image).unwrap()[..1 << 20].iter().all(|&b| b == 0));
    let info = uext4_ok(&["info", "--json", "--offset", "1M", text(&image)]);
    let info: Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(info["uuid"], made["uuid"]);
}

#[test]
fn what_cannot_be_made_leaves_nothing() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let image = text(&image);
    for (arguments, code) in [
        (&["mkfs", image][..], 2),
        (&["mkfs", "-O", "nonsense", image, "16M"], 2),
        (&["mkfs", "-b", "3000", image, "16M"], 2),
        (&["mkfs", "-U", "nonsense", image, "16M"], 2),
        (&["mkfs", "-L", "seventeen bytes..", image, "16M"], 2),
        (&["mkfs", image, "10k"], 8),
        (&["mkfs", "/no/such/directory/image", "16M"], 8),
    ] {
        let output = uext4(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(!output.stderr.is_empty());
        assert!(names(scratch.path()).is_empty(), "{arguments:?}");
    }
    uext4_ok(&["mkfs", "-n", image, "16M"]);
    assert!(names(scratch.path()).is_empty());
}

/// What a source and an image of it must differ in: numbers of their own, and how much is taken.
const OWN: [&str; 3] = ["ino", "blocks", "flags"];

fn without_directory_sizes(mut tree: Tree) -> Tree {
    for keys in tree.values_mut().filter(|keys| keys["type"] == "dir") {
        keys.remove("size");
    }
    tree
}

/// Our own view of the image, and the kernel's where it can be had, equal the source.
fn assert_holds(image: &Path, mut source: Tree, but: &[&str]) {
    assert_clean(image);
    source.get_mut(".").unwrap().remove("nlink");
    let mut views = vec![oracle::parse(&uext4_ok(&["manifest", text(image)]))];
    if can_mount()
        && let Some(mount) = mounted(image, true)
    {
        views.push(oracle::walk(mount.path()));
    }
    let source = without_directory_sizes(source);
    for view in views {
        let mut view = without_directory_sizes(view);
        assert!(view.remove("lost+found").is_some());
        view.get_mut(".").unwrap().remove("nlink");
        oracle::assert_equal(&view, &source, &[but, &OWN].concat());
    }
}

#[test]
fn an_image_of_a_directory_is_the_directory() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let filled = Source::new(scratch.path());
    let source = filled.path();
    // Only ea_inode takes attributes larger than a block.
    let features = ["-O", "ea_inode"];
    // A copy of the source would not share them.
    let but = ["atime_ns", "ctime_ns"];
    uext4_ok(&[&["build", text(source), "-o", text(&image)], &features[..]].concat());
    assert_holds(&image, oracle::walk(source), &but);
    let before = fs::read(&image).unwrap();
    let again = ["build", "--force", text(source), "-o", text(&image)];
    uext4_ok(&[&again, &features[..]].concat());
    let again = fs::read(&image).unwrap();
    assert!(before.len() == again.len(), "another size the second time");
    uext4_ok(&[
        "mkfs",
        "-qF",
        "-b",
        "4096",
        "-O",
        "ea_inode",
        "-d",
        text(source),
        text(&image),
        "96M",
    ]);
    assert_holds(&image, oracle::walk(source), &but);
    assert_eq!(fs::metadata(&image).unwrap().len(), 96 << 20);
}

#[test]
fn an_image_of_an_archive_is_the_archive() {
    if !has_tool("tar") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    let filled = Source::new(scratch.path());
    let source = filled.path();
    let _ = fs::remove_file(source.join("special/socket"));
    let archive = scratch.path().join("archive.tar.gz");
    run(
        "tar",
        &[
            "--format=pax",
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "-S",
            "-C",
            text(source),
            "-czf",
            text(&archive),
            ".",
        ],
    );
    let shown = oracle::walk(source);
    for flags in [&["--min"][..], &["--free", "20M"]] {
        let arguments = [
            "build",
            "--force",
            text(&archive),
            "-O",
            "ea_inode",
            "-o",
            text(&image),
        ];
        uext4_ok(&[&arguments[..], flags].concat());
        assert_holds(&image, shown.clone(), &["atime_ns", "ctime_ns"]);
        fs::copy(&image, scratch.path().join("first")).unwrap();
        uext4_ok(&[&arguments[..], flags].concat());
        let first = fs::read(scratch.path().join("first")).unwrap();
        assert!(
            first == fs::read(&image).unwrap(),
            "{flags:?}: not the same bytes"
        );
    }
}

#[test]
fn what_cannot_be_built_leaves_nothing() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), vec![1; 3_000_000]).unwrap();
    let archive = scratch.path().join("archive.tar");
    run("tar", &["-C", text(&source), "-cf", text(&archive), "."]);
    let whole = fs::read(&archive).unwrap();
    fs::write(&archive, &whole[..1_000_000]).unwrap();
    let climbing = scratch.path().join("climbing.tar");
    run(
        "tar",
        &[
            "-C",
            text(&source),
            "-Pcf",
            text(&climbing),
            "../source/file",
        ],
    );
    let before = names(scratch.path());
    let image = scratch.path().join("image");
    let image = text(&image);
    for (arguments, code) in [
        (&["build", text(&archive), "-o", image][..], 4),
        (&["build", text(&climbing), "-o", image], 4),
        (&["build", "/no/such/source", "-o", image], 8),
        (&["build", text(&source), "-o", image, "--size", "1M"], 8),
        (
            &["build", text(&source), "-o", image, "--size", "1M", "--min"],
            2,
        ),
        (&["build", text(&source), "-o", image, "--exclude", "["], 2),
        (
            &["build", text(&source), "-o", "/no/such/directory/image"],
            8,
        ),
        (&["mkfs", "-d", text(&source), image, "1M"], 8),
    ] {
        let output = uext4(arguments);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(!printed.is_empty());
        assert_eq!(names(scratch.path()), before, "{arguments:?}");
    }
}

#[test]
fn owners_and_excludes_follow_the_options() {
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir_all(source.join("keep")).unwrap();
    for name in ["keep/a.txt", "keep/b.tmp", "c.tmp"] {
        fs::write(source.join(name), name).unwrap();
    }
    let arguments = ["build", text(&source), "-o", text(&image), "--json"];
    let printed = uext4_ok(&[&arguments[..], &["--owner", "7:8", "--exclude", "*.tmp"]].concat());
    let printed: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(printed["entries"], 2);
    let tree = oracle::parse(&uext4_ok(&["manifest", text(&image)]));
    let paths: Vec<&str> = tree.keys().map(String::as_str).collect();
    assert_eq!(paths, [".", "keep", "keep/a.txt", "lost+found"]);
    assert_eq!(
        (&tree["keep/a.txt"]["uid"], &tree["keep/a.txt"]["gid"]),
        (&7.into(), &8.into())
    );
}

/// Of descriptors there may be fewer than levels, until more are asked for.
#[test]
fn a_tree_is_as_deep_as_it_is() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("d/".repeat(200))).unwrap();
    let image = scratch.path().join("image");
    let script = "ulimit -S -n 100 && exec \"$@\"";
    let uext4 = env!("CARGO_BIN_EXE_uext4");
    let (source, made) = (text(&source), text(&image));
    run(
        "sh",
        &["-c", script, "sh", uext4, "build", source, "-o", made],
    );
    assert_clean(&image);
}

#[test]
fn an_image_in_use_is_not_replaced() {
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir(&source).unwrap();
    uext4_ok(&["mkfs", "-q", text(&image), "32M"]);
    let replacements = [
        &["build", "--force", text(&source), "-o", text(&image)][..],
        &["mkfs", "-F", "-d", text(&source), text(&image), "32M"],
    ];
    let refused = |why: &str| {
        let before = fs::read(&image).unwrap();
        for arguments in replacements {
            let output = uext4(arguments);
            let reason = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(8), "{arguments:?}: {reason}");
            assert!(reason.contains(why), "{arguments:?}: {reason}");
        }
        assert!(before == fs::read(&image).unwrap(), "the image is another");
    };
    let user = fs::File::open(&image).unwrap();
    user.lock_shared().unwrap();
    refused("is in use by another program");
    drop(user);
    if can_serve() {
        let place = scratch.path().join("place");
        fs::create_dir(&place).unwrap();
        let served = Served::new(&image, &place, "rw");
        refused("it is mounted at");
        drop(served);
    }
    if can_mount() {
        let mount = mounted(&image, false);
        refused("is in use as /dev/loop");
        drop(mount);
    }
    for arguments in replacements {
        uext4_ok(arguments);
    }
}

#[test]
fn a_replaced_image_keeps_its_mode_and_owner() {
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir(&source).unwrap();
    fs::write(&image, "").unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).unwrap();
    let root = rustix::process::geteuid().is_root();
    if root {
        std::os::unix::fs::chown(&image, Some(1234), Some(1235)).unwrap();
    }
    for arguments in [
        &["build", text(&source), "-o", text(&image)][..],
        &["mkfs", "-F", "-d", text(&source), text(&image), "32M"],
    ] {
        uext4_ok(arguments);
        let found = fs::metadata(&image).unwrap();
        assert_eq!(found.mode() & 0o7777, 0o600, "{arguments:?}");
        let owner = (found.uid(), found.gid());
        assert!(!root || owner == (1234, 1235), "{arguments:?}: {owner:?}");
    }
}

#[test]
fn flags_of_mke2fs_without_effect_are_accepted_with_a_note() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let made = uext4(&[
        "mkfs",
        "-r",
        "1",
        "-v",
        "-D",
        "-K",
        "-c",
        "-o",
        "Linux",
        "-z",
        "undo",
        "-T",
        "ext3",
        "-E",
        "root_owner,desc_size=64,android_sparse",
        text(&image),
        "8M",
    ]);
    let notes = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success(), "{notes}");
    for flag in ["-D:", "-c:", "-z:", "desc_size:", "android_sparse:"] {
        assert!(notes.contains(flag), "{flag} in {notes}");
    }
    for refused in [
        &["-o", "hurd"][..],
        &["-E", "desc_size=7"],
        &["-J", "device=/dev/x"],
        &["-z", "undo"],
    ] {
        let all = [&["mkfs"], refused, &[text(&image), "8M"]].concat();
        assert!(!uext4(&all).status.success(), "{refused:?}");
    }
}

#[test]
fn names_of_mke2fs_make_the_type_they_say() {
    let scratch = scratch();
    for (name, journal) in [("mke2fs", false), ("mkfs.ext2", false), ("mkfs.ext3", true)] {
        let link = scratch.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_uext4"), &link).unwrap();
        let image = scratch.path().join(format!("{name}.img"));
        let made = Command::new(&link)
            .args(["-q", text(&image), "8M"])
            .status();
        assert!(made.unwrap().success());
        let info = uext4_ok(&["info", "--json", text(&image)]);
        let info = String::from_utf8(info).unwrap();
        assert_eq!(info.contains("has_journal"), journal, "{name}");
        assert!(!info.contains("\"extent"), "{name}");
    }
}
