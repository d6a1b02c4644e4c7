//! A simulated disk in virtual time, alone or as the members of a RAID 5.
//!
//! A seek costs 8 ms times the square root of the distance's share of the disk, a transfer what
//! 150 MB/s give. Writes that continue each other are one write, as the block layer's plug makes
//! them. On a RAID 5 a stripe of which only a part was written is read, changed and written again
//! with its parity: counted, and paid with two transfers of the part. Parts wait for the rest of
//! their stripe as long as no more than 16 do, as many as md's 256 stripe heads hold of 64 KiB
//! chunks; otherwise the turns of the flusher, which end anywhere, would be all that is counted.

use std::collections::VecDeque;

/// Full-stroke seek.
const SEEK_NS: u128 = 8_000_000;
/// Transfer rate.
const BYTES_PER_SECOND: u128 = 150_000_000;

/// Stripes whose parts wait for the rest.
const STRIPES_WAITING: usize = 16;

/// The disk, its clock and its counters.
#[derive(Clone, Debug)]
pub struct Disk {
    blocks: u64,
    block_bytes: u64,
    /// Data blocks of a stripe; 0: no RAID.
    stripe: u64,
    head: u64,
    /// A write that may still be continued: first block, end.
    plugged: Option<(u64, u64)>,
    /// Stripes written in part, the oldest first: number, blocks.
    parts: VecDeque<(u64, u64)>,
    counters: Counters,
}

/// What it did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Virtual time.
    pub ns: u64,
    /// Writes, after merging.
    pub writes: u64,
    /// Blocks written.
    pub written: u64,
    /// Stripes read, changed and written again.
    pub read_modify_writes: u64,
}

impl Disk {
    /// Of so many blocks, with `stripe` data blocks in a stripe (0: no RAID).
    pub fn new(blocks: u64, block_bytes: u64, stripe: u64) -> Self {
        Self {
            blocks: blocks.max(1),
            block_bytes,
            stripe,
            head: 0,
            plugged: None,
            parts: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Writes what waits to be continued, as before a flush of its cache.
    pub fn flush(&mut self) {
        self.unplug();
        while self.parts.front().is_some() {
            self.complete_oldest();
        }
    }

    /// Writes blocks.
    pub fn write(&mut self, start: u64, len: u64) {
        if let Some((_, end)) = &mut self.plugged
            && *end == start
        {
            *end += len;
            return;
        }
        self.unplug();
        self.plugged = Some((start, start + len));
    }

    /// Reads blocks.
    pub fn read(&mut self, start: u64, len: u64) {
        self.unplug();
        self.transfer(start, len);
    }

    /// Writes what waits to be continued.
    fn unplug(&mut self) {
        let Some((start, end)) = self.plugged.take() else {
            return;
        };
        self.counters.writes += 1;
        self.counters.written += end - start;
        self.transfer(start, end - start);
        if self.stripe > 0 {
            self.note_part(start, end.min(start.next_multiple_of(self.stripe)));
            let tail = end / self.stripe * self.stripe;
            if tail >= start {
                self.note_part(tail, end);
            }
        }
    }

    /// A part of one stripe was written, or nothing.
    fn note_part(&mut self, start: u64, end: u64) {
        let stripe = start / self.stripe;
        let waiting = self.parts.iter().position(|part| part.0 == stripe);
        let before = waiting
            .and_then(|at| self.parts.remove(at))
            .map_or(0, |part| part.1);
        let blocks = before + (end - start);
        if end > start && blocks < self.stripe {
            self.parts.push_back((stripe, blocks));
        }
        if self.parts.len() > STRIPES_WAITING {
            self.complete_oldest();
        }
    }

    fn complete_oldest(&mut self) {
        if let Some((_, blocks)) = self.parts.pop_front() {
            self.counters.read_modify_writes += 1;
            self.counters.ns += self.transfer_ns(2 * blocks);
        }
    }

    fn transfer(&mut self, start: u64, len: u64) {
        let distance = u128::from(self.head.abs_diff(start));
        let seek = (SEEK_NS * SEEK_NS * distance / u128::from(self.blocks)).isqrt();
        self.counters.ns += seek as u64 + self.transfer_ns(len);
        self.head = start + len;
    }

    fn transfer_ns(&self, blocks: u64) -> u64 {
        let bytes = u128::from(blocks * self.block_bytes);
        (bytes * 1_000_000_000 / BYTES_PER_SECOND) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_written_whole_need_no_reading() {
        let mut disk = Disk::new(1 << 20, 4096, 128);
        let mut rmw = |writes: &[(u64, u64)]| {
            let before = disk.counters().read_modify_writes;
            writes
                .iter()
                .for_each(|&(start, len)| disk.write(start, len));
            disk.flush();
            disk.counters().read_modify_writes - before
        };
        assert_eq!(rmw(&[(128, 256)]), 0);
        assert_eq!(rmw(&[(130, 10)]), 1);
        assert_eq!(rmw(&[(100, 200)]), 2);
        // Continued at once, or after others.
        assert_eq!(rmw(&[(1000, 24), (1024, 128)]), 1);
        assert_eq!(rmw(&[(1024, 100), (5120, 128), (1124, 28)]), 0);
        // Too late.
        let mut many: Vec<_> = (0..18).map(|i| (i * 1280, 64)).collect();
        many.push((64, 64));
        assert_eq!(rmw(&many), 19);
    }

    #[test]
    fn far_costs_more_than_near_and_what_follows_nothing() {
        let time = |from: u64, to: u64| {
            let mut disk = Disk::new(1 << 20, 4096, 0);
            disk.read(from, 1);
            let before = disk.counters().ns;
            disk.read(to, 1);
            disk.counters().ns - before
        };
        assert_eq!(time(0, 1), 4096 * 1_000_000_000 / 150_000_000);
        assert!(time(0, 1000) > time(0, 10));
        assert!(time(0, 1 << 20) <= 8_000_000 + time(0, 1));
    }
}
