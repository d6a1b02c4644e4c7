//! A simulated disk in virtual time, alone or as the members of a RAID 5.
//!
//! A seek costs 8 ms times the square root of the distance's share of the disk, a transfer what
//! 150 MB/s give. Writes that continue each other are one write, as the block layer's plug makes them.
//! On a RAID 5 every stripe that a write covers only in part is read, changed and written again with
//! its parity: counted, and paid with two transfers of the part.

/// Full-stroke seek.
const SEEK_NS: u128 = 8_000_000;
/// Transfer rate.
const BYTES_PER_SECOND: u128 = 150_000_000;

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
            counters: Counters::default(),
        }
    }

    /// What it did so far, all writes given to it included.
    pub fn counters(&mut self) -> Counters {
        self.unplug();
        self.counters
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
        let (stripes, blocks) = self.partial(start, end);
        self.counters.read_modify_writes += stripes;
        self.counters.ns += self.transfer_ns(2 * blocks);
        self.transfer(start, end - start);
    }

    /// Stripes covered in part by `start..end`, and the blocks of those parts.
    fn partial(&self, start: u64, end: u64) -> (u64, u64) {
        if self.stripe == 0 {
            return (0, 0);
        }
        let head = (!start.is_multiple_of(self.stripe)).then(|| {
            let stripe_end = (start / self.stripe + 1) * self.stripe;
            stripe_end.min(end) - start
        });
        let tail_start = end / self.stripe * self.stripe;
        // A tail in the head's stripe is the same stripe.
        let apart = tail_start >= start;
        let tail = (apart && !end.is_multiple_of(self.stripe)).then(|| end - tail_start);
        let parts = [head, tail].into_iter().flatten();
        (parts.clone().count() as u64, parts.sum())
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
    fn whole_stripes_need_no_reading() {
        let mut disk = Disk::new(1 << 20, 4096, 128);
        disk.write(128, 256);
        assert_eq!(disk.counters().read_modify_writes, 0);
        disk.write(130, 10);
        assert_eq!(disk.counters().read_modify_writes, 1);
        disk.write(100, 200);
        assert_eq!(disk.counters().read_modify_writes, 3);
        disk.write(1000, 24);
        disk.write(1024, 128);
        let counters = disk.counters();
        assert_eq!((counters.read_modify_writes, counters.writes), (4, 4));
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
