//! What must hold any thread that had the file system before, and whatever is refused.

use std::sync::Arc;

use uext4::xattr::SetMode;
use uext4::{Creation, Error, NewInode, RenameMode, SetAttributes, SetTime};
use uext4_blockdev::MemoryDevice;
use uext4_ondisk::Ino;
use uext4_ondisk::inode::InodeFlags;
use uext4_testkit::{assert_e2fsck, changed, debugfs_write, dumpe2fs};

use super::device::{judge, made, mount};

const CREATION: Creation = Creation {
    mode: 0o755,
    umask: 0,
    uid: 0,
    gid: 0,
};

/// The device after debugfs did what it was asked.
pub(super) fn debugfs(device: &MemoryDevice, requests: &[&str]) -> Arc<MemoryDevice> {
    changed(device, |image| debugfs_write(image, requests))
}

#[test]
fn what_lies_behind_the_end_is_never_shown() {
    let device = made("-t ext4 -b 4096", 32_768);
    let fs = mount(device.clone());
    let file = fs
        .root()
        .unwrap()
        .create(b"f", NewInode::File, &CREATION)
        .unwrap();
    file.write_at(0, &[b'A'; 4096]).unwrap();
    drop(file);
    fs.close().unwrap();
    // As a power cut leaves it after the new size is on the device, and before the zeroes are.
    let cut = debugfs(&device, &["sif /f size 10"]);
    for grow in 0..3 {
        let device = Arc::new(cut.snapshot());
        let fs = mount(device.clone());
        let file = fs.root().unwrap().lookup(b"f").unwrap();
        let size = Some(9000);
        match grow {
            0 => _ = file.write_at(8192, b"new").unwrap(),
            1 => file
                .set_attributes(&SetAttributes {
                    size,
                    ..SetAttributes::default()
                })
                .unwrap(),
            _ => _ = file.append(b"new").unwrap(),
        }
        drop(file);
        fs.close().unwrap();
        let fs = mount(device.clone());
        let file = fs.root().unwrap().lookup(b"f").unwrap();
        let mut found = [0; 4096];
        let len = file.read_at(0, &mut found).unwrap();
        assert_eq!(&found[..10], &[b'A'; 10]);
        let shown = found[10..len].iter().filter(|byte| **byte == b'A').count();
        assert_eq!(shown, 0, "grown in way {grow}");
        drop(file);
        fs.close().unwrap();
        judge(&device, "grown");
    }
}

#[test]
fn a_move_that_is_refused_costs_nothing() {
    let device = made(
        "-t ext4 -O project,quota -E quotatype=prjquota -I 256",
        32_768,
    );
    let Ok(()) = refused(&device) else {
        // Without quotas there are projects all the same.
        return refused(&made("-t ext4 -O project -I 256", 32_768)).unwrap();
    };
}

fn refused(device: &Arc<MemoryDevice>) -> Result<(), Error> {
    let clock = uext4_blockdev::VirtualClock::new(1_700_000_000);
    let options = uext4::OpenOptions::default();
    let fs = uext4::Volume::open(device.clone(), Arc::new(clock), &options)?;
    let root = fs.root()?;
    let dir = root.create(b"dir", NewInode::Directory, &CREATION)?;
    dir.set_attributes(&SetAttributes {
        projid: Some(7),
        flags: Some(InodeFlags::PROJINHERIT),
        ..SetAttributes::default()
    })?;
    let target = dir.create(b"target", NewInode::File, &CREATION)?;
    target.write_at(0, b"of worth")?;
    drop(target);
    root.create(b"source", NewInode::File, &CREATION)?;
    for mode in [RenameMode::Replace, RenameMode::Exchange] {
        let moved = root.rename(b"source", &dir, b"target", mode);
        assert!(matches!(moved, Err(Error::OtherProject)), "{moved:?}");
        let moved = dir.rename(b"target", &root, b"source", RenameMode::Exchange);
        assert!(matches!(moved, Err(Error::OtherProject)), "{moved:?}");
    }
    let mut found = [0; 8];
    dir.lookup(b"target")?.read_at(0, &mut found)?;
    assert_eq!(&found, b"of worth");
    drop((root, dir));
    fs.close()
}

#[test]
fn attributes_change_where_no_block_is_free() {
    let device = made("-t ext4", 16_384);
    let fs = mount(device.clone());
    let root = fs.root().unwrap();
    let file = root.create(b"f", NewInode::File, &CREATION).unwrap();
    file.set_xattr(b"user.a", Some(&[1; 20]), SetMode::Any)
        .unwrap();
    let fill = vec![0xA7; 1 << 20];
    loop {
        match file.append(&fill) {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    file.set_attributes(&SetAttributes {
        uid: Some(5),
        mtime: Some(SetTime::Now),
        ..SetAttributes::default()
    })
    .unwrap();
    file.set_xattr(b"user.a", None, SetMode::Any).unwrap();
    file.set_attributes(&SetAttributes {
        mode: Some(0o600),
        size: Some(1),
        ..SetAttributes::default()
    })
    .unwrap();
    drop((root, file));
    fs.close().unwrap();
    judge(&device, "filled and cut");
}

#[test]
fn no_name_leads_to_the_journal() {
    let device = debugfs(&made("-t ext4", 32_768), &["link <8> journal"]);
    let fs = mount(device);
    let root = fs.root().unwrap();
    assert!(matches!(root.unlink(b"journal"), Err(Error::Corrupt(_))));
    assert!(matches!(root.lookup(b"journal"), Err(Error::Corrupt(_))));
    assert!(matches!(fs.open_inode(Ino(8)), Err(Error::NotFound)));
}

#[test]
fn the_journal_is_given_checksums_and_wide_numbers() {
    for (flags, wanted) in [
        (
            "-t ext4",
            "journal_incompat_revoke journal_64bit journal_checksum_v3",
        ),
        (
            "-t ext4 -O ^metadata_csum",
            "journal_incompat_revoke journal_64bit",
        ),
        ("-t ext3", "journal_incompat_revoke"),
    ] {
        let device = made(flags, 32_768);
        let fs = mount(device.clone());
        fs.root()
            .unwrap()
            .create(b"f", NewInode::File, &CREATION)
            .unwrap();
        fs.sync().unwrap();
        // With a log that must be replayed.
        let cut = Arc::new(device.snapshot());
        let file = uext4_testkit::stored(&cut);
        let reported = dumpe2fs(file.path());
        let line = reported
            .lines()
            .find_map(|line| line.strip_prefix("Journal features:"));
        assert_eq!(line.unwrap().trim(), wanted);
        assert_e2fsck(file.path(), "-fy", 1);
        let after = uext4_testkit::loaded(file.path());
        judge(&after, flags);
        mount(after).root().unwrap().lookup(b"f").unwrap();
    }
}
