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
use crate::writing::device::judge;

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

/// What an examination makes of an image, or a repair of a damaged one: e2fsck finds nothing, nor
/// does a second examination. Returns what was found if it is more than notes.
#[track_caller]
fn repaired(image: &MemoryDevice, what: &str) -> (MemoryDevice, Vec<String>) {
    let (repaired, found) = repaired_unjudged(image, what);
    judge(&repaired, &format!("{what}, repaired"));
    (repaired, found)
}

/// The same without e2fsck.
#[track_caller]
fn repaired_unjudged(image: &MemoryDevice, what: &str) -> (MemoryDevice, Vec<String>) {
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    let options = uext4_fsck::Options {
        now: 1_800_000_000,
        ..Default::default()
    };
    let outcome = uext4_fsck::plan(&device, &options, &()).unwrap();
    let found = outcome.findings.iter().map(|(_, found)| found.to_string());
    let found: Vec<String> = found.collect();
    assert!(outcome.is_clean, "{what}: {found:#?}");
    let mut bytes = image.to_bytes();
    let size = outcome.overlay.block_size().len();
    let write = |change: uext4_fsck::ChangedBlock| {
        let at = usize::try_from(change.block.0).unwrap() * size;
        bytes[at..at + size].copy_from_slice(&change.content);
        Ok(())
    };
    outcome.overlay.for_each_change(write).unwrap();
    let repaired = MemoryDevice::from_bytes(bytes);
    let left = complaints(&repaired);
    assert!(left.is_empty(), "{what}: {left:#?}");
    judge(&repaired, &format!("{what}, repaired"));
    (
        repaired,
        if outcome.has_damage {
            found
        } else {
            Vec::new()
        },
    )
}

/// What the examination finds.
fn complaints(image: &MemoryDevice) -> Vec<String> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(image.to_bytes()));
    let findings = uext4_fsck::findings(&device).unwrap();
    findings.iter().map(ToString::to_string).collect()
}
