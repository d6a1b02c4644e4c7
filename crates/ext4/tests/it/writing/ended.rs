//! Writing that ends, or waits: flushes that fail, and a host that has no room for the image.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uext4::{Creation, Error, NewInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock};

use super::device::{file, judge, made};

/// A device whose writes, or flushes, fail while they are to.
#[derive(Debug)]
struct Failing {
    inner: Arc<MemoryDevice>,
    is_full: AtomicBool,
    flushes_fail: AtomicBool,
}

impl BlockDevice for Failing {
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
        match self.is_full.load(SeqCst) {
            true => Err(DeviceError::io("write", offset, io::ErrorKind::StorageFull)),
            false => self.inner.write_at(offset, buf),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        match self.flushes_fail.load(SeqCst) {
            true => Err(DeviceError::io("flush", 0, io::ErrorKind::Other)),
            false => self.inner.flush(),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}

/// A file system on such a device, its clock, and the image.
fn mounted(flags: &str) -> (Volume, Arc<Failing>, Arc<VirtualClock>) {
    let device = Arc::new(Failing {
        inner: made(flags, 16_384),
        is_full: AtomicBool::new(false),
        flushes_fail: AtomicBool::new(false),
    });
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let options = OpenOptions::default();
    let fs = Volume::open(Arc::clone(&device) as _, Arc::clone(&clock) as _, &options);
    (fs.unwrap(), device, clock)
}

fn is_io(error: &Error) -> bool {
    match error {
        Error::Shared(error) => is_io(error),
        error => matches!(error, Error::Device(_) | Error::NotDurable { .. }),
    }
}

#[test]
fn after_a_failed_flush_each_opening_hears_of_loss_once_and_then_nothing_is_taken() {
    for flags in ["-t ext4", "-t ext4 -O ^has_journal"] {
        let (fs, device, _) = mounted(flags);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hook = Arc::clone(&heard);
        fs.on_abort(move |reason| hook.lock().unwrap().push(reason.to_owned()));
        let one = file(&fs, "one");
        one.write_at(0, &[1; 5000]).unwrap();
        let other = one.reopened();
        device.flushes_fail.store(true, SeqCst);
        assert!(is_io(&one.fsync().unwrap_err()), "{flags}");
        device.flushes_fail.store(false, SeqCst);
        assert!(matches!(one.fsync(), Err(Error::Aborted { .. })), "{flags}");
        assert!(is_io(&other.fdatasync().unwrap_err()), "{flags}");
        for _ in 0..2 {
            assert!(matches!(other.fsync(), Err(Error::Aborted { .. })));
        }
        let taken = one.write_at(0, &[2; 5000]);
        assert!(matches!(taken, Err(Error::Aborted { .. })), "{flags}");
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 1, "{flags}: {heard:?}");
    }
}

#[test]
fn a_mount_goes_on_when_the_host_has_room_again() {
    for flags in ["-t ext4", "-t ext3 -b 1024", "-t ext4 -O ^has_journal"] {
        let (fs, device, clock) = mounted(flags);
        let one = file(&fs, "one");
        one.write_at(0, &[1; 5000]).unwrap();
        one.fsync().unwrap();
        // Nothing of its data waits: it is the commit that finds no room.
        one.set_attributes(&uext4::SetAttributes {
            mode: Some(0o600),
            ..uext4::SetAttributes::default()
        })
        .unwrap();
        device.is_full.store(true, SeqCst);
        for _ in 0..3 {
            let Err(Error::Device(DeviceError::Io { source, .. })) = one.fsync() else {
                panic!("{flags}: no error of the host");
            };
            assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        }
        // What changes meanwhile is in a later transaction.
        let two = file(&fs, "two");
        two.write_at(0, &[2; 9000]).unwrap();
        clock.advance(Duration::from_secs(6));
        assert!(fs.tick().is_err(), "{flags}");
        device.is_full.store(false, SeqCst);
        fs.tick().unwrap();
        one.fsync().unwrap();
        two.fsync().unwrap();
        drop((one, two));
        fs.close().unwrap();
        judge(&device.inner, flags);
        let fs = super::device::mount(device.inner.clone());
        let root = fs.root().unwrap();
        assert_eq!(root.lookup(b"one").unwrap().inode().mode & 0o777, 0o600);
        assert_eq!(root.lookup(b"two").unwrap().inode().size, 9000);
        drop(root);
        fs.close().unwrap();
    }
}

#[test]
fn cuts_and_deletions_that_had_no_room_go_on_when_there_is_room() {
    for flags in ["-t ext4 -b 1024", "-t ext3 -b 1024"] {
        let (fs, device, _) = mounted(flags);
        let root = fs.root().unwrap();
        let (cut, gone) = (file(&fs, "cut"), file(&fs, "gone"));
        for one in [&cut, &gone] {
            one.write_at(0, &vec![b'o'; 3 << 20]).unwrap();
        }
        fs.sync().unwrap();
        let free = fs.statfs().free;
        root.unlink(b"gone").unwrap();
        device.is_full.store(true, SeqCst);
        // Until a transaction waits for room, and the next one has none left for large changes.
        let mut refused = 0;
        for number in 0.. {
            let name = format!("{number}");
            let made = root.create(name.as_bytes(), NewInode::File, &Creation::default());
            refused += u32::from(made.is_err());
            if refused == 2 {
                break;
            }
        }
        let no_size = uext4::SetAttributes {
            size: Some(0),
            ..uext4::SetAttributes::default()
        };
        assert!(cut.set_attributes(&no_size).is_err(), "{flags}");
        assert_eq!(cut.inode().size, 0, "{flags}");
        drop(gone);
        device.is_full.store(false, SeqCst);
        // What grows shows nothing of what it held.
        cut.write_at(2 << 20, b"n").unwrap();
        let mut between = vec![1; 2 << 20];
        cut.read_at(0, &mut between).unwrap();
        assert!(between.iter().all(|byte| *byte == 0), "{flags}");
        fs.tick().unwrap();
        fs.sync().unwrap();
        let found = fs.statfs().free;
        assert!(
            found > free + (5 << 10),
            "{flags}: {found} blocks are free of {free}"
        );
        drop((root, cut));
        fs.close().unwrap();
        judge(&device.inner, flags);
    }
}
