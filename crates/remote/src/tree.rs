//! A file system that is changed: one that this process has open, or one that another process
//! serves. The same operations on both.

use std::sync::Arc;

use serde_bytes::Bytes;
use uext4::quota::{QuotaKind, QuotaLimits};
use uext4::{
    Creation, Error, FollowLast, Ino, Invalid, NewInode, RenameMode, Result, Volume, path_below,
};

use crate::client::Client;
use crate::entry;
use crate::node::{Node, done, open_with, unexpected};
use crate::refusal::Refusal;
use crate::wire::{Answer, Grown, Growth, Rename, Request, Slot};

/// A file system that is changed.
#[derive(Clone, Debug)]
pub enum Tree {
    /// Opened here.
    Local(Volume),
    /// Served by another process.
    Remote(RemoteTree),
}

/// A directory of a file system that another process serves, which stands for the root.
#[derive(Clone, Debug)]
pub struct RemoteTree {
    client: Client,
    /// The directory's path; empty for the root.
    prefix: Arc<[u8]>,
}

impl From<Volume> for Tree {
    fn from(fs: Volume) -> Self {
        Self::Local(fs)
    }
}

impl RemoteTree {
    /// What the other end of `client` serves, from the directory `prefix` on.
    pub fn new(client: Client, prefix: &[u8]) -> Self {
        Self {
            client,
            prefix: prefix.into(),
        }
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The path of the directory that stands for the root; empty for the root.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Makes the file system larger, and its device if that can be. A refusal is returned as it
    /// is: it may say more than an error of the engine.
    ///
    /// # Errors
    /// [`Error::Remote`] where the connection is lost.
    pub fn grow(&self, growth: Growth) -> Result<std::result::Result<Grown, Refusal>> {
        match self.client.ask(&Request::Grow(growth))? {
            Answer::Grown(grown) => Ok(Ok(grown)),
            Answer::Refused(refusal) => Ok(Err(refusal)),
            _ => Err(unexpected()),
        }
    }

    fn path(&self, path: &[u8]) -> Vec<u8> {
        match self.prefix.is_empty() {
            true => path.to_vec(),
            false => path_below(&self.prefix, path),
        }
    }

    /// Opens what `ask` opens under the number it is given.
    fn open_with(&self, ask: impl FnOnce(Slot) -> Result<Answer>) -> Result<Node> {
        open_with(&self.client, ask)
    }
}

impl Tree {
    /// As [`Volume::open_path`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn open_path(&self, path: &[u8], last: FollowLast) -> Result<Node> {
        match self {
            Self::Local(fs) => fs.open_path(path, last).map(Node::Local),
            Self::Remote(remote) => {
                let path = remote.path(path);
                let follow = last == FollowLast::Yes;
                let open = |to| Request::Open(Bytes::new(&path), follow, to);
                remote.open_with(|to| remote.client.call(&open(to)))
            }
        }
    }

    /// As [`Volume::open_inode`], but for inodes that are the file system's own.
    ///
    /// # Errors
    /// As there; [`Error::NotPermitted`]; [`Error::Remote`].
    pub fn open_inode(&self, ino: Ino) -> Result<Node> {
        match self {
            Self::Local(fs) => entry::open_number(fs, ino).map(Node::Local),
            Self::Remote(remote) => {
                let open = |to| Request::OpenNumber(ino.0, to);
                remote.open_with(|to| remote.client.call(&open(to)))
            }
        }
    }

    /// As [`Volume::open_parent`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn open_parent<'a>(&self, path: &'a [u8]) -> Result<(Node, &'a [u8])> {
        let remote = match self {
            Self::Local(fs) => {
                let (dir, name) = fs.open_parent(path)?;
                return Ok((Node::Local(dir), name));
            }
            Self::Remote(remote) => remote,
        };
        // The prefix is no name to be changed.
        if path.iter().all(|&byte| byte == b'/') {
            return Err(Error::Invalid(Invalid::Root));
        }
        let whole = remote.path(path);
        let parent = |to| Request::OpenParent(Bytes::new(&whole), to);
        let dir = remote.open_with(|to| remote.client.call(&parent(to)))?;
        let end = path
            .iter()
            .rposition(|&byte| byte != b'/')
            .map_or(0, |at| at + 1);
        let start = path[..end].iter().rposition(|&byte| byte == b'/');
        Ok((dir, &path[start.map_or(0, |at| at + 1)..end]))
    }

    /// As [`Volume::create`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn create(&self, path: &[u8], kind: NewInode<'_>, how: &Creation) -> Result<Node> {
        match self {
            Self::Local(fs) => fs.create(path, kind, how).map(Node::Local),
            Self::Remote(remote) => remote.open_with(|to| {
                let path = remote.path(path);
                let path = Bytes::new(&path);
                remote
                    .client
                    .call(&Request::Create(path, kind.into(), how.into(), to))
            }),
        }
    }

    /// As [`Volume::create_dir_all`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn create_dir_all(&self, path: &[u8], how: &Creation) -> Result<Node> {
        match self {
            Self::Local(fs) => fs.create_dir_all(path, how).map(Node::Local),
            Self::Remote(remote) => remote.open_with(|to| {
                let path = remote.path(path);
                let request = Request::CreateAll(Bytes::new(&path), how.into(), to);
                remote.client.call(&request)
            }),
        }
    }

    /// As [`Volume::link`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn link(&self, old: &[u8], new: &[u8]) -> Result<()> {
        match self {
            Self::Local(fs) => fs.link(old, new),
            Self::Remote(remote) => {
                let (old, new) = (remote.path(old), remote.path(new));
                let request = Request::Link(Bytes::new(&old), Bytes::new(&new));
                done(remote.client.call(&request)?)
            }
        }
    }

    /// As [`Volume::remove`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn remove(&self, path: &[u8]) -> Result<()> {
        match self {
            Self::Local(fs) => fs.remove(path),
            Self::Remote(remote) => remote.remove(path, false),
        }
    }

    /// As [`Volume::remove_all`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn remove_all(&self, path: &[u8]) -> Result<()> {
        match self {
            Self::Local(fs) => fs.remove_all(path),
            Self::Remote(remote) => remote.remove(path, true),
        }
    }

    /// As [`Volume::rename`], without whiteouts.
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn rename(&self, old: &[u8], new: &[u8], mode: Rename) -> Result<()> {
        match self {
            Self::Local(fs) => fs.rename(old, new, RenameMode::from(mode)),
            Self::Remote(remote) => {
                let (old, new) = (remote.path(old), remote.path(new));
                let request = Request::Rename(Bytes::new(&old), Bytes::new(&new), mode);
                done(remote.client.call(&request)?)
            }
        }
    }

    /// As [`Volume::set_quota`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn set_quota(&self, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
        match self {
            Self::Local(fs) => fs.set_quota(kind, id, limits),
            Self::Remote(remote) => {
                let request = Request::SetQuota(kind.into(), id, limits.into());
                done(remote.client.call(&request)?)
            }
        }
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`Volume::sync`]; [`Error::Remote`].
    pub fn sync(&self) -> Result<()> {
        match self {
            Self::Local(fs) => fs.sync(),
            Self::Remote(remote) => done(remote.client.call(&Request::Sync)?),
        }
    }

    /// Makes everything durable, and closes what was opened here.
    ///
    /// # Errors
    /// As [`Volume::close`]; [`Error::Remote`].
    pub fn close(&self) -> Result<()> {
        match self {
            Self::Local(fs) => fs.close(),
            Self::Remote(_) => self.sync(),
        }
    }
}

impl RemoteTree {
    fn remove(&self, path: &[u8], all: bool) -> Result<()> {
        // The prefix is no name to be removed.
        if path.iter().all(|&byte| byte == b'/') {
            return Err(Error::Invalid(Invalid::Root));
        }
        let path = self.path(path);
        done(self.client.call(&Request::Remove(Bytes::new(&path), all))?)
    }
}
