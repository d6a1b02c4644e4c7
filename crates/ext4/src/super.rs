//! Opening: from a device to the mounted state.

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_buffer_cache::{BufferCache, Options};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Damage, Geometry, Pblk};

use crate::error::{Error, Result};
use crate::journal;
use crate::sbi::Sbi;

/// How to open a file system. `OpenOptions::default()` is right unless there is a reason.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bytes of metadata kept in memory, at most.
    pub memory_max: usize,
    /// Blocks each thread keeps at hand without asking the shared table, 1 to 64.
    pub bh_lru_size: usize,
    /// Show a file system that was not unmounted as if its journal had been replayed. The device
    /// is not written. Without it such a file system is shown as it lies there.
    pub replay_journal: bool,
    /// Block of a backup superblock to use in place of the primary, for example 32768.
    pub superblock: Option<u64>,
    /// Block size, needed to find a backup if the primary superblock is unreadable; `None` tries
    /// all of them.
    pub block_size: Option<BlockSize>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            memory_max: 64 << 20,
            bh_lru_size: 16,
            replay_journal: true,
            superblock: None,
            block_size: None,
        }
    }
}

/// Opens for reading.
///
/// # Errors
/// Damage of the superblock, [`Damage::DeviceTooSmall`], [`Error::Unsupported`] naming the
/// features that cannot be read or an external journal, damage of the journal, device errors.
pub(crate) fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Sbi> {
    let (superblock, at) = read_superblock(&*device, options)?;
    let mut sbi = mount(device, superblock, at, options)?;
    let from_backup = options.superblock.is_some();
    if options.replay_journal
        && journal::needs_recovery(&sbi, from_backup)
        && let Some(recovery) = journal::recover(&sbi)?
    {
        let replayed: Arc<dyn BlockDevice> = Arc::new(journal::replayed_device(&sbi, &recovery));
        let (superblock, at) = read_superblock(&*replayed, options)?;
        sbi = mount(replayed, superblock, at, options)?;
        let summary = journal::apply_fast_commits(&mut sbi, &recovery)?;
        sbi.set_replayed(summary);
    }
    Ok(sbi)
}

/// Judges a superblock and puts the mounted state together.
fn mount(
    device: Arc<dyn BlockDevice>,
    superblock: SuperBlock,
    at: Pblk,
    options: &OpenOptions,
) -> Result<Sbi> {
    let unreadable = superblock.features().unreadable();
    if !unreadable.is_empty() {
        return Err(Error::Unsupported {
            what: unreadable.join(", "),
        });
    }
    let geometry = Geometry::new(&superblock)?;
    let (need, have) = (geometry.len_bytes(), device.len());
    if need > have {
        return Err(Error::Corrupt(Damage::DeviceTooSmall { need, have }));
    }
    let cache = BufferCache::new(
        Arc::clone(&device),
        geometry.block_size,
        Options {
            memory_max: options.memory_max,
            bh_lru_size: options.bh_lru_size,
        },
    );
    Ok(Sbi::new(device, cache, superblock, geometry, at))
}

/// Reads the superblock that was asked for, and tells the block it lies in.
fn read_superblock(device: &dyn BlockDevice, options: &OpenOptions) -> Result<(SuperBlock, Pblk)> {
    let Some(block) = options.superblock else {
        let superblock = superblock_at(device, SUPERBLOCK_OFFSET)?;
        return Ok((superblock, Pblk(0)));
    };
    let sizes = match options.block_size {
        Some(size) => size..=size,
        None => BlockSize::MIN..=BlockSize::MAX,
    };
    let mut reason = Error::Invalid {
        what: "no such superblock",
    };
    for log2 in sizes.start().log2()..=sizes.end().log2() {
        let Some(size) = BlockSize::from_log2(log2) else {
            continue;
        };
        // Block 0 starts with the boot sector, the superblock comes 1 KiB later.
        let offset = match block {
            0 => Some(SUPERBLOCK_OFFSET),
            _ => size.byte_offset(Pblk(block)),
        };
        let found = offset
            .ok_or(Error::Invalid {
                what: "no such superblock",
            })
            .and_then(|offset| superblock_at(device, offset));
        match found {
            // A superblock that lies elsewhere by its own word was found by chance.
            Ok(superblock) if superblock.s_log_block_size.get() + 10 == log2 || block == 0 => {
                return Ok((superblock, Pblk(block)));
            }
            Ok(_) => {}
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

fn superblock_at(device: &dyn BlockDevice, offset: u64) -> Result<SuperBlock> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    let have = device.len().saturating_sub(offset);
    if have < bytes.len() as u64 {
        return Err(Error::Corrupt(Damage::Truncated {
            structure: "superblock",
            need: bytes.len() as u64,
            have,
        }));
    }
    device.read_at(offset, &mut bytes)?;
    Ok(SuperBlock::parse(&bytes)?)
}
