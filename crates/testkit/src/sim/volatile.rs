//! A medium behind a volatile write cache.
//!
//! Two images are stored: `current` is what reads see, `durable` what the last flush made safe.
//! They differ only in sectors of `pending`, which also holds what stood there in between: a
//! device may write a sector several times between two flushes, and lose any of these.
//!
//! ```text
//! write → current, pending        flush: current → durable, pending emptied
//! power cut: durable + for each pending sector the newest version that survived, if any
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use super::survival::Survival;
use uext4_blockdev::{BlockDevice, Error, MemoryDevice};

/// Overwritten versions of a sector that are remembered; older ones count as surely lost.
const VERSIONS_MAX: usize = 8;

/// Sectors copied at once by a flush.
const RUN_MAX: u64 = 128;

/// A sector whose current contents are not durable.
#[derive(Debug)]
struct Pending {
    /// Number of the write that made the current contents.
    write: u64,
    /// Contents it overwrote since the last flush, and the write that had made them.
    older: Vec<(u64, Box<[u8]>)>,
    /// Written before a flush that failed: no later flush makes it durable.
    forsaken: bool,
}

/// Contents of a simulated device.
#[derive(Debug)]
pub(super) struct Volatile {
    /// Bytes that are written whole or not at all.
    sector_size: u64,
    current: MemoryDevice,
    durable: MemoryDevice,
    pending: BTreeMap<u64, Pending>,
}

impl Volatile {
    pub(super) fn new(image: &MemoryDevice, sector_size: u64) -> Self {
        Self {
            sector_size,
            current: image.snapshot(),
            durable: image.snapshot(),
            pending: BTreeMap::new(),
        }
    }

    /// What reads see.
    pub(super) fn current(&self) -> &MemoryDevice {
        &self.current
    }

    /// What is safe.
    pub(super) fn durable(&self) -> &MemoryDevice {
        &self.durable
    }

    /// Write number `write` puts `buf` at `offset`.
    pub(super) fn write(&mut self, write: u64, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.note(write, offset, buf.len() as u64)?;
        self.current.write_at(offset, buf)
    }

    /// Of write number `write`, only the sectors that survive are written.
    pub(super) fn write_torn(
        &mut self,
        write: u64,
        offset: u64,
        buf: &[u8],
        survival: Survival,
    ) -> Result<(), Error> {
        for sector in self.sectors(offset, buf.len() as u64) {
            if survival.keeps(write, sector) {
                let bytes = self.bytes(sector);
                let start = bytes.start.max(offset);
                let end = bytes.end.min(offset + buf.len() as u64);
                // OK to unwrap: both lie in `buf`, whose length is a usize.
                let inside = [start - offset, end - offset].map(|at| usize::try_from(at).unwrap());
                self.write(write, start, &buf[inside[0]..inside[1]])?;
            }
        }
        Ok(())
    }

    /// Discard number `write` makes a range read as zeroes.
    pub(super) fn discard(&mut self, write: u64, offset: u64, len: u64) -> Result<(), Error> {
        let end = offset + len;
        let mut at = offset;
        // What is zero already, everywhere, needs no mention: the device may be huge.
        while let Some(data) = self.current.next_data(at)?.filter(|data| data.start < end) {
            at = data.end.min(end);
            self.note(write, data.start, at - data.start)?;
        }
        let pending: Vec<u64> = self
            .pending
            .range(self.sectors(offset, len))
            .map(|(&sector, _)| sector)
            .collect();
        for sector in pending {
            self.note_sector(write, sector)?;
        }
        self.current.discard(offset, len)
    }

    /// Makes everything durable but what a failed flush has lost.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let safe: Vec<u64> = self
            .pending
            .extract_if(.., |_, p| !p.forsaken)
            .map(|e| e.0)
            .collect();
        let mut rest = &safe[..];
        while let Some(&first) = rest.first() {
            let count = (first..first.saturating_add(RUN_MAX))
                .zip(rest)
                .take_while(|(expected, sector)| expected == *sector)
                .count();
            rest = &rest[count..];
            let bytes = self.bytes(first).start..self.bytes(first + count as u64 - 1).end;
            let buf = read(&self.current, bytes.clone())?;
            self.durable.write_at(bytes.start, &buf)?;
        }
        Ok(())
    }

    /// A flush fails: what was to be made durable never will be, unless it is written again.
    pub(super) fn fail_flush(&mut self) {
        for pending in self.pending.values_mut() {
            pending.forsaken = true;
        }
    }

    /// The medium as `seed` says it is after a power cut.
    pub(super) fn after_power_cut(&self, seed: u64) -> Result<MemoryDevice, Error> {
        let image = self.durable.snapshot();
        let writes = self.pending.values().flat_map(|pending| {
            pending
                .older
                .iter()
                .map(|(write, _)| *write)
                .chain([pending.write])
        });
        let (first, last) = writes.fold((u64::MAX, 0), |(first, last), w| {
            (first.min(w), last.max(w))
        });
        if first > last {
            return Ok(image);
        }
        let survival = Survival::new(seed, first, last);
        for (&sector, pending) in &self.pending {
            let bytes = self.bytes(sector);
            if survival.keeps(pending.write, sector) {
                image.write_at(bytes.start, &read(&self.current, bytes.clone())?)?;
            } else if let Some((_, old)) = pending
                .older
                .iter()
                .rev()
                .find(|(write, _)| survival.keeps(*write, sector))
            {
                image.write_at(bytes.start, old)?;
            }
        }
        Ok(image)
    }

    /// Sectors that a range touches.
    fn sectors(&self, offset: u64, len: u64) -> Range<u64> {
        let first = offset / self.sector_size;
        if len == 0 {
            return first..first;
        }
        first..(offset + len).div_ceil(self.sector_size)
    }

    /// Bytes of a sector; the last one may be short.
    fn bytes(&self, sector: u64) -> Range<u64> {
        let start = sector * self.sector_size;
        start
            ..start
                .saturating_add(self.sector_size)
                .min(self.current.len())
    }

    fn note(&mut self, write: u64, offset: u64, len: u64) -> Result<(), Error> {
        self.sectors(offset, len)
            .try_for_each(|sector| self.note_sector(write, sector))
    }

    /// Sector `sector` is about to be overwritten by `write`.
    fn note_sector(&mut self, write: u64, sector: u64) -> Result<(), Error> {
        let bytes = self.bytes(sector);
        let Some(pending) = self.pending.get_mut(&sector) else {
            let pending = Pending {
                write,
                older: Vec::new(),
                forsaken: false,
            };
            self.pending.insert(sector, pending);
            return Ok(());
        };
        if pending.write != write {
            if pending.older.len() == VERSIONS_MAX {
                pending.older.remove(0);
            }
            pending
                .older
                .push((pending.write, read(&self.current, bytes)?.into()));
            (pending.write, pending.forsaken) = (write, false);
        }
        Ok(())
    }
}

/// The bytes of a range of at most some sectors.
fn read(device: &MemoryDevice, range: Range<u64>) -> Result<Vec<u8>, Error> {
    // OK to unwrap: a run of at most `RUN_MAX` sectors.
    let mut buf = vec![0; usize::try_from(range.end - range.start).unwrap()];
    device.read_at(range.start, &mut buf)?;
    Ok(buf)
}
