//! Bytes from the kernel → requests, as a table: for each opcode how what stands behind the header
//! is read. Another form of the protocol is another table, which is chosen at INIT
//! ([`Serve::protocol`](crate::serve::Serve::protocol)); what serves requests sees operations
//! alone.
//!
//! No bytes make this panic, and nothing is taken by a number that was read: what does not fit is
//! refused with `EINVAL`, an opcode that is not known with `ENOSYS`.

use zerocopy::FromBytes;

use crate::abi::{self, InHeader, opcode};
use crate::errno::{Errno, Result};
use crate::request::{
    Body, CountWidth, Integrity, Listing, Operation, Request, split_name, two_names,
};

/// Opcodes that a table has room for: those beyond are not known.
const OPCODES: usize = 64;

/// Reads what stands behind a header.
pub type Decoder = for<'a> fn(Body<'a>) -> Result<Operation<'a>>;

/// A form of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    decoders: [Option<Decoder>; OPCODES],
}

/// Before `FUSE_SETXATTR_EXT`: SETXATTR comes without `setxattr_flags`.
pub static BEFORE_SETXATTR_EXT: Protocol = Protocol::common().with(opcode::SETXATTR, |body| {
    let (short, rest): (abi::SetxattrInCompat, _) = body.split()?;
    let it = abi::SetxattrIn {
        size: short.size,
        flags: short.flags,
        ..abi::SetxattrIn::default()
    };
    setxattr(it, rest)
});

/// With `FUSE_SETXATTR_EXT`.
pub static CURRENT: Protocol = Protocol::common().with(opcode::SETXATTR, |body| {
    let (it, rest) = body.split()?;
    setxattr(it, rest)
});

impl Protocol {
    /// The same, but for one opcode, below 64.
    #[must_use]
    pub const fn with(mut self, code: u32, decoder: Decoder) -> Self {
        self.decoders[code as usize] = Some(decoder);
        self
    }

    /// What is asked for.
    ///
    /// # Errors
    /// `EINVAL` for what does not fit its opcode, `ENOSYS` for one that is not known.
    pub fn decode<'a>(&self, header: InHeader, body: Body<'a>) -> Result<Request<'a>> {
        let decoder = self.decoders.get(header.opcode as usize).copied().flatten();
        let operation = decoder.ok_or(Errno::ENOSYS)?(body)?;
        Ok(Request { header, operation })
    }

    /// What all forms have in common.
    const fn common() -> Self {
        let none = Self {
            decoders: [None; OPCODES],
        };
        none.names().files().others()
    }

    /// What is about names and attributes.
    const fn names(self) -> Self {
        self.with(opcode::LOOKUP, |body| body.name().map(Operation::Lookup))
            .with(opcode::FORGET, |body| {
                Ok(Operation::Forget(body.only::<abi::ForgetIn>()?.nlookup))
            })
            .with(opcode::BATCH_FORGET, forgotten)
            .with(opcode::GETATTR, |body| {
                let it: abi::GetattrIn = body.only()?;
                let has_handle = it.getattr_flags & abi::flags::GETATTR_FH != 0;
                Ok(Operation::Getattr(if has_handle { it.fh } else { 0 }))
            })
            .with(opcode::STATX, |_| Ok(Operation::Statx))
            .with(opcode::SETATTR, |body| body.only().map(Operation::Setattr))
            .with(opcode::READLINK, |_| Ok(Operation::Readlink))
            .with(opcode::SYMLINK, |body| {
                let (name, target) = body.names()?;
                Ok(Operation::Symlink { name, target })
            })
            .with(opcode::MKNOD, |body| with_name(body, Operation::Mknod))
            .with(opcode::MKDIR, |body| with_name(body, Operation::Mkdir))
            .with(opcode::UNLINK, |body| body.name().map(Operation::Unlink))
            .with(opcode::RMDIR, |body| body.name().map(Operation::Rmdir))
            .with(opcode::RENAME, |body| {
                let (it, rest): (abi::RenameIn, _) = body.split()?;
                rename(it.newdir, 0, rest)
            })
            .with(opcode::RENAME2, |body| {
                let (it, rest): (abi::Rename2In, _) = body.split()?;
                rename(it.newdir, it.flags, rest)
            })
            .with(opcode::LINK, |body| {
                with_name(body, |it: abi::LinkIn, name| {
                    Operation::Link(it.oldnodeid, name)
                })
            })
            .with(opcode::CREATE, |body| with_name(body, Operation::Create))
            .with(opcode::TMPFILE, |body| body.only().map(Operation::Tmpfile))
    }

    /// What is about contents.
    const fn files(self) -> Self {
        self.with(opcode::OPEN, |body| body.only().map(Operation::Open))
            .with(opcode::READ, |body| body.only().map(Operation::Read))
            .with(opcode::WRITE, |body| {
                let (it, rest): (abi::WriteIn, _) = body.split()?;
                let data = rest.get(..it.size as usize).ok_or(Errno::EINVAL)?;
                Ok(Operation::Write(it, data))
            })
            .with(opcode::RELEASE, |body| {
                Ok(Operation::Release(body.only::<abi::ReleaseIn>()?.fh))
            })
            .with(opcode::FLUSH, |body| {
                Ok(Operation::Flush(body.only::<abi::FlushIn>()?.fh))
            })
            .with(opcode::FSYNC, |body| {
                let it: abi::FsyncIn = body.only()?;
                let integrity = match it.fsync_flags & abi::flags::FSYNC_FDATASYNC {
                    0 => Integrity::File,
                    _ => Integrity::Data,
                };
                Ok(Operation::Fsync(it.fh, integrity))
            })
            .with(opcode::FSYNCDIR, |_| Ok(Operation::Fsyncdir))
            .with(opcode::SYNCFS, |_| Ok(Operation::Syncfs))
            .with(opcode::FALLOCATE, |body| {
                body.only().map(Operation::Fallocate)
            })
            .with(opcode::LSEEK, |body| body.only().map(Operation::Lseek))
            .with(opcode::COPY_FILE_RANGE, |body| {
                Ok(Operation::CopyFileRange(body.only()?, CountWidth::Bits32))
            })
            .with(opcode::COPY_FILE_RANGE_64, |body| {
                Ok(Operation::CopyFileRange(body.only()?, CountWidth::Bits64))
            })
            .with(opcode::OPENDIR, |_| Ok(Operation::Opendir))
            .with(opcode::READDIR, |body| {
                Ok(Operation::Readdir(body.only()?, Listing::Names))
            })
            .with(opcode::READDIRPLUS, |body| {
                Ok(Operation::Readdir(body.only()?, Listing::Plus))
            })
            .with(opcode::RELEASEDIR, |_| Ok(Operation::Releasedir))
    }

    const fn others(self) -> Self {
        self.with(opcode::STATFS, |_| Ok(Operation::Statfs))
            .with(opcode::GETXATTR, |body| {
                let (it, rest): (abi::GetxattrIn, _) = body.split()?;
                Ok(Operation::Getxattr(it.size, split_name(rest)?.0))
            })
            .with(opcode::LISTXATTR, |body| {
                Ok(Operation::Listxattr(body.only::<abi::GetxattrIn>()?.size))
            })
            .with(opcode::REMOVEXATTR, |body| {
                body.name().map(Operation::Removexattr)
            })
            .with(opcode::ACCESS, |_| Ok(Operation::Access))
            .with(opcode::INIT, |body| init(body).map(Operation::Init))
            .with(opcode::INTERRUPT, |body| {
                Ok(Operation::Interrupt(
                    body.only::<abi::InterruptIn>()?.unique,
                ))
            })
            .with(opcode::BMAP, |body| body.only().map(Operation::Bmap))
            .with(opcode::DESTROY, |_| Ok(Operation::Destroy))
            .with(opcode::IOCTL, |body| {
                let (it, rest): (abi::IoctlIn, _) = body.split()?;
                let data = rest.get(..it.in_size as usize).ok_or(Errno::EINVAL)?;
                Ok(Operation::Ioctl(it, data))
            })
    }
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

fn setxattr(it: abi::SetxattrIn, rest: &[u8]) -> Result<Operation<'_>> {
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

    use crate::request::each_forgotten;
    use crate::testing::Client;

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
        let joined = Body::Joined(&body);
        let read = CURRENT.decode(header(opcode::RENAME2), joined).unwrap();
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
        let read = CURRENT.decode(header(opcode::WRITE), split).unwrap();
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
        for (protocol, setxattr_flags, it) in [
            (&CURRENT, 1, long.as_bytes()),
            (&BEFORE_SETXATTR_EXT, 0, short.as_bytes()),
        ] {
            let body = bytes(&[it, b"user.a\0xy"]);
            let read = protocol.decode(header(opcode::SETXATTR), Body::Joined(&body));
            let read = read.unwrap();
            let Operation::Setxattr(it, name, value) = read.operation else {
                panic!("{read:?}");
            };
            assert_eq!((it.flags, it.setxattr_flags), (1, setxattr_flags));
            assert_eq!((name, value), (&b"user.a"[..], &b"xy"[..]));
        }
    }

    /// A protocol with one request for all that gets a name, as it is announced: the mode says what
    /// is made. It is a table that differs in one row; what serves requests is the same.
    #[test]
    fn another_protocol_is_another_table() {
        const MAKE: u32 = 60;
        let protocol = CURRENT.with(MAKE, |body| {
            let (it, rest): (abi::MknodIn, _) = body.split()?;
            let (name, target) = split_name(rest)?;
            Ok(match it.mode & 0o170_000 {
                0o040_000 => {
                    let (mode, umask) = (it.mode & 0o7777, it.umask);
                    Operation::Mkdir(abi::MkdirIn { mode, umask }, name)
                }
                0o120_000 => Operation::Symlink { name, target },
                _ => Operation::Mknod(it, name),
            })
        });
        let client = Client::new();
        let make = |dir, mode, rest: &[u8]| {
            let it = abi::MknodIn {
                mode,
                ..abi::MknodIn::default()
            };
            let body = bytes(&[it.as_bytes(), rest]);
            let made = client.ask_by(&protocol, MAKE, dir, &body)?;
            let made = abi::EntryOut::read_from_prefix(&made).unwrap().0;
            Ok((made.nodeid, made.attr.mode))
        };
        let (dir, mode) = make(1, 0o040_750, b"dir\0").unwrap();
        assert_eq!(mode, 0o040_750);
        assert_eq!(make(dir, 0o100_640, b"file\0").unwrap().1, 0o100_640);
        assert_eq!(make(dir, 0o120_777, b"link\0file").unwrap().1, 0o120_777);
        assert_eq!(make(dir, 0o100_640, b"file\0"), Err(Errno::EEXIST));
        let (link, found) = (
            client.lookup(dir, b"link").unwrap(),
            client.lookup(dir, b"file"),
        );
        assert!(found.is_ok());
        let target = client.ask(opcode::READLINK, link.nodeid, b"");
        assert_eq!(target, Ok(b"file".to_vec()));
        // The kernel of today does not ask so.
        assert_eq!(client.ask(MAKE, dir, b""), Err(Errno::ENOSYS));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let decode =
            |code, body: &[u8]| CURRENT.decode(header(code), Body::Joined(body)).map(|_| ());
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
            code in 0u32..70,
            body in proptest::collection::vec(any::<u8>(), 0..300),
            at in 0usize..300,
            protocol in prop_oneof![Just(&BEFORE_SETXATTR_EXT), Just(&CURRENT)],
        ) {
            let at = at.min(body.len());
            let split = Body::Split(&body[..at], &body[at..]);
            for body in [Body::Joined(&body), split] {
                if let Ok(read) = protocol.decode(header(code), body)
                    && let Operation::BatchForget(all) = read.operation
                {
                    each_forgotten(all).for_each(drop);
                }
            }
            _ = Request::header(&body);
        }
    }
}
