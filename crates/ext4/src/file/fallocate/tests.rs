//! What readers may cache between two steps of an operation.

use uext4_ondisk::Ino;

use super::*;
use crate::bulk::NewInode;
use crate::file::change::{fsync, write_with};
use crate::file::pages::contradiction;
use crate::file::write_context::WriteContext;
use crate::names::create::{Creation, create};
use crate::testing::{mke2fs, mount, unmount_and_check};

#[test]
fn a_hole_that_was_seen_where_blocks_move_to_is_forgotten() {
    let device = mke2fs("-t ext4 -b 4096", 65_536);
    let sbi = mount(&device);
    let root = InodeRef::get(&sbi, Ino::ROOT).unwrap();
    let file = create(&root, b"file", NewInode::File, &Creation::default()).unwrap();
    write_with(&file, WriteContext::default(), 0, &vec![7; 12 << 12]).unwrap();
    fsync(&file, true).unwrap();
    let status = |lblk| known(&sbi, &file, Lblk(lblk), 1).unwrap().status;
    // As when a range is removed while a reader looks at it.
    unmap(&file, &(2..4)).unwrap();
    assert_eq!([2, 3].map(status), [Status::Hole; 2]);
    shift(&file, 4, -2).unwrap();
    resize(&file, 10 << 12).unwrap();
    assert_eq!(contradiction(&sbi, &file).unwrap(), None);
    assert_eq!(
        [2, 9, 10].map(status),
        [Status::Written, Status::Written, Status::Hole]
    );
    // And when a range is inserted.
    resize(&file, 13 << 12).unwrap();
    shift(&file, 5, 3).unwrap();
    assert_eq!(contradiction(&sbi, &file).unwrap(), None);
    assert_eq!(
        [4, 5, 8].map(status),
        [Status::Written, Status::Hole, Status::Written]
    );
    drop((file, root));
    unmount_and_check(&sbi, &device);
}
