//! Extended attributes: in the inode, in a block, and values in inodes of their own.

use std::sync::Arc;

use uext4_ondisk::acl::Acl;
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::xattr::{
    INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT, INDEX_SYSTEM, XATTR_BLOCK_HEADER_LEN,
    XATTR_IBODY_HEADER_LEN, XATTR_SIZE_MAX, XattrEntry, XattrPlace, XattrValue, ea_inode_hash,
    join_name, parse_entries, verify_block,
};
use uext4_ondisk::{Damage, Ino, Pblk};

use crate::error::{Error, Result};
use crate::inode::{Inode, iget, inode_bytes};
use crate::readpage::read_range;
use crate::sbi::{Kind, Sbi, tag};

/// Bytes of all values of one inode, at most. Values may overlap or share an inode, so that a block
/// does not bound them.
const VALUES_MAX: usize = 32 << 20;

/// An attribute as user space sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// The full name, for example `user.mime_type`.
    pub name: Vec<u8>,
    /// The value; ACLs in the form of the system calls.
    pub value: Vec<u8>,
}

/// All attributes user space may see, sorted by name.
///
/// # Errors
/// Damage of the attributes or of the inodes that hold values, device errors.
pub(crate) fn list(sbi: &Sbi, inode: &Inode) -> Result<Vec<Xattr>> {
    let mut found = Vec::new();
    let mut room = VALUES_MAX;
    for_each(sbi, inode, |at, entry| {
        if let Some(xattr) = shown(sbi, inode, at, entry)? {
            room = room
                .checked_sub(xattr.value.len())
                .ok_or(Error::Corrupt(Damage::Xattr {
                    at,
                    offset: 0,
                    why: "values of more than 32 MiB",
                }))?;
            found.push(xattr);
        }
        Ok(())
    })?;
    found.sort_unstable();
    Ok(found)
}

/// Calls `f` with every entry, those in the inode first.
fn for_each(
    sbi: &Sbi,
    inode: &Inode,
    mut f: impl FnMut(XattrPlace, &XattrEntry<'_>) -> Result<()>,
) -> Result<()> {
    if let Some(at) = inode.xattr_offset {
        let bytes = inode_bytes(sbi, inode.ino)?;
        let region = bytes
            .get(usize::from(at) + XATTR_IBODY_HEADER_LEN..)
            .unwrap_or_default();
        let place = XattrPlace::Inode(inode.ino);
        parse_entries(region, 0, place)?
            .iter()
            .try_for_each(|e| f(place, e))?;
    }
    if let Some(block) = inode.xattr_block {
        let data = read_block(sbi, block)?;
        let place = XattrPlace::Block(block);
        parse_entries(&data, XATTR_BLOCK_HEADER_LEN, place)?
            .iter()
            .try_for_each(|e| f(place, e))?;
    }
    Ok(())
}

/// Reads an attribute block.
///
/// # Errors
/// [`Damage::XattrHeader`], [`Damage::BlockChecksum`], [`Damage::BlockRange`], device errors.
pub(crate) fn read_block(sbi: &Sbi, block: Pblk) -> Result<Arc<[u8]>> {
    let seed = sbi.geometry().csum_seed;
    let buffer = sbi.bread("xattr block", block, tag(Kind::Xattr), |bytes| {
        verify_block(bytes, block, seed).map(|_| ())
    })?;
    Ok(buffer.data())
}

/// The attribute in the form user space gets, if it gets it at all.
fn shown(
    sbi: &Sbi,
    inode: &Inode,
    place: XattrPlace,
    entry: &XattrEntry<'_>,
) -> Result<Option<Xattr>> {
    if entry.index == INDEX_SYSTEM {
        return Ok(None);
    }
    let Some(name) = join_name(entry.index, entry.name) else {
        return Ok(None);
    };
    let mut value = value(sbi, inode, place, entry)?;
    if matches!(
        entry.index,
        INDEX_POSIX_ACL_ACCESS | INDEX_POSIX_ACL_DEFAULT
    ) {
        let acl = Acl::parse_disk(&value)?;
        if acl.entries.is_empty() {
            return Ok(None);
        }
        value = acl.to_wire();
    }
    Ok(Some(Xattr { name, value }))
}

fn value(sbi: &Sbi, inode: &Inode, place: XattrPlace, entry: &XattrEntry<'_>) -> Result<Vec<u8>> {
    match entry.value {
        XattrValue::Here(value) => Ok(value.to_vec()),
        XattrValue::Inode { ino, size } => ea_inode_value(sbi, inode, place, (ino, size)),
    }
}

/// Reads a value that has an inode of its own.
fn ea_inode_value(
    sbi: &Sbi,
    owner: &Inode,
    at: XattrPlace,
    (ino, size): (Ino, u32),
) -> Result<Vec<u8>> {
    let bad = |why| Error::Corrupt(Damage::Xattr { at, offset: 0, why });
    if size as usize > XATTR_SIZE_MAX {
        return Err(bad("value longer than 64 KiB"));
    }
    let inode = iget(sbi, ino)?;
    if !inode.has(InodeFlags::EA_INODE) {
        return Err(bad("value in an inode that is not for values"));
    }
    if inode.size != u64::from(size) {
        return Err(bad("value's size differs from its inode's"));
    }
    let mut value = vec![0; size as usize];
    read_range(sbi, &inode, 0, &mut value)?;
    // The value's hash stands in the low word of the access time.
    let hash = inode.atime.sec as u32;
    // Older writers kept the owner there in its place.
    let lustre = inode.mtime.sec as u32 == owner.ino.0 && inode.generation == owner.generation;
    if hash != ea_inode_hash(sbi.superblock().seed(), &value) && !lustre {
        return Err(bad("value does not match its hash"));
    }
    Ok(value)
}
