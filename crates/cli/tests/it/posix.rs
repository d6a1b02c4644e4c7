//! Random calls on the kernel's ext4 and on our mount: the same answers, and the
//! same to see afterwards.
//!
//! Left out: immutable and append-only files, of which the kernel does not know on a FUSE mount,
//! so that it refuses later and in another order; and seeking in directories, which does not come
//! to us.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, SeekFrom, Uid, XattrFlags,
};
use rustix::fs::{FileType, Timespec, Timestamps};
use uext4_testkit::SplitMix64;

use crate::host::{Shown, UEXT4, assert_clean, mke2fs, scratch, text, uext4_ok, unmount};
use crate::transport::{Transport, gathering, over_each};

/// Calls of one run.
const CALLS: u32 = 6000;

/// A sequence that looks random and is the same each time.
struct Chance(SplitMix64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }

    fn path(&mut self) -> PathBuf {
        let depth = self.of(&[1, 1, 1, 2, 2, 3]);
        let long = "y".repeat(256);
        let names = ["a", "b", "c", "d", &long[1..], &long];
        (0..depth).map(|_| self.of(&names)).collect()
    }
}

/// One call: what is done below a root, in the same way for both.
type Call = Box<dyn Fn(&Path) -> io::Result<String>>;

fn text_of(value: impl std::fmt::Debug) -> io::Result<String> {
    Ok(format!("{value:?}"))
}

fn of_names(chance: &mut Chance) -> Call {
    let (one, two) = (chance.path(), chance.path());
    let mode = chance.of(&[0o755, 0o700, 0o1777, 0o2775, 0o000]);
    let flags = RenameFlags::from_bits_retain(chance.of(&[0, 0, 1, 2, 3, 4, 5, 6]));
    let (kind, device) = chance.of(&[
        (FileType::Fifo, 0),
        (FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        (FileType::BlockDevice, rustix::fs::makedev(300, 70_000)),
        (FileType::RegularFile, 0),
        (FileType::Socket, 0),
    ]);
    match chance.below(9) {
        0 | 1 => Box::new(move |root| {
            text_of(rustix::fs::mkdir(
                root.join(&one),
                Mode::from_raw_mode(mode),
            )?)
        }),
        2 => Box::new(move |root| text_of(fs::remove_dir(root.join(&one))?)),
        3 => Box::new(move |root| text_of(fs::remove_file(root.join(&one))?)),
        4 => Box::new(move |root| {
            let (one, two) = (root.join(&one), root.join(&two));
            text_of(rustix::fs::renameat_with(CWD, one, CWD, two, flags)?)
        }),
        5 => Box::new(move |root| text_of(fs::hard_link(root.join(&one), root.join(&two))?)),
        6 => Box::new(move |root| text_of(std::os::unix::fs::symlink(&two, root.join(&one))?)),
        7 => Box::new(move |root| text_of(fs::read_link(root.join(&one))?)),
        _ => Box::new(move |root| {
            let mode = Mode::from_raw_mode(mode & 0o777);
            text_of(rustix::fs::mknodat(
                CWD,
                root.join(&one),
                kind,
                mode,
                device,
            )?)
        }),
    }
}

fn opened(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o6755))?.into())
}

fn of_contents(chance: &mut Chance) -> Call {
    let path = chance.path();
    let flags = chance.of(&[
        OFlags::WRONLY | OFlags::CREATE,
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        OFlags::WRONLY,
        OFlags::RDWR | OFlags::TRUNC,
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC,
        OFlags::WRONLY | OFlags::APPEND,
    ]);
    let data = vec![chance.below(256) as u8; chance.of(&[1, 100, 5000, 70_000])];
    let offset = chance.of(&[0, 10, 4096, 100_000]);
    let size = chance.of(&[0, 5, 4096, 70_000, 1 << 44, 1 << 60]);
    let mode = FallocateFlags::from_bits_retain(chance.of(&[0, 1, 3, 0x10, 0x11, 2, 0x40]));
    let len = chance.of(&[1, 4096, 100_000]);
    match chance.below(7) {
        0..=2 => Box::new(move |root| {
            text_of(opened(&root.join(&path), flags)?.write_at(&data, offset)?)
        }),
        3 => Box::new(move |root| {
            let mut read = vec![0; 1 << 20];
            let len = opened(&root.join(&path), OFlags::RDONLY)?.read_at(&mut read, 0)?;
            text_of(
                read[..len]
                    .iter()
                    .fold(len as u64, |sum, b| sum * 31 % 1_000_003 + u64::from(*b)),
            )
        }),
        4 => Box::new(move |root| {
            let mut options = OpenOptions::new();
            let file = options
                .write(true)
                .custom_flags(OFlags::NONBLOCK.bits() as i32);
            text_of(file.open(root.join(&path))?.set_len(size)?)
        }),
        5 => Box::new(move |root| {
            let file = opened(&root.join(&path), OFlags::RDWR)?;
            text_of(rustix::fs::fallocate(file, mode, offset, len)?)
        }),
        _ => Box::new(move |root| {
            let file = opened(&root.join(&path), OFlags::RDONLY)?;
            if !file.metadata()?.is_file() {
                return Ok(String::new());
            }
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(offset));
            text_of((hole, rustix::fs::seek(&file, SeekFrom::Data(offset))))
        }),
    }
}

/// `ever`: also times that ext4 cannot store.
fn of_attributes(chance: &mut Chance, ever: bool) -> Call {
    let path = chance.path();
    let mode = chance.of(&[0o644, 0o4755, 0o2755, 0o6711, 0o2644, 0o000, 0o2777, 0o777]);
    let owner = chance.of(&[
        (None, None),
        (Some(1000), None),
        (None, Some(100)),
        (Some(0), Some(0)),
        (Some(1001), Some(101)),
    ]);
    let time = chance.of(&[
        Some((5, 6)),
        Some((-3_000_000_000, 0)),
        Some((20_000_000_000, 1)),
        None,
    ]);
    let time = time.filter(|time| ever || (-1 << 31..15_000_000_000).contains(&time.0));
    match chance.below(5) {
        0 | 1 => Box::new(move |root| {
            text_of(rustix::fs::chmod(
                root.join(&path),
                Mode::from_raw_mode(mode),
            )?)
        }),
        2 => Box::new(move |root| {
            let (uid, gid) = (owner.0.map(Uid::from_raw), owner.1.map(Gid::from_raw));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            text_of(rustix::fs::chownat(CWD, root.join(&path), uid, gid, flags)?)
        }),
        3 => Box::new(move |root| {
            let (tv_sec, tv_nsec) = time.unwrap_or((0, rustix::fs::UTIME_NOW));
            let at = Timespec { tv_sec, tv_nsec };
            let times = Timestamps {
                last_access: at,
                last_modification: at,
            };
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(CWD, root.join(&path), &times, flags)?;
            let stat = fs::symlink_metadata(root.join(&path))?;
            text_of(time.map(|_| {
                (
                    stat.mtime(),
                    stat.mtime_nsec(),
                    stat.atime(),
                    stat.atime_nsec(),
                )
            }))
        }),
        _ => Box::new(move |root| {
            let mut names: Vec<_> = fs::read_dir(root.join(&path))?
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            text_of(names)
        }),
    }
}

/// An ACL in the form of the system calls: version 2; tag, permissions, id.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn of_xattrs(chance: &mut Chance) -> Call {
    const NO: u32 = u32::MAX;
    let path = chance.path();
    let long = format!("user.{}", "z".repeat(250));
    let name = chance
        .of(&[
            "user.a",
            "user.b",
            "trusted.t",
            "security.s",
            "user.",
            "bogus.x",
            &long,
            "system.posix_acl_access",
            "system.posix_acl_default",
        ])
        .to_owned();
    let value = match name.starts_with("system.") {
        false => vec![7; chance.of(&[0, 3, 200, 3000, 70_000])],
        true => chance.of(&[
            acl(&[(1, 7, NO), (4, 5, NO), (32, 5, NO)]),
            acl(&[
                (1, 6, NO),
                (2, 7, 1000),
                (4, 4, NO),
                (16, 6, NO),
                (32, 0, NO),
            ]),
            acl(&[(2, 7, 1000), (4, 4, NO)]),
        ]),
    };
    let flags = XattrFlags::from_bits_retain(chance.of(&[0, 0, 1, 2]));
    match chance.below(5) {
        0 | 1 => Box::new(move |root| {
            text_of(rustix::fs::lsetxattr(
                root.join(&path),
                &*name,
                &value,
                flags,
            )?)
        }),
        2 => Box::new(move |root| {
            let mut read = vec![0; 65_536];
            let len = rustix::fs::lgetxattr(root.join(&path), &*name, &mut read[..])?;
            text_of(&read[..len])
        }),
        3 => Box::new(move |root| {
            let mut read = vec![0; 65_536];
            let len = rustix::fs::llistxattr(root.join(&path), &mut read[..])?;
            let mut names: Vec<_> = read[..len].split(|byte| *byte == 0).collect();
            names.sort();
            text_of(names)
        }),
        _ => Box::new(move |root| text_of(rustix::fs::lremovexattr(root.join(&path), &*name)?)),
    }
}

/// What a path shows.
fn shown(path: &Path) -> io::Result<String> {
    let stat = fs::symlink_metadata(path)?;
    let size = if stat.is_dir() { 0 } else { stat.size() };
    text_of((
        stat.mode(),
        stat.nlink(),
        stat.uid(),
        stat.gid(),
        size,
        stat.rdev(),
    ))
}

fn answer(result: io::Result<String>) -> Result<String, Option<i32>> {
    result.map_err(|error| error.raw_os_error())
}

over_each! { the_same_answers_as_the_kernels_ext4 }

gathering! { the_same_answers_as_the_kernels_ext4 }

fn the_same_answers_as_the_kernels_ext4(transport: Transport) {
    if !transport.can_serve() {
        return;
    }
    let scratch = scratch();
    let at = |name: &str| scratch.path().join(name);
    let (theirs, ours) = (at("theirs"), at("ours"));
    for (image, place) in [(at("1"), &theirs), (at("2"), &ours)] {
        mke2fs(&image, &["-t", "ext4", "-b", "4096"], 128);
        fs::create_dir(place).unwrap();
    }
    let shown = Shown::new(&at("1"), &theirs, "rw");
    // The kernel's mount of an image has neither nosuid nor nodev.
    let options = transport.with("allow_other,suid,dev");
    transport.mount(|| uext4_ok(&["mount", "-o", &options, text(&at("2")), text(&ours)]));
    // The kernel that gathers what is written shows a time as it was set.
    let ever = transport != Transport::Gathering;
    let all = std::panic::catch_unwind(|| compare(&theirs, &ours, ever));
    shown.end();
    unmount(UEXT4, &["umount", text(&ours)]);
    assert_clean(&at("2"));
    all.unwrap();
}

fn compare(theirs: &Path, ours: &Path, ever: bool) {
    let chance = &mut Chance(SplitMix64::new(1));
    for number in 0..CALLS {
        let call = match chance.below(4) {
            0 => of_names(chance),
            1 => of_contents(chance),
            2 => of_attributes(chance, ever),
            _ => of_xattrs(chance),
        };
        let (one, other) = (answer(call(theirs)), answer(call(ours)));
        assert_eq!(one, other, "call {number}");
        let path = chance.path();
        let (one, other) = (
            answer(shown(&theirs.join(&path))),
            answer(shown(&ours.join(&path))),
        );
        assert_eq!(one, other, "after call {number}: {}", path.display());
    }
}
