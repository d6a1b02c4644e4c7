//! Bytes from the kernel → requests.
//!
//! A request is a header, one structure of a fixed size that its opcode names, and what follows it:
//! names that end in a zero byte, data. `/dev/fuse` gives the two behind the header in one piece, a
//! ring gives them apart ([`Body`]). Nothing is copied but structures; names and data are borrowed.
//!
//! No bytes make this panic, and nothing is taken by a number that was read: what does not fit is
//! refused with `EINVAL`, an opcode that is not known with `ENOSYS`.

use zerocopy::FromBytes;

use crate::abi::{self, InHeader, opcode};
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
    fn split<T: FromBytes>(self) -> Result<(T, &'a [u8])> {
        let taken = match self {
            Self::Joined(bytes) => T::read_from_prefix(bytes),
            Self::Split(fixed, rest) => T::read_from_prefix(fixed).map(|(value, _)| (value, rest)),
        };
        taken.map_err(|_| Errno::EINVAL)
    }

    fn only<T: FromBytes>(self) -> Result<T> {
        Ok(self.split()?.0)
    }

    /// All, of a request without a structure.
    fn rest(self) -> &'a [u8] {
        match self {
            Self::Joined(bytes) | Self::Split(_, bytes) => bytes,
        }
    }

    fn name(self) -> Result<&'a [u8]> {
        Ok(split_name(self.rest())?.0)
    }

    fn names(self) -> Result<(&'a [u8], &'a [u8])> {
        two_names(self.rest())
    }
}

/// A name up to its zero byte, and what follows that.
fn split_name(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let end = end.ok_or(Errno::EINVAL)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn two_names(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
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

/// The form of SETXATTR that the kernel sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetxattrForm {
    /// Before `FUSE_SETXATTR_EXT`: without `setxattr_flags`.
    Compat,
    /// With `FUSE_SETXATTR_EXT`.
    Extended,
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
    /// stat.
    Getattr,
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
    /// One of the descriptors of a file is closed.
    Flush,
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

    /// What is asked for.
    ///
    /// # Errors
    /// `EINVAL` for what does not fit its opcode, `ENOSYS` for one that is not known.
    pub fn decode(header: InHeader, body: Body<'a>, setxattr_form: SetxattrForm) -> Result<Self> {
        let operation = match names(header.opcode, body) {
            Some(operation) => operation,
            None => match files(header.opcode, body) {
                Some(operation) => operation,
                None => others(header.opcode, body, setxattr_form),
            },
        };
        Ok(Self {
            header,
            operation: operation?,
        })
    }
}

/// What is about names and attributes.
fn names<'a>(code: u32, body: Body<'a>) -> Option<Result<Operation<'a>>> {
    Some(match code {
        opcode::LOOKUP => body.name().map(Operation::Lookup),
        opcode::FORGET => body
            .only()
            .map(|it: abi::ForgetIn| Operation::Forget(it.nlookup)),
        opcode::BATCH_FORGET => forgotten(body),
        opcode::GETATTR => Ok(Operation::Getattr),
        opcode::STATX => Ok(Operation::Statx),
        opcode::SETATTR => body.only().map(Operation::Setattr),
        opcode::READLINK => Ok(Operation::Readlink),
        opcode::SYMLINK => body
            .names()
            .map(|(name, target)| Operation::Symlink { name, target }),
        opcode::MKNOD => with_name(body, Operation::Mknod),
        opcode::MKDIR => with_name(body, Operation::Mkdir),
        opcode::UNLINK => body.name().map(Operation::Unlink),
        opcode::RMDIR => body.name().map(Operation::Rmdir),
        opcode::RENAME => body
            .split()
            .and_then(|(it, rest): (abi::RenameIn, _)| rename(it.newdir, 0, rest)),
        opcode::RENAME2 => body
            .split()
            .and_then(|(it, rest): (abi::Rename2In, _)| rename(it.newdir, it.flags, rest)),
        opcode::LINK => with_name(body, |it: abi::LinkIn, name| {
            Operation::Link(it.oldnodeid, name)
        }),
        opcode::CREATE => with_name(body, Operation::Create),
        opcode::TMPFILE => body.only().map(Operation::Tmpfile),
        _ => return None,
    })
}

/// What is about contents.
fn files<'a>(code: u32, body: Body<'a>) -> Option<Result<Operation<'a>>> {
    Some(match code {
        opcode::OPEN => body.only().map(Operation::Open),
        opcode::READ => body.only().map(Operation::Read),
        opcode::WRITE => body.split().and_then(|(it, rest): (abi::WriteIn, _)| {
            let data = rest.get(..it.size as usize).ok_or(Errno::EINVAL)?;
            Ok(Operation::Write(it, data))
        }),
        opcode::RELEASE => body
            .only()
            .map(|it: abi::ReleaseIn| Operation::Release(it.fh)),
        opcode::FLUSH => Ok(Operation::Flush),
        opcode::FSYNC => body.only().map(|it: abi::FsyncIn| {
            let integrity = match it.fsync_flags & abi::flags::FSYNC_FDATASYNC {
                0 => Integrity::File,
                _ => Integrity::Data,
            };
            Operation::Fsync(it.fh, integrity)
        }),
        opcode::FSYNCDIR => Ok(Operation::Fsyncdir),
        opcode::SYNCFS => Ok(Operation::Syncfs),
        opcode::FALLOCATE => body.only().map(Operation::Fallocate),
        opcode::LSEEK => body.only().map(Operation::Lseek),
        opcode::COPY_FILE_RANGE => copy_file_range(body, CountWidth::Bits32),
        opcode::COPY_FILE_RANGE_64 => copy_file_range(body, CountWidth::Bits64),
        opcode::OPENDIR => Ok(Operation::Opendir),
        opcode::READDIR => readdir(body, Listing::Names),
        opcode::READDIRPLUS => readdir(body, Listing::Plus),
        opcode::RELEASEDIR => Ok(Operation::Releasedir),
        _ => return None,
    })
}

fn copy_file_range(body: Body<'_>, width: CountWidth) -> Result<Operation<'_>> {
    Ok(Operation::CopyFileRange(body.only()?, width))
}

fn readdir(body: Body<'_>, listing: Listing) -> Result<Operation<'_>> {
    Ok(Operation::Readdir(body.only()?, listing))
}

fn others(code: u32, body: Body<'_>, setxattr_form: SetxattrForm) -> Result<Operation<'_>> {
    Ok(match code {
        opcode::STATFS => Operation::Statfs,
        opcode::SETXATTR => return setxattr(body, setxattr_form),
        opcode::GETXATTR => {
            let (it, rest): (abi::GetxattrIn, _) = body.split()?;
            Operation::Getxattr(it.size, split_name(rest)?.0)
        }
        opcode::LISTXATTR => Operation::Listxattr(body.only::<abi::GetxattrIn>()?.size),
        opcode::REMOVEXATTR => Operation::Removexattr(body.name()?),
        opcode::ACCESS => Operation::Access,
        opcode::INIT => Operation::Init(init(body)?),
        opcode::INTERRUPT => Operation::Interrupt(body.only::<abi::InterruptIn>()?.unique),
        opcode::BMAP => Operation::Bmap(body.only()?),
        opcode::DESTROY => Operation::Destroy,
        opcode::IOCTL => {
            let (it, rest): (abi::IoctlIn, _) = body.split()?;
            Operation::Ioctl(it, rest.get(..it.in_size as usize).ok_or(Errno::EINVAL)?)
        }
        _ => return Err(Errno::ENOSYS),
    })
}

fn with_name<'a, T: FromBytes>(
    body: Body<'a>,
    make: impl FnOnce(T, &'a [u8]) -> Operation<'a>,
) -> Result<Operation<'a>> {
    let (value, rest) = body.split()?;
    Ok(make(value, split_name(rest)?.0))
}

fn rename(newdir: u64, flags: u32, rest: &[u8]) -> Result<Operation<'_>> {
    let (old, new) = two_names(rest)?;
    Ok(Operation::Rename {
        newdir,
        flags,
        old,
        new,
    })
}

fn forgotten(body: Body<'_>) -> Result<Operation<'_>> {
    let (it, rest): (abi::BatchForgetIn, _) = body.split()?;
    let len = (it.count as usize).checked_mul(size_of::<abi::ForgetOne>());
    let all = len.and_then(|len| rest.get(..len)).ok_or(Errno::EINVAL)?;
    Ok(Operation::BatchForget(all))
}

/// What [`Operation::BatchForget`] reports: nodes, and how many lookups of each.
pub fn each_forgotten(bytes: &[u8]) -> impl Iterator<Item = abi::ForgetOne> {
    let pieces = bytes.chunks_exact(size_of::<abi::ForgetOne>());
    pieces.filter_map(|piece| abi::ForgetOne::read_from_bytes(piece).ok())
}

fn setxattr(body: Body<'_>, form: SetxattrForm) -> Result<Operation<'_>> {
    let (it, rest) = match form {
        SetxattrForm::Extended => body.split()?,
        SetxattrForm::Compat => {
            let (short, rest): (abi::SetxattrInCompat, _) = body.split()?;
            let it = abi::SetxattrIn {
                size: short.size,
                flags: short.flags,
                ..abi::SetxattrIn::default()
            };
            (it, rest)
        }
    };
    let (name, rest) = split_name(rest)?;
    let value = rest.get(..it.size as usize).ok_or(Errno::EINVAL)?;
    Ok(Operation::Setxattr(it, name, value))
}

fn init(body: Body<'_>) -> Result<abi::InitIn> {
    if let Ok(it) = body.only() {
        return Ok(it);
    }
    let short: abi::InitInCompat = body.only()?;
    Ok(abi::InitIn {
        major: short.major,
        minor: short.minor,
        max_readahead: short.max_readahead,
        flags: short.flags,
        ..abi::InitIn::default()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    fn header(code: u32) -> InHeader {
        InHeader {
            opcode: code,
            ..InHeader::default()
        }
    }

    fn bytes(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn names_and_data_are_borrowed_from_where_they_stand() {
        let it = abi::Rename2In {
            newdir: 7,
            flags: 1,
            padding: 0,
        };
        let body = bytes(&[it.as_bytes(), b"old\0new\0"]);
        let read = Request::decode(
            header(opcode::RENAME2),
            Body::Joined(&body),
            SetxattrForm::Extended,
        )
        .unwrap();
        let Operation::Rename {
            newdir,
            flags,
            old,
            new,
        } = read.operation
        else {
            panic!("{read:?}");
        };
        assert_eq!((newdir, flags, old, new), (7, 1, &b"old"[..], &b"new"[..]));

        let it = abi::WriteIn {
            size: 3,
            offset: 9,
            ..abi::WriteIn::default()
        };
        let mut fixed = it.as_bytes().to_vec();
        fixed.resize(128, 0xEE);
        let split = Body::Split(&fixed, b"abc...");
        let read = Request::decode(header(opcode::WRITE), split, SetxattrForm::Extended).unwrap();
        let Operation::Write(it, data) = read.operation else {
            panic!("{read:?}");
        };
        assert_eq!((it.offset, data), (9, &b"abc"[..]));
    }

    #[test]
    fn both_forms_of_setxattr() {
        let long = abi::SetxattrIn {
            size: 2,
            flags: 1,
            setxattr_flags: 1,
            padding: 0,
        };
        let short = abi::SetxattrInCompat { size: 2, flags: 1 };
        for (form, setxattr_flags, body) in [
            (
                SetxattrForm::Extended,
                1,
                bytes(&[long.as_bytes(), b"user.a\0xy"]),
            ),
            (
                SetxattrForm::Compat,
                0,
                bytes(&[short.as_bytes(), b"user.a\0xy"]),
            ),
        ] {
            let read = Request::decode(header(opcode::SETXATTR), Body::Joined(&body), form);
            let Operation::Setxattr(it, name, value) = read.unwrap().operation else {
                panic!("{form:?}");
            };
            assert_eq!((it.flags, it.setxattr_flags), (1, setxattr_flags));
            assert_eq!((name, value), (&b"user.a"[..], &b"xy"[..]));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let decode = |code, body: &[u8]| {
            Request::decode(header(code), Body::Joined(body), SetxattrForm::Extended).map(|_| ())
        };
        assert_eq!(decode(opcode::LOOKUP, b"name"), Err(Errno::EINVAL));
        assert_eq!(decode(opcode::SYMLINK, b"name\0target"), Err(Errno::EINVAL));
        assert_eq!(decode(opcode::READ, b"short"), Err(Errno::EINVAL));
        let many = abi::BatchForgetIn {
            count: u32::MAX,
            dummy: 0,
        };
        assert_eq!(
            decode(opcode::BATCH_FORGET, many.as_bytes()),
            Err(Errno::EINVAL)
        );
        let write = abi::WriteIn {
            size: u32::MAX,
            ..abi::WriteIn::default()
        };
        assert_eq!(decode(opcode::WRITE, write.as_bytes()), Err(Errno::EINVAL));
        assert_eq!(decode(4096, b""), Err(Errno::ENOSYS));
        assert!(Request::header(b"too short").is_err());
        let lying = InHeader {
            len: 41,
            ..InHeader::default()
        };
        assert!(Request::header(lying.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(
            code in 0u32..60,
            body in proptest::collection::vec(any::<u8>(), 0..300),
            at in 0usize..300,
            form in prop_oneof![Just(SetxattrForm::Compat), Just(SetxattrForm::Extended)],
        ) {
            let at = at.min(body.len());
            let split = Body::Split(&body[..at], &body[at..]);
            for body in [Body::Joined(&body), split] {
                if let Ok(read) = Request::decode(header(code), body, form)
                    && let Operation::BatchForget(all) = read.operation
                {
                    each_forgotten(all).for_each(drop);
                }
            }
            _ = Request::header(&body);
        }
    }
}
