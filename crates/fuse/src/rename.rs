//! Names that move.

use std::sync::Arc;

use uext4::RenameMode;

use crate::abi::InHeader;
use crate::answer::Answer;
use crate::errno::{Errno, Result};
use crate::names::creation;
use crate::nodes::Node;
use crate::pending_reply::{PendingReply, RequestContext};
use crate::reply::node_of;
use crate::request::RENAME_WHITEOUT;
use crate::server::Server;

/// `renameat2`: the new name must not be there.
const RENAME_NOREPLACE: u32 = 1;
/// `renameat2`: the names change places.
const RENAME_EXCHANGE: u32 = 2;

/// A name in a directory.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    /// Node of the directory.
    pub dir: u64,
    /// The name there.
    pub name: &'a [u8],
}

/// RENAME and RENAME2. Where data of the file must be written before it replaces another one, a
/// thread of the pool does that and answers.
pub fn rename(
    server: &Arc<Server>,
    header: &InHeader,
    old: Name<'_>,
    new: Name<'_>,
    flags: u32,
    caller: &RequestContext<'_>,
) -> Answer {
    let moved = prepared(server, header, flags, old, new);
    let (from, to, mode) = match moved {
        Ok(moved) => moved,
        Err(error) => return Answer::Now(Err(error)),
    };
    let moved = Moved { from, to, mode };
    let names = || Names {
        old: old.name.to_vec(),
        new: new.name.to_vec(),
    };
    let (all, header) = (Arc::clone(server), *header);
    if let Some(id) = server.held_by_kernel(&moved, old.name, new.name) {
        let (names, pending_reply) = (names(), caller.pending_reply());
        server.after_kernel_wrote(id, caller.channel(), move || {
            // The old contents are not to go where the new ones were just lost.
            match all.handles.lost_of(id) {
                Some(error) => pending_reply.answer(Err(error)),
                None => moved.rename(&all, &header, &names, pending_reply),
            }
        });
        return Answer::Later;
    }
    match moved.try_rename(&header, old.name, new.name) {
        Ok(true) => {
            server.deletions.name_taken();
            return Answer::Now(Ok(()));
        }
        Ok(false) => {}
        Err(error) => return Answer::Now(Err(error)),
    }
    let (names, pending_reply) = (names(), caller.pending_reply());
    server
        .executor
        .run(move || moved.rename(&all, &header, &names, pending_reply));
    Answer::Later
}

/// Both names, for another thread.
struct Names {
    old: Vec<u8>,
    new: Vec<u8>,
}

/// What a rename moves, and how.
struct Moved {
    from: Arc<Node>,
    to: Arc<Node>,
    mode: RenameMode,
}

impl Moved {
    /// Renames if no data must be written before; returns whether it did.
    fn try_rename(&self, header: &InHeader, old: &[u8], new: &[u8]) -> Result<bool> {
        // A whiteout is an inode that the caller makes.
        let (from, to) = (self.from.for_caller(header)?, self.to.writable()?);
        Ok(from.try_rename(old, to, new, self.mode)?)
    }

    /// Writes data first where it must, renames, and answers. By a thread of the pool.
    fn rename(
        &self,
        server: &Server,
        header: &InHeader,
        names: &Names,
        pending_reply: PendingReply,
    ) {
        let rename = || -> Result<()> {
            let (from, to) = (self.from.for_caller(header)?, self.to.writable()?);
            Ok(from.rename(&names.old, to, &names.new, self.mode)?)
        };
        let deletions = &server.deletions;
        let renamed = deletions.retried(&server.fs, rename, |renamed| renamed.err());
        if renamed.is_ok() {
            deletions.name_taken();
        }
        pending_reply.answer(renamed.map(|()| &[][..]));
    }
}

impl Server {
    /// The node of what a rename puts in place of another file, if the kernel may hold data of it:
    /// as of what the engine holds, they are written first.
    fn held_by_kernel(&self, moved: &Moved, old: &[u8], new: &[u8]) -> Option<u64> {
        if !self.gathers() || moved.mode != RenameMode::Replace {
            return None;
        }
        moved.to.lookup(&self.fs, new).ok()?;
        let file = moved.from.lookup(&self.fs, old).ok()?;
        let id = node_of(file.inode().ino.0.into());
        file.is_open_for_writing().then_some(id)
    }
}

fn prepared(
    server: &Server,
    header: &InHeader,
    flags: u32,
    old: Name<'_>,
    new: Name<'_>,
) -> Result<(Arc<Node>, Arc<Node>, RenameMode)> {
    const BOTH: u32 = RENAME_NOREPLACE | RENAME_WHITEOUT;
    let from = server.nodes.get(old.dir)?;
    let to = server.nodes.get(new.dir)?;
    let mode = match flags {
        // The kernel holds both directories: no thread makes the name meanwhile.
        BOTH if !matches!(to.lookup(&server.fs, new.name), Err(Errno::ENOENT)) => {
            return Err(Errno::EEXIST);
        }
        0 => RenameMode::Replace,
        RENAME_NOREPLACE => RenameMode::NoReplace,
        RENAME_EXCHANGE => RenameMode::Exchange,
        RENAME_WHITEOUT | BOTH => RenameMode::Whiteout(creation(header, 0, 0)),
        _ => return Err(Errno::EINVAL),
    };
    Ok((from, to, mode))
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::{EntryOut, LinkIn, Rename2In, opcode};
    use crate::testing::{Client, e2fsck};

    fn renamed(client: &Client, old: &[u8], dir: u64, new: &[u8], flags: u32) -> Result<()> {
        let it = Rename2In {
            newdir: dir,
            flags,
            padding: 0,
        };
        let body = [it.as_bytes(), old, b"\0", new, b"\0"].concat();
        client.ask(opcode::RENAME2, 1, &body).map(|_| ())
    }

    #[test]
    fn links_and_moves() {
        let client = Client::new();
        let file = client.create(1, b"file");
        let it = LinkIn { oldnodeid: file };
        let body = [it.as_bytes(), b"second\0"].concat();
        let linked: EntryOut = client.get(opcode::LINK, 1, &body).unwrap();
        assert_eq!((linked.nodeid, linked.attr.nlink), (file, 2));
        let dir = client.mkdir(1, b"dir");
        renamed(&client, b"second", dir, b"third", 0).unwrap();
        assert_eq!(client.lookup(dir, b"third").unwrap().nodeid, file);
        client.create(1, b"other");
        assert_eq!(
            renamed(&client, b"other", 1, b"file", 1),
            Err(Errno::EEXIST)
        );
        renamed(&client, b"other", 1, b"file", 2).unwrap();
        assert_eq!(client.lookup(1, b"other").unwrap().nodeid, file);
        renamed(&client, b"other", dir, b"fourth", 4).unwrap();
        let whiteout = client.lookup(1, b"other").unwrap();
        assert_eq!(
            (whiteout.attr.mode, whiteout.attr.rdev, whiteout.attr.uid),
            (0o020_000, 0, 1000)
        );
        assert_eq!(renamed(&client, b"other", 1, b"x", 8), Err(Errno::EINVAL));
        assert_eq!(
            client.ask(opcode::RMDIR, 1, b"dir\0"),
            Err(Errno::ENOTEMPTY)
        );
        assert_eq!(client.ask(opcode::UNLINK, 1, b"dir\0"), Err(Errno::EISDIR));
        client.server.finish().unwrap();
        e2fsck(&client.device);
    }
}
