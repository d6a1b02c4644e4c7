//! The log as it is written: where the next transaction goes and where the oldest one begins.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

use std::collections::VecDeque;

use uext4_blockdev::{BlockDevice, WriteRequest};
use uext4_ondisk::journal::{Descriptor, revoke_block, revoke_capacity};
use uext4_ondisk::journal::{JournalSuperblock, TagFlags, needs_escape};
use uext4_ondisk::{BlockSize, Pblk};
use zerocopy::IntoBytes;

use crate::barrier::FlushSeq;
use crate::log::{Log, advance, block_of};
use crate::{Error, LogRun, Recovery, Tid};

/// A transaction that may have to be replayed.
#[derive(Clone, Copy, Debug)]
struct Live {
    tid: Tid,
    start: u32,
    sequence: u32,
}

/// The log's write side. One commit at a time owns it.
#[derive(Debug)]
pub(crate) struct Ring {
    block_size: BlockSize,
    runs: Vec<(u32, LogRun)>,
    pub(crate) sb: JournalSuperblock,
    first: u32,
    end: u32,
    /// Where the next transaction begins.
    head: u32,
    /// Where the log on the device begins.
    tail: u32,
    /// When that was written, or an earlier moment than that: a flush that began since has made it
    /// durable.
    tail_written: FlushSeq,
    used: u32,
    /// Sequence of the next transaction. Empty ones take none.
    sequence: u32,
    live: VecDeque<Live>,
}

/// One transaction as it will lie in the log, without its commit block.
pub(crate) struct LogImage<'a> {
    /// In log order: blocks made for the log, and blocks of the file system as they are.
    pub(crate) blocks: Vec<LogBlock<'a>>,
    /// How many of them a v1 checksum covers: all before the revokes.
    pub(crate) summed: usize,
}

/// A block of a [`LogImage`].
pub(crate) enum LogBlock<'a> {
    Made(Vec<u8>),
    Plain(&'a [u8]),
}

impl LogBlock<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Made(bytes) => bytes,
            Self::Plain(bytes) => bytes,
        }
    }
}

impl<'a> LogImage<'a> {
    /// Descriptors with the blocks behind each, then the revokes.
    pub(crate) fn new(
        sb: &JournalSuperblock,
        sequence: u32,
        block_len: usize,
        data: impl Iterator<Item = (Pblk, &'a [u8])>,
        revoked: &[Pblk],
    ) -> Self {
        let mut data = data.peekable();
        let mut blocks = Vec::new();
        while data.peek().is_some() {
            let place = blocks.len();
            blocks.push(LogBlock::Made(Vec::new()));
            let mut descriptor = Descriptor::new(sb, sequence, block_len);
            while descriptor.has_room()
                && let Some((home, bytes)) = data.next()
            {
                let (block, flags) = if needs_escape(bytes) {
                    let mut copy = bytes.to_vec();
                    copy[..4].fill(0);
                    (LogBlock::Made(copy), TagFlags::ESCAPE)
                } else {
                    (LogBlock::Plain(bytes), TagFlags::empty())
                };
                descriptor.push(home, block.bytes(), flags);
                blocks.push(block);
            }
            blocks[place] = LogBlock::Made(descriptor.finish());
        }
        let summed = blocks.len();
        for chunk in revoked.chunks(revoke_capacity(sb, block_len).max(1)) {
            blocks.push(LogBlock::Made(revoke_block(sb, sequence, block_len, chunk)));
        }
        Self { blocks, summed }
    }
}

impl Ring {
    /// The write side of an opened log that holds nothing to be replayed; the next transaction
    /// carries `sequence`. What the superblock says was written at `opened` or before.
    fn new(log: &Log<'_>, sequence: u32, opened: FlushSeq) -> Self {
        let (first, end) = log.bounds();
        Self {
            block_size: log.block_size,
            runs: log.runs().to_vec(),
            sb: log.sb,
            first,
            end,
            head: first,
            tail: 0,
            tail_written: opened,
            used: 0,
            sequence,
            live: VecDeque::new(),
        }
    }

    /// The write side of a log that is left as it is, to be gone on with behind what it holds.
    /// The transactions in it count as one with number 0, which is checkpointed already.
    pub(crate) fn behind(log: &Log<'_>, recovery: &Recovery, opened: FlushSeq) -> Self {
        let start = log.sb.s_start.get();
        let mut ring = Self::new(log, recovery.next_sequence, opened);
        if start == 0 {
            return ring;
        }
        ring.tail = start;
        ring.head = log.at(recovery.log_blocks);
        ring.used = recovery.log_blocks;
        if recovery.transactions > 0 {
            ring.live.push_back(Live {
                tid: 0,
                start,
                sequence: log.sb.s_sequence.get(),
            });
        }
        ring
    }

    /// Blocks of the ring.
    pub(crate) fn len(&self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// Blocks that may be written before anything is checkpointed.
    pub(crate) fn free(&self) -> u32 {
        // One stays free, so that a full ring is not taken for an empty one.
        self.len().saturating_sub(1).saturating_sub(self.used)
    }

    /// Sequence of the next transaction.
    pub(crate) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Whether the superblock on the device says that there is nothing to replay.
    pub(crate) fn is_idle(&self) -> bool {
        self.tail == 0
    }

    /// Whether it has anything up to and with `tid` that can be given back.
    pub(crate) fn holds(&self, tid: Tid) -> bool {
        self.live.front().is_some_and(|live| live.tid <= tid)
    }

    /// A moment: where the log begins is durable once a flush that began after it has succeeded.
    pub(crate) fn tail_written(&self) -> FlushSeq {
        self.tail_written
    }

    /// Notes that the log's new beginning had been written at this moment.
    pub(crate) fn note_tail(&mut self, written: FlushSeq) {
        self.tail_written = written;
    }

    fn advance(&self, at: u32, by: u32) -> u32 {
        advance(self.first..self.end, at, by)
    }

    /// Writes blocks from the ring's position `at` places behind the head.
    pub(crate) fn write(
        &self,
        device: &dyn BlockDevice,
        at: u32,
        blocks: &[&[u8]],
    ) -> Result<(), Error> {
        let mut requests = Vec::with_capacity(blocks.len());
        for (buf, place) in blocks.iter().zip(at..) {
            let block = block_of(&self.runs, self.advance(self.head, place))?;
            let offset = block.0 << self.block_size.log2();
            requests.push(WriteRequest { offset, buf });
        }
        Ok(device.write_many(&requests)?)
    }

    /// Notes that transaction `tid` took `blocks` blocks from the head.
    pub(crate) fn committed(&mut self, tid: Tid, blocks: u32) {
        let (start, sequence) = (self.head, self.sequence);
        self.live.push_back(Live {
            tid,
            start,
            sequence,
        });
        self.sequence = sequence.wrapping_add(1);
        self.head = self.advance(start, blocks);
        self.used = self.used.saturating_add(blocks);
    }

    /// Everything up to and with `tid` is checkpointed: the log begins behind it from now on.
    /// Written, not flushed; the space is free once it was, see [`Ring::reclaim`].
    pub(crate) fn write_tail(&mut self, device: &dyn BlockDevice, tid: Tid) -> Result<(), Error> {
        let next = self.live.iter().find(|live| live.tid > tid);
        let (start, sequence) = next.map_or((self.head, self.sequence), |live| {
            (live.start, live.sequence)
        });
        self.write_superblock(device, start, sequence)
    }

    /// Gives back the space up to and with `tid`.
    pub(crate) fn reclaim(&mut self, tid: Tid) {
        while self.live.front().is_some_and(|live| live.tid <= tid) {
            self.live.pop_front();
        }
        let start = self.live.front().map_or(self.head, |live| live.start);
        self.used = match self.head.checked_sub(start) {
            _ if self.live.is_empty() => 0,
            Some(0) => self.len(),
            Some(used) => used,
            None => self.len().saturating_sub(start.saturating_sub(self.head)),
        };
    }

    /// Writes the superblock: the log begins at `start` (0: it is empty) with `sequence`.
    pub(crate) fn write_superblock(
        &mut self,
        device: &dyn BlockDevice,
        start: u32,
        sequence: u32,
    ) -> Result<(), Error> {
        self.sb.s_start = start.into();
        self.sb.s_sequence = sequence.into();
        self.sb.update_checksum();
        let block = block_of(&self.runs, 0)?;
        device.write_at(block.0 << self.block_size.log2(), self.sb.as_bytes())?;
        self.tail = start;
        Ok(())
    }

    /// The error that the superblock says writing ended with, as a positive number; 0: none.
    pub(crate) fn errno(&self) -> u32 {
        self.sb.s_errno.get().cast_signed().unsigned_abs()
    }

    /// Writes the superblock with such an error, and with what it says of the log already.
    pub(crate) fn write_errno(
        &mut self,
        device: &dyn BlockDevice,
        errno: u32,
    ) -> Result<(), Error> {
        // Kernels write it negative.
        self.sb.s_errno = errno.wrapping_neg().into();
        let (start, sequence) = (self.sb.s_start.get(), self.sb.s_sequence.get());
        self.write_superblock(device, start, sequence)
    }

    /// Leaves a log that says there is nothing to replay, and begins it anew.
    pub(crate) fn restart(&mut self, device: &dyn BlockDevice) -> Result<(), Error> {
        self.write_superblock(device, 0, self.sequence)?;
        self.live.clear();
        (self.head, self.used) = (self.first, 0);
        Ok(())
    }

    /// Head of the log: where the next transaction will begin.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }
}
