//! Attributes that debugfs has set, with bytes changed.

use uext4_ondisk::inode::InodeFlags;
use uext4_testkit::e2fsprogs::debugfs;

use crate::tests::TestImage;

/// A file with two attributes that are too large for the inode, and one within it.
fn image(kind: &str) -> TestImage {
    let image = TestImage::new(kind, "16M");
    image.file("f", b"contents");
    let long = "y".repeat(300);
    let set = |name: &str| format!("ea_set f user.{name} {name}{long}");
    image.debugfs(&[&set("one"), &set("second"), "ea_set f user.small 1"]);
    image
}

/// Where a text is in the image, once.
fn at(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|w| w == text).unwrap()
}

#[test]
fn a_value_that_has_changed_is_dropped_alone() {
    for kind in [
        "-t ext4",
        "-t ext2 -b 1024",
        "-t ext4 -I 128 -O ^metadata_csum",
    ] {
        let image = image(kind);
        assert_eq!(image.found(), [""; 0], "{kind}");
        image.change(|bytes| {
            let at = at(bytes, b"oneyyyy");
            bytes[at + 5] ^= 1;
        });
        let found = image.repair();
        assert!(found.contains(&"xattr-hash"), "{kind}: {found:?}");
        let left = debugfs(image.path(), "ea_list f");
        assert!(
            left.contains("user.second") && left.contains("user.small"),
            "{left}"
        );
        assert!(!left.contains("user.one"), "{left}");
    }
}

#[test]
fn a_block_that_holds_no_attributes_is_given_up() {
    let image = image("-t ext4 -O ^metadata_csum");
    image.change(|bytes| {
        let name = at(bytes, b"oneyyyy") & !1023;
        bytes[name] ^= 1;
    });
    let found = image.repair();
    assert!(found.contains(&"xattr-block-magic"), "{found:?}");
}

#[test]
fn an_entry_that_begins_as_the_end_of_the_list_is_none() {
    let image = image("-t ext4 -O ^metadata_csum");
    image.change(|bytes| {
        let block = at(bytes, b"oneyyyy") & !1023;
        // Behind the entries "one" and "second": an offset and nothing else.
        assert_eq!(bytes[block + 76..][..4], [0; 4]);
        bytes[block + 79] = 8;
    });
    let found = image.repair();
    assert!(found.contains(&"xattr-name"), "{found:?}");
    let left = debugfs(image.path(), "ea_list f");
    assert!(left.contains("user.one") && left.contains("user.second"));
}

#[test]
fn an_empty_value_lies_in_the_inode_all_the_same() {
    let image = image("-t ext4 -O ^metadata_csum");
    image.change(|bytes| {
        let entry = at(bytes, b"small") - 16;
        bytes[entry + 2..][..2].copy_from_slice(&[0xBD, 0]);
        bytes[entry + 8..][..4].fill(0);
    });
    let found = image.repair();
    assert!(found.contains(&"xattr-value"), "{found:?}");
}

#[test]
fn bytes_behind_a_value_are_hashed_and_go_when_the_list_is_packed() {
    let image = image("-t ext4 -O ^metadata_csum");
    image.change(|bytes| {
        let header = at(bytes, b"oneyyyy") & !1023;
        let entry = header + at(&bytes[header..], b"one") - 16;
        // Of 303 bytes.
        bytes[entry + 8] -= 1;
    });
    assert_eq!(image.found(), [""; 0]);
    image.change(|bytes| {
        let at = at(bytes, b"secondyyyy");
        bytes[at + 7] ^= 1;
    });
    assert_eq!(image.repair(), ["xattr-hash"]);
    assert_eq!(image.found(), [""; 0]);
    let left = debugfs(image.path(), "ea_list f");
    assert!(left.contains("user.one (302)"), "{left}");
}

#[test]
fn references_are_counted() {
    let image = image("-t ext4 -O ^metadata_csum");
    image.change(|bytes| {
        let header = at(bytes, b"oneyyyy") & !1023;
        bytes[header + 4] = 9;
    });
    assert_eq!(image.repair(), ["xattr-references"]);
}

#[test]
fn an_encrypted_file_without_a_context_is_not_encrypted() {
    let image = TestImage::new("-t ext4 -O encrypt", "16M");
    image.file("f", b"contents");
    image.debugfs(&["sif f flags 0x80800"]);
    assert_eq!(image.repair(), ["xattr-encryption-missing"]);
}

#[test]
fn a_directory_that_is_marked_as_encrypted_keeps_its_names() {
    for options in [
        "-t ext4 -b 1024",
        "-t ext4 -b 1024 -O encrypt",
        "-t ext4 -b 1024 -O encrypt,inline_data -I 256",
    ] {
        let image = TestImage::new(options, "16M");
        image.debugfs(&["mkdir d", "mkdir d/e", "symlink d/link target"]);
        for nr in 0..30 {
            image.file(&format!("d/{nr}"), b"contents");
        }
        let flags = InodeFlags::ENCRYPT.bits() | raw_flags(&image, "d");
        image.debugfs(&[&format!("sif d flags {flags:#x}")]);
        assert_eq!(image.repair(), ["xattr-encryption-missing"], "{options}");
    }
}

/// `i_flags` of a path.
fn raw_flags(image: &TestImage, path: &str) -> u32 {
    let said = debugfs(image.path(), &format!("stat {path}"));
    let flags = said.split("Flags: 0x").nth(1).unwrap();
    let digits = flags.split_whitespace().next().unwrap();
    u32::from_str_radix(digits, 16).unwrap()
}
