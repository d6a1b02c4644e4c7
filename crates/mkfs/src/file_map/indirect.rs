//! Direct and indirect blocks over blocks taken in order.

use uext4_ondisk::Pblk;
use uext4_ondisk::pack::block_map::{BlockMap, Tables};

use super::FileMap;
use crate::Error;
use crate::plan::Plan;
use crate::space::Run;

/// Maps blocks taken already, given in logical order; tables are taken behind the last of them.
pub(crate) fn blocks_of(plan: &mut Plan, blocks: &[u64]) -> Result<FileMap, Error> {
    let mut map = BlockMap::new(plan.geometry.block_size);
    let mut taking = Taking {
        next: blocks.last().map_or(0, |last| last + 1),
        what: "indirect block",
        plan,
    };
    for (lblk, &block) in (0..).zip(blocks) {
        map.put(lblk, Pblk(block), 1, &mut taking)?;
    }
    Ok(FileMap {
        meta_blocks: map.tables(),
        i_block: map.finish(&mut taking),
        runs: blocks.iter().map(|&start| Run { start, len: 1 }).collect(),
    })
}

/// Takes `count` blocks one after the other from `goal` and maps them, each indirect block lying
/// before the first block it names, as a writer that allocates block by block leaves them.
pub(crate) fn indirect_file(
    plan: &mut Plan,
    count: u64,
    goal: u64,
    what: &'static str,
) -> Result<FileMap, Error> {
    let mut map = BlockMap::new(plan.geometry.block_size);
    let mut taking = Taking {
        next: goal,
        what,
        plan,
    };
    let mut runs: Vec<Run> = Vec::new();
    let mut done = 0;
    while done < count {
        let most = map.open(done, count - done, &mut taking)?.len;
        let run = taking.run(most)?;
        map.put(done, Pblk(run.start), run.len, &mut taking)?;
        done += run.len;
        match runs.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => runs.push(run),
        }
    }
    Ok(FileMap {
        meta_blocks: map.tables(),
        i_block: map.finish(&mut taking),
        runs,
    })
}

/// Takes blocks in ascending order.
struct Taking<'a> {
    plan: &'a mut Plan,
    /// Where the next one is looked for.
    next: u64,
    what: &'static str,
}

impl Taking<'_> {
    /// Takes free blocks in a row, at most `most`.
    fn run(&mut self, most: u64) -> Result<Run, Error> {
        let run = self.plan.take_run(self.next, most, self.what)?;
        self.next = run.end();
        Ok(run)
    }
}

impl Tables for Taking<'_> {
    type Error = Error;

    fn take(&mut self) -> Result<Pblk, Error> {
        Ok(Pblk(self.run(1)?.start))
    }

    fn put(&mut self, at: Pblk, table: &[u8]) {
        self.plan.put(at.0, table.to_vec());
    }
}
