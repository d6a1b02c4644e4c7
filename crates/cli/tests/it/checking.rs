//! `check` on images that debugfs damaged, with e2fsck as the oracle.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use uext4_testkit::{complaints, e2fsck};

use crate::changing::{done, image};
use crate::host::{debugfs_write, text, uext4, uext4_ok};

/// An image with `dir/file` and nine more files, damaged by these requests to debugfs.
pub fn damaged(requests: &[&str]) -> Option<(TempDir, PathBuf)> {
    let (scratch, image) = image(&["-t", "ext4"], 16)?;
    done(&image, &["mkdir", "/dir"]);
    let source = scratch.path().join("source");
    for index in 0..9 {
        fs::write(&source, vec![index + 1; 50_000]).unwrap();
        done(
            &image,
            &["put", text(&source), &format!("/dir/other-{index}")],
        );
    }
    fs::write(&source, "contents\n").unwrap();
    done(&image, &["put", text(&source), "/dir/file"]);
    debugfs_write(&image, requests);
    Some((scratch, image))
}

/// Damage that is mended without asking.
pub const SAFE: &[&str] = &["sif dir/file links_count 5", "ssv free_blocks_count 77"];
/// Damage that a human is to decide on.
pub const UNSAFE: &[&str] = &["clri dir/file"];

/// Runs a command; its exit code, and what it printed.
pub fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let output = uext4(arguments);
    let printed = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&printed).into_owned(),
    )
}

/// Runs `check --json`.
fn check_json(image: &Path, options: &[&str]) -> Value {
    let mut arguments = vec!["check", "--json", text(image)];
    arguments.extend(options);
    serde_json::from_slice(&uext4(&arguments).stdout).unwrap()
}

#[test]
fn a_clean_image_is_clean_for_both() {
    let Some((_scratch, image)) = damaged(&[]) else {
        return;
    };
    assert_eq!(complaints(&image), None);
    let printed = String::from_utf8(uext4_ok(&["check", text(&image)])).unwrap();
    assert!(printed.starts_with("clean: "), "{printed}");
    // The same count of inodes as e2fsck's.
    let theirs = String::from_utf8(e2fsck(&image, "-fn").stdout).unwrap();
    let inodes = printed["clean: ".len()..].split(' ').next().unwrap();
    assert!(theirs.contains(&format!(" {inodes}/")), "{printed}{theirs}");
    assert_eq!(uext4_ok(&["check", "-q", text(&image)]), b"");
    let json = check_json(&image, &[]);
    assert_eq!(json["clean"], true);
    assert_eq!(json["issue_count"], 0);
    assert_eq!(json["issues"], Value::Array(Vec::new()));
}

#[test]
fn damage_is_found_where_e2fsck_finds_it() {
    let cases: &[(&[&str], &str)] = &[
        (SAFE, "inode-links"),
        (UNSAFE, "directory-"),
        (&["unlink dir/file"], "unattached"),
        (&["sif dir/other-1 size 1"], "inode-size"),
        (&["sif dir/file block[5] 99999999"], "extent-"),
        (&["freei dir/file"], "inode-bitmap-not-marked"),
        (&["link dir/file again"], "inode-links"),
    ];
    for (requests, kind) in cases {
        let Some((_scratch, image)) = damaged(requests) else {
            return;
        };
        assert!(complaints(&image).is_some(), "{requests:?}");
        let before = fs::read(&image).unwrap();
        let (code, printed) = ended(&["check", text(&image)]);
        assert_eq!(code, Some(4), "{requests:?}: {printed}");
        assert!(printed.contains("uext4 repair --plan"), "{printed}");
        assert_eq!(fs::read(&image).unwrap(), before);
        let json = check_json(&image, &[]);
        assert_eq!(json["clean"], false);
        let issues = json["issues"].as_array().unwrap();
        assert_eq!(json["issue_count"], issues.len());
        let is_kind = |issue: &Value| issue["kind"].as_str().unwrap().contains(kind);
        assert!(issues.iter().any(is_kind), "{requests:?}: {json:#}");
        for key in ["severity", "structure", "loses", "text", "remedy"] {
            assert!(issues.iter().all(|issue| issue[key].is_string()), "{key}");
        }
    }
}

#[test]
fn findings_are_counted_beyond_those_that_are_shown() {
    let requests: Vec<String> = (0..9)
        .map(|index| format!("sif dir/other-{index} links_count 3"))
        .collect();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    let Some((_scratch, image)) = damaged(&requests) else {
        return;
    };
    let (code, printed) = ended(&["check", "--max-findings", "2", text(&image)]);
    assert_eq!(code, Some(4));
    assert_eq!(printed.lines().count(), 4, "{printed}");
    assert!(printed.contains("… 7 more"), "{printed}");
    assert!(printed.contains("9 findings;"), "{printed}");
    let json = check_json(&image, &["--max-findings", "2"]);
    assert_eq!(json["issue_count"], 9);
    assert_eq!(json["issues"].as_array().unwrap().len(), 2);
    // The threads and the memory make no difference.
    let all = check_json(&image, &["--threads", "1", "--memory", "1M"]);
    assert_eq!(all, check_json(&image, &["--threads", "4"]));
}

#[test]
fn what_cannot_be_checked_is_said_in_one_sentence() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 16) else {
        return;
    };
    let none = scratch.path().join("none");
    let (code, printed) = ended(&["check", text(&none)]);
    assert_eq!(code, Some(8));
    assert!(printed.contains("No such file"), "{printed}");
    fs::write(&none, vec![0; 1 << 20]).unwrap();
    let (code, printed) = ended(&["check", text(&none)]);
    assert_eq!(code, Some(8), "{printed}");
    debugfs_write(&image, ["feature FEATURE_I31"]);
    let (code, printed) = ended(&["check", text(&image)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(printed.contains("features"), "{printed}");
    // Every problem has its place in the page that the help of `check` names.
    let page = String::from_utf8(uext4_ok(&["help", "problems"])).unwrap();
    assert!(page.contains("inode-links (safe)"), "{page}");
}
