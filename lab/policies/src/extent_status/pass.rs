//! What one pass of a shrinker over a map did, in extents.

use uext4_extent_status::Scan;

/// Extents looked at and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) visited: usize,
    pub(crate) freed: usize,
    pub(crate) delayed_seen: usize,
}

impl Pass {
    /// Adds the pass to the scan; returns its steps.
    pub(crate) fn note(&self, scan: &mut Scan) -> u64 {
        scan.freed += self.freed;
        scan.visited += self.visited;
        scan.delayed_seen += self.delayed_seen;
        self.visited as u64
    }
}
