//! Logs as they are after some use: summed as the kernel does it, and full of what was there
//! before.

use uext4_blockdev::{BlockDevice, MemoryDevice};

use super::workload;
use crate::log_place::places;

/// Operations that fill a log of 1,024 blocks.
const OPERATIONS: usize = 900;
const SUPERBLOCK_LEN: usize = 1024;

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
