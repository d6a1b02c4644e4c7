//! Finishes the file system: lays out directories, stores counts and checksums, and writes the
//! superblock last.

use uext4_mballoc::Run;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{InodeFlags, RawInode};
use uext4_ondisk::pack::directory::{Layout, Plan};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk};
use zerocopy::IntoBytes;

use super::content::{add_sectors, sectors};
use super::directory::Directory;
use super::{Creator, itable};
use crate::base::edit::Direct;
use crate::base::error::{Error, Result};
use crate::base::mapping::MapState;
use crate::dir::read_dir;
use crate::inode::{Inode, LINKS_MAX, iget};
use crate::map::MapCursor;

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
        for directory in directories.iter().filter(|d| d.changed) {
            let result = self.write_directory(directory);
            self.end(result)?;
        }
        self.groups.store(&self.sbi, &Direct(&self.sbi))?;
        self.sbi.cache().write_dirty()?;
        self.write_superblocks()
    }

    fn write_directory(&mut self, directory: &Directory) -> Result<()> {
        let plan = directory.plan(&self.dir_shape)?;
        let ino = directory.ino;
        let mut mapped = RawInode::zeroed();
        // At its old location if it fits there: otherwise the root's block would stay free among
        // used ones.
        let old = directory.old_blocks.first();
        let old = old.filter(|run| run.len >= plan.blocks());
        let ahead = old.map(|run| self.space.move_to(run.start));
        self.map_new(&mut mapped, ino, &[(Lblk(0), plan.blocks())])?;
        if let Some(ahead) = ahead {
            self.space.move_to(ahead);
        }
        let shape = self.dir_shape;
        let layout = Layout {
            shape: &shape,
            plan: &plan,
            ino,
            parent: directory.parent,
            seed: self.directory_seed(ino)?,
            name: |i| directory.name(i),
        };
        for extent in &self.scratch.extents {
            for i in 0..u32::from(extent.len) {
                let buffer = self
                    .sbi
                    .cache()
                    .getblk_zeroed(Pblk(extent.pblk.0 + u64::from(i)));
                buffer.modify(|block| layout.fill(extent.lblk.0 + i, block));
            }
        }
        self.update_directory(directory, &plan, &mapped)
    }

    /// Stores size, map, link count and flags of a directory that was laid out.
    fn update_directory(
        &mut self,
        directory: &Directory,
        plan: &Plan,
        mapped: &RawInode,
    ) -> Result<()> {
        let geometry = self.sbi.geometry();
        let many = geometry.features.ro_compat.contains(RoCompat::DIR_NLINK);
        let links = match directory.subdirs.saturating_add(2) {
            links if links <= u32::from(LINKS_MAX) => links as u16,
            _ if many => 1,
            _ => return Err(Error::TooManyLinks),
        };
        let size = u64::from(plan.blocks()) << geometry.block_size.log2();
        let per_block = u64::from(geometry.block_size.bytes() / 512);
        let old: u64 = directory
            .old_blocks
            .iter()
            .map(|run| u64::from(run.len))
            .sum();
        itable::update(&self.sbi, directory.ino, None, |raw| {
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
            add_sectors(raw, geometry, rest)
        })
    }

    /// Seed of a directory's blocks; directories that mkfs created may have any generation.
    fn directory_seed(&self, ino: Ino) -> Result<Option<uext4_ondisk::checksum::CsumSeed>> {
        let geometry = self.sbi.geometry();
        let Some(seed) = geometry.csum_seed else {
            return Ok(None);
        };
        Ok(Some(seed.inode(ino, iget(&self.sbi, ino)?.generation)))
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
    fn blocks_of(&self, inode: &Inode) -> Result<Vec<Run>> {
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
