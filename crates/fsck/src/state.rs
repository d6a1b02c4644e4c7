//! What the passes know together.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use uext4_blockdev::Scratch;
use uext4_ondisk::extent::Extent;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::{Geometry, Ino, Pblk};

use crate::clusters::ClusterSet;
use crate::directory_list::DirectoryList;
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::held::Held;
use crate::inode_map::InodeMap;
use crate::memory;
use crate::options::Options;
use crate::repeats::Repeats;
use crate::report::{Cause, Findings};
use crate::tree::Tree;
use crate::usage::Usage;
use crate::volume::Volume;
use crate::xattr_blocks::XattrBlocks;

/// A file system under examination.
pub struct State<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// Where findings go.
    pub findings: &'a Findings<'a>,
    /// The file system as it will be.
    pub volume: Volume,
    /// Where the tables of clusters and inodes are.
    pub scratch: Arc<Scratch>,
    /// Clusters that have an owner.
    pub used: ClusterSet,
    /// Clusters that have more than one owner.
    pub shared: ClusterSet,
    /// Clusters of the file system's own: superblocks, descriptors, bitmaps and inode tables.
    pub metadata: ClusterSet,
    /// What is known of each inode.
    pub inodes: InodeMap,
    /// The directories in use; sorted when the pass over inodes has ended.
    pub directories: DirectoryList,
    /// References to each block of extended attributes, from inodes in use.
    pub xattr_blocks: XattrBlocks,
    /// References to each inode that holds the value of an attribute; see [`crate::xattr`].
    pub ea_inodes: Mutex<HashMap<Ino, u32, FxBuildHasher>>,
    /// What each owner uses, if there are quota files.
    pub usage: Mutex<Usage>,
    /// How much was walked again of maps that several inodes claim.
    pub repeats: Repeats,
    /// What orphans held, which bitmaps, counts and quotas still say is in use.
    pub held: Mutex<Held>,
    /// How directories hang together; filled by the pass over directories.
    pub tree: Tree,
}

impl<'a> State<'a> {
    /// Nothing known yet but the file system's shape.
    pub fn new(options: &'a Options, findings: &'a Findings<'a>, volume: Volume) -> Self {
        let geometry = volume.geometry();
        let scratch = Arc::new(Scratch::new(memory::of_tables(options)));
        Self {
            options,
            findings,
            used: ClusterSet::new(geometry, &scratch),
            shared: ClusterSet::new(geometry, &scratch),
            metadata: ClusterSet::new(geometry, &scratch),
            inodes: InodeMap::new(geometry, &scratch),
            scratch,
            directories: DirectoryList::default(),
            xattr_blocks: XattrBlocks::default(),
            ea_inodes: Mutex::default(),
            usage: Mutex::default(),
            repeats: Repeats::default(),
            held: Mutex::default(),
            tree: Tree::default(),
            volume,
        }
    }

    /// Ends a pass, with what could not lie in the temporary file.
    ///
    /// # Errors
    /// [`Error::Spill`].
    pub fn finish_pass(&self) -> Result<()> {
        self.findings.finish_pass();
        self.scratch.check().map_err(Error::Spill)
    }

    /// The shape of the file system.
    pub fn geometry(&self) -> &Geometry {
        self.volume.geometry()
    }

    /// Reports a finding and returns the cause of the changes that mend it.
    pub fn report(&self, finding: Finding) -> Cause {
        self.findings.report(finding)
    }

    /// Whether a block belongs to the file system itself. Only once they are all known: in the
    /// pass over inodes, after its first step.
    pub fn is_metadata(&self, block: Pblk) -> bool {
        self.metadata
            .contains_any(self.metadata.of_blocks(block, 1))
    }

    /// Whether any block of an extent belongs to the file system itself.
    pub fn touches_metadata(&self, extent: &Extent) -> bool {
        let clusters = self.metadata.of_blocks(extent.pblk, extent.len.into());
        self.metadata.contains_any(clusters)
    }

    /// Whether a block has more than one owner.
    pub fn is_shared(&self, block: Pblk) -> bool {
        self.shared.contains_any(self.shared.of_blocks(block, 1))
    }

    /// Frees clusters, but for those that have another owner; with `shared_blocks` any may have
    /// one.
    pub fn free(&self, clusters: Range<u64>) {
        let features = self.geometry().features.ro_compat;
        if features.contains(RoCompat::SHARED_BLOCKS) {
            return;
        }
        for cluster in clusters.filter(|&cluster| !self.shared.contains(cluster)) {
            self.used.remove(cluster..cluster.saturating_add(1));
        }
    }

    /// Takes `blocks` (of one cluster at most without `bigalloc`; a whole number of clusters is
    /// taken) free blocks at one stretch, near `goal`, for `what`. Only once all owners are known:
    /// after the pass over inodes. The content is not changed.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn allocate(&self, goal: Pblk, blocks: u64, what: &'static str) -> Result<Pblk> {
        let wanted = self.used.of_blocks(self.used.first_block(0), blocks);
        let wanted = wanted.end.max(1);
        let goal = self.used.of_blocks(goal, 1).start;
        let found = [goal, 0]
            .into_iter()
            .find_map(|start| self.used.take_run(start..self.used.clusters(), wanted));
        match found {
            Some(cluster) => Ok(self.used.first_block(cluster)),
            None => Err(Error::NoSpace { what }),
        }
    }
}
