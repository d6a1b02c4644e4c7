//! Another image as the source that all others lie above.
//!
//! Everything in it may be damaged. A walk with bounds of its own lists it, and its files together
//! hold no more than its file system does. What cannot be read whole is an error: an image made of
//! half a base would be wrong without a sign of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use uext4::{FollowLast, Image, Inode};
use uext4_blockdev::{Access, FileDevice};
use uext4_ondisk::Ino;
use uext4_ondisk::inode::FileType;

use super::holes::is_whole;
use super::{Context, Listing, Store, device_refused};
use crate::budget::Budget;
use crate::error::{Error, path_buf};
use crate::sparse::Holes;
use crate::tree::{Attributes, DataRange, EntryId, FileData, NewNode, NodeId, RANGES_MAX};
use crate::walk::{Order, Step, Walk};

/// Lists an image into `listing`, as the source that has begun there; returns its store.
///
/// # Errors
/// [`Error::Device`] if it cannot be opened or is in use by a writer, [`Error::Entry`] for
/// damage.
pub fn list(path: &Path, context: &Context<'_>, listing: &mut Listing) -> Result<Store, Error> {
    let device = FileDevice::open(path, Access::ReadOnly)?;
    device.lock_shared()?;
    let at = |source| Error::Entry {
        path: path.to_path_buf(),
        source,
    };
    let image = Image::open(Arc::new(device), &uext4::OpenOptions::default()).map_err(at)?;
    let root = image.resolve("/", FollowLast::Yes).map_err(at)?;
    let mut reader = Reader {
        image: &image,
        path,
        context,
        listing,
        budget: Budget::new(&image),
        nodes: HashMap::new(),
        inos: HashMap::new(),
    };
    reader.run(root)?;
    let inos = reader.inos;
    Ok(Store::Image {
        image,
        path: path.to_path_buf(),
        inos,
    })
}

struct Reader<'a> {
    image: &'a Image,
    path: &'a Path,
    context: &'a Context<'a>,
    listing: &'a mut Listing,
    budget: Budget,
    /// Files with several names that have been seen.
    nodes: HashMap<Ino, NodeId>,
    /// Files with contents.
    inos: HashMap<NodeId, Ino>,
}

impl Reader<'_> {
    fn run(&mut self, root: Inode) -> Result<(), Error> {
        let mut walk = Walk::new(self.image, root, Order::Nested);
        let mut dirs = Vec::new();
        let mut last = EntryId::ROOT;
        while let Some(step) = walk.step() {
            self.context.counter.check()?;
            match step {
                Step::Enter(_) => dirs.push(last),
                Step::Leave => drop(dirs.pop()),
                Step::Entry(entry) => {
                    if let Some(problem) = entry.problem {
                        return Err(Error::Base {
                            path: self.path.join(path_buf(walk.path())),
                            why: problem.to_string(),
                        });
                    }
                    let inode = entry.inode.map_err(|e| self.failed(walk.path(), e))?;
                    let parent = dirs.last().copied();
                    last = self.entry(parent, &entry.name, walk.path(), &inode)?;
                }
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        parent: Option<EntryId>,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
    ) -> Result<EntryId, Error> {
        let is_shared = inode.links > 1 && inode.file_type != FileType::Directory;
        if let (Some(parent), Some(&node)) = (parent, self.nodes.get(&inode.ino))
            && is_shared
        {
            self.context.counter.entry();
            return self.listing.tree.link_at(parent, name, node);
        }
        let xattrs = self.image.xattrs(inode).map_err(|e| self.failed(path, e))?;
        let attributes = Attributes {
            mode: inode.mode & 0o7777,
            uid: inode.uid,
            gid: inode.gid,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            xattrs: xattrs.into_iter().map(|x| (x.name, x.value)).collect(),
        };
        let (target, pieces);
        let node = match inode.file_type {
            FileType::Regular => {
                pieces = self.pieces(path, inode)?;
                let data = match pieces.as_slice() {
                    _ if self.context.holes == Holes::Filled => FileData::Whole { at: 0 },
                    pieces if is_whole(pieces, inode.size) => FileData::Whole { at: 0 },
                    pieces => FileData::Sparse(pieces),
                };
                let size = inode.size;
                NewNode::File { size, data }
            }
            FileType::Directory => NewNode::Directory,
            FileType::Symlink => {
                target = self
                    .image
                    .read_link(inode)
                    .map_err(|e| self.failed(path, e))?;
                NewNode::Symlink(&target)
            }
            FileType::CharDevice | FileType::BlockDevice if self.context.options.no_devices => {
                return Err(device_refused(path));
            }
            FileType::CharDevice => NewNode::CharDevice(inode.rdev.unwrap_or_default()),
            FileType::BlockDevice => NewNode::BlockDevice(inode.rdev.unwrap_or_default()),
            FileType::Fifo => NewNode::Fifo,
            FileType::Socket => NewNode::Socket,
        };
        let entry = self.insert(parent, name, node, attributes)?;
        let id = self.listing.tree.node_id(entry);
        if is_shared {
            self.nodes.insert(inode.ino, id);
        }
        if inode.file_type == FileType::Regular && inode.size > 0 {
            self.inos.insert(id, inode.ino);
        }
        self.context.counter.entry();
        Ok(entry)
    }

    fn insert(
        &mut self,
        parent: Option<EntryId>,
        name: &[u8],
        node: NewNode<'_>,
        attributes: Attributes,
    ) -> Result<EntryId, Error> {
        let bytes = match &node {
            NewNode::File {
                data: FileData::Sparse(pieces),
                ..
            } => pieces.iter().map(|piece| piece.len).sum(),
            NewNode::File { size, .. } => *size,
            _ => 0,
        };
        let limits = &self.context.options.limits;
        self.listing.used.add(limits, bytes, &attributes.xattrs)?;
        match parent {
            Some(parent) => self.listing.tree.insert_at(parent, name, node, attributes),
            None => self.listing.tree.insert(b".", node, attributes),
        }
    }

    /// The parts of a file that hold data; where they are is where they are in the file.
    fn pieces(&mut self, path: &[u8], inode: &Inode) -> Result<Vec<DataRange>, Error> {
        let mut pieces: Vec<DataRange> = Vec::new();
        let ranges = self
            .image
            .data_ranges(inode)
            .map_err(|e| self.failed(path, e))?;
        for range in ranges {
            let range = range.map_err(|e| self.failed(path, e))?;
            let taken = self.budget.take(inode, &range);
            taken.map_err(|e| self.failed(path, e))?;
            if pieces.len() == RANGES_MAX {
                return Err(Error::TooMany {
                    what: "pieces of sparse files",
                    limit: RANGES_MAX as u64,
                });
            }
            let end = range.end.min(inode.size);
            if let Some(len) = end.checked_sub(range.start).filter(|&len| len > 0) {
                pieces.push(DataRange {
                    offset: range.start,
                    len,
                    at: range.start,
                });
            }
        }
        Ok(pieces)
    }

    fn failed(&self, path: &[u8], source: uext4::Error) -> Error {
        let path = self.path.join(path_buf(path));
        Error::Entry { path, source }
    }
}
