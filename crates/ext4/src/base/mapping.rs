//! The answer to "where is this part of the file?".

use uext4_ondisk::Lblk;
pub use uext4_ondisk::mapping::{MapState, Mapping};

/// A run of logical blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LblkRun {
    /// The first block.
    pub(crate) start: Lblk,
    /// The number of blocks; `u32::MAX` reaches to the end of the file.
    pub(crate) len: u32,
}
