//! The pass over blocks that more than one owner claims.
//!
//! It runs only if the pass over inodes met a cluster that had an owner already. By then the first
//! owner is forgotten, so the maps are walked once more: in parallel, to find the inodes that own
//! any shared cluster, and what can be proved about them; then those inodes alone, one by one.
//!
//! # Who keeps a cluster
//!
//! 1. The file system's own structures. A file cannot have a block of an inode table. But a bitmap
//!    that does not hold what its descriptor counts gives way to the file: see `bitmaps`.
//! 2. An owner whose metadata is there for certain: a block of directory entries whose checksum
//!    was made with its inode, a node of an extent tree likewise, a block of attributes. Another
//!    inode that claims the block as its data has lost what it had there; a copy of someone
//!    else's names would be no restoration, so it gets a hole.
//! 3. The bad-blocks list and the other inodes of the file system itself, then the inode with the
//!    lowest number, or the one that was changed first if that was asked for.
//!
//! An owner that does not keep a cluster gets a copy, a hole if that was asked for, or, when no
//! space is left, a hole too; each with a finding that names both owners. Nodes of maps in shared
//! clusters are always packed anew elsewhere. Copies leave an eighth of the free clusters, at most
//! 65,536, to these nodes and to the remedies to come. They are kept as ranges, see
//! [`crate::overlay::Overlay::copy`]: what many inodes claim is not read, let alone kept, for each.
//!
//! Ranges are treated as ranges: two inodes that claim terabytes cost as many steps as they have
//! extents.

mod bitmaps;
mod claimants;
mod inode;
mod keepers;

use crate::error::Result;
use crate::state::State;

/// Finds the owners of the clusters in `shared`, and gives each what the options say. Does
/// nothing if there are none.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(state: &mut State<'_>) -> Result<()> {
    if state.shared.is_empty() {
        return Ok(());
    }
    bitmaps::give_way(state)?;
    let found = claimants::find(state)?;
    let mut moved = Vec::new();
    let mut assign = inode::Assign::new(state, found.proofs);
    for claimant in found.claimants {
        if let Some(directory) = assign.inode(claimant.ino)? {
            moved.push((claimant.ino, directory));
        }
    }
    assign.free_unowned();
    for (ino, runs) in moved {
        state.directories.set_runs(ino, &runs);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
