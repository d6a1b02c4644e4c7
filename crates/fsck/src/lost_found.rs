//! `/lost+found`: where directories and files go that no entry names.
//!
//! It is looked for when something must go there; that it is missing is no damage. It must be a
//! directory that takes names: one that is encrypted, or a file of that name, loses its name and
//! goes there itself. Without room for one, the root directory takes what is found.

use std::collections::BTreeMap;

use uext4_ondisk::dir_block::{self, DirFormat, NewEntry, Spot as Room};
use uext4_ondisk::dir_entry::update_tail;
use uext4_ondisk::extent::{Extent, empty_extent_root};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::group_desc::{BG_INODE_UNINIT, DescChecksum};
use uext4_ondisk::inode::{
    FULL_EXTRA_ISIZE, FileType, GOOD_OLD_INODE_SIZE, InodeFlags, RawInode, S_IFDIR,
};
use uext4_ondisk::num::len16;
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk};

use crate::bitmaps;
use crate::directories::reread;
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::mapping::{self, FileMap};
use crate::problem::DirectoryProblem;
use crate::rebuild::{self, NewName, Old, Request};
use crate::report::Cause;
use crate::state::State;
use crate::volume::generation;

/// The name in the root directory.
const NAME: &[u8] = b"lost+found";
/// Its permissions: what is found may have been secret.
const MODE: u16 = 0o700;

/// The directory for what is found: the one there is, or a new one.
///
/// # Errors
/// Of the device and of the overlay; [`Error::NoSpace`].
pub fn get(state: &State<'_>, cause: Cause) -> Result<Ino> {
    let Some(root) = Old::read(state, Ino::ROOT)? else {
        return Err(no_space());
    };
    let mut found = None;
    reread::for_each(state, Ino::ROOT, root.source(), |seen| {
        if seen.name == NAME && found.is_none() {
            found = Some((seen.ino, seen.spot));
        }
        Ok(())
    })?;
    if let Some((ino, spot)) = found {
        let place = || spot.place(Ino::ROOT).name(NAME);
        let finding = match state.inodes.get(ino).kind {
            Kind::File(FileType::Directory) if !is_encrypted(state, ino)? => return Ok(ino),
            Kind::File(FileType::Directory) => {
                Finding::new(DirectoryProblem::LostFoundEncrypted, place())
            }
            _ => Finding::new(DirectoryProblem::LostFoundNoDirectory, place()),
        };
        let cause = state.report(finding.found(ino.0));
        let seed = state.geometry().csum_seed;
        let seed = seed.map(|seed| seed.inode(Ino::ROOT, root.raw.i_generation.get()));
        reread::remove(state, Ino::ROOT, seed, &spot, cause)?;
        state.inodes.uncount_link(ino);
        if let Some(at) = state.directories.position(ino) {
            state.tree.set_parent(at, Ino(0));
            state.tree.lose(ino, cause);
        }
    }
    if found.is_none() {
        let place = Place::inode(Ino::ROOT).name(NAME);
        state.report(Finding::new(DirectoryProblem::LostFoundMissing, place));
    }
    let made = free_inode(state)
        .and_then(|ino| make_directory(state, ino, Ino::ROOT, MODE, cause).map(|()| ino));
    let ino = match made {
        // The root directory takes names, too.
        Err(Error::NoSpace { .. }) => return Ok(Ino::ROOT),
        made => made?,
    };
    let name = NewName {
        name: NAME.to_vec(),
        ino,
        file_type: FileType::Directory,
    };
    add(state, Ino::ROOT, Ino::ROOT, &[name], cause)?;
    Ok(ino)
}

/// Gives inodes names in a `lost+found`.
///
/// # Errors
/// Of the device and of the overlay; [`Error::NoSpace`].
pub fn attach(state: &State<'_>, into: Ino, lost: &BTreeMap<Ino, Cause>) -> Result<()> {
    let Some((_, &cause)) = lost.first_key_value() else {
        return Ok(());
    };
    let names: Vec<NewName> = lost
        .keys()
        .filter_map(|&ino| match state.inodes.get(ino).kind {
            Kind::File(file_type) => Some(NewName {
                name: format!("#{ino}").into_bytes(),
                ino,
                file_type,
            }),
            _ => None,
        })
        .collect();
    add(state, into, Ino::ROOT, &names, cause)
}

/// Adds names to a directory: where there is room, or by writing it anew.
fn add(state: &State<'_>, dir: Ino, parent: Ino, names: &[NewName], cause: Cause) -> Result<()> {
    if let [name] = names
        && insert(state, dir, name, cause)?
    {
        state.inodes.count_link(name.ino);
        return Ok(());
    }
    let request = Request {
        ino: dir,
        parent,
        more: names,
        keeps_blocks: true,
    };
    rebuild::directory(state, request, cause)?;
    for name in names {
        state.inodes.count_link(name.ino);
    }
    Ok(())
}

/// Puts a name into the first block that has room, in a directory without an index; false if there
/// is none.
///
/// # Errors
/// Of the device and of the overlay.
pub fn insert(state: &State<'_>, dir: Ino, name: &NewName, cause: Cause) -> Result<bool> {
    let Some(old) = Old::read(state, dir)? else {
        return Ok(false);
    };
    let other = InodeFlags::INLINE_DATA | InodeFlags::INDEX | InodeFlags::ENCRYPT;
    if old.flags.intersects(other) || old.flags.contains(InodeFlags::CASEFOLD) {
        return Ok(false);
    }
    let format = DirFormat::new(state.geometry());
    let entry = NewEntry {
        name: &name.name,
        ino: name.ino,
        file_type: format.file_type(name.file_type),
    };
    let seed = state.geometry().csum_seed;
    let seed = seed.map(|seed| seed.inode(dir, old.raw.i_generation.get()));
    let mut block = vec![0; state.geometry().block_size.len()];
    let mut room = None;
    for (lblk, pblk) in old.blocks() {
        if u64::from(lblk) >= old.blocks {
            break;
        }
        state.volume.overlay().read_block(pblk, &mut block)?;
        match dir_block::scan(&block, pblk, format.room(), &name.name) {
            Ok(Room::Exists) | Err(_) => return Ok(false),
            Ok(Room::Space(offset)) => room = room.or(Some((pblk, offset))),
            Ok(Room::Full) => {}
        }
    }
    let Some((pblk, offset)) = room else {
        return Ok(false);
    };
    state.volume.overlay().update(pblk, cause, |bytes| {
        dir_block::insert(bytes, offset, &entry);
        if let Some(seed) = seed {
            update_tail(bytes, seed);
        }
    })?;
    Ok(true)
}

impl Old {
    /// Logical and physical blocks in order.
    fn blocks(&self) -> impl Iterator<Item = (u32, Pblk)> + '_ {
        self.runs.iter().flat_map(|run| {
            (0..run.len).map(|i| {
                let pblk = Pblk(run.pblk.0.saturating_add(i.into()));
                (run.lblk.0.saturating_add(i), pblk)
            })
        })
    }
}

fn is_encrypted(state: &State<'_>, ino: Ino) -> Result<bool> {
    let old = Old::read(state, ino)?;
    Ok(old.is_none_or(|old| old.flags.contains(InodeFlags::ENCRYPT)))
}

/// The first inode that is not in use.
fn free_inode(state: &State<'_>) -> Result<Ino> {
    let geometry = state.geometry();
    let per_group = geometry.inodes_per_group.get();
    for group in 0..geometry.groups_count.get() {
        let first = group.saturating_mul(per_group).saturating_add(1);
        let last = first
            .saturating_add(per_group - 1)
            .min(geometry.inodes_count);
        let mut next = first.max(geometry.first_ino);
        // Only those of which something is known can be in use.
        for (ino, known) in state.inodes.in_group(GroupNr(group)) {
            let is_free = known.kind == Kind::Unused && known.counted == 0;
            if ino.0 < next || is_free {
                continue;
            }
            if ino.0 > next {
                break;
            }
            next = next.saturating_add(1);
        }
        if (first..=last).contains(&next) {
            return Ok(Ino(next));
        }
    }
    Err(no_space())
}

#[cold]
fn no_space() -> Error {
    Error::NoSpace {
        what: "the directory lost+found",
    }
}

/// Makes an empty directory of an inode that is not in use, and counts its own links.
///
/// # Errors
/// Of the device and of the overlay; [`Error::NoSpace`], with nothing changed.
pub fn make_directory(
    state: &State<'_>,
    ino: Ino,
    parent: Ino,
    mode: u16,
    cause: Cause,
) -> Result<()> {
    let raw = new_inode(state, mode);
    let mut bytes = vec![0; usize::from(state.geometry().inode_size)];
    raw.store(&mut bytes);
    put_directory(state, ino, parent, &bytes, cause)?;
    let links = raw.i_links_count.get();
    state
        .inodes
        .set(ino, Kind::File(FileType::Directory), false, links);
    state.inodes.count_link(ino);
    state.inodes.count_link(parent);
    Ok(())
}

/// Stores the inode of a directory, whose map is empty, and gives it a block with the names `.` and
/// `..`.
///
/// # Errors
/// Of the device and of the overlay; [`Error::NoSpace`], with nothing changed.
pub fn put_directory(
    state: &State<'_>,
    ino: Ino,
    parent: Ino,
    inode: &[u8],
    cause: Cause,
) -> Result<()> {
    let geometry = state.geometry();
    let goal = geometry.inode_group(ino).map(|(group, _)| group);
    let goal = geometry.group_start(goal.unwrap_or_default());
    let pblk = state.allocate(goal, 1, "a directory")?;
    let format = DirFormat::new(geometry);
    let mut block = vec![0; geometry.block_size.len()];
    format.fill(&mut block, format.dots(ino, parent).into_iter());
    if let Some(seed) = geometry.csum_seed {
        update_tail(&mut block, seed.inode(ino, generation(inode)));
    }
    state.volume.overlay().replace(pblk, cause, &block)?;
    state.volume.update_inode(ino, cause, |bytes| {
        for (byte, new) in bytes.iter_mut().zip(inode) {
            *byte = *new;
        }
    })?;
    let extent = Extent {
        lblk: Lblk(0),
        len: 1,
        pblk,
        unwritten: false,
    };
    mapping::store(state, ino, &FileMap::default(), &[extent], cause)?;
    use_inode(state, ino, cause)
}

/// Makes the part of the inode table that was ever used reach up to an inode.
///
/// # Errors
/// Of the device and of the overlay.
pub fn use_inode(state: &State<'_>, ino: Ino, cause: Cause) -> Result<()> {
    let geometry = state.geometry();
    let Some((group, number)) = geometry.inode_group(ino) else {
        return Ok(());
    };
    let desc = state.volume.group(group);
    let per_group = geometry.inodes_per_group.get();
    let behind = per_group.saturating_sub(number.saturating_add(1));
    let is_whole = geometry.desc_checksum == DescChecksum::None;
    let is_covered = desc.flags & BG_INODE_UNINIT == 0 && desc.itable_unused <= behind;
    if is_whole || is_covered {
        return Ok(());
    }
    // The field counts nothing where the bitmap was never written.
    let is_uninit = desc.flags & BG_INODE_UNINIT != 0;
    bitmaps::first_inodes(state, group, cause)?;
    state.volume.update_group(group, cause, |desc| {
        desc.itable_unused = match is_uninit {
            false => desc.itable_unused.min(behind),
            true => behind,
        };
    })
}

fn new_inode(state: &State<'_>, mode: u16) -> RawInode {
    let geometry = state.geometry();
    let now = state.options.now;
    let mut raw = RawInode::zeroed();
    raw.i_mode = (S_IFDIR | mode).into();
    raw.i_links_count = 2.into();
    raw.i_size_lo = geometry.block_size.bytes().into();
    for time in [&mut raw.i_atime, &mut raw.i_ctime, &mut raw.i_mtime] {
        *time = now.into();
    }
    if geometry.features.incompat.contains(Incompat::EXTENTS) {
        raw.i_flags = InodeFlags::EXTENTS.bits().into();
        raw.i_block = empty_extent_root();
    }
    let room = usize::from(geometry.inode_size).saturating_sub(GOOD_OLD_INODE_SIZE);
    raw.i_extra_isize = len16(room).min(FULL_EXTRA_ISIZE).into();
    if raw.i_extra_isize.get() == FULL_EXTRA_ISIZE {
        raw.i_crtime = now.into();
    }
    raw
}
