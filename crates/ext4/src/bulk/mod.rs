//! Fills a new file system: everything is created once, nothing is ever changed in place.
//!
//! One writer owns a newly created file system. Its superblock is invalid from the first write
//! until [`Creator::finish`] writes it as the last step, so that an unfinished image is never
//! mistaken for a valid one; the journal stays as empty as mkfs left it and is not used.
//!
//! ```text
//! create ─▶ inode table (cache)              names ─▶ memory ─┐
//! write_file ─▶ blocks (mballoc) ─▶ stage ─▶ device           │ finish: directories laid out,
//!                    └▶ extent tree (cache) ─▶ inode          │ bitmaps summed, metadata written
//! xattrs ─▶ inode body / shared block / inode of their own    ▼ in one sweep, superblock last
//! owners ─▶ usage, in memory ─▶ finish: quota files
//! ```
//! Nothing is allocated before its length is known: the caller passes file sizes, and directories
//! are laid out when all their names are known. File data is written through one buffer directly
//! to the device, one file after the other; metadata stays in the cache until it is written in
//! large sorted writes.
//!
//! Not supported: deleting, growing and changing existing files; features that the table in
//! `ondisk` does not list as writable.

mod attributes;
mod content;
mod directory;
mod finish;
mod footprint;
mod inline;
mod itable;
mod quota;
mod sectors;
mod space;
mod stage;
mod threads;
mod xattr;

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_buffer_cache::{BufferCache, Options};
use uext4_ondisk::extent::empty_extent_root;
use uext4_ondisk::hash::{HashVersion, hash_name};
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags, RawInode};
use uext4_ondisk::pack::directory::DirShape;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Damage, Geometry, Ino, Lblk, Pblk};
use zerocopy::IntoBytes;

pub use attributes::{Attributes, CreatorOptions, FileContent, NewInode};
pub use content::PlacedRun;
pub use finish::Summary;
pub use footprint::{FileFootprint, Footprint, OwnerIds, XattrFootprint};
pub use inline::InlineSpace;

use crate::alloc::groups::Groups;
use crate::base::disk::Disk;
use crate::base::edit::Direct;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::rescue::superblock_at;
use crate::dir::namei::{check_name, check_target};
use crate::inode::LINKS_MAX;
use crate::journal::sbi::Sbi;
use crate::xattr::layout::XattrShape;
use content::Scratch;
use directory::{Directories, Directory};
use quota::{Share, Usage};
use space::Space;
use stage::Stage;
use xattr::Sharing;

/// Number of calls between two checks of the amount of metadata in memory.
const CALLS_PER_CHECK: u32 = 256;

/// Fills a new, empty file system. See the module documentation.
///
/// After a call has failed half-way (no space, device error, source error), every later call
/// fails too.
#[derive(Debug)]
pub struct Creator {
    sbi: Arc<Sbi>,
    /// The superblock as it will be written at the end.
    superblock: SuperBlock,
    groups: Groups,
    space: Space,
    stage: Stage,
    dir_shape: DirShape,
    xattr_shape: XattrShape,
    directories: Directories,
    sharing: Sharing,
    usage: Usage,
    scratch: Scratch,
    options: CreatorOptions,
    calls: u32,
    failed: bool,
}

impl Creator {
    /// Takes over a newly created file system. From now until [`Creator::finish`], the device
    /// contains no valid file system.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Unsupported`] naming the features that cannot be written,
    /// [`Error::Invalid`] if it is not cleanly unmounted, damage, device errors.
    pub fn open(device: Arc<dyn BlockDevice>, options: &CreatorOptions) -> Result<Self> {
        let superblock = read_superblock(&*device)?;
        let geometry = Geometry::new(&superblock)?;
        let (need, have) = (geometry.len_bytes(), device.len());
        if need > have {
            return Err(Error::Corrupt(Damage::DeviceTooSmall { need, have }));
        }
        let cache_options = Options {
            memory_max: options.memory_max,
            ..Options::default()
        };
        let cache = BufferCache::new(Arc::clone(&device), geometry.block_size, cache_options);
        let cache = Arc::new(cache);
        let sbi = Arc::new(Sbi::new(Disk::new(
            Arc::clone(&device),
            cache,
            superblock,
            geometry,
            Pblk(0),
        )));
        let groups = Groups::open(&sbi)?;
        let mut creator = Self {
            space: Space::open(&sbi, &groups)?,
            groups,
            stage: Stage::new(device, options.buffer_len.max(64 << 10)),
            dir_shape: DirShape::new(&superblock, sbi.geometry()),
            xattr_shape: XattrShape::new(sbi.geometry()),
            directories: Directories::default(),
            sharing: Sharing::default(),
            usage: Usage::open(&sbi)?,
            scratch: Scratch::default(),
            options: options.clone(),
            calls: 0,
            failed: false,
            superblock,
            sbi,
        };
        creator.load_directory(Ino::ROOT)?;
        creator.invalidate()?;
        Ok(creator)
    }

    /// Creates an inode with a name.
    ///
    /// Whether the name is unique in its directory is checked in [`Creator::finish`].
    ///
    /// # Errors
    /// [`Error::NotDirectory`] and [`Error::NotFound`] for the parent, [`Error::NameTooLong`],
    /// [`Error::Invalid`], [`Error::NoInodes`], [`Error::NoSpace`], errors for invalid
    /// attributes, device errors.
    pub fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        kind: NewInode<'_>,
        attributes: &Attributes,
    ) -> Result<Ino> {
        self.begin()?;
        check_name(name)?;
        if let NewInode::Symlink(target) = kind {
            check_target(target, self.sbi.block_len())?;
        }
        self.load_directory(parent)?;
        let result = self.create_checked(parent, name, kind, attributes);
        self.end(result)
    }

    /// Adds another name for an inode. Not for directories.
    ///
    /// # Errors
    /// As [`Creator::create`]; [`Error::IsDirectory`], [`Error::TooManyLinks`] past 65,000.
    pub fn link(&mut self, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
        self.begin()?;
        check_name(name)?;
        self.load_directory(parent)?;
        let file_type = itable::update(&self.sbi, ino, None, |raw| {
            let links = raw.i_links_count.get();
            match FileType::from_mode(raw.i_mode.get()) {
                None => Err(Error::NotFound),
                Some(FileType::Directory) => Err(Error::IsDirectory),
                Some(_) if links >= LINKS_MAX => Err(Error::TooManyLinks),
                Some(file_type) => {
                    raw.i_links_count = (links + 1).into();
                    Ok(file_type)
                }
            }
        })?;
        let directory = self.directories.get(parent).ok_or(Error::NotDirectory)?;
        let result = directory.add(name, ino, file_type);
        self.end(result)
    }

    /// Replaces all attributes of an inode, extended ones included, for example of the root.
    ///
    /// # Errors
    /// [`Error::NotFound`], errors for invalid attributes, [`Error::NoSpace`], device errors;
    /// [`Error::Unsupported`] if it already has attributes in separate inodes.
    pub fn set_attributes(&mut self, ino: Ino, attributes: &Attributes) -> Result<()> {
        self.begin()?;
        let result = self.replace_attributes(ino, attributes);
        self.end(result)
    }

    /// Looks up a name in a directory by linear search: for the few names that mkfs created, such
    /// as lost+found.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], damage, device errors.
    pub fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.load_directory(parent)?;
        let directory = self.directories.get(parent).ok_or(Error::NotDirectory)?;
        Ok(directory.find(name))
    }

    /// The geometry of the file system.
    pub fn geometry(&self) -> &Geometry {
        self.sbi.geometry()
    }

    /// Blocks that are free now; space for directories is not allocated yet.
    pub fn free_blocks(&self) -> u64 {
        self.space.free_blocks()
    }

    /// Inodes that are free now.
    pub fn free_inodes(&self) -> u64 {
        self.groups.total().free_inodes
    }

    fn begin(&self) -> Result<()> {
        if self.failed {
            return Err(Error::Invalid(Invalid::Failed));
        }
        Ok(())
    }

    /// Records that a call failed half-way; from time to time frees memory.
    fn end<T>(&mut self, result: Result<T>) -> Result<T> {
        self.calls += 1;
        let result = match result {
            Ok(_) if self.calls.is_multiple_of(CALLS_PER_CHECK) => self.relieve().and(result),
            other => other,
        };
        self.failed |= result.is_err();
        result
    }

    /// Writes the pending metadata if there is much of it.
    fn relieve(&self) -> Result<()> {
        let cache = self.sbi.cache();
        if cache.dirty_count() * self.sbi.block_len() > self.options.memory_max / 2 {
            cache.write_dirty()?;
        }
        Ok(())
    }

    /// Makes the superblock on the device invalid.
    fn invalidate(&self) -> Result<()> {
        let device = self.sbi.device();
        if device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let mut invalid = self.superblock;
        invalid.s_magic = 0.into();
        device.write_at(SUPERBLOCK_OFFSET, invalid.as_bytes())?;
        Ok(device.flush()?)
    }

    fn create_checked(
        &mut self,
        parent: Ino,
        name: &[u8],
        kind: NewInode<'_>,
        attributes: &Attributes,
    ) -> Result<Ino> {
        let file_type = kind.file_type();
        let directory = self.directories.get(parent).ok_or(Error::NotDirectory)?;
        let is_dir = file_type == FileType::Directory;
        // Any hash will do; this is the kernel's.
        let seed = self.superblock.hash_seed();
        let hash = is_dir.then(|| hash_name(HashVersion::HalfMd4, seed, name).hash);
        let new = {
            let edit = Direct(&self.sbi);
            self.groups
                .take_inode(&self.sbi, &edit, directory.place, hash)?
        };
        directory.add(name, new.ino, file_type)?;
        if is_dir {
            directory.place.last_group = Some(new.group);
            let is_top = attributes.flags.contains(InodeFlags::TOPDIR);
            let mut made = Directory::new(new.ino, parent, new.group, is_top);
            // Even an empty directory has a block.
            made.changed = true;
            self.directories.push(made);
        }
        let mut raw = RawInode::zeroed();
        raw.i_mode = file_type.mode_bits().into();
        raw.i_links_count = if is_dir { 2 } else { 1 }.into();
        self.give_contents(&mut raw, new.ino, kind)?;
        let inode_size = self.sbi.geometry().inode_size;
        attributes::store(&mut raw, file_type, attributes, inode_size)?;
        let tail = self.store_xattrs(&mut raw, new.group, attributes)?;
        if self.usage.is_counted() {
            let apart = self.values_apart(file_type, attributes)?;
            let share = Share::of(&raw, self.sbi.geometry(), apart);
            self.usage.change(None, share);
        }
        itable::write_new(&self.sbi, new, &raw, &tail)?;
        Ok(new.ino)
    }

    /// Stores the initial contents of an inode of this kind.
    fn give_contents(&mut self, raw: &mut RawInode, ino: Ino, kind: NewInode<'_>) -> Result<()> {
        match kind {
            NewInode::File | NewInode::Directory => {
                if self.sbi.has_extents() {
                    raw.i_flags = (raw.i_flags.get() | InodeFlags::EXTENTS.bits()).into();
                    raw.i_block = empty_extent_root();
                }
            }
            NewInode::Symlink(target) if target.len() < I_BLOCK_LEN => {
                raw.i_block[..target.len()].copy_from_slice(target);
                raw.i_size_lo = (target.len() as u32).into();
            }
            NewInode::Symlink(target) => {
                raw.i_size_lo = (target.len() as u32).into();
                self.map_small(raw, ino, target)?;
            }
            NewInode::CharDevice(device) | NewInode::BlockDevice(device) => {
                raw.i_block = device.encode();
            }
            NewInode::Fifo | NewInode::Socket => {}
        }
        Ok(())
    }

    /// Maps `bytes` to new blocks and writes them through the cache.
    fn map_small(&mut self, raw: &mut RawInode, ino: Ino, bytes: &[u8]) -> Result<()> {
        let block_len = self.sbi.block_len();
        let blocks = bytes.len().div_ceil(block_len) as u32;
        self.map_new(raw, ino, &[(Lblk(0), blocks)])?;
        let mut parts = bytes.chunks(block_len);
        for extent in &self.scratch.extents {
            for block in extent.pblk.0..extent.pblk.0 + u64::from(extent.len) {
                let part = parts.next().unwrap_or_default();
                let buffer = self.sbi.cache().getblk_zeroed(Pblk(block));
                buffer.modify(|block| block[..part.len()].copy_from_slice(part));
            }
        }
        Ok(())
    }
}

/// Reads the primary superblock and checks whether the file system may be written.
fn read_superblock(device: &dyn BlockDevice) -> Result<SuperBlock> {
    let superblock = superblock_at(device, SUPERBLOCK_OFFSET)?;
    let features = superblock.features();
    // The MMP block of a new file system says that no host has it open, and stays as it is.
    let unwritable = features.unwritable();
    if !unwritable.is_empty() {
        return Err(Error::Unsupported {
            what: unwritable.join(", "),
        });
    }
    if !superblock.was_left_clean() {
        let state = superblock.s_state.get();
        return Err(Error::Invalid(Invalid::NotClean(state)));
    }
    Ok(superblock)
}
