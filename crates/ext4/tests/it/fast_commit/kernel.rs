//! Images that the kernel left, with fast commits of its own.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use uext4::Error;
use uext4_blockdev::MemoryDevice;

use super::cuts::for_each_cut;
use super::workload::Workload;
use super::{complaints, load, open_and_close, reader, repaired, tree};
use crate::mke2fs::mke2fs;
use crate::tree::{Oracle, Tree, assert_equal, of_host};
use crate::writing::device::{judge, steps};
use uext4_testkit::{Mount, can_mount};

fn copy(image: &Path, name: &str) -> PathBuf {
    let copy = image.with_file_name(name);
    let status = Command::new("cp")
        .arg("--sparse=always")
        .args([image, &copy])
        .status();
    assert!(status.unwrap().success());
    copy
}

/// Records that wait in an image.
fn waiting(image: &MemoryDevice) -> usize {
    reader(image)
        .replayed()
        .map_or(0, |summary| summary.fast_commit_records)
}

/// Redoes what waits in a crashed image, and compares it with what was there at the crash, and with
/// what the kernel makes of it, if it can.
fn redo_and_compare(crashed: &Path, live: &Tree, what: &str) -> usize {
    let image = Arc::new(load(crashed));
    let records = waiting(&image);
    assert_equal(live, &tree(&image), &format!("{what}, read"));
    let (repaired, found) = repaired(&image, what);
    assert_equal(live, &tree(&repaired), &format!("{what}, repaired"));
    assert!(found.is_empty(), "{what}: {found:#?}");
    let redone = Arc::new(image.snapshot());
    match open_and_close(Arc::clone(&redone) as _) {
        Ok(()) => {}
        // When the kernel commits in between depends on the machine: then a number may come twice.
        Err(Error::Unsupported { what }) if what.contains("use a number again") => return 0,
        Err(error) => panic!("{what}: {error}"),
    }
    assert_equal(live, &tree(&redone), &format!("{what}, redone"));
    assert_eq!(waiting(&redone), 0, "{what}");
    assert!(
        complaints(&redone).is_empty(),
        "{what}: {:#?}",
        complaints(&redone)
    );
    judge(&redone, what);
    records
}

/// What the kernel finds after a replay of its own, which gives some files the time of the
/// replay. Nothing if its replay calls the image damaged, as Linux 6.18 does now and then
/// (EUCLEAN): what it should have found is known from before the crash. Returns whether it could
/// say anything.
fn compare_with_kernel(crashed: &Path, live: &Tree, what: &str) -> bool {
    let copy = copy(crashed, "for-the-kernel");
    let mount = match Mount::attempt(&copy, "rw,noatime") {
        Ok(mount) => mount,
        Err(message) => {
            assert!(message.contains("Structure needs cleaning"), "{message}");
            return false;
        }
    };
    let timeless = |mut tree: Tree| {
        tree.values_mut().for_each(|node| node.mtime = (0, 0));
        tree
    };
    let found = of_host(mount.path(), Oracle::FastCommit);
    assert_equal(&timeless(live.clone()), &timeless(found), what);
    true
}

fn random_fsyncs(arguments: &[&str], seed: u64) {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, arguments, None, "48M");
    let mount = Mount::new(&image, "rw");
    let mut workload = Workload::new(mount.path(), seed);
    let (mut with_records, mut records) = (0, 0);
    let (mut asked, mut answered) = (0, 0);
    for round in 0..steps(15, 300) {
        for _ in 0..1 + (seed + round * 7) % 23 {
            workload.step();
        }
        let live = of_host(mount.path(), Oracle::FastCommit);
        let crashed = copy(&image, "crashed");
        let what = format!("{arguments:?}, seed {seed}, round {round}");
        let count = redo_and_compare(&crashed, &live, &what);
        with_records += usize::from(count > 0);
        records += count;
        // Linux 6.18 dies of the replay of a file without extents.
        if round % 5 == 2 && !arguments.contains(&"ext3") {
            asked += 1;
            let what = format!("{what}, the kernel");
            answered += usize::from(compare_with_kernel(&crashed, &live, &what));
        }
    }
    println!("{arguments:?}: {records} records in {with_records} images");
    assert!(
        answered * 2 >= asked,
        "the kernel refuses {} of {asked}",
        asked - answered
    );
    assert!(with_records > 2, "hardly any fast commits");
}

#[test]
fn random_fsyncs_on_ext4() {
    random_fsyncs(&["-t", "ext4", "-O", "fast_commit"], 1);
}

#[test]
fn random_fsyncs_with_small_blocks() {
    random_fsyncs(
        &["-t", "ext4", "-O", "fast_commit,orphan_file", "-b", "1024"],
        2,
    );
}

#[test]
fn random_fsyncs_without_checksums() {
    let features = "fast_commit,^metadata_csum,^64bit";
    random_fsyncs(&["-t", "ext4", "-O", features, "-b", "2048"], 3);
}

#[test]
fn random_fsyncs_with_inline_data() {
    random_fsyncs(&["-t", "ext4", "-O", "fast_commit,inline_data"], 4);
}

#[test]
fn random_fsyncs_without_extents() {
    random_fsyncs(&["-t", "ext3", "-O", "fast_commit"], 5);
}

#[test]
fn the_kernel_goes_on_after_any_cut() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let arguments = [
        "-t",
        "ext4",
        "-O",
        "fast_commit",
        "-b",
        "1024",
        "-J",
        "size=2",
    ];
    mke2fs(&image, &arguments, None, "12M");
    let mount = Mount::new(&image, "rw");
    let mut workload = Workload::new(mount.path(), 9);
    let sync = || rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    (0..30).for_each(|_| workload.step());
    sync();
    // Few, or the area is full and all is reported in the log.
    (0..12).for_each(|_| workload.step());
    let live = of_host(mount.path(), Oracle::FastCommit);
    let crashed = copy(&image, "crashed");
    let image = load(&crashed);
    assert!(waiting(&image) > 5, "hardly any fast commits");
    let mut number = 0;
    for_each_cut(&image, steps(2, 40), |cut, at| {
        number += 1;
        assert_equal(&live, &tree(&cut), &at);
        if number % 9 != 0 {
            return;
        }
        std::fs::write(&crashed, cut.to_bytes()).unwrap();
        assert!(
            compare_with_kernel(&crashed, &live, &at),
            "{at}: the kernel refuses"
        );
        if number % 3 == 0 {
            redo_and_compare(&crashed, &live, &at);
        }
    });
    println!("{number} states");
}

#[test]
fn files_without_names_go_and_come() {
    if !can_mount() {
        return;
    }
    for features in ["fast_commit", "fast_commit,orphan_file"] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        mke2fs(&image, &["-t", "ext4", "-O", features], None, "32M");
        let mount = Mount::new(&image, "rw");
        let root = mount.path();
        for name in ["early", "late", "kept"] {
            std::fs::write(root.join(name), vec![b'x'; 50_000]).unwrap();
        }
        let open = |name| File::options().write(true).open(root.join(name)).unwrap();
        let (early, late) = (open("early"), open("late"));
        let unnamed = |root| {
            let flags = OFlags::TMPFILE | OFlags::RDWR;
            File::from(rustix::fs::open(root, flags, Mode::from(0o600)).unwrap())
        };
        let before = unnamed(root);
        std::fs::remove_file(root.join("early")).unwrap();
        rustix::fs::syncfs(&early).unwrap();
        let after = unnamed(root);
        for (file, name) in [(&before, "before"), (&after, "after")] {
            file.write_all_at(&[b'n'; 20_000], 3_000).unwrap();
            let from = format!("/proc/self/fd/{}", file.as_raw_fd());
            let (cwd, follow) = (rustix::fs::CWD, AtFlags::SYMLINK_FOLLOW);
            rustix::fs::linkat(cwd, &from, cwd, root.join(name), follow).unwrap();
            file.sync_all().unwrap();
        }
        for file in [&early, &late] {
            file.write_all_at(&[b'm'; 30_000], 60_000).unwrap();
            file.sync_all().unwrap();
        }
        std::fs::remove_file(root.join("late")).unwrap();
        late.sync_all().unwrap();
        open("kept").set_len(5_000).unwrap();
        open("kept").sync_all().unwrap();
        let live = of_host(root, Oracle::FastCommit);
        let crashed = copy(&image, "crashed");
        // The kernel refuses some of these; they are compared with what it had in memory.
        let records = redo_and_compare(&crashed, &live, features);
        assert!(records > 5, "{features}: {records} records");
        let redone = Arc::new(load(&crashed));
        open_and_close(Arc::clone(&redone) as _).unwrap();
        assert_eq!(reader(&redone).orphans().unwrap(), []);
    }
}
