//! Random operations on names and attributes against the naive model, on every kind of file system.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use uext4::data::Fallocate;
use uext4::format::DeviceNumber;
use uext4::{
    Creation, Error, FileType, NewInode, OpenInode, OpenOptions, SetAttributes, SetTime, Timestamp,
    Volume,
};
use uext4_blockdev::{MemoryDevice, VirtualClock};

use super::device::{judge, made, mount_small, steps};
use super::sequence::{
    Kind, Maker, Op, Outcome, Path, Reply, SLOTS, START, Stat, Target, compare, content, shrink,
    target,
};

/// What a system call would say.
pub fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::NOENT,
        Error::Exists => Errno::EXIST,
        Error::NotDirectory => Errno::NOTDIR,
        Error::IsDirectory => Errno::ISDIR,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::NameTooLong | Error::TargetTooLong { .. } => Errno::NAMETOOLONG,
        Error::NoSpace { .. }
        | Error::DirectoryFull { .. }
        | Error::NoInodes { .. }
        | Error::XattrsTooBig { .. } => Errno::NOSPC,
        Error::NoAttribute => Errno::NODATA,
        Error::AttributeName { .. } => Errno::RANGE,
        Error::AttributeValue { .. } => Errno::TOOBIG,
        Error::NotPermitted { .. } => Errno::PERM,
        Error::AccessDenied { .. } => Errno::ACCESS,
        Error::ReadOnly | Error::Aborted { .. } => Errno::ROFS,
        Error::TooManyLinks => Errno::MLINK,
        Error::TooManySymlinks => Errno::LOOP,
        Error::FileTooBig => Errno::FBIG,
        Error::Unsupported { .. } => Errno::OPNOTSUPP,
        Error::Invalid { .. } => Errno::INVAL,
        Error::Corrupt(_) => Errno::UCLEAN,
        Error::Shared(error) => errno(error),
        _ => Errno::IO,
    }
}

/// The engine, as a target.
pub struct Engine {
    device: Arc<MemoryDevice>,
    clock: Arc<VirtualClock>,
    fs: Option<Volume>,
    open: [Option<OpenInode>; SLOTS],
}

impl Engine {
    pub fn new(device: Arc<MemoryDevice>) -> Self {
        let clock = Arc::new(VirtualClock::new(START));
        let fs = Some(mount_small(device.clone(), &clock, 256 << 10));
        Self {
            device,
            clock,
            fs,
            open: [const { None }; SLOTS],
        }
    }

    fn fs(&self) -> &Volume {
        self.fs.as_ref().unwrap()
    }

    /// Ends all use.
    pub fn close(&mut self) -> Result<(), Error> {
        self.open = [const { None }; SLOTS];
        match self.fs.take() {
            Some(fs) => fs.close(),
            None => Ok(()),
        }
    }

    fn find(&self, path: &[String]) -> Result<OpenInode, Error> {
        let root = self.fs().root()?;
        path.iter()
            .try_fold(root, |dir, name| dir.lookup(name.as_bytes()))
    }

    fn parent<'a>(&self, path: &'a [String]) -> Result<(OpenInode, &'a [u8]), Error> {
        let (name, dirs) = path.split_last().unwrap();
        let dir = self.find(dirs)?;
        match dir.inode().file_type {
            FileType::Directory => Ok((dir, name.as_bytes())),
            _ => Err(Error::NotDirectory),
        }
    }

    fn make(&self, path: &Path, kind: Kind, mode: u16) -> Result<(), Error> {
        let (dir, name) = self.parent(path)?;
        let creation = Creation {
            mode,
            ..Creation::default()
        };
        let text = match kind {
            Kind::Symlink(len) => target(len),
            _ => Vec::new(),
        };
        let (kind, mode) = match kind {
            Kind::File => (NewInode::File, mode),
            Kind::Directory => (NewInode::Directory, mode),
            Kind::Symlink(_) => (NewInode::Symlink(&text), 0o777),
            Kind::Fifo => (NewInode::Fifo, mode),
            Kind::Socket => (NewInode::Socket, mode),
            Kind::Char(major, minor) => (NewInode::CharDevice(DeviceNumber { major, minor }), mode),
        };
        dir.create(name, kind, &Creation { mode, ..creation })?;
        Ok(())
    }

    fn on_names(&mut self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Make(path, kind, mode) => self.make(path, *kind, *mode),
            Op::Link(from, to) => {
                let inode = self.find(from)?;
                let (dir, name) = self.parent(to)?;
                inode.link(&dir, name)
            }
            Op::Unlink(path) => {
                let (dir, name) = self.parent(path)?;
                dir.unlink(name)
            }
            Op::Rmdir(path) => {
                let (dir, name) = self.parent(path)?;
                dir.rmdir(name)
            }
            Op::Rename(from, to, mode) => {
                let (old_dir, old) = self.parent(from)?;
                let (new_dir, new) = self.parent(to)?;
                old_dir.rename(old, &new_dir, new, *mode)
            }
            Op::Open(slot, path) => {
                self.open[slot % SLOTS] = Some(self.find(path)?);
                Ok(())
            }
            Op::Unnamed(slot, dir) => {
                let creation = Creation {
                    mode: 0o600,
                    ..Creation::default()
                };
                let file = self.find(dir)?.create_unnamed(NewInode::File, &creation)?;
                self.open[slot % SLOTS] = Some(file);
                Ok(())
            }
            Op::LinkOpen(slot, to) => {
                let (dir, name) = self.parent(to)?;
                self.open[slot % SLOTS].as_ref().unwrap().link(&dir, name)
            }
            Op::Close(slot) => {
                self.open[slot % SLOTS] = None;
                Ok(())
            }
            Op::Sync => self.fs().sync(),
            Op::Remount => {
                self.close()?;
                self.fs = Some(mount_small(self.device.clone(), &self.clock, 256 << 10));
                Ok(())
            }
            _ => self.on_inode(op),
        }
    }

    fn on_inode(&mut self, op: &Op) -> Result<(), Error> {
        let mut change = SetAttributes::default();
        let path = match op {
            Op::Chmod(path, mode) => {
                change.mode = Some(*mode);
                path
            }
            Op::Chown(path, uid, gid) => {
                (change.uid, change.gid) = (*uid, *gid);
                path
            }
            Op::Utimes(path, sec) => {
                let time = SetTime::To(Timestamp { sec: *sec, nsec: 0 });
                (change.atime, change.mtime) = (Some(time), Some(time));
                path
            }
            Op::SetXattr(path, name, len, mode) => {
                let (sec, _) = uext4_blockdev::Clock::now(&*self.clock);
                let value = content(sec, *len);
                let inode = self.find(path)?;
                return inode.set_xattr(name.as_bytes(), Some(&value), *mode);
            }
            Op::RemoveXattr(path, name) => {
                let inode = self.find(path)?;
                return inode.set_xattr(name.as_bytes(), None, uext4::xattr::SetMode::Replace);
            }
            _ => unreachable!("no change of an inode"),
        };
        self.find(path)?.set_attributes(&change)
    }

    fn on_open(&self, op: &Op, now: i64) -> Result<Outcome, Error> {
        let slot = |slot: usize| self.open[slot % SLOTS].as_ref().unwrap();
        match *op {
            Op::Write(at, offset, len) => {
                assert_eq!(slot(at).write_at(offset, &content(now, len))?, len);
            }
            Op::Read(at, offset, len) => {
                let mut bytes = vec![0; len + 4096];
                // Through the cache or past it.
                let len = match (offset ^ len as u64) & 1 {
                    0 => slot(at).read_at(offset, &mut bytes[..len])?,
                    _ => slot(at).read_uncached(offset, len, &mut bytes)?,
                };
                bytes.truncate(len);
                return Ok(Outcome::Bytes(bytes));
            }
            Op::Truncate(at, size) => {
                let change = SetAttributes {
                    size: Some(size),
                    ..SetAttributes::default()
                };
                slot(at).set_attributes(&change)?;
            }
            Op::Punch(at, offset, len) => slot(at).fallocate(Fallocate::PunchHole, offset, len)?,
            Op::Allocate(at, offset, len, keep_size) => {
                slot(at).fallocate(Fallocate::Allocate { keep_size }, offset, len)?;
            }
            _ => unreachable!("not of open files"),
        }
        Ok(Outcome::Done)
    }

    fn list(&self, path: &[String]) -> Result<Outcome, Error> {
        let mut names = Vec::new();
        self.find(path)?
            .list(0, &mut |&uext4::Listed { name, .. }| {
                if name != b"." && name != b".." {
                    names.push(String::from_utf8(name.to_vec()).unwrap());
                }
                true
            })?;
        names.sort();
        Ok(Outcome::Names(names))
    }
}

impl Target for Engine {
    fn apply(&mut self, op: &Op, now: i64) -> Reply {
        let (sec, _) = uext4_blockdev::Clock::now(&*self.clock);
        self.clock.advance(Duration::from_secs((now - sec) as u64));
        let result = match op {
            Op::List(path) => self.list(path),
            Op::ReadLink(path) => self
                .find(path)
                .and_then(|link| link.read_link())
                .map(Outcome::Bytes),
            Op::Write(..) | Op::Read(..) | Op::Truncate(..) | Op::Punch(..) | Op::Allocate(..) => {
                self.on_open(op, now)
            }
            _ => self.on_names(op).map(|()| Outcome::Done),
        };
        result.map_err(|error| errno(&error))
    }

    fn stat(&mut self, path: &[String], _now: i64) -> Result<Stat, Errno> {
        let inode = self.find(path).map_err(|error| errno(&error))?;
        Ok(stat(&inode))
    }

    fn stat_open(&mut self, slot: usize, _now: i64) -> Result<Stat, Errno> {
        Ok(stat(self.open[slot].as_ref().unwrap()))
    }

    fn is_kernel(&self) -> bool {
        false
    }
}

fn stat(open: &OpenInode) -> Stat {
    let inode = open.inode();
    let xattrs = open.xattrs().unwrap().into_iter();
    let mut stat = Stat {
        mode: inode.mode,
        nlink: inode.links.into(),
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        rdev: inode.rdev.map_or((0, 0), |dev| (dev.major, dev.minor)),
        atime: inode.atime.sec,
        mtime: inode.mtime.sec,
        ctime: inode.ctime.sec,
        xattrs: xattrs
            .map(|x| (String::from_utf8(x.name).unwrap(), x.value))
            .collect(),
    };
    stat.xattrs.sort();
    if inode.file_type == FileType::Directory {
        stat.size = 0;
    }
    stat
}

/// An image whose root directory is empty and has the times and mode of the model's.
pub fn empty(flags: &str, kib: u64) -> Arc<MemoryDevice> {
    let device = made(flags, kib);
    let clock = Arc::new(VirtualClock::new(START));
    let options = OpenOptions::default();
    let fs = Volume::open(device.clone(), clock, &options).unwrap();
    let root = fs.root().unwrap();
    root.rmdir(b"lost+found").unwrap();
    let time = Some(SetTime::Now);
    let change = SetAttributes {
        mode: Some(0o755),
        uid: Some(0),
        gid: Some(0),
        atime: time,
        mtime: time,
        ..SetAttributes::default()
    };
    root.set_attributes(&change).unwrap();
    drop(root);
    fs.close().unwrap();
    device
}

/// Runs a sequence on a fresh copy of the image; what went wrong.
fn fails(image: &[u8], ops: &[Op], every: bool) -> Option<String> {
    let run = || {
        let device = Arc::new(MemoryDevice::from_bytes(image.to_vec()));
        let mut engine = Engine::new(device.clone());
        compare(ops, &mut engine, every)?;
        engine.close().map_err(|error| format!("{error:?}"))?;
        Ok(device)
    };
    let device = match std::panic::catch_unwind(run) {
        Ok(Ok(device)) => device,
        Ok(Err(why)) => return Some(why),
        Err(_) => return Some("a panic".to_owned()),
    };
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| judge(&device, "model")));
    judged.err().map(|why| match why.downcast::<String>() {
        Ok(why) => *why,
        Err(_) => "e2fsck".to_owned(),
    })
}

fn run(flags: &str, first: u64) {
    let image = empty(flags, 8192).to_bytes();
    for seed in first..first + steps(12, 1000) {
        let every = seed % 2 == 0;
        let mut maker = Maker::new(seed);
        maker.extents = flags.contains("ext4");
        let ops = maker.ops(if every { 250 } else { 1200 });
        if fails(&image, &ops, every).is_some() {
            let (ops, why) = shrink(ops, |ops| fails(&image, ops, every));
            panic!("{flags}, seed {seed}: {why}\nafter {ops:#?}");
        }
    }
}

#[test]
fn ext4() {
    run("-t ext4 -N 512", 0);
}

#[test]
fn ext4_1k_orphan_file() {
    run("-t ext4 -b 1024 -O orphan_file,ea_inode", 10_000);
}

#[test]
fn ext3() {
    run("-t ext3 -I 256", 20_000);
}

#[test]
fn ext2() {
    run("-t ext2 -I 256", 30_000);
}

#[test]
fn without_a_journal() {
    run("-t ext4 -O ^has_journal,^dir_index", 40_000);
}

#[test]
fn inline_data() {
    run("-t ext4 -O inline_data", 50_000);
}
