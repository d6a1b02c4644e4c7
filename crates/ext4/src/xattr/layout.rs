//! Where the extended attributes of an inode go: its body first, then a block, and values that fit
//! neither into inodes of their own where the file system has them.
//!
//! Pure, as the layout of directories is: space can be reckoned before anything exists.

use std::borrow::Cow;

use uext4_ondisk::Geometry;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FULL_EXTRA_ISIZE, FileType, GOOD_OLD_INODE_SIZE};
use uext4_ondisk::xattr::{
    INDEX_SYSTEM, INLINE_DATA_NAME, XATTR_BLOCK_HEADER_LEN, XATTR_IBODY_HEADER_LEN, XATTR_NAME_MAX,
    XATTR_SIZE_MAX, entry_len, split_name, value_len,
};

use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::xattr::acl::{self, AclKind};
use crate::xattr::check_no_zero;

/// Bytes that end a list of entries.
const END_LEN: usize = 4;
/// Shortest name there is, for the kernel's rule on large values.
const SHORT_NAME_LEN: usize = 3;

/// An attribute as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute<'a> {
    pub(crate) index: u8,
    pub(crate) name: &'a [u8],
    pub(crate) value: Cow<'a, [u8]>,
    /// The value has an inode of its own.
    pub(crate) apart: bool,
}

impl Attribute<'_> {
    /// Bytes of its entry, and of its value if that is next to it.
    pub(crate) fn len(&self) -> usize {
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
pub(crate) struct Placed<'a> {
    pub(crate) body: Vec<Attribute<'a>>,
    pub(crate) block: Vec<Attribute<'a>>,
}

/// Space for attributes in one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XattrShape {
    /// Bytes from the first entry in an inode to its end; 0 if it holds none.
    pub(crate) body_room: usize,
    /// Bytes from the first entry in a block to its end.
    pub(crate) block_room: usize,
    /// Values may have inodes of their own.
    apart: bool,
}

impl XattrShape {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let fields = GOOD_OLD_INODE_SIZE + usize::from(FULL_EXTRA_ISIZE) + XATTR_IBODY_HEADER_LEN;
        Self {
            body_room: usize::from(geometry.inode_size).saturating_sub(fields),
            block_room: geometry.block_size.len() - XATTR_BLOCK_HEADER_LEN,
            apart: geometry.features.incompat.contains(Incompat::EA_INODE),
        }
    }

    /// Whether values may have inodes of their own.
    pub(crate) fn has_apart(&self) -> bool {
        self.apart
    }

    /// Whether a value has its own inode wherever its entry lies: it is too large for any block, by
    /// the kernel's rule.
    pub(crate) fn goes_apart(&self, value_len: usize) -> bool {
        let largest = self
            .block_room
            .saturating_sub(entry_len(SHORT_NAME_LEN) + END_LEN);
        self.apart && value_len > largest
    }

    /// Whether the body of an inode of this type may hold an entry whose value is `apart` or not.
    ///
    /// A value apart adds to the blocks of its inode, and e2fsck takes a symbolic link with blocks
    /// but without a block of attributes for one whose target lies in a block.
    pub(crate) fn body_takes(file_type: FileType, apart: bool) -> bool {
        file_type != FileType::Symlink || !apart
    }

    /// Bytes of inline data that `system.data` can hold in a body whose other entries take
    /// `entries` bytes; `None` if there is no space even for its entry.
    pub(crate) fn inline_room(&self, entries: usize) -> Option<usize> {
        let own = entry_len(INLINE_DATA_NAME.len());
        // Values take whole words.
        let room = self.body_room.checked_sub(END_LEN + entries + own)?;
        Some(room & !3)
    }

    /// Places the attributes of an inode.
    pub(crate) fn place<'a>(
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
            attribute.apart = self.goes_apart(attribute.value.len());
            let in_body = Self::body_takes(file_type, attribute.apart);
            if in_body && attribute.len() <= body_left {
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
        list.extend(stored(file_type, full, value)?);
    }
    let key = |a: &Attribute<'a>| sort_key(a.index, a.name);
    list.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    if list.windows(2).any(|pair| key(&pair[0]) == key(&pair[1])) {
        return Err(Error::Invalid(Invalid::SameXattr));
    }
    Ok(list)
}

/// By what the entries of a block are sorted, so that the kernel finds them.
pub(crate) fn sort_key(index: u8, name: &[u8]) -> (u8, usize, &[u8]) {
    (index, name.len(), name)
}

/// An attribute in stored form; `None` for an ACL that the mode says as well.
fn stored<'a>(
    file_type: FileType,
    full: &'a [u8],
    value: &'a [u8],
) -> Result<Option<Attribute<'a>>> {
    let unsupported = || Error::Unsupported {
        what: format!("extended attribute {}", String::from_utf8_lossy(full)),
    };
    let (index, name) = split_name(full).ok_or_else(unsupported)?;
    if index == INDEX_SYSTEM {
        return Err(unsupported());
    }
    if name.len() > XATTR_NAME_MAX {
        return Err(Error::NameTooLong);
    }
    check_no_zero(name)?;
    if value.len() > XATTR_SIZE_MAX {
        return Err(Error::XattrsTooBig {
            need: value.len() as u64,
            room: XATTR_SIZE_MAX as u64,
        });
    }
    let value = match AclKind::of_index(index) {
        Some(kind) => {
            let acl = acl::from_wire(kind, file_type, value)?;
            match acl.filter(|acl| kind == AclKind::Default || !acl.is_minimal()) {
                Some(acl) => Cow::Owned(acl.to_disk()),
                None => return Ok(None),
            }
        }
        None => Cow::Borrowed(value),
    };
    Ok(Some(Attribute {
        index,
        name,
        value,
        apart: false,
    }))
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
    fn invalid_attributes_are_refused() {
        for bad in ["nothing.a", "user.", "system.data"] {
            let xattrs = pairs(&[(bad, 1)]);
            let result = shape(true).place(FileType::Regular, &xattrs);
            assert!(matches!(result, Err(Error::Unsupported { .. })), "{bad}");
        }
        for bad in [
            &[("user.a", 1), ("user.a", 1)][..],
            &[("user.a\0", 1)],
            &[("security.\0\0", 1)],
        ] {
            let xattrs = pairs(bad);
            let result = shape(true).place(FileType::Regular, &xattrs);
            assert!(matches!(result, Err(Error::Invalid { .. })), "{bad:?}");
        }
    }
}
