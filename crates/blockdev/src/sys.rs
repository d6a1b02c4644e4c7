//! The requests to the kernel that no safe library offers. The only `unsafe` of this crate.

#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::{io, slice};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::ioctl::{self, Setter, opcode};
use rustix::mm::{self, MapFlags, ProtFlags};

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

/// Puts a thread, the calling one if it is 0, into a class of the scheduler: SCHED_OTHER,
/// SCHED_BATCH or SCHED_IDLE. Its niceness stays. (The C library's own functions take no thread, or
/// do nothing.)
///
/// # Errors
/// Those of sched_setscheduler(2): `EPERM` where a thread is to leave SCHED_IDLE without a
/// privilege or RLIMIT_NICE, `ESRCH` where it has ended.
pub fn set_scheduling_class(thread: i32, class: i32) -> io::Result<()> {
    // All of `struct sched_param`; these classes have no other priority.
    let priority: libc::c_int = 0;
    let (number, thread) = (libc::SYS_sched_setscheduler, libc::c_long::from(thread));
    let class = libc::c_long::from(class);
    // SAFETY: the call reads one number through the pointer, which is borrowed, and writes nothing.
    match unsafe { libc::syscall(number, thread, class, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The class of the calling thread.
///
/// # Errors
/// Those of sched_getscheduler(2).
pub fn scheduling_class() -> io::Result<i32> {
    // SAFETY: the call takes a number alone.
    let class = unsafe { libc::syscall(libc::SYS_sched_getscheduler, libc::c_long::from(0)) };
    i32::try_from(class)
        .ok()
        .filter(|class| *class >= 0)
        .ok_or_else(io::Error::last_os_error)
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

/// A range of a file in the address space of this process: zeroes at first, shared by threads, and
/// read and written by atomic operations alone.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to this value alone, and is accessed by atomic operations alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves room for a range of a file that nothing else uses, and maps it. The range begins at
    /// a multiple of the size of a page, and has bytes.
    pub(crate) fn new(file: &File, range: &Range<u64>) -> io::Result<Self> {
        let bytes = range.end.saturating_sub(range.start);
        let len = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // A page that is written to and has no room on the disk would be the end of this process.
        fallocate(file, FallocateFlags::empty(), range.start, bytes)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without an address of ours the kernel takes one where nothing is.
        let start = unsafe {
            mm::mmap(
                ptr::null_mut(),
                len,
                access,
                MapFlags::SHARED,
                file,
                range.start,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A part as bytes; none if it is not one.
    pub(crate) fn bytes(&self, range: &Range<usize>) -> &[AtomicU8] {
        if range.start > range.end || range.end > self.len {
            return &[];
        }
        // SAFETY: the range is inside the map, which lives as long as `self` and was zeroes when
        // it was made; an atomic byte has the size and alignment of a byte and may have any value.
        unsafe {
            let start = self.start.add(range.start).cast::<AtomicU8>();
            slice::from_raw_parts(start.as_ptr(), range.len())
        }
    }

    /// A part as numbers; none if it is not one, or begins at no multiple of 8.
    pub(crate) fn words(&self, range: &Range<usize>) -> &[AtomicU64] {
        let size = size_of::<AtomicU64>();
        if range.start > range.end || range.end > self.len || !range.start.is_multiple_of(size) {
            return &[];
        }
        // SAFETY: as for bytes; the map begins with a page, and the part at a multiple of the
        // alignment of a number.
        unsafe {
            let start = self.start.add(range.start).cast::<AtomicU64>();
            slice::from_raw_parts(start.as_ptr(), range.len() / size)
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the map was made by `new` with this length, and no reference into it outlives
        // this value.
        let unmapped = unsafe { mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
