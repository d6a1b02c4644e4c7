//! A journal handle: an operation's right to change metadata, and the changes it can make.
//!
//! An operation first checks whether it will succeed, starts a handle with as many credits as the
//! number of blocks it may change, and then makes its changes. An error half-way, other than a
//! lack of space that left everything unchanged, must go through [`Handle::failed`]: it ends all
//! writing, so that the half-done transaction never becomes durable.

use std::cell::{self, OnceCell};

use uext4_buffer_cache::Buffer;
use uext4_jbd2::Tid;
use uext4_mballoc::{Request, Run};
use uext4_ondisk::inode::Timestamp;
use uext4_ondisk::{Geometry, Ino, Pblk};

use crate::alloc::groups::{NewIno, TableBlock};
use crate::alloc::ialloc::Parent;
use crate::base::edit::Edit;
use crate::base::error::Result;
use crate::base::lock_order::{Held, Rank};
use crate::base::owner::Owner;
use crate::inode::Inode;
use crate::inode::icache::Cell;
use crate::journal::error_record;
use crate::journal::rw::Rw;
use crate::journal::sbi::Sbi;
use crate::orphan::change::EditList;

/// Blocks of quota files that one operation may be the first to change: for user, group and
/// project of three inodes.
const QUOTA_CREDITS: u32 = 9;

/// A journal handle of a mounted file system. For the locks that may be taken while it is held,
/// see `docs/locking.md`.
#[derive(Debug)]
pub(crate) struct Handle<'a> {
    sbi: &'a Sbi,
    rw: &'a Rw,
    journal: uext4_jbd2::Handle<'a>,
    now: OnceCell<Timestamp>,
    changed: cell::Cell<bool>,
    _held: Held,
}

impl Sbi {
    /// Starts a handle for changing up to `credits` blocks. The thread must not hold another one.
    ///
    /// Fails with [`Error::ReadOnly`] if the file system was opened for reading or an error ended
    /// all writing, and with the errors of a commit that was needed to make space in the log.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        let rw = self.writable()?;
        let _held = Held::new(Rank::Handle);
        self.make_room();
        let quota = rw.quotas.as_ref().map_or(0, |_| QUOTA_CREDITS);
        let most = rw.journal.credits_max().max(credits);
        let credits = credits.saturating_add(quota).min(most);
        let journal = rw.journal.start(credits, self)?;
        Ok(Handle {
            sbi: self,
            rw,
            journal,
            now: OnceCell::new(),
            changed: cell::Cell::new(false),
            _held,
        })
    }
}

impl<'a> Handle<'a> {
    /// The file system.
    pub(crate) fn sbi(&self) -> &'a Sbi {
        self.sbi
    }

    /// Its state for writing.
    pub(crate) fn rw(&self) -> &'a Rw {
        self.rw
    }

    /// The transaction: commit it to make the changes durable.
    pub(crate) fn tid(&self) -> Tid {
        self.journal.tid()
    }

    /// The time that the operation stores in inodes, the same in all of them.
    pub(crate) fn now(&self) -> Timestamp {
        *self.now.get_or_init(|| self.rw.now())
    }

    /// Stores an inode that was equal to `before` when the operation began, or lets the commit
    /// store it.
    pub(crate) fn store_times(&self, cell: &Cell, inode: &Inode, before: &Inode) -> Result<()> {
        let inodes = &self.rw.inodes;
        inodes.store_times(self.sbi, self, self.tid(), cell, inode, before)
    }

    /// Asks for more credits; false if the transaction has none left.
    pub(crate) fn extend(&self, more: u32) -> bool {
        self.journal.extend(more)
    }

    /// Credits not used yet.
    pub(crate) fn credits(&self) -> u32 {
        self.journal.credits()
    }

    /// Uses a credit for a block that the commit will change, once for all handles.
    pub(crate) fn defer(&self) {
        self.touched();
        self.journal.charge();
    }

    /// Marks the operation as having changes that the commit will store; an error from here on
    /// leaves it half-done.
    pub(crate) fn touched(&self) {
        self.changed.set(true);
    }

    /// Whether a block was changed through this handle.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.get()
    }

    /// Aborts the journal if `result` is an error, because the transaction is half-done.
    pub(crate) fn failed<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            error_record::half_done(self.sbi, error);
            self.rw.journal.abort(error);
        })
    }

    /// Allocates one block for metadata, near `goal`.
    pub(crate) fn take_block(&self, goal: Pblk) -> Result<Pblk> {
        let request = Request {
            goal,
            len: 1,
            min_len: 1,
            next_fit: false,
        };
        let bitmaps = self.rw.groups.bitmaps(self.sbi, self);
        Ok(self.rw.allocator.allocate(&bitmaps, &request)?.start)
    }

    /// Marks a run used that was allocated in memory before.
    pub(crate) fn mark(&self, run: Run) -> Result<()> {
        let bitmaps = self.rw.groups.bitmaps(self.sbi, self);
        Ok(self.rw.allocator.mark(&bitmaps, run)?)
    }

    /// Frees data blocks at any location. They are reused only after the commit. Blocks in a
    /// group whose bitmap is damaged stay marked as used: a check will find them. Metadata of a
    /// fixed place is refused: the map that names it is damaged.
    pub(crate) fn free_blocks(&self, start: Pblk, len: u64) -> Result<()> {
        self.sbi.check_range("blocks to be freed", start, len)?;
        let bitmaps = self.rw.groups.bitmaps(self.sbi, self);
        let geometry = self.sbi.geometry();
        for run in runs(geometry, start, len) {
            self.rw.groups.refuse_metadata(run.start, run.len.into())?;
            match self.rw.allocator.clear(&bitmaps, run) {
                // Freed on disk with this transaction, in memory only after its commit: until
                // then a power cut restores the old owner.
                Ok(()) => self.rw.hold_freed(self.tid(), run),
                Err(_) if self.rw.allocator.is_bad(run.start) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Allocates exactly these blocks and marks them used. Returns false if one of them is in
    /// use; part of them may then be allocated.
    pub(crate) fn take_blocks_at(&self, start: Pblk, len: u64) -> Result<bool> {
        self.sbi.check_range("blocks to be taken", start, len)?;
        let bitmaps = self.rw.groups.bitmaps(self.sbi, self);
        for run in runs(self.sbi.geometry(), start, len) {
            if !self.rw.allocator.take_at(&bitmaps, run)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Allocates exactly these blocks and marks them used: all of them, or none. Returns false if
    /// one of them is in use.
    pub(crate) fn take_all_at(&self, wanted: &[(Pblk, u64)]) -> Result<bool> {
        let pieces = wanted
            .iter()
            .flat_map(|&(start, len)| runs(self.sbi.geometry(), start, len));
        let mut taken: Vec<Run> = Vec::new();
        for run in pieces {
            let is_taken = self.take_blocks_at(run.start, run.len.into());
            if matches!(is_taken, Ok(true)) {
                taken.push(run);
                continue;
            }
            for run in taken {
                self.failed(self.free_blocks(run.start, run.len.into()))?;
            }
            return is_taken;
        }
        Ok(true)
    }

    /// Whether all these blocks are in use.
    pub(crate) fn are_used(&self, start: Pblk, len: u64) -> Result<bool> {
        self.sbi.check_range("blocks of a file", start, len)?;
        let bitmaps = self.rw.groups.bitmaps(self.sbi, self);
        for run in runs(self.sbi.geometry(), start, len) {
            if !self.rw.allocator.is_used(&bitmaps, run)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Frees metadata blocks: their copies in the journal are revoked, which needs
    /// [`Handle::credits_revoke`].
    pub(crate) fn free_metadata(&self, start: Pblk, len: u64) -> Result<()> {
        // Both in one transaction: without the revoke record, recovery could write an old copy
        // of the block over the data of the file that gets it next.
        self.free_blocks(start, len)?;
        self.journal.revoke(start.0..start.0.saturating_add(len));
        Ok(())
    }

    /// Journal credits for freeing `blocks` metadata blocks, in addition to those of bitmaps.
    pub(crate) fn credits_revoke(&self, blocks: u32) -> u32 {
        self.journal.credits_revoke(blocks)
    }

    /// Number of metadata blocks that can be freed with `credits` credits, in addition to those
    /// of bitmaps.
    pub(crate) fn revokes(&self, credits: u32) -> u32 {
        self.journal.revokes(credits)
    }

    /// Allocates an inode, for a directory (with a hash of its name) or anything else.
    pub(crate) fn take_inode(&self, parent: Parent, directory: Option<u32>) -> Result<NewIno> {
        let groups = &self.rw.groups;
        let new = groups.take_inode(self.sbi, self, parent, directory)?;
        // A deleted inode is removed from memory before its number is freed.
        match self.rw.inodes.holds(new.ino) {
            true => Err(groups.in_use_in_memory(self.sbi, new.ino)),
            false => Ok(new),
        }
    }

    /// Allocates the inode with this number, which must be free.
    pub(crate) fn take_inode_at(&self, ino: Ino, directory: bool) -> Result<()> {
        let groups = &self.rw.groups;
        groups.take_inode_at(self.sbi, self, ino, directory, TableBlock::Unknown)
    }

    /// Allocates the deleted inode with this number, which must be free and no directory. Other
    /// deleted inodes stay as they are.
    pub(crate) fn retake_inode(&self, ino: Ino) -> Result<()> {
        let groups = &self.rw.groups;
        groups.take_inode_at(self.sbi, self, ino, false, TableBlock::Written)
    }

    /// Adds the inode to the orphan list unless it is there.
    pub(crate) fn add_orphan(&self, ino: Ino, generation: u32) -> Result<()> {
        self.rw.orphans.add(self.sbi, self, ino, generation)
    }

    /// Removes the inode from the orphan list if present.
    pub(crate) fn remove_orphan(&self, ino: Ino, generation: u32) -> Result<()> {
        self.rw.orphans.remove(self.sbi, self, ino, generation)
    }

    /// Frees an inode.
    pub(crate) fn free_inode(&self, ino: Ino, directory: bool) -> Result<()> {
        self.rw.groups.free_inode(self.sbi, self, ino, directory)
    }
}

/// Splits a range of blocks in the file system at group boundaries.
fn runs(geometry: &Geometry, start: Pblk, len: u64) -> impl Iterator<Item = Run> {
    let (mut at, end) = (start.0, start.0.saturating_add(len));
    std::iter::from_fn(move || {
        // Blocks before the first group belong to no group: they are in use by the boot sector.
        let (group, offset) = geometry.group_of(Pblk(at)).filter(|_| at < end)?;
        let room = geometry
            .blocks_in_group(group)
            .saturating_sub(offset)
            .max(1);
        let run = Run {
            start: Pblk(at),
            // OK to truncate: at most `room`.
            len: (end - at).min(room.into()) as u32,
        };
        at += u64::from(run.len);
        Some(run)
    })
}

impl Edit for Handle<'_> {
    fn change<R>(&self, buffer: &Buffer, owner: Owner, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.changed.set(true);
        self.journal.modify(buffer, owner.tag(), owner.rule(), f)
    }

    fn fresh(&self, block: Pblk) -> Buffer {
        self.sbi.cache().getblk_new(block)
    }
}

impl EditList for Handle<'_> {
    fn set_last_orphan(&self, ino: Ino) {
        self.rw
            .change_superblock(|superblock| superblock.s_last_orphan = ino.0.into());
    }
}
