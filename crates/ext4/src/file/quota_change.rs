//! Quota operations that need journal handles: which owners are charged for an inode, new entries
//! for ids without one, limits.
//!
//! An id gets its entry before the operation that first charges it, in a handle of its own, so
//! that charging can neither fail nor run out of space. New entries go into leaves with free
//! entries; new leaves and tree blocks are appended to the file. An entry stays when its usage
//! drops to zero.

use std::sync::Arc;

use uext4_buffer_cache::Buffer;
use uext4_ondisk::extent::Extent;
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::quota::{
    QUOTA_BLOCK_LEN, QUOTA_ENTRIES_PER_LEAF, QUOTA_TREE_DEPTH, QUOTA_TREE_ROOT, QuotaKind,
    QuotaLeafHeader, parse_leaf, tree_slot,
};
use uext4_ondisk::{Pblk, checksum};
use zerocopy::{FromBytes, IntoBytes};

use crate::base::caller::Caller;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::mapping::MapState;
use crate::dir::namei::is_hidden;
use crate::inode::Inode;
use crate::inode::dquot::{Dquot, Owners, QuotaLimits};
use crate::inode::store::store;
use crate::journal::handle::Handle;
use crate::journal::rw::Purpose;
use crate::journal::sbi::Sbi;
use crate::journal::space::ensure_blocks;
use crate::map;
use crate::map::file_blocks::credits_anywhere;
use crate::map::map_blocks;
use crate::quota::file::{Found, QuotaBlock, QuotaFile, damaged, entry_offset, is_free};
use crate::quota::{Ids, Quotas, not_counted};

/// Maximum number of blocks that a new entry adds to the quota file: three of the tree, a leaf.
const NEW_MAX: u32 = QUOTA_TREE_DEPTH;
/// Maximum number of blocks allocated for that: these blocks and their map.
const BLOCKS_MAX: u64 = 16;

fn quotas(sbi: &Sbi) -> Option<&Quotas> {
    sbi.rw()?.quotas.as_ref()
}

/// The ids that own an inode.
pub(crate) fn ids_of(inode: &Inode) -> Ids {
    [inode.uid, inode.gid, inode.projid]
}

/// Attaches to an inode that was read from its table the owners that are charged for it.
pub(crate) fn attach(sbi: &Sbi, inode: &mut Inode) -> Result<()> {
    let Some(quotas) = quotas(sbi) else {
        return Ok(());
    };
    // The space of attribute values is charged to the inodes that have the attributes.
    if !inode.has(InodeFlags::EA_INODE) && !is_hidden(sbi, inode.ino) {
        let owners = quotas.owners(sbi, ids_of(inode))?;
        inode.owners = Some(Box::new(owners));
    }
    Ok(())
}

/// Creates entries for the owners that have none. Must be called without a handle.
pub(crate) fn place(sbi: &Sbi, caller: Caller, owners: &Owners) -> Result<()> {
    for dquot in owners.dquots().filter(|dquot| !dquot.is_placed()) {
        place_one(sbi, caller, dquot)?;
    }
    Ok(())
}

/// The owners that will be charged for an inode.
pub(crate) enum Payers {
    /// Already known, as they are charged for another inode.
    Known(Box<Owners>),
    /// Only the ids are known; the quota entries have to be looked up.
    Ids(Ids),
}

impl Payers {
    /// These, who may be those who pay for `inode`.
    pub(crate) fn next_to(inode: &Inode, ids: Ids) -> Self {
        match &inode.owners {
            Some(owners) if ids_of(inode) == ids && owners.is_placed() => {
                Self::Known(owners.clone())
            }
            _ => Self::Ids(ids),
        }
    }
}

/// Looks up the owners and creates missing entries; `None` if no quota is counted. Must be called
/// without a handle.
pub(crate) fn owners(sbi: &Sbi, caller: Caller, payers: Payers) -> Result<Option<Box<Owners>>> {
    let Some(quotas) = quotas(sbi) else {
        return Ok(None);
    };
    let ids = match payers {
        Payers::Known(owners) => return Ok(Some(owners)),
        Payers::Ids(ids) => ids,
    };
    let owners = quotas.owners(sbi, ids)?;
    place(sbi, caller, &owners)?;
    Ok(Some(Box::new(owners)))
}

/// Sets the limits of an id.
pub(crate) fn set_limits(sbi: &Sbi, kind: QuotaKind, id: u32, limits: QuotaLimits) -> Result<()> {
    let quotas = sbi.writable()?.quotas.as_ref();
    let dquot = match quotas {
        Some(quotas) => quotas.get(sbi, kind, id)?,
        None => None,
    };
    let dquot = dquot.ok_or_else(|| not_counted(kind))?;
    place_one(sbi, Caller::default(), &dquot)?;
    let handle = sbi.start(1)?;
    dquot.set_limits(&handle, limits);
    Ok(())
}

fn place_one(sbi: &Sbi, caller: Caller, dquot: &Arc<Dquot>) -> Result<()> {
    let file = quotas(sbi).and_then(|quotas| quotas.file(dquot.kind()));
    let Some(file) = file.filter(|_| !dquot.is_placed()) else {
        return Ok(());
    };
    let _blocks = ensure_blocks(sbi, Purpose::Metadata(caller), BLOCKS_MAX)?;
    // Credits for the path from the root, a leaf (old or new), the next leaf with a free entry,
    // header and inode; for new blocks also bitmaps and the map.
    let map = map::change::credits_insert(sbi, &file.read().inode, 1);
    let credits = NEW_MAX + 1 + 3 + NEW_MAX * (map + 1) + credits_anywhere(sbi, NEW_MAX);
    let most = sbi.writable()?.journal.credits_max();
    let handle = sbi.start(credits.min(most))?;
    let file = &mut *file.write();
    if dquot.is_placed() {
        return Ok(());
    }
    match file.find(sbi, dquot.id())? {
        Found::Way { blocks, len } => {
            let room = find_room(sbi, file)?;
            handle.failed(insert(&handle, file, dquot, blocks, len, room))
        }
        Found::Entry(block, at, _) => {
            dquot.set_place(block.buffer, at, file.inode.ino);
            Ok(())
        }
    }
}

/// The position of a free entry in a leaf of a quota file.
#[derive(Clone, Copy, Debug)]
struct FreeEntry {
    /// The number of the leaf.
    leaf: u32,
    /// The index of the entry in it.
    slot: usize,
}

/// Returns a leaf with a free entry and the first free entry in it; `None` if there is no such
/// leaf.
fn find_room(sbi: &Sbi, file: &QuotaFile) -> Result<Option<FreeEntry>> {
    let leaf = file.header.dqi_free_entry.get();
    if leaf == 0 {
        return Ok(None);
    }
    check_inside(file, "dqi_free_entry", leaf)?;
    let bytes = file.read(sbi, leaf)?.bytes();
    parse_leaf(&bytes)?;
    let free = (0..QUOTA_ENTRIES_PER_LEAF).find(|&slot| is_free(&bytes, slot));
    let slot = free.ok_or_else(|| damaged("dqi_free_entry", leaf, "no entry is free"))?;
    let next = leaf_header(&bytes).dqdh_next_free.get();
    if next != 0 {
        check_inside(file, "dqdh_next_free", next)?;
    }
    Ok(Some(FreeEntry { leaf, slot }))
}

/// Adds an entry to a quota file: to the leaf with a free entry, or to a new one. Creates the
/// missing part of the path from the root to that leaf. The first `len` blocks of `way` exist.
fn insert(
    handle: &Handle<'_>,
    file: &mut QuotaFile,
    dquot: &Dquot,
    mut way: [u32; QUOTA_TREE_DEPTH as usize],
    len: usize,
    room: Option<FreeEntry>,
) -> Result<()> {
    let sbi = handle.sbi();
    let entry = match room {
        Some(room) => room,
        None => FreeEntry {
            leaf: append(handle, file)?,
            slot: 0,
        },
    };
    let (buffer, at) = fill_entry(handle, file, dquot, entry)?;
    for next in &mut way[len..] {
        *next = append(handle, file)?;
    }
    for level in len - 1..way.len() {
        let below = way.get(level + 1).copied().unwrap_or(entry.leaf);
        let block = file.read(sbi, way[level])?;
        let at = block.at + 4 * tree_slot(dquot.id(), level as u32);
        change(handle, file, &block, |bytes| {
            bytes[at..at + 4].copy_from_slice(&checksum::le32(below));
        });
    }
    let (start, header) = (file.read(sbi, 0)?, file.header);
    change(handle, file, &start, |bytes| {
        let bytes = &mut bytes[start.at..start.at + size_of_val(&header)];
        bytes.copy_from_slice(header.as_bytes());
    });
    dquot.set_place(buffer, at, file.inode.ino);
    store(handle, sbi, &file.inode)
}

fn change(handle: &Handle<'_>, file: &QuotaFile, block: &QuotaBlock, f: impl FnOnce(&mut [u8])) {
    handle.change(&block.buffer, file.owner(), f);
}

/// Reads the header of a leaf.
fn leaf_header(bytes: &[u8; QUOTA_BLOCK_LEN]) -> QuotaLeafHeader {
    let header = QuotaLeafHeader::read_from_prefix(bytes);
    header.map_or_else(|_| zerocopy::FromZeros::new_zeroed(), |(header, _)| header)
}

fn put_leaf_header(
    handle: &Handle<'_>,
    file: &QuotaFile,
    block: &QuotaBlock,
    header: &QuotaLeafHeader,
) {
    change(handle, file, block, |bytes| {
        bytes[block.at..block.at + size_of::<QuotaLeafHeader>()].copy_from_slice(header.as_bytes());
    });
}

/// Checks that a number is that of a valid block below the root.
fn check_inside(file: &QuotaFile, field: &'static str, block: u32) -> Result<()> {
    if block > QUOTA_TREE_ROOT && block < file.header.dqi_blocks.get() {
        return Ok(());
    }
    Err(damaged(field, block, "outside the file"))
}

/// Stores the entry in a free slot of a leaf and returns its position. A leaf that becomes full
/// is removed from the list.
fn fill_entry(
    handle: &Handle<'_>,
    file: &mut QuotaFile,
    dquot: &Dquot,
    free: FreeEntry,
) -> Result<(Buffer, usize)> {
    let sbi = handle.sbi();
    let block = file.read(sbi, free.leaf)?;
    let mut header = leaf_header(&block.bytes());
    let used = header.dqdh_entries.get().saturating_add(1);
    header.dqdh_entries = used.into();
    file.header.dqi_free_entry = free.leaf.into();
    if usize::from(used) >= QUOTA_ENTRIES_PER_LEAF {
        let next = header.dqdh_next_free.get();
        (header.dqdh_next_free, header.dqdh_prev_free) = (0.into(), 0.into());
        file.header.dqi_free_entry = next.into();
        if next != 0 {
            let after = file.read(sbi, next)?;
            let mut header = leaf_header(&after.bytes());
            header.dqdh_prev_free = 0.into();
            put_leaf_header(handle, file, &after, &header);
        }
    }
    put_leaf_header(handle, file, &block, &header);
    let at = block.at + entry_offset(free.slot);
    let entry = dquot.entry();
    change(handle, file, &block, |bytes| {
        bytes[at..at + size_of_val(&entry)].copy_from_slice(entry.as_bytes());
    });
    Ok((block.buffer, at))
}

/// Returns a zeroed block for the tree or for entries: from the free list, or appended at the
/// end.
fn append(handle: &Handle<'_>, file: &mut QuotaFile) -> Result<u32> {
    let sbi = handle.sbi();
    let free = file.header.dqi_free_blk.get();
    if free != 0 {
        check_inside(file, "dqi_free_blk", free)?;
        let block = file.read(sbi, free)?;
        file.header.dqi_free_blk = leaf_header(&block.bytes()).dqdh_next_free;
        change(handle, file, &block, |bytes| {
            bytes[block.at..block.at + QUOTA_BLOCK_LEN].fill(0);
        });
        return Ok(free);
    }
    let new = file.header.dqi_blocks.get();
    let blocks = new.checked_add(1).ok_or(Error::FileTooBig)?;
    let (lblk, at) = QuotaFile::lblk(sbi, new);
    let found = map_blocks(sbi, &file.inode, lblk, 1)?;
    let buffer = match found.state {
        MapState::Written => file.read(sbi, new)?.buffer,
        MapState::Unwritten => return Err(damaged("block", new, "not written")),
        MapState::Hole => {
            let goal = match lblk.0.checked_sub(1) {
                Some(before) => map_blocks(sbi, &file.inode, uext4_ondisk::Lblk(before), 1)?.pblk,
                None => Pblk(0),
            };
            let pblk = handle.take_block(Pblk(goal.0 + 1))?;
            let extent = Extent {
                lblk,
                len: 1,
                pblk,
                unwritten: false,
            };
            map::change::insert(handle, &mut file.inode, extent)?;
            handle.fresh(pblk)
        }
    };
    change(handle, file, &QuotaBlock { buffer, at }, |bytes| {
        bytes[at..at + QUOTA_BLOCK_LEN].fill(0);
    });
    file.header.dqi_blocks = blocks.into();
    let end = u64::from(blocks) * QUOTA_BLOCK_LEN as u64;
    file.inode.size = file.inode.size.max(end);
    Ok(new)
}
