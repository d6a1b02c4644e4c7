//! Directories within inodes whose lengths are wrong.

use crate::tests::TestImage;

const INLINE: &str = "-t ext4 -I 256 -O inline_data,^metadata_csum,^has_journal";

/// An image with a directory whose value in the attribute is a record of 32 bytes, of which `len`
/// are cut off. The record is the second name of the file `x`.
fn cut_value(len: u32) -> TestImage {
    let image = TestImage::new(INLINE, "4M");
    image.file("x", b"x");
    image.debugfs(&["mkdir d", "mkdir d/first", "mkdir d/second"]);
    image.debugfs(&["sif x links_count 2", "sif d size 92"]);
    image.change(|bytes| {
        let is_entry =
            |at: usize| bytes[at..].starts_with(&[4, 7]) && bytes[at + 16..at + 20] == *b"data";
        // The list is in bytes 164 to 255 of the inode: numbers of bytes count from there.
        let at = (164..bytes.len() - 92).step_by(4);
        let at = at
            .filter(|at| at % 256 == 164)
            .find(|&at| is_entry(at) && bytes[at - 164 + 40 + 4] == 14);
        let list = &mut bytes[at.unwrap()..][..92];
        list[2..4].copy_from_slice(&60_u16.to_le_bytes());
        list[8..12].copy_from_slice(&(32 - len).to_le_bytes());
        list[60..68].copy_from_slice(&[12, 0, 0, 0, 32, 0, 4, 1]);
        list[68..72].copy_from_slice(b"name");
    });
    image
}

#[test]
fn records_in_the_value_of_the_attribute_are_clean() {
    assert_eq!(cut_value(0).found(), [""; 0]);
}

#[test]
fn a_value_that_is_no_multiple_of_four_bytes_long_is_examined_to_its_end() {
    for len in [1, 2, 3] {
        let image = cut_value(len);
        assert!(
            image.found().contains(&"directory-record"),
            "{:?}",
            image.found()
        );
    }
}

#[test]
fn a_value_that_ends_in_a_record_is_repaired() {
    for len in [2, 4] {
        cut_value(len).repair();
    }
}
