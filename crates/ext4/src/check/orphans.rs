//! Orphans: inodes that wait to be deleted or cut to their size, and what may be one.
//!
//! An orphan is as a crash left it: a removed directory still has its "." and "..", whose links are
//! already taken back, and a file that is being cut maps blocks past its size. The next opening for
//! writing finishes that, so none of it is an issue.

use uext4_ondisk::Ino;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::num::len64;

use super::{Checker, Issue};
use crate::alloc::bitmap;
use crate::dir::namei;
use crate::inode::{Inode, iget};
use crate::map::map_blocks;

impl Checker<'_> {
    /// Reads the orphans and reports those that cannot be any.
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

    /// Why the kernel refuses to take an inode for an orphan.
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
        // What is wrong with the inode itself is reported with its table.
        let inode = iget(self.sbi, ino).ok()?;
        let can_be_cut = matches!(
            inode.file_type,
            FileType::Regular | FileType::Directory | FileType::Symlink
        );
        (inode.links > 0 && !can_be_cut).then_some("it has links, and nothing of it can be cut")
    }

    /// Whether the inode waits to be deleted or cut to its size.
    pub(super) fn is_orphan(&self, ino: Ino) -> bool {
        self.orphans.contains(&ino)
    }

    /// Whether a directory has been removed and waits to be deleted: its "." and ".." count no
    /// more.
    pub(super) fn is_removed(&self, dir: &Inode) -> bool {
        dir.links == 0 && self.is_orphan(dir.ino)
    }
}
