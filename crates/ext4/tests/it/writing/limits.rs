//! The largest and the strangest of everything, on the engine and on the kernel: both say the same.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use uext4::xattr::SetMode;
use uext4::{
    Creation, Error, InodeFlags, NewInode, OpenInode, OpenOptions, RenameMode, SetAttributes,
    SetTime, Timestamp, Volume,
};
use uext4_blockdev::{MemoryDevice, VirtualClock};

use super::device::{judge, made, mount};
use super::model::errno;
use uext4_testkit::{Mount, can_mount};

const CREATION: Creation = Creation {
    mode: 0o700,
    umask: 0,
    uid: 0,
    gid: 0,
};
const LINKS_MAX: u32 = 65_000;

/// The same file system twice: one used by the engine, one by the kernel.
struct Pair {
    flags: String,
    device: Arc<MemoryDevice>,
    clock: Arc<VirtualClock>,
    fs: Volume,
    root: OpenInode,
    mount: Mount,
    _image: tempfile::NamedTempFile,
}

impl Pair {
    fn new(flags: &str) -> Self {
        let device = made(flags, 32_768);
        let image = uext4_testkit::stored(&device);
        let mount = Mount::new(image.path(), "rw");
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let options = OpenOptions::default();
        let fs = Volume::open(device.clone(), clock.clone(), &options).unwrap();
        Self {
            flags: flags.to_owned(),
            root: fs.root().unwrap(),
            device,
            clock,
            fs,
            mount,
            _image: image,
        }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    /// A new file on both.
    fn file(&self, name: &str) -> (OpenInode, std::fs::File) {
        let ours = self.root.create(name.as_bytes(), NewInode::File, &CREATION);
        let theirs = std::fs::File::create_new(self.place(name));
        (ours.unwrap(), theirs.unwrap())
    }

    #[track_caller]
    fn same<A, B>(&self, what: &str, ours: Result<A, Error>, theirs: Result<B, Errno>) {
        let (ours, theirs) = (ours.map(drop), theirs.map(drop));
        let found = ours.as_ref().copied().map_err(errno);
        assert_eq!(theirs, found, "{}: {what}: {ours:?}", self.flags);
    }

    fn close(self) {
        drop(self.root);
        self.fs.close().unwrap();
        drop(self.fs);
        judge(&self.device, &self.flags);
    }
}

fn size(size: u64) -> SetAttributes {
    SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    }
}

#[test]
fn names_and_targets() {
    if !can_mount() {
        return;
    }
    for flags in ["-t ext4", "-t ext4 -b 1024"] {
        let pair = Pair::new(flags);
        for len in [1, 254, 255, 256, 300] {
            let name = "n".repeat(len);
            let ours = pair.root.create(name.as_bytes(), NewInode::Fifo, &CREATION);
            let kind = rustix::fs::FileType::Fifo;
            let theirs = rustix::fs::mknodat(CWD, pair.place(&name), kind, Mode::RWXU, 0);
            pair.same("make", ours, theirs);
            let ours = pair.root.rename(
                name.as_bytes(),
                &pair.root,
                "m".repeat(256).as_bytes(),
                RenameMode::Replace,
            );
            let theirs = rustix::fs::rename(pair.place(&name), pair.place(&"m".repeat(256)));
            pair.same("rename", ours, theirs);
        }
        for name in [&b""[..], b"a/b", b"a\0b", b".", b".."] {
            for kind in [NewInode::File, NewInode::Directory, NewInode::Symlink(b"x")] {
                let made = pair.root.create(name, kind, &CREATION);
                assert!(matches!(made, Err(Error::Invalid { .. })), "{made:?}");
            }
            let gone = pair.root.unlink(name);
            assert!(matches!(gone, Err(Error::Invalid { .. })), "{gone:?}");
        }
        for len in [1, 59, 60, 61, 1000, 1022, 1023, 1024, 4094, 4095] {
            let (name, target) = (format!("to {len}"), "t".repeat(len));
            let kind = NewInode::Symlink(target.as_bytes());
            let ours = pair.root.create(name.as_bytes(), kind, &CREATION);
            if let Ok(link) = &ours {
                assert_eq!(link.read_link().unwrap(), target.as_bytes());
            }
            let theirs = rustix::fs::symlink(&target, pair.place(&name));
            pair.same(&name, ours, theirs);
        }
        pair.close();
    }
}

#[test]
fn links() {
    if !can_mount() {
        return;
    }
    let pair = Pair::new("-t ext4");
    let (ours, theirs) = pair.file("f");
    drop(theirs);
    let dir = pair.root.create(b"d", NewInode::Directory, &CREATION);
    let dir = dir.unwrap();
    std::fs::create_dir(pair.place("d")).unwrap();
    for number in 1..LINKS_MAX {
        let name = format!("{number}");
        ours.link(&dir, name.as_bytes()).unwrap();
        rustix::fs::link(pair.place("f"), pair.place("d").join(name)).unwrap();
    }
    let theirs = || rustix::fs::link(pair.place("f"), pair.place("one more"));
    pair.same("one more", ours.link(&pair.root, b"one more"), theirs());
    assert!(ours.link(&pair.root, b"one more").is_err());
    let theirs = rustix::fs::link(pair.place("f"), pair.place("d"));
    pair.same("a name that is there", ours.link(&pair.root, b"d"), theirs);
    let theirs = rustix::fs::link(pair.place("d"), pair.place("e"));
    pair.same("a directory", dir.link(&pair.root, b"e"), theirs);
    assert_eq!(ours.inode().links, LINKS_MAX as u16);
    assert_eq!(
        pair.place("f").metadata().unwrap().nlink(),
        u64::from(LINKS_MAX)
    );
    drop((ours, dir));
    pair.close();
}

/// The largest number for which `fits` says yes; it says so for 0.
fn largest(end: u64, mut fits: impl FnMut(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, end);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[test]
fn sizes() {
    if !can_mount() {
        return;
    }
    for flags in [
        "-t ext4",
        "-t ext4 -b 1024",
        "-t ext3",
        "-t ext3 -b 1024",
        "-t ext2",
    ] {
        let pair = Pair::new(flags);
        let (ours, file) = pair.file("f");
        let end = i64::MAX as u64;
        let max = largest(end, |n| rustix::fs::ftruncate(&file, n).is_ok());
        let found = largest(end, |n| ours.set_attributes(&size(n)).is_ok());
        assert_eq!(max, found, "{flags}");
        let theirs = |at| rustix::io::pwrite(&file, b"x", at);
        for at in [max, max + 1] {
            pair.same("write past the end", ours.write_at(at, b"x"), theirs(at));
        }
        pair.same(
            "write at the end",
            ours.write_at(max - 1, b"x"),
            theirs(max - 1),
        );
        let mut byte = [0; 2];
        assert_eq!(ours.read_at(max - 1, &mut byte).unwrap(), 1);
        ours.fsync().unwrap();
        drop((ours, file));
        pair.close();
    }
}

#[test]
fn attributes() {
    if !can_mount() {
        return;
    }
    for flags in [
        "-t ext4 -I 256",
        "-t ext4 -b 1024 -I 256",
        "-t ext4 -I 256 -O ea_inode",
    ] {
        let pair = Pair::new(flags);
        let (file, theirs) = pair.file("f");
        let set = |name: &str, value: &[u8]| {
            let theirs = rustix::fs::fsetxattr(&theirs, name, value, XattrFlags::empty());
            let ours = file.set_xattr(name.as_bytes(), Some(value), SetMode::Any);
            (ours, theirs)
        };
        for len in [0, 1, 100, 900, 4000, 5000, 65_535, 65_536, 65_537] {
            let (ours, theirs) = set("user.a", &vec![7; len]);
            pair.same(&format!("value of {len}"), ours, theirs);
        }
        let mut limit = 0;
        let theirs_max = largest(65_537, |n| {
            let (ours, theirs) = set("user.a", &vec![7; n as usize]);
            limit = limit.max(if ours.is_ok() { n } else { 0 });
            theirs.is_ok()
        });
        assert_eq!(theirs_max, limit, "{flags}");
        for name in [
            "user.".to_owned() + &"n".repeat(250),
            "user.".to_owned() + &"n".repeat(251),
            "user.".to_owned(),
            "no_user.x".to_owned(),
            "trusted.x".to_owned(),
            "system.x".to_owned(),
        ] {
            let (ours, theirs) = set(&name, b"v");
            pair.same(&name, ours, theirs);
        }
        drop((file, theirs));
        pair.close();
    }
}

#[test]
fn times() {
    if !can_mount() {
        return;
    }
    for flags in ["-t ext4 -I 256", "-t ext4 -I 128", "-t ext2 -I 128"] {
        let pair = Pair::new(flags);
        let (ours, theirs) = pair.file("f");
        drop(theirs);
        pair.clock.advance(Duration::from_millis(1234));
        let seconds = [
            0,
            -1,
            i64::from(i32::MAX),
            i64::from(i32::MAX) + 1,
            i64::from(i32::MIN),
            i64::from(i32::MIN) - 1,
            15_032_385_535,
            15_032_385_536,
            1 << 40,
            -(1 << 40),
        ];
        for sec in seconds {
            let time = Timespec {
                tv_sec: sec,
                tv_nsec: 123_456_789,
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            rustix::fs::utimensat(CWD, pair.place("f"), &times, AtFlags::empty()).unwrap();
            let meta = pair.place("f").metadata().unwrap();
            let nsec = 123_456_789;
            let to = Some(SetTime::To(Timestamp { sec, nsec }));
            let change = SetAttributes {
                atime: to,
                mtime: to,
                ..SetAttributes::default()
            };
            ours.set_attributes(&change).unwrap();
            let mtime = ours.inode().mtime;
            let theirs = (meta.mtime(), meta.mtime_nsec());
            assert_eq!(theirs, (mtime.sec, mtime.nsec.into()), "{flags}: {sec}");
        }
        ours.write_at(0, b"now").unwrap();
        let before = ours.inode();
        let ino = ours.ino();
        drop(ours);
        let (device, clock) = (pair.device.clone(), pair.clock.clone());
        pair.close();
        let fs = Volume::open(device, clock, &OpenOptions::default()).unwrap();
        let after = fs.open_inode(ino).unwrap().inode();
        assert_eq!(
            (before.atime, before.mtime, before.ctime, before.crtime),
            (after.atime, after.mtime, after.ctime, after.crtime),
            "{flags}"
        );
    }
}

/// What flags forbid, and what a directory refuses that was removed.
#[test]
fn immutable_and_appendable() {
    if !can_mount() {
        return;
    }
    let pair = Pair::new("-t ext4");
    flagged(&pair, InodeFlags::IMMUTABLE, "i");
    flagged(&pair, InodeFlags::APPEND, "a");
    pair.close();
}

/// What a flag of a file and of a directory forbids.
fn flagged(pair: &Pair, flag: InodeFlags, letter: &str) {
    let chattr = |flag: &str, name: &str| {
        let mut command = std::process::Command::new("chattr");
        let status = command.arg(flag).arg(pair.place(name)).status();
        assert!(status.unwrap().success());
    };
    let (file, dir) = (format!("f{letter}"), format!("d{letter}"));
    let (ours, theirs) = pair.file(&file);
    let made = pair
        .root
        .create(dir.as_bytes(), NewInode::Directory, &CREATION);
    let our_dir = made.unwrap();
    std::fs::create_dir(pair.place(&dir)).unwrap();
    our_dir.create(b"in", NewInode::File, &CREATION).unwrap();
    std::fs::write(pair.place(&dir).join("in"), "").unwrap();
    for (inode, name) in [(&ours, &file), (&our_dir, &dir)] {
        chattr(&format!("+{letter}"), name);
        let change = SetAttributes {
            flags: Some(inode.inode().flags | flag),
            ..SetAttributes::default()
        };
        inode.set_attributes(&change).unwrap();
    }
    names_in_flagged(pair, letter, &our_dir, &pair.place(&dir));
    let (f, d) = (pair.place(&file), pair.place(&dir));
    let same = |what: &str, ours: Result<(), Error>, theirs: Result<(), Errno>| {
        pair.same(&format!("{letter}: {what}"), ours, theirs);
    };
    same(
        "unlink",
        pair.root.unlink(file.as_bytes()),
        rustix::fs::unlink(&f),
    );
    same(
        "rmdir",
        pair.root.rmdir(dir.as_bytes()),
        rustix::fs::rmdir(&d),
    );
    same(
        "link",
        ours.link(&pair.root, b"link"),
        rustix::fs::link(&f, pair.place("link")),
    );
    let mode = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let chmod = rustix::fs::chmod(&f, Mode::RUSR);
    same("chmod", ours.set_attributes(&mode), chmod);
    let flags = rustix::fs::FallocateFlags::empty();
    let how = uext4::data::Fallocate::Allocate { keep_size: false };
    same(
        "allocate",
        ours.fallocate(how, 0, 4096),
        rustix::fs::fallocate(&theirs, flags, 0, 4096),
    );
    let value = rustix::fs::setxattr(&f, "user.a", b"v", XattrFlags::empty());
    same(
        "attribute",
        ours.set_xattr(b"user.a", Some(b"v"), SetMode::Any),
        value,
    );
    let truncate = rustix::fs::open(&f, OFlags::WRONLY, Mode::empty())
        .and_then(|file| rustix::fs::ftruncate(file, 5));
    same("truncate", ours.set_attributes(&size(5)), truncate);
    chattr(&format!("-{letter}"), &file);
    chattr(&format!("-{letter}"), &dir);
}

/// Names of a directory whose flags forbid some changes.
fn names_in_flagged(pair: &Pair, letter: &str, ours: &OpenInode, theirs: &Path) {
    let same = |what: &str, ours: Result<(), Error>, theirs: Result<(), Errno>| {
        pair.same(&format!("{letter}: {what}"), ours, theirs);
    };
    let new = NewInode::Fifo;
    let kind = rustix::fs::FileType::Fifo;
    let (to, from) = (theirs.join("new"), theirs.join("in"));
    same(
        "make in it",
        ours.create(b"new", new, &CREATION).map(drop),
        rustix::fs::mknodat(CWD, &to, kind, Mode::RWXU, 0),
    );
    same(
        "unlink in it",
        ours.unlink(b"in"),
        rustix::fs::unlink(&from),
    );
    same(
        "rename out of it",
        ours.rename(b"in", &pair.root, b"out", RenameMode::Replace),
        rustix::fs::rename(&from, pair.place("out")),
    );
}

#[test]
fn nothing_is_made_in_removed_directories() {
    if !can_mount() {
        return;
    }
    let pair = Pair::new("-t ext4");
    pair.file("file");
    let removed = pair.root.create(b"gone", NewInode::Directory, &CREATION);
    let removed = removed.unwrap();
    pair.root.rmdir(b"gone").unwrap();
    let made = removed.create(b"x", NewInode::File, &CREATION);
    assert!(matches!(made, Err(Error::NotFound)), "{made:?}");
    let moved = pair
        .root
        .rename(b"file", &removed, b"x", RenameMode::Replace);
    assert!(moved.is_err(), "{moved:?}");
    assert!(matches!(
        removed.create_unnamed(NewInode::File, &CREATION),
        Err(Error::NotFound)
    ));
    drop(removed);
    pair.close();
}

#[test]
fn labels_have_sixteen_bytes_and_end_at_a_zero() {
    let device = made("-t ext4", 8192);
    let fs = mount(device.clone());
    fs.set_label(b"sixteen bytes...").unwrap();
    assert_eq!(&fs.label(), b"sixteen bytes...");
    let seventeen = fs.set_label(b"seventeen bytes..");
    assert!(matches!(seventeen, Err(Error::Invalid { .. })));
    fs.set_label(b"short\0and what lies behind").unwrap();
    assert_eq!(&fs.label(), b"short\0\0\0\0\0\0\0\0\0\0\0");
    // What `label` returns can be set again.
    fs.set_label(&fs.label()).unwrap();
    fs.close().unwrap();
    judge(&device, "labels");
}
