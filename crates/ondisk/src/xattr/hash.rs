//! The hashes of attributes: of an entry, of a value in an inode, of a block.

use zerocopy::little_endian::U32;

use super::{RawXattrEntry, value_len};
use crate::checksum::CsumSeed;
use crate::hash::CharSign;
use crate::num::index;

/// `e_hash` of an attribute: of its name, then of its value's words.
///
/// e2fsprogs leave it 0 within an inode; the kernel fills it in everywhere.
/// `value` is padded with zeroes to a multiple of four, unless it comes with its own padding, which
/// the hash is of as well. With `ea_inode` the value hashed is the value's crc32c alone
/// ([`ea_inode_hash`]), as one word. Kernels before 6.2 took name bytes as signed on most machines;
/// both are accepted when reading.
pub fn entry_hash(name: &[u8], value: &[u8], sign: CharSign) -> u32 {
    let mut hash = 0u32;
    for &byte in name {
        hash = hash.rotate_left(5) ^ sign.value(byte);
    }
    for chunk in value.chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = hash.rotate_left(16) ^ U32::from_bytes(word).get();
    }
    hash
}

/// The `e_hash` that an entry of `region` has once it is packed with others: the stored one, unless
/// the room behind its value, which is packed as zeroes, holds something else.
pub fn packed_hash(raw: &RawXattrEntry, name: &[u8], region: &[u8]) -> u32 {
    let stored = raw.e_hash.get();
    let from = usize::from(raw.e_value_offs.get());
    let size = index(raw.e_value_size.get());
    let padded = from.saturating_add(value_len(size));
    let Some((value, padding)) = region
        .get(from..padded)
        .and_then(|padded| padded.split_at_checked(size))
    else {
        return stored;
    };
    let is_here = raw.e_value_inum.get() == 0 && stored != 0;
    match is_here && padding.iter().any(|&byte| byte != 0) {
        true => entry_hash(name, value, CharSign::Unsigned),
        false => stored,
    }
}

/// The hash an `ea_inode` value carries in its inode: crc32c of the bytes with the file system's
/// seed.
pub fn ea_inode_hash(seed: CsumSeed, value: &[u8]) -> u32 {
    seed.over(value)
}

/// `h_hash` of a block: the entry hashes chained; 0 (never shared) if any entry has none.
pub fn block_hash(entry_hashes: impl IntoIterator<Item = u32>) -> u32 {
    let mut hash = 0u32;
    for entry in entry_hashes {
        if entry == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ entry;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xattr::{XattrEntry, XattrPlace, pack_block, parse_entries};
    use crate::{Pblk, xattr::INDEX_USER};

    #[test]
    fn what_lies_behind_a_value_is_hashed_and_not_kept() {
        let mut block = vec![0; 256];
        let entries = [XattrEntry::here(INDEX_USER, b"a", b"12345")];
        pack_block(&mut block, &entries).unwrap();
        block[253] = 9;
        let padded = entry_hash(b"a", b"12345\x09\0\0", CharSign::Unsigned);
        block[32 + 12..32 + 16].copy_from_slice(&padded.to_le_bytes());
        let read = parse_entries(&block, 32, XattrPlace::Block(Pblk(7))).unwrap();
        assert_eq!(read, entries);
        assert_ne!(padded, read[0].hash);
    }
}
