//! What the images are filled with, and how they are changed while their log holds it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, chown, symlink};
use std::path::Path;

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, XattrFlags, makedev, mknodat};

use super::kinds::BaseKind;
use crate::tools::{is_root, run, try_run};

/// Makes a tree with one of everything.
pub(super) fn plant(root: &Path, kind: BaseKind) {
    fs::create_dir_all(root.join("deep/a/b/c/d")).unwrap();
    fs::write(root.join("deep/a/b/c/d/leaf"), "leaf").unwrap();
    for i in 0..12 {
        fs::create_dir(root.join(format!("deep/a/directory {i}"))).unwrap();
        fs::write(root.join(format!("deep/a/directory {i}/file")), [i; 200]).unwrap();
    }
    fs::create_dir(root.join("files")).unwrap();
    for i in 0..30_usize {
        let content = vec![i as u8 + 1; 1 + i * 197];
        fs::write(root.join(format!("files/file {i}")), content).unwrap();
    }
    names(&root.join("names"), kind);
    fragmented(&root.join("fragmented"), kind);
    fs::write(root.join("large"), vec![0xA7; 150_000]).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    symlink("files/file 1", root.join("link")).unwrap();
    symlink("x/".repeat(100), root.join("long link")).unwrap();
    attributes(root, kind);
    if is_root() {
        devices(&root.join("devices"));
    }
}

/// A directory large enough for an index; with `large_dir` for one of two levels.
fn names(dir: &Path, kind: BaseKind) {
    fs::create_dir(dir).unwrap();
    if kind.has("casefold") && try_run("chattr", ["+F".as_ref(), dir]).is_err() {
        println!("{}: no directory without case", kind.name);
    }
    let count = match kind.has("large_dir") {
        true => 700,
        false => 90,
    };
    // Names cost less than inodes.
    for i in 0..count {
        let name = format!("{i:04} {}", "a long name of a file ".repeat(8));
        let file = dir.with_file_name(format!("files/file {}", i % 30));
        fs::hard_link(file, dir.join(name)).unwrap();
    }
}

/// A file with a hole behind each block: more extents than an inode holds, or indirect blocks of
/// three levels.
fn fragmented(path: &Path, kind: BaseKind) {
    let file = File::create(path).unwrap();
    let block = u64::from(kind.block);
    for i in 0..110 {
        let content = vec![i as u8 + 1; kind.block as usize];
        file.write_all_at(&content, i * 3 * block).unwrap();
    }
    file.write_all_at(&[3; 500], 70_000 * block).unwrap();
}

fn attributes(root: &Path, kind: BaseKind) {
    let put = |path: &str, name: &str, len: usize| {
        rustix::fs::setxattr(root.join(path), name, &vec![b'v'; len], XattrFlags::empty()).unwrap();
    };
    put("files/file 3", "user.small", 20);
    put("files/file 4", "user.big", 600);
    put("files/file 5", "user.big", 600);
    put("files/file 5", "user.small", 30);
    put("deep/a", "user.big", 500);
    put("deep", "user.small", 10);
    if kind.has("ea_inode") {
        put("files/file 6", "user.huge", 3000);
        put("files/file 7", "user.huge", 3000);
        put("files/file 8", "user.huge", 2500);
    }
}

fn devices(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let node = |name: &str, file_type, device| {
        mknodat(
            CWD,
            dir.join(name),
            file_type,
            Mode::from_raw_mode(0o644),
            device,
        )
        .unwrap();
    };
    node("null", FileType::CharacterDevice, makedev(1, 3));
    node("large", FileType::CharacterDevice, makedev(300, 70_000));
    node("disk", FileType::BlockDevice, makedev(8, 1));
    node("pipe", FileType::Fifo, 0);
    node("socket", FileType::Socket, 0);
}

/// What only the kernel does: blocks that are allocated and not written, owners and projects,
/// names and files that are gone.
pub(super) fn plant_by_kernel(root: &Path, kind: BaseKind) {
    for i in 0..8 {
        chown(
            root.join(format!("files/file {i}")),
            Some(1000 + i),
            Some(100),
        )
        .unwrap();
    }
    if kind.options.contains("ext4") {
        let file = File::create(root.join("allocated")).unwrap();
        let flags = FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, 0, 40_000).unwrap();
        file.write_all_at(&[9; 5000], 10_000).unwrap();
    }
    if kind.has("project") {
        run(
            "chattr",
            ["-p", "7", root.join("files/file 9").to_str().unwrap()],
        );
    }
    for i in (0..12).step_by(4) {
        fs::remove_dir_all(root.join(format!("deep/a/directory {i}"))).unwrap();
    }
    for name in ["files/file 28", "files/file 29"] {
        fs::remove_file(root.join(name)).unwrap();
    }
}

/// Makes every change of this durable.
fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// Changes that reach the log and no other place: new, renamed, cut and deleted files, and blocks
/// that the log holds and that are then freed. So many files are deleted while they are open, and
/// returned.
pub(super) fn change(root: &Path, orphans: usize) -> Vec<File> {
    fs::create_dir(root.join("new")).unwrap();
    for i in 0..8 {
        fs::write(root.join(format!("new/file {i}")), [i; 900]).unwrap();
    }
    fs::create_dir(root.join("gone")).unwrap();
    for i in 0..30 {
        let name = format!("gone/{i:03} {}", "long ".repeat(40));
        fs::hard_link(root.join("new/file 1"), root.join(name)).unwrap();
    }
    sync(root);
    fs::remove_dir_all(root.join("gone")).unwrap();
    fs::rename(root.join("files/file 10"), root.join("renamed")).unwrap();
    let open = |i| File::open(root.join(format!("files/file {i}"))).unwrap();
    let opened = (20..20 + orphans).map(open).collect();
    for i in 20..25 {
        fs::remove_file(root.join(format!("files/file {i}"))).unwrap();
    }
    let cut = File::options().write(true).open(root.join("fragmented"));
    cut.unwrap().set_len(20_000).unwrap();
    sync(root);
    opened
}

/// Changes each of which is a fast commit.
pub(super) fn change_fast(root: &Path) -> Vec<File> {
    for i in 0..8 {
        let path = root.join(format!("files/new {i}"));
        fs::write(&path, [i; 1500]).unwrap();
        sync(&path);
    }
    fs::rename(root.join("files/file 10"), root.join("renamed")).unwrap();
    sync(&root.join("renamed"));
    fs::hard_link(root.join("files/file 11"), root.join("linked")).unwrap();
    sync(&root.join("linked"));
    let file = File::options()
        .write(true)
        .open(root.join("files/file 13"))
        .unwrap();
    file.set_len(100).unwrap();
    file.sync_all().unwrap();
    Vec::new()
}
