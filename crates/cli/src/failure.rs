//! The one error type of the command.

use std::fmt::Display;
use std::io;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use uext4::RemoteError;

pub use crate::exit::Exit;
use crate::{kernel_mount, messages};

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// The reader of standard output went away.
    BrokenPipe,
    /// Anything else: one sentence for standard error, and what to do next where that is known.
    Message {
        /// The exit code.
        exit: Exit,
        /// The sentence, without full stop.
        what: String,
        /// What to do next.
        hint: Option<String>,
    },
}

impl Failure {
    /// A failure without a hint.
    pub fn new(exit: Exit, what: impl Display) -> Self {
        Self::Message {
            exit,
            what: what.to_string(),
            hint: None,
        }
    }

    /// The same with what to do next.
    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Message { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// An error of the engine about `subject` (the image, or a path in it).
    pub fn engine(subject: impl Display, error: &uext4::Error) -> Self {
        if is_damage(error)
            && let Some((what, hint)) = kernel_mount::said(error)
        {
            return Self::new(exit_of(error), format_args!("{subject}: {what}")).hint(hint);
        }
        let failure = Self::new(exit_of(error), format_args!("{subject}: {error}"));
        match next_step(error) {
            Some(step) => failure.hint(step),
            None => failure,
        }
    }

    /// An error of the operating system about `subject`.
    pub fn io(subject: impl Display, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::PermissionDenied => Exit::Denied,
            _ => Exit::CouldNot,
        };
        Self::new(exit, format_args!("{subject}: {error}"))
    }

    /// The same, with the place that it is about before it.
    #[must_use]
    pub fn about(mut self, place: impl Display) -> Self {
        if let Self::Message { what, .. } = &mut self {
            *what = format!("{place}: {what}");
        }
        self
    }

    /// The same, with a worse exit code where there is one.
    #[must_use]
    pub fn at_least(mut self, code: Exit) -> Self {
        if let Self::Message { exit, .. } = &mut self {
            *exit = code.max(*exit);
        }
        self
    }

    /// The same, with another exit code.
    #[must_use]
    pub fn with_exit(mut self, code: Exit) -> Self {
        if let Self::Message { exit, .. } = &mut self {
            *exit = code;
        }
        self
    }
}

/// Errors of writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::io("standard output", &error),
        }
    }
}

/// Whether it says that the image is damaged.
fn is_damage(error: &uext4::Error) -> bool {
    match error {
        uext4::Error::Shared(error) => is_damage(error),
        error => matches!(error, uext4::Error::Corrupt(_)),
    }
}

/// The exit code an error of the engine leads to.
pub fn exit_of(error: &uext4::Error) -> Exit {
    match error {
        uext4::Error::Shared(error) => exit_of(error),
        uext4::Error::Corrupt(_) if kernel_mount::explains_damage() => Exit::CouldNot,
        uext4::Error::Corrupt(_) => Exit::Damaged,
        uext4::Error::Remote { kind, .. } => match kind {
            RemoteError::Damage => Exit::Damaged,
            RemoteError::Request => Exit::Incomplete,
            RemoteError::Limit | RemoteError::NoSpace | RemoteError::FileSystem => Exit::CouldNot,
        },
        error if error.is_beyond_end() => Exit::Damaged,
        uext4::Error::NotFound
        | uext4::Error::NotDirectory
        | uext4::Error::IsDirectory
        | uext4::Error::TooManySymlinks
        | uext4::Error::NameTooLong
        | uext4::Error::TargetTooLong { .. }
        | uext4::Error::Encrypted
        | uext4::Error::Exists
        | uext4::Error::NotEmpty
        | uext4::Error::NoAttribute
        | uext4::Error::NotPermitted { .. }
        | uext4::Error::AccessDenied { .. }
        | uext4::Error::Invalid { .. } => Exit::Incomplete,
        _ => Exit::CouldNot,
    }
}

/// What to do about an error of the engine, where that is the same whatever was asked.
fn next_step(error: &uext4::Error) -> Option<&'static str> {
    use uext4_blockdev::Error as Device;
    match error {
        uext4::Error::Shared(error) => next_step(error),
        uext4::Error::Corrupt(_)
        | uext4::Error::Remote {
            kind: RemoteError::Damage,
            ..
        } => Some("`uext4 check IMAGE` lists all that is damaged"),
        uext4::Error::NoSpace { .. }
        | uext4::Error::NoInodes { .. }
        | uext4::Error::Remote {
            kind: RemoteError::NoSpace,
            ..
        } => Some(
            "remove something with `uext4 rm`, or make the file system larger: \
             `uext4 grow IMAGE +1G`, also while it is mounted",
        ),
        uext4::Error::NameTooLong => Some("a name has 255 bytes at most, a path 4095"),
        uext4::Error::Device(Device::Io { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            Some(MAKE_WRITABLE)
        }
        uext4::Error::Device(
            Device::Verified { .. }
            | Device::VerifiedBoot { .. }
            | Device::ReadOnlyPartition { .. },
        ) => Some(DROP_VERITY),
        uext4::Error::ReadOnly => Some(MAKE_WRITABLE),
        _ => None,
    }
}

/// What to do where an image takes no writes.
pub const MAKE_WRITABLE: &str = "make it writable first: `chmod u+w IMAGE` (a file), \
     `blockdev --setrw IMAGE` (a block device); or only read it (`mount -o ro`)";

/// What to do about an image that is protected.
pub const DROP_VERITY: &str =
    "only read it; or give the protection up, and change it: `--drop-verity`";

/// The worst exit code that [`Complaints`] of this process have met: what is known to be damaged
/// stays so when the reader of standard output goes away.
static KNOWN: AtomicU8 = AtomicU8::new(0);

/// Whether damage is known, or less than that.
pub fn known() -> Exit {
    match KNOWN.load(Relaxed) {
        code if code == Exit::Damaged.code() => Exit::Damaged,
        code if code == Exit::CouldNot.code() => Exit::CouldNot,
        0 => Exit::Success,
        _ => Exit::Incomplete,
    }
}

/// Notes that a part of the work ends so.
pub fn note(exit: Exit) {
    KNOWN.fetch_max(exit.code(), Relaxed);
}

/// Collects what went wrong with parts of the work while the rest goes on.
#[derive(Debug)]
pub struct Complaints {
    worst: Exit,
    count: u64,
    /// Stands before all of them.
    place: String,
}

/// Complaints printed one by one; the rest is only counted.
const PRINTED_MAX: u64 = 100;

impl Complaints {
    /// None yet.
    pub fn new() -> Self {
        Self {
            worst: Exit::Success,
            count: 0,
            place: String::new(),
        }
    }

    /// None yet, about line `number` of a script.
    pub fn of_line(number: u64) -> Self {
        Self::about(format_args!("line {number}"))
    }

    /// None yet, about what `place` names.
    pub fn about(place: impl Display) -> Self {
        Self {
            place: format!("{place}: "),
            ..Self::new()
        }
    }

    /// Reports a failure of a part of the work and goes on.
    ///
    /// # Errors
    /// A broken pipe is passed on.
    pub fn failure(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure::BrokenPipe => return Err(Failure::BrokenPipe),
            Failure::Message { exit, what, hint } => {
                self.add(exit.max(Exit::Incomplete), what, hint.as_deref());
            }
        }
        Ok(())
    }

    /// Prints it to standard error and goes on.
    pub fn report(&mut self, exit: Exit, what: impl Display) {
        self.add(exit, what, None);
    }

    fn add(&mut self, exit: Exit, what: impl Display, hint: Option<&str>) {
        note(exit);
        self.worst = self.worst.max(exit);
        self.count += 1;
        if self.count <= PRINTED_MAX {
            messages::error(exit, format_args!("{}{what}", self.place), hint);
        }
    }

    /// Like [`Complaints::report`], for an error of the engine about a path.
    pub fn engine(&mut self, subject: impl Display, error: &uext4::Error) {
        let exit = exit_of(error).max(Exit::Incomplete);
        match kernel_mount::said(error).filter(|_| is_damage(error)) {
            Some((what, hint)) => self.add(exit, format_args!("{subject}: {what}"), Some(&hint)),
            None => self.report(exit, format_args!("{subject}: {error}")),
        }
    }

    /// The worst exit code of all.
    pub fn exit(&self) -> Exit {
        if self.count > PRINTED_MAX {
            messages::warning(format_args!("{} more like these", self.count - PRINTED_MAX));
        }
        self.worst
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uext4_ondisk::{Damage, Ino};

    use super::*;

    #[test]
    fn an_error_that_several_met_has_the_exit_code_of_its_cause() {
        let damage = || {
            let why = "of a test";
            uext4::Error::Corrupt(Damage::Directory { ino: Ino(2), why })
        };
        for cause in [damage, || uext4::Error::NotFound] {
            let shared = uext4::Error::Shared(Arc::new(cause()));
            assert_eq!(exit_of(&shared), exit_of(&cause()));
            assert_eq!(next_step(&shared), next_step(&cause()));
        }
    }
}
