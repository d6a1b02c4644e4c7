//! The journal as numbered blocks: its superblock's claims tested, the ring, and where each block
//! lies on the device.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

use std::ops::Range;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::journal::{
    JBD2_CRC32C_CHKSUM, JournalCompat, JournalIncompat, JournalSuperblock, KNOWN_INCOMPAT,
};
use uext4_ondisk::num::lo32;
use uext4_ondisk::{BlockSize, Damage, Pblk};

use crate::{Error, LogRun};

/// Most blocks a fast-commit area may have; the default is 256.
const FAST_COMMIT_BLOCKS_MAX: u32 = 1 << 20;

/// An opened journal.
#[derive(Debug)]
pub(crate) struct Log<'a> {
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) block_size: BlockSize,
    /// Blocks of the file system; every home location lies below.
    pub(crate) blocks_count: u64,
    /// Runs with the log block each begins at.
    runs: Vec<(u32, LogRun)>,
    /// The blocks of all runs, sorted and disjoint.
    owned: Vec<Range<u64>>,
    pub(crate) sb: JournalSuperblock,
    /// First block of the ring.
    first: u32,
    /// Block behind the ring.
    end: u32,
}

fn bad(why: &'static str, value: impl Into<u64>) -> Error {
    Error::Damage(Damage::JournalSuperblock {
        why,
        value: value.into(),
    })
}

/// The runs with the log block each begins at, and how many blocks there are in all.
fn number_runs(runs: &[LogRun], blocks_count: u64) -> Result<(Vec<(u32, LogRun)>, u32), Error> {
    let mut numbered = Vec::with_capacity(runs.len());
    let mut at = 0u32;
    for run in runs.iter().filter(|run| run.len > 0) {
        let inside = run.start.0.checked_add(u64::from(run.len));
        if inside.is_none_or(|end| end > blocks_count) {
            return Err(Error::Damage(Damage::BlockRange {
                what: "journal",
                start: run.start,
                len: u64::from(run.len),
                blocks_count,
            }));
        }
        numbered.push((at, *run));
        at = at
            .checked_add(run.len)
            .ok_or_else(|| bad("the journal has more than 2^32 blocks", at))?;
    }
    Ok((numbered, at))
}

/// The block of a ring that comes `by` blocks after `at`, behind its last one the first again.
pub(crate) fn advance(ring: Range<u32>, at: u32, by: u32) -> u32 {
    let len = u64::from(ring.end.saturating_sub(ring.start));
    let offset = u64::from(at.saturating_sub(ring.start)).saturating_add(by.into());
    let offset = offset.checked_rem(len).unwrap_or(0);
    ring.start.saturating_add(lo32(offset))
}

/// Where a log block lies.
pub(crate) fn block_of(runs: &[(u32, LogRun)], at: u32) -> Result<Pblk, Error> {
    let next = runs.partition_point(|(first, _)| *first <= at);
    next.checked_sub(1)
        .and_then(|index| runs.get(index))
        .and_then(|(first, run)| {
            let inside = at.checked_sub(*first).filter(|inside| *inside < run.len)?;
            run.start.0.checked_add(inside.into()).map(Pblk)
        })
        .ok_or_else(|| bad("block outside the journal's file", at))
}

/// The blocks of the runs, sorted; pieces that touch or overlap are joined.
fn sort_runs(runs: &[(u32, LogRun)]) -> Vec<Range<u64>> {
    let range = |(_, run): &(u32, LogRun)| {
        let start = run.start.0;
        start..start.saturating_add(run.len.into())
    };
    let mut sorted: Vec<_> = runs.iter().map(range).collect();
    sorted.sort_unstable_by_key(|range| range.start);
    sorted.dedup_by(|next, last| {
        let joined = next.start <= last.end;
        if joined {
            last.end = last.end.max(next.end);
        }
        joined
    });
    sorted
}

fn check_features(sb: &JournalSuperblock) -> Result<(), Error> {
    let unknown = |letter: char, bits: u32| Error::UnknownFeature {
        name: format!("FEATURE_{letter}{}", bits.trailing_zeros()),
    };
    let incompat = sb.incompat().difference(KNOWN_INCOMPAT);
    if !incompat.is_empty() {
        return Err(unknown('I', incompat.bits()));
    }
    if sb.has_features() && sb.s_feature_ro_compat.get() != 0 {
        return Err(unknown('R', sb.s_feature_ro_compat.get()));
    }
    let v2 = sb.incompat().contains(JournalIncompat::CSUM_V2);
    let v3 = sb.incompat().contains(JournalIncompat::CSUM_V3);
    let v1 = sb.compat().contains(JournalCompat::CHECKSUM);
    if v2 && v3 || v1 && (v2 || v3) {
        return Err(bad("more than one kind of checksum", sb.incompat().bits()));
    }
    if (v2 || v3) && sb.s_checksum_type != JBD2_CRC32C_CHKSUM {
        return Err(bad("checksum type", sb.s_checksum_type));
    }
    Ok(())
}

impl<'a> Log<'a> {
    /// Reads and tests the superblock.
    pub(crate) fn open(
        device: &'a dyn BlockDevice,
        block_size: BlockSize,
        blocks_count: u64,
        runs: &[LogRun],
    ) -> Result<Self, Error> {
        let (runs, len) = number_runs(runs, blocks_count)?;
        let mut log = Self {
            device,
            block_size,
            // Blocks past these have no offset in 64 bits.
            blocks_count: blocks_count.min(u64::MAX >> block_size.log2()),
            owned: sort_runs(&runs),
            runs,
            sb: JournalSuperblock::zeroed(),
            first: 0,
            end: 0,
        };
        let mut block = vec![0; block_size.len()];
        log.read(0, &mut block)?;
        log.sb = JournalSuperblock::parse(&block)?;
        check_features(&log.sb)?;
        if log.sb.s_blocksize.get() != block_size.bytes() {
            return Err(bad("block size", log.sb.s_blocksize.get()));
        }
        let maxlen = log.sb.s_maxlen.get();
        if maxlen > len {
            return Err(bad("longer than the journal's file", maxlen));
        }
        let fast_commit = log.sb.fast_commit_blocks();
        if fast_commit > FAST_COMMIT_BLOCKS_MAX {
            return Err(bad("size of the fast-commit area", fast_commit));
        }
        log.first = log.sb.s_first.get();
        log.end = log.sb.log_end();
        if log.first == 0 || log.first >= log.end {
            return Err(bad("first block of the log", log.first));
        }
        let start = log.sb.s_start.get();
        if start != 0 && !(log.first..log.end).contains(&start) {
            return Err(bad("start of the log", start));
        }
        Ok(log)
    }

    /// Blocks of the ring, at least 1.
    pub(crate) fn ring_len(&self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// The log block `distance` blocks behind the start of the log.
    pub(crate) fn at(&self, distance: u32) -> u32 {
        advance(self.first..self.end, self.sb.s_start.get(), distance)
    }

    /// Where a log block lies.
    pub(crate) fn block(&self, at: u32) -> Result<Pblk, Error> {
        block_of(&self.runs, at)
    }

    /// The runs with the log block each begins at.
    pub(crate) fn runs(&self) -> &[(u32, LogRun)] {
        &self.runs
    }

    /// First block of the ring, and the one behind its last.
    pub(crate) fn bounds(&self) -> (u32, u32) {
        (self.first, self.end)
    }

    /// Whether a block of the device belongs to the journal's file. O(log n) of its pieces.
    pub(crate) fn owns(&self, block: Pblk) -> bool {
        let next = self.owned.partition_point(|range| range.start <= block.0);
        let before = next.checked_sub(1).and_then(|index| self.owned.get(index));
        before.is_some_and(|range| range.contains(&block.0))
    }

    /// Reads a log block.
    pub(crate) fn read(&self, at: u32, buf: &mut [u8]) -> Result<(), Error> {
        self.read_device(self.block(at)?, buf)
    }

    /// Reads blocks of the device.
    pub(crate) fn read_device(&self, block: Pblk, buf: &mut [u8]) -> Result<(), Error> {
        let offset = self.block_size.byte_offset(block);
        let offset = offset.ok_or_else(|| bad("block outside any device", block.0))?;
        Ok(self.device.read_at(offset, buf)?)
    }

    /// The fast-commit area as it is used: the block right behind the ring stays empty.
    pub(crate) fn fast_commit_area(&self) -> Result<Vec<Pblk>, Error> {
        self.sb
            .fast_commit_area()
            .map(|at| self.block(at))
            .collect()
    }
}
