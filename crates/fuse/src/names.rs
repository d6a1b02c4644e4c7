//! Names: looked up, made, taken.

use uext4::tuning::AccessTimes;
use uext4::{Creation, Error, FileType, Ino, NewInode, OpenInode};

use crate::abi::flags::{fopen, open as flag};
use crate::abi::{CreateIn, InHeader, MkdirIn, MknodIn, OpenOut};
use crate::errno::{Errno, Result};
use crate::nodes::Node;
use crate::reply::{Out, decode_device, node_of};
use crate::server::Server;

/// Names by which the kernel asks for the node itself, be it a directory or not: "." where it
/// decodes a handle whose inode it does not have, "/" where it looks again at the dentry that such
/// a handle gave, which has no parent but itself, and no other name (overlayfs does so at each use
/// of a file that was copied up).
const ITSELF: [&[u8]; 2] = [b".", b"/"];

/// LOOKUP. That a name is not there is an answer, which the kernel keeps.
pub fn lookup(server: &Server, header: &InHeader, name: &[u8], out: &mut Out<'_>) -> Result<()> {
    if ITSELF.contains(&name) {
        return itself(server, header, out);
    }
    match server.nodes.get(header.nodeid)?.lookup(&server.fs, name) {
        Ok(node) => server.reply_entry(node, out),
        Err(Errno::ENOENT) => out.put(&server.validity.no_entry()),
        Err(error) => Err(error),
    }
}

/// The node itself, by its number where the kernel has forgotten it since, or is about to: the
/// FORGET of an inode that it has dropped may come after this.
fn itself(server: &Server, header: &InHeader, out: &mut Out<'_>) -> Result<()> {
    let id = header.nodeid;
    let is_overlays = server.origins.decodes(header.pid, id);
    if let Ok(node) = server.nodes.get(id) {
        if is_overlays && node.inode().file_type != FileType::Directory {
            return Err(Errno::ESTALE);
        }
        if let Some(node) = server.nodes.remember_known(id) {
            return server.reply_node(&node, out);
        }
    }
    let ino = u32::try_from(id).map_err(|_| Errno::ESTALE)?;
    let node = match Node::open(&server.fs, Ino(ino)) {
        Ok(node) => node,
        Err(Errno::EIO) => return Err(Errno::EIO),
        Err(_) => return Err(Errno::ESTALE),
    };
    // Not one that was deleted, and not the root by another number than it has for the kernel.
    let is_stale = node.is_deleted() || node_of(u64::from(ino)) != id;
    if is_stale || is_overlays && node.inode().file_type != FileType::Directory {
        return Err(Errno::ESTALE);
    }
    server.reply_entry(node, out)
}

/// READLINK.
pub fn readlink(server: &Server, id: u64, out: &mut Out<'_>) -> Result<()> {
    let target = server.nodes.get(id)?.read_link(&server.fs)?;
    out.put_bytes(&target)
}

/// The creator of an inode, and its mode. OK to truncate: twelve bits.
pub(crate) fn creation(header: &InHeader, mode: u32, umask: u32) -> Creation {
    Creation {
        mode: (mode & 0o7777) as u16,
        umask: (umask & 0o7777) as u16,
        uid: header.uid,
        gid: header.gid,
    }
}

fn make(
    server: &Server,
    header: &InHeader,
    name: &[u8],
    kind: NewInode<'_>,
    how: &Creation,
) -> Result<OpenInode> {
    let dir = server.nodes.get(header.nodeid)?;
    Ok(dir.for_caller(header)?.create(name, kind, how)?)
}

/// SYMLINK.
pub fn symlink(
    server: &Server,
    header: &InHeader,
    name: &[u8],
    target: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    let (kind, how) = (NewInode::Symlink(target), creation(header, 0o777, 0));
    let made = make(server, header, name, kind, &how)?;
    server.reply_entry(Node::Writable(made), out)
}

/// MKDIR.
pub fn mkdir(
    server: &Server,
    header: &InHeader,
    it: &MkdirIn,
    name: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    let how = creation(header, it.mode, it.umask);
    let made = make(server, header, name, NewInode::Directory, &how)?;
    server.reply_entry(Node::Writable(made), out)
}

/// MKNOD.
pub fn mknod(
    server: &Server,
    header: &InHeader,
    it: &MknodIn,
    name: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    let device = decode_device(it.rdev);
    let kind = match it.mode >> 12 {
        0 | 0o10 => NewInode::File,
        0o01 => NewInode::Fifo,
        0o02 => NewInode::CharDevice(device),
        0o06 => NewInode::BlockDevice(device),
        0o14 => NewInode::Socket,
        _ => return Err(Errno::EINVAL),
    };
    let how = creation(header, it.mode, it.umask);
    let made = make(server, header, name, kind, &how)?;
    server.reply_entry(Node::Writable(made), out)
}

/// Whether reading by this opening is to change the time of access: the kernel must drop its pages
/// of the file, as reads that these answer do not reach us. Of large files it keeps them where only
/// the first read after a change counts (`relatime`): reading them once more costs too much.
fn must_see_reads(node: &Node, flags: u32) -> bool {
    const READ_AGAIN_MAX: u64 = 128 << 10;
    match node {
        Node::Writable(inode) if flags & flag::ACCMODE != flag::WRITE_ONLY => {
            match inode.notes_access() {
                Some(AccessTimes::Strict) => true,
                Some(_) => inode.size() <= READ_AGAIN_MAX,
                None => false,
            }
        }
        _ => false,
    }
}

/// How a file that a caller opened is cached, and its handle if it is to be written.
pub fn opened(server: &Server, header: &InHeader, node: &Node, flags: u32) -> OpenOut {
    let writes = flags & flag::ACCMODE != 0 && !server.omitted.opens;
    let fh = match node.for_caller(header) {
        Ok(inode) if writes => server.handles.open(&inode),
        _ => 0,
    };
    // Kernels before 5.15 keep the pages of a file that is cut when it is opened.
    let keep = match flags & flag::TRUNC {
        0 if !must_see_reads(node, flags) => fopen::KEEP_CACHE,
        _ => 0,
    };
    // Where space may run out a write is to find that itself.
    let direct = match fh != 0 && server.gathers() && server.is_nearly_full() {
        true => fopen::DIRECT_IO,
        false => 0,
    };
    OpenOut {
        fh,
        open_flags: keep | direct | fopen::NOFLUSH,
        ..OpenOut::default()
    }
}

/// CREATE: makes a file and opens it.
///
/// # Errors
/// `ESTALE` if the name is there, though the kernel was notified that it is not: then it looks
/// once more, and opens what it finds as the rules are. Here no thread has checked that it may.
pub fn create(
    server: &Server,
    header: &InHeader,
    it: &CreateIn,
    name: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    let dir = server.nodes.get(header.nodeid)?;
    let dir = dir.for_caller(header)?;
    let file = match dir.create(name, NewInode::File, &creation(header, it.mode, it.umask)) {
        Err(Error::Exists) if it.flags & flag::EXCL == 0 => return Err(Errno::ESTALE),
        made => made?,
    };
    let node = Node::Writable(file);
    reply_opened(server, header, node, it.flags, out)
}

/// What a file is answered that a caller made and opened. One that cannot be answered is not open.
pub fn reply_opened(
    server: &Server,
    header: &InHeader,
    node: Node,
    flags: u32,
    out: &mut Out<'_>,
) -> Result<()> {
    let opened = opened(server, header, &node, flags);
    server
        .reply_entry(node, out)
        .inspect_err(|_| drop(server.handles.release(opened.fh)))?;
    put_opened(server, &opened, out)
}

/// The answer to an opening, whose handle ends if it cannot be given.
pub fn put_opened(server: &Server, opened: &OpenOut, out: &mut Out<'_>) -> Result<()> {
    out.put(opened)
        .inspect_err(|_| drop(server.handles.release(opened.fh)))
}

/// TMPFILE: a file that has no name.
pub fn tmpfile(server: &Server, header: &InHeader, it: &CreateIn, out: &mut Out<'_>) -> Result<()> {
    let dir = server.nodes.get(header.nodeid)?;
    let how = creation(header, it.mode, it.umask);
    let file = dir
        .for_caller(header)?
        .create_unnamed(NewInode::File, &how)?;
    let node = Node::Writable(file);
    reply_opened(server, header, node, it.flags, out)
}

/// LINK.
pub fn link(server: &Server, of: u64, dir: u64, name: &[u8], out: &mut Out<'_>) -> Result<()> {
    let node = server.nodes.get(of)?;
    let inode = node.writable()?;
    let dir = server.nodes.get(dir)?;
    inode.link(dir.writable()?, name)?;
    server.reply_entry(Node::Writable(inode.clone()), out)
}

/// UNLINK.
pub fn unlink(server: &Server, dir: u64, name: &[u8]) -> Result<()> {
    let dir = server.nodes.get(dir)?;
    dir.writable()?.unlink(name)?;
    server.deletions.name_taken();
    Ok(())
}

/// RMDIR.
pub fn rmdir(server: &Server, dir: u64, name: &[u8]) -> Result<()> {
    let dir = server.nodes.get(dir)?;
    dir.writable()?.rmdir(name)?;
    server.deletions.name_taken();
    Ok(())
}

#[cfg(test)]
mod tests {
    use uext4::xattr::SetMode;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::{EntryOut, GetxattrIn, InitIn, LinkIn, opcode};
    use crate::testing::Client;

    #[test]
    fn every_kind_is_made_with_its_owner() {
        let client = Client::new();
        let kinds = [
            (0o10, 0),
            (0o01, 0),
            (0o02, 0x103),
            (0o06, 0x801),
            (0o14, 0),
        ];
        for (kind, rdev) in kinds {
            let it = MknodIn {
                mode: kind << 12 | 0o4666,
                rdev,
                umask: 0o022,
                padding: 0,
            };
            let name = format!("{kind}\0");
            let body = [it.as_bytes(), name.as_bytes()].concat();
            let made: EntryOut = client.get(opcode::MKNOD, 1, &body).unwrap();
            assert_eq!(made.attr.mode, kind << 12 | 0o4644);
            assert_eq!(
                (made.attr.uid, made.attr.gid, made.attr.rdev),
                (1000, 100, rdev)
            );
            assert_eq!(
                client
                    .lookup(1, &name.as_bytes()[..name.len() - 1])
                    .unwrap()
                    .nodeid,
                made.nodeid
            );
        }
        let it = MknodIn {
            mode: 0o17 << 12,
            ..MknodIn::default()
        };
        let body = [it.as_bytes(), b"x\0"].concat();
        assert_eq!(client.ask(opcode::MKNOD, 1, &body), Err(Errno::EINVAL));
    }

    #[test]
    fn a_missing_name_is_a_cached_entry() {
        let client = Client::new();
        let none = client.lookup(1, b"none").unwrap();
        assert_eq!((none.nodeid, none.entry_valid), (0, 1 << 30));
        let file = client.create(1, b"file");
        assert_eq!(client.lookup(file, b"x").unwrap_err(), Errno::ENOTDIR);
        let long = [b'x'; 256];
        assert_eq!(client.lookup(1, &long).unwrap_err(), Errno::ENAMETOOLONG);
    }

    #[test]
    fn handles_of_forgotten_inodes_are_found_again() {
        let client = Client::new();
        let file = client.create(1, b"file");
        client.forget(file, 1);
        let again = client.lookup(file, b".").unwrap();
        assert_eq!(again.nodeid, file);
        // No node has this number: the root is 1.
        for none in [0, 2, 3, 8, 4000, 1 << 40] {
            for name in [&b"."[..], b"/"] {
                assert_eq!(client.lookup(none, name).unwrap_err(), Errno::ESTALE);
            }
        }
    }

    #[test]
    fn a_node_is_found_by_itself_while_the_kernel_forgets_it() {
        let client = Client::new();
        let dir = client.mkdir(1, b"dir");
        let file = client.create(dir, b"file");
        let made: EntryOut = client.get(opcode::SYMLINK, dir, b"link\0to\0").unwrap();
        for (id, kind) in [(file, 0o10), (made.nodeid, 0o12), (dir, 0o04), (1, 0o04)] {
            let before = client.inode(id).inode().generation;
            // Of a handle, and of the dentry that it gave.
            for name in [&b"."[..], b"/"] {
                let found = client.lookup(id, name).unwrap();
                assert_eq!((found.nodeid, found.attr.mode >> 12), (id, kind));
                assert_eq!(found.generation, u64::from(before));
            }
        }
        assert_eq!(client.lookup(dir, b"..").unwrap().nodeid, 1);
        // The FORGET that was under way: what it does not count stays known.
        client.forget(file, 1);
        assert_eq!(client.read(file, 0, 1), b"");
        client.forget(file, 2);
        assert_eq!(
            client.ask(opcode::GETATTR, file, &[0; 16]),
            Err(Errno::ESTALE)
        );
        assert_eq!(client.lookup(file, b"/").unwrap().nodeid, file);
        client.forget(file, 1);
        client.ask(opcode::UNLINK, dir, b"file\0").unwrap();
        assert_eq!(client.lookup(file, b".").unwrap_err(), Errno::ESTALE);
        client.server.finish().unwrap();
        let again = client.reopened_read_only();
        assert_eq!(again.lookup(dir, b"/").unwrap().nodeid, dir);
        assert_eq!(again.lookup(file, b"/").unwrap_err(), Errno::ESTALE);
    }

    #[test]
    fn a_handle_that_overlayfs_decodes_is_stale_where_the_kernel_would_refuse_its_dentry() {
        for (minor, decodes) in [(43, true), (44, false)] {
            let client = Client::without_init();
            let it = InitIn {
                major: 7,
                minor,
                flags: u32::MAX,
                flags2: u32::MAX,
                ..InitIn::default()
            };
            client.ask(opcode::INIT, 0, it.as_bytes()).unwrap();
            let (upper, lower) = (client.create(1, b"upper"), client.create(1, b"lower"));
            let dir = client.mkdir(1, b"dir");
            for (id, is_found) in [(lower, decodes), (dir, true)] {
                let mut origin = vec![0, 0xfb, 33, 0, 0x81];
                origin.resize(5 + 16 + 4, 0);
                origin.extend((id as u32).as_bytes());
                origin.extend([0; 4]);
                let name = b"user.overlay.origin";
                let inode = client.inode(upper);
                inode.set_xattr(name, Some(&origin), SetMode::Any).unwrap();
                drop(inode);
                let it = GetxattrIn {
                    size: 64,
                    padding: 0,
                };
                let body = [it.as_bytes(), name, b"\0"].concat();
                let value = client.ask(opcode::GETXATTR, upper, &body).unwrap();
                assert_eq!(value, origin);
                client.forget(id, 1);
                // Layer by layer.
                for _ in 0..2 {
                    let found = client.lookup(id, b".");
                    assert_eq!(found.is_ok(), is_found, "{minor} {id}: {found:?}");
                }
                // Other threads that have the handle are not overlayfs.
                assert!(!client.server.origins.decodes(8, id));
            }
        }
    }

    #[test]
    fn symbolic_links_and_files_without_a_name() {
        let client = Client::new();
        let made: EntryOut = client.get(opcode::SYMLINK, 1, b"link\0to/there\0").unwrap();
        assert_eq!(made.attr.mode, 0o120_777);
        assert_eq!(
            client.ask(opcode::READLINK, made.nodeid, &[]).unwrap(),
            b"to/there"
        );
        let it = CreateIn {
            flags: 0o2,
            mode: 0o100_600,
            ..CreateIn::default()
        };
        let file: EntryOut = client.get(opcode::TMPFILE, 1, it.as_bytes()).unwrap();
        assert_eq!((file.attr.nlink, file.attr.mode), (0, 0o100_600));
        client.write(file.nodeid, 0, b"x");
        let body = [
            LinkIn {
                oldnodeid: file.nodeid,
            }
            .as_bytes(),
            b"named\0",
        ]
        .concat();
        let named: EntryOut = client.get(opcode::LINK, 1, &body).unwrap();
        assert_eq!((named.nodeid, named.attr.nlink), (file.nodeid, 1));
    }

    #[test]
    fn create_neither_opens_nor_truncates_existing_files() {
        let client = Client::new();
        let file = client.create(1, b"file");
        client.write(file, 0, b"contents");
        let mut it = CreateIn {
            flags: 0o1002,
            mode: 0o100_644,
            ..CreateIn::default()
        };
        let body = [it.as_bytes(), b"file\0"].concat();
        assert_eq!(client.ask(opcode::CREATE, 1, &body), Err(Errno::ESTALE));
        assert_eq!(client.read(file, 0, 100), b"contents");
        it.flags |= flag::EXCL;
        let body = [it.as_bytes(), b"file\0"].concat();
        assert_eq!(client.ask(opcode::CREATE, 1, &body), Err(Errno::EEXIST));
    }

    #[test]
    fn what_was_opened_for_reading_stays_as_it_is() {
        let client = Client::read_only();
        assert!(client.lookup(1, b"lost+found").unwrap().nodeid > 1);
        let it = MkdirIn {
            mode: 0o755,
            umask: 0,
        };
        let body = [it.as_bytes(), b"dir\0"].concat();
        assert_eq!(client.ask(opcode::MKDIR, 1, &body), Err(Errno::EROFS));
        assert_eq!(client.ask(opcode::UNLINK, 1, b"x\0"), Err(Errno::EROFS));
        assert_eq!(
            client.ask(opcode::RMDIR, 1, b"lost+found\0"),
            Err(Errno::EROFS)
        );
    }
}
