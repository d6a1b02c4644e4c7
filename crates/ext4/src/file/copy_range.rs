//! Copying part of a file to a file.

use crate::base::error::Result;
use crate::base::invalid::Invalid;
use crate::file::change::{read, write_with};
use crate::file::inode_ref::InodeRef;
use crate::file::write_context::WriteMode;

/// Bytes that are copied at a time.
const CHUNK: u64 = 1 << 20;

/// A position in a file.
#[derive(Clone, Copy)]
pub(crate) struct Position<'a> {
    file: &'a InodeRef,
    /// In bytes.
    offset: u64,
}

impl<'a> Position<'a> {
    /// The byte at `offset` of `file`.
    pub(crate) fn new(file: &'a InodeRef, offset: u64) -> Self {
        Self { file, offset }
    }
}

/// Copies up to `len` bytes and returns the number of bytes copied: fewer at the end of the
/// source, or if space runs out. Writes as `mode` specifies. Each chunk is read and written
/// atomically, but not the whole range.
///
/// Fails with [`Error::Invalid`] if the ranges overlap in one file, or reach past the last byte
/// that a file can have; with the errors of reading and writing if nothing was copied.
pub(crate) fn copy_range(
    from: Position<'_>,
    to: Position<'_>,
    len: u64,
    mode: WriteMode,
) -> Result<u64> {
    let (source, target) = (from.file, to.file);
    let (from, to) = (from.offset, to.offset);
    let end = |offset: u64| {
        let end = u64::MAX;
        let past_end = Invalid::PastEnd { offset, len, end };
        offset.checked_add(len).ok_or(past_end)
    };
    let (from_end, to_end) = (end(from)?, end(to)?);
    if source.ino() == target.ino() && from < to_end && to < from_end {
        return Err(Invalid::Overlap { from, to, len }.into());
    }
    // OK to truncate: at most a chunk.
    let mut buf = vec![0; len.min(CHUNK) as usize];
    let mut done = 0;
    while done < len {
        let want = (len - done).min(CHUNK) as usize;
        let step = read(source, from + done, &mut buf[..want]).and_then(|got| {
            Ok((
                got,
                write_with(target, mode.into(), to + done, &buf[..got])?.len,
            ))
        });
        match step {
            Ok((got, put)) => {
                done += put as u64;
                if got < want || put < got {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}
