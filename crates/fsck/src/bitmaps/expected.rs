//! Bitmaps as they must be.

use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino, Pblk};

use crate::inode_map::Kind;
use crate::state::State;

/// Clusters of a group: all alike but the last.
pub fn clusters_in_group(state: &State<'_>, group: GroupNr) -> u32 {
    let geometry = state.geometry();
    let blocks = geometry.blocks_in_group(group);
    blocks
        .div_ceil(1 << geometry.cluster_bits)
        .min(geometry.clusters_per_group.get())
}

/// Inodes of a group that are reserved, and so in use whatever they hold.
pub fn reserved_inodes(state: &State<'_>, group: GroupNr) -> u32 {
    let geometry = state.geometry();
    let per_group = geometry.inodes_per_group.get();
    let before = group.0.saturating_mul(per_group);
    let reserved = geometry.first_ino.saturating_sub(1);
    reserved.saturating_sub(before).min(per_group)
}

/// The block bitmap of a group, padded to a block.
pub fn blocks(state: &State<'_>, group: GroupNr, bytes: &mut Vec<u8>) {
    let size = state.geometry().block_size.len();
    bytes.clear();
    bytes.resize(size, 0);
    let words = state.used.words(group);
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    pad(bytes, clusters_in_group(state, group));
}

/// The block bitmap that the kernel makes of a group whose bitmap was never written: copies,
/// bitmaps and inode table as far as they lie in the group itself.
pub fn fresh_blocks(state: &State<'_>, group: GroupNr, desc: &GroupDesc, bytes: &mut Vec<u8>) {
    let geometry = state.geometry();
    let size = geometry.block_size.len();
    bytes.clear();
    bytes.resize(size, 0);
    let first = state.used.of_blocks(geometry.group_start(group), 1).start;
    let count = clusters_in_group(state, group);
    let own = [
        (
            geometry.group_start(group),
            geometry.group_base_blocks(group),
        ),
        (desc.block_bitmap, 1),
        (desc.inode_bitmap, 1),
        (desc.inode_table, geometry.itable_blocks()),
    ];
    for (start, len) in own {
        if len == 0 || start == Pblk(0) && group != GroupNr(0) {
            continue;
        }
        for cluster in state.used.of_blocks(start, len.into()) {
            let bit = cluster
                .checked_sub(first)
                .and_then(|b| u32::try_from(b).ok());
            if let Some(bit) = bit.filter(|&bit| bit < count) {
                set(bytes, bit);
            }
        }
    }
    pad(bytes, count);
}

/// The inode bitmap of a group, padded to a block.
pub fn inodes(state: &State<'_>, group: GroupNr, bytes: &mut Vec<u8>) {
    let geometry = state.geometry();
    no_inodes(state, group, bytes);
    let first = Ino(group.0.saturating_mul(geometry.inodes_per_group.get()));
    for (ino, kind) in state.inodes.kinds_in_group(group) {
        if kind != Kind::Unused {
            set(bytes, ino.0.saturating_sub(first.0).saturating_sub(1));
        }
    }
}

/// The inode bitmap of a group without inodes in use but reserved ones.
pub fn no_inodes(state: &State<'_>, group: GroupNr, bytes: &mut Vec<u8>) {
    let geometry = state.geometry();
    bytes.clear();
    bytes.resize(geometry.block_size.len(), 0);
    for bit in 0..reserved_inodes(state, group) {
        set(bytes, bit);
    }
    pad(bytes, geometry.inodes_per_group.get());
}

/// Sets a bit, if there is such a one.
fn set(bytes: &mut [u8], bit: u32) {
    if let Some(byte) = bytes.get_mut(index(bit / 8)) {
        *byte |= 1 << (bit % 8);
    }
}

/// Sets all bits from `bits` on.
fn pad(bytes: &mut [u8], bits: u32) {
    let whole = index(bits.div_ceil(8)).min(bytes.len());
    bytes[whole..].fill(0xFF);
    for bit in bits..bits.next_multiple_of(8) {
        set(bytes, bit);
    }
}
