//! The bytes of inodes, and the ends of those without a name.

use std::mem::offset_of;

use uext4_ondisk::Ino;
use uext4_ondisk::extent::empty_extent_root;
use uext4_ondisk::fast_commit::{End, FIXED_FLAGS};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags, RawInode};

use super::maps::{self, Claimed};
use super::misfit;
use super::plan::{Fate, Plan};
use crate::directories::{inline, is_dot, reread};
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::lost_found;
use crate::mapping::{self, Buffers, Form, form};
use crate::orphans;
use crate::problem::JournalProblem;
use crate::rebuild::Old;
use crate::state::State;
use crate::xattr;

/// Stores an inode as it is in the end, with its map.
pub fn put(
    state: &State<'_>,
    plan: &Plan<'_>,
    ino: Ino,
    fate: &Fate,
    claimed: Claimed,
) -> Result<()> {
    let raw = plan.change(ino, fate).and_then(|c| c.raw.as_deref());
    match (fate.end, fate.kind, raw) {
        (End::New, Some(FileType::Directory), Some(raw)) => {
            put_directory(state, plan, ino, fate, raw)
        }
        (End::New, Some(kind), Some(raw)) => {
            bury(state, plan, ino, fate)?;
            let bytes = new_bytes(state, ino, fate, raw);
            write(state, plan, ino, &bytes)?;
            lost_found::use_inode(state, ino, plan.cause())?;
            state.inodes.set(ino, Kind::File(kind), false, fate.links());
            maps::store(state, plan, ino, &claimed)
        }
        (End::Stays, _, raw) => {
            let is_put = match raw {
                Some(raw) => put_over(state, plan, ino, fate, raw)?,
                None => !claimed.changes.is_empty(),
            };
            let links = fate.links();
            let set = |raw: &mut RawInode| raw.i_links_count = links.into();
            state.volume.update_raw_inode(ino, plan.cause(), set)?;
            if is_put && fate.kind == Some(FileType::Regular) {
                return store_over(state, plan, ino, claimed);
            }
            maps::give_back(state, ino, &claimed);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Stores the map of a file that was there, with what was recorded of it.
fn store_over(state: &State<'_>, plan: &Plan<'_>, ino: Ino, mut claimed: Claimed) -> Result<()> {
    if claimed.changes.is_empty() {
        // The size alone may have changed.
        let bytes = state.volume.read_inode(ino)?;
        let Some(raw) = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok()) else {
            return Ok(());
        };
        claimed.old = mapping::read(state, ino, &raw)?;
        if !maps::is_past_end(state, &raw, &claimed.old.extents) {
            return Ok(());
        }
    }
    maps::store(state, plan, ino, &claimed)
}

/// Frees what belongs to an inode whose number is used again.
fn bury(state: &State<'_>, plan: &Plan<'_>, ino: Ino, fate: &Fate) -> Result<()> {
    let Some(old) = &fate.old else {
        return Ok(());
    };
    xattr::drop_reference(state, old, plan.cause())?;
    mapping::for_each_owned(state, ino, old, &mut Buffers::default(), |owned| {
        state.free(state.used.of_blocks(owned.start, owned.len));
    })
}

fn write(state: &State<'_>, plan: &Plan<'_>, ino: Ino, bytes: &[u8]) -> Result<()> {
    state.volume.update_inode(ino, plan.cause(), |place| {
        if place.len() == bytes.len() {
            place.copy_from_slice(bytes);
        }
    })
}

/// The bytes of a new inode, without a map.
fn new_bytes(state: &State<'_>, ino: Ino, fate: &Fate, raw: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(state.geometry().inode_size)];
    let len = raw.len().min(bytes.len());
    bytes[..len].copy_from_slice(&raw[..len]);
    if RawInode::parse(&bytes, ino).is_err() {
        // Its extra fields cannot be; it has none.
        bytes[GOOD_OLD_INODE_SIZE..].fill(0);
    }
    let Ok(mut inode) = RawInode::parse(&bytes, ino) else {
        return bytes;
    };
    let features = state.geometry().features.incompat;
    let mut flags = InodeFlags::from_bits_retain(inode.i_flags.get());
    flags.remove(InodeFlags::INDEX);
    if fate.kind == Some(FileType::Directory) {
        flags.remove(InodeFlags::INLINE_DATA);
        flags.set(InodeFlags::EXTENTS, features.contains(Incompat::EXTENTS));
        let size = state.geometry().block_size.bytes();
        (inode.i_size_lo, inode.i_size_high) = (size.into(), 0.into());
    }
    inode.i_flags = flags.bits().into();
    inode.i_dtime = 0.into();
    inode.i_links_count = fate.links().into();
    (inode.i_blocks_lo, inode.i_blocks_high) = (0.into(), 0.into());
    // No fast commit records blocks of attributes.
    (inode.i_file_acl_lo, inode.i_file_acl_high) = (0.into(), 0.into());
    match form(state.geometry(), ino, &inode) {
        Form::None => {}
        Form::Extents => inode.i_block = empty_extent_root(),
        Form::Numbers => inode.i_block = [0; I_BLOCK_LEN],
    }
    inode.store(&mut bytes);
    bytes
}

/// Makes a new directory with a block of names.
fn put_directory(
    state: &State<'_>,
    plan: &Plan<'_>,
    ino: Ino,
    fate: &Fate,
    raw: &[u8],
) -> Result<()> {
    let bytes = new_bytes(state, ino, fate, raw);
    let parent = plan.parent(ino);
    match lost_found::put_directory(state, ino, parent, &bytes, plan.cause()) {
        Err(Error::NoSpace { .. }) => {
            misfit(state, ino);
            return Ok(());
        }
        result => result?,
    }
    bury(state, plan, ino, fate)?;
    let kind = Kind::File(FileType::Directory);
    state.inodes.set(ino, kind, false, fate.links());
    Ok(())
}

/// Stores what was recorded of an inode that was there, with the map that it has. False if its data
/// would be stored in another way.
fn put_over(state: &State<'_>, plan: &Plan<'_>, ino: Ino, fate: &Fate, raw: &[u8]) -> Result<bool> {
    let Some(old) = fate.old else {
        return Ok(false);
    };
    let flags = InodeFlags::from_bits_retain(old.i_flags.get());
    let is_dir = fate.kind == Some(FileType::Directory);
    let had_inline = flags.contains(InodeFlags::INLINE_DATA);
    let Some(head) = fate.recorded else {
        return Ok(false);
    };
    let recorded = InodeFlags::from_bits_retain(head.i_flags.get());
    let leaves = !is_dir && had_inline && !recorded.contains(InodeFlags::INLINE_DATA);
    let stored_as = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
    if !is_dir && !leaves && recorded & stored_as != flags & stored_as {
        misfit(state, ino);
        return Ok(false);
    }
    if leaves {
        inline::clear(state, ino, plan.cause())?;
    }
    let Some(before) = state.volume.read_inode(ino)? else {
        return Ok(false);
    };
    let Ok(now) = RawInode::parse(&before, ino) else {
        return Ok(false);
    };
    let mut bytes = before.clone();
    // The records of a directory may lie behind its fields.
    let fields = GOOD_OLD_INODE_SIZE.saturating_add(now.i_extra_isize.get().into());
    let most = if is_dir { fields } else { raw.len() };
    let len = raw.len().min(bytes.len()).min(most);
    bytes[..len].copy_from_slice(&raw[..len]);
    let at = offset_of!(RawInode, i_dtime);
    bytes[at..at + 4].copy_from_slice(&before[at..at + 4]);
    let Ok(mut inode) = RawInode::parse(&bytes, ino) else {
        misfit(state, ino);
        return Ok(false);
    };
    let mut new_flags = recorded.difference(FIXED_FLAGS) | flags & FIXED_FLAGS;
    if is_dir || leaves {
        let layout = InodeFlags::from_bits_retain(now.i_flags.get()) & InodeFlags::LAYOUT;
        new_flags = new_flags.difference(InodeFlags::LAYOUT) | layout;
    }
    inode.i_flags = new_flags.bits().into();
    (inode.i_blocks_lo, inode.i_blocks_high) = (now.i_blocks_lo, now.i_blocks_high);
    (inode.i_file_acl_lo, inode.i_file_acl_high) = (now.i_file_acl_lo, now.i_file_acl_high);
    if is_dir {
        (inode.i_size_lo, inode.i_size_high) = (now.i_size_lo, now.i_size_high);
    }
    let keeps_inline = had_inline && !leaves && !is_dir;
    if !keeps_inline {
        inode.i_block = now.i_block;
    }
    inode.store(&mut bytes);
    write(state, plan, ino, &bytes)?;
    Ok(true)
}

/// Makes an orphan of an inode whose last name is gone. A directory that is not empty stays without
/// a name: the pass over the tree connects it.
pub fn release(state: &State<'_>, plan: &Plan<'_>, ino: Ino, fate: &Fate) -> Result<()> {
    if fate.kind == Some(FileType::Directory) && !is_empty(state, ino)? {
        misfit(state, ino);
        return Ok(());
    }
    let Some(old) = &fate.old else {
        return Ok(());
    };
    let finding = Finding::new(JournalProblem::Orphan, Place::inode(ino));
    state.report(finding.found(orphans::clusters_of(&state.volume, old)));
    // Its reference to a block of attributes is dropped below.
    let mut without = *old;
    (without.i_file_acl_lo, without.i_file_acl_high) = (0.into(), 0.into());
    let mut held = state.held.lock();
    held.delete(&state.volume, ino, &without, plan.cause(), state.findings)?;
    drop(held);
    let now = orphans::deletion_time(state.options);
    state.volume.update_raw_inode(ino, plan.cause(), |raw| {
        raw.i_links_count = 0.into();
        raw.i_dtime = now.into();
    })?;
    state.inodes.set(ino, Kind::Unused, false, 0);
    xattr::drop_reference(state, old, plan.cause())
}

fn is_empty(state: &State<'_>, ino: Ino) -> Result<bool> {
    let Some(old) = Old::read(state, ino)? else {
        return Ok(true);
    };
    let mut names = 0_u32;
    reread::for_each(state, ino, old.source(), |seen| {
        names = names.saturating_add(u32::from(!is_dot(seen.name)));
        Ok(())
    })?;
    Ok(names == 0)
}
