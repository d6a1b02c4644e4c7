//! Times, attributes, identity: what is stored is what was given, and always the same.

use std::path::Path;
use std::sync::Arc;

use uext4::bulk::{Attributes, Creator, CreatorOptions};
use uext4::{FollowLast, Image, Ino, InodeFlags, NewInode, OpenOptions, Timestamp, Volume};
use uext4_blockdev::{BlockDevice, SystemClock};
use uext4_testkit::run;

use super::maker::{Maker, attributes, bytes, e2fsck};
use crate::mke2fs::mke2fs;

fn at(sec: i64, nsec: u32) -> Timestamp {
    Timestamp { sec, nsec }
}

#[test]
fn times_from_1901_to_2446() {
    for (inode_size, max) in [("256", Timestamp::MAX_SEC), ("128", i64::from(i32::MAX))] {
        let mut maker = Maker::new("64M", &["-t", "ext4", "-I", inode_size]);
        let times = [
            -5_000_000_000,
            -2_147_483_648,
            -1,
            0,
            1 << 31,
            1 << 33,
            1 << 40,
        ];
        for (i, &sec) in times.iter().enumerate() {
            let attributes = Attributes {
                atime: at(sec, 1),
                mtime: at(sec, 999_999_999),
                ctime: at(sec, 2),
                crtime: at(sec, 3),
                ..attributes(0o644, 1)
            };
            maker.make(format!("{i}").as_bytes(), NewInode::File, &attributes);
        }
        maker.finish_and_fsck("times");
        let fs = crate::tree::open(&maker.image());
        for (i, &sec) in times.iter().enumerate() {
            let inode = fs
                .resolve(format!("{i}").as_bytes(), FollowLast::No)
                .unwrap();
            let sec = sec.clamp(Timestamp::MIN_SEC, max);
            if inode_size == "256" {
                assert_eq!(inode.mtime, at(sec, 999_999_999));
                assert_eq!(inode.atime, at(sec, 1));
                assert_eq!(inode.ctime, at(sec, 2));
                assert_eq!(inode.crtime, Some(at(sec, 3)));
            } else {
                assert_eq!((inode.mtime, inode.crtime), (at(sec, 0), None));
            }
        }
    }
}

#[test]
fn flags_and_projects() {
    let mut maker = Maker::new("64M", &["-t", "ext4", "-O", "project"]);
    let all = Attributes {
        flags: InodeFlags::all(),
        projid: 77,
        ..attributes(0o755, 1)
    };
    maker.make(b"file", NewInode::File, &all);
    maker.make(b"dir", NewInode::Directory, &all);
    maker.make(b"fifo", NewInode::Fifo, &all);
    maker.finish_and_fsck("flags");
    let fs = crate::tree::open(&maker.image());
    let get = |name: &[u8]| fs.resolve(name, FollowLast::No).unwrap();
    let kept = InodeFlags::IMMUTABLE | InodeFlags::APPEND | InodeFlags::NODUMP;
    assert!(get(b"file").has(kept | InodeFlags::EXTENTS));
    assert!(!get(b"file").has(InodeFlags::INLINE_DATA));
    assert!(get(b"dir").has(kept | InodeFlags::TOPDIR | InodeFlags::PROJINHERIT));
    assert_eq!(get(b"fifo").flags, InodeFlags::NODUMP | InodeFlags::NOATIME);
    for name in [&b"file"[..], b"dir", b"fifo"] {
        assert_eq!(get(name).projid, 77);
    }
}

#[test]
fn root_and_lost_found_take_attributes_and_names() {
    for arguments in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024"]] {
        let mut maker = Maker::new("64M", arguments);
        let creator = maker.creator();
        let lost = creator.lookup(Ino::ROOT, b"lost+found").unwrap().unwrap();
        assert_eq!(creator.lookup(Ino::ROOT, b"nothing").unwrap(), None);
        let mut root = attributes(0o1777, 123_456);
        root.xattrs = vec![(b"user.large".to_vec(), bytes(4, 500))];
        // Twice: what was there before is given back.
        creator.set_attributes(Ino::ROOT, &root).unwrap();
        let free = creator.free_blocks();
        root.xattrs[0].1[0] ^= 1;
        creator.set_attributes(Ino::ROOT, &root).unwrap();
        assert_eq!(creator.free_blocks(), free);
        creator.set_attributes(lost, &attributes(0o700, 5)).unwrap();
        creator
            .create(lost, b"found", NewInode::File, &attributes(0o600, 6))
            .unwrap();
        maker.finish_and_fsck("root");
        let fs = crate::tree::open(&maker.image());
        let inode = fs.inode(Ino::ROOT).unwrap();
        assert_eq!((inode.mode, inode.uid, inode.links), (0o41777, 123_456, 3));
        assert_eq!(fs.xattrs(&inode).unwrap()[0].value, root.xattrs[0].1);
        let found = fs.resolve(b"lost+found/found", FollowLast::No).unwrap();
        assert_eq!(found.uid, 6);
    }
}

#[test]
fn equal_blocks_of_attributes_are_shared_by_1024() {
    let mut maker = Maker::new("64M", &["-t", "ext4", "-N", "4000"]);
    let mut with = attributes(0o600, 1);
    with.xattrs = vec![(b"user.x".to_vec(), bytes(5, 900))];
    let free = maker.creator().free_blocks();
    for i in 0..2050 {
        maker.make(format!("{i}").as_bytes(), NewInode::File, &with);
    }
    assert_eq!(free - maker.creator().free_blocks(), 3);
    maker.check("shared");
}

#[test]
fn large_values_have_inodes_of_their_own() {
    for arguments in [
        &["-t", "ext4", "-O", "ea_inode", "-N", "4000"][..],
        &["-t", "ext4", "-O", "ea_inode", "-b", "1024", "-I", "128"],
        &["-t", "ext2", "-O", "ea_inode", "-b", "1024"],
    ] {
        let mut maker = Maker::new("64M", arguments);
        let inodes = maker.creator().free_inodes();
        for i in 0..3u64 {
            let mut with = attributes(0o600, i as u32);
            with.xattrs = vec![
                (b"user.a".to_vec(), bytes(6, 60_000)),
                (b"user.b".to_vec(), bytes(7 + i, 5_000)),
                (b"user.c".to_vec(), bytes(8, 700)),
                (b"trusted.d".to_vec(), bytes(9, 700)),
            ];
            maker.file(format!("{i}").as_bytes(), b"data", &with);
        }
        // The first value is the same three times; with 1 KiB blocks one of the last two moves out.
        let taken = inodes - maker.creator().free_inodes();
        assert!((7..=8).contains(&taken), "{taken} inodes");
        maker.check(&arguments.join(" "));
    }
}

/// What is reckoned beforehand has all equal values share, however many others come in between.
#[test]
fn values_are_shared_after_many_others() {
    let arguments = &["-t", "ext4", "-O", "ea_inode", "-N", "4000"];
    let mut maker = Maker::new("64M", arguments);
    let inodes = maker.creator().free_inodes();
    let mut seeds: Vec<u64> = (0..300).map(|i| i * 2).collect();
    seeds.push(0);
    for (i, seed) in (0u32..).zip(seeds) {
        let mut with = attributes(0o600, i);
        with.xattrs = vec![(b"user.a".to_vec(), bytes(seed, 40_000))];
        maker.file(i.to_string().as_bytes(), b"", &with);
    }
    assert_eq!(inodes - maker.creator().free_inodes(), 301 + 300);
    maker.check("values shared after many others");
}

/// The bytes of a small image made in memory.
fn image_bytes(options: &CreatorOptions) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let uuid = "6b33f586-a183-4383-921d-30da3fef2e5c";
    let seed = format!("hash_seed={uuid}");
    let arguments = ["-t", "ext4", "-U", uuid, "-E", &seed, "-N", "2000"];
    // mke2fs has no other way to be reported the time.
    let mke2fs = ["E2FSPROGS_FAKE_TIME=1700000000", "mke2fs", "-q", "-F"];
    let place = [path.to_str().unwrap(), "16M"];
    run("env", mke2fs.iter().chain(&arguments).chain(&place));
    let device = uext4_testkit::loaded(&path);
    let mut creator = Creator::open(device.clone(), options).unwrap();
    for i in 0..1_000u32 {
        let name = format!("a name of some length {i}");
        let attributes = attributes(0o644, i);
        let ino = creator
            .create(Ino::ROOT, name.as_bytes(), NewInode::File, &attributes)
            .unwrap();
        let data = bytes(i.into(), i as usize * 3);
        creator
            .write_file(
                ino,
                data.len() as u64,
                &[0..data.len() as u64],
                &mut data.as_slice(),
            )
            .unwrap();
    }
    creator.finish().unwrap();
    device.to_bytes()
}

#[test]
fn same_calls_same_bytes() {
    let first = image_bytes(&CreatorOptions::default());
    // Neither memory nor the buffer changes a byte, only when they are written.
    let tight = CreatorOptions {
        memory_max: 1 << 18,
        buffer_len: 64 << 10,
        ..CreatorOptions::default()
    };
    assert!(first == image_bytes(&CreatorOptions::default()));
    assert!(first == image_bytes(&tight));
}

/// A large directory, and many small ones with an index and without.
fn directories(made: &Path, threads: usize) -> Vec<u8> {
    let device = uext4_testkit::loaded(made);
    let options = CreatorOptions {
        threads: threads.try_into().unwrap(),
        ..CreatorOptions::default()
    };
    let mut creator = Creator::open(device.clone(), &options).unwrap();
    let node = attributes(0o755, 1);
    let file = creator
        .create(Ino::ROOT, b"file", NewInode::File, &node)
        .unwrap();
    for i in 0..100u32 {
        let node = attributes(0o644, i << 10);
        let name = format!("of another owner {i}");
        let made = creator.create(Ino::ROOT, name.as_bytes(), NewInode::File, &node);
        made.unwrap();
    }
    for (dirs, names) in [(1, 40_000u32), (200, 100), (300, 12)] {
        for i in 0..dirs {
            let name = format!("{names} {i}");
            let kind = NewInode::Directory;
            let dir = creator.create(Ino::ROOT, name.as_bytes(), kind, &node);
            let dir = dir.unwrap();
            for i in 0..names {
                // Links need no inodes; a file may have 65,000 of them.
                let name = format!("name {i}");
                let linked = creator.link(dir, name.as_bytes(), file);
                linked.unwrap_or_else(|_| panic!("{name}"));
            }
        }
    }
    creator.finish().unwrap();
    device.to_bytes()
}

#[test]
fn the_number_of_threads_does_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "inline_data,quota",
        "-N",
        "4096",
    ];
    mke2fs(&path, &args, None, "64M");
    let one = directories(&path, 1);
    for threads in [2, 8] {
        assert!(one == directories(&path, threads), "{threads} threads");
    }
}

#[test]
fn nothing_is_valid_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    mke2fs(&path, &["-t", "ext4"], None, "16M");
    let device = uext4_testkit::loaded(&path);
    let options = OpenOptions::default();
    // By its backups it can be read, with a word that they were used.
    let is_whole = || {
        let device = device.clone() as Arc<dyn BlockDevice>;
        let opened = Image::open(device, &options).unwrap();
        opened.rescue().superblock.is_none()
    };
    assert!(is_whole());
    let mut creator = Creator::open(device.clone(), &CreatorOptions::default()).unwrap();
    assert!(!is_whole());
    creator
        .create(Ino::ROOT, b"a", NewInode::File, &attributes(0o600, 1))
        .unwrap();
    assert!(!is_whole());
    drop(creator);
    assert!(!is_whole());
    let writing = Volume::open(device.clone(), Arc::new(SystemClock), &options);
    assert!(writing.is_err());
    // Nor can it be taken over once more.
    assert!(Creator::open(device, &CreatorOptions::default()).is_err());
}

#[test]
fn untouched_is_finished_as_it_was() {
    let mut maker = Maker::new("64M", &["-t", "ext4"]);
    let before = maker.creator().free_blocks();
    let summary = maker.finish_and_fsck("untouched");
    assert_eq!(summary.free_blocks, before);
    e2fsck(&maker.image(), "again");
}
