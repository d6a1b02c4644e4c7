//! Images made to mislead the writer: directories that lie in themselves, maps that lead to the same
//! blocks again and again, journals that replay another superblock, counts of what is not there.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use uext4::{
    Creation, Error, Fallocate, Filesystem, FollowLast, NewInode, OpenInode, OpenOptions,
    RenameMode, SetAttributes,
};
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock};

use super::device::{file, made, mount};
use super::durable::debugfs;

/// A journal whose one transaction puts `block` in the place of block 0.
fn replaying(device: &MemoryDevice, block: &[u8]) -> Arc<MemoryDevice> {
    let dir = tempfile::tempdir().unwrap();
    let (image, content) = (dir.path().join("image"), dir.path().join("block"));
    std::fs::write(&image, device.to_bytes()).unwrap();
    std::fs::write(&content, block).unwrap();
    let mut child = Command::new("debugfs")
        .arg("-w")
        .arg(&image)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let script = format!("jo\njw -b 0 {}\njc\n", content.display());
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    Arc::new(MemoryDevice::from_bytes(std::fs::read(&image).unwrap()))
}

#[test]
fn a_replayed_superblock_is_judged_before_anything_is_written() {
    let flags = "-t ext4 -b 4096 -J size=8 -O ^metadata_csum,^64bit,^resize_inode";
    let device = made(flags, 32_768);
    let first = device.to_bytes()[..4096].to_vec();
    let word = |at: usize, bits: u32| {
        let mut block = first.clone();
        for (byte, bits) in block[1024 + at..].iter_mut().zip(bits.to_le_bytes()) {
            *byte |= bits;
        }
        block
    };
    let mut smaller = first.clone();
    smaller[1024 + 0x18] = 0;
    let mut no_journal = first.clone();
    no_journal[1024 + 0x5C] &= !4;
    let mut other_journal = first.clone();
    other_journal[1024 + 0xE0] = 7;
    for (what, block, can_read) in [
        ("unknown incompat feature", word(0x60, 0x4000_0000), false),
        ("unknown ro_compat feature", word(0x64, 0x8000_0000), true),
        ("errors recorded", word(0x3A, 2), true),
        ("larger than the device", word(4, 0x8000_0000), false),
        ("another block size", smaller, false),
        ("no journal", no_journal, true),
        ("another journal", other_journal, true),
    ] {
        let device = replaying(&device, &block);
        let before = device.to_bytes();
        let read = Filesystem::open(device.clone(), &OpenOptions::default());
        assert_eq!(read.is_ok(), can_read, "{what}: {read:?}");
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let opened = Filesystem::open_rw(device.clone(), clock, &OpenOptions::default());
        assert!(opened.is_err(), "{what}");
        assert!(before == device.to_bytes(), "{what}: something was written");
    }
    let fs = mount(replaying(&device, &first));
    fs.create(b"/new", NewInode::File, &Creation::default())
        .unwrap();
    fs.close().unwrap();
}
