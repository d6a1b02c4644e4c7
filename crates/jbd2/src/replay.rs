//! The blocks a replay would write, and where their content lies.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

use uext4_blockdev::{BlockDevice, Error, WriteRequest};
use uext4_ondisk::journal::unescape;
use uext4_ondisk::{BlockSize, Pblk};

/// Most bytes checkpointed in one batch.
const BATCH_BYTES: usize = 4 << 20;

const _: () = assert!(BATCH_BYTES >= BlockSize::MAX.len());

/// Where a block begins, in bytes; past the end of any device if that is more than 64 bits.
pub(crate) fn offset(size: BlockSize, block: Pblk) -> u64 {
    size.byte_offset(block).unwrap_or(u64::MAX)
}

/// A block whose valid content lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedBlock {
    /// Where it belongs.
    pub home: Pblk,
    /// Where its content lies on the device.
    pub log: Pblk,
    /// Its first four bytes are the journal's magic, which stands as zeroes in the log.
    pub escaped: bool,
}

/// What a replay would write: each home location once, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    blocks: Vec<ReplayedBlock>,
}

impl Replay {
    /// From blocks in any order; no home location twice.
    pub(crate) fn new(mut blocks: Vec<ReplayedBlock>) -> Self {
        blocks.sort_unstable_by_key(|block| block.home);
        Self { blocks }
    }

    /// How many blocks it would write.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there is nothing to replay.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Where the content of `home` lies, if in the log. O(log n).
    pub fn get(&self, home: Pblk) -> Option<&ReplayedBlock> {
        self.from(home).first().filter(|block| block.home == home)
    }

    /// All blocks, sorted by home location.
    pub fn blocks(&self) -> &[ReplayedBlock] {
        &self.blocks
    }

    /// Copies every block from the log to its home location, not durable before a flush. May be
    /// done again.
    pub(crate) fn write_home(
        &self,
        device: &dyn BlockDevice,
        size: BlockSize,
    ) -> Result<(), Error> {
        let (len, log2) = (size.len(), size.log2());
        let offset = |block| offset(size, block);
        let mut bytes = Vec::new();
        for blocks in self.blocks.chunks(BATCH_BYTES >> log2) {
            bytes.resize(blocks.len() << log2, 0);
            for (block, to) in blocks.iter().zip(bytes.chunks_exact_mut(len)) {
                device.read_at(offset(block.log), to)?;
                if block.escaped {
                    unescape(to, 0);
                }
            }
            let requests: Vec<WriteRequest<'_>> = blocks
                .iter()
                .zip(bytes.chunks_exact(len))
                .map(|(block, buf)| WriteRequest {
                    offset: offset(block.home),
                    buf,
                })
                .collect();
            device.write_many(&requests)?;
        }
        Ok(())
    }

    /// The blocks whose home location is `home` or lies behind it. O(log n).
    pub(crate) fn from(&self, home: Pblk) -> &[ReplayedBlock] {
        let at = self.blocks.partition_point(|block| block.home < home);
        self.blocks.get(at..).unwrap_or_default()
    }
}
