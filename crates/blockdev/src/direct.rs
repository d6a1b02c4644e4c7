//! Reads past the page cache of a block device, for one that the kernel has mounted and writes.
//!
//! A file system writes the contents of files, and ext4 its journal, past the pages of the device:
//! pages that another program's reading left there stay as they were. And where the pages are the
//! file system's own, they show changes that no transaction has committed yet. What is on the
//! medium is what a power cut would leave, and that its reader understands.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, OFlags, fadvise};

/// What the address of a buffer is a multiple of: no device asks for more.
const ALIGNMENT: usize = 4096;
/// Bytes that are read at a time, at most.
const PIECE: usize = 1 << 20;

/// A block device that is read past the page cache.
#[derive(Debug)]
pub(crate) struct Direct {
    file: File,
    /// What places and lengths are multiples of.
    sector: u64,
}

impl Direct {
    /// Opens it once more. Where the system does not let it be read so, what its cache has is
    /// dropped at least, and `None` returned.
    pub(crate) fn open(path: &Path, opened: &File, sector: u32) -> Option<Self> {
        // OK to unwrap: the flag is one bit below the sign.
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let direct = file.ok().map(|file| Self {
            file,
            sector: u64::from(sector).max(1),
        });
        let direct = direct.filter(|direct| direct.read_at(0, &mut [0]).is_ok());
        if direct.is_none() {
            // No more than advice: without it what is read may be older.
            _ = fadvise(opened, 0, None, Advice::DontNeed);
        }
        direct
    }

    /// Fills `buf` from `offset` on: both lie within the device.
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut memory = Vec::new();
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let before = (at % self.sector) as usize;
            let count = (buf.len() - done).min(PIECE);
            let len = (before + count).next_multiple_of(self.sector as usize);
            memory.resize(len + ALIGNMENT, 0);
            let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
            let aligned = &mut memory[start..start + len];
            self.file.read_exact_at(aligned, at - before as u64)?;
            buf[done..done + count].copy_from_slice(&aligned[before..before + count]);
            done += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn any_range_is_read() {
        // A file takes direct reads as a device does, where its file system has them.
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..3u32 << 20).map(|i| (i >> 9) as u8 ^ i as u8).collect();
        file.write_all(&bytes).unwrap();
        let Some(direct) = Direct::open(file.path(), file.as_file(), 4096) else {
            println!("skipped: this file system has no direct reads");
            return;
        };
        for (offset, len) in [
            (0, 1),
            (1, 4096),
            (4095, 2),
            (8192, 4096),
            (12_345, 2_500_000),
        ] {
            let mut buf = vec![0; len];
            direct.read_at(offset as u64, &mut buf).unwrap();
            assert!(buf == bytes[offset..offset + len], "{offset} {len}");
        }
    }
}
