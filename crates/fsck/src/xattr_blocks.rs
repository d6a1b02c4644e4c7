//! Blocks of extended attributes that inodes refer to, and how often.
//!
//! Threads come upon the same block at the same time; the first one examines it while it holds
//! the lock of the block's stripe, the others find what it found.

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxBuildHasher;
use uext4_ondisk::Pblk;
use uext4_ondisk::num::{lo16, lo32};

/// Maps that threads lock one at a time: a thread reads a block with its map locked.
const STRIPES: usize = 64;

/// The blocks of attributes that inodes in use refer to.
#[derive(Debug)]
pub struct XattrBlocks {
    stripes: [Mutex<Stripe>; STRIPES],
}

/// The blocks of one stripe, and room for the bytes of one that is examined.
#[derive(Debug, Default)]
pub struct Stripe {
    pub blocks: HashMap<Pblk, XattrBlock, FxBuildHasher>,
    pub bytes: Vec<u8>,
}

/// What is known of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrBlock {
    /// `h_refcount`.
    pub stored: u32,
    /// References from inodes in use.
    pub counted: u32,
    /// What its values in inodes of their own add to the use of each owner.
    pub values: ValueUse,
    /// Whether it holds attributes that can be kept. All references to others are cleared.
    pub is_usable: bool,
}

impl Default for XattrBlocks {
    fn default() -> Self {
        Self {
            stripes: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl XattrBlocks {
    fn stripe(&self, block: Pblk) -> &Mutex<Stripe> {
        &self.stripes[usize::from(lo16(lo32(block.0))) % STRIPES]
    }

    /// Locks the stripe of a block, until what is known of the block is in it.
    pub fn lock(&self, block: Pblk) -> MutexGuard<'_, Stripe> {
        self.stripe(block).lock()
    }

    /// What is known of a block.
    pub fn get(&self, block: Pblk) -> Option<XattrBlock> {
        self.stripe(block).lock().blocks.get(&block).copied()
    }

    /// Takes back a reference to a block.
    pub fn uncount(&self, block: Pblk) {
        if let Some(known) = self.stripe(block).lock().blocks.get_mut(&block) {
            known.counted = known.counted.saturating_sub(1);
        }
    }

    /// Notes that the attributes of a block are at another place now.
    pub fn move_to(&self, old: Pblk, new: Pblk) {
        let known = self.stripe(old).lock().blocks.remove(&old);
        if let Some(known) = known {
            self.stripe(new).lock().blocks.insert(new, known);
        }
    }

    /// All blocks in order.
    pub fn all(&self) -> Vec<(Pblk, XattrBlock)> {
        let stripes = self.stripes.iter();
        let mut all: Vec<_> = stripes
            .flat_map(|stripe| {
                let stripe = stripe.lock();
                stripe
                    .blocks
                    .iter()
                    .map(|(&b, &known)| (b, known))
                    .collect::<Vec<_>>()
            })
            .collect();
        all.sort_unstable_by_key(|&(block, _)| block);
        all
    }
}

/// What values in inodes of their own add to the use of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueUse {
    /// Clusters.
    pub clusters: u32,
    /// Inodes.
    pub inodes: u32,
}

impl ValueUse {
    /// Adds what others add.
    pub fn add(&mut self, other: Self) {
        self.clusters = self.clusters.saturating_add(other.clusters);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}
