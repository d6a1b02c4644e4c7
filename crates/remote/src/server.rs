//! The serving side of a connection: requests in, changes to the file system, answers out.
//!
//! ```text
//! frame ──► request ──► engine ──► what changed ──► the observer ──► answers
//! ```
//! The observer (a mount, which has the kernel forget what it knows) hears of the changes of a
//! batch before the client is answered: who acts on the answer finds them in the mount.
//!
//! What comes is bounded before it is used: a frame and an answer by [`FRAME_MAX`], open files by
//! [`SLOTS_MAX`]. A client that sends what is no request loses the connection; one that ends, in
//! the middle of a batch too, leaves what was done until then.
//!
//! Locks: the [`Gate`] is held for reading while a frame is served, so that the file system is not
//! closed meanwhile; the engine's are taken and given back within each request, and none is held
//! while the observer is called.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_bytes::ByteBuf;
use uext4::{Creation, Error, FileType, FollowLast, Ino, OpenInode, Result, Volume};
use uext4_blockdev::Kept;

use crate::changes::{Changes, Observer};
use crate::entry::{self, Contents};
use crate::frame::{FRAME_MAX, receive, send};
use crate::gate::{Gate, closing};
use crate::grower::Grower;
use crate::idle::Idle;
use crate::listed::{listed, ranges};
use crate::mount_points::MountPoints;
use crate::passed::Passed;
use crate::put_mode::Existing;
use crate::refusal::{Cause, Refusal};
use crate::requested::{Xattrs, peer, with_entry, xattrs};
use crate::rights::Rights;
use crate::snapshot::Disk;
use crate::wire::{Answer, Growth, NewEntry, READ_MAX, Request, Slot, set_mode};

/// Open files of a connection at most.
pub const SLOTS_MAX: usize = 4096;
/// Bytes of an answer at most.
const ANSWER_MAX: usize = 2 << 20;

/// What a connection needs of the process that has the file system open.
#[derive(Clone)]
pub struct Server {
    /// The file system that is served.
    pub fs: Volume,
    /// Hears of every change, so that the mount can make the kernel forget what it has cached.
    pub observer: Arc<dyn Observer>,
    /// Ends the batches under way when the file system is closed.
    pub gate: Arc<Gate>,
    /// Each batch is durable before it is answered.
    pub is_synchronous: bool,
    /// Extended attributes are set: the kernel would not see them where the mount leaves them out.
    pub sets_xattrs: bool,
    /// What snapshots are of, if there can be any.
    pub disk: Option<Arc<Disk>>,
    /// What makes it larger, if anything does.
    pub grower: Option<Arc<dyn Grower>>,
    /// What clients may ask for.
    pub rights: Rights,
    /// Clients that make room for others.
    pub idle: Idle,
}

impl Server {
    /// Serves a client until it ends the connection, or the file system is closed.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` for what is no request.
    pub fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        let mut connection = Connection {
            server: self,
            files: BTreeMap::new(),
            incomplete: BTreeSet::new(),
            changes: Changes::default(),
            has_failed: false,
            buffer: Vec::new(),
            snapshot: None,
            passes_image: false,
            mount_points: OnceCell::new(),
            process: peer(stream),
        };
        let shared = Arc::new(stream.try_clone()?);
        let mut bytes = Vec::new();
        loop {
            let is_idle = connection.keeps_nothing();
            if is_idle {
                self.idle.enter(&shared);
            }
            let received = receive(stream, bytes);
            if is_idle && !self.idle.leave(&shared) {
                return Ok(());
            }
            let Some(frame) = received? else {
                return Ok(());
            };
            let busy = self.gate.busy.read();
            connection.mount_points.take();
            let passed = Passed::new(frame.descriptors, Arc::clone(&self.gate));
            // What a panic leaves half done must not be committed.
            let batch = AssertUnwindSafe(|| connection.batch(&frame.bytes, &passed));
            let answers = catch_unwind(batch).unwrap_or_else(|_| {
                self.fs.abort(&"a panic while a command was served");
                Err(io::Error::other("a panic"))
            });
            // Also of a batch that was ended.
            connection.changes.report(&*self.observer);
            drop(busy);
            let answers = answers?;
            let passes = std::mem::take(&mut connection.passes_image);
            let image = self.disk.as_deref().filter(|_| passes).map(Disk::passed);
            send(stream, &answers, image.as_slice())?;
            bytes = frame.bytes;
        }
    }
}

struct Connection<'s> {
    server: &'s Server,
    files: BTreeMap<Slot, OpenInode>,
    /// Directories that were made, and get their attributes when all in them is there.
    incomplete: BTreeSet<Slot>,
    changes: Changes,
    /// A name could not be made for a reason that keeps others from being made.
    has_failed: bool,
    /// Contents on their way.
    buffer: Vec<u8>,
    snapshot: Option<Kept>,
    /// With the answers of this frame.
    passes_image: bool,
    /// What may not be taken away, from when the first request of a frame asks.
    mount_points: OnceCell<MountPoints>,
    /// The client's, where it is known.
    process: Option<u32>,
}

impl Connection<'_> {
    /// Whether the client loses nothing with its connection.
    fn keeps_nothing(&self) -> bool {
        self.files.is_empty() && self.snapshot.is_none()
    }

    /// Does all requests of a frame, and returns their answers.
    fn batch(&mut self, mut rest: &[u8], passed: &Passed) -> io::Result<Vec<u8>> {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        let mut answers = Vec::new();
        let mut count = 0;
        while !rest.is_empty() {
            let (request, after) =
                postcard::take_from_bytes::<Request<'_>>(rest).map_err(invalid)?;
            rest = after;
            if self.server.gate.is_closing() {
                return Err(closing());
            }
            let answer = self
                .answer(&request, passed)
                .unwrap_or_else(|error| Answer::Refused(Refusal::from(&error)));
            let mut bytes = postcard::to_stdvec(&answer).map_err(invalid)?;
            if bytes.len() > ANSWER_MAX {
                let refused = Answer::Refused(Refusal {
                    cause: Cause::Limit,
                    message: format!("the answer has {} bytes, at most {ANSWER_MAX}", bytes.len()),
                });
                bytes = postcard::to_stdvec(&refused).map_err(invalid)?;
            }
            answers.extend_from_slice(&bytes);
            count += 1;
            if answers.len() > FRAME_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        if self.server.is_synchronous
            && let Err(error) = self.server.fs.sync()
        {
            // Nothing of it is certain.
            let refused = Answer::Refused(Refusal::from(&error));
            answers.clear();
            for _ in 0..count {
                answers = postcard::to_extend(&refused, answers).map_err(invalid)?;
            }
        }
        Ok(answers)
    }

    fn file(&self, slot: Slot) -> Result<&OpenInode> {
        self.files.get(&slot).ok_or(Error::NotFound)
    }

    /// Opens a file under the client's number for it.
    fn open(&mut self, slot: Slot, inode: OpenInode) -> Result<Answer> {
        self.server.observer.write_back_of(&inode);
        let view = (&inode.inode()).into();
        self.keep(slot, inode)?;
        Ok(Answer::View(view))
    }

    fn keep(&mut self, slot: Slot, inode: OpenInode) -> Result<()> {
        if self.files.len() >= SLOTS_MAX && !self.files.contains_key(&slot) {
            return Err(Error::Unsupported {
                what: format!("more than {SLOTS_MAX} open files"),
            });
        }
        self.files.insert(slot, inode);
        Ok(())
    }

    fn answer(&mut self, request: &Request<'_>, passed: &Passed) -> Result<Answer> {
        let is_of_a_tree = matches!(
            request,
            Request::Put(_) | Request::Complete(_) | Request::Close(_)
        );
        self.has_failed &= is_of_a_tree;
        if !self.server.rights.allow(request) {
            return Err(Error::ReadOnly);
        }
        match request {
            Request::Open(path, follow, to) => {
                let last = match follow {
                    true => FollowLast::Yes,
                    false => FollowLast::No,
                };
                let found = self.server.fs.open_path(path, last)?;
                self.open(*to, found)
            }
            Request::OpenNumber(ino, to) => {
                let found = entry::open_number(&self.server.fs, Ino(*ino))?;
                self.open(*to, found)
            }
            Request::OpenParent(path, to) => {
                let (dir, _) = self.server.fs.open_parent(path)?;
                self.open(*to, dir)
            }
            Request::Lookup(dir, name, to) => {
                let found = self.file(*dir)?.lookup(name)?;
                self.open(*to, found)
            }
            Request::Put(new) => Ok(self.put(new, passed)),
            Request::Complete(new) => self.complete(new),
            Request::Close(slot) => {
                self.files.remove(slot);
                Ok(Answer::Done)
            }
            Request::Sync => self.server.fs.sync().map(|()| Answer::Done),
            Request::Snapshot(store) => self.begin_snapshot(*store, passed),
            Request::Grow(growth) => self.grow(*growth),
            Request::SetQuota(whose, id, limits) => {
                let fs = &self.server.fs;
                fs.set_quota((*whose).into(), *id, (*limits).into())?;
                Ok(Answer::Done)
            }
            _ => self.answer_names(request),
        }
    }

    /// Begins a snapshot in place of the last one.
    fn begin_snapshot(&mut self, store: u32, passed: &Passed) -> Result<Answer> {
        self.snapshot = None;
        let disk = self.server.disk.as_ref().ok_or(Error::Unsupported {
            what: "snapshots of this mount".to_owned(),
        })?;
        self.server.observer.write_back();
        let (kept, answer) = disk.keep(&self.server.fs, passed.file(store))?;
        self.snapshot = Some(kept);
        self.passes_image = true;
        Ok(answer)
    }

    fn grow(&self, growth: Growth) -> Result<Answer> {
        let grower = self.server.grower.as_ref().ok_or(Error::Unsupported {
            what: "growing the file system of this mount".to_owned(),
        })?;
        let grown = grower.grow(&self.server.fs, growth);
        Ok(grown.map_or_else(Answer::Refused, Answer::Grown))
    }

    /// Requests that change names.
    fn answer_names(&mut self, request: &Request<'_>) -> Result<Answer> {
        let fs = &self.server.fs;
        match request {
            Request::Create(path, kind, how, to) => {
                let made = fs.create(path, (*kind).into(), &Creation::from(*how))?;
                self.changed_path(path);
                self.open(*to, made)
            }
            Request::CreateAll(path, how, to) => {
                // The kernel forgets what is mounted below a name, so it is notified of none that
                // stays.
                let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
                let ends = ends.map(|(at, _)| at).chain([path.len()]);
                let missing = |end: &usize| fs.open_path(&path[..*end], FollowLast::No).is_err();
                let missing: Vec<usize> = ends.filter(missing).collect();
                let made = fs.create_dir_all(path, &Creation::from(*how));
                for end in missing {
                    self.changed_path(&path[..end]);
                }
                self.open(*to, made?)
            }
            Request::CreateUnnamed(dir, kind, how, to) => {
                let dir = self.file(*dir)?;
                let made = dir.create_unnamed((*kind).into(), &Creation::from(*how))?;
                self.open(*to, made)
            }
            Request::CreateUnnamedLike(dir, old, to) => {
                let made = self.file(*dir)?.create_unnamed_like(self.file(*old)?)?;
                self.open(*to, made)
            }
            Request::LinkOpen(file, dir, name) => {
                let (file, dir) = (self.file(*file)?.clone(), self.file(*dir)?.clone());
                self.name(&file, &dir, name, || file.link_over(&dir, name))
            }
            Request::GiveName(file, dir, name, like) => {
                let (file, dir) = (self.file(*file)?.clone(), self.file(*dir)?.clone());
                self.name(&file, &dir, name, || {
                    entry::give_name(&file, &dir, name, *like)
                })
            }
            _ => self.answer_paths(request),
        }
    }

    /// Gives a file a name that another may have.
    fn name(
        &mut self,
        file: &OpenInode,
        dir: &OpenInode,
        name: &[u8],
        give: impl FnOnce() -> Result<()>,
    ) -> Result<Answer> {
        let old = dir.lookup(name).ok();
        self.must_be_free(dir, name)?;
        give()?;
        self.changes.name(dir, name);
        for inode in old.iter().chain([file]) {
            self.changes.inode(inode);
        }
        Ok(Answer::Done)
    }

    /// Requests that move and remove paths.
    fn answer_paths(&mut self, request: &Request<'_>) -> Result<Answer> {
        let fs = &self.server.fs;
        match request {
            Request::Link(old, new) => {
                fs.link(old, new)?;
                if let Ok(linked) = fs.open_path(old, FollowLast::No) {
                    self.changes.inode(&linked);
                }
                self.changed_path(new);
                Ok(Answer::Done)
            }
            Request::Remove(path, all) => {
                let removed = fs.open_path(path, FollowLast::No).ok();
                self.path_must_be_free(path)?;
                let done = match all {
                    true => fs.remove_all(path),
                    false => fs.remove(path),
                };
                self.changed_path(path);
                if let Some(inode) = removed {
                    self.changes.many |= inode.inode().file_type == FileType::Directory && *all;
                    self.changes.inode(&inode);
                }
                done.map(|()| Answer::Done)
            }
            Request::Rename(old, new, mode) => {
                let both = [old, new].map(|path| fs.open_path(path, FollowLast::No).ok());
                for path in [old, new] {
                    self.path_must_be_free(path)?;
                }
                // Before it replaces another file, as with a rename of a program.
                if let [Some(moved), Some(_)] = &both {
                    self.server.observer.write_back_of(moved);
                }
                fs.rename(old, new, (*mode).into())?;
                for path in [old, new] {
                    self.changed_path(path);
                }
                for inode in both.iter().flatten() {
                    self.changes.inode(inode);
                }
                Ok(Answer::Done)
            }
            _ => self.answer_files(request),
        }
    }

    /// Requests for one open file.
    fn answer_files(&mut self, request: &Request<'_>) -> Result<Answer> {
        Ok(match request {
            Request::View(slot) => Answer::View((&self.file(*slot)?.inode()).into()),
            Request::List(slot, cookie) => Answer::Names(listed(self.file(*slot)?, *cookie)?),
            Request::Read(slot, offset, len) => {
                let mut bytes = vec![0; (*len).min(READ_MAX) as usize];
                let read = self.file(*slot)?.read_at(*offset, &mut bytes)?;
                bytes.truncate(read);
                Answer::Bytes(ByteBuf::from(bytes))
            }
            Request::ReadLink(slot) => Answer::Bytes(self.file(*slot)?.read_link()?.into()),
            Request::Xattrs(slot) => {
                let all = self.file(*slot)?.xattrs()?.into_iter();
                Answer::Xattrs(all.map(|it| (it.name.into(), it.value.into())).collect())
            }
            Request::Xattr(slot, name) => Answer::Bytes(self.file(*slot)?.xattr(name)?.into()),
            Request::ShareXattrs(slot) => Answer::Shared(self.file(*slot)?.share_xattrs()?),
            Request::Fsync(slot) => {
                self.file(*slot)?.fsync()?;
                Answer::Done
            }
            Request::Write(slot, offset, bytes) => {
                // Not through a user of its own: the client has the file open until it closes it.
                let written = self.file(*slot)?.write_at(*offset, bytes);
                self.changed(*slot);
                Answer::Written(written? as u64)
            }
            Request::Set(slot, change) => {
                let file = self.file(*slot)?.clone();
                self.changes.inode(&file);
                file.set_attributes(&(*change).into())?;
                Answer::Done
            }
            Request::SetXattr(_, _, Some(_), _) if !self.server.sets_xattrs => {
                return Err(no_xattrs());
            }
            Request::SetXattr(slot, name, value, must_exist) => {
                let file = self.file(*slot)?.clone();
                self.changes.inode(&file);
                file.set_xattr(name, value.map(|value| &**value), set_mode(*must_exist))?;
                Answer::Done
            }
            Request::Fallocate(slot, range, offset, len) => {
                let done = self.file(*slot)?.fallocate((*range).into(), *offset, *len);
                self.changed(*slot);
                done.map(|()| Answer::Done)?
            }
            _ => return Err(Error::NotFound),
        })
    }

    /// Fails where another file system is mounted on what a name stands for, or below.
    fn must_be_free(&self, dir: &OpenInode, name: &[u8]) -> Result<()> {
        let server = self.server;
        let points = self.mount_points.get_or_init(|| {
            MountPoints::new(&server.fs, server.observer.mount_points(self.process))
        });
        points.check(dir.ino(), name)
    }

    fn path_must_be_free(&self, path: &[u8]) -> Result<()> {
        match self.server.fs.open_parent(path) {
            Ok((dir, name)) => self.must_be_free(&dir, name),
            // What is not there is for the change itself to say.
            Err(_) => Ok(()),
        }
    }

    /// An open file has other contents.
    fn changed(&mut self, slot: Slot) {
        if let Some(file) = self.files.get(&slot) {
            self.changes.inode(file);
        }
    }

    /// The name of a path now stands for something else.
    fn changed_path(&mut self, path: &[u8]) {
        if let Ok((dir, name)) = self.server.fs.open_parent(path) {
            self.changes.name(&dir, name);
        }
    }

    fn put(&mut self, new: &NewEntry<'_>, passed: &Passed) -> Answer {
        let refuse = |cause, message: &str| {
            Answer::Refused(Refusal {
                cause,
                message: message.to_owned(),
            })
        };
        if self.has_failed {
            return refuse(Cause::NotTried, "not tried after an error");
        }
        let Some(dir) = self.files.get(&new.dir).cloned() else {
            return refuse(Cause::NoDirectory, "its directory could not be made");
        };
        let done = self.put_into(&dir, new, passed);
        done.unwrap_or_else(|error| {
            self.has_failed = !entry::is_of_one_entry(&error);
            Answer::Refused(Refusal::from(&error))
        })
    }

    fn put_into(&mut self, dir: &OpenInode, new: &NewEntry<'_>, passed: &Passed) -> Result<Answer> {
        let mode = new.how;
        let may_exist = mode.whole || mode.existing != Existing::Refuse;
        let old = may_exist.then(|| dir.lookup(new.name).ok()).flatten();
        if let Some(old) = &old {
            if old.inode().file_type != FileType::Directory {
                self.must_be_free(dir, new.name)?;
            }
            self.changes.inode(old);
        }
        let made = match new.link {
            Some(known) => {
                let file = entry::open_known(&self.server.fs, known)?;
                self.changes.inode(&file);
                entry::link(&file, dir, new.name, mode)
            }
            None => {
                let ranges = ranges(&new.data, new.size)?;
                let xattrs = self.xattrs(new);
                let mut read = |at, buf: &mut [u8]| passed.read(new, at, buf);
                let mut contents = Contents {
                    read: &mut read,
                    buffer: &mut self.buffer,
                };
                with_entry(new, &xattrs, &ranges, |entry| {
                    entry::put(dir, new.name, entry, mode, &mut contents)
                })
            }
        };
        // The kernel forgets what is mounted below a name, so it is notified of none that stays.
        let stays = match &made {
            Ok(made) => !made.is_new,
            Err(error) => matches!(error, Error::Exists),
        };
        if !stays {
            self.changes.name(dir, new.name);
        }
        let made = made?;
        self.changes.inode(&made.inode);
        let mut missing: Vec<Refusal> = made.missing.iter().map(Refusal::from).collect();
        self.note_left_out(new, &mut missing);
        if let Some(slot) = new.to {
            self.keep(slot, made.inode.clone())?;
            if made.is_new {
                self.incomplete.insert(slot);
            }
        }
        Ok(Answer::Put {
            inode: entry::known(&made.inode),
            is_new: made.is_new,
            missing,
        })
    }

    fn complete(&mut self, new: &NewEntry<'_>) -> Result<Answer> {
        let is_new = self.incomplete.remove(&new.dir) && !self.has_failed;
        let Some(inode) = self.files.remove(&new.dir).filter(|_| is_new) else {
            return Ok(Answer::Done);
        };
        let mut missing = Vec::new();
        self.changes.inode(&inode);
        with_entry(new, &self.xattrs(new), &[], |entry| {
            entry::complete(&inode, entry, &mut missing)
        })?;
        let mut missing: Vec<Refusal> = missing.iter().map(Refusal::from).collect();
        self.note_left_out(new, &mut missing);
        Ok(Answer::Put {
            inode: entry::known(&inode),
            is_new: false,
            missing,
        })
    }

    /// Extended attributes of an entry that are set.
    fn xattrs<'a>(&self, new: &'a NewEntry<'_>) -> Xattrs<'a> {
        match self.server.sets_xattrs {
            true => xattrs(new),
            false => Xattrs::new(),
        }
    }

    /// Extended attributes of an entry that are not set.
    fn note_left_out(&self, new: &NewEntry<'_>, missing: &mut Vec<Refusal>) {
        // A directory gets them when it is complete.
        let is_late = new.to.is_some();
        if !self.server.sets_xattrs && !new.xattrs.is_empty() && !is_late {
            missing.push(Refusal::from(&no_xattrs()));
        }
    }
}

/// Where the mount leaves them out.
fn no_xattrs() -> Error {
    Error::Unsupported {
        what: "extended attributes on a mount with noxattr".to_owned(),
    }
}
