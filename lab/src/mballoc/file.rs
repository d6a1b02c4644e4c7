//! A file of a volume: where its blocks are, and which are dirty.

use std::collections::BTreeMap;

use uext4_mballoc::{FileSpace, Run};
use uext4_ondisk::Pblk;

use crate::mballoc::extents::Extents;

/// A number of a file.
pub type FileNr = u64;

/// A file.
#[derive(Debug)]
pub struct File {
    pub(super) part: usize,
    pub(super) goal: Pblk,
    pub(super) size: u64,
    pub(super) extents: Extents,
    pub(super) tree: Vec<Run>,
    /// Dirty blocks: start to end.
    pub(super) dirty: BTreeMap<u32, u32>,
    pub(super) space: FileSpace,
    pub(super) open: bool,
}

impl File {
    /// Empty and open for writing, placed in a part whose blocks begin at `goal`.
    pub fn new(part: usize, goal: Pblk) -> Self {
        Self {
            part,
            goal,
            size: 0,
            extents: Extents::default(),
            tree: Vec::new(),
            dirty: BTreeMap::new(),
            space: FileSpace::default(),
            open: true,
        }
    }

    /// End of the hole at `at`, no further than `end`.
    pub(super) fn hole_end(&self, at: u32, end: u32) -> u32 {
        let next = self.extents.after(at);
        next.map_or(end, |(lblk, _)| lblk.min(end))
    }

    /// End of the dirty run with block `at`.
    pub(super) fn dirty_at(&self, at: u32) -> Option<u32> {
        let (_, &end) = self.dirty.range(..=at).next_back()?;
        (at < end).then_some(end)
    }

    /// Blocks that were not dirty before.
    pub(super) fn make_dirty(&mut self, mut start: u32, mut end: u32) -> u64 {
        let wanted = (start, end);
        let mut known = 0;
        while let Some((&s, &e)) = self.dirty.range(..=end).next_back()
            && e >= start
        {
            known += u64::from(e.min(wanted.1).saturating_sub(s.max(wanted.0)));
            self.dirty.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        self.dirty.insert(start, end);
        u64::from(wanted.1 - wanted.0) - known
    }

    /// Blocks that were dirty.
    pub(super) fn make_clean(&mut self, start: u32, end: u32) -> u64 {
        let mut cleaned = 0;
        while let Some((&s, &e)) = self.dirty.range(..end).next_back()
            && e > start
        {
            self.dirty.remove(&s);
            if e > end {
                self.dirty.insert(end, e);
            }
            cleaned += u64::from(e.min(end) - s.max(start));
            if s < start {
                self.dirty.insert(s, start);
                break;
            }
        }
        cleaned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_blocks_are_counted_once() {
        let mut file = File::new(0, Pblk(0));
        assert_eq!(file.make_dirty(10, 20), 10);
        assert_eq!(file.make_dirty(30, 40), 10);
        assert_eq!(file.make_dirty(15, 35), 10);
        assert_eq!(file.dirty.len(), 1);
        assert_eq!(file.make_dirty(40, 41), 1);
        assert_eq!(file.dirty_at(12), Some(41));
        assert_eq!(file.dirty_at(41), None);
        assert_eq!(file.make_clean(12, 14), 2);
        assert_eq!(file.make_clean(0, 100), 29);
        assert!(file.dirty.is_empty());
    }
}
