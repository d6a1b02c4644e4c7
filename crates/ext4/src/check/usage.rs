//! Records which blocks have an owner: a bitmap over a window of clusters, so that memory stays
//! bounded on any file system; larger file systems are checked window by window.

use std::ops::Range;

use uext4_ondisk::num::{index, lo32};

/// Number of clusters of a window: 32 MiB of bitmap, 1 TiB of 4 KiB blocks.
pub const WINDOW_CLUSTERS: u32 = 1 << 28;

/// One bit per cluster: set once it has an owner.
#[derive(Debug)]
pub struct Usage {
    window: Range<u64>,
    words: Vec<u64>,
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "clusters are cut to the window, and then counted from its start"
)]
impl Usage {
    /// Creates an empty record for `window` (cluster numbers), which is truncated to
    /// [`WINDOW_CLUSTERS`].
    pub fn new(window: Range<u64>) -> Self {
        let len = window
            .end
            .saturating_sub(window.start)
            .min(WINDOW_CLUSTERS.into());
        Self {
            window: window.start..window.start + len,
            words: vec![0; index(lo32(len.div_ceil(64)))],
        }
    }

    /// Sets an owner for `clusters`. Returns the first that already had one; parts outside the
    /// window are ignored.
    pub fn claim(&mut self, clusters: Range<u64>) -> Option<u64> {
        let from = clusters.start.max(self.window.start);
        let to = clusters.end.min(self.window.end);
        let mut taken = None;
        let mut at = from;
        while at < to {
            let place = at - self.window.start;
            let (word, bit) = (index(lo32(place / 64)), place % 64);
            let span = (64 - bit).min(to - at);
            let mask = (u64::MAX >> (64 - span)) << bit;
            let twice = self.words[word] & mask;
            if twice != 0 && taken.is_none() {
                let first = u64::from(twice.trailing_zeros());
                taken = Some(self.window.start + (place / 64) * 64 + first);
            }
            self.words[word] |= mask;
            at += span;
        }
        taken
    }

    /// Whether `cluster` has an owner; false outside the window.
    pub fn is_claimed(&self, cluster: u64) -> bool {
        if !self.window.contains(&cluster) {
            return false;
        }
        let place = cluster - self.window.start;
        self.words[index(lo32(place / 64))] >> (place % 64) & 1 != 0
    }

    /// The clusters of this window.
    pub fn window(&self) -> Range<u64> {
        self.window.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_owner_is_found() {
        let mut usage = Usage::new(100..1000);
        assert_eq!(usage.claim(100..300), None);
        assert_eq!(usage.claim(300..301), None);
        assert_eq!(usage.claim(299..400), Some(299));
        assert!(usage.is_claimed(399) && !usage.is_claimed(400));
    }

    #[test]
    fn outside_the_window_is_ignored() {
        let mut usage = Usage::new(100..200);
        assert_eq!(usage.claim(0..100), None);
        assert_eq!(usage.claim(50..150), None);
        assert_eq!(usage.claim(150..u64::MAX), None);
        assert!(usage.is_claimed(199) && !usage.is_claimed(200));
    }
}
