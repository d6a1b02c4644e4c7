//! `mkfs` and `build`: what they make is sound, the same each time, and whole or not there at all.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::host::{has_tool, run, scratch, text, uext4, uext4_ok};

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
        run("e2fsck", &["-f", "-n", text(image)]);
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
fn an_offset_is_kept_free() {
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
