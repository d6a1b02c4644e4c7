//! Finishes the file system: lays out directories, stores counts and checksums, and writes the
//! superblock last.

use std::num::NonZeroUsize;

use parking_lot::Mutex;
use uext4_mballoc::Run;
use uext4_ondisk::extent::Extent;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{InodeFlags, RawInode};
use uext4_ondisk::pack::directory::{Layout, Plan};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk};
use zerocopy::IntoBytes;

use super::directory::Directory;
use super::quota::Share;
use super::sectors::{add_sectors, sectors};
use super::{Creator, itable, threads};
use crate::base::edit::Direct;
use crate::base::error::{Error, Result};
use crate::base::mapping::MapState;
use crate::dir::read_dir;
use crate::inode::{Inode, LINKS_MAX, iget};
use crate::map::MapCursor;

/// Number of names from which all threads plan one directory together.
const LARGE_NAMES: usize = 1 << 15;
/// Number of names and directories that are laid out at a time: bounds the memory of plans.
const BATCH: usize = 1 << 18;
/// Number of directories that a thread plans before it takes the next ones.
const PLANS: usize = 32;
/// Number of blocks that a thread fills and writes at a time.
const FILLS: usize = 64;

/// A block of a directory that is to be filled.
#[derive(Clone, Copy, Debug)]
struct Fill {
    /// Index of the directory in its batch.
    directory: usize,
    lblk: u32,
    pblk: u64,
}

/// Cuts the list of directories into batches: only one that is larger alone is larger than
/// [`BATCH`].
fn batches<'a>(directories: &'a [&'a Directory]) -> impl Iterator<Item = &'a [&'a Directory]> {
    let mut rest = directories;
    std::iter::from_fn(move || {
        let mut names = 0;
        let fits = |directory: &&&Directory| {
            names += 1 + directory.len();
            names <= BATCH
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (batch, after) = rest.split_at(count.min(rest.len()));
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Counts of the finished file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Inodes of the file system.
    pub inodes: u32,
    /// Inodes that are free.
    pub free_inodes: u32,
    /// Blocks of the file system.
    pub blocks: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
}

impl Creator {
    /// Lays out the directories, writes all pending data, and makes the file system valid.
    ///
    /// # Errors
    /// [`Error::Exists`] if two names in a directory are equal, [`Error::FileTooBig`] for a
    /// directory that cannot contain its names, [`Error::TooManyLinks`] for more than 64,998
    /// subdirectories of a directory without `dir_nlink`, [`Error::NoSpace`], device errors. The
    /// file system then stays invalid.
    pub fn finish(mut self) -> Result<Summary> {
        self.begin()?;
        self.stage.flush()?;
        let directories = std::mem::take(&mut self.directories);
        for directory in directories.iter().filter(|d| d.changed) {
            self.space
                .give_back(&self.sbi, &self.groups, &directory.old_blocks)?;
        }
        let mut changed: Vec<&Directory> = Vec::new();
        for directory in directories.iter().filter(|d| d.changed) {
            if self.write_inline_directory(directory)? {
                self.update_links(directory)?;
            } else {
                changed.push(directory);
            }
        }
        for batch in batches(&changed) {
            let result = self.write_directories(batch);
            self.end(result)?;
        }
        self.write_quota_files()?;
        self.groups.store(&self.sbi, &Direct(&self.sbi))?;
        self.sbi.cache().write_dirty()?;
        self.write_superblocks()
    }

    /// Lays directories out: planned by several threads, placed one after the other, and filled
    /// by several threads again.
    fn write_directories(&mut self, batch: &[&Directory]) -> Result<()> {
        let plans = self.plan_directories(batch)?;
        let mut fills = Vec::new();
        for (i, (directory, plan)) in batch.iter().zip(&plans).enumerate() {
            self.place_directory(directory, plan)?;
            let blocks = |extent: &Extent| {
                let (lblk, pblk) = (extent.lblk.0, extent.pblk.0);
                (0..extent.len.into()).map(move |at| Fill {
                    directory: i,
                    lblk: lblk + at,
                    pblk: pblk + u64::from(at),
                })
            };
            fills.extend(self.scratch.extents.iter().flat_map(blocks));
            self.end(Ok(()))?;
        }
        self.fill_blocks(batch, &plans, &fills)
    }

    /// Plans directories: the large ones one after the other, all threads together; the others
    /// side by side. The error is that of the first in the list that has one.
    fn plan_directories(&self, batch: &[&Directory]) -> Result<Vec<Plan>> {
        let (shape, threads) = (&self.dir_shape, self.options.threads);
        let mut plans: Vec<Option<Result<Plan>>> = batch
            .iter()
            .map(|d| (d.len() >= LARGE_NAMES).then(|| d.plan(shape, threads)))
            .collect();
        let parts = plans.chunks_mut(PLANS).zip(batch.chunks(PLANS));
        threads::for_each(
            self.threads_for(batch.len()),
            parts,
            |(plans, directories)| {
                for (plan, directory) in plans.iter_mut().zip(directories) {
                    plan.get_or_insert_with(|| directory.plan(shape, NonZeroUsize::MIN));
                }
            },
        );
        plans.into_iter().flatten().collect()
    }

    /// The number of threads that so many small pieces of work are worth.
    fn threads_for(&self, pieces: usize) -> NonZeroUsize {
        let worth = NonZeroUsize::new(pieces / PLANS).unwrap_or(NonZeroUsize::MIN);
        self.options.threads.min(worth)
    }

    /// Allocates the blocks of a directory and stores their map; the extents are then in the
    /// scratch lists.
    fn place_directory(&mut self, directory: &Directory, plan: &Plan) -> Result<()> {
        let mut mapped = RawInode::zeroed();
        // At its old location if it fits there: otherwise the root's block would stay free among
        // used ones.
        let old = directory.old_blocks.first();
        let old = old.filter(|run| run.len >= plan.blocks());
        let ahead = old.map(|run| self.space.move_to(run.start));
        self.map_new(&mut mapped, directory.ino, &[(Lblk(0), plan.blocks())])?;
        if let Some(ahead) = ahead {
            self.space.move_to(ahead);
        }
        self.update_directory(directory, plan, &mapped)
    }

    /// Fills the blocks of directories and writes them. They go directly to the device: nothing
    /// reads them again, and none of them is in the cache with changes.
    fn fill_blocks(&self, batch: &[&Directory], plans: &[Plan], fills: &[Fill]) -> Result<()> {
        let geometry = self.sbi.geometry();
        let block_len = self.sbi.block_len();
        let failed = Mutex::new(None);
        let fill = |part: &[Fill]| -> Result<()> {
            let mut bytes = vec![0; part.len() * block_len];
            for (fill, block) in part.iter().zip(bytes.chunks_exact_mut(block_len)) {
                // OK to index: one plan of each directory of the batch.
                let (directory, plan) = (batch[fill.directory], &plans[fill.directory]);
                let seed = geometry.csum_seed;
                let layout = Layout {
                    shape: &self.dir_shape,
                    plan,
                    ino: directory.ino,
                    parent: directory.parent,
                    seed: seed.map(|seed| seed.inode(directory.ino, directory.generation)),
                    name: |i| directory.name(i),
                };
                layout.fill(fill.lblk, block);
            }
            let mut bytes = bytes.as_slice();
            for run in part.chunk_by(|a, b| a.pblk + 1 == b.pblk) {
                let (run_bytes, rest) = bytes.split_at(run.len() * block_len);
                let at = self.sbi.byte_offset(Pblk(run[0].pblk));
                self.sbi.device().write_at(at, run_bytes)?;
                bytes = rest;
            }
            Ok(())
        };
        let threads = self.threads_for(fills.len());
        threads::for_each(threads, fills.chunks(FILLS), |part| {
            if let Err(error) = fill(part) {
                failed.lock().get_or_insert(error);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// The link count of a directory.
    fn links_of(&self, directory: &Directory) -> Result<u16> {
        let features = self.sbi.geometry().features;
        let many = features.ro_compat.contains(RoCompat::DIR_NLINK);
        match directory.subdirs.saturating_add(2) {
            links if links <= u32::from(LINKS_MAX) => Ok(links as u16),
            _ if many => Ok(1),
            _ => Err(Error::TooManyLinks),
        }
    }

    fn update_links(&self, directory: &Directory) -> Result<()> {
        let links = self.links_of(directory)?;
        itable::update(&self.sbi, directory.ino, None, |raw| {
            raw.i_links_count = links.into();
            Ok(())
        })
    }

    /// Stores size, map, link count and flags of a directory that was laid out.
    fn update_directory(
        &mut self,
        directory: &Directory,
        plan: &Plan,
        mapped: &RawInode,
    ) -> Result<()> {
        let links = self.links_of(directory)?;
        let geometry = self.sbi.geometry();
        let size = u64::from(plan.blocks()) << geometry.block_size.log2();
        let per_block = u64::from(geometry.block_size.bytes() / 512);
        let old: u64 = directory
            .old_blocks
            .iter()
            .map(|run| u64::from(run.len))
            .sum();
        let (old, new) = itable::update(&self.sbi, directory.ino, None, |raw| {
            let before = Share::of(raw, geometry, 0);
            let mut flags = InodeFlags::from_bits_retain(raw.i_flags.get());
            flags.set(InodeFlags::INDEX, plan.is_indexed());
            raw.i_flags = (flags.bits() | mapped.i_flags.get()).into();
            raw.i_links_count = links.into();
            raw.i_size_lo = (size as u32).into();
            raw.i_size_high = ((size >> 32) as u32).into();
            raw.i_block = mapped.i_block;
            // The space of attributes stays; the blocks that mkfs allocated were freed.
            let rest = sectors(raw).saturating_sub(old * per_block);
            raw.i_blocks_lo = mapped.i_blocks_lo;
            raw.i_blocks_high = mapped.i_blocks_high;
            add_sectors(raw, geometry, rest)?;
            Ok((before, Share::of(raw, geometry, 0)))
        })?;
        self.usage.change(Some(old), new);
        Ok(())
    }

    /// Loads an existing directory with its entries.
    pub(super) fn load_directory(&mut self, ino: Ino) -> Result<()> {
        if self.directories.get(ino).is_some() {
            return Ok(());
        }
        let inode = iget(&self.sbi, ino)?;
        let (group, _) = self
            .sbi
            .geometry()
            .inode_group(ino)
            .ok_or(Error::NotFound)?;
        let is_top = ino == Ino::ROOT || inode.has(InodeFlags::TOPDIR);
        let mut directory = Directory::new(ino, ino, group, is_top);
        directory.generation = inode.generation;
        for entry in read_dir(&self.sbi, &inode)? {
            let entry = entry?;
            match entry.name.as_slice() {
                b"." => {}
                b".." => directory.parent = entry.ino,
                name => {
                    let file_type = match entry.file_type {
                        Some(file_type) => file_type,
                        None => iget(&self.sbi, entry.ino)?.file_type,
                    };
                    directory.add(name, entry.ino, file_type)?;
                }
            }
        }
        directory.changed = false;
        directory.old_blocks = self.blocks_of(&inode)?;
        self.directories.push(directory);
        Ok(())
    }

    /// The runs of a small directory, whose blocks are all in the map in the inode.
    pub(super) fn blocks_of(&self, inode: &Inode) -> Result<Vec<Run>> {
        let block_size = self.sbi.geometry().block_size;
        let count = block_size.blocks_for(inode.size) as u32;
        let (mut runs, mut lblk) = (Vec::new(), 0);
        let mut map = MapCursor::default();
        while lblk < count {
            let part = map.map(&self.sbi, inode, Lblk(lblk), count - lblk)?;
            if part.state == MapState::Written {
                let pblk = part.pblk;
                runs.push(Run {
                    start: pblk,
                    len: part.len,
                });
            }
            lblk += part.len.max(1);
        }
        let mapped: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        let xattrs = u64::from(inode.xattr_block.is_some());
        if (mapped + xattrs) << (block_size.log2() - 9) != inode.blocks {
            return Err(Error::Unsupported {
                what: "adding to a large directory that is there already".to_owned(),
            });
        }
        Ok(runs)
    }

    fn write_superblocks(mut self) -> Result<Summary> {
        let geometry = self.sbi.geometry().clone();
        let device = self.sbi.device();
        let summary = Summary {
            inodes: geometry.inodes_count,
            free_inodes: self.groups.total().free_inodes as u32,
            blocks: geometry.blocks_count,
            free_blocks: self.space.free_blocks(),
        };
        let superblock = &mut self.superblock;
        superblock.set_free_blocks_count(summary.free_blocks);
        superblock.s_free_inodes_count = summary.free_inodes.into();
        make_dynamic(superblock);
        for group in (1..geometry.groups_count.get()).map(GroupNr) {
            if geometry.has_super(group) {
                let mut backup = *superblock;
                backup.s_block_group_nr = (group.0 as u16).into();
                backup.update_checksum();
                let at = self.sbi.byte_offset(geometry.group_start(group));
                device.write_at(at, backup.as_bytes())?;
            }
        }
        device.flush()?;
        superblock.update_checksum();
        device.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
        device.flush()?;
        Ok(summary)
    }
}

/// Features need revision 1: sets the fields that it adds to the values that were implied before.
fn make_dynamic(superblock: &mut SuperBlock) {
    let features = superblock.features();
    let any = features.ro_compat.bits() | features.incompat.bits() | features.compat.bits();
    if superblock.s_rev_level.get() == 0 && any != 0 {
        superblock.s_rev_level = 1.into();
        superblock.s_first_ino = Ino::GOOD_OLD_FIRST.0.into();
        superblock.s_inode_size = (uext4_ondisk::inode::GOOD_OLD_INODE_SIZE as u16).into();
    }
}
