//! How long a simulated device takes.
//!
//! The device serves one batch at a time:
//!
//! ```text
//! time = latency × ⌈requests / queue_depth⌉ + bytes / bandwidth + Σ seek × √(distance / length)
//! ```
//! A seek's time grows with the root of its distance, as an arm that speeds up and slows down.
//! Left out: rotation, erase blocks, and the time a volatile cache saves.

use std::time::Duration;

use super::Op;

/// Times of a device. The default takes no time at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Of a read, before its first byte.
    pub read_latency: Duration,
    /// Of a write or a discard.
    pub write_latency: Duration,
    /// Of a flush.
    pub flush_latency: Duration,
    /// Bytes moved in a second, either way; 0 for no limit.
    pub bytes_per_second: u64,
    /// Requests of one batch whose latencies pass together; 0 counts as 1.
    pub queue_depth: u32,
    /// Of a seek over the whole device; shorter ones take less.
    pub seek: Duration,
}

impl Timing {
    /// A disk of spinning plates: 15 ms across, 160 MB/s.
    #[must_use]
    pub const fn hard_disk() -> Self {
        Self {
            read_latency: Duration::from_micros(4200),
            write_latency: Duration::from_micros(4200),
            flush_latency: Duration::from_millis(10),
            bytes_per_second: 160_000_000,
            queue_depth: 1,
            seek: Duration::from_millis(15),
        }
    }

    /// An NVMe disk of the middle class: 80 µs, 3 GB/s, 32 requests at a time.
    #[must_use]
    pub const fn nvme() -> Self {
        Self {
            read_latency: Duration::from_micros(80),
            write_latency: Duration::from_micros(20),
            flush_latency: Duration::from_micros(500),
            bytes_per_second: 3_000_000_000,
            queue_depth: 32,
            seek: Duration::ZERO,
        }
    }
}

/// What a batch has cost so far.
#[derive(Debug)]
pub(super) struct Cost {
    op: Op,
    requests: u32,
    bytes: u64,
    seeking: Duration,
}

impl Cost {
    pub(super) fn new(op: Op) -> Self {
        Self {
            op,
            requests: 0,
            bytes: 0,
            seeking: Duration::ZERO,
        }
    }

    /// Adds a request that moves `bytes`, `distance` away from the one before it.
    pub(super) fn add(&mut self, timing: &Timing, bytes: u64, distance: u64, device_len: u64) {
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        if distance > 0 && !timing.seek.is_zero() {
            // Both are far below 2⁵³ or the fraction is close enough; the root is exact by IEEE
            // 754.
            let fraction = distance as f64 / device_len.max(distance) as f64;
            self.seeking = self
                .seeking
                .saturating_add(timing.seek.mul_f64(fraction.sqrt()));
        }
    }

    pub(super) fn duration(&self, timing: &Timing) -> Duration {
        let latency = match self.op {
            Op::Read => timing.read_latency,
            Op::Write | Op::Discard => timing.write_latency,
            Op::Flush => timing.flush_latency,
        };
        let rounds = self.requests.div_ceil(timing.queue_depth.max(1));
        let nanos = match timing.bytes_per_second {
            0 => 0,
            rate => u128::from(self.bytes) * 1_000_000_000 / u128::from(rate),
        };
        let moving = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        latency
            .saturating_mul(rounds)
            .saturating_add(moving)
            .saturating_add(self.seeking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_equation_holds() {
        let timing = Timing {
            read_latency: Duration::from_micros(100),
            bytes_per_second: 1_000_000,
            queue_depth: 4,
            seek: Duration::from_millis(10),
            ..Timing::default()
        };
        let mut cost = Cost::new(Op::Read);
        for distance in [0, 2500, 10_000, 0, 0] {
            cost.add(&timing, 100, distance, 10_000);
        }
        // Two rounds of latency, 500 bytes at 1 µs, half a seek and a whole one.
        assert_eq!(
            cost.duration(&timing),
            Duration::from_micros(200 + 500 + 5_000 + 10_000)
        );
        assert_eq!(cost.duration(&Timing::default()), cost.seeking);
        assert_eq!(
            Cost::new(Op::Flush).duration(&Timing::nvme()),
            Duration::ZERO
        );
    }
}
