//! Multiple mount protection: prevents two hosts that share the device from both writing to it.
//!
//! A host that writes keeps changing a sequence number in one block. A host that wants to write
//! waits longer than the other would take to change it, writes a number of its own, waits again,
//! and owns the file system if that number is still there. Waiting uses the clock: about 22
//! seconds for the usual interval of 5 after a crash, 11 after a clean unmount.
//!
//! [`Mmp::update`] changes the number and must be called at shorter intervals than the block
//! says: by the background thread, or by a caller of `tick`. If an update is late, it first
//! checks whether another host has taken over, and in that case ends all writing.
//!
//! Source: the kernel's documentation of ext4's on-disk format, "Multiple mount protection".

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uext4_blockdev::{BlockDevice, Clock};
use uext4_ondisk::Pblk;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::mmp::{
    EXT4_MMP_MAGIC, EXT4_MMP_SEQ_CLEAN, EXT4_MMP_SEQ_MAX, MMP_LEN, MmpBlock, MmpState,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};

/// Seconds between updates if the superblock does not specify them.
const DEFAULT_INTERVAL: u16 = 5;
/// Minimum time in seconds after which other hosts conclude that no host updates the block.
const MIN_CHECK_INTERVAL: u16 = 5;
/// Longest interval that the block may ask other hosts to respect, in seconds.
const MAX_CHECK_INTERVAL: u16 = 300;

/// The block, claimed by this process. Lock: a leaf, held during the write of the block.
#[derive(Debug)]
pub(crate) struct Mmp {
    device: Arc<dyn BlockDevice>,
    place: Pblk,
    offset: u64,
    seed: Option<CsumSeed>,
    /// Time between updates.
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    block: MmpBlock,
    /// When the block was last written.
    updated: Duration,
}

impl Mmp {
    /// Claims the file system, if it has the feature. May wait for a long time.
    pub(crate) fn claim(disk: &Disk, clock: &dyn Clock) -> Result<Option<Self>> {
        let geometry = disk.geometry();
        if !geometry.features.incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let superblock = disk.superblock();
        let place = Pblk(superblock.s_mmp_block.get());
        disk.check_range("MMP block", place, 1)?;
        let interval = match superblock.s_mmp_interval.get() {
            0 => DEFAULT_INTERVAL,
            said => said.min(MAX_CHECK_INTERVAL),
        };
        let mut mmp = Self {
            device: Arc::clone(disk.device()),
            place,
            offset: disk.byte_offset(place),
            seed: geometry.csum_seed,
            interval: Duration::from_secs(interval.into()),
            state: Mutex::new(State {
                block: MmpBlock::new_zeroed(),
                updated: Duration::ZERO,
            }),
        };
        mmp.take(clock, interval)?;
        Ok(Some(mmp))
    }

    fn take(&mut self, clock: &dyn Clock, interval: u16) -> Result<()> {
        let found = self.read()?;
        let asked = found.mmp_check_interval.get();
        let check = asked.clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL);
        // Twice the interval plus a second, but at most the interval plus a minute.
        let check = check.max(interval);
        let wait = Duration::from_secs((2 * u64::from(check) + 1).min(u64::from(check) + 60));
        match found.state() {
            Some(MmpState::Clean) => {}
            // Of a repair on this host that was cut off, and finished before this.
            Some(MmpState::Fsck) if uext4_redo::is_leftover(&found) => {}
            Some(MmpState::Fsck) => return Err(in_use(&found)),
            Some(MmpState::Mounted) | None => {
                clock.sleep(wait);
                let later = self.read()?;
                if later.mmp_seq != found.mmp_seq {
                    return Err(in_use(&later));
                }
            }
        }
        let mut block = found;
        block.mmp_magic = EXT4_MMP_MAGIC.into();
        // A number that another host is unlikely to choose as well.
        let number = RandomState::new().hash_one(clock.now()) as u32;
        block.mmp_seq = (number % EXT4_MMP_SEQ_MAX + 1).into();
        block.mmp_check_interval = interval.max(MIN_CHECK_INTERVAL).into();
        block.mmp_nodename = [0; 64];
        block.mmp_bdevname = [0; 32];
        let system = rustix::system::uname();
        let name = system.nodename().to_bytes();
        let len = name.len().min(block.mmp_nodename.len() - 1);
        block.mmp_nodename[..len].copy_from_slice(&name[..len]);
        self.write(&mut block, clock)?;
        self.flush()?;
        clock.sleep(wait);
        let later = self.read()?;
        if later.mmp_seq != block.mmp_seq {
            return Err(in_use(&later));
        }
        let updated = clock.monotonic();
        *self.state.get_mut() = State { block, updated };
        // The wait may have used up the interval.
        self.update(clock, || self.flush())
    }

    /// Changes the number if the interval has passed. `flush` flushes the device: once the
    /// journal is open it does that, so that a failed flush is reported to all callers that rely
    /// on one.
    pub(crate) fn update(
        &self,
        clock: &dyn Clock,
        flush: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let state = &mut *self.state.lock();
        let passed = clock.monotonic().saturating_sub(state.updated);
        if passed < self.interval {
            return Ok(());
        }
        let check = Duration::from_secs(state.block.mmp_check_interval.get().into());
        if passed > check {
            let found = self.read()?;
            if found.mmp_seq != state.block.mmp_seq
                || found.mmp_nodename != state.block.mmp_nodename
            {
                return Err(in_use(&found));
            }
        }
        let next = state.block.mmp_seq.get() + 1;
        state.block.mmp_seq = if next > EXT4_MMP_SEQ_MAX { 1 } else { next }.into();
        self.write(&mut state.block, clock)?;
        flush()?;
        state.updated = clock.monotonic();
        Ok(())
    }

    /// Releases the file system after its last change is durable, when no caller relies on the
    /// device any more.
    pub(crate) fn release(&self, clock: &dyn Clock) -> Result<()> {
        let state = &mut *self.state.lock();
        state.block.mmp_seq = EXT4_MMP_SEQ_CLEAN.into();
        self.write(&mut state.block, clock)?;
        self.flush()
    }

    fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }

    fn read(&self) -> Result<MmpBlock> {
        let mut bytes = [0; MMP_LEN];
        self.device.read_at(self.offset, &mut bytes)?;
        Ok(MmpBlock::parse(&bytes, self.place, self.seed)?)
    }

    fn write(&self, block: &mut MmpBlock, clock: &dyn Clock) -> Result<()> {
        block.mmp_time = clock.now().0.cast_unsigned().into();
        if let Some(seed) = self.seed {
            block.mmp_checksum = block.checksum(seed).into();
        }
        Ok(self.device.write_at(self.offset, block.as_bytes())?)
    }
}

fn in_use(block: &MmpBlock) -> Error {
    let name = block.mmp_nodename.split(|&byte| byte == 0).next();
    let name = String::from_utf8_lossy(name.unwrap_or_default());
    Error::InUse {
        by: match block.state() {
            Some(MmpState::Fsck) => "a check of the file system".to_owned(),
            _ => format!("host {name:?}"),
        },
    }
}
