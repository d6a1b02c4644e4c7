//! Whether the group descriptors fit the shape that a superblock describes.
//!
//! A superblock can be right in itself and wrong all the same: with a descriptor size or an inode
//! size that is possible, but not the one that the file system was made with. Its checksum may
//! even match. Then the descriptors show it: most of them make no sense, or the first inode table
//! has no root directory where it must be. Only then a backup is asked for.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::features::{Compat, Incompat, RoCompat};
use uext4_ondisk::group_desc::{DescChecksum, GroupDesc, bitmap_checksum, desc_checksum};
use uext4_ondisk::inode::{FileType, RawInode};
use uext4_ondisk::num::index;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{BlockSize, Geometry, GroupNr, Ino, Pblk};

use super::shape::inodes_by_count;
use crate::backups::is_copy;

/// Blocks of descriptors whose copies are looked for, and most copies of each.
const DESCRIPTORS_MAX: usize = 4;
const COPIES_MAX: usize = 8;

/// How well the descriptors fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Groups whose descriptors cannot be.
    wrong: u32,
    /// All groups.
    groups: u32,
    /// Whether the root directory is where it must be.
    has_root: bool,
}

impl Fit {
    /// Of a shape on this device. What cannot be read does not fit.
    pub fn of(device: &dyn BlockDevice, geometry: &Geometry) -> Self {
        let groups = geometry.groups_count.get();
        let mut fit = Self {
            wrong: 0,
            groups,
            has_root: false,
        };
        let size = usize::from(geometry.desc_size);
        let mut block = vec![0; geometry.block_size.len()];
        for group in (0..groups).map(GroupNr) {
            let at = group.0 % geometry.descs_per_block();
            if at == 0 {
                let from = geometry.gdt_block(group.0 / geometry.descs_per_block());
                let offset = geometry.block_size.byte_offset(from);
                let read = offset.map(|offset| device.read_at(offset, &mut block));
                if !matches!(read, Some(Ok(()))) {
                    block.fill(0);
                }
            }
            let bytes = &block[index(at) * size..][..size];
            let desc = GroupDesc::parse(bytes);
            fit.wrong += u32::from(!can_be(geometry, group, &desc, bytes));
            if group == GroupNr(0) {
                fit.has_root = has_root(device, geometry, &desc);
            }
        }
        fit
    }

    /// Whether the shape may be wrong: a quarter of the descriptors cannot be, or there is no root
    /// directory.
    pub fn is_doubtful(self) -> bool {
        self.wrong > self.groups / 4 || !self.has_root
    }

    /// Whether all descriptors can be, and lead to the root directory.
    pub fn is_perfect(self) -> bool {
        self.wrong == 0 && self.has_root
    }

    /// Whether another shape fits better.
    pub fn is_worse_than(self, other: Self) -> bool {
        match (self.has_root, other.has_root) {
            (false, true) => true,
            (true, false) => false,
            _ => other.wrong < self.wrong,
        }
    }
}

/// Whether the first descriptor of a shape leads to the root directory.
pub fn names_root(device: &dyn BlockDevice, geometry: &Geometry) -> bool {
    let block = read_block(device, geometry.block_size, geometry.gdt_block(0));
    block.is_some_and(|block| {
        let desc = GroupDesc::parse(&block[..usize::from(geometry.desc_size)]);
        has_root(device, geometry, &desc)
    })
}

/// A block of the device; `None` if it cannot be read.
pub fn read_block(device: &dyn BlockDevice, block_size: BlockSize, block: Pblk) -> Option<Vec<u8>> {
    let offset = block_size.byte_offset(block)?;
    let end = offset.checked_add(block_size.bytes().into())?;
    if end > device.len() {
        return None;
    }
    let mut bytes = vec![0; block_size.len()];
    let read = device.read_at(offset, &mut bytes);
    read.is_ok().then_some(bytes)
}

/// Whether the inode bitmap of the first group ends where the number of all inodes says it, and not
/// where `s_inodes_per_group` does: the number of a group's inodes is wrong then.
pub fn has_other_inodes(device: &dyn BlockDevice, superblock: &SuperBlock) -> bool {
    ends_elsewhere(device, superblock).unwrap_or(false)
}

fn ends_elsewhere(device: &dyn BlockDevice, superblock: &SuperBlock) -> Option<bool> {
    let said = superblock.s_inodes_per_group.get();
    let mut other = *superblock;
    let inodes = inodes_by_count(superblock).filter(|&inodes| inodes != said)?;
    other.s_inodes_per_group = inodes.into();
    let geometry = Geometry::new(&other).ok()?;
    let block = read_block(device, geometry.block_size, geometry.gdt_block(0))?;
    let desc = GroupDesc::parse(&block[..usize::from(geometry.desc_size)]);
    let bits = read_block(device, geometry.block_size, desc.inode_bitmap)?;
    let is_full = |bits: &[u8]| bits.iter().all(|&byte| byte == 0xFF);
    let summed = bits.get(..index(inodes / 8))?;
    if let Some(seed) = geometry.csum_seed {
        let checksum = bitmap_checksum(seed, summed, geometry.desc_size.into());
        return Some(is_full(&bits[summed.len()..]) && checksum == desc.inode_bitmap_csum);
    }
    // A bitmap that is full may as well go on.
    let (less, more) = (inodes.min(said), inodes.max(said));
    let between = bits.get(index(less / 8)..index(more / 8))?;
    Some(match inodes < said {
        true => is_full(between) && !is_full(summed),
        false => is_full(&bits[summed.len()..]) && !is_full(between),
    })
}

/// How many copies of descriptors are not where a shape has them, of the first ones.
pub fn lost_copies(device: &dyn BlockDevice, geometry: &Geometry) -> usize {
    let read = |block: Pblk| read_block(device, geometry.block_size, block);
    let per_block = index(geometry.descs_per_block().max(1));
    let blocks = (0..geometry.gdt_blocks()).take(DESCRIPTORS_MAX);
    let lost = |at: u32| {
        let bytes = read(geometry.gdt_block(at)).unwrap_or_default();
        let before = index(at).saturating_mul(per_block);
        let left = index(geometry.groups_count.get()).saturating_sub(before);
        let groups = bytes.chunks_exact(geometry.desc_size.into());
        let groups: Vec<_> = groups.map(GroupDesc::parse).take(left).collect();
        let copies = geometry.gdt_backups(at).take(COPIES_MAX);
        let is_there = |copy| read(copy).is_some_and(|copy| is_copy(geometry, &groups, &copy));
        copies.filter(|&copy| !is_there(copy)).count()
    };
    blocks.map(lost).sum()
}

/// Whether the feature sparse_super is lost: without it each group has a backup, but only those
/// groups have one that have it with the feature too, and these say so.
pub fn has_lost_sparse_super(
    device: &dyn BlockDevice,
    superblock: &SuperBlock,
    geometry: &Geometry,
) -> bool {
    let features = superblock.features();
    let is_sparse = features.ro_compat.contains(RoCompat::SPARSE_SUPER)
        || features.compat.contains(Compat::SPARSE_SUPER2)
        || features.incompat.contains(Incompat::META_BG);
    let groups = geometry.groups_count.get();
    if is_sparse || groups <= DENSE[0] {
        return false;
    }
    let backup = |&group: &u32| {
        let start = geometry.group_start(GroupNr(group));
        let mut bytes = [0; 1024];
        device
            .read_at(geometry.block_size.byte_offset(start)?, &mut bytes)
            .ok()?;
        let backup = SuperBlock::parse(&bytes).ok()?;
        (backup.s_uuid == superblock.s_uuid).then_some(backup)
    };
    let is_there = |group: &&u32| **group < groups;
    let says_so = |backup: SuperBlock| {
        let features = backup.features().ro_compat;
        features.contains(RoCompat::SPARSE_SUPER)
    };
    let mut dense = DENSE.iter().filter(is_there);
    let mut sparse = SPARSE.iter().filter(is_there);
    dense.all(|group| backup(group).is_none())
        && sparse.any(|group| backup(group).is_some_and(says_so))
}

/// Groups that have a backup with sparse_super, and some that have none with it.
const SPARSE: [u32; 4] = [1, 3, 5, 7];
const DENSE: [u32; 4] = [2, 4, 6, 8];

fn can_be(geometry: &Geometry, group: GroupNr, desc: &GroupDesc, bytes: &[u8]) -> bool {
    let inside = |start, len| geometry.may_place(group, start, len);
    let is_summed = geometry.desc_checksum != DescChecksum::None;
    let is_right = || desc.checksum == desc_checksum(bytes, group, geometry.desc_checksum);
    inside(desc.block_bitmap, 1)
        && inside(desc.inode_bitmap, 1)
        && inside(desc.inode_table, geometry.itable_blocks().into())
        && (!is_summed || is_right())
}

/// Whether the second inode of the first table is a directory.
fn has_root(device: &dyn BlockDevice, geometry: &Geometry, first: &GroupDesc) -> bool {
    let mut bytes = vec![0; usize::from(geometry.inode_size)];
    let table = geometry.block_size.byte_offset(first.inode_table);
    let at = table.and_then(|table| table.checked_add(geometry.inode_size.into()));
    let is_read = at.is_some_and(|at| device.read_at(at, &mut bytes).is_ok());
    let root = RawInode::parse(&bytes, Ino::ROOT).ok();
    let is_directory = |root: RawInode| {
        FileType::from_mode(root.i_mode.get()) == Some(FileType::Directory)
            && root.i_links_count.get() != 0
    };
    is_read && root.is_some_and(is_directory)
}
