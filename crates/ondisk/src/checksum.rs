//! crc32c as ext4 chains it, the crc16 of `uninit_bg`, and the crc32 of v1 journals.
//!
//! ext4 keeps the *raw* register: no inversion before or after, so that sums can be continued. The
//! usual seeds are the file system's, that of an inode ([`CsumSeed::inode`]), and `!0`.

use crate::num::{index, len16, len32};
use crate::units::Ino;

/// Continues the raw crc32c register `seed` over `bytes`.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// Continues the raw crc32c register `seed` over `len` zero bytes, in a time that hardly depends on
/// how many they are.
pub fn crc32c_zeroes(seed: u32, len: usize) -> u32 {
    // The register is linear in the seed and in the bytes, and these add nothing.
    crc32c::crc32c_combine(seed, 0, len)
}

/// Continues the crc16 (polynomial 0xA001, reflected) `seed` over `bytes`.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, &byte| {
        crc >> 8 ^ CRC16_TABLE[usize::from((crc ^ u16::from(byte)) & 0xFF)]
    })
}

/// Continues the crc32 (polynomial 0x04C11DB7, most significant bit first, no inversion) `seed`
/// over `bytes`: what v1 journal checksums use.
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, &byte| {
        crc << 8 ^ CRC32_BE_TABLE[index(crc >> 24) ^ usize::from(byte)]
    })
}

const CRC32_BE_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = len32(i) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000_0000 != 0 {
                crc << 1 ^ 0x04C1_1DB7
            } else {
                crc << 1
            };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

const CRC16_TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = len16(i);
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ 0xA001
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// Where every metadata checksum of one file system starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsumSeed(pub u32);

impl CsumSeed {
    /// The seed of a file system without `metadata_csum_seed`: crc32c of its UUID.
    pub fn from_uuid(uuid: &[u8; 16]) -> Self {
        Self(crc32c(!0, uuid))
    }

    /// The seed of what belongs to one inode: its number and generation continued from this.
    ///
    /// Used by the inode itself, its extent tree and its directory blocks.
    pub fn inode(self, ino: Ino, generation: u32) -> CsumSeed {
        let crc = crc32c(self.0, &le32(ino.0));
        CsumSeed(crc32c(crc, &le32(generation)))
    }

    /// Continues this seed over `bytes`.
    pub fn over(self, bytes: &[u8]) -> u32 {
        crc32c(self.0, bytes)
    }
}

/// The little-endian bytes of a number that goes into a checksum.
pub fn le32(value: u32) -> [u8; 4] {
    zerocopy::little_endian::U32::new(value).to_bytes()
}

/// The little-endian bytes of a number that goes into a checksum.
pub fn le64(value: u64) -> [u8; 8] {
    zerocopy::little_endian::U64::new(value).to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_of_check_string() {
        // The catalogue's check value, after the final inversion that ext4 leaves out.
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
    }

    #[test]
    fn crc32c_of_zeroes_is_that_of_their_bytes() {
        for len in [0, 1, 3, 8, 1000, 65_537] {
            for seed in [0, 1, !0, 0x1234_5678] {
                assert_eq!(crc32c_zeroes(seed, len), crc32c(seed, &vec![0; len]));
            }
        }
    }

    #[test]
    fn crc32c_continues() {
        assert_eq!(
            crc32c(crc32c(!0, b"1234"), b"56789"),
            crc32c(!0, b"123456789")
        );
    }

    #[test]
    fn crc32_be_of_check_string() {
        // CRC-32/MPEG-2 is the same without a final inversion; its check value is 0x0376E6E7.
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_E6E7);
    }

    #[test]
    fn crc16_of_check_string() {
        // CRC-16/ARC starts at 0; its check value is 0xBB3D.
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }
}
