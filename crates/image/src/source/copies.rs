//! Copies of files that have contents although their size is 0, as below `/proc`: only reading
//! such a file to its end says how much it holds, and reading it again may give something else.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::tree::NodeId;

/// Bytes of one such file at which reading ends: some of them never do.
const COPY_MAX: u64 = 1 << 30;

/// A file without a name that holds the copies, made when the first of them is.
#[derive(Debug)]
pub struct Copies {
    dir: PathBuf,
    file: Option<File>,
    end: u64,
    nodes: HashSet<NodeId>,
}

/// Where a copy is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub at: u64,
    pub len: u64,
}

impl Copies {
    /// None yet; the file will be made in `dir`, or where the system has its temporary files if it
    /// cannot be made there.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
            file: None,
            end: 0,
            nodes: HashSet::new(),
        }
    }

    /// Copies `from`; `None` if it is empty. `path` is its name for errors.
    ///
    /// # Errors
    /// [`Error::Source`] if it cannot be read, [`Error::Spool`] if the copy cannot be written,
    /// [`Error::Path`] if it has no end.
    pub fn take(&mut self, from: &mut File, path: &Path) -> Result<Option<Place>, Error> {
        let mut piece = vec![0; 4096];
        let mut len = 0;
        loop {
            let count = match from.read(&mut piece) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Empty by its size, and it cannot be read: stored as empty.
                Err(_) if len == 0 => break,
                Err(error) => return Err(super::failed(path, "read", error)),
            };
            if count == 0 {
                break;
            }
            if len > COPY_MAX {
                return Err(Error::Path {
                    path: path.to_path_buf(),
                    why: "has a size of 0 and more than 1 GiB of contents",
                });
            }
            self.append(&piece[..count])
                .map_err(|source| Error::Spool {
                    dir: self.dir.clone(),
                    source,
                })?;
            len += count as u64;
            piece.resize(256 << 10, 0);
        }
        let place = Place { at: self.end, len };
        self.end += len;
        Ok((len > 0).then_some(place))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let made = tempfile::tempfile_in(&self.dir).or_else(|_| {
                    self.dir = tempfile::env::temp_dir();
                    tempfile::tempfile()
                });
                none.insert(made?)
            }
        };
        file.write_all(bytes)
    }

    /// Notes that the contents of a node are here, at the offset that the tree gives.
    pub fn note(&mut self, node: NodeId) {
        self.nodes.insert(node);
    }

    /// The file with the contents of a node, if they are here.
    pub fn of(&self, node: NodeId) -> Option<&File> {
        self.nodes
            .contains(&node)
            .then_some(self.file.as_ref())
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_size_that_cannot_be_read_is_empty() {
        let path = Path::new("/proc/self/mem");
        let mut copies = Copies::new(Path::new("/nonexistent"));
        let mut file = File::open(path).unwrap();
        assert!(copies.take(&mut file, path).unwrap().is_none());
        let mut file = File::open("/proc/self/status").unwrap();
        let place = copies.take(&mut file, path).unwrap().unwrap();
        assert!(place.at == 0 && place.len > 0);
    }
}
