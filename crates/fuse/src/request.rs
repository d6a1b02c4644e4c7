//! What the kernel asks for, and the bytes that it comes in.
//!
//! A request is a header, one structure of a fixed size that its opcode names, and what follows it:
//! names that end in a zero byte, data. `/dev/fuse` gives the two behind the header in one piece, a
//! ring gives them apart ([`Body`]). Nothing is copied but structures; names and data are borrowed.
//! Which opcode is which operation is said by the [`protocol`](crate::protocol).

use zerocopy::FromBytes;

use crate::abi::{self, InHeader};
use crate::errno::{Errno, Result};

/// `renameat2`: a whiteout takes the old name.
pub const RENAME_WHITEOUT: u32 = 4;

/// What stands behind the header.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// In one piece.
    Joined(&'a [u8]),
    /// The structure, and what follows it; more may stand behind the structure than its own bytes.
    Split(&'a [u8], &'a [u8]),
}

impl<'a> Body<'a> {
    /// The structure, and what follows it.
    pub(crate) fn split<T: FromBytes>(self) -> Result<(T, &'a [u8])> {
        let taken = match self {
            Self::Joined(bytes) => T::read_from_prefix(bytes),
            Self::Split(fixed, rest) => T::read_from_prefix(fixed).map(|(value, _)| (value, rest)),
        };
        taken.map_err(|_| Errno::EINVAL)
    }

    /// The structure alone.
    pub(crate) fn only<T: FromBytes>(self) -> Result<T> {
        Ok(self.split()?.0)
    }

    /// All, of a request without a structure.
    fn rest(self) -> &'a [u8] {
        match self {
            Self::Joined(bytes) | Self::Split(_, bytes) => bytes,
        }
    }

    /// A name, of a request without a structure.
    pub(crate) fn name(self) -> Result<&'a [u8]> {
        Ok(split_name(self.rest())?.0)
    }

    /// Two names, of a request without a structure.
    pub(crate) fn names(self) -> Result<(&'a [u8], &'a [u8])> {
        two_names(self.rest())
    }
}

/// A name up to its zero byte, and what follows that.
pub(crate) fn split_name(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let end = end.ok_or(Errno::EINVAL)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// Two names, each up to its zero byte.
pub(crate) fn two_names(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let (first, rest) = split_name(bytes)?;
    Ok((first, split_name(rest)?.0))
}

impl Operation<'_> {
    /// Whether something new comes of it, which belongs to the caller.
    pub fn makes(&self) -> bool {
        matches!(
            self,
            Self::Symlink { .. }
                | Self::Mknod(..)
                | Self::Mkdir(..)
                | Self::Create(..)
                | Self::Tmpfile(..)
        ) || matches!(self, Self::Rename { flags, .. } if flags & RENAME_WHITEOUT != 0)
    }
}

/// What of a file is made durable, as POSIX names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// The data, and of the metadata what is needed to read them (fdatasync).
    Data,
    /// The data and all metadata (fsync).
    File,
}

/// The width of the number of copied bytes in the answer to COPY_FILE_RANGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountWidth {
    /// 32 bits.
    Bits32,
    /// 64 bits: COPY_FILE_RANGE_64.
    Bits64,
}

/// What is listed of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Names: READDIR.
    Names,
    /// Names, and the attributes of each: READDIRPLUS.
    Plus,
}

/// What the kernel asks for.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// A name in a directory.
    Lookup(&'a [u8]),
    /// The kernel forgets so many lookups of the inode.
    Forget(u64),
    /// The same of many.
    BatchForget(&'a [u8]),
    /// stat; with the handle of a file that is about to be written or read, else 0.
    Getattr(u64),
    /// statx.
    Statx,
    /// Attributes are changed.
    Setattr(abi::SetattrIn),
    /// The target of a symbolic link.
    Readlink,
    /// A symbolic link is made.
    Symlink {
        /// Its name.
        name: &'a [u8],
        /// What it says.
        target: &'a [u8],
    },
    /// Any inode but a directory and a link is made.
    Mknod(abi::MknodIn, &'a [u8]),
    /// A directory is made.
    Mkdir(abi::MkdirIn, &'a [u8]),
    /// A name is taken.
    Unlink(&'a [u8]),
    /// A directory's name is taken.
    Rmdir(&'a [u8]),
    /// A name moves.
    Rename {
        /// Node of the new directory.
        newdir: u64,
        /// Those of `renameat2`.
        flags: u32,
        /// The old name.
        old: &'a [u8],
        /// The new name.
        new: &'a [u8],
    },
    /// The inode with this node gets a name.
    Link(u64, &'a [u8]),
    /// A file is opened.
    Open(abi::OpenIn),
    /// A file is made and opened.
    Create(abi::CreateIn, &'a [u8]),
    /// A file without a name is made and opened.
    Tmpfile(abi::CreateIn),
    /// Data are read.
    Read(abi::ReadIn),
    /// Data are written.
    Write(abi::WriteIn, &'a [u8]),
    /// The file with this handle is closed for the last time.
    Release(u64),
    /// One of the descriptors of the file with this handle is closed.
    Flush(u64),
    /// The file with this handle is made durable.
    Fsync(u64, Integrity),
    /// A directory is made durable.
    Fsyncdir,
    /// All is made durable.
    Syncfs,
    /// A range is allocated, given back or moved.
    Fallocate(abi::FallocateIn),
    /// Data or a hole is looked for.
    Lseek(abi::LseekIn),
    /// A range is copied.
    CopyFileRange(abi::CopyFileRangeIn, CountWidth),
    /// A directory is opened.
    Opendir,
    /// Names are listed.
    Readdir(abi::ReadIn, Listing),
    /// A directory is closed.
    Releasedir,
    /// How much room there is.
    Statfs,
    /// An extended attribute is set.
    Setxattr(abi::SetxattrIn, &'a [u8], &'a [u8]),
    /// An extended attribute is read into so many bytes; 0: how many it has.
    Getxattr(u32, &'a [u8]),
    /// The names of extended attributes are listed into so many bytes.
    Listxattr(u32),
    /// An extended attribute is removed.
    Removexattr(&'a [u8]),
    /// Who may do what is asked of us; the kernel decides it itself.
    Access,
    /// The first of all.
    Init(abi::InitIn),
    /// A thread no longer waits for the request with this number.
    Interrupt(u64),
    /// Where a block of a file lies.
    Bmap(abi::BmapIn),
    /// The last of all.
    Destroy,
    /// What has no call of its own.
    Ioctl(abi::IoctlIn, &'a [u8]),
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The caller, and about which node.
    pub header: InHeader,
    /// What for.
    pub operation: Operation<'a>,
}

impl<'a> Request<'a> {
    /// The header of what was read, and what stands behind it.
    ///
    /// # Errors
    /// `EINVAL` for fewer bytes than a header, or another length than it says.
    pub fn header(bytes: &'a [u8]) -> Result<(InHeader, Body<'a>)> {
        let header = InHeader::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
        if header.0.len as usize != bytes.len() {
            return Err(Errno::EINVAL);
        }
        Ok((header.0, Body::Joined(header.1)))
    }
}

/// What [`Operation::BatchForget`] reports: nodes, and how many lookups of each.
pub fn each_forgotten(bytes: &[u8]) -> impl Iterator<Item = abi::ForgetOne> {
    let pieces = bytes.chunks_exact(size_of::<abi::ForgetOne>());
    pieces.filter_map(|piece| abi::ForgetOne::read_from_bytes(piece).ok())
}
