//! `clone`: is a copy sound, with a UUID of its own in all places, and otherwise the same?

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::commands::{exit_code, stderr};
use crate::host::{
    assert_clean, can_mount, dumpe2fs, has_tool, mke2fs, mounted, run, scratch, text, uext4,
    uext4_ok,
};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// An image with files in it, made by mke2fs.
fn image(dir: &Path, options: &str, mib: u32) -> std::path::PathBuf {
    let source = dir.join("source");
    if !source.exists() {
        fs::create_dir(&source).unwrap();
        for number in 0..100 {
            fs::write(source.join(format!("{number}")), vec![7; number * 100]).unwrap();
        }
    }
    let image = dir.join("image");
    _ = fs::remove_file(&image);
    let options: Vec<&str> = options.split(' ').collect();
    mke2fs(
        &image,
        &[&options[..], &["-d", text(&source)]].concat(),
        mib,
    );
    image
}

/// The UUID in a copy of the superblock.
fn uuid_in(image: &Path, block: &str, block_size: &str) -> String {
    let superblock = format!("superblock={block}");
    let size = format!("blocksize={block_size}");
    let shown = run(
        "dumpe2fs",
        &["-h", "-o", &superblock, "-o", &size, text(image)],
    );
    let shown = String::from_utf8(shown).unwrap();
    let line = shown
        .lines()
        .find_map(|line| line.strip_prefix("Filesystem UUID:"));
    line.unwrap().trim().to_owned()
}

#[test]
fn a_clone_is_sound_with_the_uuid_in_all_copies() {
    if !has_tool("mke2fs") || !has_tool("dumpe2fs") {
        return;
    }
    let dir = scratch();
    for (options, adds_seed) in [
        ("-t ext4 -b 1024", true),
        ("-t ext4 -b 1024 -O metadata_csum_seed", false),
        ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", false),
        (
            "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^resize_inode,meta_bg",
            false,
        ),
        ("-t ext4 -b 1024 -O inline_data,ea_inode", true),
        (
            "-t ext4 -b 1024 -O ^sparse_super,sparse_super2,^resize_inode",
            true,
        ),
        ("-t ext3 -b 1024", false),
        ("-t ext2 -b 1024", false),
    ] {
        let image = image(dir.path(), options, 40);
        let copy = dir.path().join("copy");
        let before = fs::read(&image).unwrap();
        let report = uext4_ok(&[
            "clone",
            "--json",
            "--force",
            "-U",
            UUID,
            text(&image),
            text(&copy),
        ]);
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["uuid"], UUID, "{options}");
        assert_eq!(report["adds_metadata_csum_seed"], adds_seed, "{options}");
        assert_eq!(report["old_uuid"], uuid_in(&image, "1", "1024"));
        assert!(fs::read(&image).unwrap() == before, "{options}");
        assert_clean(&copy);
        let backups = String::from_utf8(run("dumpe2fs", &[text(&copy)])).unwrap();
        let backups = backups.lines().filter_map(|line| {
            let (_, rest) = line.split_once("Backup superblock at ")?;
            rest.split([',', ' ']).next()
        });
        let mut count = 0;
        for block in std::iter::once("1").chain(backups) {
            assert_eq!(
                uuid_in(&copy, block, "1024"),
                UUID,
                "{options}: block {block}"
            );
            count += 1;
        }
        assert!(count > 1, "{options}");
        let manifest = |image: &Path| uext4_ok(&["manifest", text(image)]);
        assert!(manifest(&copy) == manifest(&image), "{options}");
        uext4_ok(&["mkdir", text(&copy), "/new"]);
        assert_clean(&copy);
        if !can_mount() {
            continue;
        }
        let Some(mount) = mounted(&copy, false) else {
            continue;
        };
        fs::write(mount.path().join("written"), vec![3; 100_000]).unwrap();
        drop(mount);
        assert_clean(&copy);
    }
}

#[test]
fn a_journal_that_needs_recovery_is_replayed_in_the_copy() {
    if !has_tool("mke2fs") || !can_mount() {
        return;
    }
    let dir = scratch();
    let image = image(dir.path(), "-t ext4 -b 1024", 40);
    let torn = dir.path().join("torn");
    let Some(mount) = mounted(&image, false) else {
        return;
    };
    let file = File::create(mount.path().join("synced")).unwrap();
    file.sync_all().unwrap();
    fs::copy(&image, &torn).unwrap();
    // The kernel may write to it: a copy would be torn.
    let refused = uext4(&["clone", text(&image), text(&dir.path().join("no"))]);
    assert_eq!(exit_code(&refused), 8);
    assert!(stderr(&refused).contains("mounted"), "{}", stderr(&refused));
    drop(file);
    drop(mount);
    assert!(dumpe2fs(&torn).contains("needs_recovery"));
    let copy = dir.path().join("copy");
    uext4_ok(&["clone", "-U", UUID, text(&torn), text(&copy)]);
    assert_clean(&copy);
    assert_eq!(uuid_in(&copy, "1", "1024"), UUID);
    let synced = uext4_ok(&["find", text(&copy), "--name", "synced"]);
    assert_eq!(synced, b"/synced\n");
    let same = dir.path().join("same");
    uext4_ok(&["clone", "--keep-uuid", text(&torn), text(&same)]);
    assert!(fs::read(&same).unwrap() == fs::read(&torn).unwrap());
}

#[test]
fn a_clone_is_sparse_and_replaces_nothing_unasked() {
    let dir = scratch();
    let image = dir.path().join("image");
    let copy = dir.path().join("copy");
    uext4_ok(&["mkfs", "-F", text(&image), "400M"]);
    uext4_ok(&["clone", text(&image), text(&copy)]);
    let (old, new) = (fs::metadata(&image).unwrap(), fs::metadata(&copy).unwrap());
    assert_eq!(old.len(), new.len());
    assert!(new.blocks() * 512 < 40 << 20, "{}", new.blocks());
    let uuid = |path: &Path| {
        let info: Value =
            serde_json::from_slice(&uext4_ok(&["info", "--json", text(path)])).unwrap();
        info["uuid"].as_str().unwrap().to_owned()
    };
    assert_ne!(uuid(&image), uuid(&copy));
    uext4_ok(&["check", text(&copy)]);
    let cloned = |arguments: &[&str]| {
        let output = uext4(&[&["clone"], arguments].concat());
        (exit_code(&output), stderr(&output))
    };
    let first = uuid(&copy);
    let (exit, why) = cloned(&[text(&image), text(&copy)]);
    assert!(exit == 8 && why.contains("--force"), "{why}");
    assert_eq!(uuid(&copy), first);
    let held = File::open(&copy).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let (exit, why) = cloned(&["--force", text(&image), text(&copy)]);
    assert!(exit == 8 && why.contains("in use"), "{why}");
    drop(held);
    assert_eq!(cloned(&["--force", text(&image), text(&copy)]).0, 0);
    assert_ne!(uuid(&copy), first);
    // What has the image open for writing.
    let held = File::open(&image).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let (exit, why) = cloned(&["--force", text(&image), text(&copy)]);
    assert!(exit == 8 && why.contains("in use"), "{why}");
    drop(held);
    for (arguments, wanted, said) in [
        ([text(&image), text(&image)], 8, "itself"),
        ([text(&image), "/"], 8, "not a file"),
        (["/no/such/image", text(&copy)], 8, "/no/such/image"),
        (["/dev/null", text(&copy)], 8, "/dev/null"),
    ] {
        let (exit, why) = cloned(&[&["--force"], &arguments[..]].concat());
        assert!(exit == wanted && why.contains(said), "{exit} {why}");
    }
    assert_eq!(cloned(&["-U", "x", text(&image), text(&copy)]).0, 2);
    // Nothing else is left in the directory.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_uuid_that_keys_depend_on_stays() {
    if !has_tool("mke2fs") {
        return;
    }
    let dir = scratch();
    let image = image(dir.path(), "-t ext4 -O stable_inodes,encrypt", 20);
    let copy = dir.path().join("copy");
    let refused = uext4(&["clone", text(&image), text(&copy)]);
    assert_eq!(exit_code(&refused), 8);
    assert!(
        stderr(&refused).contains("--keep-uuid"),
        "{}",
        stderr(&refused)
    );
    assert!(!copy.exists());
    uext4_ok(&["clone", "--keep-uuid", text(&image), text(&copy)]);
    assert!(fs::read(&image).unwrap() == fs::read(&copy).unwrap());
}
