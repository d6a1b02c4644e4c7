//! Descriptors and bitmaps of a file system that is written: counts in memory, bitmaps in the
//! cache.
//!
//! One lock a group guards its descriptor and the bits of its bitmaps; the counts are also stored
//! as atomics, so that choosing a group takes no lock. What the descriptors call uninitialised is
//! made up on first use, as the kernel does. Descriptors reach their blocks only once a commit
//! ([`Groups::rule`]), or at the end of filling a new file system ([`Groups::store`]).
//!
//! Lock: a group's is a leaf but for the buffers it changes; never two at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};
use uext4_buffer_cache::Buffer;
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, GroupDesc, bitmap_checksum};
use uext4_ondisk::{Damage, Geometry, GroupNr, Ino, Pblk};

use crate::alloc::bitmap::{fresh_block_bitmap, is_uninit, read_bitmap};
use crate::alloc::ialloc::{Counts, FlexStats, GroupCounts, Parent};
use crate::base::disk::Disk;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::owner::Kind;
use crate::base::owner::Owner;
use uext4_support::Growing;
use uext4_support::bits::{all_are, get, pad, set_range};

mod bitmaps;
mod busy;
mod grow;
mod numbered;
mod reuse;
mod system_zone;

pub(crate) use bitmaps::Bitmaps;
pub(crate) use numbered::{TableBlock, is_inode_used};
use system_zone::SystemZone;

/// An inode just taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewIno {
    pub(crate) ino: Ino,
    pub(crate) group: GroupNr,
    /// Its block of the inode table.
    pub(crate) block: Pblk,
}

/// What a group's lock guards.
#[derive(Debug)]
struct Slot {
    desc: GroupDesc,
    /// All inodes of the group before this index are in use.
    next_inode: u32,
    /// The checksum in `desc` is not that of the bitmap any more.
    blocks_changed: bool,
    inodes_changed: bool,
    /// In the list of groups whose descriptor must be stored.
    listed: bool,
    /// The inode bitmap was found wrong: no inode of the group is allocated any more.
    inodes_bad: bool,
}

impl Slot {
    fn new(desc: GroupDesc) -> Self {
        Self {
            desc,
            next_inode: 0,
            blocks_changed: false,
            inodes_changed: false,
            listed: false,
            inodes_bad: false,
        }
    }
}

/// A group's counts, or a flex group's, for reading without a lock.
#[derive(Debug, Default)]
struct Tally {
    free_inodes: AtomicU64,
    free_blocks: AtomicU64,
    used_dirs: AtomicU64,
}

impl Tally {
    fn stats(&self) -> FlexStats {
        FlexStats {
            free_inodes: self.free_inodes.load(Relaxed),
            free_blocks: self.free_blocks.load(Relaxed),
            used_dirs: self.used_dirs.load(Relaxed),
        }
    }

    /// Adds what a group has whose blocks are so many. One that claims more free blocks than that
    /// lies: the allocator leaves it alone, so none of them count.
    fn add(&self, desc: &GroupDesc, blocks: u32) {
        let is_true = desc.free_clusters <= blocks;
        let free_blocks = if is_true { desc.free_clusters } else { 0 };
        self.free_inodes.fetch_add(desc.free_inodes.into(), Relaxed);
        self.free_blocks.fetch_add(free_blocks.into(), Relaxed);
        self.used_dirs.fetch_add(desc.used_dirs.into(), Relaxed);
    }
}

/// All groups of the file system.
#[derive(Debug)]
pub(crate) struct Groups {
    slots: Growing<Mutex<Slot>>,
    /// Where the inode tables begin.
    inode_tables: Growing<Pblk>,
    tallies: Growing<Tally>,
    flex: Growing<Tally>,
    total: Tally,
    changed: Mutex<Vec<GroupNr>>,
    /// Groups that threads take inodes of because another thread was at the usual one.
    turned: busy::Turned,
    log_groups_per_flex: u8,
    /// Group that the last new directory of a directory got, by a hash of the parent's number: only
    /// a hint.
    last_dirs: Box<[AtomicU32]>,
    /// The damage that the first group was set aside for whose inode bitmap is wrong.
    bad_inodes: OnceLock<Damage>,
    /// Where no file may have a block.
    system_zone: RwLock<SystemZone>,
}

/// Hints stored where new directories went.
const LAST_DIRS: usize = 64;

impl Groups {
    /// Reads all descriptors.
    pub(crate) fn open(disk: &Disk) -> Result<Self> {
        let geometry = disk.geometry();
        let count = geometry.groups_count.get();
        let per_flex = 1usize
            .checked_shl(geometry.log_groups_per_flex.into())
            .unwrap_or(usize::MAX);
        // They grow with what is read: the superblock may claim 2^29 groups and have none.
        let (mut slots, mut inode_tables) = (Vec::new(), Vec::new());
        let (mut tallies, mut flex) = (Vec::new(), Vec::new());
        let total = Tally::default();
        for group in (0..count).map(GroupNr) {
            let desc = disk.group_desc(group)?;
            check_places(geometry, group, &desc)?;
            let tally = Tally::default();
            if (group.0 as usize).is_multiple_of(per_flex) {
                flex.push(Tally::default());
            }
            for to in [Some(&tally), flex.last(), Some(&total)]
                .into_iter()
                .flatten()
            {
                to.add(&desc, geometry.blocks_in_group(group));
            }
            tallies.push(tally);
            inode_tables.push(desc.inode_table);
            slots.push(Mutex::new(Slot::new(desc)));
        }
        let groups = Self {
            slots: Growing::new(slots),
            inode_tables: Growing::new(inode_tables),
            tallies: Growing::new(tallies),
            flex: Growing::new(flex),
            total,
            changed: Mutex::default(),
            turned: busy::Turned::default(),
            log_groups_per_flex: geometry.log_groups_per_flex,
            last_dirs: (0..LAST_DIRS).map(|_| AtomicU32::new(u32::MAX)).collect(),
            bad_inodes: OnceLock::new(),
            system_zone: RwLock::default(),
        };
        groups.find_system_zone(geometry, 0);
        Ok(groups)
    }

    /// Free inodes, free blocks and directories of all groups.
    pub(crate) fn total(&self) -> FlexStats {
        self.total.stats()
    }

    /// A group's descriptor as it is now. `None` past the last group.
    pub(crate) fn desc(&self, group: GroupNr) -> Option<GroupDesc> {
        Some(self.slots.get(group.0 as usize)?.lock().desc)
    }

    /// Where a group's inode table begins. `None` past the last group.
    pub(crate) fn inode_table(&self, group: GroupNr) -> Option<Pblk> {
        self.inode_tables.get(group.0 as usize).copied()
    }

    fn flex_of(&self, group: GroupNr) -> &Tally {
        let flex = group
            .0
            .checked_shr(self.log_groups_per_flex.into())
            .unwrap_or(0);
        &self.flex[flex as usize]
    }

    /// The group's tallies on all levels.
    fn tallies(&self, group: GroupNr) -> [&Tally; 3] {
        [
            &self.tallies[group.0 as usize],
            self.flex_of(group),
            &self.total,
        ]
    }

    /// The allocator takes nothing more of a group's blocks: they leave the superblock's count,
    /// as in the kernel, and directories are not placed by them.
    fn leave_alone(&self, group: GroupNr) {
        // Counts of blocks change under it.
        let _slot = self.slots[group.0 as usize].lock();
        let [own, flex, all] = self.tallies(group);
        let free = own.free_blocks.swap(0, Relaxed);
        for tally in [flex, all] {
            tally.free_blocks.fetch_sub(free, Relaxed);
        }
    }

    /// Notes that a descriptor must be stored.
    fn list(&self, group: GroupNr, slot: &mut Slot) {
        if !slot.listed {
            slot.listed = true;
            self.changed.lock().push(group);
        }
    }

    /// Takes an inode for a directory (with a hash of its name) or for anything else.
    pub(crate) fn take_inode(
        &self,
        disk: &Disk,
        edit: &impl Edit,
        parent: Parent,
        directory: Option<u32>,
    ) -> Result<NewIno> {
        let geometry = disk.geometry();
        let count = geometry.inodes_count;
        // A thread may take the last inode of a group between the choice and its lock.
        for _ in 0..=self.groups() {
            let counts: &dyn Counts = self;
            let group = match directory {
                Some(hash) => counts.for_directory(geometry, parent, hash),
                None => self.for_file(geometry, parent),
            };
            let group = group.ok_or_else(|| self.none_left(count))?;
            if let Some(new) = self.take_inode_in(disk, edit, group, directory.is_some())? {
                return Ok(new);
            }
        }
        Err(Error::NoInodes { count })
    }

    /// Takes the first free inode of a group; `None` if there is none any more.
    fn take_inode_in(
        &self,
        disk: &Disk,
        edit: &impl Edit,
        group: GroupNr,
        directory: bool,
    ) -> Result<Option<NewIno>> {
        let geometry = disk.geometry();
        let per_group = geometry.inodes_per_group.get();
        let (group, mut slot) = if directory {
            (group, self.slots[group.0 as usize].lock())
        } else {
            self.lock_for_file(group)
        };
        let slot = &mut *slot;
        if slot.desc.free_inodes == 0 || slot.inodes_bad {
            return Ok(None);
        }
        let bitmap = inode_bitmap(disk, edit, group, slot)?;
        let reserved = if group.0 == 0 {
            geometry.first_ino - 1
        } else {
            0
        };
        let from = slot.next_inode.max(reserved);
        let distrusts = edit.distrusts_bitmaps();
        let taken = match reuse::choose(disk, group, slot, &bitmap.data(), from, distrusts) {
            Err(Error::Corrupt(damage)) => {
                return Err(self.distrust_inodes(group, slot, damage));
            }
            taken => taken?,
        };
        edit.change(&bitmap, Owner::of(Kind::Bitmap), |bytes| {
            set_range(bytes, taken.index, 1, true);
        });
        slot.inodes_changed = true;
        self.list(group, slot);
        slot.next_inode = taken.index + 1;
        Ok(Some(NewIno {
            ino: Ino(group.0 * per_group + taken.index + 1),
            group,
            block: self.inode_taken(disk, edit, group, slot, taken, directory),
        }))
    }

    /// Gives an inode back.
    pub(crate) fn free_inode(
        &self,
        disk: &Disk,
        edit: &impl Edit,
        ino: Ino,
        directory: bool,
    ) -> Result<()> {
        let geometry = disk.geometry();
        let (group, index) = geometry.inode_group(ino).ok_or(Damage::InodeNumber {
            what: "inode to be freed",
            ino,
            inodes_count: geometry.inodes_count,
        })?;
        let slot = &mut *self.slots[group.0 as usize].lock();
        let bitmap = inode_bitmap(disk, edit, group, slot)?;
        let was_used = edit.change(&bitmap, Owner::of(Kind::Bitmap), |bytes| {
            let used = get(bytes, index);
            set_range(bytes, index, 1, false);
            used
        });
        if !was_used {
            return Err(Error::Corrupt(Damage::InodeField {
                ino,
                field: "bitmap",
                value: 0,
                why: "the inode is free already",
            }));
        }
        slot.inodes_changed = true;
        self.list(group, slot);
        slot.next_inode = slot.next_inode.min(index);
        slot.desc.free_inodes += 1;
        // A damaged count may say that there was none.
        let dirs = slot.desc.used_dirs.min(directory.into());
        slot.desc.used_dirs -= dirs;
        let counted = u64::from(!slot.inodes_bad);
        for tally in self.tallies(group) {
            tally.free_inodes.fetch_add(counted, Relaxed);
            tally.used_dirs.fetch_sub(dirs.into(), Relaxed);
        }
        Ok(())
    }

    /// The groups as the allocator sees them, changed through `edit`.
    pub(crate) fn bitmaps<'a, E: Edit>(&'a self, disk: &'a Disk, edit: &'a E) -> Bitmaps<'a, E> {
        Bitmaps::new(self, disk, edit)
    }

    fn mark(
        &self,
        disk: &Disk,
        edit: &impl Edit,
        group: GroupNr,
        start: u32,
        len: u32,
        used: bool,
    ) -> Result<()> {
        let slot = &mut *self.slots[group.0 as usize].lock();
        let desc = &mut slot.desc;
        let owner = Owner::of(Kind::Bitmap);
        let buffer = if is_uninit(disk, desc, BG_BLOCK_UNINIT) {
            let fresh = fresh_block_bitmap(disk, group, desc);
            let buffer = edit.fresh(desc.block_bitmap);
            edit.change(&buffer, owner, |bytes| bytes.copy_from_slice(&fresh));
            desc.flags &= !BG_BLOCK_UNINIT;
            buffer
        } else {
            block_bitmap(disk, group, desc, slot.blocks_changed)?
        };
        let agrees = edit.change(&buffer, owner, |bytes| {
            let agrees = all_are(bytes, start, len, !used);
            if agrees {
                set_range(bytes, start, len, used);
            }
            agrees
        });
        let room = if used { desc.free_clusters } else { u32::MAX };
        if !agrees || len > room {
            return Err(Error::Corrupt(Damage::BitmapCount {
                group,
                what: "block bitmap",
                bitmap: len,
                descriptor: desc.free_clusters,
            }));
        }
        if used {
            desc.free_clusters -= len;
        } else {
            desc.free_clusters += len;
        }
        for tally in self.tallies(group) {
            if used {
                tally.free_blocks.fetch_sub(len.into(), Relaxed);
            } else {
                tally.free_blocks.fetch_add(len.into(), Relaxed);
            }
        }
        slot.blocks_changed = true;
        self.list(group, slot);
        Ok(())
    }

    /// Sums the bitmaps of the groups that changed, and stores their descriptors through `edit`.
    /// Returns whether there were any.
    pub(crate) fn rule(&self, disk: &Disk, edit: &impl Edit) -> Result<bool> {
        let geometry = disk.geometry();
        let mut changed = std::mem::take(&mut *self.changed.lock());
        changed.sort_unstable();
        let (len, per_block) = (usize::from(geometry.desc_size), geometry.descs_per_block());
        for groups in changed.chunk_by(|a, b| a.0 / per_block == b.0 / per_block) {
            let block = geometry.gdt_block(groups[0].0 / per_block);
            let owner = Owner::of(Kind::GroupDesc);
            let buffer = disk.bread("group descriptors", block, owner.tag(), |_| Ok(()))?;
            for &group in groups {
                let slot = &mut *self.slots[group.0 as usize].lock();
                slot.listed = false;
                sum_bitmaps(disk, slot)?;
                edit.change(&buffer, owner, |bytes| {
                    let at = (group.0 % per_block) as usize * len;
                    if let Some(bytes) = bytes.get_mut(at..at + len) {
                        slot.desc.store(bytes, group, geometry.desc_checksum);
                    }
                });
            }
        }
        Ok(!changed.is_empty())
    }

    /// Stores all descriptors through `edit`, backups included.
    pub(crate) fn store(&self, disk: &Disk, edit: &impl Edit) -> Result<()> {
        self.rule(disk, edit)?;
        let geometry = disk.geometry();
        let owner = Owner::of(Kind::GroupDesc);
        let blocks = geometry
            .groups_count
            .get()
            .div_ceil(geometry.descs_per_block());
        for index in 0..blocks {
            let primary = geometry.gdt_block(index);
            let buffer = disk.bread("group descriptors", primary, owner.tag(), |_| Ok(()))?;
            // Written even if no group of it changed: it is as new as the rest.
            edit.change(&buffer, owner, |_| ());
            let content = buffer.data();
            for backup in geometry.gdt_backups(index) {
                let buffer = edit.fresh(backup);
                edit.change(&buffer, owner, |bytes| bytes.copy_from_slice(&content));
            }
        }
        Ok(())
    }

    /// Group that the last directory made in `parent` got, as far as it is known.
    pub(crate) fn last_dir(&self, parent: Ino) -> Option<GroupNr> {
        let group = self.last_dirs[parent.0 as usize % LAST_DIRS].load(Relaxed);
        (group < self.groups()).then_some(GroupNr(group))
    }

    /// Remembers where a directory made in `parent` went.
    pub(crate) fn set_last_dir(&self, parent: Ino, group: GroupNr) {
        self.last_dirs[parent.0 as usize % LAST_DIRS].store(group.0, Relaxed);
    }
}

impl Counts for Groups {
    fn groups(&self) -> u32 {
        // OK to truncate: a group's number has 32 bits.
        self.slots.len() as u32
    }

    fn group(&self, group: GroupNr) -> GroupCounts {
        let stats = self.tallies[group.0 as usize].stats();
        GroupCounts {
            free_inodes: stats.free_inodes as u32,
            free_blocks: stats.free_blocks as u32,
        }
    }

    fn flexes(&self) -> usize {
        self.flex.len()
    }

    fn flex(&self, flex: usize) -> FlexStats {
        self.flex[flex].stats()
    }

    fn total(&self) -> FlexStats {
        self.total.stats()
    }
}

/// The group's inode bitmap, made if there is none yet.
fn inode_bitmap(disk: &Disk, edit: &impl Edit, group: GroupNr, slot: &mut Slot) -> Result<Buffer> {
    let inodes = disk.geometry().inodes_per_group.get();
    let desc = &mut slot.desc;
    if is_uninit(disk, desc, BG_INODE_UNINIT) {
        desc.flags &= !BG_INODE_UNINIT;
        slot.inodes_changed = true;
        let buffer = edit.fresh(desc.inode_bitmap);
        edit.change(&buffer, Owner::of(Kind::Bitmap), |bytes| pad(bytes, inodes));
        return Ok(buffer);
    }
    let stored = (!slot.inodes_changed).then_some(desc.inode_bitmap_csum);
    read_bitmap(
        disk,
        "inode bitmap",
        group,
        desc.inode_bitmap,
        inodes,
        stored,
    )
}

/// The group's block bitmap, which must be initialised; `changed`: not as it was read.
fn block_bitmap(disk: &Disk, group: GroupNr, desc: &GroupDesc, changed: bool) -> Result<Buffer> {
    let blocks = disk.geometry().clusters_per_group.get();
    let stored = (!changed).then_some(desc.block_bitmap_csum);
    read_bitmap(
        disk,
        "block bitmap",
        group,
        desc.block_bitmap,
        blocks,
        stored,
    )
}

/// Puts the checksums of changed bitmaps into the descriptor.
fn sum_bitmaps(disk: &Disk, slot: &mut Slot) -> Result<()> {
    let geometry = disk.geometry();
    let desc_size = usize::from(geometry.desc_size);
    let sum = |block: Pblk, bits: u32| -> Result<u32> {
        let Some(seed) = geometry.csum_seed else {
            return Ok(0);
        };
        let buffer = disk.bread("bitmap", block, Owner::of(Kind::Bitmap).tag(), |_| Ok(()))?;
        let data = buffer.data();
        let summed = data.get(..(bits / 8) as usize).unwrap_or(&data);
        Ok(bitmap_checksum(seed, summed, desc_size))
    };
    let desc = &mut slot.desc;
    if slot.blocks_changed {
        desc.block_bitmap_csum = sum(desc.block_bitmap, geometry.clusters_per_group.get())?;
    }
    if slot.inodes_changed {
        desc.inode_bitmap_csum = sum(desc.inode_bitmap, geometry.inodes_per_group.get())?;
    }
    (slot.blocks_changed, slot.inodes_changed) = (false, false);
    Ok(())
}

/// Everything a descriptor points to must lie in the file system. A count of free blocks that is
/// too large is the allocator's matter.
fn check_places(geometry: &Geometry, group: GroupNr, desc: &GroupDesc) -> Result<()> {
    let table_blocks = u64::from(geometry.itable_blocks());
    for (what, block, len) in [
        ("block bitmap", desc.block_bitmap, 1),
        ("inode bitmap", desc.inode_bitmap, 1),
        ("inode table", desc.inode_table, table_blocks),
    ] {
        // Block 0 and the superblock's hold nothing else, so a table of zeroes describes no groups.
        if !geometry.may_place(group, block, len) || block <= geometry.superblock_block() {
            return Err(Error::Corrupt(Damage::DescLocation { group, what, block }));
        }
    }
    if desc.free_inodes > geometry.inodes_per_group.get() {
        return Err(Error::Corrupt(Damage::BitmapCount {
            group,
            what: "group descriptor",
            bitmap: geometry.inodes_per_group.get(),
            descriptor: desc.free_inodes,
        }));
    }
    Ok(())
}
