//! What the superblock says of the last examination: that the file system is sound, when it was
//! examined, and how often it was mounted since. Mounting and unmounting never reset these, so that
//! what is due stays due until an examination notes that it was.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::Pblk;
use uext4_ondisk::num::{index, lo32};
use uext4_ondisk::superblock::{STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SuperBlock};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::overlay::Overlay;
use crate::report::Cause;

/// When an examination is noted in the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// If anything else is written, or the file system was not left clean.
    WithRepairs,
    /// Whatever it found, if the file system is consistent now.
    Always,
}

/// What became of the note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Record {
    /// There is none.
    #[default]
    None,
    /// It is one of the changes.
    WithRepairs,
    /// It is the only change, and the file system was not left clean before.
    Unclean,
    /// It is the only change, and the file system was left clean before.
    Alone,
}

/// The cause of this change: no finding.
const CAUSE: Cause = Cause(u32::MAX);

/// Adds the note to the changes of a consistent file system.
///
/// # Errors
/// Of the device and of the overlay.
pub fn record(overlay: &Overlay, when: When, now: u32) -> Result<Record> {
    let Ok(mut superblock) = SuperBlock::parse(&read(overlay)?) else {
        return Ok(Record::None);
    };
    let record = match (overlay.changed() > 0, superblock.was_left_clean()) {
        (true, _) => Record::WithRepairs,
        (false, false) => Record::Unclean,
        (false, true) if when == When::Always => Record::Alone,
        (false, true) => return Ok(Record::None),
    };
    note(&mut superblock, now);
    let size = overlay.block_size();
    let block = Pblk(SUPERBLOCK_OFFSET >> size.log2());
    let at = index(lo32(SUPERBLOCK_OFFSET % u64::from(size.bytes())));
    overlay.update(block, CAUSE, |bytes| {
        let new = superblock.as_bytes();
        bytes[at..at + new.len()].copy_from_slice(new);
    })?;
    Ok(record)
}

/// Writes the note where it is the only change: that needs no log.
///
/// # Errors
/// Of the device.
pub fn write(overlay: &Overlay, device: &dyn BlockDevice) -> Result<()> {
    device.write_at(SUPERBLOCK_OFFSET, &read(overlay)?)?;
    device.flush()?;
    Ok(())
}

fn read(overlay: &Overlay) -> Result<[u8; size_of::<SuperBlock>()]> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    overlay.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(bytes)
}

fn note(superblock: &mut SuperBlock, now: u32) {
    let state = superblock.s_state.get();
    superblock.s_state = (state & !STATE_ERROR | STATE_VALID).into();
    superblock.s_mnt_count = 0.into();
    superblock.s_lastcheck = now.into();
    superblock.s_lastcheck_hi = 0;
    superblock.update_checksum();
}
