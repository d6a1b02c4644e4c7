//! What a file system that grows while it is mounted gets, as a plan says, and where the plan waits
//! for the commit that carries it out.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use parking_lot::{Condvar, Mutex};
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
pub(crate) struct PendingPlan {
    pub(crate) plan: Plan,
    pub(crate) most: u32,
}

/// What came of a plan.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Whether it has grown.
    pub(crate) grown: Result<bool>,
    /// The transaction that has it.
    pub(crate) tid: u64,
}

/// What must be at its home location before a later transaction is committed.
#[derive(Clone, Debug)]
pub(crate) struct NewHome {
    /// Blocks of descriptors, which come before the superblock.
    pub(crate) descriptors: BTreeMap<Pblk, Vec<u8>>,
    /// The superblock, as the transaction has it.
    pub(crate) superblock: SuperBlock,
}

/// How far a plan has come.
#[derive(Default)]
enum Progress {
    #[default]
    None,
    Waits(PendingPlan),
    /// A commit carries it out.
    Runs,
    Ended(Outcome),
}

/// Where a plan waits for a commit.
#[derive(Default)]
pub(crate) struct PendingGrowth {
    /// Held while a file system grows: one plan at a time.
    pub(crate) turn: Mutex<()>,
    progress: Mutex<Progress>,
    ended: Condvar,
    /// Of the commit that has carried one out.
    home: Mutex<Option<NewHome>>,
}

impl fmt::Debug for PendingGrowth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingGrowth").finish_non_exhaustive()
    }
}

impl PendingGrowth {
    /// A plan waits for the next commit.
    pub(crate) fn put(&self, plan: PendingPlan) {
        *self.progress.lock() = Progress::Waits(plan);
    }

    /// The plan that waits, for the commit that carries it out and then calls
    /// [`PendingGrowth::end`].
    pub(crate) fn take(&self) -> Option<PendingPlan> {
        let mut progress = self.progress.lock();
        match std::mem::replace(&mut *progress, Progress::Runs) {
            Progress::Waits(plan) => Some(plan),
            other => {
                *progress = other;
                None
            }
        }
    }

    /// A commit is done with the plan.
    pub(crate) fn end(&self, outcome: Outcome) {
        *self.progress.lock() = Progress::Ended(outcome);
        self.ended.notify_all();
    }

    /// Whether the plan still waits for a commit.
    pub(crate) fn waits(&self) -> bool {
        matches!(*self.progress.lock(), Progress::Waits(_))
    }

    /// What came of the plan; `None` if no commit had begun with it, and none will. Waits while
    /// one carries it out, so the caller holds nothing that a commit waits for.
    pub(crate) fn withdraw(&self) -> Option<Outcome> {
        let mut progress = self.progress.lock();
        while matches!(*progress, Progress::Runs) {
            self.ended.wait(&mut progress);
        }
        match std::mem::take(&mut *progress) {
            Progress::Ended(outcome) => Some(outcome),
            Progress::None | Progress::Waits(_) | Progress::Runs => None,
        }
    }

    /// To be written home once the commit is durable.
    pub(crate) fn put_home(&self, home: NewHome) {
        *self.home.lock() = Some(home);
    }

    /// What is to be written home, if a commit has carried out a growth.
    pub(crate) fn take_home(&self) -> Option<NewHome> {
        self.home.lock().take()
    }
}
