//! The counts of an examination.

/// Counts of an examination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Findings, shown or not.
    pub findings: u64,
    /// Those of them that are notes.
    pub notes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// Inodes that the next mount for writing deletes or truncates; they are no finding.
    pub orphans: u64,
    /// Bytes of memory that the examination takes, about: worked out before it begins; see
    /// [`crate::Observer::memory`].
    pub memory: u64,
}
