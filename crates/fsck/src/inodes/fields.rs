//! The fields of an inode, one by one: what its type and the features of the file system allow.

use uext4_ondisk::extent::{EXT4_EXT_MAGIC, header, max_entries};
use uext4_ondisk::features::{Compat, Incompat, RoCompat};
use uext4_ondisk::indirect::Reach;
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags, S_IFREG};
use uext4_ondisk::num::lo32;
use uext4_ondisk::{Ino, Pblk};

use super::subject::Subject;
use super::worker::Worker;
use crate::error::Result;
use crate::mapping;
use crate::problem::InodeProblem;

/// Flags that say how contents are stored: they make no sense where there are none.
const STORED: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::INDEX);

/// Flags that can be set for regular files and directories only.
const PROTECTED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// Bytes of `i_block` that numbers of devices were ever stored in.
const DEVICE_LEN: usize = 16;

impl Worker<'_, '_> {
    /// Whether the fields of an inode with a wrong checksum make no sense: its mode is no type, or
    /// what must lead to its blocks does not.
    pub fn is_garbage(&self, subject: &Subject<'_>) -> bool {
        if subject.raw.i_links_count.get() == 0 {
            // What is not in use cannot be more wrong than its checksum.
            return false;
        }
        let geometry = self.state.geometry();
        match subject.file_type() {
            None => subject.ino.0 >= geometry.first_ino,
            Some(FileType::Regular | FileType::Directory)
                if subject.has(InodeFlags::EXTENTS) && !subject.has(InodeFlags::INLINE_DATA) =>
            {
                !has_extent_header(&subject.raw.i_block)
            }
            Some(_) => false,
        }
    }

    /// Examines the fields of an inode in use.
    pub fn fields(&self, subject: &mut Subject<'_>) -> Result<()> {
        let deleted = subject.raw.i_dtime.get();
        // Of a reserved inode without links only a link of the list of orphans is wrong.
        let is_linked = subject.raw.i_links_count.get() != 0;
        if deleted != 0 && (is_linked || self.is_orphan_link(deleted)) {
            let finding = subject.finding(InodeProblem::DeletionTime).found(deleted);
            self.mend(subject, finding, |raw| raw.i_dtime = 0.into())?;
        }
        self.reserved(subject)?;
        if subject.is_cleared || subject.ino == Ino::BAD_BLOCKS {
            return Ok(());
        }
        let Some(file_type) = subject.file_type() else {
            let mode = subject.raw.i_mode.get();
            let finding = subject.finding(InodeProblem::Mode).found(mode);
            return self.clear(subject, finding);
        };
        self.flags(subject, file_type)?;
        if subject.is_cleared {
            return Ok(());
        }
        match file_type {
            FileType::Regular | FileType::Directory | FileType::Symlink => {}
            _ => self.device(subject)?,
        }
        if subject.is_cleared {
            return Ok(());
        }
        self.high_halves(subject, file_type)
    }

    /// Clears flags, with a finding.
    pub fn clear_flags(
        &self,
        subject: &mut Subject<'_>,
        problem: InodeProblem,
        flags: InodeFlags,
    ) -> Result<()> {
        let finding = subject.finding(problem).found(subject.raw.i_flags.get());
        self.mend(subject, finding, |raw| {
            raw.i_flags = (raw.i_flags.get() & !flags.bits()).into();
        })?;
        Ok(())
    }

    fn flags(&self, subject: &mut Subject<'_>, file_type: FileType) -> Result<()> {
        let features = self.state.geometry().features;
        let is_directory = file_type == FileType::Directory;
        if subject.has(InodeFlags::IMAGIC) && !features.compat.contains(Compat::IMAGIC_INODES) {
            self.clear_flags(subject, InodeProblem::Imagic, InodeFlags::IMAGIC)?;
        }
        let ea_inode = features.incompat.contains(Incompat::EA_INODE);
        if subject.has(InodeFlags::EA_INODE) && !ea_inode {
            // The kernel refuses to open such an inode by a name.
            self.clear_flags(subject, InodeProblem::EaInode, InodeFlags::EA_INODE)?;
        }
        let casefold = features.incompat.contains(Incompat::CASEFOLD);
        if subject.has(InodeFlags::CASEFOLD) && !(is_directory && casefold) {
            self.clear_flags(subject, InodeProblem::Casefold, InodeFlags::CASEFOLD)?;
        }
        let indexes = features.compat.contains(Compat::DIR_INDEX);
        if subject.has(InodeFlags::INDEX) && !(is_directory && indexes) {
            self.clear_flags(subject, InodeProblem::IndexFlag, InodeFlags::INDEX)?;
        }
        match file_type {
            FileType::Regular | FileType::Directory => self.form(subject, file_type),
            FileType::Symlink => {
                self.special_flags(subject, PROTECTED)?;
                self.form(subject, file_type)
            }
            _ => Ok(()),
        }
    }

    /// Clears flags that a symbolic link, a device, a pipe or a socket cannot have.
    fn special_flags(&self, subject: &mut Subject<'_>, wrong: InodeFlags) -> Result<()> {
        let found = subject.flags();
        if !found.intersects(wrong) {
            return Ok(());
        }
        let right = found.difference(wrong).bits();
        let finding = subject.finding(InodeProblem::SpecialFlags);
        self.mend(subject, finding.found(found.bits()).right(right), |raw| {
            raw.i_flags = right.into();
        })?;
        Ok(())
    }

    /// Examines the flags that say in which form contents are stored.
    fn form(&self, subject: &mut Subject<'_>, file_type: FileType) -> Result<()> {
        let incompat = self.state.geometry().features.incompat;
        let holds_tree = has_extent_header(&subject.raw.i_block);
        if subject.has(InodeFlags::INLINE_DATA) && !incompat.contains(Incompat::INLINE_DATA) {
            self.clear_flags(
                subject,
                InodeProblem::InlineFeature,
                InodeFlags::INLINE_DATA,
            )?;
        }
        if subject.has(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS) {
            let wrong = match holds_tree {
                true => InodeFlags::INLINE_DATA,
                false => InodeFlags::EXTENTS,
            };
            self.clear_flags(subject, InodeProblem::InlineAndExtents, wrong)?;
        }
        if subject.has(InodeFlags::INLINE_DATA) {
            return self.inline_data(subject, file_type);
        }
        let extents = incompat.contains(Incompat::EXTENTS);
        let is_tree = holds_tree && is_whole_root(&subject.raw.i_block);
        if !extents && is_tree {
            let cause = self
                .state
                .report(subject.finding(InodeProblem::ExtentsFeature));
            self.state.volume.update_superblock(cause, |superblock| {
                let features = superblock.s_feature_incompat.get() | Incompat::EXTENTS.bits();
                superblock.s_feature_incompat = features.into();
            })?;
        } else if !extents && subject.has(InodeFlags::EXTENTS) {
            self.clear_flags(subject, InodeProblem::ExtentsFlag, InodeFlags::EXTENTS)?;
        }
        if file_type == FileType::Symlink {
            let is_short = (1..I_BLOCK_LEN as u64).contains(&subject.size());
            if is_short && subject.has(InodeFlags::EXTENTS) && !holds_tree {
                let problem = InodeProblem::FastSymlinkExtents;
                return self.clear_flags(subject, problem, InodeFlags::EXTENTS);
            }
        }
        let has_map = file_type != FileType::Symlink || !mapping::is_fast_symlink(&subject.raw);
        if !has_map || subject.has(InodeFlags::EXTENTS) {
            return Ok(());
        }
        if is_tree {
            let finding = subject.finding(InodeProblem::ExtentsMissing);
            self.mend(subject, finding, |raw| {
                raw.i_flags = (raw.i_flags.get() | InodeFlags::EXTENTS.bits()).into();
            })?;
        } else if self.state.geometry().cluster_bits != 0 && subject.ino != Ino::RESIZE {
            let finding = subject.finding(InodeProblem::BlockMapBigalloc);
            self.clear(subject, finding)?;
        }
        Ok(())
    }

    /// Devices, pipes and sockets have no contents.
    fn device(&self, subject: &mut Subject<'_>) -> Result<()> {
        // A device cannot be protected, so that other bytes too are not those of one.
        let rest = subject.raw.i_block.get(DEVICE_LEN..).unwrap_or_default();
        if subject.flags().intersects(PROTECTED) && rest.iter().any(|&byte| byte != 0) {
            let finding = subject.finding(InodeProblem::SpecialBlocks);
            return self.clear(subject, finding);
        }
        self.special_flags(subject, STORED | PROTECTED)?;
        let size = subject.size();
        if size != 0 {
            let finding = subject.finding(InodeProblem::SpecialSize).found(size);
            self.mend(subject, finding, |raw| {
                raw.i_size_lo = 0.into();
                raw.i_size_high = 0.into();
            })?;
        }
        Ok(())
    }

    /// Fields that must be zero without a feature.
    fn high_halves(&self, subject: &mut Subject<'_>, file_type: FileType) -> Result<()> {
        let features = self.state.geometry().features;
        let raw = &subject.raw;
        let fragment = raw.i_obso_faddr.get();
        let blocks_high = raw.i_blocks_high.get();
        let acl_high = raw.i_file_acl_high.get();
        let size_high = raw.i_size_high.get();
        if fragment != 0 {
            let finding = subject.finding(InodeProblem::Fragment).found(fragment);
            self.mend(subject, finding, |raw| raw.i_obso_faddr = 0.into())?;
        }
        if blocks_high != 0 && !features.ro_compat.contains(RoCompat::HUGE_FILE) {
            let finding = subject.finding(InodeProblem::BlocksHigh);
            let finding = finding.found(blocks_high);
            self.mend(subject, finding, |raw| raw.i_blocks_high = 0.into())?;
        }
        if acl_high != 0 && !features.incompat.contains(Incompat::BIT64) {
            let finding = subject.finding(InodeProblem::FileAclHigh).found(acl_high);
            self.mend(subject, finding, |raw| raw.i_file_acl_high = 0.into())?;
        }
        let large_dir = features.incompat.contains(Incompat::LARGEDIR);
        if size_high != 0 && file_type == FileType::Directory && !large_dir {
            let finding = subject.finding(InodeProblem::DirectorySizeHigh);
            let finding = finding.found(size_high);
            self.mend(subject, finding, |raw| raw.i_size_high = 0.into())?;
        }
        self.file_acl(subject)
    }

    fn file_acl(&self, subject: &mut Subject<'_>) -> Result<()> {
        let block = subject.xattr_block();
        if block.0 == 0 {
            return Ok(());
        }
        let geometry = self.state.geometry();
        let is_inside = block.0 > geometry.first_data_block.into() && geometry.contains(block, 1);
        let has_feature = geometry.features.compat.contains(Compat::EXT_ATTR);
        if is_inside && has_feature && !self.state.is_metadata(block) {
            return Ok(());
        }
        let finding = subject.finding(InodeProblem::FileAcl).found(block.0);
        self.mend(subject, finding, |raw| {
            raw.i_file_acl_lo = 0.into();
            raw.i_file_acl_high = 0.into();
        })?;
        Ok(())
    }

    /// Examines a file of the file system itself, which must be a regular one.
    pub fn system_file(&self, subject: &mut Subject<'_>) -> Result<()> {
        if subject.file_type() == Some(FileType::Regular) {
            return Ok(());
        }
        let right = S_IFREG | 0o600;
        let finding = subject.finding(InodeProblem::SystemMode);
        let finding = finding.found(subject.raw.i_mode.get()).right(right);
        self.mend(subject, finding, |raw| raw.i_mode = right.into())?;
        Ok(())
    }

    /// Largest size of a file whose blocks are numbers.
    pub fn mapped_size_max(&self) -> u64 {
        let block_size = self.state.geometry().block_size;
        Reach::new(block_size).blocks_max() << block_size.log2()
    }

    /// Examines where inline data end.
    fn inline_data(&self, subject: &mut Subject<'_>, file_type: FileType) -> Result<()> {
        let value = subject.inline_value();
        let size = subject.size();
        let finding = subject.finding(InodeProblem::InlineSize).found(size);
        let Some(value) = value else {
            if self.mend_without_attribute(subject, file_type)? {
                return Ok(());
            }
            // Only the first bytes may be there, and nothing says so: the file is empty then.
            if file_type != FileType::Regular {
                return self.clear(subject, finding.right(0_u64));
            }
            let extents = self.state.geometry().features.incompat;
            let extents = extents.contains(Incompat::EXTENTS);
            self.mend(subject, finding.right(0_u64), |raw| {
                let flags = raw.i_flags.get() & !InodeFlags::INLINE_DATA.bits();
                raw.i_block = [0; I_BLOCK_LEN];
                raw.i_flags = flags.into();
                if extents {
                    raw.i_block = uext4_ondisk::extent::empty_extent_root();
                    raw.i_flags = (flags | InodeFlags::EXTENTS.bits()).into();
                }
                raw.i_size_lo = 0.into();
                raw.i_size_high = 0.into();
            })?;
            return Ok(());
        };
        let right = I_BLOCK_LEN as u64 + value;
        let is_right = match file_type {
            FileType::Directory => size == right,
            // The kernel does not mind a size beyond the bytes, if any file can have it.
            FileType::Regular => size <= self.mapped_size_max(),
            _ => true,
        };
        if !is_right {
            self.mend(subject, finding.right(right), |raw| {
                raw.i_size_lo = lo32(right).into();
                raw.i_size_high = 0.into();
            })?;
        }
        Ok(())
    }
}

impl Subject<'_> {
    /// The block of extended attributes; 0 is none.
    pub fn xattr_block(&self) -> Pblk {
        let (lo, high) = (self.raw.i_file_acl_lo, self.raw.i_file_acl_high);
        Pblk(u64::from(high.get()) << 32 | u64::from(lo.get()))
    }
}

/// Whether an extent tree says that it has all the room there is: no block numbers look so.
pub fn is_whole_root(i_block: &[u8; I_BLOCK_LEN]) -> bool {
    header(i_block).is_some_and(|head| {
        head.eh_magic.get() == EXT4_EXT_MAGIC && head.eh_max.get() == max_entries(I_BLOCK_LEN)
    })
}

/// Whether `i_block` begins as an extent tree does, whatever depth it says: one wrong bit of that
/// makes no inode garbage, and what the root names says better how deep the tree is.
fn has_extent_header(i_block: &[u8; I_BLOCK_LEN]) -> bool {
    header(i_block).is_some_and(|head| {
        head.eh_magic.get() == EXT4_EXT_MAGIC
            && head.eh_max.get() <= max_entries(I_BLOCK_LEN)
            && head.eh_entries.get() <= head.eh_max.get()
    })
}
