//! Paths of a source, taken apart: bytes, `/` between names, relative to the root of the image.
//!
//! As tar does: leading slashes are dropped, empty names and `.` skipped. Unlike tar, `..` is an
//! error wherever it stands: no path of a source has a reason to climb.

use crate::error::{Error, path_buf};

/// Longest name a directory entry can hold, in bytes.
pub const NAME_MAX: usize = 255;

/// Longest path, in bytes, and most names in it: those that walks over an image go down to.
pub const PATH_MAX: usize = 1 << 16;
pub const DEPTH_MAX: usize = 16_384;
/// Bytes of a path over [`PATH_MAX`] that an error shows.
const SHOWN: usize = 200;

/// The names a path is made of, or the error it deserves.
pub fn names(path: &[u8]) -> Result<impl Iterator<Item = &[u8]>, Error> {
    let parts = || {
        path.split(|&b| b == b'/')
            .filter(|name| !name.is_empty() && *name != b".")
    };
    if path.len() > PATH_MAX {
        return Err(Error::Path {
            path: path_buf(&[&path[..SHOWN], "…".as_bytes()].concat()),
            why: "a path longer than 65536 bytes",
        });
    }
    let (mut count, mut climbs, mut is_long) = (0, false, false);
    for name in parts() {
        count += 1;
        climbs |= name == b"..";
        is_long |= name.len() > NAME_MAX;
    }
    let why = if path.contains(&0) {
        "a zero byte in the name"
    } else if climbs {
        "\"..\" in the path"
    } else if is_long {
        "a name longer than 255 bytes"
    } else if count > DEPTH_MAX {
        "more than 16384 directories inside one another"
    } else {
        return Ok(parts());
    };
    Err(Error::Path {
        path: path_buf(path),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(path: &[u8]) -> Result<Vec<u8>, String> {
        match names(path) {
            Ok(names) => Ok(names.collect::<Vec<_>>().join(&b"/"[..])),
            Err(e) => Err(e.to_string()),
        }
    }

    #[test]
    fn slashes_and_dots_vanish() {
        for path in [&b"a/b"[..], b"/a/b", b"./a//b/", b"//a/./b/."] {
            assert_eq!(joined(path).unwrap(), b"a/b");
        }
        assert_eq!(joined(b"./").unwrap(), b"");
        assert_eq!(joined(b"a\xFF/...").unwrap(), b"a\xFF/...");
    }

    #[test]
    fn climbing_and_long_names_are_refused() {
        for path in ["..", "a/../b", "/..", "a/.."] {
            assert!(joined(path.as_bytes()).unwrap_err().contains(".."));
        }
        assert!(joined(&[b'x'; 255]).is_ok());
        assert!(joined(&[b'x'; 256]).unwrap_err().contains("255"));
        assert!(joined(b"a\0b").is_err());
    }

    #[test]
    fn long_and_deep_paths_are_refused_with_their_beginning() {
        assert!(joined(&b"a/".repeat(DEPTH_MAX)).is_ok());
        let refused = joined(&b"a/".repeat(DEPTH_MAX + 1)).unwrap_err();
        assert!(refused.contains("16384 directories"), "{refused}");
        let refused = joined(&b"abc/".repeat(1 << 20)).unwrap_err();
        assert!(refused.starts_with("abc/abc/"), "{refused}");
        assert!(refused.contains("longer than 65536") && refused.len() < 300);
    }
}
