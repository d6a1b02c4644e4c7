//! Extended attributes, ACLs among them.
//!
//! The kernel asks for everything by its full name and lets through whatever begins with
//! `system.`: of these there are only the two ACLs, in the form of the system calls.

use uext4::SetAttributes;
use uext4::xattr::SetMode;

use crate::abi::flags::SETXATTR_ACL_KILL_SGID;
use crate::abi::{GetxattrOut, InHeader, SetxattrIn};
use crate::errno::{Errno, Result};
use crate::privileges::is_root;
use crate::reply::Out;
use crate::server::Server;

/// `XATTR_CREATE`.
const CREATE: u32 = 1;
/// `XATTR_REPLACE`.
const REPLACE: u32 = 2;
/// Set-group-id.
const S_ISGID: u16 = 0o2000;

/// Fails with `EOPNOTSUPP` for what the file system keeps for itself.
fn check(name: &[u8]) -> Result<()> {
    let is_acl = matches!(
        name,
        b"system.posix_acl_access" | b"system.posix_acl_default"
    );
    match name.starts_with(b"system.") && !is_acl {
        true => Err(Errno::EOPNOTSUPP),
        false => Ok(()),
    }
}

/// Gives `value` if it fits in `size` bytes; with 0 it is asked how many it has.
fn give(value: &[u8], size: u32, out: &mut Out<'_>) -> Result<()> {
    if size == 0 {
        // OK to truncate: values have 64 KiB at most, lists are bounded with them.
        let size = value.len() as u32;
        return out.put(&GetxattrOut { size, padding: 0 });
    }
    if value.len() > size as usize {
        return Err(Errno::ERANGE);
    }
    out.put_bytes(value)
}

/// GETXATTR.
pub fn get(
    server: &Server,
    header: &InHeader,
    size: u32,
    name: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    check(name)?;
    let node = server.nodes.get(header.nodeid)?;
    let value = node.xattr(&server.fs, name)?;
    let minor = server.negotiated().map_or(0, |agreed| agreed.kernel_minor);
    server.origins.was_read(minor, header.pid, name, &value);
    give(&server.owners.shown_value(name, value), size, out)
}

/// LISTXATTR. Those in `trusted.` are shown to root alone.
pub fn list(server: &Server, header: &InHeader, size: u32, out: &mut Out<'_>) -> Result<()> {
    let node = server.nodes.get(header.nodeid)?;
    let mut names = Vec::new();
    for xattr in node.xattrs(&server.fs)? {
        let is_hidden = !is_root(header) && xattr.name.starts_with(b"trusted.");
        if !is_hidden && check(&xattr.name).is_ok() {
            names.extend_from_slice(&xattr.name);
            names.push(0);
        }
    }
    give(&names, size, out)
}

/// SETXATTR.
pub fn set(
    server: &Server,
    header: &InHeader,
    it: &SetxattrIn,
    name: &[u8],
    value: &[u8],
) -> Result<()> {
    check(name)?;
    let node = server.nodes.get(header.nodeid)?;
    let mode = match it.flags {
        0 => SetMode::Any,
        CREATE => SetMode::Create,
        REPLACE => SetMode::Replace,
        // It must be there, and must not.
        _ => return node.xattr(&server.fs, name).and(Err(Errno::EEXIST)),
    };
    let inode = node.for_caller(header)?;
    if server.owners.changes(name) {
        let stored = server.owners.stored_value(name, value)?;
        inode.set_xattr(name, Some(&stored), mode)?;
    } else {
        inode.set_xattr(name, Some(value), mode)?;
    }
    let now = inode.inode().mode;
    if it.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 && now & S_ISGID != 0 {
        inode.set_attributes(&SetAttributes {
            mode: Some(now & 0o7777 & !S_ISGID),
            ..SetAttributes::default()
        })?;
    }
    Ok(())
}

/// REMOVEXATTR. An ACL that is not there may be removed.
pub fn remove(server: &Server, id: u64, name: &[u8]) -> Result<()> {
    check(name)?;
    let mode = match name.starts_with(b"system.") {
        true => SetMode::Any,
        false => SetMode::Replace,
    };
    let node = server.nodes.get(id)?;
    Ok(node.writable()?.set_xattr(name, None, mode)?)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::{AttrOut, GetxattrIn, opcode};
    use crate::testing::Client;

    fn set_on(
        client: &Client,
        id: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        more: u32,
    ) -> Result<()> {
        let it = SetxattrIn {
            size: value.len() as u32,
            flags,
            setxattr_flags: more,
            padding: 0,
        };
        let body = [it.as_bytes(), name, b"\0", value].concat();
        client.ask(opcode::SETXATTR, id, &body).map(|_| ())
    }

    fn get_of(client: &Client, id: u64, name: &[u8], size: u32) -> Result<Vec<u8>> {
        let it = GetxattrIn { size, padding: 0 };
        client.ask(opcode::GETXATTR, id, &[it.as_bytes(), name, b"\0"].concat())
    }

    fn list_of(client: &Client, id: u64, size: u32) -> Result<Vec<u8>> {
        let it = GetxattrIn { size, padding: 0 };
        client.ask(opcode::LISTXATTR, id, it.as_bytes())
    }

    #[test]
    fn values_are_set_read_listed_and_removed() {
        let client = Client::new();
        let file = client.create(1, b"file");
        set_on(&client, file, b"user.a", b"value", 0, 0).unwrap();
        set_on(&client, file, b"trusted.b", b"", 0, 0).unwrap();
        assert_eq!(
            set_on(&client, file, b"user.a", b"x", CREATE, 0),
            Err(Errno::EEXIST)
        );
        assert_eq!(
            set_on(&client, file, b"user.c", b"x", REPLACE, 0),
            Err(Errno::ENODATA)
        );
        assert_eq!(
            set_on(&client, file, b"user.c", b"x", CREATE | REPLACE, 0),
            Err(Errno::ENODATA)
        );
        assert_eq!(
            set_on(&client, file, b"user.a", b"x", CREATE | REPLACE, 0),
            Err(Errno::EEXIST)
        );
        assert_eq!(get_of(&client, file, b"user.a", 100).unwrap(), b"value");
        assert_eq!(get_of(&client, file, b"user.a", 4), Err(Errno::ERANGE));
        let asked = get_of(&client, file, b"user.a", 0).unwrap();
        assert_eq!(
            asked,
            GetxattrOut {
                size: 5,
                padding: 0
            }
            .as_bytes()
        );
        assert_eq!(get_of(&client, file, b"user.none", 0), Err(Errno::ENODATA));
        // The client is an ordinary user.
        assert_eq!(list_of(&client, file, 100).unwrap(), b"user.a\0");
        assert_eq!(list_of(&client, file, 6), Err(Errno::ERANGE));
        client.ask(opcode::REMOVEXATTR, file, b"user.a\0").unwrap();
        let again = client.ask(opcode::REMOVEXATTR, file, b"user.a\0");
        assert_eq!(again, Err(Errno::ENODATA));
    }

    #[test]
    fn what_the_file_system_keeps_for_itself_is_not_there() {
        let client = Client::new();
        let file = client.create(1, b"file");
        client.write(file, 0, b"short, so perhaps within the inode");
        assert_eq!(
            get_of(&client, file, b"system.data", 100),
            Err(Errno::EOPNOTSUPP)
        );
        let set = set_on(&client, file, b"system.data", b"x", 0, 0);
        assert_eq!(set, Err(Errno::EOPNOTSUPP));
        let removed = client.ask(opcode::REMOVEXATTR, file, b"system.data\0");
        assert_eq!(removed, Err(Errno::EOPNOTSUPP));
        assert_eq!(list_of(&client, file, 100).unwrap(), b"");
    }

    #[test]
    fn an_acl_sets_the_mode_and_may_take_set_group_id() {
        let client = Client::new();
        let file = client.create(1, b"file");
        let inode = client.inode(file);
        let set = SetAttributes {
            mode: Some(0o2711),
            ..SetAttributes::default()
        };
        inode.set_attributes(&set).unwrap();
        // Version 2; user, user 7, group, mask, others.
        let entries: [(u16, u16, u32); 5] =
            [(1, 6, !0), (2, 4, 7), (4, 4, !0), (16, 6, !0), (32, 0, !0)];
        let mut acl = vec![2, 0, 0, 0];
        for (tag, permissions, id) in entries {
            acl.extend_from_slice(tag.as_bytes());
            acl.extend_from_slice(permissions.as_bytes());
            acl.extend_from_slice(id.as_bytes());
        }
        let name = b"system.posix_acl_access";
        set_on(&client, file, name, &acl, 0, 0).unwrap();
        let mode = || -> u32 {
            let reported: AttrOut = client.get(opcode::GETATTR, file, &[0; 16]).unwrap();
            reported.attr.mode & 0o7777
        };
        assert_eq!(mode(), 0o2660);
        assert_eq!(get_of(&client, file, name, 200).unwrap(), acl);
        set_on(&client, file, name, &acl, 0, SETXATTR_ACL_KILL_SGID).unwrap();
        assert_eq!(mode(), 0o660);
        assert_eq!(
            list_of(&client, file, 100).unwrap(),
            b"system.posix_acl_access\0"
        );
        for _ in 0..2 {
            client
                .ask(opcode::REMOVEXATTR, file, b"system.posix_acl_access\0")
                .unwrap();
        }
        assert_eq!(get_of(&client, file, name, 200), Err(Errno::ENODATA));
    }
}
