//! Contents: opened, read, written, made durable, moved about.

use std::sync::Arc;

use parking_lot::Mutex;
use uext4::data::{Fallocate, Pacing, Seek, SetId, WriteContext, WriteMode, Writer, Written};
use uext4::{Caller, InodeFlags, OpenInode, SetAttributes};
use zerocopy::IntoBytes;

use crate::abi::flags::{OPEN_KILL_SUIDGID, WRITE_CACHE, WRITE_KILL_SUIDGID, open as flag};
use crate::abi::{
    BmapIn, BmapOut, CopyFileRangeIn, CopyFileRangeOut, FallocateIn, InHeader, LseekIn, LseekOut,
    OpenIn, ReadIn, WriteIn, WriteOut,
};
use crate::answer::Answer;
use crate::attributes::without_set_id;
use crate::errno::{Errno, Result};
use crate::executor::Watch;
use crate::names::{opened, put_opened};
use crate::nodes::Node;
use crate::owners::Owners;
use crate::pending_reply::{Channel, PendingReply, RequestContext};
use crate::privileges::{Before, fate_of, is_root};
use crate::reply::{Out, node_of};
use crate::request::{CountWidth, Integrity};
use crate::server::Server;
use crate::write_buffers::WriteBuffer;
use crate::writers::Who;

/// OPEN.
pub fn open(
    server: &Server,
    header: &InHeader,
    it: &OpenIn,
    out: &mut Out<'_>,
    caller: &RequestContext<'_>,
) -> Result<()> {
    let node = server.nodes.get(header.nodeid)?;
    if let Node::Writable(inode) = &*node {
        let before = Before::of(inode);
        prepare(&server.owners, header, &node, it)?;
        before.settle(inode, &**caller.channel());
    }
    put_opened(server, &opened(server, header, &node, it.flags), out)
}

/// The file that a request writes: by the handle that it was opened with, so that writing counts as
/// that opening's. By its node where there is no handle (`noopen`): nothing says then how long a
/// file is open, and it counts as closed.
fn written_file(server: &Server, header: &InHeader, handle: u64) -> Result<OpenInode> {
    let InHeader {
        uid, gid, nodeid, ..
    } = *header;
    match server.handles.of_node(handle, nodeid) {
        Some(inode) => Ok(inode.as_caller(Caller { uid, gid })),
        None => server.nodes.get(nodeid)?.for_caller(header),
    }
}

/// What opening a file with these flags does to it, and what it refuses: the kernel does not know
/// of immutable and append-only files here.
///
/// Fails with `EPERM`; those of cutting the file to nothing.
fn prepare(owners: &Owners, header: &InHeader, node: &Node, it: &OpenIn) -> Result<()> {
    let cuts = it.flags & flag::TRUNC != 0;
    if it.flags & flag::ACCMODE == 0 && !cuts {
        return Ok(());
    }
    let inode = node.for_caller(header)?;
    let now = inode.inode();
    let may_only_grow = now.has(InodeFlags::APPEND);
    if now.has(InodeFlags::IMMUTABLE) || may_only_grow && (cuts || it.flags & flag::APPEND == 0) {
        return Err(Errno::EPERM);
    }
    if cuts {
        let kills = it.open_flags & OPEN_KILL_SUIDGID != 0;
        inode.set_attributes(&SetAttributes {
            size: Some(0),
            mode: kills
                .then(|| without_set_id(owners, header, &now))
                .flatten(),
            ..SetAttributes::default()
        })?;
    }
    Ok(())
}

/// READ, straight into the reply.
pub fn read(server: &Server, id: u64, it: &ReadIn, out: &mut Out<'_>) -> Result<()> {
    check_direct(it.flags, it.offset, it.size)?;
    let node = server.nodes.get(id)?;
    // All there is: a last block is read wholly, of which no more is reported than was asked for.
    let (room, wanted, mut len) = (out.room(usize::MAX), it.size as usize, 0);
    while len < wanted {
        let at = it.offset.saturating_add(len as u64);
        // What is short is the end to the kernel, which would cut the file there: so the error
        // that ended it is asked for.
        match node.read(&server.fs, at, wanted - len, &mut room[len..])? {
            0 => break,
            more => len += more,
        }
    }
    out.fill(len);
    Ok(())
}

/// Past the cache only whole sectors are read and written: what the kernel's ext4 demands on most
/// devices. Where the memory lies is not reported.
fn check_direct(flags: u32, offset: u64, size: u32) -> Result<()> {
    const SECTOR: u64 = 512;
    let is_whole = (offset | u64::from(size)).is_multiple_of(SECTOR);
    match flags & flag::DIRECT == 0 || is_whole {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

/// Bytes that are copied for one request at most.
const COPY_MAX: u64 = 64 << 20;

/// A write that is not over.
struct Writing {
    inode: OpenInode,
    writer: Arc<Mutex<Writer>>,
    /// The thread that waits for it; 0: its number is not known, or none waits.
    thread: u32,
    mode: WriteMode,
    before: Before,
    offset: u64,
    /// Bytes that were taken in.
    done: usize,
    /// Pages that the kernel writes back: it calls them clean whatever is said of their number,
    /// so they are taken in wholly, or their writing has failed.
    is_whole: bool,
}

impl Writing {
    /// Goes on, if the writer may. Of what must be taken in wholly nothing is left without a
    /// pause. After an error nothing of `rest` counts as taken in, so that it can be tried again.
    fn step(&mut self, rest: &[u8]) -> Result<Written> {
        let mut taken = 0;
        loop {
            let at = self.offset + (self.done + taken) as u64;
            let left = &rest[taken..];
            let writer = &mut self.writer.lock();
            let context = WriteContext {
                mode: self.mode,
                pacing: Pacing::Return(writer),
            };
            let mut written = self.inode.write_with(context, at, left)?;
            taken += written.len;
            let is_over = !self.is_whole || taken == rest.len() || !written.pause.is_zero();
            if !is_over && written.len == 0 {
                return Err(Errno::ENOSPC);
            }
            if is_over {
                self.done += taken;
                written.len = taken;
                return Ok(written);
            }
        }
    }

    /// OK to truncate: a request has no more than 32 bits.
    fn reply(&self) -> WriteOut {
        WriteOut {
            size: self.done as u32,
            padding: 0,
        }
    }

    /// Before the writer is informed of anything.
    fn settle(&self, channel: &dyn Channel) {
        self.before.settle(&self.inode, channel);
    }

    /// What the writer is informed where it ends with an error: of what was taken in, if anything
    /// was.
    fn end(&self, server: &Server, pending_reply: PendingReply, error: Option<Errno>) {
        let channel = pending_reply.channel();
        self.settle(&**channel);
        match error {
            Some(error) if self.done == 0 || self.is_whole => {
                if self.is_whole {
                    server.lost(node_of(self.inode.ino().0.into()), error, channel);
                }
                pending_reply.answer(Err(error));
            }
            _ => pending_reply.answer(Ok(self.reply().as_bytes())),
        }
    }
}

/// WRITE. Over the dirty limits the answer waits until the pause is over.
pub fn write(
    server: &Arc<Server>,
    header: &InHeader,
    it: &WriteIn,
    data: &[u8],
    out: &mut Out<'_>,
    caller: &RequestContext<'_>,
) -> Answer {
    let mut writing = match writing(server, header, it) {
        Ok(writing) => writing,
        Err(error) => return Answer::Now(Err(error)),
    };
    let paced = match writing.step(data) {
        Ok(paced) if !paced.pause.is_zero() => paced,
        ended => {
            writing.settle(&**caller.channel());
            return ended.and_then(|_| out.put(&writing.reply())).into();
        }
    };
    let pending_reply = caller.pending_reply();
    let rest = Waiting {
        watch: server.executor.watch(pending_reply.unique()),
        data: server.parking.park(&data[writing.done..]),
    };
    wait(server, writing, rest, paced, pending_reply);
    Answer::Later
}

fn writing(server: &Server, header: &InHeader, it: &WriteIn) -> Result<Writing> {
    let is_whole = it.write_flags & WRITE_CACHE != 0;
    let inode = match server.handles.of_node(it.fh, header.nodeid) {
        // No caller comes with what the kernel writes back: the one that opened the file counts,
        // or any could use what is reserved for root.
        Some(opened) if is_whole => OpenInode::clone(&opened),
        _ => written_file(server, header, it.fh)?,
    };
    let append = it.flags & flag::APPEND != 0 && inode.inode().has(InodeFlags::APPEND);
    if !is_whole {
        check_direct(it.flags, it.offset, it.size)?;
    }
    let who = match is_whole {
        true => Who::Mapped(header.nodeid),
        false => Who::asks(header.pid, header.nodeid),
    };
    let before = Before::of(&inode);
    let set_id = match it.write_flags & WRITE_KILL_SUIDGID {
        0 => SetId::Keep,
        _ if before.has_any() => fate_of(&server.owners, header, &inode),
        _ => SetId::Drop,
    };
    Ok(Writing {
        writer: server.writers.of(who),
        thread: match who {
            Who::Thread(thread) => thread,
            Who::Mapped(_) | Who::Unseen(_) => 0,
        },
        mode: WriteMode {
            append,
            gathered: is_whole && server.gathers(),
            set_id,
        },
        before,
        inode,
        offset: it.offset,
        done: 0,
        is_whole,
    })
}

/// What waits with a writer.
struct Waiting {
    /// What was not taken in yet.
    data: WriteBuffer,
    /// Whether the writer got a signal.
    watch: Watch,
}

/// Answers a writer when its pause is over, or goes on with `rest` then. A writer whose process is
/// about to end is answered at once, with what was taken in: it uses no more of the device.
fn wait(
    server: &Arc<Server>,
    mut writing: Writing,
    mut rest: Waiting,
    paced: Written,
    pending_reply: PendingReply,
) {
    let again = Arc::clone(server);
    let unique = pending_reply.unique();
    let ending = move |called_off: bool| {
        let is_dying = || rest.watch.was_interrupted() && again.threads.is_dying(writing.thread);
        let gives_up = !writing.is_whole && (called_off || is_dying());
        if rest.data.rest().is_empty() || gives_up {
            return writing.end(&again, pending_reply, gives_up.then_some(Errno::EINTR));
        }
        let server = Arc::clone(&again);
        again.executor.run(move || {
            loop {
                let goes_on = || writing.step(rest.data.rest());
                let failed = |paced: &Result<Written>| paced.as_ref().err().copied();
                let paced = match server.deletions.retried(&server.fs, goes_on, failed) {
                    Err(error) => return writing.end(&server, pending_reply, Some(error)),
                    Ok(paced) => paced,
                };
                rest.data.taken(paced.len);
                if paced.pause.is_zero() {
                    return writing.end(&server, pending_reply, None);
                }
                // Where all ends no thread waits for pauses any more.
                if !called_off {
                    return wait(&server, writing, rest, paced, pending_reply);
                }
                if rest.data.rest().is_empty() {
                    return writing.end(&server, pending_reply, None);
                }
            }
        });
    };
    server.latencies.paused(paced.pause);
    server.executor.after(paced.pause, unique, ending);
}

/// Has something done by another thread that gives no answer but that it was done.
fn later(
    server: &Server,
    caller: &RequestContext<'_>,
    job: impl FnOnce() -> Result<()> + Send + 'static,
) -> Answer {
    let pending_reply = caller.pending_reply();
    server
        .executor
        .run(move || pending_reply.answer(job().map(|()| &[][..])));
    Answer::Later
}

/// FSYNC of a node by a handle, 0 for none, and FSYNCDIR. Of a file system that was opened for
/// reading all is durable. The thread that reads requests does it itself where others read
/// meanwhile and none of them is at another one: a thread of the pool would have to be woken, and
/// to wake the caller from another CPU. Many at the same time share commits in the pool.
pub fn fsync(
    server: &Server,
    id: u64,
    handle: u64,
    integrity: Integrity,
    caller: &RequestContext<'_>,
) -> Answer {
    if !server.is_writable() {
        return Answer::Now(Ok(()));
    }
    let sync = move |inode: &OpenInode| {
        let synced = match integrity {
            Integrity::Data => inode.fdatasync(),
            Integrity::File => inode.fsync(),
        };
        Ok(synced?)
    };
    let waiting = caller.waiting();
    if let Some(inode) = server.handles.get(handle) {
        // The kernel reports a loss to fsync itself, and sends FSYNC only for the next call. A note
        // that is there is of that loss or of a later one: rather reported twice than dropped.
        let lost = server.handles.take_lost(handle);
        let sync = move |inode: &OpenInode| {
            let synced = sync(inode);
            lost.map_or(synced, Err)
        };
        return match waiting {
            Some(_waiting) => sync(&inode).into(),
            None => later(server, caller, move || sync(&inode)),
        };
    }
    let node = match server.nodes.get(id) {
        Ok(node) => node,
        Err(error) => return Answer::Now(Err(error)),
    };
    match waiting {
        Some(_waiting) => node.writable().and_then(sync).into(),
        None => later(server, caller, move || sync(node.writable()?)),
    }
}

/// SYNCFS.
pub fn syncfs(server: &Arc<Server>, caller: &RequestContext<'_>) -> Answer {
    if !server.is_writable() {
        return Answer::Now(Ok(()));
    }
    let all = Arc::clone(server);
    later(server, caller, move || Ok(all.fs.writable()?.sync()?))
}

/// FALLOCATE.
pub fn fallocate(
    server: &Arc<Server>,
    header: &InHeader,
    it: &FallocateIn,
    caller: &RequestContext<'_>,
) -> Answer {
    let file = written_file(server, header, it.fh);
    let (inode, how) = match file.and_then(|inode| Ok((inode, how(it.mode)?))) {
        Ok(found) => found,
        Err(error) => return Answer::Now(Err(error)),
    };
    let (offset, len) = (it.offset, it.length);
    // Even where nothing would be to do. Blocks of a file are counted in 32 bits.
    let size_max = u64::from(u32::MAX) * u64::from(server.block_size);
    if offset.saturating_add(len) > size_max {
        return Answer::Now(Err(Errno::EFBIG));
    }
    let (header, pending_reply, all) = (*header, caller.pending_reply(), Arc::clone(server));
    server.executor.run(move || {
        let before = Before::of(&inode);
        let done = || -> Result<()> {
            let allocate = || inode.fallocate(how, offset, len).map_err(Errno::from);
            let done = all.deletions.retried(&all.fs, allocate, |done| done.err());
            // The kernel drops them before, but only of files of the caller.
            let dropped = match before.has_any() && !is_root(&header) && may_have_begun(done) {
                true => inode.drop_set_id(fate_of(&all.owners, &header, &inode)),
                false => Ok(()),
            };
            done?;
            Ok(dropped?)
        };
        let done = done();
        before.settle(&inode, &**pending_reply.channel());
        pending_reply.answer(done.map(|()| &[][..]));
    });
    Answer::Later
}

/// Whether something of it was done: what is refused is refused first.
fn may_have_begun(done: Result<()>) -> bool {
    const REFUSALS: [Errno; 6] = [
        Errno::EPERM,
        Errno::EISDIR,
        Errno::EINVAL,
        Errno::EFBIG,
        Errno::EROFS,
        Errno::EOPNOTSUPP,
    ];
    done.err().is_none_or(|error| !REFUSALS.contains(&error))
}

/// What `fallocate` calls its modes.
fn how(mode: u32) -> Result<Fallocate> {
    const KEEP_SIZE: u32 = 0x01;
    const PUNCH_HOLE: u32 = 0x02;
    const COLLAPSE_RANGE: u32 = 0x08;
    const ZERO_RANGE: u32 = 0x10;
    const INSERT_RANGE: u32 = 0x20;
    let keep_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 => Ok(Fallocate::Allocate { keep_size }),
        PUNCH_HOLE if keep_size => Ok(Fallocate::PunchHole),
        ZERO_RANGE => Ok(Fallocate::ZeroRange { keep_size }),
        COLLAPSE_RANGE if !keep_size => Ok(Fallocate::CollapseRange),
        INSERT_RANGE if !keep_size => Ok(Fallocate::InsertRange),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// LSEEK for data or a hole. The kernel asks without writing first what it holds, where all
/// might be a hole.
pub fn lseek(
    server: &Arc<Server>,
    id: u64,
    it: LseekIn,
    out: &mut Out<'_>,
    caller: &RequestContext<'_>,
) -> Answer {
    let node = match server.nodes.get(id) {
        Ok(node) => node,
        Err(error) => return Answer::Now(Err(error)),
    };
    if !server.gathers() || !node.is_open_for_writing() {
        return sought(server, &node, &it)
            .and_then(|found| out.put(&found))
            .into();
    }
    let (all, pending_reply) = (Arc::clone(server), caller.pending_reply());
    server.after_kernel_wrote(id, caller.channel(), move || {
        let found = sought(&all, &node, &it);
        let answer = found.as_ref().map(|found| found.as_bytes());
        pending_reply.answer(answer.map_err(|error| *error));
    });
    Answer::Later
}

fn sought(server: &Server, node: &Node, it: &LseekIn) -> Result<LseekOut> {
    let what = match it.whence {
        3 => Seek::Data,
        4 => Seek::Hole,
        _ => return Err(Errno::EINVAL),
    };
    let found = match node {
        Node::Writable(inode) => inode.seek(it.offset, what)?,
        Node::ReadOnly(_) => seek_read_only(server, node, it.offset, what)?,
    };
    let offset = found.ok_or(Errno::ENXIO)?;
    Ok(LseekOut { offset })
}

fn seek_read_only(server: &Server, node: &Node, offset: u64, what: Seek) -> Result<Option<u64>> {
    let inode = node.inode();
    if offset >= inode.size {
        return Ok(None);
    }
    let mut hole = offset;
    for range in server.fs.data_ranges(&inode)? {
        let range = range?;
        if range.end <= offset {
            continue;
        }
        match what {
            Seek::Data => return Ok(Some(range.start.max(offset))),
            Seek::Hole if range.start > hole => return Ok(Some(hole)),
            Seek::Hole => hole = range.end,
        }
    }
    Ok(match what {
        Seek::Data => None,
        Seek::Hole => Some(hole),
    })
}

/// COPY_FILE_RANGE.
pub fn copy(
    server: &Arc<Server>,
    header: &InHeader,
    it: &CopyFileRangeIn,
    width: CountWidth,
    caller: &RequestContext<'_>,
) -> Answer {
    let from = server.nodes.get(header.nodeid);
    let of_target = InHeader {
        nodeid: it.nodeid_out,
        ..*header
    };
    let nodes = from.and_then(|from| Ok((from, written_file(server, &of_target, it.fh_out)?)));
    let (from, to) = match nodes {
        Ok(nodes) => nodes,
        Err(error) => return Answer::Now(Err(error)),
    };
    if it.flags != 0 {
        return Answer::Now(Err(Errno::EINVAL));
    }
    let (offset, to_offset) = (it.off_in, it.off_out);
    // A caller that copies asks again for the rest. No other thread's fsync waits for a thread
    // for long, and the short answer can report so much.
    let len = it.len.min(COPY_MAX);
    let (header, pending_reply, all) = (*header, caller.pending_reply(), Arc::clone(server));
    server.executor.run(move || {
        let copied = from.writable().and_then(|from| {
            let to = &to;
            let before = Before::of(to);
            let set_id = match is_root(&header) {
                true => SetId::Keep,
                false => fate_of(&all.owners, &header, to),
            };
            let mode = WriteMode {
                set_id,
                ..WriteMode::default()
            };
            let copied = from.copy_to(offset, to, to_offset, len, mode);
            before.settle(to, &**pending_reply.channel());
            Ok(copied?)
        });
        match copied {
            Err(error) => pending_reply.answer(Err(error)),
            Ok(bytes_copied) if width == CountWidth::Bits64 => {
                pending_reply.answer(Ok(CopyFileRangeOut { bytes_copied }.as_bytes()));
            }
            Ok(copied) => pending_reply.answer(Ok(WriteOut {
                // OK to truncate: no more than was asked for.
                size: copied as u32,
                padding: 0,
            }
            .as_bytes())),
        }
    });
    Answer::Later
}

/// BMAP: where a block of a file lies; 0 where there is none. Only asked on mounts of block
/// devices.
pub fn bmap(server: &Server, id: u64, it: &BmapIn, out: &mut Out<'_>) -> Result<()> {
    let node = server.nodes.get(id)?;
    let size = u64::from(it.blocksize.max(512));
    let start = it.block.checked_mul(size).ok_or(Errno::EINVAL)?;
    let inode = node.writable()?;
    inode.fsync()?;
    let mut found = 0;
    inode.fiemap(start..start.saturating_add(1), |part| {
        let physical = part.physical.filter(|_| part.offset <= start);
        found = physical.map_or(0, |physical| (physical + start - part.offset) / size);
        false
    })?;
    out.put(&BmapOut { block: found })
}

#[cfg(test)]
mod tests;
