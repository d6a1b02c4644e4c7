//! Nodes of maps that are walked again, because several inodes claim them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use uext4_ondisk::{Geometry, Ino};

/// Most bytes of nodes that are walked again because another inode claimed them before, in all:
/// the entries in them take less than a second.
const REPEATS_MAX: u64 = 64 << 20;

/// How much of the maps was walked again because several inodes claim the same nodes. Otherwise
/// inodes times nodes is what hostile maps cost, in each pass.
#[derive(Debug, Default)]
pub struct Repeats {
    /// Bytes of nodes so far.
    bytes: AtomicU64,
    has_given_up: AtomicBool,
    given_up: Mutex<FxHashSet<Ino>>,
}

impl Repeats {
    /// Whether another node of an inode, claimed before, may be walked. If not, the inode has no
    /// map any more for all walks to come.
    pub fn may_walk(&self, geometry: &Geometry, ino: Ino) -> bool {
        let bytes = u64::from(geometry.block_size.bytes());
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) < REPEATS_MAX {
            return true;
        }
        self.given_up.lock().insert(ino);
        self.has_given_up.store(true, Ordering::Release);
        false
    }

    /// Whether an inode has no map any more.
    pub fn is_given_up(&self, ino: Ino) -> bool {
        self.has_given_up.load(Ordering::Acquire) && self.given_up.lock().contains(&ino)
    }
}

#[cfg(test)]
mod tests {
    use uext4_ondisk::superblock::SuperBlock;

    use super::*;
    use crate::tests::TestImage;

    #[test]
    fn maps_that_share_nodes_are_given_up_when_too_many_are_walked_again() {
        let image = TestImage::new("-t ext2 -b 1024", "8M");
        let bytes = std::fs::read(image.path()).unwrap();
        let superblock = SuperBlock::parse(&bytes[1024..2048]).unwrap();
        let geometry = Geometry::new(&superblock).unwrap();
        let repeats = Repeats::default();
        for _ in 0..REPEATS_MAX / 1024 {
            assert!(repeats.may_walk(&geometry, Ino(12)));
        }
        assert!(!repeats.is_given_up(Ino(12)));
        assert!(!repeats.may_walk(&geometry, Ino(13)));
        assert!(repeats.is_given_up(Ino(13)) && !repeats.is_given_up(Ino(12)));
    }
}
