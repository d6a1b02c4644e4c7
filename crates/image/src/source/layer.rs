//! What the names of a container image's layer mean, beyond those of any archive.
//!
//! The rules are those of the OCI image-spec, layer.md; where it is silent, those of containerd
//! and umoci. A *whiteout* is a regular file `.wh.NAME`, or a hard link of such a name, as layers
//! of the AUFS driver have them: NAME of the layers below is not in this one. `.wh..wh..opq` says
//! that of all that is in its directory.

use crate::error::{Error, path_buf};
use crate::path;
use crate::tree::Xattr;

const PREFIX: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Names that the AUFS driver has put into the root of layers: they are not for the file system.
const AUFS: &[u8] = b".wh..wh.";
/// What eStargz adds to the root of a layer: its index, and marks for its reader.
const ESTARGZ: [&[u8]; 3] = [
    b"stargz.index.json",
    b".prefetch.landmark",
    b".no.prefetch.landmark",
];
/// Attributes that an overlay of the machine which made the layer has left behind.
const OVERLAY: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// A regular file of a layer that does not become one of the image.
#[derive(Debug, PartialEq, Eq)]
pub enum Marker {
    /// The layers below have something at this path, which is hidden.
    Hides(Vec<u8>),
    /// All that the layers below have in this directory is hidden.
    HidesContents(Vec<u8>),
    /// It is for other readers.
    Ignored,
}

/// What a regular file at `path` marks, if it is a marker.
///
/// # Errors
/// [`Error::Path`] for a path that cannot be, and for a whiteout of nothing, of `.` or of `..`,
/// which would remove more than one name.
pub fn marker(path: &[u8]) -> Result<Option<Marker>, Error> {
    let mut names: Vec<&[u8]> = path::names(path)?.collect();
    let Some(last) = names.pop() else {
        return Ok(None);
    };
    if names.is_empty() && ESTARGZ.contains(&last) {
        return Ok(Some(Marker::Ignored));
    }
    if last == OPAQUE {
        return Ok(Some(Marker::HidesContents(names.join(&b'/'))));
    }
    if last.starts_with(AUFS) {
        return Ok(Some(Marker::Ignored));
    }
    let Some(hidden) = last.strip_prefix(PREFIX) else {
        return Ok(None);
    };
    if matches!(hidden, b"" | b"." | b"..") {
        return Err(Error::Path {
            path: path_buf(path),
            why: "a whiteout of no name, of \".\" or of \"..\"",
        });
    }
    names.push(hidden);
    Ok(Some(Marker::Hides(names.join(&b'/'))))
}

/// Drops attributes that belong to the overlay of the machine which made the layer.
pub fn strip_overlay(xattrs: &mut Vec<Xattr>) {
    let is_overlay = |name: &[u8]| OVERLAY.iter().any(|prefix| name.starts_with(prefix));
    xattrs.retain(|(name, _)| !is_overlay(name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whiteouts_name_what_they_hide() {
        let hides = |path: &[u8]| Some(Marker::Hides(path.to_vec()));
        let opaque = |path: &[u8]| Some(Marker::HidesContents(path.to_vec()));
        for (path, want) in [
            (&b"a/.wh.b"[..], hides(b"a/b")),
            (b"./.wh.b", hides(b"b")),
            (b".wh.b c", hides(b"b c")),
            (b"a/.wh.b/c", None),
            (b"a/.wha", None),
            (b"a/.wh..wh..opq", opaque(b"a")),
            (b".wh..wh..opq", opaque(b"")),
            (b".wh..wh.aufs", Some(Marker::Ignored)),
            (b"stargz.index.json", Some(Marker::Ignored)),
            (b"a/stargz.index.json", None),
            (b"a/.wh..b", hides(b"a/.b")),
        ] {
            assert_eq!(marker(path).unwrap(), want, "{}", path.escape_ascii());
        }
        for path in [&b".wh."[..], b"a/.wh..", b"a/.wh..."] {
            assert!(marker(path).is_err(), "{}", path.escape_ascii());
        }
    }
}
