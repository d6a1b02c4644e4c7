//! Blocks of zeroes that become holes: in contents that pass once, and in contents that are read
//! where they are.

use super::sink::Sink;
use super::{Content, Contents, Listing, failed};
use crate::chunks::Slice;
use crate::error::Error;
use crate::progress::Counter;
use crate::sparse::{Kind, is_zero, runs, unit_ranges};
use crate::tree::{DataRange, FileData, NodeId, RANGES_MAX};

/// Most pieces of files in a tree at which more are made: what comes then keeps its zeroes. It
/// leaves as many for sources that have holes of their own.
const PIECES_MAX: usize = RANGES_MAX / 2;

/// Bytes read at once, a multiple of every block.
const AT_ONCE: u64 = 1 << 20;

/// How many pieces a file may have before its blocks of zeroes stay what they are; `found` is how
/// many have been found that are not in the tree yet.
pub fn pieces_left(listing: &Listing, found: usize) -> usize {
    let used = listing.tree.ranges_len().saturating_add(found);
    PIECES_MAX.saturating_sub(used)
}

/// Finds the pieces of one file, of which the contents pass.
pub struct Finder {
    unit: u64,
    /// See [`pieces_left`].
    left: usize,
    /// In the order of the file, where they are in the sink.
    pieces: Vec<DataRange>,
    /// Parts of the unit that is not complete yet, and where they are in the file.
    pending: Vec<(u64, Slice)>,
    /// Where the next byte is in the file.
    at: u64,
}

impl Finder {
    /// A file in units of `unit` bytes, with at most `left` pieces if zeroes are between them.
    pub fn new(unit: u64, left: usize) -> Self {
        Self {
            unit: unit.max(1),
            left,
            pieces: Vec::new(),
            pending: Vec::new(),
            at: 0,
        }
    }

    /// What comes next is at `offset`, and a hole before it.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn seek(&mut self, offset: u64, sink: &mut Sink<'_>) -> Result<(), Error> {
        if offset / self.unit > self.at / self.unit {
            self.end_unit(sink)?;
        }
        self.at = offset;
        Ok(())
    }

    /// The next bytes.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn put(&mut self, slice: Slice, sink: &mut Sink<'_>) -> Result<(), Error> {
        let mut rest = slice;
        while !rest.is_empty() {
            let to_end = self.unit - self.at % self.unit;
            let len = rest.len() as u64;
            if !self.pending.is_empty() || to_end < self.unit || len < self.unit {
                let part = rest.take(to_end);
                let at = self.at;
                self.at += part.len() as u64;
                self.pending.push((at, part));
                if self.at.is_multiple_of(self.unit) {
                    self.end_unit(sink)?;
                }
                continue;
            }
            let units = rest.take(len / self.unit * self.unit);
            for (run, kind) in runs(&units, self.unit) {
                let at = self.at;
                self.at += run.len() as u64;
                if kind == Kind::Data || self.is_used_up() {
                    self.data(at, units.part(run), sink)?;
                }
            }
        }
        Ok(())
    }

    /// There are no more. Returns the pieces.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn end(mut self, sink: &mut Sink<'_>) -> Result<Vec<DataRange>, Error> {
        self.end_unit(sink)?;
        sink.end_file()?;
        Ok(self.pieces)
    }

    fn is_used_up(&self) -> bool {
        self.pieces.len() >= self.left
    }

    fn end_unit(&mut self, sink: &mut Sink<'_>) -> Result<(), Error> {
        let is_hole = !self.is_used_up() && self.pending.iter().all(|(_, part)| is_zero(part));
        for (at, part) in std::mem::take(&mut self.pending) {
            if !is_hole {
                self.data(at, part, sink)?;
            }
        }
        Ok(())
    }

    fn data(&mut self, offset: u64, slice: Slice, sink: &mut Sink<'_>) -> Result<(), Error> {
        let len = slice.len() as u64;
        match self.pieces.last_mut() {
            Some(last) if last.offset + last.len == offset => last.len += len,
            last => {
                let mut piece = DataRange { offset, len, at: 0 };
                piece.at = sink.begin_piece(&piece, last.as_deref())?;
                self.pieces.push(piece);
            }
        }
        sink.put(slice)
    }
}

/// Finds the blocks of zeroes in files of the last source of `listing`, which are read here and
/// again when the image is written.
///
/// # Errors
/// What reading says, [`Error::Changed`] for a file that is not what was listed.
pub fn find(listing: &mut Listing, unit: u64, counter: &Counter<'_>) -> Result<(), Error> {
    let mut contents = Contents::new(listing);
    let mut found: Vec<(NodeId, Vec<DataRange>)> = Vec::new();
    let mut pieces_found = 0;
    let mut buffer = vec![0; AT_ONCE.next_multiple_of(unit) as usize];
    for entry in listing.tree.new_files() {
        let node = listing.tree.node_of(entry);
        let mut search = Search {
            content: contents.open(entry)?,
            data: listing.tree.data(node),
            unit,
            left: pieces_left(listing, pieces_found),
            pieces: Vec::new(),
        };
        search.run(node.size(), &mut buffer, counter)?;
        let pieces = search.pieces;
        if !is_whole(&pieces, node.size()) {
            pieces_found += pieces.len();
            found.push((listing.tree.node_id(entry), pieces));
        }
    }
    for (node, pieces) in found {
        listing.tree.set_data(node, FileData::Sparse(&pieces))?;
    }
    Ok(())
}

/// True if a piece is all of a file.
pub fn is_whole(pieces: &[DataRange], size: u64) -> bool {
    matches!(pieces, [DataRange { offset: 0, len, .. }] if *len == size)
}

/// The search of one file.
struct Search<'a> {
    content: Content<'a>,
    data: FileData<'a>,
    unit: u64,
    left: usize,
    pieces: Vec<DataRange>,
}

impl Search<'_> {
    fn run(&mut self, size: u64, buffer: &mut [u8], counter: &Counter<'_>) -> Result<(), Error> {
        for range in unit_ranges(self.data, size, self.unit) {
            let mut at = range.start;
            while at < range.end {
                counter.check()?;
                let len = (range.end - at).min(buffer.len() as u64);
                // OK to index: not longer than the buffer.
                let bytes = &mut buffer[..len as usize];
                let read = self.content.read_exact_at(at, bytes);
                read.map_err(|error| {
                    let reported = self.content.take_error();
                    reported.unwrap_or_else(|| failed("contents".as_ref(), "read", error))
                })?;
                counter.bytes(len);
                for (run, kind) in runs(bytes, self.unit) {
                    if kind == Kind::Data || self.pieces.len() >= self.left {
                        self.keep(at + run.start as u64, at + run.end as u64);
                    }
                }
                at += len;
            }
        }
        Ok(())
    }

    /// What the source has from `start` to `end` is data.
    fn keep(&mut self, start: u64, end: u64) {
        match self.data {
            FileData::Whole { at } => self.push(start, end, at + start),
            FileData::Sparse(pieces) => {
                let first = pieces.partition_point(|p| p.offset + p.len <= start);
                let inside = pieces.get(first..).unwrap_or_default().iter();
                for piece in inside.take_while(|p| p.offset < end) {
                    let from = piece.offset.max(start);
                    let to = (piece.offset + piece.len).min(end);
                    self.push(from, to, piece.at + (from - piece.offset));
                }
            }
        }
    }

    fn push(&mut self, start: u64, end: u64, at: u64) {
        let len = end - start;
        match self.pieces.last_mut() {
            Some(last) if last.offset + last.len == start && last.at + last.len == at => {
                last.len += len;
            }
            _ => self.pieces.push(DataRange {
                offset: start,
                len,
                at,
            }),
        }
    }
}
