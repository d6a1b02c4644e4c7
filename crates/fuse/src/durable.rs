//! `sync` and `dirsync`: what a request did is durable before it is answered.
//!
//! An answer goes through [`Awaiting`], any thread that gives it: a thread of the pool has the
//! node's transaction committed first, so that all who wait meanwhile share one commit, and no
//! thread that reads requests waits. A flush that fails is the answer, though what was asked for
//! was done; so is a panic. How long a request took is known when it is durable.
//!
//! What remains: a name is there for others as soon as it is made, so they may see what a power
//! cut still takes. What a request did before it failed is durable with the next commit, not with
//! its answer. With `All`, what is written through mappings, and times of access, wait for a
//! commit too; and what FITRIM, `EXT4_IOC_SHUTDOWN` and other calls do that carry nothing to us
//! is not awaited.

use std::sync::Arc;

use crate::errno::{Errno, Result};
use crate::pending_reply::{Arrival, Channel, PendingReply};
use crate::server::Server;

/// Where answers go that wait until a node is durable.
#[derive(Debug)]
pub struct Awaiting {
    server: Arc<Server>,
    node: u64,
    channel: Arc<dyn Channel>,
    arrival: Arrival,
}

impl Awaiting {
    /// Before `channel`, for one request.
    pub fn new(
        server: &Arc<Server>,
        node: u64,
        channel: &Arc<dyn Channel>,
        arrival: Arrival,
    ) -> Self {
        Self {
            server: Arc::clone(server),
            node,
            channel: Arc::clone(channel),
            arrival,
        }
    }
}

fn make_durable(server: &Server, node: u64) -> Result<()> {
    match server.nodes.get(node) {
        Ok(node) => Ok(node.writable()?.fsync()?),
        // No thread has it any more.
        Err(Errno::ESTALE) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Channel for Awaiting {
    fn send(&self, unique: u64, answer: Result<&[u8]>) {
        let pending_reply =
            PendingReply::new(&self.channel, unique).timed(&self.server.latencies, self.arrival);
        let Ok(reply) = answer.map(<[u8]>::to_vec) else {
            return pending_reply.answer(answer);
        };
        let (server, node) = (Arc::clone(&self.server), self.node);
        self.server.executor.run(move || {
            let done = make_durable(&server, node);
            pending_reply.answer(done.map(|()| &reply[..]));
        });
    }

    fn write_back(&self, id: u64) {
        self.channel.write_back(id);
    }

    fn forget_attributes(&self, id: u64) {
        self.channel.forget_attributes(id);
    }
}

#[cfg(test)]
mod tests {
    use uext4::{FollowLast, Image, OpenOptions};
    use uext4_blockdev::MemoryDevice;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::flags::{WRITE_CACHE, fattr};
    use crate::abi::{InHeader, IoctlIn, Rename2In, SetattrIn, opcode};
    use crate::request::{Operation, Request};
    use crate::sync_policy::SyncPolicy;
    use crate::testing::Client;

    /// The contents and permissions of a path as they would be after a power cut now.
    fn durable(client: &Client, path: &str) -> Option<(Vec<u8>, u16)> {
        let device = MemoryDevice::from_bytes(client.device.to_bytes());
        let fs = Image::open(Arc::new(device), &OpenOptions::default()).unwrap();
        let inode = fs.resolve(path.as_bytes(), FollowLast::No).ok()?;
        let mut contents = vec![0; inode.size as usize];
        // A directory has none.
        _ = fs.read_at(&inode, 0, &mut contents);
        Some((contents, inode.mode & 0o7777))
    }

    fn renamed(client: &Client, old: &str, dir: u64, new: &str) {
        let it = Rename2In {
            newdir: dir,
            ..Rename2In::default()
        };
        let names = format!("{old}\0{new}\0");
        let body = [it.as_bytes(), names.as_bytes()].concat();
        client.ask(opcode::RENAME2, 1, &body).unwrap();
    }

    #[test]
    fn nothing_is_made_durable_without_a_request() {
        let client = Client::with_sync_policy(SyncPolicy::OnDemand);
        client.mkdir(1, b"dir");
        assert_eq!(durable(&client, "/dir"), None);
    }

    #[test]
    fn names_are_durable_when_they_are_answered() {
        let client = Client::with_sync_policy(SyncPolicy::Names);
        let dir = client.mkdir(1, b"dir");
        assert!(durable(&client, "/dir").is_some());
        let file = client.create(1, b"file");
        assert!(durable(&client, "/file").is_some());
        renamed(&client, "file", dir, "moved");
        assert!(durable(&client, "/dir/moved").is_some());
        assert_eq!(durable(&client, "/file"), None);
        // Contents are not.
        client.write(file, 0, b"contents");
        assert_eq!(durable(&client, "/dir/moved").unwrap().0, b"");
        client.ask(opcode::UNLINK, dir, b"moved\0").unwrap();
        assert_eq!(durable(&client, "/dir/moved"), None);
        let refused = client.ask(opcode::UNLINK, dir, b"moved\0");
        assert_eq!(refused, Err(Errno::ENOENT));
    }

    #[test]
    fn a_panic_during_fsync_is_eio_for_the_caller() {
        let (client, device) = Client::with_faults();
        let client = client.awaiting(SyncPolicy::All);
        let file = client.create(1, b"file");
        device.panic(true);
        let it = SetattrIn {
            valid: fattr::MODE,
            mode: 0o100_600,
            ..SetattrIn::default()
        };
        let set = client.ask(opcode::SETATTR, file, it.as_bytes());
        assert_eq!(set, Err(Errno::EIO));
        device.panic(false);
        let reported = client.server.latencies().all();
        let reported = reported.iter().find(|kind| kind.name == "setattr").unwrap();
        let errors = client.server.latencies().errors();
        assert_eq!((reported.count, errors.len(), errors[0].count), (1, 1, 1));
    }

    #[test]
    fn the_thread_that_asks_does_an_fsync_where_it_may() {
        let (client, device) = Client::with_faults();
        let file = client.create(1, b"file");
        let fsync = || client.ask(opcode::FSYNC, file, &[0; 16]).map(|_| ());
        client.write(file, 0, b"some");
        assert_eq!((fsync(), client.waits()), (Ok(()), (0, false)));
        client.allow_waiting();
        client.write(file, 0, b"more");
        assert_eq!((fsync(), client.waits()), (Ok(()), (1, true)));
        assert_eq!(durable(&client, "/file").unwrap().0, b"more");
        // It may again after an error, and after a panic.
        client.write(file, 0, b"lost");
        device.panic(true);
        assert_eq!((fsync(), client.waits()), (Err(Errno::EIO), (2, true)));
    }

    #[test]
    fn an_fsync_that_finds_no_space_is_not_repeated() {
        let full = |is_deleting: bool| {
            let (client, device) = Client::with_faults();
            client.allow_waiting();
            let file = client.create(1, b"file");
            client.write(file, 0, b"some");
            device.fill(true);
            // What is being deleted has other requests tried again.
            let deletion = is_deleting.then(|| client.server.deletions.begin());
            let error = client.ask(opcode::FSYNC, file, &[0; 16]).unwrap_err();
            let writes = device.fill(false);
            drop(deletion);
            (error, writes)
        };
        let alone = full(false);
        assert_eq!(alone.0, Errno::ENOSPC);
        assert!(alone.1 > 0);
        assert_eq!(full(true), alone);
    }

    #[test]
    fn only_what_an_ioctl_carries_to_us_changes_something() {
        let of = |cmd| {
            let it = IoctlIn {
                cmd,
                ..IoctlIn::default()
            };
            let request = Request {
                header: InHeader {
                    nodeid: 5,
                    ..InHeader::default()
                },
                operation: Operation::Ioctl(it, &[]),
            };
            SyncPolicy::All.of(&request)
        };
        // Setting flags; getting them, FITRIM, and what carries nothing.
        assert_eq!(of(0x4008_6602), Some(5));
        assert_eq!([0x8008_6601, 0xC018_5879, 0x6612].map(of), [None; 3]);
    }

    #[test]
    fn all_is_durable_when_it_is_answered() {
        let client = Client::with_sync_policy(SyncPolicy::All);
        let file = client.create(1, b"file");
        client.write(file, 0, b"contents");
        assert_eq!(durable(&client, "/file").unwrap().0, b"contents");
        let it = SetattrIn {
            valid: fattr::MODE | fattr::SIZE,
            mode: 0o100_600,
            size: 3,
            ..SetattrIn::default()
        };
        client.ask(opcode::SETATTR, file, it.as_bytes()).unwrap();
        assert_eq!(durable(&client, "/file"), Some((b"con".to_vec(), 0o600)));
        client.write_with(file, 0, b"mapped", WRITE_CACHE, 0);
        assert_eq!(durable(&client, "/file").unwrap().0, b"con");
    }
}
