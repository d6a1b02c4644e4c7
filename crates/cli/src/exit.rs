//! Exit codes.
//!
//! `mount` and `umount` end with the codes of mount(8), `repair` and `fsck` with those of fsck(8),
//! `grep` and `diff` with those of grep(1) and diff(1), all others with [`Exit::code`].

/// How the command ended: stable, and documented by `uext4 help exit-codes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done.
    Success,
    /// Nothing that was searched matches.
    NoMatch,
    /// What was compared differs.
    Different,
    /// A path does not exist in the image, or a part of what was asked could not be done; the rest
    /// was.
    Incomplete,
    /// The image was damaged, and is repaired.
    Repaired,
    /// The command line makes no sense (clap says why).
    Usage,
    /// The image is damaged.
    Damaged,
    /// Could not: no such image, no space, I/O error, unsupported feature.
    CouldNot,
    /// May not.
    Denied,
    /// The system has no thread, process or device for us.
    System,
    /// It ended as it must not.
    Internal,
    /// The user called it off.
    Interrupted,
}

impl Exit {
    /// The code of all commands but those that have the codes of other programs.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::NoMatch | Self::Different | Self::Incomplete | Self::Repaired => 1,
            Self::Usage => 2,
            Self::Damaged => 4,
            Self::CouldNot | Self::Denied | Self::System | Self::Internal | Self::Interrupted => 8,
        }
    }

    /// The code of `mount` and `umount`, as mount(8) has them.
    pub fn mount_code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Usage | Self::Denied => 1,
            Self::System => 2,
            Self::Internal => 4,
            Self::Interrupted => 8,
            Self::NoMatch
            | Self::Different
            | Self::Incomplete
            | Self::Repaired
            | Self::Damaged
            | Self::CouldNot => 32,
        }
    }

    /// The code of `grep` and `diff`, as grep(1) and diff(1) have it.
    pub fn grep_code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::NoMatch | Self::Different => 1,
            _ => 2,
        }
    }

    /// The code of `repair` and `fsck`, as fsck(8) has them.
    pub fn fsck_code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Repaired => 1,
            Self::NoMatch | Self::Different | Self::Incomplete | Self::Damaged => 4,
            Self::CouldNot | Self::Denied | Self::System | Self::Internal => 8,
            Self::Usage => 16,
            Self::Interrupted => 32,
        }
    }

    /// What a `mount` that ended so has met. `None`: it was killed, or panicked.
    pub fn of_mount_code(code: Option<i32>) -> Self {
        match code {
            Some(0) => Self::Success,
            Some(1) => Self::Usage,
            Some(2) => Self::System,
            Some(8) => Self::Interrupted,
            Some(32) => Self::CouldNot,
            _ => Self::Internal,
        }
    }
}
