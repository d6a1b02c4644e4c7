//! The small image that tests and fuzzers exercise.

use std::sync::{Arc, OnceLock};

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_mkfs::{FsType, Options, format, layout};

/// Bytes of the image.
const LEN: u64 = 4 << 20;

/// An empty ext4 of 4 MiB, always the same; made once, and copied when it is written.
pub fn image() -> Arc<dyn BlockDevice> {
    static IMAGE: OnceLock<MemoryDevice> = OnceLock::new();
    let image = IMAGE.get_or_init(|| {
        let options = Options {
            fs_type: FsType::Ext4,
            ..Options::new([7; 16], [9; 16], 1_700_000_000)
        };
        let device = MemoryDevice::new(LEN);
        format(&layout(&options, LEN).unwrap(), &device).unwrap();
        device
    });
    Arc::new(image.snapshot())
}
