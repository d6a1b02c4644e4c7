//! What became of a request.

use crate::errno::{Errno, Result};

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The reply is in what was given for it, or it is an error.
    Now(Result<()>),
    /// A pending reply answers later.
    Later,
    /// There is none to this kind of request.
    Never,
}

impl Answer {
    /// The error, if the request failed at once.
    pub fn error(&self) -> Option<Errno> {
        match self {
            Self::Now(done) => done.err(),
            Self::Later | Self::Never => None,
        }
    }
}

impl From<Result<()>> for Answer {
    fn from(result: Result<()>) -> Self {
        Self::Now(result)
    }
}
