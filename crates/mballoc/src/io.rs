//! How groups are loaded.

use crate::stats::Counters;

/// What a group is loaded by, and where that is counted.
pub(crate) struct Io<'a, B> {
    pub(crate) bitmaps: &'a B,
    pub(crate) counters: &'a Counters,
}

// Derived, these would ask it of the bitmaps too.
impl<B> Clone for Io<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Io<'_, B> {}
