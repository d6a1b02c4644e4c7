//! Trees put into a file system that is there, and got out of it again.

use std::sync::Arc;

use uext4::device::{Access, FileDevice, SystemClock};
use uext4::{Image, OpenOptions, Volume};
use uext4_image::{
    BuildOptions, Existing, Get, GetError, PutOptions, Refused, Size, Watcher, get, put,
};
use uext4_testkit::assert_clean;

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
    let root = volume.root().unwrap();
    let made = put(
        &volume,
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
