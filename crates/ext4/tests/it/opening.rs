//! What opening accepts, and what it refuses, by name.

use std::fs;
use std::sync::Arc;

use uext4::{Creation, Damage, Error, Filesystem, FollowLast, NewInode, OpenOptions};
use uext4_blockdev::{Access, Error as DeviceError, FileDevice, MemoryDevice, SystemClock};

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

#[test]
fn an_image_is_opened_for_writing_once() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, &["-t", "ext4"], None, "8M");
    let device = || Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
    let open = |device: &Arc<FileDevice>| {
        let clock = Arc::new(SystemClock);
        Filesystem::open_rw(
            Arc::<FileDevice>::clone(device),
            clock,
            &OpenOptions::default(),
        )
    };
    let (one, other) = (device(), device());
    let first = open(&one).unwrap();
    for device in [&one, &other] {
        let refused = open(device).unwrap_err();
        assert!(
            matches!(refused, Error::Device(DeviceError::Locked { .. })),
            "{refused}"
        );
    }
    first.close().unwrap();
    open(&other).unwrap().close().unwrap();
}

#[test]
fn what_is_made_by_default_can_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, &["-t", "ext4"], None, "8M");
    let device = Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
    let fs = Filesystem::open_rw(device, Arc::new(SystemClock), &OpenOptions::default()).unwrap();
    let root = fs.root().unwrap();
    let mode = |name: &[u8], kind, how| {
        let made = root.create(name, kind, &how).unwrap();
        made.mode() & 0o7777
    };
    let default = Creation::default();
    assert_eq!(mode(b"file", NewInode::File, default), 0o644);
    assert_eq!(mode(b"dir", NewInode::Directory, default), 0o755);
    assert_eq!(mode(b"link", NewInode::Symlink(b"file"), default), 0o777);
    assert_eq!(mode(b"own", NewInode::File, Creation::file()), 0o644);
    assert_eq!(
        mode(b"own dir", NewInode::Directory, Creation::directory()),
        0o755
    );
    let none = Creation::with_mode(0);
    assert_eq!(mode(b"closed", NewInode::File, none), 0);
    fs.close().unwrap();
}
