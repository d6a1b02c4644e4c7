//! The members of a plain tar archive as places in it: they are listed once and never unpacked.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use tempfile::NamedTempFile;
use uext4_ondisk::inode::FileType;

use super::blob::{Place, Stored, failed};
use super::error::{Fault, Part};
use crate::progress::{Counter, Phase};
use crate::source::{Context, Input, Source, SourceOptions, Store, list};
use crate::sparse::Holes;
use crate::tree::{EntryId, FileData, Tree};

/// Most symbolic links followed on the way to one member.
const SYMLINKS_MAX: u32 = 40;
/// Longest path looked up, in components: links included.
const COMPONENTS_MAX: usize = 4096;

/// The members of an archive.
#[derive(Debug)]
pub(super) struct Members {
    tree: Tree,
    file: Arc<File>,
    path: Arc<Path>,
}

impl Members {
    /// Lists an archive.
    ///
    /// # Errors
    /// [`Fault::Format`] if it is compressed or not a regular file, [`Fault::Archive`] if it is
    /// damaged.
    pub fn list(path: &Path) -> Result<Self, Fault> {
        if path != Path::new("-") {
            return Self::of_file(path, path);
        }
        // It is read in any order. The file lasts as long as it is open.
        let spool = spooled(io::stdin().lock())
            .map_err(|e| failed(&tempfile::env::temp_dir(), "spool", e))?;
        Self::of_file(spool.path(), path)
    }

    /// Lists the archive in a file, which errors call `shown`.
    fn of_file(path: &Path, shown: &Path) -> Result<Self, Fault> {
        refuse_compressed(path, shown)?;
        let options = SourceOptions::default();
        let context = Context {
            options: &options,
            spool_dir: path.parent().unwrap_or(Path::new(".")),
            leave_out: None,
            counter: &Counter::begin(&(), Phase::Listing, None),
            holes: Holes::OfSource,
        };
        let archive = Input::Source(Source::TarFile(path.to_path_buf()));
        let listing = list(vec![archive], &context, None);
        let mut listing = listing.map_err(|e| Fault::Archive(Box::new(e)))?;
        let Some(Store::Archive { file, .. }) = listing.stores.pop() else {
            let what = "changed while it was read".to_owned();
            return Err(Fault::Format { what });
        };
        Ok(Self {
            tree: listing.tree,
            file,
            path: Arc::from(shown),
        })
    }

    /// The regular file of this name, through symbolic links that stay inside the archive; `None`
    /// if there is no member of this name.
    ///
    /// # Errors
    /// [`Fault::Stored`] if it is something else than a file whose bytes are in one piece.
    pub fn find(&self, part: &Part, name: &str) -> Result<Option<Stored>, Fault> {
        let stored = |why| Fault::Stored {
            part: part.clone(),
            name: name.to_owned(),
            why,
        };
        let Some(entry) = self.resolve(name.as_bytes()).map_err(stored)? else {
            return Ok(None);
        };
        let node = self.tree.node_of(entry);
        if node.file_type() != FileType::Regular {
            return Err(stored("not a regular file"));
        }
        match self.tree.data(node) {
            FileData::Whole { at } => Ok(Some(Stored {
                place: Place::Range {
                    file: Arc::clone(&self.file),
                    path: Arc::clone(&self.path),
                    at,
                },
                len: node.size(),
            })),
            FileData::Sparse(_) => Err(stored("a sparse file: pack the archive without --sparse")),
        }
    }

    fn resolve(&self, name: &[u8]) -> Result<Option<EntryId>, &'static str> {
        let mut at = EntryId::ROOT;
        let mut links = 0;
        // The components still to go, the next one last.
        let mut ahead: Vec<Vec<u8>> = components(name);
        while let Some(component) = ahead.pop() {
            match component.as_slice() {
                b"." | b"" => continue,
                b".." => {
                    at = self.tree.parent(at);
                    continue;
                }
                _ => {}
            }
            let Some(child) = self.tree.child(at, &component) else {
                return Ok(None);
            };
            let node = self.tree.node_of(child);
            if node.file_type() != FileType::Symlink {
                at = child;
                continue;
            }
            links += 1;
            let target = self.tree.target(node);
            if links > SYMLINKS_MAX {
                return Err("behind too many symbolic links");
            }
            if target.starts_with(b"/") {
                return Err("a symbolic link out of the archive");
            }
            ahead.extend(components(target));
            if ahead.len() > COMPONENTS_MAX {
                return Err("behind a path that is too long");
            }
        }
        Ok(Some(at))
    }
}

/// The components of a path, the first one last.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let components = path.split(|&byte| byte == b'/');
    components.rev().map(<[u8]>::to_vec).collect()
}

/// All that comes, in a temporary file in `TMPDIR`.
fn spooled(mut input: impl Read) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    io::copy(&mut input, file.as_file_mut())?;
    Ok(file)
}

/// Layers are read where they lie in the archive, in any order: a compressed one has no such place.
fn refuse_compressed(path: &Path, shown: &Path) -> Result<(), Fault> {
    let metadata = std::fs::metadata(path).map_err(|e| failed(shown, "open", e))?;
    if !metadata.is_file() {
        let what = "not a regular file: store the archive in one first".to_owned();
        return Err(Fault::Format { what });
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(|e| failed(shown, "open", e))?;
    let read = file.take(6).read_to_end(&mut start);
    read.map_err(|e| failed(shown, "read", e))?;
    let (format, command) = match start[..] {
        [0x1F, 0x8B, ..] => ("gzip", "gunzip"),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => ("zstd", "unzstd"),
        [0xFD, b'7', b'z', b'X', b'Z', 0] => ("xz", "unxz"),
        [b'B', b'Z', b'h', ..] => ("bzip2", "bunzip2"),
        _ => return Ok(()),
    };
    let what = format!("the archive is compressed with {format}: decompress it first ({command})");
    Err(Fault::Format { what })
}
