//! Compares block bitmaps and counts with the blocks found in use.

use uext4_ondisk::features::Incompat;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::num::{index, len64};
use uext4_ondisk::xattr::verify_block;
use uext4_ondisk::{Damage, GroupNr, Pblk};

use super::{Checker, Issue};
use crate::alloc::bitmap;
use crate::base::error::Error;

/// The clusters for which bitmap and owners differ in one way.
#[derive(Default)]
struct Differ {
    count: u32,
    first: Option<u64>,
}

impl Differ {
    fn add(&mut self, cluster: u64) {
        self.count = self.count.saturating_add(1);
        self.first.get_or_insert(cluster);
    }
}

impl Checker<'_> {
    /// Claims the blocks of a group's own structures: backups, bitmaps, inode table.
    pub(super) fn claim_group(&mut self, group: GroupNr, desc: &GroupDesc, first_window: bool) {
        let geometry = self.sbi.geometry();
        let base = geometry.group_base_blocks(group);
        let table = geometry.itable_blocks();
        let places = [
            (
                "superblock and descriptors",
                geometry.group_start(group),
                base,
            ),
            ("block bitmap", desc.block_bitmap, 1),
            ("inode bitmap", desc.inode_bitmap, 1),
            ("inode table", desc.inode_table, table),
        ];
        for (what, start, len) in places.into_iter().filter(|p| p.2 > 0) {
            if !geometry.contains(start, len.into()) {
                let damage = Damage::DescLocation {
                    group,
                    what,
                    block: start,
                };
                self.report_once(first_window, None, Error::Corrupt(damage));
                continue;
            }
            self.claim_metadata(start, len);
        }
    }

    /// Claims the block of multiple mount protection, which belongs to no group and no inode.
    pub(super) fn claim_mmp_block(&mut self, first_window: bool) {
        let features = self.sbi.geometry().features;
        if !features.incompat.contains(Incompat::MMP) {
            return;
        }
        let block = Pblk(self.sbi.superblock().s_mmp_block.get());
        match self.sbi.check_range("MMP block", block, 1) {
            Ok(()) => self.claim_metadata(block, 1),
            Err(error) => self.report_once(first_window, None, error),
        }
    }

    /// Claims blocks of the file system itself, which lie in it.
    fn claim_metadata(&mut self, start: Pblk, len: u32) {
        let clusters = super::clusters(self.sbi, start, len);
        let taken = self.usage.claim(clusters);
        // Small structures of several groups may share a cluster.
        if let Some(cluster) = taken.filter(|_| self.sbi.geometry().cluster_bits == 0) {
            let block = super::first_block(self.sbi, cluster);
            self.report(Issue::SharedBlock { block, ino: None });
        }
    }

    /// Compares a group's bitmap and free count with the owners found. Returns the number of free
    /// clusters.
    pub(super) fn block_bitmap(&mut self, group: GroupNr, desc: &GroupDesc) -> u64 {
        let geometry = self.sbi.geometry();
        let first = super::clusters(self.sbi, geometry.group_start(group), 1).start;
        let blocks = geometry.blocks_in_group(group);
        let count = blocks.div_ceil(1 << geometry.cluster_bits);
        let bitmap = match bitmap::block_bitmap(self.sbi, group) {
            Ok(bitmap) => bitmap,
            Err(error) => {
                self.report_error(None, error);
                let free = (first..).take(index(count));
                return len64(free.filter(|i| !self.usage.is_claimed(*i)).count());
            }
        };
        let (mut free, mut unmarked, mut unowned) = (0u32, Differ::default(), Differ::default());
        for (i, cluster) in (0..count).zip(first..) {
            let owned = self.usage.is_claimed(cluster);
            free = free.saturating_add(u32::from(!owned));
            match (owned, super::bit(&bitmap, i)) {
                (true, false) => unmarked.add(cluster),
                (false, true) => unowned.add(cluster),
                _ => {}
            }
        }
        if let Some(cluster) = unmarked.first {
            let first = super::first_block(self.sbi, cluster);
            self.report(Issue::BlocksNotMarked {
                group,
                count: unmarked.count,
                first,
            });
        }
        if let Some(cluster) = unowned.first {
            let first = super::first_block(self.sbi, cluster);
            self.report(Issue::BlocksUnowned {
                group,
                count: unowned.count,
                first,
            });
        }
        if !super::all_set(&bitmap, count) {
            self.report(Issue::BitmapPadding {
                group,
                what: "block bitmap",
            });
        }
        self.compare_count(group, "free blocks", [desc.free_clusters, free]);
        free.into()
    }

    /// Compares the reference counts of the xattr blocks found in this window.
    pub(super) fn xattr_refcounts(&mut self) {
        let mut refs: Vec<(Pblk, u32)> = std::mem::take(&mut self.xattr_refs).into_iter().collect();
        refs.sort_unstable();
        for (block, counted) in refs {
            // On a file system mounted for writing, the journal's commit stores the count: it is
            // read from memory first, as the commit removes it there.
            let rw = self.sbi.rw();
            let gathered = rw.and_then(|rw| rw.xattrs.blocks.counts.users(block.0));
            // Errors of the block itself were reported with the inode that refers to it.
            let Ok(data) = crate::xattr::read_block(self.sbi, block) else {
                continue;
            };
            let Ok(header) = verify_block(&data, block, None) else {
                continue;
            };
            let stored = gathered.unwrap_or(header.h_refcount.get());
            if stored != counted {
                self.report(Issue::XattrRefcount {
                    block,
                    stored,
                    counted,
                });
            }
        }
    }
}
