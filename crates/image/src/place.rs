//! Contents that go to their final blocks while their source is still being read.
//!
//! What an image needs in all is known when the last source has been read; where its contents lie
//! need not wait for that. They lie first, in the order they come, and bitmaps, inode tables,
//! directories and the journal after them:
//!
//! ```text
//! super, descriptors, room │ contents … │ (backup, room) contents … │ tables │ directories │ free
//! └────── fixed ──────────┘
//! ```
//! Only the copies of the superblock and of the descriptors are in the way, at the start of some
//! groups. How long those become depends on the size of the file system, so room is left for the
//! most that they can have ([`Region`]); what they do not need is free space like any other.
//!
//! An offset of the space for contents is *linear*: it counts the blocks that may hold contents,
//! and the region translates it. So a file of adjacent blocks has one offset, whatever lies
//! between them.

mod region;
mod share;
mod writer;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uext4::bulk::PlacedRun;
use uext4_blockdev::{BlockDevice, FileDevice};
use uext4_ondisk::{Lblk, Pblk};

use crate::chunks::Slice;
use crate::error::Error;
use crate::tree::{DataRange, FileData, Node, Tree};
pub use region::Region;
use region::Run;
use share::{ALIGNMENT, SHARED_MIN, Shared, Sharing};
use writer::{Part, Writer, ZEROES_MAX};

/// Bytes, and parts, that are written at once.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_PARTS: usize = 512;

/// Appends contents to the space for them.
pub struct Placer {
    region: Arc<Region>,
    block_len: u64,
    /// Linear offset of the next byte.
    position: u64,
    /// Linear offset of what does not fit any more.
    limit: u64,
    device: Arc<FileDevice>,
    /// Where the file system begins on the device, in bytes.
    offset: u64,
    batch: Vec<Part>,
    batch_bytes: u64,
    writer: Writer,
    /// Whether files may share their blocks with the image; `None` if none can.
    sharing: Option<Sharing>,
}

impl Placer {
    /// Nothing placed yet; the file system begins `offset` bytes into the device.
    ///
    /// # Errors
    /// [`Error::Thread`] if there can be no thread that writes.
    pub fn new(region: Region, device: Arc<FileDevice>, offset: u64) -> Result<Self, Error> {
        let region = Arc::new(region);
        Ok(Self {
            block_len: region.block_len(),
            position: 0,
            limit: region.limit(),
            batch: Vec::new(),
            batch_bytes: 0,
            writer: Writer::start(Arc::clone(&region), Arc::clone(&device), offset)?,
            device,
            offset,
            region,
            sharing: None,
        })
    }

    /// The image lies in the directory `dir`, and may share blocks of files there.
    #[must_use]
    pub fn sharing(mut self, dir: &Path) -> Self {
        let is_aligned = |at: u64| at.is_multiple_of(ALIGNMENT);
        if is_aligned(self.block_len) && is_aligned(self.offset) {
            // It only saves time and space.
            self.sharing = Sharing::new(self.device.path(), dir).ok();
        }
        self
    }

    /// As many of the `len` bytes of a file from `from` on as are whole blocks, if the image can
    /// share them. `path` is how errors call the file.
    pub fn shareable(
        &mut self,
        file: &Arc<File>,
        from: u64,
        len: u64,
        path: impl FnOnce() -> PathBuf,
    ) -> Option<Shared> {
        let len = len / self.block_len * self.block_len;
        let sharing = self.sharing.as_mut()?;
        match from.is_multiple_of(ALIGNMENT) && len >= SHARED_MIN {
            true => sharing.part(file, from, len, path),
            false => None,
        }
    }

    /// Appends blocks of a file that are not read here. The position is at the start of a block.
    ///
    /// # Errors
    /// As [`Placer::put`], also for files that have changed.
    pub fn share(&mut self, part: Shared) -> Result<(), Error> {
        let len = part.len();
        self.append(Part::Shared(part), len)
    }

    /// Appends bytes. Those past the end of the region are only counted.
    ///
    /// # Errors
    /// [`Error::Device`] for this or earlier bytes.
    pub fn put(&mut self, slice: Slice) -> Result<(), Error> {
        let len = slice.len() as u64;
        self.append(Part::Bytes(slice), len)
    }

    fn append(&mut self, part: Part, len: u64) -> Result<(), Error> {
        if self.position.saturating_add(len) <= self.limit {
            self.batch.push(part);
            self.batch_bytes += len;
        }
        self.position = self.position.saturating_add(len);
        match self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_PARTS {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        self.writer.send(batch)
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn finish(mut self) -> Result<Placed, Error> {
        self.fill_block()?;
        self.send()?;
        self.writer.finish()?;
        Ok(Placed {
            region: self.region,
            device: self.device,
            offset: self.offset,
            end: self.position,
            sources: Vec::new(),
            blocks: BlockUse::default(),
        })
    }
}

/// Files one after another, each from the start of a block.
pub trait Append {
    /// Linear offset of the next byte.
    fn position(&self) -> u64;

    /// Bytes of a block.
    fn block_len(&self) -> u64;

    /// Appends zeroes.
    ///
    /// # Errors
    /// [`Error::Device`] for this or earlier bytes.
    fn zeroes(&mut self, len: u64) -> Result<(), Error>;

    /// Appends zeroes up to the end of a block.
    ///
    /// # Errors
    /// As [`Append::zeroes`].
    fn fill_block(&mut self) -> Result<(), Error> {
        let used = self.position() % self.block_len();
        match used {
            0 => Ok(()),
            _ => self.zeroes(self.block_len() - used),
        }
    }

    /// Makes the next byte the first of `piece`, which follows `before` in its file: pieces of one
    /// block have zeroes between them, and holes have no blocks. Returns the linear offset.
    ///
    /// # Errors
    /// As [`Append::zeroes`].
    fn begin_piece(&mut self, piece: &DataRange, before: Option<&DataRange>) -> Result<u64, Error> {
        let block = self.block_len();
        let end = before.map(|before| before.offset.saturating_add(before.len));
        match end.filter(|end| end / block == piece.offset / block) {
            Some(end) => self.zeroes(piece.offset.saturating_sub(end))?,
            None => {
                self.fill_block()?;
                self.zeroes(piece.offset % block)?;
            }
        }
        Ok(self.position())
    }
}

impl Append for Placer {
    fn position(&self) -> u64 {
        self.position
    }

    fn block_len(&self) -> u64 {
        self.block_len
    }

    fn zeroes(&mut self, len: u64) -> Result<(), Error> {
        let mut left = len;
        while left > 0 {
            let part = left.min(ZEROES_MAX as u64);
            self.append(Part::Zeroes(part as usize), part)?;
            left -= part;
        }
        Ok(())
    }
}

/// Contents in their places.
#[derive(Debug)]
pub struct Placed {
    region: Arc<Region>,
    device: Arc<FileDevice>,
    /// Where the file system begins on the device, in bytes.
    offset: u64,
    /// Linear offset of the end.
    end: u64,
    /// For each source, whether its contents are here.
    sources: Vec<bool>,
    blocks: BlockUse,
}

impl Placed {
    /// What did not fit into the region, as an error; the numbers are of contents alone.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`].
    pub fn check_fit(&self) -> Result<(), Error> {
        let (need, have) = (self.end, self.region.limit());
        match need > have {
            true => Err(Error::DoesNotFit {
                what: "bytes",
                need,
                have,
                brought: None,
            }),
            false => Ok(()),
        }
    }

    /// Says of each source whether its contents are here, and finds the blocks that files of the
    /// tree have: of all sources together, so that nothing is put into the tree after this.
    pub fn of(self, sources: Vec<bool>, tree: &Tree) -> Self {
        let placed = Self { sources, ..self };
        Self {
            blocks: placed.use_of_blocks(tree),
            ..placed
        }
    }

    /// Fills `buf` with contents, from this linear offset on.
    ///
    /// # Errors
    /// Those of the device; an early end of file behind the end of what was placed.
    pub fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let block = self.region.block_len();
        let mut skip = at % block;
        let end = at.saturating_add(buf.len() as u64);
        if end > self.end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = buf;
        for run in self.region.runs(at / block..end.div_ceil(block)) {
            let len = (run.len * block - skip).min(rest.len() as u64) as usize;
            let (part, after) = rest.split_at_mut(len);
            let offset = self.offset + run.start * block + skip;
            self.device
                .read_at(offset, part)
                .map_err(io::Error::other)?;
            (rest, skip) = (after, 0);
        }
        match rest.is_empty() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The blocks that files of the tree have, in runs, ascending.
    pub fn used(&self) -> &[Range<u64>] {
        &self.blocks.used
    }

    /// Makes holes of what was placed for files that are no longer in the tree: it must not be in
    /// the image, and takes no space.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn discard_unused(&self, device: &dyn BlockDevice) -> Result<(), Error> {
        let block = self.region.block_len();
        for run in &self.blocks.unused {
            // What lies behind the end of the file system was cut off.
            let (start, end) = (run.start * block, (run.end * block).min(device.len()));
            if let Some(len) = end.checked_sub(start).filter(|&len| len > 0) {
                device.discard(start, len)?;
            }
        }
        Ok(())
    }

    /// Appends the runs of blocks that hold the contents of a file; nothing if they are not here.
    pub fn runs(&self, tree: &Tree, node: &Node, runs: &mut Vec<PlacedRun>) {
        if !self.holds(node) {
            return;
        }
        let block = self.region.block_len();
        let first = runs.len();
        let mut add = |offset: u64, len: u64, at: u64| {
            let lblk = offset / block;
            let count = (offset + len).div_ceil(block) - lblk;
            // Where the first byte of the piece's first block is.
            let from = (at - offset % block) / block;
            let mut done = 0;
            for run in self.region.runs(from..from + count) {
                push(runs, first, lblk + done, run);
                done += run.len;
            }
        };
        match tree.data(node) {
            FileData::Whole { .. } if node.size() == 0 => {}
            FileData::Whole { at } => add(0, node.size(), at),
            FileData::Sparse(pieces) => pieces.iter().for_each(|p| add(p.offset, p.len, p.at)),
        }
    }

    /// True if the contents of a file are here.
    pub fn holds(&self, node: &Node) -> bool {
        self.sources.get(usize::from(node.source())) == Some(&true)
    }

    /// The blocks that files of the tree have here, and those they do not have, for which a file
    /// was placed that is no longer in the tree.
    fn use_of_blocks(&self, tree: &Tree) -> BlockUse {
        let mut runs = Vec::new();
        let mut seen = vec![false; tree.nodes_len()];
        for entry in tree.entries() {
            if !std::mem::replace(&mut seen[tree.node_id(entry).index()], true) {
                self.runs(tree, tree.node_of(entry), &mut runs);
            }
        }
        let mut used: Vec<Range<u64>> = runs
            .iter()
            .map(|run| run.pblk.0..run.pblk.0 + u64::from(run.len))
            .collect();
        used.sort_unstable_by_key(|run| run.start);
        used.dedup_by(|next, last| {
            let adjacent = last.end >= next.start;
            last.end = if adjacent {
                next.end.max(last.end)
            } else {
                last.end
            };
            adjacent
        });
        let block = self.region.block_len();
        let mut unused = Vec::new();
        let mut next = used.iter().peekable();
        for run in self.region.runs(0..self.end.div_ceil(block)) {
            let mut at = run.start;
            let end = run.start + run.len;
            while at < end {
                while next.next_if(|used| used.end <= at).is_some() {}
                let (gap, past) = match next.peek() {
                    Some(used) => (used.start.clamp(at, end), used.end.min(end)),
                    None => (end, end),
                };
                if gap > at {
                    unused.push(at..gap);
                }
                at = past.max(gap);
            }
        }
        BlockUse { used, unused }
    }
}

/// Runs of blocks, ascending.
#[derive(Debug, Default)]
struct BlockUse {
    /// With contents of files.
    used: Vec<Range<u64>>,
    /// With what is no longer wanted.
    unused: Vec<Range<u64>>,
}

/// Appends a run of a file whose runs begin at `first` in the list. Files of more blocks than
/// fit 32 bits are refused by their size before any of their runs is used.
fn push(runs: &mut Vec<PlacedRun>, first: usize, lblk: u64, run: Run) {
    let lblk = u32::try_from(lblk).unwrap_or(u32::MAX);
    let len = u32::try_from(run.len).unwrap_or(u32::MAX);
    let own = runs.get_mut(first..).and_then(<[PlacedRun]>::last_mut);
    // Two pieces may share a block, and adjacent ones are one run.
    if let Some(last) = own {
        let skip = lblk.saturating_sub(last.lblk.0);
        if skip <= last.len && last.pblk.0 + u64::from(skip) == run.start {
            last.len = last.len.max(skip.saturating_add(len));
            return;
        }
    }
    runs.push(PlacedRun {
        lblk: Lblk(lblk),
        pblk: Pblk(run.start),
        len,
    });
}

#[cfg(test)]
mod tests;
