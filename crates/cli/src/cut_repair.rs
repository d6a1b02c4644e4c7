//! What is said of a repair that was cut off while it was written.

use std::path::Path;

use uext4::rescue::CutRepair;
use uext4_blockdev::BlockDevice;
use uext4_fsck::UnfinishedRepair;
use uext4_ondisk::repair_log::RepairPointer;
use uext4_ondisk::superblock::SUPERBLOCK_OFFSET;

use crate::examination::counted;
use crate::messages;

/// Says what a reader sees.
pub fn seen(image: &Path, found: Option<CutRepair>) {
    let image = image.display();
    match found {
        Some(CutRepair::Finished(blocks)) => messages::warning(format_args!(
            "{image}: a repair was cut off: shown is what it will leave ({} in its log); `uext4 \
             repair IMAGE`, or any command that writes the image, finishes it",
            counted(blocks, "block")
        )),
        Some(CutRepair::LogDamaged) => messages::warning(format_args!(
            "{image}: a repair was cut off, and its log is damaged: shown is what it left; `uext4 \
             repair IMAGE` mends it"
        )),
        None => {}
    }
}

/// Says that opening it for writing finished the repair.
pub fn finished(image: &Path, found: Option<CutRepair>) {
    if let Some(CutRepair::Finished(blocks)) = found {
        messages::warning(format_args!(
            "{}: a repair was cut off: it was finished first, writing {}",
            image.display(),
            counted(blocks, "block")
        ));
    }
}

/// What opening the device for writing will finish.
pub fn to_finish(device: &dyn BlockDevice) -> Option<CutRepair> {
    let repair = UnfinishedRepair::find(device).ok()??;
    Some(CutRepair::Finished(repair.blocks()))
}

/// True if a repair was cut off on the device, whether or not its log can be used.
pub fn is_on(device: &dyn BlockDevice) -> bool {
    let mut bytes = [0; 1024];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_ok() && is_named_by(&bytes)
}

/// True if a superblock names the log of a repair that was cut off, and was not changed since.
pub fn is_named_by(superblock: &[u8]) -> bool {
    RepairPointer::find(superblock).is_some_and(|pointer| pointer.is_of(superblock))
}
