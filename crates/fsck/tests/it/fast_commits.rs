//! Damaged images with fast commits of the kernel: what they changed is there after a repair, as it
//! is after one by e2fsck.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_fsck::Options;
use uext4_testkit::e2fsprogs::{debugfs_write, e2fsck, mke2fs};
use uext4_testkit::{Mount, assert_clean, can_mount, has_tool, scratch};

use crate::judge::applied;

/// What is at a path: mode, links, size and contents.
type Tree = BTreeMap<String, (u32, u64, u64, Vec<u8>)>;

fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let contents = match meta.file_type() {
                kind if kind.is_file() => fs::read(&path).unwrap(),
                kind if kind.is_symlink() => fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes(),
                _ => Vec::new(),
            };
            // The size of a directory is not part of what it holds.
            let size = if meta.is_dir() { 0 } else { meta.size() };
            let name = path.strip_prefix(root).unwrap().display().to_string();
            tree.insert(name, (meta.mode(), meta.nlink(), size, contents));
            if meta.is_dir() {
                waiting.push(path);
            }
        }
    }
    tree
}

fn tree_of(image: &Path) -> Tree {
    tree(Mount::new(image, "ro").path())
}

/// Makes all kinds of changes, each durable by a fast commit.
fn change(root: &Path) {
    let sync = |path: &str| File::open(root.join(path)).unwrap().sync_all().unwrap();
    let write = |path: &str, bytes: &[u8], at| {
        let mut options = File::options();
        let options = options.write(true).create(true).truncate(false);
        let file = options.open(root.join(path)).unwrap();
        file.write_all_at(bytes, at).unwrap();
        file.sync_all().unwrap();
    };
    write("new", &[b'n'; 30_000], 0);
    write("many/0150", &[b'a'; 50_000], 5_000);
    fs::rename(root.join("many/0151"), root.join("renamed")).unwrap();
    sync("renamed");
    fs::rename(root.join("many/0152"), root.join("many/0153")).unwrap();
    sync("many/0153");
    fs::hard_link(root.join("many/0154"), root.join("linked")).unwrap();
    sync("linked");
    fs::remove_file(root.join("many/0155")).unwrap();
    fs::create_dir(root.join("sub")).unwrap();
    write("sub/within", b"within", 0);
    std::os::unix::fs::symlink("new", root.join("link")).unwrap();
    for n in 0..20 {
        write(&format!("many/more-{n}"), &[b'm'; 700], 0);
    }
    let cut = root.join("many/0156");
    let file = File::options().write(true).open(cut).unwrap();
    file.set_len(100).unwrap();
    file.sync_all().unwrap();
    write("last", b"last", 0);
}

/// Repairs an image. Whether anything had to be changed, and what was found.
fn repair(image: &Path) -> (bool, Vec<&'static str>) {
    let bytes = fs::read(image).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes.clone()));
    let outcome = uext4_fsck::plan(&device, &Options::default(), &()).unwrap();
    assert!(outcome.is_clean, "{:#?}", outcome.findings);
    let repaired = applied(&bytes, &outcome);
    fs::write(image, &repaired).unwrap();
    let names = outcome.findings.iter().map(|(_, f)| f.problem.info().name);
    (repaired != bytes, names.collect())
}

fn copy(from: &Path, name: &str) -> std::path::PathBuf {
    let to = from.with_file_name(name);
    let mut copy = Command::new("cp");
    let status = copy.arg("--sparse=always").args([from, &to]).status();
    assert!(status.unwrap().success());
    to
}

#[test]
fn what_the_kernel_committed_fast_survives_the_repair_of_other_damage() {
    if !can_mount() || !has_tool("e2fsck") {
        return;
    }
    for options in [
        &["-t", "ext4", "-O", "fast_commit"][..],
        &["-t", "ext4", "-O", "fast_commit,orphan_file", "-b", "1024"],
        &["-t", "ext4", "-O", "fast_commit,^metadata_csum,^dir_index"],
    ] {
        let dir = scratch();
        let image = dir.path().join("image");
        mke2fs(&image, options, "64M");
        {
            let mount = Mount::new(&image, "rw");
            fs::create_dir(mount.path().join("many")).unwrap();
            for n in 0..200 {
                let contents = vec![b'a' + n as u8 % 26; n * 40];
                fs::write(mount.path().join(format!("many/{n:04}")), contents).unwrap();
            }
        }
        let mount = Mount::new(&image, "rw");
        change(mount.path());
        let live = tree(mount.path());
        let crashed = copy(&image, "crashed");
        drop(mount);
        // Inodes that lie in blocks that the log does not hold.
        debugfs_write(
            &crashed,
            ["sif many/0010 links_count 7", "sif many/0020 blocks 1000"],
        );
        let ours = copy(&crashed, "ours");
        let (_, found) = repair(&ours);
        for name in ["journal-fast-commits", "inode-links"] {
            assert!(found.contains(&name), "{options:?}: {found:?}");
        }
        assert!(!found.contains(&"journal-fast-commit-misfit"), "{found:?}");
        assert_clean(&ours);
        assert_eq!(repair(&ours), (false, Vec::new()), "{options:?}");
        let repaired = tree_of(&ours);
        assert!(
            repaired == live,
            "{options:?}: {:?}",
            differ(&repaired, &live)
        );
        // It cannot open what some logs leave until it has mended that.
        for _ in 0..2 {
            e2fsck(&crashed, "-fy");
        }
        assert_clean(&crashed);
        let theirs = tree_of(&crashed);
        assert!(
            repaired == theirs,
            "{options:?}: {:?}",
            differ(&repaired, &theirs)
        );
    }
}

/// The paths at which two trees differ.
fn differ(a: &Tree, b: &Tree) -> Vec<String> {
    let paths = a.keys().chain(b.keys());
    let mut paths: Vec<_> = paths.filter(|&path| a.get(path) != b.get(path)).collect();
    paths.sort();
    paths.dedup();
    paths.into_iter().cloned().collect()
}
