//! Orphans: inodes that still have to be deleted or truncated to their size, and which inodes may
//! be orphans.
//!
//! An orphan is in the state that a crash left: a removed directory still has its "." and "..",
//! whose links are no longer counted, and a file that is being truncated maps blocks past its
//! size. The next mount for writing completes the operation, so none of this is an issue.

use uext4_ondisk::Ino;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::num::len64;

use super::{Checker, Issue};
use crate::alloc::bitmap;
use crate::dir::namei;
use crate::inode::{Inode, iget};
use crate::map::map_blocks;

impl Checker<'_> {
    /// Reads the orphans and reports those that cannot be orphans.
    pub(super) fn read_orphans(&mut self) {
        let orphans = match crate::orphan::orphans(self.sbi, map_blocks) {
            Ok(orphans) => orphans,
            Err(error) => return self.report_error(None, error),
        };
        for ino in orphans {
            match self.is_no_orphan(ino) {
                Some(why) => self.report(Issue::Orphan { ino, why }),
                None => _ = self.orphans.insert(ino),
            }
        }
        self.summary.orphans = len64(self.orphans.len());
    }

    /// The reason for which the kernel rejects an inode as an orphan.
    fn is_no_orphan(&self, ino: Ino) -> Option<&'static str> {
        if namei::is_hidden(self.sbi, ino) || ino == Ino::ROOT {
            return Some("it is the file system's own");
        }
        let place = self.sbi.geometry().inode_group(ino);
        let bitmap = place.map(|(group, _)| bitmap::inode_bitmap(self.sbi, group));
        match (place, bitmap) {
            (Some((_, index)), Some(Ok(bitmap))) if !super::bit(&bitmap, index) => {
                return Some("the inode bitmap marks it free");
            }
            (None, _) => return Some("there is no such inode"),
            _ => {}
        }
        // Errors of the inode itself are reported with its table.
        let inode = iget(self.sbi, ino).ok()?;
        let can_be_cut = matches!(
            inode.file_type,
            FileType::Regular | FileType::Directory | FileType::Symlink
        );
        (inode.links > 0 && !can_be_cut).then_some("it has links, and nothing of it can be cut")
    }

    /// Whether the inode still has to be deleted or truncated to its size.
    pub(super) fn is_orphan(&self, ino: Ino) -> bool {
        self.orphans.contains(&ino)
    }

    /// Whether a directory was removed and still has to be deleted: its "." and ".." no longer
    /// count.
    pub(super) fn is_removed(&self, dir: &Inode) -> bool {
        dir.links == 0 && self.is_orphan(dir.ino)
    }
}
