//! Values in inodes of their own (`ea_inode`).
//!
//! Such an inode has no name. It keeps the hash of its value where others keep the time of the
//! last access, and the number of references in the fields of the change time (upper half) and of
//! the version. Lustre's older form has neither: its time of modification is the number of the
//! inode that it belongs to.

use uext4_ondisk::Ino;
use uext4_ondisk::checksum::le32;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::hash::CharSign;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::xattr::{EXT4_XATTR_SIZE_MAX, XattrEntry, entry_hash};

use super::Owner;
use super::wrong::Wrong;
use crate::error::Result;
use crate::problem::XattrProblem;
use crate::state::State;
use crate::xattr_blocks::ValueUse;

/// Added to the references of an inode in Lustre's form, which counts none.
pub const WITHOUT_COUNT: u32 = 1 << 31;

/// `i_size`.
pub fn size(raw: &RawInode) -> u64 {
    u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get())
}

/// References as stored.
pub fn stored_references(raw: &RawInode) -> u64 {
    u64::from(raw.i_ctime.get()) << 32 | u64::from(raw.i_version.get())
}

/// Whether an inode can hold the value of an entry. Counts the reference if so, and returns what
/// it adds to the use of the attribute's owner.
///
/// The inode's own examination may be going on in another thread: nothing is changed here.
pub fn reference(
    state: &State<'_>,
    owner: Owner,
    entry: &XattrEntry<'_>,
    ino: Ino,
    value_size: u32,
) -> Result<Result<ValueUse, Wrong>> {
    let geometry = state.geometry();
    if !geometry.features.incompat.contains(Incompat::EA_INODE) {
        return Ok(Err(Wrong::new(XattrProblem::ValueFeature, ino.0)));
    }
    // e2fsck does not follow such attributes, and takes the value for one without owner.
    if owner.ino.0 < geometry.first_ino && owner.ino != Ino::ROOT {
        return Ok(Err(Wrong::new(XattrProblem::ValueOfReserved, ino.0)));
    }
    let wrong = || Ok(Err(Wrong::new(XattrProblem::ValueInode, ino.0)));
    if ino.0 < geometry.first_ino || ino.0 > geometry.inodes_count || ino == owner.ino {
        return wrong();
    }
    let bytes = state.volume.read_inode(ino)?;
    let Some(raw) = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok()) else {
        return wrong();
    };
    let is_file = FileType::from_mode(raw.i_mode.get()) == Some(FileType::Regular);
    if !is_file
        || raw.i_links_count.get() == 0
        || size(&raw) != u64::from(value_size)
        || value_size > EXT4_XATTR_SIZE_MAX
    {
        return wrong();
    }
    let hash = le32(raw.i_atime.get());
    let right = entry_hash(entry.name, &hash, CharSign::Unsigned);
    let agrees =
        entry.hash == right || entry.hash == entry_hash(entry.name, &hash, CharSign::Signed);
    let is_lustre = raw.i_mtime.get() == owner.ino.0 && raw.i_generation.get() == owner.generation;
    if !agrees && !is_lustre {
        if raw.i_flags.get() & InodeFlags::EA_INODE.bits() == 0 {
            return wrong();
        }
        return Ok(Err(Wrong {
            right: Some(right.into()),
            ..Wrong::new(XattrProblem::Hash, entry.hash)
        }));
    }
    let mut references = state.ea_inodes.lock();
    let count = references.entry(ino).or_insert(0);
    if *count & !WITHOUT_COUNT < WITHOUT_COUNT - 1 {
        *count += 1;
    }
    if !agrees {
        *count |= WITHOUT_COUNT;
        return Ok(Ok(ValueUse::default()));
    }
    let blocks = geometry.block_size.blocks_for(value_size.into());
    let clusters = blocks.div_ceil(1 << geometry.cluster_bits);
    Ok(Ok(ValueUse {
        clusters: u32::try_from(clusters).unwrap_or(u32::MAX),
        inodes: 1,
    }))
}
