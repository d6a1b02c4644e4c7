//! What is reckoned beforehand is what is taken.

use std::os::unix::fs::FileExt;

use uext4::bulk::{Footprint, InlineSpace};
use uext4::{FileType, NewInode};

use super::maker::{Maker, attributes, bytes};

const SHAPES: &[&[&str]] = &[
    &["-t", "ext4", "-N", "9000"],
    &["-t", "ext4", "-b", "1024", "-N", "9000"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-N",
        "9000",
        "-O",
        "^metadata_csum,ea_inode",
    ],
    &["-t", "ext2", "-b", "1024", "-N", "9000", "-O", "^dir_index"],
    &["-t", "ext3", "-b", "2048", "-N", "9000", "-I", "128"],
];

fn start(arguments: &[&str]) -> (Maker, Footprint) {
    let maker = Maker::new("128M", arguments);
    let mut bytes = [0; 1024];
    let image = std::fs::File::open(maker.image()).unwrap();
    image.read_exact_at(&mut bytes, 1024).unwrap();
    // The superblock on the device has lost its magic by now.
    bytes[0x38..0x3A].copy_from_slice(&[0x53, 0xEF]);
    let superblock = uext4_ondisk::superblock::SuperBlock::parse(&bytes).unwrap();
    (maker, Footprint::new(&superblock).unwrap())
}

#[test]
fn directories() {
    for arguments in SHAPES {
        for count in [0usize, 1, 20, 30, 31, 32, 33, 90, 400, 8_000] {
            let (mut maker, footprint) = start(arguments);
            let names: Vec<String> = (0..count)
                .map(|i| format!("{}{i}", "name".repeat(i % 5)))
                .collect();
            maker.dir(b"d");
            // Links, so that there is nothing but the directory.
            maker.file(b"f", b"", &attributes(0o600, 1));
            for name in &names {
                maker.link_uncounted(format!("d/{name}").as_bytes(), b"f");
            }
            let free = maker.creator().free_blocks();
            let summary = maker.finish_and_fsck(&arguments.join(" "));
            let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
            let inline = InlineSpace::default();
            let blocks = footprint.directory_blocks(&names, inline).unwrap();
            let reckoned = footprint.directory(blocks).unwrap();
            // The root has one block as before.
            let taken = free - summary.free_blocks;
            assert_eq!(
                reckoned.data + reckoned.tree,
                taken,
                "{arguments:?}: {count} names"
            );
        }
    }
}

#[test]
fn files() {
    let whole = |len: u64| (len, [0..len].to_vec());
    let mut cases = [
        0,
        1,
        1024,
        4096,
        12 * 1024,
        12 * 1024 + 1,
        300_000,
        3_000_000,
        40_000_000,
    ]
    .map(whole)
    .to_vec();
    cases.push((9_000_000, [5..6, 4_000..5_000, 800_000..2_000_000].to_vec()));
    cases.push((
        9_000_000,
        (0..2_000)
            .map(|i| i * 4_096..i * 4_096 + 1)
            .step_by(2)
            .collect(),
    ));
    for arguments in SHAPES {
        for (size, ranges) in &cases {
            let (mut maker, footprint) = start(arguments);
            let data = vec![1; *size as usize];
            let ino = maker.make(b"f", NewInode::File, &attributes(0o600, 1));
            let free = maker.creator().free_blocks();
            maker
                .creator()
                .write_file(ino, *size, ranges, &mut data.as_slice())
                .unwrap();
            let taken = free - maker.creator().free_blocks();
            let reckoned = footprint
                .file(*size, ranges, InlineSpace::default())
                .unwrap();
            let most = reckoned.data + reckoned.tree;
            let slack = u64::from(arguments.contains(&"ext4"));
            assert!(
                (taken..=taken + slack).contains(&most),
                "{arguments:?}: {size} bytes: {reckoned:?}, {taken} were taken"
            );
        }
    }
}

#[test]
fn symlinks_and_attributes() {
    for arguments in SHAPES {
        let (mut maker, footprint) = start(arguments);
        for len in [1, 59, 60, 900] {
            let free = maker.creator().free_blocks();
            let target = vec![b't'; len];
            let path = format!("l{len}");
            let kind = NewInode::Symlink(&target);
            maker.make(path.as_bytes(), kind, &attributes(0o777, 1));
            assert_eq!(free - maker.creator().free_blocks(), footprint.symlink(len));
        }
        let mut blocks = std::collections::BTreeSet::new();
        for (i, len) in [10usize, 300, 300, 700, 9_000].into_iter().enumerate() {
            let mut with = attributes(0o600, 1);
            with.xattrs = vec![
                (b"user.a".to_vec(), bytes(len as u64, len)),
                (b"security.b".to_vec(), bytes(1, 90)),
            ];
            let (free, inodes) = (maker.creator().free_blocks(), maker.creator().free_inodes());
            let Ok(reckoned) = footprint.xattrs(FileType::Regular, &with.xattrs) else {
                assert_eq!(len, 9_000);
                continue;
            };
            maker.make(format!("x{i}").as_bytes(), NewInode::File, &with);
            let new = reckoned.block.is_some_and(|block| blocks.insert(block));
            let taken = free - maker.creator().free_blocks();
            assert_eq!(
                taken,
                u64::from(new) + reckoned.value_blocks,
                "{arguments:?}: {len}"
            );
            let taken = inodes - maker.creator().free_inodes();
            assert_eq!(
                taken,
                1 + u64::from(reckoned.inodes),
                "{arguments:?}: {len}"
            );
        }
        maker.check(&arguments.join(" "));
    }
}
