//! `grow`: further groups.

use std::sync::Arc;

use uext4::device::write_blocks;
use uext4_blockdev::{BlockDevice, Clock, Error as BlockError};
use uext4_mkfs::{AddedGroups, added_groups, without_short_group};
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::group_desc::DescChecksum;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Pblk};
use zerocopy::IntoBytes;

use crate::changes::Changes;
use crate::claimed::{claimed, must_not_be_in_use};
use crate::descriptors::{self, Room};
use crate::state::State;
use crate::transaction::{self, Recovery};
use crate::{Error, Examination, Result, resize_inode};

/// The size that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes; part of a block, and a last group that is too short, are left out.
    Bytes(u64),
    /// So many bytes more than the file system has, likewise.
    More(u64),
    /// All that the device has.
    Device,
}

impl Size {
    /// In bytes, of a file system on a device of `have` bytes.
    pub(crate) fn bytes(self, old: &Geometry, have: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::More(more) => old.len_bytes().saturating_add(more),
            Self::Device => have,
        }
    }
}

/// What changed. Both are blocks of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Before.
    pub before: u64,
    /// After; the same if there was nothing to do.
    pub after: u64,
    /// Bytes of a block.
    pub block_size: u32,
}

/// Grows the file system on `device`, whose bytes from `zero_from` on read as zeroes, and makes the
/// device longer where it is too short for the size that is asked for. The caller has claimed the
/// device; the file system is not mounted. If it is to grow it is examined first; then its journal
/// is replayed, whether or not it grows.
///
/// # Errors
/// [`Error`]. An error of the device aside, the file system and the device have their old size, and
/// the file system is clean.
pub fn grow(
    device: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    size: Size,
    zero_from: u64,
    examination: Examination<'_>,
) -> Result<Resized> {
    must_not_be_in_use(&**device, &**clock)?;
    let seen = target(&State::look(device)?, size, device.len())?;
    if seen.after != seen.before {
        examination.run(device)?;
    }
    let state = State::open(device, clock)?;
    let resized = target(&state, size, device.len())?;
    if resized.after == resized.before {
        return Ok(resized);
    }
    let larger = Larger::new(&state, resized.after)?;
    let had = device.len();
    let is_longer = larger.make_room(&**device)?;
    let done = claimed(&**device, &**clock, || {
        carry_out(&state, clock, &larger, zero_from)
    });
    done.inspect_err(|_| {
        if is_longer {
            give_back(&**device, had);
        }
    })?;
    Ok(resized)
}

fn carry_out(state: &State, clock: &Arc<dyn Clock>, larger: &Larger, zero_from: u64) -> Result<()> {
    larger.zero_tables(state, zero_from)?;
    let (changes, superblock) = larger.changes(state, zero_from)?;
    let (device, size) = (&**state.device(), state.geometry.block_size);
    write_blocks(device, size, &changes.behind)?;
    let by = Recovery::ByAnybody;
    transaction::commit(state, clock, &changes.inside, &superblock, by)
}

/// Gives the device its old length after an error, unless the file system has grown all the same,
/// or will when its journal is replayed.
fn give_back(device: &dyn BlockDevice, had: u64) {
    let mut bytes = [0; size_of::<SuperBlock>()];
    let read = device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok();
    let superblock = read.and_then(|()| SuperBlock::parse(&bytes).ok());
    let fits = superblock.is_some_and(|superblock| {
        let waits = superblock.features().incompat.contains(Incompat::RECOVER);
        !waits && Geometry::new(&superblock).is_ok_and(|geometry| geometry.len_bytes() <= had)
    });
    if fits {
        // The error that is reported is the one that matters.
        _ = device.set_len(had);
    }
}

/// The size that the file system gets: all blocks of the size that is asked for, but for a last
/// group that is too short. `have` is how long the device is, in bytes.
pub fn target(state: &State, size: Size, have: u64) -> Result<Resized> {
    let old = &state.geometry;
    let wanted = size.bytes(old, have) >> old.block_size.log2();
    let blocks = without_short_group(old, wanted);
    if blocks <= old.blocks_count && wanted < old.blocks_count && size != Size::Device {
        return Err(Error::Smaller {
            blocks: old.blocks_count,
            wanted,
            block_size: old.block_size.bytes(),
        });
    }
    Ok(Resized {
        before: old.blocks_count,
        after: blocks.max(old.blocks_count),
        block_size: old.block_size.bytes(),
    })
}

/// A file system as it will be.
pub struct Larger {
    superblock: SuperBlock,
    geometry: Geometry,
    room: Room,
}

impl Larger {
    /// With so many blocks.
    pub fn new(state: &State, blocks: u64) -> Result<Self> {
        let (superblock, room) = larger(state, blocks)?;
        Ok(Self {
            geometry: Geometry::new(&superblock)?,
            superblock,
            room,
        })
    }

    /// Makes the device long enough; whether it became longer by that.
    pub fn make_room(&self, device: &dyn BlockDevice) -> Result<bool> {
        let need = self.geometry.len_bytes();
        if need <= device.len() {
            return Ok(false);
        }
        device.set_len(need).map_err(|error| match error {
            BlockError::FixedLength { len: have } => Error::DeviceTooSmall { need, have },
            error => error.into(),
        })?;
        Ok(true)
    }

    /// Blocks of descriptors that change of the file system as it is, at least.
    pub fn descriptor_blocks(&self, state: &State) -> usize {
        let blocks = match self.room {
            Room::Reserved { blocks } => usize::from(blocks),
            Room::Enough | Room::MetaGroups => 0,
        };
        blocks.saturating_mul(1 + state.geometry.backup_groups().count())
    }

    /// Writes zeroes to inode tables that descriptors cannot leave to the kernel. They lie where
    /// nothing reads yet, and are durable with the transaction.
    pub fn zero_tables(&self, state: &State, zero_from: u64) -> Result<()> {
        let first_new = state.geometry.groups_count.get();
        let geometry = &self.geometry;
        if geometry.desc_checksum != DescChecksum::None
            || self.are_zero(zero_from, first_new)
            || geometry.groups_count.get() == first_new
        {
            return Ok(());
        }
        let added = added_groups(&self.superblock, geometry, first_new, false)?;
        let bits = geometry.block_size.log2();
        for desc in &added.groups {
            let Pblk(start) = desc.inode_table;
            let len = u64::from(geometry.itable_blocks());
            state.device().discard(start << bits, len << bits)?;
        }
        Ok(())
    }

    /// Whether the new groups read as zeroes, of which the first has this number.
    fn are_zero(&self, zero_from: u64, first_new: u32) -> bool {
        let start_new = self.geometry.group_start(GroupNr(first_new));
        start_new.0 << self.geometry.block_size.log2() >= zero_from
    }

    /// What changes, and the superblock that results. Bytes of the device from `zero_from` on read
    /// as zeroes.
    pub fn changes<'a>(
        &'a self,
        state: &'a State,
        zero_from: u64,
    ) -> Result<(Changes<'a>, SuperBlock)> {
        let (old, geometry) = (&state.geometry, &self.geometry);
        let mut superblock = self.superblock;
        let first_new = old.groups_count.get();
        let are_zero = self.are_zero(zero_from, first_new);
        let mut changes = Changes::new(state, geometry);
        let mut added = AddedGroups::default();
        if geometry.groups_count.get() > first_new {
            added = added_groups(&superblock, geometry, first_new, are_zero)?;
        }
        for (group, desc) in (first_new..).map(GroupNr).zip(&added.groups) {
            changes.descs.insert(group, *desc);
        }
        for (block, bytes) in std::mem::take(&mut added.bitmaps) {
            changes.put(block, bytes);
        }
        fill_last_group(&mut changes)?;
        let has_inode = old.features.compat.contains(Compat::RESIZE_INODE);
        match self.room {
            Room::MetaGroups if has_inode => resize_inode::remove(&mut changes)?,
            _ if has_inode => resize_inode::update(&mut changes)?,
            _ => {}
        }
        descriptors::put(&mut changes)?;
        count(&changes, &mut superblock, &added)?;
        put_backups(&mut changes, &superblock)?;
        Ok((changes, superblock))
    }
}

/// The superblock with so many blocks, but for what is counted.
fn larger(state: &State, blocks: u64) -> Result<(SuperBlock, Room)> {
    let old = &state.geometry;
    let too_large = |most, why| Error::TooLarge {
        wanted: blocks,
        most,
        why,
    };
    if !old.features.incompat.contains(Incompat::BIT64) && blocks > u64::from(u32::MAX) {
        let why = "without the feature 64bit block numbers have 32 bits";
        return Err(too_large(u32::MAX.into(), why));
    }
    let per_group = u64::from(old.blocks_per_group.get());
    let first = u64::from(old.first_data_block);
    let groups = (blocks - first).div_ceil(per_group);
    let most = u64::from(u32::MAX / old.inodes_per_group.get());
    let groups = u32::try_from(groups)
        .ok()
        .filter(|&groups| u64::from(groups) <= most)
        .ok_or(too_large(
            most.saturating_mul(per_group).saturating_add(first),
            "each group has inodes, and there are 2^32 numbers",
        ))?;
    let mut superblock = state.with_blocks(blocks, groups);
    let room = Room::choose(old, groups, blocks);
    room.store(old, &mut superblock);
    Ok((superblock, room))
}

/// The group that was the last gets the blocks that it lacked.
fn fill_last_group(changes: &mut Changes<'_>) -> Result<()> {
    let old = &changes.state.geometry;
    let last = GroupNr(old.groups_count.get() - 1);
    let ratio = 1 << old.cluster_bits;
    let before = old.blocks_in_group(last).div_ceil(ratio);
    let after = changes.geometry.blocks_in_group(last).div_ceil(ratio);
    if before == after {
        return Ok(());
    }
    changes.free_clusters(last, before, after, after)
}

/// Counts what is free. Descriptors that do not change are not read.
fn count(changes: &Changes<'_>, superblock: &mut SuperBlock, added: &AddedGroups) -> Result<()> {
    let mut clusters =
        i64::try_from(superblock.free_blocks_count()).unwrap_or(0) >> changes.geometry.cluster_bits;
    let mut inodes = superblock.s_free_inodes_count.get();
    for (&group, desc) in &changes.descs {
        clusters += i64::from(desc.free_clusters);
        match group.0 < changes.state.geometry.groups_count.get() {
            true => clusters -= i64::from(changes.state.desc(group)?.free_clusters),
            false => inodes = inodes.saturating_add(desc.free_inodes),
        }
    }
    let blocks = u64::try_from(clusters).unwrap_or(0) << changes.geometry.cluster_bits;
    superblock.set_free_blocks_count(blocks);
    superblock.s_free_inodes_count = inodes.into();
    let overhead = superblock.s_overhead_clusters.get();
    if overhead != 0 {
        let added = u32::try_from(added.overhead).unwrap_or(u32::MAX);
        superblock.s_overhead_clusters = overhead.saturating_add(added).into();
    }
    superblock.update_checksum();
    Ok(())
}

/// Puts all backups of the superblock.
pub fn put_backups(changes: &mut Changes<'_>, superblock: &SuperBlock) -> Result<()> {
    let geometry = changes.geometry;
    let groups: Vec<GroupNr> = geometry.backup_groups().collect();
    for group in groups {
        let block = geometry.group_start(group);
        let mut bytes = match changes.state.geometry.has_super(group) {
            true if block.0 < changes.state.geometry.blocks_count => changes.state.block(block)?,
            _ => vec![0; geometry.block_size.len()],
        };
        let copy = superblock.backup(group);
        bytes[..size_of::<SuperBlock>()].copy_from_slice(copy.as_bytes());
        changes.put(block, bytes);
    }
    Ok(())
}
