//! Images on devices that fail.

use clap::Parser;
use uext4_blockdev::MemoryDevice;
use uext4_testkit::sim::{Fault, Op, SimDevice, SimOptions};

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: SalvageArgs,
}

/// An image with a file; `None` without mke2fs.
fn image_with_file(block_size: &str) -> Option<MemoryDevice> {
    if !uext4_testkit::has_tool("mke2fs") {
        return None;
    }
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "contents\n").unwrap();
    let tree = tree.to_str().unwrap();
    let options = ["-t", "ext4", "-b", block_size, "-d", tree];
    uext4_testkit::mke2fs(&image, options, "16M");
    Some(MemoryDevice::from_bytes(fs::read(&image).unwrap()))
}

/// Asserts that the file can be read.
#[track_caller]
fn assert_has_file(device: Arc<dyn BlockDevice>) {
    let fs = Image::open(device, &EngineOptions::default()).unwrap();
    let file = paths::resolve(&fs, b"/file", FollowLast::No).unwrap();
    let mut bytes = [0; 100];
    let len = fs.read_at(&file, 0, &mut bytes).unwrap();
    assert_eq!(&bytes[..len], b"contents\n");
}

#[test]
fn metadata_that_cannot_be_read_are_taken_for_empty() {
    let Some(whole) = image_with_file("1024") else {
        return;
    };
    let device = Arc::new(SimDevice::new(&whole, SimOptions::default()));
    let plain: Arc<dyn BlockDevice> = device.clone();
    let fs = Image::open(plain.clone(), &EngineOptions::default()).unwrap();
    // The last group's inodes are not in use, and the bitmap of blocks is not needed.
    let group = uext4_ondisk::GroupNr(fs.geometry().groups_count.get() - 1);
    let desc = fs.group_desc(group).unwrap();
    let size = u64::from(fs.geometry().block_size.bytes());
    for block in [desc.block_bitmap, desc.inode_bitmap] {
        let range = block.0 * size..(block.0 + 1) * size;
        device.inject(Fault::new(Op::Read).within(range).times(u64::MAX));
    }
    let command = Command::try_parse_from(["salvage", "image", "-o", "out"]).unwrap();
    let readable = examine(&command.args, &plain).unwrap();
    assert!(readable.is_incomplete);
    assert_has_file(readable.device);
    // Nor is a superblock that cannot be read the end: a backup is found.
    let device = Arc::new(SimDevice::new(&whole, SimOptions::default()));
    device.inject(Fault::new(Op::Read).within(1024..2048).times(u64::MAX));
    let plain: Arc<dyn BlockDevice> = device;
    assert!(!identify::holds_another(&*plain));
    let readable = examine(&command.args, &plain).unwrap();
    assert!(readable.is_incomplete && !readable.is_guessed);
    assert_has_file(readable.device);
}

#[test]
fn a_superblock_that_cannot_be_read_is_guessed_without_a_backup() {
    // One group has no backup.
    let Some(whole) = image_with_file("4096") else {
        return;
    };
    let device = Arc::new(SimDevice::new(&whole, SimOptions::default()));
    device.inject(Fault::new(Op::Read).within(1024..2048).times(u64::MAX));
    let plain: Arc<dyn BlockDevice> = device.clone();
    let command = Command::try_parse_from(["salvage", "image", "-o", "out"]).unwrap();
    let readable = examine(&command.args, &plain).unwrap();
    assert!(readable.is_incomplete && readable.is_guessed);
    // What cannot be read is empty for the repair alone.
    let later = 8 << 20..9 << 20;
    device.inject(Fault::new(Op::Read).within(later.clone()).times(u64::MAX));
    let mut bytes = [0; 512];
    assert!(readable.found.read_at(later.start, &mut bytes).is_err());
    device.clear_faults();
    device.inject(Fault::new(Op::Read).within(1024..2048).times(u64::MAX));
    assert_has_file(readable.device);
}
