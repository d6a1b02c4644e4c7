//! Descriptors that claim more free blocks than their group has, or than its bitmap says: the
//! group is left alone, the others are used, and nothing is reserved on such a claim.

use std::sync::Arc;

use uext4::{Creation, Error, NewInode, OpenInode, OpenOptions, SetAttributes, SetTime, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_ondisk::GroupNr;
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, GroupDesc, bitmap_checksum};

use super::device::{judge, made, mount};

const CREATION: Creation = Creation {
    mode: 0o700,
    umask: 0,
    uid: 0,
    gid: 0,
};

const FLAGS: [&str; 3] = [
    "-t ext4 -b 1024 -N 320",
    "-t ext4 -b 1024 -N 320 -O ^metadata_csum,uninit_bg",
    "-t ext2 -b 1024 -N 320",
];

/// The descriptor of a group: where it lies, its bytes, and what they say.
pub(super) fn descriptor(
    fs: &Volume,
    device: &MemoryDevice,
    group: u32,
) -> (u64, Vec<u8>, GroupDesc) {
    let geometry = fs.geometry();
    let len = u32::from(geometry.desc_size);
    let block = geometry.gdt_block(group / geometry.descs_per_block()).0;
    let at = block * 1024 + u64::from(group % geometry.descs_per_block() * len);
    let mut bytes = vec![0; len as usize];
    device.read_at(at, &mut bytes).unwrap();
    let desc = GroupDesc::parse(&bytes);
    (at, bytes, desc)
}

/// Makes the descriptor of a group claim so many free blocks.
pub(super) fn claim(device: &MemoryDevice, group: u32, free: u32) {
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let bytes: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(device.to_bytes()));
    let fs = Volume::open(bytes, clock, &OpenOptions::default()).unwrap();
    let (at, mut bytes, mut desc) = descriptor(&fs, device, group);
    desc.free_clusters = free;
    desc.store(&mut bytes, GroupNr(group), fs.geometry().desc_checksum);
    device.write_at(at, &bytes).unwrap();
}

/// What a file holds.
fn contents() -> Vec<u8> {
    (0..256 << 10).map(|i| (i % 251) as u8).collect()
}

/// Writes 256 KiB a file until nothing fits; the files, and how many bytes each took.
pub(super) fn fill(root: &OpenInode) -> Vec<(OpenInode, usize)> {
    let mut files = Vec::new();
    let data = contents();
    loop {
        let name = format!("{}", files.len());
        let file = match root.create(name.as_bytes(), NewInode::File, &CREATION) {
            Ok(file) => file,
            Err(Error::NoSpace { .. }) => return files,
            Err(error) => panic!("{error:?}"),
        };
        let taken = match file.write_at(0, &data) {
            Ok(taken) => taken,
            Err(Error::NoSpace { .. }) => 0,
            Err(error) => panic!("{error:?}"),
        };
        files.push((file, taken));
        if taken < data.len() {
            return files;
        }
    }
}

/// Blocks of 1024 bytes that a file has in `group`.
fn blocks_in(fs: &Volume, file: &OpenInode, group: u32) -> u64 {
    let start = fs.geometry().group_start(GroupNr(group)).0 * 1024;
    let end = start + u64::from(fs.geometry().blocks_in_group(GroupNr(group))) * 1024;
    let mut blocks = 0;
    file.fiemap(0..u64::MAX >> 2, |extent| {
        let from = extent.physical.unwrap();
        let to = (from + extent.len).min(end);
        blocks += to.saturating_sub(from.max(start)) / 1024;
        true
    })
    .unwrap();
    blocks
}

/// e2fsck corrects what the descriptor says, and finds nothing else once it did.
fn repair(device: &MemoryDevice) -> Arc<MemoryDevice> {
    let file = uext4_testkit::stored(device);
    let run = uext4_testkit::e2fsck(file.path(), "-fy");
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let text = String::from_utf8_lossy(&run.stdout).to_lowercase();
    assert!(
        !text.contains("inode ") && !text.contains("multiply"),
        "{text}"
    );
    uext4_testkit::loaded(file.path())
}

#[test]
fn a_group_that_claims_too_much_is_left_alone_and_others_are_used() {
    for (flags, group, free) in FLAGS
        .into_iter()
        .flat_map(|flags| [(flags, 1, 8193), (flags, 2, 60_000), (flags, 4, 65_535)])
    {
        let device = made(flags, 40_960);
        claim(&device, group, free);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let files = fill(&root);
        fs.sync().unwrap();
        let used: usize = files.iter().map(|(_, taken)| taken).sum();
        // Four of five groups, but for metadata: what was reserved was there.
        assert!((22 << 20..32 << 20).contains(&used), "{flags}: {used}");
        let contents = contents();
        for (file, taken) in &files {
            assert_eq!(blocks_in(&fs, file, group), 0, "{flags}: group {group}");
            let mut found = vec![0; *taken];
            assert_eq!(file.read_at(0, &mut found).unwrap(), *taken);
            assert!(found == contents[..*taken]);
        }
        drop(files);
        drop(root);
        fs.close().unwrap();
        let repaired = repair(&device);
        judge(&repaired, flags);
        // Its blocks are there again.
        let fs = mount(repaired.clone());
        assert!(
            fill(
                &fs.root()
                    .unwrap()
                    .create(b"d", NewInode::Directory, &CREATION)
                    .unwrap()
            )
            .len()
                > 10
        );
        fs.close().unwrap();
        drop(fs);
        judge(&repaired, flags);
    }
}

#[test]
fn blocks_freed_in_a_bad_group_stay_used() {
    let device = made(FLAGS[0], 40_960);
    let fs = mount(device.clone());
    let files = fill(&fs.root().unwrap());
    fs.sync().unwrap();
    let inside: Vec<bool> = files
        .iter()
        .map(|(file, _)| blocks_in(&fs, file, 2) > 0)
        .collect();
    assert!(inside.contains(&true) && inside.contains(&false));
    drop(files);
    fs.close().unwrap();
    drop(fs);
    claim(&device, 2, 50_000);
    let fs = mount(device.clone());
    let root = fs.root().unwrap();
    for number in 0..inside.len() {
        root.unlink(format!("{number}").as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    assert!(fill(&root).len() > inside.len() / 2);
    drop(root);
    fs.close().unwrap();
    drop(fs);
    judge(&repair(&device), "freed");
}

/// That is seen when its bitmap is read only: then its blocks leave the superblock's count.
#[test]
fn a_group_that_claims_too_little_leaves_the_count_of_free_blocks() {
    for flags in FLAGS {
        let device = made(flags, 40_960);
        claim(&device, 2, 100);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let data = vec![7; 1 << 20];
        let mut taken = 0;
        // Written as it comes, so that the lie is known before the end is reached.
        for number in 0u32.. {
            let name = number.to_string();
            let Ok(file) = root.create(name.as_bytes(), NewInode::File, &CREATION) else {
                break;
            };
            let len = file.write_at(0, &data).unwrap_or(0);
            file.fsync().unwrap();
            assert_eq!(blocks_in(&fs, &file, 2), 0, "{flags}");
            taken += len;
            if len < data.len() {
                break;
            }
        }
        assert!((22 << 20..32 << 20).contains(&taken), "{flags}: {taken}");
        drop(root);
        fs.close().unwrap();
        let groups = (0..5).filter(|group| *group != 2);
        let free: u32 = groups
            .map(|group| descriptor(&fs, &device, group).2.free_clusters)
            .sum();
        let mut bytes = vec![0; 1024];
        device.read_at(1024, &mut bytes).unwrap();
        // `s_free_blocks_count_lo`.
        let counted = u32::from_le_bytes(bytes[12..16].try_into().unwrap());
        assert_eq!(counted, free, "{flags}");
        judge(&repair(&device), flags);
    }
}

/// Makes all blocks in use but the last `left` of group 1; a checksum does not fit the bitmap of
/// group 3 if it is `damaged`, and its descriptor claims 6000 free blocks in any case.
fn use_all(device: &MemoryDevice, left: u32, damaged: bool) {
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let bytes: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(device.to_bytes()));
    let fs = Volume::open(bytes, clock, &OpenOptions::default()).unwrap();
    let geometry = fs.geometry();
    for group in 0..5 {
        let (at, mut bytes, mut desc) = descriptor(&fs, device, group);
        let bitmap_at = desc.block_bitmap.0 * 1024;
        let mut bitmap = [0; 1024];
        device.read_at(bitmap_at, &mut bitmap).unwrap();
        let blocks = geometry.blocks_in_group(GroupNr(group));
        let kept = if group == 1 { left } else { 0 };
        for bit in (0..blocks - kept).chain(blocks..8192) {
            bitmap[bit as usize / 8] |= 1 << (bit % 8);
        }
        desc.free_clusters = bitmap.iter().map(|byte| byte.count_zeros()).sum();
        assert_eq!(desc.free_clusters, kept);
        desc.flags &= !BG_BLOCK_UNINIT;
        if let Some(seed) = geometry.csum_seed {
            desc.block_bitmap_csum = bitmap_checksum(seed, &bitmap, geometry.desc_size.into());
        }
        if group == 3 {
            desc.free_clusters = 6000;
            bitmap[100] ^= u8::from(damaged);
        }
        desc.store(&mut bytes, GroupNr(group), geometry.desc_checksum);
        device.write_at(bitmap_at, &bitmap).unwrap();
        device.write_at(at, &bytes).unwrap();
    }
}

/// Each kind of file system, and the one that has checksums of bitmaps also with one that is wrong.
fn plausible() -> impl Iterator<Item = (&'static str, bool)> {
    let honest = FLAGS.into_iter().map(|flags| (flags, false));
    honest.chain([(FLAGS[0], true)])
}

#[test]
fn nothing_is_made_on_a_claim_that_a_bitmap_contradicts() {
    for (flags, damaged) in plausible() {
        let device = made(flags, 40_960);
        use_all(&device, 0, damaged);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        // As any full file system: nothing was begun, and all else goes on.
        for name in [b"a", b"b"] {
            let made = root.create(name, NewInode::Directory, &CREATION);
            assert!(matches!(made, Err(Error::NoSpace { .. })), "{made:?}");
        }
        let change = SetAttributes {
            mtime: Some(SetTime::Now),
            ..SetAttributes::default()
        };
        root.set_attributes(&change).unwrap();
        fs.sync().unwrap();
        drop(root);
        fs.close().unwrap();
        drop(fs);
        judge(&repair(&device), flags);
    }
}

#[test]
fn no_data_is_taken_in_on_a_claim_that_a_bitmap_contradicts() {
    for (flags, damaged) in plausible() {
        let device = made(flags, 40_960);
        use_all(&device, 1500, damaged);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let file = root.create(b"f", NewInode::File, &CREATION).unwrap();
        let data: Vec<u8> = (0..3 << 20).map(|i| (i % 251) as u8).collect();
        let taken = file.write_at(0, &data).unwrap();
        assert!((500 << 10..1500 << 10).contains(&taken), "{flags}: {taken}");
        file.fsync().unwrap();
        drop((root, file));
        fs.close().unwrap();
        drop(fs);
        let repaired = repair(&device);
        let fs = mount(repaired.clone());
        let file = fs.root().unwrap().lookup(b"f").unwrap();
        let mut found = vec![0; data.len()];
        assert_eq!(file.read_at(0, &mut found).unwrap(), taken);
        assert!(found[..taken] == data[..taken], "{flags}");
        drop(file);
        fs.close().unwrap();
        drop(fs);
        judge(&repaired, flags);
    }
}
