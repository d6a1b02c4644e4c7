//! Inodes: 128 bytes of revision 0, and what larger inodes add.

use std::mem::{offset_of, size_of};

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::CsumSeed;
use crate::damage::Damage;
use crate::num::{get32, hi32, join16, len16, len32, lo16, lo32};
use crate::units::Ino;

/// Length of a revision-0 inode, and of the part every inode has.
pub const GOOD_OLD_INODE_SIZE: usize = 128;
/// Length of `i_block`: the extent root, fifteen block numbers, a short symlink or inline data.
pub const I_BLOCK_LEN: usize = 60;
/// Direct block numbers in `i_block`.
pub const NDIR_BLOCKS: usize = 12;

/// `i_mode`: mask of the file type.
pub const S_IFMT: u16 = 0xF000;
/// `i_mode`: socket.
pub const S_IFSOCK: u16 = 0xC000;
/// `i_mode`: symbolic link.
pub const S_IFLNK: u16 = 0xA000;
/// `i_mode`: regular file.
pub const S_IFREG: u16 = 0x8000;
/// `i_mode`: block device.
pub const S_IFBLK: u16 = 0x6000;
/// `i_mode`: directory.
pub const S_IFDIR: u16 = 0x4000;
/// `i_mode`: character device.
pub const S_IFCHR: u16 = 0x2000;
/// `i_mode`: fifo.
pub const S_IFIFO: u16 = 0x1000;

bitflags! {
    /// `i_flags`, as lsattr shows them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (never implemented).
        const SECRM = 0x1;
        /// Undelete (never implemented).
        const UNRM = 0x2;
        /// Compressed (never in mainline).
        const COMPR = 0x4;
        /// Synchronous writes.
        const SYNC = 0x8;
        /// May not change.
        const IMMUTABLE = 0x10;
        /// May only grow.
        const APPEND = 0x20;
        /// Not for dump.
        const NODUMP = 0x40;
        /// No access times.
        const NOATIME = 0x80;
        /// Compression state.
        const DIRTY = 0x100;
        /// Compression state.
        const COMPRBLK = 0x200;
        /// Never compress.
        const NOCOMPR = 0x400;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// Directory with an htree.
        const INDEX = 0x1000;
        /// AFS directory.
        const IMAGIC = 0x2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// No tail merging.
        const NOTAIL = 0x8000;
        /// Synchronous directory changes.
        const DIRSYNC = 0x10000;
        /// Top of a hierarchy, for the Orlov allocator.
        const TOPDIR = 0x20000;
        /// `i_blocks` counts file-system blocks.
        const HUGE_FILE = 0x40000;
        /// `i_block` is an extent root.
        const EXTENTS = 0x80000;
        /// Verity file.
        const VERITY = 0x100000;
        /// Holds an attribute value.
        const EA_INODE = 0x200000;
        /// Direct access.
        const DAX = 0x2000000;
        /// Data within the inode.
        const INLINE_DATA = 0x10000000;
        /// Children inherit the project id.
        const PROJINHERIT = 0x20000000;
        /// Case-insensitive directory.
        const CASEFOLD = 0x40000000;
        const _ = !0;
    }
}

impl InodeFlags {
    /// Flags that say how the data of an inode are stored.
    pub const LAYOUT: Self = Self::EXTENTS.union(Self::INDEX).union(Self::INLINE_DATA);
}

/// What an inode is, from its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Fifo.
    Fifo,
    /// Socket.
    Socket,
    /// Symbolic link.
    Symlink,
}

impl FileType {
    /// From `i_mode`; `None` if the type bits are none of the seven.
    pub fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & S_IFMT {
            S_IFREG => Self::Regular,
            S_IFDIR => Self::Directory,
            S_IFCHR => Self::CharDevice,
            S_IFBLK => Self::BlockDevice,
            S_IFIFO => Self::Fifo,
            S_IFSOCK => Self::Socket,
            S_IFLNK => Self::Symlink,
            _ => return None,
        })
    }

    /// The type bits of `i_mode`.
    pub fn mode_bits(self) -> u16 {
        match self {
            Self::Regular => S_IFREG,
            Self::Directory => S_IFDIR,
            Self::CharDevice => S_IFCHR,
            Self::BlockDevice => S_IFBLK,
            Self::Fifo => S_IFIFO,
            Self::Socket => S_IFSOCK,
            Self::Symlink => S_IFLNK,
        }
    }
}

/// The raw inode up to the last field that has a meaning, 160 bytes; shorter ones end earlier.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub i_version: U32,
    pub i_block: [u8; I_BLOCK_LEN],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    pub i_blocks_high: U16,
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

/// Length of the known fields.
pub const RAW_INODE_LEN: usize = size_of::<RawInode>();
/// `i_extra_isize` that covers every known field.
pub const FULL_EXTRA_ISIZE: u16 = len16(RAW_INODE_LEN - GOOD_OLD_INODE_SIZE);

const _: () = {
    assert!(RAW_INODE_LEN == 160);
    assert!(offset_of!(RawInode, i_block) == 0x28);
    assert!(offset_of!(RawInode, i_generation) == 0x64);
    assert!(offset_of!(RawInode, i_blocks_high) == 0x74);
    assert!(offset_of!(RawInode, i_checksum_lo) == 0x7C);
    assert!(offset_of!(RawInode, i_extra_isize) == GOOD_OLD_INODE_SIZE);
    assert!(offset_of!(RawInode, i_checksum_hi) == 0x82);
    assert!(offset_of!(RawInode, i_projid) == 0x9C);
};

/// A point in time as an inode stores it: seconds since 1970 (may be negative) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

/// The fields that an inode has for its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFields {
    /// The base fields alone: whole seconds, until 2038.
    Base,
    /// Extra fields, too.
    Extra,
}

impl Timestamp {
    /// The earliest time any inode can hold: 1901-12-13.
    pub const MIN_SEC: i64 = -(1 << 31);
    /// The latest time an inode with extra fields can hold: 2446-05-10.
    pub const MAX_SEC: i64 = (1 << 31) - 1 + 3 * (1 << 32);

    /// The time that a file system keeps of this one: the nearest in its range, and no
    /// nanoseconds at the ends of the range.
    #[must_use]
    pub fn kept(self, fields: TimeFields) -> Self {
        let last = match fields {
            TimeFields::Base => i64::from(i32::MAX),
            TimeFields::Extra => Self::MAX_SEC,
        };
        let sec = self.sec.clamp(Self::MIN_SEC, last);
        let whole = fields == TimeFields::Base || sec == Self::MIN_SEC || sec == last;
        let nsec = if whole { 0 } else { self.nsec };
        Self { sec, nsec }
    }

    /// From the base field and, where the inode has it, the extra field.
    ///
    /// The extra field's low two bits extend the signed seconds, the rest are nanoseconds (values
    /// of a second and more are taken modulo a second).
    pub fn decode(base: u32, extra: Option<u32>) -> Self {
        let sec = i64::from(base.cast_signed());
        match extra {
            None => Self { sec, nsec: 0 },
            Some(extra) => Self {
                sec: sec.saturating_add(i64::from(extra & 3) << 32),
                nsec: (extra >> 2) % 1_000_000_000,
            },
        }
    }

    /// Base and extra field; seconds outside the range are clamped to it.
    pub fn encode(self) -> (u32, u32) {
        let sec = self.sec.clamp(Self::MIN_SEC, Self::MAX_SEC);
        let base = lo32(sec.cast_unsigned());
        // What the sign of the base takes away, the epoch gives back.
        let epoch = hi32(sec.cast_unsigned()).wrapping_add(base >> 31);
        (base, self.nsec << 2 | epoch & 3)
    }

    /// Base field of an inode without extra fields; clamped to 1901…2038.
    pub fn encode_short(self) -> u32 {
        let sec = self.sec.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        lo32(sec.cast_unsigned())
    }

    /// Nanoseconds since 1970, which a 128-bit number always holds.
    pub fn as_nanos(self) -> i128 {
        i128::from(self.sec)
            .saturating_mul(1_000_000_000)
            .saturating_add(self.nsec.into())
    }
}

/// Device numbers as the two forms of `i_block` hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Major number, 12 bits.
    pub major: u32,
    /// Minor number, 20 bits.
    pub minor: u32,
}

impl DeviceNumber {
    /// From the first two words of `i_block`: the old 8:8 form if the first word is not zero, else
    /// the new 12:20 form in the second.
    pub fn decode(i_block: &[u8; I_BLOCK_LEN]) -> Self {
        let (old, new) = (get32(i_block, 0), get32(i_block, 4));
        if old != 0 {
            Self {
                major: old >> 8 & 0xFF,
                minor: old & 0xFF,
            }
        } else {
            Self {
                major: new >> 8 & 0xFFF,
                minor: new & 0xFF | new >> 12 & 0xF_FF00,
            }
        }
    }

    /// `i_block` of a device node, in the form the kernel chooses.
    pub fn encode(self) -> [u8; I_BLOCK_LEN] {
        let mut i_block = [0; I_BLOCK_LEN];
        if self.major < 256 && self.minor < 256 {
            let old = U16::new(lo16(self.major << 8 | self.minor));
            i_block[..2].copy_from_slice(old.as_bytes());
        } else {
            let new = self.minor & 0xFF | (self.major & 0xFFF) << 8 | (self.minor & 0xF_FF00) << 12;
            i_block[4..8].copy_from_slice(U32::new(new).as_bytes());
        }
        i_block
    }
}

impl RawInode {
    /// All zero bytes: the start of a new one.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Reads the known fields out of the `inode_size` bytes of an inode. Fields past the end of the
    /// inode, or past its `i_extra_isize`, read as zero.
    ///
    /// # Errors
    /// [`Damage::InodeExtraSize`] if `i_extra_isize` does not fit the inode or is not a multiple of
    /// four.
    pub fn parse(bytes: &[u8], ino: Ino) -> Result<Self, Damage> {
        let mut full = [0; RAW_INODE_LEN];
        let mut len = bytes.len().min(RAW_INODE_LEN);
        if bytes.len() > GOOD_OLD_INODE_SIZE {
            let extra = half(bytes, GOOD_OLD_INODE_SIZE);
            let end = GOOD_OLD_INODE_SIZE.saturating_add(extra.into());
            if !extra.is_multiple_of(4) || end > bytes.len() {
                return Err(Damage::InodeExtraSize {
                    ino,
                    extra_isize: extra,
                    inode_size: len32(bytes.len()),
                });
            }
            len = len.min(end);
        }
        full[..len].copy_from_slice(&bytes[..len]);
        Ok(zerocopy::transmute!(full))
    }

    /// Writes the known fields over the `inode_size` bytes of an inode, up to the end of its
    /// `i_extra_isize`; what lies behind is left as it is. The checksum is
    /// [`update_checksum`]'s business.
    pub fn store(&self, bytes: &mut [u8]) {
        let len = if bytes.len() > GOOD_OLD_INODE_SIZE {
            GOOD_OLD_INODE_SIZE + usize::from(self.i_extra_isize.get())
        } else {
            GOOD_OLD_INODE_SIZE
        };
        let len = len.min(RAW_INODE_LEN).min(bytes.len());
        bytes[..len].copy_from_slice(&self.as_bytes()[..len]);
    }

    /// True if the inode's extra fields reach `end` bytes from its start.
    pub fn has_field_to(&self, end: usize) -> bool {
        GOOD_OLD_INODE_SIZE + usize::from(self.i_extra_isize.get()) >= end
    }
}

/// Byte offset of `i_checksum_lo` in the inode.
pub const CHECKSUM_LO_OFFSET: usize = offset_of!(RawInode, i_checksum_lo);
/// Byte offset of `i_checksum_hi` in the inode.
pub const CHECKSUM_HI_OFFSET: usize = offset_of!(RawInode, i_checksum_hi);

/// The checksum that an inode of `bytes.len()` bytes should carry: 32 bits if it has
/// `i_checksum_hi`, else 16. `bytes` must be at least 128 long.
pub fn inode_checksum(bytes: &[u8], seed: CsumSeed, ino: Ino, generation: u32) -> u32 {
    let mut crc = seed.inode(ino, generation);
    let mut at = 0;
    let mut hole = |upto: usize| {
        crc = CsumSeed(crc.over(&bytes[at..upto]));
        crc = CsumSeed(crc.over(&[0, 0]));
        at = upto.saturating_add(2);
    };
    hole(CHECKSUM_LO_OFFSET);
    let wide = has_checksum_hi(bytes);
    if wide {
        hole(CHECKSUM_HI_OFFSET);
    }
    let sum = crc.over(&bytes[at..]);
    if wide { sum } else { sum & 0xFFFF }
}

/// The checksum an inode of at least 128 bytes carries, in the width it has room for.
pub fn stored_checksum(bytes: &[u8]) -> u32 {
    let hi = match has_checksum_hi(bytes) {
        true => half(bytes, CHECKSUM_HI_OFFSET),
        false => 0,
    };
    join16(half(bytes, CHECKSUM_LO_OFFSET), hi)
}

/// The 16-bit field at an offset of an inode; 0 past its end.
fn half(bytes: &[u8], at: usize) -> u16 {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
    field.map_or(0, |field| U16::from_bytes(*field).get())
}

/// Computes and stores the checksum of an inode of at least 128 bytes.
pub fn update_checksum(bytes: &mut [u8], seed: CsumSeed, ino: Ino, generation: u32) {
    let sum = U32::new(inode_checksum(bytes, seed, ino, generation)).to_bytes();
    bytes[CHECKSUM_LO_OFFSET..CHECKSUM_LO_OFFSET + 2].copy_from_slice(&sum[..2]);
    if has_checksum_hi(bytes) {
        bytes[CHECKSUM_HI_OFFSET..CHECKSUM_HI_OFFSET + 2].copy_from_slice(&sum[2..]);
    }
}

fn has_checksum_hi(bytes: &[u8]) -> bool {
    // i_extra_isize counts from byte 128 and must cover itself and i_checksum_hi: 4 bytes.
    bytes.len() > GOOD_OLD_INODE_SIZE + 4
        && (bytes[GOOD_OLD_INODE_SIZE] >= 4 || bytes[GOOD_OLD_INODE_SIZE + 1] != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_over_the_whole_range() {
        for sec in [
            Timestamp::MIN_SEC,
            -1,
            0,
            1,
            1 << 31,
            1 << 32,
            1 << 33,
            Timestamp::MAX_SEC,
        ] {
            let time = Timestamp {
                sec,
                nsec: 999_999_999,
            };
            let (base, extra) = time.encode();
            assert_eq!(Timestamp::decode(base, Some(extra)), time);
        }
    }

    #[test]
    fn device_numbers_round_trip() {
        for (major, minor) in [(8, 1), (255, 255), (256, 0), (1, 256), (4095, 0xF_FFFF)] {
            let device = DeviceNumber { major, minor };
            assert_eq!(DeviceNumber::decode(&device.encode()), device);
        }
    }

    #[test]
    fn extra_size_is_bounded() {
        let mut bytes = [0; 256];
        bytes[GOOD_OLD_INODE_SIZE] = 128;
        assert!(RawInode::parse(&bytes, Ino(12)).is_ok());
        bytes[GOOD_OLD_INODE_SIZE] = 132;
        assert!(RawInode::parse(&bytes, Ino(12)).is_err());
        bytes[GOOD_OLD_INODE_SIZE] = 30;
        assert!(RawInode::parse(&bytes, Ino(12)).is_err());
    }
}
