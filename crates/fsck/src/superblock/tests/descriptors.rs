//! Group descriptors and the places that they name.

use super::*;

/// The whole of a descriptor in an image with blocks of 1 KiB, where it has 32 bytes.
fn small() -> Arc<MemoryDevice> {
    made("-t ext2 -b 1024 -O ^resize_inode", "20M")
}

fn put(device: &MemoryDevice, group: usize, field: usize, block: u32) -> Arc<MemoryDevice> {
    patched(device, 2048 + group * 32 + field, &block.to_le_bytes())
}

/// The same damage in all copies of the descriptors.
fn put_all(device: &MemoryDevice, group: usize, field: usize, block: u32) -> Arc<MemoryDevice> {
    let at = 8194 * 1024 + group * 32 + field;
    patched(&put(device, group, field, block), at, &block.to_le_bytes())
}

#[test]
fn places_come_from_the_backup_if_that_can_be() {
    for field in [0, 4, 8] {
        for wrong in [0, 1, 9, 99_999] {
            let device = put(&small(), 1, field, wrong);
            assert_repaired(&device, &["group-descriptor-from-backup"]);
        }
    }
    let zeroes = patched(&small(), 2048, &[0; 96]);
    assert_repaired(&zeroes, &["group-descriptor-from-backup"; 3]);
}

#[test]
fn without_a_backup_places_are_where_mke2fs_puts_them() {
    for (field, name) in [
        (0, "group-block-bitmap-place"),
        (4, "group-inode-bitmap-place"),
        (8, "group-inode-table-place"),
    ] {
        for group in [0, 1, 2] {
            let device = put_all(&small(), group, field, 99_999);
            assert_repaired(&device, &[name]);
        }
    }
}

#[test]
fn a_table_that_is_overwritten_is_made_empty_elsewhere() {
    let device = put_all(&small(), 2, 8, 99_999);
    let table = 16_387 * 1024;
    let noise = [0x5A; 1024];
    let mended = assert_mended(
        &patched(&device, table, &noise),
        &["group-inode-table-lost"],
    );
    let complaints = complaints(stored(&mended).path()).unwrap_or_default();
    assert!(!complaints.contains("not in group"), "{complaints}");
}

#[test]
fn what_overlaps_is_parted() {
    let bitmaps = put_all(&small(), 1, 4, 8195);
    assert_repaired(&bitmaps, &["group-inode-bitmap-place"]);
    let super_block = put_all(&small(), 0, 0, 2);
    assert_repaired(&super_block, &["group-block-bitmap-place"]);
}

#[test]
fn checksums_are_mended_and_marks_are_not_trusted() {
    let ext4 = made("-t ext4 -b 1024", "32M");
    // Only the sum: the backup says the same.
    assert_repaired(
        &changed(&ext4, &["set_bg 1 checksum 7"]),
        &["group-checksum"],
    );
    let sum = changed(&ext4, &["set_bg 0 flags 7"]);
    let mended = assert_mended(&sum, &["group-checksum"]);
    assert_eq!(mended.to_bytes()[2048 + 0x12], 4);
}

/// A field of a descriptor replaced, and the descriptor summed as `uninit_bg` does.
fn resummed(device: &MemoryDevice, group: usize, field: usize, new: &[u8]) -> Arc<MemoryDevice> {
    let at = 2048 + group * 32;
    let patch = patched(device, at + field, new);
    let bytes = patch.to_bytes();
    let uuid: [u8; 16] = bytes[1024 + 0x68..][..16].try_into().unwrap();
    let sum = uext4_ondisk::group_desc::desc_checksum(
        &bytes[at..at + 32],
        GroupNr(group as u32),
        uext4_ondisk::group_desc::DescChecksum::Crc16(uuid),
    );
    patched(&patch, at + 0x1E, &sum.to_le_bytes())
}

#[test]
fn marks_without_their_feature_are_cleared() {
    let device = patched(&small(), 2048 + 0x12, &[1]);
    assert_repaired(&device, &["group-uninit-without-feature"]);
    let sums = "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit";
    let device = made(sums, "32M");
    // In one change of the image each: debugfs reads bitmaps only before the sum is wrong.
    let last = ["set_bg 3 flags 2"];
    let names = ["group-checksum"];
    assert_mended(&changed(&device, &last), &names);
    let unused = resummed(&device, 1, 0x1C, &9999u16.to_le_bytes());
    assert_mended(&unused, &["group-table-unused-range"]);
    let last = resummed(&device, 3, 0x12, &[2]);
    assert_mended(&last, &["group-last-block-uninit"]);
    let used = resummed(&device, 0, 0x12, &[1]);
    assert_mended(&used, &["group-table-unused-range"]);
}

#[test]
fn flex_groups_are_restored_from_their_neighbours() {
    let device = made("-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg,^64bit", "40M");
    for (field, name) in [
        (0, "group-block-bitmap-place"),
        (4, "group-inode-bitmap-place"),
        (8, "group-inode-table-place"),
    ] {
        let mut bytes = device.to_bytes();
        for table in [2, 8194, 24_578] {
            bytes[table * 1024 + 2 * 32 + field..][..4].copy_from_slice(&[0; 4]);
        }
        let lost = Arc::new(MemoryDevice::from_bytes(bytes));
        assert_repaired(&lost, &[name]);
    }
}

#[test]
fn a_new_table_lies_in_no_file_as_long_as_another_group_has_room() {
    let options = "-t ext4 -b 1024 -G 2 -O ^metadata_csum,^uninit_bg,^64bit";
    let image = crate::tests::TestImage::new(options, "40M");
    let contents: Vec<u8> = (0..25_000_000_u32)
        .map(|i| (i / 1000 % 251) as u8)
        .collect();
    image.file("f", &contents);
    image.change(|bytes| {
        let field = 2 * 1024 + 2 * 32 + 8;
        let table = u32::from_le_bytes(bytes[field..][..4].try_into().unwrap()) as usize;
        bytes[table * 1024..][..1024].fill(0x5A);
        for table in [2, 8194, 24_578] {
            bytes[table * 1024 + 2 * 32 + 8..][..4].fill(0);
        }
    });
    let found = image.repair();
    assert!(found.contains(&"group-inode-table-lost"), "{found:?}");
    let out = image.path().with_file_name("out");
    debugfs_write(image.path(), [format!("dump f {}", out.display())]);
    assert!(std::fs::read(out).unwrap() == contents);
}
