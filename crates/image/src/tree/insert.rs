//! Putting entries into a tree, by tar's rules.

use uext4_ondisk::inode::FileType;

use super::node::{Attributes, FileData, Kind, NewNode, Node, PackedTime};
use super::{
    Entry, EntryId, IMPLIED_MAX, NONE, NameHash, NodeId, RANGES_MAX, SYMLINK_MAX, SYMLINKS_MAX,
    Tree,
};
use crate::error::{Error, path_buf};
use crate::path;
use crate::xattrs::XattrSet;

impl Tree {
    pub(super) fn implied_directory() -> Node {
        Node {
            kind: Kind::Directory {
                first: NONE,
                last: NONE,
            },
            times: [PackedTime::default(); 3],
            uid: 0,
            gid: 0,
            links: 0,
            xattrs: XattrSet::default(),
            mode: 0o755,
            source: 0,
            implied: true,
        }
    }

    /// Puts `node` at `path`, relative to the root.
    ///
    /// # Errors
    /// [`Error::Path`] for a path, target or replacement that cannot be, [`Error::NotADirectory`],
    /// [`Error::TooMany`].
    pub fn insert(
        &mut self,
        path: &[u8],
        node: NewNode<'_>,
        attributes: Attributes,
    ) -> Result<EntryId, Error> {
        match self.parent_of(path)? {
            Some((parent, name)) => self.insert_at(parent, &name, node, attributes),
            None if node == NewNode::Directory => {
                let made = self.make_node(node, attributes).map_err(|e| at(e, path))?;
                self.set_directory(0, made);
                Ok(EntryId::ROOT)
            }
            None => Err(at_path(path, "the root can only be a directory")),
        }
    }

    /// Puts `node` into the directory `parent` as `name`, which is a valid name of one component.
    ///
    /// # Errors
    /// As [`Tree::insert`].
    pub fn insert_at(
        &mut self,
        parent: EntryId,
        name: &[u8],
        node: NewNode<'_>,
        attributes: Attributes,
    ) -> Result<EntryId, Error> {
        let made = match self.make_node(node, attributes) {
            Ok(made) => made,
            Err(e) => return Err(at(e, &self.path_below(parent, name))),
        };
        let has_contents = matches!(
            made.kind,
            Kind::Whole { size: 1.., .. } | Kind::Sparse { size: 1.., .. }
        );
        let hash = self.hash(parent, name);
        let Some(entry) = self.hashed_child(parent, name, hash) else {
            let node = self.push_node(made)?;
            let entry = self.push_hashed(parent, name, hash, node)?;
            self.layer.files.extend(has_contents.then_some(entry));
            return Ok(entry);
        };
        self.layer.files.extend(has_contents.then_some(entry));
        let old = self.entries[entry.index()].node as usize;
        match (self.nodes[old].kind, made.kind) {
            (Kind::Directory { .. }, Kind::Directory { .. }) => {
                self.set_directory(old, made);
                self.entries[entry.index()].source = self.source;
                return Ok(entry);
            }
            (Kind::Directory { .. }, _) => self.clear_for_another(entry)?,
            _ => {}
        }
        self.entries[entry.index()].source = self.source;
        if self.nodes[old].links == 1 {
            self.nodes[old] = Node { links: 1, ..made };
        } else {
            self.nodes[old].links -= 1;
            self.entries[entry.index()].node = self.push_node(made)?;
            let new = self.entries[entry.index()].node as usize;
            self.nodes[new].links = 1;
        }
        Ok(entry)
    }

    /// Makes `path` another name of what `target` names now.
    ///
    /// # Errors
    /// [`Error::HardLink`] if there is no such thing or it is a directory; else as
    /// [`Tree::insert`].
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<EntryId, Error> {
        let bad = |why| Error::HardLink {
            path: path_buf(path),
            target: path_buf(target),
            why,
        };
        let found = self.find(target)?.ok_or_else(|| bad("no such entry"))?;
        let Some((parent, name)) = self.parent_of(path)? else {
            return Err(at_path(path, "the root can only be a directory"));
        };
        let node = self.entries[found.index()].node;
        match self.link_at(parent, &name, NodeId(node)) {
            Err(Error::Path { why, .. }) => Err(bad(why)),
            other => {
                self.note_link(found);
                other
            }
        }
    }

    /// Puts another name of `node` into the directory `parent`.
    ///
    /// # Errors
    /// [`Error::Path`] if `node` is a directory or a directory is in its place, [`Error::TooMany`].
    pub fn link_at(
        &mut self,
        parent: EntryId,
        name: &[u8],
        node: NodeId,
    ) -> Result<EntryId, Error> {
        let fail = |tree: &Self, why| Err(at_path(&tree.path_below(parent, name), why));
        if self.node(node).file_type() == FileType::Directory {
            return fail(self, "hard link to a directory");
        }
        let Some(entry) = self.child(parent, name) else {
            return self.push_entry(parent, name, node.0);
        };
        let old = self.entries[entry.index()].node;
        if old == node.0 {
            self.entries[entry.index()].source = self.source;
            return Ok(entry);
        }
        if let Kind::Directory { .. } = self.nodes[old as usize].kind {
            self.clear_for_another(entry)?;
        }
        self.entries[entry.index()].source = self.source;
        self.nodes[old as usize].links -= 1;
        self.nodes[node.index()].links += 1;
        self.entries[entry.index()].node = node.0;
        Ok(entry)
    }

    fn make_node(&mut self, node: NewNode<'_>, attributes: Attributes) -> Result<Node, Error> {
        let kind = match node {
            NewNode::Directory => Self::implied_directory().kind,
            NewNode::File { size, data } => self.make_file(size, data)?,
            NewNode::Symlink(target) => {
                if target.is_empty() || target.len() > SYMLINK_MAX || target.contains(&0) {
                    let why = "the link's target is empty, has a zero byte or over 4095 bytes";
                    return Err(at_path(b"", why));
                }
                let at = self.store_name(target)?;
                let len = target.len() as u16;
                Kind::Symlink { at, len }
            }
            NewNode::CharDevice(number) => Kind::CharDevice(number),
            NewNode::BlockDevice(number) => Kind::BlockDevice(number),
            NewNode::Fifo => Kind::Fifo,
            NewNode::Socket => Kind::Socket,
        };
        Ok(Node {
            kind,
            times: [attributes.atime, attributes.mtime, attributes.ctime].map(PackedTime::new),
            uid: attributes.uid,
            gid: attributes.gid,
            links: 0,
            xattrs: self.xattrs.intern(attributes.xattrs)?,
            mode: attributes.mode & 0o7777,
            source: self.source,
            implied: false,
        })
    }

    fn make_file(&mut self, size: u64, data: FileData<'_>) -> Result<Kind, Error> {
        let ranges = match data {
            FileData::Whole { at } => return Ok(Kind::Whole { size, at }),
            FileData::Sparse(ranges) => ranges,
        };
        if self.ranges.len() + ranges.len() > RANGES_MAX {
            return Err(Error::TooMany {
                what: "pieces of sparse files",
                limit: RANGES_MAX as u64,
            });
        }
        let mut end = 0;
        for range in ranges {
            let next = range.offset.checked_add(range.len);
            match next.filter(|&n| n <= size && range.offset >= end && range.len > 0) {
                Some(next) => end = next,
                None => {
                    return Err(at_path(
                        b"",
                        "pieces of a sparse file overlap or pass its end",
                    ));
                }
            }
        }
        let first = self.ranges.len() as u32;
        self.ranges.extend_from_slice(ranges);
        let count = ranges.len() as u32;
        Ok(Kind::Sparse { size, first, count })
    }

    /// Says which parts of a file have contents from now on, and where these are.
    ///
    /// # Errors
    /// [`Error::TooMany`] with more than [`RANGES_MAX`] pieces in all; [`Error::Path`] for pieces
    /// that overlap or pass the end.
    pub fn set_data(&mut self, node: NodeId, data: FileData<'_>) -> Result<(), Error> {
        let kind = match (self.node(node).kind, data) {
            (Kind::Sparse { size, first, count }, FileData::Sparse(pieces))
                if pieces.len() <= count as usize =>
            {
                let count = pieces.len() as u32;
                self.ranges[first as usize..][..pieces.len()].copy_from_slice(pieces);
                Kind::Sparse { size, first, count }
            }
            (Kind::Whole { size, .. } | Kind::Sparse { size, .. }, data) => {
                self.make_file(size, data)?
            }
            (other, _) => other,
        };
        self.nodes[node.index()].kind = kind;
        Ok(())
    }

    /// New attributes for the directory `node`; its children stay.
    fn set_directory(&mut self, node: usize, made: Node) {
        let old = self.nodes[node];
        self.nodes[node] = Node {
            kind: old.kind,
            links: old.links,
            ..made
        };
    }

    fn push_node(&mut self, node: Node) -> Result<u32, Error> {
        let id = number(self.nodes.len(), "entries")?;
        self.nodes.push(node);
        Ok(id)
    }

    fn push_entry(&mut self, parent: EntryId, name: &[u8], node: u32) -> Result<EntryId, Error> {
        self.push_hashed(parent, name, self.hash(parent, name), node)
    }

    fn push_hashed(
        &mut self,
        parent: EntryId,
        name: &[u8],
        hash: NameHash,
        node: u32,
    ) -> Result<EntryId, Error> {
        let id = number(self.entries.len(), "entries")?;
        let name_at = self.store_name(name)?;
        let entries = &self.entries;
        let hash_of = |&i: &u32| entries[i as usize].hash.spread();
        self.index.insert_unique(hash.spread(), id, hash_of);
        self.entries.push(Entry {
            parent: parent.0,
            node,
            next: NONE,
            name_at,
            hash,
            name_len: name.len() as u8,
            source: self.source,
        });
        self.live += 1;
        self.nodes[node as usize].links += 1;
        let parent_node = self.entries[parent.index()].node as usize;
        if let Kind::Directory { first, last } = &mut self.nodes[parent_node].kind {
            if *first == NONE {
                *first = id;
            } else {
                self.entries[*last as usize].next = id;
            }
            *last = id;
        }
        Ok(EntryId(id))
    }

    fn store_name(&mut self, name: &[u8]) -> Result<u32, Error> {
        let at = number(self.names.len(), "bytes of names")?;
        self.names.extend_from_slice(name);
        Ok(at)
    }

    /// The entry a path names, itself not followed if it is a symbolic link.
    fn find(&mut self, path: &[u8]) -> Result<Option<EntryId>, Error> {
        // Following may make directories a dangling link points to; a target below one of those
        // is not there, so the worst that happens is an empty directory next to the error.
        Ok(match self.parent_of(path)? {
            Some((parent, name)) => self.child(parent, &name),
            None => Some(EntryId::ROOT),
        })
    }

    /// The directory a path's last name belongs into, made if missing, and that name; `None` for
    /// the root itself.
    fn parent_of(&mut self, path: &[u8]) -> Result<Option<(EntryId, Vec<u8>)>, Error> {
        let mut names = path::names(path)?;
        let Some(mut last) = names.next() else {
            return Ok(None);
        };
        let (mut dir, mut symlinks) = (EntryId::ROOT, 0);
        for name in names {
            dir = self.enter(dir, last, &mut symlinks, path)?;
            last = name;
        }
        Ok(Some((dir, last.to_vec())))
    }

    /// The directory `name` of `dir`, made if missing, links followed.
    fn enter(
        &mut self,
        dir: EntryId,
        name: &[u8],
        symlinks: &mut u32,
        path: &[u8],
    ) -> Result<EntryId, Error> {
        let Some(child) = self.child(dir, name) else {
            if self.implied == IMPLIED_MAX {
                return Err(at_path(
                    path,
                    "with it, over 1048576 directories have no entry",
                ));
            }
            self.implied += 1;
            let node = self.push_node(Self::implied_directory())?;
            return self.push_entry(dir, name, node);
        };
        let (target_at, target_len) = match self.node_of(child).kind {
            Kind::Directory { .. } => return Ok(child),
            Kind::Symlink { at, len } => (at as usize, usize::from(len)),
            _ => {
                return Err(Error::NotADirectory {
                    path: path_buf(path),
                    through: path_buf(&self.path(child)),
                });
            }
        };
        *symlinks += 1;
        if *symlinks > SYMLINKS_MAX {
            return Err(at_path(path, "leads through too many symbolic links"));
        }
        let target = self.names[target_at..target_at + target_len].to_vec();
        let mut dir = if target.starts_with(b"/") {
            EntryId::ROOT
        } else {
            dir
        };
        for name in target.split(|&b| b == b'/') {
            dir = match name {
                b"" | b"." => dir,
                b".." => EntryId(self.entries[dir.index()].parent),
                _ if name.len() > path::NAME_MAX => {
                    return Err(at_path(path, "leads through a name over 255 bytes"));
                }
                _ => self.enter(dir, name, symlinks, path)?,
            };
        }
        Ok(dir)
    }
}

fn number(len: usize, what: &'static str) -> Result<u32, Error> {
    let limit = u64::from(NONE);
    match u32::try_from(len) {
        Ok(n) if n < NONE => Ok(n),
        _ => Err(Error::TooMany { what, limit }),
    }
}

pub(super) fn at_path(path: &[u8], why: &'static str) -> Error {
    Error::Path {
        path: path_buf(path),
        why,
    }
}

/// Puts the path into an error that was made without one.
fn at(error: Error, path: &[u8]) -> Error {
    match error {
        Error::Path { why, .. } => at_path(path, why),
        other => other,
    }
}
