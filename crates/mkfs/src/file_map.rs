//! What every kind of map comes to: a file's blocks, and the part of the inode that finds them.

pub mod extents;
pub mod indirect;

use uext4_ondisk::Ino;
use uext4_ondisk::inode::{I_BLOCK_LEN, InodeFlags};

use crate::Error;
use crate::plan::Plan;
use crate::space::Run;

/// A file's blocks and how its inode finds them.
#[derive(Clone, Debug)]
pub(crate) struct FileMap {
    pub i_block: [u8; I_BLOCK_LEN],
    /// Blocks of data, in logical order, the first at logical block 0.
    pub runs: Vec<Run>,
    /// Blocks that hold the map.
    pub meta_blocks: u64,
}

impl FileMap {
    /// Takes `len` blocks from `goal` on, in the way the file system's features ask for.
    ///
    /// # Errors
    /// [`Error::NoSpace`] for `what`.
    pub fn take(
        plan: &mut Plan,
        ino: Ino,
        goal: u64,
        len: u64,
        what: &'static str,
    ) -> Result<Self, Error> {
        if plan.extents() {
            extents::extent_file(plan, ino, goal, len, what)
        } else {
            indirect::indirect_file(plan, len, goal, what)
        }
    }

    /// The flags of an inode with such a map.
    pub fn flags(plan: &Plan) -> InodeFlags {
        if plan.extents() {
            InodeFlags::EXTENTS
        } else {
            InodeFlags::empty()
        }
    }

    /// Blocks the inode owns, in whole clusters: runs that meet within one share it.
    pub fn blocks(&self, plan: &Plan) -> u64 {
        let bits = plan.geometry.cluster_bits;
        let mut clusters = 0;
        let mut last = None;
        for run in &self.runs {
            let (first, end) = (run.start >> bits, (run.end() - 1) >> bits);
            clusters += end - first + u64::from(last != Some(first));
            last = Some(end);
        }
        (clusters + self.meta_blocks) << bits
    }

    /// The blocks one by one, in logical order.
    pub fn each_block(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|run| run.start..run.end())
    }
}
