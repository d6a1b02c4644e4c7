//! FITRIM: discards all unused blocks on the device.

use std::ops::Range;

use uext4_ondisk::Pblk;

use crate::base::edit::Direct;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::journal::sbi::Sbi;

/// Discards free runs of at least `min_len` bytes in `range`, in bytes. Blocks freed by a
/// transaction that is not durable yet are skipped, and so are blocks preallocated for files.
/// Returns the number of bytes discarded. A range that is shorter than a block is refused, as the
/// kernel does.
pub(crate) fn trim(sbi: &Sbi, range: Range<u64>, min_len: u64) -> Result<u64> {
    let rw = sbi.writable()?;
    let geometry = sbi.geometry();
    let (size, group) = (geometry.block_size, geometry.blocks_per_group.get());
    let first = Pblk(size.blocks_for(range.start));
    let end = Pblk(range.end.min(geometry.len_bytes()) >> size.log2());
    let min_len = u32::try_from(size.blocks_for(min_len)).unwrap_or(u32::MAX);
    if first.0 >= geometry.blocks_count {
        let (offset, end) = (range.start, geometry.len_bytes());
        let len = range.end.saturating_sub(offset);
        return Err(Invalid::PastEnd { offset, len, end }.into());
    }
    let len = range.end.saturating_sub(range.start);
    if len < u64::from(size.bytes()) {
        let block = size.bytes();
        return Err(Invalid::RangeLen { len, block }.into());
    }
    if min_len > group {
        let len = min_len;
        return Err(Invalid::RunLen { len, group }.into());
    }
    // Without a journal, the change that freed the blocks may not be on the medium yet. A flush
    // that fails here is still reported by the next sync.
    rw.journal.flush_device()?;
    let edit = Direct(sbi);
    let bitmaps = rw.groups.bitmaps(sbi, &edit);
    let log = size.log2();
    let trimmed = rw
        .allocator
        .trim(&bitmaps, first..end, min_len.max(1), |run| {
            let len = u64::from(run.len) << log;
            if sbi.device().trim(sbi.byte_offset(run.start), len)? {
                return Ok(());
            }
            Err(Error::Unsupported {
                what: "discarding free blocks on this device".to_owned(),
            })
        })?;
    Ok(trimmed << log)
}
