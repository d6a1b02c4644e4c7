//! Records of fast commits that no file system wrote, in a log whose checksums are right: used by
//! the test of hostile images and by the fuzzer.

use std::sync::Arc;

use uext4::tuning::Background;
use uext4::{OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, SystemClock};

use crate::exercise::exercise;
use crate::left::{Left, Record};

/// Records of a run, and bytes of them all, at most: what the area surely holds.
const RECORDS_MAX: usize = 64;
const BYTES_MAX: usize = 8 << 10;

/// An image with files and an area for fast commits.
pub fn seed() -> Left {
    Left::usual("-t ext4 -b 1024 -J size=2 -O ^metadata_csum")
}

/// Records as bytes say: each is a tag, the length of its value, and the value.
fn records(mut bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut room = BYTES_MAX;
    while let [tag, len, rest @ ..] = bytes {
        let len = usize::from(*len).min(rest.len());
        let (value, after) = rest.split_at(len);
        let Some(left) = room.checked_sub(len + 4) else {
            break;
        };
        room = left;
        bytes = after;
        records.push((u16::from(*tag) % 12, value.to_vec()));
        if records.len() == RECORDS_MAX {
            break;
        }
    }
    records
}

/// Replays the records in memory and on the device, and reads all of what comes of it.
pub fn exercise_fast_commit(left: &Left, bytes: &[u8]) {
    let image = Arc::new(left.with(&records(bytes)));
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    exercise(device);
    let device: Arc<dyn BlockDevice> = Arc::clone(&image) as _;
    let mut options = OpenOptions::default();
    options.background = Background::None;
    let opened = Volume::open(device, Arc::new(SystemClock), &options);
    if let Ok(fs) = opened {
        _ = fs.close();
        exercise(image);
    }
}
