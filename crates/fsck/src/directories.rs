//! The pass over directories: their records and indexes, and how many names each inode has.
//!
//! Every block of every directory is read once, in the order of the disk: directories are sorted
//! by their first block, a thread takes a chunk of them, and reads neighbouring blocks with one
//! request. A block is examined in the buffer it was read into. Remedies within a block change the
//! buffer, and the block goes to the overlay at its end, if anything was changed.
//!
//! ```text
//! block ─▶ records ─▶ entries ─▶ links counted, parents noted, a 64-bit key for each name
//!            │           │                                         │ sorted once
//!            │ cut, joined  removed, type or name mended         equal keys: names compared
//!            ▼
//!      what no block can mend by itself (holes, `.` and `..`, the index, equal names) is noted;
//!      the directory is written anew, from its names, after the tree of directories is known
//! ```
//!
//! `.` and `..` are not counted here: `connect` knows each directory's parent at its end.
//!
//! Nothing is allocated for an entry or a directory; the keys of the names of one directory are
//! eight bytes each in a buffer that the thread keeps.

mod blocks;
mod encrypted;
mod entries;
mod index;
pub mod inline;
mod names;
pub mod record;
pub mod reread;

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::num::{index as to_index, len64};
use uext4_ondisk::{Ino, Lblk, Pblk};

use crate::directory_list::{Directory, DirectoryList, Run};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::memory;
use crate::problem::DirectoryProblem;
use crate::report::{Cause, Pass, Progress};
use crate::state::State;
use crate::threads;
pub use entries::is_dot;
use index::{Index, Role};
use reread::Source;

/// Directories that a thread takes at a time.
const CHUNK: usize = 64;
/// Most bytes of one read.
const READ_MAX: u64 = memory::READ_MAX as u64;
/// Most blocks that are read though they are not wanted, to join two reads.
const GAP_MAX: u64 = 8;

/// Examines all directories of the list, several in parallel, and counts links.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(state: &State<'_>) -> Result<()> {
    let list = &state.directories;
    state.tree.start(list);
    let order = order(list);
    let total = len64(order.len());
    let chunks: Vec<&[Ordered]> = order.chunks(CHUNK).collect();
    threads::for_each(
        state.options.threads,
        len64(chunks.len()),
        1,
        || Worker::new(state),
        |worker, number| {
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            if number.is_multiple_of(64) {
                state.findings.progress(Progress {
                    pass: Pass::Directories,
                    done: len64(number.saturating_mul(CHUNK)),
                    total,
                })?;
            }
            worker.chunk(chunks.get(number).copied().unwrap_or_default())
        },
    )?;
    Ok(())
}

/// A directory by its place on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ordered {
    first: Pblk,
    /// Its place in the list.
    at: u32,
}

/// The directories in the order of their first blocks.
fn order(list: &DirectoryList) -> Vec<Ordered> {
    let first = |directory| list.runs(directory).first().map_or(Pblk(0), |run| run.pblk);
    let directories = (0..).zip(list.directories());
    let mut order: Vec<_> = directories
        .map(|(at, directory)| Ordered {
            first: first(directory),
            at,
        })
        .collect();
    order.sort_unstable();
    order
}

/// What a thread needs to examine directories; all buffers are kept.
struct Worker<'s, 'a> {
    state: &'s State<'a>,
    window: Window,
    /// The runs of the chunk that are still to be read, and how many of them were.
    wanted: Vec<Run>,
    taken: usize,
    /// A key for each name of the directory.
    keys: Vec<u64>,
    /// Findings whose remedies changed the block.
    causes: Vec<Cause>,
    /// `.` or `..` of the directory are not where they must be.
    dots_lost: bool,
    /// Inodes that the entries of an encrypted directory name.
    children: Vec<encrypted::Child>,
}

/// A directory under examination.
#[derive(Clone, Copy, Debug)]
struct Dir {
    /// Its place in the list.
    at: usize,
    ino: Ino,
    /// Blocks by its size.
    blocks: u64,
    /// Of its blocks; `None` without checksums.
    seed: Option<CsumSeed>,
    flags: InodeFlags,
    /// Records hold file types.
    filetype: bool,
    /// Names must be valid UTF-8.
    strict: bool,
}

/// A block of a directory, or a region of its inode.
#[derive(Clone, Copy, Debug)]
struct At {
    lblk: Lblk,
    /// `None` within the inode.
    pblk: Option<Pblk>,
}

/// Bit of `s_encoding_flags`: names that are not valid are refused.
const ENCODING_STRICT: u16 = 1;

impl Dir {
    fn new(state: &State<'_>, at: usize, directory: &Directory) -> Self {
        let geometry = state.geometry();
        let flags = InodeFlags::from_bits_retain(directory.flags);
        let seed = geometry.csum_seed;
        let strict = || state.volume.superblock().s_encoding_flags.get() & ENCODING_STRICT != 0;
        Self {
            at,
            ino: directory.ino,
            blocks: geometry.block_size.blocks_for(directory.size),
            seed: seed.map(|seed| seed.inode(directory.ino, directory.generation)),
            flags,
            filetype: geometry.features.incompat.contains(Incompat::FILETYPE),
            strict: flags.contains(InodeFlags::CASEFOLD) && strict(),
        }
    }

    fn has(&self, flag: InodeFlags) -> bool {
        self.flags.contains(flag)
    }

    /// A name as names of this directory are compared.
    fn folded(&self, name: &[u8]) -> Vec<u8> {
        let is_folded = self.has(InodeFlags::CASEFOLD) && !self.has(InodeFlags::ENCRYPT);
        match is_folded && name.is_ascii() {
            true => name.to_ascii_lowercase(),
            false => name.to_vec(),
        }
    }

    /// Whether a hash stands behind each name.
    fn has_stored_hashes(&self) -> bool {
        self.flags
            .contains(InodeFlags::CASEFOLD | InodeFlags::ENCRYPT)
    }

    /// Where its records are.
    fn source<'r>(&self, runs: &'r [Run]) -> Source<'r> {
        let blocks = self.blocks;
        match self.has(InodeFlags::INLINE_DATA) {
            true => Source::Inline,
            false => Source::Blocks { runs, blocks },
        }
    }

    fn place(&self, at: At) -> Place {
        let place = Place::inode(self.ino).lblk(at.lblk);
        match at.pblk {
            Some(block) => place.block(block),
            None => place,
        }
    }
}

impl<'s, 'a> Worker<'s, 'a> {
    fn new(state: &'s State<'a>) -> Self {
        Self {
            state,
            window: Window::default(),
            wanted: Vec::new(),
            taken: 0,
            keys: Vec::new(),
            causes: Vec::new(),
            dots_lost: false,
            children: Vec::new(),
        }
    }

    fn chunk(&mut self, chunk: &[Ordered]) -> Result<()> {
        let list = &self.state.directories;
        self.wanted.clear();
        self.taken = 0;
        self.window.len = 0;
        let directory = |ordered: &Ordered| {
            let at = to_index(ordered.at);
            list.directories().get(at).map(|directory| (at, directory))
        };
        for (_, directory) in chunk.iter().filter_map(directory) {
            self.wanted.extend_from_slice(list.runs(directory));
        }
        for (at, directory) in chunk.iter().filter_map(directory) {
            self.directory(&Dir::new(self.state, at, directory), list.runs(directory))?;
        }
        Ok(())
    }

    fn directory(&mut self, dir: &Dir, runs: &[Run]) -> Result<()> {
        self.keys.clear();
        self.children.clear();
        self.dots_lost = false;
        if dir.has(InodeFlags::INLINE_DATA) {
            self.taken = self.taken.saturating_add(runs.len());
            let mut index = Index::none();
            self.inline(dir, &mut index)?;
            self.duplicates(dir, &index, runs)?;
        } else {
            let mut index = Index::read(self.state, dir, runs)?;
            self.blocks(dir, &mut index, runs)?;
            index.finish(self.state, dir)?;
            self.duplicates(dir, &index, runs)?;
        }
        self.encrypted(dir, runs)
    }

    fn blocks(&mut self, dir: &Dir, index: &mut Index, runs: &[Run]) -> Result<()> {
        let (mut expected, mut missing) = (0, 0);
        for run in runs {
            self.taken = self.taken.saturating_add(1);
            let start = u64::from(run.lblk.0);
            if start >= dir.blocks {
                continue;
            }
            missing += start.saturating_sub(expected);
            let len = u64::from(run.len).min(dir.blocks - start);
            expected = start + len;
            self.run(dir, index, *run, len)?;
        }
        missing += dir.blocks.saturating_sub(expected);
        if missing != 0 || dir.blocks == 0 {
            let finding = Finding::new(DirectoryProblem::Hole, Place::inode(dir.ino));
            let cause = self.state.report(finding.found(missing.max(1)));
            self.state.tree.rebuild(dir.ino, cause);
        }
        Ok(())
    }

    /// Examines the first `len` blocks of a run.
    fn run(&mut self, dir: &Dir, index: &mut Index, run: Run, len: u64) -> Result<()> {
        for i in 0..len {
            let pblk = Pblk(run.pblk.0.saturating_add(i));
            let lblk = run
                .lblk
                .0
                .saturating_add(u32::try_from(i).unwrap_or(u32::MAX));
            if !self.window.has(pblk) {
                self.window
                    .load(self.state, pblk, len - i, self.wanted.get(self.taken..))?;
            }
            let at = At {
                lblk: Lblk(lblk),
                pblk: Some(pblk),
            };
            // The buffer leaves the window while it is examined, so that the worker can change.
            let mut bytes = std::mem::take(&mut self.window.bytes);
            let range = self.window.range(pblk);
            if let Some(bytes) = bytes.get_mut(range) {
                self.block(dir, index, at, bytes)?;
            }
            self.window.bytes = bytes;
        }
        Ok(())
    }

    /// Takes back what was noted of an entry that is removed after all.
    fn forget(&self, dir: &Dir, child: Ino) {
        self.state.inodes.uncount_link(child);
        if self.state.directories.position(child).is_some() {
            self.state.tree.dispute(child, dir.ino);
        }
    }

    fn block(&mut self, dir: &Dir, index: &mut Index, at: At, bytes: &mut [u8]) -> Result<()> {
        self.causes.clear();
        let role = index.role(self.state, dir, at, bytes);
        if role == Role::Node {
            return Ok(());
        }
        let room = self.records_room(dir, role, at, bytes);
        self.records(dir, index, role, at, bytes, room);
        self.end_of_block(dir, role, at, bytes, room)
    }
}

/// Blocks that were read at once.
#[derive(Debug, Default)]
struct Window {
    bytes: Vec<u8>,
    first: u64,
    /// In blocks.
    len: u64,
    block_len: usize,
}

impl Window {
    fn has(&self, block: Pblk) -> bool {
        block.0 >= self.first && block.0 - self.first < self.len
    }

    /// Where a block of the window lies in the buffer.
    fn range(&self, block: Pblk) -> std::ops::Range<usize> {
        let at = usize::try_from(block.0.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let from = at.saturating_mul(self.block_len);
        from..from.saturating_add(self.block_len)
    }

    /// Reads `len` blocks from `start` on, and with them what is wanted next and lies behind.
    fn load(
        &mut self,
        state: &State<'_>,
        start: Pblk,
        len: u64,
        next: Option<&[Run]>,
    ) -> Result<()> {
        let size = state.geometry().block_size;
        let most = (READ_MAX >> size.log2()).max(1);
        let mut end = start.0.saturating_add(len.min(most));
        for run in next.unwrap_or_default() {
            let gap = run.pblk.0.checked_sub(end);
            let after = run.pblk.0.saturating_add(run.len.into());
            if gap.is_none_or(|gap| gap > GAP_MAX) || after - start.0 > most {
                break;
            }
            end = after;
        }
        self.block_len = size.len();
        self.first = start.0;
        self.len = 0;
        let blocks = end - start.0;
        let bytes = usize::try_from(blocks << size.log2()).unwrap_or(usize::MAX);
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
        let offset = size.byte_offset(start).unwrap_or(u64::MAX);
        let into = self.bytes.get_mut(..bytes).unwrap_or_default();
        state.volume.overlay().read_at(offset, into)?;
        self.len = blocks;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
