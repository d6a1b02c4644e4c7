//! What a member becomes: an entry of the tree, with its contents, or a mark in a layer.

use super::super::holes::{Finder, is_whole, pieces_left};
use super::super::layer::{Marker, marker};
use super::{ArchiveKind, Contents, Lister};
use crate::error::{Error, path_buf};
use crate::path;
use crate::sparse::Holes;
use crate::tree::{Attributes, DataRange, NewNode, Xattr};

/// Most bytes that extended attributes of global records take in all sets of attributes together:
/// one short record for each member can make a set of its own out of them.
const GLOBAL_XATTRS_MAX: u64 = 64 << 20;
/// Bytes of holes that are filled before a build can be cancelled.
const FILLED_AT_ONCE: u64 = 16 << 20;

impl Lister<'_> {
    /// Looks how many names a path has.
    pub(super) fn check_depth(&self, path: &[u8]) -> Result<(), Error> {
        let depth = path::names(path)?.count();
        self.context.options.limits.check_depth(depth)
    }

    /// One more member, within the limits.
    pub(super) fn count(&mut self, stored: u64, xattrs: &[Xattr]) -> Result<(), Error> {
        let limits = &self.context.options.limits;
        self.listing.used.add(limits, stored, xattrs)
    }

    /// Takes a file of a layer that says something of the layers below; false if it does not.
    pub(super) fn is_marker(&mut self, path: &[u8], stored: u64) -> Result<bool, Error> {
        if self.kind != ArchiveKind::Layer {
            return Ok(false);
        }
        let Some(marker) = marker(path)? else {
            return Ok(false);
        };
        self.input.skip(stored, "contents")?;
        self.count(0, &[])?;
        match marker {
            Marker::Hides(path) => self.listing.tree.hide(&path)?,
            Marker::HidesContents(dir) => self.listing.tree.hide_contents(&dir)?,
            Marker::Ignored => {}
        }
        Ok(true)
    }

    /// Puts a node into the tree.
    pub(super) fn insert(
        &mut self,
        path: &[u8],
        node: NewNode<'_>,
        attributes: Attributes,
    ) -> Result<(), Error> {
        let sets = self.listing.tree.xattr_sets_len();
        self.listing.tree.insert(path, node, attributes)?;
        if self.listing.tree.xattr_sets_len() > sets && !self.global.xattrs.is_empty() {
            self.repeat_global(path)?;
        }
        Ok(())
    }

    /// The member at `path` has a set of attributes of its own, which those of the global records
    /// may be part of.
    fn repeat_global(&mut self, path: &[u8]) -> Result<(), Error> {
        self.repeated += self.global.len();
        match self.repeated > GLOBAL_XATTRS_MAX {
            true => Err(Error::Path {
                path: path_buf(path),
                why: "with it, the global extended attributes are repeated in over 64 MiB of \
                      different sets",
            }),
            false => Ok(()),
        }
    }

    /// Goes past the contents of a file, and says where they are.
    pub(super) fn store_whole(&mut self, size: u64) -> Result<Contents, Error> {
        let (input, sink) = (&mut self.input, &mut self.sink);
        let at = input.place(sink);
        let stored = match (self.context.holes, input.file()) {
            (Holes::OfZeroes { unit }, None) => {
                let mut finder = Finder::new(unit, pieces_left(self.listing, 0));
                input.store(size, &mut |slice| finder.put(slice, sink))?;
                let pieces = finder.end(sink)?;
                pieces_or_whole(pieces, size)
            }
            _ => {
                input.store(size, &mut |slice| sink.put(slice))?;
                sink.end_file()?;
                Contents::Whole(at)
            }
        };
        self.input.skip_padding(size)?;
        Ok(stored)
    }

    /// Goes past the contents of a sparse file of `size` bytes, and says where they are. In an
    /// image its pieces lie as its blocks do, with zeroes around them; everywhere else they lie end
    /// to end.
    pub(super) fn store_pieces(
        &mut self,
        mut pieces: Vec<DataRange>,
        size: u64,
        stored: u64,
    ) -> Result<Contents, Error> {
        let is_read_later = self.input.file().is_some();
        let in_pieces: u64 = pieces.iter().map(|piece| piece.len).sum();
        let left = match is_read_later {
            true => stored,
            false => stored.saturating_sub(in_pieces),
        };
        let contents = match self.context.holes {
            _ if is_read_later => Contents::Sparse(pieces),
            Holes::OfSource => {
                let mut before = None;
                for piece in &mut pieces {
                    piece.at = self.sink.begin_piece(piece, before.as_ref())?;
                    let sink = &mut self.sink;
                    self.input.store(piece.len, &mut |slice| sink.put(slice))?;
                    before = Some(*piece);
                }
                self.sink.end_file()?;
                Contents::Sparse(pieces)
            }
            Holes::OfZeroes { unit } => {
                let sink = &mut self.sink;
                let mut finder = Finder::new(unit, pieces_left(self.listing, 0));
                for piece in &pieces {
                    finder.seek(piece.offset, sink)?;
                    let put = &mut |slice| finder.put(slice, sink);
                    self.input.store(piece.len, put)?;
                }
                pieces_or_whole(finder.end(sink)?, size)
            }
            Holes::Filled => self.store_filled(&pieces, size)?,
        };
        self.input.leave(left)?;
        self.input.skip_padding(stored)?;
        Ok(contents)
    }

    /// Stores the pieces of a sparse file with zeroes for its holes.
    fn store_filled(&mut self, pieces: &[DataRange], size: u64) -> Result<Contents, Error> {
        let in_pieces: u64 = pieces.iter().map(|piece| piece.len).sum();
        let limits = &self.context.options.limits;
        self.listing
            .used
            .add_bytes(limits, size.saturating_sub(in_pieces))?;
        let (at, mut end) = (self.sink.position(), 0);
        for piece in pieces {
            self.fill(piece.offset.saturating_sub(end))?;
            let sink = &mut self.sink;
            self.input.store(piece.len, &mut |slice| sink.put(slice))?;
            end = piece.offset.saturating_add(piece.len);
        }
        self.fill(size.saturating_sub(end))?;
        self.sink.end_file()?;
        Ok(Contents::Whole(at))
    }

    fn fill(&mut self, len: u64) -> Result<(), Error> {
        let mut left = len;
        while left > 0 {
            let part = left.min(FILLED_AT_ONCE);
            self.sink.zeroes(part)?;
            self.context.counter.check()?;
            left -= part;
        }
        Ok(())
    }
}

fn pieces_or_whole(pieces: Vec<DataRange>, size: u64) -> Contents {
    match pieces.first() {
        Some(first) if is_whole(&pieces, size) => Contents::Whole(first.at),
        _ => Contents::Sparse(pieces),
    }
}
