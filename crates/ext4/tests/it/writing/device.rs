//! File systems in memory, made by mke2fs, mounted for writing, judged by e2fsck.

use std::sync::Arc;

use uext4::{Creation, Error, NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};

use crate::creator::maker::e2fsck;
pub use crate::made::{made, mount};

/// The same with `all` and what is written in `options`, or why not.
pub fn open(
    device: Arc<dyn BlockDevice>,
    mut all: OpenOptions,
    options: &str,
) -> Result<Volume, Error> {
    all.options(options)?;
    Volume::open(device, Arc::new(VirtualClock::new(1_700_000_000)), &all)
}

/// A new file in the root directory.
pub fn file(fs: &Volume, name: &str) -> OpenInode {
    let root = fs.root().unwrap();
    let new = root.create(name.as_bytes(), NewInode::File, &Creation::default());
    new.unwrap()
}

/// Asserts that e2fsck finds nothing wrong.
pub fn judge(device: &MemoryDevice, what: &str) {
    let file = uext4_testkit::stored(device);
    e2fsck(file.path(), what);
}

/// The same with so much memory for metadata and for data, on a clock of the caller's.
pub fn mount_small(
    device: Arc<dyn BlockDevice>,
    clock: &Arc<VirtualClock>,
    memory_max: usize,
) -> Volume {
    let mut options = OpenOptions::default();
    options.memory_max = memory_max;
    options.pages_max = memory_max as u64;
    let clock: Arc<VirtualClock> = Arc::clone(clock);
    Volume::open(device, clock, &options).unwrap()
}

/// How many steps a random test makes: `few`, or in the long mode (`UEXT4_LONG=1`) `many`.
pub fn steps(few: u64, many: u64) -> u64 {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => many,
        None => few,
    }
}
