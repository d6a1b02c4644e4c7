//! Page credits: the right to make a page dirty, so that no more can be than the limit says.
//!
//! A page that is dirty or under writeback holds one credit. Free ones are handed out in blocks
//! of [`BLOCK`] to processors, so that most writes touch one counter that few others touch. A
//! caller that finds no free credit collects what lies about in the blocks of other processors
//! first: none is idle while a thread goes without.
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
    #[cfg(test)]
    pub(super) fn granted(&self) -> u64 {
        self.granted.load(Acquire)
    }

    /// Credits in the blocks of processors.
    #[cfg(test)]
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

    /// Gives back credits that were not needed, to this processor first.
    pub(super) fn put_back(&self, cpu: usize, count: u64) {
        let block = &self.blocks[cpu % self.blocks.len()].0;
        let fill = |idle: u64| Some(idle + count).filter(|sum| *sum <= BLOCK);
        if count > 0 && block.fetch_update(AcqRel, Acquire, fill).is_err() {
            self.put(count);
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_credit_is_found_in_another_block() {
        let credits = Credits::new(4);
        // 33 granted: 1 taken, 32 idle in the block of processor 0.
        assert!(credits.take(0, 1, 33));
        assert_eq!((credits.granted(), credits.idle()), (33, 32));
        assert!(credits.take(1, 32, 33));
        assert!(!credits.take(2, 1, 33));
        credits.put(1);
        assert!(credits.take(3, 1, 33));
    }

    #[test]
    fn never_more_out_than_the_limit_among_threads() {
        let (credits, held) = (Credits::new(4), AtomicU64::new(0));
        let limit = 500;
        std::thread::scope(|scope| {
            for cpu in 0..4 {
                let (credits, held) = (&credits, &held);
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let count = 1 + (round * 7 + cpu as u64) % 90;
                        if credits.take(cpu, count, limit) {
                            assert!(held.fetch_add(count, AcqRel) + count <= limit);
                            held.fetch_sub(count, AcqRel);
                            match round % 3 {
                                0 => credits.put_back(cpu, count),
                                _ => credits.put(count),
                            }
                        }
                        assert!(credits.granted() <= limit);
                    }
                });
            }
        });
        assert_eq!(credits.granted(), credits.idle());
    }

    proptest! {
        #[test]
        fn conserved(
            limit in 0u64..2000,
            steps in prop::collection::vec((0u8..3, 0usize..6, 0u64..200), 0..200),
        ) {
            let credits = Credits::new(3);
            let (mut held, mut forced) = (0, 0);
            for (what, cpu, count) in steps {
                match what {
                    0 => {
                        let over = credits.granted() > limit;
                        let free = limit.saturating_sub(credits.granted()) + credits.idle();
                        let taken = credits.take(cpu, count, limit);
                        // None is refused while there are as many as asked for; above the limit a
                        // processor may still use up its block.
                        prop_assert!(over || taken == (count <= free));
                        prop_assert!(!taken || count <= free);
                        held += if taken { count } else { 0 };
                    }
                    1 => {
                        let count = count.min(held);
                        credits.put_back(cpu, count);
                        held -= count;
                    }
                    _ => {
                        credits.force(count / 50);
                        held += count / 50;
                        forced += count / 50;
                    }
                }
                prop_assert_eq!(credits.granted(), held + credits.idle());
                prop_assert!(credits.granted() <= limit + forced);
            }
        }
    }
}
