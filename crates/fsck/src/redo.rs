//! Writing a plan in place, so that a cut at any write loses nothing.
//!
//! ```text
//! 1. the log: numbers and contents of all changed blocks, into clusters that
//!    were free before, too; inverted, so that no search takes them for metadata   flush
//! 2. the superblock as it will be, with a pointer to the log                      flush
//! 3. all other changed blocks, each in its place                                  flush
//! 4. the superblock as it will be, without the pointer                            flush
//! ```
//! Before 2 is durable, nothing that the file system knows has changed: the next run plans anew.
//! From then on the next run finds the pointer, and the log behind it whole, and does 3 and 4
//! again; they write the same bytes however often they are done. A superblock of which only one
//! sector was written either has a pointer, which does not depend on the rest being right, or has
//! none; then nothing but fields of the plan itself has changed, and the next run plans anew.

use sha2::{Digest, Sha256};
use uext4_blockdev::BlockDevice;
use uext4_ondisk::num::{index, len64};
use uext4_ondisk::repair_log::{self, RepairLogHeader, RepairPointer};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Pblk};
use zerocopy::IntoBytes;

use crate::clusters::ClusterSet;
use crate::error::{Error, Result};
use crate::overlay::Overlay;
use crate::report::Cause;

/// Most bytes read or written at a time.
const BATCH: usize = 1 << 20;
const SUPERBLOCK_LEN: usize = 1024;

/// A log that is whole, and whose blocks may not all be in their places.
#[derive(Debug)]
pub struct UnfinishedRepair {
    block_size: BlockSize,
    /// The blocks, ascending.
    numbers: Vec<u64>,
    /// Where their contents begin.
    contents_at: u64,
}

impl UnfinishedRepair {
    /// The repair that was cut off on this device, if there is one.
    ///
    /// # Errors
    /// Of the device; [`Error::Refused`] if the superblock names a log that is not whole.
    pub fn find(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let mut superblock = [0; SUPERBLOCK_LEN];
        if device.len() < SUPERBLOCK_OFFSET + len64(SUPERBLOCK_LEN) {
            return Ok(None);
        }
        device.read_at(SUPERBLOCK_OFFSET, &mut superblock)?;
        let Some(pointer) = RepairPointer::find(&superblock) else {
            return Ok(None);
        };
        let lost = || Error::Refused {
            what: format!(
                "a repair of this file system was interrupted, and its log at byte {} is damaged; \
                 restore the image by `uext4 undo` if there is an undo file",
                pointer.offset
            ),
        };
        let found = Self::read(device, &pointer)?;
        found.map(Some).ok_or_else(lost)
    }

    fn read(device: &dyn BlockDevice, pointer: &RepairPointer) -> Result<Option<Self>> {
        let (offset, len) = (pointer.offset.get(), pointer.len.get());
        let inside = offset
            .checked_add(len)
            .is_some_and(|end| end <= device.len());
        if !inside || len < 1024 {
            return Ok(None);
        }
        let mut bytes = [0; SUPERBLOCK_LEN];
        device.read_at(offset, &mut bytes)?;
        let Some(header) = RepairLogHeader::parse(&bytes) else {
            return Ok(None);
        };
        let block_len = header.block_len.get();
        let blocks = header.blocks.get();
        let whole = repair_log::log_blocks(block_len, blocks).checked_mul(block_len.into());
        let (Some(block_size), true) = (
            BlockSize::from_bytes(block_len),
            whole == Some(len) && header.digest[..8] == pointer.digest,
        ) else {
            return Ok(None);
        };
        let numbers_at = offset + u64::from(block_len);
        let contents_at = offset + len - blocks * u64::from(block_len);
        let mut digest = Sha256::new();
        let mut numbers = Vec::new();
        read_in_batches(device, numbers_at, blocks * 8, &mut |bytes| {
            digest.update(bytes);
            let words = bytes.chunks_exact(8);
            numbers.extend(words.filter_map(|w| Some(u64::from_le_bytes(w.try_into().ok()?))));
        })?;
        let contents = blocks * u64::from(block_len);
        read_in_batches(device, contents_at, contents, &mut |bytes| {
            digest.update(bytes)
        })?;
        let device_blocks = device.len() >> block_size.log2();
        let ordered = numbers.is_sorted_by(|a, b| a < b);
        let inside = numbers.last().is_none_or(|&last| last < device_blocks);
        let right = digest.finalize()[..] == header.digest && ordered && inside;
        Ok(right.then_some(Self {
            block_size,
            numbers,
            contents_at,
        }))
    }

    /// How many blocks it changes.
    pub fn blocks(&self) -> u64 {
        len64(self.numbers.len())
    }

    /// The block size that the log counts in.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Shows the device as the finished repair leaves it.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn into_overlay(self, overlay: &Overlay, cause: Cause) -> Result<()> {
        let mut content = vec![0; self.block_size.len()];
        for (at, &number) in (0..).zip(&self.numbers) {
            let from = self.contents_at + (at << self.block_size.log2());
            overlay.base().read_at(from, &mut content)?;
            invert(&mut content);
            overlay.replace(Pblk(number), cause, &content)?;
        }
        Ok(())
    }

    /// Writes what the interrupted repair did not, from step 3 on.
    ///
    /// # Errors
    /// Of the device. The log stays, so that this can be done again.
    pub fn finish(&self, device: &dyn BlockDevice) -> Result<()> {
        let superblock_at = Pblk(SUPERBLOCK_OFFSET >> self.block_size.log2());
        let mut content = vec![0; self.block_size.len()];
        let mut superblock = None;
        for (at, &number) in (0..).zip(&self.numbers) {
            let from = self.contents_at + (at << self.block_size.log2());
            device.read_at(from, &mut content)?;
            invert(&mut content);
            if number == superblock_at.0 {
                superblock = Some(content.clone());
            } else {
                device.write_at(number << self.block_size.log2(), &content)?;
            }
        }
        device.flush()?;
        if let Some(content) = superblock {
            device.write_at(superblock_at.0 << self.block_size.log2(), &content)?;
            device.flush()?;
        }
        Ok(())
    }
}

/// What a plan writes, and where its log goes.
#[derive(Debug)]
pub struct Writes {
    block_size: BlockSize,
    /// The blocks that change, ascending; the superblock's is always among them.
    numbers: Vec<u64>,
    /// The first block of the log, in clusters that are free once the plan is done.
    log: Option<Pblk>,
}

impl Writes {
    /// The writes of `plan`. `used` are the clusters in use once it is done, and those that the
    /// next run would read if this one is cut off before the log is whole: the log takes others.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn new(plan: &Overlay, used: &ClusterSet) -> Result<Self> {
        let block_size = plan.block_size();
        let mut numbers = Vec::new();
        plan.for_each_change(|change| {
            numbers.push(change.block.0);
            Ok(())
        })?;
        let mut log = None;
        if !numbers.is_empty() {
            add_superblock(&mut numbers, block_size);
            let blocks = repair_log::log_blocks(block_size.bytes(), len64(numbers.len()));
            log = free_run(used, &numbers, blocks);
        }
        Ok(Self {
            block_size,
            numbers,
            log,
        })
    }

    /// The writes of a plan that was read: the blocks that change, and where its log goes. `None`
    /// if they do not ascend, or do not lie on the device with its log.
    pub fn of_plan(
        block_size: BlockSize,
        mut numbers: Vec<u64>,
        log: Option<Pblk>,
        device_len: u64,
    ) -> Option<Self> {
        let blocks = device_len >> block_size.log2();
        let inside = numbers.last().is_none_or(|&last| last < blocks);
        if !numbers.is_sorted_by(|a, b| a < b) || !inside {
            return None;
        }
        if !numbers.is_empty() {
            add_superblock(&mut numbers, block_size);
        }
        if let Some(log) = log {
            let len = repair_log::log_blocks(block_size.bytes(), len64(numbers.len()));
            let end = log.0.checked_add(len).filter(|&end| end <= blocks)?;
            let next = numbers.partition_point(|&block| block < log.0);
            if numbers.get(next).is_some_and(|&block| block < end) {
                return None;
            }
        }
        Some(Self {
            block_size,
            numbers,
            log,
        })
    }

    /// Where the log goes, if there is room for one.
    pub fn log(&self) -> Option<Pblk> {
        self.log
    }

    /// How many blocks change.
    pub fn count(&self) -> u64 {
        len64(self.numbers.len())
    }

    /// Whether there is room for a log.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// All blocks that are overwritten, those of the log too, ascending.
    pub fn overwritten(&self) -> Vec<u64> {
        let mut all = self.numbers.clone();
        if let Some(log) = self.log {
            let blocks = repair_log::log_blocks(self.block_size.bytes(), self.count());
            all.extend(log.0..log.0 + blocks);
            all.sort_unstable();
        }
        all
    }

    /// Writes all changes of `plan` to `device`, the one below it, as the head of this file says.
    ///
    /// # Errors
    /// Of the device: then the next run finishes what was begun. [`Error::NoSpace`] if there is no
    /// room for a log: nothing was written then.
    pub fn write(&self, device: &dyn BlockDevice, plan: &Overlay) -> Result<()> {
        if self.numbers.is_empty() {
            return Ok(());
        }
        let log = self.log.ok_or(Error::NoSpace {
            what: "the redo log (an undo file, given by --undo, makes up for it)",
        })?;
        let block_size = self.block_size;
        let mut digest = Sha256::new();
        let numbers = &self.numbers;
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        digest.update(&bytes);
        let offset = log.0 << block_size.log2();
        let len = repair_log::log_blocks(block_size.bytes(), self.count()) << block_size.log2();
        let numbers_at = offset + u64::from(block_size.bytes());
        write_padded(device, numbers_at, &bytes, block_size)?;
        let contents_at = offset + len - (self.count() << block_size.log2());
        let mut to = contents_at;
        let mut content = vec![0; block_size.len()];
        for &number in numbers {
            plan.read_block(Pblk(number), &mut content)?;
            invert(&mut content);
            digest.update(&content);
            device.write_at(to, &content)?;
            to += u64::from(block_size.bytes());
        }
        let digest: [u8; 32] = digest.finalize().into();
        let header = RepairLogHeader::new(block_size.bytes(), self.count(), digest);
        write_padded(device, offset, header.bytes(), block_size)?;
        // The log is whole before anything refers to it.
        device.flush()?;
        let mut short = [0; 8];
        short.copy_from_slice(&digest[..8]);
        point_to_log(device, plan, &RepairPointer::new(offset, len, short))?;
        let log = UnfinishedRepair {
            block_size,
            numbers: numbers.clone(),
            contents_at,
        };
        log.finish(device)
    }

    /// Writes all changes of `plan` in the order of their blocks, without a log: for a device that
    /// is of no use if this is cut off, or whose old contents are in an undo file.
    ///
    /// # Errors
    /// Of the device.
    pub fn write_without_log(&self, device: &dyn BlockDevice, plan: &Overlay) -> Result<()> {
        let mut content = vec![0; self.block_size.len()];
        for &number in &self.numbers {
            plan.read_block(Pblk(number), &mut content)?;
            device.write_at(number << self.block_size.log2(), &content)?;
        }
        device.flush()?;
        Ok(())
    }
}

/// Inverts a block for the log, and back: so that a search for lost metadata does not take the
/// log of a repair that was cut off for it.
fn invert(content: &mut [u8]) {
    for byte in content {
        *byte = !*byte;
    }
}

/// Adds the superblock's block: the pointer is put there, and taken away with its contents.
fn add_superblock(numbers: &mut Vec<u64>, block_size: BlockSize) {
    let block = SUPERBLOCK_OFFSET >> block_size.log2();
    if let Err(at) = numbers.binary_search(&block) {
        numbers.insert(at, block);
    }
}

/// Writes the superblock as it will be, with the pointer. Only its own 1,024 bytes: what else
/// the block holds may be the boot loader's.
fn point_to_log(device: &dyn BlockDevice, plan: &Overlay, pointer: &RepairPointer) -> Result<()> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    plan.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    pointer.store(&mut bytes);
    if let Ok(mut superblock) = SuperBlock::parse(&bytes_with_right_sum(&bytes)) {
        superblock.update_checksum();
        bytes.copy_from_slice(superblock.as_bytes());
    }
    device.write_at(SUPERBLOCK_OFFSET, &bytes)?;
    device.flush()?;
    Ok(())
}

/// The superblock with the checksum that its changed bytes need to be parsed.
fn bytes_with_right_sum(bytes: &[u8; SUPERBLOCK_LEN]) -> [u8; SUPERBLOCK_LEN] {
    let mut right = *bytes;
    let at = SUPERBLOCK_LEN - 4;
    let sum = uext4_ondisk::checksum::crc32c(!0, &right[..at]);
    right[at..].copy_from_slice(&sum.to_le_bytes());
    right
}

/// The first run of free clusters that holds `blocks` blocks, none of which is in `changed`.
fn free_run(used: &ClusterSet, changed: &[u64], blocks: u64) -> Option<Pblk> {
    let wanted = used.of_blocks(used.first_block(0), blocks).end;
    if wanted == 0 {
        return None;
    }
    let mut at = used.first_absent(0)?;
    loop {
        let end = used.first_present(at, at.saturating_add(wanted));
        if end - at >= wanted {
            let start = used.first_block(at);
            let next = changed.partition_point(|&block| block < start.0);
            match changed.get(next).filter(|&&block| block - start.0 < blocks) {
                None => return Some(start),
                Some(&block) => at = used.first_absent(used.of_blocks(Pblk(block), 1).end)?,
            }
            continue;
        }
        at = used.first_absent(end)?;
    }
}

fn write_padded(
    device: &dyn BlockDevice,
    offset: u64,
    bytes: &[u8],
    block_size: BlockSize,
) -> Result<()> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(block_size.len()), 0);
    Ok(device.write_at(offset, &padded)?)
}

fn read_in_batches(
    device: &dyn BlockDevice,
    offset: u64,
    len: u64,
    each: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let mut buf = vec![0; BATCH];
    let mut done = 0;
    while done < len {
        let now = (len - done).min(len64(BATCH));
        let part = &mut buf[..index(now as u32)];
        device.read_at(offset + done, part)?;
        each(part);
        done += now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uext4_blockdev::MemoryDevice;
    use uext4_mkfs::{Options, format, layout};
    use uext4_testkit::{SimDevice, SimOptions};

    use super::*;

    /// An empty file system, whose superblock is damaged if `damaged`, and its clusters in use.
    fn image(damaged: bool) -> (MemoryDevice, ClusterSet) {
        let device = MemoryDevice::new(8 << 20);
        let layout = layout(&Options::new([3; 16], [0; 16], 0), 8 << 20).unwrap();
        format(&layout, &device).unwrap();
        let used = ClusterSet::new(&layout.geometry);
        for run in layout.used_runs() {
            used.add(used.of_blocks(Pblk(run.start), run.len), |_| ());
        }
        if damaged {
            device.write_at(SUPERBLOCK_OFFSET, &[0xFF; 700]).unwrap();
        }
        (device, used)
    }

    /// Changes of some blocks, and of the superblock so that it is whole.
    fn plan(device: &SimDevice, whole: &MemoryDevice, block_size: BlockSize) -> Overlay {
        let base: Arc<dyn BlockDevice> = Arc::new(device.contents());
        let overlay = Overlay::new(base, block_size, u64::MAX);
        let mut superblock = [0; SUPERBLOCK_LEN];
        whole.read_at(SUPERBLOCK_OFFSET, &mut superblock).unwrap();
        let at = index((SUPERBLOCK_OFFSET % u64::from(block_size.bytes())) as u32);
        let first = Pblk(SUPERBLOCK_OFFSET >> block_size.log2());
        let change = |bytes: &mut [u8]| bytes[at..at + SUPERBLOCK_LEN].copy_from_slice(&superblock);
        overlay.update(first, Cause(0), change).unwrap();
        for block in [40, 41, 97, 1000] {
            let change = |bytes: &mut [u8]| bytes.fill(block as u8);
            overlay.update(Pblk(block), Cause(1), change).unwrap();
        }
        overlay
    }

    /// What a run does: it finishes what was begun, or plans anew.
    fn run(device: &SimDevice, whole: &MemoryDevice, used: &ClusterSet) -> Result<()> {
        match UnfinishedRepair::find(device)? {
            Some(repair) => repair.finish(device),
            None => {
                let plan = plan(device, whole, BlockSize::MIN);
                Writes::new(&plan, used)?.write(device, &plan)
            }
        }
    }

    /// The blocks that the file system knows of, and those that the plan changes.
    fn known(device: &MemoryDevice, used: &ClusterSet) -> Vec<u8> {
        let mut bytes = device.to_bytes();
        for (at, block) in (0..).zip(bytes.chunks_mut(1024)) {
            if at != 0 && !used.contains(at - 1) && !(900..1001).contains(&at) {
                block.fill(0);
            }
        }
        bytes
    }

    #[test]
    fn a_cut_at_any_write_is_made_good_by_the_next_run() {
        for damaged in [false, true] {
            let (whole, used) = image(false);
            let (start, _) = image(damaged);
            let device = SimDevice::new(&start, SimOptions::default());
            run(&device, &whole, &used).unwrap();
            let writes = device.stats().changes();
            assert!(writes > 10, "{writes}");
            assert!(UnfinishedRepair::find(&device).unwrap().is_none());
            let wanted = known(&device.contents(), &used);
            let mut found_log = 0;
            for cut in 0..writes {
                for seed in 0..6 {
                    let device = SimDevice::new(
                        &start,
                        SimOptions {
                            seed,
                            ..Default::default()
                        },
                    );
                    device.cut_at_write(cut);
                    assert!(run(&device, &whole, &used).is_err());
                    let after = SimDevice::new(&device.power_cut(seed), SimOptions::default());
                    found_log += u32::from(UnfinishedRepair::find(&after).unwrap().is_some());
                    run(&after, &whole, &used).unwrap();
                    let left = known(&after.contents(), &used);
                    assert!(
                        left == wanted,
                        "cut at {cut}, seed {seed}, damaged {damaged}"
                    );
                    assert!(UnfinishedRepair::find(&after).unwrap().is_none());
                }
            }
            assert!(found_log > 5, "{found_log}");
        }
    }

    #[test]
    fn a_log_that_was_changed_is_refused_and_not_written() {
        let (start, used) = image(false);
        let device = SimDevice::new(&start, SimOptions::default());
        let plan = plan(&device, &start, BlockSize::MIN);
        let writes = Writes::new(&plan, &used).unwrap();
        let log = writes.log.unwrap();
        // Everything but the last writes: the log is whole and the pointer is there.
        device.cut_at_write(2 + writes.count() + 3);
        assert!(writes.write(&device, &plan).is_err());
        let image = device.contents();
        assert!(UnfinishedRepair::find(&image).unwrap().is_some());
        image.write_at((log.0 + 2) * 1024 + 5, &[0x5A]).unwrap();
        let error = UnfinishedRepair::find(&image).unwrap_err();
        assert!(error.to_string().contains("uext4 undo"), "{error}");
    }

    #[test]
    fn without_room_for_a_log_nothing_is_written() {
        let (start, used) = image(false);
        used.add(0..u64::MAX, |_| ());
        let device = SimDevice::new(&start, SimOptions::default());
        let plan = plan(&device, &start, BlockSize::MIN);
        let writes = Writes::new(&plan, &used).unwrap();
        assert!(matches!(
            writes.write(&device, &plan),
            Err(Error::NoSpace { .. })
        ));
        assert_eq!(device.stats().changes(), 0);
        writes.write_without_log(&device, &plan).unwrap();
        assert_eq!(device.stats().changes(), writes.count());
    }
}
