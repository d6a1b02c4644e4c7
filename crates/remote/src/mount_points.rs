//! Names that must stay, because another file system is mounted there or below.
//!
//! The kernel detaches what is mounted on a name that it is to forget, and below. rename(2) and
//! rmdir(2) refuse to take such a name away (EBUSY), as it would leave what is mounted there
//! without a place; commands that go past the kernel must refuse it themselves.

use std::collections::BTreeMap;

use uext4::{Error, Ino, RemoteError, Result, Volume};

/// The names on the way to each mount point, with the mount point's path.
#[derive(Debug, Default)]
pub(crate) struct MountPoints(BTreeMap<(u32, Vec<u8>), Vec<u8>>);

impl MountPoints {
    /// Of the mount points at these paths.
    pub(crate) fn new(fs: &Volume, paths: Vec<Vec<u8>>) -> Self {
        let mut names = BTreeMap::new();
        for path in paths {
            let parts = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            let ends = parts.map(|(at, _)| at).chain([path.len()]);
            for end in ends.filter(|end| *end > 0) {
                // What was taken away by others meanwhile is mounted on no more.
                if let Ok((dir, name)) = fs.open_parent(&path[..end]) {
                    names.insert((dir.ino().0, name.to_vec()), path.clone());
                }
            }
        }
        Self(names)
    }

    /// Fails where a name, or one below it, is a mount point.
    pub(crate) fn check(&self, dir: Ino, name: &[u8]) -> Result<()> {
        // A map of pairs is asked with a pair of its own; there are few of both.
        match self.0.get(&(dir.0, name.to_vec())) {
            Some(path) => Err(Error::Remote {
                kind: RemoteError::Request,
                message: format!(
                    "device or resource busy: another file system is mounted at {}",
                    path.escape_ascii()
                ),
            }),
            None => Ok(()),
        }
    }
}
