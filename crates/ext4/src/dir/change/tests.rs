//! Directories under random changes, compared with a model, and checked by e2fsck and the kernel.

use std::collections::BTreeMap;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
pub(crate) use uext4_testkit::SplitMix64;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::dir::namei::lookup;
use crate::dir::read_dir;
use crate::dir::readdir::read_from;
use crate::inode::iget;
use crate::inode::store::store;
use crate::testing::{mke2fs, mount, new_inode, unmount_and_check};

mod extremes;
mod inline;
mod kernel;
mod listing;

/// Maximum number of names of one file.
const LINKS_MAX: u16 = 60_000;

/// A mounted file system with one directory, "d", full of names for a few files.
pub(crate) struct World {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) sbi: Arc<Sbi>,
    pub(crate) dir: Inode,
    files: Vec<Inode>,
    pub(crate) model: BTreeMap<Vec<u8>, usize>,
}

impl World {
    /// Creates the file system with `mke2fs FLAGS`; "hash" in the flags is followed by the code
    /// of the hash, and "unsigned".
    pub(crate) fn new(flags: &str, kib: u64) -> Self {
        let (flags, hash) = flags.split_once(" hash ").unwrap_or((flags, ""));
        let device = mke2fs(flags, kib);
        if let Some(code) = hash.get(..1) {
            let mut bytes = vec![0; size_of::<SuperBlock>()];
            device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
            let mut superblock = SuperBlock::read_from_bytes(&bytes).unwrap();
            superblock.s_def_hash_version = code.parse().unwrap();
            let sign = if hash.ends_with("unsigned") { 2 } else { 1 };
            superblock.s_flags = (superblock.s_flags.get() & !3 | sign).into();
            superblock.update_checksum();
            device
                .write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())
                .unwrap();
        }
        let sbi = mount(&device);
        let handle = sbi.start(200).unwrap();
        let mut root = iget(&sbi, Ino::ROOT).unwrap();
        let mut dir = new_inode(&handle, FileType::Directory);
        dir.links = 2;
        init(&handle, &mut dir, Ino::ROOT).unwrap();
        add(&handle, &mut root, b"d", dir.ino, FileType::Directory).unwrap();
        root.links += 1;
        let files: Vec<_> = (0..4)
            .map(|i| {
                let file = new_inode(&handle, FileType::Regular);
                let name = format!("f{i}");
                add(
                    &handle,
                    &mut root,
                    name.as_bytes(),
                    file.ino,
                    FileType::Regular,
                )
                .unwrap();
                file
            })
            .collect();
        store(&handle, &sbi, &root).unwrap();
        store(&handle, &sbi, &dir).unwrap();
        drop(handle);
        Self {
            device,
            sbi,
            dir,
            files,
            model: BTreeMap::new(),
        }
    }

    fn change<R>(&mut self, f: impl FnOnce(&Handle<'_>, &mut Inode) -> Result<R>) -> Result<R> {
        let sbi = Arc::clone(&self.sbi);
        let handle = sbi.start(credits_add(&sbi, &self.dir) + 1).unwrap();
        let result = f(&handle, &mut self.dir);
        store(&handle, &sbi, &self.dir).unwrap();
        result
    }

    pub(crate) fn add(&mut self, name: &[u8]) {
        let file = (0..4).min_by_key(|&i| self.files[i].links).unwrap();
        assert!(self.files[file].links < LINKS_MAX);
        let ino = self.files[file].ino;
        let result = self.change(|handle, dir| add(handle, dir, name, ino, FileType::Regular));
        if self.model.contains_key(name) {
            assert!(matches!(result, Err(Error::Exists)), "{result:?}");
            return;
        }
        result.unwrap();
        self.files[file].links += 1;
        self.model.insert(name.to_vec(), file);
    }

    pub(crate) fn delete(&mut self, name: &[u8]) {
        let result = self.change(|handle, dir| delete(handle, dir, name));
        match self.model.remove(name) {
            None => assert!(matches!(result, Err(Error::NotFound)), "{result:?}"),
            Some(file) => {
                assert_eq!(result.unwrap(), self.files[file].ino);
                self.files[file].links -= 1;
            }
        }
    }

    pub(crate) fn replace(&mut self, name: &[u8], file: usize) {
        let ino = self.files[file].ino;
        let result = self.change(|handle, dir| replace(handle, dir, name, ino, FileType::Regular));
        match self.model.get_mut(name) {
            None => assert!(matches!(result, Err(Error::NotFound)), "{result:?}"),
            Some(old) => {
                assert_eq!(result.unwrap(), self.files[*old].ino);
                self.files[*old].links -= 1;
                self.files[file].links += 1;
                *old = file;
            }
        }
    }

    pub(crate) fn pick(&self, random: &mut SplitMix64) -> Option<Vec<u8>> {
        let from = [random.next_u64() as u8, random.next_u64() as u8];
        let mut after = self.model.range(from.to_vec()..).chain(&self.model);
        Some(after.next()?.0.clone())
    }

    /// Compares the directory with the model, in every way in which it can be read.
    pub(crate) fn compare(&self) {
        let expected: BTreeMap<&[u8], Ino> = self
            .model
            .iter()
            .map(|(name, &file)| (&name[..], self.files[file].ino))
            .chain([(&b"."[..], self.dir.ino), (b"..", Ino::ROOT)])
            .collect();
        let mut listed = BTreeMap::new();
        for entry in read_dir(&self.sbi, &self.dir).unwrap() {
            let entry = entry.unwrap();
            assert!(listed.insert(entry.name, entry.ino).is_none());
        }
        let listed: BTreeMap<&[u8], Ino> = listed.iter().map(|(n, i)| (&n[..], *i)).collect();
        assert!(listed == expected);
        let mut reported = BTreeMap::new();
        let mut last = 0;
        read_from(&self.sbi, &self.dir, 0, &mut |entry, cookie| {
            assert!(cookie > last);
            last = cookie;
            reported.insert(entry.name.to_vec(), entry.ino).is_none()
        })
        .unwrap();
        let reported: BTreeMap<&[u8], Ino> = reported.iter().map(|(n, i)| (&n[..], *i)).collect();
        assert!(reported == expected);
        for (name, ino) in expected {
            assert_eq!(lookup(&self.sbi, &self.dir, name).unwrap(), ino);
        }
        assert_eq!(
            is_empty(&self.sbi, &self.dir).unwrap(),
            self.model.is_empty()
        );
    }

    /// Stores the counts, unmounts, and runs e2fsck.
    pub(crate) fn finish(self) -> Arc<MemoryDevice> {
        let handle = self.sbi.start(20).unwrap();
        for file in &self.files {
            store(&handle, &self.sbi, file).unwrap();
        }
        drop(handle);
        unmount_and_check(&self.sbi, &self.device);
        self.device
    }
}

fn random_name(random: &mut SplitMix64, longest: usize) -> Vec<u8> {
    let len = 1 + random.index(longest);
    let byte = |random: &mut SplitMix64| match random.next_u64() as u8 {
        0 | b'/' => b'x',
        byte => byte,
    };
    let name: Vec<u8> = (0..len).map(|_| byte(random)).collect();
    if is_dot(&name) {
        b"dots".to_vec()
    } else {
        name
    }
}

const FLAGS: [&str; 11] = [
    "-t ext4",
    "-t ext4 -b 1024",
    "-t ext4 -b 2048 -O ^metadata_csum",
    "-t ext4 -b 1024 -O ^metadata_csum hash 2 unsigned",
    "-t ext4 -b 1024 hash 0",
    "-t ext4 -b 65536",
    "-t ext4 -b 1024 -O ^dir_index",
    "-t ext4 -b 1024 -O ^filetype",
    "-t ext3 -b 1024 hash 2",
    "-t ext4 -b 1024 hash 1 unsigned",
    "-t ext2 -b 4096",
];

#[test]
fn random_changes_agree_with_a_model() {
    for (flags, seed) in FLAGS.into_iter().zip(1..) {
        println!("{flags}");
        let mut world = World::new(flags, 32 << 10);
        let mut random = SplitMix64::new(seed * 0x9E37_79B9);
        let linear = flags.contains("^dir_index") || flags.contains("ext2");
        let steps = if linear { 1500 } else { 6000 };
        for step in 0..steps {
            let shrinking = step % 3000 > 2000;
            let longest = if random.index(8) == 0 { 255 } else { 20 };
            match random.index(if shrinking { 16 } else { 8 }) {
                0 => {
                    let file = random.index(4);
                    let name = world.pick(&mut random);
                    world.replace(&name.unwrap_or(b"no".to_vec()), file);
                }
                1 => {
                    let name = world.pick(&mut random);
                    world.add(&name.unwrap_or(b"a".to_vec()));
                }
                2 => world.delete(&random_name(&mut random, 255)),
                3..=7 => world.add(&random_name(&mut random, longest)),
                _ => {
                    if let Some(name) = world.pick(&mut random) {
                        world.delete(&name);
                    }
                }
            }
            if step % 1500 == 1499 {
                world.compare();
            }
        }
        world.finish();
    }
}
