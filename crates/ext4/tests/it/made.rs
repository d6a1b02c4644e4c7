//! File systems that the real mke2fs makes, and how tests mount them.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use uext4::{OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, VirtualClock};
pub use uext4_testkit::formatted as made;

/// Makes an image of `size` with the real mke2fs, filled from a directory if there is one.
pub fn mke2fs(image: &Path, arguments: &[&str], source: Option<&Path>, size: &str) {
    let source = source.map(|source| ["-d".as_ref(), source.as_os_str()]);
    let arguments = arguments.iter().map(OsStr::new);
    let arguments = arguments.chain(source.into_iter().flatten());
    uext4_testkit::mke2fs(image, arguments, size);
}

/// Mounts a device for writing, on a clock that stands at 2023.
pub fn mount(device: Arc<dyn BlockDevice>) -> Volume {
    let clock = VirtualClock::new(1_700_000_000);
    Volume::open(device, Arc::new(clock), &OpenOptions::default()).unwrap()
}
