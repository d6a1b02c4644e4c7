//! The blocks of quota files.

use uext4_ondisk::num::index;
use uext4_ondisk::quota::{
    QUOTA_BLOCK_LEN, QUOTA_TREE_DEPTH, QUOTA_TREE_ROOT, QuotaHeader, parse_tree_block,
};
use uext4_ondisk::{Ino, Lblk};
use zerocopy::FromBytes;

use crate::damage::{Known, Survey};

/// A block of a quota file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The file.
    pub ino: Ino,
    /// Its number in the file, in units of 1,024 bytes.
    pub number: u32,
    /// What it is.
    pub role: QuotaRole,
    /// The first byte in the image.
    pub at: usize,
}

/// What a block of a quota file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaRole {
    /// The head of the file.
    Header,
    /// A node of the tree.
    Tree,
    /// A leaf with entries.
    Leaf,
}

/// All blocks in use of all quota files.
pub(super) fn blocks(image: &Survey) -> Vec<Quota> {
    let sb = &image.superblock;
    let files = [
        sb.s_usr_quota_inum,
        sb.s_grp_quota_inum,
        sb.s_prj_quota_inum,
    ];
    let files = files.iter().filter_map(|ino| image.known(Ino(ino.get())));
    files.flat_map(|known| of_file(image, known)).collect()
}

fn of_file(image: &Survey, known: &Known) -> Vec<Quota> {
    let place = |number: u32, role| {
        let byte = index(number) * QUOTA_BLOCK_LEN;
        let size = image.geometry.block_size.len();
        let lblk = Lblk((byte / size) as u32);
        let mapped = known.blocks.iter().find(|mapped| mapped.lblk == lblk)?;
        Some(Quota {
            ino: known.ino,
            number,
            role,
            at: image.place(mapped.pblk) + byte % size,
        })
    };
    let Some(head) = place(0, QuotaRole::Header) else {
        return Vec::new();
    };
    let blocks = match QuotaHeader::ref_from_prefix(&image.bytes[head.at..]) {
        Ok((header, _)) => header.dqi_blocks.get(),
        Err(_) => 0,
    };
    let mut all = vec![head];
    let mut level = vec![QUOTA_TREE_ROOT];
    for _ in 0..QUOTA_TREE_DEPTH {
        let nodes: Vec<_> = level
            .iter()
            .filter_map(|&number| place(number, QuotaRole::Tree))
            .collect();
        let below = nodes.iter().flat_map(|node| {
            let children = parse_tree_block(&image.bytes[node.at..], blocks);
            let children = children.unwrap_or_default().iter();
            children.map(|child| child.get()).filter(|&n| n != 0)
        });
        level = below.collect();
        level.sort_unstable();
        level.dedup();
        all.extend(nodes);
    }
    all.extend(level.iter().filter_map(|&n| place(n, QuotaRole::Leaf)));
    all
}
