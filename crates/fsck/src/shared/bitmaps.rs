//! Bitmaps whose blocks belong to a file: they give way.
//!
//! A descriptor that names a block of a file for a bitmap cannot be recognised where nothing else
//! says where the bitmap is: a single group has neither a backup nor neighbours. But what lies
//! there is the file's, and not a bitmap with this descriptor's counts. A bitmap is worked out
//! anew in any case, and a file's contents cannot be.

use std::collections::BTreeMap;

use uext4_ondisk::group_desc::BG_BLOCK_UNINIT;

use crate::descriptors::{holds_bitmap, place_of};
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::fixed_places::{MetadataOwner, for_each_metadata};
use crate::problem::GroupProblem;
use crate::state::State;

/// Moves the bitmaps that lie in shared clusters, and do not hold what their descriptors count, to
/// free blocks. Where there is none that the group may use, they stay, and the file loses.
///
/// # Errors
/// Of the device and of the overlay.
pub fn give_way(state: &State<'_>) -> Result<()> {
    let groups = state.volume.groups();
    let mut shared = Vec::new();
    // How many structures lie in each cluster that such a bitmap is in.
    let mut structures = BTreeMap::new();
    for_each_metadata(state.geometry(), &groups, |owner, start, len| {
        let cluster = state.shared.of_blocks(start, len).start;
        if owner.is_bitmap() && state.shared.contains(cluster) {
            shared.push(owner);
            structures.insert(cluster, 0_u32);
        }
    });
    if shared.is_empty() {
        return Ok(());
    }
    for_each_metadata(state.geometry(), &groups, |_, start, len| {
        let clusters = state.shared.of_blocks(start, len);
        for (_, count) in structures.range_mut(clusters) {
            *count = count.saturating_add(1);
        }
    });
    for owner in shared {
        let mut desc = state.volume.group(owner.group());
        let Some(&mut place) = place_of(&mut desc, owner) else {
            continue;
        };
        let cluster = state.shared.of_blocks(place, 1).start;
        let is_alone = structures.get(&cluster) == Some(&1);
        if is_alone && !holds_bitmap(&state.volume, owner, &desc, place)? {
            relocate(state, owner, cluster)?;
        }
    }
    Ok(())
}

/// Moves a bitmap that has a cluster of its own, and leaves the cluster to the files that claim it.
fn relocate(state: &State<'_>, owner: MetadataOwner, cluster: u64) -> Result<()> {
    let (geometry, group) = (state.geometry(), owner.group());
    let new = match state.allocate(geometry.group_start(group), 1, "a bitmap") {
        Ok(new) => new,
        Err(Error::NoSpace { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let clusters = state.used.of_blocks(new, 1);
    if !geometry.may_place(group, new, 1) {
        state.used.remove(clusters);
        return Ok(());
    }
    state.metadata.add(clusters, |_| ());
    state.metadata.remove(cluster..cluster.saturating_add(1));
    let problem = match owner {
        MetadataOwner::BlockBitmap(_) => GroupProblem::BlockBitmapPlace,
        _ => GroupProblem::InodeBitmapPlace,
    };
    let found = state.shared.first_block(cluster).0;
    let finding = Finding::new(problem, Place::group(group));
    let cause = state.report(finding.found(found).right(new.0));
    state.volume.update_group(group, cause, |desc| {
        if let Some(place) = place_of(desc, owner) {
            *place = new;
        }
        if let MetadataOwner::BlockBitmap(_) = owner {
            desc.flags &= !BG_BLOCK_UNINIT;
        }
    })
}

#[cfg(test)]
mod tests {
    use uext4_testkit::e2fsprogs::debugfs;

    use crate::tests::TestImage;

    /// The only group's block bitmap is said to be in the middle of a file.
    fn given_way(options: &str, field: &str) {
        let image = TestImage::new(options, "8M");
        image.file("a", &[b'a'; 3072]);
        let block = debugfs(image.path(), "bmap a 1");
        image.debugfs(&[&format!("set_bg 0 {field} {}", block.trim())]);
        let found = image.repair();
        assert!(
            found.iter().any(|name| name.ends_with("-bitmap-place")),
            "{found:?}"
        );
        assert_eq!(debugfs(image.path(), "cat a"), "a".repeat(3072));
    }

    #[test]
    fn a_bitmap_that_is_none_gives_way_to_a_file() {
        for options in ["-t ext4 -b 1024", "-t ext4 -b 1024 -O ^metadata_csum"] {
            given_way(options, "block_bitmap");
            given_way(options, "inode_bitmap");
        }
    }
}
