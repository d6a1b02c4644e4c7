//! Blocks of attributes and values that inodes share: what is read is shared later, equal blocks
//! are merged where that frees one, and damage ends what it is in alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use uext4::xattr::SetMode;
use uext4::{Creation, Error, NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};

use super::device::{judge, made};

const BLOCK: u64 = 4096;
/// Where `h_refcount` is in a block of attributes.
const USERS: u64 = 4;
/// Where `e_value_offs` of the first entry is.
const VALUE_PLACE: u64 = 32 + 2;

fn mount(device: &Arc<MemoryDevice>, words: &str) -> Volume {
    let mut options = OpenOptions::default();
    options.options(words).unwrap();
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let device: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(device);
    Volume::open(device, clock, &options).unwrap()
}

fn create(fs: &Volume, name: &str) -> OpenInode {
    let root = fs.root().unwrap();
    let creation = Creation::default();
    root.create(name.as_bytes(), NewInode::File, &creation)
        .unwrap()
}

fn open(fs: &Volume, name: &str) -> OpenInode {
    fs.root().unwrap().lookup(name.as_bytes()).unwrap()
}

fn set(inode: &OpenInode, name: &str, value: &[u8]) {
    let name = name.as_bytes();
    inode.set_xattr(name, Some(value), SetMode::Any).unwrap();
}

/// The number of the block of attributes.
fn block(inode: &OpenInode) -> u64 {
    inode.inode().xattr_block.unwrap().0
}

/// Files with equal attributes, each with a block of its own, on a file system that is not
/// mounted; and the numbers of the blocks.
fn apart(flags: &str, names: &[&str]) -> (Arc<MemoryDevice>, Vec<u64>) {
    let device = made(flags, 32_768);
    let fs = mount(&device, "nombcache");
    let block_of = |name: &&str| {
        let file = create(&fs, name);
        set(&file, "user.a", &[7; 2000]);
        block(&file)
    };
    let blocks = names.iter().map(block_of).collect();
    fs.close().unwrap();
    (device, blocks)
}

#[test]
fn attributes_that_were_read_are_shared() {
    let device = made("-t ext4 -b 4096 -O ea_inode", 32_768);
    let fs = mount(&device, "");
    let (first, second) = (create(&fs, "first"), create(&fs, "second"));
    set(&first, "user.large", &[6; 9000]);
    set(&first, "user.small", &[5; 2000]);
    drop((first, second));
    fs.close().unwrap();
    let fs = mount(&device, "");
    let (first, second) = (open(&fs, "first"), open(&fs, "second"));
    // What is read twice comes in.
    assert_eq!(first.xattrs().unwrap().len(), 2);
    assert_eq!(first.xattr(b"user.large").unwrap(), [6; 9000]);
    assert_eq!(first.xattr(b"user.small").unwrap(), [5; 2000]);
    set(&second, "user.large", &[6; 9000]);
    set(&second, "user.small", &[5; 2000]);
    assert_eq!(block(&first), block(&second));
    let stats = fs.stats();
    let (blocks, values) = (stats.xattr_blocks.unwrap(), stats.xattr_values.unwrap());
    assert!(blocks.reuse_ok > 0 && values.reuse_ok == 1);
    drop((first, second));
    fs.close().unwrap();
    judge(&device, "shared after reading");
}

/// A caller that has only a copy of an inode, perhaps an old one, lets no thread share what it
/// led to.
#[test]
fn what_an_onlooker_reads_is_not_shared() {
    let (device, _) = apart("-t ext4 -b 4096", &["a"]);
    let fs = mount(&device, "");
    let copy = open(&fs, "a").inode();
    // What is read twice by an inode's user comes in.
    for _ in 0..2 {
        assert_eq!(fs.xattrs(&copy).unwrap().len(), 1);
    }
    assert_eq!(fs.stats().xattr_blocks.unwrap().entries, 0);
    fs.close().unwrap();
}

#[test]
fn damage_of_one_block_is_no_matter_of_the_others() {
    let (device, blocks) = apart("-t ext4 -b 4096 -O metadata_csum", &["a", "b", "c"]);
    // Its checksum does not fit.
    device.write_at(blocks[1] * BLOCK + 3000, b"x").unwrap();
    let fs = mount(&device, "");
    assert!(!open(&fs, "a").share_xattrs().unwrap());
    let failed = open(&fs, "b").share_xattrs();
    assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
    assert!(open(&fs, "c").share_xattrs().unwrap());
    set(&create(&fs, "d"), "user.a", &[1; 100]);
    fs.close().unwrap();
}

#[test]
fn a_block_is_looked_at_before_another_gets_its_user() {
    for (damaged, at, bytes) in [
        // No thread is its user.
        ("b", USERS, [0; 4]),
        // Equal to another, and both lead out of the block.
        ("a b", VALUE_PLACE, [0xff, 0xff, 0, 0]),
    ] {
        let (device, blocks) = apart("-t ext4 -b 4096 -O ^metadata_csum", &["a", "b"]);
        for (name, block) in ["a", "b"].iter().zip(&blocks) {
            if damaged.contains(name) {
                let len = if at == USERS { 4 } else { 2 };
                device.write_at(block * BLOCK + at, &bytes[..len]).unwrap();
            }
        }
        let fs = mount(&device, "");
        // The second reading lets a block in.
        _ = open(&fs, "a").xattrs();
        let shared = ["a", "b"].map(|name| open(&fs, name).share_xattrs());
        assert_eq!(shared[0].is_err(), damaged.contains('a'), "{shared:?}");
        assert!(matches!(shared[1], Err(Error::Corrupt(_))), "{shared:?}");
        create(&fs, "c");
        fs.close().unwrap();
        let mut users = [0; 4];
        device
            .read_at(blocks[0] * BLOCK + USERS, &mut users)
            .unwrap();
        assert_eq!(u32::from_le_bytes(users), 1, "{damaged}");
    }
}

#[test]
fn without_a_cache_merging_is_refused() {
    let (device, _) = apart("-t ext4 -b 4096", &["a"]);
    let fs = mount(&device, "nombcache");
    let refused = open(&fs, "a").share_xattrs();
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    fs.close().unwrap();
}

/// Files in groups that have a block each.
fn in_groups(sizes: &[usize]) -> Arc<MemoryDevice> {
    let device = made("-t ext4 -b 4096 -N 3000", 65_536);
    for (group, size) in sizes.iter().enumerate() {
        // A cache that is empty knows no other group's.
        let fs = mount(&device, "");
        for i in 0..*size {
            set(&create(&fs, &format!("{group}-{i}")), "user.a", &[7; 2000]);
        }
        fs.close().unwrap();
    }
    device
}

/// Asks all to share; answers how many have another block then, and how many blocks there are.
fn merge(fs: &Volume, sizes: &[usize]) -> (usize, usize) {
    let (mut moved, mut blocks) = (0, BTreeSet::new());
    let names = sizes.iter().enumerate();
    let names = names.flat_map(|(group, size)| (0..*size).map(move |i| format!("{group}-{i}")));
    let files: Vec<OpenInode> = names.map(|name| open(fs, &name)).collect();
    for file in &files {
        moved += usize::from(file.share_xattrs().unwrap());
    }
    blocks.extend(files.iter().map(block));
    (moved, blocks.len())
}

/// Inodes move only where all users of a block find room, so that it is freed.
#[test]
fn blocks_are_merged_where_one_is_freed() {
    for (sizes, moved, left) in [(&[600, 600, 300][..], 300, 2), (&[1023, 3, 3], 3, 2)] {
        let device = in_groups(sizes);
        let fs = mount(&device, "");
        assert_eq!(merge(&fs, sizes), (moved, left), "{sizes:?}");
        assert_eq!(merge(&fs, sizes), (0, left), "{sizes:?}: again");
        fs.close().unwrap();
        judge(&device, &format!("{sizes:?}"));
    }
}
