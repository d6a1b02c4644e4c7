//! What opening accepts, and what it refuses, by name.

use std::fs;
use std::sync::Arc;

use uext4::format::{Lblk, Pblk};
use uext4::rescue::SuperblockCopy;
use uext4::{Creation, Damage, Error, FollowLast, Image, NewInode, OpenOptions, Volume};
use uext4_blockdev::{
    Access, BlockDevice, Error as DeviceError, FileDevice, MemoryDevice, SystemClock,
};
use uext4_fsck::Finding;

use crate::mke2fs::{make_source, mke2fs};

fn open(bytes: &[u8], options: &OpenOptions) -> Result<Image, Error> {
    Image::open(Arc::new(MemoryDevice::from_bytes(bytes.to_vec())), options)
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
    let fs = open(&bytes, &OpenOptions::default()).unwrap();
    let lost = fs.rescue().superblock.clone().unwrap();
    assert_eq!(lost.copy, SuperblockCopy::Backup(Pblk(8193)));
    assert!(lost.why.contains("0x0000"), "{}", lost.why);
    assert!(fs.resolve(b"a/large", FollowLast::No).is_ok());
    let device = Arc::new(MemoryDevice::from_bytes(bytes.clone()));
    let error = Volume::open(device, Arc::new(SystemClock), &OpenOptions::default()).unwrap_err();
    assert!(matches!(
        error,
        Error::Corrupt(Damage::SuperblockMagic { found: 0 })
    ));
    let mut options = OpenOptions::default();
    options.superblock = Some(8193);
    let fs = open(&bytes, &options).unwrap();
    assert!(fs.resolve(b"a/large", FollowLast::No).is_ok());
    let mut options = OpenOptions::default();
    options.superblock = Some(8194);
    assert!(open(&bytes, &options).is_err());
}

fn findings(bytes: &[u8]) -> uext4_fsck::Result<Vec<Finding>> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes.to_vec()));
    uext4_fsck::findings(&device)
}

fn assert_cut_off(bytes: &[u8]) {
    let found = findings(bytes);
    assert!(
        matches!(found, Err(uext4_fsck::Error::CutOff { .. })),
        "{found:?}"
    );
}

#[test]
fn a_truncated_image_is_read_as_far_as_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    make_source(&source);
    mke2fs(&image, &["-t", "ext4", "-b", "1024"], Some(&source), "64M");
    let mut bytes = fs::read(&image).unwrap();
    let options = OpenOptions::default();
    let whole = open(&bytes, &options).unwrap();
    let large = whole.resolve(b"a/large", FollowLast::No).unwrap();
    let last = (large.size / 1024) as u32;
    let end = whole.map(&large, Lblk(last), 1).unwrap().pblk.0;
    // Within the last block of a file.
    bytes.truncate(end as usize * 1024 + 100);
    for superblock in [None, Some(0)] {
        let mut options = OpenOptions::default();
        options.superblock = superblock;
        let cut = open(&bytes, &options).unwrap();
        let missing = cut.rescue().cut_off.unwrap();
        assert_eq!((missing.need, missing.have), (64 << 20, bytes.len() as u64));
        assert_eq!(cut.rescue().superblock, None);
        let large = cut.resolve(b"a/large", FollowLast::No).unwrap();
        let mut data = vec![0; large.size as usize];
        let error = cut.read_at(&large, 0, &mut data).unwrap_err();
        assert!(error.is_beyond_end());
        let reported = format!("block {end}, at byte {}", bytes.len());
        assert!(error.to_string().contains(&reported), "{error}");
        let before = &mut data[..last as usize * 1024];
        assert_eq!(cut.read_at(&large, 0, before).unwrap(), before.len());
        let odd = cut.resolve(b"a/odd", FollowLast::No).unwrap();
        assert_eq!(odd.size, 70_001);
    }
    assert_cut_off(&bytes);
    // Cut at any place: an answer or an error, never an end without either.
    for len in (0..bytes.len()).step_by(700_001) {
        if let Ok(cut) = open(&bytes[..len], &OpenOptions::default()) {
            assert_cut_off(&bytes[..len]);
            if let Ok(many) = cut.resolve(b"many", FollowLast::No)
                && let Ok(entries) = cut.read_dir(&many)
            {
                assert!(entries.count() < 10_000);
            }
        }
    }
}

#[test]
fn a_superblock_torn_between_its_sectors_is_found_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-b", "1024"], None, "64M");
    let device = Arc::new(MemoryDevice::from_bytes(fs::read(&image).unwrap()));
    let options = OpenOptions::default();
    let fs = Volume::open(device.clone(), Arc::new(SystemClock), &options).unwrap();
    let creation = Creation {
        mode: 0o755,
        ..Creation::default()
    };
    let root = fs.root().unwrap();
    let dir = NewInode::Directory;
    root.create(b"new", dir, &creation).unwrap();
    // An orphan, so that the superblock itself is in the transaction.
    let file = root.create_unnamed(NewInode::File, &creation).unwrap();
    fs.sync().unwrap();
    let mut bytes = device.to_bytes();
    drop((file, root, fs));
    bytes[1024 + 512..2048].fill(0xA5);
    let torn = open(&bytes, &options).unwrap();
    let lost = torn.rescue().superblock.clone().unwrap();
    assert_eq!(lost.copy, SuperblockCopy::Journal);
    assert!(torn.resolve(b"new", FollowLast::No).is_ok());
    let found = findings(&bytes).unwrap();
    assert_eq!(found[0].problem.structure(), "superblock", "{found:?}");
    // Without a journal to look into, the backup gives the second sector.
    let mut options = options;
    options.replay_journal = false;
    let torn = open(&bytes, &options).unwrap();
    let lost = torn.rescue().superblock.clone().unwrap();
    assert_eq!(lost.copy, SuperblockCopy::FirstSector(Pblk(8193)));
    // A first sector that is not of this file system is not used at all.
    bytes[1024 + 0x68] ^= 0xFF;
    let torn = open(&bytes, &options).unwrap();
    let lost = torn.rescue().superblock.clone().unwrap();
    assert_eq!(lost.copy, SuperblockCopy::Backup(Pblk(8193)));
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let refused = Volume::open(device, Arc::new(SystemClock), &options).unwrap_err();
    let checksum = matches!(refused, Error::Corrupt(Damage::SuperblockChecksum { .. }));
    assert!(checksum, "{refused}");
}

#[test]
fn a_superblock_torn_between_its_sectors_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-b", "1024"], None, "64M");
    let device = Arc::new(MemoryDevice::from_bytes(fs::read(&image).unwrap()));
    let options = OpenOptions::default();
    let writing = |device: &Arc<MemoryDevice>| {
        let device = Arc::<MemoryDevice>::clone(device);
        Volume::open(device, Arc::new(SystemClock), &options)
    };
    let fs = writing(&device).unwrap();
    let root = fs.root().unwrap();
    root.create(b"new", NewInode::Directory, &Creation::directory())
        .unwrap();
    fs.sync().unwrap();
    drop(root);
    let in_use = device.to_bytes();
    fs.close().unwrap();
    let closed = device.to_bytes();
    // The disk wrote one of the two sectors when the file system was closed.
    for sector in [1024..1536, 1536..2048] {
        let mut torn = closed.clone();
        torn[sector.clone()].copy_from_slice(&in_use[sector.clone()]);
        let device = Arc::new(MemoryDevice::from_bytes(torn.clone()));
        let fs = writing(&device).unwrap();
        assert!(fs.rescue().superblock.is_some(), "{sector:?}");
        let root = fs.root().unwrap();
        assert!(root.lookup(b"new").is_ok());
        root.create(b"newer", NewInode::File, &Creation::file())
            .unwrap();
        drop(root);
        fs.close().unwrap();
        let bytes = device.to_bytes();
        let fs = open(&bytes, &options).unwrap();
        assert_eq!(fs.rescue().superblock, None);
        assert_eq!(findings(&bytes).unwrap(), [], "{sector:?}");
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-O", "^metadata_csum"], None, "8M");
    let good = fs::read(&image).unwrap();
    let options = OpenOptions::default();
    let short = MemoryDevice::from_bytes(good[..good.len() - 1024].to_vec());
    let short = Volume::open(Arc::new(short), Arc::new(SystemClock), &options);
    assert!(matches!(
        short.unwrap_err(),
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
        Volume::open(
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
fn default_creation_gives_usable_modes() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(&image, &["-t", "ext4"], None, "8M");
    let device = Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
    let fs = Volume::open(device, Arc::new(SystemClock), &OpenOptions::default()).unwrap();
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
