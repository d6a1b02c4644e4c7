//! What an archive means, whichever reader says so: paths with what is there.

use std::collections::{BTreeMap, BTreeSet};

/// What stands at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// f, d, l, c, b or p.
    pub kind: char,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    /// Seconds since 1970.
    pub mtime: i64,
    /// Bytes; 0 for all but files.
    pub size: u64,
    /// Of the contents of a file; "-" if they were not read.
    pub hash: String,
    /// Of symbolic links.
    pub target: Vec<u8>,
    /// Major and minor number.
    pub device: Option<(u64, u64)>,
    /// Equal for the names of one file.
    pub node: u64,
    /// True for a directory that only paths lead through: its attributes are any.
    pub implied: bool,
}

pub type Tree = BTreeMap<Vec<u8>, Entry>;

/// What a reader made of an archive.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The tree, and what the reader remarked while it succeeded.
    Accepted { tree: Tree, remarks: String },
    /// Why there is no tree.
    Refused(String),
    /// The reader leaves to its caller what the archive means.
    Skipped,
}

/// The path without what says nothing: "." is the root, `None` leads out of it.
pub fn plain_path(path: &[u8]) -> Option<Vec<u8>> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<_> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    match names.contains(&&b".."[..]) {
        true => None,
        false if names.is_empty() => Some(b".".to_vec()),
        false => Some(names.join(&b'/')),
    }
}

/// What of two trees differs, each in a word, and the first difference of each in full.
pub fn differences(ours: &Tree, theirs: &Tree) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::new();
    let mut add = |what, path: &[u8], ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
        let text = format!("{}: ours {ours:?}, theirs {theirs:?}", path.escape_ascii());
        found.entry(what).or_insert(text);
    };
    let paths: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for path in paths {
        let (one, other) = match (ours.get(path), theirs.get(path)) {
            (Some(one), Some(other)) => (one, other),
            // A root without an entry is there nevertheless.
            _ if path == b"." => continue,
            (one, other) => {
                add("paths", path, &one.map(|e| e.kind), &other.map(|e| e.kind));
                continue;
            }
        };
        if one.kind != other.kind {
            add("kind", path, &one.kind, &other.kind);
            continue;
        }
        if one.size != other.size {
            add("size", path, &one.size, &other.size);
        }
        if one.hash != other.hash && one.hash != "-" && other.hash != "-" {
            add("contents", path, &one.hash, &other.hash);
        }
        if one.target != other.target {
            let text = |entry: &Entry| entry.target.escape_ascii().to_string();
            add("target", path, &text(one), &text(other));
        }
        if one.device != other.device {
            add("device", path, &one.device, &other.device);
        }
        let names = |tree: &Tree, node| -> Vec<String> {
            let same = tree.iter().filter(|(_, entry)| entry.node == node);
            same.map(|(path, _)| path.escape_ascii().to_string())
                .collect()
        };
        let links = (names(ours, one.node), names(theirs, other.node));
        if links.0 != links.1 {
            add("links", path, &links.0, &links.1);
        }
        if one.implied || other.implied {
            continue;
        }
        if one.mode != other.mode && one.kind != 'l' {
            add("mode", path, &one.mode, &other.mode);
        }
        if (one.uid, one.gid) != (other.uid, other.gid) {
            add("owner", path, &(one.uid, one.gid), &(other.uid, other.gid));
        }
        if one.mtime != other.mtime {
            add("mtime", path, &one.mtime, &other.mtime);
        }
    }
    found
}

/// Most links on the way to a path.
const LINKS_MAX: u32 = 40;

/// Members put into effect one after the other, as GNU tar extracts them.
#[derive(Default)]
pub struct Extraction {
    tree: Tree,
    nodes: u64,
}

impl Extraction {
    pub fn finish(self) -> Tree {
        self.tree
    }

    /// Adds a member; `link` is the target of a hard link, which has no more than a path.
    ///
    /// # Errors
    /// Why a reader could not extract it.
    pub fn add(&mut self, path: &[u8], entry: Entry, link: Option<&[u8]>) -> Result<(), String> {
        let path = self.place(path)?;
        let entry = match link {
            None => entry,
            Some(target) => {
                let target = self.place(target)?;
                let found = self.tree.get(&target);
                let found = found.ok_or("hard link to nothing")?;
                if found.kind == 'd' {
                    return Err("hard link to a directory".to_owned());
                }
                found.clone()
            }
        };
        let below = [&path[..], b"/"].concat();
        let has_children = path == b"." || self.tree.keys().any(|key| key.starts_with(&below));
        match self.tree.get_mut(&path) {
            Some(old) if old.kind == 'd' && entry.kind == 'd' => {
                *old = Entry {
                    node: old.node,
                    ..entry
                };
                return Ok(());
            }
            _ if entry.kind != 'd' && has_children => {
                return Err("would replace a directory".to_owned());
            }
            _ => {}
        }
        let node = match link {
            Some(_) => entry.node,
            None => self.new_node(),
        };
        self.tree.insert(path, Entry { node, ..entry });
        Ok(())
    }

    fn new_node(&mut self) -> u64 {
        self.nodes += 1;
        self.nodes
    }

    /// Where a path leads: links on the way followed, directories on the way made.
    fn place(&mut self, path: &[u8]) -> Result<Vec<u8>, String> {
        let mut todo: Vec<Vec<u8>> = Vec::new();
        let plain = plain_path(path).ok_or("a path with \"..\"")?;
        todo.extend(plain.split(|&b| b == b'/').rev().map(<[u8]>::to_vec));
        let (mut at, mut links): (Vec<u8>, u32) = (Vec::new(), 0);
        while let Some(name) = todo.pop() {
            match &name[..] {
                b"" | b"." => continue,
                b".." => {
                    let end = at.iter().rposition(|&b| b == b'/').unwrap_or(0);
                    at.truncate(end);
                    continue;
                }
                _ => {}
            }
            let here = match at.is_empty() {
                true => name.clone(),
                false => [&at[..], b"/", &name].concat(),
            };
            if todo.is_empty() {
                return Ok(here);
            }
            match self.tree.get(&here).map(|entry| entry.kind) {
                Some('d') => at = here,
                Some('l') => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err("too many links".to_owned());
                    }
                    let target = self.tree[&here].target.clone();
                    if target.starts_with(b"/") {
                        at.clear();
                    }
                    todo.extend(target.split(|&b| b == b'/').rev().map(<[u8]>::to_vec));
                }
                Some(_) => return Err("a path through a file".to_owned()),
                None => {
                    let node = self.new_node();
                    let made = Entry {
                        kind: 'd',
                        node,
                        implied: true,
                        ..Entry::default()
                    };
                    self.tree.insert(here.clone(), made);
                    at = here;
                }
            }
        }
        Ok(if at.is_empty() { b".".to_vec() } else { at })
    }
}
