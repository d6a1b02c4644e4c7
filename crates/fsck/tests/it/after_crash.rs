//! File systems that the kernel was writing when it ended: what waits only for the next mount is
//! called clean, as e2fsck makes it by its replay alone.
//!
//! The states of our own engine are in its tests of power cuts.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use uext4_testkit::{
    Mount, assert_clean, can_mount, debugfs_write, e2fsck, has_tool, loaded, mke2fs, run, scratch,
};

const FEATURES: &[&str] = &[
    "-t ext4",
    "-t ext4 -b 1024",
    "-t ext4 -O orphan_file",
    "-t ext4 -b 1024 -O ^metadata_csum,^64bit",
    "-t ext4 -O fast_commit,inline_data",
    "-t ext3",
];

/// Makes names and contents, syncs some, deletes one that is open.
fn use_it(root: &Path, round: u8) {
    let dir = root.join(format!("dir{round}"));
    fs::create_dir(&dir).unwrap();
    for nr in 0..30 {
        fs::write(dir.join(format!("file{nr}")), vec![round; 700 * nr]).unwrap();
    }
    run("sync", ["-f".as_ref(), root.as_os_str()]);
    fs::write(dir.join("unsynced"), [round; 5000]).unwrap();
    fs::remove_file(dir.join("file7")).unwrap();
    let synced = File::create(dir.join("synced")).unwrap();
    synced.write_all_at(&[round; 9000], 1 << 20).unwrap();
    synced.sync_all().unwrap();
    fs::rename(dir.join("file8"), root.join(format!("moved{round}"))).unwrap();
}

fn names_of_findings(image: &Path) -> Vec<&'static str> {
    let found = uext4_fsck::findings(&(loaded(image) as _)).unwrap();
    found.iter().map(|f| f.problem.info().name).collect()
}

#[test]
fn what_the_kernel_left_in_the_middle_is_clean() {
    if !can_mount() || !has_tool("python3") {
        return;
    }
    for flags in FEATURES {
        for how in 0..3 {
            for deleted in [false, true] {
                // Flag 0 freezes it first: the superblock then says that it was unmounted, and
                // e2fsck -fn minds the entries of the orphan file, too.
                if how == 0 && deleted && flags.contains("orphan_file") {
                    continue;
                }
                let dir = scratch();
                let image = dir.path().join("image");
                mke2fs(&image, flags.split(' '), "32M");
                let Ok(mount) = Mount::attempt(&image, "rw") else {
                    println!("skipped: the kernel does not mount {flags}");
                    break;
                };
                for round in 0..2 {
                    use_it(mount.path(), round);
                }
                // An orphan.
                let open = deleted.then(|| {
                    let path = mount.path().join("dir1/file20");
                    let open = File::open(&path).unwrap();
                    fs::remove_file(&path).unwrap();
                    run("sync", ["-f".as_ref(), mount.path().as_os_str()]);
                    open
                });
                mount.shut_down(how);
                drop((open, mount));
                let what = format!("{flags}, flag {how}, deleted {deleted}");
                // With -p, e2fsck replays the journal and does no more than is safe.
                let replayed = dir.path().join("replayed");
                fs::copy(&image, &replayed).unwrap();
                let preened = e2fsck(&replayed, "-p").status.code();
                assert!(preened.is_some_and(|code| code < 4), "{what}: {preened:?}");
                assert_clean(&replayed);
                assert_eq!(names_of_findings(&image), [""; 0], "{what}");
            }
        }
    }
}

#[test]
fn counts_of_the_superblock_alone_are_no_damage() {
    if !has_tool("debugfs") {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("image");
    mke2fs(&image, ["-t", "ext4"], "16M");
    debugfs_write(
        &image,
        ["ssv free_blocks_count 100", "ssv free_inodes_count 3"],
    );
    assert_eq!(e2fsck(&image, "-fn").status.code(), Some(0));
    assert_eq!(names_of_findings(&image), [""; 0]);
}

#[test]
fn a_mark_of_orphans_on_a_file_system_that_was_unmounted_is_one() {
    if !has_tool("debugfs") {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("image");
    mke2fs(&image, ["-t", "ext4", "-O", "orphan_file"], "16M");
    debugfs_write(&image, ["feature orphan_present"]);
    assert_eq!(e2fsck(&image, "-fn").status.code(), Some(4));
    assert_eq!(names_of_findings(&image), ["orphan-file-present"]);
}
