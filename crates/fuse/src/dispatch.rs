//! A pure mapping: requests → calls of the engine → replies. Knows no descriptor and no mount.
//!
//! | family | file |
//! |---|---|
//! | names: lookup, make, take, move | [`names`](crate::names) |
//! | attributes | [`attributes`](crate::attributes) |
//! | contents | [`data`](crate::data) |
//! | listing directories | [`directories`](crate::directories) |
//! | extended attributes | [`xattrs`](crate::xattrs) |
//! | flags, projects, discarding | [`ioctl`](crate::ioctl) |
//! | free space | [`statfs`](crate::statfs) |
//!
//! Whether a user may do something is decided by the kernel before it asks
//! (`default_permissions`), ACLs included; here only the engine's own rules are obeyed. Every
//! answer is given at once, or by a [`PendingReply`](crate::PendingReply) later: what may take long
//! (of fsync all but one at a time) by the threads of [`Executor`](crate::executor::Executor), a
//! writer who is over the dirty limits when its pause is over. A panic is an error for the caller
//! ([`PanicGuard`](crate::panic_guard::PanicGuard)).

use std::sync::Arc;
use std::time::Instant;

use crate::answer::Answer;
use crate::durable::Awaiting;
use crate::errno::{Errno, Result};
use crate::owners::some_user;
use crate::pending_reply::{Arrival, Channel, RequestContext};
use crate::rename::{self, Name};
use crate::reply::Out;
use crate::request::{Integrity, Operation, Request, each_forgotten};
use crate::server::Server;
use crate::{attributes, data, directories, ioctl, names, statfs, xattrs};

impl Server {
    /// Does what is asked for. What is read goes straight into `out`; the rest of a reply too.
    pub fn handle(
        self: &Arc<Self>,
        request: &Request<'_>,
        out: &mut Out<'_>,
        channel: &Arc<dyn Channel>,
    ) -> Answer {
        let (opcode, began) = (request.header.opcode, Instant::now());
        let request = &Request {
            header: self.owners.caller(&request.header),
            ..*request
        };
        let arrival = Arrival { opcode, began };
        let (unique, timing) = (request.header.unique, (&self.latencies, arrival));
        let awaited = self.sync_policy.of(request).filter(|_| self.is_writable());
        let answer = match awaited {
            None => self.guarded(
                request,
                out,
                &RequestContext::new(channel, unique, Some(timing)),
            ),
            Some(node) => {
                let awaiting = Awaiting::new(self, node, channel, arrival);
                let awaiting: Arc<dyn Channel> = Arc::new(awaiting);
                let asker = &RequestContext::new(&awaiting, unique, None);
                match self.guarded(request, out, asker) {
                    Answer::Now(Ok(())) => {
                        asker.pending_reply().answer(Ok(out.filled()));
                        Answer::Later
                    }
                    answer => answer,
                }
            }
        };
        if let Answer::Now(Err(error)) = &answer {
            self.note_lost(&request.operation, request.header.nodeid, *error, channel);
        }
        match &answer {
            Answer::Now(answer) => self.latencies.record(opcode, began, answer),
            Answer::Never => self.latencies.record(opcode, began, &Ok(())),
            Answer::Later => {}
        }
        answer
    }

    /// Runs a request; a panic becomes an error.
    fn guarded(
        self: &Arc<Self>,
        request: &Request<'_>,
        out: &mut Out<'_>,
        asker: &RequestContext<'_>,
    ) -> Answer {
        let mut dispatched = || {
            out.clear();
            self.dispatch(request, out, asker)
        };
        // What found no space is tried again if some was about to be free. An fsync that failed has
        // reported what is lost, and would find nothing to report.
        let is_repeatable = !matches!(
            request.operation,
            Operation::Fsync(..) | Operation::Fsyncdir
        );
        let retried = || match is_repeatable {
            true => self
                .deletions
                .retried(&self.fs, &mut dispatched, Answer::error),
            false => dispatched(),
        };
        let answer = self.panic_guard.catch(retried);
        answer.unwrap_or_else(|| match asker.has_pending() {
            // A pending reply that is lost answers by itself.
            true => Answer::Later,
            false => Answer::Now(Err(Errno::EIO)),
        })
    }

    fn dispatch(
        self: &Arc<Self>,
        request: &Request<'_>,
        out: &mut Out<'_>,
        caller: &RequestContext<'_>,
    ) -> Answer {
        let header = &request.header;
        let id = header.nodeid;
        if request.operation.makes()
            && let Err(error) = some_user(header)
        {
            return Answer::Now(Err(error));
        }
        match request.operation {
            Operation::Init(asked) => self.init(&asked, out).into(),
            _ if self.negotiated().is_none() => Answer::Now(Err(Errno::EIO)),
            _ if self.omitted.has(&request.operation) => Answer::Now(Err(Errno::ENOSYS)),
            Operation::Forget(lookups) => self.forget(id, lookups),
            Operation::BatchForget(all) => {
                for one in each_forgotten(all) {
                    self.forget(one.nodeid, one.nlookup);
                }
                Answer::Never
            }
            Operation::Interrupt(unique) => {
                self.executor.interrupt(unique);
                Answer::Never
            }
            Operation::Write(it, data) => data::write(self, header, &it, data, out, caller),
            Operation::Fsync(handle, integrity) => data::fsync(self, id, handle, integrity, caller),
            Operation::Fsyncdir => data::fsync(self, id, 0, Integrity::File, caller),
            Operation::Syncfs => data::syncfs(self, caller),
            Operation::Statfs => statfs::statfs(self, out, caller),
            Operation::Fallocate(it) => data::fallocate(self, header, &it, caller),
            Operation::CopyFileRange(it, width) => data::copy(self, header, &it, width, caller),
            Operation::Lseek(it) => data::lseek(self, id, it, out, caller),
            Operation::Setattr(it) => attributes::setattr(self, header, it, out, caller),
            Operation::Ioctl(it, data) => ioctl::ioctl(self, header, &it, data, out, caller),
            Operation::Open(it) => data::open(self, header, &it, out, caller).into(),
            Operation::Rename {
                newdir,
                flags,
                old,
                new,
            } => {
                let old = Name { dir: id, name: old };
                let new = Name {
                    dir: newdir,
                    name: new,
                };
                rename::rename(self, header, old, new, flags, caller)
            }
            _ => self.at_once(request, out).into(),
        }
    }

    /// What is answered by the thread that read it.
    fn at_once(&self, request: &Request<'_>, out: &mut Out<'_>) -> Result<()> {
        let header = &request.header;
        let id = header.nodeid;
        match request.operation {
            Operation::Lookup(name) => names::lookup(self, header, name, out),
            Operation::Symlink { name, target } => names::symlink(self, header, name, target, out),
            Operation::Mknod(it, name) => names::mknod(self, header, &it, name, out),
            Operation::Mkdir(it, name) => names::mkdir(self, header, &it, name, out),
            Operation::Create(it, name) => names::create(self, header, &it, name, out),
            Operation::Tmpfile(it) => names::tmpfile(self, header, &it, out),
            Operation::Link(of, name) => names::link(self, of, id, name, out),
            Operation::Unlink(name) => names::unlink(self, id, name),
            Operation::Rmdir(name) => names::rmdir(self, id, name),
            Operation::Getattr(handle) => attributes::getattr(self, id, handle, out),
            Operation::Flush(handle) => self.flush(handle),
            Operation::Statx => attributes::statx(self, id, out),
            Operation::Readlink => names::readlink(self, id, out),
            Operation::Read(it) => data::read(self, id, &it, out),
            Operation::Bmap(it) => data::bmap(self, id, &it, out),
            Operation::Readdir(it, listing) => directories::readdir(self, id, &it, listing, out),
            Operation::Getxattr(size, name) => xattrs::get(self, header, size, name, out),
            Operation::Listxattr(size) => xattrs::list(self, header, size, out),
            Operation::Setxattr(it, name, value) => xattrs::set(self, header, &it, name, value),
            Operation::Removexattr(name) => xattrs::remove(self, id, name),
            Operation::Release(handle) => {
                match self.handles.release(handle) {
                    Some(inode) if inode.writes_on_close() => {
                        self.executor.run(move || drop(inode))
                    }
                    Some(inode) => self.let_go(inode.blocks_without_name(), inode),
                    None => {}
                }
                Ok(())
            }
            Operation::Releasedir | Operation::Destroy => Ok(()),
            // Never asked again: nothing is to be done when a descriptor is closed, directories
            // need no handle, and the kernel knows itself who may do what.
            _ => Err(Errno::ENOSYS),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::{Kstatfs, opcode};
    use crate::testing::{Client, e2fsck};

    #[test]
    fn nothing_is_done_before_init() {
        let client = Client::without_init();
        assert_eq!(client.ask(opcode::GETATTR, 1, &[0; 16]), Err(Errno::EIO));
    }

    #[test]
    fn statfs_returns_the_counts_of_the_engine() {
        let client = Client::new();
        let reported: Kstatfs = client.get(opcode::STATFS, 1, &[]).unwrap();
        let counts = client.server.fs.statfs();
        assert_eq!(
            (reported.blocks, reported.bfree, reported.ffree),
            (counts.blocks, counts.free, counts.free_inodes)
        );
        assert_eq!((reported.bsize, reported.namelen), (4096, 255));
    }

    #[test]
    fn unknown_requests_are_refused_with_enosys() {
        let client = Client::new();
        for code in [opcode::FLUSH, opcode::OPENDIR, opcode::ACCESS, 33, 49, 99] {
            assert_eq!(client.ask(code, 1, &[0; 64]), Err(Errno::ENOSYS), "{code}");
        }
        assert_eq!(
            client.ask(opcode::GETATTR, 77, &[0; 16]),
            Err(Errno::ESTALE)
        );
    }

    #[test]
    fn a_panic_is_eio_for_the_caller_and_ends_all_writing() {
        let (client, device) = Client::with_faults();
        let file = client.create(1, b"file");
        client.write(file, 0, &[7; 5000]);
        client.ask(opcode::FSYNC, file, &[0; 16]).unwrap();
        client.mkdir(1, b"dir");
        client.ask(opcode::SYNCFS, 1, &[0; 8]).unwrap();
        client.write(file, 0, &[8; 5000]);
        device.panic(true);
        // By the thread that reads requests, and by another.
        assert_eq!(client.lookup(900, b".").unwrap_err(), Errno::EIO);
        assert_eq!(client.ask(opcode::FSYNC, file, &[0; 16]), Err(Errno::EIO));
        // More often than there are threads.
        for _ in 0..40 {
            assert!(client.ask(opcode::SYNCFS, 1, &[0; 8]).is_err());
        }
        device.panic(false);
        assert_eq!(client.read(file, 0, 10), [8; 10]);
        let unlinked = client.ask(opcode::UNLINK, 1, b"file\0");
        assert_eq!(unlinked, Err(Errno::EROFS));
        let synced = client.ask(opcode::FSYNC, file, &[0; 16]);
        assert!(synced.is_err());
        assert!(client.server.finish().is_err());
        // The journal makes it what it was when all was well.
        let again = client.reopened_read_only();
        assert!(again.lookup(1, b"dir").unwrap().nodeid > 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        /// The kernel asks no such things, and nothing it could ask ends in a panic.
        #[test]
        fn nothing_that_can_be_asked_is_too_strange(
            all in proptest::collection::vec(
                (1u32..54, 0u64..20, proptest::collection::vec(strange(), 0..12)),
                1..200,
            ),
        ) {
            let client = Client::new();
            let dir = client.mkdir(1, b"dir");
            for name in [&b"a"[..], b"b"] {
                let file = client.create(dir, name);
                client.write(file, 0, &[3; 9000]);
            }
            for (code, id, words) in all {
                let mut body: Vec<u8> = words.iter().flat_map(|word| word.as_bytes()).copied().collect();
                body.extend(b"a\0b\0");
                _ = client.ask(code, id, &body);
            }
            client.server.finish().unwrap();
            e2fsck(&client.device);
        }
    }

    /// Numbers that mean something somewhere, and others.
    fn strange() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            0u64..64,
            Just(u64::MAX),
            Just(4096),
            any::<u64>(),
            any::<u32>().prop_map(u64::from),
            Just(u64::from_le_bytes(*b"a\0b\0dir\0")),
        ]
    }

    #[test]
    fn the_end_leaves_a_sound_image() {
        let client = Client::new();
        let file = client.create(1, b"file");
        client.write(file, 0, &[7; 100_000]);
        client.ask(opcode::UNLINK, 1, b"file\0").unwrap();
        client.create(1, b"other");
        client.server.finish().unwrap();
        e2fsck(&client.device);
    }
}
