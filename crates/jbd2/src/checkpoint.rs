//! What is committed in the log but not yet at its home location.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use uext4_blockdev::{BlockDevice, WriteRequest};
use uext4_buffer_cache::Buffer;
use uext4_ondisk::{BlockSize, Pblk};

use crate::{Error, Tid};

/// Most bytes checkpointed in one batch.
const BATCH_BYTES: usize = 8 << 20;

/// A committed block: the pin keeps it in the cache until it is checkpointed.
#[derive(Debug)]
struct Waiting {
    _pin: Buffer,
    data: Arc<[u8]>,
    tid: Tid,
}

/// The newest committed content of every block that is not yet checkpointed.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    waiting: Mutex<FxHashMap<Pblk, Waiting>>,
    /// Held while blocks are checkpointed: one at a time, and no thread reuses a block meanwhile.
    writing: Mutex<()>,
}

impl Checkpoint {
    /// Blocks that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Takes in what transaction `tid` committed.
    pub(crate) fn add(&self, tid: Tid, blocks: Vec<(Buffer, Arc<[u8]>)>) {
        let mut waiting = self.waiting.lock();
        for (buffer, data) in blocks {
            let block = buffer.block();
            let _pin = buffer;
            waiting.insert(block, Waiting { _pin, data, tid });
        }
    }

    /// Forgets blocks that a committed transaction has freed, after any write of them under way.
    pub(crate) fn forget(&self, revoked: &FxHashSet<Pblk>) {
        if revoked.is_empty() {
            return;
        }
        // A batch on its way to the device may hold such a block: it must have arrived before
        // the block is given to another file, or it would overwrite that file's data.
        let _writing = self.writing.lock();
        let mut waiting = self.waiting.lock();
        for block in revoked {
            waiting.remove(block);
        }
    }

    /// Checkpoints everything that waits and is wanted, not durable before a flush; then calls
    /// `written` with the number of blocks, and lets go of them if it agrees.
    pub(crate) fn write_home(
        &self,
        device: &dyn BlockDevice,
        block_size: BlockSize,
        is_wanted: impl Fn(Pblk) -> bool,
        written: impl FnOnce(usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _writing = self.writing.lock();
        let mut blocks: Vec<(Pblk, Arc<[u8]>, Tid)> = self
            .waiting
            .lock()
            .iter()
            .filter(|(block, _)| is_wanted(**block))
            .map(|(block, waiting)| (*block, Arc::clone(&waiting.data), waiting.tid))
            .collect();
        blocks.sort_unstable_by_key(|(block, ..)| *block);
        let batch = (BATCH_BYTES / block_size.len()).max(1);
        for blocks in blocks.chunks(batch) {
            let requests: Vec<WriteRequest<'_>> = blocks
                .iter()
                .map(|(block, data, _)| WriteRequest {
                    offset: block.0 << block_size.log2(),
                    buf: data,
                })
                .collect();
            device.write_many(&requests)?;
        }
        written(blocks.len())?;
        let mut waiting = self.waiting.lock();
        for (block, _, tid) in &blocks {
            // A later transaction may have committed the block meanwhile: its contents are not at
            // its home location yet.
            if waiting.get(block).is_some_and(|now| now.tid == *tid) {
                waiting.remove(block);
            }
        }
        Ok(())
    }
}
