//! Tests of reservations, sizes and bytes past the end when a write or a truncation is
//! interrupted: by a commit, by a device error, or by a cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use parking_lot::Mutex;
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock};
use uext4_extent_status::{Status, Tree};
use uext4_ondisk::inode::Timestamp;
use uext4_ondisk::{Ino, Lblk, Pblk};
use uext4_writeback::{Error as PagesError, FAILURES_MAX, Paced};

use super::{fsync, known, read, truncate_locked, write_by, write_with};
use crate::bulk::NewInode;
use crate::dir::namei::lookup;
use crate::file::fallocate::{Fallocate, fallocate};
use crate::file::inode_ref::InodeRef;
use crate::file::setattr::{self, SetAttributes, SetTime};
use crate::file::write_context::{WriteContext, WriteMode};
use crate::inode::attr::SetId;
use crate::inode::iget;
use crate::inode::store::store;
use crate::journal::rw::Purpose;
use crate::journal::sbi::Sbi;
use crate::mount::in_use::close;
use crate::mount::open_options::OpenOptions;
use crate::mount::super_::{adopt_orphans, open_rw};
use crate::names::create::{Creation, create};
use crate::testing::{e2fsck, mke2fs, mount, unmount_and_check};

/// The first bytes of the data.
const MARK: u8 = 0xA7;
const BLOCK: u64 = 4096;
const APPENDING: WriteMode = WriteMode {
    append: true,
    gathered: false,
    set_id: SetId::Drop,
};

type Hook = Arc<dyn Fn() -> bool + Send + Sync>;

/// A device that calls a hook before it writes data and before it reads: it fails if the hook
/// returns false.
struct Asking {
    base: Arc<MemoryDevice>,
    may_write: Mutex<Option<Hook>>,
    may_read: Mutex<Option<Hook>>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.base.fmt(f)
    }
}

fn ask(hook: &Mutex<Option<Hook>>, op: &'static str, offset: u64) -> Result<(), DeviceError> {
    // Not under the lock: the hook may write or read, too.
    let hook = hook.lock().clone();
    match hook {
        Some(may) if !may() => Err(DeviceError::Io {
            op,
            offset,
            source: std::io::Error::other("bad blocks"),
        }),
        _ => Ok(()),
    }
}

impl BlockDevice for Asking {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        ask(&self.may_read, "read", offset)?;
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        if buf.first() == Some(&MARK) {
            ask(&self.may_write, "write", offset)?;
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

fn asking(base: Arc<MemoryDevice>) -> (Arc<Asking>, Arc<Sbi>) {
    let device = Arc::new(Asking {
        base,
        may_write: Mutex::default(),
        may_read: Mutex::default(),
    });
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let sbi = open_rw(Arc::clone(&device) as _, clock, &OpenOptions::default()).unwrap();
    (device, Arc::new(sbi))
}

fn root(sbi: &Arc<Sbi>) -> InodeRef {
    InodeRef::get(sbi, Ino::ROOT).unwrap()
}

fn new_file(sbi: &Arc<Sbi>, name: &[u8]) -> InodeRef {
    create(&root(sbi), name, NewInode::File, &Creation::default()).unwrap()
}

fn commit(sbi: &Sbi) {
    sbi.rw().unwrap().journal.commit_now(sbi).unwrap();
}

/// Blocks that may be reserved, once all bitmaps were read.
fn available(sbi: &Sbi) -> u64 {
    let rw = sbi.rw().unwrap();
    assert!(!rw.reserve(sbi, Purpose::Maps, 1 << 40));
    rw.available_blocks()
}

fn delayed(file: &InodeRef) -> u64 {
    file.known_blocks_if_any().map_or(0, Tree::delayed_blocks)
}

fn bytes(blocks: u64) -> Vec<u8> {
    vec![MARK; (blocks * BLOCK) as usize]
}

/// Reads all of a file.
fn content(file: &InodeRef) -> Vec<u8> {
    let mut bytes = vec![0; file.inode.read().size as usize];
    assert_eq!(read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Recovers an image, asserts that e2fsck finds no error in it, and reads the file.
fn recovered(image: MemoryDevice) -> Vec<u8> {
    let image = Arc::new(image);
    let sbi = mount(&image);
    adopt_orphans(&sbi).unwrap();
    unmount_and_check(&sbi, &image);
    let sbi = mount(&image);
    let ino = lookup(&sbi, &root(&sbi).inode.read(), b"file").unwrap();
    content(&InodeRef::get(&sbi, ino).unwrap())
}

/// Truncates a file to zero while a flusher writes it, with commits before and after the flusher
/// has finished: the image after each commit must be recoverable. The flusher writes to allocated
/// blocks if `has_blocks`, else to new ones.
fn cut_amid(has_blocks: bool) {
    let (device, sbi) = asking(mke2fs("-t ext4 -b 4096", 65_536));
    let file = new_file(&sbi, b"file");
    if has_blocks {
        write_with(&file, WriteContext::default(), 0, &bytes(16)).unwrap();
        fsync(&file, true).unwrap();
    }
    write_with(&file, WriteContext::default(), 0, &bytes(16)).unwrap();
    let flags = [false, true].map(|flag| Arc::new(AtomicBool::new(flag)));
    let [entered, stuck] = flags.clone();
    *device.may_write.lock() = Some(Arc::new(move || {
        flags[0].store(true, SeqCst);
        while flags[1].load(SeqCst) {
            thread::yield_now();
        }
        true
    }));
    let image = thread::scope(|scope| {
        let flusher = scope.spawn(|| file.pages().unwrap().flush(0..u64::MAX));
        while !entered.load(SeqCst) {
            thread::yield_now();
        }
        // The truncation waits for the flusher, once no thread reads past the new end.
        let cut = scope.spawn(|| truncate_locked(&file, 0));
        while file.inode.read().size > 0 {
            thread::yield_now();
        }
        let journal = &sbi.rw().unwrap().journal;
        let committed = journal.commit_now(&*sbi);
        let before = device.base.snapshot();
        stuck.store(false, SeqCst);
        flusher.join().unwrap().unwrap();
        committed.and_then(|()| journal.commit_now(&*sbi)).unwrap();
        let after = device.base.snapshot();
        cut.join().unwrap().unwrap();
        [before, after]
    });
    for image in image {
        assert!(recovered(image).is_empty());
    }
    assert_eq!(delayed(&file), 0);
    drop(file);
    unmount_and_check(&sbi, &device.base);
}

#[test]
fn a_commit_in_the_midst_of_a_cut_leaves_no_blocks_past_the_end() {
    cut_amid(true);
}

#[test]
fn a_file_that_gets_blocks_while_it_is_cut_keeps_none() {
    cut_amid(false);
}

#[test]
fn no_size_is_on_disk_before_the_data_below_it() {
    for way in 0..3 {
        let device = mke2fs("-t ext4 -b 4096", 65_536);
        let sbi = mount(&device);
        let file = new_file(&sbi, b"file");
        write_with(&file, WriteContext::default(), 0, &bytes(16)).unwrap();
        let grow = Fallocate::Allocate { keep_size: false };
        match way {
            0 => fallocate(&file, grow, 100 * BLOCK, BLOCK).unwrap(),
            1 => truncate_locked(&file, 8 * BLOCK).unwrap(),
            _ => truncate_locked(&file, 8 * BLOCK + 5).unwrap(),
        }
        commit(&sbi);
        let found = recovered(device.snapshot());
        let data = found.len().min(8 * BLOCK as usize);
        assert!(found[..data].iter().all(|byte| *byte == MARK), "{way}");
        drop(file);
        unmount_and_check(&sbi, &device);
    }
}

#[test]
fn truncation_below_a_hole_sets_the_requested_size() {
    let device = mke2fs("-t ext4 -b 4096", 65_536);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    write_with(&file, WriteContext::default(), 0, &bytes(1)).unwrap();
    write_with(&file, WriteContext::default(), 50 * BLOCK, &bytes(1)).unwrap();
    truncate_locked(&file, 20 * BLOCK).unwrap();
    fsync(&file, true).unwrap();
    let found = recovered(device.snapshot());
    assert_eq!(found.len() as u64, 20 * BLOCK);
    assert_eq!(found[..BLOCK as usize], bytes(1));
    drop(file);
    unmount_and_check(&sbi, &device);
}

#[test]
fn a_reader_brings_in_nothing_past_the_end_while_a_writer_waits() {
    let device = mke2fs("-t ext4 -b 4096", 65_536);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    write_with(&file, WriteContext::default(), 0, &bytes(1)).unwrap();
    fsync(&file, true).unwrap();
    {
        // As a power cut, or another program that wrote to the image before, may leave it.
        let handle = sbi.start(1).unwrap();
        let inode = &mut *file.inode.write();
        inode.size = 10;
        store(&handle, &sbi, inode).unwrap();
    }
    file.drop_pages();
    let called_off = write_by(&file, 0, &[1; 2000], APPENDING, |_, _, _, _| {
        read(&file, 0, &mut [0; 10]).unwrap();
        Err(PagesError::Cancelled)
    });
    assert!(called_off.is_err());
    write_with(&file, WriteContext::default(), 2 * BLOCK, b"new").unwrap();
    let mut expected = vec![MARK; 10];
    expected.resize(2 * BLOCK as usize, 0);
    expected.extend(b"new");
    assert!(content(&file) == expected);
    drop(file);
    unmount_and_check(&sbi, &device);
}

#[test]
fn a_write_that_fails_half_reserved_leaves_no_reservation() {
    let base = mke2fs("-t ext4 -b 1024", 65_536);
    let sbi = mount(&base);
    let file = new_file(&sbi, b"file");
    for at in (0..600).step_by(2) {
        write_with(&file, WriteContext::default(), at << 10, &[MARK; 1024]).unwrap();
    }
    let ino = file.ino();
    drop(file);
    unmount_and_check(&sbi, &base);
    let mut failed = 0;
    for good in 0..6 {
        let (device, sbi) = asking(Arc::new(base.snapshot()));
        let file = InodeRef::get(&sbi, ino).unwrap();
        let before = available(&sbi);
        let left = AtomicU64::new(good);
        *device.may_read.lock() = Some(Arc::new(move || {
            left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok()
        }));
        // From within a block, and from the beginning of one.
        let written = write_with(
            &file,
            WriteContext::default(),
            1124 * (good % 2),
            &vec![MARK; 600 << 10],
        );
        failed += u64::from(written.is_err());
        *device.may_read.lock() = None;
        if written.is_err() {
            assert_eq!((delayed(&file), available(&sbi)), (0, before), "{good}");
        }
        drop(file);
        unmount_and_check(&sbi, &device.base);
    }
    assert!(failed > 2, "{failed}");
}

#[test]
fn a_truncation_that_fails_has_changed_nothing() {
    let (device, sbi) = asking(mke2fs("-t ext4 -b 4096", 16_384));
    let file = new_file(&sbi, b"file");
    let mut data = vec![MARK; 50_000];
    write_with(&file, WriteContext::default(), 0, &data).unwrap();
    *device.may_write.lock() = Some(Arc::new(|| false));
    assert!(truncate_locked(&file, 5000).is_err());
    *device.may_write.lock() = None;
    assert!(content(&file) == data);
    truncate_locked(&file, 5000).unwrap();
    data.truncate(5000);
    assert!(content(&file) == data);
    drop(file);
    unmount_and_check(&sbi, &device.base);
}

/// Fails all writes of data, and calls `last` at the last failure before the data is given up.
fn fails(device: &Asking, last: impl Fn() + Send + Sync + 'static) {
    let tried = AtomicU64::new(0);
    *device.may_write.lock() = Some(Arc::new(move || {
        if tried.fetch_add(1, SeqCst) + 1 == u64::from(FAILURES_MAX) {
            last();
        }
        false
    }));
}

/// Unmounts, which reports that data was given up, and asserts that e2fsck finds no error.
fn lossy_close(sbi: &Sbi, device: &MemoryDevice) {
    assert!(close(sbi, &AtomicU64::new(0)).is_err());
    e2fsck(device);
}

/// Asserts that a reservation stands for each dirty block and for no other.
fn all_reserved(file: &InodeRef, before: u64) {
    let sbi = file.sbi();
    let mut next = 0;
    let mut dirty = 0;
    while let Some(range) = file.pages().unwrap().next_dirty(next) {
        for block in range.start / BLOCK..range.end / BLOCK {
            let here = known(sbi, file, Lblk(block as u32), 1).unwrap();
            assert_eq!(here.status, Status::Delayed, "{block}");
            dirty += 1;
        }
        next = range.end;
    }
    assert_eq!(delayed(file), dirty);
    assert_eq!(before - available(sbi), dirty);
}

#[test]
fn a_write_during_giving_up_keeps_its_reservation() {
    let (device, sbi) = asking(mke2fs("-t ext4 -b 4096", 65_536));
    let file = new_file(&sbi, b"file");
    commit(&sbi);
    let before = available(&sbi);
    write_with(&file, WriteContext::default(), 0, &bytes(16)).unwrap();
    let other = file.clone();
    fails(&device, move || {
        write_with(&other, WriteContext::default(), 5 * BLOCK, &bytes(2)).unwrap();
    });
    for _ in 0..FAILURES_MAX {
        assert!(fsync(&file, true).is_err());
    }
    *device.may_write.lock() = None;
    assert_eq!(file.pages().unwrap().dirty_bytes(), 2 * BLOCK);
    all_reserved(&file, before);
    fsync(&file, true).unwrap();
    all_reserved(&file, available(&sbi));
    drop(file);
    lossy_close(&sbi, &device.base);
}

#[test]
fn giving_up_under_a_writer_keeps_its_reservation() {
    for end in ["write", "fsync", "put"] {
        let (device, sbi) = asking(mke2fs("-t ext4 -b 4096", 65_536));
        let file = new_file(&sbi, b"file");
        commit(&sbi);
        let before = available(&sbi);
        write_with(&file, WriteContext::default(), 0, &bytes(16)).unwrap();
        fails(&device, || ());
        // Blocks that were reserved before, and whose data is given up before the writer uses
        // them.
        let data = bytes(1);
        write_by(
            &file,
            5 * BLOCK,
            &data,
            WriteMode::default(),
            |pages, offset, data, size| {
                for _ in 0..FAILURES_MAX {
                    assert!(pages.flush(0..u64::MAX).is_err());
                }
                let taken = pages.write(offset, data, size)?;
                Ok(Paced {
                    taken,
                    ..Paced::default()
                })
            },
        )
        .unwrap();
        *device.may_write.lock() = None;
        let here = known(&sbi, &file, Lblk(5), 1).unwrap();
        assert_eq!(here.status, Status::Delayed);
        match end {
            "write" => {
                write_with(&file, WriteContext::default(), 0, &bytes(1)).unwrap();
                all_reserved(&file, before);
            }
            "fsync" => {
                // The lost data is reported once.
                assert!(fsync(&file, true).is_err());
                fsync(&file, true).unwrap();
                assert_eq!(delayed(&file), 0);
            }
            _ => {
                let cell = file.clone();
                drop(file);
                all_reserved(&cell, before);
                drop(cell);
                lossy_close(&sbi, &device.base);
                continue;
            }
        }
        drop(file);
        lossy_close(&sbi, &device.base);
    }
}

#[test]
fn fsync_has_what_was_freed_committed_where_that_makes_space() {
    let device = mke2fs("-t ext4", 8192);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    write_with(&file, WriteContext::default(), 0, &bytes(16)).unwrap();
    sbi.writable().unwrap().journal.commit_now(&*sbi).unwrap();
    // Other operations allocate the reserved blocks and free them; until the commit they are
    // unusable.
    let handle = sbi.start(64).unwrap();
    let taken: Vec<Pblk> = std::iter::from_fn(|| handle.take_block(Pblk(0)).ok()).collect();
    assert!(taken.len() > 16);
    for block in taken {
        handle.free_blocks(block, 1).unwrap();
    }
    drop(handle);
    fsync(&file, true).unwrap();
    let mut read_back = vec![0; 16 * BLOCK as usize];
    read(&file, 0, &mut read_back).unwrap();
    assert!(read_back == bytes(16));
    drop(file);
    unmount_and_check(&sbi, &device);
}

#[test]
fn data_given_up_for_lack_of_space_are_reported_later() {
    let device = mke2fs("-t ext4", 8192);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    write_with(&file, WriteContext::default(), 0, &bytes(16)).unwrap();
    commit(&sbi);
    let handle = sbi.start(64).unwrap();
    let taken: Vec<Pblk> = std::iter::from_fn(|| handle.take_block(Pblk(0)).ok()).collect();
    drop(handle);
    let other = file.clone();
    for _ in 0..FAILURES_MAX {
        assert!(fsync(&other, true).is_err());
    }
    assert_eq!(file.pages().unwrap().dirty_bytes(), 0);
    let handle = sbi.start(64).unwrap();
    for block in taken {
        handle.free_blocks(block, 1).unwrap();
    }
    drop(handle);
    assert!(sbi.writable().unwrap().has_freed());
    assert!(fsync(&file, true).is_err());
    fsync(&file, true).unwrap();
    drop((file, other));
    lossy_close(&sbi, &device);
}

#[test]
fn of_a_new_file_only_delayed_blocks_are_cached_until_it_is_mapped() {
    let device = mke2fs("-t ext4 -b 4096", 65_536);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    let known_now = || file.known_blocks_if_any().map_or(Vec::new(), Tree::extents);
    write_with(&file, WriteContext::default(), 0, &bytes(2)).unwrap();
    write_with(&file, WriteContext::default(), 2 * BLOCK, &bytes(1)).unwrap();
    write_with(&file, WriteContext::default(), 9 * BLOCK, &bytes(1)).unwrap();
    assert!(known_now().iter().all(|k| k.status == Status::Delayed));
    assert_eq!(delayed(&file), 4);
    let at = |lblk| known(&sbi, &file, Lblk(lblk), 100).unwrap();
    assert_eq!((at(1).status, at(1).len), (Status::Delayed, 2));
    assert_eq!((at(4).status, at(4).len), (Status::Hole, 5));
    assert_eq!((at(10).status, at(10).len), (Status::Hole, 100));
    fsync(&file, true).unwrap();
    assert_eq!(delayed(&file), 0);
    assert_eq!((at(1).status, at(1).len), (Status::Written, 2));
    assert_eq!((at(4).status, at(4).len), (Status::Hole, 5));
    let all = content(&file);
    assert_eq!(
        (&all[..BLOCK as usize], all.len()),
        (&bytes(1)[..], 10 * BLOCK as usize)
    );
    drop(file);
    unmount_and_check(&sbi, &device);
}

#[test]
fn attributes_of_a_file_that_waits_for_a_commit_are_stored_with_it() {
    let device = mke2fs("-t ext4 -b 4096", 65_536);
    let sbi = mount(&device);
    let file = new_file(&sbi, b"file");
    commit(&sbi);
    let journal = &sbi.rw().unwrap().journal;
    let pinned = journal.pinned();
    write_with(&file, WriteContext::default(), 0, &bytes(1)).unwrap();
    let time = Timestamp { sec: 7, nsec: 5 };
    let attributes = SetAttributes {
        mode: Some(0o640),
        uid: Some(3),
        gid: Some(70_000),
        mtime: Some(SetTime::To(time)),
        ..SetAttributes::default()
    };
    setattr::set(&file, &attributes).unwrap();
    // The inode's block is no part of the transaction until it is closed.
    assert_eq!(journal.pinned(), pinned);
    commit(&sbi);
    // What changes it now is stored at once: no write waits.
    assert!(!file.is_changed_later());
    let touched = SetAttributes {
        atime: Some(SetTime::To(time)),
        ..SetAttributes::default()
    };
    setattr::set(&file, &touched).unwrap();
    assert!(!file.is_changed_later());
    commit(&sbi);
    let image = Arc::new(device.snapshot());
    let after = mount(&image);
    let ino = lookup(&after, &root(&after).inode.read(), b"file").unwrap();
    let inode = iget(&after, ino).unwrap();
    assert_eq!((inode.mode, inode.uid, inode.gid), (0o100_640, 3, 70_000));
    assert_eq!((inode.mtime, inode.atime), (time, time));
    unmount_and_check(&after, &image);
    drop(file);
    unmount_and_check(&sbi, &device);
}
