//! Which parts of files become holes: those of the source, or every block of zeroes, or none.

use std::ops::Range;

use crate::tree::{DataRange, FileData};

/// Which parts of regular files are holes in an image: they read as zeroes and take no blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparse {
    /// The holes of the source: of a sparse file, of a sparse member of an archive, of an image.
    #[default]
    Auto,
    /// Every block of zeroes, as `mke2fs -d` does it. The contents of the files are then read
    /// before the size of the image is known, and once more when it is written, unless they are
    /// read from a stream or placed early. A file whose blocks must exist, such as one for
    /// `swapon`, must not be in the source.
    Always,
    /// None: the blocks of holes are written, too, and count for
    /// [`Limits::bytes`](crate::Limits::bytes).
    Never,
}

/// The same for one image, of which the size of blocks is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// Those of the source.
    #[default]
    OfSource,
    /// Every block of zeroes, also one that the end of the file cuts short.
    OfZeroes {
        /// Bytes of a block, at least 1 KiB.
        unit: u64,
    },
    /// None.
    Filled,
}

impl Holes {
    /// The unit, if blocks of zeroes become holes.
    pub fn unit(self) -> Option<u64> {
        match self {
            Self::OfZeroes { unit } => Some(unit),
            Self::OfSource | Self::Filled => None,
        }
    }
}

/// True if there is nothing but zeroes. Most data shows that it is none by its first bytes.
pub fn is_zero(bytes: &[u8]) -> bool {
    const FIRST: usize = 16;
    let (first, rest) = bytes.split_at(bytes.len().min(FIRST));
    let is_zero = |part: &[u8]| part.iter().fold(0, |any, byte| any | byte) == 0;
    is_zero(first) && rest.chunks(256).all(is_zero)
}

/// Splits bytes, which begin at a multiple of `unit`, into runs of units: those of zeroes, and
/// all others.
pub fn runs(bytes: &[u8], unit: u64) -> impl Iterator<Item = (Range<usize>, Kind)> {
    let unit = usize::try_from(unit).unwrap_or(usize::MAX).max(1);
    let kind = |bytes: &[u8]| match is_zero(bytes) {
        true => Kind::Zeroes,
        false => Kind::Data,
    };
    let mut units = bytes.chunks(unit).peekable();
    let mut at = 0;
    std::iter::from_fn(move || {
        let (from, first) = (at, units.next()?);
        let run = kind(first);
        at += first.len();
        while let Some(next) = units.next_if(|next| kind(next) == run) {
            at += next.len();
        }
        Some((from..at, run))
    })
}

/// What a run of units has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Zeroes alone.
    Zeroes,
    /// Something else.
    Data,
}

/// The parts of a file that hold data, in whole units up to the end of the file, ascending; those
/// that touch are one.
pub fn unit_ranges(data: FileData<'_>, size: u64, unit: u64) -> impl Iterator<Item = Range<u64>> {
    let (whole, pieces): (_, &[DataRange]) = match data {
        FileData::Whole { .. } => ((size > 0).then_some(0..size), &[]),
        FileData::Sparse(pieces) => (None, pieces),
    };
    let unit = unit.max(1);
    let round = move |piece: &DataRange| {
        let end = piece.offset.saturating_add(piece.len);
        let end = end.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        piece.offset / unit * unit..end.min(size)
    };
    let mut pieces = pieces.iter().map(round).peekable();
    let merged = std::iter::from_fn(move || {
        let mut range = pieces.next()?;
        while let Some(next) = pieces.next_if(|next| next.start <= range.end) {
            range.end = range.end.max(next.end);
        }
        Some(range)
    });
    whole.into_iter().chain(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_byte_anywhere_is_found() {
        for len in [0, 1, 15, 16, 17, 271, 272, 273, 4096] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            for at in 0..len {
                bytes[at] = 0x80;
                assert!(!is_zero(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }

    #[test]
    fn equal_units_are_one_run() {
        let mut bytes = vec![0; 10];
        (bytes[3], bytes[9]) = (1, 1);
        let runs: Vec<_> = runs(&bytes, 2).collect();
        let expected = [
            (0..2, Kind::Zeroes),
            (2..4, Kind::Data),
            (4..8, Kind::Zeroes),
            (8..10, Kind::Data),
        ];
        assert_eq!(runs, expected);
    }

    #[test]
    fn pieces_of_one_unit_are_one_range() {
        let piece = |offset, len| DataRange { offset, len, at: 0 };
        let pieces = [piece(1, 2), piece(3, 1), piece(9, 1), piece(16, 3)];
        let ranges: Vec<_> = unit_ranges(FileData::Sparse(&pieces), 19, 4).collect();
        assert_eq!(ranges, [0..4, 8..12, 16..19]);
        let mut whole = unit_ranges(FileData::Whole { at: 7 }, 19, 4);
        assert_eq!((whole.next(), whole.next()), (Some(0..19), None));
        assert_eq!(unit_ranges(FileData::Whole { at: 7 }, 0, 4).count(), 0);
    }
}
