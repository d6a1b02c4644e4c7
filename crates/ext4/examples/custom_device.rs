//! A device of one's own: it holds an image in memory and counts what is read and written.
//!
//! `cargo run -p uext4 --example custom_device -- disk.img`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uext4::device::{BlockDevice, DeviceError, MemoryDevice, SystemClock};
use uext4::{OpenOptions, Result, Volume};

/// What a device returns.
type Done = std::result::Result<(), DeviceError>;

/// Counts the bytes that pass it.
#[derive(Debug)]
pub struct Counting {
    below: MemoryDevice,
    /// Bytes read.
    pub read: AtomicU64,
    /// Bytes written.
    pub written: AtomicU64,
    /// Times that what was written had to become durable.
    pub flushes: AtomicU64,
}

impl Counting {
    /// Over the bytes of an image.
    pub fn new(image: Vec<u8>) -> Self {
        Self {
            below: MemoryDevice::from_bytes(image),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        }
    }
}

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Done {
        self.read.fetch_add(buf.len() as u64, Relaxed);
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Done {
        self.written.fetch_add(buf.len() as u64, Relaxed);
        self.below.write_at(offset, buf)
    }

    fn flush(&self) -> Done {
        self.flushes.fetch_add(1, Relaxed);
        self.below.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Done {
        self.below.discard(offset, len)
    }
}

/// Writes a file of a mebibyte and returns the device with its counts.
pub fn count(image: Vec<u8>) -> Result<Arc<Counting>> {
    let device = Arc::new(Counting::new(image));
    let below = Arc::<Counting>::clone(&device);
    let volume = Volume::open(below, Arc::new(SystemClock), &OpenOptions::default())?;
    volume.write("/mebibyte", vec![7; 1 << 20])?;
    volume.close()?;
    Ok(device)
}

/// Counts for a copy of the image that the first argument names.
pub fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_default();
    let Ok(image) = std::fs::read(&path) else {
        eprintln!("usage: custom_device IMAGE");
        return Ok(());
    };
    let counts = count(image)?;
    println!("read {:?}, written {:?}", counts.read, counts.written);
    Ok(())
}
