//! What stat shows, and changing it.

use std::sync::Arc;

use uext4::data::SetId;
use uext4::{FileType, Inode, InodeFlags, SetAttributes, SetTime, Timestamp};
use zerocopy::IntoBytes;

use crate::abi::flags::fattr;
use crate::abi::{AttrOut, InHeader, SetattrIn};
use crate::answer::Answer;
use crate::errno::{Errno, Result};
use crate::nodes::Node;
use crate::owners::Owners;
use crate::pending_reply::RequestContext;
use crate::privileges::{fate, is_in_group, is_root};
use crate::reply::{Out, attr_of};
use crate::server::Server;

/// Cutting more bytes off than this is done by other threads than those that read requests.
const CUT_MAX: u64 = 4 << 20;

/// GETATTR; with a handle, if not 0, the kernel is about to write or read through it.
pub fn getattr(server: &Server, id: u64, handle: u64, out: &mut Out<'_>) -> Result<()> {
    server.handles.take_lost(handle).map_or(Ok(()), Err)?;
    let node = server.nodes.get(id)?;
    out.put(&attr_out(server, &node))
}

fn attr_out(server: &Server, node: &Node) -> AttrOut {
    let inode = server.owners.shown(node.inode());
    let attr = attr_of(&inode, node.delayed(), server.block_size);
    server.validity.attr(attr)
}

/// STATX, which the kernel asks for where the time of creation is wanted.
pub fn statx(server: &Server, id: u64, out: &mut Out<'_>) -> Result<()> {
    let node = server.nodes.get(id)?;
    let (inode, delayed) = (server.owners.shown(node.inode()), node.delayed());
    out.put(&server.validity.statx(&inode, delayed, server.block_size))
}

/// SETATTR.
pub fn setattr(
    server: &Arc<Server>,
    header: &InHeader,
    it: SetattrIn,
    out: &mut Out<'_>,
    caller: &RequestContext<'_>,
) -> Answer {
    let node = match server.nodes.get(header.nodeid) {
        Ok(node) => node,
        Err(error) => return Answer::Now(Err(error)),
    };
    let it = match stored(server, it) {
        Ok(it) => it,
        Err(error) => return Answer::Now(Err(error)),
    };
    let header = *header;
    if it.valid & fattr::SIZE != 0 && node.inode().size.saturating_sub(it.size) > CUT_MAX {
        let (server, pending_reply) = (Arc::clone(server), caller.pending_reply());
        let executor = Arc::clone(&server);
        server.executor.run(move || {
            let set = set(&executor.owners, &node, &header, &it, false);
            let set = set.map(|()| attr_out(&executor, &node));
            pending_reply.answer(
                set.as_ref()
                    .map(|attr| attr.as_bytes())
                    .map_err(|error| *error),
            );
        });
        return Answer::Later;
    }
    let notes_writes = server.notes_writes(&header, &it);
    let set = set(&server.owners, &node, &header, &it, notes_writes);
    let set = set.map(|()| attr_out(server, &node));
    set.and_then(|attr| out.put(&attr)).into()
}

/// The same with the ids that are stored.
fn stored(server: &Server, it: SetattrIn) -> Result<SetattrIn> {
    let asks = |flag| it.valid & flag != 0;
    let user = asks(fattr::UID).then(|| server.owners.stored_user(it.uid));
    let group = asks(fattr::GID).then(|| server.owners.stored_group(it.gid));
    Ok(SetattrIn {
        uid: user.transpose()?.unwrap_or(it.uid),
        gid: group.transpose()?.unwrap_or(it.gid),
        ..it
    })
}

/// `notes_writes`: the kernel notes the times of writes that it has taken in.
fn set(
    owners: &Owners,
    node: &Node,
    header: &InHeader,
    it: &SetattrIn,
    notes_writes: bool,
) -> Result<()> {
    let inode = node.for_caller(header)?;
    // What sets nothing the engine does not look at.
    if it.valid & !fattr::CTIME == 0 && inode.inode().has(InodeFlags::IMMUTABLE) {
        return Err(Errno::EPERM);
    }
    let wanted = SetAttributes {
        notes_writes,
        ..wanted(owners, header, it, || inode.inode())
    };
    // Of others it comes before a write, which says itself what is to be dropped; and there is
    // `chown(-1, -1)`, which is not theirs to do.
    let is_owner = || is_root(header) || owners.is_owner(header, &inode.inode());
    if drops_only(it) && !is_owner() {
        return Ok(());
    }
    Ok(inode.set_attributes(&wanted)?)
}

/// Nothing is left of a request that was to drop set-id bits and no more, `chown(-1, -1)` above
/// all, but the time of it, where the kernel keeps that. When it notes times of writes, the time of
/// the last one is among them.
fn drops_only(it: &SetattrIn) -> bool {
    it.valid & !(fattr::FH | fattr::LOCKOWNER | fattr::CTIME) == 0
}

/// What is to be set. `inode`: as it is, where that matters.
fn wanted(
    owners: &Owners,
    header: &InHeader,
    it: &SetattrIn,
    inode: impl Fn() -> Inode,
) -> SetAttributes {
    let asks = |flag| it.valid & flag != 0;
    // OK to truncate: twelve bits.
    let mut mode = asks(fattr::MODE).then_some((it.mode & 0o7777) as u16);
    if (asks(fattr::KILL_SUIDGID) || drops_only(it)) && mode.is_none() {
        let inode = inode();
        let drops = asks(fattr::KILL_SUIDGID) || inode.file_type != FileType::Directory;
        mode = drops
            .then(|| without_set_id(owners, header, &inode))
            .flatten();
    }
    if asks(fattr::UID) || asks(fattr::GID) {
        mode = mode.or_else(|| without_foreign_group(owners, header, &inode()));
    }
    let time = |given, now, sec: u64, nsec: u32| match (asks(given), asks(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::To(Timestamp {
            sec: sec.cast_signed(),
            nsec: nsec.min(999_999_999),
        })),
        (false, false) => None,
    };
    SetAttributes {
        mode,
        uid: asks(fattr::UID).then_some(it.uid),
        gid: asks(fattr::GID).then_some(it.gid),
        size: asks(fattr::SIZE).then_some(it.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, it.atime, it.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, it.mtime, it.mtimensec),
        ctime: time(fattr::CTIME, 0, it.ctime, it.ctimensec),
        ..SetAttributes::default()
    }
}

/// The mode without set-group-id, if the owner of a file is changed by a caller that is not in
/// its group; `None` if that changes nothing. What the group may execute loses it in any case.
fn without_foreign_group(owners: &Owners, header: &InHeader, inode: &Inode) -> Option<u16> {
    let old = inode.mode & 0o7777;
    let may_lose = old & 0o2000 != 0 && inode.file_type != FileType::Directory;
    let loses = may_lose && !is_root(header) && !is_in_group(owners, header, inode.gid);
    // The engine drops set-user-id itself, with the owner.
    loses.then_some(old & !0o6000)
}

/// The mode without set-user-id, and without set-group-id where the group may execute or the
/// caller is not in it; `None` if that changes nothing.
pub fn without_set_id(owners: &Owners, header: &InHeader, inode: &Inode) -> Option<u16> {
    let old = inode.mode & 0o7777;
    let dropped = match is_root(header) {
        true => SetId::Drop,
        false => fate(owners, header, old, || inode.gid),
    };
    let dropped = match dropped {
        SetId::Drop if old & 0o2010 == 0o2000 => 0o4000,
        _ => 0o6000,
    };
    (old & dropped != 0).then_some(old & !dropped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{StatxOut, opcode};
    use crate::testing::Client;

    fn set(client: &Client, id: u64, it: SetattrIn) -> Result<AttrOut> {
        client.get(opcode::SETATTR, id, it.as_bytes())
    }

    #[test]
    fn times_in_every_form() {
        let client = Client::new();
        let file = client.create(1, b"file");
        let it = SetattrIn {
            valid: fattr::ATIME | fattr::MTIME,
            atime: (-5i64).cast_unsigned(),
            atimensec: 7,
            mtime: 5_000_000_000,
            mtimensec: 999_999_999,
            ..SetattrIn::default()
        };
        let reported = set(&client, file, it).unwrap();
        assert_eq!(
            (reported.attr.atime.cast_signed(), reported.attr.atimensec),
            (-5, 7)
        );
        assert_eq!(
            (reported.attr.mtime, reported.attr.mtimensec),
            (5_000_000_000, 999_999_999)
        );
        let now = reported.attr.ctime;
        let it = SetattrIn {
            valid: fattr::ATIME | fattr::ATIME_NOW | fattr::CTIME,
            ctime: 17,
            ..SetattrIn::default()
        };
        let reported = set(&client, file, it).unwrap();
        assert_eq!(
            (
                reported.attr.atime,
                reported.attr.mtime,
                reported.attr.ctime
            ),
            (now, 5_000_000_000, 17)
        );
        assert_eq!(reported.attr_valid, 1 << 30);
    }

    #[test]
    fn statx_returns_the_time_of_creation() {
        let client = Client::new();
        let file = client.create(1, b"file");
        let reported: StatxOut = client.get(opcode::STATX, file, &[0; 24]).unwrap();
        assert_eq!(reported.stat.mask, 0xFFF);
        assert_eq!(reported.stat.btime.tv_sec, client.clock_start());
        assert_eq!((reported.stat.ino, reported.stat.mode), (file, 0o100_644));
    }

    #[test]
    fn set_id_bits_go_where_the_kernel_says() {
        let client = Client::new();
        let file = client.create(1, b"file");
        let mode = |mode| SetattrIn {
            valid: fattr::MODE,
            mode,
            ..SetattrIn::default()
        };
        let cut = |valid| SetattrIn {
            valid: fattr::SIZE | valid,
            size: 3,
            ..SetattrIn::default()
        };
        set(&client, file, mode(0o106_755)).unwrap();
        assert_eq!(set(&client, file, cut(0)).unwrap().attr.mode, 0o106_755);
        let reported = set(&client, file, cut(fattr::KILL_SUIDGID)).unwrap();
        assert_eq!((reported.attr.mode, reported.attr.size), (0o100_755, 3));
        // Without execution by the group it is mandatory locking's, and stays.
        set(&client, file, mode(0o102_644)).unwrap();
        let reported = set(&client, file, cut(fattr::KILL_SUIDGID)).unwrap();
        assert_eq!(reported.attr.mode, 0o102_644);
        set(&client, file, mode(0o104_644)).unwrap();
        let reported = set(&client, file, SetattrIn::default()).unwrap();
        assert_eq!(reported.attr.mode, 0o100_644);
        let foreign = SetattrIn {
            valid: fattr::UID | fattr::MODE,
            uid: 5,
            mode: 0o104_644,
            ..SetattrIn::default()
        };
        set(&client, file, foreign).unwrap();
        let reported = set(&client, file, SetattrIn::default()).unwrap();
        assert_eq!(reported.attr.mode, 0o104_644);
        let back = SetattrIn {
            valid: fattr::UID,
            uid: 1000,
            ..SetattrIn::default()
        };
        set(&client, file, back).unwrap();
        // The client is in group 100, as the file is now, and then no more.
        let group = |gid| SetattrIn {
            valid: fattr::GID,
            gid,
            ..SetattrIn::default()
        };
        set(&client, file, mode(0o102_644)).unwrap();
        assert_eq!(set(&client, file, group(7)).unwrap().attr.mode, 0o102_644);
        assert_eq!(set(&client, file, group(100)).unwrap().attr.mode, 0o100_644);
        set(&client, file, mode(0o104_711)).unwrap();
        let owner = SetattrIn {
            valid: fattr::UID,
            uid: 5,
            ..SetattrIn::default()
        };
        let reported = set(&client, file, owner).unwrap();
        assert_eq!(
            (reported.attr.mode, reported.attr.uid, reported.attr.gid),
            (0o100_711, 5, 100)
        );
    }

    #[test]
    fn large_cuts_are_answered_later() {
        let client = Client::new();
        let file = client.create(1, b"file");
        let size = |size| SetattrIn {
            valid: fattr::SIZE,
            size,
            ..SetattrIn::default()
        };
        assert_eq!(
            set(&client, file, size(20 << 20)).unwrap().attr.size,
            20 << 20
        );
        assert_eq!(set(&client, file, size(1)).unwrap().attr.size, 1);
        let reported: AttrOut = client.get(opcode::GETATTR, file, &[0; 16]).unwrap();
        assert_eq!(reported.attr.size, 1);
        assert_eq!(set(&client, file, size(1 << 60)), Err(Errno::EFBIG));
        assert_eq!(set(&client, 1, size(1)), Err(Errno::EISDIR));
    }

    #[test]
    fn blocks_that_wait_are_counted() {
        let client = Client::new();
        let file = client.create(1, b"file");
        client.write(file, 0, &[1; 10_000]);
        let reported: AttrOut = client.get(opcode::GETATTR, file, &[0; 16]).unwrap();
        assert_eq!((reported.attr.size, reported.attr.blocks), (10_000, 24));
        client.server.fs.volume().unwrap().sync().unwrap();
        let reported: AttrOut = client.get(opcode::GETATTR, file, &[0; 16]).unwrap();
        assert_eq!(reported.attr.blocks, 24);
    }
}
