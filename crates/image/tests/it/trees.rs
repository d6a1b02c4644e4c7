//! Trees put into a file system that is there, and got out of it again.

use std::sync::Arc;

use uext4::device::{Access, FileDevice, MemoryDevice, SystemClock};
use uext4::{Image, Inode, OpenOptions, Volume};
use uext4_image::{
    BuildOptions, Existing, Get, GetError, PutOptions, Refused, Size, Unreadable, Watcher, get, put,
};
use uext4_ondisk::Lblk;
use uext4_remote::{Node, Tree};
use uext4_testkit::assert_clean;
use uext4_testkit::sim::{Fault, Op, SimDevice, SimOptions};

use crate::building::Place;
use crate::walk::{assert_same, walk_source};

/// Counts names; nothing may fail.
#[derive(Default)]
struct Count(u64);

impl Watcher for Count {
    fn copied(&mut self, _: u64) {
        self.0 += 1;
    }

    fn failed(&mut self, error: GetError) {
        panic!("{error}");
    }
}

#[test]
fn a_tree_that_was_put_and_got_is_the_same() {
    let place = Place::populated();
    place.build(&BuildOptions {
        size: Size::Free(64 << 20),
        ..BuildOptions::default()
    });
    let device = FileDevice::open(place.image(), Access::ReadWrite).unwrap();
    let options = OpenOptions::default();
    let volume = Volume::open(Arc::new(device), Arc::new(SystemClock), &options).unwrap();
    let root = Node::Local(volume.root().unwrap());
    let made = put(
        &Tree::Local(volume.clone()),
        &place.tree(),
        &root,
        Some(b"copy"),
        &PutOptions::default(),
        &(),
        &mut |error| panic!("{error}"),
    );
    let made = made.unwrap();
    drop(root);
    volume.close().unwrap();
    drop(volume);
    assert_clean(&place.image());

    let device = FileDevice::open(place.image(), Access::ReadOnly).unwrap();
    let image = Image::open(Arc::new(device), &options).unwrap();
    let what = Get {
        path: b"/copy",
        top: &image.metadata("/copy").unwrap(),
        dest: place.path(),
        existing: Existing::Refuse,
        unreadable: Unreadable::LeaveOut,
    };
    let mut count = Count::default();
    let got = get(&image, &what, &mut count).unwrap();
    assert_eq!((got.entries, count.0), (made.entries, made.entries));
    assert_eq!(got.refused, Refused::default());
    let dest = place.path().join("copy");
    assert_same(
        &walk_source(&dest),
        &walk_source(&place.tree()),
        "put and got",
    );
    // What is complete is accepted.
    assert_eq!(get(&image, &what, &mut count).unwrap().entries, got.entries);
}

/// Notes what is missing and counts failures.
#[derive(Default)]
struct Lost {
    missing: Vec<std::ops::Range<u64>>,
    failed: u64,
}

impl Watcher for Lost {
    fn copied(&mut self, _: u64) {}

    fn failed(&mut self, _: GetError) {
        self.failed += 1;
    }

    fn missing(&mut self, _: &Inode, bytes: std::ops::Range<u64>) {
        self.missing.push(bytes);
    }
}

#[test]
fn a_file_with_blocks_that_cannot_be_read_is_copied_without_them() {
    let place = Place::populated();
    let contents: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8 + 1).collect();
    std::fs::write(place.tree().join("large"), &contents).unwrap();
    place.build(&BuildOptions::default());
    let bytes = std::fs::read(place.image()).unwrap();
    let device = SimDevice::new(&MemoryDevice::from_bytes(bytes), SimOptions::default());
    let device = Arc::new(device);
    let image = Image::open(device.clone(), &OpenOptions::default()).unwrap();
    let top = image.metadata("/large").unwrap();
    let block = u64::from(image.geometry().block_size.bytes());
    for lblk in [2, 3, 500] {
        let start = image.map(&top, Lblk(lblk), 1).unwrap().pblk.0 * block;
        let range = start..start + block;
        device.inject(Fault::new(Op::Read).within(range).times(u64::MAX));
    }
    let dest = place.path().join("rescued");
    let mut what = Get {
        path: b"/large",
        top: &top,
        dest: &dest,
        existing: Existing::Refuse,
        unreadable: Unreadable::LeaveOut,
    };
    let mut lost = Lost::default();
    get(&image, &what, &mut lost).unwrap();
    assert!(lost.failed == 1 && !dest.exists());
    what.unreadable = Unreadable::Hole;
    get(&image, &what, &mut lost).unwrap();
    assert_eq!(lost.failed, 2);
    let of = |lblk: u64| lblk * block..(lblk + 1) * block;
    assert_eq!(lost.missing, [of(2), of(3), of(500)]);
    let mut expected = contents;
    for bytes in lost.missing {
        expected[bytes.start as usize..bytes.end as usize].fill(0);
    }
    assert!(std::fs::read(&dest).unwrap() == expected);
}
