//! Several sources in one tree: what a source hides of the ones below it.
//!
//! A source hides an entry of the sources below, and all below that entry, but nothing that it has
//! brought itself, whether before or after. So the order in which a layer has its whiteouts and
//! its entries makes no difference to the tree (OCI image-spec, layer.md, "Whiteouts").
//!
//! Hiding costs one visit of each entry below what is hidden. A directory below which nothing of
//! the sources below is left is remembered until the next source begins, and not visited again, so
//! that no number of whiteouts costs more than the tree has entries, times the depth of the paths.

use std::collections::HashSet;

use uext4_ondisk::inode::FileType;

use super::insert::at_path;
use super::node::{Kind, Node};
use super::{EntryId, HIDDEN, NONE, SOURCES_MAX, SYMLINKS_MAX, Tree};
use crate::error::{Error, path_buf};
use crate::path;

/// What the source that is being put in has done.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Directories with nothing of the sources below in them, at any depth.
    clean: HashSet<u32>,
    /// Entries of the sources below that a hard link of this source names.
    linked: HashSet<u32>,
    /// Entries that have become files with contents, in the order they did; some may have become
    /// something else since.
    pub(super) files: Vec<EntryId>,
}

impl Tree {
    /// Files with contents that the current source has brought, each once, in the order they came.
    pub fn new_files(&self) -> Vec<EntryId> {
        let mut seen = HashSet::new();
        let is_new = |entry: &EntryId| {
            let node = self.node_of(*entry);
            !self.is_hidden(*entry)
                && node.source == self.source
                && node.file_type() == FileType::Regular
                && node.size() > 0
                && seen.insert(self.node_id(*entry))
        };
        self.layer.files.iter().copied().filter(is_new).collect()
    }

    /// What is put in from now on belongs to the next source, above all before; returns its number,
    /// 0 for the first.
    ///
    /// # Errors
    /// [`Error::TooMany`] after [`SOURCES_MAX`].
    pub fn begin_source(&mut self, number: u16) -> Result<(), Error> {
        if number >= SOURCES_MAX {
            return Err(Error::TooMany {
                what: "sources",
                limit: SOURCES_MAX.into(),
            });
        }
        self.source = number;
        self.layer = State::default();
        Ok(())
    }

    /// Hides what the sources below have at `path`, and all below that. Nothing happens if there
    /// is no such thing.
    ///
    /// # Errors
    /// [`Error::Path`] for a path that cannot be or for the root, [`Error::HardLink`] if a hard
    /// link of this source names what would be hidden.
    pub fn hide(&mut self, path: &[u8]) -> Result<(), Error> {
        let mut names: Vec<&[u8]> = path::names(path)?.collect();
        let Some(last) = names.pop() else {
            return Err(at_path(path, "the root directory cannot be removed"));
        };
        let dir = self.existing(&names);
        match dir.and_then(|dir| self.child(dir, last)) {
            Some(entry) => self.hide_below(entry, Top::Hidden),
            None => Ok(()),
        }
    }

    /// Hides all that the sources below have in the directory at `path`, which may be a symbolic
    /// link to it.
    ///
    /// # Errors
    /// As [`Tree::hide`], the root excepted.
    pub fn hide_contents(&mut self, path: &[u8]) -> Result<(), Error> {
        let names: Vec<&[u8]> = path::names(path)?.collect();
        match self.existing(&names) {
            Some(entry) => self.hide_below(entry, Top::Stays),
            None => Ok(()),
        }
    }

    /// The entry at `path`, links above it followed inside the tree; `None` if there is none.
    pub fn lookup(&self, path: &[u8]) -> Option<EntryId> {
        let mut names: Vec<&[u8]> = path::names(path).ok()?.collect();
        let Some(last) = names.pop() else {
            return Some(EntryId::ROOT);
        };
        self.child(self.existing(&names)?, last)
    }

    /// The directory that is reached by these names, links followed inside the tree; `None` if
    /// there is none. Nothing is made.
    fn existing(&self, names: &[&[u8]]) -> Option<EntryId> {
        let mut pending: Vec<&[u8]> = names.iter().rev().copied().collect();
        let (mut dir, mut symlinks) = (EntryId::ROOT, 0);
        while let Some(name) = pending.pop() {
            if matches!(name, b"" | b".") {
                continue;
            }
            if name == b".." {
                dir = self.parent(dir);
                continue;
            }
            let child = self.child(dir, name)?;
            let node = self.node_of(child);
            match node.file_type() {
                FileType::Directory => dir = child,
                FileType::Symlink => {
                    symlinks += 1;
                    if symlinks > SYMLINKS_MAX {
                        return None;
                    }
                    let target = self.target(node);
                    if target.starts_with(b"/") {
                        dir = EntryId::ROOT;
                    }
                    pending.extend(target.split(|&byte| byte == b'/').rev());
                }
                _ => return None,
            }
        }
        Some(dir)
    }

    /// A directory makes way for something else.
    pub(super) fn clear_for_another(&mut self, entry: EntryId) -> Result<(), Error> {
        self.hide_below(entry, Top::Stays)?;
        let is_empty = self.children(entry).next().is_none();
        match is_empty {
            true => Ok(()),
            false => Err(at_path(
                &self.path(entry),
                "comes again and would replace a directory",
            )),
        }
    }

    /// A hard link of the current source names this entry.
    pub(super) fn note_link(&mut self, target: EntryId) {
        if self.entries[target.index()].source != self.source {
            self.layer.linked.insert(target.0);
            let node = self.entries[target.index()].node;
            self.origins.entry(node).or_insert(target);
        }
    }

    /// The entry that the node of `entry` came with, in the source that has its contents; it may
    /// be hidden, or another file by now.
    pub fn origin(&self, entry: EntryId) -> EntryId {
        let has_come_with = self.node_of(entry).source == self.entries[entry.index()].source;
        match self.origins.get(&self.node_id(entry).0) {
            Some(&origin) if !has_come_with => origin,
            _ => entry,
        }
    }

    fn hide_below(&mut self, top: EntryId, what: Top) -> Result<(), Error> {
        // A directory that is clean itself may still have to go.
        let from = match what {
            Top::Hidden => self.parent(top),
            Top::Stays => top,
        };
        if self.is_clean(from) {
            return Ok(());
        }
        let mut below = self.lower_part(top);
        // Children come after their parents: from the back, each is settled before its parent is.
        below.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.0));
        for entry in below {
            self.unlink_hidden(entry);
            if entry == top && matches!(what, Top::Stays) {
                continue;
            }
            let has_kept = self.children(entry).next().is_some();
            let is_lower = self.entries[entry.index()].source != self.source;
            match (is_lower, has_kept) {
                (true, false) => self.remove(entry)?,
                // Only a directory of a source below, in which this source has put something.
                (true, true) => self.make_implied(entry),
                (false, _) => {}
            }
        }
        if self.node_of(top).file_type() == FileType::Directory && !self.is_hidden(top) {
            self.layer.clean.insert(top.0);
        }
        Ok(())
    }

    /// Takes hidden entries out of the list of a directory's children, all of which were visited:
    /// the next source that hides does not visit them again.
    fn unlink_hidden(&mut self, dir: EntryId) {
        let left: Vec<u32> = self.children(dir).map(|child| child.0).collect();
        for (i, &child) in left.iter().enumerate() {
            self.entries[child as usize].next = left.get(i + 1).copied().unwrap_or(NONE);
        }
        let node = self.entries[dir.index()].node as usize;
        if let Kind::Directory { first, last } = &mut self.nodes[node].kind {
            *first = left.first().copied().unwrap_or(NONE);
            *last = left.last().copied().unwrap_or(NONE);
        }
    }

    /// True if an earlier call has left nothing to hide below `entry`.
    fn is_clean(&self, entry: EntryId) -> bool {
        let mut at = entry;
        while !self.layer.clean.contains(&at.0) {
            if at == EntryId::ROOT {
                return false;
            }
            at = self.parent(at);
        }
        true
    }

    /// `top` and all below it, but for what is known to be clean.
    fn lower_part(&self, top: EntryId) -> Vec<EntryId> {
        let mut found = vec![top];
        let mut next = 0;
        while let Some(&entry) = found.get(next) {
            next += 1;
            if !self.layer.clean.contains(&entry.0) {
                found.extend(self.children(entry));
            }
        }
        found
    }

    fn remove(&mut self, entry: EntryId) -> Result<(), Error> {
        if self.layer.linked.contains(&entry.0) {
            let path = path_buf(&self.path(entry));
            return Err(Error::HardLink {
                target: path.clone(),
                path,
                why: "a hard link of the same layer names what a whiteout of it hides",
            });
        }
        let id = entry.0;
        let hash = self.entries[entry.index()].hash.spread();
        if let Ok(found) = self.index.find_entry(hash, |&i| i == id) {
            found.remove();
        }
        let node = self.entries[entry.index()].node as usize;
        self.nodes[node].links -= 1;
        self.entries[entry.index()].source = HIDDEN;
        self.live -= 1;
        Ok(())
    }

    /// The directory remains only because something is in it.
    fn make_implied(&mut self, entry: EntryId) {
        let node = self.entries[entry.index()].node as usize;
        let old = self.nodes[node];
        if let Kind::Directory { .. } = old.kind {
            self.nodes[node] = Node {
                kind: old.kind,
                links: old.links,
                ..Self::implied_directory()
            };
        }
        self.entries[entry.index()].source = self.source;
    }
}

/// Whether what lies at the top is hidden, too.
#[derive(Clone, Copy)]
enum Top {
    Hidden,
    Stays,
}
