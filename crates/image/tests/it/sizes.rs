//! Sizes that are asked for are what one gets.

use std::fs;
use std::process::Command;

use uext4_image::{BuildOptions, Size, Source, build};

use crate::building::Place;
use crate::fixture::has_tool;
use uext4_testkit::{Mount, assert_clean, can_mount};

#[test]
fn so_much_is_free_for_a_user() {
    let place = Place::populated();
    let wanted = 20 << 20;
    for reserved_percent in [None, Some(5.0)] {
        place.build(&BuildOptions {
            size: Size::Free(wanted),
            reserved_percent,
            ..BuildOptions::default()
        });
        assert_clean(&place.image());
        if !can_mount() || !has_tool("setpriv") {
            continue;
        }
        let mount = Mount::new(&place.image(), "rw");
        let statvfs = rustix::fs::statvfs(mount.path()).unwrap();
        let free = statvfs.f_bavail * statvfs.f_frsize;
        assert!((wanted..wanted + (1 << 20)).contains(&free), "{free}");
        // And it can be used, by a caller that is not root.
        fs::write(mount.path().join("mine"), "").unwrap();
        std::os::unix::fs::chown(mount.path().join("mine"), Some(65534), None).unwrap();
        let command = format!("head -c {wanted} /dev/zero > mine");
        let user = ["--reuid=65534", "--clear-groups", "sh", "-c", &command];
        let status = Command::new("setpriv")
            .args(user)
            .current_dir(mount.path())
            .status();
        assert!(status.unwrap().success());
    }
}

#[test]
fn the_smallest_image_has_nothing_to_spare() {
    let place = Place::populated();
    for i in 0..300u32 {
        let dir = place.tree().join(format!("dir-{}", i % 7));
        fs::create_dir_all(&dir).unwrap();
        fs::write(
            dir.join(format!("file-{i}")),
            vec![i as u8; (i * 97) as usize],
        )
        .unwrap();
    }
    let options = BuildOptions {
        size: Size::Min,
        ..BuildOptions::default()
    };
    let report = place.build(&options);
    assert!(report.summary.free_blocks <= 4, "{:?}", report.summary);
    assert!(report.summary.free_inodes <= 16, "{:?}", report.summary);
    let smaller = BuildOptions {
        size: Size::Exact(report.image_bytes - 8 * 4096),
        ..BuildOptions::default()
    };
    let smaller = BuildOptions {
        mkfs: uext4_mkfs::Options {
            block_size: Some(uext4_mkfs::BlockSizeWish::Exactly(
                uext4_ondisk::BlockSize::from_bytes(4096).unwrap(),
            )),
            inodes: Some(report.summary.inodes.into()),
            ..smaller.mkfs
        },
        ..smaller
    };
    let source = Source::Directory(place.tree());
    assert!(build(&source, &place.image(), &smaller, &()).is_err());
}

#[test]
fn nothing_at_all_becomes_a_small_image() {
    let place = Place::new();
    let report = place.build(&BuildOptions {
        size: Size::Min,
        ..BuildOptions::default()
    });
    assert_clean(&place.image());
    assert!(report.image_bytes < 1 << 20, "{}", report.image_bytes);
}
