//! What a member becomes: an entry of the tree, with its contents, or a mark in a layer.

use super::super::layer::{Marker, marker};
use super::{ArchiveKind, Lister};
use crate::error::{Error, path_buf};
use crate::path;
use crate::tree::{Attributes, DataRange, NewNode, Xattr};

/// Most bytes that extended attributes of global records take in all sets of attributes together:
/// one short record for each member can make a set of its own out of them.
const GLOBAL_XATTRS_MAX: u64 = 64 << 20;

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

    /// Goes past the contents of a sparse file. In an image its pieces lie as its blocks do, with
    /// zeroes around them; everywhere else they lie end to end.
    pub(super) fn store_pieces(
        &mut self,
        pieces: &mut [DataRange],
        stored: u64,
    ) -> Result<(), Error> {
        let mut left = stored;
        if self.input.file().is_none() {
            let mut before = None;
            for piece in pieces {
                piece.at = self.sink.begin_piece(piece, before.as_ref())?;
                self.input.store(piece.len, &mut self.sink)?;
                left = left.saturating_sub(piece.len);
                before = Some(*piece);
            }
            self.sink.end_file()?;
        }
        self.input.leave(left)?;
        self.input.skip_padding(stored)
    }
}
