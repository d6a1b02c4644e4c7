//! What a device shows of its throttling.

use std::fmt;

use super::PAGE_SIZE;

/// The statistics of a device, in pages of 4096 bytes and pages a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BdiStats {
    /// `BdiWriteback`: under writeback.
    pub writeback: u64,
    /// `BdiReclaimable`: dirty.
    pub reclaimable: u64,
    /// `BdiDirtyThresh`: its part of the limit.
    pub thresh: u64,
    /// `DirtyThresh`: the limit of all.
    pub dirty_thresh: u64,
    /// `BackgroundThresh`: above this flushers write.
    pub background_thresh: u64,
    /// `BdiDirtied`: ever made dirty.
    pub dirtied: u64,
    /// `BdiWritten`: ever written.
    pub written: u64,
    /// `BdiWriteBandwidth`: what it is taken to write, a second.
    pub write_bandwidth: u64,
    /// What each writer may dirty, a second; 0 where the policy knows no such number.
    pub dirty_ratelimit: u64,
}

impl BdiStats {
    /// The lines of the kernel's stats file: name, value, unit of the value (`kB` or `kBps`).
    #[must_use]
    pub fn lines(&self) -> [(&'static str, u64, &'static str); 9] {
        [
            ("BdiWriteback", self.writeback, "kB"),
            ("BdiReclaimable", self.reclaimable, "kB"),
            ("BdiDirtyThresh", self.thresh, "kB"),
            ("DirtyThresh", self.dirty_thresh, "kB"),
            ("BackgroundThresh", self.background_thresh, "kB"),
            ("BdiDirtied", self.dirtied, "kB"),
            ("BdiWritten", self.written, "kB"),
            ("BdiWriteBandwidth", self.write_bandwidth, "kBps"),
            ("BdiDirtyRatelimit", self.dirty_ratelimit, "kBps"),
        ]
        .map(|(name, pages, unit)| (name, pages.saturating_mul(PAGE_SIZE / 1024), unit))
    }
}

impl fmt::Display for BdiStats {
    /// [`BdiStats::lines`], one a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value, unit) in self.lines() {
            let name = format_args!("{name}:").to_string();
            writeln!(f, "{name:<20}{value:>12} {unit}")?;
        }
        Ok(())
    }
}
