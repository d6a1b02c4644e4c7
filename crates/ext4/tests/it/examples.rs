//! The examples, run on small images.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use uext4::device::BlockDevice;
use uext4::{Image, OpenOptions};

use crate::made::made;

#[path = "../../examples/build.rs"]
#[expect(dead_code, reason = "main is for the command line")]
mod build;
#[path = "../../examples/custom_device.rs"]
#[expect(dead_code, reason = "main is for the command line")]
mod custom_device;
#[path = "../../examples/edit.rs"]
#[expect(dead_code, reason = "main is for the command line")]
mod edit;
#[path = "../../examples/list.rs"]
#[expect(dead_code, reason = "main is for the command line")]
mod list;

#[test]
fn edits_are_listed() {
    let device: Arc<dyn BlockDevice> = made("-t ext4", 16_384);
    edit::edit(Arc::clone(&device)).unwrap();
    // Once more, where all exists.
    edit::edit(Arc::clone(&device)).unwrap();
    let mut listed = Vec::new();
    let count = list::list(device, &mut listed).unwrap();
    let listed = String::from_utf8(listed).unwrap();
    let paths: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    assert_eq!(count, paths.len() as u64);
    let mut sorted = paths.clone();
    sorted.sort_unstable();
    let expected = [
        "/",
        "/etc",
        "/etc/example",
        "/etc/example/conf",
        "/etc/example/log",
        "/lost+found",
    ];
    assert_eq!(sorted, expected);
    assert_eq!(paths[0], "/");
}

#[test]
fn a_stream_becomes_a_file() {
    let device: Arc<dyn BlockDevice> = made("-t ext4", 16_384);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    let len = build::build(Arc::clone(&device), "/a/b/stream", &mut &bytes[..]).unwrap();
    assert_eq!(len, 3_000_000);
    let image = Image::open(device, &OpenOptions::default()).unwrap();
    assert!(image.read("/a/b/stream").unwrap() == bytes);
    assert!(image.exists("/a/b").unwrap() && !image.exists("/a/stream").unwrap());
}

#[test]
fn a_device_of_ones_own_sees_all_that_is_written() {
    let image = made("-t ext4", 16_384).to_bytes();
    let counts = custom_device::count(image).unwrap();
    assert!(counts.written.load(Relaxed) >= 1 << 20);
    assert!(counts.read.load(Relaxed) > 0 && counts.flushes.load(Relaxed) > 0);
}
