//! The kernel mounts what grew, and fills it.

use std::fs;

use tempfile::TempDir;
use uext4_resize::Size;
use uext4_testkit::e2fsprogs::assert_clean;
use uext4_testkit::loops::{Mount, can_mount};

use crate::grow::{grow_file, image};

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
