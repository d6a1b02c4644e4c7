//! Listing directories.
//!
//! An entry's offset is the engine's cookie: it stands for the place of the name and stays good
//! while others come and go, so a directory needs no handle (`NO_OPENDIR`). With READDIRPLUS each
//! entry is a lookup too: what does not fit is not counted.

use uext4::{FileType, Ino, InodeFlags};
use zerocopy::IntoBytes;

use crate::abi::{Dirent, EntryOut, ReadIn};
use crate::errno::Result;
use crate::nodes::Node;
use crate::reply::{Out, attr_of, dirent_type};
use crate::request::Listing;
use crate::server::Server;

/// A name that was listed.
struct Item {
    /// Where the name ends in the bytes of all names.
    end: usize,
    ino: Ino,
    file_type: Option<FileType>,
    next: u64,
}

/// Names of a directory from a place on, as many as an answer of `limit` bytes may hold.
fn gather(
    server: &Server,
    dir: &Node,
    cookie: u64,
    listing: Listing,
    limit: usize,
) -> Result<(Vec<u8>, Vec<Item>)> {
    let each = match listing {
        Listing::Plus => size_of::<EntryOut>() + size_of::<Dirent>(),
        Listing::Names => size_of::<Dirent>(),
    };
    let inode = dir.inode();
    let is_encrypted = inode.has(InodeFlags::ENCRYPT);
    let (mut names, mut items) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    dir.list(&server.fs, cookie, &mut |listed| {
        match is_encrypted {
            true => names.extend(server.fs.display_name(&inode, listed.name)),
            false => names.extend_from_slice(listed.name),
        }
        items.push(Item {
            end: names.len(),
            ino: listed.ino,
            file_type: listed.file_type,
            next: listed.next,
        });
        bytes += each + listed.name.len();
        bytes < limit
    })?;
    Ok((names, items))
}

/// READDIR and READDIRPLUS.
pub fn readdir(
    server: &Server,
    id: u64,
    it: &ReadIn,
    listing: Listing,
    out: &mut Out<'_>,
) -> Result<()> {
    let dir = server.nodes.get(id)?;
    let limit = it.size as usize;
    let (names, items) = gather(server, &dir, it.offset, listing, limit)?;
    let mut start = 0;
    for item in items {
        // OK to index: ends ascend and are no more than all bytes.
        let name = &names[start..item.end];
        start = item.end;
        let mut dirent = Dirent {
            ino: item.ino.0.into(),
            off: item.next,
            namelen: name.len() as u32,
            type_: dirent_type(item.file_type),
        };
        let fits = match listing {
            Listing::Plus => entry_plus(server, limit, &item, name, &mut dirent, out),
            Listing::Names => out.entry(limit, &[], dirent, name),
        };
        if !fits || listing == Listing::Plus && is_refused(name) {
            break;
        }
    }
    Ok(())
}

/// Names that the kernel ends a listing at, with an error: what comes behind it has never been
/// reported.
fn is_refused(name: &[u8]) -> bool {
    name.is_empty() || name.contains(&b'/')
}

/// Adds a name with its attributes, if it fits. Those of "." and "..", and of what cannot be
/// read, are not reported: the kernel asks for them by name.
fn entry_plus(
    server: &Server,
    limit: usize,
    item: &Item,
    name: &[u8],
    dirent: &mut Dirent,
    out: &mut Out<'_>,
) -> bool {
    let len = size_of::<EntryOut>() + size_of::<Dirent>() + name.len();
    if out.len() + len.next_multiple_of(8) > limit {
        return false;
    }
    let node = match name {
        b"." | b".." => None,
        _ if is_refused(name) => None,
        _ => Node::open(&server.fs, item.ino).ok(),
    };
    let entry = match node {
        None => EntryOut::default(),
        Some(node) => {
            let node = server.nodes.remember(node);
            let inode = server.owners.shown(node.inode());
            dirent.type_ = dirent_type(Some(inode.file_type));
            let attr = attr_of(&inode, node.delayed(), server.block_size);
            server.validity.entry(attr, inode.generation)
        }
    };
    let (ino, node) = (item.ino, entry.nodeid);
    let fits = out.entry(limit, entry.as_bytes(), *dirent, name);
    if !fits && node != 0 {
        // The transport offers less than was asked for.
        server.nodes.forget(crate::reply::node_of(ino.0.into()), 1);
    }
    fits
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uext4_blockdev::BlockDevice;
    use zerocopy::FromBytes;

    use super::*;
    use crate::abi::opcode;
    use crate::testing::Client;

    /// Entries of one answer: number, cookie, type, name, and the node with READDIRPLUS.
    fn entries(mut bytes: &[u8], plus: bool) -> Vec<(u64, u64, u32, Vec<u8>, u64)> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let whole = bytes;
            let mut node = 0;
            if plus {
                let (entry, rest) = EntryOut::read_from_prefix(bytes).unwrap();
                (node, bytes) = (entry.nodeid, rest);
            }
            let (dirent, rest) = Dirent::read_from_prefix(bytes).unwrap();
            let name = rest[..dirent.namelen as usize].to_vec();
            let len = whole.len() - rest.len() + name.len();
            all.push((dirent.ino, dirent.off, dirent.type_, name, node));
            bytes = &whole[len.next_multiple_of(8)..];
        }
        all
    }

    fn list(client: &Client, dir: u64, code: u32, size: u32) -> Vec<(u64, u64, u32, Vec<u8>, u64)> {
        let mut all = Vec::new();
        let mut offset = 0;
        loop {
            let it = ReadIn {
                offset,
                size,
                ..ReadIn::default()
            };
            let reported = client.ask(code, dir, it.as_bytes()).unwrap();
            assert!(reported.len() <= size as usize);
            let reported = entries(&reported, code == opcode::READDIRPLUS);
            match reported.last() {
                None => return all,
                Some(last) => offset = last.1,
            }
            all.extend(reported);
        }
    }

    #[test]
    fn every_name_once_in_answers_of_any_size() {
        let client = Client::new();
        let dir = client.mkdir(1, b"dir");
        for number in 0..500 {
            client.create(dir, format!("file {number}").as_bytes());
        }
        for size in [4096, 512, 65_536] {
            let all = list(&client, dir, opcode::READDIR, size);
            assert_eq!(all.len(), 502);
            let names: BTreeSet<_> = all.iter().map(|entry| entry.3.clone()).collect();
            assert_eq!(names.len(), 502);
            for (ino, _, kind, name, _) in &all {
                match &name[..] {
                    b"." => assert_eq!((*ino, *kind), (dir, 4)),
                    b".." => assert_eq!((*ino, *kind), (2, 4)),
                    _ => assert_eq!(*kind, 8),
                }
            }
        }
    }

    #[test]
    fn with_attributes_each_entry_is_a_look_up() {
        let client = Client::new();
        let dir = client.mkdir(1, b"dir");
        let file = client.create(dir, b"file");
        client.forget(file, 1);
        assert!(client.server.nodes.get(file).is_err());
        let all = list(&client, dir, opcode::READDIRPLUS, 4096);
        let reported: Vec<_> = all.iter().map(|entry| (&entry.3[..], entry.4)).collect();
        assert_eq!(reported.len(), 3);
        assert!(
            reported.contains(&(b".", 0))
                && reported.contains(&(b"..", 0))
                && reported.contains(&(b"file", file))
        );
        assert!(client.server.nodes.get(file).is_ok());
        client.forget(file, 1);
        assert!(client.server.nodes.get(file).is_err());
    }

    #[test]
    fn what_the_kernel_refuses_ends_an_answer() {
        let client = Client::without_checksums();
        for name in [b"one", b"two", b"six"] {
            client.create(1, name);
        }
        client.server.finish().unwrap();
        let bytes = client.device.to_bytes();
        for at in (0..bytes.len() - 3).filter(|at| &bytes[*at..at + 3] == b"two") {
            client.device.write_at(at as u64, b"t/o").unwrap();
        }
        let client = client.reopened_read_only();
        let it = ReadIn {
            size: 4096,
            ..ReadIn::default()
        };
        let reported = client.ask(opcode::READDIRPLUS, 1, it.as_bytes()).unwrap();
        let reported = entries(&reported, true);
        let refused = reported.iter().position(|entry| entry.3 == b"t/o").unwrap();
        assert_eq!((refused, reported[refused].4), (reported.len() - 1, 0));
        // The root, and what it will be asked to forget.
        let known = reported.iter().filter(|entry| entry.4 != 0).count();
        assert_eq!(client.server.nodes.len(), 1 + known);
    }

    #[test]
    fn of_a_file_system_opened_for_reading() {
        let client = Client::read_only();
        let all = list(&client, 1, opcode::READDIRPLUS, 4096);
        let names: Vec<_> = all.iter().map(|entry| &entry.3[..]).collect();
        assert!(names.contains(&&b"lost+found"[..]), "{names:?}");
    }
}
