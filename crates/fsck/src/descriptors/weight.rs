//! What speaks for an inode table at a place, and what speaks against it.
//!
//! One odd field of one inode says nothing of the table that it lies in, and an odd block nothing
//! of the blocks behind it. So all inodes of a place are heard. What proves a place: an inode whose
//! checksum, which covers its number, holds; a directory that names itself by its number. What is
//! merely possible (a type, and numbers of blocks that exist) counts only where nothing is proved.
//! A place gives way only to one that more speaks for. Copies in the journal are no places: the log
//! holds blocks of tables by the dozen, which say where they belong, not where they lie.

use uext4_ondisk::extent::{
    EXT4_EXT_MAGIC, EXT4_MAX_EXTENT_DEPTH, EXTENT_ENTRY_LEN, RawExtent, header,
};
use uext4_ondisk::group_desc::BG_INODE_UNINIT;
use uext4_ondisk::indirect::{number_at, numbers};
use uext4_ondisk::inode::{
    FileType, I_BLOCK_LEN, InodeFlags, RawInode, inode_checksum, stored_checksum,
};
use uext4_ondisk::num::index;
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};
use zerocopy::FromBytes;

use crate::error::Result;
use crate::mapping::is_fast_symlink;
use crate::volume::{Volume, generation};

/// Most blocks of a table that are heard.
const BLOCKS_MAX: u64 = 64;
/// As many proofs settle it: the rest of the table is not read.
const PROOFS_ENOUGH: i64 = 32;
/// Most directories of a table that are asked for their own number.
const DIRECTORIES_MAX: u32 = 64;
/// Bytes of `i_block` that numbers of devices were ever stored in.
const DEVICE_LEN: usize = 16;

/// What the inodes of a place say of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Inodes that prove the place, less those that prove another.
    proof: i64,
    /// Inodes that can be, less those that cannot.
    likely: i64,
}

impl Weight {
    /// Whether the place is proved.
    pub fn is_proved(self) -> bool {
        self.proof > 0
    }

    /// Whether no more speaks against the place than for it. A table of zeroes holds.
    pub fn holds(self) -> bool {
        self.proof > 0 || self.proof == 0 && self.likely >= 0
    }

    /// Whether anything speaks for the place.
    pub fn speaks_for(self) -> bool {
        self.proof > 0 || self.proof == 0 && self.likely > 0
    }

    /// Whether what speaks for this place outweighs all that speaks for the `other`, which is the
    /// present one.
    pub fn outweighs(self, other: Self) -> bool {
        !other.is_proved() && (self.is_proved() || !other.holds() && self.holds())
    }
}

/// Hears the inodes of a place as those of a group's table. Of what was never initialised nothing
/// can be said.
pub fn weigh(volume: &Volume, group: GroupNr, at: Pblk) -> Result<Weight> {
    let geometry = volume.geometry();
    let mut weight = Weight::default();
    let desc = volume.group(group);
    let blocks = u64::from(geometry.itable_blocks()).min(BLOCKS_MAX);
    if desc.flags & BG_INODE_UNINIT != 0 || !geometry.contains(at, blocks) {
        return Ok(weight);
    }
    let size = usize::from(geometry.inode_size);
    let per_block = geometry.block_size.bytes() / u32::from(geometry.inode_size).max(1);
    let used = volume.inodes_ever_used(group).max(per_block);
    let first = group.0.saturating_mul(geometry.inodes_per_group.get());
    let mut inodes = (first.saturating_add(1)..).map(Ino).take(index(used));
    let mut directories = DIRECTORIES_MAX;
    let mut bytes = vec![0; geometry.block_size.len()];
    for block in (at.0..).take(usize::try_from(blocks).unwrap_or(0)) {
        volume.overlay().read_block(Pblk(block), &mut bytes)?;
        for inode in bytes.chunks_exact(size) {
            let Some(ino) = inodes.next() else {
                return Ok(weight);
            };
            add(volume, &mut weight, &mut directories, ino, inode)?;
        }
        if weight.proof >= PROOFS_ENOUGH {
            break;
        }
    }
    Ok(weight)
}

/// Adds what an inode says.
fn add(
    volume: &Volume,
    weight: &mut Weight,
    directories: &mut u32,
    ino: Ino,
    bytes: &[u8],
) -> Result<()> {
    let geometry = volume.geometry();
    if bytes.iter().all(|&byte| byte == 0) {
        weight.likely -= i64::from(ino == Ino::ROOT);
        return Ok(());
    }
    if let Some(seed) = geometry.csum_seed
        && stored_checksum(bytes) == inode_checksum(bytes, seed, ino, generation(bytes))
    {
        weight.proof += 1;
        return Ok(());
    }
    let Ok(raw) = RawInode::parse(bytes, ino) else {
        weight.likely -= 1;
        return Ok(());
    };
    weight.likely += likely(geometry, ino, &raw);
    let is_directory = FileType::from_mode(raw.i_mode.get()) == Some(FileType::Directory);
    if (is_directory || ino == Ino::ROOT) && *directories > 0 {
        *directories -= 1;
        weight.proof += match own_number(volume, &raw)? {
            Some(own) if own == ino => 1,
            Some(_) => -1,
            None => 0,
        };
    }
    Ok(())
}

/// The number by which the directory that an inode leads to names itself.
fn own_number(volume: &Volume, raw: &RawInode) -> Result<Option<Ino>> {
    let Some(block) = first_block(volume.geometry(), raw) else {
        return Ok(None);
    };
    let mut names = vec![0; volume.geometry().block_size.len()];
    volume.overlay().read_block(block, &mut names)?;
    Ok(begins_directory(&names))
}

/// 1 of an inode that can be one, -1 of one that cannot, 0 of one that says nothing.
fn likely(geometry: &Geometry, ino: Ino, raw: &RawInode) -> i64 {
    if raw.i_links_count.get() == 0 {
        // Deleted, or reserved and not in use.
        return 0;
    }
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    let can_be = match FileType::from_mode(raw.i_mode.get()) {
        None => ino.0 < geometry.first_ino && ino != Ino::ROOT,
        Some(_) if flags.contains(InodeFlags::INLINE_DATA) => return 0,
        Some(FileType::Symlink) if is_fast_symlink(raw) => raw.i_block.first() != Some(&0),
        Some(FileType::Regular | FileType::Directory | FileType::Symlink) => {
            if raw.i_block == [0; I_BLOCK_LEN] {
                return 0;
            }
            leads_inside(geometry, raw, flags)
        }
        Some(_) => raw.i_block.iter().skip(DEVICE_LEN).all(|&byte| byte == 0),
    };
    if can_be { 1 } else { -1 }
}

/// Whether an extent tree begins in the inode, or all its numbers are those of blocks.
fn leads_inside(geometry: &Geometry, raw: &RawInode, flags: InodeFlags) -> bool {
    if flags.contains(InodeFlags::EXTENTS) {
        return header(&raw.i_block).is_some_and(|header| {
            header.eh_magic.get() == EXT4_EXT_MAGIC
                && header.eh_depth.get() <= EXT4_MAX_EXTENT_DEPTH
                && header.eh_entries.get() <= header.eh_max.get()
        });
    }
    let blocks = 0..numbers(&raw.i_block).len();
    let mut blocks = blocks.map(|at| Pblk(number_at(&raw.i_block, at).into()));
    blocks.all(|block| block.0 == 0 || geometry.contains(block, 1))
}

/// The number by which a directory names itself, if its first block begins with that.
pub(super) fn begins_directory(block: &[u8]) -> Option<Ino> {
    let (number, rest) = block.split_first_chunk::<4>()?;
    // The length of the record, that of the name, the type if there is one, and the name.
    let is_dot = rest.starts_with(&[12, 0, 1]) && rest.get(4..6) == Some(b".\0");
    is_dot.then(|| Ino(u32::from_le_bytes(*number)))
}

/// The first block of a file, as far as its inode says it without another one.
pub(super) fn first_block(geometry: &Geometry, inode: &RawInode) -> Option<Pblk> {
    let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
    let block = match flags.contains(InodeFlags::EXTENTS) {
        true => first_extent(inode),
        false => Some(Pblk(number_at(&inode.i_block, 0).into())),
    };
    block.filter(|&block| block.0 != 0 && geometry.contains(block, 1))
}

/// The first block of an extent tree that has no more than its root.
fn first_extent(inode: &RawInode) -> Option<Pblk> {
    let head = header(&inode.i_block)?;
    let is_leaf = head.eh_magic.get() == EXT4_EXT_MAGIC && head.eh_depth.get() == 0;
    let entry = inode.i_block.get(EXTENT_ENTRY_LEN..EXTENT_ENTRY_LEN * 2)?;
    let extent = RawExtent::ref_from_bytes(entry).ok()?.get();
    (is_leaf && head.eh_entries.get() != 0 && extent.lblk.0 == 0).then_some(extent.pblk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_odd_inode_does_not_outweigh_the_others() {
        let weight = |proof, likely| Weight { proof, likely };
        let (proved, odd) = (weight(15, -1), weight(0, -16));
        assert!(proved.holds() && !odd.holds());
        // Not even a place where more inodes hold, such as an older copy.
        assert!(!weight(16, 0).outweighs(proved));
        assert!(weight(1, 0).outweighs(odd) && weight(0, 0).outweighs(odd));
        assert!(weight(1, 0).outweighs(weight(0, 9)));
        assert!(!weight(0, 9).outweighs(weight(0, 1)) && !odd.outweighs(odd));
    }
}
