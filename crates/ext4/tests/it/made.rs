//! File systems that the real mke2fs makes, and how tests mount them.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use uext4::{OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};

/// Makes an image of `size` with the real mke2fs.
pub fn mke2fs(image: &Path, arguments: &[&str], source: Option<&Path>, size: &str) {
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F"]).args(arguments);
    if let Some(source) = source {
        command.arg("-d").arg(source);
    }
    let output = command.arg(image).arg(size).output().expect("mke2fs");
    assert!(output.status.success(), "mke2fs {arguments:?}: {output:?}");
}

/// What `mke2fs FLAGS` makes of so many KiB.
pub fn made(flags: &str, kib: u64) -> Arc<MemoryDevice> {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("x.img");
    let flags: Vec<&str> = flags.split_whitespace().collect();
    mke2fs(&image, &flags, None, &format!("{kib}k"));
    Arc::new(MemoryDevice::from_bytes(std::fs::read(&image).unwrap()))
}

/// Mounts a device for writing, on a clock that stands at 2023.
pub fn mount(device: Arc<dyn BlockDevice>) -> Volume {
    let clock = VirtualClock::new(1_700_000_000);
    Volume::open(device, Arc::new(clock), &OpenOptions::default()).unwrap()
}
