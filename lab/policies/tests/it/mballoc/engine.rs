//! The designs in the whole engine.

use std::ops::Range;
use std::sync::Arc;

use uext4::tuning::Policies;
use uext4::{Creation, NewInode, OpenInode, OpenOptions, SetAttributes, Volume};
use uext4_blockdev::{MemoryDevice, VirtualClock};
use uext4_lab_policies::mballoc::{Design, Tunables};
use uext4_mkfs::BlockSizeWish;
use uext4_ondisk::BlockSize;

const TIME: u32 = 1_700_000_000;

/// An empty file system of 128 MiB with blocks of 4 KiB.
fn made() -> Arc<MemoryDevice> {
    let bytes = 128 << 20;
    let device = MemoryDevice::new(bytes);
    let mut options = uext4_mkfs::Options::new([7; 16], [9; 16], TIME);
    options.block_size = BlockSize::from_bytes(4096).map(BlockSizeWish::Exactly);
    options.assume_zeroed = true;
    let layout = uext4_mkfs::layout(&options, bytes).unwrap();
    uext4_mkfs::format(&layout, &device).unwrap();
    Arc::new(device)
}

fn open(device: &Arc<MemoryDevice>, design: Design) -> Volume {
    let mut options = OpenOptions::default();
    options.policies = Policies {
        mballoc: design.make(Tunables::default()).policies,
        ..Policies::default()
    };
    let clock = Arc::new(VirtualClock::new(TIME.into()));
    let device: Arc<MemoryDevice> = Arc::clone(device);
    Volume::open(device, clock, &options).unwrap()
}

/// Where the parts of a file lie, in bytes; neighbours on the device are one.
fn places(file: &OpenInode) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    file.fiemap(0..u64::MAX, |part| {
        let start = part.physical.unwrap();
        match all.last_mut() {
            Some(last) if last.end == start => last.end += part.len,
            _ => all.push(start..start + part.len),
        }
        true
    })
    .unwrap();
    all
}

#[test]
fn files_written_side_by_side_stay_whole_and_give_back_what_was_preallocated() {
    for design in ["table+linear", "table+criteria", "pow2+largest-run"] {
        let device = made();
        let fs = open(&device, design.parse().unwrap());
        let names = ["f0", "f1", "f2", "f3"];
        let files = names.map(|name| {
            let root = fs.root().unwrap();
            let new = root.create(name.as_bytes(), NewInode::File, &Creation::default());
            new.unwrap()
        });
        // Ends behind a power of two, where all designs preallocate something.
        for step in 0..67u64 {
            for file in &files {
                file.write_at(step << 16, &vec![step as u8; 1 << 16])
                    .unwrap();
                file.fsync().unwrap();
            }
        }
        let preallocated = fs.stats().preallocation.unwrap();
        assert!(preallocated.kept > 0, "{design}");
        for file in &files {
            let places = places(file);
            assert!(places.len() <= 8, "{design}: {places:?}");
        }
        // Behind a cut, and with its last user, nothing is preallocated for a file.
        let cut = SetAttributes {
            size: Some(1000),
            ..SetAttributes::default()
        };
        files[0].set_attributes(&cut).unwrap();
        drop(files);
        let done = fs.stats();
        assert_eq!(done.preallocation.unwrap().files, 0, "{design}");
        assert!(done.allocator.unwrap().discarded > 0);
        fs.close().unwrap();
        drop(fs);
        let fs = open(&device, Design::default());
        let file = fs.root().unwrap().lookup(b"f3").unwrap();
        let mut byte = [0];
        file.read_at(66 << 16, &mut byte).unwrap();
        assert_eq!(byte, [66], "{design}");
    }
}
