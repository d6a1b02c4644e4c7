//! What the replay of the journal changed, for users.

/// What the journal changed against the file system as it lies on the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Whole transactions.
    pub transactions: u32,
    /// Blocks they changed, each counted once.
    pub blocks: usize,
    /// Changes reported by fast commits after them.
    pub fast_commit_records: usize,
    /// A transaction whose commit block has a wrong checksum, if the log ended with one. The
    /// kernel refuses such a file system; what is shown is the state before that transaction.
    pub failed_commit: Option<u32>,
}
