//! Holding the block while a file system is written, so that no other host takes it meanwhile.
//!
//! ```text
//! in use by a number?  wait: it must not change   ▶ write "being examined" ▶ wait: it must stay
//!                                                 ▶ the work               ▶ put back, clean
//! ```
//! The mark has a name of its own in place of the device's, with a digest of `/etc/machine-id`:
//! hosts that were cloned have one name. If the power goes, the mark stays; as this host holds the
//! lock of the device, one with its own names is a leftover, and no obstacle. Of two hosts that
//! share their name, and have no such file, neither knows its own mark from the other's.

use std::time::Duration;

use sha2::{Digest, Sha256};
use uext4_blockdev::{BlockDevice, host};
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::mmp::{EXT4_MMP_SEQ_CLEAN, EXT4_MMP_SEQ_FSCK, MMP_LEN, MmpBlock, MmpState};
use uext4_ondisk::num::len64;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{BlockSize, Pblk};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::primary;

/// Who waits, and says so.
pub type Pause<'a> = dyn Fn(Duration) + 'a;

/// In place of the device's name, in the mark of a repair.
const OURS: &[u8] = b"uext4 repair";
/// Bytes of its digest in the mark, as hexadecimal digits.
const DIGEST_LEN: usize = 8;
/// Shortest and longest interval in seconds after which another host is taken for dead.
const INTERVALS: std::ops::RangeInclusive<u16> = 5..=300;

/// The block, held by this process while it writes.
#[derive(Debug)]
pub struct MmpClaim {
    place: Place,
    found: MmpBlock,
    mark: MmpBlock,
}

impl MmpClaim {
    /// Claims the block, so that it says that the file system is being examined. Where it lies is
    /// said by the superblock of `view`, the device as it is or as it will be, or else by that of
    /// `device`, if the feature is being cleared. `None` without the feature, or without a block
    /// that is one.
    ///
    /// # Errors
    /// [`Error::InUse`] if another host has the file system; of the device.
    pub fn begin(
        device: &dyn BlockDevice,
        view: &dyn BlockDevice,
        pause: &Pause<'_>,
    ) -> Result<Option<Self>> {
        let place = match Place::find(device, view)? {
            Some(place) => Some(place),
            None => Place::find(device, device)?,
        };
        let Some(place) = place else {
            return Ok(None);
        };
        let Some(found) = place.read(device)? else {
            return Ok(None);
        };
        let mark = place.claim(device, found, pause)?;
        Ok(Some(Self { place, found, mark }))
    }

    /// Puts back what was found, as a clean block. Not to be called where a part of the work was
    /// written: then no other host may have the file system.
    ///
    /// # Errors
    /// Of the device.
    pub fn release(&self, device: &dyn BlockDevice) -> Result<()> {
        self.place.release(device, &self.found, &self.mark)
    }
}

/// Waits for a host that has the file system by the block, and returns the number that it left
/// there if it is no longer at work. `None` if no host has it by the block.
///
/// # Errors
/// [`Error::InUse`] if it is at work; of the device.
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
        false => Err(Error::in_use(&found)),
    }
}

/// Marks the block as clean, whatever it says: for who is certain that no host has the file
/// system. Returns whether it was not.
///
/// # Errors
/// [`Error::MmpDamaged`]; of the device.
pub fn clear_mark(device: &dyn BlockDevice) -> Result<bool> {
    let Some(place) = Place::find(device, device)? else {
        return Ok(false);
    };
    let Some(mut block) = place.read(device)? else {
        return Err(Error::MmpDamaged);
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
    let ours =
        block.state() == Some(MmpState::Fsck) && text(&block.mmp_bdevname) == text(&our_name());
    ours && text(&block.mmp_nodename) == text(&host_name())
}

fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The name of this host, as a block holds it.
fn host_name() -> [u8; 64] {
    let mut name = [0; 64];
    let system = rustix::system::uname();
    let bytes = system.nodename().to_bytes();
    for (to, from) in name.iter_mut().take(63).zip(bytes) {
        *to = *from;
    }
    name
}

/// The name of a mark of this host.
fn our_name() -> [u8; 32] {
    named_by(host::machine_id().as_deref())
}

fn named_by(machine_id: Option<&str>) -> [u8; 32] {
    let mut bytes = OURS.to_vec();
    if let Some(machine_id) = machine_id {
        let digest = Sha256::digest(machine_id);
        bytes.push(b' ');
        for byte in digest.iter().take(DIGEST_LEN) {
            bytes.extend(format!("{byte:02x}").bytes());
        }
    }
    let mut name = [0; 32];
    for (to, from) in name.iter_mut().take(31).zip(bytes) {
        *to = from;
    }
    name
}

/// Where the block lies.
#[derive(Debug)]
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
                    return Err(Error::in_use(&found));
                }
            }
            Some(MmpState::Fsck) | None => return Err(Error::in_use(&found)),
        }
        let mut mark = found;
        mark.mmp_seq = EXT4_MMP_SEQ_FSCK.into();
        mark.mmp_nodename = host_name();
        mark.mmp_bdevname = our_name();
        self.write(device, &mut mark)?;
        pause(wait);
        match self.is_still(device, &mark)? {
            true => Ok(mark),
            false => Err(Error::in_use(&self.read(device)?.unwrap_or(mark))),
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
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn a_mark_of_another_host_of_this_name_is_no_leftover() {
        let mut mark = MmpBlock::new_zeroed();
        mark.mmp_magic = uext4_ondisk::mmp::EXT4_MMP_MAGIC.into();
        mark.mmp_seq = EXT4_MMP_SEQ_FSCK.into();
        mark.mmp_nodename = host_name();
        mark.mmp_bdevname = our_name();
        assert!(is_leftover(&mark));
        mark.mmp_bdevname = named_by(Some("0123456789abcdef0123456789abcdef"));
        assert!(!is_leftover(&mark));
        assert_eq!(text(&named_by(None)), OURS);
        assert_eq!(
            text(&named_by(Some("1"))).len(),
            OURS.len() + 1 + 2 * DIGEST_LEN
        );
    }
}
