//! What a request asks to be made, as the engine takes it.

use std::ops::Range;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;

use crate::entry::Entry;
use crate::wire::NewEntry;

/// Names and values of extended attributes.
pub(crate) type Xattrs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// All that are asked for.
pub(crate) fn xattrs<'a>(new: &'a NewEntry<'_>) -> Xattrs<'a> {
    let all = new.xattrs.iter();
    all.map(|it| (&**it.name, &**it.value)).collect()
}

/// Calls `f` with an entry that has these attributes, and data in these ranges.
pub(crate) fn with_entry<T>(
    new: &NewEntry<'_>,
    xattrs: &Xattrs<'_>,
    data: &[Range<u64>],
    f: impl FnOnce(&Entry<'_>) -> T,
) -> T {
    f(&Entry {
        kind: new.kind.into(),
        mode: new.mode,
        uid: new.uid,
        gid: new.gid,
        atime: new.atime.into(),
        mtime: new.mtime.into(),
        size: new.size,
        data,
        xattrs,
    })
}

/// The number of the process at the other end.
pub(crate) fn peer(stream: &UnixStream) -> Option<u32> {
    let pid = socket_peercred(stream).ok()?.pid.as_raw_nonzero();
    u32::try_from(pid.get()).ok()
}
