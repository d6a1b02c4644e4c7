//! What requests and answers list, with its bounds.

use serde_bytes::ByteBuf;
use uext4::{Error, Invalid, OpenInode, Result};

use crate::wire::{Extent, Listed};

/// Bytes of names that one answer lists at most.
const NAMES_MAX: usize = 64 << 10;

/// The ranges of a file of `size` bytes, which must ascend.
pub(crate) fn ranges(data: &[Extent], size: u64) -> Result<Vec<std::ops::Range<u64>>> {
    let mut ranges = Vec::with_capacity(data.len());
    let mut before = 0;
    for extent in data {
        let end = extent.offset.checked_add(extent.len);
        let end = end.filter(|end| extent.offset >= before && *end <= size);
        before = end.ok_or(Error::Invalid(Invalid::Data {
            start: extent.offset,
            end: extent.offset.saturating_add(extent.len),
            size,
        }))?;
        ranges.push(extent.offset..before);
    }
    Ok(ranges)
}

/// Names of a directory after a cookie; none at the end.
pub(crate) fn listed(dir: &OpenInode, cookie: u64) -> Result<Vec<Listed>> {
    let mut names = Vec::new();
    let mut len = 0;
    dir.list(cookie, &mut |listed| {
        len += listed.name.len() + size_of::<Listed>();
        names.push(Listed {
            name: ByteBuf::from(listed.name),
            ino: listed.ino.0,
            next: listed.next,
        });
        len < NAMES_MAX
    })?;
    Ok(names)
}
