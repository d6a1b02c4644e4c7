//! Moves what all inodes own out of what goes.

use uext4_ondisk::features::Compat;
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::{GroupNr, Ino, Pblk, orphan};

use crate::attribute_blocks::AttributeBlocks;
use crate::batch::Batch;
use crate::extents::Tree;
use crate::inodes::{MapKind, inodes_of};
use crate::{Error, Result, extents, indirect, log, quota};

/// Moves the blocks of all inodes; `met` is called after each group.
///
/// # Errors
/// [`Error::Full`], [`Error::Unsound`], [`Error::Unsupported`], those of the device and journal.
pub fn move_all(batch: &mut Batch<'_>, met: &mut dyn FnMut(u32) -> Result<()>) -> Result<()> {
    let journal = batch.journal();
    // While there is most room: it is large, and few pieces need no tables.
    if journal != Ino(0) {
        log::move_log(batch, journal)?;
    }
    let orphan_file = Ino(batch.superblock.s_orphan_file_inum.get());
    if orphan_file != Ino(0) {
        // It can be summed, wherever it lies then.
        sum_orphan_file(batch, orphan_file)?;
    }
    let mut attributes = AttributeBlocks::default();
    // They count what the others change, and are found by where they lie then.
    for file in quota::files(&batch.superblock) {
        move_one(batch, file, &mut attributes)?;
    }
    batch.commit()?;
    for group in (0..batch.geometry().groups_count.get()).map(GroupNr) {
        for ino in inodes_of(batch, group)? {
            match ino {
                Ino::RESIZE => indirect_of_resize(batch)?,
                _ if ino == journal => {}
                _ => move_one(batch, ino, &mut attributes)?,
            }
        }
        met(group.0)?;
    }
    batch.commit()
}

fn move_one(batch: &mut Batch<'_>, ino: Ino, attributes: &mut AttributeBlocks) -> Result<()> {
    let mut bytes = batch.inode(ino)?;
    if attributes.take(batch, ino, &mut bytes)? {
        batch.put_inode(ino, bytes.clone())?;
    }
    let raw = RawInode::parse(&bytes, ino)?;
    match MapKind::of(&raw) {
        _ if ino == Ino(1) && raw.i_blocks_lo.get() != 0 => {
            let what = "a list of bad blocks";
            return Err(Error::Unsupported { what });
        }
        MapKind::None => {}
        MapKind::Extents => {
            if extents::move_blocks(batch, ino, &mut bytes)? {
                batch.put_inode(ino, bytes)?;
                sum_orphan_file(batch, ino)?;
            }
        }
        MapKind::Indirect => indirect::move_blocks(batch, ino, &raw)?,
    }
    batch.commit_if_large()
}

/// The blocks of the orphan file are summed with their own numbers and the inode's.
///
/// # Errors
/// [`Error::Unsound`], those of the device.
pub fn sum_orphan_file(batch: &mut Batch<'_>, ino: Ino) -> Result<()> {
    let is_it = batch.superblock.s_orphan_file_inum.get() == ino.0
        && batch
            .geometry()
            .features
            .compat
            .contains(Compat::ORPHAN_FILE);
    let Some(seed) = batch.geometry().csum_seed.filter(|_| is_it) else {
        return Ok(());
    };
    let raw = RawInode::parse(&batch.inode(ino)?, ino)?;
    if MapKind::of(&raw) != MapKind::Extents {
        let what = "an orphan file without extents; clear the feature orphan_file with `uext4 tune` \
                    first, and set it again afterwards";
        return Err(Error::Unsupported { what });
    }
    let seed = seed.inode(ino, raw.i_generation.get());
    let owned = quota::blocks_of(batch.geometry(), &raw);
    for extent in Tree::read(batch, &raw, owned)?.extents {
        for n in 0..u64::from(extent.len) {
            let block = Pblk(extent.pblk.0 + n);
            orphan::update_tail(batch.edit(block)?, block, Some(seed));
        }
    }
    Ok(())
}

fn indirect_of_resize(batch: &mut Batch<'_>) -> Result<()> {
    match batch
        .geometry()
        .features
        .compat
        .contains(Compat::RESIZE_INODE)
    {
        true => indirect::move_double(batch, Ino::RESIZE),
        false => Ok(()),
    }
}
