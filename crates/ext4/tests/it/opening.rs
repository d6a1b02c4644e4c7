//! What opening accepts, and what it refuses, by name.

use std::fs;
use std::sync::Arc;

use uext4::{Damage, Error, Filesystem, FollowLast, OpenOptions};
use uext4_blockdev::MemoryDevice;

use crate::mke2fs::{make_source, mke2fs};

fn open(bytes: &[u8], options: &OpenOptions) -> Result<Filesystem, Error> {
    Filesystem::open(Arc::new(MemoryDevice::from_bytes(bytes.to_vec())), options)
}

#[test]
fn backups_help_where_the_superblock_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    make_source(&source);
    mke2fs(&image, &["-t", "ext4", "-b", "1024"], Some(&source), "64M");
    let mut bytes = fs::read(&image).unwrap();
    // Superblock and descriptors of the primary copy.
    bytes[1024..8192].fill(0);
    let error = open(&bytes, &OpenOptions::default()).unwrap_err();
    assert!(matches!(
        error,
        Error::Corrupt(Damage::SuperblockMagic { found: 0 })
    ));
    let options = OpenOptions {
        superblock: Some(8193),
        ..OpenOptions::default()
    };
    let fs = open(&bytes, &options).unwrap();
    assert!(fs.resolve(b"a/large", FollowLast::No).is_ok());
    let options = OpenOptions {
        superblock: Some(8194),
        ..OpenOptions::default()
    };
    assert!(open(&bytes, &options).is_err());
}

#[test]
fn what_cannot_be_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-O", "^metadata_csum"], None, "8M");
    let good = fs::read(&image).unwrap();
    let options = OpenOptions::default();
    let short = open(&good[..good.len() - 1024], &options).unwrap_err();
    assert!(matches!(
        short,
        Error::Corrupt(Damage::DeviceTooSmall { .. })
    ));
    assert!(open(&good[..1500], &options).is_err());
    assert!(open(&[], &options).is_err());
    // s_feature_incompat: compression.
    let mut bytes = good.clone();
    bytes[1024 + 0x60] |= 1;
    match open(&bytes, &options).unwrap_err() {
        Error::Unsupported { what } => assert_eq!(what, "compression"),
        other => panic!("{other}"),
    }
    // The journal elsewhere, and not replayed.
    let mut bytes = good.clone();
    bytes[1024 + 0xE0..][..4].fill(0);
    assert!(open(&bytes, &options).is_ok());
    bytes[1024 + 0x60] |= 4;
    match open(&bytes, &options).unwrap_err() {
        Error::Unsupported { what } => assert!(what.contains("external journal"), "{what}"),
        other => panic!("{other}"),
    }
}
