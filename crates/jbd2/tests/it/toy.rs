//! A toy of a file system: blocks that carry a version, a checksum, and nothing else.

use std::sync::Arc;

use parking_lot::Mutex;
use uext4_blockdev::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use uext4_buffer_cache::{BufferCache, ChecksumRule, Options, VerifyTag};
use uext4_jbd2::{CommitCallbacks, Error, Handle, Journal, LogRun, PreCommit, Recovery, Tid};
use uext4_ondisk::Pblk;
use uext4_ondisk::journal::JBD2_MAGIC;
use uext4_testkit::{SimDevice, SplitMix64};

use crate::maker::{Kind, Maker, Place};

const TAG: VerifyTag = VerifyTag(1);
/// What a block ends with when it was checksummed.
const CHECKSUMMED: u64 = 0x5EA1_ED00;
/// Blocks of one handle, at most.
const CREDITS: u32 = 4;

/// What a block should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A version that was written through the journal; 0 is what was there in the beginning.
    Meta(u64),
    /// A version that was written past the journal.
    Data(u64),
    /// Freed: anything.
    Free,
}

/// The state of all blocks after each transaction that was closed.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now: Vec<Cell>,
    pub closed: Vec<Vec<Cell>>,
    /// The last of `closed` of which a commit has notified that it is durable.
    pub durable: usize,
    /// Blocks freed since the last transaction was closed, in a closed one, and those to be used.
    freed: [Vec<usize>; 3],
}

#[derive(Debug)]
pub struct Toy {
    pub journal: Journal,
    pub model: Mutex<Model>,
    cache: Arc<BufferCache>,
    pub place: Place,
}

/// A bare place with an empty journal of this kind.
pub fn place(kind: Kind) -> Place {
    let mut maker = Maker::new(Place::bare(), kind);
    maker.start_at(0, 7);
    maker.finish();
    maker.place
}

fn word_of(cell: Cell) -> u64 {
    match cell {
        // Every third looks like a block of the log.
        Cell::Meta(version) if version % 3 == 1 => {
            u64::from(JBD2_MAGIC.swap_bytes()) | version << 32
        }
        Cell::Meta(version) => version << 32,
        Cell::Data(version) => version << 32 | 0xDA7A,
        Cell::Free => 0xDEAD,
    }
}

fn fill(bytes: &mut [u8], cell: Cell) {
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&word_of(cell).to_le_bytes());
    }
}

/// [`Journal::open`], or one like it.
type OpenJournal =
    fn(Arc<BufferCache>, Arc<dyn Clock>, u64, &[LogRun]) -> Result<(Journal, Recovery), Error>;

impl Toy {
    pub fn open(place: &Place, device: Arc<dyn BlockDevice>) -> Result<Self, Error> {
        let now = vec![Cell::Meta(0); place.homes.len()];
        let model = Model {
            closed: vec![now.clone()],
            now,
            ..Model::default()
        };
        Self::reopen(place, device, model)
    }

    /// With what the log holds replayed; `model` says what that is.
    pub fn reopen(
        place: &Place,
        device: Arc<dyn BlockDevice>,
        model: Model,
    ) -> Result<Self, Error> {
        Self::opened(place, device, model, Journal::open)
    }

    /// With what the log holds left there; `model` says what that is.
    pub fn open_behind(
        place: &Place,
        device: Arc<dyn BlockDevice>,
        model: Model,
    ) -> Result<Self, Error> {
        Self::opened(place, device, model, Journal::open_behind)
    }

    fn opened(
        place: &Place,
        device: Arc<dyn BlockDevice>,
        model: Model,
        open: OpenJournal,
    ) -> Result<Self, Error> {
        let cache = Arc::new(BufferCache::new(device, place.size, Options::default()));
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let (blocks, runs) = (place.blocks_count, &place.runs);
        let (journal, _) = open(Arc::clone(&cache), clock, blocks, runs)?;
        Ok(Self {
            journal,
            model: Mutex::new(model),
            cache,
            place: place.clone(),
        })
    }

    fn home(&self, index: usize) -> Pblk {
        self.place.homes[index]
    }

    /// Writes a version of a block through the journal; block 0 is the transaction's own.
    pub fn write(&self, handle: &Handle<'_>, index: usize, version: u64) -> Result<(), Error> {
        let was = std::mem::replace(&mut self.model.lock().now[index], Cell::Meta(version));
        let block = self.home(index);
        let buffer = match was {
            Cell::Meta(_) => match self.cache.bread(block, TAG, |_| Ok(())) {
                Ok(buffer) => buffer,
                Err(uext4_buffer_cache::Error::Device(error)) => return Err(error.into()),
                Err(error) => panic!("{error}"),
            },
            Cell::Data(_) | Cell::Free => self.cache.getblk_new(block),
        };
        handle.modify(&buffer, TAG, rule_of(index), |bytes| {
            fill(bytes, Cell::Meta(version));
        });
        Ok(())
    }

    /// One operation: some blocks get a version, one may be freed, one that was freed may be used
    /// for data or again.
    pub fn operate(&self, random: &mut SplitMix64, version: u64) -> Result<(), Error> {
        let reused = self.model.lock().freed[2].pop();
        if let Some(index) = reused
            && random.below(2) == 0
        {
            let mut bytes = vec![0; self.place.size.len()];
            fill(&mut bytes, Cell::Data(version));
            let offset = self.place.size.byte_offset(self.home(index)).unwrap();
            self.cache.device().write_at(offset, &bytes)?;
            self.model.lock().now[index] = Cell::Data(version);
        }
        let handle = self.journal.start(CREDITS, self)?;
        for _ in 0..1 + random.below(u64::from(CREDITS) - 1) {
            let index = 1 + random.below(self.place.homes.len() as u64 - 1) as usize;
            let cell = self.model.lock().now[index];
            // What is free may not be used before its transaction is durable.
            if cell != Cell::Free {
                self.write(&handle, index, version)?;
            }
        }
        if let Some(index) = reused
            && self.model.lock().now[index] == Cell::Free
        {
            self.write(&handle, index, version)?;
        }
        let index = 1 + random.below(self.place.homes.len() as u64 - 1) as usize;
        let mut model = self.model.lock();
        if random.below(3) == 0 && matches!(model.now[index], Cell::Meta(_)) {
            model.now[index] = Cell::Free;
            model.freed[0].push(index);
            let block = self.home(index).0;
            handle.revoke(block..block + 1);
        }
        Ok(())
    }

    /// Random operations, commits and checkpoints, until all are done or the device fails.
    pub fn work(&self, seed: u64, operations: u64) -> Result<(), Error> {
        let mut random = SplitMix64::new(seed);
        for version in 1..=operations {
            self.operate(&mut random, version)?;
            match random.below(20) {
                0..8 => self.journal.commit_now(self)?,
                8 => self.journal.checkpoint()?,
                9 if self.journal.wants_checkpoint() => self.journal.checkpoint()?,
                10 if random.below(4) == 0 => self.journal.flush(self)?,
                _ => {}
            }
        }
        self.journal.commit_now(self)
    }
}

fn rule_of(index: usize) -> ChecksumRule {
    ChecksumRule {
        kind: 1,
        owner: index as u32,
        generation: 0,
    }
}

impl CommitCallbacks for Toy {
    fn before_commit(&self, pre_commit: &PreCommit<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let mut model = self.model.lock();
        let number = model.closed.len() as u64;
        let buffer = self.cache.bread(self.home(0), TAG, |_| Ok(()))?;
        pre_commit.modify(&buffer, TAG, rule_of(0), |bytes| {
            fill(bytes, Cell::Meta(number))
        });
        model.now[0] = Cell::Meta(number);
        let now = model.now.clone();
        model.closed.push(now);
        let freed = std::mem::take(&mut model.freed[0]);
        model.freed[1].extend(freed);
        Ok(())
    }

    fn rule(&self, _: ChecksumRule, block: Pblk, bytes: &mut [u8]) {
        let at = bytes.len() - 8;
        bytes[at..].copy_from_slice(&(CHECKSUMMED ^ block.0).to_le_bytes());
    }

    fn after_commit(&self, _: Tid) {
        let mut model = self.model.lock();
        model.durable = model.closed.len() - 1;
        let freed = std::mem::take(&mut model.freed[1]);
        model.freed[2].extend(freed);
    }
}

/// Asserts that a recovered device holds what was there after one transaction, not before `model`
/// knows one to be durable; returns which.
pub fn judge(place: &Place, image: &MemoryDevice, model: &Model, what: &str) -> usize {
    let first = place.read(image, place.homes[0]);
    let number = u32::from_le_bytes(first[4..8].try_into().unwrap()) as usize;
    let allowed = model.durable..model.closed.len();
    assert!(
        allowed.contains(&number),
        "{what}: transaction {number} of {allowed:?}"
    );
    let size = place.size.len();
    for (index, &cell) in model.closed[number].iter().enumerate() {
        let block = place.homes[index];
        let mut expected = vec![0; size];
        fill(&mut expected, cell);
        match cell {
            Cell::Free => continue,
            Cell::Meta(1..) => {
                expected[size - 8..].copy_from_slice(&(CHECKSUMMED ^ block.0).to_le_bytes())
            }
            _ => {}
        }
        let found = place.read(image, block);
        let heads = (&found[..8], &expected[..8]);
        assert!(
            found == expected,
            "{what}: block {index} after {number}: {cell:?}, {heads:x?}"
        );
    }
    number
}

/// Recovers an image as a mount does.
pub fn recovered(place: &Place, image: &MemoryDevice) -> MemoryDevice {
    let device = Arc::new(image.snapshot());
    Toy::open(place, Arc::clone(&device) as _).unwrap();
    device.snapshot()
}

/// A device whose power goes while it is recovered after `count` changes.
pub fn recovered_twice(place: &Place, image: &MemoryDevice, count: u64, seed: u64) -> MemoryDevice {
    let device = Arc::new(SimDevice::new(image, uext4_testkit::SimOptions::default()));
    device.cut_at_write(count);
    _ = Toy::open(place, Arc::clone(&device) as _);
    recovered(place, &device.power_cut(seed))
}
