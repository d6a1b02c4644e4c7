//! The data of a file of which a part cannot be read.
//!
//! A device that fails, or an image that is cut off, loses some blocks of a file; the others are
//! worth copying. A range is read in large pieces. A piece that fails is read again block by block,
//! so that no more is lost than the blocks that cannot be read.

use std::ops::Range;

use uext4::{Error, Image, Inode};

/// A part of a file, as it could be read.
#[derive(Debug)]
pub enum Part<'a> {
    /// What the file holds there.
    Data {
        /// First byte in the file.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A block, or the part of one, that could not be read.
    Missing {
        /// The bytes in the file.
        bytes: Range<u64>,
        /// Why; `None` where the file ends early.
        error: Option<Error>,
    },
}

/// Reads a range of a file, which must not exceed its size, and passes its parts to `each` in
/// order, without gaps. `piece` takes what is read at once: one block at least.
///
/// # Errors
/// Those of `each`.
pub fn read_parts<E>(
    fs: &Image,
    inode: &Inode,
    range: &Range<u64>,
    piece: &mut [u8],
    mut each: impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let block = u64::from(fs.geometry().block_size.bytes());
    let mut at = range.start;
    // Up to here one block is read at a time.
    let mut single_until = 0;
    while at < range.end {
        let single = block - at % block;
        let len = match at < single_until {
            true => single,
            false => piece.len() as u64,
        };
        let len = len.min(range.end - at);
        match fs.read_at(inode, at, &mut piece[..len as usize]) {
            Ok(0) => {
                return each(Part::Missing {
                    bytes: at..range.end,
                    error: None,
                });
            }
            Ok(got) => {
                each(Part::Data {
                    offset: at,
                    bytes: &piece[..got],
                })?;
                at += got as u64;
            }
            Err(_) if len > single => single_until = at + len,
            Err(error) => {
                each(Part::Missing {
                    bytes: at..at + len,
                    error: Some(error),
                })?;
                at += len;
            }
        }
    }
    Ok(())
}
