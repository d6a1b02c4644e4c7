//! How a write is done: where in the file, on whose account, and the thread that waits where too
//! much is dirty.

use std::time::Duration;

use uext4_writeback::{Paced, Writer};

use crate::inode::attr::SetId;

/// How a write is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteMode {
    /// At the end, wherever that is: what append-only files take, and nothing else.
    pub append: bool,
    /// What becomes of set-user-id and set-group-id.
    pub set_id: SetId,
}

impl WriteMode {
    /// At the end; otherwise as by default.
    #[must_use]
    pub fn append() -> Self {
        Self {
            append: true,
            ..Self::default()
        }
    }
}

/// Where a writer waits if too much is dirty, and on whose account.
#[derive(Debug, Default)]
pub enum Pacing<'a> {
    /// In the call, on the account of the calling thread.
    #[default]
    Thread,
    /// In the call, on the account of this writer, which may be cancelled.
    Sleep(&'a mut Writer),
    /// After the call, on the account of this writer: [`Written::pause`] says how long.
    Return(&'a mut Writer),
}

/// How one write is done, and the thread that writes.
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

/// What became of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Byte of the file where it begins.
    pub offset: u64,
    /// Bytes that were taken in.
    pub len: usize,
    /// How long the writer is to wait before it goes on; zero unless [`Pacing::Return`] was asked
    /// for.
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
