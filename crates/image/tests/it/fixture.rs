//! A directory with one of everything, and what is needed to make one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags};
use uext4_ondisk::acl::{Acl, AclEntry, AclTag};
pub use uext4_testkit::{has_tool, is_root};

/// Sets the time of modification, and of access to one second later.
pub fn set_time(path: &Path, tv_sec: i64, tv_nsec: i64) {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: tv_sec + 1,
            tv_nsec,
        },
        last_modification: Timespec { tv_sec, tv_nsec },
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// An ACL with a named user, in wire form.
pub fn acl(user: u32, perm: u16) -> Vec<u8> {
    let entry = |tag, perm| AclEntry { tag, perm };
    let entries = vec![
        entry(AclTag::UserObj, 6),
        entry(AclTag::User(user), perm),
        entry(AclTag::GroupObj, 4),
        entry(AclTag::Mask, 7),
        entry(AclTag::Other, 0),
    ];
    Acl { entries }.to_wire()
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// Makes one of everything below `dir`; what only root can make, only for root.
pub fn populate(dir: &Path) {
    let at = |name: &str| dir.join(name);
    fs::create_dir_all(at("sub/deep/er")).unwrap();
    fs::create_dir(at("empty-dir")).unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("hello"), "hello, world\n").unwrap();
    fs::write(at("sub/block"), [7; 4096]).unwrap();
    fs::write(at("sub/deep/big"), pattern(300_001)).unwrap();
    fs::write(at(&"n".repeat(255)), "long name").unwrap();
    let long = format!("sub/{}/{}", "d".repeat(120), "e".repeat(130));
    fs::create_dir_all(at(&long)).unwrap();
    fs::write(at(&long).join("f".repeat(100)), "long path").unwrap();
    fs::write(at("zoë-日本"), "utf-8").unwrap();
    fs::write(dir.join(OsStr::from_bytes(b"bytes-\xFF\xFE\n")), "bytes").unwrap();
    symlink("hello", at("link")).unwrap();
    symlink("x/".repeat(100), at("long-link")).unwrap();
    fs::hard_link(at("hello"), at("sub/hello-again")).unwrap();
    fs::hard_link(at("hello"), at("zz-hello")).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.write_all_at(&pattern(5000), 1 << 20).unwrap();
    sparse.write_all_at(&pattern(4096), 3 << 20).unwrap();
    sparse.set_len(50 << 20).unwrap();
    File::create(at("all-hole"))
        .unwrap()
        .set_len(1 << 33)
        .unwrap();
    let fifo = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, at("fifo"), rustix::fs::FileType::Fifo, fifo, 0).unwrap();
    set_xattr(&at("hello"), "user.small", b"value");
    set_xattr(&at("hello"), "user.binary", &[0, 1, b'\n', b'=', 255]);
    set_xattr(&at("sub"), "user.dir", &pattern(700));
    set_xattr(&at("sub/block"), "system.posix_acl_access", &acl(1234, 5));
    set_xattr(&at("sub"), "system.posix_acl_default", &acl(0, 7));
    for (name, mode) in [("empty", 0o000), ("hello", 0o4755), ("sub/deep", 0o1777)] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    if is_root() {
        set_xattr(&at("link"), "trusted.of-a-link", b"t");
        set_xattr(&at("hello"), "security.capability", &CAPABILITY);
        let chown = |name, uid| std::os::unix::fs::lchown(at(name), Some(uid), Some(uid + 1));
        chown("sub/deep/big", 100_000).unwrap();
        chown("link", 4_000_000_000).unwrap();
        let device = |name, kind, major, minor| {
            let number = rustix::fs::makedev(major, minor);
            rustix::fs::mknodat(CWD, at(name), kind, fifo, number).unwrap();
        };
        device("char", rustix::fs::FileType::CharacterDevice, 5, 1);
        device("block", rustix::fs::FileType::BlockDevice, 259, 300_000);
        fs::write(at("owned-0000"), "secret").unwrap();
        chown("owned-0000", 70_000).unwrap();
        fs::set_permissions(at("owned-0000"), fs::Permissions::from_mode(0o000)).unwrap();
    }
    set_time(&at("sub/block"), -315_619_200, 0);
    set_time(&at("hello"), 2_208_988_800, 123_456_789);
    set_time(&at("link"), 1_000_000_000, 987_654_321);
    set_time(&at("empty"), 4_500_000_000, 5);
    set_time(&at("sub/deep"), 0, 1);
}

/// cap_net_raw+ep, as `setcap` writes it.
const CAPABILITY: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Bytes that repeat only after long.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i % 251) as u8 ^ (i / 251) as u8)
        .collect()
}

/// Runs a command in `dir`; what it prints is shown only if it fails.
pub fn run(dir: &Path, command: &[&str]) {
    let output = Command::new(command[0])
        .args(&command[1..])
        .current_dir(dir)
        .output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", command[0]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

/// A member of a ustar archive: its name, type, owner and group, target and contents.
#[allow(dead_code)] // Used by some of those that have this file.
pub fn tar_member(
    name: &str,
    kind: u8,
    owner: (u32, u32),
    target: &str,
    contents: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    let mut put = |at: usize, text: &str| {
        bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, "0000644");
    put(108, &format!("{:07o}", owner.0));
    put(116, &format!("{:07o}", owner.1));
    put(124, &format!("{:011o}", contents.len()));
    put(136, "00000000001");
    put(148, "        ");
    put(157, target);
    put(257, "ustar\x0000");
    bytes[156] = kind;
    let sum: u32 = bytes.iter().copied().map(u32::from).sum();
    bytes[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    bytes.extend_from_slice(contents);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}
