//! The seed of all checksums, from one of them.
//!
//! With `metadata_csum` each checksum is a CRC-32C that begins with a seed made of the UUID, which
//! was in the superblock alone. But a CRC can be run backwards: what it began with follows from
//! what it ended with and the bytes between. So an inode with its checksum gives the seed, and
//! other inodes, with the same seed, prove it. An inode of 128 bytes stores only half of its
//! checksum; there a block of the root directory has a whole one.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::Ino;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::dir_entry::{DIR_TAIL_LEN, tail};
use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, inode_checksum, stored_checksum};

use super::root::Root;
use crate::volume::generation;

/// The polynomial, its bits in the order in which a CRC-32C shifts them out.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// Bytes of the number and the generation of an inode, which its checksum covers first.
const PREFIX: usize = 8;
/// The inodes that may prove a seed.
const PROOFS: std::ops::RangeInclusive<u32> = 3..=11;

/// The seed of the file system with this root directory; `None` if it has no checksums.
pub fn of(device: &dyn BlockDevice, root: &Root) -> Option<CsumSeed> {
    let inode = root.inode(device, Ino::ROOT)?;
    let of_inode = (inode.len() > GOOD_OLD_INODE_SIZE).then(|| {
        let unseeded = inode_checksum(&inode, CsumSeed(0), Ino::ROOT, generation(&inode));
        begun(stored_checksum(&inode) ^ unseeded, PREFIX + inode.len())
    });
    let of_names = tail(&root.names).map(|tail| {
        let summed = root.names.len().saturating_sub(DIR_TAIL_LEN);
        let unseeded = CsumSeed(0).inode(Ino::ROOT, generation(&inode));
        let unseeded = unseeded.over(&root.names[..summed]);
        begun(tail.det_checksum.get() ^ unseeded, PREFIX + summed)
    });
    let mut seeds = [of_inode, of_names].into_iter().flatten().map(CsumSeed);
    seeds.find(|&seed| is_proved(device, root, seed))
}

/// What a CRC began with that zeroes of `len` bytes lead to `crc`. As a CRC is linear, the bytes
/// themselves are taken off before.
fn begun(mut crc: u32, len: usize) -> u32 {
    for _ in 0..len.saturating_mul(8) {
        // The polynomial's top bit is set: it shows whether the polynomial was added.
        crc = match crc >> 31 {
            0 => crc << 1,
            _ => ((crc ^ POLYNOMIAL) << 1) | 1,
        };
    }
    crc
}

/// Whether another inode has a checksum of this seed.
fn is_proved(device: &dyn BlockDevice, root: &Root, seed: CsumSeed) -> bool {
    PROOFS.map(Ino).any(|ino| {
        root.inode(device, ino).is_some_and(|inode| {
            inode.iter().any(|&byte| byte != 0)
                && inode_checksum(&inode, seed, ino, generation(&inode)) == stored_checksum(&inode)
        })
    })
}
