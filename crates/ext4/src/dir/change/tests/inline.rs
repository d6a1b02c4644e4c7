//! Inline directories created by the kernel.

use uext4_ondisk::features::Incompat;

use super::*;
use crate::testing::{e2fsck, kernel_mount};

/// A file system whose directory "d" the kernel has created inline, with names in it.
fn made_by_the_kernel(flags: &str, names: usize) -> Option<Arc<MemoryDevice>> {
    kernel_mount(&mke2fs(flags, 8 << 10), |at| {
        std::fs::create_dir(at.join("d")).unwrap();
        std::fs::write(at.join("f"), "").unwrap();
        for i in 0..names {
            std::fs::hard_link(at.join("f"), at.join("d").join(format!("n{i}"))).unwrap();
        }
    })
}

/// Says that there is inline data, or not: such file systems are not mounted for writing yet.
fn set_inline_flag(device: &MemoryDevice, there_is: bool) {
    let mut bytes = vec![0; size_of::<SuperBlock>()];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    let mut superblock = SuperBlock::read_from_bytes(&bytes).unwrap();
    let mut features = superblock.features();
    features.incompat.set(Incompat::INLINE_DATA, there_is);
    superblock.set_features(features);
    superblock.update_checksum();
    device
        .write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())
        .unwrap();
}

#[test]
fn inline_directories_are_changed_in_place_and_get_a_block() {
    for (flags, names) in [
        ("-t ext4 -O inline_data -I 256", 0),
        ("-t ext4 -O inline_data -I 256", 5),
        ("-t ext4 -b 1024 -O inline_data,^dir_index -I 512", 12),
        ("-t ext4 -O inline_data,^metadata_csum -I 1024", 20),
    ] {
        let Some(device) = made_by_the_kernel(flags, names) else {
            return;
        };
        set_inline_flag(&device, false);
        let sbi = mount(&device);
        let root = iget(&sbi, Ino::ROOT).unwrap();
        let of = |name: &[u8]| iget(&sbi, lookup(&sbi, &root, name).unwrap()).unwrap();
        let (dir, file) = (of(b"d"), of(b"f"));
        assert!(dir.has(InodeFlags::INLINE_DATA), "{flags} {names}");
        let model = (0..names)
            .map(|i| (format!("n{i}").into_bytes(), 0))
            .collect();
        let mut world = World {
            device,
            sbi,
            dir,
            files: vec![file.clone(), file.clone(), file.clone(), file],
            model,
        };
        (1..4).for_each(|i| world.files[i].links = LINKS_MAX);
        world.compare();
        let moved = world.change(|h, dir| replace(h, dir, b"..", Ino(11), FileType::Directory));
        assert_eq!(moved.unwrap(), Ino::ROOT);
        let back = world.change(|h, dir| replace(h, dir, b"..", Ino::ROOT, FileType::Directory));
        assert_eq!(back.unwrap(), Ino(11));
        for i in 0..names / 2 {
            world.delete(format!("n{i}").as_bytes());
            world.compare();
        }
        let mut cookies = Vec::new();
        for i in 0..200 {
            world.add(format!("m{i}").as_bytes());
            if i % 10 == 0 {
                world.compare();
            }
            world.replace(format!("m{}", i / 2).as_bytes(), 0);
            if i == 1 {
                read_from(&world.sbi, &world.dir, 0, &mut |entry, cookie| {
                    cookies.push((entry.name.to_vec(), cookie));
                    true
                })
                .unwrap();
            }
        }
        assert!(!world.dir.has(InodeFlags::INLINE_DATA));
        for (name, cookie) in cookies {
            read_from(&world.sbi, &world.dir, cookie - 1, &mut |entry, _| {
                assert_eq!(entry.name, name, "{flags}");
                false
            })
            .unwrap();
        }
        world.compare();
        world.finish_inline();
    }
}

impl World {
    /// Finishes the work, and runs e2fsck.
    fn finish_inline(mut self) {
        self.files.truncate(1);
        let handle = self.sbi.start(20).unwrap();
        store(&handle, &self.sbi, &self.files[0]).unwrap();
        drop(handle);
        crate::testing::close(&self.sbi);
        set_inline_flag(&self.device, true);
        e2fsck(&self.device);
    }
}
