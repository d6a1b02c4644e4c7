//! Image files and block devices.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{BlockDevice, Error};

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes are refused, and the file is opened so that it cannot change.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// An image file or a block device of the machine.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    len: AtomicU64,
    access: Access,
}

impl FileDevice {
    /// Opens an image file or block device.
    ///
    /// # Errors
    /// [`Error::Open`] if it cannot be opened or is neither of the two.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, Error> {
        let path = path.as_ref();
        let open_error = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(access == Access::ReadWrite)
            .open(path)
            .map_err(open_error)?;
        let kind = file.metadata().map_err(open_error)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let reason = "neither a regular file nor a block device";
            return Err(open_error(std::io::Error::other(reason)));
        }
        // The end of a block device is found only by going there.
        let len = file.seek(SeekFrom::End(0)).map_err(open_error)?;
        Ok(Self {
            file,
            len: AtomicU64::new(len),
            access,
        })
    }

    /// Makes a new sparse file of `len` bytes.
    ///
    /// # Errors
    /// [`Error::Open`] if it exists already or cannot be made.
    pub fn create(path: impl AsRef<Path>, len: u64) -> Result<Self, Error> {
        let path = path.as_ref();
        let open_error = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(open_error)?;
        file.set_len(len).map_err(open_error)?;
        Ok(Self {
            file,
            len: AtomicU64::new(len),
            access: Access::ReadWrite,
        })
    }

    /// Makes the file longer (with a hole) or shorter. No block device can be changed so.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Io`].
    pub fn set_len(&self, len: u64) -> Result<(), Error> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        self.file
            .set_len(len)
            .map_err(|source| Error::io("set length", len, source))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn check_write(&self, offset: u64, len: u64) -> Result<(), Error> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        Error::check_range(offset, len, self.len())
    }
}

impl BlockDevice for FileDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        Error::check_range(offset, buf.len() as u64, self.len())?;
        self.file
            .read_exact_at(buf, offset)
            .map_err(|source| Error::io("read", offset, source))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.check_write(offset, buf.len() as u64)?;
        self.file
            .write_all_at(buf, offset)
            .map_err(|source| Error::io("write", offset, source))
    }

    fn flush(&self) -> Result<(), Error> {
        self.file
            .sync_data()
            .map_err(|source| Error::io("flush", 0, source))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check_write(offset, len)?;
        let zeroes = vec![0; len.min(1 << 20) as usize];
        let mut at = offset;
        let end = offset + len;
        while at < end {
            let count = (end - at).min(zeroes.len() as u64);
            self.write_at(at, &zeroes[..count as usize])?;
            at += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let device = FileDevice::create(&path, 10_000).unwrap();
        device.write_at(9_000, &[1; 1000]).unwrap();
        assert!(matches!(
            device.write_at(9_001, &[1; 1000]),
            Err(Error::OutOfRange { .. })
        ));
        device.discard(9_500, 100).unwrap();
        device.set_len(20_000).unwrap();
        device.flush().unwrap();
        let reader = FileDevice::open(&path, Access::ReadOnly).unwrap();
        assert_eq!(reader.len(), 20_000);
        let mut bytes = vec![9; 20_000];
        reader.read_at(0, &mut bytes).unwrap();
        let mut expected = vec![0; 20_000];
        expected[9_000..9_500].fill(1);
        expected[9_600..10_000].fill(1);
        assert_eq!(bytes, expected);
        assert!(matches!(reader.write_at(0, &[1]), Err(Error::ReadOnly)));
        assert!(matches!(
            FileDevice::create(&path, 1),
            Err(Error::Open { .. })
        ));
        assert!(matches!(
            FileDevice::open(dir.path(), Access::ReadOnly),
            Err(Error::Open { .. })
        ));
    }
}
