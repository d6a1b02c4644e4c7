//! Which blocks may hold contents before the size of the file system is known.

use std::ops::Range;

use uext4_mkfs::Layout;
use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};
use uext4_ondisk::{BlockSize, GroupNr, has_sparse_backup};

/// Blocks for descriptors that are in use, of which the largest file system has as many; those
/// for growth come on top. With blocks of 4 KiB enough for 2 TiB.
const DESCRIPTORS_MAX: u64 = 255;

/// A run of blocks on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block.
    pub start: u64,
    /// Blocks.
    pub len: u64,
}

/// The blocks, in order.
#[derive(Debug)]
pub struct Region {
    block_size: BlockSize,
    /// Runs, and how many blocks lie before each.
    segments: Vec<(u64, Run)>,
    blocks: u64,
}

impl Region {
    /// Where contents lie in the first groups of a file system with these features and groups of
    /// so many blocks; `None` where that depends on its size.
    pub fn first(
        features: &Features,
        block_size: BlockSize,
        blocks_per_group: u64,
    ) -> Option<Self> {
        if !can_be_first(features) {
            return None;
        }
        let first_data_block = u64::from(block_size == BlockSize::MIN);
        // The superblock, the descriptors, and as many for growth as one block has addresses.
        let base = 1 + DESCRIPTORS_MAX + u64::from(block_size.bytes() / 4);
        let in_block = match features.incompat.contains(Incompat::BIT64) {
            true => u64::from(block_size.bytes()) / 64,
            false => u64::from(block_size.bytes()) / 32,
        };
        let groups = DESCRIPTORS_MAX * in_block;
        let starts = (0..groups).map(|group| {
            let start = first_data_block + group * blocks_per_group;
            let skip = match has_sparse_backup(group) {
                true => base,
                false => 0,
            };
            start + skip..start + blocks_per_group
        });
        Self::of(block_size, starts)
    }

    /// Where contents lie in a file system of this layout.
    pub fn of_layout(layout: &Layout) -> Option<Self> {
        let geometry = &layout.geometry;
        if !can_be_first(&geometry.features) {
            return None;
        }
        let groups = (0..geometry.groups_count.get()).map(GroupNr);
        let starts = groups.map(|group| {
            let start = geometry.group_start(group).0;
            let end = start + u64::from(geometry.blocks_in_group(group));
            start + u64::from(geometry.group_base_blocks(group))..end
        });
        Self::of(geometry.block_size, starts)
    }

    fn of(block_size: BlockSize, parts: impl Iterator<Item = Range<u64>>) -> Option<Self> {
        let mut segments: Vec<(u64, Run)> = Vec::new();
        let mut blocks = 0;
        for part in parts {
            let len = part.end.checked_sub(part.start).filter(|&len| len > 0)?;
            match segments.last_mut() {
                Some((_, run)) if run.start + run.len == part.start => run.len += len,
                _ => segments.push((
                    blocks,
                    Run {
                        start: part.start,
                        len,
                    },
                )),
            }
            blocks += len;
        }
        Some(Self {
            block_size,
            segments,
            blocks,
        })
    }

    /// Bytes of a block.
    pub fn block_len(&self) -> u64 {
        self.block_size.bytes().into()
    }

    /// Bytes that fit.
    pub fn limit(&self) -> u64 {
        self.blocks.saturating_mul(self.block_len())
    }

    /// Where blocks of the region lie; those past its end lie nowhere.
    pub fn runs(&self, blocks: Range<u64>) -> impl Iterator<Item = Run> {
        let first = self
            .segments
            .partition_point(|(before, run)| before + run.len <= blocks.start);
        let segments = self.segments.get(first..).unwrap_or_default().iter();
        segments
            .take_while({
                let end = blocks.end;
                move |(before, _)| *before < end
            })
            .map(move |(before, run)| {
                let from = blocks.start.max(*before);
                let to = blocks.end.min(before + run.len);
                Run {
                    start: run.start + (from - before),
                    len: to - from,
                }
            })
    }
}

/// True if tables may lie after contents, in any group, and only backups at places that do not
/// depend on the size of the file system lie between contents.
fn can_be_first(features: &Features) -> bool {
    let needed = Incompat::EXTENTS | Incompat::FLEX_BG;
    let excluded = Incompat::META_BG | Incompat::INLINE_DATA;
    features.incompat.contains(needed)
        && !features.incompat.intersects(excluded)
        && features.ro_compat.contains(RoCompat::SPARSE_SUPER)
        && !features.ro_compat.contains(RoCompat::BIGALLOC)
        && !features.compat.contains(Compat::SPARSE_SUPER2)
}
