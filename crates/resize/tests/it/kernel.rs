//! The kernel mounts what grew, and fills it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use tempfile::TempDir;
use uext4_resize::Size;
use uext4_testkit::e2fsprogs::{assert_clean, e2fsck};
use uext4_testkit::loops::{Mount, can_mount};

use crate::grow::{grow_file, image};

/// The kernel either refuses a copy of what was cut off, until e2fsck has replayed it, or mounts
/// and fills it.
pub fn the_kernel_is_safe(image: &Path, dir: &TempDir) -> bool {
    let copy = dir.path().join("copy");
    fs::copy(image, &copy).unwrap();
    let is_mounted = match Mount::attempt(&copy, "") {
        Ok(mount) => {
            let mut file = File::create(mount.path().join("full")).unwrap();
            let mut left = fs::metadata(&copy).unwrap().len() >> 16;
            while file.write_all(&[1; 1 << 16]).is_ok() {
                left = left
                    .checked_sub(1)
                    .expect("more was written than there is room for");
            }
            true
        }
        Err(_) => {
            let replay = e2fsck(&copy, "-y -E journal_only");
            assert!(replay.status.success(), "{replay:?}");
            drop(Mount::new(&copy, ""));
            false
        }
    };
    assert_clean(&copy);
    is_mounted
}

#[test]
fn the_kernel_fills_what_grew() {
    if !can_mount() {
        println!("skipped: no loop devices, or not root");
        return;
    }
    let dir = TempDir::new().unwrap();
    for (options, from, to) in [
        ("-t ext4", 20, 200),
        ("-t ext4 -b 1024 -O ^resize_inode", 60, 600),
        ("-t ext4 -O bigalloc -C 65536", 100, 300),
        ("-t ext3", 20, 200),
    ] {
        let image = image(&dir, options, from);
        grow_file(&image, Size::Device, to << 20).unwrap();
        {
            let mount = Mount::new(&image, "");
            let chunk = vec![7; 1 << 20];
            let file = mount.path().join("large");
            let mib = (to - from) as usize - 20;
            fs::write(&file, chunk.repeat(mib)).unwrap();
            for nr in 0..500 {
                fs::write(mount.path().join(format!("new{nr}")), b"x").unwrap();
            }
        }
        assert_clean(&image);
    }
}
