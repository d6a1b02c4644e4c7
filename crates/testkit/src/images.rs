//! Images in memory, and what the tools and the kernel make of them.

use std::path::Path;
use std::sync::Arc;

use tempfile::NamedTempFile;
use uext4_blockdev::MemoryDevice;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, GroupNr};

use crate::e2fsprogs;
use crate::loops::{Mount, can_mount};

/// What `mke2fs FLAGS` makes of `kib` KiB.
#[track_caller]
pub fn formatted(flags: &str, kib: u64) -> Arc<MemoryDevice> {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    e2fsprogs::mke2fs(&image, flags.split_whitespace(), &format!("{kib}k"));
    loaded(&image)
}

/// Stores a device's contents in a file.
#[track_caller]
pub fn stored(device: &MemoryDevice) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), device.to_bytes()).unwrap();
    file
}

/// Reads a file into memory.
#[track_caller]
pub fn loaded(image: &Path) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_bytes(std::fs::read(image).unwrap()))
}

/// A device with what `change` makes of the image in a file.
#[track_caller]
pub fn changed(device: &MemoryDevice, change: impl FnOnce(&Path)) -> Arc<MemoryDevice> {
    let file = stored(device);
    change(file.path());
    loaded(file.path())
}

/// Zeroes all superblocks of an image, and the group descriptors if asked.
#[track_caller]
pub fn lose_superblocks(bytes: &mut [u8], descriptors: bool) {
    let superblock = SuperBlock::parse(&bytes[1024..2048]).unwrap();
    let geometry = Geometry::new(&superblock).unwrap();
    let block = geometry.block_size.len();
    bytes[1024..2048].fill(0);
    for group in (0..geometry.groups_count.get()).map(GroupNr) {
        if !geometry.has_super(group) {
            continue;
        }
        let start = geometry.group_start(group).0 as usize * block;
        if group.0 != 0 {
            bytes[start..start + 1024].fill(0);
        }
        if descriptors {
            let len = geometry.gdt_blocks() as usize * block;
            bytes[start + block..][..len].fill(0);
        }
    }
}

/// Asserts that e2fsck finds nothing to repair.
#[track_caller]
pub fn assert_device_clean(device: &MemoryDevice) {
    e2fsprogs::assert_clean(stored(device).path());
}

/// A device with what `change` makes of the file system while the kernel has it mounted; `None`
/// where this machine cannot mount.
#[track_caller]
pub fn changed_by_kernel(
    device: &MemoryDevice,
    change: impl FnOnce(&Path),
) -> Option<Arc<MemoryDevice>> {
    let mount_and_change = |image: &Path| change(Mount::new(image, "defaults").path());
    can_mount().then(|| changed(device, mount_and_change))
}
