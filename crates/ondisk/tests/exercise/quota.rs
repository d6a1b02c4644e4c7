//! Arbitrary bytes as every block of a quota file, and as a block of an orphan file.

use uext4_ondisk::Pblk;
use uext4_ondisk::orphan::OrphanBlock;
use uext4_ondisk::quota::{
    QUOTA_ENTRIES_PER_LEAF, QuotaHeader, QuotaKind, parse_leaf, parse_tree_block, tree_slot,
};

/// The first byte chooses how many blocks the quota file has, the rest is the block.
pub fn exercise(data: &[u8]) {
    let Some((&blocks, block)) = data.split_first() else {
        return;
    };
    for kind in [QuotaKind::User, QuotaKind::Group, QuotaKind::Project] {
        if let Ok(header) = QuotaHeader::parse(block, kind) {
            assert!(header.dqi_free_blk.get() < header.dqi_blocks.get());
        }
    }
    if let Ok(numbers) = parse_tree_block(block, blocks.into()) {
        let is_inside = |number: u32| number == 0 || number < u32::from(blocks);
        assert!(numbers.iter().all(|number| is_inside(number.get())));
    }
    if let Ok(entries) = parse_leaf(block) {
        assert!(entries.len() <= QUOTA_ENTRIES_PER_LEAF);
        for entry in entries {
            assert!((0..6).all(|level| tree_slot(entry.dqb_id.get(), level) < 256));
        }
    }
    if let Ok(orphans) = OrphanBlock::parse(block, Pblk(blocks.into()), None) {
        assert!(orphans.inodes().count() <= block.len() / 4);
        assert!(
            orphans
                .slots()
                .all(|(slot, _)| (slot as usize) < block.len() / 4)
        );
    }
}
