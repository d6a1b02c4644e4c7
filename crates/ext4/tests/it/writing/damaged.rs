//! Damage that is met by a mount: it is recorded in the superblock, and `errors=` says what
//! follows.

use std::sync::Arc;

use uext4::{
    Creation, Error, FollowLast, Image, Ino, Inode, NewInode, OpenOptions, SetAttributes, SetTime,
    Volume,
};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_ondisk::superblock::{ERR_EIO, STATE_ERROR, SuperBlock};
use uext4_testkit::{Fault, Op, SimDevice, SimOptions};
use uext4_testkit::{e2fsck, said};

use super::device::{file, made, mount, open};

const CREATION: Creation = Creation {
    mode: 0o755,
    umask: 0,
    uid: 0,
    gid: 0,
};

/// An image with a directory whose only block is damaged, and its inode and block.
fn damaged(flags: &str) -> (Arc<MemoryDevice>, u32, u64) {
    let device = made(flags, 16_384);
    let fs = mount(device.clone());
    let root = fs.root().unwrap();
    let dir = root.create(b"dir", NewInode::Directory, &CREATION).unwrap();
    dir.create(b"name", NewInode::File, &CREATION).unwrap();
    dir.fsync().unwrap();
    let (ino, mut at) = (dir.ino().0, 0);
    dir.fiemap(0..4096, |part| {
        at = part.physical.unwrap();
        false
    })
    .unwrap();
    drop((root, dir));
    fs.close().unwrap();
    device.write_at(at + 40, &[0xA7; 8]).unwrap();
    (device, ino, at / 4096)
}

fn superblock_on(device: &MemoryDevice) -> SuperBlock {
    SuperBlock::parse(&device.to_bytes()[1024..2048]).unwrap()
}

/// Whether `e2fsck -p` looks at it, though it was left clean.
fn is_checked(device: &MemoryDevice) -> bool {
    let file = uext4_testkit::stored(device);
    let output = said(&e2fsck(file.path(), "-p"));
    output.contains("contains a file system with errors")
}

#[test]
fn damage_is_recorded_and_errors_continue_goes_on() {
    // What mke2fs stores by default is continue.
    for options in ["", "errors=continue"] {
        let (device, ino, block) = damaged("-t ext4 -b 4096");
        let fs = open(device.clone(), OpenOptions::default(), options).unwrap();
        let root = fs.root().unwrap();
        let dir = root.lookup(b"dir").unwrap();
        for _ in 0..3 {
            assert!(matches!(dir.lookup(b"name"), Err(Error::Corrupt(_))));
        }
        // The first one is committed at once, whatever comes.
        let shown = Image::open(Arc::new(device.snapshot()), &OpenOptions::default());
        let shown = *shown.unwrap().superblock();
        assert_eq!(shown.s_error_count.get(), 1);
        root.create(b"more", NewInode::File, &CREATION).unwrap();
        drop((root, dir));
        fs.close().unwrap();
        let superblock = superblock_on(&device);
        assert_eq!(superblock.s_state.get() & STATE_ERROR, STATE_ERROR);
        assert_eq!(superblock.s_error_count.get(), 3);
        assert_eq!(superblock.s_first_error_ino.get(), ino);
        assert_eq!(superblock.s_last_error_ino.get(), ino);
        assert_eq!(superblock.s_first_error_block.get(), block);
        assert_eq!(superblock.s_first_error_time.get(), 1_700_000_000);
        assert!(is_checked(&device));
        let again = |options| open(device.clone(), OpenOptions::default(), options);
        // As the kernel does, which warns.
        again("").unwrap().close().unwrap();
    }
}

#[test]
fn damage_is_recorded_and_errors_remount_ro_ends_writing() {
    for (flags, options) in [
        ("-t ext4 -b 4096 -e remount-ro", ""),
        ("-t ext4 -b 4096 -e panic", ""),
        ("-t ext4 -b 4096", "errors=remount-ro"),
        ("-t ext4 -b 4096", "errors=panic"),
    ] {
        let (device, ino, _) = damaged(flags);
        let fs = open(device.clone(), OpenOptions::default(), options).unwrap();
        let root = fs.root().unwrap();
        root.create(b"before", NewInode::File, &CREATION).unwrap();
        let dir = root.lookup(b"dir").unwrap();
        let met = dir.lookup(b"name");
        assert!(matches!(met, Err(Error::Corrupt(_))), "{options}");
        let made = root.create(b"after", NewInode::File, &CREATION);
        assert!(matches!(made, Err(Error::Aborted { .. })), "{options}");
        // Reading goes on, and what was complete is there for the next mount.
        root.lookup(b"before").unwrap();
        let left = Arc::new(device.snapshot());
        let left = Image::open(left, &OpenOptions::default()).unwrap();
        assert_eq!(left.superblock().s_first_error_ino.get(), ino);
        left.resolve(b"/before", FollowLast::No).unwrap();
        assert!(is_checked(&device), "{options}");
    }
}

#[test]
fn what_was_never_an_inode_is_no_damage() {
    let device = made("-t ext4", 16_384);
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let fs = Volume::open(device.clone(), clock, &OpenOptions::default()).unwrap();
    assert!(fs.open_inode(Ino(500)).is_err());
    assert!(fs.open_inode(Ino(0)).is_err());
    fs.close().unwrap();
    assert_eq!(superblock_on(&device).s_error_count.get(), 0);
}

#[test]
fn damaged_attributes_are_recorded_while_others_wait_for_the_inode() {
    let device = made("-t ext4 -b 4096", 16_384);
    let fs = mount(device.clone());
    let root = fs.root().unwrap();
    let file = root.create(b"file", NewInode::File, &CREATION).unwrap();
    file.set_xattr(b"user.a", Some(&[7; 1000]), uext4::xattr::SetMode::Any)
        .unwrap();
    drop((root, file));
    fs.close().unwrap();
    let bytes = device.to_bytes();
    // In the journal, too.
    for (block, bytes) in bytes.chunks(4096).enumerate() {
        if bytes.windows(1000).any(|part| part == [7; 1000]) {
            let at = block as u64 * 4096 + 40;
            device.write_at(at, &[8]).unwrap();
        }
    }
    let fs = open(device, OpenOptions::default(), "errors=continue").unwrap();
    let file = fs.open_path(b"/file", FollowLast::No).unwrap();
    // Another thread changes the inode all the time: each of its handles waits for the inode's
    // lock, which a commit must not be waited for with.
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ended, other) = (&ended, file.clone());
        scope.spawn(move || {
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            // Not its mode: that takes a look at its ACL.
            let change = SetAttributes {
                mtime: Some(SetTime::Now),
                ..SetAttributes::default()
            };
            for _ in 0..1 << 17 {
                if ended.load(relaxed) {
                    break;
                }
                other.set_attributes(&change).unwrap();
            }
        });
        for _ in 0..50 {
            assert!(matches!(file.xattr(b"user.a"), Err(Error::Corrupt(_))));
            assert!(matches!(file.xattrs(), Err(Error::Corrupt(_))));
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    // Refused before anything has changed, so writing goes on.
    let mode = file.inode().mode;
    let change = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    assert!(matches!(
        file.set_attributes(&change),
        Err(Error::Corrupt(_))
    ));
    assert_eq!(file.inode().mode, mode);
    let other = fs.root().unwrap();
    let other = other.create(b"other", NewInode::File, &CREATION).unwrap();
    other.write_at(0, b"data").unwrap();
    other.fsync().unwrap();
}

/// An image with a file whose tree of extents has a damaged leaf, and the inode and the leaf.
fn damaged_tree() -> (Arc<MemoryDevice>, u32, u64) {
    let device = made("-t ext4 -b 4096", 16_384);
    let fs = mount(device.clone());
    let file = file(&fs, "file");
    for part in 0..8 {
        file.write_at(part * 8192, &[part as u8; 4096]).unwrap();
    }
    file.fsync().unwrap();
    let inode = fs.inode_bytes(file.ino()).unwrap();
    // The block that the first entry of the root names.
    let at = 40 + 12 + 4;
    let leaf = u32::from_le_bytes(inode[at..at + 4].try_into().unwrap());
    let ino = file.ino().0;
    drop(file);
    fs.close().unwrap();
    let leaf = u64::from(leaf);
    device.write_at(leaf * 4096 + 16, &[0xA7; 8]).unwrap();
    (device, ino, leaf)
}

/// What is recorded on a device, and what e2fsck and the next mount make of it.
fn assert_recorded(device: &Arc<MemoryDevice>, ino: u32, block: u64) {
    let superblock = superblock_on(device);
    assert_eq!(superblock.s_state.get() & STATE_ERROR, STATE_ERROR);
    assert_eq!(superblock.s_error_count.get(), 1);
    assert_eq!(superblock.s_first_error_ino.get(), ino);
    assert_eq!(superblock.s_first_error_block.get(), block);
    assert!(is_checked(device));
    for _ in 0..2 {
        // Replaying the log does not lose it.
        let fs = mount(device.clone());
        assert_eq!(fs.superblock().s_state.get() & STATE_ERROR, STATE_ERROR);
        assert_eq!(fs.superblock().s_first_error_ino.get(), ino);
        fs.close().unwrap();
    }
}

#[test]
fn a_half_done_change_is_recorded_though_its_transaction_is_not_committed() {
    for by_eviction in [false, true] {
        let (device, ino, leaf) = damaged_tree();
        let fs = open(device.clone(), OpenOptions::default(), "").unwrap();
        let root = fs.root().unwrap();
        // So that the log has a superblock without errors.
        root.create(b"before", NewInode::File, &CREATION).unwrap();
        fs.sync().unwrap();
        let file = root.lookup(b"file").unwrap();
        match by_eviction {
            true => {
                root.unlink(b"file").unwrap();
                drop(file);
            }
            false => {
                let cut = file.set_attributes(&SetAttributes {
                    size: Some(0),
                    ..SetAttributes::default()
                });
                assert!(matches!(cut, Err(Error::Corrupt(_))), "{cut:?}");
                drop(file);
            }
        }
        drop(root);
        _ = fs.tick();
        let left = Arc::new(device.snapshot());
        // As a process that is killed leaves it.
        std::mem::forget(fs);
        assert_recorded(&left, ino, leaf);
    }
}

#[test]
fn metadata_that_cannot_be_read_is_recorded() {
    for (options, goes_on) in [("errors=continue", true), ("errors=remount-ro", false)] {
        let image = made("-t ext4 -b 4096", 16_384);
        let fs = mount(image.clone());
        let root = fs.root().unwrap();
        let dir = root.create(b"dir", NewInode::Directory, &CREATION).unwrap();
        dir.create(b"name", NewInode::File, &CREATION).unwrap();
        dir.fsync().unwrap();
        let mut at = 0;
        dir.fiemap(0..4096, |part| {
            at = part.physical.unwrap();
            false
        })
        .unwrap();
        drop((root, dir));
        fs.close().unwrap();
        let device = Arc::new(SimDevice::new(&image, SimOptions::default()));
        let fs = open(device.clone(), OpenOptions::default(), options).unwrap();
        let root = fs.root().unwrap();
        let dir = root.lookup(b"dir").unwrap();
        device.inject(Fault::new(Op::Read).within(at..at + 4096));
        assert!(matches!(dir.lookup(b"name"), Err(Error::Device(_))));
        device.clear_faults();
        let made = root.create(b"after", NewInode::File, &CREATION);
        assert_eq!(made.is_ok(), goes_on, "{options}");
        drop((root, dir, made));
        _ = fs.close();
        let left = Image::open(Arc::new(device.contents()), &OpenOptions::default());
        let left = *left.unwrap().superblock();
        assert_eq!(left.s_error_count.get(), 1, "{options}");
        assert_eq!(left.s_first_error_block.get(), at / 4096);
        assert_eq!(left.s_first_error_errcode, ERR_EIO);
    }
}

#[test]
fn calls_that_read_by_an_inode_record_damage() {
    type Call = fn(&Volume, &Inode) -> bool;
    let calls: [Call; 4] = [
        |fs, dir| fs.lookup(dir, b"name").is_err(),
        |fs, dir| {
            fs.read_dir(dir)
                .is_ok_and(|mut all| all.any(|entry| entry.is_err()))
        },
        |fs, dir| fs.list(dir, 0, &mut |_| true).is_err(),
        |fs, _| fs.resolve(b"/dir/name", FollowLast::No).is_err(),
    ];
    for (number, call) in calls.iter().enumerate() {
        let (device, ino, block) = damaged("-t ext4 -b 4096");
        let fs = mount(device.clone());
        let dir = fs.inode(Ino(ino)).unwrap();
        assert!(call(&fs, &dir), "{number}");
        fs.close().unwrap();
        let superblock = superblock_on(&device);
        assert_eq!(superblock.s_error_count.get(), 1, "{number}");
        assert_eq!(superblock.s_first_error_block.get(), block, "{number}");
    }
}
