//! Keeping the orphans: inodes that must be deleted, or cut to their size, if the power goes now.
//!
//! They stand in the slots of the orphan file where there is one, else in a list that starts in
//! the superblock and goes on in the `i_dtime` of each. Memory knows every place, so that leaving
//! costs no search. One lock guards all of it: it is held for a few changes of blocks, inside a
//! handle.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use uext4_ondisk::features::Compat;
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::orphan::{OrphanBlock, inodes_per_block};
use uext4_ondisk::{Ino, Lblk, Pblk};

use crate::base::disk::Disk;
use crate::base::edit::Edit;
use crate::base::error::Result;
use crate::base::owner::{Kind, Owner};
use crate::inode::store::change_bytes;
use crate::inode::{InodeId, MapBlocks, iget};

/// Bytes of a slot.
const SLOT_LEN: usize = 4;

/// A way to change blocks that can change the superblock, too, where the list begins.
pub(crate) trait EditList: Edit {
    /// Lets the list begin with this inode; 0 for none.
    fn set_last_orphan(&self, ino: Ino);
}

/// Where an orphan stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the list: higher numbers stand nearer to its head.
    List(u64),
    /// In the orphan file: block of the device, and slot.
    Slot(Pblk, u32),
}

/// The orphan file.
#[derive(Debug)]
struct File {
    owner: Owner,
    blocks: Vec<Pblk>,
    /// Slot, over all blocks, where the search for a free one begins.
    next: u32,
    used: u32,
}

#[derive(Debug, Default)]
struct State {
    places: FxHashMap<Ino, Place>,
    list: BTreeMap<u64, InodeId>,
    /// Number of the next one in the list.
    next: u64,
    file: Option<File>,
}

/// The orphans of a mounted file system.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    state: Mutex<State>,
    /// How many there are: most inodes that are deleted never were among them, and where there
    /// are none that is found out without the lock.
    count: AtomicUsize,
}

impl Orphans {
    /// Of a file system as it was left.
    pub(crate) fn open(disk: &Disk, map: MapBlocks) -> Result<Self> {
        let mut state = State::default();
        // The first of those reported are the list's, from its head on; it has been tested for
        // circles.
        let all = crate::orphan::orphans(disk, map)?;
        state.load_file(disk, map)?;
        let in_list = |ino: &&Ino| !state.places.contains_key(ino);
        let list: Vec<Ino> = all.iter().filter(in_list).copied().collect();
        for &ino in list.iter().rev() {
            let number = state.next;
            state.next += 1;
            state.list.insert(number, iget(disk, ino)?.id());
            state.places.insert(ino, Place::List(number));
        }
        Ok(Self {
            count: AtomicUsize::new(state.places.len()),
            state: Mutex::new(state),
        })
    }

    /// Whether this is one.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.state.lock().places.contains_key(&ino)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self.state.lock().places.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Blocks that adding or removing one may change.
    pub(crate) const CREDITS: u32 = 3;

    /// Adds an inode, unless it is there.
    pub(crate) fn add(
        &self,
        disk: &Disk,
        edit: &impl EditList,
        ino: Ino,
        generation: u32,
    ) -> Result<()> {
        let state = &mut *self.state.lock();
        if state.places.contains_key(&ino) {
            return Ok(());
        }
        if let Some(file) = &mut state.file
            && let Some((block, slot)) = file.take_slot(disk, edit, ino)?
        {
            state.places.insert(ino, Place::Slot(block, slot));
            self.count.store(state.places.len(), Relaxed);
            return Ok(());
        }
        let id = InodeId { ino, generation };
        let head = state.list.last_key_value().map_or(0, |(_, id)| id.ino.0);
        set_next(disk, edit, id, head)?;
        edit.set_last_orphan(ino);
        let number = state.next;
        state.next += 1;
        state.list.insert(number, id);
        state.places.insert(ino, Place::List(number));
        self.count.store(state.places.len(), Relaxed);
        Ok(())
    }

    /// Removes an inode, if it is there.
    pub(crate) fn remove(
        &self,
        disk: &Disk,
        edit: &impl EditList,
        ino: Ino,
        generation: u32,
    ) -> Result<()> {
        // A thread that may remove one has seen it added: the inode's lock lies between the two.
        if self.count.load(Relaxed) == 0 {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let place = state.places.remove(&ino);
        self.count.store(state.places.len(), Relaxed);
        match place {
            None => Ok(()),
            Some(Place::Slot(block, slot)) => match &mut state.file {
                Some(file) => {
                    file.used -= 1;
                    file.put(disk, edit, block, slot, Ino(0)).map(|_| ())
                }
                None => Ok(()),
            },
            Some(Place::List(number)) => {
                state.list.remove(&number);
                let after = state.list.range(..number).next_back();
                let after = after.map_or(0, |(_, id)| id.ino.0);
                match state.list.range(number..).next() {
                    Some((_, before)) => set_next(disk, edit, *before, after)?,
                    None => edit.set_last_orphan(Ino(after)),
                }
                set_next(disk, edit, InodeId { ino, generation }, 0)
            }
        }
    }
}

/// Sets `i_dtime`: the next of the list, or the time of deletion.
pub(crate) fn set_next(disk: &Disk, edit: &impl Edit, id: InodeId, value: u32) -> Result<()> {
    let at = offset_of!(RawInode, i_dtime);
    change_bytes(disk, edit, id, |bytes| {
        bytes[at..at + 4].copy_from_slice(&uext4_ondisk::checksum::le32(value));
        Ok(())
    })
}

impl State {
    /// Finds the orphan file and what stands in it.
    fn load_file(&mut self, disk: &Disk, map: MapBlocks) -> Result<()> {
        let ino = Ino(disk.superblock().s_orphan_file_inum.get());
        let has_file = disk
            .geometry()
            .features
            .compat
            .contains(Compat::ORPHAN_FILE);
        if !has_file || ino.0 == 0 {
            return Ok(());
        }
        let inode = iget(disk, ino)?;
        let owner = Owner::new(Kind::Orphan, 0, ino, inode.generation);
        let mut file = File {
            owner,
            blocks: Vec::new(),
            next: 0,
            used: 0,
        };
        // OK to truncate: `orphans` has refused a larger file than there may be.
        let count = disk.geometry().block_size.blocks_for(inode.size) as u32;
        for lblk in 0..count {
            let block = map(disk, &inode, Lblk(lblk), 1)?.pblk;
            file.blocks.push(block);
            let buffer = disk.bread("orphan file", block, owner.tag(), |_| Ok(()))?;
            let data = buffer.data();
            let orphans = OrphanBlock::parse(&data, block, None)?;
            for (slot, ino) in orphans.slots().filter(|(_, ino)| ino.0 != 0) {
                self.places.insert(ino, Place::Slot(block, slot));
                file.used += 1;
            }
        }
        self.file = (!file.blocks.is_empty()).then_some(file);
        Ok(())
    }
}

impl File {
    /// Puts an inode into a free slot; `None` if there is none.
    fn take_slot(
        &mut self,
        disk: &Disk,
        edit: &impl Edit,
        ino: Ino,
    ) -> Result<Option<(Pblk, u32)>> {
        let per_block = inodes_per_block(disk.block_len()) as u32;
        let slots = per_block * self.blocks.len() as u32;
        if self.used >= slots {
            return Ok(None);
        }
        for i in 0..slots {
            let slot = (self.next + i) % slots;
            let block = self.blocks[(slot / per_block) as usize];
            if self.put(disk, edit, block, slot % per_block, ino)? {
                self.next = (slot + 1) % slots;
                self.used += 1;
                return Ok(Some((block, slot % per_block)));
            }
        }
        Ok(None)
    }

    /// Puts a number into a slot; an inode only into a free one. Returns whether it did.
    fn put(&self, disk: &Disk, edit: &impl Edit, block: Pblk, slot: u32, ino: Ino) -> Result<bool> {
        let buffer = disk.bread("orphan file", block, self.owner.tag(), |_| Ok(()))?;
        let at = slot as usize * SLOT_LEN;
        let taken = |bytes: &[u8]| bytes.get(at..at + SLOT_LEN) != Some(&[0; SLOT_LEN]);
        if ino.0 != 0 && taken(&buffer.data()) {
            return Ok(false);
        }
        edit.change(&buffer, self.owner, |bytes| {
            let bytes = bytes.get_mut(at..at + SLOT_LEN);
            bytes.map(|bytes| bytes.copy_from_slice(&uext4_ondisk::checksum::le32(ino.0)))
        });
        Ok(true)
    }
}
