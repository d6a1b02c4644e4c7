//! Gives inodes whose tables go a number that stays, and all that names them the new one.

use std::collections::HashMap;

use uext4_ondisk::dir_entry::{self, DIR_ENTRY_HEADER_LEN, decode_rec_len};
use uext4_ondisk::features::Compat;
use uext4_ondisk::htree;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::{GroupNr, Ino, Lblk};

use crate::batch::Batch;
use crate::inodes::{MapKind, inodes_of};
use crate::move_blocks::sum_orphan_file;
use crate::references::{DirPlace, Holder, Reference, all_references, blocks_of_dir};
use crate::{Error, Result, extents};

/// The work on inodes.
struct Renumber<'a, 'b> {
    batch: &'a mut Batch<'b>,
    /// By number of the inode that they name.
    references: Vec<Reference>,
    /// New numbers by old ones.
    new: HashMap<Ino, Ino>,
}

/// Inodes past those that stay.
fn going(batch: &Batch<'_>) -> Result<Vec<Ino>> {
    let per_group = batch.geometry().inodes_per_group.get();
    let mut going = Vec::new();
    for group in batch.inodes / per_group..batch.geometry().groups_count.get() {
        going.extend(inodes_of(batch, GroupNr(group))?);
    }
    Ok(going)
}

/// Fails if an inode goes that must keep its number, before anything moves.
///
/// # Errors
/// [`Error::Unsupported`], those of reading bitmaps.
pub fn must_be_possible(batch: &Batch<'_>) -> Result<()> {
    let going = going(batch)?;
    let features = batch.geometry().features;
    if features.compat.contains(Compat::STABLE_INODES) && !going.is_empty() {
        let what = "inodes that must keep their numbers (stable_inodes), where one of them goes";
        return Err(Error::Unsupported { what });
    }
    if going.contains(&batch.journal()) {
        let what = "a journal whose inode lies past the new end; remove the journal with \
                    `uext4 tune` first, and make a new one afterwards";
        return Err(Error::Unsupported { what });
    }
    Ok(())
}

/// Moves all inodes past those that stay.
///
/// # Errors
/// [`Error::Full`], [`Error::Unsound`], [`Error::Unsupported`], those of the device and journal.
pub fn renumber_all(batch: &mut Batch<'_>) -> Result<()> {
    let going = going(batch)?;
    if going.is_empty() {
        return Ok(());
    }
    let references = all_references(batch, Ino(batch.inodes))?;
    let mut work = Renumber {
        batch,
        references,
        new: HashMap::new(),
    };
    for ino in going {
        work.one(ino)?;
        work.batch.commit_if_large()?;
    }
    batch.commit()
}

impl Renumber<'_, '_> {
    fn one(&mut self, old: Ino) -> Result<()> {
        let bytes = self.batch.inode(old)?;
        let raw = RawInode::parse(&bytes, old)?;
        let is_dir = FileType::from_mode(raw.i_mode.get()) == Some(FileType::Directory);
        let places = match is_dir {
            true => blocks_of_dir(self.batch, old)?,
            false => Vec::new(),
        };
        let from = self.references.partition_point(|found| found.target < old);
        let to = self.references.partition_point(|found| found.target <= old);
        self.batch.make_room(places.len() + (to - from))?;
        let new = self.batch.allocate_inode(is_dir)?;
        if let Some(seed) = self.batch.geometry().csum_seed {
            let seed = seed.inode(new, raw.i_generation.get());
            if MapKind::of(&raw) == MapKind::Extents {
                extents::sum_nodes(self.batch, &raw, seed)?;
            }
        }
        self.new.insert(old, new);
        self.batch.put_inode(new, bytes)?;
        for place in places {
            self.sum(new, &raw, place)?;
        }
        let place = self.batch.place_of(old)?;
        let len = usize::from(self.batch.geometry().inode_size);
        self.batch.edit(place.block)?[place.offset..][..len].fill(0);
        self.batch.free_inode(old, is_dir)?;
        for at in from..to {
            self.change(self.references[at], new)?;
        }
        self.change_superblock(old, new);
        sum_orphan_file(self.batch, new)
    }

    /// The number of an inode as it is now.
    fn now(&self, ino: Ino) -> Ino {
        self.new.get(&ino).copied().unwrap_or(ino)
    }

    /// Lets one reference name the new number.
    fn change(&mut self, reference: Reference, new: Ino) -> Result<()> {
        let at = reference.offset as usize;
        let put = |bytes: &mut [u8]| {
            let place = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut);
            if let Some(place) = place {
                *place = new.0.to_le_bytes();
            }
        };
        match reference.holder {
            Holder::Dir(dir, place) => {
                put(self.batch.edit(place.block)?);
                let dir = self.now(dir);
                let raw = RawInode::parse(&self.batch.inode(dir)?, dir)?;
                self.sum(dir, &raw, place)
            }
            Holder::Inode(holder) => {
                let holder = self.now(holder);
                let mut bytes = self.batch.inode(holder)?;
                put(&mut bytes);
                self.batch.put_inode(holder, bytes)
            }
            Holder::Attributes(block) => {
                let seed = self.batch.geometry().csum_seed;
                let bytes = self.batch.edit(block)?;
                put(bytes);
                if let Some(seed) = seed {
                    uext4_ondisk::xattr::update_checksum(bytes, block, seed);
                }
                Ok(())
            }
        }
    }

    /// Sums a block of a directory.
    fn sum(&mut self, dir: Ino, raw: &RawInode, place: DirPlace) -> Result<()> {
        let Some(seed) = self.batch.geometry().csum_seed else {
            return Ok(());
        };
        let seed = seed.inode(dir, raw.i_generation.get());
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let bytes = self.batch.edit(place.block)?;
        match flags.contains(InodeFlags::INDEX) && is_node(bytes, place.lblk) {
            true => htree::update_tail(bytes, htree::entries_offset(place.lblk), seed),
            false if dir_entry::tail(bytes).is_none() => {
                let what = "a block of a directory has no checksum";
                return Err(Error::Unsound { what });
            }
            false => dir_entry::update_tail(bytes, seed),
        }
        Ok(())
    }

    /// Files of the file system itself, which the superblock names.
    fn change_superblock(&mut self, old: Ino, new: Ino) {
        let superblock = &mut self.batch.superblock;
        for field in [
            &mut superblock.s_usr_quota_inum,
            &mut superblock.s_grp_quota_inum,
            &mut superblock.s_prj_quota_inum,
            &mut superblock.s_orphan_file_inum,
            &mut superblock.s_lpf_ino,
        ] {
            if field.get() == old.0 {
                *field = new.0.into();
            }
        }
    }
}

/// Whether a block of a directory with an htree is its root or an inner node: one record without
/// an inode that takes the whole block.
fn is_node(bytes: &[u8], lblk: Lblk) -> bool {
    let record = bytes.first_chunk::<DIR_ENTRY_HEADER_LEN>();
    let is_whole = |record: &[u8; DIR_ENTRY_HEADER_LEN]| {
        let rec_len = u16::from_le_bytes([record[4], record[5]]);
        record[..4] == [0; 4] && decode_rec_len(rec_len, bytes.len()) == bytes.len()
    };
    lblk == Lblk(0) || record.is_some_and(is_whole)
}
