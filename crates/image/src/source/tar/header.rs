//! One block of 512 bytes at the head of a member: v7, ustar (POSIX, star) and old GNU.
//!
//! ```text
//! name 100 | mode 8 | uid 8 | gid 8 | size 12 | mtime 12 | chksum 8 | typeflag | linkname 100 |
//! magic 6 | version 2 | uname 32 | gname 32 | devmajor 8 | devminor 8 | prefix 155 (POSIX only)
//! ```

use std::ops::Range;

use uext4_ondisk::inode::DeviceNumber;

use crate::error::TarDamage;
pub use crate::ustar::BLOCK;
use crate::ustar::{
    CHKSUM, DEVMAJOR, DEVMINOR, GID, GNAME, LINKNAME, MAGIC, MODE, MTIME, NAME, PREFIX, SIZE,
    TYPEFLAG, UID, UNAME,
};

/// Old GNU sparse: four pairs of offset and length in the header, 21 in each further block.
const GNU_SPARSE: Range<usize> = 386..482;
const GNU_IS_EXTENDED: usize = 482;
const GNU_REAL_SIZE: Range<usize> = 483..495;
const EXT_SPARSE: Range<usize> = 0..504;
const EXT_IS_EXTENDED: usize = 504;

/// Largest number of an owner or a group. The one above it means "none" to system calls: GNU tar
/// leaves the owner alone.
pub const ID_MAX: u32 = u32::MAX - 1;

/// A header whose checksum has been tested.
#[derive(Clone, Copy)]
pub struct Header<'a>(&'a [u8; BLOCK]);

impl<'a> Header<'a> {
    /// Takes a block for a header.
    ///
    /// # Errors
    /// [`TarDamage::Checksum`] if it is none.
    pub fn parse(block: &'a [u8; BLOCK]) -> Result<Self, TarDamage> {
        // In 32 bits, which compilers add up many at a time: a block has no more than 2¹⁷.
        let sum = |bytes: &[u8]| bytes.iter().map(|&b| u32::from(b)).sum::<u32>();
        // The field itself counts as spaces.
        let spaces = CHKSUM.len() as u32 * u32::from(b' ');
        let unsigned = u64::from(sum(block) - sum(&block[CHKSUM]) + spaces);
        let stored = number(&block[CHKSUM], "checksum")?;
        if stored == i128::from(unsigned) {
            return Ok(Self(block));
        }
        // Some old writers added the bytes up as signed.
        let negative = |bytes: &[u8]| bytes.iter().filter(|&&b| b >= 0x80).count() as i128;
        let signed = i128::from(unsigned) - 256 * (negative(block) - negative(&block[CHKSUM]));
        if stored == signed {
            return Ok(Self(block));
        }
        Err(TarDamage::Checksum {
            stored: u64::try_from(stored).unwrap_or(u64::MAX),
            computed: unsigned,
        })
    }

    /// Takes a block that [`Header::parse`] has accepted before.
    pub fn parsed_before(block: &'a [u8; BLOCK]) -> Self {
        Self(block)
    }

    /// The type flag.
    pub fn kind(&self) -> u8 {
        self.0[TYPEFLAG]
    }

    /// True in the old GNU format, which has other things where POSIX has the prefix.
    pub fn is_gnu(&self) -> bool {
        self.0[MAGIC] == *b"ustar  \0"
    }

    /// The name, with the prefix where the format has one.
    pub fn name(&self) -> Vec<u8> {
        let name = text(&self.0[NAME]);
        let is_posix = self.0[MAGIC].starts_with(b"ustar") && !self.is_gnu();
        match text(&self.0[PREFIX]) {
            prefix if is_posix && !prefix.is_empty() => [prefix, b"/", name].concat(),
            _ => name.to_vec(),
        }
    }

    /// The target of a link.
    pub fn link_name(&self) -> Vec<u8> {
        text(&self.0[LINKNAME]).to_vec()
    }

    /// Names of owner and group; empty where not given.
    pub fn owner_names(&self) -> (&'a [u8], &'a [u8]) {
        if self.0[MAGIC].starts_with(b"ustar") {
            (text(&self.0[UNAME]), text(&self.0[GNAME]))
        } else {
            (b"", b"")
        }
    }

    /// Permission bits; the type bits some writers add are dropped.
    pub fn mode(&self) -> Result<u16, TarDamage> {
        Ok((number(&self.0[MODE], "mode")? & 0o7777) as u16)
    }

    /// Owner.
    pub fn uid(&self) -> Result<u32, TarDamage> {
        limited(&self.0[UID], "uid", ID_MAX.into()).map(|n| n as u32)
    }

    /// Group.
    pub fn gid(&self) -> Result<u32, TarDamage> {
        limited(&self.0[GID], "gid", ID_MAX.into()).map(|n| n as u32)
    }

    /// Length of what follows, in bytes, at most 2⁶³ - 1.
    pub fn size(&self) -> Result<u64, TarDamage> {
        limited(&self.0[SIZE], "size", i64::MAX as u64)
    }

    /// Seconds since 1970.
    pub fn mtime(&self) -> Result<i64, TarDamage> {
        i64::try_from(number(&self.0[MTIME], "mtime")?).map_err(|_| field("mtime", OUT_OF_RANGE))
    }

    /// The number of a device; 0, 0 in v7 headers, which have no field for it.
    pub fn device(&self) -> Result<DeviceNumber, TarDamage> {
        if !self.0[MAGIC].starts_with(b"ustar") {
            return Ok(DeviceNumber { major: 0, minor: 0 });
        }
        Ok(DeviceNumber {
            major: limited(&self.0[DEVMAJOR], "devmajor", 0xFFF)? as u32,
            minor: limited(&self.0[DEVMINOR], "devminor", 0xF_FFFF)? as u32,
        })
    }

    /// Size of an old GNU sparse file with its holes, in bytes.
    pub fn sparse_size(&self) -> Result<u64, TarDamage> {
        limited(&self.0[GNU_REAL_SIZE], "realsize", i64::MAX as u64)
    }

    /// True if old GNU blocks with more of the sparse map follow the header.
    pub fn has_more_map(&self) -> bool {
        self.0[GNU_IS_EXTENDED] != 0
    }

    /// Puts the pieces this header has into `map`, as offset and length by turns; true if a block
    /// with more of them follows.
    pub fn sparse_map(&self, map: &mut Vec<u64>) -> Result<bool, TarDamage> {
        sparse_pairs(&self.0[GNU_SPARSE], map)?;
        Ok(self.has_more_map())
    }
}

/// As [`Header::sparse_map`], for the blocks that follow the header.
pub fn sparse_extension(block: &[u8; BLOCK], map: &mut Vec<u64>) -> Result<bool, TarDamage> {
    sparse_pairs(&block[EXT_SPARSE], map)?;
    Ok(block[EXT_IS_EXTENDED] != 0)
}

fn sparse_pairs(fields: &[u8], map: &mut Vec<u64>) -> Result<(), TarDamage> {
    for pair in fields.chunks_exact(24) {
        if pair[12] == 0 {
            break;
        }
        for half in pair.chunks_exact(12) {
            map.push(limited(half, "sparse map", i64::MAX as u64)?);
        }
    }
    Ok(())
}

/// Up to the first zero byte, or all of it.
pub fn text(field: &[u8]) -> &[u8] {
    field.split(|&b| b == 0).next().unwrap_or_default()
}

const OUT_OF_RANGE: &str = "out of range";

fn field(field: &'static str, why: &'static str) -> TarDamage {
    TarDamage::Field { field, why }
}

fn limited(bytes: &[u8], name: &'static str, max: u64) -> Result<u64, TarDamage> {
    let value = number(bytes, name)?;
    let value = u64::try_from(value).ok().filter(|&v| v <= max);
    value.ok_or(field(name, OUT_OF_RANGE))
}

/// A number: octal digits among spaces and zero bytes, or, with the top bit of the first byte set,
/// big-endian two's complement in the rest (GNU). No field is longer than 12 bytes. One leading
/// zero byte is skipped, as GNU tar does: an old writer let the field before overflow into it.
fn number(bytes: &[u8], name: &'static str) -> Result<i128, TarDamage> {
    if bytes[0] & 0x80 != 0 {
        // 0x80 leads a positive number, 0xFF a negative one; bit 6 is the sign.
        let first = i128::from(((bytes[0] << 1) as i8) >> 1);
        let rest = bytes[1..].iter();
        return Ok(rest.fold(first, |value, &b| value << 8 | i128::from(b)));
    }
    let digits = text(bytes.strip_prefix(b"\0").unwrap_or(bytes)).trim_ascii();
    let value = digits.iter().try_fold(0u64, |value, &b| match b {
        b'0'..=b'7' => Ok(value << 3 | u64::from(b - b'0')),
        _ => Err(field(name, "not an octal number")),
    });
    value.map(i128::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_writers() {
        for (bytes, want) in [
            (&b"0000644\0"[..], 0o644),
            (b"   644 \0", 0o644),
            (b"        ", 0),
            (b"\0\0\0\0\0\0\0\0", 0),
            (b"77777777", 0o77777777),
            (b"\x000123\0\0\0", 0o123),
            (b"\0\x000123\0\0", 0),
            (b"\x80\0\0\0\0\0\0\0\0\0\x01\0", 256),
            (b"\x80\0\0\0\xFF\xFF\xFF\xFF", 0xFFFF_FFFF),
            (b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFE", -2),
        ] {
            assert_eq!(number(bytes, "n"), Ok(want), "{bytes:?}");
        }
        assert!(number(b"0000648\0", "n").is_err());
        assert!(number(b"-0000001", "n").is_err());
        assert!(limited(b"\x80\0\0\x01\0\0\0\0", "n", u32::MAX.into()).is_err());
        assert!(limited(b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "n", 9).is_err());
    }

    #[test]
    fn signed_and_unsigned_checksums_count() {
        let mut block = [0u8; BLOCK];
        block[0] = 0xE4;
        for sum in [8 * 32 + 0xE4, 8 * 32 + 0xE4 - 256] {
            block[CHKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            assert!(Header::parse(&block).is_ok());
        }
        block[1] = 1;
        assert!(matches!(
            Header::parse(&block),
            Err(TarDamage::Checksum { .. })
        ));
    }
}
