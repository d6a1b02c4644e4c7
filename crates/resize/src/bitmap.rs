//! A bitmap that changes.

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::group_desc::bitmap_checksum;
use uext4_support::bits;

/// A bitmap of a group.
pub struct Bitmap {
    /// As stored.
    pub bytes: Vec<u8>,
    /// What was freed since the last transaction is used again only after it.
    pub held: Vec<u8>,
    /// Whether it differs from what is stored.
    pub is_changed: bool,
}

impl Bitmap {
    /// As it is stored.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            held: bytes.clone(),
            bytes,
            is_changed: false,
        }
    }

    /// Changes a range of bits.
    pub fn set(&mut self, from: u32, len: u32, used: bool) {
        bits::set_range(&mut self.bytes, from, len, used);
        if used {
            bits::set_range(&mut self.held, from, len, true);
        }
        self.is_changed = true;
    }

    /// The checksum of its first `count` bits.
    pub fn checksum(&self, seed: Option<CsumSeed>, count: u32, desc_size: usize) -> u32 {
        let summed = self.bytes.get(..count as usize / 8).unwrap_or_default();
        seed.map_or(0, |seed| bitmap_checksum(seed, summed, desc_size))
    }
}
