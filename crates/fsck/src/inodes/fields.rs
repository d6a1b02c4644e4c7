//! The fields of an inode, one by one.

use super::subject::Subject;
use super::worker::Worker;
use crate::error::Result;

impl Worker<'_, '_> {
    /// Whether the fields of an inode with a wrong checksum make no sense.
    pub fn is_garbage(&self, subject: &Subject<'_>) -> bool {
        subject.raw.i_links_count.get() != 0 && subject.file_type().is_none()
    }

    /// Examines the fields of an inode in use.
    pub fn fields(&self, _subject: &mut Subject<'_>) -> Result<()> {
        Ok(())
    }
}
