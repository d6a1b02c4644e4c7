//! Path lookup in a file system that is written: each inode of the path is in use during the
//! walk, so that none of them is deleted meanwhile.

use std::sync::Arc;

use uext4_ondisk::Ino;
use uext4_ondisk::inode::FileType;

use crate::api::open_inode::OpenInode;
use crate::base::caller::Caller;
use crate::base::error::{Error, Result};
use crate::dir::namei::{FollowLast, Steps, walk};
use crate::file::inode_ref::InodeRef;
use crate::journal::error_record::met_by_caller;
use crate::journal::sbi::Sbi;

/// Inodes in use, opened for a caller.
pub(crate) struct InUse<'a> {
    pub(crate) sbi: &'a Arc<Sbi>,
    pub(crate) caller: Caller,
}

impl InUse<'_> {
    /// Opens the inode with this number. Damage is recorded, as by all operations on it.
    pub(crate) fn open(&self, ino: Ino) -> Result<OpenInode> {
        match met_by_caller(self.sbi, Some(ino), InodeRef::get(self.sbi, ino)) {
            Err(error) if error.is_no_inode(true) => Err(Error::NotFound),
            inode => Ok(inode?.with_caller(self.caller).into()),
        }
    }

    /// Opens the inode of a path.
    pub(crate) fn resolve(&self, path: &[u8], last: FollowLast) -> Result<OpenInode> {
        walk(self, path, last)
    }
}

impl Steps for InUse<'_> {
    type Node = OpenInode;

    fn root(&self) -> Result<OpenInode> {
        self.open(Ino::ROOT)
    }

    fn child(&self, dir: &OpenInode, name: &[u8]) -> Result<OpenInode> {
        dir.lookup(name)
    }

    fn file_type(&self, node: &OpenInode) -> FileType {
        node.0.inode.read().file_type
    }

    fn target(&self, link: &OpenInode) -> Result<Vec<u8>> {
        link.read_link()
    }
}
