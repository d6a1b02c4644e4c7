//! Forgetting a part of a file, and making zeroes of what is left of its blocks.

use std::ops::Range;

use crate::file::File;
use crate::{Error, MappingError, OFFSET_MAX};

impl<E: MappingError> File<E> {
    /// See [`crate::FilePages::truncate`].
    pub(crate) fn truncate(&self, size: u64) {
        let shape = self.shared.shape;
        let _flush = self.flush.lock();
        let mut state = self.state.write();
        let before = state.pages.dirty;
        let end = shape.ceil(size);
        state.pages.drop_blocks(end, u64::MAX);
        if size < end {
            state.pages.zero_part(size..end, false);
        }
        self.finish(state, before);
    }

    /// See [`crate::FilePages::discard`].
    pub(crate) fn discard(&self, range: Range<u64>) -> Result<(), Error<E>> {
        let shape = self.shared.shape;
        let range = range.start..range.end.min(OFFSET_MAX);
        if range.start >= range.end {
            return Ok(());
        }
        let (low, high) = (shape.ceil(range.start), shape.floor(range.end));
        if range.start < low {
            self.zero_edge(range.start..low.min(range.end))?;
        }
        if high < range.end && high >= low {
            self.zero_edge(high..range.end)?;
        }
        let _flush = self.flush.lock();
        let mut state = self.state.write();
        let before = state.pages.dirty;
        state.pages.drop_blocks(low, high);
        self.finish(state, before);
        Ok(())
    }

    /// Makes a part of one block zero, reading it first if need be; dirty only if it was not zero.
    fn zero_edge(&self, range: Range<u64>) -> Result<(), Error<E>> {
        loop {
            let mut state = self.state.write();
            let before = state.pages.dirty;
            let is_there = state.pages.zero_part(range.clone(), true);
            self.finish(state, before);
            if is_there {
                return Ok(());
            }
            self.load_block(self.shared.shape.floor(range.start))?;
        }
    }
}
