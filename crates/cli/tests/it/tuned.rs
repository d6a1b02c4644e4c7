//! `tune`: what it changes, what it refuses, and `info`, which shows all of it.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::checking::ended;
use crate::host::{assert_clean, dumpe2fs, has_tool, mke2fs, scratch, text, uext4_ok};

#[test]
fn a_file_system_is_tuned_shown_and_put_back() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-b", "1024"], 20);
    let path = text(&image);
    let fields = [
        "-L", "root", "-m", "1", "-c", "-1", "-i", "2w", "-e", "panic",
    ];
    uext4_ok(
        &[
            &["tune"],
            &fields[..],
            &["-E", "stride=4", "-o", "discard", path],
        ]
        .concat(),
    );
    assert_clean(&image);
    let info: Value = serde_json::from_slice(&uext4_ok(&["info", "--json", path])).unwrap();
    assert_eq!(info["label"], "root");
    assert_eq!(info["max_mount_count"], -1);
    assert_eq!(info["check_interval"], 1_209_600);
    assert_eq!(info["errors_behavior"], "panic");
    assert_eq!(info["raid_stride"], 4);
    let options = info["default_mount_options"].as_str().unwrap();
    assert!(options.contains("discard"), "{options}");
    let before = fs::read(&image).unwrap();
    let plan = ["tune", "-n", "-O", "quota,^has_journal", path];
    let shown = String::from_utf8(uext4_ok(&plan)).unwrap();
    assert!(shown.contains("to write"), "{shown}");
    assert_eq!(fs::read(&image).unwrap(), before);
    let saved = scratch.path().join("saved");
    uext4_ok(&[
        "tune",
        "-O",
        "quota,^has_journal",
        "--undo",
        text(&saved),
        path,
    ]);
    assert_clean(&image);
    uext4_ok(&["undo", text(&saved), path]);
    assert!(fs::read(&image).unwrap() == before, "undone");
}

#[test]
fn what_cannot_be_tuned_is_refused_in_a_sentence() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-b", "1024"], 20);
    let before = fs::read(&image).unwrap();
    let cases: [(&[&str], i32, &str); 13] = [
        (&[], 2, "nothing is to be changed"),
        (&["-O", "foo"], 2, "there is no feature foo"),
        (&["-U", "foo"], 2, "random, time, clear"),
        (&["-m", "60"], 8, "50 % is the most"),
        (&["-c", "often"], 2, "or random"),
        (&["-O", "^extent"], 8, "uext4 build"),
        (&["-I", "128"], 8, "uext4 build --base"),
        (&["-J", "size=4"], 8, "has a journal"),
        (&["-J", "location=9000"], 8, "has a journal"),
        (&["-J", "fast_commit_size=64"], 8, "-O fast_commit"),
        (&["-J", "device=/dev/sda"], 2, "tune2fs -J device="),
        (&["-E", "encoding_flags=strict"], 2, "needs encoding="),
        (&["-E", "clear_mmp"], 2, "needs -f"),
    ];
    for (options, code, sentence) in cases {
        let arguments = [&["tune"], options, &[text(&image)]].concat();
        let (found, printed) = ended(&arguments);
        assert_eq!(found, Some(code), "{options:?}: {printed}");
        assert!(printed.contains(sentence), "{options:?}: {printed}");
    }
    assert!(fs::read(&image).unwrap() == before, "nothing is written");
}

/// The lines of dumpe2fs that are numbers, with their names in `info --json`.
const SAME: [(&str, &str); 14] = [
    ("Inode count", "inodes"),
    ("Block count", "blocks"),
    ("Overhead clusters", "overhead_clusters"),
    ("Inode blocks per group", "inode_blocks_per_group"),
    ("RAID stride", "raid_stride"),
    ("RAID stripe width", "raid_stripe_width"),
    ("Required extra isize", "required_extra_isize"),
    ("Desired extra isize", "desired_extra_isize"),
    ("User quota inode", "user_quota_inode"),
    ("Group quota inode", "group_quota_inode"),
    ("Orphan file inode", "orphan_file_inode"),
    ("MMP block number", "mmp_block"),
    ("MMP update interval", "mmp_interval"),
    ("Total journal blocks", "journal_blocks"),
];

#[test]
fn info_has_the_fields_of_dumpe2fs() {
    if !has_tool("mke2fs") || !has_tool("dumpe2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    let features = [
        "-O",
        "quota,mmp,orphan_file",
        "-E",
        "stride=4,stripe_width=8",
    ];
    mke2fs(
        &image,
        &[&["-t", "ext4", "-b", "1024"], &features[..]].concat(),
        20,
    );
    let dumped = dumpe2fs(&image);
    let lines = dumped.lines().filter_map(|line| line.split_once(':'));
    let lines: BTreeMap<&str, &str> = lines.map(|(name, value)| (name, value.trim())).collect();
    let info: Value = serde_json::from_slice(&uext4_ok(&["info", "--json", text(&image)])).unwrap();
    for (theirs, ours) in SAME {
        assert_eq!(info[ours].to_string(), lines[theirs], "{theirs}");
    }
}

#[test]
fn an_old_file_system_gets_larger_inodes_and_64bit() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, &["-t", "ext3", "-b", "1024", "-I", "128"], 20);
    let path = text(&image);
    let wanted = [
        "-O",
        "flex_bg,extent,64bit",
        "-I",
        "256",
        "-c",
        "random",
        "-u",
        "root",
    ];
    uext4_ok(&[&["tune"], &wanted[..], &[path]].concat());
    assert_clean(&image);
    let info: Value = serde_json::from_slice(&uext4_ok(&["info", "--json", path])).unwrap();
    assert_eq!(info["inode_size"], 256);
    let mounts = info["max_mount_count"].as_u64().unwrap();
    assert!((20..=40).contains(&mounts), "{mounts}");
    uext4_ok(&["tune", "-O", "^64bit", path]);
    assert_clean(&image);
}

/// As after a check on another host that has lost its power.
#[test]
fn the_mark_of_another_host_is_cleared_by_force() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(
        &image,
        &["-t", "ext4", "-b", "1024", "-O", "mmp,^metadata_csum"],
        20,
    );
    let mut bytes = fs::read(&image).unwrap();
    let block = u32::from_le_bytes(bytes[1024 + 0x168..][..4].try_into().unwrap());
    bytes[block as usize * 1024 + 4..][..4].copy_from_slice(&0xE24D_4D50_u32.to_le_bytes());
    fs::write(&image, bytes).unwrap();
    let path = text(&image);
    let (code, printed) = ended(&["tune", "-L", "x", path]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("uext4 tune -f -E clear_mmp"), "{printed}");
    let shown = uext4_ok(&["tune", "-f", "-E", "clear_mmp", path]);
    assert_eq!(shown, b"changed: 1 block written\n");
    assert_clean(&image);
    let shown = uext4_ok(&["tune", "-f", "-E", "clear_mmp", "-l", path]);
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("changed: 0 blocks"), "{shown}");
    assert!(shown.contains("mmp interval"), "{shown}");
}

/// The descriptors of the groups that were added lie in their meta groups.
#[test]
fn descriptors_of_a_file_system_that_grew_become_larger_and_smaller() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    let options = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "512",
        "-O",
        "^resize_inode,^64bit",
    ];
    mke2fs(&image, &options, 14);
    let path = text(&image);
    uext4_ok(&["grow", path, "60M"]);
    let first = |image| {
        let dumped = dumpe2fs(image);
        let line = dumped.lines().find(|line| line.starts_with("First meta"));
        line.map(str::to_owned)
    };
    assert!(first(&image).is_some(), "{:?}", dumpe2fs(&image));
    for feature in ["64bit", "^64bit", "64bit"] {
        uext4_ok(&["tune", "-O", feature, path]);
        assert_clean(&image);
    }
    assert!(first(&image).is_some());
}
