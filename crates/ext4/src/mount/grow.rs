//! Growing while the file system is in use.
//!
//! A commit carries the growth out, in the moment in which it keeps all handles out: the plan is
//! made from what is there then, the blocks of the new groups are written where nothing reads yet,
//! and what makes them part of the file system is in the transaction that is being closed. So it
//! is durable as a whole, with whatever else that transaction has, and needs no lock that an
//! operation would have to take.
//!
//! ```text
//! handles ──► gate closed ──► plan ──► behind the end ──► transaction ──► tables ──► gate open
//!                                      written            blocks           groups, shape,
//!                                                                          allocator, freed blocks
//! ```
//! Threads that hold no handle read meanwhile, and search for free blocks in memory. What is known
//! of the new groups is there before the shape that has them, and that before the allocator hands
//! out blocks of theirs.
//!
//! The kernel's `ext4_resize_fs` adds a flex group with each transaction, under locks that only
//! resizing takes. Here all groups come at once: a file system that is cut off has one size or
//! the other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use parking_lot::MutexGuard;
use uext4_blockdev::{BlockDevice, Error as DeviceError, WriteRequest};
use uext4_buffer_cache::Buffer;
use uext4_mballoc::Run;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Damage, Geometry, GroupNr, Pblk};
use zerocopy::IntoBytes;

use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::growth::{Growth, NewHome, Outcome, PendingPlan, Plan};
use crate::base::owner::{Kind, Owner};
use crate::journal::rw::Rw;
use crate::journal::sbi::Sbi;

/// Blocks that a growth may change at most, however large the log is.
const BLOCKS_MAX: u32 = 8192;

/// How many blocks of the file system a growth may change: its transaction may have as many as
/// handles are given, besides.
fn blocks_max(rw: &Rw) -> u32 {
    let whole = rw.journal.blocks_max();
    whole.map_or(BLOCKS_MAX, |whole| (whole / 2).min(BLOCKS_MAX))
}

/// The right to grow the file system, which one thread has at a time; another one waits for it.
#[derive(Debug)]
pub struct GrowthTurn<'a> {
    sbi: &'a Sbi,
    _turn: MutexGuard<'a, ()>,
}

/// Waits until no other thread grows the file system.
pub(crate) fn begin(sbi: &Sbi) -> Result<GrowthTurn<'_>> {
    let _turn = sbi.writable()?.growing.turn.lock();
    Ok(GrowthTurn { sbi, _turn })
}

impl GrowthTurn<'_> {
    /// Grows the file system while it is in use, as `plan` says. It is called within a commit,
    /// with the superblock as it is then, while nothing changes; `None` if nothing is to grow. It
    /// may read through an [`crate::Image`] of this file system, and must not change anything,
    /// nor wait for a thread that does. Returns whether it has grown; then that is durable.
    ///
    /// The device is long enough already. The thread must not be one that commits wait for.
    ///
    /// # Errors
    /// Nothing has grown: [`Error::Unsupported`] with another design of the search for free
    /// blocks, damage of what the growth changes, device errors. [`Error::NotDurable`]: it has
    /// grown, as [`crate::Image::geometry`] says, and a power cut may undo that.
    pub fn grow(
        &self,
        plan: impl FnOnce(&SuperBlock) -> Option<Growth> + Send + 'static,
    ) -> Result<bool> {
        grow(self.sbi, Box::new(plan))
    }

    /// Blocks of the file system that a growth may change at most ([`Growth::inside`]).
    pub fn blocks_max(&self) -> u32 {
        self.sbi.rw().map_or(0, blocks_max)
    }
}

/// Has the next commit carry out `plan`, and returns when that is durable. The thread holds no
/// handle, and has its turn.
fn grow(sbi: &Sbi, plan: Plan) -> Result<bool> {
    let rw = sbi.writable()?;
    if !rw.allocator.can_grow() {
        let what = "growing with another search for free blocks".to_owned();
        return Err(Error::Unsupported { what });
    }
    // A block that becomes free must not be replayed later, over what it is used for then: what
    // an earlier growth has logged of it is at its home location, and the log is empty.
    rw.journal.flush(sbi)?;
    // Asked now: within a commit the lock of the log is held.
    let most = blocks_max(rw);
    rw.growing.put(PendingPlan { plan, most });
    let mut committed = rw.journal.commit_now(sbi);
    // A commit that was already closing its transaction did not meet the plan.
    while committed.is_ok() && rw.growing.waits() {
        committed = rw.journal.commit_now(sbi);
    }
    let Some(Outcome { grown, tid }) = rw.growing.withdraw() else {
        committed?;
        return Ok(false);
    };
    let grown = grown?;
    if grown {
        make_durable(sbi, rw, tid).map_err(|error| Error::NotDurable {
            reason: format!("the file system has grown, and {error}"),
        })?;
    }
    Ok(grown)
}

/// Returns when a transaction is durable, whichever thread has committed it.
fn make_durable(sbi: &Sbi, rw: &Rw, tid: u64) -> Result<()> {
    rw.journal.commit(tid, sbi)?;
    if !rw.journal.has_log() {
        // Without a log a commit only writes.
        rw.journal.flush_device()?;
    }
    Ok(())
}

/// Carries out the plan that waits, if there is one, in the transaction that is being closed.
///
/// # Errors
/// What leaves the growth half-done: the journal must be aborted.
pub(crate) fn carry_out(sbi: &Sbi, edit: &impl Edit, tid: u64) -> Result<()> {
    let rw = sbi.writable()?;
    let Some(PendingPlan { plan, most }) = rw.growing.take() else {
        return Ok(());
    };
    let end = |grown| rw.growing.end(Outcome { grown, tid });
    let Some(growth) = plan(&rw.superblock()) else {
        end(Ok(false));
        return Ok(());
    };
    let mut prepared = Prepared::default();
    let geometry = check(sbi, rw, &growth, most).and_then(|geometry| {
        prepared.prepare(sbi, rw, edit, &growth, &geometry)?;
        Ok(geometry)
    });
    let applied = match geometry {
        Ok(geometry) => prepared.apply(sbi, rw, edit, &growth, &geometry, tid),
        Err(error) => {
            prepared.let_go(rw);
            end(Err(error));
            return Ok(());
        }
    };
    prepared.let_go(rw);
    match &applied {
        Ok(()) => end(Ok(true)),
        Err(error) => end(Err(Error::Aborted {
            reason: error.to_string(),
        })),
    }
    applied
}

/// What is read, and held, before anything changes.
#[derive(Default)]
struct Prepared {
    /// The blocks that change, in the order of [`Growth::inside`].
    buffers: Vec<Buffer>,
    /// Groups whose bitmaps stay loaded.
    held: Vec<GroupNr>,
    /// What becomes free, without what lies in groups that are left alone.
    freed: Vec<Run>,
}

impl Prepared {
    /// Everything that may fail. The blocks behind the end are written, which changes nothing.
    fn prepare(
        &mut self,
        sbi: &Sbi,
        rw: &Rw,
        edit: &impl Edit,
        growth: &Growth,
        geometry: &Geometry,
    ) -> Result<()> {
        for &block in growth.inside.keys() {
            let tag = Owner::of(Kind::GroupDesc).tag();
            self.buffers
                .push(sbi.bread("block that changes", block, tag, |_| Ok(()))?);
        }
        for blocks in &growth.freed {
            self.hold(sbi, rw, edit, geometry, blocks)?;
        }
        // The flush before the commit block makes them durable.
        let size = geometry.block_size;
        Ok(write_blocks(&**sbi.device(), size, &growth.behind)?)
    }

    /// Ends what [`Prepared::hold`] began.
    fn let_go(&self, rw: &Rw) {
        for &group in &self.held {
            rw.allocator.let_go(group);
        }
    }

    /// Holds the group of blocks that become free.
    fn hold(
        &mut self,
        sbi: &Sbi,
        rw: &Rw,
        edit: &impl Edit,
        geometry: &Geometry,
        blocks: &Range<u64>,
    ) -> Result<()> {
        let outside = || not_in_use(blocks.start, "they are not in one group");
        let start = Pblk(blocks.start);
        let (group, _) = geometry.group_of(start).ok_or_else(outside)?;
        let len = u32::try_from(blocks.end.saturating_sub(blocks.start)).map_err(|_| outside())?;
        if !self.held.contains(&group) {
            let bitmaps = rw.groups.bitmaps(sbi, edit);
            if !rw.allocator.hold(&bitmaps, group)? {
                // Its bitmap is damaged: none of its blocks is given to anybody.
                return Ok(());
            }
            self.held.push(group);
        }
        let run = Run { start, len };
        let is_inside = blocks.end <= sbi.geometry().blocks_count;
        if is_inside && !rw.allocator.is_used(&rw.groups.bitmaps(sbi, edit), run)? {
            return Err(not_in_use(blocks.start, "they are free already"));
        }
        self.freed.push(run);
        Ok(())
    }

    /// Changes the blocks and then the tables.
    fn apply(
        &self,
        sbi: &Sbi,
        rw: &Rw,
        edit: &impl Edit,
        growth: &Growth,
        geometry: &Geometry,
        tid: u64,
    ) -> Result<()> {
        for &group in &self.held {
            rw.groups.make_block_bitmap(sbi, edit, group)?;
        }
        let old_groups = sbi.geometry().groups_count.get();
        for (buffer, bytes) in self.buffers.iter().zip(growth.inside.values()) {
            edit.change(buffer, Owner::of(Kind::GroupDesc), |old| {
                old.copy_from_slice(bytes);
            });
        }
        rw.groups.add(geometry, &growth.groups);
        // A thread that takes blocks of the new groups must find them to lie in the file system.
        sbi.set_grown(growth.superblock, geometry.clone());
        let bitmaps = rw.groups.bitmaps(sbi, edit);
        rw.allocator.grow(geometry, &bitmaps)?;
        rw.note_size(geometry.blocks_count);
        rw.change_superblock(|superblock| put_size(superblock, &growth.superblock));
        for &run in &self.freed {
            rw.allocator.clear(&bitmaps, run)?;
            // As all that is freed, they are used when this is durable.
            rw.hold_freed(tid, run);
        }
        rw.groups.rule(sbi, edit)?;
        if rw.journal.has_log() {
            rw.growing.put_home(NewHome {
                descriptors: self.descriptors(geometry, old_groups),
                superblock: rw.superblock(),
            });
        }
        Ok(())
    }

    /// The blocks of descriptors of groups that were added, as this transaction has them.
    fn descriptors(&self, geometry: &Geometry, old_groups: u32) -> BTreeMap<Pblk, Vec<u8>> {
        let from = old_groups / geometry.descs_per_block();
        let added: BTreeSet<Pblk> = (from..geometry.gdt_blocks())
            .map(|index| geometry.gdt_block(index))
            .collect();
        let changed = self.buffers.iter();
        let changed = changed.filter(|buffer| added.contains(&buffer.block()));
        changed
            .map(|buffer| (buffer.block(), buffer.data().to_vec()))
            .collect()
    }
}

/// The shape that results; fails if the file system cannot become so.
fn check(sbi: &Sbi, rw: &Rw, growth: &Growth, most: u32) -> Result<Geometry> {
    let geometry = Geometry::new(&growth.superblock)?;
    let old = sbi.geometry();
    let added = geometry
        .groups_count
        .get()
        .checked_sub(old.groups_count.get());
    let is_like = added.map(u64::from) == Some(growth.groups.len() as u64)
        && geometry.blocks_count >= old.blocks_count
        && geometry.block_size == old.block_size
        && geometry.blocks_per_group == old.blocks_per_group
        && geometry.inodes_per_group == old.inodes_per_group;
    let size = geometry.block_size.len();
    let ends = [
        (&growth.inside, 0..old.blocks_count),
        (&growth.behind, old.blocks_count..geometry.blocks_count),
    ];
    let are_there = ends.iter().all(|(blocks, range)| {
        let mut blocks = blocks.iter();
        blocks.all(|(block, bytes)| range.contains(&block.0) && bytes.len() == size)
    });
    if !is_like || !are_there || growth.inside.len() > most as usize {
        return Err(Error::Corrupt(Damage::Field {
            structure: "superblock of a larger file system",
            field: "s_blocks_count",
            value: geometry.blocks_count,
            why: "not the same file system with more groups",
        }));
    }
    let (len, device_len) = (geometry.len_bytes(), sbi.device().len());
    if len > device_len {
        let offset = 0;
        return Err(Error::Device(DeviceError::OutOfRange {
            offset,
            len,
            device_len,
        }));
    }
    rw.groups.check_added(&geometry, &growth.groups)?;
    Ok(geometry)
}

fn not_in_use(block: u64, why: &'static str) -> Error {
    Error::Corrupt(Damage::Field {
        structure: "block bitmap",
        field: "blocks that become free, from block",
        value: block,
        why,
    })
}

/// Writes whole blocks of `size` to their places, of which nothing that is durable needs what they
/// held. Durable after the next flush.
///
/// # Errors
/// Those of the device.
pub fn write_blocks(
    device: &dyn BlockDevice,
    size: BlockSize,
    blocks: &BTreeMap<Pblk, Vec<u8>>,
) -> std::result::Result<(), DeviceError> {
    let requests: Vec<WriteRequest<'_>> = blocks
        .iter()
        .map(|(block, bytes)| WriteRequest {
            offset: block.0 << size.log2(),
            buf: bytes,
        })
        .collect();
    device.write_many(&requests)
}

/// What the superblock says of the size; the rest may have changed since the plan was made.
fn put_size(superblock: &mut SuperBlock, grown: &SuperBlock) {
    superblock.s_blocks_count_lo = grown.s_blocks_count_lo;
    superblock.s_blocks_count_hi = grown.s_blocks_count_hi;
    superblock.s_inodes_count = grown.s_inodes_count;
    superblock.s_r_blocks_count_lo = grown.s_r_blocks_count_lo;
    superblock.s_r_blocks_count_hi = grown.s_r_blocks_count_hi;
    superblock.s_reserved_gdt_blocks = grown.s_reserved_gdt_blocks;
    superblock.s_first_meta_bg = grown.s_first_meta_bg;
    superblock.s_overhead_clusters = grown.s_overhead_clusters;
    superblock.s_backup_bgs = grown.s_backup_bgs;
    superblock.set_features(grown.features());
}

/// Writes the descriptors of new groups home and then the superblock, once the transaction that has
/// them is durable, and before a later one is.
///
/// Before it replays the journal, the kernel looks at the descriptors of all groups that the
/// superblock says there are: they are home before it is. And it goes on with the number of groups
/// that it read then: so the superblock is home before a later transaction can use any that is new.
/// Where the host has no room for that, a checkpoint does it: e2fsck and we find the new size in
/// the log until then.
pub(crate) fn write_home(sbi: &Sbi, rw: &Rw) {
    let Some(home) = rw.growing.take_home() else {
        return;
    };
    let written = || -> Result<()> {
        let (device, size) = (&**sbi.device(), sbi.geometry().block_size);
        write_blocks(device, size, &home.descriptors)?;
        rw.journal.flush_device()?;
        device.write_at(SUPERBLOCK_OFFSET, home.superblock.as_bytes())?;
        Ok(rw.journal.flush_device()?)
    };
    match written() {
        Ok(()) => {}
        // Not to be tried again: a checkpoint may have written what is newer by then.
        Err(Error::Device(error)) if error.is_host_full() => {}
        Err(error) => rw.journal.abort(&error),
    }
}
