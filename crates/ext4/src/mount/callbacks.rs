//! What happens once a commit: descriptors, the superblock and counts of users are encoded,
//! blocks get their checksums, freed blocks become free.

use std::error::Error as StdError;

use uext4_buffer_cache::{Buffer, ChecksumRule};
use uext4_jbd2::{CommitCallbacks, PreCommit, Tid};
use uext4_ondisk::superblock::SUPERBLOCK_OFFSET;
use uext4_ondisk::{Ino, Pblk, dir_entry, extent, htree, orphan, xattr};
use zerocopy::IntoBytes;

use crate::base::edit::Edit;
use crate::base::error::Result;
use crate::base::owner::{Kind, Owner};
use crate::dir::dx_entries_offset;
use crate::journal::sbi::Sbi;
use crate::mount::grow;

/// Changes blocks of a transaction that is being closed.
struct Closing<'a>(&'a Sbi, &'a PreCommit<'a>);

impl Edit for Closing<'_> {
    fn change<R>(&self, buffer: &Buffer, owner: Owner, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.1.modify(buffer, owner.tag(), owner.rule(), f)
    }

    fn fresh(&self, block: Pblk) -> Buffer {
        self.0.cache().getblk_new(block)
    }
}

impl Sbi {
    /// Puts the superblock into its block.
    fn checksum_superblock(&self, closing: &Closing<'_>) -> Result<()> {
        let Some(superblock) = self.rw().and_then(|rw| rw.take_superblock()) else {
            return Ok(());
        };
        let owner = Owner::of(Kind::Superblock);
        let size = self.geometry().block_size;
        let block = Pblk(SUPERBLOCK_OFFSET >> size.log2());
        let at = SUPERBLOCK_OFFSET as usize & (size.len() - 1);
        let buffer = self.cache().bread(block, owner.tag(), |_| Ok(()))?;
        closing.change(&buffer, owner, |bytes| {
            let bytes = &mut bytes[at..at + size_of_val(&superblock)];
            bytes.copy_from_slice(superblock.as_bytes());
        });
        Ok(())
    }
}

impl CommitCallbacks for Sbi {
    fn before_commit(
        &self,
        pre_commit: &PreCommit<'_>,
    ) -> std::result::Result<(), Box<dyn StdError>> {
        let closing = Closing(self, pre_commit);
        if let Some(rw) = self.rw() {
            rw.inodes.store_later(self, &closing, pre_commit.tid())?;
            rw.xattrs.store_counts(&closing)?;
            if let Some(quotas) = &rw.quotas {
                quotas.rule(&closing);
            }
            if rw.groups.rule(self, &closing)? {
                rw.superblock_is_stale();
            }
            grow::carry_out(self, &closing, pre_commit.tid())?;
        }
        Ok(self.checksum_superblock(&closing)?)
    }

    fn rule(&self, rule: ChecksumRule, block: Pblk, bytes: &mut [u8]) {
        let Some(seed) = self.geometry().csum_seed else {
            return;
        };
        let owned = seed.inode(Ino(rule.owner), rule.generation);
        match Kind::of_rule(rule.kind) {
            Kind::DirFirst | Kind::Dir => match dx_node_offset(bytes, rule) {
                Some(offset) => htree::update_tail(bytes, offset, owned),
                None => dir_entry::update_tail(bytes, owned),
            },
            Kind::Xattr => xattr::update_checksum(bytes, block, seed),
            Kind::Orphan => orphan::update_tail(bytes, block, Some(owned)),
            Kind::Extent => extent::update_tail(bytes, owned),
            // Summed where they are changed, or not at all.
            Kind::GroupDesc
            | Kind::Superblock
            | Kind::InodeTable
            | Kind::Indirect
            | Kind::Bitmap
            | Kind::Quota
            | Kind::Data => {}
        }
    }

    fn after_commit(&self, tid: Tid) {
        if let Some(rw) = self.rw() {
            // Under the lock of the log: no checkpoint comes before it.
            grow::write_home(self, rw);
            rw.give_freed(tid);
        }
    }

    fn commit_ended(&self) {
        if let Some(rw) = self.rw() {
            rw.discards.committed(|| rw.settle_freed(self));
        }
    }
}

/// Where the hashes start if a block of a directory with checksums is the root or an inner node of
/// an htree: only these have a record that reaches the end, where others have their checksum.
fn dx_node_offset(bytes: &[u8], rule: ChecksumRule) -> Option<usize> {
    if Kind::of_rule(rule.kind) == Kind::DirFirst {
        return htree::is_root(bytes).then_some(htree::DX_ROOT_ENTRIES_OFFSET);
    }
    dx_entries_offset(bytes, uext4_ondisk::Lblk(1))
}

#[cfg(test)]
mod tests {
    use uext4_jbd2::CommitCallbacks;
    use uext4_ondisk::inode::FileType;

    use crate::inode::store::store;
    use crate::orphan::change::set_next;
    use crate::testing::{mke2fs, mount, new_inode, unmount_and_check};

    #[test]
    fn waiting_for_a_commit_does_not_wait_for_the_allocator() {
        let device = mke2fs("-t ext4", 65_536);
        let sbi = mount(&device);
        let rw = sbi.rw().unwrap();
        let handle = sbi.start(8).unwrap();
        let block = handle.take_block(uext4_ondisk::Pblk(0)).unwrap();
        let before = rw.allocator.free_blocks();
        handle.free_blocks(block, 1).unwrap();
        let tid = handle.tid();
        drop(handle);
        sbi.after_commit(tid);
        assert_eq!(rw.allocator.free_blocks(), before);
        sbi.commit_ended();
        assert_eq!(rw.allocator.free_blocks(), before + 1);
        unmount_and_check(&sbi, &device);
    }

    #[test]
    fn reserving_and_releasing_leaves_a_clean_file_system() {
        for flags in [
            "-t ext4",
            "-t ext4 -b 1024",
            "-t ext2",
            "-t ext3 -O ^dir_index",
        ] {
            let device = mke2fs(flags, 65_536);
            let sbi = mount(&device);
            for _ in 0..3 {
                let handle = sbi.start(64).unwrap();
                let inodes: Vec<_> = [FileType::Regular, FileType::Directory]
                    .map(|kind| new_inode(&handle, kind))
                    .into();
                let blocks: Vec<_> = (0..20)
                    .map(|i| handle.take_block(uext4_ondisk::Pblk(i * 700)).unwrap())
                    .collect();
                drop(handle);
                sbi.rw().unwrap().journal.commit_now(&*sbi).unwrap();
                let handle = sbi.start(64).unwrap();
                for mut inode in inodes {
                    inode.links = 0;
                    set_next(&sbi, &handle, inode.id(), 1_700_000_000).unwrap();
                    store(&handle, &sbi, &inode).unwrap();
                    let is_dir = inode.file_type == FileType::Directory;
                    handle.free_inode(inode.ino, is_dir).unwrap();
                }
                for block in blocks {
                    handle.free_metadata(block, 1).unwrap();
                }
            }
            unmount_and_check(&sbi, &device);
        }
    }
}
