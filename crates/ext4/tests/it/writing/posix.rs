//! A naive file system in memory: names and inodes as POSIX and the kernel have them, errors in the
//! kernel's order.

use std::collections::BTreeMap;

use rustix::io::Errno;
use uext4::RenameMode;
use uext4::xattr::SetMode;

use super::sequence::{Kind, Op, Outcome, Path, Reply, SLOTS, Stat, content, target};

const ROOT: u64 = 2;
const DIRECTORY: u16 = 0o040_000;
const REGULAR: u16 = 0o100_000;
const SYMLINK: u16 = 0o120_000;
const DAY: i64 = 24 * 60 * 60;

#[derive(Clone, Debug, Default)]
struct Node {
    stat: Stat,
    data: Vec<u8>,
    names: BTreeMap<String, u64>,
    /// Has no name yet, but may get one.
    unnamed: bool,
}

impl Node {
    fn kind(&self) -> u16 {
        self.stat.mode & 0o170_000
    }

    fn is_dir(&self) -> bool {
        self.kind() == DIRECTORY
    }
}

/// The file system.
pub struct Posix {
    nodes: BTreeMap<u64, Node>,
    open: [Option<u64>; SLOTS],
    next: u64,
    /// As the kernel does it for root, where the engine does otherwise: who writes keeps
    /// set-user-id, and a directory notes that a whiteout was put in and taken out again.
    pub is_kernel: bool,
}

type Answer<T> = Result<T, Errno>;

impl Posix {
    /// With an empty root directory.
    pub fn new(now: i64) -> Self {
        let stat = Stat {
            mode: DIRECTORY | 0o755,
            nlink: 2,
            atime: now,
            mtime: now,
            ctime: now,
            ..Stat::default()
        };
        let root = Node {
            stat,
            ..Node::default()
        };
        Self {
            nodes: [(ROOT, root)].into(),
            open: [None; SLOTS],
            next: ROOT + 1,
            is_kernel: false,
        }
    }

    /// All paths, the root's first.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = vec![(Vec::new(), ROOT)];
        let mut at = 0;
        while at < paths.len() {
            let (path, id) = paths[at].clone();
            for (name, child) in &self.nodes[&id].names {
                let mut path: Path = path.clone();
                path.push(name.clone());
                paths.push((path, *child));
            }
            at += 1;
        }
        paths.into_iter().map(|(path, _)| path).collect()
    }

    /// Those of directories.
    pub fn directories(&self) -> Vec<Path> {
        let mut paths = self.paths();
        paths.retain(|path| self.find(path).is_ok_and(|id| self.nodes[&id].is_dir()));
        paths
    }

    pub fn stat(&self, path: &[String]) -> Stat {
        self.nodes[&self.find(path).unwrap()].stat.clone()
    }

    pub fn stat_open(&self, slot: usize) -> Option<Stat> {
        let id = self.open[slot % SLOTS]?;
        Some(self.nodes[&id].stat.clone())
    }

    fn find(&self, path: &[String]) -> Answer<u64> {
        path.iter().try_fold(ROOT, |at, name| self.lookup(at, name))
    }

    fn lookup(&self, dir: u64, name: &str) -> Answer<u64> {
        let node = &self.nodes[&dir];
        if !node.is_dir() {
            return Err(Errno::NOTDIR);
        }
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        node.names.get(name).copied().ok_or(Errno::NOENT)
    }

    /// The directory a path leads to, and the last name.
    fn parent<'a>(&self, path: &'a [String]) -> Answer<(u64, &'a str)> {
        let (name, dirs) = path.split_last().unwrap();
        let dir = self.find(dirs)?;
        match self.nodes[&dir].is_dir() {
            true => Ok((dir, name)),
            false => Err(Errno::NOTDIR),
        }
    }

    fn node(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    fn changed(&mut self, id: u64, now: i64) {
        self.node(id).stat.ctime = now;
    }

    fn modified(&mut self, id: u64, now: i64) {
        let stat = &mut self.node(id).stat;
        (stat.mtime, stat.ctime) = (now, now);
    }

    fn accessed(&mut self, id: u64, now: i64) {
        let stat = &mut self.node(id).stat;
        if stat.atime <= stat.mtime || stat.atime <= stat.ctime || now - stat.atime >= DAY {
            stat.atime = now;
        }
    }

    /// A free name: its directory.
    fn free_name<'a>(&self, path: &'a [String]) -> Answer<(u64, &'a str)> {
        let (dir, name) = self.parent(path)?;
        match self.lookup(dir, name) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => Ok((dir, name)),
            Err(error) => Err(error),
        }
    }

    fn new_node(&mut self, dir: u64, mode: u16, now: i64) -> u64 {
        let parent = &self.nodes[&dir].stat;
        let (set_group, gid) = (parent.mode & 0o2000 != 0, parent.gid);
        let is_dir = mode & 0o170_000 == DIRECTORY;
        let stat = Stat {
            mode: mode | if set_group && is_dir { 0o2000 } else { 0 },
            nlink: if is_dir { 2 } else { 1 },
            gid: if set_group { gid } else { 0 },
            atime: now,
            mtime: now,
            ctime: now,
            ..Stat::default()
        };
        let id = self.next;
        self.next += 1;
        let node = Node {
            stat,
            ..Node::default()
        };
        self.nodes.insert(id, node);
        id
    }

    fn add(&mut self, dir: u64, name: &str, id: u64, now: i64) {
        let is_dir = self.nodes[&id].is_dir();
        let node = self.node(dir);
        node.names.insert(name.to_owned(), id);
        node.stat.nlink += u32::from(is_dir);
        self.modified(dir, now);
    }

    fn drop_link(&mut self, id: u64, now: i64) {
        let node = self.node(id);
        match node.is_dir() {
            true => node.stat.nlink = 0,
            false => node.stat.nlink -= 1,
        }
        self.changed(id, now);
    }

    fn take(&mut self, dir: u64, name: &str, now: i64) -> u64 {
        let id = self.node(dir).names.remove(name).unwrap();
        let is_dir = self.nodes[&id].is_dir();
        self.node(dir).stat.nlink -= u32::from(is_dir);
        self.modified(dir, now);
        id
    }

    /// Does it; `None` for what is not compared.
    pub fn apply(&mut self, op: &Op, now: i64) -> Option<Reply> {
        let done = |()| Outcome::Done;
        Some(match op {
            Op::Make(path, kind, mode) => self.make(path, *kind, *mode, now).map(done),
            Op::Link(from, to) => self.link(from, to, now).map(done),
            Op::Unlink(path) => self.unlink(path, now).map(done),
            Op::Rmdir(path) => self.rmdir(path, now).map(done),
            Op::Rename(from, to, mode) => self.rename(from, to, *mode, now).map(done),
            Op::Open(slot, path) => match self.find(path) {
                Ok(id) if self.nodes[&id].kind() != REGULAR => return None,
                Ok(id) => {
                    self.open[slot % SLOTS] = Some(id);
                    Ok(Outcome::Done)
                }
                Err(error) => Err(error),
            },
            Op::Unnamed(slot, dir) => match self.find(dir) {
                Ok(dir) if !self.nodes[&dir].is_dir() => Err(Errno::NOTDIR),
                Ok(dir) => {
                    let id = self.new_node(dir, REGULAR | 0o600, now);
                    let node = self.node(id);
                    (node.stat.nlink, node.unnamed) = (0, true);
                    self.open[slot % SLOTS] = Some(id);
                    Ok(Outcome::Done)
                }
                Err(error) => Err(error),
            },
            Op::Close(slot) => {
                self.open[slot % SLOTS].take()?;
                Ok(Outcome::Done)
            }
            Op::LinkOpen(slot, _)
            | Op::Write(slot, ..)
            | Op::Read(slot, ..)
            | Op::Truncate(slot, _)
            | Op::Punch(slot, ..)
            | Op::Allocate(slot, ..) => {
                let id = self.open[slot % SLOTS]?;
                self.on_open(id, op, now)
            }
            Op::Sync => Ok(Outcome::Done),
            Op::Remount => {
                self.open = [None; SLOTS];
                Ok(Outcome::Done)
            }
            Op::List(path) => self.find(path).and_then(|id| self.list(id, now)),
            Op::ReadLink(path) => self.find(path).and_then(|id| self.read_link(id, now)),
            Op::Chmod(path, _) => match self.find(path) {
                Ok(id) if self.nodes[&id].kind() == SYMLINK => return None,
                Ok(id) => self.attributes(id, op, now).map(done),
                Err(error) => Err(error),
            },
            Op::Chown(_, None, None) => return None,
            Op::Chown(path, ..)
            | Op::Utimes(path, _)
            | Op::SetXattr(path, ..)
            | Op::RemoveXattr(path, _) => self
                .find(path)
                .and_then(|id| self.attributes(id, op, now))
                .map(done),
        })
    }

    fn make(&mut self, path: &[String], kind: Kind, mode: u16, now: i64) -> Answer<()> {
        let (dir, name) = self.free_name(path)?;
        let (bits, len) = match kind {
            Kind::File => (REGULAR, 0),
            Kind::Directory => (DIRECTORY, 0),
            Kind::Symlink(len) => (SYMLINK | 0o777, len),
            Kind::Fifo => (0o010_000, 0),
            Kind::Socket => (0o140_000, 0),
            Kind::Char(..) => (0o020_000, 0),
        };
        let id = self.new_node(dir, bits | mode, now);
        let node = self.node(id);
        node.data = target(len);
        node.stat.size = len as u64;
        if let Kind::Char(major, minor) = kind {
            node.stat.rdev = (major, minor);
        }
        self.add(dir, name, id, now);
        Ok(())
    }

    fn link(&mut self, from: &[String], to: &[String], now: i64) -> Answer<()> {
        let id = self.find(from)?;
        let (dir, name) = self.free_name(to)?;
        if self.nodes[&id].is_dir() {
            return Err(Errno::PERM);
        }
        self.node(id).stat.nlink += 1;
        self.changed(id, now);
        self.add(dir, name, id, now);
        Ok(())
    }

    fn unlink(&mut self, path: &[String], now: i64) -> Answer<()> {
        let (dir, name) = self.parent(path)?;
        if self.nodes[&self.lookup(dir, name)?].is_dir() {
            return Err(Errno::ISDIR);
        }
        let id = self.take(dir, name, now);
        self.drop_link(id, now);
        Ok(())
    }

    fn rmdir(&mut self, path: &[String], now: i64) -> Answer<()> {
        let (dir, name) = self.parent(path)?;
        let node = &self.nodes[&self.lookup(dir, name)?];
        match (node.is_dir(), node.names.is_empty()) {
            (false, _) => return Err(Errno::NOTDIR),
            (true, false) => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        let id = self.take(dir, name, now);
        self.drop_link(id, now);
        Ok(())
    }

    fn is_in(&self, outer: u64, dir: u64) -> bool {
        outer == dir
            || self.nodes[&outer]
                .names
                .values()
                .any(|&n| self.is_in(n, dir))
    }

    fn rename(&mut self, from: &[String], to: &[String], mode: RenameMode, now: i64) -> Answer<()> {
        let (old_dir, old) = self.parent(from)?;
        let (new_dir, new) = self.parent(to)?;
        let source = self.lookup(old_dir, old)?;
        let replaced = match self.lookup(new_dir, new) {
            Ok(_) if mode == RenameMode::NoReplace => return Err(Errno::EXIST),
            Ok(id) => Some(id),
            Err(Errno::NOENT) if mode != RenameMode::Exchange => None,
            Err(error) => return Err(error),
        };
        let across = old_dir != new_dir;
        if across && self.is_in(source, new_dir) {
            return Err(Errno::INVAL);
        }
        if let Some(other) = replaced {
            if across && self.is_in(other, old_dir) {
                return Err(match mode {
                    RenameMode::Exchange => Errno::INVAL,
                    _ => Errno::NOTEMPTY,
                });
            }
            if other == source {
                return Ok(());
            }
            if mode != RenameMode::Exchange {
                let other = &self.nodes[&other];
                match (self.nodes[&source].is_dir(), other.is_dir()) {
                    (true, false) => return Err(Errno::NOTDIR),
                    (false, true) => return Err(Errno::ISDIR),
                    (true, true) if !other.names.is_empty() => {
                        if self.is_kernel && matches!(mode, RenameMode::Whiteout(_)) {
                            self.modified(old_dir, now);
                        }
                        return Err(Errno::NOTEMPTY);
                    }
                    _ => {}
                }
            }
        }
        let whiteout = (matches!(mode, RenameMode::Whiteout(_))).then(|| {
            // A mode of its own, as of a process.
            self.new_node(old_dir, 0o020_000, now)
        });
        self.take(old_dir, old, now);
        self.changed(source, now);
        if replaced.is_some() {
            self.take(new_dir, new, now);
        }
        self.add(new_dir, new, source, now);
        match (replaced, mode) {
            (Some(other), RenameMode::Exchange) => {
                self.changed(other, now);
                self.add(old_dir, old, other, now);
            }
            (Some(other), _) => self.drop_link(other, now),
            _ => {}
        }
        if let Some(whiteout) = whiteout {
            self.add(old_dir, old, whiteout, now);
        }
        Ok(())
    }

    fn on_open(&mut self, id: u64, op: &Op, now: i64) -> Reply {
        let is_kernel = self.is_kernel;
        let node = self.nodes.get_mut(&id).unwrap();
        let size = node.data.len();
        match *op {
            Op::LinkOpen(_, ref to) => {
                let (dir, name) = self.free_name(to)?;
                let node = self.node(id);
                if node.stat.nlink == 0 && !node.unnamed {
                    return Err(Errno::NOENT);
                }
                node.stat.nlink += 1;
                node.unnamed = false;
                self.changed(id, now);
                self.add(dir, name, id, now);
                return Ok(Outcome::Done);
            }
            Op::Read(_, offset, len) => {
                let from = (offset as usize).min(size);
                let bytes = node.data[from..(from + len).min(size)].to_vec();
                if len > 0 {
                    self.accessed(id, now);
                }
                return Ok(Outcome::Bytes(bytes));
            }
            Op::Write(_, offset, len) => {
                if len == 0 {
                    return Ok(Outcome::Done);
                }
                let (from, to) = (offset as usize, offset as usize + len);
                node.data.resize(size.max(to), 0);
                node.data[from..to].copy_from_slice(&content(now, len));
                if !is_kernel {
                    drop_set_id(&mut node.stat);
                }
            }
            Op::Truncate(_, to) => node.data.resize(to as usize, 0),
            Op::Punch(_, offset, len) => {
                let (from, to) = (offset as usize, (offset + len) as usize);
                node.data[from.min(size)..to.min(size)].fill(0);
            }
            Op::Allocate(_, offset, len, keep_size) => {
                let to = (offset + len) as usize;
                if !keep_size {
                    node.data.resize(size.max(to), 0);
                }
            }
            _ => unreachable!("not of open files"),
        }
        node.stat.size = node.data.len() as u64;
        self.modified(id, now);
        Ok(Outcome::Done)
    }

    fn list(&mut self, id: u64, now: i64) -> Reply {
        if !self.nodes[&id].is_dir() {
            return Err(Errno::NOTDIR);
        }
        self.accessed(id, now);
        let names = self.nodes[&id].names.keys().cloned().collect();
        Ok(Outcome::Names(names))
    }

    fn read_link(&mut self, id: u64, now: i64) -> Reply {
        if self.nodes[&id].kind() != SYMLINK {
            return Err(Errno::INVAL);
        }
        self.accessed(id, now);
        Ok(Outcome::Bytes(self.nodes[&id].data.clone()))
    }

    fn attributes(&mut self, id: u64, op: &Op, now: i64) -> Answer<()> {
        let node = self.node(id);
        let (is_dir, kind) = (node.is_dir(), node.kind());
        let stat = &mut node.stat;
        match *op {
            Op::Chmod(_, mode) => stat.mode = kind | mode,
            Op::Chown(_, uid, gid) => {
                stat.uid = uid.unwrap_or(stat.uid);
                stat.gid = gid.unwrap_or(stat.gid);
                if !is_dir {
                    drop_set_id(stat);
                }
            }
            Op::Utimes(_, time) => (stat.atime, stat.mtime) = (time, time),
            Op::SetXattr(_, name, len, mode) => {
                if name.starts_with("user.") && !is_dir && kind != REGULAR {
                    return Err(Errno::PERM);
                }
                let at = stat.xattrs.iter().position(|(n, _)| n == name);
                match (at, mode) {
                    (Some(_), SetMode::Create) => return Err(Errno::EXIST),
                    (None, SetMode::Replace) => return Err(Errno::NODATA),
                    (Some(at), _) => stat.xattrs[at].1 = content(now, len),
                    (None, _) => stat.xattrs.push((name.to_owned(), content(now, len))),
                }
                stat.xattrs.sort();
            }
            Op::RemoveXattr(_, name) => {
                if name.starts_with("user.") && !is_dir && kind != REGULAR {
                    return Err(Errno::PERM);
                }
                let at = stat.xattrs.iter().position(|(n, _)| n == name);
                stat.xattrs.remove(at.ok_or(Errno::NODATA)?);
            }
            _ => unreachable!("changes no attributes"),
        }
        self.changed(id, now);
        Ok(())
    }
}

fn drop_set_id(stat: &mut Stat) {
    stat.mode &= !0o4000;
    if stat.mode & 0o010 != 0 {
        stat.mode &= !0o2000;
    }
}
