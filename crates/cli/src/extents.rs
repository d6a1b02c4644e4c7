//! A file's extents: runs of blocks that are adjacent in the file and on the device.

use uext4::{Damage, Error, Filesystem, Inode, MapState, Mapping};
use uext4_ondisk::Lblk;
use uext4_ondisk::inode::{FileType, InodeFlags};

/// A mapped run; longer than any single extent on disk may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block in the file.
    pub lblk: u64,
    /// First block on the device.
    pub pblk: u64,
    /// Blocks.
    pub len: u64,
    /// Allocated, but reads as zeroes.
    pub unwritten: bool,
}

/// Whether the inode has blocks of its own that hold data.
pub fn has_blocks(inode: &Inode) -> bool {
    let kind = matches!(
        inode.file_type,
        FileType::Regular | FileType::Directory | FileType::Symlink
    );
    // A short target stands in place of the block numbers.
    let short = inode.file_type == FileType::Symlink
        && inode.size < 60
        && !inode.flags.contains(InodeFlags::EXTENTS);
    kind && !short && !inode.flags.contains(InodeFlags::INLINE_DATA)
}

/// Calls `each` for every run, ascending, those past the end of the file included.
///
/// # Errors
/// Damage of the mapping, device errors.
pub fn each_run(fs: &Filesystem, inode: &Inode, mut each: impl FnMut(Run)) -> Result<(), Error> {
    if !has_blocks(inode) {
        return Ok(());
    }
    let mut open: Option<Run> = None;
    let (mut at, mut mapped) = (0, 0u64);
    let blocks_count = fs.geometry().blocks_count;
    while at < u32::MAX {
        let mapping = fs.map(inode, Lblk(at), u32::MAX - at)?;
        at = mapping.lblk.0.saturating_add(mapping.len.max(1));
        let Some(run) = run_of(&mapping) else {
            continue;
        };
        mapped += run.len;
        if mapped > blocks_count {
            return Err(Error::Corrupt(Damage::InodeField {
                ino: inode.ino,
                field: "mapped blocks",
                value: mapped,
                why: "more than the file system has",
            }));
        }
        match &mut open {
            Some(last) if joins(last, &run) => last.len += run.len,
            _ => {
                if let Some(last) = open.replace(run) {
                    each(last);
                }
            }
        }
    }
    if let Some(last) = open {
        each(last);
    }
    Ok(())
}

fn run_of(mapping: &Mapping) -> Option<Run> {
    (mapping.state != MapState::Hole).then(|| Run {
        lblk: mapping.lblk.0.into(),
        pblk: mapping.pblk.0,
        len: mapping.len.into(),
        unwritten: mapping.state == MapState::Unwritten,
    })
}

fn joins(last: &Run, next: &Run) -> bool {
    last.lblk.checked_add(last.len) == Some(next.lblk)
        && last.pblk.checked_add(last.len) == Some(next.pblk)
        && last.unwritten == next.unwritten
}
