//! What to leave out of a source: glob patterns.
//!
//! A pattern without a slash is compared with every name, one with a slash with the whole path from
//! the root of the source (a leading slash only says that it is a path). `*`, `?` and `[…]` stop at
//! slashes, `**` does not, `{a,b}` is either. What is below a directory left out is left out too.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Error;

/// Compiled patterns; none by default.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    names: GlobSet,
    paths: GlobSet,
}

impl Excludes {
    /// Compiles patterns.
    ///
    /// # Errors
    /// [`Error::Pattern`] for one that is no glob.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let bad = |e: globset::Error| Error::Pattern {
                pattern: pattern.to_owned(),
                why: e.kind().to_string(),
            };
            let bare = pattern.trim_end_matches('/');
            let path = bare.trim_start_matches("./").trim_start_matches('/');
            let is_path = bare.contains('/');
            let glob = GlobBuilder::new(path).literal_separator(true).build();
            if is_path { &mut paths } else { &mut names }.add(glob.map_err(bad)?);
        }
        let all = |e: globset::Error| Error::Pattern {
            pattern: "all together".to_owned(),
            why: e.kind().to_string(),
        };
        Ok(Self {
            names: names.build().map_err(all)?,
            paths: paths.build().map_err(all)?,
        })
    }

    /// True if nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    /// True if the entry with this name and path (from the root, without a leading slash) matches
    /// itself, whatever becomes of the directories above it.
    pub fn matches(&self, name: &[u8], path: &[u8]) -> bool {
        !self.is_empty() && (is_in(&self.names, name) || is_in(&self.paths, path))
    }

    /// True if the entry or a directory above it matches; `names` are those of the path, in order.
    pub fn matches_below<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut path = Vec::new();
        for name in names {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            if self.matches(name, &path) {
                return true;
            }
        }
        false
    }
}

fn is_in(set: &GlobSet, path: &[u8]) -> bool {
    !set.is_empty() && set.is_match(Path::new(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(patterns: &[&str], path: &str) -> bool {
        let excludes = Excludes::new(patterns.iter().copied()).unwrap();
        excludes.matches_below(path.as_bytes().split(|&b| b == b'/'))
    }

    #[test]
    fn names_anywhere_and_paths_from_the_root() {
        for (pattern, path, want) in [
            ("*.o", "a/b.o", true),
            ("*.o", "a.o/b", true),
            ("*.o", "a/b.oo", false),
            ("a/b", "a/b/c", true),
            ("a/b", "x/a/b", false),
            ("/a", "a/b", true),
            ("/a", "x/a", false),
            ("./a/*", "a/b", true),
            ("a/*", "a", false),
            ("a/*/c", "a/b/b/c", false),
            ("a/**/c", "a/b/b/c", true),
            ("**/c", "a/b/c/d", true),
            (".git/", "x/.git/config", true),
            ("{a,b}c", "bc", true),
        ] {
            assert_eq!(left_out(&[pattern], path), want, "{pattern} {path}");
        }
        assert!(!left_out(&[], "a"));
    }

    #[test]
    fn names_that_are_not_utf8_match_too() {
        let excludes = Excludes::new(["*.tmp"]).unwrap();
        assert!(excludes.matches(b"\xFF\xFE.tmp", b"a/\xFF\xFE.tmp"));
    }

    #[test]
    fn bad_patterns_are_named() {
        let error = Excludes::new(["ok", "a[b"]).unwrap_err();
        assert!(error.to_string().contains("a[b"));
    }
}
