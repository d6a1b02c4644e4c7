//! An open file of a file system: opened by this process, or by one that serves it. The same
//! operations on both.

use std::sync::Arc;

use serde_bytes::Bytes;
use uext4::data::Fallocate;
use uext4::xattr::{SetMode, Xattr};
use uext4::{
    Creation, Error, Ino, Listed, NewInode, OpenInode, RemoteError, Result, SetAttributes,
};

use crate::client::Client;
use crate::entry;
use crate::wire::{Answer, READ_MAX, Request, Slot, View};

/// An open file of a [`Tree`](crate::Tree).
#[derive(Clone, Debug)]
pub enum Node {
    /// Opened here.
    Local(OpenInode),
    /// Opened by another process.
    Remote(RemoteNode),
}

/// A file that another process has opened for us.
#[derive(Clone, Debug)]
pub struct RemoteNode(Arc<OpenSlot>);

#[derive(Debug)]
struct OpenSlot {
    client: Client,
    slot: Slot,
    ino: Ino,
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.client.close(self.slot);
    }
}

/// Opens what `ask` opens under the number it is given.
pub(crate) fn open_with(client: &Client, ask: impl FnOnce(Slot) -> Result<Answer>) -> Result<Node> {
    let slot = client.new_slot();
    match ask(slot) {
        Ok(Answer::View(view)) => Ok(Node::Remote(RemoteNode(Arc::new(OpenSlot {
            client: client.clone(),
            slot,
            ino: Ino(view.ino),
        })))),
        Ok(_) => Err(unexpected()),
        Err(error) => {
            client.free_slot(slot);
            Err(error)
        }
    }
}

pub(crate) fn unexpected() -> Error {
    Error::Remote {
        kind: RemoteError::FileSystem,
        message: "the daemon of the mount gave an answer to another request".to_owned(),
    }
}

pub(crate) fn done(answer: Answer) -> Result<()> {
    match answer {
        Answer::Done => Ok(()),
        _ => Err(unexpected()),
    }
}

impl RemoteNode {
    /// The number it was opened under.
    pub fn slot(&self) -> Slot {
        self.0.slot
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer> {
        self.0.client.call(request)
    }

    fn bytes(&self, request: &Request<'_>) -> Result<Vec<u8>> {
        match self.call(request)? {
            Answer::Bytes(bytes) => Ok(bytes.into_vec()),
            _ => Err(unexpected()),
        }
    }
}

impl Node {
    /// The inode's number.
    pub fn ino(&self) -> Ino {
        match self {
            Self::Local(inode) => inode.ino(),
            Self::Remote(node) => node.0.ino,
        }
    }

    /// The fields of the inode as they are now.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub fn view(&self) -> Result<View> {
        match self {
            Self::Local(inode) => Ok((&inode.inode()).into()),
            Self::Remote(node) => match node.call(&Request::View(node.slot()))? {
                Answer::View(view) => Ok(view),
                _ => Err(unexpected()),
            },
        }
    }

    /// As [`OpenInode::lookup`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn lookup(&self, name: &[u8]) -> Result<Self> {
        match self {
            Self::Local(dir) => dir.lookup(name).map(Self::Local),
            Self::Remote(dir) => open_with(&dir.0.client, |to| {
                dir.call(&Request::Lookup(dir.slot(), Bytes::new(name), to))
            }),
        }
    }

    /// As [`OpenInode::list`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn list(&self, cookie: u64, each: &mut dyn FnMut(&Listed<'_>) -> bool) -> Result<()> {
        let dir = match self {
            Self::Local(dir) => return dir.list(cookie, each),
            Self::Remote(dir) => dir,
        };
        let mut cookie = cookie;
        loop {
            let Answer::Names(names) = dir.call(&Request::List(dir.slot(), cookie))? else {
                return Err(unexpected());
            };
            let Some(last) = names.last() else {
                return Ok(());
            };
            cookie = last.next;
            for listed in &names {
                let listed = Listed {
                    name: &listed.name,
                    ino: Ino(listed.ino),
                    file_type: None,
                    next: listed.next,
                };
                if !each(&listed) {
                    return Ok(());
                }
            }
        }
    }

    /// As [`OpenInode::create_unnamed`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn create_unnamed(&self, kind: NewInode<'_>, how: &Creation) -> Result<Self> {
        match self {
            Self::Local(dir) => dir.create_unnamed(kind, how).map(Self::Local),
            Self::Remote(dir) => open_with(&dir.0.client, |to| {
                dir.call(&Request::CreateUnnamed(
                    dir.slot(),
                    kind.into(),
                    how.into(),
                    to,
                ))
            }),
        }
    }

    /// As [`OpenInode::create_unnamed_like`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn create_unnamed_like(&self, old: &Self) -> Result<Self> {
        match (self, old) {
            (Self::Local(dir), Self::Local(old)) => dir.create_unnamed_like(old).map(Self::Local),
            (Self::Remote(dir), Self::Remote(old)) => open_with(&dir.0.client, |to| {
                dir.call(&Request::CreateUnnamedLike(dir.slot(), old.slot(), to))
            }),
            _ => Err(unexpected()),
        }
    }

    /// As [`OpenInode::link_over`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn link_over(&self, dir: &Self, name: &[u8]) -> Result<()> {
        match (self, dir) {
            (Self::Local(inode), Self::Local(dir)) => inode.link_over(dir, name),
            (Self::Remote(file), Self::Remote(dir)) => {
                let name = Bytes::new(name);
                done(file.call(&Request::LinkOpen(file.slot(), dir.slot(), name))?)
            }
            _ => Err(unexpected()),
        }
    }

    /// As [`entry::give_name`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn give_name(&self, dir: &Self, name: &[u8], like: bool) -> Result<()> {
        match (self, dir) {
            (Self::Local(inode), Self::Local(dir)) => entry::give_name(inode, dir, name, like),
            (Self::Remote(file), Self::Remote(dir)) => {
                let name = Bytes::new(name);
                let request = Request::GiveName(file.slot(), dir.slot(), name, like);
                done(file.call(&request)?)
            }
            _ => Err(unexpected()),
        }
    }

    /// As [`OpenInode::read_at`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self {
            Self::Local(inode) => inode.read_at(offset, buf),
            Self::Remote(node) => {
                let len = u32::try_from(buf.len()).unwrap_or(READ_MAX);
                let read = node.bytes(&Request::Read(node.slot(), offset, len))?;
                let into = buf.get_mut(..read.len()).ok_or_else(unexpected)?;
                into.copy_from_slice(&read);
                Ok(read.len())
            }
        }
    }

    /// As [`OpenInode::write_at`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        match self {
            Self::Local(inode) => inode.write_at(offset, data),
            Self::Remote(node) => {
                let data = &data[..data.len().min(READ_MAX as usize)];
                match node.call(&Request::Write(node.slot(), offset, Bytes::new(data)))? {
                    Answer::Written(len) if len <= data.len() as u64 => Ok(len as usize),
                    _ => Err(unexpected()),
                }
            }
        }
    }

    /// As [`OpenInode::read_link`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn read_link(&self) -> Result<Vec<u8>> {
        match self {
            Self::Local(inode) => inode.read_link(),
            Self::Remote(node) => node.bytes(&Request::ReadLink(node.slot())),
        }
    }

    /// As [`OpenInode::set_attributes`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn set_attributes(&self, attributes: &SetAttributes) -> Result<()> {
        match self {
            Self::Local(inode) => inode.set_attributes(attributes),
            Self::Remote(node) => done(node.call(&Request::Set(node.slot(), attributes.into()))?),
        }
    }

    /// As [`OpenInode::xattrs`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn xattrs(&self) -> Result<Vec<Xattr>> {
        match self {
            Self::Local(inode) => inode.xattrs(),
            Self::Remote(node) => match node.call(&Request::Xattrs(node.slot()))? {
                Answer::Xattrs(all) => {
                    let one = |(name, value): (serde_bytes::ByteBuf, serde_bytes::ByteBuf)| Xattr {
                        name: name.into_vec(),
                        value: value.into_vec(),
                    };
                    Ok(all.into_iter().map(one).collect())
                }
                _ => Err(unexpected()),
            },
        }
    }

    /// As [`OpenInode::xattr`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::Local(inode) => inode.xattr(name),
            Self::Remote(node) => node.bytes(&Request::Xattr(node.slot(), Bytes::new(name))),
        }
    }

    /// As [`OpenInode::set_xattr`]; that it must be new cannot be asked of another process.
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn set_xattr(&self, name: &[u8], value: Option<&[u8]>, mode: SetMode) -> Result<()> {
        match self {
            Self::Local(inode) => inode.set_xattr(name, value, mode),
            Self::Remote(node) => {
                let must_exist = mode == SetMode::Replace;
                let (name, value) = (Bytes::new(name), value.map(Bytes::new));
                let request = Request::SetXattr(node.slot(), name, value, must_exist);
                done(node.call(&request)?)
            }
        }
    }

    /// As [`OpenInode::fallocate`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn fallocate(&self, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        match self {
            Self::Local(inode) => inode.fallocate(how, offset, len),
            Self::Remote(node) => {
                done(node.call(&Request::Fallocate(node.slot(), how.into(), offset, len))?)
            }
        }
    }

    /// As [`OpenInode::fdatasync`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn fdatasync(&self) -> Result<()> {
        match self {
            Self::Local(inode) => inode.fdatasync(),
            Self::Remote(node) => done(node.call(&Request::Fsync(node.slot()))?),
        }
    }

    /// As [`OpenInode::share_xattrs`].
    ///
    /// # Errors
    /// As there; [`Error::Remote`].
    pub fn share_xattrs(&self) -> Result<bool> {
        match self {
            Self::Local(inode) => inode.share_xattrs(),
            Self::Remote(node) => match node.call(&Request::ShareXattrs(node.slot()))? {
                Answer::Shared(has_moved) => Ok(has_moved),
                _ => Err(unexpected()),
            },
        }
    }
}
