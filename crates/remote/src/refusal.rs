//! Errors of the engine, as they pass from one process to another.

use serde::{Deserialize, Serialize};
use uext4::{Error, RemoteError};

/// An error of the engine, as far as its kinds matter to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// [`uext4::Error::NotFound`].
    NotFound,
    /// [`uext4::Error::Exists`].
    Exists,
    /// [`uext4::Error::NotDirectory`].
    NotDirectory,
    /// [`uext4::Error::IsDirectory`].
    IsDirectory,
    /// [`uext4::Error::NotEmpty`].
    NotEmpty,
    /// [`uext4::Error::NameTooLong`].
    NameTooLong,
    /// [`uext4::Error::NoAttribute`].
    NoAttribute,
    /// [`uext4::Error::ReadOnly`].
    ReadOnly,
    /// Others that concern one file, and are the caller's to mend.
    Request,
    /// Others that concern one file, which the file system cannot have so.
    Limit,
    /// No space, no inodes.
    NoSpace,
    /// The image is damaged.
    Damage,
    /// What was to be written could not be read.
    Content,
    /// The batch was ended before, by another error.
    NotTried,
    /// Its directory could not be made.
    NoDirectory,
    /// The device is shorter than the file system would be, and cannot be made longer.
    DeviceTooSmall,
    /// The file system is not what a mount leaves.
    Unsound,
    /// Everything else: no space, the device.
    FileSystem,
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Its kind.
    pub cause: Cause,
    /// What it says.
    pub message: String,
}

impl From<&Error> for Cause {
    fn from(error: &Error) -> Self {
        match error {
            Error::Shared(error) => Self::from(&**error),
            Error::NotFound => Self::NotFound,
            Error::Exists => Self::Exists,
            Error::NotDirectory => Self::NotDirectory,
            Error::IsDirectory => Self::IsDirectory,
            Error::NotEmpty => Self::NotEmpty,
            Error::NameTooLong => Self::NameTooLong,
            Error::NoAttribute => Self::NoAttribute,
            Error::ReadOnly => Self::ReadOnly,
            Error::Content { .. } => Self::Content,
            Error::Corrupt(_) => Self::Damage,
            Error::TooManySymlinks
            | Error::Encrypted
            | Error::NotPermitted { .. }
            | Error::Invalid(_) => Self::Request,
            Error::TooManyLinks
            | Error::TargetTooLong { .. }
            | Error::FileTooBig
            | Error::OtherProject
            | Error::XattrsTooBig { .. }
            | Error::AttributeName { .. }
            | Error::AttributeValue { .. }
            | Error::AccessDenied { .. }
            | Error::Unsupported { .. } => Self::Limit,
            Error::NoSpace { .. } | Error::NoInodes { .. } => Self::NoSpace,
            Error::Remote { kind, .. } => match kind {
                RemoteError::Request => Self::Request,
                RemoteError::Limit => Self::Limit,
                RemoteError::NoSpace => Self::NoSpace,
                RemoteError::Damage => Self::Damage,
                RemoteError::FileSystem => Self::FileSystem,
            },
            _ => Self::FileSystem,
        }
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        Self {
            cause: error.into(),
            message: error.to_string(),
        }
    }
}

/// As the engine would have said it.
impl From<Refusal> for Error {
    fn from(Refusal { cause, message }: Refusal) -> Self {
        let remote = |kind| Self::Remote { kind, message };
        match cause {
            Cause::NotFound => Self::NotFound,
            Cause::Exists => Self::Exists,
            Cause::NotDirectory => Self::NotDirectory,
            Cause::IsDirectory => Self::IsDirectory,
            Cause::NotEmpty => Self::NotEmpty,
            Cause::NameTooLong => Self::NameTooLong,
            Cause::NoAttribute => Self::NoAttribute,
            Cause::ReadOnly => Self::ReadOnly,
            Cause::Request | Cause::Content | Cause::NoDirectory => remote(RemoteError::Request),
            Cause::Limit | Cause::DeviceTooSmall => remote(RemoteError::Limit),
            Cause::NoSpace => remote(RemoteError::NoSpace),
            Cause::Damage | Cause::Unsound => remote(RemoteError::Damage),
            Cause::NotTried | Cause::FileSystem => remote(RemoteError::FileSystem),
        }
    }
}
