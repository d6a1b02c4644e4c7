//! The file system that is served, and what all families of requests share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use uext4::{FileType, Ino, Volume};
use uext4_ondisk::inode::GOOD_OLD_INODE_SIZE;
use uext4_remote::gate::Gate;

use crate::abi::flags::init as has;
use crate::abi::{InitIn, Kstatfs};
use crate::answer::Answer;
use crate::deletions::Deletions;
use crate::dying::Threads;
use crate::errno::{Errno, Result};
use crate::executor::Executor;
use crate::handles::Handles;
use crate::init::{self, Negotiated, Wishes};
use crate::latency::Latencies;
use crate::nodes::{Node, Nodes};
use crate::omitted::Omitted;
use crate::overlays::Origins;
use crate::owners::Owners;
use crate::panic_guard::PanicGuard;
use crate::reply::{Out, Validity, attr_of};
use crate::served::Served;
use crate::sync_policy::SyncPolicy;
use crate::write_buffers::WriteBufferPool;
use crate::writeback_cache;
use crate::writers::Writers;

/// Inodes of more units of 512 bytes are deleted by other threads than those that read requests.
const LARGE: u64 = 2048;

/// A file system, served.
#[derive(Debug)]
pub struct Server {
    pub(crate) fs: Served,
    pub(crate) nodes: Nodes,
    pub(crate) handles: Handles,
    pub(crate) writers: Writers,
    pub(crate) parking: WriteBufferPool,
    pub(crate) executor: Executor,
    /// Threads that wait for the kernel to write, and do nothing that it waits for.
    pub(crate) askers: Executor,
    pub(crate) deletions: Arc<Deletions>,
    pub(crate) panic_guard: PanicGuard,
    pub(crate) validity: Validity,
    pub(crate) block_size: u32,
    pub(crate) owners: Owners,
    pub(crate) omitted: Omitted,
    pub(crate) latencies: Arc<Latencies>,
    pub(crate) sync_policy: SyncPolicy,
    pub(crate) threads: Threads,
    pub(crate) origins: Origins,
    wants_writeback_cache: bool,
    /// Most bytes that the kernel holds of what was written.
    pub(crate) held_max: AtomicU64,
    gate: Arc<Gate>,
    negotiated: OnceLock<Negotiated>,
}

impl Server {
    /// Of a file system as it was opened: for reading, or for writing too.
    ///
    /// # Errors
    /// Those of reading the root directory, `ENOTDIR` if it is none.
    pub fn new(fs: impl Into<Served>, validity: Validity) -> Result<Self> {
        let fs = fs.into();
        let root = Node::open(&fs, Ino::ROOT)?;
        if root.inode().file_type != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        let panic_guard = PanicGuard::new(fs.volume().cloned());
        Ok(Self {
            nodes: Nodes::new(root),
            handles: Handles::default(),
            writers: Writers::default(),
            parking: WriteBufferPool::default(),
            executor: Executor::new(panic_guard.clone()),
            askers: Executor::new(panic_guard.clone()),
            deletions: Arc::default(),
            panic_guard,
            validity,
            block_size: fs.geometry().block_size.bytes(),
            owners: Owners::default(),
            omitted: Omitted::default(),
            latencies: Arc::default(),
            sync_policy: SyncPolicy::default(),
            wants_writeback_cache: false,
            held_max: AtomicU64::new(writeback_cache::HELD_MAX),
            gate: Arc::default(),
            threads: Threads::default(),
            origins: Origins::default(),
            negotiated: OnceLock::new(),
            fs,
        })
    }

    /// The same, which shows files as others' than those they are stored as.
    #[must_use]
    pub fn owned_by(self, owners: Owners) -> Self {
        Self { owners, ..self }
    }

    /// The same, which keeps so many bytes at most for data of writers that wait.
    #[must_use]
    pub fn with_waiting(self, bytes: usize) -> Self {
        Self {
            parking: WriteBufferPool::of(bytes),
            ..self
        }
    }

    /// Whether the file system was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.fs.volume().is_some()
    }

    /// How long requests took.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// The same, with what is to be durable before it is answered.
    #[must_use]
    pub fn with_sync_policy(self, sync_policy: SyncPolicy) -> Self {
        Self {
            sync_policy,
            ..self
        }
    }

    /// The same, for which the kernel gathers what is written, if it can: where nothing is to be
    /// durable at once, and openings are served.
    #[must_use]
    pub fn with_writeback_cache(self) -> Self {
        Self {
            wants_writeback_cache: true,
            ..self
        }
    }

    /// What holds back other processes' commands from a file system that is being closed.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Whether changes are durable before they are answered.
    pub fn is_synchronous(&self) -> bool {
        self.sync_policy != SyncPolicy::OnDemand
    }

    /// The same, which does not serve these kinds of requests.
    #[must_use]
    pub fn omitting(self, omitted: Omitted) -> Self {
        Self { omitted, ..self }
    }

    /// The file system.
    pub fn file_system(&self) -> &Served {
        &self.fs
    }

    /// Nodes the kernel knows.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// What was agreed on, once INIT was answered.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.get()
    }

    pub(crate) fn init(&self, asked: &InitIn, out: &mut Out<'_>) -> Result<()> {
        let has_nanoseconds = usize::from(self.fs.geometry().inode_size) > GOOD_OLD_INODE_SIZE;
        let time_gran = if has_nanoseconds { 1 } else { 1_000_000_000 };
        let mut asked = *asked;
        if self.owners.fakeroot {
            // With its ACLs the kernel decides who may do what.
            asked.flags &= !(has::POSIX_ACL as u32);
        }
        if self.omitted.opens {
            // The kernel would leave it to OPEN to cut a file.
            asked.flags &= !(has::ATOMIC_O_TRUNC as u32);
        }
        let may_gather = self.wants_writeback_cache
            && self.is_writable()
            && !self.omitted.opens
            && self.sync_policy != SyncPolicy::All;
        // OK to unwrap: no machine has pages of 4 GiB.
        let page = u32::try_from(rustix::param::page_size()).unwrap();
        let wishes = Wishes {
            flags: writeback_cache::wished(may_gather, &asked),
            time_gran,
            page,
        };
        let (reply, negotiated) = init::agree(&asked, wishes)?;
        if let Some(negotiated) = negotiated {
            // The first one holds.
            _ = self.negotiated.set(negotiated);
        }
        out.put(&reply)
    }

    pub(crate) fn forget(&self, id: u64, lookups: u64) -> Answer {
        if let Some(node) = self.nodes.forget(id, lookups)
            && let Node::Writable(inode) = &*node
        {
            self.let_go(inode.blocks_without_name(), node);
        }
        Answer::Never
    }

    /// Drops what may be the last user of an inode, and so delete so many units of 512 bytes: by
    /// another thread where deleting it may take long.
    pub(crate) fn let_go(&self, deletes: Option<u64>, user: impl Send + 'static) {
        let Some(blocks) = deletes else {
            return drop(user);
        };
        let deletion = self.deletions.begin();
        let delete = move || {
            drop(user);
            drop(deletion);
        };
        match blocks > LARGE {
            true => self.executor.run(delete),
            false => delete(),
        }
    }

    /// Notifies the kernel of a node: one lookup more.
    pub(crate) fn reply_entry(&self, node: Node, out: &mut Out<'_>) -> Result<()> {
        self.reply_node(&self.nodes.remember(node), out)
    }

    /// The answer about a node that the kernel was just notified of.
    pub(crate) fn reply_node(&self, node: &Node, out: &mut Out<'_>) -> Result<()> {
        let inode = self.owners.shown(node.inode());
        let attr = attr_of(&inode, node.delayed(), self.block_size);
        out.put(&self.validity.entry(attr, inode.generation))
    }

    pub(crate) fn statfs(&self) -> Kstatfs {
        let statfs = self.fs.statfs();
        Kstatfs {
            blocks: statfs.blocks,
            bfree: statfs.free,
            bavail: statfs.available,
            files: statfs.inodes,
            ffree: statfs.free_inodes,
            bsize: statfs.block_size,
            namelen: 255,
            frsize: statfs.block_size,
            ..Kstatfs::default()
        }
    }

    /// After the last request: all that is under way is answered, nothing is known any more, and
    /// what was written is durable and the file system closed.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn finish(&self) -> uext4::Result<()> {
        if let Some(volume) = self.fs.volume() {
            volume.cancel_writers();
        }
        // Whatever went wrong: a thread waits for an answer.
        self.askers.finish();
        self.executor.finish();
        self.gate.close();
        self.handles.clear();
        self.nodes.clear();
        self.fs.volume().map_or(Ok(()), Volume::close)
    }
}
