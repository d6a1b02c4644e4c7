//! Reading a device of which parts lie elsewhere on the device below.

use std::mem;
use std::ops::Range;

use crate::{BlockDevice, Error, ReadRequest};

/// A part of a range that lies at one stretch on the device below.
#[derive(Clone, Copy, Debug)]
pub struct Piece<M> {
    /// Where it lies there, in bytes.
    pub offset: u64,
    /// Bytes, at least one.
    pub len: u64,
    /// What is to be done with its bytes once they are read.
    pub mark: Option<M>,
}

/// Which parts of a device lie elsewhere below.
pub trait Pieces {
    /// What must be known to decode a part.
    type Mark;

    /// Whether any byte of a range lies elsewhere.
    fn is_elsewhere(&self, range: &Range<u64>) -> bool;

    /// Cuts a range into pieces, first to last, that are as long as it together.
    fn pieces(&self, range: Range<u64>, each: impl FnMut(Piece<Self::Mark>));

    /// Makes of the bytes read what the device has there.
    fn decode(&self, mark: Self::Mark, buf: &mut [u8]);
}

/// Serves [`BlockDevice::read_many`] of a device of `len` bytes from `base`, by one call. Requests
/// that touch nothing that lies elsewhere go there as they are.
///
/// # Errors
/// [`Error::OutOfRange`] for a request past `len`; those of `base`.
pub fn read_pieces<P: Pieces>(
    map: &P,
    base: &dyn BlockDevice,
    len: u64,
    requests: &mut [ReadRequest<'_>],
) -> Result<(), Error> {
    let range = |request: &ReadRequest<'_>| {
        let bytes = request.buf.len() as u64;
        Error::check_range(request.offset, bytes, len)?;
        Ok::<_, Error>(request.offset..request.offset.saturating_add(bytes))
    };
    let mut is_elsewhere = false;
    for request in requests.iter() {
        is_elsewhere |= map.is_elsewhere(&range(request)?);
    }
    if !is_elsewhere {
        return base.read_many(requests);
    }
    let mut pieces: Vec<ReadRequest<'_>> = Vec::new();
    let mut marked: Vec<(usize, P::Mark)> = Vec::new();
    for request in requests {
        let range = range(request)?;
        let mut rest = mem::take(&mut request.buf);
        map.pieces(range, |Piece { offset, len, mark }| {
            let whole = mem::take(&mut rest);
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let (buf, tail) = whole.split_at_mut(len.min(whole.len()));
            rest = tail;
            marked.extend(mark.map(|mark| (pieces.len(), mark)));
            pieces.push(ReadRequest { offset, buf });
        });
    }
    base.read_many(&mut pieces)?;
    for (at, mark) in marked {
        map.decode(mark, pieces[at].buf);
    }
    Ok(())
}
