//! Inode bitmaps that call inodes free which are in use: their numbers are not given out again,
//! no thread waits for itself, and what the inodes hold stays. Block bitmaps that call metadata
//! free: no file gets it.

use std::sync::Arc;

use uext4::{Creation, Error, NewInode, OpenOptions, SetAttributes, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_ondisk::Pblk;

use super::device::{made, mount, open};
use super::durable::debugfs;
use super::lying::{claim, descriptor, fill};

const FLAGS: [&str; 3] = [
    "-t ext4 -b 1024 -N 64",
    "-t ext2 -b 1024 -N 64",
    "-t ext4 -b 1024 -N 1024 -g 1024 -O ^metadata_csum",
];

/// A directory with a file, and the file system after debugfs called `freed` free.
fn lying(flags: &str, freed: &[&[u8]]) -> Arc<MemoryDevice> {
    let device = made(flags, 8192);
    let fs = mount(device.clone());
    let by = Creation::default();
    let dir = fs
        .root()
        .unwrap()
        .create(b"d", NewInode::Directory, &by)
        .unwrap();
    let file = dir.create(b"f", NewInode::File, &by).unwrap();
    file.write_at(0, b"contents").unwrap();
    let number = |name: &[u8]| match name {
        b"d" => dir.ino(),
        _ => file.ino(),
    };
    let requests: Vec<String> = freed
        .iter()
        .map(|name| format!("freei <{}>", number(name)))
        .collect();
    drop((dir.clone(), file.clone()));
    fs.close().unwrap();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    debugfs(&device, &requests)
}

/// The file below the directory still holds what was written.
fn assert_whole(fs: &Volume) {
    let dir = fs.root().unwrap().lookup(b"d").unwrap();
    let mut bytes = [0; 8];
    dir.lookup(b"f").unwrap().read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"contents");
}

#[test]
fn an_inode_in_use_is_not_allocated_again() {
    for flags in FLAGS {
        for freed in [&[b"d".as_slice()][..], &[b"f"], &[b"d", b"f"]] {
            let device = lying(flags, freed);
            let fs = mount(device.clone());
            let dir = fs.root().unwrap().lookup(b"d").unwrap();
            let mut refused = 0;
            for (i, kind) in [NewInode::File, NewInode::Directory]
                .into_iter()
                .cycle()
                .take(40)
                .enumerate()
            {
                match dir.create(format!("{i}").as_bytes(), kind, &Creation::default()) {
                    Ok(made) => assert_ne!(made.ino(), dir.ino()),
                    Err(Error::Corrupt(_)) => refused += 1,
                    Err(error) => panic!("{flags} {freed:?}: {error:?}"),
                }
            }
            assert!(refused > 0, "{flags} {freed:?}");
            assert_whole(&fs);
            drop(dir);
            fs.close().unwrap();
            // The damage is on record, and e2fsck has not been there.
            assert_whole(&open(device, OpenOptions::default(), "errors=continue").unwrap());
        }
    }
}

/// File systems, and a block of each that holds metadata: of the journal, the end of the last inode
/// table (`None`), a copy of the descriptors.
const METADATA: [(&str, Option<u32>); 4] = [
    (
        "-t ext4 -b 1024 -N 320 -J size=4,location=20000",
        Some(20_010),
    ),
    ("-t ext4 -b 1024 -N 320 -O ^metadata_csum", None),
    ("-t ext2 -b 1024 -N 320", None),
    ("-t ext2 -b 1024 -N 320", Some(8194)),
];

#[test]
fn metadata_that_a_bitmap_calls_free_is_not_allocated() {
    for (flags, block) in METADATA {
        let device = made(flags, 40_960);
        let fs = mount(device.clone());
        let geometry = fs.geometry().clone();
        let (_, _, last) = descriptor(&fs, &device, 4);
        // The end of the last inode table, unless another block was chosen.
        let table_end = last.inode_table.0 as u32 + geometry.itable_blocks() - 1;
        let block = block.unwrap_or(table_end);
        let (group, _) = geometry.group_of(Pblk(block.into())).unwrap();
        fs.close().unwrap();
        let (_, _, desc) = descriptor(&fs, &device, group.0);
        let device = debugfs(&device, &[&format!("freeb {block} 1")]);
        claim(&device, group.0, desc.free_clusters + 1);
        let fs = mount(device);
        let files = fill(&fs.root().unwrap());
        fs.sync().unwrap();
        assert!(files.len() > 50, "{flags}");
        let at = u64::from(block) * 1024;
        for (file, _) in &files {
            file.fiemap(0..u64::MAX >> 2, |extent| {
                let from = extent.physical.unwrap();
                assert!(!(from..from + extent.len).contains(&at), "{flags}: {block}");
                true
            })
            .unwrap();
        }
    }
}

#[test]
fn a_map_that_names_metadata_is_not_written_to() {
    for (flags, field) in [
        ("-t ext4 -b 1024 -N 320", "block[5]"),
        ("-t ext4 -b 1024 -N 320 -O ^metadata_csum", "block[5]"),
        ("-t ext2 -b 1024 -N 320", "block[0]"),
    ] {
        let device = made(flags, 40_960);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let file = root.create(b"f", NewInode::File, &Creation::default());
        file.unwrap().write_at(0, &[7; 600]).unwrap();
        let table = descriptor(&fs, &device, 4).2.inode_table.0;
        let end = table + u64::from(fs.geometry().itable_blocks());
        fs.close().unwrap();
        // The superblock, a copy of it, of the descriptors, and the end of an inode table.
        for block in [1, 8193, 8194, end - 1] {
            let lies = debugfs(&device, &[&format!("sif f {field} {block}")]);
            let read = |device: &MemoryDevice| {
                let mut bytes = vec![0; 1024];
                device.read_at(block * 1024, &mut bytes).unwrap();
                bytes
            };
            let before = read(&lies);
            let fs = mount(lies.clone());
            let file = fs.root().unwrap().lookup(b"f").unwrap();
            let case = format!("{flags}, block {block}");
            let refused = |result| assert!(matches!(result, Err(Error::Corrupt(_))), "{case}");
            refused(file.write_at(0, b"data").map(|_| ()));
            refused(file.write_at(0, &[1; 2048]).map(|_| ()));
            for size in [10, 5000] {
                refused(file.set_attributes(&SetAttributes {
                    size: Some(size),
                    ..SetAttributes::default()
                }));
            }
            drop(file);
            drop(fs);
            let after = read(&lies);
            match block {
                1 => assert_eq!(before[56..58], after[56..58], "{case}"),
                _ => assert_eq!(before, after, "{case}"),
            }
        }
    }
}
