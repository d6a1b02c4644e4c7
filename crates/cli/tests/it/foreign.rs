//! Images that hold something else than an ext file system: exit code 8, and a sentence that names
//! what they hold. Only damage has exit code 4.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::host::{has_tool, mke2fs, scratch, text, uext4};

const MIB: u64 = 1 << 20;

/// What a command says of an image, and its exit code.
fn answer(arguments: &[&str]) -> (i32, String) {
    let output = uext4(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

/// A file of 8 MiB with these bytes at these places, zeroes elsewhere.
fn image(path: &Path, pieces: &[(u64, &[u8])]) {
    let file = File::create(path).unwrap();
    file.set_len(8 * MIB).unwrap();
    for (at, bytes) in pieces {
        file.write_all_at(bytes, *at).unwrap();
    }
}

/// An MBR whose partitions of one type begin and end at these sectors.
fn partition_table(partitions: &[(u32, u32)]) -> [u8; 512] {
    let mut table = [0; 512];
    for (index, (start, len)) in partitions.iter().enumerate() {
        let entry = &mut table[446 + 16 * index..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&len.to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xAA]);
    table
}

/// Where each format has its magic number, the number, and the words that name it and what to do.
const FORMATS: &[(u64, &[u8], &str, &str)] = &[
    (0, b"XFSB", "an XFS file system", "mount -o"),
    (65600, b"_BHRfS_M", "a btrfs file system", "mount -o"),
    (0, b"hsqs", "a squashfs file system", "mount -o"),
    (4086, b"SWAPSPACE2", "swap space", "holds no files"),
    (0, b"LUKS\xba\xbe", "a LUKS encrypted", "cryptsetup open"),
    (
        512,
        b"LABELONE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0LVM2 001",
        "an LVM physical volume",
        "vgchange -ay",
    ),
    (0, b"QFI\xfb", "a qcow2 disk image", "qemu-img convert"),
    (0, b"KDMV", "a VMDK disk image", "qemu-img convert"),
    (0, b"vhdxfile", "a VHDX disk image", "qemu-img convert"),
    (
        64,
        b"\x7f\x10\xda\xbe",
        "a VDI disk image",
        "qemu-img convert",
    ),
    (32769, b"CD001", "an ISO 9660 file system", "mount -o"),
    (0, b"\x1f\x8b\x08", "gzip-compressed data", "gzip -dc"),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed data", "zstd -dc"),
    (257, b"ustar", "a tar archive", "uext4 build"),
    (0, b"\xa5\xa6\xa7", "data of no format", "--offset BYTES"),
];

#[test]
fn each_format_is_named() {
    let scratch = scratch();
    let path = scratch.path().join("image");
    let name = text(&path);
    for (at, magic, what, step) in FORMATS {
        image(&path, &[(*at, magic)]);
        for command in [
            &["ls", name][..],
            &["check", name],
            &["info", name],
            &["mkdir", name, "/new"],
            &["get", name, "/", "/no/such/place"],
        ] {
            let (code, said) = answer(command);
            assert_eq!(code, 8, "{command:?}: {said}");
            let sentence = format!("{name}: no ext2, ext3 or ext4 file system, but {what}");
            assert!(said.contains(&sentence), "{command:?}: {said}");
            assert!(said.contains(step), "{command:?}: {said}");
        }
    }
    fs::write(&path, "a list\nof words\n").unwrap();
    let (code, said) = answer(&["ls", name]);
    assert_eq!(code, 8);
    assert!(said.contains("but text"), "{said}");
}

#[test]
fn partitions_are_named_with_what_they_hold() {
    let scratch = scratch();
    let path = scratch.path().join("disk");
    let table = partition_table(&[(2048, 2048), (4096, 2048), (6144, 2048)]);
    image(
        &path,
        &[(0, &table), (MIB + 4086, b"SWAPSPACE2"), (2 * MIB, b"XFSB")],
    );
    let (code, said) = answer(&["ls", text(&path)]);
    assert_eq!(code, 8, "{said}");
    for words in [
        "an MBR partition table with 3 partitions",
        "1 (1.0 MiB, swap space)",
        "2 (1.0 MiB, an XFS file system)",
        "3 (1.0 MiB, empty)",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let (code, said) = answer(&["ls", "--partition", "2", text(&path)]);
    assert_eq!(code, 8, "{said}");
    assert!(said.contains("an XFS file system"), "{said}");
}

/// The backups of an older file system are still there.
#[test]
fn a_new_file_system_over_an_old_one_is_named() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let path = scratch.path().join("image");
    mke2fs(&path, &["-t", "ext4", "-b", "1024"], 16);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    let (code, said) = answer(&["ls", text(&path)]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("the backup in block 8193 is used"), "{said}");
    let (code, said) = answer(&["mkdir", text(&path), "/new"]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("its backup is there"), "{said}");
    file.write_all_at(b"XFSB", 0).unwrap();
    let (code, said) = answer(&["ls", text(&path)]);
    assert_eq!(code, 8, "{said}");
    assert!(said.contains("an XFS file system"), "{said}");
}
