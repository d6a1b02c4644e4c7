//! What each owner uses: what the quota files must say.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use uext4_ondisk::quota::QuotaKind;

/// What one owner uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Bytes of blocks.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// What all owners use: of each kind of quota, by number of owner.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    owners: HashMap<(u8, u32), Used, FxBuildHasher>,
}

impl Usage {
    /// Adds one inode of an owner, with the bytes of its blocks.
    pub fn add(&mut self, kind: QuotaKind, owner: u32, bytes: u64) {
        let used = self.owners.entry((number(kind), owner)).or_default();
        used.bytes = used.bytes.saturating_add(bytes);
        used.inodes = used.inodes.saturating_add(1);
    }

    /// Adds inodes that an owner has besides: those that hold values of its attributes. Their
    /// blocks are in the `i_blocks` of the inode that has the attributes.
    pub fn add_inodes(&mut self, kind: QuotaKind, owner: u32, inodes: u64) {
        let used = self.owners.entry((number(kind), owner)).or_default();
        used.inodes = used.inodes.saturating_add(inodes);
    }

    /// Adds all that another one counted.
    pub fn append(&mut self, other: Self) {
        for (owner, used) in other.owners {
            let sum = self.owners.entry(owner).or_default();
            sum.bytes = sum.bytes.saturating_add(used.bytes);
            sum.inodes = sum.inodes.saturating_add(used.inodes);
        }
    }

    /// The owners of a kind with what they use, in the order of their numbers.
    pub fn of(&self, kind: QuotaKind) -> Vec<(u32, Used)> {
        let kind = number(kind);
        let owners = self.owners.iter().filter(|((k, _), _)| *k == kind);
        let mut owners: Vec<_> = owners.map(|(&(_, owner), &used)| (owner, used)).collect();
        owners.sort_unstable_by_key(|&(owner, _)| owner);
        owners
    }
}

const fn number(kind: QuotaKind) -> u8 {
    match kind {
        QuotaKind::User => 0,
        QuotaKind::Group => 1,
        QuotaKind::Project => 2,
    }
}
