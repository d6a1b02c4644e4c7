//! `dedup-xattrs`: damage ends what it is in alone; what is refused.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::changing::{done, image, judge};
use crate::host::{has_tool, run, text, uext4};

const FILES: [&str; 3] = ["/a", "/b", "/c"];

/// Files with equal attributes, each with a block of its own.
fn apart() -> Option<(TempDir, PathBuf)> {
    if !has_tool("debugfs") {
        return None;
    }
    let (scratch, image) = image(&["-t", "ext4", "-b", "4096", "-O", "metadata_csum"], 16)?;
    let value = "v".repeat(2000);
    for file in FILES {
        done(&image, &["touch", file]);
        let options = ["--options=nombcache", "-nuser.a", &format!("-v{value}")];
        let [off, name, value] = options;
        done(&image, &["setfattr", off, name, value, file]);
    }
    Some((scratch, image))
}

/// The block of attributes of a file.
fn block(image: &Path, file: &str) -> u64 {
    let printed = run("debugfs", &["-R", &format!("stat {file}"), text(image)]);
    let printed = String::from_utf8(printed).unwrap();
    let number = printed.split("File ACL: ").nth(1).unwrap();
    number.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_damaged_block_is_reported_and_the_others_are_merged() {
    let Some((_scratch, image)) = apart() else {
        return;
    };
    let device = OpenOptions::new().write(true).open(&image).unwrap();
    let damaged = block(&image, "/b") * 4096 + 3000;
    device.write_all_at(b"x", damaged).unwrap();
    let output = uext4(&["dedup-xattrs", text(&image)]);
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(out.contains("1 inodes have another block"), "{out}{err}");
    assert!(err.contains("/b: damaged: xattr block"), "{err}");
    assert!(!output.status.success());
    assert_eq!(block(&image, "/a"), block(&image, "/c"));
}

#[test]
fn without_a_cache_it_is_refused() {
    let Some((_scratch, image)) = apart() else {
        return;
    };
    let output = uext4(&["dedup-xattrs", "--options=nombcache", text(&image)]);
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("with nombcache nothing finds"), "{err}");
    judge(&image);
}
