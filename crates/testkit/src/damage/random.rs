//! Damage of no kind: bytes, words and blocks that a seed chooses, mostly of metadata.

use uext4_ondisk::Pblk;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::num::index;

use super::{Known, Survey};
use crate::random::SplitMix64;

/// Most changes of one image.
const CHANGES_MAX: u64 = 12;

/// One change of an image's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The first byte.
    pub at: usize,
    /// What stands there afterwards.
    pub bytes: Vec<u8>,
}

/// The changes of a seed: one or a few, each a bit, a byte, a word, a run of bytes, or a block that
/// is zeroed, or filled with what lies in another.
pub fn changes(image: &Survey, seed: u64) -> Vec<Change> {
    let mut random = SplitMix64::new(seed);
    let metadata = metadata(image);
    let count = 1 + random.below(random.clone().below(CHANGES_MAX) + 1);
    let mut changes = Vec::new();
    for _ in 0..count {
        let block = match random.below(10) {
            0 => Pblk(random.below(image.geometry.blocks_count)),
            _ => metadata[random.index(metadata.len())],
        };
        let start = match block.0 {
            // The boot block belongs to no structure; the superblock does.
            0 => 1024 % image.geometry.block_size.len(),
            _ => 0,
        };
        changes.push(change(image, block, start, &mut random, &metadata));
    }
    changes
}

/// Makes the changes of a seed.
pub fn apply(image: &Survey, seed: u64) -> Vec<u8> {
    let mut bytes = image.bytes.clone();
    for change in changes(image, seed) {
        bytes[change.at..][..change.bytes.len()].copy_from_slice(&change.bytes);
    }
    bytes
}

fn change(
    image: &Survey,
    block: Pblk,
    start: usize,
    random: &mut SplitMix64,
    metadata: &[Pblk],
) -> Change {
    let len = image.geometry.block_size.len();
    let place = image.place(block);
    // Most structures have their heads at the beginning of something.
    let within = match random.below(3) {
        0 => start + random.index(64.min(len - start)),
        1 => (start + random.index(len - start)) & !3,
        _ => start + random.index(len - start),
    };
    let old = &image.bytes[place..place + len];
    let room = len - within;
    let (at, bytes) = match random.below(12) {
        0..=2 => (within, vec![old[within] ^ 1 << random.below(8)]),
        3..=5 => (within, vec![random.next_u64() as u8]),
        6 | 7 => (within, number(random)[..4.min(room)].to_vec()),
        8 => (within, number(random)[..2.min(room)].to_vec()),
        9 => {
            let count = 1 + random.index(room.min(64));
            let noise = (0..count).map(|_| random.next_u64() as u8);
            (within, noise.collect())
        }
        10 => (0, vec![0; len]),
        _ => {
            let other = metadata[random.index(metadata.len())];
            (0, image.block(other).to_vec())
        }
    };
    Change {
        at: place + at,
        bytes,
    }
}

/// A word of the sort that is at the edge of something.
fn number(random: &mut SplitMix64) -> [u8; 4] {
    let number = match random.below(4) {
        0 => 0,
        1 => u32::MAX - random.below(3) as u32,
        2 => random.below(300) as u32,
        _ => random.next_u64() as u32,
    };
    number.to_le_bytes()
}

/// The blocks that hold metadata, the tables of inodes as far as they are used.
fn metadata(image: &Survey) -> Vec<Pblk> {
    let geometry = &image.geometry;
    let mut blocks = vec![geometry.superblock_block()];
    blocks.extend((0..geometry.gdt_blocks()).map(|i| geometry.gdt_block(i)));
    for desc in &image.groups {
        blocks.extend([desc.block_bitmap, desc.inode_bitmap]);
    }
    let log2 = geometry.block_size.log2();
    for known in &image.inodes {
        let table = image.inode_place(known.ino).start as u64 >> log2;
        blocks.push(Pblk(table));
        blocks.extend(known.nodes.iter().filter_map(|node| node.block));
        blocks.extend(known.xattr_block());
        let content = known.blocks.iter().map(|mapped| mapped.pblk);
        blocks.extend(content.take(index(content_max(known))));
    }
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

/// How many blocks of an inode's content are metadata.
fn content_max(known: &Known) -> u32 {
    match known.file_type {
        Some(FileType::Directory | FileType::Symlink) => 64,
        _ if known.ino.0 < 11 => 4,
        _ => 0,
    }
}
