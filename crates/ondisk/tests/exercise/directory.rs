//! Arbitrary bytes as a directory block, as hash tree nodes, and as a directory within an inode.

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::dir_entry::{self, DirBlock};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::hash::{CharSign, HashVersion, hash_name};
use uext4_ondisk::htree::{self, DX_NODE_ENTRIES_OFFSET, DX_ROOT_ENTRIES_OFFSET, DxNode, DxShape};
use uext4_ondisk::{Lblk, Pblk};

const SEED: CsumSeed = CsumSeed(1);

/// The first byte chooses options, the rest is the block.
pub fn exercise(data: &[u8]) {
    let Some((&options, block)) = data.split_first() else {
        return;
    };
    let at = (options & 1 != 0).then_some(Pblk(7));
    let mut end = 0;
    let incompat = match options & 2 {
        0 => Incompat::empty(),
        _ => Incompat::FILETYPE,
    };
    for entry in DirBlock::new(block, at, incompat) {
        let Ok(entry) = entry else { break };
        assert!(entry.offset >= end && entry.offset + entry.rec_len <= block.len());
        assert!((1..=255).contains(&entry.name.len()) && entry.ino.0 != 0);
        end = entry.offset + entry.rec_len;
        if let Some(version) = HashVersion::from_disk(options >> 2 & 7, CharSign::Signed) {
            assert_eq!(hash_name(version, [0; 4], entry.name).hash & 1, 0);
        }
    }
    let _ = dir_entry::verify_tail(block, Pblk(7), SEED);
    if block.len() >= dir_entry::DIR_TAIL_LEN {
        let mut copy = block.to_vec();
        dir_entry::update_tail(&mut copy, SEED);
        assert_eq!(dir_entry::verify_tail(&copy, Pblk(7), SEED), Ok(()));
    }
    for offset in [DX_ROOT_ENTRIES_OFFSET, DX_NODE_ENTRIES_OFFSET] {
        let summed = options & 0x80 != 0;
        node(block, DxShape { offset, summed });
    }
}

fn node(block: &[u8], shape: DxShape) {
    let offset = shape.offset;
    let _ = htree::verify_tail(block, offset, Lblk(1), Pblk(7), SEED);
    let mut copy = block.to_vec();
    htree::update_tail(&mut copy, offset, SEED);
    let Ok(node) = DxNode::parse(block, shape, Lblk(1)) else {
        return;
    };
    for (i, entry) in node.entries.iter().enumerate() {
        let _ = node.block(i);
        let found = node.find(entry.hash.get());
        assert!(found < node.entries.len());
        assert!(i == 0 || found >= i);
    }
    if shape.summed {
        assert_eq!(
            htree::verify_tail(&copy, offset, Lblk(1), Pblk(7), SEED),
            Ok(())
        );
    }
}
