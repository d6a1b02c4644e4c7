//! Directories once more: the few that must be looked at again after all their records were
//! mended, and single entries that go away.

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::dir_block::NewEntry;
use uext4_ondisk::dir_entry::{DIR_ENTRY_HEADER_LEN, file_type_code, tail, update_tail};
use uext4_ondisk::htree::{self, DX_ROOT_ENTRIES_OFFSET};
use uext4_ondisk::num::len8;
use uext4_ondisk::{Ino, Lblk, Pblk};

use super::inline::InlineRecords;
use super::record::{Header, header, put_ino, put_rec_len};
use crate::directory_list::Run;
use crate::error::Result;
use crate::finding::Place;
use crate::report::Cause;
use crate::state::State;

/// Blocks that are read at once.
const BATCH: u64 = 64;

/// Where the records of a directory are.
#[derive(Clone, Copy, Debug)]
pub enum Source<'r> {
    /// In these blocks, as far as they are below the number of blocks by its size.
    Blocks {
        /// The blocks.
        runs: &'r [Run],
        /// The number of blocks by the size.
        blocks: u64,
    },
    /// Within the inode.
    Inline,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The logical block; that of a region is 0.
    pub lblk: Lblk,
    /// `None` within the inode.
    pub pblk: Option<Pblk>,
    /// Which region of the inode.
    pub region: usize,
    /// The byte in the block or region.
    pub offset: usize,
}

impl Spot {
    /// For a finding.
    pub fn place(&self, dir: Ino) -> Place {
        let offset = u32::try_from(self.offset).unwrap_or(u32::MAX);
        let place = Place::inode(dir).lblk(self.lblk).offset(offset);
        match self.pblk {
            Some(block) => place.block(block),
            None => place,
        }
    }
}

/// A record in use.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'b> {
    /// Where it is.
    pub spot: Spot,
    /// What it names.
    pub ino: Ino,
    /// Its name, also `.` and `..`.
    pub name: &'b [u8],
    /// What stands behind the name in the record.
    pub suffix: &'b [u8],
}

/// Calls `each` for each record in use, in the order in which they lie.
///
/// # Errors
/// Of `each`, of the device and of the overlay.
pub fn for_each(
    state: &State<'_>,
    dir: Ino,
    source: Source<'_>,
    mut each: impl FnMut(Seen<'_>) -> Result<()>,
) -> Result<()> {
    let (runs, blocks) = match source {
        Source::Blocks { runs, blocks } => (runs, blocks),
        Source::Inline => return inline(state, dir, &mut each),
    };
    let size = state.geometry().block_size;
    let mut bytes = Vec::new();
    for run in runs {
        let start = u64::from(run.lblk.0);
        let end = u64::from(run.len).min(blocks.saturating_sub(start));
        let mut at = 0;
        while at < end {
            let count = (end - at).min(BATCH);
            bytes.resize(usize::try_from(count << size.log2()).unwrap_or(0), 0);
            let first = Pblk(run.pblk.0.saturating_add(at));
            let offset = size.byte_offset(first).unwrap_or(u64::MAX);
            state.volume.overlay().read_at(offset, &mut bytes)?;
            for (i, block) in (at..).zip(bytes.chunks(size.len())) {
                let spot = Spot {
                    lblk: Lblk(u32::try_from(start.saturating_add(i)).unwrap_or(u32::MAX)),
                    pblk: Some(Pblk(run.pblk.0.saturating_add(i))),
                    region: 0,
                    offset: 0,
                };
                records(block, spot, &mut each)?;
            }
            at += count;
        }
    }
    Ok(())
}

fn inline(
    state: &State<'_>,
    dir: Ino,
    each: &mut impl FnMut(Seen<'_>) -> Result<()>,
) -> Result<()> {
    let Some(inline) = InlineRecords::read(state, dir)? else {
        return Ok(());
    };
    for (region, bytes) in inline.regions.iter().enumerate() {
        let spot = Spot {
            lblk: Lblk(0),
            pblk: None,
            region,
            offset: 0,
        };
        records(bytes, spot, each)?;
    }
    Ok(())
}

fn records(bytes: &[u8], first: Spot, each: &mut impl FnMut(Seen<'_>) -> Result<()>) -> Result<()> {
    let mut offset = 0;
    while let Some(found) = header(bytes, offset) {
        let left = bytes.len().saturating_sub(offset);
        if !found.fits(left) {
            break;
        }
        let Header {
            ino,
            rec_len,
            name_len,
            ..
        } = found;
        if ino != 0 {
            let body = bytes.get(offset..offset.saturating_add(rec_len));
            let body = body.and_then(|body| body.get(DIR_ENTRY_HEADER_LEN..));
            let parts = body.and_then(|body| body.split_at_checked(name_len));
            let (name, suffix) = parts.unwrap_or_default();
            each(Seen {
                spot: Spot { offset, ..first },
                ino: Ino(ino),
                name,
                suffix,
            })?;
        }
        offset = offset.saturating_add(rec_len);
    }
    Ok(())
}

/// Makes the record of an entry unused. `seed` is that of the directory's blocks.
///
/// # Errors
/// Of the device and of the overlay.
pub fn remove(
    state: &State<'_>,
    dir: Ino,
    seed: Option<CsumSeed>,
    spot: &Spot,
    cause: Cause,
) -> Result<()> {
    change(state, dir, seed, spot, cause, |bytes| {
        put_ino(bytes, spot.offset, 0);
    })
}

/// Changes the block or region of a record.
///
/// # Errors
/// Of the device and of the overlay.
pub fn change(
    state: &State<'_>,
    dir: Ino,
    seed: Option<CsumSeed>,
    spot: &Spot,
    cause: Cause,
    change: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let Some(pblk) = spot.pblk else {
        if let Some(mut inline) = InlineRecords::read(state, dir)? {
            if let Some(region) = inline.regions.get_mut(spot.region) {
                change(region);
            }
            inline.store(state, dir, cause)?;
        }
        return Ok(());
    };
    state.volume.overlay().update(pblk, cause, |bytes| {
        change(bytes);
        if let Some(seed) = seed.filter(|_| tail(bytes).is_some()) {
            update_tail(bytes, seed);
        }
    })
}

/// Writes a record of `rec_len` bytes; the bytes behind its name stay.
pub fn put_record(bytes: &mut [u8], offset: usize, rec_len: usize, entry: &NewEntry<'_>) {
    put_ino(bytes, offset, entry.ino.0);
    put_rec_len(bytes, offset, rec_len);
    let name_len = len8(entry.name.len());
    let code = entry.file_type.map_or(0, file_type_code);
    let end = offset.saturating_add(DIR_ENTRY_HEADER_LEN);
    if let Some([.., len, kind]) = bytes.get_mut(offset..end) {
        (*len, *kind) = (name_len, code);
    }
    if let Some(place) = bytes.get_mut(end..end.saturating_add(entry.name.len())) {
        place.copy_from_slice(entry.name);
    }
}

/// Makes the record `..` at `spot` name another inode.
///
/// # Errors
/// Of the device and of the overlay.
pub fn put_dot_dot(
    state: &State<'_>,
    dir: Ino,
    seed: Option<CsumSeed>,
    spot: &Spot,
    parent: Ino,
    cause: Cause,
) -> Result<()> {
    change(state, dir, seed, spot, cause, |bytes| {
        put_ino(bytes, spot.offset, parent.0);
        if let Some(seed) = seed.filter(|_| htree::is_root(bytes)) {
            htree::update_tail(bytes, DX_ROOT_ENTRIES_OFFSET, seed);
        }
    })
}
