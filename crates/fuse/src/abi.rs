//! The structures and numbers of the FUSE protocol, version 7.31 to 7.45.
//!
//! What the kernel documents in `linux/fuse.h` (`Documentation/filesystems/fuse`), with its names.
//! Everything is in the byte order of the machine: both ends are on it. Sizes are asserted.

#![allow(missing_docs)] // The names are the protocol's own.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub mod flags;

/// The major version there is.
pub const FUSE_KERNEL_VERSION: u32 = 7;
/// The minor version that is spoken: the first with rings.
pub const FUSE_KERNEL_MINOR_VERSION: u32 = 42;
/// The oldest minor version that is understood: Linux 5.4.
pub const MINOR_MIN: u32 = 31;
/// The nodeid of the root directory.
pub const FUSE_ROOT_ID: u64 = 1;

/// Declares structures as the kernel lays them out, with their sizes.
macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident, $size:literal { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $(pub $field: $type),* }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

structs! {
    /// Before every request.
    InHeader, 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Before every reply.
    OutHeader, 16 { len: u32, error: i32, unique: u64 }
    Attr, 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut, 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut, 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    ForgetIn, 8 { nlookup: u64 }
    ForgetOne, 16 { nodeid: u64, nlookup: u64 }
    BatchForgetIn, 8 { count: u32, dummy: u32 }
    GetattrIn, 16 { getattr_flags: u32, dummy: u32, fh: u64 }
    SetattrIn, 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }
    StatxIn, 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SxTime, 16 { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    Statx, 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut, 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    MknodIn, 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn, 8 { mode: u32, umask: u32 }
    RenameIn, 8 { newdir: u64 }
    Rename2In, 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn, 8 { oldnodeid: u64 }
    OpenIn, 8 { flags: u32, open_flags: u32 }
    CreateIn, 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut, 16 { fh: u64, open_flags: u32, backing_id: i32 }
    ReleaseIn, 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn, 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn, 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn, 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteOut, 8 { size: u32, padding: u32 }
    Kstatfs, 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    FsyncIn, 16 { fh: u64, fsync_flags: u32, padding: u32 }
    /// The short form, without `SETXATTR_EXT`.
    SetxattrInCompat, 8 { size: u32, flags: u32 }
    SetxattrIn, 16 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn, 8 { size: u32, padding: u32 }
    GetxattrOut, 8 { size: u32, padding: u32 }
    AccessIn, 8 { mask: u32, padding: u32 }
    /// What kernels before 7.36 send of `InitIn`.
    InitInCompat, 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitIn, 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut, 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    InterruptIn, 8 { unique: u64 }
    BmapIn, 16 { block: u64, blocksize: u32, padding: u32 }
    BmapOut, 8 { block: u64 }
    IoctlIn, 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut, 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    FallocateIn, 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// Before the name of an entry of READDIR.
    Dirent, 24 { ino: u64, off: u64, namelen: u32, type_: u32 }
    LseekIn, 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut, 8 { offset: u64 }
    CopyFileRangeIn, 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    CopyFileRangeOut, 8 { bytes_copied: u64 }
    SyncfsIn, 8 { padding: u64 }
    /// A notification that no caller asked for: attributes, and with `off` ≥ 0 data too, are to
    /// be asked for anew.
    NotifyInvalInodeOut, 24 { ino: u64, off: i64, len: i64 }
    /// What a name of a directory is to be asked for anew; the name and a zero byte follow.
    NotifyInvalEntryOut, 16 { parent: u64, namelen: u32, flags: u32 }
    /// So many inodes that are to be let go of; their numbers follow, of 64 bits each.
    NotifyPruneOut, 16 { count: u32, padding: u32, spare: u64 }
    /// What `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR` carry.
    Fsxattr, 28 {
        fsx_xflags: u32, fsx_extsize: u32, fsx_nextents: u32, fsx_projid: u32, fsx_cowextsize: u32,
        fsx_pad: [u32; 2],
    }
    /// One request of a ring: headers, and what is behind them; a reply stands in their place.
    UringReqHeader, 288 { in_out: [u64; 16], op_in: [u64; 16], ring_ent_in_out: UringEntInOut }
    UringEntInOut, 32 { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// What a command of a ring carries.
    UringCmdReq, 24 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
    /// What `FITRIM` carries.
    FstrimRange, 24 { start: u64, len: u64, minlen: u64 }
}

/// Commands of a ring: an entry is offered to the kernel.
pub const FUSE_IO_URING_CMD_REGISTER: u32 = 1;
/// Commands of a ring: an entry's reply is given, and the entry offered again.
pub const FUSE_IO_URING_CMD_COMMIT_AND_FETCH: u32 = 2;

/// What a notification is, in place of an error.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// The same for a name.
pub const NOTIFY_INVAL_ENTRY: i32 = 3;
/// Inodes are to be let go of that no program uses.
pub const NOTIFY_PRUNE: i32 = 9;

/// What a request is.
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}
