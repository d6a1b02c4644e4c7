//! Information about the inodes in a window of groups: six bytes each, and only for groups that
//! have inodes in use.

use std::num::NonZeroU32;
use std::ops::Range;

use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino};

use crate::inode::Inode;

/// Maximum number of inodes of a window: 96 MiB.
pub(super) const WINDOW_INODES: u32 = 1 << 24;

/// Information about an inode in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its type, if it is in use.
    pub(super) file_type: Option<FileType>,
    /// `i_links_count`.
    pub(super) stored: u16,
    /// Number of names counted, up to 65,535.
    pub(super) names: u16,
}

/// The inodes of a range of groups.
#[derive(Debug)]
pub(super) struct Table {
    groups: Range<u32>,
    per_group: NonZeroU32,
    seen: Vec<Option<Box<[Seen]>>>,
}

impl Table {
    /// Creates an empty table for `groups`.
    pub(super) fn new(groups: Range<u32>, per_group: NonZeroU32) -> Self {
        let seen = groups.clone().map(|_| None).collect();
        Self {
            groups,
            per_group,
            seen,
        }
    }

    /// The entry of an inode, created if necessary; `None` outside the window.
    pub(super) fn entry(&mut self, ino: Ino) -> Option<&mut Seen> {
        let (slot, at) = self.place(ino)?;
        let per_group = index(self.per_group.get());
        let group = self.seen.get_mut(slot)?;
        group
            .get_or_insert_with(|| vec![Seen::default(); per_group].into())
            .get_mut(at)
    }

    /// Adds an inode in use, if it is in the window. Inodes of attribute values are not added, as
    /// they have no names.
    pub(super) fn add(&mut self, inode: &Inode) {
        let is_value = inode.has(InodeFlags::EA_INODE);
        if let Some(seen) = self.entry(inode.ino).filter(|_| !is_value) {
            seen.file_type = Some(inode.file_type);
            seen.stored = inode.links;
        }
    }

    /// The entries of one group.
    pub(super) fn group(&self, group: GroupNr) -> &[Seen] {
        let slot = group.0.checked_sub(self.groups.start).map(index);
        slot.and_then(|s| self.seen.get(s))
            .and_then(Option::as_deref)
            .unwrap_or_default()
    }

    /// The groups of this window.
    pub(super) fn groups(&self) -> Range<u32> {
        self.groups.clone()
    }

    fn place(&self, ino: Ino) -> Option<(usize, usize)> {
        let number = ino.0.checked_sub(1)?;
        let slot = (number / self.per_group).checked_sub(self.groups.start)?;
        Some((index(slot), index(number % self.per_group)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_is_stored() {
        let mut table = Table::new(2..4, NonZeroU32::new(8).unwrap());
        assert!(table.entry(Ino(16)).is_none());
        table.entry(Ino(17)).unwrap().file_type = Some(FileType::Regular);
        assert!(table.entry(Ino(33)).is_none());
        assert_eq!(table.group(GroupNr(2)).len(), 8);
        assert!(table.group(GroupNr(2))[0].file_type.is_some());
        assert!(table.group(GroupNr(3)).is_empty());
    }
}
