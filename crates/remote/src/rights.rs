//! What one who connected may ask for.

use crate::wire::Request;

/// What a connection may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    #[default]
    All,
    /// Snapshots alone: the client can read the image, and not write it.
    Snapshots,
}

impl Rights {
    /// Whether a request is within them.
    pub(crate) fn allow(self, request: &Request<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Snapshots => matches!(request, Request::Snapshot(_) | Request::Close(_)),
        }
    }
}
