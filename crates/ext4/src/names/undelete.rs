//! Deleted inodes put back under a name, with the blocks that they had.
//!
//! What an inode was comes from another view of the file system, which may have older blocks of it:
//! an overlay with copies that the journal still holds. The view is untrusted: its map is walked
//! with all checks of a reader, no block of it may occur twice, and the inode is put back only if
//! its number and every block are free here. All of it is one journal handle. The blocks of the map
//! are written anew, so that a newer state of them in the log does not matter.
//!
//! Left out: directories, whose names lead to inodes that are deleted too; attributes in a block of
//! their own, which is not brought back.

use std::collections::HashSet;

use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::{Damage, Geometry, Ino, Pblk, extent};

use crate::alloc::groups::is_inode_used;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::owner::{Kind, Owner, tag};
use crate::dir;
use crate::dir::namei::{check_name, lookup};
use crate::file::inode_ref::InodeRef;
use crate::file::quota_change::{self, Payers, ids_of};
use crate::inode::attr;
use crate::inode::store::{change_bytes, store_deleted};
use crate::inode::{Inode, iget, inode_bytes};
use crate::journal::handle::Handle;
use crate::journal::rw::Purpose;
use crate::journal::sbi::Sbi;
use crate::journal::space::ensure_blocks;
use crate::map::file_blocks::{add_blocks, check_countable, credits_anywhere};
use crate::map::owned::for_each_owned;
use crate::names::create::{BLOCKS_MAX, Paid, check_parent, credits, name_added};
use crate::xattr;

/// What a deleted inode was.
struct Deleted {
    inode: Inode,
    /// Its record in the table.
    bytes: Vec<u8>,
    /// All its blocks, sorted: first block and length of each run.
    runs: Vec<(Pblk, u64)>,
    /// Those of them that hold the map, and their contents.
    nodes: Vec<(Pblk, Vec<u8>)>,
}

/// Puts a deleted inode back as `name`, as `view`, an image of the same file system, has it.
///
/// Fails with [`Error::Invalid`] if it is not deleted, is a directory, or one of its blocks is in
/// use; otherwise as [`super::create::create`].
pub(crate) fn undelete(parent: &InodeRef, name: &[u8], ino: Ino, view: &Sbi) -> Result<InodeRef> {
    check_name(name)?;
    let sbi = parent.sbi();
    let deleted = Deleted::read(sbi, view, ino)?;
    let blocks = deleted.blocks();
    check_countable(
        sbi,
        &Inode {
            blocks: 0,
            ..deleted.inode.clone()
        },
        blocks,
    )?;
    let _names = parent.rw.write();
    match lookup(sbi, &parent.inode.read(), name) {
        Ok(_) => return Err(Error::Exists),
        Err(Error::NotFound) => {}
        Err(error) => return Err(error),
    }
    let purpose = Purpose::Metadata(parent.caller());
    let _blocks = ensure_blocks(sbi, purpose, BLOCKS_MAX.saturating_add(blocks))?;
    let ids = ids_of(&deleted.inode);
    let owners = quota_change::owners(sbi, parent.caller(), Payers::Ids(ids))?;
    let needed = deleted.credits(sbi, &parent.inode.read())?;
    let handle = sbi.start(needed)?;
    let dir = &mut *parent.inode.write();
    let before = dir.clone();
    check_parent(sbi, dir, deleted.inode.file_type)?;
    if !attr::takes_in(dir, &deleted.inode) {
        return Err(Error::OtherProject);
    }
    let is_used = is_inode_used(sbi, ino)? || handle.rw().inodes.holds(ino);
    if is_used || !deleted.is_last_of_number(sbi)? {
        return Err(not_deleted(ino, "its number is in use, or was since"));
    }
    let bytes = blocks.saturating_mul(sbi.block_len() as u64);
    let mut paid = Paid::new(&handle, ids, owners, bytes)?;
    if !handle.take_all_at(&deleted.runs)? {
        return Err(not_deleted(ino, "one of its blocks is in use"));
    }
    match dir::change::add(&handle, dir, name, ino, deleted.inode.file_type) {
        Err(error @ (Error::DirectoryFull { .. } | Error::QuotaExceeded { .. })) => {
            for &(start, len) in &deleted.runs {
                handle.failed(handle.free_blocks(start, len))?;
            }
            return Err(error);
        }
        result => handle.failed(result)?,
    }
    let put = deleted.put(&handle, &mut paid).and_then(|inode| {
        name_added(&handle, parent, dir, &before, false)?;
        Ok(inode)
    });
    let inode = handle.failed(put)?;
    parent.changed_in(handle.tid(), true);
    let cell = handle.rw().inodes.insert(inode);
    cell.changed_in(handle.tid(), true);
    Ok(InodeRef::new(sbi, cell).with_caller(parent.caller()))
}

fn not_deleted(ino: Ino, why: &'static str) -> Error {
    Invalid::NotDeleted { ino, why }.into()
}

impl Deleted {
    fn read(sbi: &Sbi, view: &Sbi, ino: Ino) -> Result<Self> {
        let (here, there) = (sbi.geometry(), view.geometry());
        let shape = |of: &Geometry| {
            (
                of.block_size,
                of.blocks_count,
                of.inodes_count,
                of.inode_size,
                of.csum_seed,
            )
        };
        if shape(here) != shape(there) {
            return Err(not_deleted(ino, "the view is not of this file system"));
        }
        if ino.0 < here.first_ino {
            return Err(not_deleted(ino, "it belongs to the file system itself"));
        }
        let bytes = inode_bytes(view, ino)?.to_vec();
        let mut inode = iget(view, ino)?;
        inode.xattr_block = None;
        let impossible = InodeFlags::EA_INODE | InodeFlags::INDEX;
        let may_be_inline = here.features.incompat.contains(Incompat::INLINE_DATA);
        let lacks_feature = inode.has(InodeFlags::EXTENTS) && !sbi.has_extents()
            || inode.has(InodeFlags::INLINE_DATA) && !may_be_inline;
        if inode.file_type == FileType::Directory {
            return Err(not_deleted(ino, "it is a directory"));
        }
        if inode.flags.intersects(impossible) || lacks_feature {
            return Err(not_deleted(ino, "its flags are those of no file"));
        }
        if inode.file_type == FileType::Symlink && inode.size == 0 {
            return Err(not_deleted(ino, "its target is lost"));
        }
        if xattr::change::inodes_apart(view, &inode)? > 0 {
            return Err(not_deleted(
                ino,
                "values of its attributes were inodes of their own",
            ));
        }
        let mut deleted = Self {
            inode,
            bytes,
            runs: Vec::new(),
            nodes: Vec::new(),
        };
        deleted.walk(sbi, view)?;
        Ok(deleted)
    }

    /// Finds all blocks.
    fn walk(&mut self, sbi: &Sbi, view: &Sbi) -> Result<()> {
        let most = sbi.geometry().blocks_count;
        let (mut runs, mut nodes, mut count) = (Vec::new(), HashSet::new(), 0_u64);
        for_each_owned(view, &self.inode, &mut |owned| {
            count = count.saturating_add(owned.len.into());
            // Each run has a block at least: no more of them than a file can have.
            if count <= most {
                runs.push((owned.start, u64::from(owned.len)));
            }
            count <= most && (owned.lblk.is_some() || nodes.insert(owned.start))
        })?;
        let ino = self.inode.ino;
        runs.sort_unstable();
        let overlaps = |pair: &[(Pblk, u64)]| pair[0].0.0.saturating_add(pair[0].1) > pair[1].0.0;
        if count > most || runs.windows(2).any(overlaps) {
            return Err(Error::Corrupt(Damage::InodeField {
                ino,
                field: "mapped blocks",
                value: count,
                why: "some occur twice",
            }));
        }
        for &(start, len) in &runs {
            sbi.check_range("blocks of a deleted file", start, len)?;
        }
        let kind = tag(Kind::Data);
        for block in nodes {
            let buffer = view.bread("map of a deleted file", block, kind, |_| Ok(()))?;
            self.nodes.push((block, buffer.data().to_vec()));
        }
        self.runs = runs;
        Ok(())
    }

    /// Whether its number was given to no other inode since.
    fn is_last_of_number(&self, sbi: &Sbi) -> Result<bool> {
        let ino = self.inode.ino;
        let now = RawInode::parse(&inode_bytes(sbi, ino)?, ino)?;
        let is_same = now.i_generation.get() == self.inode.generation;
        Ok(is_same && now.i_links_count.get() == 0)
    }

    fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| run.1).sum()
    }

    /// Blocks that putting it back in a directory changes: those of its name, bitmaps and
    /// descriptors, its map, its record. Fails where no transaction holds so many.
    fn credits(&self, sbi: &Sbi, dir: &Inode) -> Result<u32> {
        let geometry = sbi.geometry();
        let mut groups = HashSet::new();
        for &(start, len) in &self.runs {
            let last = Pblk(start.0.saturating_add(len.saturating_sub(1)));
            let of = |block| geometry.group_of(block).map_or(0, |(group, _)| group.0);
            groups.extend(of(start)..=of(last));
        }
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let needed = credits(sbi, dir)
            .saturating_add(credits_anywhere(sbi, count(groups.len())))
            .saturating_add(count(self.nodes.len()))
            .saturating_add(4);
        match needed > sbi.writable()?.journal.credits_max() {
            true => Err(Error::Unsupported {
                what: "putting back a file of so many blocks with so small a journal".to_owned(),
            }),
            false => Ok(needed),
        }
    }

    /// Takes its number, and stores it with its map; its blocks have been taken.
    fn put(&self, handle: &Handle<'_>, paid: &mut Paid<'_>) -> Result<Inode> {
        let sbi = handle.sbi();
        let id = self.inode.id();
        handle.retake_inode(id.ino)?;
        for (block, bytes) in &self.nodes {
            let owner = match extent::header(bytes) {
                Some(header) if self.inode.has(InodeFlags::EXTENTS) => {
                    Owner::new(Kind::Extent, header.eh_depth.get(), id.ino, id.generation)
                }
                _ => Owner::of(Kind::Indirect),
            };
            handle.change(&handle.fresh(*block), owner, |place| {
                place.copy_from_slice(bytes)
            });
        }
        change_bytes(sbi, handle, id, |place| {
            place.copy_from_slice(&self.bytes);
            Ok(())
        })?;
        let mut inode = self.inode.clone();
        (inode.links, inode.dtime, inode.blocks) = (1, 0, 0);
        inode.ctime = handle.now();
        inode.owners = paid.owners.take();
        add_blocks(handle, &mut inode, self.blocks());
        if let Some(owners) = &mut inode.owners {
            owners.give_back();
            owners.free = false;
        }
        store_deleted(handle, sbi, &inode, 0)?;
        Ok(inode)
    }
}
