//! File data: allocates blocks in long runs, reads data into the stage, builds the map at the
//! end.

use std::ops::Range;

use uext4_mballoc::Run;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::extent::{EXT_INIT_MAX_LEN, Extent};
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::indirect::Reach;
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags, RawInode};
use uext4_ondisk::pack::block_map::{self, BlockMap, Tables};
use uext4_ondisk::pack::extent_tree::ExtentTree;
use uext4_ondisk::{BlockSize, Ino, Lblk, Pblk};

use super::quota::Share;
use super::sectors::{add_sectors, sectors};
use super::stage::Stage;
use super::{Creator, FileContent, itable};
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::journal::sbi::Sbi;
use crate::map::file_blocks::size_countable;

/// Largest size that does not need `large_file`.
const SMALL_FILE_MAX: u64 = (1 << 31) - 1;

/// Blocks of a file that hold its data already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedRun {
    /// First block of the file.
    pub lblk: Lblk,
    /// The block that it is.
    pub pblk: Pblk,
    /// Blocks, at least one.
    pub len: u32,
}

/// Lists that every file needs, reused so that they are not allocated for each file.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    ranges: Vec<(Lblk, u32)>,
    runs: Vec<Run>,
    meta: Vec<Run>,
    /// The extents of the inode that was mapped last.
    pub(super) extents: Vec<Extent>,
}

impl Creator {
    /// Writes the data of a regular file that has none yet.
    ///
    /// `data` lists the ranges of bytes that hold data, ascending and disjoint; the rest up to
    /// `size` becomes holes where it covers whole blocks.
    ///
    /// # Errors
    /// [`Error::Invalid`] for ranges that violate this or an inode that is not an empty file,
    /// [`Error::FileTooBig`], [`Error::NoSpace`], [`Error::Content`] from the source, device
    /// errors.
    pub fn write_file(
        &mut self,
        ino: Ino,
        size: u64,
        data: &[Range<u64>],
        source: &mut dyn FileContent,
    ) -> Result<()> {
        self.begin()?;
        let mut ranges = std::mem::take(&mut self.scratch.ranges);
        let checked = self.check_contents(size, data, &mut ranges);
        let result = match checked {
            Ok(()) => {
                let result = self.write_ranges(ino, size, data, &ranges, source);
                self.end(result)
            }
            refused => refused,
        };
        self.scratch.ranges = ranges;
        result
    }

    /// Checks that such a file is possible, and computes the blocks that hold its data.
    fn check_contents(
        &self,
        size: u64,
        data: &[Range<u64>],
        ranges: &mut Vec<(Lblk, u32)>,
    ) -> Result<()> {
        let block_size = self.sbi.geometry().block_size;
        let blocks_max = Reach::new(block_size).blocks_max();
        let max = blocks_max.saturating_mul(block_size.bytes().into());
        let countable = size_countable(self.sbi.geometry());
        if !self.sbi.has_extents() && size > max || size > countable {
            return Err(Error::FileTooBig);
        }
        block_ranges(block_size, size, data, ranges)
    }

    /// Gives an empty regular file the blocks in `runs`, which hold its data already and are in
    /// use in the bitmaps.
    ///
    /// # Errors
    /// [`Error::Invalid`] for runs that are empty, out of order or past the end of the file or of
    /// the file system, and for an inode that is not an empty file; [`Error::FileTooBig`],
    /// [`Error::NoSpace`] for the blocks of the map; device errors.
    pub fn place_file(&mut self, ino: Ino, size: u64, runs: &[PlacedRun]) -> Result<()> {
        self.begin()?;
        self.check_placed(size, runs)?;
        let result = self.place_checked(ino, size, runs);
        self.end(result)
    }

    fn check_placed(&self, size: u64, runs: &[PlacedRun]) -> Result<()> {
        let geometry = self.sbi.geometry();
        let block_size = geometry.block_size;
        if !self.sbi.has_extents() || size > size_countable(geometry) {
            return Err(Error::FileTooBig);
        }
        let (mut next, past) = (0, block_size.blocks_for(size));
        if past > u64::from(Lblk::LAST.0) + 1 {
            return Err(Error::FileTooBig);
        }
        for run in runs {
            let (start, len) = (u64::from(run.lblk.0), u64::from(run.len));
            let place_end = run.pblk.0.checked_add(len);
            let is_inside = place_end.is_some_and(|end| end <= geometry.blocks_count);
            if len == 0 || start < next || start + len > past || !is_inside {
                let (start, len) = (start << block_size.log2(), len << block_size.log2());
                let end = start.saturating_add(len);
                return Err(Invalid::Data { start, end, size }.into());
            }
            next = start + len;
        }
        Ok(())
    }

    fn place_checked(&mut self, ino: Ino, size: u64, runs: &[PlacedRun]) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        self.scratch.extents.clear();
        for run in runs {
            let mut done = 0;
            while done < run.len {
                let len = (run.len - done).min(EXT_INIT_MAX_LEN.into());
                self.scratch.extents.push(Extent {
                    lblk: Lblk(run.lblk.0 + done),
                    len: len as u16,
                    pblk: Pblk(run.pblk.0 + u64::from(done)),
                    unwritten: false,
                });
                done += len;
            }
        }
        let mut mapped = RawInode::zeroed();
        mapped.i_flags = InodeFlags::EXTENTS.bits().into();
        let data: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        let tree = self.map_extents(&mut mapped, ino)?;
        let per_block = 1u64 << (self.sbi.geometry().block_size.log2() - 9);
        add_sectors(&mut mapped, self.sbi.geometry(), (data + tree) * per_block)?;
        self.store_map(ino, size, &mapped)
    }

    fn write_ranges(
        &mut self,
        ino: Ino,
        size: u64,
        data: &[Range<u64>],
        ranges: &[(Lblk, u32)],
        source: &mut dyn FileContent,
    ) -> Result<()> {
        if size == 0 || self.write_inline(ino, size, data, source)? {
            return Ok(());
        }
        let mut mapped = RawInode::zeroed();
        self.map_new(&mut mapped, ino, ranges)?;
        let block_size = self.sbi.geometry().block_size;
        copy(
            &mut self.stage,
            block_size,
            &self.scratch.extents,
            data,
            source,
        )?;
        self.store_map(ino, size, &mapped)
    }

    /// Stores size, map and space of a file in its inode.
    fn store_map(&mut self, ino: Ino, size: u64, mapped: &RawInode) -> Result<()> {
        let geometry = self.sbi.geometry();
        let (old, new) = itable::update(&self.sbi, ino, None, |raw| {
            let is_file = FileType::from_mode(raw.i_mode.get()) == Some(FileType::Regular);
            if !is_file || raw.i_size_lo.get() != 0 || raw.i_size_high.get() != 0 {
                return Err(Error::Invalid(Invalid::NotEmptyFile(ino)));
            }
            raw.i_size_lo = (size as u32).into();
            raw.i_size_high = ((size >> 32) as u32).into();
            raw.i_block = mapped.i_block;
            let old = Share::of(raw, geometry, 0);
            add_sectors(raw, geometry, sectors(mapped))?;
            Ok((old, Share::of(raw, geometry, 0)))
        })?;
        self.usage.change(Some(old), new);
        if size > SMALL_FILE_MAX {
            self.need_large_file();
        }
        Ok(())
    }

    /// Allocates blocks for `ranges` of a new inode, and stores the map and the space used in
    /// `raw`; the extents are then in the scratch lists.
    pub(super) fn map_new(
        &mut self,
        raw: &mut RawInode,
        ino: Ino,
        ranges: &[(Lblk, u32)],
    ) -> Result<()> {
        let data: u64 = ranges.iter().map(|&(_, len)| u64::from(len)).sum();
        self.scratch.runs.clear();
        let tree = if self.sbi.has_extents() {
            raw.i_flags = (raw.i_flags.get() | InodeFlags::EXTENTS.bits()).into();
            self.space
                .take(&self.sbi, &self.groups, data, &mut self.scratch.runs)?;
            to_extents(ranges, &self.scratch.runs, &mut self.scratch.extents);
            self.map_extents(raw, ino)?
        } else {
            let block_size = self.sbi.geometry().block_size;
            let meta = tables_of(block_size, ranges).ok_or(Error::FileTooBig)?;
            let (needed, free) = (data.saturating_add(meta), self.space.free_blocks());
            if needed > free {
                return Err(Error::NoSpace { needed, free });
            }
            // The tables first: they are read first.
            self.scratch.meta.clear();
            self.space
                .take(&self.sbi, &self.groups, meta, &mut self.scratch.meta)?;
            self.space
                .take(&self.sbi, &self.groups, data, &mut self.scratch.runs)?;
            to_extents(ranges, &self.scratch.runs, &mut self.scratch.extents);
            raw.i_block = self.map_numbers()?;
            meta
        };
        let per_block = 1u64 << (self.sbi.geometry().block_size.log2() - 9);
        add_sectors(raw, self.sbi.geometry(), (data + tree) * per_block)
    }

    /// Builds the extent tree for the extents in the scratch list; returns the number of its
    /// blocks.
    fn map_extents(&mut self, raw: &mut RawInode, ino: Ino) -> Result<u64> {
        let tree = ExtentTree::new(self.sbi.geometry().block_size, self.inode_seed(ino));
        let (space, sbi, groups) = (&mut self.space, &self.sbi, &self.groups);
        tree.pack(&mut raw.i_block, &self.scratch.extents, |node| {
            let block = space.take_one(sbi, groups)?;
            sbi.cache()
                .getblk_zeroed(block)
                .modify(|bytes| node.write(bytes));
            Ok(block)
        })
    }

    /// Builds the block map for the extents in the scratch list; its tables use the blocks there.
    fn map_numbers(&self) -> Result<[u8; I_BLOCK_LEN]> {
        let blocks = |run: &Run| (run.start.0..run.start.0 + u64::from(run.len)).map(Pblk);
        let mut tables = TakenTables {
            sbi: &self.sbi,
            spare: self.scratch.meta.iter().flat_map(blocks),
        };
        let mut map = BlockMap::new(self.sbi.geometry().block_size);
        for extent in &self.scratch.extents {
            let (lblk, len) = (extent.lblk.0.into(), extent.len.into());
            map.put(lblk, extent.pblk, len, &mut tables)?;
        }
        Ok(map.finish(&mut tables))
    }

    /// Seed for checksums of structures that belong to an inode; new inodes have generation 0.
    pub(super) fn inode_seed(&self, ino: Ino) -> Option<CsumSeed> {
        self.sbi.geometry().csum_seed.map(|seed| seed.inode(ino, 0))
    }

    fn need_large_file(&mut self) {
        let mut features = self.superblock.features();
        if !features.ro_compat.contains(RoCompat::LARGE_FILE) {
            features.ro_compat |= RoCompat::LARGE_FILE;
            self.superblock.set_features(features);
        }
    }
}

/// Tables in blocks that were allocated before.
struct TakenTables<'a, I> {
    sbi: &'a Sbi,
    spare: I,
}

impl<I: Iterator<Item = Pblk>> Tables for TakenTables<'_, I> {
    type Error = Error;

    fn take(&mut self) -> Result<Pblk> {
        self.spare.next().ok_or(Error::FileTooBig)
    }

    fn put(&mut self, at: Pblk, table: &[u8]) {
        let buffer = self.sbi.cache().getblk_zeroed(at);
        buffer.modify(|bytes| bytes.copy_from_slice(table));
    }
}

/// Number of tables of a file without extents whose data is in these blocks; `None` if it is too
/// large.
pub(super) fn tables_of(block_size: BlockSize, ranges: &[(Lblk, u32)]) -> Option<u64> {
    let range = |&(start, len): &(Lblk, u32)| {
        let start = u64::from(start.0);
        start..start + u64::from(len)
    };
    block_map::tables(block_size, ranges.iter().map(range))
}

/// Computes the blocks that hold `data`; adjacent ones are joined.
pub(super) fn block_ranges(
    block_size: BlockSize,
    size: u64,
    data: &[Range<u64>],
    ranges: &mut Vec<(Lblk, u32)>,
) -> Result<()> {
    if block_size.blocks_for(size) > u64::from(Lblk::LAST.0) + 1 {
        return Err(Error::FileTooBig);
    }
    ranges.clear();
    let mut end = 0;
    for range in data {
        if range.start < end || range.start > range.end || range.end > size {
            let (start, end) = (range.start, range.end);
            return Err(Invalid::Data { start, end, size }.into());
        }
        end = range.end;
        if range.is_empty() {
            continue;
        }
        // Both fit 32 bits, because the size does.
        let first = (range.start >> block_size.log2()) as u32;
        let past = block_size.blocks_for(range.end) as u32;
        match ranges.last_mut() {
            Some((start, len)) if start.0 + *len >= first => *len = past - start.0,
            _ => ranges.push((Lblk(first), past - first)),
        }
    }
    Ok(())
}

/// Maps logical ranges to physical runs of the same number of blocks.
fn to_extents(ranges: &[(Lblk, u32)], runs: &[Run], extents: &mut Vec<Extent>) {
    extents.clear();
    let mut runs = runs.iter();
    let mut run = Run {
        start: Pblk(0),
        len: 0,
    };
    for &(start, len) in ranges {
        let mut done = 0;
        while done < len {
            if run.len == 0 {
                match runs.next() {
                    Some(next) => run = *next,
                    None => return,
                }
            }
            let part = (len - done).min(run.len).min(EXT_INIT_MAX_LEN.into());
            extents.push(Extent {
                lblk: Lblk(start.0 + done),
                len: part as u16,
                pblk: run.start,
                unwritten: false,
            });
            done += part;
            run.start.0 += u64::from(part);
            run.len -= part;
        }
    }
}

/// Reads the data of all extents into the stage; parts of blocks without data are zeroed.
fn copy(
    stage: &mut Stage,
    block_size: BlockSize,
    extents: &[Extent],
    data: &[Range<u64>],
    source: &mut dyn FileContent,
) -> Result<()> {
    let mut data = data.iter().filter(|range| !range.is_empty()).cloned();
    let mut range = data.next();
    for extent in extents {
        let mut offset = u64::from(extent.lblk.0) << block_size.log2();
        let mut place = extent.pblk.0 << block_size.log2();
        let mut left = u64::from(extent.len) << block_size.log2();
        while left > 0 {
            let mut room = stage.room(place, left)?;
            let len = room.len() as u64;
            (offset, place, left) = (offset + len, place + len, left - len);
            let mut at = offset - len;
            while !room.is_empty() {
                // Zeroes up to the next range, then the rest of that range.
                let (gap, fill) = match &range {
                    Some(r) => (r.start.saturating_sub(at), r.end - r.start.max(at)),
                    None => (u64::MAX, 0),
                };
                let (zeroes, rest) = room.split_at_mut(clip(gap, room.len()));
                zeroes.fill(0);
                let (bytes, rest) = rest.split_at_mut(clip(fill, rest.len()));
                at += zeroes.len() as u64;
                if !bytes.is_empty() {
                    let result = source.read_exact_at(at, bytes);
                    result.map_err(|source| Error::Content { offset: at, source })?;
                    at += bytes.len() as u64;
                }
                if range.as_ref().is_some_and(|r| r.end <= at) {
                    range = data.next();
                }
                room = rest;
            }
        }
    }
    Ok(())
}

fn clip(len: u64, max: usize) -> usize {
    usize::try_from(len).map_or(max, |len| len.min(max))
}
