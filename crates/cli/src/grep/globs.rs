//! Which files `grep -g` searches.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Globs in the habit of ripgrep: the last one that matches decides, and `!` excludes.
#[derive(Debug)]
pub struct Globs {
    set: GlobSet,
    /// For each glob, whether it excludes.
    excludes: Vec<bool>,
}

impl Globs {
    /// Reads them. A glob without a slash speaks of names, others of paths from the root.
    ///
    /// # Errors
    /// What is wrong with one.
    pub fn new(globs: &[String]) -> Result<Self, String> {
        let mut set = GlobSetBuilder::new();
        let mut excludes = Vec::new();
        for glob in globs {
            let plain = glob.strip_prefix('!');
            excludes.push(plain.is_some());
            let plain = plain.unwrap_or(glob);
            let anchored = match plain.strip_prefix('/') {
                Some(rest) => rest.to_owned(),
                None if plain.contains('/') => plain.to_owned(),
                None => format!("**/{plain}"),
            };
            let mut builder = GlobBuilder::new(&anchored);
            builder.literal_separator(true);
            set.add(builder.build().map_err(|error| error.to_string())?);
        }
        let set = set.build().map_err(|error| error.to_string())?;
        Ok(Self { set, excludes })
    }

    /// Whether a file of this path, from the root, is searched.
    pub fn takes_file(&self, path: &[u8]) -> bool {
        match self.last(path) {
            Some(excludes) => !excludes,
            None => self.excludes.iter().all(|&excludes| excludes),
        }
    }

    /// Whether a directory of this path is entered.
    pub fn takes_dir(&self, path: &[u8]) -> bool {
        self.last(path) != Some(true)
    }

    fn last(&self, path: &[u8]) -> Option<bool> {
        if self.excludes.is_empty() {
            return None;
        }
        let start = path.iter().position(|&byte| byte != b'/')?;
        let path = Path::new(OsStr::from_bytes(&path[start..]));
        let last = self.set.matches(path).into_iter().max()?;
        self.excludes.get(last).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_glob_that_matches_decides() {
        let globs = |globs: &[&str]| {
            let globs: Vec<_> = globs.iter().map(|&glob| glob.to_owned()).collect();
            Globs::new(&globs).unwrap()
        };
        assert!(globs(&[]).takes_file(b"/a"));
        let sources = globs(&["*.rs", "!gen*"]);
        assert!(sources.takes_file(b"/a/b.rs") && !sources.takes_file(b"/a/b.c"));
        assert!(!sources.takes_file(b"/gen.rs") && !sources.takes_dir(b"/a/generated"));
        assert!(sources.takes_dir(b"/a/b"));
        let not = globs(&["!/usr/*"]);
        assert!(not.takes_file(b"/usr/lib/x") && not.takes_file(b"/lib/usr/x"));
        assert!(!not.takes_dir(b"/usr/lib") && !not.takes_file(b"//usr/x"));
        assert!(Globs::new(&["[".to_owned()]).is_err());
    }
}
