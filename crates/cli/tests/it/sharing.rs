//! `dedup-xattrs`: equal blocks of attributes that were written one by one become one, judged by
//! e2fsck and by what the kernel shows before and after.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::changing::{done, image, judge};
use crate::host::{can_mount, has_tool, mounted, run, text};

/// Files with equal attributes, in each of the two kinds.
const FILES: u32 = 12;

/// Too long for an inode of 256 bytes.
fn value(kind: u32) -> String {
    format!("{kind}").repeat(300)
}

fn name(kind: u32, number: u32) -> String {
    format!("/{kind}-{number}")
}

/// The users of each block of attributes, by block, as debugfs shows the inodes.
fn users(image: &Path, files: impl Iterator<Item = String>) -> BTreeMap<String, u32> {
    let mut users = BTreeMap::new();
    for file in files {
        let shown = run("debugfs", &["-R", &format!("stat {file}"), text(image)]);
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let (_, acl) = shown.split_once("File ACL: ").expect("a File ACL");
        let block = acl.split_whitespace().next().unwrap_or_default();
        *users.entry(block.to_owned()).or_default() += 1;
    }
    users
}

fn files() -> impl Iterator<Item = String> {
    (0..2).flat_map(|kind| (0..FILES).map(move |number| name(kind, number)))
}

#[test]
fn equal_blocks_of_ours_are_merged() {
    let Some((_scratch, image)) = image(&["-t", "ext4"], 64) else {
        return;
    };
    for file in files() {
        done(&image, &["touch", &file]);
        let value = value(u32::from(file.starts_with("/1")));
        let words = ["setfattr", "--options=nombcache", "-nuser.a"];
        done(
            &image,
            &[&words[..], &[&format!("-v{value}"), &file]].concat(),
        );
    }
    judge(&image);
    assert_eq!(users(&image, files()).len() as u32, 2 * FILES);
    let said = done(&image, &["dedup-xattrs"]);
    let moved = 2 * (FILES - 1);
    assert!(said.contains(&format!("{moved} inodes")), "{said}");
    judge(&image);
    let shared = users(&image, files());
    assert_eq!(shared.into_values().collect::<Vec<_>>(), [FILES, FILES]);
    for kind in 0..2 {
        let said = done(&image, &["getfattr", "-d", &name(kind, 3)]);
        assert!(said.contains(&value(kind)), "{said}");
    }
    // There is nothing left to merge.
    let said = done(&image, &["dedup-xattrs"]);
    assert!(said.contains(" 0 inodes"), "{said}");
}

#[test]
fn equal_blocks_of_the_kernel_are_merged() {
    if !can_mount() || !has_tool("setfattr") {
        return;
    }
    let Some((_scratch, image)) = image(&["-t", "ext4"], 64) else {
        return;
    };
    // A mount each, so that the kernel has forgotten the block before.
    for file in files().take(3) {
        let Some(mount) = mounted(&image, false) else {
            return;
        };
        let path = mount.path().join(file.trim_start_matches('/'));
        std::fs::write(&path, "x").unwrap();
        run(
            "setfattr",
            &["-nuser.a", &format!("-v{}", value(0)), text(&path)],
        );
    }
    let before = users(&image, files().take(3));
    assert_eq!(before.len(), 3, "{before:?}");
    let said = done(&image, &["dedup-xattrs"]);
    assert!(said.contains(" 2 inodes"), "{said}");
    judge(&image);
    assert_eq!(users(&image, files().take(3)).len(), 1);
    let Some(mount) = mounted(&image, true) else {
        return;
    };
    for file in files().take(3) {
        let path = mount.path().join(file.trim_start_matches('/'));
        let shown = Command::new("getfattr")
            .args(["--only-values", "-nuser.a", text(&path)])
            .output()
            .unwrap();
        assert_eq!(shown.stdout, value(0).as_bytes(), "{file}");
    }
}
