//! Quota files that are not what they should be: errors, never a panic, nothing endless.

use std::sync::Arc;

use uext4::format::Lblk;
use uext4::quota::QuotaKind;
use uext4::{FollowLast, Image, Ino, NewInode, OpenOptions, RenameMode, SetAttributes, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_testkit::SplitMix64;

use super::super::device::{made, mount, steps};
use super::creation;

/// Places of the blocks of the quota file of users.
fn places(device: &Arc<MemoryDevice>) -> Vec<u64> {
    let fs = Image::open(Arc::clone(device) as _, &OpenOptions::default()).unwrap();
    let inode = fs.inode(Ino::USER_QUOTA).unwrap();
    let blocks = inode.size.div_ceil(1024) as u32;
    let place = |lblk| fs.map(&inode, Lblk(lblk), 1).unwrap().pblk.0 * 1024;
    (0..blocks).map(place).collect()
}

fn use_it(device: &Arc<MemoryDevice>) {
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let opened = Volume::open(Arc::clone(device) as _, clock, &OpenOptions::default());
    let Ok(fs) = opened else { return };
    for id in [0, 1000, 1001, 1 << 20, u32::MAX - 1] {
        let name = format!("{id}");
        let made = fs.create(name.as_bytes(), NewInode::File, &creation(id, 0));
        if let Ok(file) = made {
            _ = file.write_at(0, &[1; 3000]);
            let set = SetAttributes {
                uid: Some(id / 2),
                ..SetAttributes::default()
            };
            _ = file.set_attributes(&set);
        }
        _ = fs.quota(QuotaKind::User, id);
        _ = fs.quotas(QuotaKind::User);
        _ = fs.remove(name.as_bytes());
    }
    _ = fs.close();
}

#[test]
fn damaged_files_give_errors() {
    let device = made("-t ext4 -b 1024 -O quota,^metadata_csum", 8192);
    let fs = mount(device.clone());
    for id in 0..40 {
        let name = format!("f{id}");
        fs.create(name.as_bytes(), NewInode::File, &creation(id * 77, 0))
            .unwrap();
    }
    fs.close().unwrap();
    drop(fs);
    let places = places(&device);
    let mut random = SplitMix64::new(1);
    for _ in 0..steps(300, 20_000) {
        let damaged = Arc::new(device.snapshot());
        for _ in 0..1 + random.below(3) {
            let block = places[random.below(places.len() as u64) as usize];
            // Mostly where the numbers are.
            let at = match random.below(3) {
                0 => random.below(1024),
                1 => random.below(64),
                _ => random.below(8) * 4,
            };
            let value = [0, 1, 2, 5, 9, 255, random.below(256) as u8][random.below(7) as usize];
            damaged.write_at(block + at, &[value]).unwrap();
        }
        use_it(&damaged);
    }
}

/// An inode whose owner the quota file does not know is used like any other.
#[test]
fn owners_without_an_entry_get_one() {
    let device = made("-t ext4 -b 4096 -O quota,project", 16_384);
    let fs = mount(device.clone());
    let dir = fs.create_dir(b"dir", &creation(5, 5)).unwrap();
    for name in [&b"a"[..], b"b", b"c", b"d"] {
        dir.create(name, NewInode::File, &creation(5, 5)).unwrap();
    }
    drop(dir);
    fs.close().unwrap();
    drop(fs);
    let image = uext4_testkit::stored(&device);
    for (name, id) in [("", 6), ("/a", 7), ("/b", 8), ("/c", 9), ("/d", 10)] {
        let set = format!("sif dir{name} uid {id}");
        uext4_testkit::debugfs_write(image.path(), [set]);
    }
    let bytes = std::fs::read(image.path()).unwrap();
    let fs = mount(Arc::new(MemoryDevice::from_bytes(bytes)));
    fs.rename(b"dir/a", b"dir/b", RenameMode::Replace).unwrap();
    fs.rename(b"dir/b", b"dir/c", RenameMode::Exchange).unwrap();
    fs.remove(b"dir/c").unwrap();
    let d = fs.open_path(b"dir/d", FollowLast::Yes).unwrap();
    d.write_at(0, &[1; 10_000]).unwrap();
    drop(d);
    fs.sync().unwrap();
    // What was there before was never counted.
    assert_eq!(fs.quota(QuotaKind::User, 10).unwrap().space, 12 << 10);
    assert_eq!(fs.quota(QuotaKind::User, 7).unwrap().inodes, 0);
    fs.close().unwrap();
}
