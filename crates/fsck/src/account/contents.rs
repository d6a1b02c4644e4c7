//! The bytes of one file in both trees.

use uext4_ondisk::extent::Extent;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::{Geometry, Ino, Pblk};

use super::before::Before;
use super::pair::Pair;
use crate::error::Result;
use crate::inodes::inline_contents;
use crate::mapping::{self, FileMap, Form};
use crate::state::State;

/// Most bytes that are read to be compared. Past it what lies elsewhere counts as lost.
const READ_MAX: u64 = 1 << 30;

/// Most nodes of maps that are walked: no file system has so many, but inodes that all name the
/// same ones. What maps lead to past it is not counted.
const NODES_MAX: u64 = 1 << 20;

/// How much may still be read.
#[derive(Debug)]
pub struct Budget {
    /// Bytes of contents.
    bytes: u64,
    /// Nodes of maps.
    pub nodes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: READ_MAX,
            nodes: NODES_MAX,
        }
    }
}

impl Budget {
    /// The map of an inode; an empty one once too many were walked.
    fn map(&mut self, state: &State<'_>, ino: Ino, raw: &RawInode) -> Result<FileMap> {
        if self.nodes == 0 {
            return Ok(FileMap::default());
        }
        let map = mapping::read(state, ino, raw)?;
        self.nodes = self.nodes.saturating_sub(map.nodes.len() as u64);
        Ok(map)
    }
}

/// How many bytes can be read of a file that is no directory, holes left aside.
pub(super) fn readable(
    state: &State<'_>,
    ino: Ino,
    raw: &RawInode,
    budget: &mut Budget,
) -> Result<u64> {
    let size = size_of(raw);
    match FileType::from_mode(raw.i_mode.get()) {
        Some(FileType::Regular | FileType::Symlink) => {}
        _ => return Ok(0),
    }
    let geometry = state.geometry();
    if mapping::form(geometry, ino, raw) == Form::None {
        return Ok(size);
    }
    let map = budget.map(state, ino, raw)?;
    let is_read = |extent: &&Extent| !extent.unwritten && !state.touches_metadata(extent);
    let written = map.extents.iter().filter(is_read);
    Ok(written.map(|extent| within(geometry, extent, size)).sum())
}

/// How many bytes of a file do not read as before.
pub(super) fn lost(
    before: &Before<'_>,
    after: &State<'_>,
    pair: &Pair<'_>,
    budget: &mut Budget,
) -> Result<u64> {
    let file_type = FileType::from_mode(pair.was.i_mode.get());
    if !matches!(file_type, Some(FileType::Regular | FileType::Symlink)) {
        return Ok(0);
    }
    let geometry = after.geometry();
    let form = |raw: &RawInode| mapping::form(geometry, pair.ino, raw);
    match (form(&pair.was), form(&pair.is)) {
        (Form::None, Form::None) => Ok(lost_inline(pair)),
        (Form::None, _) => Ok(0),
        (_, Form::None) => readable(&before.state, pair.ino, &pair.was, budget),
        _ => lost_blocks(before, after, pair, budget),
    }
}

/// Of contents within the inode.
fn lost_inline(pair: &Pair<'_>) -> u64 {
    let was = inline(&pair.was, pair.was_bytes);
    let is = inline(&pair.is, pair.is_bytes);
    let same = was.iter().zip(&is).filter(|(was, is)| was == is).count();
    (was.len() - same) as u64
}

fn inline(raw: &RawInode, bytes: &[u8]) -> Vec<u8> {
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    let mut contents = match flags.contains(InodeFlags::INLINE_DATA) {
        true => inline_contents(raw, bytes),
        false => raw.i_block.to_vec(),
    };
    contents.truncate(usize::try_from(size_of(raw)).unwrap_or(usize::MAX));
    contents
}

fn lost_blocks(
    before: &Before<'_>,
    after: &State<'_>,
    pair: &Pair<'_>,
    budget: &mut Budget,
) -> Result<u64> {
    let state = &before.state;
    let was = budget.map(state, pair.ino, &pair.was)?;
    let is = budget.map(after, pair.ino, &pair.is)?;
    if budget.nodes == 0 {
        return Ok(0);
    }
    let geometry = after.geometry();
    let log2 = geometry.block_size.log2();
    let (size, new_size) = (size_of(&pair.was), size_of(&pair.is));
    let mut lost = 0;
    for extent in was.extents.iter().filter(|extent| !extent.unwritten) {
        let mut at = 0;
        while at < extent.len {
            let lblk = extent.lblk.0.saturating_add(at.into());
            let start = u64::from(lblk) << log2;
            if start >= size {
                break;
            }
            let pblk = Pblk(extent.pblk.0.saturating_add(at.into()));
            let (found, same) = place_of(&is.extents, lblk, extent.len - at);
            // What lies where it lay is equal up to the next block that changes, or to the end.
            if found == Some(pblk) {
                let end = pblk.0.saturating_add(same.into());
                let next = before.changed.range(pblk.0..end).next();
                let equal = next.map_or(u64::from(same), |next| next - pblk.0);
                let equal = equal.min(new_size.saturating_sub(start) >> log2);
                if equal > 0 {
                    at = at.saturating_add(u16::try_from(equal).unwrap_or(u16::MAX));
                    continue;
                }
            }
            // A block of the file system's own is no file's.
            if state.is_metadata(pblk) {
                at += 1;
                continue;
            }
            if budget.bytes == 0 {
                lost += (u64::from(extent.len - at) << log2).min(size - start);
                break;
            }
            let len = (size - start).min(geometry.block_size.bytes().into());
            let kept = new_size.saturating_sub(start).min(len);
            lost += differing(state, after, [Some(pblk), found], [len, kept], budget)?;
            at += 1;
        }
    }
    Ok(lost)
}

/// How many of the first `len` bytes of a block are not those of another one, of which `kept` are
/// still within the file. No block reads as zeroes.
fn differing(
    before: &State<'_>,
    after: &State<'_>,
    [was, is]: [Option<Pblk>; 2],
    [len, kept]: [u64; 2],
    budget: &mut Budget,
) -> Result<u64> {
    let size = after.geometry().block_size.len();
    budget.bytes = budget.bytes.saturating_sub(2 * size as u64);
    let (mut old, mut new) = (vec![0; size], vec![0; size]);
    if let Some(was) = was {
        before.volume.overlay().read_block(was, &mut old)?;
    }
    if let Some(is) = is {
        after.volume.overlay().read_block(is, &mut new)?;
    }
    let kept = usize::try_from(kept).unwrap_or(size).min(size);
    new.truncate(kept);
    new.resize(size, 0);
    let len = usize::try_from(len).unwrap_or(size).min(size);
    let bytes = old[..len].iter().zip(&new[..len]);
    Ok(bytes.filter(|(old, new)| old != new).count() as u64)
}

/// Where a logical block lies, and how many of the next ones, at most `len`, lie behind it; `None`
/// in a hole.
fn place_of(extents: &[Extent], lblk: u32, len: u16) -> (Option<Pblk>, u16) {
    let at = extents.partition_point(|extent| {
        u64::from(extent.lblk.0) + u64::from(extent.len) <= u64::from(lblk)
    });
    let found = extents
        .get(at)
        .filter(|extent| extent.lblk.0 <= lblk && !extent.unwritten);
    let Some(extent) = found else {
        return (None, 1);
    };
    let skip = lblk - extent.lblk.0;
    let left = u32::from(extent.len) - skip;
    let same = u16::try_from(left).unwrap_or(len).min(len);
    (Some(Pblk(extent.pblk.0.saturating_add(skip.into()))), same)
}

/// Bytes of an extent within the size of its file.
fn within(geometry: &Geometry, extent: &Extent, size: u64) -> u64 {
    let log2 = geometry.block_size.log2();
    let start = u64::from(extent.lblk.0) << log2;
    let len = u64::from(extent.len) << log2;
    size.saturating_sub(start).min(len)
}

fn size_of(raw: &RawInode) -> u64 {
    u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get())
}
