//! Arbitrary bytes as every structure: nothing may panic, and what is accepted must be consistent.
//! The same exercises run under the fuzzer (`fuzz/`); the cases it found are replayed here.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{Index, select};

#[path = "../exercise/directory.rs"]
mod directory;
#[path = "../exercise/extent.rs"]
mod extent;
#[path = "../exercise/journal.rs"]
mod journal;
#[path = "../exercise/quota.rs"]
mod quota;
#[path = "../exercise/superblock.rs"]
mod superblock;
#[path = "../exercise/xattr.rs"]
mod xattr;

/// Runs every file of `fuzz/corpus-regressions/TARGET` through the exercise.
fn replay(target: &str, exercise: fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus-regressions");
    let dir = root.join(target);
    let files = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut met = 0;
    for file in files {
        let path = file.unwrap().path();
        println!("{}", path.display());
        exercise(&fs::read(path).unwrap());
        met += 1;
    }
    assert!(met > 0, "nothing in {}", dir.display());
}

#[test]
fn found_cases() {
    replay("superblock", superblock::exercise);
    replay("directory", directory::exercise);
    replay("extent", extent::exercise);
    replay("xattr", xattr::exercise);
    replay("journal", journal::exercise);
    replay("quota", quota::exercise);
}

/// Fields of a superblock that shape the file system: offset and width.
const SHAPE: [(usize, usize); 20] = [
    (0x00, 4),
    (0x04, 4),
    (0x14, 4),
    (0x18, 4),
    (0x1C, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x4C, 4),
    (0x54, 4),
    (0x58, 2),
    (0x5C, 4),
    (0x60, 4),
    (0x64, 4),
    (0xCE, 2),
    (0xFE, 2),
    (0x104, 4),
    (0x150, 4),
    (0x174, 1),
    (0x24C, 8),
];

/// A superblock of 3 groups of 8,192 blocks of 1 KiB.
fn good_superblock() -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    for (at, value) in [
        (0x00, 3 * 2048u32),
        (0x04, 3 * 8192),
        (0x14, 1),
        (0x20, 8192),
        (0x24, 8192),
        (0x28, 2048),
        (0x4C, 1),
        (0x54, 11),
        (0x58, 256),
        (0xFE, 64),
    ] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

#[test]
fn the_good_superblock_is_accepted() {
    let sb = zerocopy::FromBytes::read_from_bytes(&good_superblock()).unwrap();
    uext4_ondisk::Geometry::new(&sb).unwrap();
}

/// Values at the edges, and any.
fn edge() -> impl Strategy<Value = u64> {
    let edges = (0u32..64, -2i64..3).prop_map(|(bit, d)| (1u64 << bit).wrapping_add_signed(d));
    prop_oneof![edges, any::<u64>()]
}

/// A block with valid beginnings: random bytes behind one of the heads.
fn headed(heads: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..1200);
    (select(heads), body).prop_map(|(head, body)| [head, body].concat())
}

proptest! {
    #[test]
    fn superblocks_of_random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        superblock::exercise(&bytes);
    }

    #[test]
    fn superblocks_with_odd_fields(changes in prop::collection::vec((any::<Index>(), edge()), 0..6)) {
        let mut bytes = good_superblock();
        for (field, value) in changes {
            let (at, len) = SHAPE[field.index(SHAPE.len())];
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        superblock::exercise(&bytes);
    }

    #[test]
    fn directories(bytes in headed(vec![
        vec![],
        b"\x03\x0B\0\0\0\x0C\0\x01\x02.\0\0\0\x02\0\0\0\xF4\x03\x02\x02..\0\0".to_vec(),
        b"\x83\0\0\0\0\0\x04\0\0\x7F\0\x02\0".to_vec(),
    ])) {
        directory::exercise(&bytes);
        directory::exercise(&bytes[..bytes.len().min(1025)]);
    }

    #[test]
    fn nodes_of_a_hash_tree(
        count in 0u16..130,
        hashes in prop::collection::vec(any::<u32>(), 128),
        sorted: bool,
    ) {
        let mut hashes = hashes;
        if sorted {
            hashes.sort_unstable();
        }
        for tail in [0x80, 0] {
            let limit = 127 - u16::from(tail == 0x80);
            let mut bytes = vec![tail, 0, 0, 0, 0, 0, 4, 0, 0];
            bytes.extend(hashes.iter().flat_map(|&hash| [hash, hash >> 7]).flat_map(u32::to_le_bytes));
            bytes.truncate(1025);
            bytes[9..11].copy_from_slice(&limit.to_le_bytes());
            bytes[11..13].copy_from_slice(&count.to_le_bytes());
            directory::exercise(&bytes);
        }
    }

    #[test]
    fn extent_nodes(bytes in headed(vec![
        vec![0],
        b"\0\x0A\xF3\x03\0\x04\0\0\0\0\0\0\0".to_vec(),
        b"\x01\x0A\xF3\x03\0\x04\0\x01\0\0\0\0\0".to_vec(),
        b"\xFF\x0A\xF3\xFF\0\xFF\0\0\0\0\0\0\0".to_vec(),
    ])) {
        extent::exercise(&bytes);
    }

    #[test]
    fn inodes(bytes in prop::collection::vec(any::<u8>(), 257), extra in 0u8..140) {
        let mut bytes = bytes;
        bytes[129] = extra;
        bytes[130] = 0;
        extent::exercise(&bytes);
        extent::exercise(&bytes[..129]);
    }

    #[test]
    fn attributes(bytes in headed(vec![
        vec![],
        b"\x01\x01\x40\0\0\0\0\0\x05\0\0\0\0\0\0\0aaaa\0\0\0\0".to_vec(),
        [&[0; 32][..], b"\x01\x01\x60\0\0\0\0\0\x05\0\0\0\0\0\0\0aaaa\0\0\0\0"].concat(),
    ])) {
        xattr::exercise(&bytes);
    }

    #[test]
    fn quota_files_and_orphan_files(bytes in headed(vec![
        vec![3],
        b"\x09\x27\x39\xD9\x01\0\0\0".to_vec(),
        [&[2; 1][..], &[0; 8], b"\x01\0\0\0\0\0\0\0"].concat(),
    ]), magic: bool) {
        let mut bytes = bytes;
        if magic && bytes.len() > 9 {
            let tail = bytes.len() - 8;
            bytes[tail..tail + 4].copy_from_slice(&0x0B10_CA04_u32.to_le_bytes());
        }
        quota::exercise(&bytes);
    }

    #[test]
    fn journals(bytes in headed(
        (0..0x80).map(|options| [&[options][..], b"\xC0\x3B\x39\x98\0\0\0\x05\0\0\0\x01\0\0\0"].concat())
            .collect()
    )) {
        journal::exercise(&bytes);
    }
}
