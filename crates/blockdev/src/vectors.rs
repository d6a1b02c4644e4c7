//! Vector calls: how many requests go into one, and repeating one that stopped short.

use std::io;

use rustix::io::Errno;

use crate::Error;

/// Vectors the kernel takes in one call (`UIO_MAXIOV`).
pub(crate) const VECTORS_MAX: usize = 1024;

/// How many of the first of `spans` (offset, length) follow one another without a gap, and fit in
/// one vector call.
pub(crate) fn adjacent(spans: impl Iterator<Item = (u64, usize)>) -> usize {
    let mut expected = None;
    spans
        .take(VECTORS_MAX)
        .take_while(|&(offset, len)| {
            let follows = expected.is_none_or(|expected| expected == offset);
            expected = offset.checked_add(len as u64);
            follows
        })
        .count()
}

/// Repeats a vector call until it has moved everything: the kernel may stop short at any byte.
pub(crate) fn transfer_all<V>(
    mut vectors: &mut [V],
    mut offset: u64,
    call: impl Fn(&mut [V], u64) -> Result<usize, Errno>,
    advance: impl Fn(&mut &mut [V], usize),
    op: &'static str,
) -> Result<(), Error> {
    // Empty vectors at the front are skipped, so that a zero below always means the end.
    advance(&mut vectors, 0);
    while !vectors.is_empty() {
        match call(vectors, offset) {
            Ok(0) => return Err(Error::io(op, offset, io::ErrorKind::UnexpectedEof)),
            Ok(moved) => {
                advance(&mut vectors, moved);
                offset += moved as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::io(op, offset, errno)),
        }
    }
    Ok(())
}
