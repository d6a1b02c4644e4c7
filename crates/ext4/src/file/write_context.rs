//! How a write is done: its offset in the file, the writer that is throttled, and where that
//! writer waits if too much data is dirty.

use std::time::Duration;

use uext4_writeback::{Paced, Writer};

use crate::inode::attr::SetId;

/// How a write is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteMode {
    /// Write at the current end of the file, as `O_APPEND` does. Append-only files accept this and
    /// `gathered` alone.
    pub append: bool,
    /// Write where `offset` says, also into an append-only file. For pages of one that was opened
    /// for appending, which a cache above the engine has gathered: with what was appended they hold
    /// the end of what was there.
    pub gathered: bool,
    /// How set-user-id and set-group-id are handled.
    pub set_id: SetId,
}

impl WriteMode {
    /// Writes at the end; other settings are the defaults.
    #[must_use]
    pub fn append() -> Self {
        Self {
            append: true,
            ..Self::default()
        }
    }
}

/// Which writer is throttled if too much data is dirty, and where it waits.
#[derive(Debug, Default)]
pub enum Pacing<'a> {
    /// The calling thread is throttled, and waits in the call.
    #[default]
    Thread,
    /// This writer is throttled, and waits in the call; the wait may be cancelled.
    Sleep(&'a mut Writer),
    /// This writer is throttled, and waits after the call for [`Written::pause`].
    Return(&'a mut Writer),
}

/// How one write is done, and by which writer.
#[derive(Debug, Default)]
pub struct WriteContext<'a> {
    /// How the file is changed.
    pub mode: WriteMode,
    /// Where the writer waits.
    pub pacing: Pacing<'a>,
}

impl From<WriteMode> for WriteContext<'_> {
    fn from(mode: WriteMode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// Number of bytes accepted.
    pub len: usize,
    /// How long the writer should wait before it continues; zero except with [`Pacing::Return`].
    pub pause: Duration,
}

impl Written {
    pub(crate) fn new(offset: u64, paced: Paced) -> Self {
        Self {
            offset,
            len: paced.taken,
            pause: paced.pause,
        }
    }
}
