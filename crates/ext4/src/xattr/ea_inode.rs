//! Values of attributes in inodes of their own (`ea_inode`): read, shared, made, freed.
//!
//! Such an inode counts the entries that lead to it, in `i_version` and the time of change, and has
//! the hash of its value as time of access. Its blocks go through the journal, so they are read
//! through the cache. Left out: inodes that Lustre made before there was a count; they are read,
//! never let go of.

use uext4_mballoc::{Request, Run};
use uext4_mbcache::{Key, Release};
use uext4_ondisk::extent::{Extent, empty_extent_root};
use uext4_ondisk::inode::{
    FULL_EXTRA_ISIZE, FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags, NDIR_BLOCKS,
    RawInode, S_IFREG, Timestamp,
};
use uext4_ondisk::pack::block_map::{BlockMap, Tables};
use uext4_ondisk::pack::extent_tree::{ExtentTree, ROOT_ENTRIES};
use uext4_ondisk::xattr::{XATTR_SIZE_MAX, ea_inode_hash};
use uext4_ondisk::{Damage, Ino, Lblk, Pblk};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::alloc::ialloc::Parent;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::mapping::MapState;
use crate::base::owner::{Kind, Owner, tag};
use crate::inode::store::{change_bytes, store, store_new};
use crate::inode::{Inode, InodeId, iget, inode_bytes};
use crate::journal::handle::Handle;
use crate::journal::rw::Purpose;
use crate::journal::sbi::Sbi;
use crate::map::MapCursor;
use crate::map::owned::{Owned, for_each_owned};
use crate::orphan::change::set_next;

/// Runs of blocks of such an inode, at most: a value of 16 MiB in single blocks, and their tree.
const RUNS_MAX: usize = (16 << 20 >> 10) + 1024;

fn bad(ino: Ino, field: &'static str, value: u64, why: &'static str) -> Error {
    Error::Corrupt(Damage::InodeField {
        ino,
        field,
        value,
        why,
    })
}

/// Blocks of the largest value.
fn blocks_max(sbi: &Sbi) -> u32 {
    (XATTR_SIZE_MAX >> sbi.geometry().block_size.log2()) as u32
}

/// Bitmaps that taking or freeing a value's blocks changes at most.
fn bitmaps_max(sbi: &Sbi) -> u32 {
    (blocks_max(sbi) + 1).min(sbi.geometry().groups_count.get())
}

/// Blocks that [`obtain`] changes at most.
pub(crate) fn credits_obtain(sbi: &Sbi) -> u32 {
    // Data and a node; bitmaps of blocks and inodes; the inode.
    blocks_max(sbi) + 1 + bitmaps_max(sbi) + 2
}

/// Blocks that [`release`] changes at most: bitmaps, the inode, one of revokes.
pub(crate) fn credits_release(sbi: &Sbi) -> u32 {
    bitmaps_max(sbi) + 3
}

/// The inode of a value.
pub(crate) fn get(sbi: &Sbi, ino: Ino) -> Result<Inode> {
    let inode = iget(sbi, ino)?;
    if !inode.has(InodeFlags::EA_INODE) || inode.file_type != FileType::Regular {
        let flags = inode.flags.bits().into();
        return Err(bad(ino, "i_flags", flags, "the inode is not for values"));
    }
    Ok(inode)
}

/// The hash of its value, as it says: the low word of the time of access.
pub(crate) fn hash(inode: &Inode) -> u32 {
    inode.atime.sec as u32
}

/// Its value.
pub(crate) fn read(sbi: &Sbi, inode: &Inode) -> Result<Vec<u8>> {
    if inode.size > XATTR_SIZE_MAX as u64 {
        let why = "value longer than 64 KiB";
        return Err(bad(inode.ino, "i_size", inode.size, why));
    }
    let mut value = vec![0; inode.size as usize];
    let mut cursor = MapCursor::default();
    for (lblk, part) in (0..).zip(value.chunks_mut(sbi.block_len())) {
        let run = cursor.map(sbi, inode, Lblk(lblk), 1)?;
        if run.state == MapState::Written {
            let buffer = sbi.bread("attribute value", run.pblk, tag(Kind::Data), |_| Ok(()))?;
            part.copy_from_slice(buffer.data().get(..part.len()).unwrap_or_default());
        }
    }
    Ok(value)
}

/// An inode with this value for one more entry: an equal one, or a new one near `owner`.
///
/// Fails with [`Error::NoSpace`] and [`Error::NoInodes`], then nothing has changed; damage, device
/// errors.
pub(crate) fn obtain(handle: &Handle<'_>, owner: &Inode, value: &[u8]) -> Result<Ino> {
    let sbi = handle.sbi();
    let hash = ea_inode_hash(sbi.superblock().seed(), value);
    let key = key(handle, hash, value.len() as u64);
    if let Some(ino) = key.map_or(Ok(None), |key| share(handle, key, value))? {
        return Ok(ino);
    }
    let ino = create(handle, owner, value, hash)?;
    if let Some(key) = key {
        handle.rw().xattrs.values.made(key, ino.0.into(), 1);
    }
    Ok(ino)
}

/// The key of a value: its hash and length, which its inode reports without being read.
fn key(handle: &Handle<'_>, hash: u32, len: u64) -> Option<Key> {
    handle
        .rw()
        .xattrs
        .values
        .key(hash, body(hash, len).as_bytes())
}

/// What must be equal of two values to be compared.
fn body(hash: u32, len: u64) -> [U64; 2] {
    [u64::from(hash), len].map(U64::new)
}

/// Lets others find a value that was read, and that an entry leads to for now.
pub(crate) fn seen(sbi: &Sbi, inode: &Inode) -> Result<()> {
    let Some(rw) = sbi.rw() else {
        return Ok(());
    };
    let users = users(sbi, inode.ino)?;
    if users > 0 {
        let (hash, users) = (hash(inode), u32::try_from(users).unwrap_or(u32::MAX));
        let body = body(hash, inode.size);
        let values = &rw.xattrs.values;
        values.seen(hash, body.as_bytes(), inode.ino.0.into(), || users);
    }
    Ok(())
}

/// Becomes one more user of an inode with this value, if one is known.
fn share(handle: &Handle<'_>, key: Key, value: &[u8]) -> Result<Option<Ino>> {
    let (sbi, values) = (handle.sbi(), &handle.rw().xattrs.values);
    let mut next = values.find(key);
    while let Some(candidate) = next {
        // OK to truncate: it came in as such.
        let ino = Ino(candidate.value() as u32);
        // Read before the count is locked, so that this need not be held for the device.
        if !holds(sbi, ino, value) {
            next = candidate.next();
            continue;
        }
        let counting = values.lock(ino.0.into());
        // The count has more bits than the cache knows, and so is never too high for it.
        if holds(sbi, ino, value)
            && candidate.taken(2).is_ok()
            && change_users(handle, ino, 1)?.is_some()
        {
            return Ok(Some(ino));
        }
        drop(counting);
        // As many users as can be counted, damage, or it has gone.
        return Ok(None);
    }
    Ok(None)
}

fn holds(sbi: &Sbi, ino: Ino, value: &[u8]) -> bool {
    let inode = get(sbi, ino).ok();
    let inode = inode.filter(|inode| inode.size == value.len() as u64);
    inode.is_some_and(|inode| read(sbi, &inode).is_ok_and(|found| found == value))
}

/// Counts one more entry that leads to a value's inode.
pub(crate) fn add_user(handle: &Handle<'_>, ino: Ino) -> Result<()> {
    let _counting = handle.rw().xattrs.values.lock(ino.0.into());
    match change_users(handle, ino, 1)? {
        Some(_) => Ok(()),
        None => Err(bad(
            ino,
            "i_version",
            0,
            "a value has no users, or too many",
        )),
    }
}

/// Counts one entry less that leads to a value's inode; frees it with the last.
pub(crate) fn release(handle: &Handle<'_>, ino: Ino) -> Result<()> {
    let values = &handle.rw().xattrs.values;
    let inode = get(handle.sbi(), ino)?;
    let key = key(handle, hash(&inode), inode.size);
    loop {
        let release = key.and_then(|key| values.release(key, ino.0.into()));
        let counting = values.lock(ino.0.into());
        let users = users(handle.sbi(), ino)?;
        if users == 1
            && let Some(Err(in_use)) = release.map(Release::remove)
        {
            drop(counting);
            in_use.wait();
            continue;
        }
        match change_users(handle, ino, -1)? {
            Some(0) => break,
            Some(_) => return Ok(()),
            None => return Err(bad(ino, "i_version", 0, "a value has no users")),
        }
    }
    destroy(handle, ino)
}

/// The number of users.
fn users(sbi: &Sbi, ino: Ino) -> Result<u64> {
    Ok(users_of(&RawInode::parse(&inode_bytes(sbi, ino)?, ino)?))
}

fn users_of(raw: &RawInode) -> u64 {
    u64::from(raw.i_ctime.get()) << 32 | u64::from(raw.i_version.get())
}

/// Adds to the number of users; `None`, and nothing is changed, if there are none or would be too
/// many.
fn change_users(handle: &Handle<'_>, ino: Ino, by: i64) -> Result<Option<u64>> {
    let sbi = handle.sbi();
    let id = get(sbi, ino)?.id();
    change_bytes(sbi, handle, id, |bytes| {
        let mut raw = RawInode::parse(bytes, ino)?;
        let users = users_of(&raw);
        let changed = users.checked_add_signed(by).filter(|_| users > 0);
        if let Some(users) = changed {
            put_users(&mut raw, users);
            raw.store(bytes);
        }
        Ok(changed)
    })
}

fn put_users(raw: &mut RawInode, users: u64) {
    raw.i_version = (users as u32).into();
    raw.i_ctime = ((users >> 32) as u32).into();
}

/// What a new inode of a value takes.
#[derive(Debug, Default)]
struct Taken {
    runs: Vec<Run>,
    node: Option<Pblk>,
}

impl Taken {
    /// Takes blocks for `len` blocks of data.
    fn take(handle: &Handle<'_>, goal: Pblk, len: u32) -> Result<Self> {
        let sbi = handle.sbi();
        let mut taken = Self::default();
        let result = taken.fill(handle, goal, len);
        let has_node = if sbi.has_extents() {
            taken.runs.len() > ROOT_ENTRIES
        } else {
            len as usize > NDIR_BLOCKS
        };
        let result = result.and_then(|()| {
            if has_node {
                taken.node = Some(handle.take_block(goal)?);
            }
            match sbi.has_extents() || taken.has_numbers_of_32_bits() {
                true => Ok(()),
                false => Err(Error::NoSpace {
                    needed: len.into(),
                    free: 0,
                }),
            }
        });
        match result {
            Ok(()) => Ok(taken),
            Err(error) => {
                taken.give_back(handle)?;
                Err(error)
            }
        }
    }

    fn fill(&mut self, handle: &Handle<'_>, mut goal: Pblk, len: u32) -> Result<()> {
        let rw = handle.rw();
        let bitmaps = rw.groups.bitmaps(handle.sbi(), handle);
        let mut left = len;
        while left > 0 {
            let request = Request {
                goal,
                len: left,
                min_len: 1,
                next_fit: false,
            };
            let run = rw.allocator.allocate(&bitmaps, &request)?;
            goal = Pblk(run.start.0 + u64::from(run.len));
            left -= run.len.min(left);
            self.runs.push(run);
        }
        Ok(())
    }

    fn give_back(&self, handle: &Handle<'_>) -> Result<()> {
        for run in &self.runs {
            handle.free_blocks(run.start, run.len.into())?;
        }
        self.node.map_or(Ok(()), |node| handle.free_blocks(node, 1))
    }

    /// Whether a map without extents can lead to all of it.
    fn has_numbers_of_32_bits(&self) -> bool {
        let ends = self.runs.iter().map(|run| run.start.0 + u64::from(run.len));
        ends.chain(self.node.map(|node| node.0 + 1))
            .all(|end| end <= 1 << 32)
    }

    /// All blocks of data in order.
    fn blocks(&self) -> impl Iterator<Item = Pblk> {
        let blocks = |run: &Run| (run.start.0..run.start.0 + u64::from(run.len)).map(Pblk);
        self.runs.iter().flat_map(blocks)
    }

    /// Builds the map of an inode; the node, if there is one, is written.
    fn map(&self, handle: &Handle<'_>, id: InodeId) -> Result<[u8; I_BLOCK_LEN]> {
        let block_size = handle.sbi().geometry().block_size;
        let mut lblk = 0;
        let mut node = self.node;
        if !handle.sbi().has_extents() {
            let mut map = BlockMap::new(block_size);
            let mut tables = OneTable { handle, node };
            for run in &self.runs {
                map.put(lblk, run.start, run.len.into(), &mut tables)?;
                lblk += u64::from(run.len);
            }
            return Ok(map.finish(&mut tables));
        }
        let extent = |run: &Run| {
            let extent = Extent {
                // OK to truncate: a value has 64 blocks at most.
                lblk: Lblk(lblk as u32),
                len: run.len as u16,
                pblk: run.start,
                unwritten: false,
            };
            lblk += u64::from(run.len);
            extent
        };
        let extents: Vec<Extent> = self.runs.iter().map(extent).collect();
        let mut root = [0; I_BLOCK_LEN];
        // The commit computes the checksum.
        ExtentTree::new(block_size, None).pack(&mut root, &extents, |new| {
            let at = node.take().ok_or(Error::FileTooBig)?;
            let owner = Owner::new(Kind::Extent, new.depth(), id.ino, id.generation);
            handle.change(&handle.fresh(at), owner, |bytes| new.write(bytes));
            Ok::<_, Error>(at)
        })?;
        Ok(root)
    }
}

/// The only indirect block that a value needs.
struct OneTable<'a> {
    handle: &'a Handle<'a>,
    node: Option<Pblk>,
}

impl Tables for OneTable<'_> {
    type Error = Error;

    fn take(&mut self) -> Result<Pblk> {
        self.node.take().ok_or(Error::FileTooBig)
    }

    fn put(&mut self, at: Pblk, table: &[u8]) {
        let owner = Owner::of(Kind::Indirect);
        self.handle.change(&self.handle.fresh(at), owner, |bytes| {
            bytes.copy_from_slice(table);
        });
    }
}

/// Makes an inode with this value, for one entry.
fn create(handle: &Handle<'_>, owner: &Inode, value: &[u8], hash: u32) -> Result<Ino> {
    let (sbi, rw) = (handle.sbi(), handle.rw());
    let geometry = sbi.geometry();
    let (group, _) = geometry.inode_group(owner.ino).ok_or(Error::NotFound)?;
    let len = geometry.block_size.blocks_for(value.len() as u64);
    let needed = len + 1;
    // A caller that changes attributes has made sure of the blocks before, by what it may use:
    // here nothing may be refused but what is not there.
    if !rw.reserve(sbi, Purpose::Maps, needed) {
        let free = rw.available_blocks();
        return Err(Error::NoSpace { needed, free });
    }
    // OK to truncate: a value has at most 64 blocks.
    let taken = Taken::take(handle, geometry.group_start(group), len as u32);
    rw.release(needed);
    let taken = taken?;
    let parent = Parent {
        group,
        is_top: false,
        last_group: None,
    };
    let ino = match handle.take_inode(parent, None) {
        Ok(new) => new.ino,
        Err(error) => {
            taken.give_back(handle)?;
            return Err(error);
        }
    };
    for (block, part) in taken.blocks().zip(value.chunks(sbi.block_len())) {
        handle.change(&handle.fresh(block), Owner::of(Kind::Data), |bytes| {
            bytes[..part.len()].copy_from_slice(part);
        });
    }
    let generation = rw.next_generation();
    let id = InodeId { ino, generation };
    let blocks = len + u64::from(taken.node.is_some());
    let inode = Inode {
        i_block: handle.failed(taken.map(handle, id))?,
        blocks: blocks << (geometry.block_size.log2() - 9),
        ..new_inode(handle, owner, id, value.len() as u64, hash)
    };
    let extra = usize::from(geometry.inode_size).saturating_sub(GOOD_OLD_INODE_SIZE);
    store_new(handle, sbi, &inode, FULL_EXTRA_ISIZE.min(extra as u16))?;
    change_bytes(sbi, handle, id, |bytes| {
        let mut raw = RawInode::parse(bytes, ino)?;
        // Also where a time of access has 31 bits.
        raw.i_atime = hash.into();
        put_users(&mut raw, 1);
        raw.store(bytes);
        Ok(())
    })?;
    Ok(ino)
}

/// The fields of a value's inode, but for where its blocks are.
fn new_inode(handle: &Handle<'_>, owner: &Inode, id: InodeId, size: u64, hash: u32) -> Inode {
    let now = handle.now();
    let extents = match handle.sbi().has_extents() {
        true => InodeFlags::EXTENTS,
        false => InodeFlags::default(),
    };
    Inode {
        ino: id.ino,
        mode: S_IFREG | 0o600,
        file_type: FileType::Regular,
        uid: owner.uid,
        gid: owner.gid,
        size,
        links: 1,
        blocks: 0,
        flags: InodeFlags::EA_INODE | extents,
        generation: id.generation,
        atime: Timestamp {
            sec: hash.into(),
            nsec: 0,
        },
        mtime: now,
        ctime: Timestamp::default(),
        crtime: Some(now),
        dtime: 0,
        projid: 0,
        rdev: None,
        xattr_block: None,
        i_block: [0; I_BLOCK_LEN],
        disk_size: None,
        xattr_offset: None,
        owners: None,
    }
}

/// Frees the inode of a value without users, and its blocks.
fn destroy(handle: &Handle<'_>, ino: Ino) -> Result<()> {
    let sbi = handle.sbi();
    let mut inode = get(sbi, ino)?;
    let mut owned: Vec<Owned> = Vec::new();
    let mut too_many = false;
    for_each_owned(sbi, &inode, &mut |run| {
        too_many |= owned.len() >= RUNS_MAX;
        if !too_many {
            owned.push(run);
        }
        !too_many
    })?;
    if too_many {
        let why = "a value in too many pieces";
        return Err(bad(ino, "i_blocks", inode.blocks, why));
    }
    for run in owned {
        sbi.check_range("attribute value", run.start, run.len.into())?;
        handle.free_metadata(run.start, run.len.into())?;
    }
    (inode.links, inode.size, inode.blocks) = (0, 0, 0);
    inode.i_block = [0; I_BLOCK_LEN];
    if inode.has(InodeFlags::EXTENTS) {
        inode.i_block = empty_extent_root();
    }
    store(handle, sbi, &inode)?;
    // Such an inode is on no orphan list: its users and it go in one transaction.
    let deleted_at = handle.now().sec as u32;
    set_next(handle.sbi(), handle, inode.id(), deleted_at)?;
    handle.free_inode(ino, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_without_extents_leads_to_blocks_of_32_bits_alone() {
        let taken = |start: u64, node: Option<u64>| Taken {
            runs: vec![Run {
                start: Pblk(start),
                len: 2,
            }],
            node: node.map(Pblk),
        };
        let end = 1 << 32;
        assert!(taken(end - 2, Some(end - 1)).has_numbers_of_32_bits());
        assert!(!taken(end - 1, None).has_numbers_of_32_bits());
        assert!(!taken(7, Some(end)).has_numbers_of_32_bits());
    }
}
