//! What orphans held. The next mount takes it back in bitmaps, counts and quotas when it deletes or
//! cuts them, so that it is no damage; the passes over quotas and bitmaps do the same, and whatever
//! else is wrong there is.

use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::{Ino, Pblk};

use crate::report::Cause;

/// Blocks at one stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub start: Pblk,
    pub len: u64,
}

/// An inode that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldInode {
    pub ino: Ino,
    pub is_directory: bool,
}

/// What an owner does not use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldUse {
    pub kind: QuotaKind,
    pub owner: u32,
    pub bytes: u64,
    pub inodes: u64,
}

/// What orphans held, in no order.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// What the changes name as their cause; `None` if there were no orphans.
    pub cause: Option<Cause>,
    pub inodes: Vec<HeldInode>,
    pub runs: Vec<Run>,
    pub used: Vec<HeldUse>,
}

impl Held {
    /// Adds what another list held.
    pub fn append(&mut self, mut other: Self) {
        self.cause = self.cause.or(other.cause);
        self.inodes.append(&mut other.inodes);
        self.runs.append(&mut other.runs);
        self.used.append(&mut other.used);
    }
}
