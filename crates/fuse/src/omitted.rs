//! Kinds of requests that a mount does without: the first of each kind is answered with `ENOSYS`,
//! and the kernel sends no more of them while the file system is mounted.

use uext4::{Image, Ino, Result};
use uext4_ondisk::GroupNr;

use crate::request::Operation;

/// What is not served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Extended attributes: GETXATTR, LISTXATTR, SETXATTR and REMOVEXATTR.
    pub xattrs: bool,
    /// OPEN, and with it RELEASE. The kernel opens by itself what it has permission for: there are
    /// no handles, so an error of writing is reported to the first fsync of a file, and flags that
    /// forbid writing are enforced when data arrive. CREATE is omitted with it, as the kernel
    /// sends RELEASE for what CREATE opened; it sends MKNOD instead.
    pub opens: bool,
}

impl Omitted {
    /// Whether this is not served.
    pub fn has(self, operation: &Operation<'_>) -> bool {
        match operation {
            Operation::Getxattr(..)
            | Operation::Listxattr(_)
            | Operation::Setxattr(..)
            | Operation::Removexattr(_) => self.xattrs,
            Operation::Open(_) | Operation::Create(..) => self.opens,
            _ => false,
        }
    }
}

/// What a search for extended attributes found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrSearch {
    /// No inode has any.
    None,
    /// This inode has some.
    In(Ino),
    /// There are more inodes than were to be examined, and these have none.
    Unknown,
}

/// Looks for an inode with extended attributes that programs or the kernel can see, ACLs and
/// capabilities included. Reads the inodes in use, at most `limit` of them, in the order in which
/// they are stored: about 256 bytes for each.
///
/// # Errors
/// Damage of an inode, of its attributes or of a bitmap; device errors.
pub fn find_xattr(image: &Image, limit: u32) -> Result<XattrSearch> {
    let geometry = image.geometry();
    let (groups, in_group) = (geometry.groups_count.get(), geometry.inodes_per_group.get());
    let mut left = limit;
    for group in 0..groups {
        let bitmap = image.inode_bitmap(GroupNr(group))?;
        let first = group.saturating_mul(in_group).saturating_add(1);
        for (ino, index) in (first..=geometry.inodes_count).map(Ino).zip(0..in_group) {
            let byte = bitmap.get(index as usize / 8).copied().unwrap_or(0);
            if byte & 1 << (index % 8) == 0 || image.is_hidden(ino) {
                continue;
            }
            let Some(rest) = left.checked_sub(1) else {
                return Ok(XattrSearch::Unknown);
            };
            left = rest;
            let inode = image.inode(ino)?;
            if !image.xattrs(&inode)?.is_empty() {
                return Ok(XattrSearch::In(ino));
            }
        }
    }
    Ok(XattrSearch::None)
}

#[cfg(test)]
mod tests {
    use uext4::xattr::SetMode;
    use uext4::{Creation, NewInode};

    use super::*;
    use crate::abi::flags::init as has;
    use crate::abi::opcode;
    use crate::errno::Errno;
    use crate::testing::{Client, file_system};

    #[test]
    fn an_attribute_is_found_in_an_inode_and_in_a_block() {
        let (fs, _) = file_system();
        let root = fs.root().unwrap();
        assert_eq!(find_xattr(&fs, 100).unwrap(), XattrSearch::None);
        let how = Creation::default();
        let made = |name: &[u8]| root.create(name, NewInode::File, &how).unwrap();
        let (one, other) = (made(b"one"), made(b"other"));
        for value in [&b"short"[..], &[7; 2000]] {
            other
                .set_xattr(b"user.a", Some(value), SetMode::Any)
                .unwrap();
            let found = find_xattr(&fs, 100).unwrap();
            assert_eq!(found, XattrSearch::In(other.ino()));
            other.set_xattr(b"user.a", None, SetMode::Any).unwrap();
            assert_eq!(find_xattr(&fs, 100).unwrap(), XattrSearch::None);
        }
        one.write_at(0, b"data that may lie in the inode").unwrap();
        fs.sync().unwrap();
        assert_eq!(find_xattr(&fs, 100).unwrap(), XattrSearch::None);
        // The root directory, lost+found and two files.
        assert_eq!(find_xattr(&fs, 4).unwrap(), XattrSearch::None);
        assert_eq!(find_xattr(&fs, 3).unwrap(), XattrSearch::Unknown);
    }

    #[test]
    fn omitted_kinds_are_refused_with_enosys() {
        let omitted = Omitted {
            xattrs: true,
            opens: true,
        };
        let client = Client::without_init().omitting(omitted).greeted();
        let kinds = [
            opcode::GETXATTR,
            opcode::LISTXATTR,
            opcode::SETXATTR,
            opcode::REMOVEXATTR,
            opcode::OPEN,
            opcode::CREATE,
        ];
        for kind in kinds {
            let body = [&[0; 16][..], b"user.a\0"].concat();
            assert_eq!(client.ask(kind, 1, &body), Err(Errno::ENOSYS), "{kind}");
        }
        // The kernel cuts a file by itself that it opens by itself.
        let negotiated = client.server.negotiated().unwrap();
        assert!(!negotiated.has(has::ATOMIC_O_TRUNC));
        assert!(negotiated.has(has::POSIX_ACL));
    }
}
