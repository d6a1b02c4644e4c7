//! What users of a file system mounted for writing hold: an inode in use, and what can be done with
//! it. Every method is one call into the module that does the work.

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

/// An inode of a file system mounted for writing, in use: it stays what it is, even without a
/// name, until the last of its users is dropped. Clones are users of their own. May be used by
/// many threads.
///
/// # Locking
/// Changes of one directory's names, and of one file's contents and size, are made one after the
/// other; different inodes do not wait for one another. Reading waits for nothing but the copy of
/// what is being written.
///
/// Dropping one that has written closes the file: where its contents were cut to nothing since it
/// was closed last, the new ones are written then (`auto_da_alloc`,
/// [`crate::tuning::MountLimits`]).
#[derive(Clone, Debug)]
pub struct OpenInode(pub(crate) InodeRef);

impl From<InodeRef> for OpenInode {
    fn from(inode: InodeRef) -> Self {
        Self(inode)
    }
}

impl OpenInode {
    /// Its number.
    pub fn ino(&self) -> Ino {
        self.0.ino()
    }

    /// Passes a result on; damage is recorded and acted upon (`errors=`).
    fn met<T>(&self, result: Result<T>) -> Result<T> {
        error_record::met(self.0.sbi(), self.0.ino(), result)
    }

    /// A new handle, like a second `open(2)`: it reports only write-back errors that occur from
    /// now on. A clone shares the original's error cursor.
    #[must_use]
    pub fn reopened(&self) -> Self {
        self.0.reopened().into()
    }

    /// The same for a caller that writes by way of another user of the inode: dropping it closes
    /// the file as if this one had written.
    #[must_use]
    pub fn for_writing(self) -> Self {
        self.0.note_writing();
        self
    }

    /// The same user of the inode, acting for `caller`: what it does, and what it looks up or
    /// creates then, is on behalf of this caller, who may be refused the blocks reserved for the
    /// superuser.
    #[must_use]
    pub fn as_caller(&self, caller: Caller) -> Self {
        self.0.as_caller(caller).into()
    }

    /// Its fields as they are now.
    pub fn inode(&self) -> Inode {
        let mut inode = self.0.inode.read().clone();
        inode.owners = None;
        inode
    }

    /// Bytes of its contents as they are now.
    pub fn size(&self) -> u64 {
        self.0.inode.read().size
    }

    /// Type and permissions as they are now.
    pub fn mode(&self) -> u16 {
        self.0.inode.read().mode
    }

    /// Whether reading it changes its time of access now, and by which rule.
    pub fn notes_access(&self) -> Option<AccessTimes> {
        file::change::notes_access(self.0.sbi(), &self.0.inode.read())
    }

    /// How many units of 512 bytes it has if it has no name any more: what its last user deletes.
    pub fn blocks_without_name(&self) -> Option<u64> {
        let inode = self.0.inode.read();
        (inode.links == 0).then_some(inode.blocks)
    }

    /// Space reserved for data that waits to be written, in units of 512 bytes: not yet among
    /// [`Inode::blocks`], but among what stat shows.
    pub fn delayed_blocks(&self) -> u64 {
        let known = self.0.known_blocks_if_any();
        let blocks = known.map_or(0, |known| known.delayed_blocks());
        blocks * (self.0.sbi().block_len() as u64 / 512)
    }

    /// Whether dropping this user writes data (`auto_da_alloc`), and so may take long.
    pub fn writes_on_close(&self) -> bool {
        self.0.is_writing() && auto_da_alloc::writes_on_close(&self.0)
    }

    /// The inode of a name in this directory.
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

    /// Passes the names of this directory after `cookie` (0: all) to `each` until it returns false,
    /// each with its inode, the type noted with it, and the cookie to continue after it. Names that
    /// exist all the time are passed once, whatever happens to others meanwhile.
    ///
    /// # Locking
    /// `each` runs with the directory locked: it must not use this directory, nor change anything.
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

    /// Makes an inode under a name in this directory.
    ///
    /// # Errors
    /// [`crate::Error::Exists`], [`crate::Error::NotDirectory`], [`crate::Error::NotFound`] for a
    /// directory that was removed, [`crate::Error::NameTooLong`], [`crate::Error::Invalid`],
    /// [`crate::Error::NoSpace`], [`crate::Error::NoInodes`], [`crate::Error::TooManyLinks`],
    /// [`crate::Error::ReadOnly`], damage, device errors.
    pub fn create(&self, name: &[u8], kind: NewInode<'_>, creation: &Creation) -> Result<Self> {
        self.met(create::create(&self.0, name, kind, creation).map(Self::from))
    }

    /// Makes an inode without a name, in the place and with the attributes it would have in this
    /// directory. [`OpenInode::link`] may give it one.
    ///
    /// # Errors
    /// As [`OpenInode::create`]; [`crate::Error::Invalid`] for a directory.
    pub fn create_unnamed(&self, kind: NewInode<'_>, creation: &Creation) -> Result<Self> {
        self.met(create::create_unnamed(&self.0, kind, creation).map(Self::from))
    }

    /// Gives this inode a name in `parent`.
    ///
    /// # Errors
    /// As [`OpenInode::create`]; [`crate::Error::NotPermitted`] for directories and what is
    /// immutable or append-only, [`crate::Error::NotFound`] for what has lost its last name.
    pub fn link(&self, parent: &Self, name: &[u8]) -> Result<()> {
        self.met(create::link(&self.0, &parent.0, name))
    }

    /// Gives this inode a name in `parent` that another has, which loses it, in one step that is
    /// seen whole or not at all.
    ///
    /// # Errors
    /// As [`OpenInode::link`]; [`crate::Error::NotFound`] where nothing has the name,
    /// [`crate::Error::IsDirectory`].
    pub fn link_over(&self, parent: &Self, name: &[u8]) -> Result<()> {
        rename::link_over(&self.0, &parent.0, name)
    }

    /// Takes a name in this directory that is no directory's.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::IsDirectory`], [`crate::Error::NotPermitted`],
    /// [`crate::Error::ReadOnly`], damage, device errors.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        self.met(unlink::unlink(&self.0, name))
    }

    /// Takes the name of an empty directory in this one.
    ///
    /// # Errors
    /// [`crate::Error::NotEmpty`], [`crate::Error::NotDirectory`]; as [`OpenInode::unlink`].
    pub fn rmdir(&self, name: &[u8]) -> Result<()> {
        self.met(unlink::rmdir(&self.0, name))
    }

    /// Moves a name of this directory to `to`, in one step that is seen whole or not at all. A file
    /// that replaces another one has its data written before (`auto_da_alloc`,
    /// [`crate::tuning::MountLimits`]).
    ///
    /// # Errors
    /// Those of [`OpenInode::create`] and [`OpenInode::rmdir`]; [`crate::Error::Invalid`] for a
    /// directory that would come to lie in itself.
    pub fn rename(&self, old: &[u8], to: &Self, new: &[u8], mode: RenameMode) -> Result<()> {
        let (from, to) = (Entry::new(&self.0, old), Entry::new(&to.0, new));
        self.met(rename::rename(from, to, mode))
    }

    /// Moves a name as [`OpenInode::rename`], for callers that must not wait for data to be
    /// written: false, and nothing has changed, if the data of the source would be written first
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
    /// [`crate::Error::Invalid`] if it is none, damage, device errors.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        let run = || -> Result<Vec<u8>> {
            let target = symlink::read_link(self.0.sbi(), &self.0.inode.read())?;
            file::change::accessed(&self.0)?;
            Ok(target)
        };
        self.met(run())
    }

    /// Reads from `offset` on and returns how many bytes there were: fewer than asked for only at
    /// the end.
    ///
    /// # Errors
    /// [`crate::Error::IsDirectory`], [`crate::Error::Invalid`], [`crate::Error::Encrypted`],
    /// damage, device errors.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.met(file::change::read(&self.0, offset, buf))
    }

    /// Reads as [`OpenInode::read_at`] up to `len` bytes, and keeps nothing of what it reads: for
    /// callers that keep it themselves, as a mount's kernel does. What waits to be written, and
    /// what was not dropped since, comes from memory; all else goes straight into `buf`, in whole
    /// blocks and without reading ahead. A `buf` longer than `len` may be used up to the end of
    /// the last block; past the bytes that are reported, what is in it means nothing. Blocks at
    /// the edges for which there is no room are stored.
    ///
    /// # Errors
    /// As [`OpenInode::read_at`].
    pub fn read_uncached(&self, offset: u64, len: usize, buf: &mut [u8]) -> Result<usize> {
        self.met(file::change::read_uncached(&self.0, offset, len, buf))
    }

    /// Writes at `offset` and returns how many bytes were taken in: fewer than `data` has where
    /// space ran out. Where too much is dirty it sleeps as long as the throttle says; the thread
    /// is the writer.
    ///
    /// # Errors
    /// As [`OpenInode::write_with`].
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        Ok(self.write_with(WriteContext::default(), offset, data)?.len)
    }

    /// Writes at the end, wherever that is, and returns where that was and how many bytes were
    /// taken in.
    ///
    /// # Errors
    /// As [`OpenInode::write_with`].
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        let mode = WriteMode::append();
        let written = self.write_with(mode.into(), 0, data)?;
        Ok((written.offset, written.len))
    }

    /// Writes at `offset`, or at the end where the context says so, and returns where that was, how
    /// many bytes were taken in, and how long the writer is to wait.
    ///
    /// [`Pacing::Return`](crate::data::Pacing::Return) is for front ends that have no thread to
    /// spare, as a mount has: it holds a [`Writer`](crate::data::Writer) for each client, delays
    /// its answer by the pause with a timer, and, where less was taken in than there was, comes
    /// with the rest, for the same writer, when the pause is over. A writer that comes earlier
    /// gets the rest of the pause, and nothing is taken in. The call still waits where the file
    /// is being changed by others, and for what it has to read; without flushers
    /// ([`crate::tuning::Background::None`]) it writes pages itself.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], [`crate::Error::FileTooBig`], [`crate::Error::NotPermitted`],
    /// [`crate::Error::Stalled`] for a device that takes nothing any more,
    /// [`crate::Error::Interrupted`] if the file system is closed meanwhile, or the writer is
    /// cancelled before a byte was taken in; as [`OpenInode::read_at`].
    pub fn write_with(
        &self,
        context: WriteContext<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<Written> {
        self.0.note_writing();
        self.met(file::change::write_with(&self.0, context, offset, data))
    }

    /// Allocates, gives back or moves a range.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], [`crate::Error::Unsupported`] for files without extents, as
    /// [`OpenInode::write_with`].
    pub fn fallocate(&self, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.met(fallocate::fallocate(&self.0, how, offset, len))
    }

    /// The first byte at or after `offset` of data or of a hole; `None` past the end, or if only a
    /// hole follows.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is no regular file, damage, device errors.
    pub fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.met(fallocate::seek(&self.0, offset, what))
    }

    /// Copies up to `len` bytes to another place and returns how many: fewer at this file's end, or
    /// where space runs out. With [`WriteMode::append`] `to_offset` is not used.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the ranges are of one file and overlap; as
    /// [`OpenInode::read_at`] and [`OpenInode::write_with`] if nothing was copied.
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

    /// Reports where the parts of a range of bytes lie, in order, as long as `each` returns true;
    /// holes are left out. Call [`OpenInode::fsync`] before, and nothing is delayed any more.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for what has no blocks (a short symbolic link, a device), damage,
    /// device errors.
    pub fn fiemap(
        &self,
        range: std::ops::Range<u64>,
        mut each: impl FnMut(FileExtent) -> bool,
    ) -> Result<()> {
        self.met(fiemap::fiemap(&self.0, range, &mut each))
    }

    /// Reads the whole map of the file's blocks in advance, and has it forgotten last when memory
    /// is short (`EXT4_IOC_PRECACHE_EXTENTS`).
    ///
    /// # Errors
    /// As [`OpenInode::fiemap`].
    pub fn precache_extents(&self) -> Result<()> {
        self.met(fiemap::precache(&self.0))
    }

    /// Forgets the map of the file's blocks but for what waits to be written
    /// (`EXT4_IOC_CLEAR_ES_CACHE`).
    pub fn clear_extent_cache(&self) {
        if let Some(known) = self.0.known_blocks_if_any() {
            known.clear_cache();
        }
    }

    /// Compares all that is known of the file's blocks with the map on the device: for tests and
    /// tools, as the kernel's aggressive tests of its extent status tree. Reports the first block
    /// of which something else is known.
    ///
    /// # Errors
    /// Damage, device errors.
    pub fn check_extent_cache(&self) -> Result<Option<Lblk>> {
        file::pages::contradiction(self.0.sbi(), &self.0)
    }

    /// Makes data and attributes durable.
    ///
    /// # Errors
    /// What writing the data said, errors of the commit, device errors.
    pub fn fsync(&self) -> Result<()> {
        self.met(file::change::fsync(&self.0, true))
    }

    /// Makes the data durable, and what is needed to find them.
    ///
    /// # Errors
    /// As [`OpenInode::fsync`].
    pub fn fdatasync(&self) -> Result<()> {
        self.met(file::change::fsync(&self.0, false))
    }

    /// Drops set-id bits, as a write does.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn drop_set_id(&self, how: SetId) -> Result<()> {
        self.met(file::change::drop_set_id(&self.0, how))
    }

    /// Changes attributes: those that are given.
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
        // What acts upon damage commits, and a commit waits for others who wait for the inode.
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
    /// [`crate::Error::Exists`] and [`crate::Error::NoAttribute`] as `mode` wants,
    /// [`crate::Error::XattrsTooBig`], [`crate::Error::NoSpace`], [`crate::Error::Unsupported`]
    /// for a name of no known kind, damage, device errors.
    pub fn set_xattr(&self, name: &[u8], value: Option<&[u8]>, mode: SetMode) -> Result<()> {
        self.met(setattr::set_xattr(&self.0, name, value, mode))
    }

    /// Lets the inode have another block of attributes, if one with the same content is known and
    /// has room for all users of its own, in place of its own; else others find its own. Returns
    /// whether it has another one now. Asked of all inodes, this merges blocks that are equal
    /// (offline deduplication).
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] with `nombcache`, [`crate::Error::ReadOnly`]; damage, device
    /// errors: these end all writing only if something was changed before.
    pub fn share_xattrs(&self) -> Result<bool> {
        self.met(setattr::share_xattrs(&self.0))
    }
}
