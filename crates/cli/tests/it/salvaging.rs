//! `salvage`: what is read out of images that are damaged, cut off, or without a superblock.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::changing::done;
use crate::checking::{damaged, ended};
use crate::host::{UEXT4, debugfs_write, run, text};

/// The lines of a record, by path.
fn record(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of<'a>(record: &'a [Value], path: &str) -> &'a Value {
    let found = record.iter().find(|line| line["path"] == path);
    found.unwrap_or_else(|| panic!("{path}: {record:?}"))
}

#[test]
fn files_are_copied_to_a_directory_and_to_an_archive() {
    let Some((scratch, image)) = damaged(&["unlink dir/file", "sif dir/other-2 links_count 7"])
    else {
        return;
    };
    let before = fs::read(&image).unwrap();
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(fs::read(&image).unwrap() == before);
    assert_eq!(fs::read(out.join("dir/other-2")).unwrap(), vec![3; 50_000]);
    let lines = record(&out.join("salvage.jsonl"));
    let nameless = lines
        .iter()
        .find(|line| line["path"].as_str().unwrap().starts_with("lost+found/#"))
        .unwrap();
    assert_eq!(nameless["contents"], "whole");
    let path = out.join(nameless["path"].as_str().unwrap());
    assert_eq!(fs::read(path).unwrap(), b"contents\n");
    let named = of(&lines, "dir/other-2");
    assert_eq!(named["name_from"], "directory");
    assert_eq!(named["problems"][0], "inode-links");
    let archive = scratch.path().join("out.tar");
    let (code, printed) = ended(&["salvage", "--json", text(&image), "-o", text(&archive)]);
    assert_eq!(code, Some(0), "{printed}");
    let summary: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(summary["files"], 10);
    let listed = String::from_utf8(run("tar", &["-tf", text(&archive)])).unwrap();
    assert!(listed.contains("dir/other-2"), "{listed}");
    assert_eq!(
        record(&scratch.path().join("out.tar.jsonl")).len(),
        lines.len()
    );
    // Neither is overwritten.
    for out in [&out, &archive] {
        let (code, _) = ended(&["salvage", text(&image), "-o", text(out)]);
        assert_eq!(code, Some(8));
    }
}

#[test]
fn deleted_files_whose_blocks_are_free_are_copied_on_request() {
    // As debugfs deletes: the maps stay.
    let Some((scratch, image)) = damaged(&["rm dir/other-3", "rm dir/other-4"]) else {
        return;
    };
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", "--deleted", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("and 2 deleted"), "{printed}");
    let lines = record(&out.join("salvage.jsonl"));
    for (index, ino) in [(3, 16), (4, 17)] {
        let path = format!("deleted/#{ino}");
        assert_eq!(of(&lines, &path)["contents"], "unverified");
        assert_eq!(fs::read(out.join(path)).unwrap(), vec![index + 1; 50_000]);
    }
    // Their inodes are taken by new files: nothing of them is left.
    let source = scratch.path().join("source");
    for name in ["/dir/new-1", "/dir/new-2"] {
        done(&image, &["put", text(&source), name]);
    }
    let again = scratch.path().join("again");
    let (_, printed) = ended(&["salvage", "--deleted", text(&image), "-o", text(&again)]);
    assert!(printed.contains("and 0 deleted"), "{printed}");
    let archive = scratch.path().join("out.tar");
    let (code, printed) = ended(&["salvage", "--deleted", text(&image), "-o", text(&archive)]);
    assert_eq!(code, Some(2), "{printed}");
}

#[test]
fn files_with_the_names_of_the_record_keep_them() {
    let Some((scratch, image)) = damaged(&["rm dir/other-3"]) else {
        return;
    };
    let source = scratch.path().join("source");
    for name in ["/salvage.jsonl", "/deleted"] {
        done(&image, &["put", text(&source), name]);
    }
    debugfs_write(&image, ["rm dir/other-4"]);
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", "--deleted", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(fs::read(out.join("salvage.jsonl")).unwrap(), b"contents\n");
    assert_eq!(fs::read(out.join("deleted")).unwrap(), b"contents\n");
    let lines = record(&out.join("1-salvage.jsonl"));
    of(&lines, "salvage.jsonl");
    of(&lines, "1-deleted/#17");
    assert_eq!(
        fs::read(out.join("1-deleted/#17")).unwrap(),
        vec![5; 50_000]
    );
}

#[test]
fn what_is_not_shown_is_recorded() {
    let requests: Vec<String> = (0..9)
        .map(|index| format!("sif dir/other-{index} block[5] 99999999"))
        .collect();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    let Some((scratch, image)) = damaged(&requests) else {
        return;
    };
    let few = ["--max-findings", "1", text(&image)];
    let (_, planned) = ended(&[&["repair", "--plan"], &few[..]].concat());
    assert!(planned.contains("; 9 may each lose data"), "{planned}");
    let out = scratch.path().join("out");
    let (code, printed) = ended(&[&["salvage", "-o", text(&out)], &few[..]].concat());
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("9 of them in part"), "{printed}");
    let lines = record(&out.join("salvage.jsonl"));
    for index in 0..9 {
        let line = of(&lines, &format!("dir/other-{index}"));
        assert_eq!(line["contents"], "partial");
        assert_ne!(line["problems"], Value::Array(Vec::new()));
    }
}

#[test]
fn a_deleted_file_that_is_too_large_here_is_left_out() {
    let Some((scratch, image)) = damaged(&[
        "rm dir/other-3",
        "rm dir/other-4",
        "sif <16> size 1000000000",
    ]) else {
        return;
    };
    let out = scratch.path().join("out");
    // As on a file system that has no files so large.
    let script = format!(
        "trap '' XFSZ; ulimit -f 1024; '{UEXT4}' salvage --deleted '{}' -o '{}' 2>&1",
        text(&image),
        text(&out)
    );
    let printed = String::from_utf8(run("sh", &["-c", &script])).unwrap();
    assert!(
        printed.contains("#16: deleted, with a size of"),
        "{printed}"
    );
    assert!(printed.contains("and 1 deleted"), "{printed}");
    assert!(out.join("salvage.jsonl").exists());
    assert!(!out.join("deleted/#16").exists());
}

#[test]
fn an_image_that_is_cut_off_gives_what_it_has() {
    let Some((scratch, image)) = damaged(&[]) else {
        return;
    };
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(15 << 20).unwrap();
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
    assert!(code == Some(0) || code == Some(1), "{printed}");
    assert_eq!(fs::read(out.join("dir/file")).unwrap(), b"contents\n");
    assert_eq!(fs::metadata(&image).unwrap().len(), 15 << 20);
}

#[test]
fn a_file_with_data_past_the_cut_is_left_out_and_recorded() {
    let Some((scratch, image)) = damaged(&[]) else {
        return;
    };
    let source = scratch.path().join("source");
    fs::write(&source, vec![7; 9 << 20]).unwrap();
    done(&image, &["put", text(&source), "/large"]);
    // More than the first half of the image holds: a part of the file lies behind it.
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(8 << 20).unwrap();
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(!out.join("large").exists());
    let lines = record(&out.join("salvage.jsonl"));
    assert_eq!(of(&lines, "large")["contents"], "partial");
}

#[test]
fn a_damaged_image_without_a_superblock_is_read() {
    let Some((scratch, image)) = damaged(&[]) else {
        return;
    };
    assert_eq!(done(&image, &["cat", "/dir/file"]), "contents\n");
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024..2048].fill(0);
    fs::write(&image, &bytes).unwrap();
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(fs::read(out.join("dir/file")).unwrap(), b"contents\n");
}
