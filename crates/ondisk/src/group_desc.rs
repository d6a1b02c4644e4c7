//! Group descriptors: 32 bytes each, or 64 and more with `64bit`.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{CsumSeed, crc16, le32};
use crate::num::{hi16, hi32, join16, join32, lo16, lo32};
use crate::units::{GroupNr, Pblk};

/// `bg_flags`: the inode bitmap is not initialised, no inode of the group is in use.
pub const BG_INODE_UNINIT: u16 = 0x1;
/// `bg_flags`: the block bitmap is not initialised.
pub const BG_BLOCK_UNINIT: u16 = 0x2;
/// `bg_flags`: the inode table has been zeroed.
pub const BG_INODE_ZEROED: u16 = 0x4;

/// Length of a descriptor without `64bit`.
pub const DESC_SIZE_32: usize = 32;
/// Length of a descriptor with `64bit`, as mke2fs makes it.
pub const DESC_SIZE_64: usize = 64;

/// A raw 64-byte descriptor; the first 32 bytes are the whole of a small one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct RawGroupDesc {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

const _: () = {
    assert!(size_of::<RawGroupDesc>() == DESC_SIZE_64);
    assert!(offset_of!(RawGroupDesc, bg_flags) == 0x12);
    assert!(offset_of!(RawGroupDesc, bg_checksum) == 0x1E);
    assert!(offset_of!(RawGroupDesc, bg_block_bitmap_hi) == 0x20);
    assert!(offset_of!(RawGroupDesc, bg_block_bitmap_csum_hi) == 0x38);
};

/// A descriptor in host form. Counts are of clusters where the file system has `bigalloc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupDesc {
    /// Where the block bitmap is.
    pub block_bitmap: Pblk,
    /// Where the inode bitmap is.
    pub inode_bitmap: Pblk,
    /// First block of the inode table.
    pub inode_table: Pblk,
    /// Free clusters in the group.
    pub free_clusters: u32,
    /// Free inodes in the group.
    pub free_inodes: u32,
    /// Inodes of the group that are directories.
    pub used_dirs: u32,
    /// `BG_*` bits.
    pub flags: u16,
    /// Inodes at the end of the table never used: the table need not be read there.
    pub itable_unused: u32,
    /// Checksum of the block bitmap (16 bits in a small descriptor).
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap (16 bits in a small descriptor).
    pub inode_bitmap_csum: u32,
    /// The descriptor's own checksum as stored.
    pub checksum: u16,
}

/// How the descriptors of one file system are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescChecksum {
    /// Not at all.
    None,
    /// `uninit_bg`: crc16 over UUID, group number and descriptor.
    Crc16([u8; 16]),
    /// `metadata_csum`: the low half of a crc32c.
    Crc32c(CsumSeed),
}

/// Offset of `bg_checksum`, and of what lies behind it.
const CHECKSUM_OFFSET: usize = offset_of!(RawGroupDesc, bg_checksum);
const CHECKSUM_END: usize = CHECKSUM_OFFSET + 2;

impl GroupDesc {
    /// Reads a descriptor of `bytes.len()` bytes; shorter than 64 means no high halves.
    ///
    /// Missing bytes read as zero, so any slice is accepted. Nothing is validated here.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut full = [0; DESC_SIZE_64];
        let len = bytes.len().min(DESC_SIZE_64);
        full[..len].copy_from_slice(&bytes[..len]);
        let raw: RawGroupDesc = zerocopy::transmute!(full);
        Self {
            block_bitmap: Pblk(join32(raw.bg_block_bitmap_lo, raw.bg_block_bitmap_hi)),
            inode_bitmap: Pblk(join32(raw.bg_inode_bitmap_lo, raw.bg_inode_bitmap_hi)),
            inode_table: Pblk(join32(raw.bg_inode_table_lo, raw.bg_inode_table_hi)),
            free_clusters: join16(raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi),
            free_inodes: join16(raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi),
            used_dirs: join16(raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi),
            flags: raw.bg_flags.get(),
            itable_unused: join16(raw.bg_itable_unused_lo, raw.bg_itable_unused_hi),
            block_bitmap_csum: join16(raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi),
            inode_bitmap_csum: join16(raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi),
            checksum: raw.bg_checksum.get(),
        }
    }

    /// Writes the descriptor over `bytes` (32 bytes or at least 64) and sums it; fields this type
    /// does not carry keep what `bytes` held.
    pub fn store(&self, bytes: &mut [u8], group: GroupNr, how: DescChecksum) {
        let mut full = [0; DESC_SIZE_64];
        let len = bytes.len().min(DESC_SIZE_64);
        full[..len].copy_from_slice(&bytes[..len]);
        let mut raw: RawGroupDesc = zerocopy::transmute!(full);
        raw.bg_block_bitmap_lo = lo32(self.block_bitmap.0).into();
        raw.bg_inode_bitmap_lo = lo32(self.inode_bitmap.0).into();
        raw.bg_inode_table_lo = lo32(self.inode_table.0).into();
        raw.bg_free_blocks_count_lo = lo16(self.free_clusters).into();
        raw.bg_free_inodes_count_lo = lo16(self.free_inodes).into();
        raw.bg_used_dirs_count_lo = lo16(self.used_dirs).into();
        raw.bg_flags = self.flags.into();
        raw.bg_itable_unused_lo = lo16(self.itable_unused).into();
        raw.bg_block_bitmap_csum_lo = lo16(self.block_bitmap_csum).into();
        raw.bg_inode_bitmap_csum_lo = lo16(self.inode_bitmap_csum).into();
        raw.bg_block_bitmap_hi = hi32(self.block_bitmap.0).into();
        raw.bg_inode_bitmap_hi = hi32(self.inode_bitmap.0).into();
        raw.bg_inode_table_hi = hi32(self.inode_table.0).into();
        raw.bg_free_blocks_count_hi = hi16(self.free_clusters).into();
        raw.bg_free_inodes_count_hi = hi16(self.free_inodes).into();
        raw.bg_used_dirs_count_hi = hi16(self.used_dirs).into();
        raw.bg_itable_unused_hi = hi16(self.itable_unused).into();
        raw.bg_block_bitmap_csum_hi = hi16(self.block_bitmap_csum).into();
        raw.bg_inode_bitmap_csum_hi = hi16(self.inode_bitmap_csum).into();
        bytes[..len].copy_from_slice(&raw.as_bytes()[..len]);
        let sum = desc_checksum(bytes, group, how);
        bytes[CHECKSUM_OFFSET..CHECKSUM_END].copy_from_slice(U16::new(sum).as_bytes());
    }
}

/// The checksum a descriptor of `bytes.len()` bytes (at least 32) should carry; 0 for
/// [`DescChecksum::None`].
pub fn desc_checksum(bytes: &[u8], group: GroupNr, how: DescChecksum) -> u16 {
    let after = bytes.get(CHECKSUM_END..).unwrap_or_default();
    let before = &bytes[..CHECKSUM_OFFSET];
    match how {
        DescChecksum::None => 0,
        DescChecksum::Crc16(uuid) => {
            let crc = crc16(crc16(crc16(!0, &uuid), &le32(group.0)), before);
            // The field itself is left out here, while crc32c takes it as zero.
            crc16(crc, after)
        }
        DescChecksum::Crc32c(seed) => {
            let crc = CsumSeed(seed.over(&le32(group.0))).over(before);
            let crc = CsumSeed(crc).over(&[0, 0]);
            lo16(CsumSeed(crc).over(after))
        }
    }
}

/// Checksum of a bitmap's first `bytes.len()` bytes, as a descriptor of `desc_size` bytes keeps it.
///
/// The kernel sums `clusters_per_group / 8` bytes of a block bitmap and `inodes_per_group / 8`
/// bytes of an inode bitmap.
pub fn bitmap_checksum(seed: CsumSeed, bytes: &[u8], desc_size: usize) -> u32 {
    let crc = seed.over(bytes);
    if desc_size >= DESC_SIZE_64 {
        crc
    } else {
        crc & 0xFFFF
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_parse_round_trip() {
        let desc = GroupDesc {
            block_bitmap: Pblk(0x1_0000_0001),
            inode_bitmap: Pblk(0x2_0000_0002),
            inode_table: Pblk(0x3_0000_0003),
            free_clusters: 0x1_2345,
            free_inodes: 0x2_3456,
            used_dirs: 0x3_4567,
            flags: BG_INODE_ZEROED,
            itable_unused: 0x4_5678,
            block_bitmap_csum: 0xDEAD_BEEF,
            inode_bitmap_csum: 0xCAFE_F00D,
            checksum: 0,
        };
        let mut bytes = [0; 64];
        let how = DescChecksum::Crc32c(CsumSeed(7));
        desc.store(&mut bytes, GroupNr(3), how);
        let read = GroupDesc::parse(&bytes);
        assert_eq!(read.checksum, desc_checksum(&bytes, GroupNr(3), how));
        assert_eq!(
            GroupDesc {
                checksum: 0,
                ..read
            },
            desc
        );
    }

    #[test]
    fn small_descriptor_has_no_high_halves() {
        let desc = GroupDesc {
            block_bitmap: Pblk(9),
            free_clusters: 70_000,
            ..GroupDesc::default()
        };
        let mut bytes = [0; 32];
        desc.store(&mut bytes, GroupNr(0), DescChecksum::None);
        let read = GroupDesc::parse(&bytes);
        assert_eq!(read.block_bitmap, Pblk(9));
        assert_eq!(read.free_clusters, 70_000 & 0xFFFF);
        assert_eq!(read.checksum, 0);
    }
}
