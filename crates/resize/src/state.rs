//! The file system before it changes: mounted once if anything waits for that, then read.

use std::sync::Arc;

use uext4::tuning::Background;
use uext4::{Image, OpenOptions, Volume};
use uext4_blockdev::verity::refuse_behind;
use uext4_blockdev::{BlockDevice, Clock};
use uext4_jbd2::{LogRun, recover};
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::mapping::MapState;
use uext4_ondisk::num::{hi32, lo32};
use uext4_ondisk::superblock::{STATE_ERROR, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Ino, Lblk, Pblk};

use crate::{Error, Result};

/// Runs that a log may have; a mount takes no more than twice as many.
pub const LOG_RUNS_MAX: usize = 1 << 15;

/// A file system whose journal is empty.
pub struct State {
    pub image: Image,
    pub superblock: SuperBlock,
    pub geometry: Geometry,
    /// It is in use: what was changed may be newer in memory than on the device.
    is_mounted: bool,
    /// The device was flushed since it was written by others: that the log is empty is durable.
    pub is_flushed: bool,
}

impl State {
    /// Mounts and unmounts the file system if that replays its journal or deletes orphans, and
    /// reads what is there then.
    ///
    /// # Errors
    /// Those of mounting, [`Error::Unsound`], [`Error::DeviceTooSmall`], [`Error::Unsupported`].
    pub fn open(device: &Arc<dyn BlockDevice>, clock: &Arc<dyn Clock>) -> Result<Self> {
        let mut options = OpenOptions::default();
        options.background = Background::None;
        let before = Image::open(Arc::clone(device), &options)?;
        check(&before)?;
        refuse_behind(&**device, before.geometry().len_bytes())?;
        let is_left_clean = before.rescue().cut_repair.is_none() && is_left_clean(&before)?;
        if !is_left_clean {
            drop(before);
            mount_once(device, clock, &options)?;
        }
        let image = Image::open(Arc::clone(device), &options)?;
        check(&image)?;
        let superblock = *image.superblock();
        Ok(Self {
            geometry: image.geometry().clone(),
            superblock,
            image,
            is_mounted: false,
            // By closing it.
            is_flushed: !is_left_clean,
        })
    }

    /// Reads what is there, and what a mount would leave of it. Nothing is written.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn look(device: &Arc<dyn BlockDevice>) -> Result<Self> {
        let image = Image::open(Arc::clone(device), &OpenOptions::default())?;
        check(&image)?;
        Ok(Self {
            geometry: image.geometry().clone(),
            superblock: *image.superblock(),
            image,
            is_mounted: false,
            is_flushed: false,
        })
    }

    /// A file system that is in use, with its superblock as it is now, while nothing changes.
    ///
    /// # Errors
    /// [`Error::Unsound`].
    pub fn mounted(image: Image, superblock: &SuperBlock) -> Result<Self> {
        if superblock.s_state.get() & STATE_ERROR != 0 {
            let what = "errors are recorded in the file system";
            return Err(Error::Unsound { what });
        }
        Ok(Self {
            geometry: image.geometry().clone(),
            superblock: *superblock,
            image,
            is_mounted: true,
            is_flushed: false,
        })
    }

    /// Whether it is in use.
    pub fn is_mounted(&self) -> bool {
        self.is_mounted
    }

    /// The superblock with so many blocks, groups, and as large a share of blocks for root; what is
    /// free is not counted.
    pub fn with_blocks(&self, blocks: u64, groups: u32) -> SuperBlock {
        let old = &self.geometry;
        let mut superblock = self.superblock;
        superblock.s_blocks_count_lo = lo32(blocks).into();
        superblock.s_blocks_count_hi = hi32(blocks).into();
        superblock.s_inodes_count = groups.saturating_mul(old.inodes_per_group.get()).into();
        let share = u128::from(superblock.reserved_blocks_count()) * u128::from(blocks)
            / u128::from(old.blocks_count);
        let reserved = u64::try_from(share).unwrap_or(0).min(blocks / 2);
        superblock.s_r_blocks_count_lo = lo32(reserved).into();
        superblock.s_r_blocks_count_hi = hi32(reserved).into();
        superblock
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.image.device()
    }

    /// Reads a block.
    pub fn block(&self, block: Pblk) -> Result<Vec<u8>> {
        if self.is_mounted {
            return Ok(self.image.metadata_block(block)?.to_vec());
        }
        let size = self.geometry.block_size;
        let mut bytes = vec![0; size.len()];
        let offset = block.0 << size.log2();
        self.device().read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// A group's descriptor.
    pub fn desc(&self, group: GroupNr) -> Result<GroupDesc> {
        Ok(self.image.group_desc(group)?)
    }

    /// Where the log lies; `None` without a journal.
    pub fn log(&self) -> Result<Option<Vec<LogRun>>> {
        let has_journal = |s: &SuperBlock| s.features().compat.contains(Compat::HAS_JOURNAL);
        if !has_journal(&self.superblock) {
            return Ok(None);
        }
        let inode = self
            .image
            .inode(Ino(self.superblock.s_journal_inum.get()))?;
        let end = u32::try_from(inode.size >> self.geometry.block_size.log2()).unwrap_or(u32::MAX);
        let mut runs: Vec<LogRun> = Vec::new();
        let mut next = 0;
        while next < end {
            let run = self.image.map(&inode, Lblk(next), end - next)?;
            if run.state != MapState::Written || runs.len() >= LOG_RUNS_MAX {
                let what = "the journal has holes, or is in too many pieces";
                return Err(Error::Unsound { what });
            }
            runs.push(LogRun {
                start: run.pblk,
                len: run.len,
            });
            next = run.end();
        }
        let (device, blocks) = (&**self.device(), self.geometry.blocks_count);
        let waiting = recover(device, self.geometry.block_size, blocks, &runs)?;
        if !waiting.replay.is_empty() {
            let what = "the journal holds changes, and the superblock says that it is empty";
            return Err(Error::Unsound { what });
        }
        Ok(Some(runs))
    }
}

/// Fails with what keeps a file system from being resized.
fn check(image: &Image) -> Result<()> {
    let superblock = image.superblock();
    if let Some(cut) = image.rescue().cut_off {
        let (need, have) = (cut.need, cut.have);
        return Err(Error::DeviceTooSmall { need, have });
    }
    let unsound = |what| Err(Error::Unsound { what });
    if image.rescue().superblock.is_some() {
        return unsound("the superblock is damaged");
    }
    if superblock.s_state.get() & STATE_ERROR != 0 {
        return unsound("errors are recorded in the file system");
    }
    let has_journal = superblock.features().compat.contains(Compat::HAS_JOURNAL);
    if has_journal && superblock.s_journal_inum.get() == 0 {
        let what = "a journal on another device, which the file system has; put one inside in its \
                    place first: `uext4 tune -O ^has_journal`, then `uext4 tune -j`";
        return Err(Error::Unsupported { what });
    }
    Ok(())
}

/// Whether nothing waits for a mount.
fn is_left_clean(image: &Image) -> Result<bool> {
    let superblock = image.superblock();
    let needs_recovery = superblock.features().incompat.contains(Incompat::RECOVER);
    Ok(!needs_recovery && superblock.was_left_clean() && image.orphans()?.is_empty())
}

fn mount_once(
    device: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    options: &OpenOptions,
) -> Result<()> {
    let volume = Volume::open(Arc::clone(device), Arc::clone(clock), options)?;
    Ok(volume.close()?)
}
