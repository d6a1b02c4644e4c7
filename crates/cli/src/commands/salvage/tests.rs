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

#[test]
fn metadata_that_cannot_be_read_are_taken_for_empty() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "contents\n").unwrap();
    let options = ["-t", "ext4", "-d", tree.to_str().unwrap()];
    if !uext4_testkit::has_tool("mke2fs") {
        return;
    }
    uext4_testkit::mke2fs(&image, options, "16M");
    let whole = MemoryDevice::from_bytes(fs::read(&image).unwrap());
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
    let fs = Image::open(readable.device, &EngineOptions::default()).unwrap();
    let file = open::resolve(&fs, b"/file", FollowLast::No).unwrap();
    let mut bytes = [0; 100];
    let len = fs.read_at(&file, 0, &mut bytes).unwrap();
    assert_eq!(&bytes[..len], b"contents\n");
    // Nor is a superblock that cannot be read the end: a backup is found.
    let device = Arc::new(SimDevice::new(&whole, SimOptions::default()));
    device.inject(Fault::new(Op::Read).within(1024..2048).times(u64::MAX));
    let plain: Arc<dyn BlockDevice> = device;
    assert!(!identify::holds_another(&*plain));
    let readable = examine(&command.args, &plain).unwrap();
    assert!(readable.is_incomplete && !readable.is_guessed);
    let fs = Image::open(readable.device, &EngineOptions::default()).unwrap();
    open::resolve(&fs, b"/file", FollowLast::No).unwrap();
}
