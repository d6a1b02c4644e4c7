//! The requests to the kernel that no safe library offers. The only `unsafe` of this crate.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::ioctl::{self, Setter, opcode};

/// Starts writing the dirty pages of a range of the page cache, and does not wait for it.
pub(crate) fn start_writing(file: &File, range: &Range<u64>) -> io::Result<()> {
    sync_file_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until no page of a range is being written any more.
pub(crate) fn wait_for_writing(file: &File, range: &Range<u64>) -> io::Result<()> {
    sync_file_range(file, range, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

fn sync_file_range(file: &File, range: &Range<u64>, flags: libc::c_uint) -> io::Result<()> {
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = i64::try_from(range.start).map_err(too_far)?;
    let len = i64::try_from(range.end.saturating_sub(range.start)).map_err(too_far)?;
    // No bytes would mean all bytes up to the end.
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the call takes numbers alone; the descriptor is open as long as `file` is borrowed.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the ext file system that an open file or directory is of write everything home, until its
/// journal is empty (`EXT4_IOC_CHECKPOINT`).
///
/// # Errors
/// Those of the request: `EROFS` if it is not open for writing, `ENOTTY` if it is none.
pub fn checkpoint(file: &File) -> io::Result<()> {
    // SAFETY: EXT4_IOC_CHECKPOINT reads one number of 32 bits, its flags, and writes nothing to the
    // memory of this process.
    unsafe {
        let request = Setter::<{ opcode::write::<u32>(b'f', 43) }, u32>::new(0);
        Ok(ioctl::ioctl(file, request)?)
    }
}

/// Discards a range of whole sectors of a block device (`BLKDISCARD`): the device forgets them, and
/// what they read as afterwards is the device's choice.
pub(crate) fn discard_sectors(file: &File, range: &Range<u64>) -> Result<(), Errno> {
    let argument = [range.start, range.end.saturating_sub(range.start)];
    // SAFETY: BLKDISCARD reads two numbers of 64 bits, first byte and length, and writes nothing to
    // the memory of this process.
    unsafe {
        let request = Setter::<{ opcode::none(0x12, 119) }, [u64; 2]>::new(argument);
        ioctl::ioctl(file, request)
    }
}
