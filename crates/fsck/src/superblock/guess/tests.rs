//! Shapes guessed on images by mke2fs whose superblocks are zeroes.

use uext4_blockdev::MemoryDevice;
use uext4_testkit::{SplitMix64, has_tool, lose_superblocks};

use super::super::tests::{made, patched};
use super::*;

const IMAGES: [(&str, &str); 12] = [
    ("-t ext4 -b 1024", "40M"),
    ("-t ext4 -b 4096 -I 256", "300M"),
    ("-t ext4 -b 4096 -I 128 -N 5000", "150M"),
    ("-t ext4 -b 2048 -O ^metadata_csum,^64bit", "60M"),
    ("-t ext4 -b 1024 -I 512 -O ^flex_bg", "60M"),
    ("-t ext4 -b 1024 -O ^64bit,^resize_inode -G 4", "60M"),
    ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg -i 1024", "30M"),
    ("-t ext3 -b 1024", "40M"),
    ("-t ext2 -b 1024 -I 128", "20M"),
    ("-t ext2 -b 4096", "2M"),
    ("-t ext4 -b 65536", "64M"),
    // The last group is alone in its flexible group.
    ("-t ext4 -b 1024", "134M"),
];

/// The image without superblocks, or without descriptors either.
fn without(device: &MemoryDevice, descriptors: bool) -> Arc<MemoryDevice> {
    let mut bytes = device.to_bytes();
    lose_superblocks(&mut bytes, descriptors);
    Arc::new(MemoryDevice::from_bytes(bytes))
}

fn guessed(device: &Arc<MemoryDevice>) -> Option<(Geometry, Guess)> {
    let device: Arc<dyn BlockDevice> = device.clone();
    let guess = guess(&device, &Options::default(), &()).unwrap()?;
    let mut bytes = [0; 1024];
    guess.device.read_at(1024, &mut bytes).unwrap();
    let superblock = SuperBlock::parse(&bytes).unwrap();
    Some((Geometry::new(&superblock).unwrap(), guess))
}

#[test]
fn the_shape_is_the_one_of_the_superblock_that_is_lost() {
    if !has_tool("mke2fs") {
        return;
    }
    for (options, size) in IMAGES {
        let whole = made(options, size);
        let superblock = SuperBlock::parse(&whole.to_bytes()[1024..2048]).unwrap();
        let right = Geometry::new(&superblock).unwrap();
        for descriptors in [false, true] {
            let what = format!("{options} {size} {descriptors}");
            let (found, guess) = guessed(&without(&whole, descriptors)).expect(&what);
            let shape = |geometry: &Geometry| {
                (
                    geometry.block_size,
                    geometry.inode_size,
                    geometry.inodes_per_group,
                    geometry.groups_count,
                    geometry.csum_seed,
                    geometry.first_data_block,
                )
            };
            assert_eq!(shape(&found), shape(&right), "{what}");
            let is_made = guess.what.contains("usual layout");
            assert_eq!(is_made, descriptors, "{what}: {}", guess.what);
            let desc = |device: &dyn BlockDevice, geometry: &Geometry, group: GroupNr| {
                let at = geometry.gdt_block(0).0 << geometry.block_size.log2();
                let size = u64::from(geometry.desc_size);
                let mut bytes = vec![0; usize::from(geometry.desc_size)];
                let offset = at + u64::from(group.0) * size;
                device.read_at(offset, &mut bytes).unwrap();
                let desc = GroupDesc::parse(&bytes);
                (desc.block_bitmap, desc.inode_bitmap, desc.inode_table)
            };
            for group in (0..right.groups_count.get()).map(GroupNr) {
                assert_eq!(
                    desc(&guess.device, &found, group),
                    desc(&*whole, &right, group),
                    "{what}: group {group}"
                );
            }
        }
    }
}

/// What a repair makes of a device.
fn remade(device: &Arc<MemoryDevice>) -> Option<Overlay> {
    let device: Arc<dyn BlockDevice> = device.clone();
    let findings = Findings::new(&(), 10);
    remake(&device, &Options::default(), &findings).unwrap()
}

#[test]
fn a_repair_makes_a_superblock_only_if_the_descriptors_prove_its_shape() {
    if !has_tool("mke2fs") {
        return;
    }
    for (options, size) in IMAGES {
        let whole = made(options, size);
        // Checksums of descriptors begin with a UUID that is lost.
        let is_certain = !options.contains("uninit_bg");
        let made = remade(&without(&whole, false));
        assert_eq!(made.is_some(), is_certain, "{options}");
        // As where another file system begins, with an old root directory behind.
        assert!(remade(&without(&whole, true)).is_none(), "{options}");
        // A bitmap that does not say how many inodes a group has.
        let mut bytes = without(&whole, false).to_bytes();
        let superblock = SuperBlock::parse(&whole.to_bytes()[1024..2048]).unwrap();
        let geometry = Geometry::new(&superblock).unwrap();
        let at = (geometry.gdt_block(0).0 << geometry.block_size.log2()) as usize;
        let size = usize::from(geometry.desc_size);
        for group in 0..geometry.groups_count.get() as usize {
            let desc = GroupDesc::parse(&bytes[at + group * size..][..size]);
            let bitmap = (desc.inode_bitmap.0 << geometry.block_size.log2()) as usize;
            bytes[bitmap + 2..bitmap + 1024].fill(0x5A);
        }
        let device = Arc::new(MemoryDevice::from_bytes(bytes));
        assert!(remade(&device).is_none(), "{options}");
    }
}

#[test]
fn a_shape_that_is_not_certain_is_no_repair() {
    if !has_tool("mke2fs") {
        return;
    }
    // Groups of other sizes than a guess knows.
    for (options, size) in [
        ("-t ext4 -b 4096 -O bigalloc -C 65536", "600M"),
        ("-t ext4 -b 1024 -O bigalloc -C 8192", "24M"),
        ("-t ext4 -b 1024 -O bigalloc -C 8192", "6M"),
        ("-t ext4 -b 1024 -O meta_bg,^resize_inode", "300M"),
        ("-t ext2 -b 1024 -g 2048", "12M"),
        ("-t ext2 -b 1024 -g 1024 -N 64", "32M"),
    ] {
        let whole = without(&made(options, size), false);
        assert!(remade(&whole).is_none(), "{options} {size}");
    }
    // The end is cut off, at a group and within one; or there is more behind it.
    for options in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        let whole = without(&made(options, "40M"), false).to_bytes();
        for kib in [16_385, 20_000, 40_000, 42_000, 60_000] {
            let mut bytes = whole.clone();
            bytes.resize(kib << 10, 0x55);
            let device = Arc::new(MemoryDevice::from_bytes(bytes));
            assert!(remade(&device).is_none(), "{options} {kib}");
        }
        // The second block of descriptors is lost.
        let whole = without(&made(options, "300M"), false);
        let zeroed = patched(&whole, 3 << 10, &[0; 1024]);
        assert!(remade(&whole).is_some(), "{options}");
        assert!(remade(&zeroed).is_none(), "{options}");
    }
}

#[test]
fn what_is_left_of_a_superblock_is_kept() {
    if !has_tool("mke2fs") {
        return;
    }
    for options in ["-t ext4 -b 1024 -L label", "-t ext2 -b 1024 -L label"] {
        let bytes = made(options, "6M").to_bytes();
        // The magic number; the size of a block and of an inode; and these with the UUID.
        for damage in [&[56][..], &[24, 88], &[24, 88, 106]] {
            let mut bytes = bytes.clone();
            for at in damage {
                bytes[1024 + at] ^= 0x35;
            }
            let device = Arc::new(MemoryDevice::from_bytes(bytes));
            let overlay = remade(&device).unwrap_or_else(|| panic!("{options} {damage:?}"));
            let mut superblock = [0; 1024];
            overlay.read_at(1024, &mut superblock).unwrap();
            let superblock = SuperBlock::parse(&superblock).unwrap();
            assert!(superblock.s_volume_name.starts_with(b"label"), "{damage:?}");
        }
    }
}

#[test]
fn a_copy_of_the_superblock_is_used_wherever_it_lies() {
    if !has_tool("mke2fs") {
        return;
    }
    let whole = made("-t ext4 -b 1024", "20M");
    let superblock = whole.to_bytes()[1024..2048].to_vec();
    let copied = patched(&without(&whole, true), 12 << 20, &superblock);
    let (found, guess) = guessed(&copied).unwrap();
    assert!(guess.what.contains("a copy"), "{}", guess.what);
    let superblock = SuperBlock::parse(&superblock).unwrap();
    assert_eq!(found, Geometry::new(&superblock).unwrap());
    // One of another file system is not.
    let other = made("-t ext4 -b 2048", "10M").to_bytes()[1024..2048].to_vec();
    let copied = patched(&without(&whole, true), 12 << 20, &other);
    let (_, guess) = guessed(&copied).unwrap();
    assert!(!guess.what.contains("a copy"), "{}", guess.what);
}

#[test]
fn a_device_that_is_longer_has_no_more_groups_than_descriptors() {
    if !has_tool("mke2fs") {
        return;
    }
    let mut bytes = without(&made("-t ext4 -b 1024", "20M"), false).to_bytes();
    bytes.resize(100 << 20, 0x55);
    let (found, _) = guessed(&Arc::new(MemoryDevice::from_bytes(bytes))).unwrap();
    assert_eq!(found.groups_count.get(), 3);
}

#[test]
fn nothing_is_guessed_of_an_image_without_a_root_directory() {
    for bytes in [Vec::new(), vec![0; 1 << 20], vec![0xFF; 3 << 20]] {
        assert!(guessed(&Arc::new(MemoryDevice::from_bytes(bytes))).is_none());
    }
    if !has_tool("mke2fs") {
        return;
    }
    // A root directory near the end of a device that is too short for it.
    let mut bytes = without(&made("-t ext4 -b 1024", "20M"), true).to_bytes();
    for len in [1 << 20, 300 << 10, 100 << 10, 70 << 10] {
        bytes.truncate(len);
        let _ = guessed(&Arc::new(MemoryDevice::from_bytes(bytes.clone())));
    }
}

#[test]
fn no_rubbish_in_an_image_makes_a_guess_panic() {
    if !has_tool("mke2fs") {
        return;
    }
    let mut random = SplitMix64::new(7);
    for descriptors in [false, true] {
        let whole = without(&made("-t ext4 -b 1024", "4M"), descriptors).to_bytes();
        for _ in 0..50 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.index(300) {
                let at = random.index(512 << 10);
                bytes[at] = random.next_u64() as u8;
            }
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes));
            let _ = guess(&device, &Options::default(), &());
        }
    }
}
