//! The engine's error: one variant for each thing a caller can act on, like errno.

use std::sync::Arc;

use uext4_ondisk::pack::PackError;
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::{Damage, Ino};

use crate::base::invalid::Invalid;

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such name (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken (EEXIST).
    #[error("the name exists already")]
    Exists,
    /// A directory was needed (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// Anything but a directory was needed (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// The directory still has names in it (ENOTEMPTY).
    #[error("the directory is not empty")]
    NotEmpty,
    /// The name has more than 255 bytes, or a path more than the limit (ENAMETOOLONG).
    #[error("the name is too long")]
    NameTooLong,
    /// The target of a symbolic link does not fit a block (ENAMETOOLONG).
    #[error(
        "the target of {len} bytes is too long for blocks of {block_len} bytes: it needs `-b {}`",
        (len + 1).next_power_of_two()
    )]
    TargetTooLong {
        /// Bytes of the target.
        len: usize,
        /// Bytes of a block, one of which the target may not have.
        block_len: usize,
    },
    /// Not enough blocks are free (ENOSPC).
    #[error("no space left: {needed} blocks are needed, {free} are free")]
    NoSpace {
        /// Blocks that were asked for at once.
        needed: u64,
        /// Blocks that are free.
        free: u64,
    },
    /// A user, group or project would get more than its limits allow (EDQUOT).
    #[error("quota exceeded: {kind:?} {id}")]
    QuotaExceeded {
        /// Which of them.
        kind: QuotaKind,
        /// Its id.
        id: u32,
    },
    /// The directory can take no more names of this kind, however many blocks are free (ENOSPC).
    #[error("directory inode {ino} is full: {why}")]
    DirectoryFull {
        /// The directory.
        ino: Ino,
        /// Its size or the depth of its tree.
        why: &'static str,
    },
    /// No inode is free (ENOSPC).
    #[error("no inodes left: all {count} are in use")]
    NoInodes {
        /// Inodes of the file system.
        count: u32,
    },
    /// The extended attributes of one inode do not fit (ENOSPC).
    #[error("extended attributes need {need} bytes, there is room for {room}")]
    XattrsTooBig {
        /// Bytes they need.
        need: u64,
        /// Bytes there are in a block.
        room: u64,
    },
    /// No such extended attribute (ENODATA).
    #[error("no such extended attribute")]
    NoAttribute,
    /// The name of an extended attribute is empty or longer than 255 bytes (ERANGE).
    #[error("the name of an extended attribute has {len} bytes, not 1 to 255")]
    AttributeName {
        /// Bytes it has.
        len: usize,
    },
    /// The value of an extended attribute is longer than the system calls take (E2BIG).
    #[error("the value of an extended attribute has {len} bytes, more than {max}")]
    AttributeValue {
        /// Bytes it has.
        len: usize,
        /// Bytes it may have.
        max: usize,
    },
    /// The rules of the file system forbid it to every caller (EPERM).
    #[error("not permitted: {what}")]
    NotPermitted {
        /// What is.
        what: &'static str,
    },
    /// The object is not of the kind that allows it (EACCES).
    #[error("access denied: {what}")]
    AccessDenied {
        /// What is wanted.
        what: &'static str,
    },
    /// What was to be written could not be had from its source.
    #[error("reading what is to be written, at byte {offset}: {source}")]
    Content {
        /// Byte in the file.
        offset: u64,
        /// Why.
        source: std::io::Error,
    },
    /// The file system or device takes no writes (EROFS).
    #[error("the file system is read-only")]
    ReadOnly,
    /// An error ended all writing, so that it does not get worse; reading goes on (EROFS).
    #[error("the file system takes no more writes after an error: {reason}")]
    Aborted {
        /// The first error.
        reason: String,
    },
    /// Another thread writes to it: multiple mount protection (EBUSY).
    #[error("the file system is in use by {by}")]
    InUse {
        /// The user of it.
        by: String,
    },
    /// The directory takes in only inodes of its own project (EXDEV).
    #[error("the directory takes in only what belongs to its project")]
    OtherProject,
    /// Too many hard links or subdirectories (EMLINK).
    #[error(
        "too many links: a file has at most 65,000 names, and without the feature dir_nlink a \
         directory as many subdirectories"
    )]
    TooManyLinks,
    /// More symbolic links on the way than the limit, 40 (ELOOP).
    #[error("too many symbolic links")]
    TooManySymlinks,
    /// The file is larger than the mapping or the block size allows (EFBIG).
    #[error("the file is too big")]
    FileTooBig,
    /// The contents are encrypted and there is no key (ENOKEY).
    #[error("the contents are encrypted")]
    Encrypted,
    /// The file system or request needs something this implementation does not do (EOPNOTSUPP).
    #[error("not supported: {what}")]
    Unsupported {
        /// Features or request, by name.
        what: String,
    },
    /// The request makes no sense (EINVAL).
    #[error("invalid request: {0}")]
    Invalid(#[from] Invalid),
    /// There is no option of this name (EINVAL).
    #[error("{message}")]
    UnknownOption {
        /// The name, and whose option was looked for.
        message: String,
    },
    /// An option cannot have this value (EINVAL).
    #[error("{message}")]
    Option {
        /// The option with its value, and what it may be.
        message: String,
    },
    /// The system can start no thread (EAGAIN).
    #[error("no thread can be started: {source}")]
    NoThreads {
        /// The error of the system.
        source: std::io::Error,
    },
    /// The call was cancelled while it waited (EINTR).
    #[error("cancelled")]
    Interrupted,
    /// The device has written nothing for too long, so what is dirty stays so (EIO).
    #[error("device stalled: no write completes; no more dirty data is accepted")]
    Stalled,
    /// The image is damaged (EUCLEAN).
    #[error("damaged: {0}")]
    Corrupt(#[from] Damage),
    /// What was written may be lost, for writing ended or a flush failed before it was durable
    /// (EIO). Each opening of a file gets it once; later calls say [`Error::Aborted`].
    #[error("what was written may be lost: {reason}")]
    NotDurable {
        /// What ended writing.
        reason: String,
    },
    /// The journal cannot be written or replayed as it is (EIO).
    #[error("the journal: {why}")]
    Journal {
        /// What is in the way.
        why: String,
    },
    /// An error of a file system that another process has open, in the words of that one.
    #[error("{message}")]
    Remote {
        /// Its kind.
        kind: RemoteError,
        /// What it says.
        message: String,
    },
    /// The same error was met by several.
    #[error(transparent)]
    Shared(Arc<Error>),
    /// The device failed (EIO).
    #[error(transparent)]
    Device(#[from] uext4_blockdev::Error),
}

/// The kind of an error that another process reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteError {
    /// It concerns one file, and is the caller's to mend.
    Request,
    /// It concerns one file, which the file system cannot have so.
    Limit,
    /// No space, no inodes.
    NoSpace,
    /// The image is damaged.
    Damage,
    /// The file system cannot go on: no space, its device, the connection.
    FileSystem,
}

impl Error {
    /// Whether something lies beyond the end of a device that is shorter than the file system.
    pub fn is_beyond_end(&self) -> bool {
        match self {
            Self::Device(uext4_blockdev::Error::BeyondEnd { .. }) => true,
            Self::Shared(error) => error.is_beyond_end(),
            _ => false,
        }
    }

    /// The error of the file system that `std::io`'s traits passed on; any other as one of
    /// contents.
    pub(crate) fn from_io(error: std::io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(source) => Self::Content { offset: 0, source },
        }
    }

    /// What `std::io` calls an error of this kind. Not `Interrupted`, after which `std` tries
    /// again.
    fn io_kind(&self) -> std::io::ErrorKind {
        use std::io::ErrorKind as Kind;
        match self {
            Self::NotFound => Kind::NotFound,
            Self::Exists => Kind::AlreadyExists,
            Self::NotDirectory => Kind::NotADirectory,
            Self::IsDirectory => Kind::IsADirectory,
            Self::NotEmpty => Kind::DirectoryNotEmpty,
            Self::NameTooLong | Self::TargetTooLong { .. } => Kind::InvalidFilename,
            Self::NoSpace { .. } | Self::DirectoryFull { .. } | Self::NoInodes { .. } => {
                Kind::StorageFull
            }
            Self::QuotaExceeded { .. } => Kind::QuotaExceeded,
            Self::NotPermitted { .. } | Self::AccessDenied { .. } | Self::Encrypted => {
                Kind::PermissionDenied
            }
            Self::ReadOnly | Self::Aborted { .. } => Kind::ReadOnlyFilesystem,
            Self::InUse { .. } => Kind::ResourceBusy,
            Self::TooManyLinks => Kind::TooManyLinks,
            Self::FileTooBig => Kind::FileTooLarge,
            Self::Unsupported { .. } => Kind::Unsupported,
            Self::Invalid { .. } | Self::Option { .. } | Self::UnknownOption { .. } => {
                Kind::InvalidInput
            }
            Self::Corrupt(_) => Kind::InvalidData,
            Self::Shared(error) => error.io_kind(),
            _ => Kind::Other,
        }
    }

    /// The damage that it reports.
    pub(crate) fn damage(&self) -> Option<&Damage> {
        match self {
            Self::Corrupt(damage) => Some(damage),
            Self::Shared(error) => error.damage(),
            _ => None,
        }
    }

    /// Whether an inode was asked for by a number that none has, or none that is in use: if the
    /// number is the caller's own, nothing on the device is wrong.
    pub fn is_unused_inode(&self) -> bool {
        self.is_no_inode(true)
    }

    /// Whether it is that there is no inode of a number, or none in use: what the number is from
    /// decides whether anything on the disk is wrong.
    pub(crate) fn is_no_inode(&self, by_number: bool) -> bool {
        match self {
            // The number of a path is from a directory.
            Self::Corrupt(Damage::InodeNumber { .. }) => by_number,
            Self::Corrupt(Damage::UnusedInode { .. }) => true,
            _ => false,
        }
    }

    /// Whether it says that there are not enough free blocks.
    pub(crate) fn is_no_space(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::Shared(error) => error.is_no_space(),
            _ => false,
        }
    }
}

impl From<PackError> for Error {
    fn from(error: PackError) -> Self {
        match error {
            PackError::SameName => Self::Exists,
            PackError::NameLength { .. } | PackError::XattrName { .. } => Self::NameTooLong,
            PackError::XattrsTooBig { need, room } => Self::XattrsTooBig { need, room },
            PackError::Extent(extent) => Self::Invalid(Invalid::Extent {
                lblk: extent.lblk,
                len: extent.len.into(),
            }),
            _ => Self::FileTooBig,
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.io_kind(), error)
    }
}

impl From<uext4_tunables::TunableError> for Error {
    fn from(error: uext4_tunables::TunableError) -> Self {
        let message = error.to_string();
        Self::Option { message }
    }
}

impl From<uext4_buffer_cache::Error> for Error {
    fn from(error: uext4_buffer_cache::Error) -> Self {
        use uext4_buffer_cache::Error as Cache;
        match error {
            Cache::Device(error) => Self::Device(error),
            Cache::Damage(damage) => Self::Corrupt(damage),
            other => Self::Unsupported {
                what: other.to_string(),
            },
        }
    }
}

impl From<uext4_mballoc::Error<Error>> for Error {
    fn from(error: uext4_mballoc::Error<Error>) -> Self {
        use uext4_mballoc::Error as Mballoc;
        match error {
            Mballoc::NoSpace { min_len, free } => Self::NoSpace {
                needed: min_len.into(),
                free,
            },
            Mballoc::FreeCount {
                group,
                bitmap,
                descriptor,
            } => Self::Corrupt(Damage::BitmapCount {
                group,
                what: "block bitmap",
                bitmap,
                descriptor,
            }),
            Mballoc::Unreadable { group } => Self::Corrupt(Damage::BitmapCount {
                group,
                what: "unreadable block bitmap",
                bitmap: 0,
                descriptor: 0,
            }),
            Mballoc::NotUsed { start, len, .. } => Self::Corrupt(Damage::BlockRange {
                what: "blocks to be freed",
                start,
                len: len.into(),
                blocks_count: 0,
            }),
            Mballoc::Bitmaps(error) => error,
        }
    }
}

impl From<uext4_jbd2::Error> for Error {
    fn from(error: uext4_jbd2::Error) -> Self {
        use uext4_jbd2::Error as Journal;
        match error {
            Journal::Device(error) => Self::Device(error),
            Journal::Damage(damage) => Self::Corrupt(damage),
            Journal::Aborted { reason } => Self::Aborted { reason },
            error @ (Journal::UnknownFeature { .. } | Journal::Version) => Self::Unsupported {
                what: error.to_string(),
            },
            error @ Journal::FlushFailed => Self::NotDurable {
                reason: error.to_string(),
            },
            error => Self::Journal {
                why: error.to_string(),
            },
        }
    }
}

impl From<uext4_writeback::Error<Error>> for Error {
    fn from(error: uext4_writeback::Error<Error>) -> Self {
        use uext4_writeback::Error as Pages;
        match error {
            Pages::Mapping(error) => Self::Shared(error),
            Pages::OutOfRange { .. } => Self::FileTooBig,
            Pages::Cancelled => Self::Interrupted,
            Pages::Stalled => Self::Stalled,
            _ => Self::Invalid(Invalid::Gone),
        }
    }
}

/// What the engine's functions return.
pub type Result<T> = std::result::Result<T, Error>;
