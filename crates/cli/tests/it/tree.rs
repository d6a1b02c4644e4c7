//! A tree with everything in it that a file system may hold.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, Timespec, Timestamps, XattrFlags,
};

/// Names in the large directory.
const MANY: usize = 5_000;

/// A filled directory of this machine, in a scratch directory. Flags keep two of its files from
/// being removed: they are taken off when it is dropped, also where a test fails.
pub struct Source {
    dir: PathBuf,
}

impl Source {
    /// Fills the directory `source` of a scratch directory, which must go later than this.
    pub fn new(scratch: &Path) -> Self {
        let source = Self {
            dir: scratch.join("source"),
        };
        fs::create_dir(&source.dir).unwrap();
        fill(&source.dir);
        source
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // They are not there where it was not filled so far; and no panic may hide another.
        for name in KEPT_BY_FLAGS {
            let Ok(file) = File::open(self.dir.join("flags").join(name)) else {
                continue;
            };
            let removed = rustix::fs::ioctl_getflags(&file).and_then(|flags| {
                let flags = flags - (IFlags::APPEND | IFlags::IMMUTABLE);
                rustix::fs::ioctl_setflags(&file, flags)
            });
            if let Err(error) = removed {
                println!("{}: {name} stays: {error}", self.dir.display());
            }
        }
    }
}

/// Files whose flags forbid removing them.
const KEPT_BY_FLAGS: [&str; 2] = ["append", "immutable"];

/// Fills a directory. What the file system does not take (long targets, large xattrs,
/// preallocation) is left out; everything else must work. Devices and owners need root.
pub fn fill(top: &Path) {
    files(&top.join("files"));
    holes(&top.join("holes"));
    names(&top.join("names"));
    links(&top.join("links"));
    xattrs(&top.join("xattrs"));
    times(&top.join("times"));
    large(&top.join("large"));
    gaps(&top.join("gaps"));
    deep(&top.join("deep"));
    if rustix::process::geteuid().is_root() {
        special(&top.join("special"));
        flags(&top.join("flags"));
    }
}

/// Bytes that differ from block to block.
fn noise(len: usize, seed: usize) -> Vec<u8> {
    let mut state = seed as u64 * 2 + 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn files(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for len in [
        0, 1, 59, 60, 61, 100, 150, 160, 500, 1023, 1024, 1025, 4096, 65_537, 300_000,
    ] {
        fs::write(dir.join(format!("{len}-bytes")), noise(len, len)).unwrap();
    }
    for mode in [0o000, 0o400, 0o644, 0o777, 0o1755, 0o2755, 0o4755, 0o7777] {
        let path = dir.join(format!("mode-{mode:04o}"));
        fs::write(&path, "m").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn holes(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let hole = File::create(dir.join("only-a-hole")).unwrap();
    hole.set_len(3_000_000).unwrap();
    let far = File::create(dir.join("far")).unwrap();
    for at in [0, 50_000, 5_000_000, 70_000_000, 1_100_000_000] {
        far.write_all_at(&noise(3_000, at as usize), at).unwrap();
    }
    // Many extents: every other block is taken out again.
    let comb = File::create(dir.join("comb")).unwrap();
    comb.write_all_at(&noise(6 << 20, 7), 0).unwrap();
    comb.sync_all().unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for block in (0..6 << 20).step_by(8192) {
        if rustix::fs::fallocate(&comb, punch, block, 4096).is_err() {
            break;
        }
    }
    let unwritten = File::create(dir.join("unwritten")).unwrap();
    if rustix::fs::fallocate(&unwritten, FallocateFlags::empty(), 0, 400_000).is_ok() {
        unwritten
            .write_all_at(b"written in the middle", 200_000)
            .unwrap();
    }
    let past = File::create(dir.join("past-the-end")).unwrap();
    past.write_all_at(b"short", 0).unwrap();
    let _ = rustix::fs::fallocate(&past, FallocateFlags::KEEP_SIZE, 0, 200_000);
}

fn names(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let odd: [&[u8]; 14] = [
        b" ",
        b"-",
        b"a",
        b"a b",
        b"a!",
        b"a.b",
        b"line\nfeed",
        b"tab\t",
        b"quote\"back\\slash",
        "grün".as_bytes(),
        "名前".as_bytes(),
        b"not-utf8-\xff\xfe",
        b"\x80",
        b"\x01\x7f",
    ];
    for name in odd {
        fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
    }
    for len in [254, 255] {
        fs::write(dir.join("n".repeat(len)), "long").unwrap();
    }
    for name in ["dir", "dir-", "dir.d", "dir0", "dir!"] {
        fs::create_dir(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("inside"), name).unwrap();
    }
    let bad = dir.join(OsStr::from_bytes(b"dir-\xff"));
    fs::create_dir(&bad).unwrap();
    fs::write(bad.join("inside"), "").unwrap();
}

fn links(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("one"), "linked").unwrap();
    fs::hard_link(dir.join("one"), dir.join("two")).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    fs::hard_link(dir.join("one"), dir.join("sub/three")).unwrap();
    for len in [1, 58, 59, 60, 61, 150, 1000, 1023, 4095] {
        may_be_too_long(symlink("t".repeat(len), dir.join(format!("target-{len}"))));
    }
    symlink(OsStr::from_bytes(b"bad-\xff"), dir.join("bad-target")).unwrap();
    symlink("../links/sub", dir.join("to-dir")).unwrap();
}

fn may_be_too_long(result: io::Result<()>) {
    if let Err(error) = result {
        assert_eq!(error.kind(), io::ErrorKind::InvalidFilename, "{error}");
    }
}

/// The wire form: version 2, then tag, permissions and id of each entry.
pub fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut wire = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        wire.extend(tag.to_le_bytes());
        wire.extend(permissions.to_le_bytes());
        wire.extend(id.to_le_bytes());
    }
    wire
}

const NO_ID: u32 = u32::MAX;
const ACL: [(u16, u16, u32); 6] = [
    (0x01, 6, NO_ID),
    (0x02, 5, 1000),
    (0x02, 4, 70_000),
    (0x04, 4, NO_ID),
    (0x10, 5, NO_ID),
    (0x20, 0, NO_ID),
];

fn xattrs(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let file = |name: &str| {
        let path = dir.join(name);
        fs::write(&path, name).unwrap();
        path
    };
    if set(&file("none"), "user.probe", b"1").is_err() {
        return;
    }
    set(&file("small"), "user.a", b"value").unwrap();
    set(&file("empty"), "user.empty", b"").unwrap();
    let many = file("many");
    for index in 0..12 {
        set(
            &many,
            &format!("user.number-{index}"),
            &noise(30 + index, index),
        )
        .unwrap();
    }
    for name in ["shared-1", "shared-2", "shared-3"] {
        set(&file(name), "user.shared", &noise(700, 1)).unwrap();
    }
    for (name, len) in [
        ("block", 900),
        ("large", 3_000),
        ("huge", 20_000),
        ("max", 65_536),
    ] {
        // Only ea_inode takes those larger than a block.
        let _ = set(&file(name), "user.large", &noise(len, len));
    }
    let with_acl = file("acl");
    let _ = set(&with_acl, "system.posix_acl_access", &acl(&ACL));
    fs::create_dir(dir.join("default-acl")).unwrap();
    let _ = set(
        &dir.join("default-acl"),
        "system.posix_acl_default",
        &acl(&ACL),
    );
    fs::write(dir.join("default-acl/inherits"), "").unwrap();
    if rustix::process::geteuid().is_root() {
        set(&file("trusted"), "trusted.t", b"\x00\xff").unwrap();
        set(&file("security"), "security.s", b"label\0").unwrap();
        let link = dir.join("on-a-link");
        symlink("nowhere", &link).unwrap();
        set(&link, "trusted.link", b"x").unwrap();
    }
}

fn set(path: &Path, name: &str, value: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
}

fn times(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let moments = [
        (0, 0),
        (-1, 999_999_999),
        (-315_619_200, 500_000_000),
        (-2_147_483_648, 0),
        (2_147_483_647, 1),
        (2_147_483_648, 2),
        (2_208_988_800, 123_456_789),
        (4_294_967_296, 3),
        (8_589_934_592, 4),
        (9_000_000_000, 999_999_999),
    ];
    for (sec, nsec) in moments {
        let path = dir.join(format!("at{sec}"));
        fs::write(&path, "").unwrap();
        let at = |sec| Timespec {
            tv_sec: sec,
            tv_nsec: nsec,
        };
        let times = Timestamps {
            last_access: at(sec - 1),
            last_modification: at(sec),
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    }
}

fn large(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for index in 0..MANY {
        let name = format!("entry-{index:06}-{}", "x".repeat(index % 40));
        if index % 1000 == 7 {
            fs::create_dir(dir.join(name)).unwrap();
        } else if index % 50 == 0 {
            fs::write(dir.join(name), noise(index % 300, index)).unwrap();
        } else {
            // One inode for most of them: names are what matters here.
            fs::hard_link(dir.join("entry-000000-"), dir.join(name)).unwrap();
        }
    }
}

fn gaps(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let path = |index: usize| dir.join(format!("{index:03}-{}", "g".repeat(index % 60)));
    for index in 0..400 {
        fs::write(path(index), index.to_string()).unwrap();
    }
    for index in (0..400).step_by(3) {
        fs::remove_file(path(index)).unwrap();
    }
    for index in (1..400).step_by(9) {
        fs::rename(path(index), dir.join(format!("renamed-{index}"))).unwrap();
    }
    fs::create_dir(dir.join("was-large")).unwrap();
    for index in 0..500 {
        fs::write(dir.join(format!("was-large/{index:0>60}")), "").unwrap();
    }
    for index in 1..500 {
        fs::remove_file(dir.join(format!("was-large/{index:0>60}"))).unwrap();
    }
}

fn deep(dir: &Path) {
    let mut path = PathBuf::from(dir);
    fs::create_dir(&path).unwrap();
    for level in 0..70 {
        path.push(format!("level-{level}"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), level.to_string()).unwrap();
    }
}

fn special(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let node = |name: &str, kind, major, minor| {
        let device = rustix::fs::makedev(major, minor);
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(CWD, dir.join(name), kind, mode, device).unwrap();
    };
    node("fifo", FileType::Fifo, 0, 0);
    node("socket", FileType::Socket, 0, 0);
    node("chr-small", FileType::CharacterDevice, 1, 3);
    node("chr-zero", FileType::CharacterDevice, 0, 0);
    node("chr-large", FileType::CharacterDevice, 300, 70_000);
    node("blk-small", FileType::BlockDevice, 8, 1);
    node("blk-large", FileType::BlockDevice, 259, 1_048_575);
    for (uid, gid) in [(1, 2), (65_535, 65_536), (100_000, 4_000_000_000)] {
        let path = dir.join(format!("owner-{uid}"));
        fs::write(&path, "").unwrap();
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).unwrap();
    }
}

fn flags(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let [append, immutable] = KEPT_BY_FLAGS;
    for (name, flag) in [
        (append, IFlags::APPEND),
        (immutable, IFlags::IMMUTABLE),
        ("nodump", IFlags::NODUMP),
        ("noatime", IFlags::NOATIME),
        ("sync", IFlags::SYNC),
    ] {
        let file = File::create(dir.join(name)).unwrap();
        let before = rustix::fs::ioctl_getflags(&file).unwrap();
        let _ = rustix::fs::ioctl_setflags(&file, before | flag);
    }
    fs::create_dir(dir.join("top")).unwrap();
    let top = File::open(dir.join("top")).unwrap();
    let before = rustix::fs::ioctl_getflags(&top).unwrap();
    let _ = rustix::fs::ioctl_setflags(&top, before | IFlags::TOPDIR);
}

#[test]
fn nothing_of_a_source_stays() {
    let scratch = crate::host::scratch();
    drop(Source::new(scratch.path()));
    scratch.close().unwrap();
}
