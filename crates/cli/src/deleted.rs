//! Deleted files that can still be found: in their inodes, or in copies that the journal holds.
//!
//! Linux empties the map of a file on ext4, and its size, when it deletes the file; e2fsck, debugfs
//! and interrupted deletions leave them. The log of the journal is a ring, and may still hold a
//! copy of the block of the inode table from before: the newest one in which the inode has a link,
//! with the same generation, is what the file was. Blocks of its map are taken from the log too, as
//! they were before the deletion.
//!
//! What is found is an overlay above the device, and read by the engine as any image. Nothing says
//! whether data blocks that are free now were used in between.

mod copies;
mod map;
mod names;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use uext4::{FileType, Image, Inode, InodeFlags, OpenOptions};
use uext4_blockdev::BlockDevice;
use uext4_fsck::{Cause, Overlay};
use uext4_ondisk::group_desc::BG_INODE_UNINIT;
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::{GroupNr, Ino, Pblk};

use crate::extents::{Run, Runs};
use crate::failure::{Exit, Failure};
use crate::memory;
use copies::Copies;

/// Bytes of changed blocks that the overlay keeps in memory.
const OVERLAY_MEMORY: u64 = 64 << 20;
/// Bytes that the engine may cache of the overlay.
const VIEW_MEMORY: u64 = 32 << 20;
/// How many times as many blocks as there are maps may name together: files that were deleted one
/// after the other may have had the same blocks.
const REPEATS: u64 = 16;
/// Bytes that are copied at a time.
const COPY: usize = 1 << 20;

/// An inode that was deleted.
struct Buried {
    generation: u32,
    file_type: FileType,
    deleted_at: u32,
}

/// All of them.
type AllBuried = HashMap<Ino, Buried>;

/// A deleted file of which something is left.
pub struct Deleted {
    /// What it was.
    pub inode: Inode,
    /// When it was deleted, in seconds since 1970.
    pub deleted_at: u32,
    /// Whether its inode comes from the journal.
    pub from_journal: bool,
    /// Blocks that are left of its map, and blocks of the map itself.
    pub blocks: u64,
    /// Of these, those that are free.
    pub free: u64,
    /// Blocks that hold its map, as far as they are left.
    nodes: Vec<Pblk>,
    /// What of its map is lost, if something is.
    pub lost: Option<&'static str>,
    /// The path that it had. It begins with `<INODE>` where the path of a directory is not known.
    pub path: Option<Vec<u8>>,
}

impl Deleted {
    /// Whether all of its map is left and none of its blocks is in use.
    pub fn is_whole(&self) -> bool {
        self.lost.is_none() && self.free == self.blocks
    }

    /// All runs of blocks that are left: first block and length.
    pub fn all_runs<'a>(&'a self, view: &'a Image) -> impl Iterator<Item = (Pblk, u64)> + 'a {
        let data = Runs::new(view, &self.inode).map_while(Result::ok);
        let nodes = self.nodes.iter().map(|&block| (block, 1));
        nodes.chain(data.map(|run| (Pblk(run.pblk), run.len)))
    }
}

/// What is left of deleted files.
pub struct Deletions {
    /// The file system with the inodes and maps of the files as they were.
    pub view: Image,
    overlay: Arc<Overlay>,
    /// The ones deleted last first.
    pub files: Vec<Deleted>,
    /// Deleted files of which nothing is left but the number.
    pub gone: u64,
    /// Deleted directories.
    pub directories: u64,
}

/// A block as the view has it.
pub type Kept = (Pblk, Vec<u8>);

impl Deletions {
    /// The files alone: the device is no longer in use by the view.
    pub fn into_files(self) -> Vec<Deleted> {
        self.files
    }

    /// The blocks of the view that hold the inodes and maps of the files: what changes the file
    /// system may overwrite the log that they come from.
    ///
    /// # Errors
    /// Of the overlay.
    pub fn keep(&self) -> Result<Vec<Kept>, Failure> {
        let mut kept = BTreeMap::new();
        for file in &self.files {
            let table = place(&self.view, file.inode.ino).map(|(block, _)| block);
            for &block in table.iter().chain(&file.nodes) {
                let mut bytes = vec![0; self.overlay.block_size().len()];
                self.overlay.read_block(block, &mut bytes).map_err(failed)?;
                kept.insert(block, bytes);
            }
        }
        Ok(kept.into_iter().collect())
    }
}

/// The view that such blocks were kept of, over the file system as it is by now.
///
/// # Errors
/// Of the overlay.
pub fn view(fs: &Image, kept: &[Kept]) -> Result<Image, Failure> {
    let overlay = overlay(fs);
    for (block, bytes) in kept {
        let put = overlay.replace(*block, Cause(0), bytes);
        put.map_err(failed)?;
    }
    open_view(&Arc::new(overlay))
}

fn overlay(fs: &Image) -> Overlay {
    let size = fs.geometry().block_size;
    Overlay::new(Arc::clone(fs.device()), size, memory::of(3, OVERLAY_MEMORY))
}

fn open_view(overlay: &Arc<Overlay>) -> Result<Image, Failure> {
    let mut options = OpenOptions::default();
    options.memory = Some(memory::of(2, VIEW_MEMORY));
    options.replay_journal = false;
    let device: Arc<dyn BlockDevice> = Arc::<Overlay>::clone(overlay);
    let view = Image::open(device, &options);
    view.map_err(|error| Failure::engine("deleted files", &error))
}

/// Looks for them. `free` says how many of a run of blocks, which may be any, are free.
///
/// # Errors
/// Of the overlay.
pub fn find(fs: &Image, free: &mut dyn FnMut(Pblk, u64) -> u64) -> Result<Deletions, Failure> {
    let geometry = fs.geometry();
    let mut search = Search {
        fs,
        buried: all_buried(fs),
        copies: Copies::read(fs),
        overlay: overlay(fs),
        budget: geometry.blocks_count.saturating_mul(REPEATS),
    };
    let found = search.inodes()?;
    let overlay = Arc::new(search.overlay);
    let view = open_view(&overlay)?;
    let (mut files, mut gone, mut directories) = (Vec::new(), 0, 0);
    let mut budget = search.budget;
    let mut paths = names::paths(fs, &search.copies, &search.buried);
    for found in found {
        if search.buried[&found.ino].file_type == FileType::Directory {
            directories += 1;
            continue;
        }
        match read(&view, found, free, &mut budget) {
            Some(file) => files.push(Deleted {
                path: paths.remove(&file.inode.ino),
                deleted_at: search.buried[&file.inode.ino].deleted_at,
                ..file
            }),
            None => gone += 1,
        }
    }
    Ok(Deletions {
        view,
        overlay,
        files,
        gone,
        directories,
    })
}

/// Deleted inodes, as bitmaps and tables have them.
fn all_buried(fs: &Image) -> AllBuried {
    let geometry = fs.geometry();
    let per_group = geometry.inodes_per_group.get();
    let mut all = HashMap::new();
    for group in 0..geometry.groups_count.get() {
        let Ok(desc) = fs.group_desc(GroupNr(group)) else {
            continue;
        };
        let Ok(bitmap) = fs.inode_bitmap(GroupNr(group)) else {
            continue;
        };
        if desc.flags & BG_INODE_UNINIT != 0 {
            continue;
        }
        let is_free = |index: u32| {
            let byte = bitmap.get(index as usize / 8);
            byte.is_some_and(|byte| byte >> (index % 8) & 1 == 0)
        };
        let last = per_group.saturating_sub(desc.itable_unused);
        for index in (0..last).filter(|&index| is_free(index)) {
            let ino = Ino(group.saturating_mul(per_group).saturating_add(index + 1));
            if ino.0 >= geometry.first_ino
                && let Ok(bytes) = fs.inode_bytes(ino)
                && let Some(buried) = Buried::of(&bytes, ino)
            {
                all.insert(ino, buried);
            }
        }
    }
    all
}

impl Buried {
    /// `None` for an inode that was never in use, or is.
    fn of(bytes: &[u8], ino: Ino) -> Option<Self> {
        let raw = RawInode::parse(bytes, ino).ok()?;
        let is_deleted = raw.i_links_count.get() == 0 && raw.i_dtime.get() != 0;
        Some(Self {
            generation: raw.i_generation.get(),
            file_type: FileType::from_mode(raw.i_mode.get()).filter(|_| is_deleted)?,
            deleted_at: raw.i_dtime.get(),
        })
    }
}

/// A deleted inode, as the overlay has it now.
struct Found {
    ino: Ino,
    from_journal: bool,
    /// The blocks of its map; `None` if one of them is lost.
    nodes: Option<Vec<Pblk>>,
}

struct Search<'a> {
    fs: &'a Image,
    buried: AllBuried,
    copies: Copies<'a>,
    overlay: Overlay,
    /// Blocks of files that may still be found.
    budget: u64,
}

impl Search<'_> {
    /// Puts the inodes and their maps into the overlay as they were, the ones deleted last first.
    fn inodes(&mut self) -> Result<Vec<Found>, Failure> {
        let older = self.copies.inodes(&self.buried);
        let order = |(&ino, buried): (&Ino, &Buried)| (Reverse(buried.deleted_at), ino);
        let mut order: Vec<_> = self.buried.iter().map(order).collect();
        order.sort_unstable();
        let mut all = Vec::new();
        for (_, ino) in order {
            let now = self.fs.inode_bytes(ino).unwrap_or_default();
            let older = older.get(&ino).filter(|_| !map::has_any(&now, ino));
            if let Some(older) = older {
                self.put(ino, &older.bytes)?;
            }
            let bytes = older.map_or(&now, |older| &older.bytes);
            let deleted = older.and_then(|older| older.deleted_age);
            all.push(Found {
                ino,
                from_journal: older.is_some(),
                nodes: self.nodes(ino, bytes, deleted)?,
            });
        }
        Ok(all)
    }

    /// Puts the record of an inode into the overlay.
    fn put(&self, ino: Ino, bytes: &[u8]) -> Result<(), Failure> {
        let Some((block, at)) = place(self.fs, ino) else {
            return Ok(());
        };
        let changed = self.overlay.update(block, Cause(0), |table| {
            if let Some(record) = table.get_mut(at..at.saturating_add(bytes.len())) {
                record.copy_from_slice(bytes);
            }
        });
        changed.map_err(failed)
    }
}

fn failed(error: uext4_fsck::Error) -> Failure {
    Failure::new(Exit::CouldNot, error).about("deleted files")
}

/// The block of the inode table that holds an inode, and the byte where it begins there; `None` if
/// its descriptor is damaged.
pub fn place(fs: &Image, ino: Ino) -> Option<(Pblk, usize)> {
    let geometry = fs.geometry();
    let (group, index) = geometry.inode_group(ino)?;
    let table = fs.group_desc(group).ok()?.inode_table;
    let offset = u64::from(index) * u64::from(geometry.inode_size);
    let block = table.0.checked_add(offset >> geometry.block_size.log2())?;
    let within = offset & (u64::from(geometry.block_size.bytes()) - 1);
    Some((Pblk(block), usize::try_from(within).ok()?))
}

/// What a deleted inode was; `None` if nothing is left of it.
fn read(
    view: &Image,
    found: Found,
    free: &mut dyn FnMut(Pblk, u64) -> u64,
    budget: &mut u64,
) -> Option<Deleted> {
    let inode = view.inode(found.ino).ok()?;
    let bytes = view.inode_bytes(found.ino).ok()?;
    let has_nodes = found.nodes.is_some();
    if !found.from_journal && !map::has_any(&bytes, found.ino) {
        return None;
    }
    let mut file = Deleted {
        deleted_at: 0,
        from_journal: found.from_journal,
        blocks: 0,
        free: 0,
        lost: None,
        path: None,
        inode,
        nodes: found.nodes.unwrap_or_default(),
    };
    for &block in &file.nodes {
        file.blocks += 1;
        file.free += free(block, 1);
    }
    for run in Runs::new(view, &file.inode) {
        let left = |run: &Run| budget.checked_sub(run.len);
        let Some((run, left)) = run.ok().and_then(|run| Some((run, left(&run)?))) else {
            file.lost = Some("its map is damaged");
            return Some(file);
        };
        *budget = left;
        file.blocks += run.len;
        file.free += free(Pblk(run.pblk), run.len);
    }
    let geometry = view.geometry();
    let units = (u64::from(geometry.block_size.bytes()) / 512) << geometry.cluster_bits;
    let attributes = file.inode.xattr_block.map_or(0, |_| units);
    let counted = file.inode.blocks.saturating_sub(attributes);
    let is_all = geometry.cluster_bits > 0 || counted == file.blocks.saturating_mul(units);
    file.lost = (!has_nodes || !is_all).then_some("a part of its map is lost");
    Some(file)
}

/// Copies the data of a deleted file, as the view has it; `to` must be empty. Returns whether all
/// of it could be read.
///
/// # Errors
/// Of the file that is written.
pub fn copy_data(view: &Image, inode: &Inode, to: &File) -> std::io::Result<bool> {
    to.set_len(inode.size)?;
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        return copy_range(view, inode, 0..inode.size, to);
    }
    let block = u64::from(view.geometry().block_size.bytes());
    for run in Runs::new(view, inode) {
        let Ok(run) = run else {
            return Ok(false);
        };
        let end = run.lblk.saturating_add(run.len).saturating_mul(block);
        let range = run.lblk.saturating_mul(block)..end.min(inode.size);
        if !run.unwritten && !copy_range(view, inode, range, to)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn copy_range(view: &Image, inode: &Inode, range: Range<u64>, to: &File) -> std::io::Result<bool> {
    let mut buf = vec![0; COPY];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(COPY as u64) as usize;
        let Ok(read) = view.read_at(inode, at, &mut buf[..len]) else {
            return Ok(false);
        };
        if read == 0 {
            break;
        }
        to.write_all_at(&buf[..read], at)?;
        at += read as u64;
    }
    Ok(true)
}
