//! Where the extended attributes of an inode go: its body first, then a block, and values that fit
//! neither into inodes of their own where the file system has them.
//!
//! Pure, as the layout of directories is: space can be reckoned before anything exists.

use std::borrow::Cow;

use uext4_ondisk::acl::Acl;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FULL_EXTRA_ISIZE, FileType, GOOD_OLD_INODE_SIZE};
use uext4_ondisk::xattr::{
    INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT, INDEX_SYSTEM, XATTR_BLOCK_HEADER_LEN,
    XATTR_IBODY_HEADER_LEN, XATTR_SIZE_MAX, entry_len, split_name, value_len,
};
use uext4_ondisk::{Damage, Geometry};

use crate::error::{Error, Result};

/// Longest name after its prefix.
const NAME_MAX: usize = 255;
/// Bytes that end a list of entries.
const END_LEN: usize = 4;
/// Shortest name there is, for the kernel's rule on large values.
const SHORT_NAME_LEN: usize = 3;

/// An attribute as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute<'a> {
    pub(super) index: u8,
    pub(super) name: &'a [u8],
    pub(super) value: Cow<'a, [u8]>,
    /// The value has an inode of its own.
    pub(super) apart: bool,
}

impl Attribute<'_> {
    fn len(&self) -> usize {
        let value = if self.apart {
            0
        } else {
            value_len(self.value.len())
        };
        entry_len(self.name.len()) + value
    }
}

/// The attributes of one inode, by where they go; sorted as the kernel looks them up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Placed<'a> {
    pub(super) body: Vec<Attribute<'a>>,
    pub(super) block: Vec<Attribute<'a>>,
}

/// Room for attributes in one file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct XattrShape {
    /// Bytes from the first entry in an inode to its end; 0 if it holds none.
    pub(super) body_room: usize,
    /// Bytes from the first entry in a block to its end.
    pub(super) block_room: usize,
    /// Values may have inodes of their own.
    apart: bool,
}

impl XattrShape {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let fields = GOOD_OLD_INODE_SIZE + usize::from(FULL_EXTRA_ISIZE) + XATTR_IBODY_HEADER_LEN;
        Self {
            body_room: usize::from(geometry.inode_size).saturating_sub(fields),
            block_room: geometry.block_size.len() - XATTR_BLOCK_HEADER_LEN,
            apart: geometry.features.incompat.contains(Incompat::EA_INODE),
        }
    }

    /// Places the attributes of an inode.
    ///
    /// # Errors
    /// [`Error::XattrsTooBig`]; [`Error::Unsupported`] and [`Error::Invalid`] for what cannot be an
    /// attribute of such an inode, damaged ACLs.
    pub(super) fn place<'a>(
        &self,
        file_type: FileType,
        xattrs: &'a [(Vec<u8>, Vec<u8>)],
    ) -> Result<Placed<'a>> {
        let mut placed = Placed::default();
        if xattrs.is_empty() {
            return Ok(placed);
        }
        let mut body_left = self.body_room.saturating_sub(END_LEN);
        for mut attribute in sorted(file_type, xattrs)? {
            // Too large for any block, by the kernel's rule.
            let largest = self
                .block_room
                .saturating_sub(entry_len(SHORT_NAME_LEN) + END_LEN);
            attribute.apart = self.apart && attribute.value.len() > largest;
            if attribute.len() <= body_left {
                body_left -= attribute.len();
                placed.body.push(attribute);
            } else {
                placed.block.push(attribute);
            }
        }
        self.fit_block(&mut placed.block)?;
        Ok(placed)
    }

    /// Moves values out of the block, the largest first, until it holds what is left.
    fn fit_block(&self, block: &mut [Attribute<'_>]) -> Result<()> {
        loop {
            let need = END_LEN + block.iter().map(Attribute::len).sum::<usize>();
            if need <= self.block_room {
                return Ok(());
            }
            let movable = block.iter_mut().filter(|a| self.apart && !a.apart);
            match movable
                .max_by_key(|a| a.value.len())
                .filter(|a| !a.value.is_empty())
            {
                Some(largest) => largest.apart = true,
                None => {
                    return Err(Error::XattrsTooBig {
                        need: need as u64,
                        room: self.block_room as u64,
                    });
                }
            }
        }
    }
}

/// The attributes in stored form, by index, length of name, name.
fn sorted<'a>(file_type: FileType, xattrs: &'a [(Vec<u8>, Vec<u8>)]) -> Result<Vec<Attribute<'a>>> {
    let mut list = Vec::with_capacity(xattrs.len());
    for (full, value) in xattrs {
        let unsupported = || Error::Unsupported {
            what: format!("extended attribute {}", String::from_utf8_lossy(full)),
        };
        let (index, name) = split_name(full).ok_or_else(unsupported)?;
        if index == INDEX_SYSTEM {
            return Err(unsupported());
        }
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if value.len() > XATTR_SIZE_MAX {
            return Err(Error::XattrsTooBig {
                need: value.len() as u64,
                room: XATTR_SIZE_MAX as u64,
            });
        }
        let value = match index {
            INDEX_POSIX_ACL_ACCESS | INDEX_POSIX_ACL_DEFAULT => {
                let Some(disk) = acl(index, file_type, value)? else {
                    continue;
                };
                Cow::Owned(disk)
            }
            _ => Cow::Borrowed(value.as_slice()),
        };
        list.push(Attribute {
            index,
            name,
            value,
            apart: false,
        });
    }
    let key = |a: &Attribute<'a>| (a.index, a.name.len(), a.name);
    list.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    if list.windows(2).any(|pair| key(&pair[0]) == key(&pair[1])) {
        return Err(Error::Invalid {
            what: "an extended attribute is there twice",
        });
    }
    Ok(list)
}

/// The stored form of an ACL; `None` if there is nothing to store because the mode says it all.
fn acl(index: u8, file_type: FileType, wire: &[u8]) -> Result<Option<Vec<u8>>> {
    let acl = Acl::parse_wire(wire).map_err(not_an_acl)?;
    if acl.entries.is_empty() {
        return Ok(None);
    }
    acl.validate().map_err(not_an_acl)?;
    if index == INDEX_POSIX_ACL_ACCESS {
        if file_type == FileType::Symlink {
            return Err(Error::Invalid {
                what: "an ACL of a symbolic link",
            });
        }
        return Ok((!acl.is_minimal()).then(|| acl.to_disk()));
    }
    if file_type != FileType::Directory {
        return Err(Error::Invalid {
            what: "a default ACL of what is no directory",
        });
    }
    Ok(Some(acl.to_disk()))
}

/// A damaged ACL in the request is no damage of the image.
fn not_an_acl(damage: Damage) -> Error {
    let what = match damage {
        Damage::Acl { why } => why,
        _ => "an ACL that is none",
    };
    Error::Invalid { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(apart: bool) -> XattrShape {
        XattrShape {
            body_room: 92,
            block_room: 1024 - 32,
            apart,
        }
    }

    fn pairs(list: &[(&str, usize)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let pair = |&(name, len): &(&str, usize)| (name.as_bytes().to_vec(), vec![7; len]);
        list.iter().map(pair).collect()
    }

    #[test]
    fn body_first_then_block() {
        let xattrs = pairs(&[("user.b", 100), ("user.a", 40), ("security.x", 8)]);
        let placed = shape(false).place(FileType::Regular, &xattrs).unwrap();
        let names =
            |list: &[Attribute<'_>]| -> Vec<u8> { list.iter().map(|a| a.name[0]).collect() };
        assert_eq!(names(&placed.body), b"ax".to_vec());
        assert_eq!(names(&placed.block), b"b".to_vec());
    }

    #[test]
    fn largest_values_go_apart() {
        let xattrs = pairs(&[("user.a", 600), ("user.b", 500), ("user.c", 60_000)]);
        assert!(matches!(
            shape(false).place(FileType::Regular, &xattrs),
            Err(Error::XattrsTooBig { room: 992, .. })
        ));
        let placed = shape(true).place(FileType::Regular, &xattrs).unwrap();
        assert_eq!(placed.body.len(), 1);
        assert!(placed.body[0].apart && placed.body[0].name == b"c");
        let apart: Vec<_> = placed.block.iter().map(|a| (a.name, a.apart)).collect();
        assert_eq!(apart, [(&b"a"[..], true), (b"b", false)]);
    }

    #[test]
    fn what_is_no_attribute_is_refused() {
        for bad in ["nothing.a", "user.", "system.data"] {
            let xattrs = pairs(&[(bad, 1)]);
            let result = shape(true).place(FileType::Regular, &xattrs);
            assert!(matches!(result, Err(Error::Unsupported { .. })), "{bad}");
        }
        let twice = pairs(&[("user.a", 1), ("user.a", 1)]);
        let result = shape(true).place(FileType::Regular, &twice);
        assert!(matches!(result, Err(Error::Invalid { .. })));
    }
}
