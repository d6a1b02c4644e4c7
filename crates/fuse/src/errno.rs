//! What the engine says, as the kernel numbers it. The only place where the two meet.

use uext4::Error;

/// An error number as replies carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u16);

/// Declares numbers by name.
macro_rules! numbers {
    ($($name:ident = $number:literal;)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                pub const $name: Self = Self($number);
            )*

            /// Those above, with their names.
            pub const ALL: &[(Self, &'static str)] = &[$((Self::$name, stringify!($name))),*];
        }
    };
}

numbers! {
    EPERM = 1;
    ENOENT = 2;
    EINTR = 4;
    EIO = 5;
    ENXIO = 6;
    E2BIG = 7;
    EAGAIN = 11;
    ENOMEM = 12;
    EACCES = 13;
    EBUSY = 16;
    EEXIST = 17;
    EXDEV = 18;
    ENOTDIR = 20;
    EISDIR = 21;
    EINVAL = 22;
    ENOTTY = 25;
    EFBIG = 27;
    ENOSPC = 28;
    EROFS = 30;
    EMLINK = 31;
    ERANGE = 34;
    ENAMETOOLONG = 36;
    ENOSYS = 38;
    ENOTEMPTY = 39;
    ELOOP = 40;
    ENODATA = 61;
    EPROTO = 71;
    EOVERFLOW = 75;
    EOPNOTSUPP = 95;
    ESTALE = 116;
    EUCLEAN = 117;
    EDQUOT = 122;
    ENOKEY = 126;
}

impl Errno {
    /// Whether a request failed that is answered so, for a reason that the administrator has to
    /// know: the image is damaged or full, a quota is used up, nothing is written any more, the
    /// device fails, memory or threads are short. All others say something about the file, the
    /// name or the caller, which programs ask for and expect: `ENOENT`, `ENODATA`, `EEXIST`, …
    pub fn is_failure(self) -> bool {
        const FAILURES: [Errno; 7] = [
            Errno::EIO,
            Errno::EUCLEAN,
            Errno::ENOSPC,
            Errno::EDQUOT,
            Errno::EROFS,
            Errno::ENOMEM,
            Errno::EAGAIN,
        ];
        FAILURES.contains(&self)
    }

    /// Of an error of the engine.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::NotFound => Self::ENOENT,
            Error::Exists => Self::EEXIST,
            Error::NotDirectory => Self::ENOTDIR,
            Error::IsDirectory => Self::EISDIR,
            Error::NotEmpty => Self::ENOTEMPTY,
            Error::NameTooLong | Error::TargetTooLong { .. } => Self::ENAMETOOLONG,
            Error::NoSpace { .. }
            | Error::DirectoryFull { .. }
            | Error::NoInodes { .. }
            | Error::XattrsTooBig { .. } => Self::ENOSPC,
            Error::QuotaExceeded { .. } => Self::EDQUOT,
            Error::NoAttribute => Self::ENODATA,
            Error::AttributeName { .. } => Self::ERANGE,
            Error::AttributeValue { .. } => Self::E2BIG,
            Error::NotPermitted { .. } => Self::EPERM,
            Error::AccessDenied { .. } => Self::EACCES,
            Error::ReadOnly | Error::Aborted { .. } => Self::EROFS,
            Error::InUse { .. } => Self::EBUSY,
            Error::OtherProject => Self::EXDEV,
            Error::TooManyLinks => Self::EMLINK,
            Error::TooManySymlinks => Self::ELOOP,
            Error::FileTooBig => Self::EFBIG,
            Error::Encrypted => Self::ENOKEY,
            Error::Unsupported { .. } => Self::EOPNOTSUPP,
            Error::Invalid { .. } | Error::UnknownOption { .. } | Error::Option { .. } => {
                Self::EINVAL
            }
            Error::NoThreads { .. } => Self::EAGAIN,
            Error::Interrupted => Self::EINTR,
            Error::Corrupt(_) => Self::EUCLEAN,
            Error::Shared(error) => Self::of(error),
            Error::Device(uext4_blockdev::Error::ReadOnly) => Self::EROFS,
            Error::Device(uext4_blockdev::Error::Io { source, .. }) => Self::of_host(source),
            Error::Stalled
            | Error::Content { .. }
            | Error::Device(_)
            | Error::NotDurable { .. }
            | Error::Journal { .. } => Self::EIO,
            // The engine's list may grow; what is not known here is no answer to rely on.
            _ => Self::EIO,
        }
    }

    /// Of an error of the host: only that it has no room for the image is what the caller can mend.
    fn of_host(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull => Self::ENOSPC,
            std::io::ErrorKind::QuotaExceeded => Self::EDQUOT,
            _ => Self::EIO,
        }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self::of(&error)
    }
}

/// What an operation gives.
pub type Result<T> = std::result::Result<T, Errno>;

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use rustix::io::Errno as Host;
    use uext4::quota::QuotaKind;
    use uext4::{Damage, Ino, Invalid};

    use super::*;

    fn of_device(source: Host) -> Error {
        Error::Device(uext4_blockdev::Error::Io {
            op: "write",
            offset: 0,
            source: source.into(),
        })
    }

    /// Every error of the engine but those of options, which no request can meet.
    fn all() -> Vec<(Error, Host)> {
        let what = "x";
        let (kind, ino) = (QuotaKind::User, Ino(12));
        let damage = Damage::Acl { why: "x" };
        vec![
            (Error::NotFound, Host::NOENT),
            (Error::Exists, Host::EXIST),
            (Error::NotDirectory, Host::NOTDIR),
            (Error::IsDirectory, Host::ISDIR),
            (Error::NotEmpty, Host::NOTEMPTY),
            (Error::NameTooLong, Host::NAMETOOLONG),
            (Error::NoSpace { needed: 1, free: 0 }, Host::NOSPC),
            (Error::QuotaExceeded { kind, id: 1 }, Host::DQUOT),
            (Error::DirectoryFull { ino, why: what }, Host::NOSPC),
            (Error::NoInodes { count: 1 }, Host::NOSPC),
            (Error::XattrsTooBig { need: 2, room: 1 }, Host::NOSPC),
            (Error::NoAttribute, Host::NODATA),
            (Error::AttributeName { len: 0 }, Host::RANGE),
            (Error::AttributeValue { len: 2, max: 1 }, Host::TOOBIG),
            (Error::NotPermitted { what }, Host::PERM),
            (Error::AccessDenied { what }, Host::ACCESS),
            (Error::ReadOnly, Host::ROFS),
            (
                Error::Aborted {
                    reason: what.into(),
                },
                Host::ROFS,
            ),
            (Error::InUse { by: what.into() }, Host::BUSY),
            (Error::OtherProject, Host::XDEV),
            (Error::TooManyLinks, Host::MLINK),
            (Error::TooManySymlinks, Host::LOOP),
            (Error::FileTooBig, Host::FBIG),
            (Error::Encrypted, Host::NOKEY),
            (Error::Unsupported { what: what.into() }, Host::OPNOTSUPP),
            (Error::Invalid(Invalid::Dots), Host::INVAL),
            (Error::Interrupted, Host::INTR),
            (Error::Stalled, Host::IO),
            (
                Error::Content {
                    offset: 0,
                    source: io::Error::other("x"),
                },
                Host::IO,
            ),
            (Error::Shared(Arc::new(Error::NotFound)), Host::NOENT),
            (Error::Corrupt(damage), Host::UCLEAN),
            (Error::Device(uext4_blockdev::Error::ReadOnly), Host::ROFS),
            (of_device(Host::NOSPC), Host::NOSPC),
            (of_device(Host::DQUOT), Host::DQUOT),
            (of_device(Host::NODEV), Host::IO),
            (
                Error::NotDurable {
                    reason: what.into(),
                },
                Host::IO,
            ),
            (Error::Journal { why: what.into() }, Host::IO),
        ]
    }

    #[test]
    fn numbers_are_those_of_the_system() {
        for (error, host) in all() {
            let ours = i32::from(Errno::of(&error).0);
            assert_eq!(ours, host.raw_os_error(), "{error:?}");
        }
        let others = [
            (Errno::ENXIO, Host::NXIO),
            (Errno::EAGAIN, Host::AGAIN),
            (Errno::ENOMEM, Host::NOMEM),
            (Errno::ENOTTY, Host::NOTTY),
            (Errno::ENOSYS, Host::NOSYS),
            (Errno::EPROTO, Host::PROTO),
            (Errno::EOVERFLOW, Host::OVERFLOW),
            (Errno::ESTALE, Host::STALE),
        ];
        for (ours, host) in others {
            assert_eq!(i32::from(ours.0), host.raw_os_error());
        }
    }
}
