//! Moments that only the engine's insides can choose: a commit between two writes of one file, a look
//! at a map that is about to change, an inode that memory lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock};
use uext4_extent_status::Status;
use uext4_ondisk::{Ino, Lblk};

use crate::bulk::NewInode;
use crate::create::{Creation, create};
use crate::fallocate::{Fallocate, fallocate};
use crate::file_change::{fsync, known, write};
use crate::inode_ref::InodeRef;
use crate::memory::Shrinker;
use crate::namei::lookup;
use crate::sbi::Sbi;
use crate::super_::{OpenOptions, adopt_orphans, close, open_rw};
use crate::testing::{e2fsck, mke2fs, mount, unmount_and_check};

/// What data begins with.
const MARK: u8 = 0xA7;
/// Bytes of a file that are of one kind, before others come.
const PART: u64 = 64 << 10;

fn root(sbi: &Arc<Sbi>) -> InodeRef {
    InodeRef::get(sbi, Ino::ROOT).unwrap()
}

fn new_file(sbi: &Arc<Sbi>, name: &[u8]) -> InodeRef {
    create(&root(sbi), name, NewInode::File, &Creation::default()).unwrap()
}

/// A device that commits before every write of data that does not go on where the last one ended, and
/// before each part of a run of data.
#[derive(Debug)]
struct Eager {
    base: Arc<MemoryDevice>,
    sbi: Mutex<Weak<Sbi>>,
    busy: AtomicBool,
    /// Where the run of data began, and where its last write ended.
    start: AtomicU64,
    end: AtomicU64,
    /// What the device held after each of these commits.
    images: Mutex<Vec<MemoryDevice>>,
}

impl BlockDevice for Eager {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        if buf.first() == Some(&MARK) && !self.busy.swap(true, Relaxed) {
            if self.end.swap(offset + buf.len() as u64, Relaxed) != offset {
                self.start.store(offset, Relaxed);
            }
            if (offset - self.start.load(Relaxed)).is_multiple_of(PART) {
                let sbi = self.sbi.lock().upgrade().unwrap();
                sbi.rw().unwrap().journal.commit_now(&*sbi).unwrap();
                self.images.lock().push(self.base.snapshot());
            }
            self.busy.store(false, Relaxed);
        }
        self.base.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.base.discard(offset, len)
    }
}

/// Recovers what a device held, and asserts that e2fsck finds nothing wrong.
fn recovers(image: MemoryDevice) -> Arc<Sbi> {
    let image = Arc::new(image);
    let sbi = mount(&image);
    adopt_orphans(&sbi).unwrap();
    unmount_and_check(&sbi, &image);
    mount(&image)
}

#[test]
fn no_transaction_leaves_written_blocks_past_the_end() {
    let base = mke2fs("-t ext4 -b 1024", 65_536);
    let device = Arc::new(Eager {
        base,
        sbi: Mutex::default(),
        busy: AtomicBool::new(false),
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        images: Mutex::default(),
    });
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let sbi = Arc::new(open_rw(Arc::clone(&device) as _, clock, &OpenOptions::default()).unwrap());
    *device.sbi.lock() = Arc::downgrade(&sbi);
    let file = new_file(&sbi, b"file");
    // New blocks, blocks that were allocated before, new blocks: written one after the other.
    let how = Fallocate::Allocate { keep_size: true };
    fallocate(&file, how, PART, PART).unwrap();
    write(&file, 0, &vec![MARK; 3 * PART as usize], false).unwrap();
    fsync(&file, true).unwrap();
    // The last may follow the ones allocated before on the device, and be written with them.
    let images = std::mem::take(&mut *device.images.lock());
    assert!(images.len() >= 2);
    for image in images {
        recovers(image);
    }
    drop(file);
    close(&sbi).unwrap();
    e2fsck(&device.base);
}

#[test]
fn what_is_punched_out_is_known_to_nobody() {
    let device = mke2fs("-t ext4 -b 4096", 65_536);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    write(&file, 0, &vec![MARK; 64 << 10], false).unwrap();
    fsync(&file, true).unwrap();
    let status = || known(&sbi, &file, Lblk(5), 1).unwrap().status;
    assert_eq!(status(), Status::Written);
    thread::scope(|scope| {
        // A commit that waits for this handle keeps others from being started.
        let handle = sbi.start(4).unwrap();
        let commit = scope.spawn(|| sbi.rw().unwrap().journal.commit_now(&*sbi));
        thread::sleep(Duration::from_millis(100));
        let punch = scope.spawn(|| fallocate(&file, Fallocate::PunchHole, 16 << 10, 16 << 10));
        while file
            .known_blocks_if_any()
            .is_some_and(|known| known.lookup(Lblk(5)).is_some())
        {
            thread::yield_now();
        }
        // As a flusher does that looks for a place next to it.
        assert_eq!(status(), Status::Written);
        drop(handle);
        commit.join().unwrap().unwrap();
        punch.join().unwrap().unwrap();
    });
    assert_eq!(status(), Status::Hole);
    drop(file);
    unmount_and_check(&sbi, &device);
}

#[test]
fn what_memory_lost_is_made_durable() {
    let device = mke2fs("-t ext4", 65_536);
    let sbi = mount(&device);
    let ino = new_file(&sbi, b"file").ino();
    let inodes = &sbi.rw().unwrap().inodes;
    // The first pass may only clear marks of use.
    while inodes.scan(u64::MAX) > 0 {}
    let file = InodeRef::get(&sbi, ino).unwrap();
    fsync(&file, true).unwrap();
    let after = recovers(device.snapshot());
    assert_eq!(
        lookup(&after, &root(&after).inode.read(), b"file").unwrap(),
        ino
    );
}
