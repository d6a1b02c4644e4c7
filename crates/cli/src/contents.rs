//! Recognises what a device holds by the magic numbers of public format descriptions: commands must
//! not overwrite it by mistake, or have to say why they cannot use it.
//!
//! The answer is a name, not a verdict: little more than the magic numbers is read, and damage
//! behind them is not found. Formats that others can contain come later: a disk image may begin
//! with a boot sector, and a file system may leave the first kilobyte to one.
//!
//! Left out: formats that have no magic number, and what lies below compression.

use uext4_blockdev::partition::{self, Table};
use uext4_blockdev::{BlockDevice, Error};

/// What a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// No bytes at all.
    NoBytes,
    /// Zeroes, in every place that was looked at.
    Zeroes,
    /// A known format.
    Known(Format),
    /// A partition table.
    Partitions(Table),
    /// Lines of text.
    Text,
    /// Data of no known format.
    Unknown,
}

impl Contents {
    /// Whether it is something that has a name.
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Known(_) | Self::Partitions(_))
    }
}

/// A format with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// As a sentence names it: "an XFS file system".
    pub name: &'static str,
    /// What it is for.
    pub family: Family,
}

/// What a format is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// An ext2, ext3 or ext4 file system, or its journal.
    Ext,
    /// Another file system.
    FileSystem,
    /// Swap space.
    Swap,
    /// Encrypted; a device mapper opens it.
    Encrypted,
    /// Hashes by which the kernel verifies a file system that lies elsewhere.
    HashTree,
    /// Part of a volume group or of a RAID; other devices may hold the rest.
    Volume,
    /// A disk in the format of a virtual machine, and the command that makes a plain one of it.
    Disk {
        /// `qemu-img convert -O raw`, …
        command: &'static str,
    },
    /// Compressed data, and the command that unpacks it.
    Compressed {
        /// `gzip`, `xz`, …
        command: &'static str,
    },
    /// An archive of files.
    Archive,
}

/// Where a magic number stands, and what it says.
struct Magic {
    at: u64,
    bytes: &'static [u8],
    format: Format,
}

const fn magic(at: u64, bytes: &'static [u8], name: &'static str, family: Family) -> Magic {
    let format = format(name, family);
    Magic { at, bytes, format }
}

const fn format(name: &'static str, family: Family) -> Format {
    Format { name, family }
}

const fn disk(at: u64, bytes: &'static [u8], name: &'static str) -> Magic {
    let command = "qemu-img convert -O raw";
    magic(at, bytes, name, Family::Disk { command })
}

const fn compressed(bytes: &'static [u8], name: &'static str, command: &'static str) -> Magic {
    magic(0, bytes, name, Family::Compressed { command })
}

const KIB: u64 = 1024;

/// Numbers of more than two bytes: a device of chance bytes has none of them.
const MAGICS: &[Magic] = &[
    magic(
        0,
        b"LUKS\xba\xbe",
        "a LUKS encrypted volume",
        Family::Encrypted,
    ),
    magic(
        3,
        b"-FVE-FS-",
        "a BitLocker encrypted volume",
        Family::Encrypted,
    ),
    magic(
        0,
        b"verity\0\0\x01\0\0\0",
        "a dm-verity hash tree",
        Family::HashTree,
    ),
    disk(0, b"QFI\xfb", "a qcow2 disk image"),
    disk(0, b"KDMV", "a VMDK disk image"),
    disk(0, b"COWD", "a VMDK disk image"),
    disk(0, b"# Disk DescriptorFile", "a VMDK disk image"),
    disk(0, b"vhdxfile", "a VHDX disk image"),
    disk(0, b"conectix", "a VHD disk image"),
    disk(0x40, b"\x7f\x10\xda\xbe", "a VDI disk image"),
    disk(0, b"QED\0", "a QED disk image"),
    magic(
        0,
        b"\x3a\xff\x26\xed",
        "an Android sparse image",
        Family::Disk {
            command: "simg2img",
        },
    ),
    compressed(b"\x1f\x8b\x08", "gzip-compressed data", "gzip"),
    compressed(b"\x28\xb5\x2f\xfd", "zstd-compressed data", "zstd"),
    compressed(b"\xfd7zXZ\0", "xz-compressed data", "xz"),
    compressed(b"\x04\x22\x4d\x18", "lz4-compressed data", "lz4"),
    magic(0, b"PK\x03\x04", "a zip archive", Family::Archive),
    magic(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", Family::Archive),
    magic(257, b"ustar", "a tar archive", Family::Archive),
    magic(0, b"XFSB", "an XFS file system", Family::FileSystem),
    magic(
        0x1_0040,
        b"_BHRfS_M",
        "a btrfs file system",
        Family::FileSystem,
    ),
    magic(0, b"hsqs", "a squashfs file system", Family::FileSystem),
    magic(0, b"sqsh", "a squashfs file system", Family::FileSystem),
    magic(
        KIB,
        b"\xe2\xe1\xf5\xe0",
        "an EROFS file system",
        Family::FileSystem,
    ),
    magic(
        KIB,
        b"\x10\x20\xf5\xf2",
        "an F2FS file system",
        Family::FileSystem,
    ),
    magic(
        0,
        b"\x45\x3d\xcd\x28",
        "a cramfs file system",
        Family::FileSystem,
    ),
    magic(0, b"-rom1fs-", "a romfs file system", Family::FileSystem),
    magic(0, b"UBI#", "a UBI volume", Family::Volume),
    magic(
        0,
        b"\x31\x18\x10\x06",
        "a UBIFS file system",
        Family::FileSystem,
    ),
    magic(3, b"NTFS    ", "an NTFS file system", Family::FileSystem),
    magic(3, b"EXFAT   ", "an exFAT file system", Family::FileSystem),
    magic(32, b"NXSB", "an APFS container", Family::FileSystem),
    magic(32 * KIB, b"JFS1", "a JFS file system", Family::FileSystem),
    magic(
        64 * KIB + 52,
        b"ReIsEr",
        "a ReiserFS file system",
        Family::FileSystem,
    ),
    magic(
        64 * KIB,
        b"\x01\x16\x19\x70",
        "a GFS2 file system",
        Family::FileSystem,
    ),
    magic(
        4 * KIB + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
        "a bcachefs file system",
        Family::FileSystem,
    ),
    magic(
        4 * KIB + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "a bcache device",
        Family::Volume,
    ),
    magic(
        32 * KIB + 1,
        b"CD001",
        "an ISO 9660 file system",
        Family::FileSystem,
    ),
    magic(
        34 * KIB + 1,
        b"NSR0",
        "a UDF file system",
        Family::FileSystem,
    ),
    magic(
        36 * KIB + 1,
        b"NSR0",
        "a UDF file system",
        Family::FileSystem,
    ),
];

const RAID: Format = format("a member of a Linux RAID", Family::Volume);
const LVM: Format = format("an LVM physical volume", Family::Volume);
const SWAP: Format = format("swap space", Family::Swap);
const FAT: Format = format("a FAT file system", Family::FileSystem);
const HFS_PLUS: Format = format("an HFS+ file system", Family::FileSystem);
const VHD: Format = disk(0, b"conectix", "a VHD disk image").format;
const ZFS: Format = format("a member of a ZFS pool", Family::FileSystem);
const BZIP2: Format = Format {
    name: "bzip2-compressed data",
    family: Family::Compressed { command: "bzip2" },
};

/// First number of a superblock of Linux' RAID.
const RAID_MAGIC: [u8; 4] = 0xA92B_4EFC_u32.to_le_bytes();
/// What a swap space ends its first page with, and the sizes of pages there are.
const SWAP_MAGICS: [&[u8; 10]; 2] = [b"SWAPSPACE2", b"SWAP-SPACE"];
const PAGE_SIZES: [u64; 5] = [4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB];

/// What a device holds.
///
/// # Errors
/// Those of reading the device.
pub fn contents(device: &dyn BlockDevice) -> Result<Contents, Error> {
    if device.is_empty() {
        return Ok(Contents::NoBytes);
    }
    let look = Look { device };
    if let Some(format) = look.format()? {
        return Ok(Contents::Known(format));
    }
    let table = partition::read(device)?;
    if !table.partitions.is_empty() || !table.damage.is_empty() {
        return Ok(Contents::Partitions(table));
    }
    look.plain()
}

/// True if every byte of the device is zero. Holes are not read.
///
/// # Errors
/// Those of reading the device.
pub fn is_zero(device: &dyn BlockDevice) -> Result<bool, Error> {
    let mut buf = vec![0; 256 << 10];
    let mut at = 0;
    while let Some(data) = device.next_data(at)? {
        at = data.start;
        while at < data.end {
            let count = (data.end - at).min(buf.len() as u64);
            // OK to cast: no more than the buffer has.
            let piece = &mut buf[..count as usize];
            device.read_at(at, piece)?;
            if piece.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            at += count;
        }
    }
    Ok(true)
}

/// A test for one format or a few.
type Finder<'a> = fn(&Look<'a>) -> Result<Option<Format>, Error>;

/// Looks for magic numbers.
struct Look<'a> {
    device: &'a dyn BlockDevice,
}

impl<'a> Look<'a> {
    /// The bytes at a place; zeroes past the end of the device.
    fn bytes<const N: usize>(&self, at: u64) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        let present = self.device.len().saturating_sub(at).min(N as u64);
        // OK to cast: at most N.
        self.device
            .read_at(at.min(self.device.len()), &mut bytes[..present as usize])?;
        Ok(bytes)
    }

    fn has(&self, at: u64, magic: &[u8]) -> Result<bool, Error> {
        Ok(self.bytes::<24>(at)?.starts_with(magic))
    }

    /// The format, if it is known.
    fn format(&self) -> Result<Option<Format>, Error> {
        if let Some(format) = self.ext()? {
            return Ok(Some(format));
        }
        for magic in MAGICS {
            if self.has(magic.at, magic.bytes)? {
                return Ok(Some(magic.format));
            }
        }
        let others: [Finder<'a>; 6] = [
            Self::swap,
            Self::lvm,
            Self::raid,
            Self::boot_sector,
            Self::zfs,
            Self::others,
        ];
        for look in others {
            if let Some(format) = look(self)? {
                return Ok(Some(format));
            }
        }
        Ok(None)
    }

    /// Ext has a number of two bytes: its revision and block size must make sense as well.
    fn ext(&self) -> Result<Option<Format>, Error> {
        let block: [u8; 0x68] = self.bytes(KIB)?;
        // OK to unwrap: four bytes each.
        let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
        if block[0x38..0x3A] != [0x53, 0xEF] || word(0x4C) > 1 || word(0x18) > 6 {
            return Ok(None);
        }
        let (compat, incompat, ro_compat) = (word(0x5C), word(0x60), word(0x64));
        let name = if incompat & 0x8 != 0 {
            "the journal of an ext file system"
        } else if incompat & !0x16 != 0 || ro_compat & !0x7 != 0 {
            "an ext4 file system"
        } else if compat & 0x4 != 0 {
            "an ext3 file system"
        } else {
            "an ext2 file system"
        };
        let family = Family::Ext;
        Ok(Some(Format { name, family }))
    }

    fn swap(&self) -> Result<Option<Format>, Error> {
        for size in PAGE_SIZES {
            let end: [u8; 10] = self.bytes(size - 10)?;
            if SWAP_MAGICS.contains(&&end) {
                return Ok(Some(SWAP));
            }
        }
        Ok(None)
    }

    /// The label of a physical volume stands in one of the first four sectors.
    fn lvm(&self) -> Result<Option<Format>, Error> {
        for sector in 0..4 {
            let label: [u8; 32] = self.bytes(sector * 512)?;
            if label.starts_with(b"LABELONE") && label[24..] == *b"LVM2 001" {
                return Ok(Some(LVM));
            }
        }
        Ok(None)
    }

    /// Superblocks of a RAID stand at the beginning, 4 KiB behind it, or near the end.
    fn raid(&self) -> Result<Option<Format>, Error> {
        let len = self.device.len();
        let near_end = (len / 512).saturating_sub(16) / 8 * 8 * 512;
        let oldest = (len / (64 * KIB)).saturating_sub(1) * 64 * KIB;
        for at in [0, 4 * KIB, near_end, oldest] {
            if self.has(at, &RAID_MAGIC)? {
                return Ok(Some(RAID));
            }
        }
        Ok(None)
    }

    /// A file system whose first sector may be taken for a partition table.
    fn boot_sector(&self) -> Result<Option<Format>, Error> {
        let sector: [u8; 512] = self.bytes(0)?;
        let is_fat = sector[54..].starts_with(b"FAT1") || sector[82..].starts_with(b"FAT32   ");
        let jumps = matches!(sector[0], 0xEB | 0xE9);
        Ok((is_fat && jumps && sector[510..] == [0x55, 0xAA]).then_some(FAT))
    }

    /// A pool keeps a ring of its superblocks behind the first 128 KiB.
    fn zfs(&self) -> Result<Option<Format>, Error> {
        const MAGIC: u64 = 0x00BA_B10C;
        for slot in 0..128 {
            let bytes: [u8; 8] = self.bytes((128 + slot) * KIB)?;
            if bytes == MAGIC.to_le_bytes() || bytes.iter().rev().eq(&MAGIC.to_le_bytes()) {
                return Ok(Some(ZFS));
            }
        }
        Ok(None)
    }

    fn others(&self) -> Result<Option<Format>, Error> {
        let hfs: [u8; 4] = self.bytes(KIB)?;
        if matches!(&hfs, b"H+\0\x04" | b"HX\0\x05") {
            return Ok(Some(HFS_PLUS));
        }
        let start: [u8; 10] = self.bytes(0)?;
        if start.starts_with(b"BZh") && start[4..] == *b"1AY&SY" {
            return Ok(Some(BZIP2));
        }
        let end = self.device.len().saturating_sub(512);
        Ok(self.has(end, b"conectix")?.then_some(VHD))
    }

    /// What has no magic number: text, zeroes, anything else.
    fn plain(&self) -> Result<Contents, Error> {
        const LOOKED_AT: u64 = 1 << 20;
        let len = self.device.len();
        // OK to cast: at most 4096.
        let mut start = vec![0; len.min(4096) as usize];
        self.device.read_at(0, &mut start)?;
        if is_text(&start) {
            return Ok(Contents::Text);
        }
        for at in [0, len.saturating_sub(LOOKED_AT)] {
            // OK to cast: at most a MiB.
            let mut piece = vec![0; len.min(LOOKED_AT) as usize];
            self.device.read_at(at, &mut piece)?;
            if piece.iter().any(|&byte| byte != 0) {
                return Ok(Contents::Unknown);
            }
        }
        Ok(Contents::Zeroes)
    }
}

/// True for UTF-8 without control characters but those that lay text out. A character may be cut
/// off at the end.
fn is_text(start: &[u8]) -> bool {
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let lays_out = |c: char| matches!(c, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}');
    !text.is_empty() && text.chars().all(|c| !c.is_control() || lays_out(c))
}

#[cfg(test)]
mod tests {
    use uext4_blockdev::MemoryDevice;

    use super::*;

    fn name_of(at: u64, bytes: &[u8]) -> &'static str {
        let device = MemoryDevice::new(8 << 20);
        device.write_at(at, bytes).unwrap();
        match contents(&device).unwrap() {
            Contents::Known(format) => format.name,
            other => panic!("{bytes:x?} at {at}: {other:?}"),
        }
    }

    #[test]
    fn every_magic_number_is_found() {
        for magic in MAGICS {
            assert_eq!(name_of(magic.at, magic.bytes), magic.format.name);
        }
        assert_eq!(name_of(4086, b"SWAPSPACE2"), SWAP.name);
        assert_eq!(name_of(65526, b"SWAPSPACE2"), SWAP.name);
        for at in [0, 4096, (8 << 20) - 8192, (8 << 20) - 65536] {
            assert_eq!(name_of(at, &RAID_MAGIC), RAID.name);
        }
        let label = b"LABELONE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0LVM2 001";
        assert_eq!(name_of(512, label), LVM.name);
        assert_eq!(name_of((8 << 20) - 512, b"conectix"), VHD.name);
        assert_eq!(name_of(0, b"BZh91AY&SY"), BZIP2.name);
    }

    #[test]
    fn contents_without_a_magic_number_are_distinguished() {
        let held = |len: u64, at: u64, bytes: &[u8]| {
            let device = MemoryDevice::new(len);
            device.write_at(at, bytes).unwrap();
            contents(&device).unwrap()
        };
        assert_eq!(held(0, 0, b""), Contents::NoBytes);
        assert_eq!(held(1500, 0, b""), Contents::Zeroes);
        assert_eq!(held(6, 0, b"text\n\n"), Contents::Text);
        assert_eq!(held(8 << 20, (8 << 20) - 1, b"x"), Contents::Unknown);
        assert_eq!(held(3, 0, b"\xff\xfe\xfd"), Contents::Unknown);
    }
}
