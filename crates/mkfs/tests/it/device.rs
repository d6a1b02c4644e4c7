//! What formatting does to a device: garbage before, a cut in the middle, determinism.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice};
use uext4_mkfs::{format, layout};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};

use crate::flags::options;
use crate::oracle::available;

const LEN: u64 = 24 << 20;

/// A device full of what is not a file system.
fn garbage() -> MemoryDevice {
    MemoryDevice::from_bytes((0..LEN).map(|i| (i * 131 + i / 4096) as u8 | 1).collect())
}

fn made_on(device: &dyn BlockDevice, flags: &str) {
    format(&layout(&options(flags), device.len()).unwrap(), device).unwrap();
}

#[test]
fn what_was_there_before_does_not_matter() {
    for flags in [
        "-t ext4",
        "-t ext3",
        "-t ext4 -O bigalloc,quota,orphan_file,mmp",
    ] {
        let (old, new) = (garbage(), MemoryDevice::new(LEN));
        made_on(&old, flags);
        made_on(&new, flags);
        assert!(old.to_bytes() == new.to_bytes(), "{flags}");
    }
}

#[test]
fn garbage_without_discard_is_no_harm() {
    if !available() {
        eprintln!("skipped: needs e2fsck");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for flags in [
        "-t ext4 -E nodiscard",
        "-t ext4 -E nodiscard,lazy_itable_init=0",
        "-t ext3 -E nodiscard",
        "-t ext4 -E nodiscard,lazy_journal_init",
        "-t ext4 -O quota,orphan_file,mmp,inline_data -E nodiscard",
        "-t ext4 -O meta_bg,^resize_inode -g 1024 -E nodiscard",
    ] {
        let device = garbage();
        made_on(&device, flags);
        let path = dir.path().join("image");
        std::fs::write(&path, device.to_bytes()).unwrap();
        assert_eq!(uext4_testkit::complaints(&path), None, "{flags}");
    }
}

#[test]
fn same_options_same_bytes() {
    let images = [(); 2].map(|()| {
        let device = MemoryDevice::new(LEN);
        made_on(&device, "-t ext4 -O quota,encrypt,mmp");
        device.to_bytes()
    });
    assert!(images[0] == images[1]);
}

/// Fails every write, discard and flush once some have been let through.
#[derive(Debug)]
struct Cut {
    inner: Arc<MemoryDevice>,
    left: AtomicI64,
}

impl Cut {
    fn spend(&self) -> Result<(), DeviceError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            Ok(())
        } else {
            Err(DeviceError::ReadOnly)
        }
    }
}

impl BlockDevice for Cut {
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
        self.spend()?;
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.spend()?;
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.spend()?;
        self.inner.discard(offset, len)
    }
}

#[test]
fn a_cut_leaves_the_old_file_system_or_none() {
    for flags in ["-t ext4", "-t ext4 -E nodiscard"] {
        let layout = layout(&options(flags), LEN).unwrap();
        let old = MemoryDevice::new(LEN);
        made_on(&old, "-t ext2 -L before");
        let before = old.to_bytes();
        for writes in 0.. {
            let inner = Arc::new(MemoryDevice::from_bytes(before.clone()));
            let device = Cut {
                inner: Arc::clone(&inner),
                left: AtomicI64::new(writes),
            };
            let done = format(&layout, &device);
            let mut bytes = vec![0; 1024];
            inner.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
            match (done, SuperBlock::parse(&bytes)) {
                (Ok(()), Ok(sb)) => {
                    assert!(writes > 4 && sb.s_volume_name == [0; 16], "{flags}");
                    break;
                }
                (Err(_), Ok(sb)) if &sb.s_volume_name[..6] == b"before" => {
                    assert!(inner.to_bytes() == before, "{flags} after {writes}");
                }
                // Only the last flush is missing.
                (Err(_), Ok(_)) => assert!(
                    format(
                        &layout,
                        &Cut {
                            inner,
                            left: AtomicI64::new(writes + 1),
                        }
                    )
                    .is_ok(),
                    "{flags} after {writes}"
                ),
                (Err(_), Err(_)) => {}
                (Ok(()), Err(damage)) => panic!("{flags} after {writes}: {damage}"),
            }
        }
    }
}
