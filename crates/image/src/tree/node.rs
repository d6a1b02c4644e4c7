//! What a tree is made of: nodes, the attributes they are made from, and what they look like.

use uext4_ondisk::inode::{DeviceNumber, FileType, Timestamp};

use crate::xattrs::{Xattr, XattrSet};

/// What `stat` and `listxattr` report of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, 0 to 0o7777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Full names and values as `getxattr` has them; ACLs in the kernel's wire form.
    pub xattrs: Vec<Xattr>,
}

/// A piece of a file that is not a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// How long it is, in bytes; not 0.
    pub len: u64,
    /// Where it begins in the store the tree came with, in bytes.
    pub at: u64,
}

/// What to insert, and in what it differs from others of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A directory.
    Directory,
    /// A file of `size` bytes.
    File {
        /// Size in bytes.
        size: u64,
        /// Its contents.
        data: FileData<'a>,
    },
    /// A symbolic link to these bytes.
    Symlink(&'a [u8]),
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
}

/// Where the contents of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileData<'a> {
    /// All of it, from this offset of the store.
    Whole {
        /// Offset in the store, in bytes.
        at: u64,
    },
    /// These pieces, ascending, not touching beyond the size; the rest are holes.
    Sparse(&'a [DataRange]),
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory { first: u32, last: u32 },
    Whole { size: u64, at: u64 },
    Sparse { size: u64, first: u32, count: u32 },
    Symlink { at: u32, len: u16 },
    CharDevice(DeviceNumber),
    BlockDevice(DeviceNumber),
    Fifo,
    Socket,
}

/// A time in 64 bits: 34 of seconds, which is what an inode can hold, and 30 of nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PackedTime(pub(super) u64);

impl PackedTime {
    pub(super) fn new(time: Timestamp) -> Self {
        let sec = time.sec.clamp(Timestamp::MIN_SEC, Timestamp::MAX_SEC);
        let since_min = (sec - Timestamp::MIN_SEC).unsigned_abs();
        Self(since_min << 30 | u64::from(time.nsec))
    }

    pub(super) fn get(self) -> Timestamp {
        Timestamp {
            sec: (self.0 >> 30) as i64 + Timestamp::MIN_SEC,
            nsec: (self.0 & ((1 << 30) - 1)) as u32,
        }
    }
}

/// Attributes and kind, without a name.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub(super) kind: Kind,
    pub(super) times: [PackedTime; 3],
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    pub(super) xattrs: XattrSet,
    pub(super) mode: u16,
    /// Number of the source it came with, whose store has its contents.
    pub(super) source: u16,
    /// Made because something below it came without it; its times are still to be set.
    pub(super) implied: bool,
}

const _: () = assert!(size_of::<Node>() <= 72);

impl Node {
    /// What it is.
    pub fn file_type(&self) -> FileType {
        match self.kind {
            Kind::Directory { .. } => FileType::Directory,
            Kind::Whole { .. } | Kind::Sparse { .. } => FileType::Regular,
            Kind::Symlink { .. } => FileType::Symlink,
            Kind::CharDevice(_) => FileType::CharDevice,
            Kind::BlockDevice(_) => FileType::BlockDevice,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
        }
    }

    /// Size of a file or length of a symbolic link's target, in bytes; 0 for all else.
    pub fn size(&self) -> u64 {
        match self.kind {
            Kind::Whole { size, .. } | Kind::Sparse { size, .. } => size,
            Kind::Symlink { len, .. } => u64::from(len),
            _ => 0,
        }
    }

    /// The number of a device.
    pub fn device(&self) -> Option<DeviceNumber> {
        match self.kind {
            Kind::CharDevice(number) | Kind::BlockDevice(number) => Some(number),
            _ => None,
        }
    }

    /// Permission bits.
    pub fn mode(&self) -> u16 {
        self.mode
    }

    /// Owner and group.
    pub fn owner(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// Times of last access, last change of the contents, and last change of the inode.
    pub fn times(&self) -> [Timestamp; 3] {
        self.times.map(PackedTime::get)
    }

    /// Number of the source it came with, whose store has its contents.
    pub fn source(&self) -> u16 {
        self.source
    }

    /// Number of names it has (of a directory: 1).
    pub fn links(&self) -> u32 {
        self.links
    }

    /// Its set of extended attributes; see `Tree::xattrs`.
    pub fn xattr_set(&self) -> XattrSet {
        self.xattrs
    }
}
