//! Page credits: the right to make a page dirty, so that no more can be than the limit says.
//!
//! A page that is dirty or under writeback holds one credit. Free ones are handed out in blocks of
//! [`BLOCK`] to processors, so that most writes touch one counter that few others touch. Who finds
//! no free credit collects what lies about in the blocks of other processors first: none is idle
//! while somebody goes without.
//!
//! `granted` counts the credits that are out, wherever: on pages, with tasks that are about to make
//! pages dirty, in blocks. It only grows past the limit where the caller does not ask: pages that
//! became dirty without, or a limit that fell.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};

/// Credits a processor takes at once.
pub(super) const BLOCK: u64 = 32;

/// One counter a cache line, so that processors do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Block(AtomicU64);

/// The credits of a domain; lock-free.
#[derive(Debug)]
pub(super) struct Credits {
    granted: AtomicU64,
    blocks: Vec<Block>,
}

impl Credits {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            granted: AtomicU64::new(0),
            blocks: (0..cpus.max(1)).map(|_| Block::default()).collect(),
        }
    }

    /// Credits that are out.
    pub(super) fn granted(&self) -> u64 {
        self.granted.load(Acquire)
    }

    /// Credits in the blocks of processors.
    pub(super) fn idle(&self) -> u64 {
        self.blocks.iter().map(|block| block.0.load(Acquire)).sum()
    }

    /// Takes `count` credits, all or none.
    pub(super) fn take(&self, cpu: usize, count: u64, limit: u64) -> bool {
        let block = &self.blocks[cpu % self.blocks.len()].0;
        if subtract(block, count) {
            return true;
        }
        if self.grant(count.saturating_add(BLOCK), limit) {
            block.fetch_add(BLOCK, AcqRel);
            return true;
        }
        if self.grant(count, limit) {
            return true;
        }
        let mut found = 0;
        for block in &self.blocks {
            found += block.0.swap(0, AcqRel);
        }
        self.put(found);
        found > 0 && self.grant(count, limit)
    }

    /// Gives credits back to all.
    pub(super) fn put(&self, count: u64) {
        let _ = self.granted.fetch_update(AcqRel, Acquire, |granted| {
            Some(granted.saturating_sub(count))
        });
    }

    /// Takes credits that there may not be.
    pub(super) fn force(&self, count: u64) {
        let _ = self.granted.fetch_update(AcqRel, Acquire, |granted| {
            Some(granted.saturating_add(count))
        });
    }

    fn grant(&self, count: u64, limit: u64) -> bool {
        let more = |granted: u64| {
            let sum = granted.checked_add(count)?;
            (sum <= limit).then_some(sum)
        };
        self.granted.fetch_update(AcqRel, Acquire, more).is_ok()
    }
}

fn subtract(counter: &AtomicU64, count: u64) -> bool {
    let less = |value: u64| value.checked_sub(count);
    counter.fetch_update(AcqRel, Acquire, less).is_ok()
}
