//! Checks that the kernel reads directories that were changed here.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt};

use uext4_testkit::{Mount, can_mount, stored};

use super::*;

#[test]
fn the_kernel_finds_every_name() {
    if !can_mount() {
        return;
    }
    for flags in [
        "-t ext4",
        "-t ext4 -b 1024",
        "-t ext4 -b 1024 hash 2 unsigned",
        "-t ext4 -b 2048 -O ^metadata_csum hash 0",
        "-t ext4 -b 1024 -O ^dir_index",
    ] {
        let mut world = World::new(flags, 32 << 10);
        let mut random = SplitMix64::new(21);
        for _ in 0..4000 {
            match random.index(4) {
                0 => {
                    let name = world.pick(&mut random).unwrap_or(b"x".to_vec());
                    world.delete(&name);
                }
                _ => world.add(&random_name(&mut random, 30)),
            }
        }
        let expected: BTreeMap<Vec<u8>, u64> = world
            .model
            .iter()
            .map(|(name, &file)| (name.clone(), world.files[file].ino.0.into()))
            .collect();
        let device = world.finish();
        let image = stored(&device);
        let mount = Mount::new(image.path(), "ro");
        let at = mount.path();
        let listed: BTreeMap<Vec<u8>, u64> = std::fs::read_dir(at.join("d"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_vec(), entry.ino()))
            .collect();
        assert!(listed == expected, "{flags}");
        for (name, ino) in expected {
            let path = at.join("d").join(OsStr::from_bytes(&name));
            assert_eq!(path.symlink_metadata().unwrap().ino(), ino);
        }
    }
}
