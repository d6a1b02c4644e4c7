//! What cannot be is refused, with an error that says why.

use std::io;
use std::sync::Arc;

use uext4::bulk::{Attributes, Creator, CreatorOptions, FileContent};
use uext4::{Error, Ino, NewInode};
use uext4_blockdev::{Access, FileDevice};

use super::maker::{Maker, attributes, bytes};
use crate::mke2fs::mke2fs;

#[test]
fn features_that_are_not_written_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for (feature, arguments) in [
        ("bigalloc", &["-t", "ext4", "-O", "bigalloc"][..]),
        ("encrypt", &["-t", "ext4", "-O", "encrypt"]),
        ("casefold", &["-t", "ext4", "-O", "casefold"]),
    ] {
        let _ = std::fs::remove_file(&path);
        mke2fs(&path, arguments, None, "64M");
        let before = std::fs::read(&path).unwrap();
        let device = Arc::new(FileDevice::open(&path, Access::ReadWrite).unwrap());
        match Creator::open(device, &CreatorOptions::default()) {
            Err(Error::Unsupported { what }) => assert_eq!(what, feature),
            other => panic!("{feature}: {other:?}"),
        }
        assert!(
            before == std::fs::read(&path).unwrap(),
            "{feature}: written to"
        );
    }
}

#[test]
fn names_and_kinds() {
    let mut maker = Maker::new("64M", &["-t", "ext4", "-b", "1024"]);
    let file = maker.file(b"file", b"x", &attributes(0o600, 1));
    let dir = maker.dir(b"dir");
    let root = Ino::ROOT;
    let plain = attributes(0o600, 1);
    let creator = maker.creator();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        let result = creator.create(root, name, NewInode::File, &plain);
        assert!(matches!(result, Err(Error::Invalid { .. })), "{name:?}");
    }
    let long = [b'n'; 256];
    let result = creator.create(root, &long, NewInode::File, &plain);
    assert!(matches!(result, Err(Error::NameTooLong)));
    let result = creator.create(file, b"a", NewInode::File, &plain);
    assert!(matches!(result, Err(Error::NotDirectory)));
    let result = creator.link(root, b"b", dir);
    assert!(matches!(result, Err(Error::IsDirectory)));
    for (target, too_long) in [(vec![b't'; 1024], true), (vec![], false), (vec![0], false)] {
        let result = creator.create(root, b"l", NewInode::Symlink(&target), &plain);
        match result {
            Err(Error::TargetTooLong { len, block_len }) => {
                assert!(too_long && len >= block_len);
            }
            Err(Error::Invalid { .. }) => assert!(!too_long),
            other => panic!("{other:?}"),
        }
    }
    for ranges in [&[5u64..3][..], &[0..5, 4..6], &[0..11]] {
        let result = creator.write_file(file, 10, ranges, &mut &b"0123456789"[..]);
        assert!(matches!(result, Err(Error::Invalid { .. })), "{ranges:?}");
    }
    // None of that did any harm.
    maker.check("after refusals");
}

#[test]
fn a_name_twice_is_found_at_the_end() {
    for count in [1, 1_000] {
        let mut maker = Maker::new("64M", &["-t", "ext4", "-N", "4000"]);
        for i in 0..count {
            let name = format!("a name of the usual length {i}");
            maker.make(name.as_bytes(), NewInode::File, &attributes(0o600, 1));
        }
        let name = b"a name of the usual length 0";
        maker.make(name, NewInode::File, &attributes(0o600, 1));
        let finished = maker.creator.take().unwrap().finish();
        assert!(
            matches!(finished, Err(Error::Exists)),
            "{count}: {finished:?}"
        );
    }
}

#[test]
fn no_space_says_how_much_was_needed() {
    let mut maker = Maker::new("16M", &["-t", "ext4", "-b", "1024"]);
    let free = maker.creator().free_blocks();
    let ino = maker.make(b"file", NewInode::File, &attributes(0o600, 1));
    let len = (free + 1) * 1024;
    let whole = 0..len;
    let result = maker
        .creator()
        .write_file(ino, len, &[whole], &mut &b""[..]);
    match result {
        Err(Error::NoSpace { needed, free: left }) => {
            assert_eq!((needed, left), (free + 1, free));
        }
        other => panic!("{other:?}"),
    }
    assert!(maker.creator.take().unwrap().finish().is_err());
}

#[test]
fn every_block_can_be_used() {
    for arguments in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let mut maker = Maker::new("16M", arguments);
        let mut number = 0;
        loop {
            // What is left when the files do not fit any more goes into single blocks.
            let free = maker.creator().free_blocks();
            let blocks = if free > 700 { 137 } else { 1 };
            if free == 0 {
                break;
            }
            let data = bytes(number, blocks * 1024);
            let path = format!("{number}");
            maker.file(path.as_bytes(), &data, &attributes(0o600, number as u32));
            number += 1;
        }
        assert!(matches!(
            maker.creator.take().unwrap().finish(),
            Ok(_) | Err(Error::NoSpace { .. })
        ));
    }
}

#[test]
fn no_inodes() {
    let mut maker = Maker::new("16M", &["-t", "ext4", "-N", "32"]);
    let mut made = 0;
    let error = loop {
        let name = format!("{made}");
        let plain = attributes(0o600, 1);
        match maker
            .creator()
            .create(Ino::ROOT, name.as_bytes(), NewInode::File, &plain)
        {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoInodes { count: 32 }), "{error:?}");
    assert_eq!(made, 32 - 11);
}

#[test]
fn attributes_too_large_without_ea_inode() {
    let mut maker = Maker::new("16M", &["-t", "ext4", "-b", "1024"]);
    let large = Attributes {
        xattrs: vec![(b"user.a".to_vec(), vec![1; 2_000])],
        ..attributes(0o600, 1)
    };
    let result = maker
        .creator()
        .create(Ino::ROOT, b"a", NewInode::File, &large);
    assert!(
        matches!(result, Err(Error::XattrsTooBig { room: 992, .. })),
        "{result:?}"
    );
}

/// Ends after some bytes.
struct Short(u64);

impl FileContent for Short {
    fn read_exact_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset + buf.len() as u64 > self.0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buf.fill(7);
        Ok(())
    }
}

#[test]
fn errors_of_the_source_are_passed_on() {
    let mut maker = Maker::new("64M", &["-t", "ext4"]);
    let ino = maker.make(b"file", NewInode::File, &attributes(0o600, 1));
    let len = 8_000_000;
    let whole = 0..len;
    let result = maker
        .creator()
        .write_file(ino, len, &[whole], &mut Short(5_000_000));
    match result {
        Err(Error::Content { offset, source }) => {
            assert!(offset <= 5_000_000);
            assert_eq!(source.kind(), io::ErrorKind::UnexpectedEof);
        }
        other => panic!("{other:?}"),
    }
    let plain = attributes(0o600, 1);
    assert!(
        maker
            .creator()
            .create(Ino::ROOT, b"b", NewInode::File, &plain)
            .is_err()
    );
    assert!(maker.creator.take().unwrap().finish().is_err());
}
