//! Parameters of the creator: kinds of inodes, their attributes, and the source of file data.

use std::io;
use std::num::NonZeroUsize;

use uext4_ondisk::inode::{
    DeviceNumber, FULL_EXTRA_ISIZE, FileType, GOOD_OLD_INODE_SIZE, InodeFlags, RawInode, S_IFMT,
    Timestamp,
};

use super::threads;
use crate::base::error::{Error, Result};
use crate::inode::attr;

/// Options of the creator. The defaults are right unless there is a reason to change them.
#[derive(Clone, Debug)]
pub struct CreatorOptions {
    /// Approximate amount of metadata in bytes that is cached in memory before some of it is
    /// written.
    pub memory_max: usize,
    /// Number of bytes of file data collected for one write, at least 64 KiB.
    pub buffer_len: usize,
    /// Number of threads that lay out directories, by default as many as the machine runs at the
    /// same time. The result does not depend on it.
    pub threads: NonZeroUsize,
}

impl Default for CreatorOptions {
    /// 16 MiB of metadata, 1 MiB of data: it stays in a core's cache between reading and writing.
    fn default() -> Self {
        Self {
            memory_max: 16 << 20,
            buffer_len: 1 << 20,
            threads: threads::available(),
        }
    }
}

/// The kind of inode to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewInode<'a> {
    /// A regular file, empty until [`super::Creator::write_file`].
    File,
    /// A directory.
    Directory,
    /// A symbolic link with this target.
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

impl NewInode<'_> {
    /// Its type.
    pub fn file_type(self) -> FileType {
        match self {
            Self::File => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::CharDevice(_) => FileType::CharDevice,
            Self::BlockDevice(_) => FileType::BlockDevice,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
        }
    }
}

/// The attributes of an inode in addition to its type and contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, 0 to 0o7777; other bits are ignored.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access. Times are clamped to the range that the inode can store.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation; dropped if the inode has no space for it.
    pub crtime: Timestamp,
    /// Extended attributes, full names and values; ACLs in the form of the system calls. In any
    /// order.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Flags as chattr sets them. Flags that describe how the inode is stored are ignored, and so
    /// are those that the kernel does not allow for its type.
    pub flags: InodeFlags,
    /// Project id; any value except 0 needs an inode larger than 128 bytes.
    pub projid: u32,
}

/// The source of a file's data.
pub trait FileContent {
    /// Fills `buf` with the bytes of the file from `offset` on. Called for ascending parts, which
    /// do not overlap, of the ranges that were declared to hold data.
    ///
    /// # Errors
    /// Any error of reading the bytes, including a source that ends too early.
    fn read_exact_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

impl FileContent for &[u8] {
    fn read_exact_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.get(from..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Flags that do not describe how an inode is stored.
const SETTABLE: InodeFlags = attr::MODIFIABLE
    .difference(InodeFlags::EXTENTS)
    .union(InodeFlags::NOCOMPR);

/// Stores the attributes in the fields of an inode, except extended attributes.
pub(super) fn store(
    raw: &mut RawInode,
    file_type: FileType,
    attributes: &Attributes,
    inode_size: u16,
) -> Result<()> {
    raw.i_mode = (raw.i_mode.get() & S_IFMT | attributes.mode & !S_IFMT).into();
    raw.i_uid = (attributes.uid as u16).into();
    raw.i_uid_high = ((attributes.uid >> 16) as u16).into();
    raw.i_gid = (attributes.gid as u16).into();
    raw.i_gid_high = ((attributes.gid >> 16) as u16).into();
    let settable = attr::of_type(file_type, SETTABLE);
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get()).difference(SETTABLE)
        | attributes.flags.intersection(settable);
    raw.i_flags = flags.bits().into();
    if usize::from(inode_size) <= GOOD_OLD_INODE_SIZE {
        if attributes.projid != 0 {
            return Err(Error::Unsupported {
                what: "project ids in inodes of 128 bytes".to_owned(),
            });
        }
        raw.i_atime = attributes.atime.encode_short().into();
        raw.i_mtime = attributes.mtime.encode_short().into();
        raw.i_ctime = attributes.ctime.encode_short().into();
        return Ok(());
    }
    raw.i_extra_isize = FULL_EXTRA_ISIZE.into();
    let words = |time: Timestamp| {
        let (base, extra) = time.encode();
        (base.into(), extra.into())
    };
    (raw.i_atime, raw.i_atime_extra) = words(attributes.atime);
    (raw.i_mtime, raw.i_mtime_extra) = words(attributes.mtime);
    (raw.i_ctime, raw.i_ctime_extra) = words(attributes.ctime);
    (raw.i_crtime, raw.i_crtime_extra) = words(attributes.crtime);
    raw.i_projid = attributes.projid.into();
    Ok(())
}
