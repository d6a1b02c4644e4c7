//! What refers to blocks of attributes and to values, once all inodes are known.

use uext4_ondisk::checksum::{crc32c, crc32c_zeroes};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::num::{hi32, index, lo32};
use uext4_ondisk::xattr::EXT4_XATTR_SIZE_MAX;
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::block;
use super::ea_inode::{WITHOUT_COUNT, size, stored_references};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::mapping;
use crate::problem::{InodeProblem, XattrProblem};
use crate::state::State;

/// Links of an inode that holds a value.
const VALUE_LINKS: u16 = 1;

/// Compares the counts of references with what was counted, and the values that lie in inodes of
/// their own with their hashes. Values that nothing refers to are deleted; the others count as
/// having a name.
///
/// # Errors
/// Of the device and of the overlay.
pub fn references(state: &State<'_>) -> Result<()> {
    for (at, known) in state.xattr_blocks.all() {
        if !known.is_usable || known.stored == known.counted {
            continue;
        }
        let finding = Finding::new(XattrProblem::References, Place::whole().block(at));
        let cause = state.report(finding.found(known.stored).right(known.counted));
        block::set_references(state, at, known.counted, cause)?;
    }
    let counted = std::mem::take(&mut *state.ea_inodes.lock());
    let mut sorted: Vec<_> = counted.iter().map(|(&ino, &count)| (ino, count)).collect();
    sorted.sort_unstable();
    for (ino, count) in sorted {
        value(state, ino, count)?;
    }
    let features = state.geometry().features.incompat;
    if features.contains(Incompat::EA_INODE) {
        for group in (0..state.geometry().groups_count.get()).map(GroupNr) {
            for (ino, known) in state.inodes.in_group(group) {
                if known.is_ea_inode && !counted.contains_key(&ino) {
                    unused(state, ino, known.counted)?;
                }
            }
        }
    }
    *state.ea_inodes.lock() = counted;
    Ok(())
}

fn read(state: &State<'_>, ino: Ino) -> Result<Option<RawInode>> {
    let bytes = state.volume.read_inode(ino)?;
    Ok(bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok()))
}

/// Checks an inode that attributes refer to.
fn value(state: &State<'_>, ino: Ino, count: u32) -> Result<()> {
    let known = state.inodes.get(ino);
    // Its examination has found that it is no file: the next round drops the attributes.
    let Some(raw) = read(state, ino)?.filter(|_| known.kind == Kind::File(FileType::Regular))
    else {
        return Ok(());
    };
    let place = || Place::inode(ino);
    if raw.i_flags.get() & InodeFlags::EA_INODE.bits() == 0 {
        let cause = state.report(Finding::new(XattrProblem::ValueInodeFlag, place()));
        let set = |raw: &mut RawInode| {
            raw.i_flags = (raw.i_flags.get() | InodeFlags::EA_INODE.bits()).into();
        };
        state.volume.update_raw_inode(ino, cause, set)?;
        state.inodes.set(ino, known.kind, true, known.stored);
    }
    if known.counted == 0 {
        state.inodes.count_link(ino);
    }
    let links = raw.i_links_count.get();
    if links != VALUE_LINKS {
        let finding = Finding::new(InodeProblem::Links, place());
        let cause = state.report(finding.found(links).right(VALUE_LINKS));
        state.volume.update_raw_inode(ino, cause, |raw| {
            raw.i_links_count = VALUE_LINKS.into();
        })?;
    }
    if count & WITHOUT_COUNT != 0 {
        return Ok(());
    }
    let stored = stored_references(&raw);
    if stored != u64::from(count) {
        let finding = Finding::new(XattrProblem::ValueReferences, place());
        let cause = state.report(finding.found(stored).right(count));
        state.volume.update_raw_inode(ino, cause, |raw| {
            raw.i_ctime = hi32(count.into()).into();
            raw.i_version = count.into();
        })?;
    }
    let stored = raw.i_atime.get();
    let computed = hash(state, ino, &raw)?;
    if stored != computed {
        let finding = Finding::new(XattrProblem::ValueHash, place());
        let cause = state.report(finding.found(stored).right(computed));
        let set = |raw: &mut RawInode| raw.i_atime = computed.into();
        state.volume.update_raw_inode(ino, cause, set)?;
    }
    Ok(())
}

/// The hash of a value's bytes. What the map does not hold reads as zeroes, of which no more are
/// made than a number: a value of 16 MiB may have no block at all.
fn hash(state: &State<'_>, ino: Ino, raw: &RawInode) -> Result<u32> {
    let map = mapping::read(state, ino, raw)?;
    let size = index(lo32(size(raw).min(EXT4_XATTR_SIZE_MAX.into())));
    let mut sum = state.volume.superblock().seed().over(&[]);
    let (mut bytes, mut at) = (Vec::new(), 0);
    let block_size = state.geometry().block_size;
    for extent in map.extents.iter().filter(|extent| !extent.unwritten) {
        let from = index(extent.lblk.0).saturating_mul(block_size.len());
        let to = from.saturating_add(usize::from(extent.len).saturating_mul(block_size.len()));
        let to = to.min(size);
        if from < at || from >= to {
            continue;
        }
        bytes.resize(to - from, 0);
        let offset = extent.pblk.0 << block_size.log2();
        state.volume.overlay().read_at(offset, &mut bytes)?;
        sum = crc32c(crc32c_zeroes(sum, from - at), &bytes);
        at = to;
    }
    Ok(crc32c_zeroes(sum, size - at))
}

/// An inode that is marked as a value, and no attribute refers to it: deleted, unless it has a
/// name, which no value has, or not the hash of what it holds: then it is a file that lost its
/// name.
fn unused(state: &State<'_>, ino: Ino, names: u16) -> Result<()> {
    let known = state.inodes.get(ino);
    let raw = read(state, ino)?;
    let is_value = match &raw {
        Some(raw) => raw.i_atime.get() == hash(state, ino, raw)?,
        None => true,
    };
    if names != 0 || !is_value {
        let cause = state.report(Finding::new(XattrProblem::ValueNamed, Place::inode(ino)));
        state.inodes.set(ino, known.kind, false, known.stored);
        return state.volume.update_raw_inode(ino, cause, |raw| {
            raw.i_flags = (raw.i_flags.get() & !InodeFlags::EA_INODE.bits()).into();
        });
    }
    let cause = state.report(Finding::new(XattrProblem::ValueUnused, Place::inode(ino)));
    if let Some(raw) = raw {
        free_blocks(state, ino, &raw)?;
    }
    state.inodes.set(ino, Kind::Unused, false, 0);
    state.volume.update_inode(ino, cause, |bytes| bytes.fill(0))
}

/// Frees all blocks of an inode, but for those that have another owner.
fn free_blocks(state: &State<'_>, ino: Ino, raw: &RawInode) -> Result<()> {
    let map = mapping::read(state, ino, raw)?;
    let data = map.extents.iter().map(|e| (e.pblk, u64::from(e.len)));
    let nodes = map.nodes.iter().map(|&node| (node, 1));
    for (start, len) in data.chain(nodes) {
        state.free(state.used.of_blocks(start, len));
    }
    let at = block::of_inode(state, raw);
    if at != Pblk(0) {
        state.xattr_blocks.uncount(at);
    }
    Ok(())
}
