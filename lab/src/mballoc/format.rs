//! An empty file system for an allocator to work on: what mke2fs would lay out, without the bytes.

use uext4_lab_policies::mballoc::Made;
use uext4_mballoc::{Allocator, Options};
use uext4_ondisk::{BlockSize, Geometry};

use crate::experiment::Failure;
use crate::mballoc::bitmaps::MemoryBitmaps;

/// The shape of a file system, and bitmaps with what is used marked.
pub type Format = (Geometry, MemoryBitmaps);

/// Lays out a device of so many bytes; its shape, and bitmaps with the metadata marked used.
///
/// # Errors
/// [`Failure::Run`] for sizes of which no file system can be made.
pub fn format(device: u64, block_bytes: u64) -> Result<Format, Failure> {
    let block_size = u32::try_from(block_bytes)
        .ok()
        .and_then(BlockSize::from_bytes);
    let block_size = block_size.ok_or_else(|| failed(&"no such block size"))?;
    let mut wishes = uext4_mkfs::Options::new([0; 16], [0; 16], 0);
    wishes.block_size = Some(uext4_mkfs::BlockSizeWish::Exactly(block_size));
    let layout = uext4_mkfs::layout(&wishes, device).map_err(|e| failed(&e))?;
    let used = layout.used_runs().map(|run| (run.start, run.len));
    let bitmaps = MemoryBitmaps::new(&layout.geometry, used);
    Ok((layout.geometry, bitmaps))
}

/// An allocator of these designs for them, on a RAID of such a stripe (0: none).
///
/// # Errors
/// [`Failure::Run`] for a geometry the allocator refuses.
pub fn allocator(
    geometry: &Geometry,
    bitmaps: &MemoryBitmaps,
    stripe: u32,
    made: &Made,
) -> Result<Allocator, Failure> {
    let options = Options {
        stripe,
        flex_groups: 1 << geometry.log_groups_per_flex,
        ..Options::default()
    };
    Allocator::with_options(geometry, bitmaps, options, &made.policies).map_err(|e| failed(&e))
}

fn failed(why: &dyn std::fmt::Display) -> Failure {
    Failure::Run(format!("making the file system: {why}"))
}
