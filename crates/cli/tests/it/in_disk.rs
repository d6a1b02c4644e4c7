//! A file system that is made in a disk: does all else on the disk stay as it is?

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::host::{assert_clean, has_tool, mke2fs, run, scratch, text, uext4, uext4_ok};

const MIB: u64 = 1 << 20;
/// The disk, and its partitions: first byte and bytes.
const DISK: u64 = 96 * MIB;
const PARTS: [(u64, u64); 3] = [(MIB, 8 * MIB), (9 * MIB, 32 * MIB), (41 * MIB, 16 * MIB)];
const TABLE: &str = "label: gpt\n\
    start=2048, size=8MiB, name=esp\n\
    size=32MiB, name=root, uuid=11111111-2222-3333-4444-555555555555\n\
    size=16MiB, name=data\n";

/// Gives a table to a disk.
pub fn partition(image: &Path, table: &str) {
    let mut child = Command::new("sfdisk")
        .arg("-q")
        .arg(image)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(table.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// A disk of three partitions. All of it but one MiB in the last one, which stays a hole, has bytes
/// that are known.
fn disk(dir: &Path) -> PathBuf {
    let image = dir.join("disk");
    let file = File::create(&image).unwrap();
    file.set_len(DISK).unwrap();
    partition(&image, TABLE);
    let pattern = vec![0xA5; MIB as usize];
    let hole = 45 * MIB;
    for at in (MIB..DISK - MIB).step_by(MIB as usize) {
        if at != hole {
            file.write_all_at(&pattern, at).unwrap();
        }
    }
    image
}

fn source(dir: &Path) -> PathBuf {
    let source = dir.join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("hello"), "hello\n").unwrap();
    source
}

/// The bytes of a disk but for a window of it.
fn outside(image: &Path, (start, len): (u64, u64)) -> Vec<u8> {
    let mut bytes = fs::read(image).unwrap();
    bytes.drain(start as usize..(start + len) as usize);
    bytes
}

/// A copy of a window.
fn part(image: &Path, (start, len): (u64, u64)) -> PathBuf {
    let bytes = fs::read(image).unwrap();
    let copy = image.with_extension("part");
    fs::write(&copy, &bytes[start as usize..(start + len) as usize]).unwrap();
    copy
}

fn has_tools() -> bool {
    has_tool("sfdisk") && has_tool("mke2fs")
}

#[test]
fn nothing_but_the_window_changes() {
    if !has_tools() {
        return;
    }
    let scratch = scratch();
    let (image, source) = (disk(scratch.path()), source(scratch.path()));
    let (image, source) = (text(&image).to_owned(), text(&source).to_owned());
    let start = format!("offset={}", PARTS[1].0);
    let uuid = "11111111-2222-3333-4444-555555555555";
    let before = outside(Path::new(&image), PARTS[1]);
    let hole = |image: &str| fs::metadata(image).unwrap().blocks();
    let blocks = hole(&image);
    let commands: [&[&str]; 9] = [
        &[
            "mkfs", "-q", "-F", "-d", &source, "-E", &start, &image, "20M",
        ],
        &["mkfs", "-q", "-F", "-d", &source, "-E", &start, &image],
        &[
            "mkfs",
            "-q",
            "-F",
            "-d",
            &source,
            "--partition",
            "2",
            &image,
        ],
        &["mkfs", "-q", "-F", "--partition", "root", &image],
        &["mkfs", "-q", "-F", "-E", &start, &image],
        &["build", "-q", "-F", &source, "-E", &start, "-o", &image],
        &[
            "build", "-q", "-F", &source, "-E", &start, "-o", &image, "--size", "30M",
        ],
        &[
            "build",
            "-q",
            "-F",
            &source,
            "--partition",
            uuid,
            "-o",
            &image,
        ],
        &[
            "build",
            "-q",
            "-F",
            &source,
            "--partition",
            "2",
            "--min",
            "-o",
            &image,
        ],
    ];
    for command in commands {
        uext4_ok(command);
        assert!(
            outside(Path::new(&image), PARTS[1]) == before,
            "{command:?}"
        );
        let made = part(Path::new(&image), PARTS[1]);
        assert_clean(&made);
        if command.contains(&source.as_str()) {
            assert_eq!(uext4_ok(&["cat", text(&made), "/hello"]), b"hello\n");
            assert_eq!(uext4_ok(&["cat", &image, "/hello"]), b"hello\n");
        }
        assert!(hole(&image) <= blocks, "the hole was filled");
    }
}

#[test]
fn links_of_mke2fs_write_in_place_too() {
    if !has_tools() {
        return;
    }
    let scratch = scratch();
    let (image, source) = (disk(scratch.path()), source(scratch.path()));
    let before = outside(&image, PARTS[1]);
    let link = scratch.path().join("mkfs.ext4");
    std::os::unix::fs::symlink(crate::host::UEXT4, &link).unwrap();
    let start = format!("offset={:#x}", PARTS[1].0);
    let arguments = [
        "-q",
        "-F",
        "-d",
        text(&source),
        "-E",
        &start,
        text(&image),
        "20M",
    ];
    run(text(&link), &arguments);
    assert!(outside(&image, PARTS[1]) == before);
    assert_clean(&part(&image, PARTS[1]));
}

/// A file system whose superblock says more than its partition has.
#[test]
fn what_is_longer_than_its_partition_is_read_and_not_written() {
    if !has_tools() {
        return;
    }
    let scratch = scratch();
    let image = disk(scratch.path());
    let plain = scratch.path().join("plain");
    mke2fs(
        &plain,
        &["-t", "ext4", "-d", text(&source(scratch.path()))],
        40,
    );
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&fs::read(&plain).unwrap(), PARTS[1].0)
        .unwrap();
    let before = fs::read(&image).unwrap();
    let start = PARTS[1].0.to_string();
    let name = text(&image);
    let archive = scratch.path().join("some.tar");
    run("tar", &["-cf", text(&archive), "-C", "/", "etc/hostname"]);
    for place in [["--offset", &start], ["--partition", "2"]] {
        let commands: [&[&str]; 7] = [
            &["untar", place[0], place[1], name, text(&archive), "/"],
            &["mkdir", place[0], place[1], name, "/new"],
            &["put", place[0], place[1], name, text(&archive), "/"],
            &["grow", place[0], place[1], name, "60M"],
            &["shrink", place[0], place[1], name, "30M"],
            &["tune", place[0], place[1], "-L", "x", name],
            &["trim", place[0], place[1], name],
        ];
        for command in commands {
            let output = uext4(command);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{command:?}: {said}");
            assert!(fs::read(&image).unwrap() == before, "{command:?}");
        }
        let read = uext4_ok(&["cat", place[0], place[1], name, "/hello"]);
        assert_eq!(read, b"hello\n");
    }
    // A repair keeps to the partition, whatever it makes of the file system.
    let rest = outside(&image, PARTS[1]);
    uext4(&["repair", "-y", "--offset", &start, name]);
    assert!(outside(&image, PARTS[1]) == rest);
}

#[test]
fn what_changes_a_partition_by_its_offset_changes_nothing_else() {
    if !has_tools() {
        return;
    }
    let scratch = scratch();
    let image = disk(scratch.path());
    let start = format!("{:#x}", PARTS[1].0);
    let (name, source) = (text(&image), source(scratch.path()));
    uext4_ok(&["mkfs", "-q", "-F", "--partition", "2", name, "20M"]);
    let before = outside(&image, PARTS[1]);
    let undo = scratch.path().join("undo");
    let commands: [&[&str]; 8] = [
        &["put", "--offset", &start, name, text(&source), "/new"],
        &[
            "tune",
            "--offset",
            &start,
            "-L",
            "x",
            "--undo",
            text(&undo),
            name,
        ],
        &["undo", "--offset", &start, text(&undo), name],
        &["grow", "--offset", &start, name],
        &["shrink", "--offset", &start, name, "25M"],
        &["trim", "--offset", &start, name],
        &["repair", "-y", "--offset", &start, name],
        &["rm", "-r", "--offset", &start, name, "/new"],
    ];
    for command in commands {
        uext4_ok(command);
        assert!(outside(&image, PARTS[1]) == before, "{command:?}");
        assert_clean(&part(&image, PARTS[1]));
    }
    let too_large = uext4(&["grow", "--offset", &start, name, "40M"]);
    assert_eq!(too_large.status.code(), Some(8));
    assert!(outside(&image, PARTS[1]) == before);
}

#[test]
fn what_does_not_fit_changes_nothing_and_says_by_how_much() {
    if !has_tools() {
        return;
    }
    let scratch = scratch();
    let (image, source) = (disk(scratch.path()), source(scratch.path()));
    let large = File::create(source.join("large")).unwrap();
    large.write_all_at(&vec![7; 24 << 20], 0).unwrap();
    let (image, source) = (text(&image).to_owned(), text(&source).to_owned());
    let before = fs::read(&image).unwrap();
    let at = |byte: u64| format!("offset={byte}");
    let (third, gap, table) = (at(PARTS[2].0), at(58 * MIB), at(512));
    let commands: [(&[&str], &str); 9] = [
        (
            &["build", "-F", &source, "--partition", "3", "-o", &image],
            "too many",
        ),
        (
            &["mkfs", "-F", "-d", &source, "-E", &third, &image],
            "too many",
        ),
        (
            &["mkfs", "-F", "-d", &source, "-E", &third, &image, "40M"],
            "partition 3 has",
        ),
        (
            &["mkfs", "-F", "-E", &third, &image, "40M"],
            "partition 3 has",
        ),
        (
            &["mkfs", "-F", "--partition", "data", &image, "17M"],
            "1048576 too few",
        ),
        (
            &["mkfs", "-F", "-E", &gap, &image, "38M"],
            "the rest of the disk has",
        ),
        (
            &["build", "-F", &source, "-E", &table, "-o", &image],
            "partition table",
        ),
        (
            &["build", "-F", &source, "--partition", "4", "-o", &image],
            "no partition 4",
        ),
        (
            &["build", &source, "--partition", "2", "-o", &image],
            "no terminal to ask",
        ),
    ];
    for (command, words) in commands {
        let output = uext4(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(8), "{command:?}: {said}");
        assert!(said.contains(words), "{command:?}: {said}");
        assert!(fs::read(&image).unwrap() == before, "{command:?}");
    }
}

#[test]
fn a_failure_halfway_changes_nothing_outside() {
    if !has_tools() {
        return;
    }
    let scratch = scratch();
    let image = disk(scratch.path());
    let before = outside(&image, PARTS[1]);
    let archive = scratch.path().join("cut.tar");
    let source = source(scratch.path());
    run("tar", &["-cf", text(&archive), "-C", text(&source), "."]);
    let bytes = fs::read(&archive).unwrap();
    fs::write(&archive, &bytes[..bytes.len() - 9000]).unwrap();
    let output = uext4(&[
        "build",
        "-F",
        text(&archive),
        "--partition",
        "2",
        "-o",
        text(&image),
    ]);
    assert_eq!(output.status.code(), Some(4));
    assert!(outside(&image, PARTS[1]) == before);

    // A file without a table becomes longer for its file system, and shorter again without it.
    let plain = scratch.path().join("plain");
    File::create(&plain).unwrap().write_all(&[1; 5000]).unwrap();
    let command = ["-E", "offset=1M", text(&plain), "20M"];
    let limit = format!(
        "ulimit -f {}; trap '' XFSZ; exec \"$0\" \"$@\"",
        (10 * MIB) / 1024
    );
    for fill in [&["-d", text(&source)][..], &[]] {
        let output = Command::new("bash")
            .args(["-c", &limit, crate::host::UEXT4, "mkfs", "-F"])
            .args(fill)
            .args(command)
            .output()
            .unwrap();
        assert!(!output.status.success());
        assert_eq!(fs::read(&plain).unwrap(), [1; 5000]);
    }
    uext4_ok(&[
        "mkfs",
        "-F",
        "-d",
        text(&source),
        "-E",
        "offset=1M",
        text(&plain),
        "20M",
    ]);
    let bytes = fs::read(&plain).unwrap();
    assert_eq!(
        (bytes.len() as u64, &bytes[..5000]),
        (21 * MIB, &[1; 5000][..])
    );
}

#[test]
fn a_verified_file_system_in_a_partition_says_where_its_tree_is() {
    if !has_tools() || !has_tool("veritysetup") {
        return;
    }
    let scratch = scratch();
    let (image, source) = (disk(scratch.path()), source(scratch.path()));
    let before = outside(&image, PARTS[1]);
    let made = uext4_ok(&[
        "build",
        "-F",
        "--json",
        "--verity",
        text(&source),
        "--partition",
        "2",
        "-o",
        text(&image),
    ]);
    let made: serde_json::Value = serde_json::from_slice(&made).unwrap();
    let tree = &made["verity"];
    assert_eq!(tree["data_offset"], PARTS[1].0);
    let (at, root) = (
        tree["hash_offset"].as_u64().unwrap(),
        tree["root_hash"].as_str().unwrap(),
    );
    assert!(outside(&image, PARTS[1]) == before);
    let whole = part(&image, PARTS[1]);
    let offset = format!("--hash-offset={}", at - PARTS[1].0);
    run(
        "veritysetup",
        &["verify", text(&whole), text(&whole), root, &offset],
    );
}

#[test]
fn a_disk_in_use_is_refused() {
    if !has_tools() {
        return;
    }
    let scratch = scratch();
    let (image, source) = (disk(scratch.path()), source(scratch.path()));
    let file = File::open(&image).unwrap();
    file.try_lock_shared().unwrap();
    let before = fs::read(&image).unwrap();
    let commands: [&[&str]; 2] = [
        &["mkfs", "-F", "--partition", "2", text(&image)],
        &[
            "build",
            "-F",
            text(&source),
            "--partition",
            "2",
            "-o",
            text(&image),
        ],
    ];
    for command in commands {
        let output = uext4(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("in use"), "{said}");
    }
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn partitions_are_named_by_label_and_uuid_by_all_commands() {
    if !has_tools() {
        return;
    }
    let scratch = scratch();
    let image = disk(scratch.path());
    let plain = scratch.path().join("plain");
    mke2fs(&plain, &["-t", "ext4", "-L", "second"], 32);
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&fs::read(&plain).unwrap(), PARTS[1].0)
        .unwrap();
    for name in [
        "root",
        "PARTLABEL=root",
        "11111111-2222-3333-4444-555555555555",
    ] {
        let said = uext4_ok(&["info", "--partition", name, text(&image)]);
        assert!(String::from_utf8_lossy(&said).contains("second"), "{name}");
    }
    uext4_ok(&["mkdir", "--partition", "root", text(&image), "/new"]);
    let none = uext4(&["ls", "--partition", "home", text(&image)]);
    assert_eq!(none.status.code(), Some(8));
}

/// A command that must fail with these words and change nothing.
fn is_refused(image: &Path, command: &[&str], words: &str) {
    let before = fs::read(image).unwrap();
    let output = uext4(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{command:?}: {said}");
    assert!(said.contains(words), "{command:?}: {said}");
    assert!(fs::read(image).unwrap() == before, "{command:?}");
}

/// The table is gone, and its copy was cut off with the end of the disk.
#[test]
fn what_a_damaged_table_may_hide_is_not_overwritten() {
    if !has_tools() {
        return;
    }
    let scratch = scratch();
    let (image, source) = (disk(scratch.path()), source(scratch.path()));
    let (name, source) = (text(&image), text(&source));
    uext4_ok(&["mkfs", "-q", "-F", "--partition", "2", name]);
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 33 * 512], 512).unwrap();
    file.set_len(DISK - MIB).unwrap();
    let words = "the partition table is damaged";
    let commands: [&[&str]; 4] = [
        &["mkfs", "-F", "-E", "offset=1M", name],
        &["mkfs", "-F", "-d", source, "-E", "offset=1M", name],
        &["build", "-F", source, "-E", "offset=1M", "-o", name],
        &["grow", "--offset", "9M", name],
    ];
    for command in commands {
        is_refused(&image, command, words);
    }
    // The user says how far it goes.
    let before = outside(&image, PARTS[0]);
    let commands: [&[&str]; 5] = [
        &["mkfs", "-q", "-F", "-E", "offset=1M", name, "8M"],
        &[
            "mkfs",
            "-q",
            "-F",
            "-d",
            source,
            "-E",
            "offset=1M",
            name,
            "8M",
        ],
        &[
            "build",
            "-q",
            "-F",
            source,
            "-E",
            "offset=1M",
            "--size",
            "8M",
            "-o",
            name,
        ],
        &["mkdir", "--offset", "1M", name, "/new"],
        &["shrink", "--offset", "1M", name, "7M"],
    ];
    for command in commands {
        uext4_ok(command);
        assert!(outside(&image, PARTS[0]) == before, "{command:?}");
        assert_clean(&part(&image, (MIB, 8 * MIB)));
    }
    uext4_ok(&["check", "--offset", "9M", name]);
}

/// An image that boots from a disc and from a disk: its first partition begins with the table
/// itself, and its second one lies within the first.
#[test]
fn a_partition_that_begins_with_the_table_is_not_formatted() {
    let scratch = scratch();
    let (image, source) = (scratch.path().join("hybrid"), source(scratch.path()));
    let mut bytes = vec![0x5A; 32 << 20];
    bytes[446..510].fill(0);
    for (at, first, count) in [(446, 0_u32, 65_536_u32), (462, 4096, 32_768)] {
        bytes[at + 4] = 0x83;
        bytes[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    fs::write(&image, bytes).unwrap();
    let (name, source) = (text(&image), text(&source));
    let partitions = [
        ("1", "belongs to the partition table"),
        ("2", "overlaps partition 1"),
    ];
    for (number, words) in partitions {
        let commands: [&[&str]; 3] = [
            &["mkfs", "-F", "--partition", number, name],
            &["mkfs", "-F", "-d", source, "--partition", number, name],
            &["build", "-F", source, "--partition", number, "-o", name],
        ];
        for command in commands {
            is_refused(&image, command, words);
        }
    }
}
