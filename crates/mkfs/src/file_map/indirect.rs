//! Direct and indirect blocks over blocks taken in order.

use uext4_ondisk::inode::{I_BLOCK_LEN, NDIR_BLOCKS};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::FileMap;
use crate::Error;
use crate::plan::Plan;
use crate::space::Run;

/// Maps at most twelve blocks, given in logical order, without indirect blocks.
pub(crate) fn direct_map(blocks: &[u64]) -> FileMap {
    let mut i_block = [0; I_BLOCK_LEN];
    for (word, &block) in i_block.chunks_exact_mut(4).zip(blocks) {
        word.copy_from_slice(U32::new(block as u32).as_bytes());
    }
    FileMap {
        i_block,
        runs: blocks.iter().map(|&start| Run { start, len: 1 }).collect(),
        meta_blocks: 0,
    }
}

/// Takes `count` blocks one after the other from `goal` and maps them, each indirect block lying
/// before the first block it names, as a writer that allocates block by block leaves them.
pub(crate) fn indirect_file(
    plan: &mut Plan,
    count: u64,
    goal: u64,
    what: &'static str,
) -> Result<FileMap, Error> {
    let mut builder = IndirectBuilder {
        next: goal,
        what,
        runs: Vec::new(),
        meta: 0,
    };
    let per_block = plan.block_len() as u64 / 4;
    let mut words = [U32::ZERO; I_BLOCK_LEN / 4];
    let mut left = count;
    for word in words.iter_mut().take(NDIR_BLOCKS) {
        if left == 0 {
            break;
        }
        *word = (builder.take_run(plan, 1)?.start as u32).into();
        left -= 1;
    }
    let mut room = 1;
    for (word, depth) in words[NDIR_BLOCKS..].iter_mut().zip(1..) {
        room *= per_block;
        let here = left.min(room);
        if here > 0 {
            *word = (builder.subtree(plan, depth, here, per_block)? as u32).into();
            left -= here;
        }
    }
    if left > 0 {
        return Err(Error::NoSpace { what, len: count });
    }
    let mut i_block = [0; I_BLOCK_LEN];
    i_block.copy_from_slice(words.as_bytes());
    Ok(FileMap {
        i_block,
        runs: builder.runs,
        meta_blocks: builder.meta,
    })
}

struct IndirectBuilder {
    next: u64,
    what: &'static str,
    runs: Vec<Run>,
    meta: u64,
}

impl IndirectBuilder {
    /// Takes free blocks in a row, at most `most`.
    fn take_run(&mut self, plan: &mut Plan, most: u64) -> Result<Run, Error> {
        let run = plan.take_run(self.next, most, self.what)?;
        self.next = run.end();
        match self.runs.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => self.runs.push(run),
        }
        Ok(run)
    }

    /// An indirect block of `depth` 1 to 3 that maps the next `count` blocks.
    fn subtree(
        &mut self,
        plan: &mut Plan,
        depth: u32,
        count: u64,
        per_block: u64,
    ) -> Result<u64, Error> {
        let block = plan.take_block(self.next, self.what)?;
        self.next = block + 1;
        self.meta += 1;
        let mut bytes = vec![0; plan.block_len()];
        let mut slots = bytes.chunks_exact_mut(4);
        let mut left = count;
        while left > 0 {
            let children = if depth == 1 {
                let run = self.take_run(plan, left)?;
                left -= run.len;
                run
            } else {
                let here = left.min(per_block.pow(depth - 1));
                left -= here;
                let start = self.subtree(plan, depth - 1, here, per_block)?;
                Run { start, len: 1 }
            };
            for (number, slot) in (children.start..children.end()).zip(&mut slots) {
                slot.copy_from_slice(U32::new(number as u32).as_bytes());
            }
        }
        plan.put(block, bytes);
        Ok(block)
    }
}
