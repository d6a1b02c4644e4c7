//! What a file system that grows while it is mounted gets, as a plan says, and where the plan waits
//! for the commit that carries it out.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use parking_lot::Mutex;
use uext4_ondisk::Pblk;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::superblock::SuperBlock;

use crate::base::error::Result;

/// What changes when a file system grows. Contents are whole blocks.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The superblock with the new size; what it counts as free does not matter.
    pub superblock: SuperBlock,
    /// Blocks of the file system as it is, but for the primary superblock, and bitmaps of groups
    /// that it has.
    pub inside: BTreeMap<Pblk, Vec<u8>>,
    /// Blocks behind its present end, which nothing reads yet.
    pub behind: BTreeMap<Pblk, Vec<u8>>,
    /// The descriptors of the groups that are added, which `inside` and `behind` have as well.
    pub groups: Vec<GroupDesc>,
    /// Blocks of groups that there are, which are in use, or lie behind the present end, and become
    /// free; each range in one group.
    pub freed: Vec<Range<u64>>,
}

/// Makes a plan while nothing changes; `None` if nothing is to grow.
pub(crate) type Plan = Box<dyn FnOnce(&SuperBlock) -> Option<Growth> + Send>;

/// A plan, and how many blocks of the file system it may change.
pub(crate) struct Asked {
    pub(crate) plan: Plan,
    pub(crate) most: u32,
}

/// What must be at its home location before a later transaction is committed.
#[derive(Clone, Debug)]
pub(crate) struct First {
    /// Blocks of descriptors, which come before the superblock.
    pub(crate) descriptors: BTreeMap<Pblk, Vec<u8>>,
    /// The superblock, as the transaction has it.
    pub(crate) superblock: SuperBlock,
}

/// Where a plan waits.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Held while a file system grows: one plan at a time.
    pub(crate) turn: Mutex<()>,
    asked: Mutex<Option<Asked>>,
    /// What the commit that has met the plan came to.
    outcome: Mutex<Option<Result<bool>>>,
    /// Of the commit that carries it out.
    first: Mutex<Option<First>>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}

impl Waiting {
    /// A plan waits for the next commit, in place of what may have been left.
    pub(crate) fn put(&self, asked: Asked) {
        *self.outcome.lock() = None;
        *self.asked.lock() = Some(asked);
    }

    /// The plan that waits, for the commit that carries it out.
    pub(crate) fn take(&self) -> Option<Asked> {
        self.asked.lock().take()
    }

    /// What came of the plan.
    pub(crate) fn end(&self, outcome: Result<bool>) {
        *self.outcome.lock() = Some(outcome);
    }

    /// What came of the plan, if a commit has met it.
    pub(crate) fn outcome(&self) -> Option<Result<bool>> {
        self.outcome.lock().take()
    }

    /// To be written home once the commit is durable.
    pub(crate) fn put_first(&self, first: First) {
        *self.first.lock() = Some(first);
    }

    /// What is to be written home, if the last commit has carried out a growth.
    pub(crate) fn take_first(&self) -> Option<First> {
        self.first.lock().take()
    }
}
