//! Changes the attributes that stat shows, and extended attributes.

use uext4_extent_status::Tree;
use uext4_ondisk::inode::{FileType, InodeFlags, Timestamp};

use crate::base::acl_kind::AclKind;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::file::change::truncate_locked;
use crate::file::inode_ref::InodeRef;
use crate::file::quota_change::{self, Payers};
use crate::inode::Inode;
use crate::inode::attr::{self, SetId};
use crate::inode::dquot::{Owners, Usage};
use crate::inode::store::store;
use crate::journal::handle::Handle;
use crate::journal::rw::{Purpose, Rw};
use crate::journal::sbi::Sbi;
use crate::journal::space::ensure_blocks;
use crate::xattr;
use crate::xattr::SetMode;
use crate::xattr::acl;

/// Maximum number of blocks that an extended attribute may need: one for attributes, the blocks
/// of a value that is stored in a separate inode, and that inode's map.
const XATTR_BLOCKS_MAX: u64 = 72;

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The current time.
    Now,
    /// This time, clamped to the range that the inode can store.
    To(Timestamp),
}

/// The attributes to change; the others stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions, 0 to 0o7777.
    pub mode: Option<u16>,
    /// Owner. Setting owner or group clears set-user-id, and set-group-id of group-executable
    /// files, except on directories.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes, for regular files.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode; by default the current time.
    pub ctime: Option<SetTime>,
    /// The times are those of writes that a cache above the engine has taken in, and no program
    /// sets them: they were permitted then, whatever flags the file has now.
    pub notes_writes: bool,
    /// Flags that chattr may set; other flags stay.
    pub flags: Option<InodeFlags>,
    /// Project.
    pub projid: Option<u32>,
    /// Generation; not where checksums of metadata contain it (`metadata_csum`).
    pub generation: Option<u32>,
}

impl SetAttributes {
    /// Whether this only sets times to the current time.
    fn only_touches(&self) -> bool {
        let is_now = |time: Option<SetTime>| time.is_none_or(|time| time == SetTime::Now);
        let times = Self {
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            ..Self::default()
        };
        *self == times && [self.atime, self.mtime, self.ctime].into_iter().all(is_now)
    }

    /// Whether this only sets times that a cache above the engine has noted of writes.
    fn only_notes_writes(&self) -> bool {
        let times = Self {
            mtime: self.mtime,
            ctime: self.ctime,
            notes_writes: true,
            ..Self::default()
        };
        *self == times
    }

    /// The flags of an inode that forbid the change: an append-only file may be touched, and may
    /// get another project; the generation may always be set, and the times of writes that were
    /// permitted when they were made.
    fn forbidden_by(&self) -> InodeFlags {
        let generation = Self {
            generation: self.generation,
            ..Self::default()
        };
        let numbers = Self {
            projid: self.projid,
            ..generation
        };
        match () {
            () if *self == generation || self.only_notes_writes() => InodeFlags::empty(),
            () if *self == numbers || self.only_touches() => InodeFlags::IMMUTABLE,
            () => attr::IMMUTABILITY,
        }
    }
}

/// Changes attributes.
pub(crate) fn set(file: &InodeRef, attributes: &SetAttributes) -> Result<()> {
    let sbi = file.sbi();
    let _contents = file.rw.write();
    let only_flags = SetAttributes {
        flags: attributes.flags,
        ..SetAttributes::default()
    };
    let forbid = attributes.forbidden_by();
    if *attributes != only_flags && file.inode.read().flags.intersects(forbid) {
        return Err(attr::fixed());
    }
    if let Some(size) = attributes.size {
        truncate_locked(file, size)?;
    }
    if set_with_commit(file, attributes)? {
        return Ok(());
    }
    // Only an ACL allocates blocks, if there is one that follows the mode.
    let may_take = attributes.mode.is_some() && file.inode.read().has_attributes();
    let _blocks = may_take
        .then(|| ensure_blocks(sbi, Purpose::Metadata(file.caller()), XATTR_BLOCKS_MAX))
        .transpose()?;
    let payers = new_payers(file, attributes)?;
    let handle = sbi.start(2 + xattr::change::credits_set(sbi))?;
    let now = handle.now();
    let inode = &mut *file.inode.write();
    // Damaged attributes are detected here: once the inode has changed, an error ends all
    // writing.
    let acl = match attributes.mode {
        Some(_) => acl::get(sbi, inode, AclKind::Access)?,
        None => None,
    };
    check_numbers(sbi, inode, attributes)?;
    let flags = match attributes.flags {
        Some(flags) => attr::change(inode, flags | inode.flags & InodeFlags::EXTENTS)?,
        None => inode.flags,
    };
    if let Some(payers) = &payers {
        hand_over(&handle, file, inode, payers)?;
    }
    inode.flags = flags;
    inode.projid = attributes.projid.unwrap_or(inode.projid);
    inode.generation = attributes.generation.unwrap_or(inode.generation);
    set_owner(inode, attributes);
    set_times(handle.rw(), inode, attributes, now);
    file.changed_in(handle.tid(), false);
    // From here on the quota must not refuse anything.
    inode.set_quota_free(true);
    let result = match attributes.mode {
        Some(mode) => xattr::change::chmod(&handle, inode, mode, acl),
        None => Ok(()),
    };
    inode.set_quota_free(false);
    handle.failed(result.and_then(|()| store(&handle, sbi, inode)))
}

/// Changes attributes of an inode that the next commit stores anyway, as a rule because its data
/// were just written: without a handle, as nothing else changes. Returns whether it did. An ACL
/// that follows the mode, owners with quotas, flags and what checksums contain need a handle.
fn set_with_commit(file: &InodeRef, attributes: &SetAttributes) -> Result<bool> {
    let rw = file.sbi().writable()?;
    let others = SetAttributes {
        flags: None,
        projid: None,
        generation: None,
        ..*attributes
    };
    // An inode that waits for no commit is not added: of one block of the inode table many inodes
    // can be stored with one credit of a transaction, while each that waits counts as a block.
    if *attributes != others || !file.is_changed_later() {
        return Ok(false);
    }
    let new_owner = attributes.uid.is_some() || attributes.gid.is_some();
    let needs_handle = {
        let inode = file.inode.read();
        new_owner && inode.owners.is_some() || attributes.mode.is_some() && inode.has_attributes()
    };
    if needs_handle {
        return Ok(false);
    }
    rw.journal.check()?;
    let now = rw.now();
    rw.inodes.change_later(file, |inode| {
        set_owner(inode, attributes);
        set_times(rw, inode, attributes, now);
        if let Some(mode) = attributes.mode {
            inode.mode = inode.mode & !0o7777 | mode & 0o7777;
        }
    });
    file.sbi().bound_later();
    Ok(true)
}

fn set_owner(inode: &mut Inode, attributes: &SetAttributes) {
    let new_owner = attributes.uid.is_some() || attributes.gid.is_some();
    inode.uid = attributes.uid.unwrap_or(inode.uid);
    inode.gid = attributes.gid.unwrap_or(inode.gid);
    if new_owner && inode.file_type != FileType::Directory {
        attr::drop_set_id(inode, SetId::Drop);
    }
}

fn set_times(rw: &Rw, inode: &mut Inode, attributes: &SetAttributes, now: Timestamp) {
    let time = |wanted: Option<SetTime>, old| match wanted {
        None => old,
        Some(SetTime::Now) => now,
        Some(SetTime::To(time)) => rw.kept(time),
    };
    inode.atime = time(attributes.atime, inode.atime);
    inode.mtime = time(attributes.mtime, inode.mtime);
    inode.ctime = time(Some(attributes.ctime.unwrap_or(SetTime::Now)), inode.ctime);
}

/// Whether the inode may have the project and the generation.
fn check_numbers(sbi: &Sbi, inode: &Inode, attributes: &SetAttributes) -> Result<()> {
    if attributes.generation.is_some() {
        attr::check_generation(sbi.geometry().features, inode)?;
    }
    match attributes.projid {
        Some(project) => attr::check_project(sbi.geometry(), project),
        None => Ok(()),
    }
}

/// The owners that will be charged for an inode, if they change and quotas are counted.
fn new_payers(file: &InodeRef, attributes: &SetAttributes) -> Result<Option<Box<Owners>>> {
    let (old, counted) = {
        let inode = file.inode.read();
        (quota_change::ids_of(&inode), inode.owners.is_some())
    };
    let new = [
        attributes.uid.unwrap_or(old[0]),
        attributes.gid.unwrap_or(old[1]),
        attributes.projid.unwrap_or(old[2]),
    ];
    if !counted || new == old {
        return Ok(None);
    }
    attr::check_project(file.sbi().geometry(), new[2])?;
    quota_change::owners(file.sbi(), file.caller(), Payers::Ids(new))
}

/// Transfers the quota usage of an inode to other owners.
///
/// Fails with [`crate::Error::QuotaExceeded`]; in that case nothing has changed.
fn hand_over(
    handle: &Handle<'_>,
    file: &InodeRef,
    inode: &mut Inode,
    payers: &Owners,
) -> Result<()> {
    let sbi = file.sbi();
    let inodes = 1 + xattr::change::inodes_apart(sbi, inode)?;
    let delayed = file.known_blocks_if_any().map_or(0, Tree::delayed_blocks);
    let delayed = delayed * sbi.block_len() as u64;
    match &mut inode.owners {
        Some(owners) => {
            let usage = Usage {
                space: inode.blocks << 9,
                reserved: delayed,
                inodes,
            };
            owners.transfer(handle, payers, usage)
        }
        None => Ok(()),
    }
}

/// Lets an inode share an xattr block; returns whether it has another block now.
pub(crate) fn share_xattrs(file: &InodeRef) -> Result<bool> {
    let sbi = file.sbi();
    if !sbi.writable()?.xattrs.blocks.is_on() {
        return Err(Error::Invalid(Invalid::NotShared));
    }
    let _contents = file.rw.write();
    if file.inode.read().xattr_block.is_none() {
        return Ok(false);
    }
    let handle = sbi.start(2 + xattr::change::credits_set(sbi))?;
    let inode = &mut *file.inode.write();
    let merged = match xattr::block::merge(&handle, inode) {
        Err(error) if handle.has_changed() => handle.failed(Err(error)),
        // Only this inode's block is damaged.
        result => result,
    };
    let Some(at) = merged? else {
        return Ok(false);
    };
    inode.xattr_block = Some(at);
    file.changed_in(handle.tid(), false);
    handle.failed(store(&handle, sbi, inode))?;
    Ok(true)
}

/// Sets or removes an extended attribute.
pub(crate) fn set_xattr(
    file: &InodeRef,
    name: &[u8],
    value: Option<&[u8]>,
    mode: SetMode,
) -> Result<()> {
    let sbi = file.sbi();
    let _contents = file.rw.write();
    if file.inode.read().flags.intersects(attr::IMMUTABILITY) {
        return Err(attr::fixed());
    }
    let _blocks = value
        .map(|_| ensure_blocks(sbi, Purpose::Metadata(file.caller()), XATTR_BLOCKS_MAX))
        .transpose()?;
    let handle = sbi.start(2 + xattr::change::credits_set(sbi))?;
    let inode = &mut *file.inode.write();
    match xattr::change::set(&handle, inode, name, value, mode) {
        Err(error @ (Error::Corrupt(_) | Error::Device(_))) if handle.has_changed() => {
            return handle.failed(Err(error));
        }
        result => result?,
    }
    inode.ctime = handle.now();
    file.changed_in(handle.tid(), false);
    handle.failed(store(&handle, sbi, inode))
}
