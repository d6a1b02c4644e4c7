//! Full file systems: every error is clean, nothing that was taken in is lost, and what is
//! deleted can be had again.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use uext4::data::Fallocate;
use uext4::xattr::SetMode;
use uext4::{Creation, Error, FileType, NewInode, OpenInode, SetAttributes, Volume};
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock, WriteRequest};

use super::device::{judge, made, mount, mount_small};

const FLAGS: [&str; 5] = [
    "-t ext4 -N 256",
    "-t ext4 -b 1024 -N 256 -O orphan_file",
    "-t ext4 -N 256 -O ^has_journal",
    "-t ext3 -b 1024 -N 256",
    "-t ext2 -N 256",
];

const CREATION: Creation = Creation {
    mode: 0o700,
    umask: 0,
    uid: 0,
    gid: 0,
};

fn open(flags: &str) -> (Arc<MemoryDevice>, Volume) {
    let device = made(flags, 8192);
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let fs = mount_small(device.clone(), &clock, 512 << 10);
    (device, fs)
}

fn close(fs: Volume, device: &MemoryDevice, flags: &str) {
    fs.close().unwrap();
    drop(fs);
    judge(device, flags);
}

fn no_space(error: &Error) -> bool {
    matches!(
        error,
        Error::NoSpace { .. } | Error::NoInodes { .. } | Error::XattrsTooBig { .. }
    )
}

/// The value, or `None` for want of space; nothing else may go wrong.
fn fits<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if no_space(&error) => None,
        Err(error) => panic!("{error:?}"),
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i * 13 + seed * 7 + i / 300) as u8)
        .collect()
}

/// Writes file after file until nothing fits; how many bytes each took.
fn fill(dir: &OpenInode) -> Vec<usize> {
    let mut sizes = Vec::new();
    loop {
        let number = sizes.len() as u64;
        let name = format!("file {number}");
        let Some(file) = fits(dir.create(name.as_bytes(), NewInode::File, &CREATION)) else {
            return sizes;
        };
        let data = bytes(number, 200_000);
        let mut at = 0;
        // Ever smaller pieces, down to a byte.
        let mut len = 50_000;
        while at < data.len() && len > 0 {
            let end = data.len().min(at + len);
            match fits(file.write_at(at as u64, &data[at..end])) {
                Some(taken) => at += taken,
                None => len /= 4,
            }
        }
        sizes.push(at);
        if at == 0 {
            return sizes;
        }
    }
}

fn check(dir: &OpenInode, sizes: &[usize]) {
    for (number, size) in sizes.iter().enumerate() {
        let file = dir.lookup(format!("file {number}").as_bytes()).unwrap();
        let mut found = vec![0; size + 1];
        assert_eq!(file.read_at(0, &mut found).unwrap(), *size);
        assert!(found[..*size] == bytes(number as u64, *size), "{number}");
    }
}

fn names(dir: &OpenInode) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    dir.list(0, &mut |&uext4::Listed { name, .. }| {
        names.push(name.to_vec());
        true
    })
    .unwrap();
    names.retain(|name| name != b"." && name != b"..");
    names
}

/// Deletes all that is in a directory.
fn empty(dir: &OpenInode) {
    for name in names(dir) {
        let child = dir.lookup(&name).unwrap();
        if child.inode().file_type == FileType::Directory {
            empty(&child);
            dir.rmdir(&name).unwrap();
        } else {
            dir.unlink(&name).unwrap();
        }
    }
}

#[test]
fn data_fill_it_again_and_again() {
    for flags in FLAGS {
        let (device, fs) = open(flags);
        let root = fs.root().unwrap();
        let mut first = None;
        for round in 0..3 {
            let sizes = fill(&root);
            let total: usize = sizes.iter().sum();
            assert!(total > 4_000_000, "{flags}: {total}");
            assert!(
                (*first.get_or_insert(total)).abs_diff(total) < 20_000,
                "{flags}: {total}"
            );
            // What is there can be overwritten.
            let file = root.lookup(b"file 0").unwrap();
            assert_eq!(file.write_at(0, &bytes(0, 100_000)).unwrap(), 100_000);
            if round == 1 {
                fs.sync().unwrap();
            }
            check(&root, &sizes);
            drop(file);
            empty(&root);
        }
        drop(root);
        close(fs, &device, flags);
    }
}

#[test]
fn what_was_taken_in_is_there_after_a_remount() {
    for flags in FLAGS {
        let (device, fs) = open(flags);
        let root = fs.root().unwrap();
        let sizes = fill(&root);
        drop(root);
        close(fs, &device, flags);
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let fs = mount_small(device.clone(), &clock, 512 << 10);
        let root = fs.root().unwrap();
        check(&root, &sizes);
        empty(&root);
        drop(root);
        close(fs, &device, flags);
    }
}

#[test]
fn inodes_run_out() {
    for flags in FLAGS {
        let (device, fs) = open(flags);
        let root = fs.root().unwrap();
        let mut counts = Vec::new();
        for _ in 0..3 {
            let mut count = 0;
            let error = loop {
                let name = format!("{count}");
                match root.create(name.as_bytes(), NewInode::File, &CREATION) {
                    Ok(_) => count += 1,
                    Err(error) => break error,
                }
            };
            assert!(
                matches!(error, Error::NoInodes { .. }),
                "{flags}: {error:?}"
            );
            let taken = root.create(b"1", NewInode::File, &CREATION);
            assert!(matches!(taken, Err(Error::Exists)), "{flags}: {taken:?}");
            assert!(matches!(
                root.create_unnamed(NewInode::File, &CREATION),
                Err(Error::NoInodes { .. })
            ));
            // Names need no inodes.
            let file = root.lookup(b"0").unwrap();
            file.link(&root, b"link").unwrap();
            root.unlink(b"link").unwrap();
            counts.push(count);
            for number in 0..count {
                root.unlink(format!("{number}").as_bytes()).unwrap();
            }
        }
        assert!(counts[0] > 200 && counts.iter().all(|c| *c == counts[0]));
        drop(root);
        close(fs, &device, flags);
    }
}

/// Directories with names, links and attributes until nothing of it fits any more.
fn grow(root: &OpenInode) -> u32 {
    let mut made = 0;
    let name = |number: u32| format!("{number:0200}").into_bytes();
    let target = vec![b't'; 900];
    let value = bytes(1, 600);
    let file = root.create(b"linked", NewInode::File, &CREATION).unwrap();
    loop {
        let Some(dir) = fits(root.create(&name(made), NewInode::Directory, &CREATION)) else {
            return made;
        };
        made += 1;
        fits(dir.set_xattr(b"user.a", Some(&value), SetMode::Any));
        fits(dir.create(b"link", NewInode::Symlink(&target), &CREATION));
        for number in 0..200 {
            if fits(file.link(&dir, &name(number))).is_none() {
                break;
            }
        }
    }
}

#[test]
fn directories_links_and_attributes_fill_it() {
    for flags in FLAGS {
        let flags = flags.replace("-N 256", "-N 2048");
        let (device, fs) = open(&flags);
        let root = fs.root().unwrap();
        let first = grow(&root);
        assert!(first > 30, "{flags}: {first}");
        empty(&root);
        let second = grow(&root);
        assert!(first.abs_diff(second) < 10, "{flags}: {first}, {second}");
        fs.sync().unwrap();
        drop(root);
        close(fs, &device, &flags);
    }
}

#[test]
fn ranges_that_do_not_fit() {
    for flags in &FLAGS[..3] {
        let (device, fs) = open(flags);
        let root = fs.root().unwrap();
        let file = root.create(b"f", NewInode::File, &CREATION).unwrap();
        let allocate = Fallocate::Allocate { keep_size: false };
        let result = file.fallocate(allocate, 0, 20 << 20);
        assert!(matches!(result, Err(Error::NoSpace { .. })), "{result:?}");
        let change = SetAttributes {
            size: Some(0),
            ..SetAttributes::default()
        };
        file.set_attributes(&change).unwrap();
        file.fallocate(allocate, 0, 4 << 20).unwrap();
        let sizes = fill(&root);
        // What was allocated can be written although nothing is free.
        file.write_at(1 << 20, &bytes(9, 1 << 20)).unwrap();
        file.fsync().unwrap();
        // Cutting an extent in two, and in many.
        for block in 0..200 {
            let result = file.fallocate(Fallocate::PunchHole, block * 16_384, 4096);
            fits(result);
        }
        check(&root, &sizes);
        drop((root, file));
        close(fs, &device, flags);
    }
}

/// Writes blocks so far apart that they are five extents, which do not fit an inode, to so many
/// files; they are not mapped yet.
fn scatter(root: &OpenInode, files: usize) -> Vec<OpenInode> {
    let scattered = |number| {
        let name = format!("scattered {number}");
        let file = root.create(name.as_bytes(), NewInode::File, &CREATION);
        let file = file.unwrap();
        for piece in 0..5 {
            file.write_at(piece << 20, &[number as u8; 1000]).unwrap();
        }
        file
    };
    (0..files).map(scattered).collect()
}

/// What gives blocks back, or moves them, goes on where no other thread gets any.
#[test]
fn ranges_of_a_full_file_system_are_given_back_and_moved() {
    for flags in &FLAGS[..3] {
        let flags = flags.replace("-N 256", "-N 2048");
        let device = made(&flags, 8192);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let file = root.create(b"f", NewInode::File, &CREATION).unwrap();
        let data = bytes(5, 1 << 20);
        assert_eq!(file.write_at(0, &data).unwrap(), data.len());
        file.fsync().unwrap();
        // Trees take of what names have left.
        let scattered = scatter(&root, 10);
        let sizes = fill(&root);
        grow(&root);
        fs.sync().unwrap();
        let zero = Fallocate::ZeroRange { keep_size: true };
        file.fallocate(zero, 262_144, 16_384).unwrap();
        file.fallocate(Fallocate::InsertRange, 524_288, 4096)
            .unwrap();
        file.fallocate(Fallocate::PunchHole, 65_536, 16_384)
            .unwrap();
        file.fallocate(Fallocate::CollapseRange, 786_432, 4096)
            .unwrap();
        let mut found = vec![0; 65_536];
        assert_eq!(file.read_at(0, &mut found).unwrap(), found.len());
        assert!(found == data[..65_536], "{flags}");
        check(&root, &sizes);
        drop((root, file, scattered));
        close(fs, &device, &flags);
    }
}

/// Trees of many pieces may take more than is left for them; what was freed meanwhile will do.
#[test]
fn what_finds_no_place_is_tried_again_with_what_was_freed() {
    for closes in [false, true] {
        // One transaction has room for all of it.
        let flags = "-t ext4 -b 4096 -N 1024 -J size=4";
        let device = made(flags, 16_384);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let old = root.create(b"old", NewInode::File, &CREATION).unwrap();
        assert_eq!(old.write_at(0, &vec![1; 1 << 20]).unwrap(), 1 << 20);
        fs.sync().unwrap();
        drop(old);
        let scattered = scatter(&root, 130);
        let rest = root.create(b"rest", NewInode::File, &CREATION).unwrap();
        let mut end = 0;
        while let Some(taken) = fits(rest.write_at(end, &vec![3; 1 << 20])) {
            end += taken as u64;
        }
        root.unlink(b"old").unwrap();
        if !closes {
            fs.sync().unwrap();
        }
        drop((scattered, rest, root));
        close(fs, &device, flags);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        for number in 0..130 {
            let file = root.lookup(format!("scattered {number}").as_bytes());
            let mut found = [0; 1000];
            file.unwrap().read_at(4 << 20, &mut found).unwrap();
            assert_eq!(found, [number as u8; 1000]);
        }
        drop(root);
        close(fs, &device, flags);
    }
}

/// Each block far from the others takes a table: that is reserved with it.
#[test]
fn tables_of_a_sparse_file_without_extents_have_their_place() {
    for flags in ["-t ext3 -b 1024 -N 256", "-t ext2 -b 1024 -N 256"] {
        for step in [256 << 10, 64 << 20] {
            let device = made(flags, 8192);
            let fs = mount(device.clone());
            let root = fs.root().unwrap();
            let mut written = Vec::new();
            'all: for number in 0u64.. {
                let name = format!("{number}");
                let file = root.create(name.as_bytes(), NewInode::File, &CREATION);
                let Some(file) = fits(file) else { break };
                for at in (0..16u64 << 30).step_by(step) {
                    match file.write_at(at, &at.to_le_bytes()) {
                        Err(Error::FileTooBig) => break,
                        taken => match fits(taken) {
                            Some(taken) => assert_eq!(taken, 8),
                            None => break 'all,
                        },
                    }
                    written.push((number, at));
                }
                if number == 0 {
                    file.fsync().unwrap();
                }
            }
            assert!(written.len() > 1500, "{flags}: {}", written.len());
            // Names go on next to it.
            fs.sync().unwrap();
            fits(root.create(b"d", NewInode::Directory, &CREATION));
            for (number, at) in &written {
                let file = root.lookup(format!("{number}").as_bytes()).unwrap();
                let mut found = [0; 8];
                file.read_at(*at, &mut found).unwrap();
                assert_eq!(u64::from_le_bytes(found), *at, "{flags}");
            }
            // All that was reserved was taken or given back: as many fit a second time.
            let names = names(&root);
            for name in names.iter().filter(|name| *name != b"lost+found") {
                let child = root.lookup(name).unwrap();
                match child.inode().file_type {
                    FileType::Directory => root.rmdir(name).unwrap(),
                    _ => root.unlink(name).unwrap(),
                }
            }
            assert!(fill(&root).iter().sum::<usize>() > 4_000_000, "{flags}");
            drop(root);
            close(fs, &device, flags);
        }
    }
}

/// A device whose large writes stop until they are let go.
#[derive(Debug)]
struct Held {
    inner: Arc<MemoryDevice>,
    is_closed: Mutex<bool>,
    opened: Condvar,
    stopped: AtomicBool,
}

impl BlockDevice for Held {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.inner.write_at(offset, buf)
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let mut is_closed = self.is_closed.lock().unwrap();
        while *is_closed {
            self.stopped.store(true, SeqCst);
            is_closed = self.opened.wait(is_closed).unwrap();
        }
        drop(is_closed);
        self.inner.write_many(requests)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}

#[test]
fn blocks_that_a_flusher_has_taken_do_not_count_twice() {
    let device = Arc::new(Held {
        inner: made("-t ext4 -b 1024 -J size=1", 16_384),
        is_closed: Mutex::new(true),
        opened: Condvar::new(),
        stopped: AtomicBool::new(false),
    });
    let fs = mount(Arc::clone(&device) as _);
    let root = fs.root().unwrap();
    let files = [b"one", b"two"].map(|name| root.create(name, NewInode::File, &CREATION).unwrap());
    // Two thirds of what there is.
    files[0].write_at(0, &bytes(1, 7 << 20)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| files[0].fsync().unwrap());
        while !device.stopped.load(SeqCst) {
            std::thread::yield_now();
        }
        let written = scope.spawn(|| files[1].write_at(0, &bytes(2, 4 << 20)));
        std::thread::sleep(std::time::Duration::from_millis(50));
        *device.is_closed.lock().unwrap() = false;
        device.opened.notify_all();
        assert_eq!(written.join().unwrap().unwrap(), 4 << 20);
    });
    drop((root, files));
    close(fs, &device.inner, "");
}
