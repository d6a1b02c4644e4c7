//! New names: of new inodes and of those that have one.

use std::sync::atomic::Ordering::Relaxed;

use uext4_ondisk::extent::empty_extent_root;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::hash::{HashVersion, hash_name};
use uext4_ondisk::inode::{
    FULL_EXTRA_ISIZE, FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags,
};
use uext4_ondisk::{Ino, Lblk};

use crate::alloc::groups::NewIno;
use crate::alloc::ialloc::Parent;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::owner::{Kind, Owner};
use crate::bulk::NewInode;
use crate::dir;
use crate::dir::namei::{check_name, check_target, lookup};
use crate::file::inode_ref::InodeRef;
use crate::file::quota_change::{self, Payers};
use crate::inode::attr;
use crate::inode::dquot::Owners;
use crate::inode::icache::Cell;
use crate::inode::store::{store, store_new};
use crate::inode::{Inode, LINKS_MAX};
use crate::journal::handle::Handle;
use crate::journal::rw::Purpose;
use crate::journal::sbi::Sbi;
use crate::journal::space::{BlockReservation, ensure_blocks};
use crate::map;
use crate::orphan::change::Orphans;
use crate::quota::Ids;
use crate::xattr;
use crate::xattr::acl;

/// `S_ISGID`: what is made in the directory gets its group.
const S_ISGID: u16 = 0o2000;
/// Blocks that a new name may take: of the directory and its htree, a new directory's first, a
/// link's target, attributes.
pub(super) const BLOCKS_MAX: u64 = 16;

/// The creator of a new inode, and its attributes.
///
/// The default makes what belongs to root, with the permissions that most programs choose
/// ([`Creation::BY_KIND`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creation {
    /// Permissions, 0 to 0o7777, or [`Creation::BY_KIND`].
    pub mode: u16,
    /// Permissions it must not get, unless the directory has a default ACL.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory gives its own.
    pub gid: u32,
}

impl Creation {
    /// Permissions by the kind of the new inode: 0755 for directories, 0777 for symbolic links,
    /// which have none of their own, and 0644 for everything else.
    pub const BY_KIND: u16 = u16::MAX;

    /// For a regular file that every caller may read and its owner, root, write: mode 0644.
    #[must_use]
    pub fn file() -> Self {
        Self::with_mode(0o644)
    }

    /// For a directory that every caller may search and its owner, root, change: mode 0755.
    #[must_use]
    pub fn directory() -> Self {
        Self::with_mode(0o755)
    }

    /// With these permissions, owned by root.
    #[must_use]
    pub fn with_mode(mode: u16) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }

    /// The permissions of a new inode of this kind.
    fn permissions(&self, kind: FileType) -> u16 {
        match (self.mode, kind) {
            (Self::BY_KIND, FileType::Directory) => 0o755,
            (Self::BY_KIND, FileType::Symlink) => 0o777,
            (Self::BY_KIND, _) => 0o644,
            (mode, _) => mode & 0o7777,
        }
    }
}

impl Default for Creation {
    fn default() -> Self {
        Self {
            mode: Self::BY_KIND,
            umask: 0,
            uid: 0,
            gid: 0,
        }
    }
}

/// Makes an inode under a name that is not there yet.
///
/// Fails with [`Error::Exists`], [`Error::NotDirectory`], [`Error::NotFound`] for a directory that
/// was removed, [`Error::NameTooLong`], [`Error::Invalid`], [`Error::NoSpace`],
/// [`Error::NoInodes`], [`Error::TooManyLinks`], [`Error::QuotaExceeded`], [`Error::ReadOnly`],
/// damage, device errors.
pub(crate) fn create(
    parent: &InodeRef,
    name: &[u8],
    kind: NewInode<'_>,
    creation: &Creation,
) -> Result<InodeRef> {
    check_name(name)?;
    let made = make(parent, name, kind, creation);
    made.map_err(|error| precedence(parent, name, error))
}

/// EEXIST and ENOTDIR take precedence over every other error, as in Linux.
fn precedence(parent: &InodeRef, name: &[u8], error: Error) -> Error {
    let waits = matches!(
        error,
        Error::NoSpace { .. }
            | Error::NoInodes { .. }
            | Error::QuotaExceeded { .. }
            | Error::NotFound
            | Error::NameTooLong
            | Error::TargetTooLong { .. }
            | Error::NotPermitted { .. }
            | Error::TooManyLinks
    );
    if !waits {
        return error;
    }
    match lookup(parent.sbi(), &parent.inode.read(), name) {
        Ok(_) => Error::Exists,
        Err(first @ Error::NotDirectory) => first,
        Err(_) => error,
    }
}

/// Reserves the blocks of something new, and of its name; it may inherit attributes of the
/// directory.
fn ensure_for<'a>(parent: &'a InodeRef, kind: NewInode<'_>) -> Result<BlockReservation<'a>> {
    let sbi = parent.sbi();
    let inherits = parent.inode.read().has_attributes();
    let has_block = match kind {
        _ if inherits => true,
        NewInode::Directory => true,
        NewInode::Symlink(target) => target.len() >= I_BLOCK_LEN,
        _ => false,
    };
    let purpose = match has_block {
        true => Purpose::Metadata(parent.caller()),
        false => Purpose::Names,
    };
    ensure_blocks(sbi, purpose, BLOCKS_MAX)
}

fn make(
    parent: &InodeRef,
    name: &[u8],
    kind: NewInode<'_>,
    creation: &Creation,
) -> Result<InodeRef> {
    let sbi = parent.sbi();
    if let NewInode::Symlink(target) = kind {
        check_target(target, sbi.block_len())?;
    }
    let _names = parent.rw.write();
    let _blocks = ensure_for(parent, kind)?;
    let ids = ids_of_new(sbi, &parent.inode.read(), creation);
    let payers = Payers::next_to(&parent.inode.read(), ids);
    let owners = quota_change::owners(sbi, parent.caller(), payers)?;
    let credits = credits(sbi, &parent.inode.read());
    let handle = sbi.start(credits)?;
    let dir = &mut *parent.inode.write();
    let before = dir.clone();
    check_parent(sbi, dir, kind.file_type())?;
    let paid = Paid::new(&handle, ids, owners, first_bytes(sbi, kind))?;
    let new = take_inode(&handle, dir, name, kind.file_type())?;
    if let Err(error) = dir::change::add(&handle, dir, name, new.ino, kind.file_type()) {
        let is_dir = kind.file_type() == FileType::Directory;
        handle.failed(handle.free_inode(new.ino, is_dir))?;
        return match error {
            Error::Exists | Error::DirectoryFull { .. } | Error::QuotaExceeded { .. } => Err(error),
            error => handle.failed(Err(error)),
        };
    }
    let made = fill(&handle, dir, new, kind, creation, paid);
    let inode = handle.failed(made.and_then(|inode| {
        let is_dir = kind.file_type() == FileType::Directory;
        name_added(&handle, parent, dir, &before, is_dir)?;
        Ok(inode)
    }))?;
    parent.changed_in(handle.tid(), true);
    let cell = handle.rw().inodes.insert(inode);
    cell.changed_in(handle.tid(), true);
    Ok(InodeRef::new(sbi, cell).with_caller(parent.caller()))
}

/// Makes an inode without a name: an orphan until it gets one. Not for directories.
pub(crate) fn create_unnamed(
    parent: &InodeRef,
    kind: NewInode<'_>,
    creation: &Creation,
) -> Result<InodeRef> {
    let ids = ids_of_new(parent.sbi(), &parent.inode.read(), creation);
    make_unnamed(parent, kind, creation, ids)
}

/// Makes a regular file without a name that belongs to whom `old` belongs, and has its permissions.
pub(crate) fn create_unnamed_like(parent: &InodeRef, old: &InodeRef) -> Result<InodeRef> {
    let (ids, mode) = {
        let old = old.inode.read();
        (quota_change::ids_of(&old), old.mode & 0o7777)
    };
    let creation = Creation::with_mode(mode);
    make_unnamed(parent, NewInode::File, &creation, ids)
}

fn make_unnamed(
    parent: &InodeRef,
    kind: NewInode<'_>,
    creation: &Creation,
    ids: Ids,
) -> Result<InodeRef> {
    let sbi = parent.sbi();
    match kind {
        NewInode::Directory => {
            return Err(Invalid::UnnamedDirectory.into());
        }
        NewInode::Symlink(target) => check_target(target, sbi.block_len())?,
        _ => {}
    }
    let _blocks = ensure_for(parent, kind)?;
    let dir = parent.inode.read().clone();
    let owners = quota_change::owners(sbi, parent.caller(), Payers::next_to(&dir, ids))?;
    let handle = sbi.start(credits(sbi, &dir))?;
    check_parent(sbi, &dir, kind.file_type())?;
    let paid = Paid::new(&handle, ids, owners, first_bytes(sbi, kind))?;
    let new = take_inode(&handle, &dir, b"", kind.file_type())?;
    let made = fill(&handle, &dir, new, kind, creation, paid).and_then(|mut inode| {
        inode.links = 0;
        store(&handle, sbi, &inode)?;
        handle.add_orphan(inode.ino, inode.generation)?;
        Ok(inode)
    });
    let inode = handle.failed(made)?;
    let cell = handle.rw().inodes.insert(inode);
    cell.may_get_name.store(true, Relaxed);
    cell.changed_in(handle.tid(), true);
    Ok(InodeRef::new(sbi, cell).with_caller(parent.caller()))
}

/// Gives an inode one more name, or one that was made without any its first.
///
/// Fails as [`create`], with [`Error::NotPermitted`] for a directory; [`Error::NotFound`] for an
/// inode that was removed.
pub(crate) fn link(inode: &InodeRef, parent: &InodeRef, name: &[u8]) -> Result<()> {
    check_name(name)?;
    add_link(inode, parent, name).map_err(|error| precedence(parent, name, error))
}

fn add_link(inode: &InodeRef, parent: &InodeRef, name: &[u8]) -> Result<()> {
    let sbi = parent.sbi();
    // Before any lock: directories are locked in the order of names, which this would turn round.
    if inode.inode.read().file_type == FileType::Directory {
        return Err(directory_link());
    }
    let _names = parent.rw.write();
    let _blocks = ensure_blocks(sbi, Purpose::Names, BLOCKS_MAX)?;
    let credits = credits(sbi, &parent.inode.read());
    let handle = sbi.start(credits)?;
    let dir = &mut *parent.inode.write();
    let before = dir.clone();
    check_parent(sbi, dir, FileType::Regular)?;
    let target = &mut *inode.inode.write();
    check_linkable(inode, target)?;
    if !attr::takes_in(dir, target) {
        return Err(Error::OtherProject);
    }
    match dir::change::add(&handle, dir, name, target.ino, target.file_type) {
        Err(
            error @ (Error::Exists | Error::DirectoryFull { .. } | Error::QuotaExceeded { .. }),
        ) => return Err(error),
        result => handle.failed(result)?,
    }
    let result = count_link(&handle, inode, target)
        .and_then(|()| name_added(&handle, parent, dir, &before, false));
    parent.changed_in(handle.tid(), true);
    handle.failed(result)
}

/// Fails with what keeps an inode, as `target` of `cell`, from getting one more name anywhere.
pub(crate) fn check_linkable(cell: &Cell, target: &Inode) -> Result<()> {
    if target.file_type == FileType::Directory {
        return Err(directory_link());
    }
    if target
        .flags
        .intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
    {
        return Err(attr::fixed());
    }
    match target.links {
        0 if !cell.may_get_name.load(Relaxed) => Err(Error::NotFound),
        LINKS_MAX.. => Err(Error::TooManyLinks),
        _ => Ok(()),
    }
}

/// An inode, as `target` of `cell`, has one more name; with its first it is no longer an orphan.
pub(crate) fn count_link(handle: &Handle<'_>, cell: &Cell, target: &mut Inode) -> Result<()> {
    target.links += 1;
    target.ctime = handle.now();
    cell.may_get_name.store(false, Relaxed);
    cell.changed_in(handle.tid(), false);
    store(handle, handle.sbi(), target)?;
    match target.links {
        1 => handle.remove_orphan(target.ino, target.generation),
        _ => Ok(()),
    }
}

fn directory_link() -> Error {
    Error::NotPermitted {
        what: "more than one name for a directory",
    }
}

/// Blocks that making a name may change.
pub(super) fn credits(sbi: &Sbi, dir: &Inode) -> u32 {
    // Bitmap, table, the directory's inode, a link's block and its map, attributes.
    let contents = dir::change::credits_init(sbi, dir).max(4);
    dir::change::credits_add(sbi, dir)
        + Orphans::CREDITS
        + 4
        + contents
        + xattr::change::credits_set(sbi)
}

/// Fails with what keeps a name from being made in `dir`.
pub(super) fn check_parent(sbi: &Sbi, dir: &Inode, file_type: FileType) -> Result<()> {
    if dir.file_type != FileType::Directory {
        return Err(Error::NotDirectory);
    }
    if dir.links == 0 {
        return Err(Error::NotFound);
    }
    if dir.has(InodeFlags::IMMUTABLE) {
        return Err(attr::fixed());
    }
    check_subdirs(sbi, dir, file_type)
}

/// Fails with [`Error::TooManyLinks`] if one more directory in `dir` could not be counted.
pub(crate) fn check_subdirs(sbi: &Sbi, dir: &Inode, file_type: FileType) -> Result<()> {
    let features = sbi.geometry().features;
    let counts_all = features.ro_compat.contains(RoCompat::DIR_NLINK);
    if file_type == FileType::Directory && dir.links >= LINKS_MAX && !counts_all {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}

fn take_inode(
    handle: &Handle<'_>,
    dir: &Inode,
    name: &[u8],
    file_type: FileType,
) -> Result<NewIno> {
    let sbi = handle.sbi();
    let (group, _) = sbi.geometry().inode_group(dir.ino).ok_or(Error::NotFound)?;
    let groups = &handle.rw().groups;
    let parent = Parent {
        group,
        is_top: dir.ino == Ino::ROOT || dir.has(InodeFlags::TOPDIR),
        last_group: groups.last_dir(dir.ino),
    };
    if file_type != FileType::Directory {
        return handle.take_inode(parent, None);
    }
    // Any hash will do; this one is the kernel's.
    let seed = sbi.superblock().hash_seed();
    let hash = hash_name(HashVersion::HalfMd4, seed, name).hash;
    let new = handle.take_inode(parent, Some(hash))?;
    groups.set_last_dir(dir.ino, new.group);
    Ok(new)
}

/// Whether every inode gets the group of its directory (`grpid`): then no bit of the directory has
/// to say so, and none is passed on to directories made in it.
fn takes_group(sbi: &Sbi) -> bool {
    let rw = sbi.rw();
    rw.is_some_and(|rw| rw.limits.takes_group_of_directory(sbi.superblock()))
}

/// Whom an inode made in a directory will belong to: user, group and project.
fn ids_of_new(sbi: &Sbi, dir: &Inode, creation: &Creation) -> Ids {
    let of_directory = takes_group(sbi) || dir.mode & S_ISGID != 0;
    let gid = if of_directory { dir.gid } else { creation.gid };
    let project = attr::inherited_project(sbi.geometry().features, dir);
    [creation.uid, gid, project]
}

/// Bytes of the first block of a new inode.
fn first_bytes(sbi: &Sbi, kind: NewInode<'_>) -> u64 {
    let has_block = match kind {
        NewInode::Directory => true,
        NewInode::Symlink(target) => target.len() >= I_BLOCK_LEN,
        _ => false,
    };
    u64::from(has_block) * sbi.block_len() as u64
}

/// A new inode and its first blocks, charged to their owners, whose ids these are, unless they are
/// not made after all.
pub(super) struct Paid<'a> {
    handle: &'a Handle<'a>,
    pub(super) owners: Option<Box<Owners>>,
    ids: Ids,
}

impl<'a> Paid<'a> {
    /// Fails with [`Error::QuotaExceeded`].
    pub(super) fn new(
        handle: &'a Handle<'a>,
        ids: Ids,
        mut owners: Option<Box<Owners>>,
        bytes: u64,
    ) -> Result<Self> {
        if let Some(owners) = &mut owners {
            owners.reservation(bytes)?;
            owners.draw(bytes);
            if let Err(error) = owners.charge_inodes(handle, 1) {
                owners.give_back();
                return Err(error);
            }
            // From here on it must be made.
            owners.free = true;
        }
        Ok(Self {
            handle,
            owners,
            ids,
        })
    }
}

impl Drop for Paid<'_> {
    fn drop(&mut self) {
        if let Some(owners) = &mut self.owners {
            owners.give_back();
            owners.uncharge_inodes(self.handle, 1);
        }
    }
}

/// Gives a new inode its fields, attributes and contents, and stores it.
fn fill(
    handle: &Handle<'_>,
    dir: &Inode,
    new: NewIno,
    kind: NewInode<'_>,
    creation: &Creation,
    mut paid: Paid<'_>,
) -> Result<Inode> {
    let sbi = handle.sbi();
    let now = handle.now();
    let file_type = kind.file_type();
    let asked = file_type.mode_bits() | creation.permissions(file_type);
    let inherited = acl::inherit(sbi, dir, asked, creation.umask)?;
    let [uid, gid, projid] = paid.ids;
    let set_group = dir.mode & S_ISGID != 0 && !takes_group(sbi);
    let is_dir = file_type == FileType::Directory;
    let mode = inherited.mode | if set_group && is_dir { S_ISGID } else { 0 };
    let large = usize::from(sbi.geometry().inode_size) > GOOD_OLD_INODE_SIZE;
    let mut inode = Inode {
        ino: new.ino,
        mode,
        file_type,
        uid,
        gid,
        size: 0,
        links: if is_dir { 2 } else { 1 },
        blocks: 0,
        flags: attr::inherited(dir.flags, file_type),
        generation: handle.rw().next_generation(),
        atime: now,
        mtime: now,
        ctime: now,
        crtime: large.then_some(now),
        dtime: 0,
        projid,
        rdev: None,
        xattr_block: None,
        i_block: [0; I_BLOCK_LEN],
        disk_size: None,
        xattr_offset: None,
        owners: paid.owners.take(),
    };
    give_contents(sbi, &mut inode, kind);
    let extra = if large { extra_isize(sbi) } else { 0 };
    store_new(handle, sbi, &inode, extra)?;
    let stored = inode.clone();
    xattr::change::store_inherited(handle, &mut inode, &inherited)?;
    match kind {
        NewInode::Directory => dir::change::init(handle, &mut inode, dir.ino)?,
        NewInode::Symlink(target) if target.len() >= I_BLOCK_LEN => {
            write_target(handle, &mut inode, target)?;
        }
        _ => {}
    }
    if let Some(owners) = &mut inode.owners {
        owners.give_back();
        owners.free = false;
    }
    if inode != stored {
        store(handle, sbi, &inode)?;
    }
    Ok(inode)
}

/// How much a new inode has beyond 128 bytes: what the superblock wants, all known fields at least.
fn extra_isize(sbi: &Sbi) -> u16 {
    let room = sbi.geometry().inode_size - GOOD_OLD_INODE_SIZE as u16;
    let want = sbi.superblock().s_want_extra_isize.get();
    want.clamp(FULL_EXTRA_ISIZE, room.max(FULL_EXTRA_ISIZE)) / 4 * 4
}

/// What stands in `i_block` from the start.
fn give_contents(sbi: &Sbi, inode: &mut Inode, kind: NewInode<'_>) {
    match kind {
        NewInode::Symlink(target) if target.len() < I_BLOCK_LEN => {
            inode.i_block[..target.len()].copy_from_slice(target);
            inode.size = target.len() as u64;
        }
        NewInode::File | NewInode::Directory | NewInode::Symlink(_) if sbi.has_extents() => {
            inode.flags |= InodeFlags::EXTENTS;
            inode.i_block = empty_extent_root();
        }
        NewInode::CharDevice(device) | NewInode::BlockDevice(device) => {
            inode.i_block = device.encode();
            inode.rdev = Some(device);
        }
        _ => {}
    }
}

/// Writes a link's target to a block of its own, through the journal.
fn write_target(handle: &Handle<'_>, inode: &mut Inode, target: &[u8]) -> Result<()> {
    let (group, _) = handle
        .sbi()
        .geometry()
        .inode_group(inode.ino)
        .ok_or(Error::NotFound)?;
    let block = handle.take_block(handle.sbi().geometry().group_start(group))?;
    // Longer than what fits the inode: that is how it is distinguished from a short one.
    inode.size = target.len() as u64;
    let extent = uext4_ondisk::extent::Extent {
        lblk: Lblk(0),
        len: 1,
        pblk: block,
        unwritten: false,
    };
    map::change::insert(handle, inode, extent)?;
    let buffer = handle.fresh(block);
    handle.change(&buffer, Owner::of(Kind::Data), |bytes| {
        bytes[..target.len()].copy_from_slice(target);
    });
    Ok(())
}

/// A directory has one name more; it was as `before`.
pub(super) fn name_added(
    handle: &Handle<'_>,
    cell: &Cell,
    dir: &mut Inode,
    before: &Inode,
    is_dir: bool,
) -> Result<()> {
    let now = handle.now();
    (dir.mtime, dir.ctime) = (now, now);
    if is_dir {
        // One link means: more than can be counted.
        dir.links = match dir.links {
            1 | LINKS_MAX.. => 1,
            links => links + 1,
        };
    }
    handle.store_times(cell, dir, before)
}
