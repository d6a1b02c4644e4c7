//! Small files and directories within their inodes: whatever their size and their attributes,
//! e2fsck finds nothing, and the kernel reads them.

use std::fs;
use std::path::Path;

use rustix::fs::{XattrFlags, lsetxattr};
use uext4_image::{BuildOptions, Size};
use uext4_mkfs::{BlockSizeWish, parse_features};
use uext4_ondisk::BlockSize;
use uext4_testkit::{Mount, assert_clean, can_mount};

use crate::building::Place;
use crate::walk::{assert_same, walk_image, walk_source};

/// Sizes around every limit: of `i_block`, and of inodes of 256 and 512 bytes.
const SIZES: &[usize] = &[
    0, 1, 3, 59, 60, 61, 64, 100, 127, 128, 129, 131, 132, 133, 150, 159, 160, 161, 255, 380, 384,
    385, 388, 1023, 1024, 4096,
];

/// What `-O` says of images whose features a microVM platform fixes.
const FEATURES: &[&str] = &[
    "inline_data",
    "^64bit,^dir_index,^dir_nlink,inline_data,sparse_super2",
    "^metadata_csum,inline_data",
    "^has_journal,ea_inode,inline_data",
    "^extent,^64bit,inline_data",
];

fn populate(tree: &Path) {
    for (kind, xattr_len) in [("plain", None), ("short", Some(4)), ("long", Some(60))] {
        let label = |path: &Path| {
            if let Some(len) = xattr_len {
                let value = vec![b'x'; len];
                lsetxattr(path, "user.label", &value, XattrFlags::empty()).unwrap();
            }
        };
        for len in SIZES {
            let file = tree.join(format!("{kind}-{len}"));
            let bytes: Vec<u8> = (0..*len).map(|i| i as u8 | 1).collect();
            fs::write(&file, bytes).unwrap();
            label(&file);
        }
        for names in (0..=20).chain([300]) {
            let dir = tree.join(format!("{kind}-dir-{names}"));
            fs::create_dir(&dir).unwrap();
            for i in 0..names {
                let name = dir.join("n".repeat(i % 7 + 1) + &i.to_string());
                match i % 3 {
                    0 => fs::create_dir(name).unwrap(),
                    _ => fs::write(name, b"small").unwrap(),
                }
            }
            label(&dir);
        }
    }
}

#[test]
fn small_files_and_directories_lie_in_their_inodes() {
    let place = Place::new();
    fs::create_dir_all(place.tree()).unwrap();
    populate(&place.tree());
    let want = walk_source(&place.tree());
    for features in FEATURES {
        for (block_size, inode_size) in [(4096, 256), (1024, 256), (4096, 512)] {
            let what = format!("{features}, blocks of {block_size}, inodes of {inode_size}");
            let mut options = BuildOptions {
                size: Size::Min,
                ..BuildOptions::default()
            };
            options.mkfs.inode_size = Some(inode_size);
            options.mkfs.block_size = BlockSize::from_bytes(block_size).map(BlockSizeWish::Exactly);
            options.mkfs.features = parse_features(features).unwrap();
            let report = place.build(&options);
            assert_clean(&place.image());
            options.mkfs.features = parse_features(&features.replace("inline", "^inline")).unwrap();
            let with_blocks = place.build(&options);
            assert!(report.image_bytes < with_blocks.image_bytes, "{what}");
            options.mkfs.features = parse_features(features).unwrap();
            place.build(&options);
            if !can_mount() {
                continue;
            }
            let mount = Mount::new(&place.image(), "ro");
            assert_same(&walk_image(mount.path()), &want, &what);
        }
    }
}

#[test]
fn the_kernel_changes_what_lies_in_an_inode() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::create_dir_all(place.tree()).unwrap();
    populate(&place.tree());
    let mut options = BuildOptions {
        size: Size::Free(8 << 20),
        ..BuildOptions::default()
    };
    options.mkfs.features = parse_features("inline_data").unwrap();
    options.mkfs.inodes = Some(4096);
    place.build(&options);
    let mount = Mount::new(&place.image(), "rw");
    for kind in ["plain", "short", "long"] {
        for names in [0usize, 3, 4, 5, 6, 7, 8, 20] {
            let dir = mount.path().join(format!("{kind}-dir-{names}"));
            for i in 0..10 {
                fs::write(dir.join(format!("more-{i}")), b"more").unwrap();
            }
            assert_eq!(fs::read_dir(&dir).unwrap().count(), names + 10);
        }
        for len in SIZES {
            let file = mount.path().join(format!("{kind}-{len}"));
            let mut bytes = fs::read(&file).unwrap();
            bytes.extend([7; 50]);
            fs::write(&file, &bytes).unwrap();
            assert!(fs::read(&file).unwrap() == bytes);
        }
    }
    drop(mount);
    assert_clean(&place.image());
}
