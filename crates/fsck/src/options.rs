//! What a run of the examination is asked to do.

use std::num::NonZeroUsize;

use uext4_blockdev::host;
use uext4_ondisk::Pblk;

/// What becomes of blocks that more than one owner claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedBlocks {
    /// Each owner gets its own copy.
    #[default]
    Clone,
    /// The inode that was changed first keeps them; the others read zeroes there.
    KeepOldest,
    /// All of them read zeroes there.
    Zero,
}

/// What is to be made, and how the passes judge what they find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Make {
    /// Checksums are those of another seed, or none: they are made anew, and prove nothing.
    pub is_resummed: bool,
    /// Blocks of a journal, where one is made; by the size of the file system if not said.
    pub journal_blocks: Option<u32>,
    /// Blocks for fast commits behind the log, where a journal is made and the feature is set; by
    /// the size of the file system if not said.
    pub fast_commit_blocks: Option<u32>,
    /// Where free blocks for a journal are searched first, where one is made.
    pub journal_goal: Option<Pblk>,
    /// An orphan file of so many blocks.
    pub orphan_file_blocks: Option<u32>,
    /// The block for multiple mount protection.
    pub is_with_mmp: bool,
    /// The inode that the quotas of projects are counted in.
    pub is_with_project_quota: bool,
}

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that examine at the same time.
    pub threads: NonZeroUsize,
    /// Most bytes of memory for changes and the tables of clusters and inodes, by default 1 GiB, or
    /// half of what this process may take: a quarter and a half of it, and what does not fit goes
    /// to temporary files. Groups alone that need more are refused before anything is read. What is
    /// known of directories comes on top.
    pub memory: u64,
    /// Most findings that are kept and shown; the rest is counted.
    pub findings_max: usize,
    /// Use the superblock in this block instead of the primary one.
    pub superblock: Option<u64>,
    /// Bytes of a block, where a superblock in another block must be found by it.
    pub block_size: Option<u32>,
    /// Make a superblock where none can be used and the rest of the device shows what it was. For a
    /// plan, of a device that is known to hold nothing else: all of it may be read.
    pub remake: bool,
    /// Replay the journal first. Without it, a file system whose journal must be replayed is
    /// refused.
    pub replay: bool,
    /// Restore inodes and blocks of directories that are damaged from older copies that the journal
    /// still holds. For what is only read: a repair must not bring back what may be out of date.
    pub older_copies: bool,
    /// What becomes of blocks that more than one owner claims.
    pub shared_blocks: SharedBlocks,
    /// Most names that may be lost with a structure that is made anew, empty, because it was found
    /// nowhere: see [`crate::Outcome::loses_too_much`]. A plan with more is made all the same, for
    /// users to decide on.
    pub loss_max: u64,
    /// Build the index of all directories anew (`-D`).
    pub rebuild_directories: bool,
    /// The number in the block for multiple mount protection that a host left there which is no
    /// longer at work: what [`crate::apply::abandoned_number`] returned. Any other is refused.
    pub abandoned_mmp: Option<u32>,
    /// The time of the repair, in seconds since 1970, for deleted inodes.
    pub now: u32,
    /// What is made because it was asked for; see [`crate::tune::tune`].
    pub make: Make,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            memory: host::share_of_memory(2, 1 << 30),
            findings_max: 10_000,
            superblock: None,
            block_size: None,
            remake: false,
            replay: true,
            older_copies: false,
            shared_blocks: SharedBlocks::Clone,
            loss_max: 0,
            rebuild_directories: false,
            abandoned_mmp: None,
            now: 0,
            make: Make::default(),
        }
    }
}
