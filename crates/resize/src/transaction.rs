//! Writes changes through the file system's own journal.

use std::collections::BTreeMap;
use std::error;
use std::sync::Arc;

use uext4::device::write_blocks;
use uext4_blockdev::{BlockDevice, Clock};
use uext4_buffer_cache::{BufferCache, ChecksumRule, Options, VerifyTag};
use uext4_jbd2::{CommitCallbacks, Journal, LogRun, PreCommit, Tid};
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::journal::JournalIncompat;
use uext4_ondisk::superblock::{
    FIRST_INO_UNTIL_REPLAY, STATE_VALID, SUPERBLOCK_OFFSET, SuperBlock,
};
use uext4_ondisk::{BlockSize, Pblk};
use zerocopy::IntoBytes;

use crate::state::State;
use crate::{Error, Result};

/// Every block has its checksum already, and nothing is counted.
struct AsTheyAre;

impl CommitCallbacks for AsTheyAre {
    fn before_commit(&self, _: &PreCommit<'_>) -> std::result::Result<(), Box<dyn error::Error>> {
        Ok(())
    }

    fn rule(&self, _: ChecksumRule, _: Pblk, _: &mut [u8]) {}

    fn after_commit(&self, _: Tid) {}
}

/// Blocks of a copy.
const COPY_BLOCKS: u64 = 256;

/// Blocks that were copied.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// Where they were.
    pub from: Pblk,
    /// Where they are as well.
    pub to: Pblk,
    /// How many.
    pub blocks: u64,
}

impl Copied {
    /// Copies them, again if they have changed.
    ///
    /// # Errors
    /// Those of the device.
    pub fn copy(self, device: &dyn BlockDevice, size: BlockSize) -> Result<()> {
        let bits = size.log2();
        let mut bytes = vec![0; (self.blocks.min(COPY_BLOCKS) << bits) as usize];
        let mut done = 0;
        while done < self.blocks {
            let len = (self.blocks - done).min(COPY_BLOCKS);
            let part = &mut bytes[..(len << bits) as usize];
            device.read_at((self.from.0 + done) << bits, part)?;
            device.write_at((self.to.0 + done) << bits, part)?;
            done += len;
        }
        Ok(())
    }
}

/// Blocks that one transaction is to have at most: what the log takes, and what memory should.
///
/// # Errors
/// Those of reading the journal.
pub fn capacity(state: &State, clock: &Arc<dyn Clock>) -> Result<usize> {
    const MOST: usize = 8192;
    let Some(runs) = state.log()? else {
        return Ok(MOST);
    };
    let most = log_of(state, clock, &runs)?.blocks_max();
    Ok(most.map_or(MOST, |most| MOST.min(most as usize)))
}

/// Which recovery can be trusted with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Any.
    ByAnybody,
    /// Not the kernel's: it reads how many groups there are, and the journal's inode, before it
    /// replays the log, and goes on with that: it would use groups that have gone, and refuse to
    /// use blocks that the journal has given up. It must not mount until e2fsck or a mount of ours
    /// has replayed it.
    NotByKernel,
}

/// Changes `blocks`, all of them or none if there is a journal, and the superblock last. Flushes
/// what was written before, and what is written here. `superblock` is the one that the file system
/// is left with; while it changes, it says that it is in use.
pub fn commit(
    state: &State,
    clock: &Arc<dyn Clock>,
    blocks: &BTreeMap<Pblk, Vec<u8>>,
    superblock: &SuperBlock,
    recovery: Recovery,
) -> Result<()> {
    let device = &**state.device();
    let size = state.geometry.block_size;
    let log = state.log()?;
    let needed = needed_of(blocks, recovery);
    let journal = log
        .map(|runs| log_for(state, clock, &runs, needed))
        .transpose()?;
    // From here on the log counts. The commit makes this durable, and what was written before,
    // before the log has a beginning: e2fsck takes a log that has one, in a file system that is not
    // in use, for damage.
    device.write_at(SUPERBLOCK_OFFSET, in_use(&state.superblock).as_bytes())?;
    if journal.is_none() {
        device.flush()?;
    }
    if let Some(journal) = &journal
        && recovery == Recovery::NotByKernel
    {
        keep_kernel_out(state, journal)?;
    }
    if let Some(journal) = &journal {
        let (at, whole) = superblock_block(state, &in_use(superblock))?;
        let all = blocks.iter().map(|(&block, bytes)| (block, bytes));
        log_blocks(journal, all.chain([(at, &whole)]))?;
    }
    // Before it replays a log, the kernel looks at the descriptors of all groups that the
    // superblock says there are: they are home before it is.
    if let Some(journal) = &journal {
        journal.checkpoint_but(state.geometry.superblock_block())?;
        // Before the superblock says "clean" the log is durably empty.
        journal.flush(&AsTheyAre)?;
    } else {
        write_blocks(device, size, blocks)?;
        device.flush()?;
    }
    put_superblock(device, superblock)
}

/// Blocks of the log that a transaction needs.
fn needed_of(blocks: &BTreeMap<Pblk, Vec<u8>>, recovery: Recovery) -> usize {
    // The transaction before must not be written home to make room: see keep_kernel_out.
    let before = match recovery {
        Recovery::ByAnybody => 0,
        Recovery::NotByKernel => 4,
    };
    blocks.len() + 1 + before
}

/// The journal, if its log takes so many blocks.
fn log_for(
    state: &State,
    clock: &Arc<dyn Clock>,
    runs: &[LogRun],
    needed: usize,
) -> Result<Journal> {
    let journal = log_of(state, clock, runs)?;
    match journal.blocks_max() {
        Some(most) if needed > most as usize => Err(Error::JournalTooSmall { needed, most }),
        _ => Ok(journal),
    }
}

/// Makes the kernel refuse the file system until its log, which has the right superblock already,
/// is replayed. Writing that superblock home would undo it.
fn keep_kernel_out(state: &State, journal: &Journal) -> Result<()> {
    let mut superblock = in_use(&state.superblock);
    let (at, whole) = superblock_block(state, &superblock)?;
    log_blocks(journal, [(at, &whole)].into_iter())?;
    superblock.s_first_ino = FIRST_INO_UNTIL_REPLAY.into();
    superblock.update_checksum();
    put_superblock(&**state.device(), &superblock)
}

/// The journal of a file system that was left clean: its log is empty.
fn log_of(state: &State, clock: &Arc<dyn Clock>, runs: &[LogRun]) -> Result<Journal> {
    let geometry = &state.geometry;
    let device = Arc::clone(state.device());
    let cache = BufferCache::new(device, geometry.block_size, Options::default());
    let (clock, blocks) = (Arc::clone(clock), geometry.blocks_count);
    let (journal, found) = Journal::open(Arc::new(cache), clock, blocks, runs)?;
    if state.is_flushed && found.superblock.s_start.get() == 0 {
        journal.barrier().note_flush();
    }
    journal.set_features(JournalIncompat::wanted(geometry.features))?;
    Ok(journal)
}

/// Commits whole blocks as one transaction.
fn log_blocks<'a>(
    journal: &Journal,
    blocks: impl Iterator<Item = (Pblk, &'a Vec<u8>)>,
) -> Result<()> {
    // No other thread has a handle, so that more than these may change: up to the whole log.
    let handle = journal.start(journal.credits_max(), &AsTheyAre)?;
    let rule = ChecksumRule {
        kind: 0,
        owner: 0,
        generation: 0,
    };
    for (block, bytes) in blocks {
        let buffer = journal.cache().getblk_new(block);
        handle.modify(&buffer, VerifyTag(0), rule, |old| {
            old.copy_from_slice(bytes)
        });
    }
    drop(handle);
    Ok(journal.commit_now(&AsTheyAre)?)
}

/// The block of the primary superblock with `superblock` in it.
fn superblock_block(state: &State, superblock: &SuperBlock) -> Result<(Pblk, Vec<u8>)> {
    let geometry = &state.geometry;
    let block = geometry.superblock_block();
    let mut bytes = state.block(block)?;
    let at = (SUPERBLOCK_OFFSET - (block.0 << geometry.block_size.log2())) as usize;
    bytes[at..at + size_of::<SuperBlock>()].copy_from_slice(superblock.as_bytes());
    Ok((block, bytes))
}

/// A superblock as it is while the file system is in use.
fn in_use(superblock: &SuperBlock) -> SuperBlock {
    let mut superblock = *superblock;
    let mut features = superblock.features();
    match features.compat.contains(Compat::HAS_JOURNAL) {
        true => features.incompat.insert(Incompat::RECOVER),
        false => superblock.s_state = (superblock.s_state.get() & !STATE_VALID).into(),
    }
    superblock.set_features(features);
    superblock.update_checksum();
    superblock
}

fn put_superblock(device: &dyn BlockDevice, superblock: &SuperBlock) -> Result<()> {
    device.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
    Ok(device.flush()?)
}
