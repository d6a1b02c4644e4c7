//! Journals with fast commits waiting, opened for writing: they are redone on the device, by one
//! transaction, whatever stops it.

mod cuts;
mod damaged;
mod kernel;
mod maker;
mod workload;

use std::path::Path;
use std::sync::Arc;

use uext4::{OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};

use crate::left::reader;
use crate::tree::{Oracle, Tree, of_image};

/// Opens for writing and closes.
fn open_and_close(device: Arc<dyn BlockDevice>) -> uext4::Result<()> {
    let clock = Arc::new(VirtualClock::new(1_800_000_000));
    Volume::open(device, clock, &OpenOptions::default())?.close()
}

fn load(path: &Path) -> MemoryDevice {
    MemoryDevice::from_bytes(std::fs::read(path).unwrap())
}

/// Everything in an image, as a reader sees it.
fn tree(image: &MemoryDevice) -> Tree {
    of_image(&reader(image), Oracle::FastCommit)
}

/// What the examination finds.
fn complaints(image: &MemoryDevice) -> Vec<String> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(image.to_bytes()));
    let findings = uext4_fsck::findings(&device).unwrap();
    findings.iter().map(ToString::to_string).collect()
}
