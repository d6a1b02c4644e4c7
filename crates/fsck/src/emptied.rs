//! Structures that were made anew, empty, because they were found nowhere.

use std::collections::BTreeSet;

use uext4_ondisk::GroupNr;

/// Structures that were made anew, empty.
#[derive(Clone, Debug, Default)]
pub struct Emptied {
    /// Groups whose inode table was found nowhere.
    pub tables: BTreeSet<GroupNr>,
    /// The root directory was.
    pub root: bool,
    /// The log of the journal was, although it had to be replayed.
    pub log: bool,
    /// Blocks of the log that were not replayed, because their copies in it are damaged.
    pub left_out: u64,
}

impl Emptied {
    /// Whether all structures were there.
    pub fn is_nothing(&self) -> bool {
        self.tables.is_empty() && !self.root
    }
}
