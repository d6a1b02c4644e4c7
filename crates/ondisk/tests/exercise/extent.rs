//! Arbitrary bytes as an inode, as the extent root in it, and as an extent node in a block.

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::extent::{self, ExtentNode};
use uext4_ondisk::inode::{self, DeviceNumber, FileType, RawInode, Timestamp};
use uext4_ondisk::{Ino, Pblk};
use zerocopy::IntoBytes;

const SEED: CsumSeed = CsumSeed(1);

/// The first byte is the depth the parent states, the rest the node.
pub fn exercise(data: &[u8]) {
    let Some((&depth, node)) = data.split_first() else {
        return;
    };
    let depth = (depth < 8).then_some(u16::from(depth));
    check_node(node, depth);
    if node.len() >= inode::GOOD_OLD_INODE_SIZE {
        check_inode(node);
    }
    let _ = extent::verify_tail(node, Pblk(7), SEED);
    let mut copy = node.to_vec();
    extent::update_tail(&mut copy, SEED);
    if ExtentNode::parse(node, None, None).is_ok() && extent::tail_offset(node).is_some() {
        assert_eq!(extent::verify_tail(&copy, Pblk(7), SEED), Ok(()));
    }
}

fn check_node(node: &[u8], depth: Option<u16>) {
    match ExtentNode::parse(node, Some(Pblk(7)), depth) {
        Ok(ExtentNode::Leaf(leaf)) => {
            let mut end = 0;
            for raw in leaf {
                let extent = raw.get();
                assert!(extent.len > 0 && extent.lblk.0 >= end);
                end = extent.lblk.0 + u32::from(extent.len);
                assert_eq!(extent::leaf_entry(extent), raw.as_bytes());
            }
        }
        Ok(ExtentNode::Index { depth, entries }) => {
            assert!(depth > 0 && !entries.is_empty());
            assert!(entries.windows(2).all(|w| w[0].lblk() < w[1].lblk()));
            assert!(entries.iter().all(|e| e.leaf().0 < 1 << 48));
        }
        Err(error) => {
            let _ = error.to_string();
        }
    }
}

fn check_inode(bytes: &[u8]) {
    let _ = inode::stored_checksum(bytes);
    let mut copy = bytes.to_vec();
    inode::update_checksum(&mut copy, SEED, Ino(12), 3);
    let computed = inode::inode_checksum(&copy, SEED, Ino(12), 3);
    assert_eq!(inode::stored_checksum(&copy), computed);
    let Ok(raw) = RawInode::parse(bytes, Ino(12)) else {
        return;
    };
    check_node(&raw.i_block, None);
    let _ = FileType::from_mode(raw.i_mode.get());
    let _ = DeviceNumber::decode(&raw.i_block).encode();
    let time = Timestamp::decode(raw.i_atime.get(), Some(raw.i_atime_extra.get()));
    let (base, extra) = time.encode();
    assert_eq!(Timestamp::decode(base, Some(extra)), time);
    raw.store(&mut copy);
}
