//! The file system as it lies on its device: cache, superblock, shape. Functions that read take it.
//!
//! Left out: how it comes to be (`mount::super`), what writing adds (`journal::sbi`), and
//! everything that knows an inode.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use uext4_blockdev::BlockDevice;
use uext4_buffer_cache::{Buffer, BufferCache, VerifyTag};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::group_desc::{DescChecksum, GroupDesc, desc_checksum};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Damage, Geometry, GroupNr, Ino, Pblk};
use uext4_support::Replaced;

use crate::base::error::{Error, Result};
use crate::base::fast_commit::ReplaySummary;
use crate::base::invalid::Invalid;
use crate::base::owner::{self, Kind, tag};
use crate::base::rescue::Rescue;
use uext4_ondisk::fast_commit::FastCommit;

/// Blocks of an inode table that are read at once, a power of two.
pub(crate) const ITABLE_READAHEAD: u64 = 32;
/// Readahead windows remembered, so that a hit costs one comparison.
const WINDOWS: usize = 64;

/// What a file system mounted for writing knows better than its blocks, as far as reading must
/// know.
pub(crate) trait Writing: Debug + Send + Sync {
    /// A group's descriptor as it is now, which its block shows only after the next commit.
    /// `None` past the last group.
    fn group_desc(&self, group: GroupNr) -> Option<GroupDesc>;
    /// Where a group's inode table begins, which never changes. `None` past the last group.
    fn inode_table(&self, group: GroupNr) -> Option<Pblk>;
    /// Takes note of an error where it is damage, or a block of metadata that cannot be read: it is
    /// recorded later. Any locks may be held.
    fn met(&self, ino: Option<Ino>, unread: Option<Pblk>, error: &Error);
}

/// What a file system is, until it grows.
#[derive(Debug)]
struct Shape {
    superblock: SuperBlock,
    geometry: Geometry,
}

/// A file system on its device.
#[derive(Debug)]
pub(crate) struct Disk {
    device: Arc<dyn BlockDevice>,
    cache: Arc<BufferCache>,
    shape: Replaced<Shape>,
    /// Block of the superblock that was read: 0 or 1 for the primary, else a backup's, whose
    /// copy of the descriptors follows it.
    superblock_at: Pblk,
    itable_windows: [AtomicU64; WINDOWS],
    /// What the fast commits of an unreplayed journal change.
    fast_commit: Option<Box<FastCommit>>,
    replayed: Option<ReplaySummary>,
    /// What it took to read a file system that is not whole.
    rescue: Rescue,
    /// What there is beyond reading, when mounted for writing.
    writing: OnceLock<Arc<dyn Writing>>,
}

impl Disk {
    /// Puts the parts together. `superblock_at` is the block that `superblock` came from.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        cache: Arc<BufferCache>,
        superblock: SuperBlock,
        geometry: Geometry,
        superblock_at: Pblk,
    ) -> Self {
        Self {
            device,
            cache,
            shape: Replaced::new(Shape {
                superblock,
                geometry,
            }),
            superblock_at,
            itable_windows: [const { AtomicU64::new(u64::MAX) }; WINDOWS],
            fast_commit: None,
            replayed: None,
            rescue: Rescue::default(),
            writing: OnceLock::new(),
        }
    }

    /// Lays fast commits over the file system.
    pub(crate) fn set_fast_commit(&mut self, fast_commit: FastCommit) {
        self.fast_commit = Some(Box::new(fast_commit));
    }

    /// Remembers what the journal changed.
    pub(crate) fn set_replayed(&mut self, summary: ReplaySummary) {
        self.replayed = Some(summary);
    }

    /// What the journal changed, if it had to be looked into.
    pub(crate) fn replayed(&self) -> Option<&ReplaySummary> {
        self.replayed.as_ref()
    }

    /// Remembers what it took to read a file system that is not whole.
    pub(crate) fn set_rescue(&mut self, rescue: Rescue) {
        self.rescue = rescue;
    }

    /// What it took to read a file system that is not whole.
    pub(crate) fn rescue(&self) -> &Rescue {
        &self.rescue
    }

    /// Blocks of the file system that the device holds.
    pub(crate) fn blocks_present(&self) -> u64 {
        let have = self
            .rescue
            .cut_off
            .map(|cut| cut.have >> self.geometry().block_size.log2());
        have.unwrap_or(u64::MAX).min(self.geometry().blocks_count)
    }

    /// Reads the primary descriptors next to a backup of the superblock, if all of them are
    /// sound: they are newer than those that follow the backup.
    pub(crate) fn prefer_primary_descriptors(&mut self) {
        let backup = std::mem::replace(&mut self.superblock_at, Pblk(0));
        let table_blocks = u64::from(self.geometry().itable_blocks());
        let is_sound = |group| {
            let desc = self.group_desc(GroupNr(group));
            desc.is_ok_and(|desc| self.geometry().contains(desc.inode_table, table_blocks))
        };
        if !(0..self.geometry().groups_count.get()).all(is_sound) {
            self.superblock_at = backup;
        }
    }

    /// What fast commits change, if there are any.
    pub(crate) fn fast_commit(&self) -> Option<&FastCommit> {
        self.fast_commit.as_deref()
    }

    /// From now on it is written, and memory knows what is newer than the blocks. Only called
    /// once, by what opened it.
    pub(crate) fn set_writing(&self, writing: Arc<dyn Writing>) {
        _ = self.writing.set(writing);
    }

    /// What memory knows of a file system mounted for writing.
    fn writing(&self) -> Option<&dyn Writing> {
        self.writing.get().map(|writing| &**writing)
    }

    /// The device, with the journal replayed over it.
    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The cache of metadata blocks.
    pub(crate) fn cache(&self) -> &Arc<BufferCache> {
        &self.cache
    }

    /// The superblock, as it was when the file system was opened, or last grew.
    pub(crate) fn superblock(&self) -> &SuperBlock {
        &self.shape.get().superblock
    }

    /// The validated shape. One that was read before the file system grew stays good: it lacks the
    /// groups that were added, and is right of all others.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.shape.get().geometry
    }

    /// The file system has grown: this is what it is from now on. What is known of each group has
    /// been added before.
    pub(crate) fn set_grown(&self, superblock: SuperBlock, geometry: Geometry) {
        self.shape.set(Shape {
            superblock,
            geometry,
        });
    }

    /// Whether new files are mapped by extents.
    pub(crate) fn has_extents(&self) -> bool {
        let incompat = self.geometry().features.incompat;
        incompat.contains(Incompat::EXTENTS)
    }

    /// Bytes of a block.
    pub(crate) fn block_len(&self) -> usize {
        self.geometry().block_size.len()
    }

    /// Reads a block of metadata through the cache. `what` names it in errors.
    pub(crate) fn bread(
        &self,
        what: &'static str,
        block: Pblk,
        tag: VerifyTag,
        verify: impl FnOnce(&[u8]) -> std::result::Result<(), Damage>,
    ) -> Result<Buffer> {
        self.check_range(what, block, 1)?;
        let reuse = owner::reuse(tag);
        let read = self.cache.bread_expecting(block, reuse, tag, verify);
        read.map_err(|error| {
            let error = Error::from(error);
            // Damage is noted by what knows the inode.
            if let (Error::Device(_), Some(writing)) = (&error, self.writing()) {
                writing.met(None, Some(block), &error);
            }
            error
        })
    }

    /// Takes note of an error that an inode, or something else, was met with.
    pub(crate) fn note(&self, ino: Option<Ino>, error: &Error) {
        if let Some(writing) = self.writing() {
            writing.met(ino, None, error);
        }
    }

    /// Fails with [`Damage::BlockRange`] if the blocks do not all lie in the file system.
    pub(crate) fn check_range(&self, what: &'static str, start: Pblk, len: u64) -> Result<()> {
        if self.geometry().contains(start, len) {
            return Ok(());
        }
        Err(Error::Corrupt(Damage::BlockRange {
            what,
            start,
            len,
            blocks_count: self.geometry().blocks_count,
        }))
    }

    /// Byte offset on the device of a block that [`Disk::check_range`] has accepted.
    pub(crate) fn byte_offset(&self, block: Pblk) -> u64 {
        block.0 << self.geometry().block_size.log2()
    }

    /// Reads a group descriptor and verifies its checksum.
    pub(crate) fn group_desc(&self, group: GroupNr) -> Result<GroupDesc> {
        if let Some(desc) = self.writing().and_then(|state| state.group_desc(group)) {
            return Ok(desc);
        }
        let geometry = self.geometry();
        if group.0 >= geometry.groups_count.get() {
            let (group, groups) = (group.0, geometry.groups_count.get());
            return Err(Invalid::Group { group, groups }.into());
        }
        let per_block = geometry.descs_per_block();
        let block = self.gdt_block(group.0 / per_block);
        let buffer = self.bread("group descriptors", block, tag(Kind::GroupDesc), |_| Ok(()))?;
        let data = buffer.data();
        let len = usize::from(geometry.desc_size);
        let at = (group.0 % per_block) as usize * len;
        let bytes = data.get(at..at + len).unwrap_or_default();
        let desc = GroupDesc::parse(bytes);
        if geometry.desc_checksum != DescChecksum::None {
            let computed = desc_checksum(bytes, group, geometry.desc_checksum);
            if desc.checksum != computed {
                return Err(Error::Corrupt(Damage::DescChecksum {
                    group,
                    stored: desc.checksum,
                    computed,
                }));
            }
        }
        Ok(desc)
    }

    /// Where a group's inode table begins; not verified to lie in the file system.
    pub(crate) fn inode_table(&self, group: GroupNr) -> Result<Pblk> {
        match self.writing().and_then(|state| state.inode_table(group)) {
            Some(table) => Ok(table),
            None => Ok(self.group_desc(group)?.inode_table),
        }
    }

    /// Block of descriptor block `index`, in the copy that belongs to the superblock in use.
    fn gdt_block(&self, index: u32) -> Pblk {
        let primary = self.geometry().gdt_block(index);
        let in_table = self.geometry().gdt_block(0).0.checked_add(u64::from(index));
        if self.superblock_at.0 > 1 && in_table == Some(primary.0) {
            return Pblk(self.superblock_at.0 + 1 + u64::from(index));
        }
        primary
    }

    /// Reads ahead the blocks round `block` of the inode table `start..end`, once per window.
    pub(crate) fn read_itable_ahead(&self, block: Pblk, start: Pblk, end: Pblk) {
        let window = block.0 / ITABLE_READAHEAD;
        let slot = &self.itable_windows[(window % WINDOWS as u64) as usize];
        // Asked for every inode, changed for few.
        if slot.load(Ordering::Relaxed) != window && slot.swap(window, Ordering::Relaxed) != window
        {
            let from = (window * ITABLE_READAHEAD).max(start.0);
            let to = ((window + 1) * ITABLE_READAHEAD).min(end.0);
            self.cache
                .readahead(Pblk(from), to.saturating_sub(from) as u32);
        }
    }
}
