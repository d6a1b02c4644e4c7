//! An inode in use of a file system mounted for writing, and the operations on it. Every method
//! is one call into the module that does the work.

use uext4_ondisk::{Ino, Lblk};

use crate::base::caller::Caller;
use crate::base::error::Result;
use crate::bulk::NewInode;
use crate::dir::namei;
use crate::dir::readdir::{self, Listed};
use crate::dir::symlink;
use crate::file;
use crate::file::auto_da_alloc;
use crate::file::copy_range::{self, Position};
use crate::file::fallocate::{self, Fallocate, Seek};
use crate::file::fiemap::{self, FileExtent};
use crate::file::inode_ref::InodeRef;
use crate::file::setattr::{self, SetAttributes};
use crate::file::write_context::{WriteContext, WriteMode, Written};
use crate::inode::Inode;
use crate::inode::attr::SetId;
use crate::journal::error_record;
use crate::journal::rw::AccessTimes;
use crate::names::create::{self, Creation};
use crate::names::rename::{self, Entry, RenameMode};
use crate::names::unlink;
use crate::xattr::{self, Reader, SetMode, Xattr};

/// An inode in use of a file system mounted for writing: it stays valid, even without a name,
/// until its last user is dropped. Each clone is a user of its own. May be used by many threads.
///
/// # Locking
/// Changes of one directory's entries, and of one file's data and size, are serialized;
/// operations on different inodes do not wait for each other. A read waits only while data that
/// is being written is copied.
///
/// Dropping a user that has written closes the file: if the file was truncated to zero since it
/// was last closed, its new data is written then (`auto_da_alloc`,
/// [`crate::tuning::MountLimits`]).
#[derive(Clone, Debug)]
pub struct OpenInode(pub(crate) InodeRef);

impl From<InodeRef> for OpenInode {
    fn from(inode: InodeRef) -> Self {
        Self(inode)
    }
}

impl OpenInode {
    /// The inode number.
    pub fn ino(&self) -> Ino {
        self.0.ino()
    }

    /// Returns the result unchanged; damage is recorded and handled (`errors=`).
    fn met<T>(&self, result: Result<T>) -> Result<T> {
        error_record::met(self.0.sbi(), self.0.ino(), result)
    }

    /// A new user of the inode, like a second `open(2)`: it reports only write-back errors that
    /// occur from now on, while a clone reports those that the original would report.
    #[must_use]
    pub fn reopened(&self) -> Self {
        self.0.reopened().into()
    }

    /// Marks this user as one that writes, for a caller that writes through another user of the
    /// inode: it has the file open for writing, and dropping it closes the file, as if it had
    /// written itself. While a file is open for writing, space is preallocated where it is expected
    /// to grow; the last one who closes it gives that back.
    #[must_use]
    pub fn for_writing(self) -> Self {
        self.0.note_writing();
        self
    }

    /// Marks this user as one through which others write, who have the file open themselves
    /// ([`OpenInode::for_writing`]), such as a node of a server that lives as long as its clients
    /// know it: the file does not count as open for writing because of it. Has no effect on a user
    /// that has written already.
    #[must_use]
    pub fn for_others(self) -> Self {
        self.0.note_serving();
        self
    }

    /// The same user of the inode, acting for `caller`: its operations, and the inodes that it
    /// looks up or creates, act on behalf of this caller, to whom the blocks reserved for root
    /// may be refused.
    #[must_use]
    pub fn as_caller(&self, caller: Caller) -> Self {
        self.0.as_caller(caller).into()
    }

    /// The current fields of the inode.
    pub fn inode(&self) -> Inode {
        let mut inode = self.0.inode.read().clone();
        inode.owners = None;
        inode
    }

    /// The current size in bytes.
    pub fn size(&self) -> u64 {
        self.0.inode.read().size
    }

    /// The current type and permissions.
    pub fn mode(&self) -> u16 {
        self.0.inode.read().mode
    }

    /// Whether a read updates the access time now, and under which mode.
    pub fn notes_access(&self) -> Option<AccessTimes> {
        file::change::notes_access(self.0.sbi(), &self.0.inode.read())
    }

    /// The number of 512-byte units that its last user frees, if the inode has no name any more.
    pub fn blocks_without_name(&self) -> Option<u64> {
        let inode = self.0.inode.read();
        (inode.links == 0).then_some(inode.blocks)
    }

    /// Space reserved for delayed data, in units of 512 bytes: not yet included in
    /// [`Inode::blocks`], but in the count that stat shows.
    pub fn delayed_blocks(&self) -> u64 {
        let known = self.0.known_blocks_if_any();
        let blocks = known.map_or(0, |known| known.delayed_blocks());
        blocks * (self.0.sbi().block_len() as u64 / 512)
    }

    /// Whether dropping this user writes data (`auto_da_alloc`), and so may take a long time.
    pub fn writes_on_close(&self) -> bool {
        self.0.is_writing() && auto_da_alloc::writes_on_close(&self.0)
    }

    /// Whether any user has the file open for writing ([`OpenInode::for_writing`]), or has written
    /// through a user that still lives. It may change as soon as it is known.
    pub fn is_open_for_writing(&self) -> bool {
        self.0.is_open_for_writing()
    }

    /// Looks up a name in this directory.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::NotDirectory`], [`crate::Error::NameTooLong`],
    /// damage, device errors.
    pub fn lookup(&self, name: &[u8]) -> Result<Self> {
        let run = || -> Result<Self> {
            let _names = self.0.rw.read();
            let ino = namei::lookup_held(self.0.sbi(), &self.0.inode.read(), name)?;
            let found = InodeRef::get(self.0.sbi(), ino)?;
            Ok(found.with_caller(self.0.caller()).into())
        };
        self.met(run())
    }

    /// Passes the entries of this directory after `cookie` (0: all) to `each` until it returns
    /// false, each with its inode, the file type stored with it, and the cookie to continue after
    /// it. Entries that exist during the whole listing are passed once, even if others change
    /// meanwhile.
    ///
    /// # Locking
    /// `each` runs with the directory locked: it must not use this directory or change anything.
    ///
    /// # Errors
    /// [`crate::Error::NotDirectory`], damage, device errors.
    pub fn list(&self, cookie: u64, each: &mut dyn FnMut(&Listed<'_>) -> bool) -> Result<()> {
        let mut run = || -> Result<()> {
            {
                let _names = self.0.rw.read();
                readdir::list(self.0.sbi(), &self.0.inode.read(), cookie, each)?;
            }
            file::change::accessed(&self.0)
        };
        self.met(run())
    }

    /// Creates an inode with a name in this directory.
    ///
    /// # Errors
    /// [`crate::Error::Exists`], [`crate::Error::NotDirectory`], [`crate::Error::NotFound`] for a
    /// directory that was removed, [`crate::Error::NameTooLong`], [`crate::Error::Invalid`],
    /// [`crate::Error::NoSpace`], [`crate::Error::NoInodes`], [`crate::Error::TooManyLinks`],
    /// [`crate::Error::ReadOnly`], damage, device errors.
    pub fn create(&self, name: &[u8], kind: NewInode<'_>, creation: &Creation) -> Result<Self> {
        self.met(create::create(&self.0, name, kind, creation).map(Self::from))
    }

    /// Creates an inode without a name, with the location and the attributes that it would have
    /// in this directory. [`OpenInode::link`] may give it a name.
    ///
    /// # Errors
    /// As [`OpenInode::create`]; [`crate::Error::Invalid`] for a directory.
    pub fn create_unnamed(&self, kind: NewInode<'_>, creation: &Creation) -> Result<Self> {
        self.met(create::create_unnamed(&self.0, kind, creation).map(Self::from))
    }

    /// As [`OpenInode::create_unnamed`] for a regular file that is to replace `old`: with its
    /// owner, group, project and permissions from the beginning.
    ///
    /// # Errors
    /// As [`OpenInode::create_unnamed`].
    pub fn create_unnamed_like(&self, old: &Self) -> Result<Self> {
        self.met(create::create_unnamed_like(&self.0, &old.0).map(Self::from))
    }

    /// Adds a name in `parent` for this inode.
    ///
    /// # Errors
    /// As [`OpenInode::create`]; [`crate::Error::NotPermitted`] for directories and for immutable
    /// or append-only inodes, [`crate::Error::NotFound`] for an inode that has lost its last
    /// name.
    pub fn link(&self, parent: &Self, name: &[u8]) -> Result<()> {
        self.met(create::link(&self.0, &parent.0, name))
    }

    /// Gives this inode a name in `parent` that another inode has, and removes it from that one,
    /// atomically.
    ///
    /// # Errors
    /// As [`OpenInode::link`]; [`crate::Error::NotFound`] if the name does not exist,
    /// [`crate::Error::IsDirectory`].
    pub fn link_over(&self, parent: &Self, name: &[u8]) -> Result<()> {
        rename::link_over(&self.0, &parent.0, name)
    }

    /// Removes a name in this directory that does not refer to a directory.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::IsDirectory`], [`crate::Error::NotPermitted`],
    /// [`crate::Error::ReadOnly`], damage, device errors.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        self.met(unlink::unlink(&self.0, name))
    }

    /// Removes an empty directory in this one.
    ///
    /// # Errors
    /// [`crate::Error::NotEmpty`], [`crate::Error::NotDirectory`]; as [`OpenInode::unlink`].
    pub fn rmdir(&self, name: &[u8]) -> Result<()> {
        self.met(unlink::rmdir(&self.0, name))
    }

    /// Renames an entry of this directory to `new` in `to`, atomically. If a file replaces
    /// another one, its data is written before (`auto_da_alloc`, [`crate::tuning::MountLimits`]).
    ///
    /// # Errors
    /// Those of [`OpenInode::create`] and [`OpenInode::rmdir`]; [`crate::Error::Invalid`] if a
    /// directory would become its own descendant.
    pub fn rename(&self, old: &[u8], to: &Self, new: &[u8], mode: RenameMode) -> Result<()> {
        let (from, to) = (Entry::new(&self.0, old), Entry::new(&to.0, new));
        self.met(rename::rename(from, to, mode))
    }

    /// Renames like [`OpenInode::rename`], for callers that must not wait for data to be written:
    /// returns false without a change if the data of the source would have to be written first
    /// because it replaces another inode.
    ///
    /// # Errors
    /// As [`OpenInode::rename`].
    pub fn try_rename(&self, old: &[u8], to: &Self, new: &[u8], mode: RenameMode) -> Result<bool> {
        let (from, to) = (Entry::new(&self.0, old), Entry::new(&to.0, new));
        self.met(rename::try_rename(from, to, mode))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is not a symbolic link, damage, device errors.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        let run = || -> Result<Vec<u8>> {
            let target = symlink::read_link(self.0.sbi(), &self.0.inode.read())?;
            file::change::accessed(&self.0)?;
            Ok(target)
        };
        self.met(run())
    }

    /// Reads from `offset` on and returns the number of bytes: fewer than requested only at the
    /// end.
    ///
    /// # Errors
    /// [`crate::Error::IsDirectory`], [`crate::Error::Invalid`], [`crate::Error::Encrypted`],
    /// damage, device errors.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.met(file::change::read(&self.0, offset, buf))
    }

    /// Reads up to `len` bytes like [`OpenInode::read_at`], but does not populate the cache: for
    /// callers with a cache of their own, such as the kernel side of a FUSE mount. Dirty data,
    /// and data that is still cached, comes from memory; everything else is read directly into
    /// `buf`, in whole blocks and without readahead. A `buf` longer than `len` may be used up to
    /// the end of the last block; its contents past the returned length are undefined. Blocks at
    /// the edges that do not fit into `buf` are cached.
    ///
    /// # Errors
    /// As [`OpenInode::read_at`].
    pub fn read_uncached(&self, offset: u64, len: usize, buf: &mut [u8]) -> Result<usize> {
        self.met(file::change::read_uncached(&self.0, offset, len, buf))
    }

    /// Writes at `offset` and returns the number of bytes accepted: fewer than `data` has if
    /// space ran out. If too much data is dirty, it sleeps as long as the throttle requires; the
    /// calling thread is the writer that is throttled.
    ///
    /// # Errors
    /// As [`OpenInode::write_with`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        Ok(self.write_with(WriteContext::default(), offset, data)?.len)
    }

    /// Writes at the current end of the file, and returns the offset and the number of bytes
    /// accepted.
    ///
    /// # Errors
    /// As [`OpenInode::write_with`].
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        let mode = WriteMode::append();
        let written = self.write_with(mode.into(), 0, data)?;
        Ok((written.offset, written.len))
    }

    /// Writes at `offset`, or at the end if the context says so, and returns the offset, the
    /// number of bytes accepted, and how long the writer should wait.
    ///
    /// [`Pacing::Return`](crate::data::Pacing::Return) is for front ends that must not block a
    /// thread, such as a FUSE server: it holds a [`Writer`](crate::data::Writer) for each client
    /// and delays its reply by the pause with a timer. If fewer bytes were accepted than given,
    /// it submits the rest, for the same writer, after the pause. A writer that comes earlier
    /// gets the rest of the pause, and no data is accepted. The call still waits while others
    /// change the file, and for data that it has to read; without flushers
    /// ([`crate::tuning::Background::None`]) it writes pages itself.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], [`crate::Error::FileTooBig`], [`crate::Error::NotPermitted`],
    /// [`crate::Error::Stalled`] if the device completes no writes any more,
    /// [`crate::Error::Interrupted`] if the file system is closed meanwhile, or if the writer is
    /// cancelled before a byte was accepted; as [`OpenInode::read_at`].
    pub fn write_with(
        &self,
        context: WriteContext<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<Written> {
        self.0.note_writing();
        self.met(file::change::write_with(&self.0, context, offset, data))
    }

    /// Allocates, frees or moves a range.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], [`crate::Error::Unsupported`] for files without extents, as
    /// [`OpenInode::write_with`].
    pub fn fallocate(&self, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.0.note_writing();
        self.met(fallocate::fallocate(&self.0, how, offset, len))
    }

    /// The first byte of data or of a hole at or after `offset`; `None` past the end, or if only
    /// a hole follows.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is not a regular file, damage, device errors.
    pub fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.met(fallocate::seek(&self.0, offset, what))
    }

    /// Copies up to `len` bytes to another file or position and returns the number of bytes
    /// copied: fewer at this file's end, or if space runs out. With [`WriteMode::append`],
    /// `to_offset` is not used.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the ranges overlap in one file; as [`OpenInode::read_at`] and
    /// [`OpenInode::write_with`] if nothing was copied.
    pub fn copy_to(
        &self,
        offset: u64,
        to: &Self,
        to_offset: u64,
        len: u64,
        mode: WriteMode,
    ) -> Result<u64> {
        to.0.note_writing();
        let from = Position::new(&self.0, offset);
        let to = Position::new(&to.0, to_offset);
        self.met(copy_range::copy_range(from, to, len, mode))
    }

    /// Reports the extents of a range of bytes, in order, as long as `each` returns true; holes
    /// are skipped. Call [`OpenInode::fsync`] first if no extent should be delayed.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for inodes without blocks (a short symbolic link, a device),
    /// damage, device errors.
    pub fn fiemap(
        &self,
        range: std::ops::Range<u64>,
        mut each: impl FnMut(FileExtent) -> bool,
    ) -> Result<()> {
        self.met(fiemap::fiemap(&self.0, range, &mut each))
    }

    /// Reads the whole block map of the file in advance, and makes it the last to be evicted when
    /// memory is short (`EXT4_IOC_PRECACHE_EXTENTS`).
    ///
    /// # Errors
    /// As [`OpenInode::fiemap`].
    pub fn precache_extents(&self) -> Result<()> {
        self.met(fiemap::precache(&self.0))
    }

    /// Drops the cached block map of the file except for delayed blocks
    /// (`EXT4_IOC_CLEAR_ES_CACHE`).
    pub fn clear_extent_cache(&self) {
        if let Some(known) = self.0.known_blocks_if_any() {
            known.clear_cache();
        }
    }

    /// Compares the cached block map of the file with the map on the device: for tests and tools,
    /// like the kernel's aggressive tests of its extent status tree. Returns the first block
    /// whose cached state differs.
    ///
    /// # Errors
    /// Damage, device errors.
    pub fn check_extent_cache(&self) -> Result<Option<Lblk>> {
        file::pages::contradiction(self.0.sbi(), &self.0)
    }

    /// Makes data and attributes durable.
    ///
    /// # Errors
    /// Write-back errors of the data, errors of the commit, device errors.
    pub fn fsync(&self) -> Result<()> {
        self.met(file::change::fsync(&self.0, true))
    }

    /// Makes the data durable, and the metadata needed to find it.
    ///
    /// # Errors
    /// As [`OpenInode::fsync`].
    pub fn fdatasync(&self) -> Result<()> {
        self.met(file::change::fsync(&self.0, false))
    }

    /// Clears the set-id bits, as a write does.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn drop_set_id(&self, how: SetId) -> Result<()> {
        self.met(file::change::drop_set_id(&self.0, how))
    }

    /// Changes the attributes that are set in `attributes`.
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] for an immutable inode, [`crate::Error::FileTooBig`],
    /// [`crate::Error::NoSpace`], [`crate::Error::ReadOnly`], damage, device errors.
    pub fn set_attributes(&self, attributes: &SetAttributes) -> Result<()> {
        self.met(setattr::set(&self.0, attributes))
    }

    /// The extended attributes as listxattr and getxattr show them to root.
    ///
    /// # Errors
    /// Damage, device errors.
    pub fn xattrs(&self) -> Result<Vec<Xattr>> {
        let found = {
            let inode = self.0.inode.read();
            xattr::list(self.0.sbi(), &inode, Reader::Holder)
        };
        // Handling damage commits, and a commit waits for threads that may wait for this inode.
        self.met(found)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`crate::Error::NoAttribute`], damage, device errors.
    pub fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        let found = {
            let inode = self.0.inode.read();
            xattr::get(self.0.sbi(), &inode, Reader::Holder, name)
        };
        // As above.
        self.met(found)
    }

    /// Sets an extended attribute, or with `None` removes it.
    ///
    /// # Errors
    /// [`crate::Error::Exists`] and [`crate::Error::NoAttribute`] as `mode` requires,
    /// [`crate::Error::XattrsTooBig`], [`crate::Error::NoSpace`], [`crate::Error::Unsupported`]
    /// for a name with an unknown prefix, damage, device errors.
    pub fn set_xattr(&self, name: &[u8], value: Option<&[u8]>, mode: SetMode) -> Result<()> {
        self.met(setattr::set_xattr(&self.0, name, value, mode))
    }

    /// Replaces the inode's xattr block by another one with the same content, if one is known
    /// whose reference count has space for all users of this block; otherwise makes this block
    /// available for sharing. Returns whether the inode has another block now. Called for all
    /// inodes, this merges equal blocks (offline deduplication).
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] with `nombcache`, [`crate::Error::ReadOnly`]; damage and device
    /// errors: these end all writing only if something was changed before.
    pub fn share_xattrs(&self) -> Result<bool> {
        self.met(setattr::share_xattrs(&self.0))
    }
}
