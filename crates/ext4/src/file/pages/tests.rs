//! Tests of moments that only code inside the engine can choose: a commit between two writes of
//! one file, a lookup in a map that is about to change, an inode that was evicted from memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock};
use uext4_extent_status::Status;
use uext4_mballoc::Run;
use uext4_ondisk::{Ino, Lblk};
use uext4_writeback::Mapping as _;

use super::{FilePages, contradiction, make_written, map_taken};
use crate::base::error::Error;
use crate::base::mapping::{LblkRun, MapState, Mapping};
use crate::base::memory::Shrinker;
use crate::bulk::NewInode;
use crate::dir::namei::lookup;
use crate::file::change::{fsync, known, truncate_locked, write_with};
use crate::file::fallocate::{Fallocate, fallocate};
use crate::file::fiemap::precache;
use crate::file::inode_ref::InodeRef;
use crate::file::write_context::WriteContext;
use crate::journal::sbi::Sbi;
use crate::map::data_blocks::{discard, take};
use crate::mount::open_options::OpenOptions;
use crate::mount::super_::{adopt_orphans, open_rw};
use crate::names::create::{Creation, create};
use crate::testing::{close, e2fsck, mke2fs, mount, mount_with, unmount_and_check};

/// The first bytes of the data.
const MARK: u8 = 0xA7;
/// Bytes of a part of the file whose blocks are all in the same state.
const PART: u64 = 64 << 10;

fn root(sbi: &Arc<Sbi>) -> InodeRef {
    InodeRef::get(sbi, Ino::ROOT).unwrap()
}

fn new_file(sbi: &Arc<Sbi>, name: &[u8]) -> InodeRef {
    create(&root(sbi), name, NewInode::File, &Creation::default()).unwrap()
}

/// A device that commits before every write of data that does not continue where the last one
/// ended, and before each part of a run of data.
#[derive(Debug)]
struct Eager {
    base: Arc<MemoryDevice>,
    sbi: Mutex<Weak<Sbi>>,
    busy: AtomicBool,
    /// The start of the run of data, and the end of its last write.
    start: AtomicU64,
    end: AtomicU64,
    /// The device contents after each of these commits.
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

/// Recovers an image, and asserts that e2fsck finds no error in it.
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
    // New blocks, preallocated blocks, new blocks: written one after the other.
    let how = Fallocate::Allocate { keep_size: true };
    fallocate(&file, how, PART, PART).unwrap();
    write_with(
        &file,
        WriteContext::default(),
        0,
        &vec![MARK; 3 * PART as usize],
    )
    .unwrap();
    fsync(&file, true).unwrap();
    // The last blocks may follow the preallocated ones on the device, and be written with them.
    let images = std::mem::take(&mut *device.images.lock());
    assert!(images.len() >= 2);
    for image in images {
        recovers(image);
    }
    drop(file);
    close(&sbi);
    e2fsck(&device.base);
}

#[test]
fn punched_blocks_are_in_no_cache() {
    let device = mke2fs("-t ext4 -b 4096", 65_536);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    write_with(&file, WriteContext::default(), 0, &vec![MARK; 64 << 10]).unwrap();
    fsync(&file, true).unwrap();
    let status = || known(&sbi, &file, Lblk(5), 1).unwrap().status;
    assert_eq!(status(), Status::Written);
    thread::scope(|scope| {
        // A commit that waits for this handle delays the start of new handles.
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
        // As a flusher does that looks for adjacent blocks.
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
    // The first pass may only clear reference bits.
    while inodes.scan(u64::MAX) > 0 {}
    let file = InodeRef::get(&sbi, ino).unwrap();
    fsync(&file, true).unwrap();
    let after = recovers(device.snapshot());
    assert_eq!(
        lookup(&after, &root(&after).inode.read(), b"file").unwrap(),
        ino
    );
}

/// Writes every second block of a file, with one write each.
fn every_second(file: &InodeRef, blocks: u64, block: u64) {
    for at in (0..blocks).step_by(2) {
        let context = WriteContext::default();
        write_with(file, context, at * block, &vec![MARK; block as usize]).unwrap();
    }
}

#[test]
fn a_miss_among_delayed_blocks_brings_back_little() {
    let device = mke2fs("-t ext4 -b 1024", 65_536);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    // A file whose map is empty caches no holes.
    write_with(&file, WriteContext::default(), 9000 << 10, &[1; 1024]).unwrap();
    fsync(&file, true).unwrap();
    every_second(&file, 4000, 1024);
    let tree = file.known_blocks_if_any().unwrap();
    tree.clear_cache();
    let room = sbi.rw().unwrap().inodes.room();
    assert_eq!(room.count(), 0);
    assert!(tree.delayed_blocks() > 1000);
    assert_eq!(
        known(&sbi, &file, Lblk(2001), 100).unwrap().status,
        Status::Hole
    );
    // Only the requested range is cached: according to the leaf, the whole file is a hole.
    assert!((1..=50).contains(&room.count()), "{}", room.count());
    assert_eq!(contradiction(&sbi, &file).unwrap(), None);
    drop(file);
    unmount_and_check(&sbi, &device);
}

/// Allocates all available blocks.
fn take_all(sbi: &Sbi, file: &InodeRef) -> Vec<Run> {
    let mut all = Vec::new();
    for len in [1024, 64, 1] {
        let start = Lblk(100_000);
        loop {
            match take(sbi, file, LblkRun { start, len }, true) {
                Ok(run) => all.push(run),
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
            discard(sbi, file);
        }
    }
    all
}

#[test]
fn a_half_marked_range_loses_its_cached_status() {
    let device = mke2fs("-t ext4 -b 1024", 8192);
    let sbi = mount(&device);
    let (file, other) = (new_file(&sbi, b"file"), new_file(&sbi, b"other"));
    truncate_locked(&file, 40 << 10).unwrap();
    let mut aside = Vec::new();
    // Four extents that are not adjacent on the device: the inode has no space for a fifth.
    for at in (0..40).step_by(10) {
        let hole = LblkRun {
            start: Lblk(at),
            len: 10,
        };
        aside.push(take(&sbi, &file, hole, true).unwrap());
        let run = take(&sbi, &file, hole, true).unwrap();
        assert_eq!(run.len, 10);
        map_taken(&sbi, &file, Lblk(at), run, true).unwrap();
    }
    discard(&sbi, &file);
    aside.extend(take_all(&sbi, &other));
    let first = known(&sbi, &file, Lblk(0), 15).unwrap();
    assert_eq!((first.len, first.status), (10, Status::Unwritten));
    let both = Mapping {
        lblk: Lblk(0),
        len: 15,
        pblk: first.pblk,
        state: MapState::Unwritten,
    };
    let error = make_written(&sbi, &file, &both).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert_eq!(contradiction(&sbi, &file).unwrap(), None);
    let status = |lblk| known(&sbi, &file, Lblk(lblk), 1).unwrap().status;
    assert_eq!([0, 12].map(status), [Status::Written, Status::Unwritten]);
    aside
        .into_iter()
        .for_each(|run| sbi.rw().unwrap().allocator.cancel(run));
    drop((file, other));
    unmount_and_check(&sbi, &device);
}

#[test]
fn readers_never_see_what_others_wrote_to_freed_blocks() {
    const LEN: u64 = 256 << 10;
    let device = mke2fs("-t ext4 -b 1024 -N 64", 4096);
    let sbi = mount(&device);
    let (file, other) = (new_file(&sbi, b"file"), new_file(&sbi, b"other"));
    let (cell, _) = sbi
        .rw()
        .unwrap()
        .inodes
        .get(&sbi, file.ino(), |_| Ok(()))
        .unwrap();
    let _user = InodeRef::new(&sbi, Arc::clone(&cell));
    let pages = FilePages::new(&sbi, &Arc::downgrade(&cell));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut buf = vec![0; LEN as usize];
                    while !done.load(Relaxed) {
                        // As when a page that is not in memory is read.
                        pages.read_blocks(0, &mut buf).unwrap();
                        assert!(buf.iter().all(|byte| [0, MARK].contains(byte)));
                    }
                })
            })
            .collect();
        for round in 0..30 {
            write_with(&file, WriteContext::default(), 0, &vec![MARK; LEN as usize]).unwrap();
            fsync(&file, true).unwrap();
            match round % 2 {
                0 => fallocate(&file, Fallocate::PunchHole, 0, LEN).unwrap(),
                _ => truncate_locked(&file, 0).unwrap(),
            }
            assert_eq!(contradiction(&sbi, &file).unwrap(), None);
            sbi.rw().unwrap().journal.commit_now(&*sbi).unwrap();
            // Most of the device: this file gets the blocks that were freed.
            write_with(&other, WriteContext::default(), 0, &vec![!MARK; 2 << 20]).unwrap();
            fsync(&other, true).unwrap();
            truncate_locked(&other, 0).unwrap();
            sbi.rw().unwrap().journal.commit_now(&*sbi).unwrap();
        }
        done.store(true, Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    });
    drop((pages, _user, cell, file, other));
    unmount_and_check(&sbi, &device);
}

#[test]
fn loading_a_map_in_advance_stays_within_the_budget() {
    let device = mke2fs("-t ext4 -b 1024", 131_072);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    every_second(&file, 100_000, 1024);
    fsync(&file, true).unwrap();
    let ino = file.ino();
    drop(file);
    close(&sbi);
    let options = OpenOptions {
        memory: Some(1 << 20),
        ..OpenOptions::default()
    };
    let sbi = mount_with(&device, &options);
    let file = InodeRef::get(&sbi, ino).unwrap();
    precache(&file).unwrap();
    let used = sbi.memory_use();
    assert!(used.extents < 1 << 20, "{used:?}");
    assert!(file.known_blocks_if_any().unwrap().is_precached());
    drop(file);
    unmount_and_check(&sbi, &device);
}
