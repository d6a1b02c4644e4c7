//! Blocks of attributes: written, shared by inodes whose attributes are equal, freed with the last.
//!
//! A block counts its users in `h_refcount` and is changed in place only while there is one, whom
//! nobody joins meanwhile: an exclusive block leaves the table of shared ones first. The inodes of
//! values that its entries lead to count the block as one user, however many inodes share it.

use uext4_buffer_cache::Buffer;
use uext4_ondisk::xattr::{
    XATTR_BLOCK_HEADER_LEN, XATTR_REFCOUNT_MAX, XattrBlockHeader, XattrEntry, XattrPlace,
    XattrValue, block_hash, parse_entries, put_block_header, put_entries, verify_block,
};
use uext4_ondisk::{Damage, Ino, Pblk};

use crate::ea_inode;
use crate::edit::Edit;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::owner::{Kind, Owner};
use crate::xattr::bread;

/// How a change of a block concerns values in inodes of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Values {
    /// One of the entries is new and leads to this inode, which counts it already.
    pub(crate) added: Option<Ino>,
    /// An entry of the block before led to this inode and is gone.
    pub(crate) removed: Option<Ino>,
}

/// A block's content but for its header, and the hash that goes there.
struct Image {
    bytes: Vec<u8>,
    hash: u32,
}

impl Image {
    fn body(&self) -> &[u8] {
        self.bytes.get(XATTR_BLOCK_HEADER_LEN..).unwrap_or_default()
    }
}

/// Gives an inode a block with these sorted entries, which fit, in place of the one it has. Without
/// entries it gets none. The inode itself is not changed.
///
/// # Errors
/// [`Error::NoSpace`], then nothing has changed; damage, device errors.
pub(crate) fn replace(
    handle: &Handle<'_>,
    inode: &Inode,
    entries: &[XattrEntry<'_>],
    values: Values,
) -> Result<Option<Pblk>> {
    let old = inode.xattr_block;
    if entries.is_empty() {
        old.map_or(Ok(()), |old| release(handle, old))?;
        return Ok(None);
    }
    let mut image = Image {
        bytes: vec![0; handle.sbi().block_len()],
        hash: block_hash(entries.iter().map(|entry| entry.hash)),
    };
    put_entries(&mut image.bytes, XATTR_BLOCK_HEADER_LEN, entries);
    if let Some(at) = share(handle, old, &image)? {
        // The block has its own claim on what its entries lead to.
        if let Some(added) = values.added {
            ea_inode::release(handle, added)?;
        }
        if let Some(old) = old.filter(|&old| old != at) {
            release(handle, old)?;
        }
        return Ok(Some(at));
    }
    if let Some(old) = old
        && let Some(buffer) = claim(handle, old)?
    {
        write(handle, &buffer, &image);
        if let Some(removed) = values.removed {
            ea_inode::release(handle, removed)?;
        }
        return Ok(Some(old));
    }
    let at = take(handle, inode)?;
    add_users(handle, entries, values.added)?;
    write(handle, &handle.fresh(at), &image);
    if let Some(old) = old {
        release(handle, old)?;
    }
    Ok(Some(at))
}

/// Lets go of an inode's block. With the last user it is freed, and what it leads to let go of.
///
/// # Errors
/// Damage of the block or of what it leads to, device errors.
pub(crate) fn release(handle: &Handle<'_>, at: Pblk) -> Result<()> {
    let buffer = bread(handle.sbi(), at)?;
    let data = buffer.data();
    let hash = header(&data, at)?.h_hash.get();
    let entries = parse_entries(&data, XATTR_BLOCK_HEADER_LEN, XattrPlace::Block(at))?;
    {
        let mut locked = handle.rw().xattrs.blocks.lock(hash);
        let users = header(&buffer.data(), at)?.h_refcount.get();
        match users {
            0 => {
                return Err(Error::Corrupt(Damage::Xattr {
                    at: XattrPlace::Block(at),
                    offset: 0,
                    why: "block without users",
                }));
            }
            1 => locked.forget(at),
            _ => {
                set_users(handle, &buffer, users - 1, hash);
                if hash != 0 {
                    locked.put(at);
                }
                return Ok(());
            }
        }
    }
    for ino in inos(&entries) {
        ea_inode::release(handle, ino)?;
    }
    handle.free_metadata(at)
}

/// The inodes of values that entries lead to.
pub(crate) fn inos(entries: &[XattrEntry<'_>]) -> impl Iterator<Item = Ino> {
    entries.iter().filter_map(|entry| match entry.value {
        XattrValue::Inode { ino, .. } => Some(ino),
        XattrValue::Here(_) => None,
    })
}

/// Becomes one more user of a block like this, if one is known: perhaps the `old` one itself, which
/// then counts its user already.
fn share(handle: &Handle<'_>, old: Option<Pblk>, image: &Image) -> Result<Option<Pblk>> {
    let table = &handle.rw().xattrs.blocks;
    if image.hash == 0 {
        return Ok(None);
    }
    let Some(at) = table.lock(image.hash).get() else {
        return Ok(None);
    };
    // Read before the lock is taken, so that it need not be held for the device.
    let pin = bread(handle.sbi(), at);
    let mut locked = table.lock(image.hash);
    let Ok(buffer) = pin.and_then(|_pin| bread(handle.sbi(), at)) else {
        locked.forget(at);
        return Ok(None);
    };
    if locked.get() != Some(at) {
        return Ok(None);
    }
    let data = buffer.data();
    let users = header(&data, at)?.h_refcount.get();
    if data.get(XATTR_BLOCK_HEADER_LEN..) != Some(image.body()) {
        return Ok(None);
    }
    drop(data);
    if old == Some(at) {
        return Ok(old);
    }
    if users >= XATTR_REFCOUNT_MAX {
        // The next one like it is to be found.
        locked.forget(at);
        return Ok(None);
    }
    set_users(handle, &buffer, users + 1, image.hash);
    Ok(Some(at))
}

/// The block, if it has one user and so may be changed; nobody else finds it any more.
fn claim(handle: &Handle<'_>, at: Pblk) -> Result<Option<Buffer>> {
    let buffer = bread(handle.sbi(), at)?;
    let hash = header(&buffer.data(), at)?.h_hash.get();
    let mut locked = handle.rw().xattrs.blocks.lock(hash);
    if header(&buffer.data(), at)?.h_refcount.get() != 1 {
        return Ok(None);
    }
    locked.forget(at);
    drop(locked);
    Ok(Some(buffer))
}

/// Takes a block near the inode.
fn take(handle: &Handle<'_>, inode: &Inode) -> Result<Pblk> {
    let (geometry, rw) = (handle.sbi().geometry(), handle.rw());
    let (group, _) = geometry.inode_group(inode.ino).ok_or(Error::NotFound)?;
    if !rw.reserve(1) {
        return Err(Error::NoSpace {
            needed: 1,
            free: rw.available_blocks(),
        });
    }
    let taken = handle.take_block(geometry.group_start(group));
    rw.release(1);
    taken
}

/// The values of a new block's entries get one more user each, but for the one that has it already.
fn add_users(
    handle: &Handle<'_>,
    entries: &[XattrEntry<'_>],
    mut added: Option<Ino>,
) -> Result<()> {
    for ino in inos(entries) {
        if added == Some(ino) {
            added = None;
        } else {
            ea_inode::add_user(handle, ino)?;
        }
    }
    Ok(())
}

/// Writes a block that only one inode has, and lets others find it.
fn write(handle: &Handle<'_>, buffer: &Buffer, image: &Image) {
    handle.change(buffer, Owner::of(Kind::Xattr), |bytes| {
        bytes.copy_from_slice(&image.bytes);
        put_block_header(bytes, buffer.block(), 1, image.hash, None);
    });
    if image.hash != 0 {
        let blocks = &handle.rw().xattrs.blocks;
        blocks.lock(image.hash).put(buffer.block());
    }
}

/// Stores the number of users; the commit puts in the checksum.
fn set_users(handle: &Handle<'_>, buffer: &Buffer, users: u32, hash: u32) {
    handle.change(buffer, Owner::of(Kind::Xattr), |bytes| {
        put_block_header(bytes, buffer.block(), users, hash, None);
    });
}

/// The header of a block that was verified when it came in.
fn header(data: &[u8], at: Pblk) -> Result<XattrBlockHeader> {
    debug_assert!(data.len() >= size_of::<XattrBlockHeader>());
    Ok(verify_block(data, at, None)?)
}
