//! Sequences of operations: what they are, how they are made up, run, compared and made smaller.

use rustix::io::Errno;
use uext4::xattr::SetMode;
use uext4::{Creation, RenameMode};
use uext4_testkit::SplitMix64;

use super::posix::Posix;

/// Names from the root down.
pub type Path = Vec<String>;

/// Files that are held open.
pub const SLOTS: usize = 4;
/// Seconds since 1970 when the first operation is made; one second passes with each.
pub const START: i64 = 1_700_000_000;
/// From a day before the clock of the model to long after the clocks of machines that test, in
/// seconds: a time in between is past by one clock and to come by the other.
const BETWEEN_CLOCKS: std::ops::Range<i64> = START - 86_400..START + 50 * 365 * 86_400;

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    /// With a target of so many bytes.
    Symlink(usize),
    Fifo,
    Socket,
    Char(u32, u32),
}

/// One operation. Numbers of slots are taken modulo [`SLOTS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Make(Path, Kind, u16),
    Link(Path, Path),
    Unlink(Path),
    Rmdir(Path),
    Rename(Path, Path, RenameMode),
    Open(usize, Path),
    Unnamed(usize, Path),
    LinkOpen(usize, Path),
    Close(usize),
    Write(usize, u64, usize),
    Read(usize, u64, usize),
    Truncate(usize, u64),
    Punch(usize, u64, u64),
    Allocate(usize, u64, u64, bool),
    Chmod(Path, u16),
    Chown(Path, Option<u32>, Option<u32>),
    Utimes(Path, i64),
    SetXattr(Path, &'static str, usize, SetMode),
    RemoveXattr(Path, &'static str),
    List(Path),
    ReadLink(Path),
    Sync,
    Remount,
}

/// What an operation gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Bytes(Vec<u8>),
    Names(Vec<String>),
}

pub type Reply = Result<Outcome, Errno>;

/// What stat shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    pub mode: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// 0 for directories.
    pub size: u64,
    pub rdev: (u32, u32),
    /// Seconds: of the operation that changed it, or as it was set.
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub xattrs: Vec<(String, Vec<u8>)>,
}

/// Something that operations can be made on.
pub trait Target {
    fn apply(&mut self, op: &Op, now: i64) -> Reply;
    fn stat(&mut self, path: &[String], now: i64) -> Result<Stat, Errno>;
    fn stat_open(&mut self, slot: usize, now: i64) -> Result<Stat, Errno>;
    /// Whether it is the kernel's.
    fn is_kernel(&self) -> bool;
}

/// Bytes of a write made at a time.
pub fn content(now: i64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as i64 * 7 + now + i as i64 / 251) as u8)
        .collect()
}

/// The target of a symbolic link.
pub fn target(len: usize) -> Vec<u8> {
    vec![b't'; len]
}

/// Runs a sequence on the model and a target; reports the first difference. With `every` all
/// inodes are compared after each operation, else at the end.
pub fn compare(ops: &[Op], target: &mut dyn Target, every: bool) -> Result<(), String> {
    let mut model = Posix::new(START);
    model.is_kernel = target.is_kernel();
    for (number, op) in ops.iter().enumerate() {
        let now = START + 1 + number as i64;
        let Some(expected) = model.apply(op, now) else {
            continue;
        };
        let found = target.apply(op, now);
        if expected != found {
            return Err(format!(
                "{number}: {op:?}: expected {expected:?}, got {found:?}"
            ));
        }
        if every || number + 1 == ops.len() {
            compare_all(&model, target, now).map_err(|why| format!("{number}: {op:?}: {why}"))?;
        }
    }
    let now = START + 1 + ops.len() as i64;
    for path in model.paths() {
        let size = model.stat(&path).size as usize;
        let whole = [
            Op::List(path.clone()),
            Op::ReadLink(path.clone()),
            Op::Open(0, path),
            Op::Read(0, 0, size + 1),
        ];
        // The root is no link in a directory.
        for op in whole.iter().filter(|op| **op != Op::ReadLink(Vec::new())) {
            let Some(expected) = model.apply(op, now) else {
                break;
            };
            let found = target.apply(op, now);
            if expected != found {
                return Err(format!("at the end {op:?}: {expected:?}, got {found:?}"));
            }
        }
    }
    Ok(())
}

fn compare_all(model: &Posix, target: &mut dyn Target, now: i64) -> Result<(), String> {
    for path in model.paths() {
        let expected = model.stat(&path);
        let found = target.stat(&path, now);
        if Ok(&expected) != found.as_ref() {
            return Err(format!("{path:?}: expected {expected:?}, got {found:?}"));
        }
    }
    for slot in 0..SLOTS {
        let Some(expected) = model.stat_open(slot) else {
            continue;
        };
        let found = target.stat_open(slot, now);
        if Ok(&expected) != found.as_ref() {
            return Err(format!("open {slot}: expected {expected:?}, got {found:?}"));
        }
    }
    Ok(())
}

/// Leaves out what is not needed for `fails` to fail.
pub fn shrink(mut ops: Vec<Op>, fails: impl Fn(&[Op]) -> Option<String>) -> (Vec<Op>, String) {
    let mut why = fails(&ops).unwrap_or_else(|| "only sometimes".to_owned());
    let mut len = ops.len() / 2;
    while len > 0 {
        let mut at = 0;
        let mut gone = false;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + len).min(ops.len()));
            if let Some(reason) = fails(&fewer) {
                (ops, why, gone) = (fewer, reason, true);
            } else {
                at += len;
            }
        }
        len = if gone { len } else { len / 2 };
    }
    (ops, why)
}

/// Makes operations up that mostly make sense to what is there.
pub struct Maker {
    random: SplitMix64,
    model: Posix,
    /// Whether to remount.
    pub remounts: bool,
    /// Whether ranges can be allocated.
    pub extents: bool,
}

impl Maker {
    pub fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed),
            model: Posix::new(START),
            remounts: true,
            extents: true,
        }
    }

    /// A sequence of `count`.
    pub fn ops(mut self, count: usize) -> Vec<Op> {
        let mut ops = Vec::new();
        for number in 0..count {
            let op = self.op();
            self.model.apply(&op, START + 1 + number as i64);
            ops.push(op);
        }
        ops
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound.max(1) as u64) as usize
    }

    fn name(&mut self) -> String {
        match self.below(30) {
            0 => "x".repeat(255),
            1 => "x".repeat(256),
            n => ["a", "b", "c", "dd", "e e", "f"][n % 6].to_owned(),
        }
    }

    /// A directory that is there, mostly.
    fn dir(&mut self) -> Path {
        let dirs = self.model.directories();
        let mut path = dirs[self.below(dirs.len())].clone();
        if path.len() > 4 {
            path.truncate(2);
        }
        if self.below(40) == 0 {
            path.push(self.name());
        }
        path
    }

    /// A name that may or may not be there.
    fn place(&mut self) -> Path {
        let mut path = self.dir();
        path.push(self.name());
        path
    }

    /// A time to set, on the same side of every clock.
    fn time(&mut self) -> i64 {
        let time = self.random.below(1 << 33) as i64;
        match BETWEEN_CLOCKS.contains(&time) {
            true => time + (BETWEEN_CLOCKS.end - BETWEEN_CLOCKS.start),
            false => time,
        }
    }

    /// Something that is there, mostly.
    fn path(&mut self) -> Path {
        let mut paths = self.model.paths();
        paths.retain(|path| !path.is_empty());
        if paths.is_empty() || self.below(12) == 0 {
            return self.place();
        }
        paths.swap_remove(self.below(paths.len()))
    }

    fn op(&mut self) -> Op {
        match self.below(100) {
            0..22 => self.make(),
            22..28 => Op::Link(self.path(), self.place()),
            28..38 => Op::Unlink(self.path()),
            38..43 => Op::Rmdir(self.path()),
            43..58 => self.rename(),
            58..75 => self.on_open(),
            75..98 => self.attributes(),
            98 => Op::Sync,
            _ if self.remounts => Op::Remount,
            _ => Op::Sync,
        }
    }

    fn make(&mut self) -> Op {
        let kind = match self.below(12) {
            0..4 => Kind::Directory,
            4 => Kind::Symlink(1 + self.below(100)),
            5 => Kind::Fifo,
            6 => Kind::Socket,
            7 => Kind::Char(1 + self.below(300) as u32, self.below(70_000) as u32),
            _ => Kind::File,
        };
        let mode = [0o600, 0o700, 0o400, 0o500][self.below(4)];
        Op::Make(self.place(), kind, mode)
    }

    fn rename(&mut self) -> Op {
        let mode = match self.below(6) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            2 => RenameMode::Whiteout(Creation::default()),
            _ => RenameMode::Replace,
        };
        let to = match self.below(2) {
            0 => self.place(),
            _ => self.path(),
        };
        Op::Rename(self.path(), to, mode)
    }

    fn on_open(&mut self) -> Op {
        let slot = self.below(SLOTS);
        let offset = self.below(20_000) as u64;
        match self.below(12) {
            0 | 1 => Op::Open(slot, self.path()),
            2 => Op::Unnamed(slot, self.dir()),
            3 => Op::LinkOpen(slot, self.place()),
            4 => Op::Close(slot),
            5..8 => Op::Write(slot, offset, self.below(9000)),
            8 => Op::Read(slot, offset, self.below(9000)),
            9 => Op::Truncate(slot, offset),
            10 => Op::Punch(slot, offset, 1 + self.below(9000) as u64),
            _ if !self.extents => Op::Close(slot),
            _ => Op::Allocate(
                slot,
                offset,
                1 + self.below(9000) as u64,
                self.below(2) == 0,
            ),
        }
    }

    fn attributes(&mut self) -> Op {
        let name = ["user.a", "user.b", "trusted.c", "security.d"][self.below(4)];
        let mode = [SetMode::Any, SetMode::Create, SetMode::Replace][self.below(3)];
        let modes = [0o755, 0o4755, 0o2755, 0o2745, 0o1777, 0o0, 0o6711];
        match self.below(10) {
            0 => Op::Chmod(self.path(), modes[self.below(modes.len())]),
            1 => {
                let owner = (0..2).map(|_| (self.below(3) > 0).then_some(0));
                let owner: Vec<Option<u32>> = owner.collect();
                let uid = owner[0].map(|_| self.below(90_000) as u32);
                let gid = owner[1].map(|_| self.below(90_000) as u32);
                Op::Chown(self.path(), uid, gid)
            }
            2 => Op::Utimes(self.path(), self.time()),
            3..6 => Op::SetXattr(self.path(), name, self.below(200), mode),
            6 => Op::RemoveXattr(self.path(), name),
            7 | 8 => Op::List(self.dir()),
            _ => Op::ReadLink(self.path()),
        }
    }
}
