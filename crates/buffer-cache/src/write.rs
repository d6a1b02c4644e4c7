//! Writing dirty blocks back.

use std::sync::Arc;

use uext4_blockdev::WriteRequest;
use uext4_ondisk::Pblk;

use crate::Error;
use crate::buffer::Inner;
use crate::cache::BufferCache;
use crate::stats::count;

/// Most bytes of one batch: bounds the copies that writers need meanwhile.
const BATCH_BYTES: usize = 4 << 20;

impl BufferCache {
    /// Writes every block that is dirty now, sorted by number, in batches whose neighbours the
    /// device may join into one transfer. Not durable before a flush of the device.
    ///
    /// Blocks may be changed while this runs; such a change may or may not be in what is written,
    /// and its block stays dirty. Blocks are written without any order between batches that
    /// recovery could rely on.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::BlockNumber`]: the failed batch and all after it stay dirty.
    pub fn write_dirty(&self) -> Result<(), Error> {
        let _one_at_a_time = self.write_lock.lock();
        let mut blocks = Vec::new();
        for shard in &self.shards {
            shard.dirty.collect(&mut blocks);
        }
        blocks.sort_unstable();
        let batch = (BATCH_BYTES / self.block_size.len()).max(1);
        for blocks in blocks.chunks(batch) {
            self.write_batch(blocks)?;
        }
        self.shrink_to_limit();
        Ok(())
    }

    fn write_batch(&self, blocks: &[u64]) -> Result<(), Error> {
        let mut batch: Vec<(Arc<Inner>, u64, Arc<[u8]>)> = Vec::with_capacity(blocks.len());
        for &block in blocks {
            let block = Pblk(block);
            let Some(inner) = self.shard(block).table.lock().get(block).map(Arc::clone) else {
                continue;
            };
            let state = inner.state.lock();
            let data = state.dirty.then(|| Arc::clone(&state.data));
            drop(state);
            if let Some(data) = data {
                batch.push((inner, self.byte_offset(block)?, data));
            }
        }
        let requests: Vec<WriteRequest<'_>> = batch
            .iter()
            .map(|(_, offset, data)| WriteRequest {
                offset: *offset,
                buf: data,
            })
            .collect();
        self.device.write_many(&requests)?;
        for (inner, _, data) in &batch {
            count(&self.shard(inner.block).counters.writes);
            let mut state = inner.state.lock();
            // A change since then copied the data, because the batch holds the old one.
            if Arc::ptr_eq(&state.data, data) {
                inner.clear_dirty(&mut state);
            }
        }
        Ok(())
    }
}
