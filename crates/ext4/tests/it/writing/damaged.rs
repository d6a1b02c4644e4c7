//! Damage that is met by a mount: it is recorded in the superblock, and `errors=` says what
//! follows.

use std::process::Command;
use std::sync::Arc;

use uext4::{Creation, Error, Filesystem, NewInode, OpenOptions};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_ondisk::superblock::{STATE_ERROR, SuperBlock};

use super::device::{made, mount, open};

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
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), device.to_bytes()).unwrap();
    let output = Command::new("e2fsck").arg("-p").arg(file.path()).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
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
        let shown = Filesystem::open(Arc::new(device.snapshot()), &OpenOptions::default());
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
        assert!(matches!(again(""), Err(Error::Invalid { .. })));
        again("errors=continue").unwrap().close().unwrap();
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
        let left = Filesystem::open(left, &OpenOptions::default()).unwrap();
        assert_eq!(left.superblock().s_first_error_ino.get(), ino);
        left.resolve(b"/before", uext4::FollowLast::No).unwrap();
        assert!(is_checked(&device), "{options}");
    }
}

#[test]
fn what_was_never_an_inode_is_no_damage() {
    let device = made("-t ext4", 16_384);
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let fs = Filesystem::open_rw(device.clone(), clock, &OpenOptions::default()).unwrap();
    assert!(fs.open_inode(uext4::Ino(500)).is_err());
    assert!(fs.open_inode(uext4::Ino(0)).is_err());
    fs.close().unwrap();
    assert_eq!(superblock_on(&device).s_error_count.get(), 0);
}

#[test]
fn damaged_attributes_are_recorded_while_others_wait_for_the_inode() {
    let device = made("-t ext4 -b 4096", 16_384);
    let fs = mount(device.clone());
    let root = fs.root().unwrap();
    let file = root.create(b"file", NewInode::File, &CREATION).unwrap();
    file.set_xattr(b"user.a", Some(&[7; 1000]), uext4::SetMode::Any)
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
    let file = fs.open_path(b"/file", uext4::FollowLast::No).unwrap();
    // Another thread changes the inode all the time: each of its handles waits for the inode's lock, which
    // a commit must not be waited for with.
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ended, other) = (&ended, file.clone());
        scope.spawn(move || {
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            for mode in (0..0o777).cycle().take(1 << 17) {
                if ended.load(relaxed) {
                    break;
                }
                let change = uext4::SetAttributes {
                    mode: Some(mode),
                    ..uext4::SetAttributes::default()
                };
                other.set_attributes(&change).unwrap();
            }
        });
        for _ in 0..50 {
            assert!(matches!(file.xattr(b"user.a"), Err(Error::Corrupt(_))));
            assert!(matches!(file.xattrs(), Err(Error::Corrupt(_))));
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
