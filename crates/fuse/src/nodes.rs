//! What the kernel knows of us: nodes, and how often it was notified of each.
//!
//! ```text
//! nodeid → one of 64 parts → (look-ups, inode in use)
//! ```
//! A nodeid is the inode's number, but for the root (1, where the inode is 2). Each reply that
//! names a node counts one lookup; FORGET takes back as many as it says, and with the last one
//! the node goes. Until then its inode is in use: what is unlinked keeps its contents as long as
//! the kernel knows it, and no number comes to mean something else meanwhile. The root stays for
//! good.
//!
//! Lock: one a part, a leaf; an inode is let go of outside it, for that may delete it.

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use uext4::xattr::Xattr;
use uext4::{Caller, Ino, Inode, Listed, OpenInode};

use crate::abi::{FUSE_ROOT_ID, InHeader};
use crate::errno::{Errno, Result};
use crate::reply::node_of;
use crate::served::Served;

/// Parts of the table, a power of two.
const PARTS: usize = 64;

/// An inode that the kernel knows.
#[derive(Debug)]
pub enum Node {
    /// Of a file system opened for writing.
    Writable(OpenInode),
    /// Of one opened for reading: nothing of it changes.
    ReadOnly(Box<Inode>),
}

impl Node {
    /// Its number.
    pub fn ino(&self) -> Ino {
        match self {
            Self::Writable(inode) => inode.ino(),
            Self::ReadOnly(inode) => inode.ino,
        }
    }

    /// Its fields as they are now.
    pub fn inode(&self) -> Inode {
        match self {
            Self::Writable(inode) => inode.inode(),
            Self::ReadOnly(inode) => (**inode).clone(),
        }
    }

    /// Whether any user has it open for writing: a program, or a command of another process.
    pub fn is_open_for_writing(&self) -> bool {
        match self {
            Self::Writable(inode) => inode.is_open_for_writing(),
            Self::ReadOnly(_) => false,
        }
    }

    /// Units of 512 bytes that are reserved for it and not allocated yet.
    pub fn delayed(&self) -> u64 {
        match self {
            Self::Writable(inode) => inode.delayed_blocks(),
            Self::ReadOnly(_) => 0,
        }
    }

    /// Whether it has lost its last name.
    pub fn is_deleted(&self) -> bool {
        match self {
            Self::Writable(inode) => inode.blocks_without_name().is_some(),
            Self::ReadOnly(inode) => inode.links == 0,
        }
    }

    /// As what the table keeps: those who write through it have opened the file themselves.
    fn for_others(self) -> Self {
        match self {
            Self::Writable(inode) => Self::Writable(inode.for_others()),
            node @ Self::ReadOnly(_) => node,
        }
    }

    /// As something that can be changed on behalf of the request's caller.
    ///
    /// # Errors
    /// `EROFS`.
    pub fn for_caller(&self, header: &InHeader) -> Result<OpenInode> {
        let InHeader { uid, gid, .. } = *header;
        Ok(self.writable()?.as_caller(Caller { uid, gid }))
    }

    /// As something that can be changed.
    ///
    /// # Errors
    /// `EROFS`.
    pub fn writable(&self) -> Result<&OpenInode> {
        match self {
            Self::Writable(inode) => Ok(inode),
            Self::ReadOnly(_) => Err(Errno::EROFS),
        }
    }

    /// The node of a name in this directory.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn lookup(&self, fs: &Served, name: &[u8]) -> Result<Self> {
        match self {
            Self::Writable(dir) => Ok(Self::Writable(dir.lookup(name)?)),
            Self::ReadOnly(dir) => Self::open(fs, fs.lookup(dir, name)?),
        }
    }

    /// The node of a number.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn open(fs: &Served, ino: Ino) -> Result<Self> {
        if let Some(volume) = fs.volume() {
            return Ok(Self::Writable(volume.open_inode(ino)?));
        }
        if fs.is_hidden(ino) {
            return Err(Errno::EUCLEAN);
        }
        Ok(Self::ReadOnly(Box::new(fs.inode(ino)?)))
    }

    /// Reads up to `len` bytes from `offset` on, of which the kernel keeps its own copy. Where
    /// `buf` has room for more, that may be used.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn read(&self, fs: &Served, offset: u64, len: usize, buf: &mut [u8]) -> Result<usize> {
        let len = len.min(buf.len());
        Ok(match self {
            Self::Writable(inode) => inode.read_uncached(offset, len, buf)?,
            Self::ReadOnly(inode) => fs.read_at(inode, offset, &mut buf[..len])?,
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn read_link(&self, fs: &Served) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Writable(inode) => inode.read_link()?,
            Self::ReadOnly(inode) => fs.read_link(inode)?,
        })
    }

    /// Reports the names of this directory after `cookie`.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn list(
        &self,
        fs: &Served,
        cookie: u64,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        let listed = match self {
            Self::Writable(dir) => dir.list(cookie, each),
            Self::ReadOnly(dir) => fs.list(dir, cookie, each),
        };
        Ok(listed?)
    }

    /// The extended attributes.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn xattrs(&self, fs: &Served) -> Result<Vec<Xattr>> {
        Ok(match self {
            Self::Writable(inode) => inode.xattrs()?,
            Self::ReadOnly(inode) => fs.xattrs(inode)?,
        })
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn xattr(&self, fs: &Served, name: &[u8]) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Writable(inode) => inode.xattr(name)?,
            Self::ReadOnly(inode) => fs.xattr(inode, name)?,
        })
    }
}

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    lookups: u64,
}

/// All nodes the kernel knows.
#[derive(Debug)]
pub struct Nodes {
    parts: [RwLock<FxHashMap<u64, Known>>; PARTS],
}

impl Nodes {
    /// The root alone.
    pub fn new(root: Node) -> Self {
        let nodes = Self {
            parts: std::array::from_fn(|_| RwLock::default()),
        };
        nodes.remember(root);
        nodes
    }

    fn part(&self, id: u64) -> &RwLock<FxHashMap<u64, Known>> {
        // OK to index: less than the number of parts.
        &self.parts[id as usize % PARTS]
    }

    /// A node.
    ///
    /// # Errors
    /// `ESTALE` for one that the kernel was never notified of.
    pub fn get(&self, id: u64) -> Result<Arc<Node>> {
        let part = self.part(id).read();
        let known = part.get(&id).ok_or(Errno::ESTALE)?;
        Ok(Arc::clone(&known.node))
    }

    /// The kernel is notified of a node once more.
    pub fn remember(&self, node: Node) -> Arc<Node> {
        let id = node_of(node.ino().0.into());
        let mut part = self.part(id).write();
        match part.get_mut(&id) {
            Some(known) => {
                known.lookups += 1;
                let known = Arc::clone(&known.node);
                drop(part);
                // One more user of the same inode, not needed.
                drop(node);
                known
            }
            None => {
                let node = Arc::new(node.for_others());
                let known = Known {
                    node: Arc::clone(&node),
                    lookups: 1,
                };
                part.insert(id, known);
                node
            }
        }
    }

    /// The kernel is notified once more of a node that it was notified of before.
    pub fn remember_known(&self, id: u64) -> Option<Arc<Node>> {
        let mut part = self.part(id).write();
        let known = part.get_mut(&id)?;
        known.lookups += 1;
        Some(Arc::clone(&known.node))
    }

    /// The kernel forgets so many lookups. Gives the node if it knows it no longer.
    pub fn forget(&self, id: u64, lookups: u64) -> Option<Arc<Node>> {
        if id == FUSE_ROOT_ID {
            return None;
        }
        let mut part = self.part(id).write();
        let known = part.get_mut(&id)?;
        known.lookups = known.lookups.saturating_sub(lookups);
        match known.lookups {
            0 => part.remove(&id).map(|known| known.node),
            _ => None,
        }
    }

    /// The ids of all nodes, those of the moment.
    pub fn ids(&self) -> Vec<u64> {
        let of_part = |part: &RwLock<FxHashMap<u64, Known>>| -> Vec<u64> {
            part.read().keys().copied().collect()
        };
        self.parts.iter().flat_map(of_part).collect()
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.read().len()).sum()
    }

    /// Whether there are none, which cannot be: the root stays.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all: the kernel is gone.
    pub fn clear(&self) {
        for part in &self.parts {
            let all = std::mem::take(&mut *part.write());
            drop(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use uext4::{Creation, NewInode};

    use super::*;
    use crate::testing::file_system;

    #[test]
    fn look_ups_are_counted_exactly() {
        let (fs, _) = file_system();
        let root = fs.root().unwrap();
        let nodes = Nodes::new(Node::Writable(root.clone()));
        let how = Creation::default();
        let file = root.create(b"file", NewInode::File, &how).unwrap();
        let id = u64::from(file.ino().0);
        drop(file);
        assert_eq!(nodes.get(id).unwrap_err(), Errno::ESTALE);
        for _ in 0..3 {
            let found = nodes
                .get(1)
                .unwrap()
                .lookup(&fs.clone().into(), b"file")
                .unwrap();
            nodes.remember(found);
        }
        assert_eq!(nodes.len(), 2);
        assert!(nodes.forget(id, 2).is_none());
        assert!(nodes.get(id).is_ok());
        assert!(nodes.forget(id, 1).is_some());
        assert!(nodes.get(id).is_err());
        assert!(nodes.forget(id, 1).is_none());
        // The root is never forgotten.
        assert!(nodes.forget(1, u64::MAX).is_none());
        assert_eq!(nodes.get(1).unwrap().ino(), Ino::ROOT);
    }

    #[test]
    fn an_unlinked_inode_lives_until_it_is_forgotten() {
        let (fs, _) = file_system();
        let root = fs.root().unwrap();
        let nodes = Nodes::new(Node::Writable(root.clone()));
        let file = root.create(b"file", NewInode::File, &Creation::default());
        let node = nodes.remember(Node::Writable(file.unwrap()));
        node.writable().unwrap().write_at(0, b"contents").unwrap();
        let id = u64::from(node.ino().0);
        root.unlink(b"file").unwrap();
        drop(node);
        let mut read = [0; 8];
        assert_eq!(
            nodes
                .get(id)
                .unwrap()
                .read(&fs.clone().into(), 0, 8, &mut read),
            Ok(8)
        );
        assert_eq!(&read, b"contents");
        let free = fs.statfs().free_inodes;
        nodes.forget(id, 1);
        assert_eq!(fs.statfs().free_inodes, free + 1);
        nodes.clear();
        assert!(nodes.is_empty());
    }
}
