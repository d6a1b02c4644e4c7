//! A directory written anew from the names that it has: the remedy for everything that no block of
//! names can mend by itself.
//!
//! All names are read, equal ones get new names, and the one packer of directories lays them out:
//! in one block, or as an htree with full leaves. The blocks that the directory has are used first;
//! holes are filled and what is left over is freed. This runs in one thread, after the tree of
//! directories is known, so that `..` comes out right.
//!
//! Two kinds of directories get no index, as their names cannot be hashed here: those with
//! case-folded names that are not ASCII, and those that are encrypted besides. Without an index
//! they are searched block by block, which is right and slow; the hashes behind encrypted names
//! are kept.

mod layout;
mod names;
mod space;

use uext4_ondisk::inode::{InodeFlags, RawInode};
use uext4_ondisk::num::{hi32, lo32};
use uext4_ondisk::{Ino, Lblk};

use crate::directories::inline;
use crate::directories::reread::Source;
use crate::directory_list::Run;
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::mapping::{self, FileMap};
use crate::problem::DirectoryProblem;
use crate::report::Cause;
use crate::state::State;

pub use names::NewName;

/// A directory as it is before it is written anew.
#[derive(Debug)]
pub struct Old {
    /// The directory.
    pub ino: Ino,
    /// Its inode.
    pub raw: RawInode,
    /// `i_flags`.
    pub flags: InodeFlags,
    /// Its map.
    pub map: FileMap,
    /// Its blocks.
    pub runs: Vec<Run>,
    /// Blocks by its size.
    pub blocks: u64,
}

impl Old {
    /// Reads inode and map of a directory; `None` if there is no such inode, or if it cannot be
    /// read.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn read(state: &State<'_>, ino: Ino) -> Result<Option<Self>> {
        let Some(bytes) = state.volume.read_inode(ino)? else {
            return Ok(None);
        };
        let Ok(raw) = RawInode::parse(&bytes, ino) else {
            return Ok(None);
        };
        let map = mapping::read(state, ino, &raw)?;
        let runs = map.extents.iter().map(|extent| Run {
            lblk: extent.lblk,
            pblk: extent.pblk,
            len: extent.len.into(),
        });
        let size = u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get());
        Ok(Some(Self {
            ino,
            flags: InodeFlags::from_bits_retain(raw.i_flags.get()),
            runs: runs.collect(),
            blocks: state.geometry().block_size.blocks_for(size),
            raw,
            map,
        }))
    }

    /// Where its records are.
    pub fn source(&self) -> Source<'_> {
        match self.flags.contains(InodeFlags::INLINE_DATA) {
            true => Source::Inline,
            false => Source::Blocks {
                runs: &self.runs,
                blocks: self.blocks,
            },
        }
    }
}

/// What is asked of a directory that is written anew.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The directory.
    pub ino: Ino,
    /// What `..` is to name.
    pub parent: Ino,
    /// Names that it gets besides those it has.
    pub more: &'r [NewName],
    /// Empty blocks are kept: there will be more names soon.
    pub keeps_blocks: bool,
}

/// Writes a directory anew.
///
/// # Errors
/// Of the device and of the overlay; [`crate::Error::NoSpace`], with nothing changed.
pub fn directory(state: &State<'_>, request: Request<'_>, cause: Cause) -> Result<()> {
    let Some(old) = Old::read(state, request.ino)? else {
        return Ok(());
    };
    let names = names::collect(state, &old, request.more)?;
    let layout = layout::plan(state, &old, &request, &names);
    write(state, &old, &layout, cause)
}

/// Writes a directory anew if that changes anything, and reports it then.
///
/// # Errors
/// As [`directory`].
pub fn optimize(state: &State<'_>, request: Request<'_>) -> Result<()> {
    let Some(old) = Old::read(state, request.ino)? else {
        return Ok(());
    };
    if old.flags.contains(InodeFlags::INLINE_DATA) || old.blocks < 2 {
        return Ok(());
    }
    let names = names::collect(state, &old, request.more)?;
    let layout = layout::plan(state, &old, &request, &names);
    if is_same(state, &old, &layout)? {
        return Ok(());
    }
    let place = Place::inode(request.ino);
    let cause = state.report(Finding::new(DirectoryProblem::NotOptimal, place));
    write(state, &old, &layout, cause)
}

/// Whether the directory lies there as it is planned.
fn is_same(state: &State<'_>, old: &Old, layout: &layout::Layout<'_>) -> Result<bool> {
    if u64::from(layout.blocks()) != old.blocks {
        return Ok(false);
    }
    let mut block = vec![0; state.geometry().block_size.len()];
    let mut found = block.clone();
    let mut expected = 0;
    for run in &old.runs {
        for i in 0..run.len {
            let lblk = Lblk(run.lblk.0.saturating_add(i));
            if lblk.0 != expected || expected >= layout.blocks() {
                return Ok(false);
            }
            expected = expected.saturating_add(1);
            let pblk = uext4_ondisk::Pblk(run.pblk.0.saturating_add(i.into()));
            state.volume.overlay().read_block(pblk, &mut found)?;
            block.fill(0);
            layout.fill(lblk.0, &mut block);
            if block != found {
                return Ok(false);
            }
        }
    }
    Ok(expected == layout.blocks())
}

fn write(state: &State<'_>, old: &Old, layout: &layout::Layout<'_>, cause: Cause) -> Result<()> {
    let blocks = layout.blocks();
    let space = space::take(state, old, blocks)?;
    if old.flags.contains(InodeFlags::INLINE_DATA) {
        inline::clear(state, old.ino, cause)?;
    }
    let mut block = vec![0; state.geometry().block_size.len()];
    for extent in &space.extents {
        for i in 0..u32::from(extent.len) {
            let pblk = uext4_ondisk::Pblk(extent.pblk.0.saturating_add(i.into()));
            block.fill(0);
            layout.fill(extent.lblk.0.saturating_add(i), &mut block);
            state.volume.overlay().replace(pblk, cause, &block)?;
        }
    }
    mapping::store(state, old.ino, &old.map, &space.extents, cause)?;
    space.free_rest(state);
    let size = u64::from(blocks) << state.geometry().block_size.log2();
    state.volume.update_raw_inode(old.ino, cause, |raw| {
        let mut flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        flags.set(InodeFlags::INDEX, layout.is_indexed());
        raw.i_flags = flags.bits().into();
        raw.i_size_lo = lo32(size).into();
        raw.i_size_high = hi32(size).into();
    })
}
