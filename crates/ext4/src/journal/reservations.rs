//! Counts the blocks that operations have reserved: all threads add to and subtract from the
//! count, and it must never exceed the number of free blocks.
//!
//! If every operation changed one counter twice, all threads would contend for its cache line. So
//! the threads of a slot share a small stock of reserved blocks, which counts as reserved and
//! serves their next operations. Stocks are used only while all of them fit into the free space;
//! if space is short they are emptied, and the count is exact.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use uext4_support::PerThread;

/// Blocks that a slot reserves in addition to those its thread needs; it holds about as many in
/// stock.
const STOCK: u64 = 64;

/// The number of reserved blocks.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// All reserved blocks, including those in stock.
    total: CachePadded<AtomicU64>,
    /// Blocks in stock, which no operation has reserved.
    stocks: PerThread<AtomicU64>,
    /// Held while blocks move between a stock and the total and are for a moment in neither: a
    /// thread that finds no space checks again when they have arrived. Innermost lock.
    moving: Mutex<()>,
}

impl Reservations {
    /// Reserves `blocks` blocks if the total is then at most what `room` returns. `room` is read
    /// after the count, so blocks that are being allocated count as reserved or as used, or both.
    /// A failed attempt changes nothing.
    pub(crate) fn reserve(&self, blocks: u64, room: impl Fn() -> u64) -> bool {
        let stock = self.stocks.get();
        let rest = |stock: u64| stock.checked_sub(blocks);
        // The stock may come from a caller that was allowed to use more space than this one.
        let fits = || self.total.load(Acquire) <= room();
        if stock.load(Relaxed) >= blocks
            && fits()
            && stock.fetch_update(Acquire, Relaxed, rest).is_ok()
        {
            return true;
        }
        let _moving = self.moving.lock();
        if blocks < STOCK && self.add(blocks + STOCK, &room) {
            stock.fetch_add(STOCK, Release);
            return true;
        }
        if self.add(blocks, &room) {
            return true;
        }
        for stock in &self.stocks {
            let blocks = stock.swap(0, Acquire);
            self.total.fetch_sub(blocks, Release);
        }
        self.add(blocks, &room)
    }

    fn add(&self, blocks: u64, room: impl Fn() -> u64) -> bool {
        let add = |total: u64| total.checked_add(blocks).filter(|sum| *sum <= room());
        self.total.fetch_update(Relaxed, Acquire, add).is_ok()
    }

    /// Releases the reservation of blocks that were allocated or are not needed.
    pub(crate) fn release(&self, blocks: u64) {
        if blocks >= STOCK {
            self.total.fetch_sub(blocks, Release);
            return;
        }
        let stock = self.stocks.get();
        let now = stock.fetch_add(blocks, Release) + blocks;
        if now > 2 * STOCK {
            let _moving = self.moving.lock();
            let surplus = stock.swap(0, Acquire);
            self.total.fetch_sub(surplus, Release);
        }
    }

    /// Blocks that operations have reserved, without the stocks.
    pub(crate) fn reserved(&self) -> u64 {
        let stocks = self.stocks.iter().map(|stock| stock.load(Relaxed)).sum();
        self.total.load(Relaxed).saturating_sub(stocks)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;

    use super::{Reservations, STOCK};

    #[test]
    fn the_last_block_can_be_reserved_whichever_slot_has_it_in_stock() {
        let all = Reservations::default();
        let room = || 2 * STOCK + 1;
        assert!(all.reserve(1, room));
        assert_eq!(all.reserved(), 1);
        // This thread has a stock; another one can still reserve.
        thread::scope(|scope| {
            scope.spawn(|| assert!(all.reserve(2 * STOCK, room)));
        });
        assert!(!all.reserve(1, room));
        assert_eq!(all.reserved(), 2 * STOCK + 1);
        all.release(2 * STOCK);
        all.release(1);
        assert_eq!(all.reserved(), 0);
        assert!(all.reserve(2 * STOCK + 1, room));
    }

    #[test]
    fn a_stock_is_not_used_where_less_room_is_left_to_its_user() {
        let all = Reservations::default();
        assert!(all.reserve(1, || 10 * STOCK));
        assert!(!all.reserve(1, || 1));
        assert_eq!(all.reserved(), 1);
    }

    #[test]
    fn threads_never_reserve_more_than_there_is() {
        const ROOM: u64 = 300;
        let (all, held) = (Reservations::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..4u64 {
                let (all, held) = (&all, &held);
                scope.spawn(move || {
                    for i in 0..20_000u64 {
                        let blocks = 1 + (i * 7 + thread) % 90;
                        if all.reserve(blocks, || ROOM) {
                            assert!(held.fetch_add(blocks, SeqCst) + blocks <= ROOM);
                            held.fetch_sub(blocks, SeqCst);
                            all.release(blocks);
                        }
                    }
                });
            }
        });
        assert_eq!(all.reserved(), 0);
        assert!(all.reserve(ROOM, || ROOM));
    }
}
