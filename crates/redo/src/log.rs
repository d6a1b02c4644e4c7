//! The blocks of a log that is to be written.

use sha2::{Digest, Sha256};
use uext4_blockdev::BlockDevice;
use uext4_ondisk::BlockSize;
use uext4_ondisk::num::{index, len64};
use uext4_ondisk::repair_log::{RepairLogHeader, RepairPointer, SuperblockSums, log_blocks};
use uext4_ondisk::superblock::SUPERBLOCK_OFFSET;

use crate::error::Result;
use crate::places::Places;
use crate::primary;

/// A log: what is in each of its blocks, and where they lie.
#[derive(Debug)]
pub struct Log<'a> {
    /// The device as the plan makes it.
    plan: &'a dyn BlockDevice,
    block_size: BlockSize,
    /// The blocks that change, ascending.
    numbers: &'a [u64],
    places: &'a Places,
    /// Header and runs.
    head: Vec<u8>,
    digest: [u8; 32],
}

impl<'a> Log<'a> {
    /// The log of the changes that `plan`, the device as it is to be, makes in the blocks
    /// `numbers`. Reads them all, for their digest.
    ///
    /// # Errors
    /// Of the device and of the plan.
    pub fn new(
        plan: &'a dyn BlockDevice,
        block_size: BlockSize,
        numbers: &'a [u64],
        places: &'a Places,
    ) -> Result<Self> {
        let mut digest = Sha256::new();
        for run in places.runs() {
            digest.update(run.bytes());
        }
        for number in numbers {
            digest.update(number.to_le_bytes());
        }
        let mut content = vec![0; block_size.len()];
        for &number in numbers {
            plan.read_at(number << block_size.log2(), &mut content)?;
            invert(&mut content);
            digest.update(&content);
        }
        let digest = digest.finalize().into();
        let block_len = block_size.bytes();
        let runs = u32::try_from(places.runs().len()).unwrap_or(u32::MAX);
        let header = RepairLogHeader::new(block_len, len64(numbers.len()), runs, digest);
        let mut head = header.bytes().to_vec();
        for run in places.runs() {
            head.extend_from_slice(&run.bytes());
        }
        Ok(Self {
            plan,
            block_size,
            numbers,
            places,
            head,
            digest,
        })
    }

    /// Its blocks on the device, in their order in the log.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.places.blocks()).map_while(|number| self.places.block(number))
    }

    /// The number in the log of a block of the device, if it is one of its blocks.
    pub fn number(&self, block: u64) -> Option<u64> {
        self.places.number(block)
    }

    /// What is in the block with this number in the log.
    ///
    /// # Errors
    /// Of the device and of the plan.
    pub fn content(&self, number: u64, content: &mut [u8]) -> Result<()> {
        let numbers = len64(self.numbers.len());
        let first = log_blocks(self.block_size.bytes(), numbers) - numbers;
        content.fill(0);
        match number.checked_sub(1) {
            None => content[..self.head.len()].copy_from_slice(&self.head),
            Some(nr) if number < first => {
                let from = nr * (len64(content.len()) / 8);
                let numbers = self.numbers.iter().skip(index_of(from));
                for (place, number) in content.chunks_exact_mut(8).zip(numbers) {
                    place.copy_from_slice(&number.to_le_bytes());
                }
            }
            Some(_) => {
                if let Some(&block) = self.numbers.get(index_of(number - first)) {
                    self.plan
                        .read_at(block << self.block_size.log2(), content)?;
                    invert(content);
                }
            }
        }
        Ok(())
    }

    /// The pointer to it, for a device with this superblock.
    ///
    /// # Errors
    /// Of the device and of the plan.
    pub fn pointer(&self, superblock: &[u8; primary::LEN]) -> Result<RepairPointer> {
        let block_size = self.block_size;
        let mut after = [0; primary::LEN];
        self.plan.read_at(SUPERBLOCK_OFFSET, &mut after)?;
        let start = self.places.block(0).unwrap_or(0);
        let offset = start << block_size.log2();
        let len = self.places.blocks() << block_size.log2();
        let mut short = [0; 8];
        short.copy_from_slice(&self.digest[..8]);
        let before = SuperblockSums::of(superblock);
        let after = SuperblockSums::of(&after);
        Ok(RepairPointer::new(offset, len, short).between(before, after))
    }
}

/// Inverts a block for the log, and back: so that a search for lost metadata does not take the
/// log of a repair that was cut off for it.
pub fn invert(content: &mut [u8]) {
    for byte in content {
        *byte = !*byte;
    }
}

/// How many numbers of blocks a block holds.
pub fn numbers_of(block_size: BlockSize) -> u64 {
    u64::from(block_size.bytes()) / 8
}

fn index_of(number: u64) -> usize {
    index(u32::try_from(number).unwrap_or(u32::MAX))
}
