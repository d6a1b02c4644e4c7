//! Moves the journal itself.
//!
//! The kernel maps the log before it replays it, and uses that map afterwards: no transaction may
//! change where the log lies. So the log changes its place by one write of its inode, which lies
//! within a sector, while the log is empty; the two transactions around it leave the log alone. The
//! tables of a map lie where nothing refers to yet, and are written before its inode is:
//!
//! ```text
//!                     log               behind it: blocks that the log's superblock leaves out
//! before              old
//! 1. transaction      old               new, tables of step 2
//! 2. inode            new               old, tables of step 1
//! 3. transaction      new
//! ```
//! Whatever cuts it off, all these blocks belong to the inode, the log is where it says, and its
//! superblock says how long it is. The kernel does not replay the third step: it would go on to
//! keep others from the blocks that the inode has given up.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use uext4::device::write_blocks;
use uext4_blockdev::Clock;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::extent::Extent;
use uext4_ondisk::inode::{I_BLOCK_LEN, RawInode, update_checksum};
use uext4_ondisk::journal::JournalSuperblock;
use uext4_ondisk::num::{hi32, lo32};
use uext4_ondisk::pack::block_map::{self, BlockMap, Tables};
use uext4_ondisk::pack::extent_tree::ExtentTree;
use uext4_ondisk::{BlockSize, Ino, Lblk, Pblk};

use crate::batch::Batch;
use crate::extents::{self, Tree, push};
use crate::inodes::MapKind;
use crate::state::{LOG_RUNS_MAX, State};
use crate::transaction::{Copied, Recovery};
use crate::{Error, Result, indirect, quota};

/// A map that is to be, with the blocks of its tables.
struct Map {
    i_block: [u8; I_BLOCK_LEN],
    blocks: BTreeMap<Pblk, Vec<u8>>,
    /// Logical blocks.
    len: u64,
}

/// The journal's inode.
struct Log {
    ino: Ino,
    kind: MapKind,
    size: BlockSize,
    seed: Option<CsumSeed>,
}

/// Moves the log if it lies past the limit, wholly or in part.
///
/// # Errors
/// [`Error::Full`], also if there is room but in too many pieces; those of the device and the
/// journal.
pub fn move_log(batch: &mut Batch<'_>, ino: Ino) -> Result<()> {
    let log = Log::of(batch, ino)?;
    let old = runs(batch)?;
    let tables = log.tables(batch)?;
    let limit = batch.limit.0;
    let goes = |extent: &Extent| extent.pblk.0 + u64::from(extent.len) > limit;
    if !old.iter().any(goes) && tables.iter().all(|table| table.0 < limit) {
        return Ok(());
    }
    batch.copies = Some(Vec::new());
    let new = extents::move_runs(batch, &old);
    let copies = batch.copies.take().unwrap_or_default();
    let new = new?;
    if old.len() + new.len() + copies.len() > LOG_RUNS_MAX {
        return Err(Error::Full);
    }
    log.carry_out(batch, &Places { old, new, copies }, &tables)
}

/// Gives back what a move that was cut off left behind the log: it would count as used.
///
/// # Errors
/// Those of the device and the journal.
pub fn end_cut_move(state: State, clock: &Arc<dyn Clock>) -> Result<State> {
    let geometry = state.geometry.clone();
    let mut batch = Batch::new(state, clock, &geometry)?;
    let ino = batch.journal();
    if ino != Ino(0) {
        Log::of(&batch, ino)?.trim(&mut batch)?;
    }
    Ok(batch.state)
}

/// Where the log is, and will be.
struct Places {
    old: Vec<Extent>,
    new: Vec<Extent>,
    copies: Vec<Copied>,
}

/// The runs that the journal's inode maps.
fn runs(batch: &Batch<'_>) -> Result<Vec<Extent>> {
    let mut runs = Vec::new();
    let mut left = batch.geometry().blocks_count;
    for run in batch.state.log()?.unwrap_or_default() {
        let rest = left.checked_sub(run.len.into());
        let what = "the journal has more blocks than the file system";
        left = rest.ok_or(Error::Unsound { what })?;
        append(&mut runs, run.start, run.len.into());
    }
    // Twice as many must have numbers.
    match len_of(&runs) < 1 << 30 {
        true => Ok(runs),
        false => Err(Error::Full),
    }
}

/// Adds blocks behind those that there are.
fn append(extents: &mut Vec<Extent>, start: Pblk, blocks: u64) {
    let mut done = 0;
    while done < blocks {
        let len = (blocks - done).min(1 << 14) as u16;
        let last = extents.last();
        let next = last.map_or(0, |last| last.lblk.0 + u32::from(last.len));
        let part = Extent {
            lblk: Lblk(next),
            len,
            pblk: Pblk(start.0 + done),
            unwritten: false,
        };
        push(extents, part);
        done += u64::from(len);
    }
}

impl Log {
    fn of(batch: &Batch<'_>, ino: Ino) -> Result<Self> {
        let raw = RawInode::parse(&batch.inode(ino)?, ino)?;
        let generation = raw.i_generation.get();
        let geometry = batch.geometry();
        Ok(Self {
            ino,
            kind: MapKind::of(&raw),
            size: geometry.block_size,
            seed: geometry.csum_seed.map(|seed| seed.inode(ino, generation)),
        })
    }

    fn carry_out(&self, batch: &mut Batch<'_>, places: &Places, tables: &[Pblk]) -> Result<()> {
        let mut behind = places.old.clone();
        let mut ahead = places.new.clone();
        for copied in &places.copies {
            append(&mut behind, copied.to, copied.blocks);
            append(&mut ahead, copied.from, copied.blocks);
        }
        let spare = self.spare(batch, &[&behind, &ahead])?;
        let (first, second) = spare.split_at(spare.len() / 2);
        let before = self.with_spare(behind, first, second)?;
        let after = self.with_spare(ahead, second, first)?;
        // 1. Nothing changes for the log.
        let moved = places
            .copies
            .iter()
            .map(|copied| copied.blocks)
            .sum::<u64>();
        let bits = batch.geometry().cluster_bits;
        let clusters = moved.div_ceil(1 << bits) as i64 + spare.len() as i64;
        for table in tables {
            batch.free(*table, 1)?;
        }
        self.put(batch, &before, clusters - tables.len() as i64)?;
        batch.commit()?;
        // 2.
        self.switch(batch, places, &after)?;
        // 3.
        self.trim(batch)
    }

    /// Takes from the inode what lies behind the blocks that the log says it has.
    fn trim(&self, batch: &mut Batch<'_>) -> Result<()> {
        let all = runs(batch)?;
        let Some(first) = all.first() else {
            return Ok(());
        };
        let superblock = JournalSuperblock::parse(&batch.block(first.pblk)?)?;
        let mut left = u64::from(superblock.s_maxlen.get());
        if left >= len_of(&all) {
            return Ok(());
        }
        let bits = batch.geometry().cluster_bits;
        let mut kept = Vec::new();
        let mut clusters = 0;
        let mut behind = Vec::new();
        for run in all {
            let here = left.min(run.len.into());
            left -= here;
            append(&mut kept, run.pblk, here);
            let rest = u64::from(run.len) - here;
            if rest > 0 {
                let rest_clusters = rest.div_ceil(1 << bits) as u32;
                behind.push((Pblk(run.pblk.0 + here), rest_clusters));
                clusters += i64::from(rest_clusters);
            }
        }
        let tables = self.tables(batch)?;
        let need = self.tables_of(&kept)?;
        let fresh: Vec<Pblk> = (0..need)
            .map(|_| Ok(batch.allocate(1)?.start))
            .collect::<Result<_>>()?;
        let map = self.build(&kept, &fresh)?;
        for (start, clusters) in behind {
            batch.free(start, clusters)?;
        }
        for table in &tables {
            batch.free(*table, 1)?;
        }
        let more = need as i64 - clusters - tables.len() as i64;
        self.put(batch, &map, more)?;
        // The kernel would go on with the map of before.
        batch.commit_for(Recovery::NotByKernel)
    }

    /// The blocks of the map that the inode has.
    fn tables(&self, batch: &Batch<'_>) -> Result<Vec<Pblk>> {
        let raw = RawInode::parse(&batch.inode(self.ino)?, self.ino)?;
        let owned = quota::blocks_of(batch.geometry(), &raw);
        match self.kind {
            MapKind::Extents => Ok(Tree::read(batch, &raw, owned)?.nodes),
            _ => indirect::tables_of(batch, &raw, owned),
        }
    }

    /// Tables of both maps, each of which maps those of the other one.
    fn spare(&self, batch: &mut Batch<'_>, maps: &[&Vec<Extent>]) -> Result<Vec<Pblk>> {
        let mut count = 0;
        loop {
            let mut need = 0;
            for map in maps {
                let mut all = (*map).clone();
                for _ in 0..count {
                    // Of no block: extents that do not continue another.
                    append(&mut all, Pblk(0), 1);
                }
                need = need.max(self.tables_of(&all)?);
            }
            if need <= count {
                break;
            }
            count = need;
        }
        // A table would take a cluster, whose other blocks no logical block fits.
        if count > 0 && batch.geometry().cluster_bits > 0 {
            return Err(Error::Full);
        }
        (0..2 * count)
            .map(|_| Ok(batch.allocate(1)?.start))
            .collect()
    }

    /// The map of `extents` with tables in `own`; it maps `others` too, and what it does not need
    /// of `own`.
    fn with_spare(&self, extents: Vec<Extent>, own: &[Pblk], others: &[Pblk]) -> Result<Map> {
        for used in 0..=own.len() {
            let (tables, rest) = own.split_at(used);
            let mut all = extents.clone();
            for block in others.iter().chain(rest) {
                append(&mut all, *block, 1);
            }
            if self.tables_of(&all)? == used {
                return self.build(&all, tables);
            }
        }
        Err(Error::Full)
    }

    /// Tables that a map takes.
    fn tables_of(&self, extents: &[Extent]) -> Result<usize> {
        let count = extents.len() as u64;
        let need = match self.kind {
            MapKind::Extents => ExtentTree::new(self.size, self.seed).blocks(count),
            _ => block_map::tables(self.size, iter::once(0..len_of(extents))),
        };
        let what = "moving a journal of so many pieces";
        Ok(need.ok_or(Error::Unsupported { what })? as usize)
    }

    /// Builds a map whose tables lie in `tables`.
    fn build(&self, extents: &[Extent], tables: &[Pblk]) -> Result<Map> {
        let mut map = Map {
            i_block: [0; I_BLOCK_LEN],
            blocks: Default::default(),
            len: len_of(extents),
        };
        let mut places = tables.iter().copied();
        if self.kind == MapKind::Extents {
            let tree = ExtentTree::new(self.size, self.seed);
            tree.pack(&mut map.i_block, extents, |node| {
                let place = places.next().ok_or(Error::Full)?;
                let mut block = vec![0; self.size.len()];
                node.write(&mut block);
                map.blocks.insert(place, block);
                Ok::<_, Error>(place)
            })?;
            return Ok(map);
        }
        let mut taken = Taken {
            places,
            blocks: Default::default(),
        };
        let mut numbers = BlockMap::new(self.size);
        for extent in extents {
            let (lblk, len) = (extent.lblk.0.into(), extent.len.into());
            numbers.put(lblk, extent.pblk, len, &mut taken)?;
        }
        map.i_block = numbers.finish(&mut taken);
        map.blocks = taken.blocks;
        Ok(map)
    }

    /// The inode with another map, and so many clusters more.
    fn inode(&self, batch: &Batch<'_>, map: &Map, clusters: i64) -> Result<Vec<u8>> {
        let mut bytes = batch.inode(self.ino)?;
        let mut raw = RawInode::parse(&bytes, self.ino)?;
        raw.i_block = map.i_block;
        let len = map.len << self.size.log2();
        raw.i_size_lo = lo32(len).into();
        raw.i_size_high = hi32(len).into();
        quota::add_clusters(batch.geometry(), &mut raw, clusters);
        raw.store(&mut bytes);
        Ok(bytes)
    }

    /// Lets the next transaction give the inode this map, and the superblock its copy of that.
    fn put(&self, batch: &mut Batch<'_>, map: &Map, clusters: i64) -> Result<()> {
        let bytes = self.inode(batch, map, clusters)?;
        batch.put_inode(self.ino, bytes)?;
        // The transaction changes the inode alone: by its map the log is found that it is in.
        write_blocks(&**batch.state.device(), self.size, &map.blocks)?;
        let len = map.len << self.size.log2();
        batch.superblock.back_up_journal(&map.i_block, len);
        Ok(())
    }

    /// Gives the inode this map, without the log, which is empty.
    fn switch(&self, batch: &mut Batch<'_>, places: &Places, map: &Map) -> Result<()> {
        let device = &**batch.state.device();
        for copied in &places.copies {
            // Its superblock has changed since.
            copied.copy(device, self.size)?;
        }
        write_blocks(device, self.size, &map.blocks)?;
        device.flush()?;
        let mut bytes = self.inode(batch, map, 0)?;
        if let Some(seed) = batch.geometry().csum_seed {
            let generation = RawInode::parse(&bytes, self.ino)?.i_generation.get();
            update_checksum(&mut bytes, seed, self.ino, generation);
        }
        let place = batch.place_of(self.ino)?;
        let at = (place.block.0 << self.size.log2()) + place.offset as u64;
        device.write_at(at, &bytes)?;
        device.flush()?;
        batch.reopen()
    }
}

/// Blocks that runs map.
fn len_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len)).sum()
}

/// Tables of indirect blocks.
struct Taken<I> {
    places: I,
    blocks: BTreeMap<Pblk, Vec<u8>>,
}

impl<I: Iterator<Item = Pblk>> Tables for Taken<I> {
    type Error = Error;

    fn take(&mut self) -> Result<Pblk> {
        self.places.next().ok_or(Error::Full)
    }

    fn put(&mut self, at: Pblk, table: &[u8]) {
        self.blocks.insert(at, table.to_vec());
    }
}
