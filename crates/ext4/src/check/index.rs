//! The index of a hashed directory: for which hashes a lookup searches each leaf.
//!
//! The index is read once, so that no entry of the directory needs a lookup.

use rustc_hash::FxHashMap;
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::{Damage, Lblk};

use super::Checker;
use crate::base::error::{Error, Result};
use crate::dir;
use crate::dir::htree::{self, Walk};
use crate::inode::Inode;
use crate::journal::sbi::Sbi;

/// The hashes of a leaf: from `low`, which has bit 0 set if a hash continues from the leaf
/// before, up to but not including `below`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hashes {
    low: u32,
    below: Option<u32>,
}

impl Hashes {
    fn contain(self, hash: u32) -> bool {
        // If bit 0 of `below` is set, the next leaf continues that hash, so it is in this leaf
        // too.
        self.low & !1 <= hash && self.below.is_none_or(|below| hash < below)
    }
}

/// The leaves of a directory with the hashes of each.
#[derive(Debug)]
pub(super) struct Leaves {
    /// The hash version of the root.
    code: u8,
    hashes: FxHashMap<u32, Hashes>,
}

impl Leaves {
    fn read(sbi: &Sbi, dir: &Inode) -> Result<Self> {
        let bad = |why| Err(Error::Corrupt(Damage::Directory { ino: dir.ino, why }));
        let (mut walk, mut low) = Walk::to(sbi, dir, |_| Ok(0))?;
        let code = walk.info.hash_version;
        htree::hash_version(sbi, code)?;
        let mut hashes = FxHashMap::default();
        for _ in 0..sbi.geometry().block_size.blocks_for(dir.size) {
            let below = walk.next_hash();
            if below.is_some_and(|below| below < low) {
                return bad("the hashes of its htree are not in order");
            }
            if hashes
                .insert(walk.leaf_lblk().0, Hashes { low, below })
                .is_some()
            {
                return bad("two entries of its htree refer to one block");
            }
            let Some(next) = below else {
                return Ok(Self { code, hashes });
            };
            low = next;
            walk.advance(sbi, dir)?;
        }
        bad("its htree has more leaves than there are blocks")
    }

    /// Whether a lookup of `name` searches block `lblk`.
    pub(super) fn lead_to(&self, sbi: &Sbi, lblk: Lblk, name: &[u8]) -> Result<bool> {
        let hash = htree::hash_of(sbi, self.code, name)?.hash;
        let hashes = self.hashes.get(&lblk.0);
        Ok(hashes.is_some_and(|hashes| hashes.contain(hash)))
    }
}

impl Checker<'_> {
    /// The leaves of a directory that is looked up by an index, if the index is valid.
    pub(super) fn leaves(&mut self, dir: &Inode) -> Option<Leaves> {
        // Encrypted or case-folded names are hashed in a form that needs the key or the table.
        let opaque = InodeFlags::ENCRYPT | InodeFlags::CASEFOLD;
        if !dir::is_dx(self.sbi, dir)
            || dir.flags.intersects(opaque)
            || dir.has(InodeFlags::INLINE_DATA)
        {
            return None;
        }
        match Leaves::read(self.sbi, dir) {
            Ok(leaves) => Some(leaves),
            Err(error) => {
                self.report_error(Some(dir.ino), error);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_that_goes_on_is_in_both_leaves() {
        let before = Hashes {
            low: 4,
            below: Some(9),
        };
        let after = Hashes {
            low: 9,
            below: None,
        };
        assert!(before.contain(4) && before.contain(8) && after.contain(8) && after.contain(10));
        assert!(!before.contain(2) && !before.contain(10) && !after.contain(6));
        let empty = Hashes {
            low: 8,
            below: Some(8),
        };
        assert!(!empty.contain(8));
    }
}
