//! The inodes of the file system itself.

use uext4_ondisk::Ino;
use uext4_ondisk::superblock::SuperBlock;

use crate::error::Result;
use crate::state::State;

/// The inodes that the superblock names; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct System {
    journal: u32,
    quotas: [u32; 3],
    orphan_file: u32,
}

impl System {
    pub fn new(superblock: &SuperBlock) -> Self {
        Self {
            journal: superblock.s_journal_inum.get(),
            quotas: [
                superblock.s_usr_quota_inum.get(),
                superblock.s_grp_quota_inum.get(),
                superblock.s_prj_quota_inum.get(),
            ],
            orphan_file: superblock.s_orphan_file_inum.get(),
        }
    }

    /// Whether the superblock names this inode.
    pub fn is_named(&self, ino: Ino) -> bool {
        let all = [self.journal, self.orphan_file];
        all.contains(&ino.0) || self.quotas.contains(&ino.0)
    }
}

/// Makes a root directory, if there is none.
pub fn root(_state: &State<'_>) -> Result<()> {
    Ok(())
}
