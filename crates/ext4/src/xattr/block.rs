//! Blocks of attributes: written, shared by inodes whose attributes are equal, freed with the last.
//!
//! A block counts its users in `h_refcount`, under the lock of that count, and is changed in
//! place only while there is one, whom no thread joins meanwhile: such a block leaves the cache
//! of shared ones first. The inodes of values that its entries lead to count the block as one
//! user, however many inodes share it.
//!
//! The count is stored by the commit ([`crate::journal::xattr_shared`]). A caller that comes to a
//! block that has users, or leaves some behind, shares the count's lock; that of the buffer is
//! not taken, nor is the block copied.

use std::ops::Range;
use std::sync::Arc;

use uext4_buffer_cache::Buffer;
use uext4_mbcache::{Candidate, Content, Key, Locked, Release};
use uext4_ondisk::xattr::{
    XATTR_BLOCK_HEADER_LEN, XATTR_REFCOUNT_MAX, XattrBlockHeader, XattrEntry, XattrPlace,
    XattrValue, entries_gap, pack_block, parse_entries, put_block_header, verify_block,
};
use uext4_ondisk::{Damage, Ino, Pblk};

use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::owner::{Kind, Owner};
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::rw::Purpose;
use crate::xattr::bread;
use crate::xattr::ea_inode;

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
    /// If it may be shared.
    key: Option<Key>,
}

impl Image {
    /// `zeros`: where in the body nothing lies, as far as the caller knows.
    fn new(handle: &Handle<'_>, hash: u32, bytes: Vec<u8>, zeros: Range<usize>) -> Self {
        let content = Content {
            bytes: body(&bytes),
            zeros,
        };
        let blocks = &handle.rw().xattrs.blocks;
        // Blocks without a hash are not shared.
        let key = (hash != 0).then(|| blocks.key(hash, content)).flatten();
        Self { bytes, hash, key }
    }

    fn body(&self) -> &[u8] {
        body(&self.bytes)
    }
}

/// A block's content but for its header.
fn body(block: &[u8]) -> &[u8] {
    block.get(XATTR_BLOCK_HEADER_LEN..).unwrap_or_default()
}

/// A user of a block that may be shared is to go, or to change it.
fn releasing<'a>(
    handle: &'a Handle<'_>,
    hash: u32,
    block: &'a [u8],
    at: Pblk,
) -> Option<Release<'a>> {
    let blocks = &handle.rw().xattrs.blocks;
    (hash != 0).then(|| blocks.release_read(hash, body(block), at.0))?
}

/// Gives an inode a block with these sorted entries, which fit, in place of the one it has. Without
/// entries it gets none. The inode itself is not changed.
///
/// Fails with [`Error::NoSpace`], then nothing has changed; damage, device errors.
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
    let mut bytes = vec![0; handle.sbi().block_len()];
    let hash = pack_block(&mut bytes, entries)?;
    let zeros = entries_gap(body(&bytes).len(), entries);
    let image = Image::new(handle, hash, bytes, zeros);
    if let Some(at) = share(handle, old, &image, 1)? {
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
pub(crate) fn release(handle: &Handle<'_>, at: Pblk) -> Result<()> {
    let blocks = &handle.rw().xattrs.blocks;
    let count = blocks.counts.share(at.0);
    if count.is_some_and(|count| count.leave(XATTR_REFCOUNT_MAX).is_some()) {
        handle.touched();
        return Ok(());
    }
    let buffer = bread(handle.sbi(), at)?;
    // No thread changes the content but its only user, so it stays.
    let data = buffer.data();
    let hash = header(&data, at)?.h_hash.get();
    let entries = parse_entries(&data, XATTR_BLOCK_HEADER_LEN, XattrPlace::Block(at))?;
    loop {
        let release = releasing(handle, hash, &data, at);
        let mut counting = blocks.lock(at.0);
        match users(&counting, &buffer)? {
            0 => return Err(without_users(at)),
            1 => {
                let Some(Err(in_use)) = release.map(Release::remove) else {
                    handle.touched();
                    counting.forget();
                    break;
                };
                drop(counting);
                in_use.wait();
            }
            users => {
                set_users(handle, &mut counting, &buffer, users - 1);
                if let Some(release) = release {
                    release.left(users - 1);
                }
                return Ok(());
            }
        }
    }
    for ino in inos(&entries) {
        ea_inode::release(handle, ino)?;
    }
    handle.free_metadata(at, 1)
}

fn without_users(at: Pblk) -> Error {
    Error::Corrupt(Damage::Xattr {
        at: XattrPlace::Block(at),
        offset: 0,
        why: "block without users",
    })
}

/// The inodes of values that entries lead to.
pub(crate) fn inos(entries: &[XattrEntry<'_>]) -> impl Iterator<Item = Ino> {
    entries.iter().filter_map(|entry| match entry.value {
        XattrValue::Inode { ino, .. } => Some(ino),
        XattrValue::Here(_) => None,
    })
}

/// Searches at most, where what was found has gone each time.
const SEARCHES_MAX: usize = 8;

/// Becomes one more user of a block like this that has room for so many, if one is known: perhaps
/// the `old` one itself, which then counts its user already.
fn share(
    handle: &Handle<'_>,
    old: Option<Pblk>,
    image: &Image,
    coming: u32,
) -> Result<Option<Pblk>> {
    let blocks = &handle.rw().xattrs.blocks;
    let Some(key) = image.key else {
        return Ok(None);
    };
    for _ in 0..SEARCHES_MAX {
        let mut next = blocks.find(key);
        loop {
            let Some(candidate) = next else {
                return Ok(None);
            };
            let at = Pblk(candidate.value());
            // Read and compared before the count is locked. What cannot be read is not shared.
            let found = bread(handle.sbi(), at)
                .ok()
                .map(|buffer| (buffer.data(), buffer));
            let Some((data, buffer)) = found.filter(|(data, _)| body(data) == image.body()) else {
                next = candidate.next();
                continue;
            };
            if old == Some(at) {
                return Ok(old);
            }
            match join(handle, candidate, &data, &buffer, coming) {
                Joined::Yes => return Ok(Some(at)),
                Joined::Passed(candidate) => next = candidate.next(),
                // Perhaps there is another by now.
                Joined::Gone => break,
            }
        }
    }
    Ok(None)
}

/// What came of it to become a user of a block that was found.
enum Joined<'a> {
    Yes,
    /// It has no room, or another content now.
    Passed(Candidate<'a>),
    /// Freed or changed, or it has just become full.
    Gone,
}

/// Becomes one more user of a block that was found and had this content, if it has room for so
/// many.
fn join<'a>(
    handle: &Handle<'_>,
    candidate: Candidate<'a>,
    data: &Arc<[u8]>,
    buffer: &Buffer,
    coming: u32,
) -> Joined<'a> {
    let counts = &handle.rw().xattrs.blocks.counts;
    let at = buffer.block().0;
    let room_for = |users: u32| users > 0 && users.saturating_add(coming) <= XATTR_REFCOUNT_MAX;
    if let Some(count) = counts.share(at) {
        let users = count.users();
        // Not the last it has room for: the cache is notified of a full block by one alone.
        if users > 0 && room_for(users + 1) && is_same(data, buffer) {
            let taken = candidate.taken(users + 1).is_ok();
            if taken && count.come(XATTR_REFCOUNT_MAX - 1).is_some() {
                handle.touched();
                return Joined::Yes;
            }
            return Joined::Gone;
        }
    }
    let mut counting = counts.lock(at);
    let users = users(&counting, buffer).unwrap_or(0);
    if !is_same(data, buffer) {
        return Joined::Passed(candidate);
    }
    if !room_for(users) {
        // For these it is full; one with more room may be found in its place.
        if users > coming {
            candidate.set_full();
        }
        return Joined::Passed(candidate);
    }
    if candidate.taken(users + 1).is_err() {
        return Joined::Gone;
    }
    set_users(handle, &mut counting, buffer, users + 1);
    Joined::Yes
}

/// Whether a block still has the content it had; its header may have changed.
fn is_same(data: &Arc<[u8]>, buffer: &Buffer) -> bool {
    let now = buffer.data();
    Arc::ptr_eq(data, &now) || body(data) == body(&now)
}

/// The block, if it has one user and so may be changed; no other thread finds it any more.
fn claim(handle: &Handle<'_>, at: Pblk) -> Result<Option<Buffer>> {
    let blocks = &handle.rw().xattrs.blocks;
    let buffer = bread(handle.sbi(), at)?;
    let data = buffer.data();
    let header = header(&data, at)?;
    let hash = header.h_hash.get();
    // A thread that goes after this look frees nothing: a block is made, and this one let go of.
    if handle
        .rw()
        .xattrs
        .users_of_block(at, header.h_refcount.get())
        != 1
    {
        return Ok(None);
    }
    loop {
        let release = releasing(handle, hash, &data, at);
        let counting = blocks.lock(at.0);
        if users(&counting, &buffer)? != 1 {
            return Ok(None);
        }
        let Some(Err(in_use)) = release.map(Release::remove) else {
            return Ok(Some(buffer));
        };
        drop(counting);
        in_use.wait();
    }
}

/// Another block like the inode's, whose user it now is in place of its own; `None` if there is
/// none that is known and has room for all users of its own, so that this is freed with the last
/// that moves: then others find its own. The inode itself is not changed.
///
/// Fails with damage of the inode's block, device errors: nothing has changed. Damage of what it
/// leads to.
pub(crate) fn merge(handle: &Handle<'_>, inode: &Inode) -> Result<Option<Pblk>> {
    let Some(old) = inode.xattr_block else {
        return Ok(None);
    };
    let data = bread(handle.sbi(), old)?.data();
    let header = header(&data, old)?;
    let xattrs = &handle.rw().xattrs;
    let hash = header.h_hash.get();
    let users = xattrs.users_of_block(old, header.h_refcount.get());
    // What `release` would find only after another block had got the user.
    if users == 0 {
        return Err(without_users(old));
    }
    parse_entries(&data, XATTR_BLOCK_HEADER_LEN, XattrPlace::Block(old))?;
    // One that is full cannot be shared more.
    if users >= XATTR_REFCOUNT_MAX {
        return Ok(None);
    }
    let image = Image::new(handle, hash, data.to_vec(), 0..0);
    match share(handle, Some(old), &image, users)? {
        Some(at) if at != old => {
            release(handle, old)?;
            Ok(Some(at))
        }
        Some(_) => Ok(None),
        None => {
            if let Some(key) = image.key {
                handle.rw().xattrs.blocks.made(key, old.0, users);
            }
            Ok(None)
        }
    }
}

/// Takes a block near the inode.
fn take(handle: &Handle<'_>, inode: &Inode) -> Result<Pblk> {
    let (geometry, rw) = (handle.sbi().geometry(), handle.rw());
    let (group, _) = geometry.inode_group(inode.ino).ok_or(Error::NotFound)?;
    // A caller that changes attributes has made sure of the blocks before, by what it may use:
    // here nothing may be refused but what is not there.
    if !rw.reserve(handle.sbi(), Purpose::Maps, 1) {
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
    if let Some(key) = image.key {
        handle.rw().xattrs.blocks.made(key, buffer.block().0, 1);
    }
}

/// The users of a block whose count is locked.
fn users(counting: &Locked<'_, Buffer>, buffer: &Buffer) -> Result<u32> {
    match counting.users() {
        Some(users) => Ok(users),
        None => Ok(header(&buffer.data(), buffer.block())?.h_refcount.get()),
    }
}

/// Notes the number of users, which the commit stores.
fn set_users(handle: &Handle<'_>, counting: &mut Locked<'_, Buffer>, buffer: &Buffer, users: u32) {
    match counting.set(users, || buffer.clone()) {
        true => handle.defer(),
        false => handle.touched(),
    }
}

/// The header of a block that was verified when it came in.
fn header(data: &[u8], at: Pblk) -> Result<XattrBlockHeader> {
    debug_assert!(data.len() >= size_of::<XattrBlockHeader>());
    Ok(verify_block(data, at, None)?)
}
