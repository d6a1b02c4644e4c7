//! Logs as they are after some use: summed as the kernel does it, and full of what was there before.

use uext4::{Filesystem, Ino, Lblk, OpenOptions};
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_ondisk::journal::{JournalIncompat, JournalSuperblock};
use zerocopy::{FromBytes, IntoBytes};

use std::ops::Range;
use std::sync::Arc;

use super::workload;

/// Operations that fill a log of 1,024 blocks.
const OPERATIONS: usize = 900;
const SUPERBLOCK_LEN: usize = 1024;

/// The bytes of the journal, piece by piece; the first begins with its superblock.
pub fn places(image: &MemoryDevice) -> Vec<Range<u64>> {
    let device = Arc::new(image.snapshot());
    let fs = Filesystem::open(device, &OpenOptions::default()).unwrap();
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

/// Fills the log with transactions of an earlier life.
pub fn use_up(image: &MemoryDevice) {
    let used = workload::run(image, 1 << 20, OPERATIONS).image;
    let mut bytes = Vec::new();
    for place in places(image) {
        bytes.resize((place.end - place.start) as usize, 0);
        used.read_at(place.start, &mut bytes).unwrap();
        image.write_at(place.start, &bytes).unwrap();
    }
    let last = bytes.len() - SUPERBLOCK_LEN;
    assert!(
        bytes[last..].iter().any(|&byte| byte != 0),
        "the log was not filled"
    );
}
