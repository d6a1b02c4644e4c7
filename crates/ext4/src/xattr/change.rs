//! Changing extended attributes: in the inode first, else in a block, and values that fit neither
//! in inodes of their own where the file system has them.
//!
//! Entries are placed as the kernel places them: only the one that is set moves, and only its value
//! goes into an inode of its own. Left out: who may change what (owners, capabilities, immutable
//! inodes), which callers decide; quotas.
//!
//! The inode must be in its table already ([`crate::inode::store::store_new`]); its fields change
//! in memory, and the caller stores them afterwards. A caller that calls holds the inode's lock.

use uext4_ondisk::acl::Acl;
use uext4_ondisk::features::Compat;
use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, RawInode};
use uext4_ondisk::xattr::{
    INDEX_SYSTEM, INDEX_USER, XATTR_ENTRY_LEN, XATTR_IBODY_HEADER_LEN, XATTR_SIZE_MAX, XattrEntry,
    XattrValue, ea_inode_hash, entries_len, entry_len, pack_body, value_len,
};
use uext4_ondisk::{Damage, Ino};

use crate::base::error::{Error, Result};
use crate::inode::store::change_bytes;
use crate::inode::{Inode, inode_bytes};
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::xattr;
use crate::xattr::acl::{self, AclKind, Inherited};
use crate::xattr::block::Values;
use crate::xattr::ea_inode;
use crate::xattr::layout::{XattrShape, sort_key};
use crate::xattr::{Reader, SetMode, Sources, XattrName, parse_name, takes_user};

/// Blocks that [`set`], [`set_acl`] and [`store_inherited`] change at most.
pub(crate) fn credits_set(sbi: &Sbi) -> u32 {
    // The inode; a block before and after, and their bitmaps. Two ACLs are no more than that twice.
    let plain = 2 * (1 + 4);
    bounded(sbi, plain, || {
        ea_inode::credits_obtain(sbi) + ea_inode::credits_release(sbi) + apart_max(sbi)
    })
}

/// Blocks that [`delete_all`] changes at most.
pub(crate) fn credits_delete(sbi: &Sbi) -> u32 {
    bounded(sbi, 1 + 2, || {
        // Values share blocks of inodes and bitmaps: many that do not are counted when they come.
        ea_inode::credits_release(sbi) + 2 * apart_max(sbi)
    })
}

/// With values in inodes of their own more is needed, but never more than one transaction has; what
/// the odd operation changes beyond that is counted when it does.
fn bounded(sbi: &Sbi, plain: u32, apart: impl FnOnce() -> u32) -> u32 {
    if !XattrShape::new(sbi.geometry()).has_apart() {
        return plain;
    }
    let most = sbi.rw().map_or(u32::MAX, |rw| rw.journal.credits_max());
    (plain + apart()).min(most / 2).max(plain)
}

/// Values apart that the entries of one block lead to at most.
fn apart_max(sbi: &Sbi) -> u32 {
    (sbi.block_len() / (XATTR_ENTRY_LEN + 4)) as u32
}

/// Sets an attribute by its full name, or removes it (`None`), as setxattr and removexattr do. ACLs
/// come in the form of the system calls, and `mode` does not count for them; an access ACL sets the
/// mode's permission bits.
///
/// Fails with [`Error::Exists`] and [`Error::NoAttribute`] by `mode`; [`Error::AttributeName`],
/// [`Error::AttributeValue`], [`Error::Invalid`], [`Error::Unsupported`], [`Error::NotPermitted`],
/// [`Error::AccessDenied`] for what cannot be an attribute of such an inode;
/// [`Error::XattrsTooBig`], [`Error::NoSpace`], [`Error::NoInodes`]: after all these nothing has
/// changed. Damage, device errors.
pub(crate) fn set(
    handle: &Handle<'_>,
    inode: &mut Inode,
    name: &[u8],
    value: Option<&[u8]>,
    mode: SetMode,
) -> Result<()> {
    let name = parse_name(name)?;
    let (len, max) = (value.map_or(0, <[u8]>::len), XATTR_SIZE_MAX);
    if len > max {
        return Err(Error::AttributeValue { len, max });
    }
    if let Some(kind) = AclKind::of_index(name.index) {
        let acl = acl::from_wire(kind, inode.file_type, value.unwrap_or_default())?;
        return set_acl(handle, inode, kind, acl.as_ref());
    }
    if name.index == INDEX_USER && !takes_user(inode.file_type) {
        return Err(Error::NotPermitted {
            what: "user attributes of what is neither file nor directory",
        });
    }
    put(handle, inode, name, value, mode)
}

/// Sets one of an inode's ACLs, which is valid, or removes it. An access ACL sets the mode's
/// permission bits, and is not stored if these say it all.
pub(crate) fn set_acl(
    handle: &Handle<'_>,
    inode: &mut Inode,
    kind: AclKind,
    acl: Option<&Acl>,
) -> Result<()> {
    let is_stored = |acl: &&Acl| kind == AclKind::Default || !acl.is_minimal();
    let stored = acl.filter(is_stored).map(Acl::to_disk);
    let name = XattrName::of_acl(kind);
    put(handle, inode, name, stored.as_deref(), SetMode::Any)?;
    if let (AclKind::Access, Some(acl)) = (kind, acl) {
        inode.mode = inode.mode & !acl::PERMISSIONS | acl.mode_bits();
    }
    Ok(())
}

/// Gives a new inode, which has none yet, the ACLs it inherits. Its mode is the caller's business.
pub(crate) fn store_inherited(
    handle: &Handle<'_>,
    inode: &mut Inode,
    inherited: &Inherited,
) -> Result<()> {
    for (kind, acl) in [
        (AclKind::Default, &inherited.default),
        (AclKind::Access, &inherited.access),
    ] {
        if acl.is_some() {
            set_acl(handle, inode, kind, acl.as_ref())?;
        }
    }
    Ok(())
}

/// Changes the permission bits of a mode, and with them `acl`, the access ACL, if there is one.
pub(crate) fn chmod(
    handle: &Handle<'_>,
    inode: &mut Inode,
    mode: u16,
    acl: Option<Acl>,
) -> Result<()> {
    if let Some(mut acl) = acl {
        acl::chmod(&mut acl, mode);
        set_acl(handle, inode, AclKind::Access, Some(&acl))?;
    }
    inode.mode = inode.mode & !0o7777 | mode & 0o7777;
    Ok(())
}

/// Removes all attributes of an inode that is being deleted, and lets go of what they lead to. Data
/// within the inode stays.
pub(crate) fn delete_all(handle: &Handle<'_>, inode: &mut Inode) -> Result<()> {
    let sbi = handle.sbi();
    let sources = Sources::read(sbi, inode)?;
    let (mut body, block) = (sources.body_to_change()?, sources.block_entries()?);
    let before = charge(sbi, &body, &block);
    let is_data = |entry: &XattrEntry<'_>| entry.index == INDEX_SYSTEM;
    let removed: Vec<Ino> = xattr::block::inos(&body).collect();
    if !body.iter().all(is_data) {
        body.retain(is_data);
        write_body(handle, inode, &body)?;
    }
    if let Some(at) = inode.xattr_block.take() {
        xattr::block::release(handle, at)?;
    }
    for ino in removed {
        ea_inode::release(handle, ino)?;
    }
    pay(handle, inode, before, Charge::default())?;
    inode.blocks = inode.blocks.saturating_sub(before.units);
    Ok(())
}

/// Removes the data within the inode beyond what stands in `i_block`.
pub(crate) fn drop_inline_data(handle: &Handle<'_>, inode: &mut Inode) -> Result<()> {
    let sources = Sources::read(handle.sbi(), inode)?;
    let mut body = sources.body_to_change()?;
    body.retain(|entry| entry.index != INDEX_SYSTEM);
    write_body(handle, inode, &body)
}

/// Where an attribute is, or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Body,
    Block,
}

/// An inode's attributes while one is changed.
struct Lists<'a> {
    body: Vec<XattrEntry<'a>>,
    block: Vec<XattrEntry<'a>>,
}

impl<'a> Lists<'a> {
    fn list(&mut self, place: Place) -> &mut Vec<XattrEntry<'a>> {
        match place {
            Place::Body => &mut self.body,
            Place::Block => &mut self.block,
        }
    }

    fn find(&self, name: XattrName<'_>) -> Option<(Place, usize)> {
        let is_it = |entry: &XattrEntry<'_>| name.is_of(entry);
        let body = self.body.iter().position(is_it);
        let block = || Some((Place::Block, self.block.iter().position(is_it)?));
        body.map(|at| (Place::Body, at)).or_else(block)
    }

    /// Where an attribute goes that is in neither list, and whether its value has its own inode.
    fn place(
        &self,
        shape: &XattrShape,
        file_type: FileType,
        body_room: usize,
        name: XattrName<'_>,
        value: &[u8],
    ) -> Result<(Place, bool)> {
        let mut apart = shape.goes_apart(value.len());
        loop {
            let here = if apart { 0 } else { value_len(value.len()) };
            let len = entry_len(name.suffix.len()) + here;
            let in_body = XattrShape::body_takes(file_type, apart);
            if in_body && entries_len(&self.body) + len <= body_room {
                return Ok((Place::Body, apart));
            }
            let need = entries_len(&self.block) + len;
            if need <= shape.block_room {
                return Ok((Place::Block, apart));
            }
            if apart || !shape.has_apart() || value.is_empty() {
                return Err(Error::XattrsTooBig {
                    need: need as u64,
                    room: shape.block_room as u64,
                });
            }
            apart = true;
        }
    }

    /// Puts an entry where the kernel looks for it: in the block they are sorted.
    fn insert(&mut self, place: Place, entry: XattrEntry<'a>, was: Option<(Place, usize)>) {
        let key = sort_key(entry.index, entry.name);
        let at = match (place, was) {
            (Place::Body, Some((Place::Body, at))) => at,
            (Place::Body, _) => self.body.len(),
            (Place::Block, _) => self
                .block
                .partition_point(|other| sort_key(other.index, other.name) < key),
        };
        self.list(place).insert(at, entry);
    }
}

/// Sets or removes an attribute, in stored form.
fn put(
    handle: &Handle<'_>,
    inode: &mut Inode,
    name: XattrName<'_>,
    value: Option<&[u8]>,
    mode: SetMode,
) -> Result<()> {
    let sbi = handle.sbi();
    let sources = Sources::read(sbi, inode)?;
    let mut lists = Lists {
        body: sources.body_to_change()?,
        block: sources.block_to_change()?,
    };
    sources.seen(sbi, Reader::Holder)?;
    let before = charge(sbi, &lists.body, &lists.block);
    let was = lists.find(name);
    match (was, mode) {
        (Some(_), SetMode::Create) => return Err(Error::Exists),
        (None, SetMode::Replace) => return Err(Error::NoAttribute),
        _ => {}
    }
    let old = was.map(|(place, at)| lists.list(place).remove(at).value);
    let is_same = match (old, value) {
        (None, None) => true,
        (Some(XattrValue::Here(old)), Some(new)) => old == new,
        _ => false,
    };
    if !is_same {
        let mut change = Change {
            was,
            now: None,
            removed: old.and_then(ino_of),
            added: None,
        };
        let mut after = charge(sbi, &lists.body, &lists.block);
        let mut wanted = None;
        if let Some(value) = value {
            let shape = XattrShape::new(sbi.geometry());
            let room = body_room(sbi, inode)?;
            let (place, apart) = lists.place(&shape, inode.file_type, room, name, value)?;
            let opens_block = place == Place::Block && lists.block.is_empty();
            after.add(sbi, opens_block, apart.then_some(value.len() as u64));
            wanted = Some((value, place, apart));
        }
        pay(handle, inode, before, after)?;
        let result = (|| {
            if let Some((value, place, apart)) = wanted {
                let entry = new_entry(handle, inode, name, value, apart)?;
                change.added = ino_of(entry.value);
                change.now = Some(place);
                lists.insert(place, entry, was);
            }
            change.store(handle, inode, &lists)
        })();
        if let Err(error) = result {
            pay_back(handle, inode, before, after)?;
            return Err(error);
        }
        inode.blocks = (inode.blocks.saturating_sub(before.units)).saturating_add(after.units);
    }
    inode.ctime = handle.now();
    Ok(())
}

/// What becomes of one attribute.
struct Change {
    /// Where it was, and where it is now.
    was: Option<(Place, usize)>,
    now: Option<Place>,
    /// Inodes of its values, before and now.
    removed: Option<Ino>,
    added: Option<Ino>,
}

impl Change {
    /// Stores both lists if they have changed.
    fn store(&self, handle: &Handle<'_>, inode: &mut Inode, lists: &Lists<'_>) -> Result<()> {
        let was = self.was.map(|(place, _)| place);
        let in_block = |ino: Option<Ino>, place| ino.filter(|_| place == Some(Place::Block));
        if was == Some(Place::Block) || self.now == Some(Place::Block) {
            let values = Values {
                added: in_block(self.added, self.now),
                removed: in_block(self.removed, was),
            };
            match xattr::block::replace(handle, inode, &lists.block, values) {
                Ok(block) => inode.xattr_block = block,
                Err(error @ Error::NoSpace { .. }) => {
                    if let Some(added) = self.added {
                        ea_inode::release(handle, added)?;
                    }
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        if was == Some(Place::Body) || self.now == Some(Place::Body) {
            write_body(handle, inode, &lists.body)?;
        }
        if let (Some(Place::Body), Some(removed)) = (was, self.removed) {
            ea_inode::release(handle, removed)?;
        }
        let features = handle.sbi().superblock().features();
        if !features.compat.contains(Compat::EXT_ATTR) {
            handle.rw().change_superblock(|superblock| {
                let mut features = superblock.features();
                features.compat |= Compat::EXT_ATTR;
                superblock.set_features(features);
            });
        }
        Ok(())
    }
}

fn ino_of(value: XattrValue<'_>) -> Option<Ino> {
    match value {
        XattrValue::Inode { ino, .. } => Some(ino),
        XattrValue::Here(_) => None,
    }
}

/// The entry of a value; with `apart` the value gets its inode now.
fn new_entry<'a>(
    handle: &Handle<'_>,
    owner: &Inode,
    name: XattrName<'a>,
    value: &'a [u8],
    apart: bool,
) -> Result<XattrEntry<'a>> {
    if !apart {
        return Ok(XattrEntry::here(name.index, name.suffix, value));
    }
    let hash = ea_inode_hash(handle.sbi().superblock().seed(), value);
    let ino = ea_inode::obtain(handle, owner, value)?;
    let size = value.len() as u32;
    Ok(XattrEntry::in_inode(
        name.index,
        name.suffix,
        ino,
        size,
        hash,
    ))
}

/// What attributes add to what their inode takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Charge {
    /// To its `blocks`: the block of attributes, and all of every value apart, however many share
    /// it.
    units: u64,
    /// To the inodes that its owners pay for: one for each value apart.
    inodes: u64,
}

impl Charge {
    /// A block more, and a value apart of this length.
    fn add(&mut self, sbi: &Sbi, block: bool, apart: Option<u64>) {
        let block_size = sbi.geometry().block_size;
        let blocks = u64::from(block) + apart.map_or(0, |len| block_size.blocks_for(len));
        self.units += blocks << (block_size.log2() - 9);
        self.inodes += u64::from(apart.is_some());
    }
}

fn charge(sbi: &Sbi, body: &[XattrEntry<'_>], block: &[XattrEntry<'_>]) -> Charge {
    let mut charge = Charge::default();
    charge.add(sbi, !block.is_empty(), None);
    for entry in body.iter().chain(block) {
        if let XattrValue::Inode { size, .. } = entry.value {
            charge.add(sbi, false, Some(size.into()));
        }
    }
    charge
}

/// Inodes that an inode's owners pay for in addition to itself.
pub(crate) fn inodes_apart(sbi: &Sbi, inode: &Inode) -> Result<u64> {
    if !XattrShape::new(sbi.geometry()).has_apart() {
        return Ok(0);
    }
    let sources = Sources::read(sbi, inode)?;
    Ok(charge(sbi, &sources.body_entries()?, &sources.block_entries()?).inodes)
}

/// Lets the owners pay for what attributes are going to take.
///
/// Fails with [`Error::QuotaExceeded`]; nothing has changed then.
fn pay(handle: &Handle<'_>, inode: &mut Inode, before: Charge, after: Charge) -> Result<()> {
    let Some(owners) = &mut inode.owners else {
        return Ok(());
    };
    let more = |before: u64, after: u64| after.saturating_sub(before);
    let bytes = more(before.units, after.units) << 9;
    owners.reservation(bytes)?;
    if let Err(error) = owners.charge_inodes(handle, more(before.inodes, after.inodes)) {
        owners.unreserve(bytes);
        return Err(error);
    }
    owners.draw(bytes);
    owners.charge(handle, bytes);
    owners.uncharge(handle, more(after.units, before.units) << 9);
    owners.uncharge_inodes(handle, more(after.inodes, before.inodes));
    Ok(())
}

/// Takes [`pay`] back.
fn pay_back(handle: &Handle<'_>, inode: &mut Inode, before: Charge, after: Charge) -> Result<()> {
    let was = inode.set_quota_free(true);
    let result = pay(handle, inode, after, before);
    inode.set_quota_free(was);
    result
}

/// Where the attributes' magic stands in the bytes of an inode, if there is room for any.
fn body_start(bytes: &[u8], ino: Ino) -> Result<Option<usize>> {
    if bytes.len() <= GOOD_OLD_INODE_SIZE {
        return Ok(None);
    }
    let extra = usize::from(RawInode::parse(bytes, ino)?.i_extra_isize.get());
    let start = GOOD_OLD_INODE_SIZE + extra;
    let room = bytes.len().saturating_sub(start);
    Ok((extra > 0 && room > XATTR_IBODY_HEADER_LEN).then_some(start))
}

/// Bytes from the first entry in an inode to its end.
fn body_room(sbi: &Sbi, inode: &Inode) -> Result<usize> {
    let bytes = inode_bytes(sbi, inode.ino)?;
    let start = body_start(&bytes, inode.ino)?;
    Ok(start.map_or(0, |start| {
        bytes.len().saturating_sub(start + XATTR_IBODY_HEADER_LEN)
    }))
}

/// Writes the entries of the inode, which fit.
fn write_body(handle: &Handle<'_>, inode: &mut Inode, entries: &[XattrEntry<'_>]) -> Result<()> {
    let (sbi, ino) = (handle.sbi(), inode.ino);
    let start = change_bytes(sbi, handle, inode.id(), |bytes| {
        let start = body_start(bytes, ino)?.ok_or(Damage::InodeExtraSize {
            ino,
            extra_isize: 0,
            inode_size: bytes.len() as u32,
        })?;
        let region = bytes.get_mut(start..).unwrap_or_default();
        match entries {
            [] => region.fill(0),
            _ => pack_body(region, entries)?,
        }
        Ok(start)
    })?;
    inode.xattr_offset = (!entries.is_empty()).then_some(start as u16);
    Ok(())
}

#[cfg(test)]
mod tests;
