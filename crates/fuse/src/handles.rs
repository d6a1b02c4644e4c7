//! Files that are open for writing, each opening by itself.
//!
//! Nodes would do for everything but two things: what went wrong in writing a file is reported to
//! each who has it open, until it has been heard of; and the allocator keeps space for a file to
//! grow as long as it is open for writing, which a node, that lives until the kernel forgets it,
//! says nothing about. So each opening has a user of the inode of its own, through which it writes.
//! A caller that only reads has none, and handle 0.
//!
//! Lock: one of 64 parts, a leaf; an inode is let go of outside it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use uext4::{Ino, OpenInode};

use crate::errno::Errno;
use crate::reply::node_of;

/// Parts of the table, a power of two.
const PARTS: usize = 64;

/// The handles there are.
#[derive(Debug)]
pub struct Handles {
    next: AtomicU64,
    parts: [Mutex<FxHashMap<u64, Opening>>; PARTS],
}

/// One opening.
#[derive(Debug)]
struct Opening {
    inode: Arc<OpenInode>,
    /// Why data were lost that the kernel had gathered, until it is reported.
    lost: Option<Errno>,
}

impl Default for Handles {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(1),
            parts: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Handles {
    fn part(&self, handle: u64) -> &Mutex<FxHashMap<u64, Opening>> {
        // OK to index: less than the number of parts.
        &self.parts[handle as usize % PARTS]
    }

    /// A handle of an inode that was opened for writing, by the caller for whom it acts. From now
    /// on it is informed of what goes wrong.
    pub fn open(&self, inode: &OpenInode) -> u64 {
        let handle = self.next.fetch_add(1, Relaxed);
        let inode = Arc::new(inode.reopened().for_writing());
        let opening = Opening { inode, lost: None };
        self.part(handle).lock().insert(handle, opening);
        handle
    }

    /// The inode of a handle; `None` for 0.
    pub fn get(&self, handle: u64) -> Option<Arc<OpenInode>> {
        if handle == 0 {
            return None;
        }
        let opening = self.part(handle).lock();
        opening.get(&handle).map(|it| Arc::clone(&it.inode))
    }

    /// The same, if it is a handle of this node.
    pub fn of_node(&self, handle: u64, id: u64) -> Option<Arc<OpenInode>> {
        let inode = self.get(handle)?;
        (node_of(inode.ino().0.into()) == id).then_some(inode)
    }

    /// The numbers of the inodes that are open for writing.
    pub fn inodes(&self) -> BTreeSet<Ino> {
        let of_part = |part: &Mutex<FxHashMap<u64, Opening>>| -> Vec<Ino> {
            part.lock().values().map(|it| it.inode.ino()).collect()
        };
        self.parts.iter().flat_map(of_part).collect()
    }

    /// Whether an inode is open for writing.
    pub fn has(&self, ino: Ino) -> bool {
        let in_part = |part: &Mutex<FxHashMap<u64, Opening>>| {
            part.lock().values().any(|it| it.inode.ino() == ino)
        };
        self.parts.iter().any(in_part)
    }

    /// Data of a node were lost that the kernel had taken from writers: each opening for writing is
    /// informed of it, for the kernel does not say through which they were written.
    pub fn lose(&self, id: u64, error: Errno) {
        for part in &self.parts {
            let mut part = part.lock();
            let all = part.values_mut();
            for opening in all.filter(|it| node_of(it.inode.ino().0.into()) == id) {
                opening.lost = Some(error);
            }
        }
    }

    /// Why data were lost that a handle has to hear of, if any were since this was asked last.
    pub fn take_lost(&self, handle: u64) -> Option<Errno> {
        self.part(handle).lock().get_mut(&handle)?.lost.take()
    }

    /// The same, which stays to be heard of: a descriptor of many is closed.
    pub fn lost(&self, handle: u64) -> Option<Errno> {
        self.part(handle).lock().get(&handle)?.lost
    }

    /// Why data of a node were lost of which some opening has not heard yet.
    pub fn lost_of(&self, id: u64) -> Option<Errno> {
        let of_node = |it: &&Opening| node_of(it.inode.ino().0.into()) == id;
        let in_part = |part: &Mutex<FxHashMap<u64, Opening>>| {
            let part = part.lock();
            part.values().filter(of_node).find_map(|it| it.lost)
        };
        self.parts.iter().find_map(in_part)
    }

    /// The end of a handle. Gives the inode: any thread that drops it may delete it with that.
    pub fn release(&self, handle: u64) -> Option<Arc<OpenInode>> {
        let opening = self.part(handle).lock().remove(&handle);
        opening.map(|it| it.inode)
    }

    /// The end of all.
    pub fn clear(&self) {
        for part in &self.parts {
            let all = std::mem::take(&mut *part.lock());
            drop(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use uext4::{Creation, NewInode};

    use super::*;
    use crate::abi::{EntryOut, InHeader};
    use crate::names::reply_opened;
    use crate::nodes::Node;
    use crate::reply::Out;
    use crate::testing::{Client, file_system};

    #[test]
    fn a_handle_ends_where_its_file_cannot_be_answered() {
        let client = Client::new();
        for room in [0, size_of::<EntryOut>()] {
            let how = Creation::default();
            let file = client.inode(1).create_unnamed(NewInode::File, &how);
            let node = Node::Writable(file.unwrap());
            let mut bytes = vec![0; room];
            let mut out = Out::new(&mut bytes);
            reply_opened(&client.server, &InHeader::default(), node, 2, &mut out).unwrap_err();
            assert!(client.server.handles.inodes().is_empty(), "{room}");
        }
    }

    #[test]
    fn handles_keep_the_inode_in_use_to_their_end() {
        let (fs, _) = file_system();
        let root = fs.root().unwrap();
        let how = Creation::default();
        let file = root.create(b"file", NewInode::File, &how).unwrap();
        let handles = Handles::default();
        let (one, two) = (handles.open(&file), handles.open(&file));
        assert!(one != two && one != 0);
        root.unlink(b"file").unwrap();
        drop(file);
        let free = fs.statfs().free_inodes;
        handles.get(one).unwrap().write_at(0, b"x").unwrap();
        drop(handles.release(one));
        assert!(handles.get(one).is_none());
        assert_eq!(fs.statfs().free_inodes, free);
        drop(handles.release(two));
        assert!(handles.release(0).is_none());
        assert_eq!(fs.statfs().free_inodes, free + 1);
    }
}
