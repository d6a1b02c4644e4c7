//! What the kernel makes of directories changed here.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use super::*;

/// Undoes a mount whatever happens.
pub(super) struct Mounted<'a>(pub(super) &'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let gone = Command::new("umount").arg(self.0).status();
        if !gone.is_ok_and(|status| status.success()) {
            // A child of another test may just be starting with our descriptors.
            _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
}

/// Whether file systems can be mounted here.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
}

#[test]
fn the_kernel_finds_every_name() {
    if !is_root() {
        println!("skipped: needs root");
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
        let mut random = Random(21);
        for _ in 0..4000 {
            match random.below(4) {
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
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("x.img");
        std::fs::write(&image, device.to_bytes()).unwrap();
        let at = place.path().join("mnt");
        std::fs::create_dir(&at).unwrap();
        let mount = Command::new("mount")
            .args(["-o", "loop,ro"])
            .args([&image, &at])
            .status()
            .unwrap();
        assert!(mount.success());
        let _mounted = Mounted(&at);
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
