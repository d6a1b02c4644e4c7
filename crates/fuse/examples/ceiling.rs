//! The ceiling: a file system that does next to nothing, behind the same transports, with the
//! same words in INIT and the same answers that hold for good. What the mount of an image costs
//! in addition to it is the engine's; what this one costs is the kernel's and the transport's.
//!
//! ```text
//! ceiling DIR [auto|dev|io_uring [auto|spread [writeback_cache]]]
//! ```
//! Mounts at `DIR` and serves until it is unmounted. Everything is in memory: files are bytes, a
//! directory is a map. Requests are those that the mount of an image gets: FLUSH and OPENDIR are
//! answered once with ENOSYS, attributes that are asked for are not there. No hard links, no
//! special files.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxBuildHasher;
use rustix::mount::MountFlags;
use uext4_fuse::abi::flags::{fattr, fopen, init as has};
use uext4_fuse::abi::{
    Attr, CreateIn, Dirent, EntryOut, InHeader, Kstatfs, OpenOut, ReadIn, SetattrIn, WriteIn,
    WriteOut,
};
use uext4_fuse::errno::{Errno, Result};
use uext4_fuse::init::{self, Negotiated, Wishes};
use uext4_fuse::request::{Listing, Operation, Request, each_forgotten};
use uext4_fuse::session::{How, Session};
use uext4_fuse::{Answer, Channel, Out, Placement, Serve, Transport, Validity, mount};
use zerocopy::IntoBytes;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
/// Blocks of 4 KiB that the file system claims to have.
const BLOCKS: u64 = 1 << 22;

#[derive(Debug, Default)]
struct Directory {
    /// Nodes, and their places in the listing.
    names: HashMap<Vec<u8>, (u64, u64), FxBuildHasher>,
    order: BTreeMap<u64, Vec<u8>>,
    last: u64,
}

impl Directory {
    fn find(&self, name: &[u8]) -> Result<u64> {
        let found = self.names.get(name);
        found.map(|(id, _)| *id).ok_or(Errno::ENOENT)
    }

    fn add(&mut self, name: &[u8], id: u64) {
        self.last += 1;
        let cookie = self.last;
        self.names.insert(name.to_vec(), (id, cookie));
        self.order.insert(cookie, name.to_vec());
    }

    fn take(&mut self, name: &[u8]) -> Option<u64> {
        let (id, cookie) = self.names.remove(name)?;
        self.order.remove(&cookie);
        Some(id)
    }
}

#[derive(Debug, Default)]
struct Node {
    attr: Attr,
    lookups: u64,
    data: Vec<u8>,
    dir: Directory,
}

type Shared = Arc<Mutex<Node>>;

/// Nodes by their number, less one; those that are gone leave a place that no thread gets again.
#[derive(Debug, Default)]
struct Ceiling {
    nodes: RwLock<Vec<Option<Shared>>>,
    negotiated: OnceLock<Negotiated>,
    validity: Validity,
    /// Flags of INIT that the mount of an image asks for only with an option.
    flags: u64,
}

fn now() -> (u64, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    (now.as_secs(), now.subsec_nanos())
}

impl Ceiling {
    fn new(flags: u64) -> Self {
        let ceiling = Self {
            flags,
            ..Self::default()
        };
        ceiling.make(&InHeader::default(), DIRECTORY | 0o777);
        ceiling
    }

    fn get(&self, id: u64) -> Result<Shared> {
        let nodes = self.nodes.read();
        let found = nodes.get(id.wrapping_sub(1) as usize).cloned().flatten();
        found.ok_or(Errno::ESTALE)
    }

    /// A node without a name.
    fn make(&self, header: &InHeader, mode: u32) -> (u64, Shared) {
        let (sec, nsec) = now();
        let attr = Attr {
            atime: sec,
            mtime: sec,
            ctime: sec,
            atimensec: nsec,
            mtimensec: nsec,
            ctimensec: nsec,
            mode,
            nlink: 1 + u32::from(mode & DIRECTORY == DIRECTORY),
            uid: header.uid,
            gid: header.gid,
            blksize: 4096,
            ..Attr::default()
        };
        let node = Shared::default();
        let mut nodes = self.nodes.write();
        nodes.push(Some(Arc::clone(&node)));
        let id = nodes.len() as u64;
        drop(nodes);
        node.lock().attr = Attr { ino: id, ..attr };
        (id, node)
    }

    fn forget(&self, id: u64, lookups: u64) {
        let Ok(node) = self.get(id) else { return };
        let mut node = node.lock();
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 && node.attr.nlink == 0 {
            let mut nodes = self.nodes.write();
            nodes[id as usize - 1] = None;
        }
    }

    /// The entry of a node that the kernel is notified of.
    fn reported(&self, node: &Shared) -> EntryOut {
        let mut node = node.lock();
        node.lookups += 1;
        let attr = node.attr;
        EntryOut {
            nodeid: attr.ino,
            ..self.validity.entry(attr, 0)
        }
    }

    fn lookup(&self, dir: u64, name: &[u8], out: &mut Out<'_>) -> Result<()> {
        let found = self.get(dir)?.lock().dir.find(name);
        match found {
            Ok(id) => out.put(&self.reported(&self.get(id)?)),
            Err(_) => out.put(&self.validity.no_entry()),
        }
    }

    /// A file, a directory, or a link with its target.
    fn create(
        &self,
        header: &InHeader,
        (mode, target): (u32, &[u8]),
        name: &[u8],
        out: &mut Out<'_>,
    ) -> Result<()> {
        let dir = self.get(header.nodeid)?;
        let mut dir = dir.lock();
        if dir.dir.find(name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let (id, node) = self.make(header, mode);
        if !target.is_empty() {
            let mut link = node.lock();
            link.attr.size = target.len() as u64;
            link.data = target.to_vec();
        }
        dir.dir.add(name, id);
        drop(dir);
        out.put(&self.reported(&node))
    }

    /// Takes a node's name; what is left of it lives as long as the kernel knows it.
    fn drop_name(&self, id: u64) {
        if let Ok(node) = self.get(id) {
            node.lock().attr.nlink = 0;
        }
    }

    fn unlink(&self, dir: u64, name: &[u8]) -> Result<()> {
        let taken = self.get(dir)?.lock().dir.take(name);
        self.drop_name(taken.ok_or(Errno::ENOENT)?);
        Ok(())
    }

    fn rmdir(&self, dir: u64, name: &[u8]) -> Result<()> {
        let id = self.get(dir)?.lock().dir.find(name)?;
        let is_empty = self.get(id)?.lock().dir.names.is_empty();
        match is_empty {
            true => self.unlink(dir, name),
            false => Err(Errno::ENOTEMPTY),
        }
    }

    fn rename(&self, old: (u64, &[u8]), new: (u64, &[u8]), flags: u32) -> Result<()> {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        // The kernel holds both directories.
        let id = self.get(old.0)?.lock().dir.take(old.1);
        let id = id.ok_or(Errno::ENOENT)?;
        let dir = self.get(new.0)?;
        let mut dir = dir.lock();
        let replaced = dir.dir.take(new.1);
        dir.dir.add(new.1, id);
        drop(dir);
        replaced.into_iter().for_each(|id| self.drop_name(id));
        Ok(())
    }

    fn setattr(&self, id: u64, it: &SetattrIn, out: &mut Out<'_>) -> Result<()> {
        let node = self.get(id)?;
        let mut node = node.lock();
        let has = |flag| it.valid & flag != 0;
        if has(fattr::SIZE) {
            node.data.resize(it.size as usize, 0);
            node.attr.size = it.size;
        }
        let (sec, nsec) = now();
        let attr = &mut node.attr;
        if has(fattr::MODE) {
            attr.mode = attr.mode & !0o7777 | it.mode & 0o7777;
        }
        attr.uid = if has(fattr::UID) { it.uid } else { attr.uid };
        attr.gid = if has(fattr::GID) { it.gid } else { attr.gid };
        if has(fattr::ATIME) {
            let is_now = has(fattr::ATIME_NOW);
            (attr.atime, attr.atimensec) = [(it.atime, it.atimensec), (sec, nsec)][is_now as usize];
        }
        if has(fattr::MTIME) {
            let is_now = has(fattr::MTIME_NOW);
            (attr.mtime, attr.mtimensec) = [(it.mtime, it.mtimensec), (sec, nsec)][is_now as usize];
        }
        (attr.ctime, attr.ctimensec) = (sec, nsec);
        out.put(&self.validity.attr(*attr))
    }

    fn read(&self, id: u64, it: &ReadIn, out: &mut Out<'_>) -> Result<()> {
        let node = self.get(id)?;
        let node = node.lock();
        let start = node.data.len().min(it.offset as usize);
        let room = out.room(it.size as usize);
        let len = room.len().min(node.data.len() - start);
        room[..len].copy_from_slice(&node.data[start..start + len]);
        out.fill(len);
        Ok(())
    }

    fn write(&self, id: u64, it: &WriteIn, data: &[u8], out: &mut Out<'_>) -> Result<()> {
        let node = self.get(id)?;
        let mut node = node.lock();
        let start = it.offset as usize;
        let end = start.checked_add(data.len()).ok_or(Errno::EFBIG)?;
        let bytes = &mut node.data;
        if start > bytes.len() {
            bytes.resize(start, 0);
        }
        // What is there is written over, the rest is added.
        let over = data.len().min(bytes.len() - start);
        bytes[start..start + over].copy_from_slice(&data[..over]);
        bytes.extend_from_slice(&data[over..]);
        let attr = &mut node.attr;
        attr.size = attr.size.max(end as u64);
        attr.blocks = attr.size.div_ceil(512);
        (attr.mtime, attr.mtimensec) = now();
        out.put(&WriteOut {
            size: it.size,
            padding: 0,
        })
    }

    fn readdir(&self, id: u64, it: &ReadIn, listing: Listing, out: &mut Out<'_>) -> Result<()> {
        let dir = self.get(id)?;
        let dir = dir.lock();
        for (cookie, name) in dir.dir.order.range(it.offset + 1..) {
            let node = self.get(dir.dir.find(name)?)?;
            let attr = node.lock().attr;
            let dirent = Dirent {
                ino: attr.ino,
                off: *cookie,
                namelen: name.len() as u32,
                type_: attr.mode >> 12,
            };
            let entry = EntryOut {
                nodeid: attr.ino,
                ..self.validity.entry(attr, 0)
            };
            let before = match listing {
                Listing::Plus => entry.as_bytes(),
                Listing::Names => &[],
            };
            if !out.entry(it.size as usize, before, dirent, name) {
                break;
            }
            if listing == Listing::Plus {
                node.lock().lookups += 1;
            }
        }
        Ok(())
    }

    fn opened(&self, out: &mut Out<'_>) -> Result<()> {
        out.put(&OpenOut {
            open_flags: fopen::KEEP_CACHE | fopen::NOFLUSH,
            ..OpenOut::default()
        })
    }

    fn statfs(&self, out: &mut Out<'_>) -> Result<()> {
        out.put(&Kstatfs {
            blocks: BLOCKS,
            bfree: BLOCKS,
            bsize: 4096,
            namelen: 255,
            ..Kstatfs::default()
        })
    }

    fn answer(&self, request: &Request<'_>, out: &mut Out<'_>) -> Result<()> {
        let header = &request.header;
        let id = header.nodeid;
        match request.operation {
            Operation::Init(asked) => {
                let wishes = Wishes {
                    flags: self.flags,
                    ..Wishes::default()
                };
                let (reply, negotiated) = init::agree(&asked, wishes)?;
                if let Some(negotiated) = negotiated {
                    _ = self.negotiated.set(negotiated);
                }
                out.put(&reply)
            }
            Operation::Lookup(name) => self.lookup(id, name, out),
            Operation::Create(CreateIn { mode, umask, .. }, name) => {
                let mode = REGULAR | mode & !umask & 0o7777;
                self.create(header, (mode, &[]), name, out)?;
                self.opened(out)
            }
            Operation::Mkdir(it, name) => {
                let mode = DIRECTORY | it.mode & !it.umask & 0o7777;
                self.create(header, (mode, &[]), name, out)
            }
            Operation::Symlink { name, target } => {
                self.create(header, (SYMLINK | 0o777, target), name, out)
            }
            Operation::Readlink => out.put_bytes(&self.get(id)?.lock().data),
            Operation::Unlink(name) => self.unlink(id, name),
            Operation::Rmdir(name) => self.rmdir(id, name),
            Operation::Rename {
                newdir,
                flags,
                old,
                new,
            } => self.rename((id, old), (newdir, new), flags),
            Operation::Getattr(_) => out.put(&self.validity.attr(self.get(id)?.lock().attr)),
            Operation::Setattr(it) => self.setattr(id, &it, out),
            Operation::Open(_) => self.opened(out),
            Operation::Read(it) => self.read(id, &it, out),
            Operation::Write(it, data) => self.write(id, &it, data, out),
            Operation::Readdir(it, listing) => self.readdir(id, &it, listing, out),
            Operation::Getxattr(..) => Err(Errno::ENODATA),
            Operation::Statfs => self.statfs(out),
            Operation::Fsync(..) | Operation::Fsyncdir => Ok(()),
            Operation::Release(_) | Operation::Releasedir | Operation::Destroy => Ok(()),
            _ => Err(Errno::ENOSYS),
        }
    }
}

impl Serve for Ceiling {
    fn handle(
        self: &Arc<Self>,
        request: &Request<'_>,
        out: &mut Out<'_>,
        _: &Arc<dyn Channel>,
    ) -> Answer {
        match request.operation {
            Operation::Forget(lookups) => self.forget(request.header.nodeid, lookups),
            Operation::BatchForget(all) => {
                each_forgotten(all).for_each(|one| self.forget(one.nodeid, one.nlookup));
            }
            Operation::Interrupt(_) => {}
            _ => return self.answer(request, out).into(),
        }
        Answer::Never
    }

    fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.get()
    }

    fn finish(&self) -> uext4::Result<()> {
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let dir = PathBuf::from(
        arguments
            .next()
            .ok_or("ceiling DIR [TRANSPORT [PLACEMENT [writeback_cache]]]")?,
    );
    let transport = match arguments.next() {
        None => Transport::Auto,
        Some(name) if name == "auto" => Transport::Auto,
        Some(name) if name == "dev" => Transport::Dev,
        Some(name) if name == "io_uring" => Transport::Uring,
        Some(_) => return Err("TRANSPORT must be auto, dev or io_uring".into()),
    };
    let placement = match arguments.next() {
        None => Placement::Auto,
        Some(name) if name == "auto" => Placement::Auto,
        Some(name) if name == "spread" => Placement::Spread,
        Some(_) => return Err("PLACEMENT must be auto or spread".into()),
    };
    let flags = match arguments.next() {
        None => 0,
        Some(name) if name == "writeback_cache" => has::WRITEBACK_CACHE,
        Some(_) => return Err("the last word must be writeback_cache".into()),
    };
    let options = mount::Options {
        source: "ceiling".into(),
        flags: MountFlags::NOSUID | MountFlags::NODEV,
        allow_other: false,
        kernel_decides: true,
        nonempty: false,
    };
    let (fd, mounted) = mount::mount(&dir, &options)?;
    let how = How {
        transport,
        placement,
        ..How::default()
    };
    let session = Session::begin(Arc::new(Ceiling::new(flags)), fd, how);
    let session = session.inspect_err(|_| _ = mounted.end())?;
    session.wait()?;
    Ok(())
}
