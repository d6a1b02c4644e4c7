//! One of everything, on every kind of file system.

use uext4::data::{Fallocate, Seek};
use uext4::xattr::SetMode;
use uext4::{Creation, Error, FollowLast, Image, NewInode, RenameMode, SetAttributes, SetTime};
use uext4_ondisk::Ino;

use super::device::{file, judge, made, mount};

const FLAGS: [&str; 6] = [
    "-t ext4",
    "-t ext4 -b 1024",
    "-t ext4 -O ^has_journal",
    "-t ext4 -O orphan_file,ea_inode,large_dir",
    "-t ext3 -b 1024",
    "-t ext2 -I 128",
];

const FILE: Creation = Creation {
    mode: 0o644,
    umask: 0,
    uid: 1000,
    gid: 1000,
};

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 509 + seed) as u8).collect()
}

#[test]
fn a_reader_of_a_volume_sees_data_that_wait_to_be_written() {
    for flags in FLAGS {
        let device = made(flags, 65_536);
        let fs = mount(device.clone());
        let data = pattern(10_000, 1);
        fs.write("/file", &data).unwrap();
        let image: &Image = &fs;
        let inode = image.resolve("/file", FollowLast::Yes).unwrap();
        assert_eq!(
            (inode.size, image.inode(inode.ino).unwrap().size),
            (10_000, 10_000)
        );
        let mut read = vec![0; 20_000];
        assert_eq!(image.read_at(&inode, 0, &mut read).unwrap(), data.len());
        assert!(read.starts_with(&data));
        assert_eq!(image.read("/file").unwrap(), data);
        let ranges: Result<Vec<_>, _> = image.data_ranges(&inode).unwrap().collect();
        let bytes: u64 = ranges
            .unwrap()
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        assert_eq!(bytes, 10_000);
        // By the same copy of the inode, what was written after it.
        fs.write("/file", b"short").unwrap();
        assert_eq!(image.read_at(&inode, 0, &mut read).unwrap(), 5);
        fs.close().unwrap();
        drop(fs);
        judge(&device, flags);
    }
}

#[test]
fn names_are_made_moved_and_taken() {
    for flags in FLAGS {
        println!("{flags}");
        let device = made(flags, 65_536);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let a = root.create(b"a", NewInode::Directory, &FILE).unwrap();
        let b = a.create(b"b", NewInode::Directory, &FILE).unwrap();
        for i in 0..700 {
            let name = format!("a name of some length, number {i}");
            b.create(name.as_bytes(), NewInode::File, &FILE).unwrap();
        }
        let first = b"a name of some length, number 0";
        assert!(matches!(
            b.create(first, NewInode::File, &FILE),
            Err(Error::Exists)
        ));
        let file = b.lookup(first).unwrap();
        file.link(&a, b"link").unwrap();
        assert_eq!(file.inode().links, 2);
        a.create(b"short", NewInode::Symlink(b"target"), &FILE)
            .unwrap();
        let long = vec![b'x'; 500];
        let link = a.create(b"long", NewInode::Symlink(&long), &FILE).unwrap();
        assert_eq!(link.read_link().unwrap(), long);
        assert!(matches!(a.rmdir(b"b"), Err(Error::NotEmpty)));
        assert!(matches!(
            root.rename(b"a", &b, b"c", RenameMode::Replace),
            Err(Error::Invalid { .. })
        ));
        b.rename(first, &root, b"moved", RenameMode::NoReplace)
            .unwrap();
        root.rename(
            b"moved",
            &b,
            b"a name of some length, number 1",
            RenameMode::Replace,
        )
        .unwrap();
        a.rename(b"b", &root, b"b2", RenameMode::Replace).unwrap();
        root.rename(b"a", &root, b"b2", RenameMode::Exchange)
            .unwrap();
        assert_eq!(root.lookup(b"a").unwrap().ino(), b.ino());
        b.rename(
            b"a name of some length, number 2",
            &root,
            b"w",
            RenameMode::Whiteout(Creation::default()),
        )
        .unwrap();
        for i in 3..700 {
            let name = format!("a name of some length, number {i}");
            b.unlink(name.as_bytes()).unwrap();
        }
        drop((a, b, file, link));
        fs.close().unwrap();
        judge(&device, flags);
    }
}

#[test]
fn contents_are_written_cut_and_read_back() {
    for flags in FLAGS {
        let device = made(flags, 65_536);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let data = pattern(3_000_001, 1);
        let file = root.create(b"f", NewInode::File, &FILE).unwrap();
        for (i, part) in data.chunks(70_001).enumerate() {
            assert_eq!(file.write_at(i as u64 * 70_001, part).unwrap(), part.len());
        }
        let sparse = root.create(b"sparse", NewInode::File, &FILE).unwrap();
        sparse.write_at(10_000_000, b"end").unwrap();
        sparse.write_at(5_000_000, &data[..10_000]).unwrap();
        file.fsync().unwrap();
        let mut read = vec![0; data.len() + 10];
        assert_eq!(file.read_at(0, &mut read).unwrap(), data.len());
        assert!(read[..data.len()] == data, "{flags}");
        let gone = root.create(b"gone", NewInode::File, &FILE).unwrap();
        gone.write_at(0, &data).unwrap();
        root.unlink(b"gone").unwrap();
        assert_eq!(gone.read_at(100, &mut read[..10]).unwrap(), 10);
        drop(gone);
        let size = SetAttributes {
            size: Some(1_000_003),
            ..SetAttributes::default()
        };
        file.set_attributes(&size).unwrap();
        file.append(b"tail").unwrap();
        fs.close().unwrap();
        drop((file, sparse, root));
        judge(&device, flags);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let file = root.lookup(b"f").unwrap();
        assert_eq!(file.read_at(0, &mut read).unwrap(), 1_000_007);
        assert!(read[..1_000_003] == data[..1_000_003] && &read[1_000_003..1_000_007] == b"tail");
        let sparse = root.lookup(b"sparse").unwrap();
        assert_eq!(
            sparse.read_at(4_999_999, &mut read[..10_003]).unwrap(),
            10_003
        );
        assert!(read[0] == 0 && read[1..10_001] == data[..10_000] && read[10_002] == 0);
        assert_eq!(
            sparse.seek(0, Seek::Data).unwrap(),
            Some(5_000_000 / 1024 * 1024)
        );
        drop((file, sparse, root));
        fs.close().unwrap();
        judge(&device, flags);
    }
}

#[test]
fn ranges_and_attributes() {
    for flags in &FLAGS[..4] {
        let device = made(flags, 65_536);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let mut data = pattern(1 << 20, 2);
        let file = root.create(b"f", NewInode::File, &FILE).unwrap();
        file.write_at(0, &data).unwrap();
        file.fallocate(Fallocate::PunchHole, 100_001, 300_000)
            .unwrap();
        data[100_001..400_001].fill(0);
        file.fallocate(Fallocate::ZeroRange { keep_size: true }, 500_000, 100_000)
            .unwrap();
        data[500_000..600_000].fill(0);
        file.fallocate(Fallocate::CollapseRange, 65_536, 131_072)
            .unwrap();
        data.drain(65_536..65_536 + 131_072);
        file.fallocate(Fallocate::InsertRange, 8192, 65_536)
            .unwrap();
        data.splice(8192..8192, std::iter::repeat_n(0, 65_536));
        file.fallocate(Fallocate::Allocate { keep_size: false }, 2_000_000, 100_000)
            .unwrap();
        data.resize(2_100_000, 0);
        file.write_at(2_050_000, b"in unwritten blocks").unwrap();
        data[2_050_000..2_050_019].copy_from_slice(b"in unwritten blocks");
        let mut read = vec![1; data.len() + 1];
        assert_eq!(file.read_at(0, &mut read).unwrap(), data.len());
        assert!(read[..data.len()] == data, "{flags}");
        for (name, len) in [("user.a", 3), ("user.b", 500), ("trusted.c", 0)] {
            let value = pattern(len, 9);
            file.set_xattr(name.as_bytes(), Some(&value), SetMode::Create)
                .unwrap();
            assert_eq!(file.xattr(name.as_bytes()).unwrap(), value);
        }
        file.set_xattr(b"user.a", None, SetMode::Replace).unwrap();
        let change = SetAttributes {
            mode: Some(0o4711),
            uid: Some(70_000),
            mtime: Some(SetTime::Now),
            ..SetAttributes::default()
        };
        file.set_attributes(&change).unwrap();
        assert_eq!(file.inode().uid, 70_000);
        fs.sync().unwrap();
        drop((file, root));
        fs.close().unwrap();
        judge(&device, flags);
        let fs = mount(device.clone());
        let file = fs.root().unwrap().lookup(b"f").unwrap();
        assert_eq!(file.read_at(0, &mut read).unwrap(), data.len());
        assert!(read[..data.len()] == data, "{flags}");
        assert_eq!(file.xattrs().unwrap().len(), 2);
    }
}

#[test]
fn deleted_inodes_are_not_opened_again() {
    for flags in ["-t ext4", "-t ext4 -O orphan_file", "-t ext2"] {
        let device = made(flags, 65_536);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let file = root.create(b"file", NewInode::File, &FILE).unwrap();
        let ino = file.ino();
        root.unlink(b"file").unwrap();
        // It is there as long as a thread has it.
        fs.sync().unwrap();
        fs.open_inode(ino).unwrap().write_at(0, b"more").unwrap();
        drop(file);
        for number in [ino, Ino(ino.0 + 1), Ino(0), Ino(u32::MAX)] {
            let opened = fs.open_inode(number);
            assert!(matches!(opened, Err(Error::NotFound)), "{flags}: {number}");
        }
        fs.sync().unwrap();
        assert!(matches!(fs.open_inode(ino), Err(Error::NotFound)));
        root.create(b"other", NewInode::File, &FILE).unwrap();
        drop(root);
        fs.close().unwrap();
        judge(&device, flags);
    }
}

#[test]
fn what_has_no_name_takes_that_of_another() {
    for flags in FLAGS {
        println!("{flags}");
        let device = made(flags, 65_536);
        let fs = mount(device.clone());
        let root = fs.root().unwrap();
        let dir = root.create(b"dir", NewInode::Directory, &FILE).unwrap();
        let old = dir.create(b"name", NewInode::File, &FILE).unwrap();
        old.write_at(0, &pattern(300_000, 1)).unwrap();
        old.link(&root, b"kept").unwrap();
        let new = dir.create_unnamed(NewInode::File, &FILE).unwrap();
        new.write_at(0, &pattern(200_000, 2)).unwrap();
        new.link_over(&dir, b"name").unwrap();
        assert_eq!((new.inode().links, old.inode().links), (1, 1));
        assert_eq!(dir.lookup(b"name").unwrap().ino(), new.ino());
        // An inode that has a name gets one more; its own stays as it is.
        old.link_over(&dir, b"name").unwrap();
        old.link_over(&dir, b"name").unwrap();
        assert_eq!((new.inode().links, old.inode().links), (0, 2));
        assert!(matches!(new.link_over(&dir, b"name"), Err(Error::NotFound)));
        let link = NewInode::Symlink(&[b'x'; 300]);
        let link = dir.create_unnamed(link, &FILE).unwrap();
        assert!(matches!(
            link.link_over(&dir, b"none"),
            Err(Error::NotFound)
        ));
        assert!(matches!(
            link.link_over(&root, b"dir"),
            Err(Error::IsDirectory)
        ));
        assert!(matches!(
            dir.link_over(&root, b"kept"),
            Err(Error::NotPermitted { .. })
        ));
        link.link_over(&root, b"kept").unwrap();
        assert_eq!(
            root.lookup(b"kept").unwrap().read_link().unwrap(),
            [b'x'; 300]
        );
        assert_eq!(old.inode().links, 1);
        let directory = dir.create_unnamed(NewInode::Directory, &FILE);
        assert!(matches!(directory, Err(Error::Invalid { .. })));
        drop((old, new, link, dir, root));
        fs.close().unwrap();
        judge(&device, flags);
    }
}

#[test]
fn an_inode_of_a_reader_is_not_another_file_of_the_same_number() {
    let device = made("-t ext4", 8192);
    let fs = mount(device.clone());
    file(&fs, "one").write_at(0, b"one").unwrap();
    let stale = fs.metadata("/one").unwrap();
    fs.remove("/one").unwrap();
    fs.sync().unwrap();
    let mut names = (0..100).map(|i| file(&fs, &format!("other{i}")));
    let other = names.find(|other| other.ino() == stale.ino).unwrap();
    other.write_at(0, b"two").unwrap();
    let mut buf = [0; 3];
    let read = fs.image().read_at(&stale, 0, &mut buf);
    assert!(matches!(read, Err(Error::NotFound)), "{read:?} {buf:?}");
    assert_eq!(
        fs.inode(stale.ino).unwrap().generation,
        other.inode().generation
    );
    fs.close().unwrap();
}
