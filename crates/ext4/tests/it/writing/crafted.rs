//! Images made to mislead the writer: directories that lie in themselves, maps that lead to the
//! same blocks again and again, journals that replay another superblock, counts of what is not
//! there.

use std::sync::Arc;

use uext4::data::Fallocate;
use uext4::format::GroupNr;
use uext4::{
    Creation, Error, FollowLast, Image, NewInode, OpenInode, OpenOptions, RenameMode,
    SetAttributes, Volume,
};
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice, VirtualClock};
use uext4_testkit::{changed, debugfs_script};

use super::device::{file, made, mount};
use super::durable::debugfs;
use crate::left;

/// A file system without checksums or a journal, after debugfs did what it was asked.
fn crafted(requests: &[&str]) -> Arc<MemoryDevice> {
    let flags = "-t ext4 -N 64 -O ^metadata_csum,^has_journal,^dir_index";
    debugfs(&made(flags, 16_384), requests)
}

/// Directories a, a/b and a/b/c, where c holds a, and a holds itself.
fn looped() -> Arc<MemoryDevice> {
    crafted(&[
        "mkdir a",
        "mkdir a/b",
        "mkdir a/b/c",
        "mkdir other",
        "ln a a/b/c/loop",
        "ln a a/self",
    ])
}

fn path(fs: &Volume, path: &str) -> OpenInode {
    fs.open_path(path.as_bytes(), FollowLast::No).unwrap()
}

#[test]
fn a_directory_in_itself_is_locked_once() {
    let fs = mount(looped());
    let (a, other) = (path(&fs, "/a"), path(&fs, "/other"));
    assert!(matches!(a.rmdir(b"self"), Err(Error::Corrupt(_))));
    let c = path(&fs, "/a/b/c");
    assert!(matches!(c.rmdir(b"loop"), Err(Error::NotEmpty)));
    let moved = a.rename(b"self", &c, b"x", RenameMode::Replace);
    assert!(matches!(moved, Err(Error::Invalid { .. })), "{moved:?}");
    let moved = c.rename(b"loop", &other, b"x", RenameMode::Exchange);
    assert!(matches!(moved, Err(Error::NotFound)), "{moved:?}");
    assert!(a.link(&a, b"y").is_err());
    assert!(
        a.create(b"still works", NewInode::File, &Creation::default())
            .is_ok()
    );
}

#[test]
fn threads_in_a_loop_of_directories_do_not_wait_for_each_other_for_ever() {
    let fs = mount(looped());
    let dirs = ["/a", "/a/b", "/a/b/c"].map(|name| path(&fs, name));
    std::thread::scope(|scope| {
        for turn in 0..3 {
            let (above, below) = (&dirs[turn], &dirs[(turn + 1) % 3]);
            let name: &[u8] = [b"b".as_slice(), b"c", b"loop"][turn];
            scope.spawn(move || {
                for _ in 0..500 {
                    assert!(above.rmdir(name).is_err());
                    assert!(below.link(above, b"hard").is_err());
                    let moved = above.rename(name, below, b"in itself", RenameMode::Replace);
                    assert!(moved.is_err());
                }
            });
        }
    });
}

#[test]
fn a_tree_that_leads_back_into_itself_is_not_removed_for_ever() {
    let fs = mount(looped());
    for name in ["/a", "/a/b/c"] {
        let removed = fs.remove_all(name.as_bytes());
        assert!(matches!(removed, Err(Error::Corrupt(_))), "{removed:?}");
    }
    // A second name of a directory is no way to its contents.
    let fs = mount(crafted(&[
        "mkdir a",
        "mkdir a/b",
        "mkdir other",
        "ln a other/a",
    ]));
    let removed = fs.remove_all(b"/other");
    assert!(matches!(removed, Err(Error::Corrupt(_))), "{removed:?}");
    path(&fs, "/a/b");
}

#[test]
fn a_directory_whose_index_finds_nothing_is_not_emptied_for_ever() {
    let device = made(
        "-t ext4 -b 1024 -N 512 -O ^metadata_csum,^has_journal",
        16_384,
    );
    let fs = mount(device.clone());
    let dir = fs.create_dir(b"/d", &Creation::default()).unwrap();
    for number in 0..200 {
        let name = format!("a rather long name of a file, number {number}");
        dir.create(name.as_bytes(), NewInode::File, &Creation::default())
            .unwrap();
    }
    drop(dir);
    fs.close().unwrap();
    // Another hash for all names.
    let fs = mount(debugfs(
        &device,
        &["ssv hash_seed 00112233-4455-6677-8899-aabbccddeeff"],
    ));
    let removed = fs.remove_all(b"/d");
    assert!(matches!(removed, Err(Error::Corrupt(_))), "{removed:?}");
}

#[test]
fn a_map_that_leads_to_its_tables_again_is_not_freed_for_ever() {
    let device = made("-t ext2 -b 1024 -N 64", 16_384);
    let fs = mount(device.clone());
    let new = file(&fs, "f");
    let tables = [12, 268].map(|block: u64| {
        new.write_at(block * 1024, b"data").unwrap();
        new.fsync().unwrap();
    });
    assert_eq!(tables.len(), 2);
    let number = new.ino();
    drop(new);
    fs.close().unwrap();
    // The double indirect block as the triple one, whose numbers all lead to one table.
    let block = |n: u32| 9000 + n;
    let maps = [
        format!("sif <{number}> block[DIND] {}", block(1)),
        format!("sif <{number}> block[TIND] {}", block(0)),
    ];
    let maps: Vec<&str> = maps.iter().map(String::as_str).collect();
    let device = debugfs(&device, &maps);
    for (table, to) in [(0, 1), (1, 2), (2, 3)] {
        let numbers = block(to).to_le_bytes().repeat(256);
        device
            .write_at(u64::from(block(table)) * 1024, &numbers)
            .unwrap();
    }
    let fs = mount(device);
    drop(fs.remove(b"/f"));
    let made = fs.create(b"/g", NewInode::File, &Creation::default());
    assert!(made.is_err(), "the damage ends all writing");
}

#[test]
fn files_past_two_tebibytes_need_huge_file() {
    let fs = mount(made("-t ext4 -b 4096 -O ^huge_file", 16_384));
    let new = file(&fs, "f");
    let most = (1u64 << 41) - 4096;
    let size = |size: u64| {
        new.set_attributes(&SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        })
    };
    assert!(matches!(size(most + 1), Err(Error::FileTooBig)));
    assert!(matches!(new.write_at(most, b"x"), Err(Error::FileTooBig)));
    let allocated = new.fallocate(Fallocate::Allocate { keep_size: false }, most - 4096, 8192);
    assert!(matches!(allocated, Err(Error::FileTooBig)), "{allocated:?}");
    assert_eq!(new.write_at(most - 1, b"xy").unwrap(), 1);
    size(most).unwrap();
    let fs = mount(made("-t ext4", 16_384));
    assert_eq!(file(&fs, "f").write_at(1 << 41, b"x").unwrap(), 1);
}

/// A device as long as its superblock says, with zeroes where there is nothing.
#[derive(Debug)]
struct Sparse(Arc<MemoryDevice>, u64);

impl BlockDevice for Sparse {
    fn len(&self) -> u64 {
        self.1
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        buf.fill(0);
        let have = self.0.len().saturating_sub(offset).min(buf.len() as u64);
        match have {
            0 => Ok(()),
            have => self.0.read_at(offset, &mut buf[..have as usize]),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn groups_that_are_not_there_take_no_memory() {
    for (block_len, first) in [(1024u64, 1u32), (4096, 0)] {
        let flags = format!(
            "-t ext4 -b {block_len} -N 64 -O ^metadata_csum,^64bit,^resize_inode,^has_journal,^flex_bg"
        );
        let device = made(&flags, 1024);
        let blocks = u32::MAX - 8;
        let groups = (blocks - first).div_ceil(8);
        let put = |at: u64, value: u32| device.write_at(1024 + at, &value.to_le_bytes()).unwrap();
        for (at, value) in [(0, groups), (4, blocks), (0x20, 8), (0x24, 8), (0x28, 1)] {
            put(at, value);
        }
        let sparse = Sparse(device.clone(), (u64::from(blocks) + 1) * block_len);
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let opened = Volume::open(Arc::new(sparse), clock, &OpenOptions::default());
        assert!(matches!(opened, Err(Error::Corrupt(_))), "{opened:?}");
    }
}

/// A journal whose one transaction puts `block` in the place of block `at`.
fn replaying(device: &MemoryDevice, at: u64, block: &[u8]) -> Arc<MemoryDevice> {
    let content = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(content.path(), block).unwrap();
    let script = format!(
        "jo
jw -b {at} {}
jc
",
        content.path().display()
    );
    changed(device, |image| _ = debugfs_script(script, Some(image)))
}

#[test]
fn a_replayed_superblock_is_judged_before_anything_is_written() {
    let flags = "-t ext4 -b 4096 -J size=8 -O ^metadata_csum,^64bit,^resize_inode";
    let device = made(flags, 32_768);
    let first = device.to_bytes()[..4096].to_vec();
    let word = |at: usize, bits: u32| {
        let mut block = first.clone();
        for (byte, bits) in block[1024 + at..].iter_mut().zip(bits.to_le_bytes()) {
            *byte |= bits;
        }
        block
    };
    let mut smaller = first.clone();
    smaller[1024 + 0x18] = 0;
    let mut no_journal = first.clone();
    no_journal[1024 + 0x5C] &= !4;
    let mut other_journal = first.clone();
    other_journal[1024 + 0xE0] = 7;
    for (what, block, can_read) in [
        ("unknown incompat feature", word(0x60, 0x4000_0000), false),
        ("unknown ro_compat feature", word(0x64, 0x8000_0000), true),
        ("larger than the device", word(4, 0x8000_0000), false),
        ("another block size", smaller, false),
        ("no journal", no_journal, true),
        ("another journal", other_journal, true),
    ] {
        let device = replaying(&device, 0, &block);
        let before = device.to_bytes();
        let read = Image::open(device.clone(), &OpenOptions::default());
        assert_eq!(read.is_ok(), can_read, "{what}: {read:?}");
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let opened = Volume::open(device.clone(), clock, &OpenOptions::default());
        assert!(opened.is_err(), "{what}");
        assert!(before == device.to_bytes(), "{what}: something was written");
    }
    let fs = mount(replaying(&device, 0, &first));
    fs.create(b"/new", NewInode::File, &Creation::default())
        .unwrap();
    fs.close().unwrap();
}

#[test]
fn a_replay_may_change_the_file_of_the_journal_only_behind_the_log() {
    let flags = "-t ext4 -b 4096 -J size=8,location=3000 -O ^metadata_csum,^64bit,^resize_inode";
    let device = made(flags, 32_768);
    let table = left::reader(&device).group_desc(GroupNr(0)).unwrap();
    let table = table.inode_table.0;
    let bytes = device.to_bytes()[table as usize * 4096..][..4096].to_vec();
    let inode = 7 * 256;
    let map = inode + 0x28;
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (blocks, start) = (word(map + 16), word(map + 20));
    assert_eq!((word(map + 12), blocks), (0, 2048), "one extent");
    // Extents and how many blocks they have together.
    let replayed = |extents: &[[u32; 3]]| {
        let mut block = bytes.clone();
        let mut put = |at: usize, bits: u32| block[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        let mut end = 0;
        for (nr, [at, len, start]) in extents.iter().enumerate() {
            put(map + 12 * (nr + 1), *at);
            put(map + 12 * (nr + 1) + 4, *len);
            put(map + 12 * (nr + 1) + 8, *start);
            end = at + len;
        }
        put(inode + 4, end * 4096);
        block[map + 2] = extents.len() as u8;
        let device = replaying(&device, table, &block);
        let before = device.to_bytes();
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let opened = Volume::open(device.clone(), clock, &OpenOptions::default());
        match opened {
            Ok(fs) => fs.close().is_ok(),
            Err(Error::Corrupt(_)) => {
                assert!(before == device.to_bytes(), "something was written");
                false
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert!(replayed(&[[0, 2048, start]]));
    assert!(replayed(&[[0, 1000, start], [1000, 1048, start + 1000]]));
    assert!(replayed(&[[0, 2048, start], [2048, 5, 7000]]));
    assert!(replayed(&[[0, 2050, start]]));
    assert!(!replayed(&[[0, 2048, start + 1]]));
    assert!(!replayed(&[[0, 2047, start]]));
    assert!(!replayed(&[[0, 2047, start], [2047, 5, 7000]]));
}
