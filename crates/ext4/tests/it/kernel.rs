//! Images that the kernel fills through a loop mount, and images of file systems that are mounted:
//! what a crash leaves. Needs root.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uext4::FollowLast;
use uext4_blockdev::MemoryDevice;
use uext4_testkit::{Mount, SplitMix64, can_mount, copy_image, run};

use crate::exercise::exercise;
use crate::mke2fs::{make_source, mke2fs};
use crate::tree::{Oracle, Tree, assert_equal, of_host, of_image, open};

/// A directory with an image in it, made by mke2fs with these arguments.
fn new_image(arguments: &[&str], size: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, arguments, None, size);
    (dir, image)
}

/// Compares the engine's view of a crashed image with what the kernel makes of a copy.
fn compare_crashed(image: &Path, oracle: Oracle) -> Tree {
    let copy = copy_image(image, "for-the-kernel");
    let before = fs::read(image).unwrap();
    let found = of_image(&open(image), oracle);
    assert!(before == fs::read(image).unwrap(), "the image was written");
    // A read-only mount fails over fast commits that cut files.
    let mount = Mount::new(&copy, "rw,noatime");
    let expected = of_host(mount.path(), oracle);
    assert_equal(&expected, &found, "crashed");
    found
}

/// Every kind of file the kernel can make here.
fn fill(root: &Path) {
    make_source(root);
    for (name, kind, rdev) in [
        ("fifo", (0o010_644), 0),
        ("null", (0o020_666), rustix::fs::makedev(1, 3)),
        ("wide", (0o020_600), rustix::fs::makedev(511, 70_000)),
        ("block", (0o060_660), rustix::fs::makedev(8, 17)),
    ] {
        let path = root.join(name);
        let file_type = rustix::fs::FileType::from_raw_mode(kind);
        let mode = rustix::fs::Mode::from_raw_mode(kind & 0o7777);
        rustix::fs::mknodat(rustix::fs::CWD, &path, file_type, mode, rdev).unwrap();
    }
    acl(&root.join("a"));
    for (file, time) in [
        ("tiny", "1935-02-03 04:05:06.789Z"),
        ("small", "2244-02-03 04:05:06.789Z"),
    ] {
        run(
            "touch",
            [OsStr::new("-d"), time.as_ref(), root.join(file).as_ref()],
        );
    }
    std::os::unix::fs::chown(root.join("empty"), Some(100_000), Some(200_000)).unwrap();
    let unwritten = File::create(root.join("unwritten")).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    // Without extents there is no such thing.
    let _ = rustix::fs::fallocate(&unwritten, flags, 0, 500_000);
    unwritten.write_all_at(b"in the middle", 200_000).unwrap();
    fragmented(&root.join("fragmented"));
}

/// An access and a default ACL with named users and groups, in the form of the system calls.
fn acl(dir: &Path) {
    let entries = [
        (0x01u16, 7u16, u32::MAX),
        (0x02, 7, 1000),
        (0x04, 5, u32::MAX),
        (0x08, 4, 70_000),
        (0x10, 7, u32::MAX),
        (0x20, 5, u32::MAX),
    ];
    let mut value = vec![2, 0, 0, 0];
    for (tag, perm, id) in entries {
        let word = u64::from(tag) | u64::from(perm) << 16 | u64::from(id) << 32;
        value.extend((0..8).map(|i| (word >> (8 * i)) as u8));
    }
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(dir, name, &value, flags).unwrap();
    }
}

/// A file of many extents: every other block.
fn fragmented(path: &Path) {
    let file = File::create(path).unwrap();
    for i in 0..1500u64 {
        file.write_all_at(&[i as u8 | 1; 1000], i * 8192).unwrap();
    }
}

fn compare_filled(arguments: &[&str], size: &str) {
    if !can_mount() {
        return;
    }
    let (_dir, image) = new_image(arguments, size);
    {
        let mount = Mount::new(&image, "rw");
        fill(mount.path());
    }
    let found = of_image(&open(&image), Oracle::Mount);
    let mount = Mount::new(&image, "ro,noatime");
    let expected = of_host(mount.path(), Oracle::Mount);
    assert_equal(&expected, &found, &arguments.join(" "));
}

macro_rules! filled {
    ($($name:ident: $size:literal $($argument:literal)*;)*) => {$(
        #[test]
        fn $name() {
            compare_filled(&[$($argument),*], $size);
        }
    )*};
}

filled! {
    filled_ext4: "128M" "-t" "ext4";
    filled_ext3_1k: "128M" "-t" "ext3" "-b" "1024";
    filled_inline: "128M" "-t" "ext4" "-O" "inline_data" "-I" "512";
    filled_ea_inode: "128M" "-t" "ext4" "-O" "ea_inode";
    filled_bigalloc: "256M" "-t" "ext4" "-O" "bigalloc" "-C" "32768";
    filled_no_checksums: "128M" "-t" "ext4" "-O" "^metadata_csum,^64bit,uninit_bg,huge_file" "-b" "2048";
}

#[test]
fn large_values_have_inodes_of_their_own() {
    if !can_mount() {
        return;
    }
    let (_dir, image) = new_image(&["-t", "ext4", "-O", "ea_inode"], "32M");
    let mount = Mount::new(&image, "rw");
    for i in 0..3 {
        let path = mount.path().join(format!("file{i}"));
        fs::write(&path, "x").unwrap();
        for (name, len) in [
            ("user.large", 60_000),
            ("user.larger", 65_536),
            ("user.s", 30),
        ] {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::lsetxattr(&path, name, &vec![b'v'; len], flags).unwrap();
        }
    }
    let expected = of_host(mount.path(), Oracle::Mount);
    drop(mount);
    assert_equal(
        &expected,
        &of_image(&open(&image), Oracle::Mount),
        "ea_inode",
    );
}

#[test]
fn a_large_directory_has_three_levels() {
    if !can_mount() {
        return;
    }
    // With 1 KiB blocks two levels hold some 47,000 names of this length.
    let (_dir, image) = new_image(&["-t", "ext4", "-b", "1024", "-O", "large_dir"], "160M");
    let mount = Mount::new(&image, "rw");
    let names = |i: usize| format!("{i:0>250}");
    for i in 0..2 {
        fs::write(mount.path().join(format!("file{i}")), "x").unwrap();
    }
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for i in 0..70_000 {
        let file = mount.path().join(format!("file{}", i % 2));
        fs::hard_link(file, dir.join(names(i))).unwrap();
    }
    drop(mount);
    let fs = open(&image);
    let inode = fs.resolve(b"dir", FollowLast::No).unwrap();
    for i in 0..70_000 {
        let file = fs.resolve(format!("file{}", i % 2).as_bytes(), FollowLast::No);
        let found = fs.lookup(&inode, names(i).as_bytes()).unwrap();
        assert_eq!(found, file.unwrap().ino);
    }
    let absent = fs.lookup(&inode, names(70_000).as_bytes());
    assert!(matches!(absent, Err(uext4::Error::NotFound)));
    assert_eq!(fs.read_dir(&inode).unwrap().count(), 70_000);
}

#[test]
fn a_dirty_journal_is_replayed() {
    if !can_mount() {
        return;
    }
    for (arguments, options) in [
        (&["-t", "ext4"][..], "rw"),
        (
            &["-t", "ext4", "-O", "^metadata_csum,^64bit"],
            "rw,data=journal",
        ),
        (&["-t", "ext3", "-b", "1024"], "rw,data=journal"),
        (
            &["-t", "ext4"],
            "rw,journal_checksum,journal_async_commit,data=writeback",
        ),
    ] {
        let (_dir, image) = new_image(arguments, "96M");
        let mount = Mount::new(&image, options);
        make_source(mount.path());
        // Begins with the journal's magic, which the log must hide.
        let mut escaped = vec![0xC0, 0x3B, 0x39, 0x98];
        escaped.resize(20_000, 7);
        fs::write(mount.path().join("escaped"), &escaped).unwrap();
        run("sync", [OsStr::new("-f"), mount.path().as_ref()]);
        fs::remove_dir_all(mount.path().join("many")).unwrap();
        for i in 0..200 {
            fs::write(
                mount.path().join(format!("new {i}")),
                format!("{i}").repeat(1000),
            )
            .unwrap();
        }
        run("sync", [OsStr::new("-f"), mount.path().as_ref()]);
        let crashed = copy_image(&image, "crashed");
        drop(mount);
        let summary = open(&crashed).replayed().expect("a dirty journal");
        assert!(
            summary.transactions > 0 && summary.blocks > 0,
            "{summary:?}"
        );
        let tree = compare_crashed(&crashed, Oracle::Mount);
        assert_eq!(*tree[&b"escaped"[..]].data, *escaped);
        assert!(!tree.contains_key(&b"many"[..]));
    }
}

#[test]
fn fast_commits_are_laid_over() {
    if !can_mount() {
        return;
    }
    let (_dir, image) = new_image(&["-t", "ext4", "-O", "fast_commit"], "128M");
    let mount = Mount::new(&image, "rw");
    let root = mount.path();
    fill(root);
    let old: Vec<_> = (0..6).map(|i| root.join(format!("old {i}"))).collect();
    for path in &old {
        fs::write(path, vec![b'o'; 50_000]).unwrap();
    }
    run("sync", [OsStr::new("-f"), root.as_ref()]);
    let mut append = File::options().append(true).open(&old[0]).unwrap();
    append.write_all(&[b'n'; 30_000]).unwrap();
    append.sync_all().unwrap();
    let cut = File::options().write(true).open(&old[1]).unwrap();
    cut.set_len(10_001).unwrap();
    cut.sync_all().unwrap();
    let over = File::options().write(true).open(&old[2]).unwrap();
    over.write_all_at(b"in place", 8_190).unwrap();
    over.sync_all().unwrap();
    fs::rename(&old[3], root.join("a/moved")).unwrap();
    fs::hard_link(&old[4], root.join("many/link")).unwrap();
    fs::remove_file(
        root.join("many")
            .join("a name that is rather long, to fill blocks quickly 77"),
    )
    .unwrap();
    fs::remove_file(&old[5]).unwrap();
    for i in 0..5 {
        let new = File::create(root.join(format!("new {i}"))).unwrap();
        (&new).write_all(&vec![b'a' + i as u8; 4_000 * i]).unwrap();
        new.set_permissions(fs::Permissions::from_mode(0o600 + i as u32))
            .unwrap();
        new.sync_all().unwrap();
    }
    fs::create_dir(root.join("new dir")).unwrap();
    let inside = File::create(root.join("new dir/inside")).unwrap();
    (&inside).write_all(b"inside").unwrap();
    inside.sync_all().unwrap();
    drop((append, cut, over, inside));
    let crashed = copy_image(&image, "crashed");
    drop(mount);
    let summary = open(&crashed).replayed().expect("a dirty journal");
    assert!(summary.fast_commit_records > 0, "{summary:?}");
    let tree = compare_crashed(&crashed, Oracle::FastCommit);
    assert_eq!(tree[&b"old 0"[..]].size, 80_000);
    assert_eq!(*tree[&b"new dir/inside"[..]].data, *b"inside");
}

#[test]
fn damaged_journals_neither_panic_nor_hang() {
    if !can_mount() {
        return;
    }
    let arguments = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=2",
        "-O",
        "fast_commit,^metadata_csum",
    ];
    let (_dir, image) = new_image(&arguments, "8M");
    let mount = Mount::new(&image, "rw");
    for i in 0..60 {
        let path = mount.path().join(format!("file {i}"));
        fs::write(&path, vec![i; 3_000]).unwrap();
        if i % 4 == 0 {
            File::open(&path).unwrap().sync_all().unwrap();
        }
        if i % 20 == 7 {
            run("sync", [OsStr::new("-f"), mount.path().as_ref()]);
            fs::remove_file(&path).unwrap();
        }
    }
    let good = fs::read(&image).unwrap();
    drop(mount);
    // Blocks that begin with the journal's magic, and a few behind each of them.
    let in_log: Vec<usize> = (0..good.len())
        .step_by(1024)
        .filter(|&at| good[at..].starts_with(&[0xC0, 0x3B, 0x39, 0x98]))
        .collect();
    assert!(in_log.len() > 5);
    let mut random = SplitMix64::new(7);
    for _ in 0..200 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.next_u64() % 8 {
            let block = in_log[random.next_u64() as usize % in_log.len()];
            let at = block + 12 + random.next_u64() as usize % 3_000;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.next_u64() as u8;
            }
        }
        exercise(Arc::new(MemoryDevice::from_bytes(bytes)));
    }
}

#[test]
fn encrypted_names_look_as_without_the_key() {
    if !can_mount() {
        return;
    }
    for arguments in [
        &["-t", "ext4", "-O", "encrypt"][..],
        &["-t", "ext4", "-O", "encrypt,^dir_index", "-b", "1024"],
        &["-t", "ext4", "-O", "encrypt,inline_data"],
    ] {
        let (_dir, image) = new_image(arguments, "32M");
        {
            // The kernel's own test key: everything new is encrypted.
            let mount = Mount::new(&image, "rw,test_dummy_encryption");
            for (dir, count) in [("few", 3), ("many", 300)] {
                let dir = mount.path().join(dir);
                fs::create_dir(&dir).unwrap();
                for i in 0..count {
                    let name = format!("{i}{}", "-long".repeat(i % 50));
                    fs::write(dir.join(name), b"secret").unwrap();
                }
                symlink("target", dir.join("link")).unwrap();
            }
        }
        let mount = Mount::new(&image, "ro,noatime");
        let fs = open(&image);
        for dir in ["few", "many"] {
            let mut expected: Vec<_> = fs::read_dir(mount.path().join(dir))
                .unwrap()
                .map(|e| e.unwrap().file_name().into_encoded_bytes())
                .collect();
            expected.sort();
            let inode = fs.resolve(dir.as_bytes(), FollowLast::Yes).unwrap();
            let mut found = Vec::new();
            for entry in fs.read_dir(&inode).unwrap().map(|e| e.unwrap()) {
                let name = fs.entry_name(&inode, &entry);
                assert_eq!(fs.lookup(&inode, &name).unwrap(), entry.ino);
                let child = fs.inode(entry.ino).unwrap();
                let refused = match child.file_type {
                    uext4::FileType::Symlink => fs.read_link(&child).unwrap_err(),
                    _ => fs.read_at(&child, 0, &mut [0; 6]).unwrap_err(),
                };
                assert!(matches!(refused, uext4::Error::Encrypted));
                assert_eq!(fs.xattrs(&child).unwrap(), []);
                found.push(name);
            }
            found.sort();
            assert_eq!(found, expected, "{arguments:?} {dir}");
        }
    }
}

#[test]
fn paths_are_resolved_as_the_kernel_does() {
    if !can_mount() {
        return;
    }
    let (_dir, image) = new_image(&["-t", "ext4"], "16M");
    let mount = Mount::new(&image, "rw");
    let root = mount.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/file"), "x").unwrap();
    for (target, name) in [
        ("b/file", "a/link"),
        ("../a", "a/up"),
        ("/a/b", "absolute"),
        ("loop", "loop"),
        ("nowhere", "dangling"),
    ] {
        symlink(target, root.join(name)).unwrap();
    }
    drop(mount);
    let fs = open(&image);
    let file = fs.resolve(b"a/b/file", FollowLast::No).unwrap().ino;
    for path in [
        "/a/link",
        "a//b/./file",
        "a/up/up/link",
        "absolute/file",
        "a/b/../../a/b/file",
    ] {
        assert_eq!(
            fs.resolve(path.as_bytes(), FollowLast::Yes).unwrap().ino,
            file,
            "{path}"
        );
    }
    assert_ne!(fs.resolve(b"a/link", FollowLast::No).unwrap().ino, file);
    let error = |path: &str| fs.resolve(path.as_bytes(), FollowLast::Yes).unwrap_err();
    assert!(matches!(error("loop"), uext4::Error::TooManySymlinks));
    assert!(matches!(error("dangling"), uext4::Error::NotFound));
    assert!(matches!(error("a/b/file/"), uext4::Error::NotDirectory));
    assert!(matches!(error("a/b/file/x"), uext4::Error::NotDirectory));
}
