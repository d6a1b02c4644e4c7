//! Where the journal of an image lies, and which features it has.

use std::ops::Range;
use std::sync::Arc;

use uext4::format::Lblk;
use uext4::{Image, Ino, OpenOptions};
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_ondisk::journal::{JournalIncompat, JournalSuperblock};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a journal's superblock.
const SUPERBLOCK_LEN: usize = 1024;

/// The bytes of the journal, piece by piece; the first begins with its superblock.
pub fn places(image: &MemoryDevice) -> Vec<Range<u64>> {
    let device = Arc::new(image.snapshot());
    let fs = Image::open(device, &OpenOptions::default()).unwrap();
    let inode = fs.inode(Ino(8)).unwrap();
    let log = fs.geometry().block_size.log2();
    let blocks = (inode.size >> log) as u32;
    let mut places = Vec::new();
    let mut at = 0;
    while at < blocks {
        let found = fs.map(&inode, Lblk(at), blocks - at).unwrap();
        let start = found.pblk.0 << log;
        places.push(start..start + (u64::from(found.len) << log));
        at += found.len;
    }
    places
}

/// Lets the journal have checksums, as the kernel does when it mounts.
pub fn give_checksums(image: &MemoryDevice) {
    let more = JournalIncompat::CSUM_V3 | JournalIncompat::BIT64 | JournalIncompat::REVOKE;
    add_features(image, more);
}

/// Lets the journal have features.
pub fn add_features(image: &MemoryDevice, more: JournalIncompat) {
    let at = places(image)[0].start;
    let mut bytes = vec![0; SUPERBLOCK_LEN];
    image.read_at(at, &mut bytes).unwrap();
    let mut sb = JournalSuperblock::read_from_bytes(&bytes).unwrap();
    sb.s_feature_incompat = (sb.s_feature_incompat.get() | more.bits()).into();
    sb.update_checksum();
    image.write_at(at, sb.as_bytes()).unwrap();
}
