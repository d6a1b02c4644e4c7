//! A log that is found on a device: whether it is to be finished, and finishing it.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use uext4_blockdev::BlockDevice;
use uext4_ondisk::BlockSize;
use uext4_ondisk::num::index;
use uext4_ondisk::repair_log::{HEADER_LEN, RUN_LEN, RepairLogHeader, RepairPointer, log_blocks};

use crate::claim::{MmpClaim, Pause};
use crate::error::{Error, Result};
use crate::log::{invert, numbers_of};
use crate::places::{LogRun, Places};
use crate::primary;
use crate::redone::{Redone, RedoneDevice};

/// What a pointer in a superblock leads to.
#[derive(Debug)]
pub enum FoundLog {
    /// A repair that was cut off, and is to be finished.
    Unfinished(UnfinishedRepair),
    /// A log that is out of date: the file system was in use since.
    OutOfDate,
    /// A log that is not whole, and cannot be used.
    Damaged,
}

impl FoundLog {
    /// The log that the superblock of this device names, if it names one.
    ///
    /// # Errors
    /// Of the device.
    pub fn find(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let Some(superblock) = primary::read(device)? else {
            return Ok(None);
        };
        let Some(pointer) = RepairPointer::find(&superblock) else {
            return Ok(None);
        };
        // First of all: its blocks may have been given to files since.
        if !pointer.is_of(&superblock) {
            return Ok(Some(Self::OutOfDate));
        }
        Ok(Some(match UnfinishedRepair::read(device, pointer)? {
            Some(repair) => Self::Unfinished(repair),
            None => Self::Damaged,
        }))
    }
}

/// A log that is whole, and whose blocks may not all be in their places.
#[derive(Debug)]
pub struct UnfinishedRepair {
    pointer: RepairPointer,
    block_size: BlockSize,
    /// How many blocks change.
    blocks: u64,
    places: Places,
}

impl UnfinishedRepair {
    /// The repair that was cut off on this device, if there is one that is to be finished.
    ///
    /// # Errors
    /// Of the device.
    pub fn find(device: &dyn BlockDevice) -> Result<Option<Self>> {
        Ok(match FoundLog::find(device)? {
            Some(FoundLog::Unfinished(repair)) => Some(repair),
            _ => None,
        })
    }

    /// The repair whose log has just been written.
    pub fn new(pointer: RepairPointer, block_size: BlockSize, blocks: u64, places: Places) -> Self {
        Self {
            pointer,
            block_size,
            blocks,
            places,
        }
    }

    fn read(device: &dyn BlockDevice, pointer: RepairPointer) -> Result<Option<Self>> {
        let offset = pointer.offset.get();
        let mut bytes = [0; HEADER_LEN];
        if !is_inside(device, offset, bytes.len()) {
            return Ok(None);
        }
        device.read_at(offset, &mut bytes)?;
        let Some(header) = RepairLogHeader::parse(&bytes) else {
            return Ok(None);
        };
        let Some(block_size) = BlockSize::from_bytes(header.block_len.get()) else {
            return Ok(None);
        };
        if !is_inside(device, offset, block_size.len()) || header.digest[..8] != pointer.digest {
            return Ok(None);
        }
        let mut block = vec![0; block_size.len()];
        device.read_at(offset, &mut block)?;
        let list = block[HEADER_LEN..].chunks_exact(RUN_LEN);
        let runs = list.map_while(LogRun::of_bytes);
        let runs = runs.take(index(header.runs.get())).collect();
        let device_blocks = device.len() >> block_size.log2();
        let Some(places) = Places::new(runs, device_blocks) else {
            return Ok(None);
        };
        let repair = Self::new(pointer, block_size, header.blocks.get(), places);
        let blocks = log_blocks(block_size.bytes(), repair.blocks);
        let first = repair.places.block(0).unwrap_or(0) << block_size.log2();
        let fits = repair.blocks <= device_blocks
            && repair.places.blocks() == blocks
            && first == offset
            && blocks.checked_mul(block_size.bytes().into()) == Some(pointer.len.get());
        let whole = fits && repair.digest(device)? == Some(header.digest);
        Ok(whole.then_some(repair))
    }

    /// The digest of the log; `None` at the first number that is not larger than the one before,
    /// or not on the device.
    fn digest(&self, device: &dyn BlockDevice) -> Result<Option<[u8; 32]>> {
        let device_blocks = device.len() >> self.block_size.log2();
        let mut digest = Sha256::new();
        for run in self.places.runs() {
            digest.update(run.bytes());
        }
        let mut block = vec![0; self.block_size.len()];
        let mut least = 0;
        let mut left = self.blocks;
        let mut at = 1;
        while left > 0 {
            self.read_block(device, at, &mut block)?;
            let here = left.min(numbers_of(self.block_size));
            let numbers: Vec<u64> = numbers_in(&block, here).collect();
            for &number in &numbers {
                if number < least || number >= device_blocks {
                    return Ok(None);
                }
                digest.update(number.to_le_bytes());
                least = number + 1;
            }
            // Finishing must not overwrite what it reads.
            if self.places.contain_any(&numbers) {
                return Ok(None);
            }
            left -= here;
            at += 1;
        }
        for number in self.first_content()..self.places.blocks() {
            self.read_block(device, number, &mut block)?;
            digest.update(&block);
        }
        Ok(Some(digest.finalize().into()))
    }

    /// The number in the log of the first block of contents.
    fn first_content(&self) -> u64 {
        self.places.blocks().saturating_sub(self.blocks)
    }

    fn read_block(&self, device: &dyn BlockDevice, number: u64, block: &mut [u8]) -> Result<()> {
        let at = self.places.block(number).unwrap_or(0);
        Ok(device.read_at(at << self.block_size.log2(), block)?)
    }

    /// How many blocks it changes.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block size that the log counts in.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Calls `each` with every block that changes, in their order, and what it becomes.
    ///
    /// # Errors
    /// Of the device, and those of `each`.
    pub fn for_each<E: From<Error>>(
        &self,
        device: &dyn BlockDevice,
        mut each: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut content = vec![0; self.block_size.len()];
        self.for_each_place(device, |number, place| {
            device
                .read_at(place << self.block_size.log2(), &mut content)
                .map_err(Error::from)?;
            invert(&mut content);
            each(number, &mut content)
        })
    }

    /// Calls `each` with the number of every block that changes, ascending, and the block of the
    /// device that holds what it becomes, inverted.
    fn for_each_place<E: From<Error>>(
        &self,
        device: &dyn BlockDevice,
        mut each: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut block = vec![0; self.block_size.len()];
        let (mut at, mut nr) = (1, 0);
        while nr < self.blocks {
            self.read_block(device, at, &mut block)?;
            let here = (self.blocks - nr).min(numbers_of(self.block_size));
            for number in numbers_in(&block, here) {
                let place = self.places.block(self.first_content() + nr);
                each(number, place.unwrap_or(0))?;
                nr += 1;
            }
            at += 1;
        }
        Ok(())
    }

    /// The device as the finished repair leaves it; nothing is written.
    ///
    /// # Errors
    /// Of the device.
    pub fn redone(&self, device: Arc<dyn BlockDevice>) -> Result<RedoneDevice> {
        let mut blocks = Vec::new();
        self.for_each_place(&*device, |home, log| {
            blocks.push(Redone { home, log });
            Ok::<_, Error>(())
        })?;
        Ok(RedoneDevice::new(device, self.block_size, blocks))
    }

    /// Finishes the repair while multiple mount protection, where there is any, keeps other hosts
    /// away; `pause` waits for them.
    ///
    /// # Errors
    /// [`Error::InUse`] if another host has the file system: nothing was written then. Of the
    /// device: the log stays, so that this can be done again.
    pub fn finish_claimed(&self, device: &dyn BlockDevice, pause: &Pause<'_>) -> Result<()> {
        let claim = MmpClaim::begin(device, device, pause)?;
        self.finish(device)?;
        claim.map_or(Ok(()), |claim| claim.release(device))
    }

    /// Writes what the interrupted repair did not, from step 3 on.
    ///
    /// # Errors
    /// Of the device. The log stays, so that this can be done again.
    pub fn finish(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut superblock = None;
        self.for_each(device, |number, content| {
            if number == primary::block(self.block_size).0
                && let Some(bytes) = primary::of_block(content)
            {
                let mut planned = [0; primary::LEN];
                planned.copy_from_slice(bytes);
                superblock = Some(planned);
                // The log is needed until all blocks are durable.
                primary::change(bytes, |bytes| self.pointer.store(bytes));
            }
            Ok::<_, Error>(device.write_at(number << self.block_size.log2(), content)?)
        })?;
        device.flush()?;
        // Every log of ours holds the superblock. One that does not must lose its pointer too.
        let planned = match superblock {
            Some(planned) => Some(planned),
            None => primary::read(device)?.map(|mut bytes| {
                primary::change(&mut bytes, RepairPointer::clear);
                bytes
            }),
        };
        match planned {
            Some(planned) => primary::write_second_sector(device, &planned),
            None => Ok(()),
        }
    }
}

/// The first numbers of blocks in one block of the log, at most so many.
fn numbers_in(block: &[u8], most: u64) -> impl Iterator<Item = u64> + '_ {
    let words = block.chunks_exact(8);
    let words = words.take(usize::try_from(most).unwrap_or(usize::MAX));
    words.map(|word| word.try_into().map_or(0, u64::from_le_bytes))
}

fn is_inside(device: &dyn BlockDevice, offset: u64, len: usize) -> bool {
    let end = offset.checked_add(uext4_ondisk::num::len64(len));
    end.is_some_and(|end| end <= device.len())
}
