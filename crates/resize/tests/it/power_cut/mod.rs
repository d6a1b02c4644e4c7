//! The power goes at any write of growing and shrinking: the file system has either size, is
//! clean, and keeps all that it holds.
//!
//! At a write the device is asked for what a power cut would leave then: some of what was written
//! since the last flush, torn between sectors. That is read as it is, and the journal is replayed
//! by us, by e2fsck and by the kernel; and the same work is begun again and ends. With
//! `UEXT4_LONG=1` every write of the chosen shapes and of 100 random ones is cut. e2fsck looks at
//! all cuts of chosen shapes and at each 5th of random ones, and the kernel mounts each 7th and
//! each 61st. `UEXT4_SEED=N` cuts the random case N, `UEXT4_SEED=N-M` a range of them.

mod cases;
mod judge;

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use uext4::tuning::Background;
use uext4::{Image, OpenOptions};
use uext4_blockdev::{BlockDevice, Error, MemoryDevice, ReadRequest, WriteRequest};
use uext4_ondisk::{GroupNr, Ino};
use uext4_resize::Resized;
use uext4_testkit::{SimDevice, SimOptions, has_tool};

use cases::{Case, chosen, unclean_grow};
use judge::{Counts, Judge};

/// Random cases of the long run, and of the quick one.
const RANDOM: [u64; 2] = [100, 3];

/// Which cuts are looked at, by whom: one in so many, besides those where the journal's inode is
/// about to be written.
#[derive(Clone, Copy, Debug)]
struct Often {
    cuts: u64,
    /// What may be left of each.
    seeds: u64,
    e2fsck: u64,
    kernel: u64,
    again: u64,
}

fn is_long() -> bool {
    std::env::var_os("UEXT4_LONG").is_some()
}

/// A device that writes a superblock whole or not at all.
fn sim() -> SimOptions {
    SimOptions {
        sector_size: 1024,
        ..SimOptions::default()
    }
}

fn mount_options() -> OpenOptions {
    let mut options = OpenOptions::default();
    options.background = Background::None;
    options
}

/// A device with a judge, who looks at what a power cut at a write would leave.
#[derive(Debug)]
struct Watched {
    device: SimDevice,
    judge: Mutex<Judge>,
    often: Often,
    /// The bytes of the journal's inode: the place of the log hangs on them.
    journal: Range<u64>,
}

impl Watched {
    fn new(start: &MemoryDevice, judge: Judge, often: Often) -> Self {
        let image = Image::open(Arc::new(start.snapshot()), &mount_options()).unwrap();
        let geometry = image.geometry();
        let at = u64::from(Ino::JOURNAL.0 - 1) * u64::from(geometry.inode_size);
        let table = image.group_desc(GroupNr(0)).unwrap().inode_table;
        let at = (table.0 << geometry.block_size.log2()) + at;
        Self {
            device: SimDevice::new(start, sim()),
            judge: Mutex::new(judge),
            often,
            journal: at..at + u64::from(geometry.inode_size),
        }
    }

    /// What may be left now; one of it is looked at by all.
    fn cut(&self, by_all: bool) {
        let nr = self.device.stats().changes();
        let first = nr * self.often.seeds;
        for seed in first..first + self.often.seeds {
            let left = self.device.power_cut(seed);
            let by_all = by_all && seed == first;
            self.judge.lock().unwrap().judge(&left, seed, by_all);
        }
    }
}

impl BlockDevice for Watched {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.device.read_at(offset, buf)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        self.device.read_many(requests)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        let end = offset + buf.len() as u64;
        let is_journal = offset < self.journal.end && end > self.journal.start;
        // What was flushed before it is there, and it is not.
        if is_journal {
            self.cut(true);
        }
        self.device.write_at(offset, buf)?;
        if is_journal
            || self
                .device
                .stats()
                .changes()
                .is_multiple_of(self.often.cuts)
        {
            self.cut(false);
        }
        Ok(())
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Result<(), Error> {
        requests
            .iter()
            .try_for_each(|request| self.write_at(request.offset, request.buf))
    }

    fn flush(&self) -> Result<(), Error> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.device.discard(offset, len)?;
        self.cut(false);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        self.device.next_data(offset)
    }
}

/// Cuts one case.
fn cut(case: &Case, often: impl Fn(u64) -> Often) -> Counts {
    let dir = TempDir::new().unwrap();
    let start = case.start(&dir);
    let whole = Arc::new(SimDevice::new(&start, sim()));
    let resized = case.carry_out(&(Arc::clone(&whole) as _), case.mib << 20);
    let resized = resized.unwrap_or_else(|error| panic!("{case}: {error}"));
    let (writes, flushes) = (whole.stats().changes(), whole.stats().flushes);
    let often = often(writes);
    let judge = Judge::new(case, dir, &start, resized, often);
    let device = Arc::new(Watched::new(&start, judge, often));
    let again = case.carry_out(&(Arc::clone(&device) as _), case.mib << 20);
    assert_eq!(again.ok(), Some(resized), "{case}");
    // What is left of the whole.
    device.flush().unwrap();
    device.cut(true);
    let counts = device.judge.lock().unwrap().counts.clone();
    let Resized { before, after, .. } = resized;
    println!("{case}: {before} blocks to {after}, {flushes} flushes: {counts}");
    let is_either = counts
        .sizes
        .keys()
        .all(|&found| found == before || found == after);
    assert!(is_either, "{case}: {counts}");
    assert!(!is_long() || counts.sizes.len() == 2, "{case}: {counts}");
    counts
}

/// Each flush waits for the medium, and nearly all the time of growing is spent so.
#[test]
fn growing_an_unclean_file_system_takes_ten_flushes() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let case = unclean_grow();
    let start = case.start(&TempDir::new().unwrap());
    let device = Arc::new(SimDevice::new(&start, sim()));
    let resized = case.carry_out(&(Arc::clone(&device) as _), case.mib << 20);
    assert!(resized.is_ok_and(|resized| resized.after > resized.before));
    // Replay: what a killed process wrote; blocks at home; log empty and file system in use; file
    // system clean. Transaction: new groups, file system in use, log; commit; blocks at home;
    // superblock at home; log empty; file system clean.
    assert_eq!(device.stats().flushes, 4 + 6);
}

fn report(counts: impl Iterator<Item = Counts>) {
    let mut all = Counts::default();
    let mut cases = 0;
    for counts in counts {
        cases += 1;
        all.add(&counts);
    }
    println!("{cases} cases: {all}");
}

#[test]
fn chosen_shapes_have_either_size_and_all_files() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let often = |writes: u64| match is_long() {
        true => Often {
            cuts: 1,
            seeds: 1,
            e2fsck: 1,
            kernel: 7,
            again: 5,
        },
        false => Often {
            cuts: writes.div_ceil(12),
            seeds: 2,
            e2fsck: 3,
            kernel: 17,
            again: 5,
        },
    };
    report(chosen().iter().map(|case| cut(case, often)));
}

/// Of random shapes, with so many writes.
fn often_of_random(writes: u64) -> Often {
    Often {
        cuts: if is_long() { 1 } else { writes.div_ceil(12) },
        seeds: 1,
        e2fsck: 5,
        kernel: 61,
        again: 7,
    }
}

#[test]
fn random_shapes_have_either_size_and_all_files() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    report(seeds().map(|seed| cut(&Case::random(seed), often_of_random)));
}

#[test]
fn random_shapes_grow_mounted_and_have_either_size_and_all_files() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    report(seeds().map(|seed| cut(&Case::random_mounted(seed), often_of_random)));
}

/// Those of the random cases.
fn seeds() -> RangeInclusive<u64> {
    let Ok(asked) = std::env::var("UEXT4_SEED") else {
        return 0..=RANDOM[usize::from(!is_long())] - 1;
    };
    let (first, last) = asked.split_once('-').unwrap_or((&asked, &asked));
    first.parse().unwrap()..=last.parse().unwrap()
}
