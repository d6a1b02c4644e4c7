//! `scan`, and what is said where no file system is found: is one found wherever it begins?

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::host::{has_tool, mke2fs, run, scratch, text, uext4, uext4_ok};
use crate::in_disk::partition;

const MIB: u64 = 1 << 20;

/// A file system of 20 MiB with a file, in a file of 96 MiB that is else empty.
fn image(dir: &Path, at: u64) -> std::path::PathBuf {
    let (source, plain, image) = (dir.join("source"), dir.join("plain"), dir.join("image"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("hello"), "hello\n").unwrap();
    mke2fs(
        &plain,
        &["-t", "ext4", "-L", "found", "-d", text(&source)],
        20,
    );
    let file = File::create(&image).unwrap();
    file.set_len(96 * MIB).unwrap();
    file.write_all_at(&fs::read(&plain).unwrap(), at).unwrap();
    image
}

fn offsets(image: &Path) -> Vec<u64> {
    let found = uext4_ok(&["scan", "--json", text(image)]);
    let found: Value = serde_json::from_slice(&found).unwrap();
    let list = found["file_systems"].as_array().unwrap();
    list.iter()
        .map(|fs| fs["offset"].as_u64().unwrap())
        .collect()
}

#[test]
fn the_byte_that_is_found_is_one_that_others_take() {
    if !has_tool("mke2fs") {
        return;
    }
    for at in [512, 63 * 512, 64 << 10, 384 << 10, 777_216, MIB, 4 * MIB] {
        let scratch = scratch();
        let image = image(scratch.path(), at);
        assert_eq!(offsets(&image), [at]);
        let said = String::from_utf8(uext4_ok(&["scan", text(&image)])).unwrap();
        assert!(said.contains(&format!("offset {at}: 20.0 MiB")), "{said}");
        assert!(said.contains("label found, clean"), "{said}");
        let place = format!("{at:#x}");
        let read = uext4_ok(&["cat", "--offset", &place, text(&image), "/hello"]);
        assert_eq!(read, b"hello\n");
    }
}

#[test]
fn no_command_that_looks_for_a_file_system_advises_to_make_one() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = image(scratch.path(), MIB);
    let zeroes = scratch.path().join("zeroes");
    File::create(&zeroes).unwrap().set_len(8 * MIB).unwrap();
    for (image, words) in [
        (&image, "begins 1048576 bytes into it"),
        (&zeroes, "uext4 scan"),
    ] {
        for command in ["ls", "check", "info", "salvage", "repair", "mkdir"] {
            let mut arguments = vec![command, text(image)];
            match command {
                "salvage" => arguments.push("/no/such/place"),
                "mkdir" => arguments.push("/new"),
                _ => {}
            }
            let output = uext4(&arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success());
            assert!(!said.contains("mkfs"), "{command}: {said}");
            if ["ls", "info", "check", "mkdir"].contains(&command) {
                assert!(said.contains(words), "{command}: {said}");
            }
        }
    }
    let none = uext4(&["scan", text(&zeroes)]);
    assert_eq!(none.status.code(), Some(1));
}

#[test]
fn a_disk_that_lost_its_head_is_read_by_the_copy_of_its_table() {
    if !has_tool("mke2fs") || !has_tool("sfdisk") {
        return;
    }
    let scratch = scratch();
    let image = image(scratch.path(), 0);
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let mut bytes = vec![0; 20 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    file.write_all_at(&vec![0; 20 << 20], 0).unwrap();
    partition(&image, "label: gpt\nsize=8MiB\nsize=40MiB, name=root\n");
    file.write_all_at(&bytes, 9 * MIB).unwrap();
    file.write_all_at(&[0; 34 * 512], 0).unwrap();
    assert_eq!(uext4_ok(&["cat", text(&image), "/hello"]), b"hello\n");
    assert_eq!(
        uext4_ok(&["cat", "--partition", "root", text(&image), "/hello"]),
        b"hello\n"
    );
    assert_eq!(offsets(&image), [9 * MIB]);
    // The superblock, too.
    file.write_all_at(&[0; 4096], 9 * MIB).unwrap();
    let said = String::from_utf8(uext4_ok(&["scan", text(&image)])).unwrap();
    assert!(said.contains("found by the backup in group 1"), "{said}");
    run("cmp", &["-n", "1024", text(&image), "/dev/zero"]);
}
