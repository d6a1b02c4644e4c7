//! `/dev/fuse`: a read is a request, a write is a reply.
//!
//! Threads share one descriptor: the kernel gives each request to one of those who read. A
//! descriptor of its own for each (`FUSE_DEV_IOC_CLONE`) measured no faster on two cores.

mod near;

use std::io::{Error, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustix::io::Errno as Host;
use zerocopy::IntoBytes;

use crate::abi::{
    InHeader, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, NOTIFY_PRUNE, NotifyInvalEntryOut,
    NotifyInvalInodeOut, NotifyPruneOut, OutHeader, WriteIn, opcode,
};
use crate::answer::Answer;
use crate::errno::{Errno, Result};
use crate::inflight::Part;
use crate::init::{IO_MAX, Terms};
use crate::pending_reply::Channel;
use crate::reply::Out;
use crate::request::{Operation, Request};
use crate::serve::Serve;
pub use near::{Counts, Leader, Near, Reason};

/// Bytes of the header of a reply.
const HEADER: usize = size_of::<OutHeader>();
/// Bytes a request may have: the largest write, or a name and a value, with all that is before.
const REQUEST_MAX: usize = IO_MAX as usize + size_of::<InHeader>() + size_of::<WriteIn>() + 4096;
/// Bytes a reply may have.
const REPLY_MAX: usize = IO_MAX as usize + HEADER + 4096;

/// What is said where the first request gets an error.
const REFUSED: &str = "INIT was refused";

/// What of a node the kernel asks for anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// Attributes and ACLs.
    Attributes,
    /// These, and the pages of a file or the listing of a directory.
    Contents,
}

/// The descriptor of a mount.
#[derive(Debug)]
pub struct Device {
    fd: OwnedFd,
    /// A thread that reads requests waits for the disk, or none may.
    may_not_wait: AtomicBool,
}

impl Device {
    /// Of a descriptor that was mounted.
    pub fn new(fd: OwnedFd) -> Self {
        let may_not_wait = AtomicBool::new(true);
        Self { fd, may_not_wait }
    }

    /// Several threads read requests, so one at a time may wait for the disk.
    pub fn allow_waiting(&self) {
        self.may_not_wait.store(false, SeqCst);
    }

    /// The descriptor.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Writes a reply, with its header; false where it was answered before, or no thread waits for
    /// the answer any more.
    fn write(&self, reply: &[u8]) -> bool {
        rustix::io::write(&self.fd, reply).is_ok()
    }

    /// Has the kernel ask anew for what it knows of a node.
    ///
    /// # Errors
    /// `ENOENT` where it knows nothing of it.
    pub fn forget(&self, id: u64, what: Forgotten) -> rustix::io::Result<()> {
        let off = match what {
            Forgotten::Attributes => -1,
            Forgotten::Contents => 0,
        };
        let what = NotifyInvalInodeOut {
            ino: id,
            off,
            len: 0,
        };
        self.notify(NOTIFY_INVAL_INODE, &[what.as_bytes()])
    }

    /// Has the kernel ask anew for a name of a directory. It takes the directory's lock, and so
    /// waits for requests that are about names in it: no thread that answers these may call this.
    ///
    /// # Errors
    /// `ENOENT` where it knows nothing of the name.
    pub fn forget_name(&self, dir: u64, name: &[u8]) -> rustix::io::Result<()> {
        let what = NotifyInvalEntryOut {
            parent: dir,
            // OK to cast: a name has at most 255 bytes.
            namelen: name.len() as u32,
            flags: 0,
        };
        self.notify(NOTIFY_INVAL_ENTRY, &[what.as_bytes(), name, &[0]])
    }

    /// Has the kernel let go of an inode that no program uses, with its names: it asks for all of
    /// it anew. Linux 6.18 and newer.
    ///
    /// # Errors
    /// `EINVAL` of older kernels.
    pub fn prune(&self, id: u64) -> rustix::io::Result<()> {
        let what = NotifyPruneOut {
            count: 1,
            padding: 0,
            spare: 0,
        };
        self.notify(NOTIFY_PRUNE, &[what.as_bytes(), id.as_bytes()])
    }

    fn notify(&self, kind: i32, parts: &[&[u8]]) -> rustix::io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let header = OutHeader {
            // OK to cast: a structure and a name.
            len: (HEADER + len) as u32,
            error: kind,
            unique: 0,
        };
        let parts = std::iter::once(header.as_bytes()).chain(parts.iter().copied());
        let parts: Vec<IoSlice<'_>> = parts.map(IoSlice::new).collect();
        rustix::io::writev(&self.fd, &parts).map(|_| ())
    }

    /// Reads a request; `None` once the file system is unmounted.
    fn read(&self, buf: &mut [u8]) -> std::io::Result<Option<usize>> {
        loop {
            return match rustix::io::read(&self.fd, &mut *buf) {
                Ok(0) | Err(Host::NODEV | Host::CONNABORTED) => Ok(None),
                Ok(len) => Ok(Some(len)),
                // The request was called off while it was read.
                Err(Host::INTR | Host::AGAIN | Host::NOENT) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

/// The header of an answer: of so many bytes, or an error.
pub fn header(unique: u64, answer: Result<usize>) -> OutHeader {
    let (error, len) = match answer {
        Ok(len) => (0, len),
        Err(Errno(number)) => (-i32::from(number), 0),
    };
    OutHeader {
        // OK to truncate: bounded by the buffer.
        len: (HEADER + len) as u32,
        error,
        unique,
    }
}

impl Channel for Device {
    fn send(&self, unique: u64, answer: Result<&[u8]>) {
        let header = header(unique, answer.map(<[u8]>::len));
        let parts = [
            IoSlice::new(header.as_bytes()),
            IoSlice::new(answer.unwrap_or_default()),
        ];
        // It fails only if no thread waits for the answer any more.
        _ = rustix::io::writev(&self.fd, &parts);
    }

    fn write_back(&self, id: u64) {
        // It fails where the kernel knows nothing of the node, and so holds nothing of it.
        _ = self.forget(id, Forgotten::Contents);
    }

    fn forget_attributes(&self, id: u64) {
        // It fails where the kernel knows nothing of the node.
        _ = self.forget(id, Forgotten::Attributes);
    }

    fn may_wait(&self) -> bool {
        !self.may_not_wait.swap(true, SeqCst)
    }

    fn has_waited(&self) {
        self.may_not_wait.store(false, SeqCst);
    }
}

/// The part of a thread that reads requests in [`near`].
#[derive(Debug)]
pub enum Role {
    /// None.
    None,
    /// Reads requests whether a single stream is served or not.
    Leader(Leader),
    /// Rests while the leader alone reads.
    Follower(Arc<Near>),
}

/// One thread's requests, and the memory for them.
#[derive(Debug)]
pub struct EventLoop<S> {
    server: Arc<S>,
    device: Arc<Device>,
    channel: Arc<dyn Channel>,
    part: Part,
    terms: Terms,
    request: Vec<u8>,
    reply: Vec<u8>,
    role: Role,
}

impl<S: Serve> EventLoop<S> {
    /// Of a server and the descriptor of its mount, for a part of its requests in flight.
    pub fn new(server: &Arc<S>, device: &Arc<Device>, part: Part) -> Self {
        Self {
            server: Arc::clone(server),
            device: Arc::clone(device),
            channel: Arc::<Device>::clone(device),
            part,
            terms: Terms::default(),
            request: vec![0; REQUEST_MAX],
            reply: vec![0; REPLY_MAX],
            role: Role::None,
        }
    }

    /// The same in a role.
    pub fn with(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// The same where INIT is answered on these terms.
    pub fn on(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    /// Waits for a request, does what it asks and answers it; false once there will be none.
    ///
    /// # Errors
    /// Those of reading the device; `ConnectionAborted` once INIT was answered with an error: the
    /// kernel asks nothing more, and the mount never begins.
    pub fn turn(&mut self) -> std::io::Result<bool> {
        if let Role::Follower(near) = &self.role {
            near.rest();
        }
        let Some(len) = self.device.read(&mut self.request)? else {
            return Ok(false);
        };
        // OK to index: no more than there was room for.
        let bytes = &self.request[..len];
        let Ok((header_in, body)) = Request::header(bytes) else {
            // Nothing that could be answered.
            return Ok(true);
        };
        if let Role::Leader(leader) = &mut self.role {
            leader.begin(&header_in);
        }
        let protocol = self.server.protocol();
        let (server, device, channel) = (&self.server, &self.device, &self.channel);
        let (terms, reply, role) = (&self.terms, &mut self.reply, &mut self.role);
        let mut is_refused = false;
        // The reply as well: who ends the session waits for it.
        let served = self.part.serve(|| {
            let (_, payload) = reply.split_at_mut(HEADER);
            let mut out = Out::new(payload);
            let answer = match protocol.decode(header_in, body) {
                Ok(mut request) => {
                    if let Operation::Init(asked) = &mut request.operation {
                        terms.narrow(asked);
                    }
                    server.handle(&request, &mut out, channel)
                }
                Err(error) => Answer::Now(Err(error)),
            };
            if let Answer::Now(done) = answer {
                let len = out.len();
                if header_in.opcode == opcode::INIT {
                    is_refused = done.is_err() && server.negotiated().is_none();
                    terms.limit(&mut payload[..len]);
                }
                let header = header(header_in.unique, done.map(|()| len));
                reply[..HEADER].copy_from_slice(header.as_bytes());
                let len = header.len as usize;
                match role {
                    Role::Leader(leader) => leader.answer(header_in, &reply[..len]),
                    // OK to index: the header and what was put behind it.
                    Role::None | Role::Follower(_) => _ = device.write(&reply[..len]),
                }
            }
        });
        if let Role::Leader(leader) = &self.role {
            leader.end();
        }
        if served.is_none() {
            // The mount is as good as gone.
            self.device.send(header_in.unique, Err(Errno::EIO));
        }
        match is_refused {
            true => Err(Error::new(ErrorKind::ConnectionAborted, REFUSED)),
            false => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use zerocopy::FromBytes;

    use super::*;
    use crate::abi::{InitIn, InitOut};
    use crate::inflight::InflightTracker;
    use crate::testing::Client;

    /// A pair of sockets that keep messages whole, as the device does.
    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn request(code: u32, unique: u64, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode: code,
            unique,
            nodeid: 1,
            ..InHeader::default()
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn requests_are_answered_until_there_are_no_more() {
        let client = Client::without_init();
        let (kernel, ours) = pair();
        let device = Arc::new(Device::new(ours));
        let mut turns = EventLoop::new(
            &client.server,
            &device,
            Arc::new(InflightTracker::default()).join(),
        );
        let mut reported = |bytes: &[u8]| {
            rustix::io::write(&kernel, bytes).unwrap();
            assert!(turns.turn().unwrap());
            let mut buf = vec![0; 4096];
            let len = rustix::io::read(&kernel, &mut buf).unwrap();
            let (header, rest) = OutHeader::read_from_prefix(&buf[..len]).unwrap();
            assert_eq!(header.len as usize, len);
            (header, rest.to_vec())
        };
        let init = InitIn {
            major: 7,
            minor: 40,
            ..InitIn::default()
        };
        let (header, rest) = reported(&request(opcode::INIT, 2, init.as_bytes()));
        assert_eq!((header.error, header.unique), (0, 2));
        assert_eq!(InitOut::read_from_bytes(&rest).unwrap().minor, 40);
        let (header, rest) = reported(&request(opcode::LOOKUP, 4, b"no zero byte"));
        assert_eq!((header.error, rest.len()), (-22, 0));
        let (header, _) = reported(&request(999, 6, &[]));
        assert_eq!(header.error, -38);
        // Later, by another thread.
        let (header, _) = reported(&request(opcode::FSYNCDIR, 8, &[0; 16]));
        assert_eq!((header.error, header.unique), (0, 8));
        rustix::io::write(&kernel, b"no header").unwrap();
        assert!(turns.turn().unwrap());
        drop(kernel);
        assert!(!turns.turn().unwrap());
    }
}
