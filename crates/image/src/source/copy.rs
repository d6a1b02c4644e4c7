//! Contents of files that could be read at any time, placed when their source has been listed.

use std::ops::Range;
use std::sync::Arc;

use super::holes::{is_whole, pieces_left};
use super::{Content, Contents, Listing, Store};
use crate::chunks::{Piece, Pool, Slice};
use crate::error::Error;
use crate::place::{Append, Placer};
use crate::progress::Counter;
use crate::sparse::{Holes, Kind, runs, unit_ranges};
use crate::tree::{DataRange, FileData, NodeId};

/// Places the contents of all files that came with the last source of `listing`, in the order they
/// came.
///
/// # Errors
/// What reading says, [`Error::Changed`] for a file that is not what was listed, and the errors of
/// the placer.
pub fn copy_files(
    listing: &mut Listing,
    placer: &mut Placer,
    holes: Holes,
    counter: &Counter<'_>,
) -> Result<(), Error> {
    let files = listing.tree.new_files();
    let mut contents = Contents::new(listing);
    let mut collector = Collector::new(placer);
    let mut places: Vec<(NodeId, Place)> = Vec::with_capacity(files.len());
    let mut pieces_found = 0;
    for entry in files {
        let mut content = contents.open(entry)?;
        let node = listing.tree.node_of(entry);
        let (data, size) = (listing.tree.data(node), node.size());
        let place = match holes.unit() {
            Some(unit) => {
                let left = pieces_left(listing, pieces_found);
                collector.without_zeroes(&mut content, data, size, Units { unit, left })
            }
            None => collector.file(&mut content, data, size),
        };
        let place = place.map_err(|error| content.take_error().unwrap_or(error))?;
        if let Place::Pieces(pieces) = &place {
            pieces_found += pieces.len();
        }
        places.push((listing.tree.node_id(entry), place));
        counter.bytes(size);
        counter.check()?;
    }
    collector.send()?;
    for (node, place) in places {
        match place {
            Place::At(offsets) => listing.tree.set_place(node, &offsets),
            Place::Whole(at) => listing.tree.set_data(node, FileData::Whole { at })?,
            Place::Pieces(pieces) => listing.tree.set_data(node, FileData::Sparse(&pieces))?,
        }
    }
    if let Some(store) = listing.stores.last_mut() {
        let path = store.path().to_path_buf();
        *store = Store::Placed { path };
    }
    Ok(())
}

/// Where a file was placed.
enum Place {
    /// Each piece of the source, or all of it, at these offsets.
    At(Vec<u64>),
    /// All of it, without a hole.
    Whole(u64),
    /// Other pieces than those of the source.
    Pieces(Vec<DataRange>),
}

/// What becomes a hole if it is zero, and how many pieces there may be of a file that has some.
#[derive(Clone, Copy)]
struct Units {
    unit: u64,
    left: usize,
}

/// Collects the contents of many files, as they will lie in the image, before they are written.
struct Collector<'a> {
    placer: &'a mut Placer,
    pool: Pool,
    piece: Piece,
    wanted: Wanted,
}

/// The parts of the piece that are placed.
#[derive(Default)]
struct Wanted {
    /// Ascending, not touching.
    ranges: Vec<Range<usize>>,
    /// Bytes in them.
    bytes: u64,
}

impl Wanted {
    fn add(&mut self, range: Range<usize>) {
        self.bytes += range.len() as u64;
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }
}

impl<'a> Collector<'a> {
    fn new(placer: &'a mut Placer) -> Self {
        let pool = Pool::default();
        Self {
            placer,
            piece: Piece::new(&pool),
            pool,
            wanted: Wanted::default(),
        }
    }

    /// Appends a file as the source has it.
    fn file(
        &mut self,
        content: &mut Content<'_>,
        data: FileData<'_>,
        size: u64,
    ) -> Result<Place, Error> {
        let mut place = Vec::with_capacity(1);
        match data {
            FileData::Whole { .. } => {
                place.push(self.position());
                self.read(content, 0, size)?;
            }
            FileData::Sparse(pieces) => {
                let mut before = None;
                for piece in pieces {
                    place.push(self.begin_piece(piece, before)?);
                    self.read(content, piece.offset, piece.len)?;
                    before = Some(piece);
                }
            }
        }
        self.fill_block()?;
        Ok(Place::At(place))
    }

    /// Appends a file without its units of zeroes.
    fn without_zeroes(
        &mut self,
        content: &mut Content<'_>,
        data: FileData<'_>,
        size: u64,
        units: Units,
    ) -> Result<Place, Error> {
        let mut pieces: Vec<DataRange> = Vec::new();
        for range in unit_ranges(data, size, units.unit) {
            let mut at = range.start;
            while at < range.end {
                let first = self.room(range.end - at)?;
                let bytes = self.piece.tail_mut(first);
                read_into(content, at, bytes)?;
                let read = self.piece.len() - first;
                let end = self.pick(first, at, units, &mut pieces);
                // The piece has nothing but whole blocks before the next file.
                self.piece.truncate(end);
                at += read as u64;
            }
        }
        self.fill_block()?;
        Ok(match pieces.first() {
            Some(first) if is_whole(&pieces, size) => Place::Whole(first.at),
            _ => Place::Pieces(pieces),
        })
    }

    /// Places the units from `first` of the piece on that are not zeroes; they lie at `at` in their
    /// file, of which `pieces` has what came before. Returns the end of the last one.
    fn pick(&mut self, first: usize, at: u64, units: Units, pieces: &mut Vec<DataRange>) -> usize {
        let mut end = first;
        let before = self.placer.position();
        // Each file begins a block, and a piece of memory has a whole number of them.
        for (run, kind) in runs(self.piece.get(first..).unwrap_or_default(), units.unit) {
            if kind == Kind::Zeroes && pieces.len() < units.left {
                continue;
            }
            let (offset, len) = (at + run.start as u64, run.len() as u64);
            match pieces.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len += len,
                _ => pieces.push(DataRange {
                    offset,
                    len,
                    at: before.saturating_add(self.wanted.bytes),
                }),
            }
            end = first + run.end;
            self.wanted.add(first + run.start..end);
        }
        end
    }

    fn read(&mut self, content: &mut Content<'_>, offset: u64, len: u64) -> Result<(), Error> {
        let mut done = self.share(content, offset, len)?;
        while done < len {
            let first = self.room(len - done)?;
            let bytes = self.piece.tail_mut(first);
            read_into(content, offset + done, bytes)?;
            done += bytes.len() as u64;
            self.wanted.add(first..self.piece.len());
        }
        Ok(())
    }

    /// Has the image share blocks of a file; returns how many bytes.
    fn share(&mut self, content: &Content<'_>, offset: u64, len: u64) -> Result<u64, Error> {
        match content.file() {
            Some(file) if self.position().is_multiple_of(self.block_len()) => {
                let part = self.placer.shareable(file, offset, len, || content.path());
                let Some(part) = part else { return Ok(0) };
                let shared = part.len();
                // What was collected comes first.
                self.send()?;
                self.placer.share(part).map(|()| shared)
            }
            _ => Ok(0),
        }
    }

    /// Makes room for 1 to `want` bytes at the end of the piece, which the caller sets; returns
    /// where it begins.
    fn room(&mut self, want: u64) -> Result<usize, Error> {
        if self.piece.is_full() {
            self.send()?;
        }
        let first = self.piece.len();
        self.piece.extend(want);
        Ok(first)
    }

    fn send(&mut self) -> Result<(), Error> {
        if self.wanted.ranges.is_empty() && self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Piece::new(&self.pool));
        let piece = Arc::new(piece);
        self.wanted.bytes = 0;
        let mut wanted = self.wanted.ranges.drain(..);
        wanted.try_for_each(|range| self.placer.put(Slice::part_of(&piece, range)))
    }
}

/// Fills `bytes` from `at` of a file on.
fn read_into(content: &mut Content<'_>, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
    // The content itself says what is wrong with it.
    let read = content.read_exact_at(at, bytes);
    read.map_err(|source| Error::Source {
        path: "contents".into(),
        op: "read",
        source,
    })
}

impl Append for Collector<'_> {
    fn position(&self) -> u64 {
        self.placer.position().saturating_add(self.wanted.bytes)
    }

    fn block_len(&self) -> u64 {
        self.placer.block_len()
    }

    fn zeroes(&mut self, len: u64) -> Result<(), Error> {
        let mut left = len;
        while left > 0 {
            let first = self.room(left)?;
            let bytes = self.piece.tail_mut(first);
            bytes.fill(0);
            left -= bytes.len() as u64;
            self.wanted.add(first..self.piece.len());
        }
        Ok(())
    }
}
