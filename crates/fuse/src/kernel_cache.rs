//! What the kernel has to forget of changes that it did not ask for: those of commands that other
//! processes send to the daemon.
//!
//! The kernel keeps names, attributes and pages for good, for every change used to go through it.
//! After a change of a command it is notified, before the command is answered. Three things make
//! that enough:
//!
//! * a node that it may know is in the table of nodes before its attributes are read for an answer
//!   (`Server::reply_entry`), so that a change either is in the answer or finds the node there;
//! * an answer that was read before a change may still be on its way: the kernel then knows nothing
//!   of the node, and is notified again until it does, or the node is gone from the table;
//! * a name is looked up and listed under the directory's lock, which the notification takes too.
//!
//! So the thread that notifies must be none that answers requests.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use uext4::{Ino, OpenInode};
use uext4_remote::changes::Observer;

use crate::mountinfo::{self, Number};
use crate::reply::node_of;
use crate::server::Server;
use crate::transport::dev::{Device, Forgotten};

/// How often, and after which pause, the kernel is notified of a node that it does not know yet. An
/// answer with many attributes, of a listing, may wait for the device between the first and the
/// last.
const TRIES: u32 = 5000;
const PAUSE: Duration = Duration::from_millis(1);

/// What the kernel knows of a mount.
#[derive(Debug)]
pub struct KernelCache {
    server: Arc<Server>,
    device: Arc<Device>,
    /// The mount's, if that is known.
    number: Option<Number>,
}

impl KernelCache {
    /// That of a mount, with its number if that is known.
    pub fn new(server: &Arc<Server>, device: &Arc<Device>, number: Option<Number>) -> Self {
        Self {
            number,
            server: Arc::clone(server),
            device: Arc::clone(device),
        }
    }

    fn forget(&self, id: u64, what: Forgotten) {
        for _ in 0..TRIES {
            if self.server.nodes().get(id).is_err() {
                return;
            }
            match self.device.forget(id, what) {
                Err(Errno::NOENT) => thread::sleep(PAUSE),
                // Of a mount that has ended it knows nothing.
                _ => return,
            }
        }
    }
}

impl Observer for KernelCache {
    fn name(&self, dir: Ino, name: &[u8]) {
        let dir = node_of(dir.0.into());
        if self.server.nodes().get(dir).is_ok() {
            // It fails where the kernel knows nothing of the name.
            _ = self.device.forget_name(dir, name);
        }
    }

    /// With its write-back cache the kernel keeps size and times of a file, whatever it is notified
    /// of, as long as it has the inode: so it is to let go of that, too. A file that a program has
    /// open it keeps, with those.
    fn inode(&self, ino: Ino) {
        let id = node_of(ino.0.into());
        self.forget(id, Forgotten::Contents);
        if self.server.gathers() {
            // It fails where the mount has ended.
            _ = self.device.prune(id);
        }
    }

    fn many(&self) {
        for id in self.server.nodes().ids() {
            self.forget(id, Forgotten::Attributes);
        }
    }

    /// A page that is stored to through a mapping, or written with the kernel's write-back cache,
    /// is the kernel's alone until it is written back, and no request reports it. Only of files
    /// that are open for writing there are such pages: the last close writes them. Of these the
    /// kernel drops all pages, and writes what is dirty before.
    fn write_back(&self) {
        for ino in self.server.handles.inodes() {
            self.forget(node_of(ino.0.into()), Forgotten::Contents);
        }
    }

    fn write_back_of(&self, inode: &OpenInode) {
        // That a command has it open for writing does not mean that the kernel knows it.
        let ino = inode.ino();
        if inode.is_open_for_writing() && self.server.handles.has(ino) {
            self.forget(node_of(ino.0.into()), Forgotten::Contents);
        }
    }

    /// The kernel detaches what is mounted on names that it forgets. What only other processes see
    /// than the two is detached, as by rm(1).
    fn mount_points(&self, process: Option<u32>) -> Vec<Vec<u8>> {
        let Some(number) = self.number else {
            return Vec::new();
        };
        let seen_by = |process| mountinfo::mounted_on(number, process).unwrap_or_default();
        let mut all = seen_by(None);
        if process.is_some() {
            all.extend(seen_by(process));
        }
        all
    }
}
