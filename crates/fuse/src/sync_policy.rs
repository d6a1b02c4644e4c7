//! What the mount options `sync` and `dirsync` ask for.

use crate::abi::flags::{WRITE_CACHE, open};
use crate::request::{Operation, Request};

/// The direction, in an ioctl's number, of those that only carry something to us: what they
/// change is theirs.
const IOW: u32 = 1;

/// What is durable before it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncPolicy {
    /// Nothing: fsync makes things durable, and time.
    #[default]
    OnDemand,
    /// Names made, taken and moved (`dirsync`).
    Names,
    /// Those, what is written, and attributes (`sync`). Pages changed through mappings are not:
    /// msync waits for them.
    All,
}

impl SyncPolicy {
    /// The node to be made durable before a request is answered, if one is. Where a name moves
    /// that is the directory it leaves: both change in one transaction.
    pub fn of(self, request: &Request<'_>) -> Option<u64> {
        let id = request.header.nodeid;
        let (node, from) = match request.operation {
            Operation::Symlink { .. }
            | Operation::Mknod(..)
            | Operation::Mkdir(..)
            | Operation::Create(..)
            | Operation::Link(..)
            | Operation::Unlink(_)
            | Operation::Rmdir(_)
            | Operation::Rename { .. } => (id, Self::Names),
            Operation::Write(it, _) if it.write_flags & WRITE_CACHE != 0 => return None,
            Operation::Open(it) if it.flags & open::TRUNC == 0 => return None,
            Operation::Ioctl(it, _) if it.cmd >> 30 != IOW => return None,
            Operation::CopyFileRange(it, _) => (it.nodeid_out, Self::All),
            Operation::Write(..)
            | Operation::Open(_)
            | Operation::Setattr(_)
            | Operation::Fallocate(_)
            | Operation::Setxattr(..)
            | Operation::Removexattr(_)
            | Operation::Ioctl(..) => (id, Self::All),
            _ => return None,
        };
        (self >= from).then_some(node)
    }
}
