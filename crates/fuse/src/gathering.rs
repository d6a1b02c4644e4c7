//! The kernel's write-back cache: it takes what programs write into its pages, and sends it later.
//!
//! A write of a few bytes is then no request. In exchange the kernel, and not this server, has the
//! newest contents, size and times of a file until it writes them: when a file is closed, at
//! fsync, when its own limits of dirty memory are reached, and after half a minute. All these come
//! as WRITE with `WRITE_CACHE` and as SETATTR with a time of change. What follows from that is
//! decided here:
//!
//! * Data may be lost that a program has written: no space, no quota, an error. The kernel reports
//!   it to fsync, and to the first who closes the file, who may be another; and a program that only
//!   writes would go on for ever. So each opening for writing has a note of its own
//!   ([`Handles::lose`](crate::handles::Handles::lose)). FLUSH reports it at each close of a
//!   descriptor. The GETATTR that the kernel sends before a write, once it has forgotten the
//!   attributes, reports and ends it. So does FSYNC, which the kernel sends only if it has no error
//!   to report itself: who calls fsync twice may hear of a loss twice.
//! * Where less space is left than the kernel may hold
//!   ([`held_max`](crate::writeback_cache::held_max)), files are opened past its cache: their
//!   writes report what they find.
//! * What depends on contents asks the kernel for them first: a rename over another file, data and
//!   holes that are looked for, flags that forbid writing, commands of other processes.
//!
//! When the last opening for writing ends, the kernel has written all: what it may hold is of
//! files that are open for writing. The thread that asks waits until the kernel has written, and
//! other threads serve that: it is one of [`Server::askers`](crate::server::Server), which do
//! nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::abi::flags::{WRITE_CACHE, fattr, init};
use crate::abi::{InHeader, SetattrIn};
use crate::errno::{Errno, Result};
use crate::pending_reply::Channel;
use crate::request::Operation;
use crate::server::Server;

impl Server {
    /// Whether the kernel gathers what is written.
    pub fn gathers(&self) -> bool {
        self.negotiated()
            .is_some_and(|agreed| agreed.has(init::WRITEBACK_CACHE))
    }

    /// Whether so little space is left that the kernel might hold more.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let statfs = self.fs.statfs();
        let held_max = self.held_max.load(Relaxed);
        statfs.available.saturating_mul(self.block_size.into()) < held_max
    }

    /// How many bytes the kernel may hold at most.
    pub fn set_held_max(&self, bytes: u64) {
        self.held_max.store(bytes, Relaxed);
    }

    /// Has the kernel write what it holds of a node, and then `job` done by the pool. Nothing that
    /// the kernel needs for writing may be held meanwhile.
    pub(crate) fn after_kernel_wrote(
        self: &Arc<Self>,
        id: u64,
        channel: &Arc<dyn Channel>,
        job: impl FnOnce() + Send + 'static,
    ) {
        let (server, channel) = (Arc::clone(self), Arc::clone(channel));
        // Without a thread the job is dropped, and its pending reply answers EIO: a thread that
        // serves the kernel must not wait for it.
        self.askers.run_elsewhere(move || {
            channel.write_back(id);
            server.executor.run(job);
        });
    }

    /// Whether a SETATTR is the kernel's own, of the times of writes that it has taken in. It names
    /// a handle then, which no program's call for times does.
    pub(crate) fn notes_writes(&self, header: &InHeader, it: &SetattrIn) -> bool {
        const NOTED: u32 = fattr::FH | fattr::MTIME | fattr::CTIME;
        let is_open = || self.handles.of_node(it.fh, header.nodeid).is_some();
        it.valid == NOTED && self.gathers() && is_open()
    }

    /// What is to be done where a request of this kind has ended with an error: of data that the
    /// kernel had taken from writers, those have to hear.
    pub(crate) fn note_lost(
        &self,
        operation: &Operation<'_>,
        id: u64,
        error: Errno,
        channel: &Arc<dyn Channel>,
    ) {
        if let Operation::Write(it, _) = operation
            && it.write_flags & WRITE_CACHE != 0
        {
            self.lost(id, error, channel);
        }
    }

    /// Data of a node were lost that the kernel had taken from writers.
    pub(crate) fn lost(&self, id: u64, error: Errno, channel: &Arc<dyn Channel>) {
        if !self.gathers() {
            return;
        }
        self.handles.lose(id, error);
        // By another thread or not at all: the inode may be on its way out of the kernel, which
        // then waits for the answer to this write.
        let channel = Arc::clone(channel);
        self.askers
            .run_elsewhere(move || channel.forget_attributes(id));
    }

    /// FLUSH: a descriptor of an opening is closed. What was lost is reported to each who closes
    /// one: the first may be of a child that has written nothing.
    ///
    /// # Errors
    /// `ENOSYS` where the kernel gathers nothing; why data were lost.
    pub(crate) fn flush(&self, handle: u64) -> Result<()> {
        if !self.gathers() {
            return Err(Errno::ENOSYS);
        }
        self.handles.lost(handle).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uext4::InodeFlags;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::flags::{GETATTR_FH, fopen};
    use crate::abi::{
        AttrOut, FallocateIn, FlushIn, FsyncIn, GetattrIn, IoctlIn, LseekIn, LseekOut, OpenIn,
        OpenOut, Rename2In, WriteIn, WriteOut, opcode,
    };
    use crate::sync_policy::SyncPolicy;
    use crate::testing::Client;

    /// A handle of a file, opened with these flags, and what the kernel is to do with it.
    fn open(client: &Client, id: u64, flags: u32) -> OpenOut {
        let it = OpenIn {
            flags,
            ..OpenIn::default()
        };
        client.get(opcode::OPEN, id, it.as_bytes()).unwrap()
    }

    fn release(client: &Client, id: u64, fh: u64) {
        let mut body = [0; 24];
        body[..8].copy_from_slice(fh.as_bytes());
        client.ask(opcode::RELEASE, id, &body).unwrap();
    }

    fn write(client: &Client, id: u64, offset: u64, data: &[u8], flags: u32) -> Result<u32> {
        let it = WriteIn {
            offset,
            size: data.len() as u32,
            write_flags: flags,
            ..WriteIn::default()
        };
        let written: WriteOut = client.get(opcode::WRITE, id, &[it.as_bytes(), data].concat())?;
        Ok(written.size)
    }

    fn flush(client: &Client, id: u64, fh: u64) -> Result<()> {
        let it = FlushIn {
            fh,
            ..FlushIn::default()
        };
        client.ask(opcode::FLUSH, id, it.as_bytes()).map(|_| ())
    }

    /// As the kernel asks when it has nothing to report itself.
    fn fsync(client: &Client, id: u64, fh: u64) -> Result<()> {
        let it = FsyncIn {
            fh,
            ..FsyncIn::default()
        };
        client.ask(opcode::FSYNC, id, it.as_bytes()).map(|_| ())
    }

    /// As the kernel asks before a write.
    fn attributes(client: &Client, id: u64, fh: u64) -> Result<AttrOut> {
        let it = GetattrIn {
            getattr_flags: GETATTR_FH,
            fh,
            ..GetattrIn::default()
        };
        client.get(opcode::GETATTR, id, it.as_bytes())
    }

    /// Takes all space but for so many bytes.
    fn fill(client: &Client, but: u64) {
        let fs = client.server.file_system();
        let free = fs.statfs().available * u64::from(client.server.block_size);
        let filler = client.create(1, b"filler");
        let it = FallocateIn {
            length: free.saturating_sub(but),
            ..FallocateIn::default()
        };
        client
            .ask(opcode::FALLOCATE, filler, it.as_bytes())
            .unwrap();
    }

    #[test]
    fn it_is_agreed_on_where_the_options_and_the_kernel_allow_it() {
        let agreed = |client: &Client| client.server.gathers();
        assert!(agreed(&Client::with_writeback_cache()));
        assert!(!agreed(&Client::without_init().greeted_by(45)));
        let wanted = || Client::without_init().gathering();
        assert!(!agreed(&wanted().greeted_by(44)));
        assert!(!agreed(&wanted().awaiting(SyncPolicy::All).greeted_by(45)));
        assert!(agreed(&wanted().awaiting(SyncPolicy::Names).greeted_by(45)));
        let omitted = crate::omitted::Omitted {
            opens: true,
            ..Default::default()
        };
        assert!(!agreed(&wanted().omitting(omitted).greeted_by(45)));
    }

    #[test]
    fn each_opening_hears_of_a_loss_until_a_write_or_fsync_ends_it() {
        let client = Client::with_writeback_cache();
        let file = client.create(1, b"file");
        let other = client.create(1, b"other");
        let [one, two] = [1, 2].map(|flags| open(&client, file, flags).fh);
        let third = open(&client, other, 1).fh;
        fill(&client, 0);
        assert_eq!(write(&client, file, 0, &[1; 9000], 0), Err(Errno::ENOSPC));
        assert_eq!(flush(&client, file, one), Ok(()));
        let lost = write(&client, file, 0, &[1; 9000], WRITE_CACHE);
        assert_eq!(lost, Err(Errno::ENOSPC));
        // The one that closes first takes nothing from the other, and a descriptor that is closed
        // nothing from those that are left.
        assert_eq!(flush(&client, file, one), Err(Errno::ENOSPC));
        assert_eq!(flush(&client, file, one), Err(Errno::ENOSPC));
        assert_eq!(fsync(&client, file, one), Err(Errno::ENOSPC));
        assert_eq!(fsync(&client, file, one), Ok(()));
        assert_eq!(flush(&client, file, one), Ok(()));
        assert_eq!(attributes(&client, file, two).unwrap_err(), Errno::ENOSPC);
        assert!(attributes(&client, file, two).is_ok());
        assert_eq!(flush(&client, other, third), Ok(()));
        let asks = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            client.forgotten().contains(&file)
        });
        assert!(asks, "the kernel has to ask before the next write");
    }

    #[test]
    fn the_kernel_writes_for_who_has_opened_the_file() {
        let client = Client::with_writeback_cache();
        let file = client.create(1, b"file");
        let handle = open(&client, file, 1).fh;
        let volume = client.server.file_system().volume().unwrap();
        let statfs = volume.statfs();
        assert!(statfs.free > statfs.available + 10, "blocks for root");
        fill(&client, 0);
        // As the kernel sends it: without a caller, which is root's number.
        let root = client.asking_as_root();
        let it = WriteIn {
            fh: handle,
            size: 9000,
            write_flags: WRITE_CACHE,
            ..WriteIn::default()
        };
        let body = [it.as_bytes(), &[1; 9000]].concat();
        let written = root.ask(opcode::WRITE, file, &body);
        assert_eq!(written, Err(Errno::ENOSPC));
        // What root writes itself finds them.
        assert_eq!(write(&root, file, 0, &[1; 9000], 0), Ok(9000));
    }

    #[test]
    fn no_file_is_replaced_by_one_whose_contents_were_lost() {
        let client = Client::with_writeback_cache();
        client.create(1, b"old");
        let new = client.create(1, b"new");
        fill(&client, 0);
        let lost = write(&client, new, 0, &[1; 9000], WRITE_CACHE);
        assert_eq!(lost, Err(Errno::ENOSPC));
        let it = Rename2In {
            newdir: 1,
            ..Rename2In::default()
        };
        let body = [it.as_bytes(), b"new\0old\0"].concat();
        let renamed = client.ask(opcode::RENAME2, 1, &body);
        assert_eq!(renamed, Err(Errno::ENOSPC));
        assert_eq!(client.lookup(1, b"new").unwrap().nodeid, new);
    }

    #[test]
    fn what_found_space_in_the_end_is_not_lost() {
        let client = Client::with_writeback_cache();
        let file = client.create(1, b"file");
        let handle = open(&client, file, 1).fh;
        let written = write(&client, file, 0, &[1; 9000], WRITE_CACHE);
        assert_eq!(written, Ok(9000));
        assert_eq!(flush(&client, file, handle), Ok(()));
        assert!(client.forgotten().is_empty());
    }

    #[test]
    fn where_space_may_run_out_files_are_opened_past_the_cache() {
        let client = Client::with_writeback_cache();
        let file = client.create(1, b"file");
        client.server.set_held_max(1 << 20);
        let flags = |how| open(&client, file, how).open_flags & fopen::DIRECT_IO;
        assert_eq!(flags(1), 0);
        fill(&client, 1 << 19);
        assert_eq!(flags(1), fopen::DIRECT_IO);
        assert_eq!(flags(0), 0);
        // Such a file can be mapped for writing, too.
        let agreed = client.server.negotiated().unwrap();
        assert!(agreed.has(init::DIRECT_IO_ALLOW_MMAP));
        let without = Client::new();
        let file = without.create(1, b"file");
        fill(&without, 1 << 19);
        assert_eq!(open(&without, file, 1).open_flags & fopen::DIRECT_IO, 0);
    }

    #[test]
    fn the_kernel_writes_before_data_are_looked_for() {
        let client = Client::with_writeback_cache();
        let file = client.create(1, b"file");
        client.write(file, 1 << 20, b"x");
        let sought = || -> LseekOut {
            let it = LseekIn {
                whence: 3,
                ..LseekIn::default()
            };
            client.get(opcode::LSEEK, file, it.as_bytes()).unwrap()
        };
        // CREATE has opened it.
        assert_eq!(sought().offset, 1 << 20);
        assert_eq!(client.written_back(), [file]);
        for handle in 1..=4 {
            release(&client, file, handle);
        }
        assert_eq!(sought().offset, 1 << 20);
        assert!(client.written_back().is_empty());
    }

    #[test]
    fn the_kernel_writes_before_a_file_replaces_another() {
        let client = Client::with_writeback_cache();
        let new = client.create(1, b"new");
        let renamed = |from: &[u8], to: &[u8], flags| {
            let it = Rename2In {
                newdir: 1,
                flags,
                padding: 0,
            };
            let body = [it.as_bytes(), from, b"\0", to, b"\0"].concat();
            client.ask(opcode::RENAME2, 1, &body).unwrap();
        };
        renamed(b"new", b"newer", 0);
        assert!(client.written_back().is_empty());
        client.create(1, b"old");
        renamed(b"newer", b"old", 2);
        assert!(client.written_back().is_empty());
        renamed(b"old", b"newer", 0);
        assert_eq!(client.written_back(), [new]);
        assert!(client.lookup(1, b"old").unwrap().nodeid == 0);
        assert_eq!(client.lookup(1, b"newer").unwrap().nodeid, new);
    }

    #[test]
    fn what_was_permitted_is_written_later() {
        const SETFLAGS: u32 = 0x4008_6602;
        let client = Client::with_writeback_cache().asking_as_root();
        let file = client.create(1, b"file");
        client.write(file, 0, b"begun");
        let handle = open(&client, file, 1).fh;
        let set = |flags: InodeFlags| {
            let it = IoctlIn {
                cmd: SETFLAGS,
                in_size: 4,
                ..IoctlIn::default()
            };
            let body = [it.as_bytes(), flags.bits().as_bytes()].concat();
            client.ask(opcode::IOCTL, file, &body).unwrap();
            assert_eq!(client.written_back(), [file]);
        };
        set(InodeFlags::APPEND | InodeFlags::EXTENTS);
        let appended = write(&client, file, 0, b"begun, and more", WRITE_CACHE);
        assert_eq!(appended, Ok(15));
        assert_eq!(client.read(file, 0, 20), b"begun, and more");
        assert_eq!(write(&client, file, 0, b"x", 0), Err(Errno::EPERM));
        set(InodeFlags::IMMUTABLE | InodeFlags::EXTENTS);
        let lost = write(&client, file, 0, b"x", WRITE_CACHE);
        assert_eq!(lost, Err(Errno::EPERM));
        let times = SetattrIn {
            valid: fattr::MTIME | fattr::CTIME | fattr::FH,
            fh: handle,
            mtime: 5,
            ctime: 6,
            ..SetattrIn::default()
        };
        let set: AttrOut = client.get(opcode::SETATTR, file, times.as_bytes()).unwrap();
        assert_eq!((set.attr.mtime, set.attr.ctime), (5, 6));
        // As utimensat comes from a kernel that keeps times itself.
        let programs = SetattrIn {
            valid: fattr::MTIME | fattr::CTIME,
            ..times
        };
        let refused = client.ask(opcode::SETATTR, file, programs.as_bytes());
        assert_eq!(refused, Err(Errno::EPERM));
    }
}
