//! The owners that pay for an inode, and what is charged to them.

use std::sync::Arc;

use super::{Dquot, What, add, subtract};
use crate::base::edit::Edit;
use crate::base::error::Result;

/// The owners that pay for an inode: at most one dquot of each kind.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    dquots: [Option<Arc<Dquot>>; 3],
    /// Bytes of those to be charged next that have been claimed already.
    drawn: u64,
    /// Limits do not count for now: what was begun must be finished.
    pub(crate) free: bool,
}

/// What an inode takes of the quotas of its owners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Bytes of its blocks.
    pub(crate) space: u64,
    /// Bytes that are reserved for its delayed blocks in addition to these.
    pub(crate) reserved: u64,
    /// Inodes: itself, and those of attribute values.
    pub(crate) inodes: u64,
}

/// Whether the same pay.
impl PartialEq for Owners {
    fn eq(&self, other: &Self) -> bool {
        let ids = |owners: &Self| {
            owners
                .dquots
                .each_ref()
                .map(|d| d.as_ref().map(Arc::as_ptr))
        };
        ids(self) == ids(other)
    }
}

impl Eq for Owners {}

impl Owners {
    pub(crate) fn new(dquots: [Option<Arc<Dquot>>; 3]) -> Self {
        Self {
            dquots,
            drawn: 0,
            free: false,
        }
    }

    /// Those there are.
    pub(crate) fn dquots(&self) -> impl Iterator<Item = &Arc<Dquot>> + Clone {
        self.dquots.iter().flatten()
    }

    /// Whether all have a place in their file.
    pub(crate) fn is_placed(&self) -> bool {
        self.dquots().all(|dquot| dquot.is_placed())
    }

    /// Claims bytes that will be charged later, or taken back.
    ///
    /// Fails with [`crate::Error::QuotaExceeded`]; nothing was claimed then.
    pub(crate) fn reservation(&self, bytes: u64) -> Result<()> {
        claim_all(self.dquots(), What::Space, bytes, self.free)
    }

    /// Takes back what was reserved.
    pub(crate) fn unreserve(&self, bytes: u64) {
        if bytes > 0 {
            self.dquots()
                .for_each(|dquot| dquot.unclaim(What::Space, bytes));
        }
    }

    /// The next `bytes` that are charged had been reserved.
    pub(crate) fn draw(&mut self, bytes: u64) {
        self.drawn += bytes;
    }

    /// Of `drawn` bytes, `reserved` had been: what was not charged is given back, what had not
    /// been reserved is claimed now.
    pub(crate) fn settle(&mut self, drawn: u64, reserved: u64) {
        self.drawn = 0;
        self.unreserve(reserved.saturating_sub(drawn));
        self.claim_anyway(drawn.saturating_sub(reserved));
    }

    /// Of `drawn` bytes nothing was charged after all: they stay reserved.
    pub(crate) fn undraw(&mut self, drawn: u64) {
        let left = std::mem::take(&mut self.drawn);
        // What was charged and uncharged again is no longer claimed.
        self.claim_anyway(drawn.saturating_sub(left));
    }

    /// Gives back what was drawn and not charged.
    pub(crate) fn give_back(&mut self) {
        let left = std::mem::take(&mut self.drawn);
        self.unreserve(left);
    }

    fn claim_anyway(&self, bytes: u64) {
        if bytes > 0 {
            self.dquots()
                .for_each(|dquot| _ = dquot.claim(What::Space, bytes, true));
        }
    }

    /// Charges bytes, whatever the limits.
    pub(crate) fn charge(&mut self, edit: &impl Edit, bytes: u64) {
        let drawn = self.drawn.min(bytes);
        self.drawn -= drawn;
        self.claim_anyway(bytes - drawn);
        for dquot in self.dquots() {
            add(&dquot.space, bytes);
            dquot.note_changed(edit);
        }
    }

    /// Bytes are no longer taken.
    pub(crate) fn uncharge(&self, edit: &impl Edit, bytes: u64) {
        for dquot in self.dquots() {
            subtract(&dquot.space, bytes);
            dquot.unclaim(What::Space, bytes);
            dquot.note_changed(edit);
        }
    }

    /// Charges inodes.
    ///
    /// Fails with [`crate::Error::QuotaExceeded`]; nothing was charged then.
    pub(crate) fn charge_inodes(&self, edit: &impl Edit, inodes: u64) -> Result<()> {
        claim_all(self.dquots(), What::Inodes, inodes, self.free)?;
        self.dquots().for_each(|dquot| dquot.note_changed(edit));
        Ok(())
    }

    /// Inodes are no longer taken.
    pub(crate) fn uncharge_inodes(&self, edit: &impl Edit, inodes: u64) {
        for dquot in self.dquots() {
            dquot.unclaim(What::Inodes, inodes);
            dquot.note_changed(edit);
        }
    }

    /// Hands over to others what an inode takes.
    ///
    /// Fails with [`crate::Error::QuotaExceeded`]; nothing was handed over then.
    pub(crate) fn transfer(&mut self, edit: &impl Edit, to: &Self, usage: Usage) -> Result<()> {
        let Usage {
            space,
            reserved,
            inodes,
        } = usage;
        let pairs = || self.dquots.iter().zip(&to.dquots);
        let id = |dquot: &Option<Arc<Dquot>>| dquot.as_ref().map(|dquot| dquot.id);
        let moved: Vec<_> = pairs().filter(|(from, to)| id(from) != id(to)).collect();
        let new = || moved.iter().filter_map(|(_, to)| to.as_ref());
        claim_all(new(), What::Inodes, inodes, false)?;
        if let Err(error) = claim_all(new(), What::Space, space + reserved, false) {
            new().for_each(|dquot| dquot.unclaim(What::Inodes, inodes));
            return Err(error);
        }
        for dquot in new() {
            add(&dquot.space, space);
            dquot.note_changed(edit);
        }
        for dquot in moved.iter().filter_map(|(from, _)| from.as_ref()) {
            subtract(&dquot.space, space);
            dquot.unclaim(What::Space, space + reserved);
            dquot.unclaim(What::Inodes, inodes);
            dquot.note_changed(edit);
        }
        self.dquots = to.dquots.clone();
        Ok(())
    }
}

/// Claims of all, or of none.
fn claim_all<'a>(
    dquots: impl Iterator<Item = &'a Arc<Dquot>> + Clone,
    what: What,
    by: u64,
    force: bool,
) -> Result<()> {
    for (done, dquot) in dquots.clone().enumerate() {
        if let Err(error) = dquot.claim(what, by, force) {
            dquots.take(done).for_each(|dquot| dquot.unclaim(what, by));
            return Err(error);
        }
    }
    Ok(())
}
