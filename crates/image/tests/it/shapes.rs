//! One of everything in file systems of many shapes.

use std::collections::BTreeMap;

use uext4_image::{BuildOptions, Size, Sparse};
use uext4_mkfs::{BlockSizeWish, FsType, parse_features};
use uext4_ondisk::BlockSize;

use crate::building::Place;
use crate::walk::{Entry, assert_same, walk_image, walk_source};
use uext4_testkit::{Mount, assert_clean, can_mount};

struct Shape {
    fs_type: FsType,
    features: &'static str,
    block_size: u32,
    inode_size: u16,
}

const fn shape(features: &'static str, block_size: u32) -> Shape {
    Shape {
        fs_type: FsType::Ext4,
        features,
        block_size,
        inode_size: 256,
    }
}

const SHAPES: &[Shape] = &[
    shape("", 1024),
    shape("", 2048),
    shape("", 4096),
    shape("", 65536),
    shape("^metadata_csum", 4096),
    shape("^metadata_csum,uninit_bg", 1024),
    shape("^64bit", 4096),
    shape("^has_journal", 4096),
    shape("^resize_inode,meta_bg", 1024),
    shape("^flex_bg", 1024),
    shape("^dir_index", 1024),
    shape("^extent,^64bit", 4096),
    shape("^extent,^64bit", 1024),
    shape("ea_inode", 4096),
    shape("metadata_csum_seed", 4096),
    shape("sparse_super2", 1024),
    shape("large_dir,project", 4096),
    shape("inline_data", 4096),
    shape("inline_data,ea_inode", 1024),
    Shape {
        inode_size: 128,
        ..shape("", 4096)
    },
    Shape {
        inode_size: 1024,
        ..shape("", 4096)
    },
    Shape {
        fs_type: FsType::Ext2,
        inode_size: 128,
        ..shape("", 1024)
    },
    Shape {
        fs_type: FsType::Ext3,
        ..shape("", 4096)
    },
];

/// What inodes of 128 bytes cannot report.
fn short_times(all: &mut BTreeMap<String, Entry>) {
    for one in all.values_mut() {
        one.times = one.times.map(|t| {
            let sec = t.div_euclid(1_000_000_000);
            sec.clamp(i32::MIN.into(), i32::MAX.into())
        });
    }
}

#[test]
fn one_of_everything_in_every_shape() {
    let place = Place::populated();
    let want = walk_source(&place.tree());
    for shape in SHAPES {
        let what = format!(
            "{:?} {:?} {}",
            shape.fs_type, shape.features, shape.block_size
        );
        let mut options = BuildOptions {
            size: Size::Min,
            sparse: Some(Sparse::Auto),
            ..BuildOptions::default()
        };
        options.mkfs.fs_type = shape.fs_type;
        options.mkfs.inode_size = Some(shape.inode_size);
        options.mkfs.block_size =
            BlockSize::from_bytes(shape.block_size).map(BlockSizeWish::Exactly);
        if !shape.features.is_empty() {
            options.mkfs.features = parse_features(shape.features).unwrap();
        }
        let report = place.build(&options);
        println!(
            "{what}: {} bytes, {} free",
            report.image_bytes, report.summary.free_blocks
        );
        assert_clean(&place.image());
        if shape.block_size > 4096 || !can_mount() {
            continue;
        }
        let mut want = want.clone();
        let mount = Mount::new(&place.image(), "ro");
        let mut got = walk_image(mount.path());
        if shape.inode_size == 128 {
            short_times(&mut want);
            short_times(&mut got);
        }
        assert_same(&got, &want, &what);
    }
}
