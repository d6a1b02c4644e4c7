//! A tree with one of everything, over the features that change what lies where.

use uext4::NewInode;
use uext4::bulk::Attributes;
use uext4::format::DeviceNumber;

use super::maker::{Maker, attributes, bytes};

fn xattr(name: &str, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (name.as_bytes().to_vec(), value.to_vec())
}

/// File capabilities, version 2.
fn capability(permitted: u8) -> Vec<u8> {
    let mut value = vec![0; 20];
    (value[3], value[4]) = (2, permitted);
    value
}

/// An access ACL in the form of the system calls: one user in addition to the owner.
pub fn acl() -> Vec<u8> {
    let mut acl = vec![2, 0, 0, 0];
    let none = [0xFF; 4];
    for (tag, perm, id) in [
        (1u8, 6u8, none),
        (2, 4, [0xE8, 3, 0, 0]),
        (4, 4, none),
        (16, 4, none),
        (32, 0, none),
    ] {
        acl.extend_from_slice(&[tag, 0, perm, 0]);
        acl.extend_from_slice(&id);
    }
    acl
}

fn with_xattrs(number: u32, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Attributes {
    Attributes {
        xattrs,
        ..attributes(0o640, number)
    }
}

/// One of everything.
fn fill(maker: &mut Maker) {
    maker.dir(b"a");
    maker.dir(b"a/deep");
    maker.dir(b"empty dir");
    for (i, len) in [0, 1, 59, 60, 1023, 4096, 4097, 70_001, 700_000]
        .into_iter()
        .enumerate()
    {
        let path = format!("a/file{len}");
        let data = bytes(len as u64, len);
        maker.file(
            path.as_bytes(),
            &data,
            &attributes(0o4644, i as u32 * 70_000),
        );
    }
    let mut data = vec![0; 3_000_000];
    let ranges = [
        5u64..9,
        4_096..12_288,
        500_000..500_001,
        2_000_000..2_900_000,
    ];
    for range in &ranges {
        let range = range.start as usize..range.end as usize;
        let len = range.len();
        data[range].copy_from_slice(&bytes(1, len));
    }
    maker.sparse_file(b"a/sparse", &data, &ranges, &attributes(0o600, 3));
    maker.sparse_file(b"a/hole", &[0; 100_000], &[], &attributes(0o600, 4));
    for len in [1, 59, 60, 300, 1000] {
        let target = vec![b't'; len];
        let path = format!("a/link{len}");
        let attributes = attributes(0o777, len as u32);
        maker.make(path.as_bytes(), NewInode::Symlink(&target), &attributes);
    }
    let device = |major, minor| DeviceNumber { major, minor };
    for (path, kind) in [
        ("null", NewInode::CharDevice(device(1, 3))),
        ("big", NewInode::BlockDevice(device(259, 70_000))),
        ("fifo", NewInode::Fifo),
        ("socket", NewInode::Socket),
    ] {
        maker.make(path.as_bytes(), kind, &attributes(0o620, 9));
    }
    maker.link(b"another name", b"a/file4097");
    maker.link(b"a/deep/fifo", b"fifo");
    fill_attributes(maker);
    maker.dir(b"many");
    for i in 0..1_000u32 {
        let path = format!("many/a name that is long enough to fill some blocks {i}");
        maker.file(path.as_bytes(), path.as_bytes(), &attributes(0o644, i));
    }
    for i in 0..200u32 {
        maker.dir(format!("many/dir{i}").as_bytes());
    }
}

/// ACLs, and attributes in the inode and in a block, shared and not.
fn fill_attributes(maker: &mut Maker) {
    maker.file(
        b"acl",
        b"x",
        &with_xattrs(
            1,
            vec![
                xattr("system.posix_acl_access", &acl()),
                xattr("user.a", b""),
            ],
        ),
    );
    let mut default = with_xattrs(2, vec![xattr("system.posix_acl_default", &acl())]);
    default.mode = 0o2755;
    maker.make(b"acl dir", NewInode::Directory, &default);
    maker.file(b"acl dir/child", b"y", &attributes(0o600, 2));
    for i in 0..5u8 {
        let path = format!("shared{i}");
        let xattrs = vec![
            xattr("user.large", &bytes(7, 600)),
            xattr("security.capability", &capability(i / 4)),
            xattr("trusted.t", b"value"),
        ];
        maker.file(path.as_bytes(), &[i; 10], &with_xattrs(i.into(), xattrs));
    }
}

fn run(size: &str, arguments: &[&str]) {
    let mut maker = Maker::new(size, arguments);
    fill(&mut maker);
    maker.check(&arguments.join(" "));
}

macro_rules! images {
    ($($name:ident: $size:literal $($argument:literal)*;)*) => {$(
        #[test]
        fn $name() {
            run($size, &[$($argument),*]);
        }
    )*};
}

images! {
    ext2: "64M" "-t" "ext2" "-N" "4000";
    ext3: "64M" "-t" "ext3" "-N" "4000";
    ext4: "64M" "-t" "ext4" "-N" "4000";
    ext2_1k: "64M" "-t" "ext2" "-b" "1024";
    ext3_1k_small_inodes: "64M" "-t" "ext3" "-b" "1024" "-I" "128";
    ext4_1k: "64M" "-t" "ext4" "-b" "1024";
    ext4_2k: "64M" "-t" "ext4" "-b" "2048" "-N" "4000";
    large_inodes: "64M" "-t" "ext4" "-I" "1024" "-N" "4000";
    small_inodes: "64M" "-t" "ext4" "-I" "128" "-N" "4000";
    no_filetype: "64M" "-t" "ext2" "-O" "^filetype" "-N" "4000";
    no_dir_index: "64M" "-t" "ext4" "-O" "^dir_index" "-N" "4000";
    uninit_bg: "64M" "-t" "ext4" "-O" "^metadata_csum,uninit_bg" "-N" "4000";
    no_checksums: "64M" "-t" "ext4" "-O" "^metadata_csum,^uninit_bg" "-N" "4000";
    no_64bit: "64M" "-t" "ext4" "-O" "^64bit" "-N" "4000";
    checksum_seed: "64M" "-t" "ext4" "-O" "metadata_csum_seed" "-N" "4000";
    ea_inode: "64M" "-t" "ext4" "-O" "ea_inode" "-N" "4000";
    meta_bg: "64M" "-t" "ext4" "-O" "meta_bg,^resize_inode" "-b" "1024";
    sparse_super2: "64M" "-t" "ext4" "-O" "sparse_super2" "-b" "1024";
    large_dir: "64M" "-t" "ext4" "-O" "large_dir" "-b" "1024";
    orphan_file: "64M" "-t" "ext4" "-O" "orphan_file" "-N" "4000";
    mmp: "64M" "-t" "ext4" "-O" "mmp" "-N" "4000";
    no_flex: "64M" "-t" "ext4" "-O" "^flex_bg" "-g" "8192" "-N" "4000";
    tiny_groups: "64M" "-t" "ext4" "-b" "1024" "-g" "256";
    hash_tea: "64M" "-t" "ext4" "-E" "hash_seed=6b33f586-a183-4383-921d-30da3fef2e5c" "-b" "1024";
}
