//! Inodes and blocks of directories that are damaged, from older copies in the journal.
//!
//! The ring of the journal still holds what was checkpointed long ago. Where an inode or a block of
//! a directory is not what it must be in its place, and the newest copy is, the copy is taken. It
//! may be older than what was lost: a file may have grown since, or be another one. So this is done
//! only for `salvage`, where something old is better than nothing; a repair never does it.
//!
//! An inode is replaced by itself, not with its whole block: its neighbours may be right, and
//! newer. An inode of zeroes is right, unless all of its block is. One of which only the checksum
//! is wrong is not replaced either: it is newer than its copy, and may have lost one bit.

use uext4_blockdev::BlockDevice;
use uext4_jbd2::{ReplayedBlock, older_copies};
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::dir_entry::{self, DirBlock};
use uext4_ondisk::features::Compat;
use uext4_ondisk::htree::{self, DX_NODE_ENTRIES_OFFSET, DX_ROOT_ENTRIES_OFFSET};
use uext4_ondisk::inode::{
    FileType, InodeFlags, NDIR_BLOCKS, RawInode, inode_checksum, stored_checksum,
};
use uext4_ondisk::journal::unescape;
use uext4_ondisk::num::{len64, lo32};
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk, extent, indirect};

use super::{find, is_external};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::JournalProblem;
use crate::report::{Findings, Pass, Progress};
use crate::strict_map::Map;
use crate::used_inodes::{Used, for_each_inode};
use crate::volume::{Volume, generation};

/// Copies after which the progress is shown.
const STEP: usize = 256;

/// Restores in the overlay what the journal has copies of.
///
/// # Errors
/// Of the device and of the overlay.
pub fn restore(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let superblock = volume.superblock();
    let has_journal = superblock.features().compat.contains(Compat::HAS_JOURNAL);
    if !has_journal || is_external(&superblock) {
        return Ok(());
    }
    let Some(found) = find(volume)? else {
        return Ok(());
    };
    let geometry = volume.geometry();
    let device: &dyn BlockDevice = volume.overlay();
    let runs = &found.map.runs;
    let mut stopped = None;
    let found = older_copies(
        device,
        geometry.block_size,
        geometry.blocks_count,
        runs,
        &mut |done, total| {
            stopped = step(findings, done, total).err();
            stopped.is_none()
        },
    );
    if let Some(error) = stopped {
        return Err(error);
    }
    let copies = match found {
        Ok(copies) => copies,
        Err(uext4_jbd2::Error::Device(error)) => return Err(error.into()),
        // Of a journal that is damaged itself there are none.
        Err(_) => return Ok(()),
    };
    let copies = Copies {
        volume,
        findings,
        copies,
    };
    let others = copies.inodes()?;
    copies.directories(&others)
}

/// Shows how far it has come.
///
/// # Errors
/// [`crate::Error::Cancelled`] if it is to stop.
fn step(findings: &Findings<'_>, done: u64, total: u64) -> Result<()> {
    findings.progress(Progress {
        pass: Pass::Super,
        done,
        total,
    })
}

struct Copies<'a> {
    volume: &'a Volume,
    findings: &'a Findings<'a>,
    /// Sorted by home location.
    copies: Vec<ReplayedBlock>,
}

impl Copies<'_> {
    /// Restores inodes, and returns the copies of other blocks.
    fn inodes(&self) -> Result<Vec<ReplayedBlock>> {
        let geometry = self.volume.geometry();
        let groups = (0..).map(GroupNr).zip(self.volume.groups());
        let mut tables: Vec<(u64, GroupNr)> = groups
            .map(|(group, desc)| (desc.inode_table.0, group))
            .collect();
        tables.sort_unstable();
        let per_block = geometry.block_size.bytes() / u32::from(geometry.inode_size);
        let mut others = Vec::new();
        for (at, copy) in self.copies.iter().enumerate() {
            self.step(at)?;
            let next = tables.partition_point(|&(start, _)| start <= copy.home.0);
            let table = next.checked_sub(1).and_then(|at| tables.get(at));
            let inside = table.and_then(|&(start, group)| {
                let skip = copy.home.0 - start;
                (skip < geometry.itable_blocks().into()).then_some((group, lo32(skip)))
            });
            match inside {
                None => others.push(*copy),
                Some((group, skip)) => {
                    let before = group.0.saturating_mul(geometry.inodes_per_group.get());
                    let first = before.saturating_add(skip.saturating_mul(per_block));
                    self.inodes_of_block(copy, Ino(first.saturating_add(1)))?;
                }
            }
        }
        Ok(others)
    }

    /// Shows how many copies were judged, from time to time.
    fn step(&self, at: usize) -> Result<()> {
        match at % STEP {
            0 => step(self.findings, len64(at), len64(self.copies.len())),
            _ => Ok(()),
        }
    }

    fn inodes_of_block(&self, copy: &ReplayedBlock, first: Ino) -> Result<()> {
        let volume = self.volume;
        let size = usize::from(volume.geometry().inode_size);
        let mut now = vec![0; volume.geometry().block_size.len()];
        volume.overlay().read_block(copy.home, &mut now)?;
        let old = self.content(copy)?;
        let is_zeroed = now.iter().all(|&byte| byte == 0);
        let both = now.chunks_exact(size).zip(old.chunks_exact(size));
        let last = volume.geometry().inodes_count;
        for (at, (ino, (now, old))) in (first.0..=last).map(Ino).zip(both).enumerate() {
            let is_lost = is_zeroed || !(self.is_right(now, ino) || self.can_be(now, ino));
            if !is_lost || !self.is_used(old, ino) {
                continue;
            }
            let finding = Finding::new(JournalProblem::OlderInode, Place::inode(ino));
            let cause = self.findings.report(finding.found(copy.log.0));
            volume.overlay().update(copy.home, cause, |bytes| {
                bytes[at * size..][..size].copy_from_slice(old);
            })?;
        }
        Ok(())
    }

    /// Restores blocks of directories.
    fn directories(&self, copies: &[ReplayedBlock]) -> Result<()> {
        let mut blocks = Vec::new();
        for (at, copy) in copies.iter().enumerate() {
            self.step(at)?;
            let content = self.content(copy)?;
            if self.is_names(&content, copy.home) {
                blocks.push(*copy);
            }
        }
        if blocks.is_empty() {
            return Ok(());
        }
        let groups = self.volume.geometry().groups_count.get();
        for group in (0..groups).map(GroupNr) {
            step(self.findings, group.0.into(), groups.into())?;
            for_each_inode(self.volume, group, |used| {
                self.directory(used, &blocks)?;
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// Restores the blocks of a directory that are among these, which are sorted.
    fn directory(&self, used: &Used<'_>, blocks: &[ReplayedBlock]) -> Result<()> {
        let is_directory = FileType::from_mode(used.raw.i_mode.get()) == Some(FileType::Directory);
        if !is_directory || !self.is_right(used.bytes, used.ino) {
            return Ok(());
        }
        let Some(map) = Map::of(self.volume, &used.raw)? else {
            return Ok(());
        };
        let seed = self.volume.geometry().csum_seed;
        let seed = seed.map(|seed| seed.inode(used.ino, used.raw.i_generation.get()));
        let mut lblk = 0_u32;
        for run in &map.runs {
            let end = run.start.0.saturating_add(run.len.into());
            let first = blocks.partition_point(|copy| copy.home < run.start);
            let inside = blocks.iter().skip(first);
            for copy in inside.take_while(|copy| copy.home.0 < end) {
                let skip = lo32(copy.home.0 - run.start.0);
                let at = Lblk(lblk.saturating_add(skip));
                self.block(used.ino, at, copy, seed)?;
            }
            lblk = lblk.saturating_add(run.len);
        }
        Ok(())
    }

    fn block(
        &self,
        ino: Ino,
        lblk: Lblk,
        copy: &ReplayedBlock,
        seed: Option<CsumSeed>,
    ) -> Result<()> {
        let volume = self.volume;
        let mut now = vec![0; volume.geometry().block_size.len()];
        volume.overlay().read_block(copy.home, &mut now)?;
        let old = self.content(copy)?;
        let is_right = |bytes: &[u8]| {
            // The first one begins with the directory's own number.
            let is_own = lblk.0 != 0 || bytes.starts_with(&ino.0.to_le_bytes());
            is_own
                && match seed {
                    None => self.is_names(bytes, copy.home),
                    Some(seed) => is_summed(bytes, lblk, copy.home, seed),
                }
        };
        if is_right(&now) || !is_right(&old) {
            return Ok(());
        }
        let place = Place::inode(ino).lblk(lblk).block(copy.home);
        let finding = Finding::new(JournalProblem::OlderNames, place);
        let cause = self.findings.report(finding.found(copy.log.0));
        volume.overlay().replace(copy.home, cause, &old)
    }

    /// Whether the records of a block follow each other to its end.
    fn is_names(&self, bytes: &[u8], block: Pblk) -> bool {
        let incompat = self.volume.geometry().features.incompat;
        let mut records = DirBlock::new(bytes, Some(block), incompat);
        records.all(|record| record.is_ok())
    }

    /// What a copy holds.
    fn content(&self, copy: &ReplayedBlock) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.volume.geometry().block_size.len()];
        self.volume.overlay().read_block(copy.log, &mut bytes)?;
        if copy.escaped {
            unescape(&mut bytes, 0);
        }
        Ok(bytes)
    }

    /// Whether an inode can be as it is: by its checksum, else by its type and map.
    fn is_right(&self, bytes: &[u8], ino: Ino) -> bool {
        if bytes.iter().all(|&byte| byte == 0) {
            return true;
        }
        if let Some(seed) = self.volume.geometry().csum_seed {
            let sum = inode_checksum(bytes, seed, ino, generation(bytes));
            return sum == stored_checksum(bytes);
        }
        self.can_be(bytes, ino)
    }

    /// Whether an inode can be as it is by its type and map, whatever its checksum.
    fn can_be(&self, bytes: &[u8], ino: Ino) -> bool {
        let Ok(raw) = RawInode::parse(bytes, ino) else {
            return false;
        };
        let mode = raw.i_mode.get();
        match FileType::from_mode(mode) {
            None => mode == 0 && ino.0 < self.volume.geometry().first_ino,
            Some(FileType::Regular | FileType::Directory) => self.can_map(&raw),
            Some(FileType::Symlink) => {
                let size = raw.i_size_lo.get();
                size != 0 && size <= self.volume.geometry().block_size.bytes()
            }
            Some(_) => raw.i_size_lo.get() == 0,
        }
    }

    /// Whether the root of the map can be one.
    fn can_map(&self, raw: &RawInode) -> bool {
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        if flags.contains(InodeFlags::INLINE_DATA) {
            return true;
        }
        if flags.contains(InodeFlags::EXTENTS) {
            return extent::ExtentNode::parse(&raw.i_block, None, None).is_ok();
        }
        (0..NDIR_BLOCKS).all(|at| {
            let number = u64::from(indirect::number_at(&raw.i_block, at));
            number == 0 || self.volume.geometry().contains(Pblk(number), 1)
        })
    }

    /// Whether an inode is right, and in use.
    fn is_used(&self, bytes: &[u8], ino: Ino) -> bool {
        let raw = RawInode::parse(bytes, ino);
        let is_linked = raw.is_ok_and(|raw| {
            raw.i_links_count.get() != 0 && FileType::from_mode(raw.i_mode.get()).is_some()
        });
        is_linked && self.is_right(bytes, ino)
    }
}

/// Whether a block of a directory has the right checksum: one of names, or one of the index.
fn is_summed(bytes: &[u8], lblk: Lblk, block: Pblk, seed: CsumSeed) -> bool {
    let offset = match lblk.0 {
        0 => DX_ROOT_ENTRIES_OFFSET,
        _ => DX_NODE_ENTRIES_OFFSET,
    };
    dir_entry::verify_tail(bytes, block, seed).is_ok()
        || htree::verify_tail(bytes, offset, lblk, block, seed).is_ok()
}
