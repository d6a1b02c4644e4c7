//! `salvage`: what is read out of images that are damaged, cut off, or without a superblock.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, Ino};
use uext4_testkit::lose_superblocks;

use crate::changing::{done, image as image_of};
use crate::checking::{damaged, ended};
use crate::host::{UEXT4, debugfs_write, has_tool, mke2fs, run, scratch, text};

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
    // What is gone with these numbers could not be read before.
    assert!(
        planned.contains("loses nothing that can be read"),
        "{planned}"
    );
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
    assert_eq!(code, Some(1), "{printed}");
    assert_eq!(fs::read(out.join("dir/file")).unwrap(), b"contents\n");
    assert_eq!(fs::metadata(&image).unwrap().len(), 15 << 20);
}

#[test]
fn a_file_with_data_past_the_cut_is_copied_in_part() {
    let Some((scratch, image)) = damaged(&[]) else {
        return;
    };
    let source = scratch.path().join("source");
    fs::write(&source, vec![7; 9 << 20]).unwrap();
    done(&image, &["put", text(&source), "/large"]);
    // More than three quarters of the image hold: a part of the file lies behind them.
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(12 << 20).unwrap();
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(1), "{printed}");
    let lines = record(&out.join("salvage.jsonl"));
    let large = of(&lines, "large");
    assert_eq!(large["contents"], "partial");
    let mut expected = vec![7; 9 << 20];
    let missing = large["missing"].as_array().unwrap();
    assert!(!missing.is_empty() && missing.len() < 10, "{large}");
    for range in missing {
        let [start, len] = [0, 1].map(|at| range[at].as_u64().unwrap() as usize);
        expected[start..start + len].fill(0);
    }
    assert!(expected.iter().filter(|byte| **byte == 7).count() > 1 << 20);
    assert!(fs::read(out.join("large")).unwrap() == expected);
    assert_eq!(of(&lines, "dir/file")["missing"], Value::Null);
    let archive = scratch.path().join("out.tar");
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&archive)]);
    assert_eq!(code, Some(1), "{printed}");
    let in_tar = record(&scratch.path().join("out.tar.jsonl"));
    assert_eq!(of(&in_tar, "large")["missing"], large["missing"]);
    let unpacked = run("tar", &["-xOf", text(&archive), "./large"]);
    assert!(unpacked == expected);
}

#[test]
fn each_line_says_where_the_file_comes_from() {
    let damage = ["sif dir/other-2 checksum 0x1234", "rm dir/other-3"];
    let Some((scratch, image)) = damaged(&damage) else {
        return;
    };
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", "--deleted", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(0), "{printed}");
    let lines = record(&out.join("salvage.jsonl"));
    let fields = ["name_from", "size_from", "blocks_from", "checksum"];
    let shown = |path: &str| fields.map(|field| of(&lines, path)[field].as_str().unwrap());
    assert_eq!(
        shown("dir/file"),
        ["directory", "inode", "inode", "verified"]
    );
    assert_eq!(
        shown("dir/other-2"),
        ["directory", "inode", "inode", "wrong"]
    );
    let deleted = "none: the file was deleted";
    assert_eq!(
        shown("deleted/#16"),
        [deleted, "deleted inode", "deleted inode", "verified"]
    );
    // Without checksums there is nothing to verify.
    let Some((scratch, image)) = image_of(&["-t", "ext2"], 16) else {
        return;
    };
    done(&image, &["mkdir", "/dir"]);
    let out = scratch.path().join("out");
    ended(&["salvage", text(&image), "-o", text(&out)]);
    let lines = record(&out.join("salvage.jsonl"));
    assert_eq!(of(&lines, "dir")["checksum"], "none");
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

/// A tree with directories, small and large files, and holes.
fn fill(tree: &Path) {
    for dir in ["a", "a/deep/er", "many"] {
        fs::create_dir_all(tree.join(dir)).unwrap();
    }
    fs::write(tree.join("a/deep/er/file"), "contents\n").unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7 % 251) as u8).collect();
    fs::write(tree.join("large"), large).unwrap();
    for number in 0..200 {
        let contents = vec![number as u8; number * 37];
        fs::write(tree.join(format!("many/file-{number}")), contents).unwrap();
    }
    std::os::unix::fs::symlink("a/deep", tree.join("link")).unwrap();
}

/// Asserts that all of a tree is in another.
fn assert_has(out: &Path, tree: &Path, what: &str) {
    for entry in fs::read_dir(tree).unwrap() {
        let from = entry.unwrap().path();
        let to = out.join(from.file_name().unwrap());
        let kind = from.symlink_metadata().unwrap().file_type();
        if kind.is_dir() {
            assert_has(&to, &from, what);
        } else if kind.is_symlink() {
            let target = fs::read_link(&from).unwrap();
            assert_eq!(fs::read_link(&to).ok(), Some(target), "{what}: {to:?}");
        } else {
            let is_same = fs::read(&to).ok() == fs::read(&from).ok();
            assert!(is_same, "{what}: {to:?}");
        }
    }
}

#[test]
fn without_any_superblock_the_shape_is_guessed() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let tree = scratch.path().join("tree");
    fill(&tree);
    let sets: [(&[&str], u32); 7] = [
        (&["-t", "ext4", "-b", "1024"], 40),
        (&["-t", "ext4", "-b", "4096", "-I", "256"], 160),
        (&["-t", "ext4", "-b", "4096", "-I", "128"], 20),
        (&["-t", "ext4", "-b", "1024", "-O", "^64bit,^flex_bg"], 40),
        (&["-t", "ext4", "-b", "2048", "-O", "^metadata_csum"], 40),
        (&["-t", "ext3", "-b", "1024", "-I", "128"], 40),
        (&["-t", "ext2", "-b", "4096"], 20),
    ];
    for (number, (options, mib)) in sets.into_iter().enumerate() {
        for descriptors in [false, true] {
            let what = format!("{options:?}, descriptors zeroed: {descriptors}");
            let image = scratch.path().join(format!("image-{number}-{descriptors}"));
            let from = ["-d", text(&tree)];
            mke2fs(&image, &[options, &from].concat(), mib);
            let mut bytes = fs::read(&image).unwrap();
            lose_superblocks(&mut bytes, descriptors);
            fs::write(&image, bytes).unwrap();
            let out = scratch.path().join(format!("out-{number}-{descriptors}"));
            let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
            assert_eq!(code, Some(0), "{what}: {printed}");
            assert!(printed.contains("is guessed"), "{what}: {printed}");
            assert_has(&out, &tree, &what);
            // A wrong number of inodes would give a name another file.
            for line in record(&out.join("salvage.jsonl")) {
                let is_proved = line["checksum"] == "verified";
                let contents = if is_proved { "whole" } else { "unverified" };
                assert_eq!(line["contents"], contents, "{what}: {line}");
            }
            fs::remove_dir_all(&out).unwrap();
        }
    }
}

#[test]
fn what_holds_no_file_system_is_no_guess() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let noise: Vec<u8> = (0..2_u32 << 20)
        .map(|at| (at.wrapping_mul(at) >> 8) as u8)
        .collect();
    fs::write(&image, noise).unwrap();
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(8), "{printed}");
    assert!(!out.exists());
    fs::write(&image, "%PDF-1.7\n".repeat(1000)).unwrap();
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(8), "{printed}");
}

/// Overwrites bytes of an image with rubbish.
fn overwrite(image: &Path, at: u64, len: usize) {
    let file = fs::File::options().write(true).open(image).unwrap();
    let rubbish: Vec<u8> = (0..len).map(|at| (at * 7 + 0x5A) as u8 | 1).collect();
    file.write_all_at(&rubbish, at).unwrap();
}

/// Where an inode lies in an image, and its length.
fn inode_place(image: &Path, ino: u32) -> (u64, usize) {
    let bytes = fs::read(image).unwrap();
    let superblock = SuperBlock::parse(&bytes[1024..2048]).unwrap();
    let geometry = Geometry::new(&superblock).unwrap();
    let (group, number) = geometry.inode_group(Ino(ino)).unwrap();
    let size = usize::from(geometry.desc_size);
    let block = geometry.block_size.len();
    let desc = geometry.gdt_block(0).0 as usize * block + group.0 as usize * size;
    let desc = GroupDesc::parse(&bytes[desc..][..size]);
    let size = usize::from(geometry.inode_size);
    let table = desc.inode_table.0 * block as u64;
    (table + u64::from(number) * size as u64, size)
}

/// What debugfs prints.
fn shown(image: &Path, request: &str) -> String {
    String::from_utf8(run("debugfs", &["-R", request, text(image)])).unwrap()
}

/// The number of an inode.
fn number_of(image: &Path, path: &str) -> u32 {
    let shown = shown(image, &format!("stat {path}"));
    let number = shown.split("Inode: ").nth(1).unwrap();
    number.split_whitespace().next().unwrap().parse().unwrap()
}

/// Overwrites the first block of a directory.
fn overwrite_names(image: &Path, path: &str, block_len: usize) {
    let shown = shown(image, &format!("blocks {path}"));
    let block: u64 = shown.split_whitespace().next().unwrap().parse().unwrap();
    overwrite(image, block * block_len as u64, block_len);
}

#[test]
fn files_without_a_directory_are_in_lost_found() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let (tree, image) = (scratch.path().join("tree"), scratch.path().join("image"));
    fill(&tree);
    mke2fs(&image, &["-t", "ext4", "-b", "1024", "-d", text(&tree)], 40);
    let directories = ["/a", "/a/deep", "/a/deep/er", "/many"];
    for ino in directories.map(|path| number_of(&image, path)) {
        let (at, len) = inode_place(&image, ino);
        overwrite(&image, at, len);
    }
    overwrite_names(&image, "/", 1024);
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(0), "{printed}");
    let lines = record(&out.join("salvage.jsonl"));
    let mut found = Vec::new();
    for line in &lines {
        let path = line["path"].as_str().unwrap();
        let place = out.join(path);
        if place.is_file() {
            assert!(path.starts_with("lost+found/#"), "{line}");
            assert_eq!(line["name_from"], "none: no directory had it");
            assert_eq!(line["contents"], "whole");
            found.push(fs::read(place).unwrap());
        }
    }
    // An empty file without a name is deleted.
    let mut right: Vec<_> = (1..200).map(|n| vec![n as u8; n * 37]).collect();
    right.push(fs::read(tree.join("large")).unwrap());
    right.push(b"contents\n".to_vec());
    found.sort();
    right.sort();
    assert!(found == right, "{} of {} files", found.len(), right.len());
}

#[test]
fn an_inode_with_a_wrong_checksum_alone_is_newer_than_its_copy() {
    let Some((scratch, image)) = image_of(&["-t", "ext4"], 16) else {
        return;
    };
    let source = scratch.path().join("source");
    fs::write(&source, vec![7; 50_000]).unwrap();
    done(&image, &["put", text(&source), "/file"]);
    debugfs_write(&image, ["sif file checksum 0x1234"]);
    let out = scratch.path().join("out");
    let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
    assert_eq!(code, Some(0), "{printed}");
    let lines = record(&out.join("salvage.jsonl"));
    let line = of(&lines, "file");
    assert_eq!(
        (&line["blocks_from"], &line["checksum"]),
        (&"inode".into(), &"wrong".into())
    );
}

#[test]
fn a_file_that_could_not_be_copied_is_not_called_whole() {
    let Some((scratch, image)) = image_of(&["-t", "ext4"], 16) else {
        return;
    };
    let source = scratch.path().join("source");
    fs::write(&source, vec![7; 3 << 20]).unwrap();
    done(&image, &["put", text(&source), "/large"]);
    let out = scratch.path().join("out");
    // As on a file system that has no files so large.
    let script = format!(
        "trap '' XFSZ; ulimit -f 1024; '{UEXT4}' salvage '{}' -o '{}' 2>&1; true",
        text(&image),
        text(&out)
    );
    let printed = String::from_utf8(run("sh", &["-c", &script])).unwrap();
    assert!(printed.contains("0 files read"), "{printed}");
    assert!(!out.join("large").exists());
    let lines = record(&out.join("salvage.jsonl"));
    assert_eq!(of(&lines, "large")["contents"], "none");
}

#[test]
fn damaged_inodes_and_names_are_taken_from_the_journal() {
    for options in [&["-t", "ext4"][..], &["-t", "ext3", "-I", "128"]] {
        let Some((scratch, image)) = image_of(options, 16) else {
            return;
        };
        // In one transaction: each command starts the log anew.
        let source = scratch.path().join("dir");
        fs::create_dir(&source).unwrap();
        for index in 0..9_u8 {
            fs::write(source.join(index.to_string()), vec![index + 1; 50_000]).unwrap();
        }
        done(&image, &["put", text(&source), "/dir"]);
        overwrite_names(&image, "/dir", 1024);
        let first = number_of(&image, "/dir");
        for ino in first..first + 10 {
            let (at, len) = inode_place(&image, ino);
            overwrite(&image, at, len);
        }
        let out = scratch.path().join("out");
        let (code, printed) = ended(&["salvage", text(&image), "-o", text(&out)]);
        assert_eq!(code, Some(0), "{options:?}: {printed}");
        let lines = record(&out.join("salvage.jsonl"));
        let is_summed = options[1] == "ext4";
        for index in 0..9 {
            let path = format!("dir/{index}");
            let line = of(&lines, &path);
            for from in ["name_from", "size_from", "blocks_from"] {
                assert_eq!(line[from], "journal", "{options:?}: {line}");
            }
            assert_eq!(line["contents"], "unverified");
            assert_eq!(line["checksum"] == "wrong", is_summed, "{line}");
            assert_eq!(line["problems"][0], "inode-from-journal");
            assert!(fs::read(out.join(path)).unwrap() == vec![index + 1; 50_000]);
        }
        // A repair does not bring back what may be out of date.
        let (_, printed) = ended(&["repair", "--plan", text(&image)]);
        assert!(!printed.contains("from-journal"), "{printed}");
        assert!(!printed.contains("older copy"), "{printed}");
    }
}
