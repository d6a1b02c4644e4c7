//! A file's extents: runs of blocks that are adjacent in the file and on the device.

use uext4::data::{MapState, Mapping};
use uext4::{Damage, Error, Image, Inode};
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

/// The runs of an inode, ascending, those past the end of the file included; after an error
/// nothing.
///
/// There may be as many as the file system has blocks: callers that show them store none.
///
/// Its errors are damage of the mapping and those of the device.
#[derive(Debug)]
pub struct Runs<'a> {
    fs: &'a Image,
    inode: &'a Inode,
    /// First block that was not looked at yet; `u32::MAX` at the end.
    at: u32,
    /// Blocks of all runs so far.
    mapped: u64,
    /// The run that the next mapping may belong to.
    open: Option<Run>,
    /// An error to report after the runs before it.
    error: Option<Error>,
}

impl<'a> Runs<'a> {
    /// Nothing is read before the first is asked for.
    pub fn new(fs: &'a Image, inode: &'a Inode) -> Self {
        Self {
            fs,
            inode,
            at: if has_blocks(inode) { 0 } else { u32::MAX },
            mapped: 0,
            open: None,
            error: None,
        }
    }

    /// The next mapping that is no hole; `None` at the end.
    fn mapping(&mut self) -> Result<Option<Run>, Error> {
        while self.at < u32::MAX {
            let mapping = match self.fs.map(self.inode, Lblk(self.at), u32::MAX - self.at) {
                // Block numbers reach less far than extents.
                Err(Error::FileTooBig) => break,
                mapping => mapping?,
            };
            self.at = mapping.lblk.0.saturating_add(mapping.len.max(1));
            let Some(run) = run_of(&mapping) else {
                continue;
            };
            self.mapped += run.len;
            if self.mapped > self.fs.geometry().blocks_count {
                return Err(Error::Corrupt(Damage::InodeField {
                    ino: self.inode.ino,
                    field: "mapped blocks",
                    value: self.mapped,
                    why: "more than the file system has",
                }));
            }
            return Ok(Some(run));
        }
        Ok(None)
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<Run, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.mapping() {
                Ok(Some(run)) => match &mut self.open {
                    Some(last) if joins(last, &run) => last.len += run.len,
                    open => {
                        if let Some(last) = open.replace(run) {
                            return Some(Ok(last));
                        }
                    }
                },
                Ok(None) => break,
                Err(error) => {
                    self.at = u32::MAX;
                    self.error = Some(error);
                    break;
                }
            }
        }
        let last = self.open.take().map(Ok);
        last.or_else(|| self.error.take().map(Err))
    }
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
