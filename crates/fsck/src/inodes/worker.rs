//! A thread of the pass: reads inode tables, and keeps what it found to itself until the end.

use std::sync::atomic::{AtomicU64, Ordering};

use uext4_ondisk::inode::RawInode;
use uext4_ondisk::{GroupNr, Ino};

use super::{Common, Repack};
use crate::directory_list::{DirectoryList, Run};
use crate::error::Result;
use crate::mapping::Buffers;
use crate::memory::READ_MAX;
use crate::report::{Pass, Progress};
use crate::state::State;
use crate::usage::Usage;

/// Most bytes of an inode table that are read at a time.
const PIECE_MAX: u64 = READ_MAX as u64;
/// How often progress is shown.
const SHOWN: u64 = 256;

/// What threads count together.
#[derive(Debug, Default)]
pub struct Counters {
    /// Groups done.
    groups: AtomicU64,
}

/// What a thread found.
#[derive(Debug, Default)]
pub struct Found {
    pub repacks: Vec<Repack>,
    /// Inodes that were cleared after they had claimed blocks, as they were.
    pub released: Vec<(Ino, RawInode)>,
    pub directories: DirectoryList,
    pub usage: Usage,
}

/// A thread, with buffers that it uses again for each inode.
pub struct Worker<'w, 's> {
    pub state: &'w State<'s>,
    pub common: &'w Common,
    pub found: Found,
    pub buffers: Buffers,
    /// The blocks of the directory under examination.
    pub runs: Vec<Run>,
    table: Vec<u8>,
}

impl<'w, 's> Worker<'w, 's> {
    pub fn new(state: &'w State<'s>, common: &'w Common) -> Self {
        Self {
            state,
            common,
            found: Found::default(),
            buffers: Buffers::default(),
            runs: Vec::new(),
            table: Vec::new(),
        }
    }

    pub fn into_found(self) -> Found {
        self.found
    }

    /// Examines the inodes of a group.
    pub fn group(&mut self, group: GroupNr) -> Result<()> {
        let geometry = self.state.geometry();
        let size = u64::from(geometry.inode_size);
        let per_group = geometry.inodes_per_group.get();
        let desc = self.state.volume.group(group);
        let inodes = self.state.volume.inodes_ever_used(group);
        let blocks = geometry.itable_blocks().into();
        let start = desc.inode_table;
        let is_there = start.0 != 0 && geometry.contains(start, blocks);
        let bytes = if is_there {
            u64::from(inodes) * size
        } else {
            0
        };
        let offset = start.0 << geometry.block_size.log2();
        // The group and its inodes exist: their numbers have 32 bits.
        let mut ino = group.0.saturating_mul(per_group).saturating_add(1);
        let mut at = 0;
        while at < bytes {
            let piece = (bytes - at).min(PIECE_MAX);
            let mut table = std::mem::take(&mut self.table);
            table.resize(usize::try_from(piece).unwrap_or(0), 0);
            let read = self.state.volume.overlay().read_at(offset + at, &mut table);
            read?;
            for inode in table.chunks_exact(usize::from(geometry.inode_size)) {
                self.inode(Ino(ino), inode)?;
                ino = ino.saturating_add(1);
            }
            self.table = table;
            at += piece;
        }
        self.progress()
    }

    fn progress(&self) -> Result<()> {
        let total = u64::from(self.state.geometry().groups_count.get());
        let done = self.common.counters.groups.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(total.div_ceil(SHOWN)) {
            // Tables that find no room in the temporary file take memory that was not allowed.
            self.state.used.check()?;
            self.state.findings.progress(Progress {
                pass: Pass::Inodes,
                done,
                total,
            })?;
        }
        Ok(())
    }
}
