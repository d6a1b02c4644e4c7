//! What a mount sets itself: reserved blocks, the size of directories, commits, flushes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use uext4::{
    Caller, Creation, Error, NewInode, OpenInode, OpenOptions, RenameMode, SetAttributes, Volume,
};
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock};

use super::device::{file, judge, made, open};

/// Writes until there is no space; returns how many blocks fitted.
fn fill(file: &OpenInode, caller: Caller) -> u64 {
    let file = file.as_caller(caller);
    let mut at = file.inode().size;
    let before = at;
    while let Ok(len @ 1..) = file.write_at(at, &[7; 65_536]) {
        at += len as u64;
    }
    (at - before) / 1024
}

#[test]
fn reserved_blocks_are_denied_to_other_users() {
    let device = made("-t ext4 -b 1024 -m 20", 16_384);
    let fs = open(device.clone(), OpenOptions::default(), "resuid=7,resgid=8").unwrap();
    let reserved = fs.superblock().reserved_blocks_count();
    assert!(reserved > 3000);
    let big = file(&fs, "file");
    let other = Caller { uid: 5, gid: 5 };
    fill(&big, other);
    let left = fs.statfs();
    assert!(left.free >= reserved && left.available < 64, "{left:?}");
    for one in [Caller { uid: 5, gid: 8 }, Caller { uid: 7, gid: 5 }] {
        let big = big.as_caller(one);
        assert!(big.write_at(big.inode().size, &[1; 1024]).is_ok());
    }
    assert_eq!(fill(&big, other), 0);
    // Part of the superuser's are used: others get no block, but need none for these.
    let bytes = vec![7; 1 << 20];
    let at = big.inode().size;
    assert_eq!(big.write_at(at, &bytes).unwrap(), bytes.len());
    let how = Creation::default();
    let root = fs.as_caller(other).root().unwrap();
    let made = root.create(b"dir", NewInode::Directory, &how);
    assert!(matches!(made, Err(Error::NoSpace { .. })), "{made:?}");
    let made = root.create(b"long", NewInode::Symlink(&[b'x'; 60]), &how);
    assert!(matches!(made, Err(Error::NoSpace { .. })), "{made:?}");
    root.create(b"short", NewInode::Symlink(&[b'x'; 59]), &how)
        .unwrap();
    let empty = root.create(b"empty", NewInode::File, &how).unwrap();
    // What is created or looked up on behalf of a caller is written on behalf of this caller.
    assert!(empty.write_at(0, b"x").is_err());
    assert!(root.lookup(b"empty").unwrap().write_at(0, b"x").is_err());
    empty.link(&root, b"link").unwrap();
    root.rename(b"link", &root, b"moved", RenameMode::Replace)
        .unwrap();
    let mode = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    empty.set_attributes(&mode).unwrap();
    drop(empty);
    drop(root);
    assert!(fill(&big, Caller::default()) > reserved / 4);
    drop(big);
    fs.close().unwrap();
    judge(&device, "full");
}

#[test]
fn a_directory_grows_to_what_it_may_have() {
    let device = made("-t ext4 -b 1024 -O ^inline_data", 8192);
    let fs = open(device.clone(), OpenOptions::default(), "max_dir_size_kb=8").unwrap();
    let root = fs.root().unwrap();
    let dir = root.create(b"dir", NewInode::Directory, &Creation::default());
    let dir = dir.unwrap();
    let full = (0..10_000).find_map(|number| {
        let name = format!("a rather long name to fill it soon {number}");
        let made = dir.create(name.as_bytes(), NewInode::File, &Creation::default());
        made.err()
    });
    let reported = full.unwrap();
    assert!(
        matches!(reported, Error::DirectoryFull { .. }),
        "{reported}"
    );
    assert!(
        reported.to_string().contains("max_dir_size_kb="),
        "{reported}"
    );
    // One name may add several blocks.
    assert!((8192..=11 * 1024).contains(&dir.inode().size));
    drop((dir, root));
    fs.close().unwrap();
    judge(&device, "directory");
}

#[test]
fn changes_wait_as_long_as_they_may() {
    for (options, seconds) in [("commit=60", 60), ("commit=0", 5), ("", 5)] {
        let device = made("-t ext4", 8192);
        let mut all = OpenOptions::default();
        all.options(options).unwrap();
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let fs = Volume::open(device, clock.clone(), &all).unwrap();
        file(&fs, "file");
        let commits = || fs.stats().journal.unwrap().commits;
        let before = commits();
        clock.advance(Duration::from_secs(seconds - 1));
        fs.tick().unwrap();
        assert_eq!(commits(), before, "{options}");
        clock.advance(Duration::from_secs(2));
        fs.tick().unwrap();
        assert_eq!(commits(), before + 1, "{options}");
        fs.close().unwrap();
    }
}

#[test]
fn times_of_access_are_noted_as_asked() {
    use uext4::tuning::AccessTimes::{None, Relative, Strict};
    for (times, first, second) in [
        (None, false, false),
        (Relative, true, false),
        (Strict, true, true),
    ] {
        let device = made("-t ext4", 8192);
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let options = OpenOptions::default();
        let fs = Volume::open(device, clock.clone(), &options).unwrap();
        fs.note_access(times);
        let file = file(&fs, "file");
        file.write_at(0, b"contents").unwrap();
        for noted in [first, second] {
            let before = file.inode().atime;
            clock.advance(Duration::from_secs(10));
            file.read_at(0, &mut [0; 8]).unwrap();
            assert_eq!(file.inode().atime != before, noted, "{times:?}");
        }
        drop(file);
        fs.close().unwrap();
    }
}

/// A device that counts how often it is flushed.
#[derive(Debug)]
struct Counting(Arc<MemoryDevice>, AtomicU32);

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.1.fetch_add(1, SeqCst);
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.0.discard(offset, len)
    }
}

#[test]
fn without_barriers_only_the_end_is_flushed() {
    for (options, flushes) in [("nobarrier", false), ("nobarrier,barrier", true)] {
        let device = made("-t ext4", 8192);
        let counting = Arc::new(Counting(device.clone(), AtomicU32::new(0)));
        let fs = open(counting.clone(), OpenOptions::default(), options).unwrap();
        let before = counting.1.load(SeqCst);
        let file = file(&fs, "file");
        file.write_at(0, &[1; 10_000]).unwrap();
        file.fsync().unwrap();
        fs.sync().unwrap();
        let between = counting.1.load(SeqCst);
        assert_eq!(between > before, flushes, "{options}");
        drop(file);
        fs.close().unwrap();
        assert!(counting.1.load(SeqCst) > between, "{options}");
        judge(&device, options);
    }
}
