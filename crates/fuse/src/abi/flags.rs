//! Flags of requests and replies.

/// What both ends can do, in INIT: the low half in `flags`, the high one in `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// `SetattrIn::valid`.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// `OpenOut::open_flags`.
pub mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const NOFLUSH: u32 = 1 << 5;
}

/// `GetattrIn::getattr_flags`: there is a handle.
pub const GETATTR_FH: u32 = 1 << 0;
/// `OpenIn::open_flags`: set-id bits are to be dropped with the contents.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `WriteIn::write_flags`: pages that the kernel writes back, changed through a mapping or, with
/// its write-back cache, by writes; no writer in particular writes.
pub const WRITE_CACHE: u32 = 1 << 0;
/// `WriteIn::write_flags`: set-id bits are to be dropped.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FsyncIn::fsync_flags`: the data alone.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `SetxattrIn::setxattr_flags`: set-group-id is to be dropped with the ACL.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// What `open` was called with, as Linux numbers it.
pub mod open {
    pub const ACCMODE: u32 = 0o3;
    pub const WRITE_ONLY: u32 = 0o1;
    pub const EXCL: u32 = 0o200;
    pub const TRUNC: u32 = 0o1000;
    pub const APPEND: u32 = 0o2000;
    pub const DIRECT: u32 = 0o40000;
}

/// `Statx::mask`, as statx numbers it.
pub mod statx {
    pub const BASIC_STATS: u32 = 0x7FF;
    pub const BTIME: u32 = 0x800;
}

/// `Statx::attributes`.
pub mod statx_attr {
    pub const COMPRESSED: u64 = 0x4;
    pub const IMMUTABLE: u64 = 0x10;
    pub const APPEND: u64 = 0x20;
    pub const NODUMP: u64 = 0x40;
    pub const ENCRYPTED: u64 = 0x800;
    pub const VERITY: u64 = 0x10_0000;
}
