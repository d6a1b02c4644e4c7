//! Reading the contents of listed files.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use uext4::{Image, Inode};
use uext4_ondisk::inode::Timestamp;

use super::directory;
use super::spool::Spool;
use super::{Listing, Store, failed};
use crate::error::{Error, path_buf};
use crate::place::Placed;
use crate::tree::{EntryId, FileData, Node};

/// Opens the files of a tree, best in the tree's order: the directories on the way stay open.
pub struct Contents<'a> {
    listing: &'a Listing,
    /// The source whose directories are open.
    source: u16,
    /// The directories from below the root to the one last used.
    dirs: Vec<(EntryId, OwnedFd)>,
}

/// One file, ready to be read.
#[derive(Debug)]
pub struct Content<'a> {
    file: Handle<'a>,
    data: FileData<'a>,
    listing: &'a Listing,
    entry: EntryId,
    /// What went wrong, in more words than an [`io::Error`] has.
    error: RefCell<Option<Error>>,
}

#[derive(Debug)]
enum Handle<'a> {
    /// The archive, or the copies of files without a size.
    Shared(&'a File),
    /// The file itself.
    Own(Arc<File>),
    /// The spool.
    Spool(&'a Spool),
    /// What was placed.
    Placed(&'a Placed),
    /// A file of another image.
    Inode(&'a Image, Box<Inode>),
}

impl Handle<'_> {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Self::Shared(file) => file.read_exact_at(buf, at),
            Self::Own(file) => file.read_exact_at(buf, at),
            Self::Spool(spool) => spool.read_exact_at(buf, at),
            Self::Placed(placed) => placed.read_exact_at(buf, at),
            Self::Inode(image, inode) => match image.read_at(inode, at, buf) {
                Ok(len) if len == buf.len() => Ok(()),
                Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => Err(io::Error::other(error)),
            },
        }
    }
}

impl<'a> Contents<'a> {
    /// For the files of `listing`.
    pub fn new(listing: &'a Listing) -> Self {
        Self {
            listing,
            source: 0,
            dirs: Vec::new(),
        }
    }

    /// Opens the file `entry`.
    ///
    /// # Errors
    /// [`Error::Source`]; [`Error::Changed`] if it is not what was listed.
    pub fn open(&mut self, entry: EntryId) -> Result<Content<'a>, Error> {
        let listing = self.listing;
        let tree = &listing.tree;
        let node = tree.node_of(entry);
        let file = match (listing.store_of(node)?, &listing.spool, &listing.placed) {
            (Store::Archive { file, .. }, ..) => Handle::Shared(file),
            (Store::Directory { copies, .. }, ..) => match copies.of(tree.node_id(entry)) {
                Some(file) => Handle::Shared(file),
                None => Handle::Own(Arc::new(self.open_file(tree.origin(entry), node)?)),
            },
            (Store::Image { image, inos, .. }, ..) => {
                let ino = inos.get(&tree.node_id(entry)).copied().unwrap_or_default();
                let inode = image.inode(ino).map_err(|source| Error::Entry {
                    path: path_of(listing, entry),
                    source,
                })?;
                Handle::Inode(image, Box::new(inode))
            }
            (Store::Spool { .. }, Some(spool), _) => Handle::Spool(spool),
            (Store::Placed { .. }, _, Some(placed)) => Handle::Placed(placed),
            (store @ (Store::Spool { .. } | Store::Placed { .. } | Store::Empty), ..) => {
                let source = io::ErrorKind::Unsupported.into();
                return Err(failed(store.path(), "read again", source));
            }
        };
        Ok(Content {
            file,
            data: tree.data(node),
            listing,
            entry,
            error: RefCell::new(None),
        })
    }

    fn open_file(&mut self, entry: EntryId, node: &Node) -> Result<File, Error> {
        let path = || path_of(self.listing, entry);
        if self.source != node.source() {
            self.source = node.source();
            self.dirs.clear();
        }
        let name = self.listing.tree.name(entry);
        let dir = self.directory(self.listing.tree.parent(entry))?;
        let file = directory::open(dir, name, OFlags::empty());
        let file = file.map_err(|e| failed(&path(), "open", e.into()))?;
        let stat = rustix::fs::fstat(&file).map_err(|e| failed(&path(), "stat", e.into()))?;
        let mtime = Timestamp {
            sec: stat.st_mtime,
            nsec: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        };
        let what = if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            "no longer a file"
        } else if u64::try_from(stat.st_size) != Ok(node.size()) {
            "its size"
        } else if self.listing.tree.was_modified(node, mtime) {
            "its time of modification"
        } else {
            return Ok(File::from(file));
        };
        Err(Error::Changed { path: path(), what })
    }

    /// The directory `entry`, opened from the nearest one above that is open.
    fn directory(&mut self, entry: EntryId) -> Result<BorrowedFd<'_>, Error> {
        let mut missing = Vec::new();
        let mut at = entry;
        let depth = loop {
            if at == EntryId::ROOT {
                break 0;
            }
            if let Some(i) = self.dirs.iter().rposition(|(dir, _)| *dir == at) {
                break i + 1;
            }
            missing.push(at);
            at = self.listing.tree.parent(at);
        };
        self.dirs.truncate(depth);
        while let Some(next) = missing.pop() {
            let name = self.listing.tree.name(next);
            let fd = directory::open_directory(self.last()?, name);
            let fd = fd.map_err(|e| failed(&path_of(self.listing, next), "open", e.into()))?;
            self.dirs.push((next, fd));
        }
        self.last()
    }

    fn last(&self) -> Result<BorrowedFd<'_>, Error> {
        let stores = &self.listing.stores;
        match (self.dirs.last(), stores.get(usize::from(self.source))) {
            (Some((_, fd)), _) => Ok(fd.as_fd()),
            (None, Some(Store::Directory { root, .. })) => Ok(root.as_fd()),
            (None, _) => Err(failed(
                Path::new("."),
                "open",
                io::ErrorKind::NotADirectory.into(),
            )),
        }
    }
}

impl Content<'_> {
    /// The file of a directory that has the contents, at the same offsets; `None` for all else.
    pub fn file(&self) -> Option<&Arc<File>> {
        match &self.file {
            Handle::Own(file) => Some(file),
            _ => None,
        }
    }

    /// The regular file that the pieces of [`FileData`] lie in; `None` where there is none.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.file {
            Handle::Shared(file) => Some(file.as_fd()),
            Handle::Own(file) => Some(file.as_fd()),
            Handle::Spool(_) | Handle::Placed(_) | Handle::Inode(..) => None,
        }
    }

    /// Whether that file has the pieces of others, too.
    pub fn is_shared(&self) -> bool {
        matches!(self.file, Handle::Shared(_))
    }

    /// How errors call it.
    pub fn path(&self) -> PathBuf {
        path_of(self.listing, self.entry)
    }

    /// Fills `buf` from `offset` of the file on; holes are zeroes.
    ///
    /// # Errors
    /// What reading says; [`Content::take_error`] reports more. A file that has become shorter is
    /// an error, never zeroes.
    pub fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let file = &self.file;
        let result = match self.data {
            FileData::Whole { at } => file.read_exact_at(buf, at.saturating_add(offset)),
            FileData::Sparse(pieces) => {
                let end = offset.saturating_add(buf.len() as u64);
                buf.fill(0);
                let first = pieces.partition_point(|p| p.offset + p.len <= offset);
                let inside = pieces[first..].iter().take_while(|p| p.offset < end);
                inside.into_iter().try_for_each(|piece| {
                    let from = piece.offset.max(offset);
                    let to = (piece.offset + piece.len).min(end);
                    let at = piece.at.saturating_add(from - piece.offset);
                    let part = (from - offset) as usize..(to - offset) as usize;
                    file.read_exact_at(&mut buf[part], at)
                })
            }
        };
        result.map_err(|e| {
            let (kind, path) = (e.kind(), path_of(self.listing, self.entry));
            *self.error.borrow_mut() = Some(match kind {
                io::ErrorKind::UnexpectedEof => Error::Changed {
                    path,
                    what: "it became shorter",
                },
                _ => failed(&path, "read", e),
            });
            kind.into()
        })
    }

    /// What the last failed read was about.
    pub fn take_error(&self) -> Option<Error> {
        self.error.take()
    }
}

/// How errors call an entry.
fn path_of(listing: &Listing, entry: EntryId) -> PathBuf {
    let path = path_buf(&listing.tree.path(entry));
    match listing.store_of(listing.tree.node_of(entry)) {
        Ok(store) => store.path().join(path),
        Err(_) => path,
    }
}
