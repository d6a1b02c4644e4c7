//! The descriptor table as bytes, and where its copies go.

use std::ops::Range;

use uext4_ondisk::features::Incompat;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::{Geometry, GroupNr, Pblk};

/// The whole table, padded to whole blocks.
pub(crate) fn table(geometry: &Geometry, groups: &[GroupDesc]) -> Vec<u8> {
    let mut bytes = vec![0; geometry.gdt_blocks() as usize * geometry.block_size.len()];
    let descs = bytes.chunks_exact_mut(geometry.desc_size.into());
    for (index, (desc, bytes)) in groups.iter().zip(descs).enumerate() {
        desc.store(bytes, GroupNr(index as u32), geometry.desc_checksum);
    }
    bytes
}

/// Where copies of the table go: first block, and which blocks of the table lie from there on.
pub(crate) fn copies(geometry: &Geometry) -> impl Iterator<Item = (Pblk, Range<u32>)> + '_ {
    let blocks = geometry.gdt_blocks();
    let old = if geometry.features.incompat.contains(Incompat::META_BG) {
        geometry.first_meta_bg.min(blocks)
    } else {
        blocks
    };
    let groups = (0..geometry.groups_count.get()).map(GroupNr);
    // Groups of meta groups hold no other descriptors than their own.
    let old_groups = old.saturating_mul(geometry.descs_per_block());
    let with_super = groups.filter(move |&g| g.0 < old_groups && geometry.has_super(g));
    let whole = with_super
        .filter(move |_| old > 0)
        .map(move |group| (Pblk(head(geometry, group).0 + 1), 0..old));
    let per_block = geometry.descs_per_block();
    let meta = (old..blocks).flat_map(move |index| {
        let first = index * per_block;
        let members = [first, first + 1, first + per_block - 1].map(GroupNr);
        members
            .into_iter()
            .filter(|group| group.0 < geometry.groups_count.get())
            .map(move |group| {
                let past_super = u64::from(geometry.has_super(group));
                let start = Pblk(head(geometry, group).0 + past_super);
                (start, index..index + 1)
            })
    });
    whole.chain(meta)
}

/// Where a group's superblock is, or would be.
fn head(geometry: &Geometry, group: GroupNr) -> Pblk {
    match group {
        GroupNr(0) => geometry.superblock_block(),
        _ => geometry.group_start(group),
    }
}
