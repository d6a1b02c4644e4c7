//! A file system opened for reading: every method is one call into the module that does the work.

use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::{Access, BlockDevice, FileDevice};
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk};

use crate::alloc::bitmap;
use crate::api::in_use::InUse;
use crate::api::open_inode::OpenInode;
use crate::api::read_dir::{DirRef, ReadDir};
use crate::api::stats::{self, Stats};
use crate::base::caller::Caller;
use crate::base::error::{Error, Result};
use crate::base::mapping::Mapping;
use crate::base::owner::{Kind, tag};
use crate::dir::crypto::NameForm;
use crate::dir::namei::{self, FollowLast, path_below};
use crate::dir::readdir::{self, Listed};
use crate::dir::symlink;
use crate::dir::{self, DirEntry};
use crate::file::{self, DataRanges};
use crate::inode::dquot::Quota;
use crate::inode::{self, Inode};
use crate::journal::error_record::{met, met_by_caller};
use crate::journal::sbi::Sbi;
use crate::map;
use crate::mount::open_options::OpenOptions;
use crate::mount::statfs::{self, Statfs};
use crate::mount::super_;
use crate::orphan;
use crate::quota::{self, Quotas};
use crate::xattr::{self, Reader, Xattr};

/// A file system opened for reading. Clones share all state and may be used by many threads.
///
/// A [`Volume`](crate::Volume) provides all of this too. An [`Inode`] is a copy that does not
/// follow later changes; reading data through it returns the current data of the file.
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) sbi: Arc<Sbi>,
    /// The directory that paths begin at, if that is not the root.
    pub(crate) below: Option<Arc<[u8]>>,
}

impl Image {
    /// Opens a file system. Nothing is ever written to the device.
    ///
    /// If the primary superblock cannot be used and no other was requested, its copy in the
    /// journal or a backup is used; if the device is shorter than the file system, the part that
    /// exists can be read. If a repair was cut off while it was written, the file system is shown
    /// as the finished repair leaves it. [`Image::rescue`] reports all three.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if the superblock and its backups or the journal is damaged,
    /// [`crate::Error::Unsupported`] naming the features that cannot be read, device errors.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let sbi = Arc::new(super_::open(device, options)?);
        Ok(Self { sbi, below: None })
    }

    /// Opens the file system that fills an image file or a block device; see [`Image::open`]. Where
    /// it is a partition of a disk, [`crate::device::partition`] finds it.
    ///
    /// # Errors
    /// As [`Image::open`]; [`crate::Error::Device`] if the file cannot be opened.
    pub fn from_path(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let device = FileDevice::open(path, Access::ReadOnly)?;
        Self::open(Arc::new(device), options)
    }

    /// The same file system with paths that begin at the directory `dir`; see [`path_below`].
    #[must_use]
    pub fn below(mut self, dir: &[u8]) -> Self {
        self.below = Some(dir.into());
        self
    }

    /// Statistics of all subsystems: counters since it was opened, and memory in use now.
    pub fn stats(&self) -> Stats {
        stats::stats(&self.sbi)
    }

    /// The data that statfs returns.
    pub fn statfs(&self) -> Statfs {
        statfs::statfs(&self.sbi)
    }

    /// The quotas of a file system opened for writing, if it has any.
    fn counted(&self) -> Option<&Quotas> {
        self.sbi.rw()?.quotas.as_ref()
    }

    /// Usage and limits of a user, group or project; all zero if it was never counted. On a file
    /// system opened for writing, these are the current values.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] if this kind of quota is not counted, damage, device errors.
    pub fn quota(&self, kind: QuotaKind, id: u32) -> Result<Quota> {
        quota::quota(&self.sbi, self.counted(), map::map_blocks, kind, id)
    }

    /// Usage and limits of all users, groups or projects, by id.
    ///
    /// # Errors
    /// As [`Image::quota`].
    pub fn quotas(&self, kind: QuotaKind) -> Result<Vec<Quota>> {
        quota::quotas(&self.sbi, self.counted(), map::map_blocks, kind)
    }

    /// The device contents with the journal replayed.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.sbi.device()
    }

    /// The descriptor of a group, with its checksum verified.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] past the last group, damage, device errors.
    pub fn group_desc(&self, group: GroupNr) -> Result<GroupDesc> {
        self.sbi.group_desc(group)
    }

    /// Reads an inode that is in use.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if there is no such inode, it is not in use, or it is damaged;
    /// on a file system that is written, [`crate::Error::NotFound`] for the first two; device
    /// errors.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        if let Some(in_use) = self.in_use().filter(|_| !self.is_hidden(ino)) {
            return Ok(in_use.open(ino)?.inode());
        }
        met_by_caller(&self.sbi, Some(ino), inode::iget(&self.sbi, ino))
    }

    /// On a mount for writing, inodes in use may be newer in memory than on the device.
    pub(crate) fn in_use(&self) -> Option<InUse<'_>> {
        let in_use = || InUse {
            sbi: &self.sbi,
            caller: Caller::default(),
        };
        self.sbi.rw().map(|_| in_use())
    }

    /// Returns the current version of the inode, if the file system is written and a name may
    /// refer to it.
    ///
    /// Fails with [`crate::Error::NotFound`] if the inode was deleted, even if another inode has
    /// its number now.
    fn open_newer(&self, inode: &Inode) -> Result<Option<OpenInode>> {
        let Some(in_use) = self.in_use().filter(|_| !self.is_hidden(inode.ino)) else {
            return Ok(None);
        };
        let newer = in_use.open(inode.ino)?;
        let is_same = newer.0.inode.read().generation == inode.generation;
        is_same.then_some(Some(newer)).ok_or(Error::NotFound)
    }

    /// The raw bytes of an inode, in use or not; nothing is verified.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if there is no such inode, device errors.
    pub fn inode_bytes(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(inode::inode_bytes(&self.sbi, ino)?.to_vec())
    }

    /// Looks up a name in a directory, by hash if it has an htree. In an encrypted directory the
    /// name is the one that [`Image::display_name`] returns.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::NotDirectory`], [`crate::Error::NameTooLong`],
    /// damage, device errors.
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Ino> {
        if let Some(dir) = self.open_newer(dir)? {
            return Ok(dir.lookup(name)?.ino());
        }
        met(&self.sbi, dir.ino, namei::lookup(&self.sbi, dir, name))
    }

    /// Resolves a path from the root directory. Symbolic links are followed, absolute ones from the
    /// root of this file system, at most 40; the empty path is the root.
    ///
    /// # Errors
    /// Those of [`Image::lookup`], [`crate::Error::TooManySymlinks`].
    pub fn resolve(&self, path: impl AsRef<[u8]>, last: FollowLast) -> Result<Inode> {
        let path = path.as_ref();
        let below = self.below.as_ref().map(|dir| path_below(dir, path));
        let path = below.as_deref().unwrap_or(path);
        if let Some(in_use) = self.in_use() {
            return Ok(in_use.resolve(path, last)?.inode());
        }
        let found = namei::resolve(&self.sbi, path, last);
        met_by_caller(&self.sbi, None, found)
    }

    /// Starts reading a directory, given by its path or its inode.
    ///
    /// # Errors
    /// [`crate::Error::NotDirectory`], damage that leaves nothing to read, device errors; of a path
    /// those of [`Image::resolve`].
    pub fn read_dir(&self, dir: impl DirRef) -> Result<ReadDir> {
        let found = dir.inode(&|path| self.resolve(path, FollowLast::Yes))?;
        let dir = &*found;
        if let Some(dir) = self.open_newer(dir)? {
            return Ok(dir.into());
        }
        Ok(met(&self.sbi, dir.ino, dir::read_dir(&self.sbi, dir))?.into())
    }

    /// Passes the entries of a directory after `cookie` (0: all) to `each`, "." and ".."
    /// included, each with the cookie to continue after it, until it returns false.
    ///
    /// # Errors
    /// As [`Image::read_dir`].
    ///
    /// # Locking
    /// On a file system that is written, `each` runs with the directory locked, and must not use
    /// the directory itself.
    pub fn list(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        if let Some(dir) = self.open_newer(dir)? {
            return dir.list(cookie, each);
        }
        let result = readdir::list(&self.sbi, dir, cookie, each);
        met(&self.sbi, dir.ino, result)
    }

    /// The name to show for a stored name: in an encrypted directory its no-key form, as the
    /// kernel shows it without the key, otherwise the name itself.
    ///
    /// Directories that are also case-insensitive need [`Image::entry_name`]. If the directory is
    /// too damaged to determine its hash function, the hash in the name is 0.
    pub fn display_name(&self, dir: &Inode, stored: &[u8]) -> Vec<u8> {
        NameForm::of(&self.sbi, dir).show(&self.sbi, stored, None)
    }

    /// The name to show for an entry, like [`Image::display_name`], for every directory.
    pub fn entry_name(&self, dir: &Inode, entry: &DirEntry) -> Vec<u8> {
        NameForm::of(&self.sbi, dir).show(&self.sbi, &entry.name, entry.hash)
    }

    /// Whether an inode is internal to the file system, such as the journal, and has no name.
    pub fn is_hidden(&self, ino: Ino) -> bool {
        namei::is_hidden(&self.sbi, ino)
    }

    /// Inodes that had to be deleted, or truncated to their size, when the file system was last
    /// in use.
    ///
    /// # Errors
    /// Damage of the list or the orphan file, device errors.
    pub fn orphans(&self) -> Result<Vec<Ino>> {
        orphan::orphans(&self.sbi, map::map_blocks)
    }

    /// A block of metadata as it is now, unverified: as the cache has it, which may be newer than
    /// the device. Data of files are not in the cache.
    ///
    /// # Errors
    /// Damage for a block that is not in the file system, device errors.
    pub fn metadata_block(&self, block: Pblk) -> Result<Arc<[u8]>> {
        let tag = tag(Kind::GroupDesc);
        let buffer = self
            .sbi
            .bread("block of metadata", block, tag, |_| Ok(()))?;
        Ok(buffer.data())
    }

    /// The block bitmap of a group: one bit per cluster, set if in use or past the end; one block
    /// long.
    ///
    /// # Errors
    /// Damage of the bitmap or the descriptor, device errors.
    pub fn block_bitmap(&self, group: GroupNr) -> Result<Arc<[u8]>> {
        bitmap::block_bitmap(&self.sbi, group)
    }

    /// The inode bitmap of a group: one bit per inode, set if in use or past the end; one block
    /// long.
    ///
    /// # Errors
    /// Damage of the bitmap or the descriptor, device errors.
    pub fn inode_bitmap(&self, group: GroupNr) -> Result<Arc<[u8]>> {
        bitmap::inode_bitmap(&self.sbi, group)
    }

    /// The target of a symbolic link, 1 to 4,095 bytes.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is not a symbolic link, [`crate::Error::Encrypted`],
    /// damage, device errors.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        met(&self.sbi, inode.ino, symlink::read_link(&self.sbi, inode))
    }

    /// Reads from a regular file and returns the number of bytes: fewer than requested only at
    /// its end. Holes and unwritten blocks read as zeroes.
    ///
    /// # Errors
    /// [`crate::Error::IsDirectory`], [`crate::Error::Invalid`] for other special files,
    /// [`crate::Error::Encrypted`], damage, device errors.
    pub fn read_at(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if let Some(file) = self.open_newer(inode)? {
            return file.read_at(offset, buf);
        }
        let result = file::read_at(&self.sbi, inode, offset, buf);
        met(&self.sbi, inode.ino, result)
    }

    /// The location of logical block `lblk` of a file, and how many of the `len - 1` blocks after
    /// it are in the same run, at least as far as known without further reading. Delayed data has
    /// no location yet.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the inode maps no blocks or `len` is 0, damage, device errors.
    pub fn map(&self, inode: &Inode, lblk: Lblk, len: u32) -> Result<Mapping> {
        let result = map::map_blocks(&self.sbi, inode, lblk, len);
        met(&self.sbi, inode.ino, result)
    }

    /// The parts of a regular file that hold data, in bytes, in ascending order; the rest reads
    /// as zeroes. Delayed data is written first.
    ///
    /// # Errors
    /// As [`Image::read_at`], from this call or from the iterator.
    pub fn data_ranges(&self, inode: &Inode) -> Result<DataRanges> {
        let ranges = match self.open_newer(inode)? {
            Some(file) => {
                let written = file.0.write_pages();
                written.and_then(|()| file::data_ranges(&self.sbi, &file.inode()))
            }
            None => file::data_ranges(&self.sbi, inode),
        };
        met(&self.sbi, inode.ino, ranges)
    }

    /// The extended attributes as listxattr and getxattr show them to root, sorted by name: ACLs
    /// in the kernel's form, without the attributes that the file system uses internally.
    ///
    /// # Errors
    /// Damage of the attributes, device errors.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let result = xattr::list(&self.sbi, inode, Reader::Onlooker);
        met(&self.sbi, inode.ino, result)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`crate::Error::NoAttribute`], damage, device errors.
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let result = xattr::get(&self.sbi, inode, Reader::Onlooker, name);
        met(&self.sbi, inode.ino, result)
    }
}
