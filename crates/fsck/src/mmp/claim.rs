//! Holding the block while a file system is written, so that no other host takes it meanwhile.
//!
//! ```text
//! in use by a number?  wait: it must not change   ▶ write "being examined" ▶ wait: it must stay
//!                                                 ▶ the work               ▶ put back, clean
//! ```
//! The mark has a name of its own in place of the device's. If the power goes, the mark stays; as
//! this host holds the lock of the device, one with its own names is a leftover, and no obstacle.

use std::time::Duration;

use uext4_blockdev::BlockDevice;
use uext4_blockdev::verity::Tree;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::mmp::{EXT4_MMP_SEQ_CLEAN, EXT4_MMP_SEQ_FSCK, MMP_LEN, MmpBlock, MmpState};
use uext4_ondisk::num::len64;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Geometry, Pblk};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::redo::primary;

/// Who waits, and says so.
pub type Pause<'a> = dyn Fn(Duration) + 'a;

/// In place of the device's name, in the mark of a repair.
const OURS: &[u8] = b"uext4 repair";
/// Shortest and longest interval in seconds after which another host is taken for dead.
const INTERVALS: std::ops::RangeInclusive<u16> = 5..=300;

/// Does `work`, which writes `device`, while the block says that the file system is being
/// examined. Where it lies is said by the superblock of `view`, the device as it is or as it will
/// be, or else by that of `device`, if the feature is being cleared. Without the feature, or
/// without a block that is one, `work` is simply done.
///
/// # Errors
/// [`Error::Refused`] if another host has the file system: `work` is not done then. Of `work`, and
/// of the device.
pub fn while_claimed<T>(
    device: &dyn BlockDevice,
    view: &dyn BlockDevice,
    pause: &Pause<'_>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    refuse_hash_tree(device)?;
    let place = match Place::find(device, view)? {
        Some(place) => Some(place),
        None => Place::find(device, device)?,
    };
    let Some(place) = place else {
        return work();
    };
    let Some(found) = place.read(device)? else {
        return work();
    };
    let claim = place.claim(device, found, pause)?;
    let done = work();
    // With a part of it written, no other host may have the file system.
    if matches!(
        done,
        Ok(_) | Err(Error::Refused { .. } | Error::NoSpace { .. })
    ) {
        place.release(device, &found, &claim)?;
    }
    done
}

/// Fails with [`uext4_blockdev::Error::Verified`] if a dm-verity hash tree covers the file system,
/// which no repair may change without giving the tree up.
pub fn refuse_hash_tree(device: &dyn BlockDevice) -> Result<()> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    if device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_err() {
        return Ok(());
    }
    let superblock = SuperBlock::parse(&bytes);
    match superblock.and_then(|found| Geometry::new(&found)) {
        Ok(geometry) => Ok(Tree::refuse_behind(device, geometry.len_bytes())?),
        // Where it would be is not known.
        Err(_) => Ok(()),
    }
}

/// Waits for a host that has the file system by the block, and returns the number that it left
/// there if it is no longer at work. `None` if no host has it by the block.
///
/// # Errors
/// [`Error::Refused`] if it is at work; of the device.
pub fn abandoned_number(device: &dyn BlockDevice, pause: &Pause<'_>) -> Result<Option<u32>> {
    let Some(place) = Place::find(device, device)? else {
        return Ok(None);
    };
    let found = place.read(device)?;
    let Some(found) = found.filter(|block| block.state() == Some(MmpState::Mounted)) else {
        return Ok(None);
    };
    pause(wait_for(&found));
    match place.is_still(device, &found)? {
        true => Ok(Some(found.mmp_seq.get())),
        false => Err(in_use(&found)),
    }
}

/// Marks the block as clean, whatever it says: for who is certain that no host has the file
/// system. Returns whether it was not.
///
/// # Errors
/// [`Error::Refused`] if the block is damaged; of the device.
pub fn clear_mark(device: &dyn BlockDevice) -> Result<bool> {
    let Some(place) = Place::find(device, device)? else {
        return Ok(false);
    };
    let Some(mut block) = place.read(device)? else {
        return Err(Error::Refused {
            what: "the block for multiple mount protection is damaged: `uext4 repair IMAGE` mends \
                   it"
            .to_owned(),
        });
    };
    if block.state() == Some(MmpState::Clean) {
        return Ok(false);
    }
    block.mmp_seq = EXT4_MMP_SEQ_CLEAN.into();
    place.write(device, &mut block)?;
    Ok(true)
}

/// How long another host is waited for. As the kernel waits: twice the interval and a second, but
/// not much longer than it.
fn wait_for(block: &MmpBlock) -> Duration {
    let interval = block.mmp_check_interval.get();
    let interval = u64::from(interval.clamp(*INTERVALS.start(), *INTERVALS.end()));
    Duration::from_secs((2 * interval + 1).min(interval + 60))
}

/// Whether the block has the mark of a repair that this host began: it holds the device now, so
/// that the mark is a leftover.
pub fn is_leftover(block: &MmpBlock) -> bool {
    let ours = block.state() == Some(MmpState::Fsck) && text(&block.mmp_bdevname) == OURS;
    ours && text(&block.mmp_nodename) == text(&host())
}

/// The refusal of a file system that another host has.
pub fn in_use(block: &MmpBlock) -> Error {
    let by = match block.state() {
        Some(MmpState::Fsck) => "being examined",
        _ => "mounted",
    };
    let node = text(&block.mmp_nodename).escape_ascii();
    Error::Refused {
        what: format!(
            "the file system is marked as {by} by \"{node}\"; if no host has it, clear the mark \
             by `uext4 tune -f -E clear_mmp IMAGE`"
        ),
    }
}

fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The name of this host, as a block holds it.
fn host() -> [u8; 64] {
    let mut name = [0; 64];
    let system = rustix::system::uname();
    let bytes = system.nodename().to_bytes();
    for (to, from) in name.iter_mut().take(63).zip(bytes) {
        *to = *from;
    }
    name
}

/// Where the block lies.
struct Place {
    block: Pblk,
    offset: u64,
    seed: Option<CsumSeed>,
}

impl Place {
    fn find(device: &dyn BlockDevice, view: &dyn BlockDevice) -> Result<Option<Self>> {
        let Some(bytes) = primary::read(view)? else {
            return Ok(None);
        };
        let Ok(superblock) = SuperBlock::parse(&bytes) else {
            return Ok(None);
        };
        let log = superblock.s_log_block_size.get();
        let size = 1024_u32.checked_shl(log).and_then(BlockSize::from_bytes);
        let block = Pblk(superblock.s_mmp_block.get());
        let offset = size.and_then(|size| size.byte_offset(block));
        let has = superblock.features().incompat.contains(Incompat::MMP);
        let inside = |at: &u64| {
            let end = at.checked_add(len64(MMP_LEN));
            end.is_some_and(|end| end <= device.len())
        };
        let offset = offset.filter(inside).filter(|_| has);
        Ok(offset.map(|offset| Self {
            block,
            offset,
            seed: superblock.csum_seed(),
        }))
    }

    /// The block; `None` if it is not one.
    fn read(&self, device: &dyn BlockDevice) -> Result<Option<MmpBlock>> {
        let mut bytes = [0; MMP_LEN];
        device.read_at(self.offset, &mut bytes)?;
        Ok(MmpBlock::parse(&bytes, self.block, self.seed).ok())
    }

    fn write(&self, device: &dyn BlockDevice, block: &mut MmpBlock) -> Result<()> {
        if let Some(seed) = self.seed {
            block.mmp_checksum = block.checksum(seed).into();
        }
        device.write_at(self.offset, block.as_bytes())?;
        Ok(device.flush()?)
    }

    /// Whether the block is still this one.
    fn is_still(&self, device: &dyn BlockDevice, block: &MmpBlock) -> Result<bool> {
        let now = self.read(device)?;
        Ok(now.is_some_and(|now| now.as_bytes() == block.as_bytes()))
    }

    /// Writes the mark, and returns it.
    fn claim(
        &self,
        device: &dyn BlockDevice,
        found: MmpBlock,
        pause: &Pause<'_>,
    ) -> Result<MmpBlock> {
        let wait = wait_for(&found);
        match found.state() {
            Some(MmpState::Clean) => {}
            _ if is_leftover(&found) => {}
            Some(MmpState::Mounted) => {
                pause(wait);
                if !self.is_still(device, &found)? {
                    return Err(in_use(&found));
                }
            }
            Some(MmpState::Fsck) | None => return Err(in_use(&found)),
        }
        let mut mark = found;
        mark.mmp_seq = EXT4_MMP_SEQ_FSCK.into();
        mark.mmp_nodename = host();
        mark.mmp_bdevname = [0; 32];
        mark.mmp_bdevname[..OURS.len()].copy_from_slice(OURS);
        self.write(device, &mut mark)?;
        pause(wait);
        match self.is_still(device, &mark)? {
            true => Ok(mark),
            false => Err(in_use(&self.read(device)?.unwrap_or(mark))),
        }
    }

    /// Puts back what was found, as a clean block. If the work has changed the block, only a mark
    /// that it has is taken away.
    fn release(&self, device: &dyn BlockDevice, found: &MmpBlock, mark: &MmpBlock) -> Result<()> {
        let mut block = match self.read(device)? {
            Some(now) if now.as_bytes() == mark.as_bytes() => *found,
            Some(now) if is_leftover(&now) => now,
            _ => return Ok(()),
        };
        block.mmp_seq = EXT4_MMP_SEQ_CLEAN.into();
        self.write(device, &mut block)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use uext4_blockdev::MemoryDevice;

    use super::*;
    use crate::tests::TestImage;

    fn image() -> (MemoryDevice, usize) {
        image_with("mmp")
    }

    fn image_with(features: &str) -> (MemoryDevice, usize) {
        let image = TestImage::new(&format!("-t ext4 -b 1024 -O {features}"), "8M");
        let bytes = std::fs::read(image.path()).unwrap();
        let number = bytes[1024 + 0x168..][..4].try_into().unwrap();
        let at = u32::from_le_bytes(number) as usize * 1024;
        (MemoryDevice::from_bytes(bytes), at)
    }

    fn number(device: &MemoryDevice, at: usize) -> u32 {
        u32::from_le_bytes(device.to_bytes()[at + 4..][..4].try_into().unwrap())
    }

    #[test]
    fn the_mark_is_there_while_the_work_is_done_and_then_what_was() {
        let (device, at) = image();
        let before = device.to_bytes();
        let waited = Cell::new(Duration::ZERO);
        let pause = |time| waited.set(waited.get() + time);
        let work = || Ok(number(&device, at));
        let during = while_claimed(&device, &device, &pause, work).unwrap();
        assert_eq!(during, EXT4_MMP_SEQ_FSCK);
        assert!(device.to_bytes() == before);
        assert_eq!(waited.get(), Duration::from_secs(11));
    }

    #[test]
    fn another_host_that_takes_the_file_system_is_respected() {
        let (device, at) = image();
        let pause = |_| device.write_at(at as u64 + 4, &[7, 0, 0, 0]).unwrap();
        let work = || -> Result<()> { panic!("the work of a host that does not have it") };
        let result = while_claimed(&device, &device, &pause, work);
        assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
    }

    #[test]
    fn a_number_that_a_host_left_is_waited_for_once() {
        let (device, at) = image_with("mmp,^metadata_csum");
        device.write_at(at as u64 + 4, &[7, 0, 0, 0]).unwrap();
        let shared: std::sync::Arc<dyn BlockDevice> = std::sync::Arc::new(device.snapshot());
        let mut options = crate::Options::default();
        assert!(crate::plan(&shared, &options, &()).is_err());
        options.abandoned_mmp = abandoned_number(&device, &|_| ()).unwrap();
        assert_eq!(options.abandoned_mmp, Some(7));
        assert!(crate::plan(&shared, &options, &()).unwrap().is_clean);
        let pause = |_| device.write_at(at as u64 + 4, &[8, 0, 0, 0]).unwrap();
        assert!(abandoned_number(&device, &pause).is_err());
    }

    #[test]
    fn a_mark_that_a_cut_left_is_found_and_taken_away() {
        let (device, at) = image();
        let cut = || -> Result<()> { Err(Error::Cancelled) };
        assert!(while_claimed(&device, &device, &|_| (), cut).is_err());
        assert_eq!(number(&device, at), EXT4_MMP_SEQ_FSCK);
        let found = crate::findings(&(std::sync::Arc::new(device.snapshot()) as _)).unwrap();
        let names: Vec<_> = found.iter().map(|f| f.problem.info().name).collect();
        assert_eq!(names, ["mmp-mark"]);
        while_claimed(&device, &device, &|_| (), || Ok(())).unwrap();
        assert_eq!(number(&device, at), EXT4_MMP_SEQ_CLEAN);
    }
}
