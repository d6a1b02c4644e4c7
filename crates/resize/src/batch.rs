//! What moves, in transactions: each leaves the file system whole, with its old size.

use std::collections::BTreeMap;
use std::sync::Arc;

use uext4_blockdev::Clock;
use uext4_ondisk::features::Compat;
use uext4_ondisk::group_desc::{DescChecksum, GroupDesc};
use uext4_ondisk::inode::{RawInode, update_checksum};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};

use crate::bitmap::Bitmap;
use crate::state::State;
use crate::transaction::{self, Copied, Recovery};
use crate::{Error, Result};

/// What has changed since the last transaction.
pub struct Batch<'a> {
    pub state: State,
    clock: &'a Arc<dyn Clock>,
    /// The first block that goes.
    pub limit: Pblk,
    /// Inodes that stay: the numbers up to it.
    pub inodes: u32,
    /// The superblock, with its counts kept up to date.
    pub superblock: SuperBlock,
    /// Descriptors that differ from those on the device.
    descs: BTreeMap<GroupNr, GroupDesc>,
    pub(crate) bitmaps: BTreeMap<GroupNr, Bitmap>,
    pub(crate) inode_bitmaps: BTreeMap<GroupNr, Bitmap>,
    edits: BTreeMap<Pblk, Vec<u8>>,
    /// Where the next free blocks, and free inodes, are looked for.
    pub(crate) next_group: GroupNr,
    pub(crate) next_inode_group: GroupNr,
    /// Blocks that one transaction may have.
    capacity: usize,
    /// What is copied of the log while it moves; it is not freed yet.
    pub copies: Option<Vec<Copied>>,
}

impl<'a> Batch<'a> {
    /// Nothing yet.
    ///
    /// # Errors
    /// Those of reading the journal.
    pub fn new(state: State, clock: &'a Arc<dyn Clock>, new: &Geometry) -> Result<Self> {
        Ok(Self {
            capacity: transaction::capacity(&state, clock)?,
            superblock: state.superblock,
            state,
            clock,
            limit: Pblk(new.blocks_count),
            inodes: new.inodes_count,
            descs: BTreeMap::new(),
            bitmaps: BTreeMap::new(),
            inode_bitmaps: BTreeMap::new(),
            edits: BTreeMap::new(),
            next_group: GroupNr(0),
            next_inode_group: GroupNr(0),
            copies: None,
        })
    }

    /// The journal's inode, 0 if there is none.
    pub fn journal(&self) -> Ino {
        let features = self.superblock.features();
        match features.compat.contains(Compat::HAS_JOURNAL) {
            true => Ino(self.superblock.s_journal_inum.get()),
            false => Ino(0),
        }
    }

    /// The shape as it is.
    pub fn geometry(&self) -> &Geometry {
        &self.state.geometry
    }

    /// A block as it will be.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a block outside the file system; those of the device.
    pub fn block(&self, block: Pblk) -> Result<Vec<u8>> {
        if let Some(bytes) = self.edits.get(&block) {
            return Ok(bytes.clone());
        }
        if !self.geometry().contains(block, 1) {
            let what = "a file has a block outside the file system";
            return Err(Error::Unsound { what });
        }
        self.state.block(block)
    }

    /// A block, to be changed.
    ///
    /// # Errors
    /// Those of [`Batch::block`].
    pub fn edit(&mut self, block: Pblk) -> Result<&mut Vec<u8>> {
        match self.edits.contains_key(&block) {
            true => {}
            false => self.put(block, self.block(block)?),
        }
        Ok(self.edits.entry(block).or_default())
    }

    /// Puts a whole block.
    pub fn put(&mut self, block: Pblk, bytes: Vec<u8>) {
        self.edits.insert(block, bytes);
    }

    /// A group's descriptor as it will be.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn desc(&self, group: GroupNr) -> Result<GroupDesc> {
        match self.descs.get(&group) {
            Some(desc) => Ok(*desc),
            None => self.state.desc(group),
        }
    }

    /// A group's descriptor, to be changed.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn desc_mut(&mut self, group: GroupNr) -> Result<&mut GroupDesc> {
        let now = self.desc(group)?;
        Ok(self.descs.entry(group).or_insert(now))
    }

    /// Where an inode is stored: its block, and the offset in it.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a number that no inode has.
    pub fn place_of(&self, ino: Ino) -> Result<InodePlace> {
        let geometry = self.geometry();
        let Some((group, index)) = geometry.inode_group(ino) else {
            let what = "a name has an inode number that there is not";
            return Err(Error::Unsound { what });
        };
        let at = u64::from(index) * u64::from(geometry.inode_size);
        let bits = geometry.block_size.log2();
        Ok(InodePlace {
            block: Pblk(self.desc(group)?.inode_table.0.saturating_add(at >> bits)),
            offset: at as usize & (geometry.block_size.len() - 1),
        })
    }

    /// The bytes of an inode.
    ///
    /// # Errors
    /// Those of [`Batch::place_of`] and [`Batch::block`].
    pub fn inode(&self, ino: Ino) -> Result<Vec<u8>> {
        let place = self.place_of(ino)?;
        let len = usize::from(self.geometry().inode_size);
        Ok(self.block(place.block)?[place.offset..][..len].to_vec())
    }

    /// Stores an inode, with its checksum.
    ///
    /// # Errors
    /// Those of [`Batch::inode`].
    pub fn put_inode(&mut self, ino: Ino, mut bytes: Vec<u8>) -> Result<()> {
        if let Some(seed) = self.geometry().csum_seed {
            let generation = RawInode::parse(&bytes, ino)?.i_generation.get();
            update_checksum(&mut bytes, seed, ino, generation);
        }
        let place = self.place_of(ino)?;
        let block = self.edit(place.block)?;
        block[place.offset..][..bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    /// Copies blocks to where nothing refers to yet.
    ///
    /// # Errors
    /// Those of the device.
    pub fn copy(&mut self, from: Pblk, to: Pblk, blocks: u64) -> Result<()> {
        let copied = Copied { from, to, blocks };
        if let Some(copies) = &mut self.copies {
            copies.push(copied);
        }
        copied.copy(&**self.state.device(), self.geometry().block_size)
    }

    /// Commits if another piece of work might not fit the transaction.
    ///
    /// # Errors
    /// Those of [`Batch::commit`].
    pub fn commit_if_large(&mut self) -> Result<()> {
        self.make_room(self.capacity / 2)
    }

    /// Commits unless a piece of work of so many blocks, and the bitmaps that it changes, fits the
    /// transaction.
    ///
    /// # Errors
    /// Those of [`Batch::commit`].
    pub fn make_room(&mut self, blocks: usize) -> Result<()> {
        let bitmaps = self.bitmaps.values().chain(self.inode_bitmaps.values());
        let changed = bitmaps.filter(|bitmap| bitmap.is_changed).count();
        let waiting = self.edits.len() + 2 * changed;
        match waiting.saturating_add(blocks) > self.capacity && waiting > 0 {
            true => self.commit(),
            false => Ok(()),
        }
    }

    /// Makes all that has changed one transaction.
    ///
    /// # Errors
    /// [`Error::JournalTooSmall`], those of the journal and the device.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_for(Recovery::ByAnybody)
    }

    /// The same for a transaction that not any recovery can be trusted with.
    ///
    /// # Errors
    /// Those of [`Batch::commit`].
    pub fn commit_for(&mut self, recovery: Recovery) -> Result<()> {
        self.store_bitmaps()?;
        self.store_descs()?;
        if self.edits.is_empty() {
            return Ok(());
        }
        self.superblock.update_checksum();
        let (state, blocks) = (&self.state, &self.edits);
        transaction::commit(state, self.clock, blocks, &self.superblock, recovery)?;
        self.edits.clear();
        self.reopen()
    }

    /// Reads anew what was written.
    ///
    /// # Errors
    /// Those of [`State::open`].
    pub fn reopen(&mut self) -> Result<()> {
        let device = Arc::clone(self.state.device());
        self.state = State::open(&device, self.clock)?;
        self.superblock = self.state.superblock;
        Ok(())
    }

    fn store_bitmaps(&mut self) -> Result<()> {
        let desc_size = self.geometry().desc_size.into();
        let seed = self.geometry().csum_seed;
        let clusters = self.geometry().clusters_per_group.get();
        let inodes = self.geometry().inodes_per_group.get();
        let blocks = std::mem::take(&mut self.bitmaps);
        for (&group, bitmap) in &blocks {
            if bitmap.is_changed {
                let desc = self.desc_mut(group)?;
                desc.flags &= !uext4_ondisk::group_desc::BG_BLOCK_UNINIT;
                desc.block_bitmap_csum = bitmap.checksum(seed, clusters, desc_size);
                let at = desc.block_bitmap;
                self.put(at, bitmap.bytes.clone());
            }
        }
        let tables = std::mem::take(&mut self.inode_bitmaps);
        for (&group, bitmap) in &tables {
            if bitmap.is_changed {
                let desc = self.desc_mut(group)?;
                desc.inode_bitmap_csum = bitmap.checksum(seed, inodes, desc_size);
                let at = desc.inode_bitmap;
                self.put(at, bitmap.bytes.clone());
            }
        }
        Ok(())
    }

    fn store_descs(&mut self) -> Result<()> {
        let (per_block, len, how) = {
            let geometry = self.geometry();
            let len = usize::from(geometry.desc_size);
            (geometry.descs_per_block(), len, geometry.desc_checksum)
        };
        for (group, desc) in std::mem::take(&mut self.descs) {
            let block = self.geometry().gdt_block(group.0 / per_block);
            let at = (group.0 % per_block) as usize * len;
            let bytes = self.edit(block)?;
            desc.store(&mut bytes[at..at + len], group, how);
        }
        Ok(())
    }

    /// Whether descriptors say what of bitmaps and tables was never written.
    pub fn has_uninit(&self) -> bool {
        self.geometry().desc_checksum != DescChecksum::None
    }
}

/// Where an inode is stored.
#[derive(Clone, Copy, Debug)]
pub struct InodePlace {
    /// The block of the table.
    pub block: Pblk,
    /// Bytes from its beginning.
    pub offset: usize,
}
