//! Where the contents of a stream go while it is read: it passes once.

use super::spool::Spool;
use crate::chunks::Slice;
use crate::error::Error;
use crate::place::{Append, Placer};
use crate::tree::DataRange;

/// Takes contents, one file after another.
pub enum Sink<'a> {
    /// Into a spool, to be read from there when the image is written.
    Spool(&'a mut Spool),
    /// Into the image, to where they stay.
    Place(&'a mut Placer),
}

impl Sink<'_> {
    /// Where the next byte goes: an offset of the spool, or of the space for contents.
    pub fn position(&self) -> u64 {
        match self {
            Self::Spool(spool) => spool.len(),
            Self::Place(placer) => placer.position(),
        }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`Error::Spool`], [`Error::Device`].
    pub fn put(&mut self, slice: Slice) -> Result<(), Error> {
        match self {
            Self::Spool(spool) => spool.put(&slice),
            Self::Place(placer) => placer.put(slice),
        }
    }

    /// Appends zeroes.
    ///
    /// # Errors
    /// As [`Sink::put`].
    pub fn zeroes(&mut self, len: u64) -> Result<(), Error> {
        match self {
            Self::Spool(spool) => spool.zeroes(len),
            Self::Place(placer) => placer.zeroes(len),
        }
    }

    /// A file ends here, and another may begin: each has blocks of its own in an image.
    ///
    /// # Errors
    /// As [`Sink::put`].
    pub fn end_file(&mut self) -> Result<(), Error> {
        match self {
            Self::Spool(_) => Ok(()),
            Self::Place(placer) => placer.fill_block(),
        }
    }

    /// Makes the next byte of the sink the first of `piece`, which follows `before` in its file;
    /// returns its offset in the sink.
    ///
    /// # Errors
    /// As [`Sink::put`].
    pub fn begin_piece(
        &mut self,
        piece: &DataRange,
        before: Option<&DataRange>,
    ) -> Result<u64, Error> {
        match self {
            Self::Spool(spool) => Ok(spool.len()),
            Self::Place(placer) => placer.begin_piece(piece, before),
        }
    }
}
