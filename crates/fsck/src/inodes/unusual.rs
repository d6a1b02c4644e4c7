//! Tests of inodes that are rarely seen: devices, inline links, torn clusters, unused ones.

use std::fs;
use std::mem::offset_of;

use uext4_ondisk::inode::RawInode;
use uext4_testkit::e2fsprogs::{debugfs, debugfs_write};

use crate::tests::TestImage;

/// Requests to debugfs, and what is found then.
type Requests = (&'static [&'static str], &'static [&'static str]);

#[test]
fn a_device_has_no_flags_of_files_and_no_blocks() {
    // One with flags and numbers of blocks was something else.
    let requests: &[Requests] = &[
        (&["sif c flags 0x10"], &["special-flags"]),
        (&["sif c flags 0x80000"], &["special-flags"]),
        (
            &["sif c flags 0x20", "sif c block[2] 5"],
            &["special-flags"],
        ),
        (
            &["sif c flags 0x20", "sif c block[5] 5"],
            &["special-blocks"],
        ),
        (&["sif c block[5] 5"], &[]),
    ];
    for (damage, wanted) in requests {
        let image = TestImage::new("-t ext4", "4M");
        image.debugfs(&["mknod c c 1 3"]);
        image.debugfs(damage);
        let found = image.repair();
        assert!(found.starts_with(wanted), "{damage:?}: {found:?}");
        assert_eq!(found.is_empty(), wanted.is_empty(), "{damage:?}: {found:?}");
    }
}

#[test]
fn a_symbolic_link_is_neither_immutable_nor_append_only() {
    for (target, flags) in [("fast", "0x10"), (&"slow".repeat(20), "0x80020")] {
        let image = TestImage::new("-t ext4", "4M");
        image.debugfs(&[&format!("symlink l {target}")]);
        assert_eq!(image.found(), [""; 0]);
        image.debugfs(&[&format!("sif l flags {flags}")]);
        assert_eq!(image.repair(), ["special-flags"]);
    }
}

#[test]
fn a_plain_link_that_is_marked_as_encrypted_keeps_its_target() {
    for (len, flags) in [(8, 0x800), (80, 0x80800)] {
        let image = TestImage::new("-t ext4 -O encrypt", "8M");
        image.debugfs(&[&format!("symlink l {}", "t".repeat(len))]);
        assert_eq!(image.found(), [""; 0]);
        image.debugfs(&[&format!("sif l flags {flags:#x}")]);
        assert_eq!(image.repair(), ["symlink-plain"]);
        let link = debugfs(image.path(), "stat l");
        assert!(link.contains(&format!("Size: {len}")), "{link}");
    }
}

#[test]
fn a_directory_whose_mode_and_flags_are_wrong_keeps_its_names() {
    for options in ["-t ext4 -b 1024", "-t ext4 -b 1024 -I 256 -O inline_data"] {
        let image = TestImage::new(options, "8M");
        image.debugfs(&["mkdir d"]);
        for nr in 0..30 {
            image.file(&format!("d/a-name-that-is-long-{nr}"), b"contents");
        }
        assert_eq!(image.found(), [""; 0], "{options}");
        // The type is none, and of the flags INLINE_DATA alone is set.
        image.debugfs(&["sif d mode 0170755", "sif d flags 0x10000000"]);
        let found = image.repair();
        assert!(found.contains(&"directory-mode"), "{options}: {found:?}");
        let kept = debugfs(image.path(), "cat d/a-name-that-is-long-29");
        assert!(kept.contains("contents"), "{options}: {found:?}");
    }
}

#[test]
fn a_short_target_in_a_block_goes_into_the_inode() {
    for options in ["-t ext4", "-t ext4 -b 1024 -O bigalloc", "-t ext4 -I 128"] {
        for size in ["6", "80"] {
            let image = TestImage::new(options, "4M");
            image.debugfs(&[&format!("symlink l {}", "s".repeat(80))]);
            image.debugfs(&["zap_block -f l -o 0 -l 6 -p 116 0"]);
            image.debugfs(&["zap_block -f l -o 6 -l 900 -p 0 0"]);
            image.debugfs(&[&format!("sif l size {size}")]);
            let found = image.repair();
            assert_eq!(found[0], "symlink-in-block", "{options}: {found:?}");
            let shown = debugfs(image.path(), "stat l");
            assert!(shown.contains("\"tttttt\""), "{options}: {shown}");
        }
    }
}

#[test]
fn an_inline_link_is_as_long_as_its_target() {
    let image = || {
        let image = TestImage::new("-t ext4 -I 256 -O inline_data", "4M");
        image.debugfs(&[&format!("symlink l {}", "x".repeat(80))]);
        image
    };
    assert_eq!(image().found(), [""; 0]);
    for size in [0, 40, 79, 81] {
        let image = image();
        image.debugfs(&[&format!("sif l size {size}")]);
        let found = image.repair();
        assert!(found.starts_with(&["symlink-size"]), "{size}: {found:?}");
    }
}

#[test]
fn an_inline_file_has_a_size_that_files_can_have() {
    let image = TestImage::new("-t ext4 -I 256 -O inline_data", "4M");
    image.file("f", b"0123456789");
    image.debugfs(&["sif f size 4096"]);
    assert_eq!(image.found(), [""; 0]);
    image.debugfs(&["sif f size 0x8000000000000005"]);
    assert_eq!(image.repair(), ["inode-inline-size"]);
    let out = image.path().with_file_name("out");
    debugfs_write(image.path(), [format!("dump f {}", out.display())]);
    assert!(fs::read(out).unwrap().starts_with(b"0123456789"));
}

#[test]
fn blocks_of_a_torn_cluster_are_brought_together() {
    let image = TestImage::new(
        "-t ext4 -b 1024 -O bigalloc,^metadata_csum,^has_journal -C 16384",
        "4M",
    );
    let contents = [[b'a'; 1024], [b'b'; 1024], [b'c'; 1024]].concat();
    image.file("f", &contents);
    // Two blocks stay, the third one lies in a cluster far away.
    image.debugfs(&[
        "sif f block[0] 0x2f30a",
        "sif f block[4] 2",
        "sif f block[6] 2",
        "sif f block[7] 1",
        "sif f block[8] 1602",
    ]);
    image.change(|bytes| {
        let at = bytes.windows(1024).position(|block| block == [b'c'; 1024]);
        bytes[at.unwrap()..][..1024].fill(b'x');
        bytes[1602 * 1024..][..1024].fill(b'c');
    });
    let found = image.repair();
    assert!(found.contains(&"extent-cluster-split"), "{found:?}");
    let out = image.path().with_file_name("out");
    debugfs_write(image.path(), [format!("dump f {}", out.display())]);
    assert_eq!(fs::read(out).unwrap(), contents);
}

/// Damage of an inode that says of itself that it is not in use.
#[test]
fn an_inode_that_is_not_in_use_has_the_right_checksum_and_no_link_of_orphans() {
    let image = || {
        let image = TestImage::new("-t ext4 -b 1024 -I 256", "4M");
        image.file("f", b"some contents");
        image.debugfs(&["sif f generation 0x5AC3E7A1", "rm f"]);
        image
    };
    assert_eq!(image().found(), [""; 0]);
    // Contents of no meaning, and a number that is the next inode of a list.
    let damage = [(200, [1; 4]), (offset_of!(RawInode, i_dtime), [1, 0, 0, 0])];
    for extra in [32_u16, 0x701] {
        for (place, new) in damage {
            let image = image();
            image.change(|bytes| {
                let generation = 0x5AC3_E7A1_u32.to_le_bytes();
                let at = bytes
                    .windows(4)
                    .position(|word| word == generation)
                    .unwrap();
                let inode = &mut bytes[at - offset_of!(RawInode, i_generation)..][..256];
                inode[128..130].copy_from_slice(&extra.to_le_bytes());
                inode[place..][..4].copy_from_slice(&new);
            });
            assert!(!image.repair().is_empty(), "{extra}");
        }
    }
}

#[test]
fn inline_data_without_the_attribute_are_kept() {
    let image = TestImage::new("-t ext4 -I 256 -O inline_data", "4M");
    image.file("f", b"0123456789");
    image.change(|bytes| {
        // The attribute's entry behind the magic number: seven is its kind, four its name.
        let at = bytes.windows(10).position(|w| w == b"0123456789").unwrap();
        bytes[at - 40 + 128 + 32..][..128 - 32].fill(0);
    });
    let found = image.repair();
    assert!(found.contains(&"inode-inline-attribute"), "{found:?}");
    let out = image.path().with_file_name("out");
    debugfs_write(image.path(), [format!("dump f {}", out.display())]);
    // debugfs writes all of i_block.
    assert!(fs::read(out).unwrap().starts_with(b"0123456789"));
}

#[test]
fn a_resize_inode_that_is_used_up_is_no_damage() {
    let image = TestImage::new("-t ext4 -O ^resize_inode", "4M");
    image.debugfs(&["sif <7> mode 0100600", "sif <7> links_count 1"]);
    assert_eq!(image.found(), [""; 0]);
}

/// An image whose file `f` and directory `d` lie in their inodes, with a block of attributes each.
fn inline_image() -> TestImage {
    let image = TestImage::new("-t ext4 -b 1024 -I 256 -O inline_data", "4M");
    image.file("f", b"some text");
    image.debugfs(&["mkdir d", "mkdir d/sub"]);
    let value = "v".repeat(220);
    image.debugfs(&[
        &format!("ea_set f user.long {value}"),
        &format!("ea_set d user.long {value}"),
    ]);
    assert_eq!(image.found(), [""; 0]);
    image
}

fn assert_inline_kept(image: &TestImage, damage: &str) {
    let found = image.repair();
    assert!(!found.is_empty(), "{damage}");
    let out = image.path().with_file_name("out");
    debugfs_write(image.path(), [format!("dump f {}", out.display())]);
    assert!(fs::read(out).unwrap().starts_with(b"some text"), "{damage}");
    assert!(
        debugfs(image.path(), "stat f").contains("Type: regular"),
        "{damage}"
    );
    assert!(debugfs(image.path(), "ls d").contains("sub"), "{damage}");
}

#[test]
fn what_lies_in_an_inode_says_which_type_it_has() {
    for (name, permissions) in [("f", "0644"), ("d", "0755")] {
        for kind in ["012", "014", "01", "02", "06"] {
            let image = inline_image();
            let damage = format!("sif {name} mode {kind}{permissions}");
            image.debugfs(&[&damage]);
            assert_inline_kept(&image, &damage);
        }
    }
}

#[test]
fn a_short_link_with_attributes_needs_no_inline_data() {
    let image = inline_image();
    image.debugfs(&["sif f mode 0120777"]);
    assert!(image.repair().contains(&"inode-inline-flag"));
    assert!(debugfs(image.path(), "stat f").contains("\"some text\""));
}

#[test]
fn attributes_say_that_an_inode_has_extra_fields() {
    for name in ["f", "d"] {
        let image = inline_image();
        let damage = format!("sif {name} extra_isize 0");
        image.debugfs(&[&damage]);
        assert_inline_kept(&image, &damage);
    }
}
