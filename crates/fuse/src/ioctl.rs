//! What programs ask of ext4 by ioctl: flags, projects, versions, labels, discarding, shutting
//! down.
//!
//! Who may change flags and projects is checked here too: kernels before 5.13 do not, and no
//! kernel checks numbers meant for programs of 32 bits. What else is for the privileged is
//! checked here, by the user's id. FUSE passes on only calls whose number reports what they
//! carry; of `EXT4_IOC_SHUTDOWN` it does not pass on how, so it is the way that makes nothing
//! durable.

use std::sync::Arc;

use uext4::format::VISIBLE_FLAGS;
use uext4::{Inode, InodeFlags, SetAttributes};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{FstrimRange, Fsxattr, InHeader, IoctlIn, IoctlOut};
use crate::answer::Answer;
use crate::errno::{Errno, Result};
use crate::nodes::Node;
use crate::owners::Owners;
use crate::pending_reply::RequestContext;
use crate::privileges::is_root;
use crate::reply::Out;
use crate::server::Server;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC32_GETVERSION: u32 = 0x8004_7601;
const EXT4_IOC_GETVERSION: u32 = 0x8008_6603;
const FS_IOC_FSGETXATTR: u32 = 0x801C_581F;
const FS_IOC_FSSETXATTR: u32 = 0x401C_5820;
const FITRIM: u32 = 0xC018_5879;
const EXT4_IOC_CHECKPOINT: u32 = 0x4004_662B;
const EXT4_IOC_SHUTDOWN: u32 = 0x8004_587D;
const FS_IOC_GETFSLABEL: u32 = 0x8100_9431;
const FS_IOC_SETFSLABEL: u32 = 0x4100_9432;
/// Bytes of a label that they carry, with zeroes behind it.
const FSLABEL_LEN: usize = 256;
const EXT4_IOC_PRECACHE_EXTENTS: u32 = 0x6612;
const EXT4_IOC_CLEAR_ES_CACHE: u32 = 0x6628;

/// Flags that only root changes, of its own files too.
const FOR_ROOT: InodeFlags = InodeFlags::IMMUTABLE
    .union(InodeFlags::APPEND)
    .union(InodeFlags::JOURNAL_DATA);

/// Flags, and what `FS_IOC_FSGETXATTR` calls them.
const XFLAGS: [(InodeFlags, u32); 7] = [
    (InodeFlags::IMMUTABLE, 0x8),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::SYNC, 0x20),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::NODUMP, 0x80),
    (InodeFlags::PROJINHERIT, 0x200),
    (InodeFlags::DAX, 0x8000),
];

/// IOCTL.
pub fn ioctl(
    server: &Arc<Server>,
    header: &InHeader,
    it: &IoctlIn,
    data: &[u8],
    out: &mut Out<'_>,
    caller: &RequestContext<'_>,
) -> Answer {
    match it.cmd {
        FITRIM => return trim(server, header, data, caller),
        EXT4_IOC_CHECKPOINT => return checkpoint(server, header, data, caller),
        FS_IOC_SETFSLABEL => return set_label(server, header, data, caller),
        _ => {}
    }
    let sets_flags = matches!(
        it.cmd,
        FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS | FS_IOC_FSSETXATTR
    );
    if !sets_flags {
        return answer(server, header, it, data, out).into();
    }
    let answered = set_flags(server, header, it, data, out, caller);
    if matches!(answered, Answer::Now(Ok(()))) {
        // The kernel does not know that this sets the time of change.
        caller.channel().forget_attributes(header.nodeid);
    }
    answered
}

/// Sets flags. What the kernel holds of a file was written when that was permitted: it comes before
/// a flag that forbids it.
fn set_flags(
    server: &Arc<Server>,
    header: &InHeader,
    it: &IoctlIn,
    data: &[u8],
    out: &mut Out<'_>,
    caller: &RequestContext<'_>,
) -> Answer {
    let node = server.nodes.get(header.nodeid);
    let may_hold = |node: Arc<Node>| node.is_open_for_writing();
    if !server.gathers() || !forbids_writing(it.cmd, data) || !node.is_ok_and(may_hold) {
        return answer(server, header, it, data, out).into();
    }
    let (all, pending_reply) = (Arc::clone(server), caller.pending_reply());
    let (header, it, data) = (*header, *it, data.to_vec());
    server.after_kernel_wrote(header.nodeid, caller.channel(), move || {
        let mut reply = [0; size_of::<IoctlOut>()];
        let mut out = Out::new(&mut reply);
        let answered = answer(&all, &header, &it, &data, &mut out);
        if answered.is_ok() {
            pending_reply.channel().forget_attributes(header.nodeid);
        }
        pending_reply.answer(answered.map(|()| out.filled()));
    });
    Answer::Later
}

/// Whether the flags that are set forbid some writing.
fn forbids_writing(cmd: u32, data: &[u8]) -> bool {
    let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    match cmd {
        FS_IOC_FSSETXATTR => Fsxattr::read_from_prefix(data).is_ok_and(|(it, _)| {
            let is_set = |xflag: u32| it.fsx_xflags & xflag != 0;
            XFLAGS
                .iter()
                .any(|(flag, xflag)| fixed.contains(*flag) && is_set(*xflag))
        }),
        _ => u32::read_from_prefix(data)
            .is_ok_and(|(flags, _)| InodeFlags::from_bits_retain(flags).intersects(fixed)),
    }
}

fn answer(
    server: &Server,
    header: &InHeader,
    it: &IoctlIn,
    data: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    let node = server.nodes.get(header.nodeid)?;
    match it.cmd {
        FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => {
            let flags = node.inode().flags.intersection(VISIBLE_FLAGS);
            number(flags.bits(), it, out)
        }
        FS_IOC_GETVERSION | FS_IOC32_GETVERSION | EXT4_IOC_GETVERSION => {
            number(node.inode().generation, it, out)
        }
        FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS => {
            let (flags, _) = u32::read_from_prefix(data).map_err(|_| Errno::EINVAL)?;
            let flags = InodeFlags::from_bits_retain(flags);
            set(&server.owners, header, &node, flags, None)?;
            out.put(&IoctlOut::default())
        }
        FS_IOC_FSGETXATTR => {
            out.put(&IoctlOut::default())?;
            out.put(&fsxattr_of(&node.inode()))
        }
        FS_IOC_FSSETXATTR => {
            set_fsxattr(&server.owners, header, &node, data)?;
            out.put(&IoctlOut::default())
        }
        FS_IOC_GETFSLABEL => {
            let mut label = [0; FSLABEL_LEN];
            let short = server.fs.label();
            label[..short.len()].copy_from_slice(&short);
            out.put(&IoctlOut::default())?;
            out.put(&label)
        }
        EXT4_IOC_SHUTDOWN => {
            root_only(header)?;
            server.fs.writable()?.abort(&"it was shut down");
            number(0, it, out)
        }
        EXT4_IOC_PRECACHE_EXTENTS => {
            node.writable()?.precache_extents()?;
            out.put(&IoctlOut::default())
        }
        EXT4_IOC_CLEAR_ES_CACHE => {
            root_only(header)?;
            node.writable()?.clear_extent_cache();
            out.put(&IoctlOut::default())
        }
        _ => Err(Errno::ENOTTY),
    }
}

fn root_only(header: &InHeader) -> Result<()> {
    match is_root(header) {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

/// A number of as many bytes as were asked for.
fn number(value: u32, it: &IoctlIn, out: &mut Out<'_>) -> Result<()> {
    out.put(&IoctlOut::default())?;
    match it.out_size {
        8.. => out.put(&u64::from(value)),
        4.. => out.put(&value),
        _ => Ok(()),
    }
}

fn fsxattr_of(inode: &Inode) -> Fsxattr {
    let has = XFLAGS.iter().filter(|(flag, _)| inode.has(*flag));
    Fsxattr {
        fsx_xflags: has.fold(0, |all, (_, xflag)| all | xflag),
        fsx_projid: inode.projid,
        ..Fsxattr::default()
    }
}

fn set_fsxattr(owners: &Owners, header: &InHeader, node: &Node, data: &[u8]) -> Result<()> {
    let (wanted, _) = Fsxattr::read_from_prefix(data).map_err(|_| Errno::EINVAL)?;
    let known = XFLAGS.iter().fold(0, |all, (_, xflag)| all | xflag);
    if wanted.fsx_xflags & !known != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let inode = node.inode();
    let mut flags = inode.flags.intersection(VISIBLE_FLAGS);
    for (flag, xflag) in XFLAGS {
        flags.set(flag, wanted.fsx_xflags & xflag != 0);
    }
    let projid = (wanted.fsx_projid != inode.projid).then_some(wanted.fsx_projid);
    set(owners, header, node, flags, projid)
}

fn set(
    owners: &Owners,
    header: &InHeader,
    node: &Node,
    flags: InodeFlags,
    projid: Option<u32>,
) -> Result<()> {
    let inode = node.inode();
    let changes = (inode.flags ^ flags).intersection(VISIBLE_FLAGS);
    if !owners.is_owner(header, &inode) || changes.intersects(FOR_ROOT) {
        root_only(header)?;
    }
    let wanted = SetAttributes {
        flags: Some(flags),
        projid,
        ..SetAttributes::default()
    };
    Ok(node.for_caller(header)?.set_attributes(&wanted)?)
}

/// FITRIM: by another thread, for it takes as long as the device.
fn trim(
    server: &Arc<Server>,
    header: &InHeader,
    data: &[u8],
    caller: &RequestContext<'_>,
) -> Answer {
    let range = root_only(header).and_then(|()| {
        let read = FstrimRange::read_from_prefix(data);
        Ok(read.map_err(|_| Errno::EINVAL)?.0)
    });
    let range = match range {
        Ok(range) => range,
        Err(error) => return Answer::Now(Err(error)),
    };
    let (all, pending_reply) = (Arc::clone(server), caller.pending_reply());
    server.executor.run(move || {
        let end = range.start.saturating_add(range.len);
        let volume = all.fs.writable();
        match volume.and_then(|volume| Ok(volume.trim(range.start..end, range.minlen)?)) {
            Err(error) => pending_reply.answer(Err(error)),
            Ok(len) => {
                let reported = FstrimRange { len, ..range };
                let reply = [IoctlOut::default().as_bytes(), reported.as_bytes()].concat();
                pending_reply.answer(Ok(&reply));
            }
        }
    });
    Answer::Later
}

/// Changes the label, and checkpoints: blkid(8) and udev read it from the device, as soon as the
/// call has returned.
fn set_label(
    server: &Arc<Server>,
    header: &InHeader,
    data: &[u8],
    caller: &RequestContext<'_>,
) -> Answer {
    let label = root_only(header).and_then(|()| data.get(..FSLABEL_LEN).ok_or(Errno::EINVAL));
    let label = match label {
        Ok(label) => label.to_vec(),
        Err(error) => return Answer::Now(Err(error)),
    };
    let (all, pending_reply) = (Arc::clone(server), caller.pending_reply());
    server.executor.run(move || {
        let set = || -> Result<()> {
            let volume = all.fs.writable()?;
            volume.set_label(&label)?;
            Ok(volume.checkpoint()?)
        };
        let reply = IoctlOut::default();
        pending_reply.answer(set().map(|()| reply.as_bytes()));
    });
    Answer::Later
}

/// Checkpoints everything until the journal is empty.
fn checkpoint(
    server: &Arc<Server>,
    header: &InHeader,
    data: &[u8],
    caller: &RequestContext<'_>,
) -> Answer {
    const DISCARD: u32 = 1;
    const ZERO_OUT: u32 = 2;
    const DRY_RUN: u32 = 4;
    let flags = root_only(header).and_then(|()| {
        let read = u32::read_from_prefix(data);
        match read.map_err(|_| Errno::EINVAL)?.0 {
            flags if flags & !(DISCARD | ZERO_OUT | DRY_RUN) != 0 => Err(Errno::EINVAL),
            flags if flags & (DISCARD | ZERO_OUT) != 0 => Err(Errno::EOPNOTSUPP),
            flags => Ok(flags),
        }
    });
    match flags {
        Ok(0) => {}
        Ok(_) => return Answer::Now(Ok(())),
        Err(error) => return Answer::Now(Err(error)),
    }
    let (all, pending_reply) = (Arc::clone(server), caller.pending_reply());
    server.executor.run(move || {
        let done = all
            .fs
            .writable()
            .and_then(|volume| Ok(volume.checkpoint()?));
        let reply = IoctlOut::default();
        pending_reply.answer(done.map(|()| reply.as_bytes()));
    });
    Answer::Later
}

#[cfg(test)]
mod tests {
    use uext4_blockdev::BlockDevice as _;

    use super::*;
    use crate::abi::opcode;
    use crate::testing::Client;

    fn call(client: &Client, id: u64, cmd: u32, data: &[u8], out_size: u32) -> Result<Vec<u8>> {
        let it = IoctlIn {
            cmd,
            in_size: data.len() as u32,
            out_size,
            ..IoctlIn::default()
        };
        let reported = client.ask(opcode::IOCTL, id, &[it.as_bytes(), data].concat())?;
        assert_eq!(reported[..16], [0; 16]);
        Ok(reported[16..].to_vec())
    }

    #[test]
    fn flags_are_shown_and_set() {
        let client = Client::new();
        let file = client.create(1, b"file");
        let flags = call(&client, file, FS_IOC_GETFLAGS, &[], 4).unwrap();
        assert_eq!(flags, 0x8_0000u32.as_bytes());
        let asked = 0x8_0040u32;
        call(&client, file, FS_IOC_SETFLAGS, asked.as_bytes(), 0).unwrap();
        assert_eq!(
            call(&client, file, FS_IOC_GETFLAGS, &[], 8).unwrap(),
            0x8_0040u64.as_bytes()
        );
        // It set the time of change too.
        assert_eq!(client.forgotten(), [file]);
        // Not its to set, by whichever number it is asked for; nor another's file to change.
        let fixed = 0x8_0010u32;
        for cmd in [FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS] {
            let reported = call(&client, file, cmd, fixed.as_bytes(), 0);
            assert_eq!(reported, Err(Errno::EPERM));
            let reported = call(&client, 1, cmd, asked.as_bytes(), 0);
            assert_eq!(reported, Err(Errno::EPERM));
        }
        let odd = 0x200_0000u32 | 1 << 31;
        let refused = call(&client, file, FS_IOC_SETFLAGS, odd.as_bytes(), 0);
        assert_eq!(refused, Err(Errno::EOPNOTSUPP));
        assert_eq!(
            call(&client, file, FS_IOC_SETFLAGS, b"x", 0),
            Err(Errno::EINVAL)
        );
        let version = call(&client, file, FS_IOC_GETVERSION, &[], 4).unwrap();
        assert_eq!(version, client.inode(file).inode().generation.as_bytes());
    }

    #[test]
    fn projects_and_extended_flags() {
        let client = Client::with_projects();
        let dir = client.mkdir(1, b"dir");
        let wanted = Fsxattr {
            fsx_xflags: 0x200 | 0x80,
            fsx_projid: 17,
            ..Fsxattr::default()
        };
        call(&client, dir, FS_IOC_FSSETXATTR, wanted.as_bytes(), 0).unwrap();
        let reported = call(&client, dir, FS_IOC_FSGETXATTR, &[], 28).unwrap();
        assert_eq!(reported, wanted.as_bytes());
        let file = client.create(dir, b"file");
        let reported = call(&client, file, FS_IOC_FSGETXATTR, &[], 28).unwrap();
        assert_eq!(Fsxattr::read_from_bytes(&reported).unwrap().fsx_projid, 17);
        let odd = Fsxattr {
            fsx_xflags: 2,
            ..Fsxattr::default()
        };
        let refused = call(&client, file, FS_IOC_FSSETXATTR, odd.as_bytes(), 0);
        assert_eq!(refused, Err(Errno::EOPNOTSUPP));
    }

    #[test]
    fn labels_are_shown_to_all_and_set_by_the_privileged() {
        let carried = |text: &[u8]| [text, &vec![0; FSLABEL_LEN - text.len()]].concat();
        let set = |who: &Client, text| call(who, 1, FS_IOC_SETFSLABEL, &carried(text), 0);
        let shown = |who: &Client| call(who, 1, FS_IOC_GETFSLABEL, &[], 256).unwrap();
        let user = Client::new();
        assert_eq!(set(&user, b"other").unwrap_err(), Errno::EPERM);
        assert_eq!(shown(&user).len(), 256);
        let root = user.asking_as_root();
        for label in [b"sixteen bytes it", &b"short"[..]] {
            set(&root, label).unwrap();
            assert_eq!(shown(&root), carried(label));
        }
        assert_eq!(set(&root, b"seventeen bytes i").unwrap_err(), Errno::EINVAL);
        let cut = call(&root, 1, FS_IOC_SETFSLABEL, b"short", 0);
        assert_eq!(cut, Err(Errno::EINVAL));
        assert_eq!(shown(&root), carried(b"short"));
        // The place of `s_volume_name`: it does not wait for a commit, nor for a checkpoint.
        let mut on_device = [0; 16];
        root.device.read_at(1024 + 0x78, &mut on_device).unwrap();
        assert_eq!(on_device, carried(b"short")[..16]);
    }

    #[test]
    fn the_privileged_discard_and_shut_down() {
        let client = Client::new();
        let range = FstrimRange {
            start: 0,
            len: u64::MAX,
            minlen: 0,
        };
        let refused = call(&client, 1, FITRIM, range.as_bytes(), 24);
        assert_eq!(refused, Err(Errno::EPERM));
        assert_eq!(
            call(&client, 1, EXT4_IOC_SHUTDOWN, &[], 4),
            Err(Errno::EPERM)
        );
        let root = client.asking_as_root();
        let reported = call(&root, 1, FITRIM, range.as_bytes(), 24).unwrap();
        assert!(FstrimRange::read_from_bytes(&reported).unwrap().len > 1 << 20);
        let short = FstrimRange { len: 4095, ..range };
        let short = call(&root, 1, FITRIM, short.as_bytes(), 24);
        assert_eq!(short, Err(Errno::EINVAL));
        let file = root.create(1, b"file");
        call(&root, file, EXT4_IOC_PRECACHE_EXTENTS, &[], 0).unwrap();
        call(&root, file, EXT4_IOC_CLEAR_ES_CACHE, &[], 0).unwrap();
        call(&root, 1, EXT4_IOC_SHUTDOWN, &[], 4).unwrap();
        let made = root.ask(opcode::UNLINK, 1, b"file\0");
        assert_eq!(made, Err(Errno::EROFS));
        assert_eq!(call(&root, 1, 0x5401, &[], 0), Err(Errno::ENOTTY));
    }
}
